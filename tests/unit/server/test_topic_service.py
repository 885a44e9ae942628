"""Topics come, grow and go: in the store, then on this broker, and after any crash as the store says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.coordination import paths
from minikafka.coordination.store import ConnectionLossError, CoordinationStore
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.types import NO_LEADER, PartitionState, ReplicaAssignment, TopicPartition


async def failure(work: Any) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await work
    return caught.value


async def nodes_of(store: CoordinationStore, name: str) -> list[str]:
    found = [
        path for path in (paths.topic_path(name), paths.topic_config_path(name)) if await store.exists(path)
    ]
    for path in found:
        found += [f"{path}/{child}" for child in await store.children(path)]
    return found


async def test_a_created_topic_is_in_the_store_on_the_disk_and_in_the_cache(admin_broker: Any) -> None:
    created = await admin_broker.topics.create_topic("a", partitions=2, configs={"retention.ms": "1000"})
    stored = paths.decode_topic("a", (await admin_broker.store.get(paths.topic_path("a"))).data)
    assert stored.topic_id == created.topic_id
    assert {partition: each.replicas for partition, each in stored.partitions.items()} == {0: (1,), 1: (1,)}
    state = await admin_broker.store.get(paths.partition_state_path("a", 1))
    assert paths.decode_partition_state("a", 1, state.data) == PartitionState(1, 0, (1,), 0)
    assert paths.decode_config((await admin_broker.store.get(paths.topic_config_path("a"))).data) == {
        "retention.ms": "1000"
    }
    topic = admin_broker.metadata.topic("a")
    assert (topic.topic_id, len(topic.partitions), topic.partitions[1].leader) == (created.topic_id, 2, 1)
    log = admin_broker.replica_manager.partition(TopicPartition("a", 1)).log
    assert (log.topic_id, log.config.retention_ms) == (created.topic_id, 1000)
    assert (admin_broker.directory / "a-1" / "partition.metadata").exists()


async def test_defaults_are_the_brokers(store: Any, tmp_path: Path, admin_broker: Any) -> None:
    created = await admin_broker.topics.create_topic("a")
    assert (created.partitions, created.replication_factor) == (1, 1)
    assert {entry.name: entry.value for entry in created.configs}["retention.ms"] == "604800000"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"name": "old_topic"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "old.topic"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "b", "partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "b", "partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
        ({"name": "b", "replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "b", "assignments": {0: [2]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "b", "configs": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "b", "configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "b", "configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_a_topic_that_cannot_be_leaves_nothing(
    admin_broker: Any, arguments: dict[str, Any], code: ErrorCode
) -> None:
    await admin_broker.topics.create_topic("old.topic")
    assert (await failure(admin_broker.topics.create_topic(**arguments))).code is code
    assert [topic.name for topic in admin_broker.metadata.topics()] == ["old.topic"]
    assert await admin_broker.store.children(paths.TOPICS) == ["old.topic"]


async def test_validate_only_says_what_would_be_and_does_nothing(admin_broker: Any) -> None:
    created = await admin_broker.topics.create_topic("a", partitions=3, validate_only=True)
    assert (created.topic_id, created.partitions) == (None, 3)
    assert await nodes_of(admin_broker.store, "a") == []
    assert admin_broker.metadata.topics() == ()


async def test_of_two_who_create_the_same_topic_one_wins(admin_broker: Any) -> None:
    outcomes = await asyncio.gather(
        *(admin_broker.topics.create_topic("a") for _ in range(3)),
        admin_broker.topics.create_topic("b.c"),
        admin_broker.topics.create_topic("b_c"),
        return_exceptions=True,
    )
    codes = [each.code if isinstance(each, KafkaError) else None for each in outcomes]
    assert codes == [
        None,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        None,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


async def test_another_brokers_topic_is_never_overwritten(admin_broker: Any) -> None:
    """The store decides, also when this broker has not heard of the topic; it then takes it up."""
    theirs = paths.TopicAssignment(UUID(int=77), {0: ReplicaAssignment((1,))})
    await admin_broker.store.ensure_path(paths.TOPICS)
    await admin_broker.store.create(paths.topic_path("a"), paths.encode_topic(theirs))
    for path in (paths.partitions_path("a"), paths.partition_path("a", 0)):
        await admin_broker.store.create(path)
    state = paths.encode_partition_state(PartitionState(1, 4, (1,), 0))
    await admin_broker.store.create(paths.partition_state_path("a", 0), state)
    error = await failure(admin_broker.topics.create_topic("a", configs={"retention.ms": "1"}))
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert await admin_broker.store.exists(paths.topic_config_path("a")) is None
    assert admin_broker.metadata.topic("a").topic_id == UUID(int=77)
    assert admin_broker.replica_manager.partition(TopicPartition("a", 0)).leader_epoch == 4


async def test_a_configuration_left_without_its_topic_is_replaced(admin_broker: Any) -> None:
    await admin_broker.store.ensure_path(paths.TOPIC_CONFIGS)
    leftover = paths.encode_config({"retention.ms": "5"})
    await admin_broker.store.create(paths.topic_config_path("a"), leftover)
    await admin_broker.topics.create_topic("a")
    assert (await admin_broker.store.get(paths.topic_config_path("a"))).data == paths.encode_config({})
    assert admin_broker.configs.topic_config("a").retention_ms == 604_800_000


async def test_a_crash_between_store_and_disk_is_repaired_at_the_next_start(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*args: Any, **kwargs: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(admin_broker.replica_manager, "become_leader", crash)
    with pytest.raises(SystemExit):
        await admin_broker.topics.create_topic("a", partitions=2, configs={"retention.ms": "9"})
    assert not (admin_broker.directory / "a-0").exists()
    admin_broker.kill()
    again = await admin_broker.restarted()
    for partition in (0, 1):
        hosted = again.replica_manager.partition(TopicPartition("a", partition))
        assert (hosted.log.log_end_offset, hosted.log.config.retention_ms) == (0, 9)
    again.stop()


async def test_every_start_is_a_new_leader_epoch(admin_broker: Any) -> None:
    created = await admin_broker.topics.create_topic("a")
    admin_broker.stop()
    for epoch in (1, 2):
        again = await admin_broker.restarted()
        assert again.metadata.topic("a").topic_id == created.topic_id
        assert again.metadata.topic("a").partitions[0].leader_epoch == epoch
        assert again.replica_manager.partition(TopicPartition("a", 0)).leader_epoch == epoch
        state = await again.store.get(paths.partition_state_path("a", 0))
        assert paths.decode_partition_state("a", 0, state.data).leader_epoch == epoch
        again.stop()


async def test_topics_of_kafkas_own_making_are_completed(admin_broker: Any) -> None:
    """A topic node alone is what Kafka's tools write; an old one has no id."""
    old = paths.TopicAssignment(None, {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((1,))})
    await admin_broker.store.ensure_path(paths.TOPICS)
    await admin_broker.store.create(paths.topic_path("a"), paths.encode_topic(old))
    await admin_broker.store.create(paths.partitions_path("a"))
    await admin_broker.store.create(paths.partition_path("a", 0))
    admin_broker.stop()
    again = await admin_broker.restarted()
    topic = again.metadata.topic("a")
    assert [partition.leader for partition in topic.partitions] == [1, 1]
    stored = paths.decode_topic("a", (await again.store.get(paths.topic_path("a"))).data)
    assert stored.topic_id == topic.topic_id != UUID(int=0)
    again.stop()


