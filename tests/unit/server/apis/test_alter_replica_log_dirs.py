"""AlterReplicaLogDirs in every version, and what DescribeLogDirs shows of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.coordination.sqlite import SqliteStore
from minikafka.errors import ErrorCode
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.types import TopicPartition
from tests.unit.server.conftest import AdminBroker
from tests.unit.server.running import until

KEY = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)
A0 = TopicPartition("a", 0)


@pytest.fixture
async def broker(store: SqliteStore, tmp_path: Path) -> AsyncIterator[AdminBroker]:
    """With two log directories and a topic of three partitions."""
    made = AdminBroker(store, tmp_path, {"log.dirs": f"{tmp_path}/one,{tmp_path}/two"})
    await made.start()
    await made.topics.create_topic("a", partitions=3)
    yield made
    await made.stop()


def place(broker: AdminBroker, at: TopicPartition = A0) -> str:
    return broker.log_manager.directory_of(broker.replica_manager.partition(at).log)


def elsewhere(broker: AdminBroker, at: TopicPartition = A0) -> str:
    return next(each for each in broker.log_manager.live_directories if each != place(broker, at))


async def alter(
    broker: AdminBroker, version: int, *wanted: tuple[str, str, list[int]]
) -> dict[tuple[str, int], int]:
    """Path, topic, partitions → the error of each partition."""
    dirs = [
        {"path": path, "topics": [{"name": topic, "partitions": partitions}]}
        for path, topic, partitions in wanted
    ]
    answer = await broker.ask(KEY, version, {"dirs": dirs})
    return {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.results
        for each in topic.partitions
    }


async def described(broker: AdminBroker) -> list[tuple[str, int, int, int, bool]]:
    """Log directory, partition, size, lag and whether it is a copy."""
    answer = await broker.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    return [
        (result.log_dir, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
        for result in answer.results
        for topic in result.topics
        for each in topic.partitions
    ]


def append(broker: AdminBroker, count: int) -> None:
    for _ in range(count):
        record = Record(0, broker.clock.now_ms(), b"key", b"value", ())
        broker.replica_manager.append(A0, build_batch([record]), required_acks=1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_replica_moves(broker: AdminBroker, version: int) -> None:
    append(broker, 100)
    target = elsewhere(broker)
    source = place(broker)
    assert await alter(broker, version, (target + "/", "a", [0])) == {("a", 0): ErrorCode.NONE}
    assert place(broker) == source, "the answer does not wait for the move"
    await until(broker.broker, lambda: place(broker) == target, "the replica is there")
    await until(broker.broker, lambda: not broker.log_manager.replacements, "under its name")
    log = broker.replica_manager.partition(A0).log
    assert log.log_end_offset == log.high_watermark == 100 and log.directory == f"{target}/a-0"
    assert not broker.services.files.exists(f"{source}/a-0")
    append(broker, 1)


async def test_errors_are_each_partitions_own(broker: AdminBroker) -> None:
    target = elsewhere(broker)
    long = "t" * 230
    errors = await alter(
        broker,
        2,
        (target, "a", [0]),
        (target, "missing", [0, 7]),
        (target, long, [0]),
        ("/nowhere", "a", [1]),
        ("relative", "a", [2]),
    )
    assert errors == {
        ("a", 0): ErrorCode.NONE,
        ("missing", 0): ErrorCode.REPLICA_NOT_AVAILABLE,
        ("missing", 7): ErrorCode.REPLICA_NOT_AVAILABLE,
        (long, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        ("a", 1): ErrorCode.LOG_DIR_NOT_FOUND,
        ("a", 2): ErrorCode.LOG_DIR_NOT_FOUND,
    }
    await until(broker.broker, lambda: place(broker) == target, "the only possible one happens")
    assert await alter(broker, 2) == {}


async def test_the_last_of_two_requests_counts(broker: AdminBroker) -> None:
    here, there = place(broker), elsewhere(broker)
    assert await alter(broker, 2, (there, "a", [0]), (here, "a", [0, 0])) == {("a", 0): ErrorCode.NONE}
    assert not broker.log_manager.future_logs


async def test_an_offline_directory_is_a_storage_error(broker: AdminBroker) -> None:
    target, source = elsewhere(broker), place(broker)
    broker.replica_manager.take_directory_offline(target, reason="smoke")
    assert await alter(broker, 2, (target, "a", [0])) == {("a", 0): ErrorCode.KAFKA_STORAGE_ERROR}
    assert await alter(broker, 2, (source, "a", [0])) == {("a", 0): ErrorCode.NONE}


async def test_a_requested_directory_is_where_a_new_topic_goes(broker: AdminBroker) -> None:
    target = broker.log_manager.live_directories[1]
    await alter(broker, 2, (target, "later", list(range(4))))
    await broker.topics.create_topic("later", partitions=4)
    assert {place(broker, TopicPartition("later", number)) for number in range(4)} == {target}


async def test_the_copy_is_described_with_its_lag(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(broker, 10)
    source, target = place(broker), elsewhere(broker)
    size = broker.replica_manager.partition(A0).log.size_bytes
    with monkeypatch.context() as held:
        held.setattr(ReplicationQuotaManager, "is_quota_exceeded", lambda quota, now_ms: True)
        broker.replica_manager.alter_log_dir(A0, target)
        answer: Any = await described(broker)
    assert (source, 0, size, 0, False) in answer
    assert [each for each in answer if each[4]] == [(target, 0, 0, 10, True)]
    await until(broker.broker, lambda: place(broker) == target, "the replica is there")
    answer = await described(broker)
    assert (target, 0, size, 0, False) in answer and not any(each[4] for each in answer)


async def test_the_copy_of_a_replica_that_is_offline_has_no_lag_that_is_known(broker: AdminBroker) -> None:
    append(broker, 10)
    source, target = place(broker), elsewhere(broker)
    broker.replica_manager.alter_log_dir(A0, target)
    broker.replica_manager.take_directory_offline(source, reason="smoke")
    assert [each[3:] for each in await described(broker) if each[1] == 0] == [(-1, True)]


async def test_a_move_goes_on_after_the_broker_was_killed(
    store: SqliteStore, tmp_path: Path, broker: AdminBroker
) -> None:
    append(broker, 50)
    target = elsewhere(broker)
    broker.replica_manager.alter_log_dir(A0, target)
    await broker.kill()
    again = await broker.restarted(**{"log.dirs": f"{tmp_path}/one,{tmp_path}/two"})
    try:
        await until(again.broker, lambda: place(again) == target, "the replica is there")
        assert again.replica_manager.partition(A0).log.log_end_offset == 50
    finally:
        await again.stop()


async def test_a_line_of_the_log_for_all_that_do_not_move(
    broker: AdminBroker, caplog: pytest.LogCaptureFixture
) -> None:
    codes = await alter(broker, 2, ("/nowhere", "a", list(range(1_000))))
    assert set(codes.values()) == {ErrorCode.LOG_DIR_NOT_FOUND}
    (line,) = [record.message for record in caplog.records if "do not move" in record.message]
    assert line.startswith("1000 replicas do not move, among them a-0 to /nowhere") and len(line) < 2_000
