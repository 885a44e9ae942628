"""What the broker knows of the cluster."""

from __future__ import annotations

from uuid import UUID

import pytest

from minikafka.errors import InvariantError
from minikafka.server.metadata_cache import (
    BrokerEndpoints,
    Endpoint,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition

ONE, TWO = BrokerId(1), BrokerId(2)


def partition(number: int, *, offline: tuple[BrokerId, ...] = ()) -> PartitionMetadata:
    return PartitionMetadata(
        partition=number,
        leader=ONE,
        leader_epoch=LeaderEpoch(0),
        replicas=(ONE, TWO),
        isr=(ONE, TWO),
        offline_replicas=offline,
    )


def topic(name: str, number: int, *, partitions: int = 1) -> TopicMetadata:
    return TopicMetadata(
        name=name, topic_id=UUID(int=number), partitions=tuple(partition(each) for each in range(partitions))
    )


def broker(node_id: BrokerId, *listeners: str) -> BrokerEndpoints:
    return BrokerEndpoints(
        node_id=node_id, endpoints={name: Endpoint("localhost", 9000 + node_id) for name in listeners}
    )


def test_a_topic_is_found_by_name_and_by_id_until_it_goes() -> None:
    cache = MetadataCache()
    cache.put_topic(topic("b", 2))
    cache.put_topic(topic("a", 1, partitions=2))
    assert [each.name for each in cache.topics()] == ["a", "b"]
    assert cache.topic_by_id(UUID(int=2)) == cache.topic("b") == topic("b", 2)
    assert cache.remove_topic("b") == topic("b", 2)
    assert cache.topic("b") is cache.topic_by_id(UUID(int=2)) is cache.remove_topic("b") is None
    assert [each.name for each in cache.topics()] == ["a"]


def test_a_topic_made_anew_leaves_nothing_of_the_old_one() -> None:
    cache = MetadataCache()
    cache.put_topic(topic("a", 1))
    cache.put_topic(topic("a", 2))
    assert cache.topic_by_id(UUID(int=1)) is None
    assert cache.topics() == (topic("a", 2),)


def test_partitions_outside_a_topic_do_not_exist() -> None:
    cache = MetadataCache()
    cache.put_topic(topic("a", 1, partitions=2))
    assert cache.partition(TopicPartition("a", 1)) == partition(1)
    for missing in (TopicPartition("a", 2), TopicPartition("a", -1), TopicPartition("b", 0)):
        assert cache.partition(missing) is None


def test_two_topics_never_share_an_id_and_partitions_are_dense() -> None:
    cache = MetadataCache()
    cache.put_topic(topic("a", 1))
    with pytest.raises(InvariantError, match="one id"):
        cache.put_topic(topic("b", 1))
    gap = TopicMetadata(name="c", topic_id=UUID(int=3), partitions=(partition(1),))
    with pytest.raises(InvariantError, match="not 0, 1, 2"):
        cache.put_topic(gap)


def test_a_replica_is_offline_on_a_dead_broker_a_failed_disk_or_another_listener() -> None:
    cache = MetadataCache()
    cache.put_broker(broker(ONE, "PLAINTEXT", "INSIDE"))
    assert cache.offline_replicas(partition(0)) == (TWO,)
    cache.put_broker(broker(TWO, "INSIDE"))
    assert cache.offline_replicas(partition(0)) == ()
    assert cache.offline_replicas(partition(0), listener_name="PLAINTEXT") == (TWO,)
    assert cache.offline_replicas(partition(0, offline=(ONE,)), listener_name="INSIDE") == (ONE,)
    assert cache.reachable((TWO, ONE), listener_name="INSIDE") == (TWO, ONE)
    assert cache.reachable((TWO, ONE), listener_name="PLAINTEXT") == (ONE,)
    cache.remove_broker(ONE)
    assert not cache.is_alive(ONE)
    assert [each.node_id for each in cache.brokers()] == [TWO]


def test_a_broker_may_give_its_endpoints_as_plain_tuples() -> None:
    cache = MetadataCache()
    cache.put_broker(BrokerEndpoints(node_id=ONE, endpoints={"PLAINTEXT": ("::1", 9092)}))
    found = cache.broker(ONE)
    assert found is not None
    assert found.endpoint("PLAINTEXT") == Endpoint("::1", 9092)
    assert found.endpoint("SSL") is None
