"""What the brokers of `minikafka.testing` tell a test of the groups of its application."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, ShareConsumer

from minikafka.testing import Broker, Group, ThreadedBroker, ThreadedCluster
from tests.support.streams import join_streams_group

TOPIC, GROUP = "orders", "workers"
RECORDS = 6
CONFIG = {
    "num.partitions": 2,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 0,
}


@pytest.fixture
def broker() -> Iterator[ThreadedBroker]:
    with ThreadedBroker(config=CONFIG) as running:
        yield running


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


def share(bootstrap: str) -> ShareConsumer:
    """A member that has been given records, which it has not acknowledged."""
    member = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "client.id": "one",
            "share.acknowledgement.mode": "explicit",
        }
    )
    member.subscribe([TOPIC])
    return member


def take(member: ShareConsumer) -> list[Message]:
    """The next records that the member is given."""
    while not (messages := member.poll(1.0)):
        pass
    assert all(each.error() is None for each in messages)
    return list(messages)


def check_a_share_group(broker: ThreadedBroker | ThreadedCluster) -> None:
    write(broker.bootstrap_servers)  # makes the topic; a share group begins at its end
    member = share(broker.bootstrap_servers)
    member.poll(0.1)
    joined = broker.wait_for_group(GROUP, members=1)
    assert (joined.type, joined.state) == ("share", "Stable")
    assert joined.members[0].client_id == "one"
    assert joined.members[0].assignment == {TOPIC: (0, 1)}
    while len(group_of(broker).offsets) < 2:  # each partition is begun by the first fetch
        member.poll(0.1)
    write(broker.bootstrap_servers)
    taken = take(member)
    group = group_of(broker)
    assert RECORDS >= group.in_flight >= len(taken), "given out, not acknowledged"
    assert group.lag == RECORDS
    assert max(each.delivery_count for each in group.offsets.values()) == 1
    with pytest.raises(TimeoutError, match=f"consumed all of {TOPIC}.*in_flight=[1-6]"):
        broker.wait_until_consumed(GROUP, TOPIC, timeout_s=0.1)
    for message in taken:
        member.acknowledge(message)
    while len(taken) < RECORDS:
        taken += (more := take(member))
        for message in more:
            member.acknowledge(message)
    member.commit_sync(30.0)
    group = broker.wait_until_consumed(GROUP, TOPIC)
    assert group.in_flight == 0 and group.offsets[TOPIC, 0].lag == 0
    member.close()
    left = broker.wait_for_group(GROUP, members=0)
    assert left.state == "Empty" and left.lag == 0, "its offsets outlive its members"


def group_of(broker: ThreadedBroker | ThreadedCluster) -> Group:
    group = broker.group(GROUP)
    assert group is not None
    return group


def test_a_share_group_with_records_in_flight(broker: ThreadedBroker) -> None:
    check_a_share_group(broker)


def test_a_share_group_whose_partitions_other_brokers_lead() -> None:
    with ThreadedCluster(brokers=3, config=CONFIG) as cluster:
        check_a_share_group(cluster)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_consumers(broker: ThreadedBroker, protocol: str) -> None:
    write(broker.bootstrap_servers)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": GROUP,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    values: list[bytes | None] = []
    while len(values) < RECORDS:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value())
    group = broker.wait_for_group(GROUP, members=1)
    assert group.type == protocol and group.members[0].assignment == {TOPIC: (0, 1)}
    assert group.offsets == {}, "nothing is committed"
    with pytest.raises(TimeoutError):
        broker.wait_until_consumed(GROUP, TOPIC, timeout_s=0.1)
    consumer.commit(asynchronous=False)
    assert broker.wait_until_consumed(GROUP, TOPIC).lag == 0
    consumer.close()


async def test_the_tasks_of_a_streams_group() -> None:
    async with Broker(config=CONFIG) as broker:
        await asyncio.to_thread(write, broker.bootstrap_servers)
        assert await broker.group(GROUP) is None
        with pytest.raises(TimeoutError, match=r"workers: .* 0\.05 s: 1 members.* there is no such group"):
            await broker.wait_for_group(GROUP, members=1, timeout_s=0.05)
        client = await join_streams_group(broker.port, GROUP, TOPIC, client_id="words")
        group = await broker.wait_for_group(GROUP, members=1)
        assert (group.type, group.state) == ("streams", "Stable")
        assert group.members[0].client_id == "words"
        assert group.members[0].assignment == {"0": (0, 1)} and group.members[0].standby == {}
        await client.close()