async def test_nobody_leads_what_lies_on_other_brokers_only(admin_broker: Any) -> None:
    other = paths.TopicAssignment(UUID(int=5), {0: ReplicaAssignment((2,))})
    await admin_broker.store.ensure_path(paths.TOPICS)
    await admin_broker.store.create(paths.topic_path("a"), paths.encode_topic(other))
    admin_broker.stop()
    again = await admin_broker.restarted()
    assert again.metadata.topic("a").partitions[0].leader == NO_LEADER
    assert TopicPartition("a", 0) not in again.replica_manager.partitions
    again.stop()


async def test_a_deleted_topic_is_gone_everywhere_and_may_come_again(admin_broker: Any) -> None:
    first = await admin_broker.topics.create_topic("a", partitions=2, configs={"retention.ms": "1000"})
    await admin_broker.topics.delete_topic("a")
    assert await nodes_of(admin_broker.store, "a") == []
    assert admin_broker.metadata.topic("a") is None
    assert not (admin_broker.directory / "a-0").exists()
    again = await admin_broker.topics.create_topic("a")
    assert again.topic_id != first.topic_id
    log = admin_broker.replica_manager.partition(TopicPartition("a", 0)).log
    assert (log.topic_id, log.config.retention_ms) == (again.topic_id, 604_800_000)


