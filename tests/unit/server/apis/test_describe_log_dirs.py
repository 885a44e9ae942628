"""DescribeLogDirs in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.types import TopicPartition

KEY = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_directories_with_what_is_in_them(admin_broker: Any, version: int) -> None:
    for name in ("b", "a"):
        await admin_broker.topics.create_topic(name, partitions=2)
    log = admin_broker.replica_manager.partition(TopicPartition("a", 1)).log
    now_ms = admin_broker.clock.now_ms()
    batch = build_batch([Record(0, now_ms, b"key", b"value", ())])
    log.append_as_leader(batch, leader_epoch=0)
    answer = await admin_broker.ask(KEY, version, {"topics": None})
    (directory,) = answer.results
    assert (directory.error_code, directory.log_dir) == (ErrorCode.NONE, str(admin_broker.directory))
    sizes = {
        (topic.name, each.partition_index): each.partition_size
        for topic in directory.topics
        for each in topic.partitions
    }
    assert sizes == {("a", 0): 0, ("a", 1): len(batch), ("b", 0): 0, ("b", 1): 0}
    if version >= 3:
        assert answer.error_code == ErrorCode.NONE
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes


@pytest.mark.parametrize("version", VERSIONS)
async def test_only_the_partitions_that_were_asked_for(admin_broker: Any, version: int) -> None:
    await admin_broker.topics.create_topic("a", partitions=2)
    wanted = [{"topic": "a", "partitions": [1, 5]}, {"topic": "missing", "partitions": [0]}]
    (directory,) = (await admin_broker.ask(KEY, version, {"topics": wanted})).results
    (topic,) = directory.topics
    assert (topic.name, [each.partition_index for each in topic.partitions]) == ("a", [1])
    (directory,) = (await admin_broker.ask(KEY, version, {"topics": []})).results
    assert directory.topics == ()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_failed_directory_is_named(admin_broker: Any, version: int) -> None:
    await admin_broker.topics.create_topic("a")
    admin_broker.log_manager.take_offline(str(admin_broker.directory))
    (directory,) = (await admin_broker.ask(KEY, version, {"topics": None})).results
    assert (directory.error_code, directory.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())
