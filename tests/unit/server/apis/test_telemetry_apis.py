"""GetTelemetrySubscriptions and PushTelemetry."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest

from minikafka.config.resource import ConfigResource, ConfigResourceType
from minikafka.errors import ErrorCode
from minikafka.protocol.records.compression import CompressionType, compress
from minikafka.protocol.wire.api_versions import ApiKey
from tests.unit.protocol.wire.test_telemetry import metrics_data

GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
NONE, LZ4 = 0, 3


async def push(broker: Any, client: uuid.UUID | None, subscription: int) -> ErrorCode:
    body = {
        "client_instance_id": client,
        "subscription_id": subscription,
        "terminating": False,
        "compression_type": LZ4,
        "metrics": compress(metrics_data("org.apache.kafka.consumer.lag"), CompressionType.LZ4),
    }
    return ErrorCode((await broker.ask(PUSH, 0, body)).error_code)


async def test_the_apis_are_there_for_clients_when_something_is_subscribed(admin_broker: Any) -> None:
    async def advertised() -> set[int]:
        body = {"client_software_name": "tests", "client_software_version": "1"}
        return {each.api_key for each in (await admin_broker.ask(ApiKey.API_VERSIONS, 4, body)).api_keys}

    assert not {GET, PUSH} & await advertised()
    subscription = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")
    await admin_broker.configs.alter(subscription, {"metrics": "*"})
    assert {GET, PUSH} <= await advertised()
    await admin_broker.configs.alter(subscription, {})
    assert not {GET, PUSH} & await advertised()


async def test_a_client_is_left_alone_while_nothing_is_subscribed(admin_broker: Any) -> None:
    answer = await admin_broker.ask(GET, 0, {"client_instance_id": None})
    assert (answer.error_code, answer.requested_metrics) == (ErrorCode.NONE, ())
    assert answer.push_interval == 300_000
    again = await admin_broker.ask(GET, 0, {"client_instance_id": answer.client_instance_id})
    assert (again.error_code, again.client_instance_id) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)


async def test_a_subscription_is_served(admin_broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="minikafka.server.client_metrics")
    await admin_broker.configs.alter(
        ConfigResource(ConfigResourceType.CLIENT_METRICS, "lag"),
        {
            "metrics": "org.apache.kafka.consumer.",
            "match": "client_software_name=tests",
            "interval.ms": "60000",
        },
    )
    told = await admin_broker.ask(GET, 0, {"client_instance_id": None})
    assert told.requested_metrics == ("org.apache.kafka.consumer.",)
    assert (told.push_interval, told.telemetry_max_bytes) == (60_000, 1024 * 1024)
    assert told.accepted_compression_types == (4, 3, 1, 2)
    assert await push(admin_broker, told.client_instance_id, told.subscription_id) is ErrorCode.NONE
    assert "sent 1 metrics: org.apache.kafka.consumer.lag" in caplog.text
    assert await push(admin_broker, uuid.uuid4(), 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert await push(admin_broker, None, 1) is ErrorCode.INVALID_REQUEST
