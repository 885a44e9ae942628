"""CreateTopics in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey

KEY = ApiKey.CREATE_TOPICS
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)


def topic(name: str, partitions: int = -1, replication_factor: int = -1, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [],
        "configs": [],
        **fields,
    }


async def create(broker: Any, version: int, *topics: dict[str, Any], validate_only: bool = False) -> Any:
    body = {"topics": list(topics), "timeout": 1000, "validate_only": validate_only}
    return (await broker.ask(KEY, version, body)).topics


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_is_created(admin_broker: Any, version: int) -> None:
    wanted = topic("a", 3, 1, configs=[{"name": "retention.ms", "value": "1000"}])
    (result,) = await create(admin_broker, version, wanted)
    assert (result.name, result.error_code, result.error_message) == ("a", ErrorCode.NONE, None)
    made = admin_broker.metadata.topic("a")
    assert len(made.partitions) == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: config for config in result.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
        assert (configs["segment.ms"].config_source, configs["segment.ms"].read_only) == (5, False)
    if version >= 7:
        assert result.topic_id == made.topic_id


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_topic_has_its_own_result(admin_broker: Any, version: int) -> None:
    await create(admin_broker, version, topic("old"))
    results = await create(
        admin_broker,
        version,
        topic("old"),
        topic("twice"),
        topic("bad/name"),
        topic("zero", 0, 1),
        topic("below", -2, 1),
        topic("copies", 1, 3),
        topic("no-copies", 1, 0),
        topic("config", configs=[{"name": "retention.ms", "value": "soon"}]),
        topic("null", configs=[{"name": "retention.ms", "value": None}]),
        topic("twice"),
        topic("good"),
    )
    assert {result.name: ErrorCode(result.error_code) for result in results} == {
        "old": ErrorCode.TOPIC_ALREADY_EXISTS,
        "twice": ErrorCode.INVALID_REQUEST,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "zero": ErrorCode.INVALID_PARTITIONS,
        "below": ErrorCode.INVALID_PARTITIONS,
        "copies": ErrorCode.INVALID_REPLICATION_FACTOR,
        "no-copies": ErrorCode.INVALID_REPLICATION_FACTOR,
        "config": ErrorCode.INVALID_CONFIG,
        "null": ErrorCode.INVALID_CONFIG,
        "good": ErrorCode.NONE,
    }
    messages = {result.name: result.error_message for result in results}
    assert messages["old"] == "Topic 'old' already exists."
    assert "retention.ms" in messages["config"] and "soon" in messages["config"]
    assert len(results) == 10
    assert [each.name for each in admin_broker.metadata.topics()] == ["good", "old"]
    failed = next(result for result in results if result.name == "old")
    if version >= 5:
        assert (failed.num_partitions, failed.replication_factor, failed.configs) == (-1, -1, ())


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_manual_assignment(admin_broker: Any, version: int) -> None:
    def assigned(name: str, *partitions: int, **fields: Any) -> dict[str, Any]:
        each = [{"partition_index": partition, "broker_ids": [1]} for partition in partitions]
        return topic(name, assignments=each, **fields)

    results = await create(
        admin_broker,
        version,
        assigned("good", 1, 0),
        assigned("twice", 0, 0),
        assigned("gap", 0, 2),
        topic("nobody", assignments=[{"partition_index": 0, "broker_ids": [8]}]),
        assigned("count", 0) | {"num_partitions": 1},
        assigned("factor", 0) | {"replication_factor": 1},
    )
    assert [ErrorCode(result.error_code) for result in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert len(admin_broker.metadata.topic("good").partitions) == 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_validate_only(admin_broker: Any, version: int) -> None:
    good, bad = await create(admin_broker, version, topic("a", 2, 1), topic("b", 0, 1), validate_only=True)
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
    if version >= 7:
        assert good.topic_id is None
    assert admin_broker.metadata.topics() == ()


async def test_one_request_cannot_make_partitions_without_end(admin_broker: Any) -> None:
    results = await create(admin_broker, 7, topic("a", 6000, 1), topic("b", 6000, 1))
    assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert admin_broker.metadata.topics() == ()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_message_fits_into_the_answer_whatever_the_client_sent(
    admin_broker: Any, version: int
) -> None:
    (result,) = await create(admin_broker, version, topic("x" * 32_000))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(result.error_message) <= 4096
