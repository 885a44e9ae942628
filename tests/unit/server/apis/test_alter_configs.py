"""AlterConfigs in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.types import TopicPartition

KEY = ApiKey.ALTER_CONFIGS
TOPIC, BROKER, LOGGER = 2, 4, 8


@pytest.mark.parametrize("version", range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1))
@pytest.mark.parametrize("validate_only", [False, True])
async def test_resources_are_replaced_each_with_its_own_result(
    admin_broker: Any, version: int, validate_only: bool
) -> None:
    for name in ("a", "twice"):
        await admin_broker.topics.create_topic(name, configs={"flush.ms": "9"})

    def resource(kind: int, name: str, *configs: tuple[str, str | None]) -> dict[str, Any]:
        each = [{"name": key, "value": value} for key, value in configs]
        return {"resource_type": kind, "resource_name": name, "configs": each}

    body = {
        "resources": [
            resource(TOPIC, "a", ("retention.ms", "1000")),
            resource(TOPIC, "missing", ("retention.ms", "1000")),
            resource(TOPIC, "twice", ("retention.ms", "1000")),
            resource(TOPIC, "twice", ("retention.ms", "2000")),
            resource(BROKER, "1", ("message.max.bytes", "2000")),
            resource(BROKER, "7", ("message.max.bytes", "2000")),
            resource(BROKER, "", ("flush.ms", "1"), ("flush.ms", "2")),
            resource(LOGGER, "1", ("root", "INFO")),
            resource(44, "x"),
        ],
        "validate_only": validate_only,
    }
    responses = (await admin_broker.ask(KEY, version, body)).responses
    assert [(each.resource_name, ErrorCode(each.error_code)) for each in responses] == [
        ("a", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("1", ErrorCode.NONE),
        ("7", ErrorCode.INVALID_REQUEST),
        ("", ErrorCode.INVALID_REQUEST),
        ("1", ErrorCode.INVALID_REQUEST),
        ("x", ErrorCode.INVALID_REQUEST),
    ]
    config = admin_broker.replica_manager.partition(TopicPartition("a", 0)).log.config
    default = 2**63 - 1
    expected = (604_800_000, 9, 1_048_588) if validate_only else (1000, default, 2000)
    assert (config.retention_ms, config.flush_ms, config.max_message_bytes) == expected


async def test_a_property_without_a_value_is_refused(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")
    configs = [{"name": "retention.ms", "value": None}]
    resource = {"resource_type": TOPIC, "resource_name": "a", "configs": configs}
    (response,) = (
        await admin_broker.ask(KEY, 2, {"resources": [resource], "validate_only": False})
    ).responses
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message == "Null value not supported for : retention.ms"
