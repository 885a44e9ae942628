"""ListConfigResources in every version."""

from __future__ import annotations

from typing import Any

from minikafka.config.resource import ConfigResource
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey

KEY = ApiKey.LIST_CONFIG_RESOURCES
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


async def test_version_0_knows_client_metrics_only(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")
    answer = await admin_broker.ask(KEY, 0, {})
    assert (answer.error_code, answer.config_resources) == (ErrorCode.NONE, ())
    await admin_broker.configs.alter(ConfigResource(CLIENT_METRICS, "m"), {"metrics": "*"})
    answer = await admin_broker.ask(KEY, 0, {})
    assert [each.resource_name for each in answer.config_resources] == ["m"]


async def test_version_1_lists_what_was_asked_for_or_everything(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")

    async def listed(*types: int) -> list[tuple[int, str]]:
        answer = await admin_broker.ask(KEY, 1, {"resource_types": list(types)})
        assert answer.error_code == ErrorCode.NONE
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert await listed() == [(TOPIC, "a"), (BROKER, "1"), (LOGGER, "1")]
    assert await listed(LOGGER) == [(LOGGER, "1")]
    assert await listed(CLIENT_METRICS) == []
    await admin_broker.configs.alter(ConfigResource(GROUP, "g"), {"consumer.session.timeout.ms": "50000"})
    assert await listed(GROUP, CLIENT_METRICS) == [(GROUP, "g")]
    assert (GROUP, "g") in await listed()
    await admin_broker.configs.alter(ConfigResource(GROUP, "g"), {})
    assert await listed(GROUP) == []


async def test_an_unknown_type_is_not_supported(admin_broker: Any) -> None:
    answer = await admin_broker.ask(KEY, 1, {"resource_types": [TOPIC, 99]})
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())
