"""IncrementalAlterConfigs in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.types import TopicPartition

KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> dict[str, Any]:
    configs = [{"name": key, "config_operation": what, "value": value} for key, what, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


async def alter(broker: Any, version: int, *resources: dict[str, Any], validate_only: bool = False) -> Any:
    body = {"resources": list(resources), "validate_only": validate_only}
    return (await broker.ask(KEY, version, body)).responses


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_single_properties_change(admin_broker: Any, version: int, validate_only: bool) -> None:
    await admin_broker.topics.create_topic("a", configs={"flush.ms": "9", "segment.ms": "8"})
    changes = (
        ("retention.ms", SET, "1000"),
        ("segment.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
    )
    (response,) = await alter(
        admin_broker, version, resource(TOPIC, "a", *changes), validate_only=validate_only
    )
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    config = admin_broker.replica_manager.partition(TopicPartition("a", 0)).log.config
    found = (config.flush_ms, config.segment_ms, config.retention_ms, config.cleanup_policy)
    week = 604_800_000
    assert found == ((9, 8, week, ("delete",)) if validate_only else (9, week, 1000, ("delete", "compact")))


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_resource_has_its_own_result(admin_broker: Any, version: int) -> None:
    for name in ("a", "b"):
        await admin_broker.topics.create_topic(name)
    responses = await alter(
        admin_broker,
        version,
        resource(TOPIC, "a", ("retention.ms", SET, "soon")),
        resource(TOPIC, "missing", ("retention.ms", SET, "1")),
        resource(BROKER, "1", ("message.max.bytes", SET, "3000")),
        resource(BROKER, "", ("num.partitions", APPEND, "3")),
        resource(LOGGER, "1", ("no.such.logger", SET, "INFO")),
        resource(TOPIC, "b", ("retention.ms", SET, "5")),
        resource(TOPIC, "b", ("retention.ms", SET, "6")),
    )
    assert [ErrorCode(each.error_code) for each in responses] == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert "retention.ms" in responses[0].error_message and "soon" in responses[0].error_message
    assert admin_broker.services.config.message_max_bytes == 3000


@pytest.mark.parametrize("name", ["1", ""])
async def test_a_broker_keeps_what_it_does_not_know(admin_broker: Any, name: str) -> None:
    """As Kafka does: stored, shown as a secret, without effect, and gone when it is deleted."""
    names = ["cleanup.policy", "of.another.release"]

    async def alter(broker: Any, *changes: tuple[str, int, str | None]) -> Any:
        body = {"resources": [resource(BROKER, name, *changes)], "validate_only": False}
        (response,) = (await broker.ask(KEY, 1, body)).responses
        return response

    async def unknown(broker: Any) -> list[Any]:
        wanted = {"resource_type": BROKER, "resource_name": name, "configuration_keys": None}
        options = {"include_synonyms": True, "include_documentation": True}
        body = {"resources": [wanted], **options}
        (result,) = (await broker.ask(ApiKey.DESCRIBE_CONFIGS, 4, body)).results
        return [each for each in result.configs if each.config_type == 0]

    for each in names:
        assert (await alter(admin_broker, (each, SET, "7"))).error_code == ErrorCode.NONE
    for each in ("node.id", "process.roles", "authorizer.class.name"):
        refused = await alter(admin_broker, (each, SET, "7"))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert f"Cannot update these configs dynamically: Set({each})" in refused.error_message
    await admin_broker.stop()
    again = await admin_broker.restarted()
    found = await unknown(again)
    source = 2 if name else 3
    assert [(each.name, each.value, each.config_source) for each in found] == [
        (each, None, source) for each in names
    ]
    assert all(each.is_sensitive and each.read_only and each.synonyms[0].value is None for each in found)
    for each in names:
        assert (await alter(again, (each, DELETE, None))).error_code == ErrorCode.NONE
    assert await unknown(again) == []
    await again.stop()


async def test_more_properties_than_anything_has_are_refused(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")
    unknown = [(f"unknown.{number}", SET, "1") for number in range(5_001)]
    responses = await alter(
        admin_broker,
        1,
        resource(BROKER, "", *unknown),
        resource(TOPIC, "a", ("retention.ms", SET, "5")),
    )
    assert [response.error_code for response in responses] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert "5000 are allowed" in responses[0].error_message
    responses = await alter(admin_broker, 1, resource(BROKER, "", *unknown[:5_000]))
    assert responses[0].error_code == ErrorCode.NONE
