"""Share groups of stock clients (KIP-932): each record to one member, and none again that was acknowledged,
whatever becomes of who leads and of who keeps the state."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import NewTopic

from tests.chaos.programs import kgo
from tests.integration.conftest import StartBroker, StartCluster
from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess
from tests.integration.support.sharing import ShareGroup, configure_group

pytestmark = pytest.mark.reference("4.4.0")
PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": 2,
    "offsets.topic.num.partitions": 2,
    "group.share.heartbeat.interval.ms": 1_000,
    "group.share.min.heartbeat.interval.ms": 1_000,
}
STATE = "__share_group_state"


@pytest.fixture
def broker(tmp_path: Path, start_broker: StartBroker) -> BrokerProcess:
    found: BrokerProcess = start_broker(properties=PROPERTIES)
    return found


def produced(bootstrap: str, topic: str, name: str, count: int) -> set[bytes]:
    return write(bootstrap, topic, [f"{name}-{number}".encode() for number in range(count)])


def write(bootstrap: str, topic: str, values: Sequence[bytes]) -> set[bytes]:
    producer = confluent.make_producer(bootstrap)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    return set(values)


@contextmanager
def groups_of_each_client(bootstrap: str, topic: str) -> Iterator[list[ShareGroup]]:
    """Two members of librdkafka in one group, and two of kgo in another where Go is; in the end nothing came
    again that was accepted."""
    programs: list[Path | None] = [None]
    if shutil.which("go") is not None:
        programs.append(kgo())
    groups = []
    for program in programs:
        group = "workers" if program is None else "kgo-workers"
        configure_group(bootstrap, group, share_auto_offset_reset="earliest")
        groups.append(ShareGroup(bootstrap, group, topic, members=2, kgo=program))
    try:
        yield groups
    finally:
        for each in groups:
            each.close()
    for each in groups:
        each.check()


def test_members_share_a_partition_and_what_they_accept_survives_a_kill(broker: BrokerProcess) -> None:
    topic = "orders"
    confluent.make_topic(broker.bootstrap, topic)
    values = produced(broker.bootstrap, topic, "a", 200)
    with groups_of_each_client(broker.bootstrap, topic) as groups:
        for group in groups:
            group.wait_for(values)
        broker.kill()
        broker.start()
        values |= produced(broker.bootstrap, topic, "b", 100)
        for group in groups:
            group.wait_for(values)
    for group in groups:
        assert {each.value for each in group.deliveries} == values


WRITTEN = (b"v0", b"release1", b"reject2", b"v3")
DELIVERED = [
    ["0", "0", "1", "v0"],
    ["0", "1", "1", "release1"],
    ["0", "2", "1", "reject2"],
    ["0", "3", "1", "v3"],
    ["0", "1", "2", "release1"],
]
"""Partition, offset, delivery count and value, to a member that does with them what they say."""


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not there")
def test_kgo_releases_rejects_and_accepts(broker: BrokerProcess) -> None:
    topic, group = "tasks", "kgo"
    confluent.make_topic(broker.bootstrap, topic)
    configure_group(broker.bootstrap, group, share_auto_offset_reset="earliest")
    write(broker.bootstrap, topic, WRITTEN)
    command = [kgo(), "share", broker.bootstrap, group, topic, "4"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [line.split() for line in ended.stdout.splitlines()] == DELIVERED
    others = ShareGroup(broker.bootstrap, group, topic, members=1)
    others.wait_for(write(broker.bootstrap, topic, [b"more"]))
    others.close()
    assert {each.value for each in others.deliveries} == {b"more"}, "all that kgo had is settled"


@pytest.fixture(scope="module")
def newest_java() -> Iterator[str]:
    yield java.class_path(java.CLIENT_VERSIONS[-1])


@pytest.mark.java
def test_a_java_consumer_releases_rejects_and_accepts(broker: BrokerProcess, newest_java: str) -> None:
    topic, group = "tasks", "java"
    confluent.make_topic(broker.bootstrap, topic)
    configure_group(broker.bootstrap, group, share_auto_offset_reset="earliest")
    write(broker.bootstrap, topic, WRITTEN)
    printed = java.run(newest_java, "ShareConsume", broker.bootstrap, group, topic, "4", "30000")
    records = [line.split() for line in printed.splitlines() if line[0].isdigit()]
    assert records == DELIVERED
    shown = java.run(
        newest_java,
        java.NEWEST_DUMP_TOOL,
        *("--share-group-state-decoder", "--files"),
        ",".join(str(path) for number in (0, 1) for path in broker.files(STATE, ".log", number)),
    )
    assert '"deliveryState":4,"deliveryCount":1' in shown
    assert '"firstOffset":1,"lastOffset":1,"deliveryState":2,"deliveryCount":2' in shown


@pytest.mark.java
def test_kafkas_verifiable_share_consumer_acknowledges_what_it_gets(
    broker: BrokerProcess, newest_java: str
) -> None:
    topic, group = "tasks", "verifiable"
    confluent.make_topic(broker.bootstrap, topic)
    configure_group(broker.bootstrap, group, share_auto_offset_reset="earliest")
    write(broker.bootstrap, topic, WRITTEN)
    tool = "org.apache.kafka.tools.VerifiableShareConsumer"
    arguments = ("--topic", topic, "--group-id", group, "--max-messages", str(len(WRITTEN)))
    printed = java.run(newest_java, tool, "--bootstrap-server", broker.bootstrap, *arguments)
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    acknowledged = [each for each in events if each["name"] == "offsets_acknowledged"]
    assert sum(each["count"] for each in acknowledged) == len(WRITTEN)
    assert all(each["success"] for each in acknowledged)


@pytest.mark.minikafka_only
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_leaders_and_share_coordinators_are_killed_under_load(start_cluster: StartCluster) -> None:
    topic = "orders"
    cluster = start_cluster(properties=PROPERTIES | {"share.coordinator.state.topic.num.partitions": 1})
    cluster.make_topic(topic)
    values = produced(cluster.bootstrap, topic, "0", 100)
    with groups_of_each_client(cluster.bootstrap, topic) as groups:
        for group in groups:
            group.wait_for(values)
        for number, what in enumerate((topic, STATE), start=1):
            victim = cluster.leader(what)
            cluster.brokers[victim].kill()
            values |= produced(cluster.bootstrap, topic, str(number), 100)
            for group in groups:
                group.wait_for(values, deadline_s=90)
            cluster.brokers[victim].start()
            cluster.wait_until_whole(topic, STATE)
    for group in groups:
        assert {each.value for each in group.deliveries} == values


@pytest.mark.minikafka_only
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_rejected_record_is_in_the_dead_letter_queue_although_the_leader_is_killed_before(
    start_cluster: StartCluster,
) -> None:
    """The queue has too few replicas in sync until the leader was killed: what was rejected is written after
    that, for the state says that it is still to be written."""
    topic, group, queue = "orders", "workers", "dlq.orders"
    cluster = start_cluster(properties=PROPERTIES)
    admin = confluent.admin(cluster.bootstrap)
    config = {"errors.deadletterqueue.group.enable": "true", "min.insync.replicas": "2"}
    for made in (
        NewTopic(topic, 1, replica_assignment=[[1]]),
        NewTopic(queue, 1, replica_assignment=[[2, 3]], config=config),
    ):
        admin.create_topics([made])[made.topic].result(30)
    configure_group(
        cluster.bootstrap,
        group,
        share_auto_offset_reset="earliest",
        errors_deadletterqueue_topic_name=queue,
        errors_deadletterqueue_copy_record_enable="true",
    )
    write(cluster.bootstrap, topic, [b"good-0", b"bad-1", b"good-2"])
    cluster.brokers[3].kill()
    confluent.wait_until(
        lambda: cluster.isr(queue) == (2,), "the queue has one replica in sync", deadline_s=60
    )
    member = {"bootstrap.servers": cluster.bootstrap, "group.id": group}
    consumer = ShareConsumer(member | {"share.acknowledgement.mode": "explicit"})
    consumer.subscribe([topic])
    seen: set[bytes] = set()

    def has_seen_all() -> bool:
        for message in consumer.poll(0.5):
            value = message.value()
            assert message.error() is None and isinstance(value, bytes)
            kind = AcknowledgeType.REJECT if value.startswith(b"bad") else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, kind)
            seen.add(value)
        return len(seen) == 3

    confluent.wait_until(has_seen_all, "the member has all three records")
    outcomes = consumer.commit_sync(30.0)
    assert outcomes and not any(outcomes.values())
    cluster.brokers[1].kill()
    cluster.brokers[3].start()
    cluster.wait_until_all_in_sync(queue)
    assert confluent.latest(cluster.bootstrap, queue) == 0, "nobody has written it yet"
    cluster.brokers[1].start()

    def is_queued() -> bool:
        assert not [message.value() for message in consumer.poll(0.5) if message.error() is None]
        return confluent.latest(cluster.bootstrap, queue) > 0

    confluent.wait_until(is_queued, "the rejected record is in the queue")
    consumer.close()
    (letter,) = confluent.read(cluster.bootstrap, queue, 1)
    assert letter.value == b"bad-1"
    assert letter.headers == (
        ("__dlq.errors.topic", topic.encode()),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"1"),
        ("__dlq.errors.group", group.encode()),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )


@pytest.mark.minikafka_only
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_leaders_create_a_dead_letter_queue_together_and_write_to_other_brokers(
    start_cluster: StartCluster,
) -> None:
    topic, group, queue, count = "orders", "workers", "dlq.orders", 50
    created = {"errors.deadletterqueue.auto.create.topics.enable": "true", "num.partitions": 3}
    cluster = start_cluster(properties=PROPERTIES | created)
    confluent.make_topic(cluster.bootstrap, topic, partitions=3)
    configure_group(
        cluster.bootstrap,
        group,
        share_auto_offset_reset="earliest",
        errors_deadletterqueue_topic_name=queue,
        errors_deadletterqueue_copy_record_enable="true",
    )
    values = {number: [f"{number}-{index}".encode() for index in range(count)] for number in range(3)}
    producer = confluent.make_producer(cluster.bootstrap)
    for number in values:
        for value in values[number]:
            producer.produce(topic, value, partition=number)
    assert producer.flush(60) == 0
    member = {"bootstrap.servers": cluster.bootstrap, "group.id": group}
    consumer = ShareConsumer(member | {"share.acknowledgement.mode": "explicit"})
    consumer.subscribe([topic])
    rejected: list[bytes | str | None] = []

    def are_all_rejected() -> bool:
        for message in consumer.poll(0.5):
            assert message.error() is None
            consumer.acknowledge(message, AcknowledgeType.REJECT)
            rejected.append(message.value())
        return len(rejected) == 3 * count

    confluent.wait_until(are_all_rejected, "the member has rejected all records")
    consumer.commit_sync(30.0)
    for number in values:
        letters = confluent.read(cluster.bootstrap, queue, count, partition=number)
        assert [letter.value for letter in letters] == values[number]
    consumer.close()
