"""What the broker knows of the cluster."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from minikafka.errors import InvariantError
from minikafka.protocol.control import (
    LEADER_DURING_DELETE,
    LeaderAndIsrPartition,
    ListenerEndpoint,
    LiveBroker,
    UpdateMetadataRequest,
)
from minikafka.server.cluster.metadata_cache import (
    ENCODED_FROM_PARTITIONS,
    EncodedPartitions,
    Endpoint,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from minikafka.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition
from tests.unit.server.virtual_time import in_virtual_time, passing

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


def broker(node_id: BrokerId, *listeners: str) -> LiveBroker:
    endpoints = tuple(ListenerEndpoint(name, "localhost", 9000 + node_id) for name in listeners)
    return LiveBroker(node_id, 70 + node_id, endpoints, f"rack-{node_id}")


def news(
    name: str, partition: int = 0, *, topic_id: int = 1, leader: BrokerId = ONE, epoch: int = 0
) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        topic=name,
        topic_id=UUID(int=topic_id),
        partition=partition,
        controller_epoch=1,
        leader=leader,
        leader_epoch=LeaderEpoch(epoch),
        isr=(ONE, TWO),
        partition_epoch=0,
        replicas=(ONE, TWO),
    )


def tell(
    cache: MetadataCache,
    *partitions: LeaderAndIsrPartition,
    brokers: tuple[LiveBroker, ...] = (),
    is_full: bool = False,
) -> dict[str, int]:
    """The topics that are gone, and the numbers in their ids."""
    gone = cache.update(UpdateMetadataRequest(TWO, 1, 70, partitions, brokers, is_full))
    return {name: topic_id.int for name, topic_id in gone.items()}


def test_a_topic_is_found_by_name_and_by_id_until_it_goes() -> None:
    cache = MetadataCache()
    cache.put_topic(topic("b", 2))
    cache.put_topic(topic("a", 1, partitions=2))
    assert [each.name for each in cache.topics()] == ["a", "b"]
    assert cache.topic_by_id(UUID(int=2)) == cache.topic("b") == topic("b", 2)
    assert tell(cache, news("b", topic_id=2, leader=LEADER_DURING_DELETE)) == {"b": 2}
    assert cache.topic("b") is cache.topic_by_id(UUID(int=2)) is None
    assert [each.name for each in cache.topics()] == ["a"]


def test_a_topic_created_again_leaves_nothing_of_the_old_one() -> None:
    cache = MetadataCache()
    cache.put_topic(topic("a", 1))
    cache.put_topic(topic("a", 2))
    assert cache.topic_by_id(UUID(int=1)) is None
    assert cache.topics() == (topic("a", 2),)


def test_the_names_of_topics_are_one_tuple_until_a_topic_comes_or_goes() -> None:
    """Regular expressions of groups are matched again only for another one."""
    cache = MetadataCache()
    cache.put_topic(topic("b", 2))
    seen: list[tuple[str, ...]] = []
    cache.follow_topics(lambda: seen.append(cache.topic_names()))
    cache.put_topic(topic("a", 1))
    assert seen == [("b",)], "told before it is there"
    names = cache.topic_names()
    assert names == ("a", "b")
    cache.put_topic(topic("a", 3))
    assert cache.topic_names() is names


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
    tell(cache, brokers=(broker(ONE, "PLAINTEXT", "INSIDE"),))
    assert cache.offline_replicas(partition(0)) == (TWO,)
    tell(cache, brokers=(broker(ONE, "PLAINTEXT", "INSIDE"), broker(TWO, "INSIDE")))
    assert cache.offline_replicas(partition(0)) == ()
    assert cache.offline_replicas(partition(0), listener_name="PLAINTEXT") == (TWO,)
    assert cache.offline_replicas(partition(0, offline=(ONE,)), listener_name="INSIDE") == (ONE,)
    assert cache.reachable((TWO, ONE), listener_name="INSIDE") == (TWO, ONE)
    assert cache.reachable((TWO, ONE), listener_name="PLAINTEXT") == (ONE,)
    tell(cache, brokers=(broker(TWO, "INSIDE"),))
    assert not cache.is_alive(ONE)
    assert [each.node_id for each in cache.brokers()] == [TWO]


def test_brokers_are_those_that_the_controller_named_last() -> None:
    cache = MetadataCache()
    tell(cache, brokers=(broker(TWO, "INSIDE"), broker(ONE, "PLAINTEXT")))
    assert [each.node_id for each in cache.brokers()] == [ONE, TWO]
    assert cache.controller_id == TWO
    found = cache.broker(ONE)
    assert found is not None
    assert (found.endpoint("PLAINTEXT"), found.endpoint("SSL")) == (Endpoint("localhost", 9001), None)
    assert (found.rack, found.epoch, cache.live_broker_epoch(ONE)) == ("rack-1", 71, 71)
    assert cache.live_broker(ONE) == broker(ONE, "PLAINTEXT")
    tell(cache, brokers=(broker(TWO, "INSIDE"),))
    assert cache.broker(ONE) is cache.live_broker(ONE) is cache.live_broker_epoch(ONE) is None


def test_news_of_one_partition_leaves_the_others_as_they_were() -> None:
    cache = MetadataCache()
    assert tell(cache, news("a", 0), news("a", 1), news("b", topic_id=2)) == {}
    before = cache.topic("a")
    assert tell(cache, news("a", 1, leader=TWO, epoch=3)) == {}
    found = cache.topic("a")
    assert found is not None and before is not None
    assert [(each.leader, each.leader_epoch) for each in found.partitions] == [(ONE, 0), (TWO, 3)]
    assert [each.leader for each in before.partitions] == [ONE, ONE]  # a reader keeps its moment
    assert cache.topic_by_id(UUID(int=1)) == found
    assert [each.name for each in cache.topics()] == ["a", "b"]


def test_what_a_full_update_does_not_name_is_gone() -> None:
    cache = MetadataCache()
    tell(cache, news("a"), news("b", topic_id=2))
    assert tell(cache, news("b", topic_id=2), news("c", topic_id=3), is_full=True) == {"a": 1}
    assert [each.name for each in cache.topics()] == ["b", "c"]
    assert cache.topic_by_id(UUID(int=1)) is None


def test_a_topic_is_gone_when_the_controller_says_that_it_is_being_deleted() -> None:
    cache = MetadataCache()
    tell(cache, news("a", 0), news("a", 1), news("b", topic_id=2))
    assert tell(cache, news("a", 0, leader=LEADER_DURING_DELETE)) == {"a": 1}
    assert cache.topic("a") is cache.topic_by_id(UUID(int=1)) is None
    assert tell(cache, news("a", 1, leader=LEADER_DURING_DELETE)) == {"a": 1}  # again: nothing is left to go
    assert [each.name for each in cache.topics()] == ["b"]


def test_another_topic_of_the_same_name_has_nothing_of_the_first() -> None:
    cache = MetadataCache()
    tell(cache, news("a", 0), news("a", 1))
    assert tell(cache, news("a", 0, topic_id=9, leader=TWO)) == {"a": 1}
    found = cache.topic("a")
    assert found is not None
    assert (found.topic_id, [each.leader for each in found.partitions]) == (UUID(int=9), [TWO])
    assert cache.topic_by_id(UUID(int=1)) is None


def test_placeholder_partitions_have_neither_leader_nor_replicas() -> None:
    cache = MetadataCache()
    tell(cache, news("a", 2))
    found = cache.topic("a")
    assert found is not None
    assert [(each.partition, each.leader, each.replicas) for each in found.partitions] == [
        (0, NO_LEADER, ()),
        (1, NO_LEADER, ()),
        (2, ONE, (ONE, TWO)),
    ]
    tell(cache, news("a", 0))
    first = cache.partition(TopicPartition("a", 0))
    assert first is not None and first.leader == ONE


def test_internal_topics_are_known_by_their_names() -> None:
    cache = MetadataCache()
    tell(cache, news("__consumer_offsets"), news("a", topic_id=2))
    assert [each.is_internal for each in cache.topics()] == [True, False]


@in_virtual_time
async def test_who_waits_is_woken_by_the_update_that_makes_it_true() -> None:
    cache = MetadataCache()
    waiting = asyncio.create_task(cache.wait_for(lambda: cache.topic("a"), timeout_ms=1000))
    hopeless = asyncio.create_task(cache.wait_for(lambda: cache.topic("z"), timeout_ms=1000))
    await passing(500)
    tell(cache, news("b", topic_id=2))
    await passing(100)
    assert not waiting.done()
    tell(cache, news("a"))
    await passing(0)
    assert waiting.done() and await waiting
    assert await cache.wait_for(
        lambda: cache.topic("a"), timeout_ms=0
    )  # what is true already is not waited for
    assert not hopeless.done()
    await passing(400)
    assert hopeless.done() and not await hopeless


def test_the_version_of_the_topics_rises_when_one_comes_grows_or_goes() -> None:
    cache = MetadataCache()
    seen = [cache.topics_version]

    def rose() -> bool:
        seen.append(cache.topics_version)
        return seen[-1] > seen[-2]

    tell(cache, news("a"))
    assert rose()
    tell(cache, news("a"))
    assert not rose(), "only its leader may be another one"
    tell(cache, news("a", partition=1))
    assert rose()
    tell(cache, news("a", topic_id=2))
    assert rose()
    tell(cache, news("a", topic_id=2, leader=LEADER_DURING_DELETE))
    assert rose()


def test_encoded_partitions_last_until_their_topic_or_a_broker_changes() -> None:
    cache = MetadataCache()
    both = (broker(ONE, "A"), broker(TWO, "A"))
    wide = [news("wide", number) for number in range(ENCODED_FROM_PARTITIONS)]
    tell(cache, *wide, news("small", topic_id=2), brokers=both)

    def encoded(name: str) -> EncodedPartitions | None:
        known = cache.topic(name)
        assert known is not None
        return cache.encoded(known)

    def filled() -> EncodedPartitions:
        found = encoded("wide")
        assert found is not None
        found["A", 9] = b"x"
        return found

    assert encoded("small") is None
    first = filled()
    tell(cache, news("small", topic_id=2, epoch=1), brokers=both)
    assert encoded("wide") is first, "neither the topic nor a broker has changed"
    before = cache.topic("wide")
    assert before is not None
    tell(cache, news("wide", 3, leader=TWO, epoch=1), brokers=both)
    assert cache.encoded(before) is None, "who began before the change keeps nothing"
    assert encoded("wide") == {}
    filled()
    tell(cache, brokers=both[:1])
    assert encoded("wide") == {}
    filled()
    tell(cache, news("wide", leader=BrokerId(LEADER_DURING_DELETE)), brokers=both[:1])
    tell(cache, *wide, brokers=both[:1])
    assert encoded("wide") == {}
