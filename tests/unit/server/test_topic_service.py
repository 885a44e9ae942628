"""Topics come, grow and go: in the store, then on this broker, and after any crash as the store says."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.coordination import paths
from minikafka.coordination.store import ConnectionLossError, CoordinationStore, CreateOp
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.server.controller.channel import ControllerChannel
from minikafka.server.controller.store import ControllerNotifications, ControllerStore, PartitionStates
from minikafka.server.topic_store import StoredTopics, TopicStore
from minikafka.types import NO_LEADER, BrokerId, PartitionState, ReplicaAssignment, TopicPartition


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
    assert paths.decode_partition_state("a", 1, state.data) == PartitionState(1, 0, (1,), 1)
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


def assigned(*partitions: tuple[int, ...], topic_id: int | None = 77) -> bytes:
    """A topic's node as another broker or Kafka's tools write it."""
    replicas = {
        number: ReplicaAssignment(tuple(BrokerId(each) for each in brokers))
        for number, brokers in enumerate(partitions)
    }
    return paths.encode_topic(
        paths.TopicAssignment(None if topic_id is None else UUID(int=topic_id), replicas)
    )


async def test_another_brokers_topic_is_never_overwritten(admin_broker: Any) -> None:
    """The store decides, also when this broker has not heard of the topic; it then takes it up."""
    await admin_broker.store.create(paths.topic_path("a"), assigned((1,)))
    error = await failure(admin_broker.topics.create_topic("a", configs={"retention.ms": "1"}))
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert await admin_broker.store.exists(paths.topic_config_path("a")) is None
    await admin_broker.topics.led("a")
    assert admin_broker.metadata.topic("a").topic_id == UUID(int=77)
    assert admin_broker.replica_manager.partition(TopicPartition("a", 0)).topic_id == UUID(int=77)


async def test_a_topic_that_another_client_writes_appears_with_its_configuration(admin_broker: Any) -> None:
    config = paths.encode_config({"retention.ms": "5"})
    ops = [
        CreateOp(paths.topic_config_path("a"), config),
        CreateOp(paths.topic_path("a"), assigned((1,), (1,), topic_id=None)),
    ]
    await admin_broker.store.multi(ops)
    await admin_broker.topics.led("a", 2)
    assert admin_broker.metadata.topic("a").topic_id != UUID(int=0)
    assert admin_broker.replica_manager.partition(TopicPartition("a", 1)).log.config.retention_ms == 5


async def test_partitions_that_another_client_adds_appear(admin_broker: Any) -> None:
    created = await admin_broker.topics.create_topic("a")
    grown = assigned((1,), (1,), topic_id=created.topic_id.int)
    await admin_broker.store.set(paths.topic_path("a"), grown)
    await admin_broker.topics.led("a", 2)
    assert admin_broker.replica_manager.partition(TopicPartition("a", 1)).is_leader


async def test_a_configuration_left_without_its_topic_is_replaced(admin_broker: Any) -> None:
    leftover = paths.encode_config({"retention.ms": "5"})
    await admin_broker.store.create(paths.topic_config_path("a"), leftover)
    await admin_broker.topics.create_topic("a")
    assert (await admin_broker.store.get(paths.topic_config_path("a"))).data == paths.encode_config({})
    assert admin_broker.configs.topic_config("a").retention_ms == 604_800_000


async def for_ever(*args: Any, **kwargs: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("owner", "method", "instead"),
    [
        (ControllerStore, "topics", for_ever),  # the controller has not even heard of it,
        (PartitionStates, "create", for_ever),  # has not chosen leaders,
        (ControllerChannel, "enqueue", lambda channel, request: None),  # or has told no broker
    ],
)
async def test_a_creation_that_the_controller_did_not_finish_is_finished_by_the_next_one(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, instead: Any
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, instead)
        await admin_broker.topics.service.create_topic("a", partitions=2, configs={"retention.ms": "9"})
        assert not (admin_broker.directory / "a-0").exists()
        await admin_broker.kill()
    again = await admin_broker.restarted()
    await again.topics.led("a", 2)
    for partition in (0, 1):
        hosted = again.replica_manager.partition(TopicPartition("a", partition))
        assert (hosted.log.log_end_offset, hosted.log.config.retention_ms) == (0, 9)
    await again.stop()


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_every_start_is_a_later_leader_epoch(admin_broker: Any, ending: str) -> None:
    created = await admin_broker.topics.create_topic("a")
    last, running = 0, admin_broker
    for _ in range(2):
        await getattr(running, ending)()
        running = await admin_broker.restarted()
        await running.topics.led("a")
        topic = running.metadata.topic("a")
        assert topic.topic_id == created.topic_id
        epoch = topic.partitions[0].leader_epoch
        assert epoch > last
        assert running.replica_manager.partition(TopicPartition("a", 0)).leader_epoch == epoch
        state = await running.store.get(paths.partition_state_path("a", 0))
        assert paths.decode_partition_state("a", 0, state.data).leader_epoch == epoch
        last = epoch
    await running.stop()


async def test_topics_of_kafkas_own_making_are_completed(admin_broker: Any) -> None:
    """A topic node alone is what Kafka's tools write; an old one has no id."""
    await admin_broker.stop()
    await admin_broker.store.create(paths.topic_path("a"), assigned((1,), (1,), topic_id=None))
    await admin_broker.store.create(paths.partitions_path("a"))
    await admin_broker.store.create(paths.partition_path("a", 0))
    again = await admin_broker.restarted()
    await again.topics.led("a", 2)
    topic = again.metadata.topic("a")
    stored = paths.decode_topic("a", (await again.store.get(paths.topic_path("a"))).data)
    assert stored.topic_id == topic.topic_id != UUID(int=0)
    await again.stop()


