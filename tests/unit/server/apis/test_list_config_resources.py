"""ListConfigResources in every version."""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.api_versions import ApiKey

KEY = ApiKey.LIST_CONFIG_RESOURCES
TOPIC, BROKER, LOGGER, CLIENT_METRICS = 2, 4, 8, 16


async def test_version_0_knows_client_metrics_only(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")
    answer = await admin_broker.ask(KEY, 0, {})
    assert (answer.error_code, answer.config_resources) == (ErrorCode.NONE, ())


async def test_version_1_lists_what_was_asked_for_or_everything(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")

    async def listed(*types: int) -> list[tuple[int, str]]:
        answer = await admin_broker.ask(KEY, 1, {"resource_types": list(types)})
        assert answer.error_code == ErrorCode.NONE
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert await listed() == [(TOPIC, "a"), (BROKER, "1"), (LOGGER, "1")]
    assert await listed(LOGGER) == [(LOGGER, "1")]
    assert await listed(CLIENT_METRICS) == []


async def test_an_unknown_type_is_not_supported(admin_broker: Any) -> None:
    answer = await admin_broker.ask(KEY, 1, {"resource_types": [TOPIC, 99]})
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())
