"""Which value wins, and what DescribeConfigs says about it."""

from __future__ import annotations

import pytest

from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.config.definition import ConfigSource, ConfigType
from minikafka.config.resolution import (
    BrokerProperties,
    ConfigEntry,
    ConfigSynonym,
    check_broker_overrides,
    check_topic_overrides,
    describe_broker,
    describe_cluster_defaults,
    describe_topic,
    topic_config,
)
from minikafka.config.topic import TOPIC_CONFIG_KEYS, TopicConfig
from minikafka.errors import ErrorCode, KafkaError

TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG
BROKER = ConfigSource.DYNAMIC_BROKER_CONFIG
ALL_BROKERS = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
STATIC = ConfigSource.STATIC_BROKER_CONFIG
DEFAULT = ConfigSource.DEFAULT_CONFIG


def topic_entry(
    name: str, properties: BrokerProperties, overrides: dict[str, str] | None = None
) -> ConfigEntry:
    entries = describe_topic(properties, properties.effective(), overrides or {})
    return next(entry for entry in entries if entry.name == name)


def broker_entry(name: str, properties: BrokerProperties) -> ConfigEntry:
    return next(entry for entry in describe_broker(properties, properties.effective()) if entry.name == name)


def test_a_topic_on_a_default_broker_has_kafkas_defaults() -> None:
    assert topic_config(BrokerConfig()) == TopicConfig()


def test_a_topic_takes_what_its_broker_says_unless_it_says_itself() -> None:
    broker = broker_config(
        {"log.segment.bytes": "2000000", "log.roll.hours": "1", "log.flush.scheduler.interval.ms": "50"}
    )
    config = topic_config(broker, {"segment.bytes": "3000000", "cleanup.policy": "compact,delete"})
    assert (config.segment_bytes, config.segment_ms, config.flush_ms) == (3_000_000, 3_600_000, 50)
    assert config.compact and config.delete


def test_compaction_rolls_a_segment_within_its_lag() -> None:
    texts = {"max.compaction.lag.ms": "1000"}
    assert topic_config(BrokerConfig(), texts).max_segment_ms == TopicConfig().segment_ms
    assert topic_config(BrokerConfig(), texts | {"cleanup.policy": "compact"}).max_segment_ms == 1000


def test_every_layer_shows_the_strongest_first() -> None:
    properties = BrokerProperties(
        static={"log.segment.bytes": "2000000"},
        dynamic_default={"log.segment.bytes": "3000000"},
        dynamic={"log.segment.bytes": "4000000"},
    )
    entry = topic_entry("segment.bytes", properties, {"segment.bytes": "5000000"})
    assert (entry.value, entry.source, entry.read_only, entry.type) == (
        "5000000",
        TOPIC,
        False,
        ConfigType.INT,
    )
    assert entry.synonyms == (
        ConfigSynonym("segment.bytes", "5000000", TOPIC),
        ConfigSynonym("log.segment.bytes", "4000000", BROKER),
        ConfigSynonym("log.segment.bytes", "3000000", ALL_BROKERS),
        ConfigSynonym("log.segment.bytes", "2000000", STATIC),
        ConfigSynonym("log.segment.bytes", "1073741824", DEFAULT),
    )
    assert properties.effective().log_segment_bytes == 4_000_000


def test_retention_in_hours_is_the_source_of_retention_ms() -> None:
    entry = topic_entry("retention.ms", BrokerProperties(static={"log.retention.hours": "1"}))
    assert (entry.value, entry.source) == ("3600000", STATIC)
    assert entry.synonyms[0] == ConfigSynonym("log.retention.hours", "1", STATIC)


def test_a_default_says_so() -> None:
    entry = topic_entry("retention.ms", BrokerProperties())
    assert (entry.value, entry.source) == ("604800000", DEFAULT)


def test_a_dynamic_unit_beats_a_static_one() -> None:
    properties = BrokerProperties(static={"log.retention.ms": "5"}, dynamic={"log.retention.ms": "9"})
    assert topic_config(properties.effective()).retention_ms == 9


def test_a_brokers_own_properties() -> None:
    properties = BrokerProperties.of(broker_config({"broker.id": "4", "log.retention.hours": "1"}))
    assert broker_entry("broker.id", properties).source is STATIC
    node_id = broker_entry("node.id", properties)
    assert (node_id.value, node_id.source, node_id.read_only) == ("4", STATIC, True)
    retention_ms = broker_entry("log.retention.ms", properties)
    assert (retention_ms.value, retention_ms.source, retention_ms.read_only) == (None, DEFAULT, False)
    assert retention_ms.synonyms == ()
    assert broker_entry("log.retention.hours", properties).source is STATIC


