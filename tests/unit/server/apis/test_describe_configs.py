"""DescribeConfigs in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.api_versions import SUPPORTED, ApiKey

KEY = ApiKey.DESCRIBE_CONFIGS
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
LONG, LIST = 5, 7
DYNAMIC_TOPIC, DEFAULT, DYNAMIC_LOGGER = 1, 5, 6


async def describe(
    broker: Any, version: int, *resources: tuple[int, str], keys: list[str] | None = None, **fields: Any
) -> Any:
    wanted = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name in resources
    ]
    return (
        await broker.ask(KEY, version, {"resources": wanted, "include_synonyms": False, **fields})
    ).results


@pytest.fixture
async def broker(admin_broker: Any) -> Any:
    await admin_broker.topics.create_topic("a", configs={"retention.ms": "1000"})
    return admin_broker


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topics_properties_with_their_sources(broker: Any, version: int) -> None:
    (result,) = await describe(broker, version, (TOPIC, "a"), include_synonyms=True)
    assert (result.error_code, result.resource_type, result.resource_name) == (ErrorCode.NONE, TOPIC, "a")
    configs = {config.name: config for config in result.configs}
    assert {"cleanup.policy", "segment.bytes", "min.insync.replicas"} <= configs.keys()
    retention, policy = configs["retention.ms"], configs["cleanup.policy"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", DYNAMIC_TOPIC, False)
    assert (policy.value, policy.config_source, policy.is_sensitive) == ("delete", DEFAULT, False)
    assert (retention.synonyms[0].name, retention.synonyms[0].value) == ("retention.ms", "1000")
    if version >= 3:
        assert (retention.config_type, policy.config_type) == (LONG, LIST)
        assert retention.documentation is None
        (result,) = await describe(broker, version, (TOPIC, "a"), include_documentation=True)
        assert all(config.documentation for config in result.configs)


@pytest.mark.parametrize("version", VERSIONS)
async def test_only_the_properties_that_were_asked_for(broker: Any, version: int) -> None:
    (result,) = await describe(broker, version, (TOPIC, "a"), keys=["segment.ms", "no.such"])
    assert [config.name for config in result.configs] == ["segment.ms"]
    assert result.configs[0].synonyms == ()
    (result,) = await describe(broker, version, (TOPIC, "a"), keys=[])
    assert len(result.configs) > 20


@pytest.mark.parametrize("version", VERSIONS)
async def test_this_broker_all_brokers_and_loggers(broker: Any, version: int) -> None:
    mine, everyone, loggers = await describe(broker, version, (BROKER, "1"), (BROKER, ""), (LOGGER, "1"))
    configs = {config.name: config for config in mine.configs}
    assert (configs["node.id"].value, configs["node.id"].read_only) == ("1", True)
    assert configs["message.max.bytes"].read_only is False
    assert everyone.configs == ()
    assert "root" in {config.name for config in loggers.configs}
    assert {config.config_source for config in loggers.configs} == {DYNAMIC_LOGGER}


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_resource_has_its_own_error(broker: Any, version: int) -> None:
    results = await describe(
        broker,
        version,
        (TOPIC, "b"),
        (TOPIC, "b/c"),
        (BROKER, "2"),
        (BROKER, "x"),
        (GROUP, "g"),
        (TOPIC, "a"),
    )
    assert [ErrorCode(result.error_code) for result in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert results[2].error_message == "Unexpected broker id, expected 1 or empty string, but received 2"
