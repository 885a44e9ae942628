"""Consumer groups of stock clients: members come, share, go; offsets survive brokers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from tests.integration.conftest import StartBroker, StartCluster, serving
from tests.integration.support import confluent
from tests.integration.support.confluent import wait_until
from tests.integration.support.members import DEADLINE_S, MEMBERS, Member, wait_until_shared
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record

PARTITIONS = 4
KINDS = pytest.mark.parametrize("kind", list(MEMBERS))
ON_EITHER_STORE = list(zip(MEMBERS, itertools.cycle(("sqlite", "zookeeper")), strict=False))
"""No client sees the store: each is taken with one of the two."""
PROPERTIES = {"group.initial.rebalance.delay.ms": 100}


@pytest.fixture(scope="module")
def group_broker(
    tmp_path_factory: pytest.TempPathFactory, make_broker: StartBroker
) -> Iterator[BrokerProcess]:
    with serving(make_broker(tmp_path_factory.mktemp("groups") / "data", properties=PROPERTIES)) as broker:
        yield broker


def write(bootstrap: str, topic: str, first: int, count: int = 40) -> list[bytes]:
    """``count`` records, spread over the partitions. Returns their values."""
    values = [b"record %d" % number for number in range(first, first + count)]
    for partition in range(PARTITIONS):
        records = [Record(None, value, (), None) for value in values[partition::PARTITIONS]]
        confluent.write(bootstrap, topic, records, partition=partition)
    return values


@contextmanager
def joined(kind: str, bootstrap: str, group: str, topic: str) -> Iterator[Member]:
    member = MEMBERS[kind](bootstrap, group, topic)
    try:
        yield member
    finally:
        member.leave()


def wait_until_received(members: list[Member], values: list[bytes]) -> None:
    def is_there() -> bool:
        return {value for member in members for value in member.values} >= set(values)

    wait_until(is_there, f"{len(values)} records reach {members}", deadline_s=DEADLINE_S)


def committed(bootstrap: str, group: str) -> dict[int, int]:
    """By partition, as an admin client is told."""
    client = confluent.admin(bootstrap)
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(DEADLINE_S).topic_partitions
    return {each.partition: each.offset for each in found}


@KINDS
def test_a_group_goes_on_where_it_was(group_broker: BrokerProcess, kind: str, topic: str) -> None:
    bootstrap = group_broker.bootstrap
    confluent.make_topic(bootstrap, topic, partitions=PARTITIONS)
    for first in (0, 40):
        values = write(bootstrap, topic, first)
        with joined(kind, bootstrap, topic, topic) as member:
            wait_until_received([member], values)
        assert sorted(member.values) == sorted(values), "each once, and none of before"
    assert committed(bootstrap, topic) == dict.fromkeys(range(PARTITIONS), 20)


@KINDS
def test_members_share_the_partitions_and_inherit_from_who_leaves(
    group_broker: BrokerProcess, kind: str, topic: str
) -> None:
    bootstrap = group_broker.bootstrap
    confluent.make_topic(bootstrap, topic, partitions=PARTITIONS)
    with joined(kind, bootstrap, topic, topic) as first:
        wait_until_shared([first], PARTITIONS)
        with joined(kind, bootstrap, topic, topic) as second:
            wait_until_shared([first, second], PARTITIONS)
            wait_until_received([first, second], write(bootstrap, topic, 0))
        wait_until_shared([first], PARTITIONS)
        wait_until_received([first], write(bootstrap, topic, 40))


def test_all_clients_are_members_of_one_group(group_broker: BrokerProcess, topic: str) -> None:
    bootstrap = group_broker.bootstrap
    confluent.make_topic(bootstrap, topic, partitions=PARTITIONS)
    classic = [kind for kind in MEMBERS if "848" not in kind]
    with ExitStack() as stack:
        members = [stack.enter_context(joined(kind, bootstrap, topic, topic)) for kind in classic]
        wait_until_shared(members, PARTITIONS)
        wait_until_received(members, write(bootstrap, topic, 0))


@KINDS
def test_commits_survive_a_killed_broker_and_members_come_back(
    start_broker: StartBroker, kind: str, topic: str
) -> None:
    broker = start_broker(properties=PROPERTIES)
    confluent.make_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    with joined(kind, broker.bootstrap, topic, topic) as member:
        values = write(broker.bootstrap, topic, 0)
        wait_until_received([member], values)
        wait_until(lambda: sum(committed(broker.bootstrap, topic).values()) == 40, "all is committed")
        broker.kill()
        broker.start()
        assert committed(broker.bootstrap, topic) == dict.fromkeys(range(PARTITIONS), 10)
        wait_until_received([member], write(broker.bootstrap, topic, 40))


@pytest.mark.minikafka_only
@pytest.mark.parametrize(("kind", "engine"), ON_EITHER_STORE, indirect=["engine"])
def test_the_coordinator_moves_and_the_group_goes_on(
    start_cluster: StartCluster, kind: str, topic: str
) -> None:
    cluster = start_cluster(properties=PROPERTIES | {"offsets.topic.num.partitions": 1})
    confluent.make_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replicas=3)
    with joined(kind, cluster.bootstrap, topic, topic) as member:
        wait_until_received([member], write(cluster.bootstrap, topic, 0))
        wait_until(lambda: sum(committed(cluster.bootstrap, topic).values()) == 40, "all is committed")
        coordinator = cluster.leader("__consumer_offsets")
        cluster.brokers[coordinator].kill()
        wait_until(lambda: cluster.leader("__consumer_offsets") != coordinator, "another one leads")
        wait_until_received([member], write(cluster.bootstrap, topic, 40))
        wait_until(lambda: sum(committed(cluster.bootstrap, topic).values()) == 80, "it goes on committing")
        cluster.brokers[coordinator].start()