async def test_what_lies_on_other_brokers_only_has_no_leader(admin_broker: Any) -> None:
    await admin_broker.stop()
    await admin_broker.store.create(paths.topic_path("theirs"), assigned((2,), topic_id=5))
    await admin_broker.store.create(paths.topic_path("shared"), assigned((2,), (1,), topic_id=6))
    again = await admin_broker.restarted()
    await again.until(lambda: again.metadata.topic("shared"), "the shared topic is known")
    shared = again.metadata.topic("shared")
    assert [partition.leader for partition in shared.partitions] == [NO_LEADER, 1]
    assert sorted(again.replica_manager.partitions) == [TopicPartition("shared", 1)]
    error = await failure(again.topics.create_topic("theirs"))
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    await again.stop()


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


@pytest.mark.parametrize(
    ("part", "unfinished"),
    [(ControllerNotifications, "topic_deletions"), (ControllerStore, "delete_topic")],
)
async def test_a_deletion_that_was_begun_is_finished_at_the_next_start(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch, part: type, unfinished: str
) -> None:
    """Whether nothing of it was done yet, or only the store still has the topic."""
    await admin_broker.topics.create_topic("a")
    await admin_broker.topics.create_topic("b")
    with monkeypatch.context() as patch:
        patch.setattr(part, unfinished, for_ever)
        deleted = await admin_broker.topics.service.delete_topic("a")
        if unfinished == "delete_topic":
            await admin_broker.until(lambda: admin_broker.metadata.topic("a") is None, "a is hidden")
        await admin_broker.kill()
    again = await admin_broker.restarted()
    await again.topics.wait_until_deleted(deleted, timeout_ms=20_000)
    assert [topic.name for topic in again.metadata.topics()] == ["b"]
    assert await nodes_of(again.store, "a") == []
    assert not (again.directory / "a-0").exists()
    await again.topics.create_topic("a")
    assert again.replica_manager.partition(TopicPartition("a", 0)).log.log_end_offset == 0
    await again.stop()


