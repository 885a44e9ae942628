"""DescribeConfigs in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.config.resource import ConfigResource
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey

KEY = ApiKey.DESCRIBE_CONFIGS
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
INT, LONG, LIST = 3, 5, 7
DYNAMIC_TOPIC, DEFAULT, DYNAMIC_LOGGER, OF_CLIENT_METRICS, OF_GROUP = 1, 5, 6, 7, 8


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
    assert [config.name for config in everyone.configs] == ["min.insync.replicas"]
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
        (GROUP, ""),
        (CLIENT_METRICS, ""),
        (77, "x"),
        (TOPIC, "a"),
    )
    assert [ErrorCode(result.error_code) for result in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert results[2].error_message == "Unexpected broker id, expected 1 or empty string, but received 2"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_and_a_subscription_with_what_is_set_and_what_is_not(broker: Any, version: int) -> None:
    configs = broker.configs
    await configs.alter(ConfigResource(GROUP, "g/1"), {"consumer.session.timeout.ms": "50000"})
    await configs.alter(ConfigResource(CLIENT_METRICS, "m"), {"metrics": "a,b"})
    results = await describe(
        broker, version, (GROUP, "g/1"), (GROUP, "no such"), (CLIENT_METRICS, "m"), include_synonyms=True
    )
    set_group, other_group, metrics = ({each.name: each for each in result.configs} for result in results)
    session = set_group["consumer.session.timeout.ms"]
    assert (session.value, session.config_source, session.read_only) == ("50000", OF_GROUP, False)
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        ("consumer.session.timeout.ms", "50000", OF_GROUP),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]
    inherited = other_group["consumer.session.timeout.ms"]
    assert (inherited.value, inherited.config_source) == ("45000", DEFAULT)
    assert (metrics["metrics"].value, metrics["metrics"].config_source) == ("a,b", OF_CLIENT_METRICS)
    assert (metrics["interval.ms"].value, metrics["interval.ms"].config_source) == ("300000", DEFAULT)
    if version >= 3:
        assert (session.config_type, metrics["match"].config_type) == (INT, LIST)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_resource_that_is_named_again_is_answered_once(broker: Any, version: int) -> None:
    results = await describe(broker, version, (TOPIC, "a"), (BROKER, "1"), (TOPIC, "a"))
    assert [(result.resource_type, result.resource_name) for result in results] == [
        (TOPIC, "a"),
        (BROKER, "1"),
    ]