def test_only_what_is_set_for_all_brokers_is_described_for_all() -> None:
    entries = describe_cluster_defaults(BrokerProperties(dynamic_default={"message.max.bytes": "5"}))
    assert [(entry.name, entry.value, entry.source) for entry in entries] == [
        ("message.max.bytes", "5", ALL_BROKERS)
    ]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        ({"retention.ms": "x"}, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "min.compaction.lag.ms (5) > max"),
        ({"cleanup.policy": "delete,delete"}, "each policy only once"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled in the broker."),
        ({"compression.gzip.level": "0"}, "Value must be between 1 and 9 or equal to -1"),
        ({"compression.gzip.level": "11"}, "Value must be no more than 9"),
        ({"compression.lz4.level": "18"}, "Value must be no more than 17"),
        ({"compression.zstd.level": "23"}, "Value must be no more than 22"),
        ({"local.retention.ms": "-3"}, "Value must be at least -2"),
    ],
)
def test_what_a_client_sets_for_a_topic_is_checked(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_topic_overrides(BrokerConfig(), overrides)
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert message in str(raised.value)


def test_dynamic_broker_values_replace_those_of_their_kind() -> None:
    properties = BrokerProperties(static={"node.id": "1"}, dynamic={"message.max.bytes": "5"})
    changed = check_broker_overrides(properties, {"log.retention.ms": "7"}, per_broker=True)
    assert changed.dynamic == {"log.retention.ms": "7"}
    changed = check_broker_overrides(changed, {"message.max.bytes": "6"}, per_broker=False)
    assert changed.effective().message_max_bytes == 6
    assert properties.dynamic == {"message.max.bytes": "5"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"node.id": "2"}, "Cannot update these configs dynamically: Set(node.id)"),
        ({"process.roles": "broker"}, "Cannot update these configs dynamically: Set(process.roles)"),
        ({"message.max.bytes": "-1"}, "Invalid value -1 for configuration message.max.bytes"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"compression.gzip.level": "0"}, "Value must be between 1 and 9 or equal to -1"),
        ({"security.inter.broker.protocol": "SSL"}, "Cannot update these configs dynamically"),
        ({"ssl.keystore.location": "/x"}, "only per-listener using the listener prefix: Set(ssl.keystore."),
        ({"listener.name.a.ssl.principal.mapping.rules": "DEFAULT"}, "for existing listener A, restart"),
        ({"listener.name.a.ssl.client.auth": "x"}, "Invalid value x for configuration listener.name.a.ssl."),
    ],
)
def test_what_a_client_sets_for_a_broker_is_checked(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_broker_overrides(BrokerProperties(), overrides, per_broker=True)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert message in str(raised.value)


def test_what_is_of_one_listener_is_of_one_broker() -> None:
    with pytest.raises(KafkaError, match="broker id must be specified"):
        check_broker_overrides(
            BrokerProperties(), {"listener.name.a.ssl.key.password": "x"}, per_broker=False
        )
    with pytest.raises(KafkaError, match="broker id must be specified"):
        check_broker_overrides(BrokerProperties(), {"ssl.cipher.suites": ""}, per_broker=False)
    changed = check_broker_overrides(
        BrokerProperties(static={"listener.name.a.ssl.client.auth": "none"}),
        {"listener.name.a.ssl.client.auth": "required"},
        per_broker=True,
    )
    assert changed.effective().listener_security("A").ssl_client_auth == "required"


def test_what_listeners_have_is_described_and_passwords_are_not_told() -> None:
    properties = BrokerProperties(
        static={"listener.name.a.ssl.keystore.location": "/a", "ssl.keystore.password": "SECRET"},
        dynamic={"listener.name.a.ssl.keystore.password": "SECRET", "of.another.release": "SECRET"},
    )
    location = broker_entry("listener.name.a.ssl.keystore.location", properties)
    assert (location.value, location.source, location.read_only) == ("/a", STATIC, False)
    assert not location.is_sensitive
    for name, source in (
        ("listener.name.a.ssl.keystore.password", BROKER),
        ("ssl.keystore.password", STATIC),
        ("of.another.release", BROKER),
    ):
        entry = broker_entry(name, properties)
        assert (entry.value, entry.source, entry.is_sensitive) == (None, source, True)
        assert {place.value for place in entry.synonyms} == {None}
    assert "SECRET" not in repr(properties) + repr(describe_broker(properties, properties.effective()))
    rules = {"listener.name.a.ssl.principal.mapping.rules": "DEFAULT"}
    assert broker_entry(next(iter(rules)), BrokerProperties(static=rules)).read_only


def test_every_topic_property_has_a_broker_property_with_the_same_default() -> None:
    without = [key.name for key in TOPIC_CONFIG_KEYS.values() if not key.synonyms]
    assert without == [
        "errors.deadletterqueue.group.enable",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "max.decompressed.message.bytes",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    ]
    assert topic_config(broker_config({})) == TopicConfig()