async def test_a_deletion_that_another_client_asks_for_is_carried_out(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")
    await admin_broker.store.create(paths.delete_topic_path("a"))
    await admin_broker.store.create(paths.delete_topic_path("never-there"))
    await admin_broker.until(lambda: admin_broker.metadata.topic("a") is None, "a is gone")
    assert await TopicStore(admin_broker.store).wait_until_gone("a", timeout_ms=20_000)
    assert await nodes_of(admin_broker.store, "a") == []
    assert await admin_broker.store.children(paths.DELETE_TOPICS) == []


async def test_a_log_that_the_store_has_forgotten_is_a_stray_and_set_aside(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")
    await admin_broker.topics.create_topic("b")
    await admin_broker.stop()
    for path in (
        paths.partition_state_path("a", 0),
        paths.partition_path("a", 0),
        paths.partitions_path("a"),
        paths.topic_path("a"),
    ):
        await admin_broker.store.delete(path)
    again = await admin_broker.restarted()
    names = sorted(path.name for path in again.directory.iterdir() if path.is_dir())
    assert [name.rpartition("-")[2] for name in names if name.startswith("a-0")] == ["stray"]
    assert "b-0" in names
    await again.topics.create_topic("a")
    assert again.replica_manager.partition(TopicPartition("a", 0)).log.log_end_offset == 0
    await again.stop()


async def test_is_stray_is_not_asked_before_the_store_was_read(store: Any) -> None:
    with pytest.raises(InvariantError):
        StoredTopics(store, node_id=BrokerId(1)).is_stray(TopicPartition("a", 0), None)


async def test_a_topic_grows(admin_broker: Any) -> None:
    created = await admin_broker.topics.create_topic("a")
    await admin_broker.topics.create_partitions("a", total=3)
    topic = admin_broker.metadata.topic("a")
    assert (topic.topic_id, [each.partition for each in topic.partitions]) == (created.topic_id, [0, 1, 2])
    assert admin_broker.replica_manager.partition(TopicPartition("a", 2)).is_leader
    await admin_broker.stop()
    again = await admin_broker.restarted()
    await again.topics.led("a", 3)
    await again.stop()


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
    with monkeypatch.context() as patch:
        for method in ("multi", "ensure_path"):
            patch.setattr(admin_broker.own_store, method, away)
        for work in (admin_broker.topics.create_topic("b"), admin_broker.topics.delete_topic("a")):
            assert (await failure(work)).code is ErrorCode.REQUEST_TIMED_OUT
    assert [topic.name for topic in admin_broker.metadata.topics()] == ["a"]


async def test_a_leader_that_is_not_found_in_time_is_said_to_be_late(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is there all the same, and gets its leader when the controller has come that far."""
    with monkeypatch.context() as patch:
        patch.setattr(ControllerStore, "topics", for_ever)
        created = await admin_broker.topics.service.create_topic("a")
        late = await failure(admin_broker.topics.wait_for_leaders("a", partitions=1, timeout_ms=1))
        assert late.code is ErrorCode.REQUEST_TIMED_OUT
        assert created.topic_id is not None
        assert await nodes_of(admin_broker.store, "a") != []


async def test_a_failed_disk_leaves_its_partitions_without_a_leader(
    admin_broker: Any, tmp_path: Path
) -> None:
    await admin_broker.stop()
    two = ",".join(str(tmp_path / name) for name in ("logs", "more"))
    broker = await admin_broker.restarted(**{"log.dirs": two})
    await broker.topics.create_topic("a", partitions=2)
    hosted = [broker.replica_manager.partition(TopicPartition("a", number)) for number in (0, 1)]
    lost, fine = sorted(hosted, key=lambda each: each.log.directory, reverse=True)
    broker.replica_manager._disk_work.directory_failed(
        str(tmp_path / "more"), OSError(errno.EIO, "it smokes")
    )

    def shown(number: int) -> Any:
        return broker.metadata.topic("a").partitions[number]

    number = lost.topic_partition.partition
    await broker.until(lambda: shown(number).leader == NO_LEADER, "the partition has no leader")
    assert shown(number).offline_replicas == (1,)
    assert (shown(1 - number).leader, fine.is_leader) == (1, True)
    await broker.stop()


async def test_a_partition_whose_log_cannot_be_made_fails_alone(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = admin_broker.log_manager.get_or_create

    def fail_for_one(topic_partition: TopicPartition, **arguments: Any) -> Any:
        if topic_partition.partition == 1:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        return make(topic_partition, **arguments)

    monkeypatch.setattr(admin_broker.log_manager, "get_or_create", fail_for_one)
    await admin_broker.topics.service.create_topic("a", partitions=3)

    def leaders() -> list[int]:
        topic = admin_broker.metadata.topic("a")
        return [] if topic is None else [each.leader for each in topic.partitions]

    await admin_broker.until(lambda: leaders() == [1, NO_LEADER, 1], "one partition has no leader")