async def test_only_the_topic_that_was_meant_is_deleted(admin_broker: Any) -> None:
    created = await admin_broker.topics.create_topic("a")
    wrong = await failure(admin_broker.topics.delete_topic("a", topic_id=UUID(int=9)))
    assert wrong.code is ErrorCode.UNKNOWN_TOPIC_ID
    missing = await failure(admin_broker.topics.delete_topic("b"))
    assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await admin_broker.topics.delete_topic("a", topic_id=created.topic_id)
    assert admin_broker.metadata.topics() == ()


async def test_a_crash_while_deleting_leaves_a_stray_that_is_set_aside(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin_broker.topics.create_topic("a")
    await admin_broker.topics.create_topic("b")

    def crash(*args: Any, **kwargs: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(admin_broker.replica_manager, "delete_partition", crash)
    with pytest.raises(SystemExit):
        await admin_broker.topics.delete_topic("a")
    admin_broker.kill()
    again = await admin_broker.restarted()
    assert [topic.name for topic in again.metadata.topics()] == ["b"]
    names = sorted(path.name for path in again.directory.iterdir() if path.is_dir())
    assert [name.rpartition("-")[2] for name in names if name.startswith("a-0")] == ["stray"]
    assert "b-0" in names
    await again.topics.create_topic("a")
    assert again.replica_manager.partition(TopicPartition("a", 0)).log.log_end_offset == 0
    again.stop()


async def test_is_stray_is_not_asked_before_the_store_was_read(admin_broker: Any) -> None:
    with pytest.raises(InvariantError):
        admin_broker.topics.is_stray(TopicPartition("a", 0), None)


async def test_a_topic_grows(admin_broker: Any) -> None:
    created = await admin_broker.topics.create_topic("a")
    await admin_broker.topics.create_partitions("a", total=3)
    topic = admin_broker.metadata.topic("a")
    assert (topic.topic_id, [each.partition for each in topic.partitions]) == (created.topic_id, [0, 1, 2])
    assert admin_broker.replica_manager.partition(TopicPartition("a", 2)).is_leader
    admin_broker.stop()
    again = await admin_broker.restarted()
    assert len(again.metadata.topic("a").partitions) == 3
    again.stop()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": "b", "total": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"name": "a", "total": 2}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "a", "total": 1}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "a", "total": -1}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "a", "total": 20_000}, ErrorCode.POLICY_VIOLATION),
        ({"name": "a", "total": 4, "assignments": [[1]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "a", "total": 3, "assignments": [[4]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_a_topic_that_cannot_grow_stays(
    admin_broker: Any, arguments: dict[str, Any], code: ErrorCode
) -> None:
    await admin_broker.topics.create_topic("a", partitions=2)
    assert (await failure(admin_broker.topics.create_partitions(**arguments))).code is code
    assert len(admin_broker.metadata.topic("a").partitions) == 2


async def test_auto_creation_makes_what_it_can(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("here")
    errors = await admin_broker.topics.auto_create(["new", "here", "bad/name", "__consumer_offsets"])
    assert {name: error.code for name, error in errors.items()} == {
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [topic.name for topic in admin_broker.metadata.topics()] == ["here", "new"]


async def test_while_the_store_is_away_a_client_is_told_to_ask_again(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: Any, **kwargs: Any) -> None:
        raise ConnectionLossError("database is locked")

    await admin_broker.topics.create_topic("a")
    monkeypatch.setattr(admin_broker.store, "multi", away)
    for work in (admin_broker.topics.create_topic("b"), admin_broker.topics.delete_topic("a")):
        assert (await failure(work)).code is ErrorCode.REQUEST_TIMED_OUT
    assert [topic.name for topic in admin_broker.metadata.topics()] == ["a"]


async def test_a_failed_disk_shows_as_an_offline_replica(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a", partitions=2)
    lost = TopicPartition("a", 1)
    admin_broker.topics.mark_offline([lost, TopicPartition("gone", 0)])
    partition = admin_broker.metadata.partition(lost)
    assert (partition.leader, partition.offline_replicas) == (NO_LEADER, (1,))
    assert admin_broker.metadata.partition(TopicPartition("a", 0)).leader == 1


async def test_a_partition_whose_log_cannot_be_made_fails_alone(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = admin_broker.replica_manager.become_leader

    def fail_for_one(topic_partition: TopicPartition, **arguments: Any) -> Any:
        if topic_partition.partition == 1:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        return make(topic_partition, **arguments)

    monkeypatch.setattr(admin_broker.replica_manager, "become_leader", fail_for_one)
    await admin_broker.topics.create_topic("a", partitions=3)
    assert [each.leader for each in admin_broker.metadata.topic("a").partitions] == [1, NO_LEADER, 1]
