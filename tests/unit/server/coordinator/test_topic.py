"""``__consumer_offsets`` is made at the first question for a coordinator, and is the broker's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC
from tests.unit.server.conftest import AdminBroker


async def find(broker: Any, *groups: str) -> list[ErrorCode]:
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": groups})
    return [ErrorCode(each.error_code) for each in answer.coordinators]


async def test_the_first_question_makes_the_topic_as_kafka_has_it(
    admin_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert await find(admin_broker, "one", "two") == [ErrorCode.NONE, ErrorCode.NONE]
    topic = admin_broker.metadata.topic(GROUP_METADATA_TOPIC)
    assert (len(topic.partitions), topic.partitions[0].replicas, topic.is_internal) == (50, (1,), True)
    config = admin_broker.configs.topic_config(GROUP_METADATA_TOPIC)
    assert (config.cleanup_policy, config.segment_bytes) == (("compact",), 100 << 20)
    assert config.compression_type == "producer"
    assert "gets 1 replicas" in caplog.text and "offsets.topic.replication.factor" in caplog.text


async def test_where_the_replicas_are_configured_groups_wait_for_the_brokers(
    store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {"offsets.topic.replication.factor": "3"}
    broker = await AdminBroker(store, tmp_path / "logs", properties).start()
    try:
        for _ in range(2):
            assert await find(broker, "one") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert broker.metadata.topic(GROUP_METADATA_TOPIC) is None
        assert caplog.text.count("__consumer_offsets cannot be made yet") == 1
    finally:
        await broker.stop()


async def test_one_that_is_there_already_is_taken_as_it_is(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic(GROUP_METADATA_TOPIC, partitions=3)
    assert await find(admin_broker, "one") == [ErrorCode.NONE]
    assert len(admin_broker.metadata.topic(GROUP_METADATA_TOPIC).partitions) == 3


async def test_clients_do_not_produce_to_it(admin_broker: Any) -> None:
    await find(admin_broker, "one")
    records = build_batch([Record(0, 0, b"key", b"value", ())])
    partition = {"index": 0, "records": records}
    topics = [{"name": GROUP_METADATA_TOPIC, "partition_data": [partition]}]
    body = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": topics}
    answer = await admin_broker.ask(ApiKey.PRODUCE, 9, body)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def commit(broker: Any) -> None:
    """Group one has read orders up to 7."""
    await broker.topics.create_topic("orders")
    await find(broker, "one")
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
    body: dict[str, Any] = {
        "group_id": "one",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time": -1,
        "topics": [{"name": "orders", "partitions": [partition]}],
    }
    answer = await broker.ask(ApiKey.OFFSET_COMMIT, 2, body)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def committed(broker: Any) -> dict[tuple[str, int], int]:
    async with asyncio.timeout(60):
        while True:
            answer = await broker.ask(ApiKey.OFFSET_FETCH, 2, {"group_id": "one", "topics": None})
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            await asyncio.sleep(0.01)
    assert answer.error_code == ErrorCode.NONE
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


async def test_what_a_group_has_committed_is_there_after_a_kill(admin_broker: Any) -> None:
    await commit(admin_broker)
    await admin_broker.kill()
    again = await admin_broker.restarted()
    try:
        assert await committed(again) == {("orders", 0): 7}
    finally:
        await again.stop()


async def test_offsets_go_with_their_topic(admin_broker: Any) -> None:
    await commit(admin_broker)
    assert await committed(admin_broker) == {("orders", 0): 7}
    await admin_broker.topics.delete_topic("orders")
    assert await committed(admin_broker) == {}
