"""Which value a property has, and where it comes from: topic or group, dynamic or static broker, default.

Kafka: ``LogConfig.fromProps``, ``DynamicBrokerConfig``, ``ConfigHelper`` (DescribeConfigs' answers), KIP-226.
Pure functions over property texts; the owner of the dynamic values calls them again when one changes.

Where it differs from Kafka: when ``log.retention.hours`` sets ``retention.ms``, DescribeConfigs says so.
Kafka drops synonyms in other units there and calls the value a default. (For brokers it is as in Kafka.)
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import dropwhile
from typing import Any

import msgspec

from minikafka.config.broker import (
    ALIASES,
    BROKER_CONFIG_KEYS,
    BrokerConfig,
    broker_config,
    broker_config_key,
    effective_retention_ms,
    names_of_one_thing,
    override_properties,
)
from minikafka.config.client_metrics import CLIENT_METRICS_CONFIG_KEYS, client_metrics_config
from minikafka.config.definition import (
    ConfigKey,
    ConfigSource,
    ConfigType,
    UpdateMode,
    effective_synonym,
    format_value,
    parse_value,
)
from minikafka.config.group import GROUP_CONFIG_KEYS, GroupBounds, broker_synonym, group_config
from minikafka.config.security import PER_LISTENER_KEYS, listener_property
from minikafka.config.topic import TOPIC_CONFIG_KEYS, TopicConfig, check_topic_config
from minikafka.errors import ConfigError, ErrorCode, KafkaError

MIN_ISR = "min.insync.replicas"


class ConfigSynonym(msgspec.Struct, frozen=True):
    """One place that gives a property a value (``DescribeConfigsSynonym``)."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A property as DescribeConfigs answers it (``DescribeConfigsResourceResult``)."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    """Every place that gives a value, the effective one first."""
    read_only: bool
    type: ConfigType
    documentation: str
    is_sensitive: bool = False


class BrokerProperties(msgspec.Struct, frozen=True, kw_only=True):
    """The property texts of a broker by where they come from."""

    static: dict[str, str] = msgspec.field(default_factory=dict)
    """From file, environment and command line; they do not change while the broker runs."""
    dynamic_default: dict[str, str] = msgspec.field(default_factory=dict)
    """Set through AlterConfigs for all brokers (the empty resource name)."""
    dynamic: dict[str, str] = msgspec.field(default_factory=dict)
    """Set through AlterConfigs for this broker."""

    def __repr__(self) -> str:
        """Without the values, which may be passwords."""
        told = ", ".join(f"{source.name}: {sorted(texts)}" for source, texts in self.by_source())
        return f"BrokerProperties({told})"

    @classmethod
    def of(cls, config: BrokerConfig) -> BrokerProperties:
        """Those that ``config`` was made of; nothing dynamic."""
        return cls(static=config.static_properties())

    def effective(self) -> BrokerConfig:
        """The configuration that holds now. Names that are not known have no effect.

        Raises:
            ConfigError: the values contradict each other.
        """
        merged = override_properties(self.static, _known(self.dynamic_default))
        return broker_config(override_properties(merged, _known(self.dynamic)))

    def by_source(self) -> tuple[tuple[ConfigSource, dict[str, str]], ...]:
        """The texts with their sources, the strongest first."""
        return (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self.static),
        )


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str] | None = None) -> TopicConfig:
    """The configuration of a topic on ``broker`` that sets ``overrides`` (``LogConfig.fromProps``).

    Raises:
        ConfigError: an unknown name, a value that is not allowed, or values that contradict each other.
    """
    values = _topic_defaults(broker)
    for name, text in (overrides or {}).items():
        key = _topic_key(name)
        values[key.attribute] = parse_value(key, text)
    config = TopicConfig(**values)
    check_topic_config(config)
    return config


def check_topic_overrides(broker: BrokerConfig, overrides: Mapping[str, str | None]) -> TopicConfig:
    """``topic_config`` for what a client sent in CreateTopics or AlterConfigs.

    Raises:
        KafkaError: INVALID_CONFIG, with Kafka's kind of message.
    """
    texts = {}
    for name, text in overrides.items():
        if text is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
        texts[name] = text
    try:
        return topic_config(broker, texts)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_min_isr(current: Mapping[str, str], overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """``min.insync.replicas`` is the same for all brokers, and always set (KIP-966).

    Raises:
        KafkaError: INVALID_CONFIG: ``overrides`` instead of ``current`` would be something else.
    """
    if per_broker and current.get(MIN_ISR) != overrides.get(MIN_ISR):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
        )
    if not per_broker and MIN_ISR in current and MIN_ISR not in overrides:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
        )


def check_broker_overrides(
    properties: BrokerProperties, overrides: Mapping[str, str], *, per_broker: bool
) -> BrokerProperties:
    """``properties`` with ``overrides`` as its dynamic values, of this broker or of all.

    Raises:
        KafkaError: INVALID_REQUEST, Kafka's code for all of these (KAFKA-13609): a property cannot change
            while the broker runs (here, or in Kafka), or its value is not allowed. Unknown ones are kept, as
            in Kafka: they may be of another release or of a plug-in.
    """
    invalid = ErrorCode.INVALID_REQUEST
    for name in overrides:
        key = broker_config_key(name)
        if key is not None and key.update_mode is UpdateMode.READ_ONLY:
            parts = listener_property(name)
            if parts is not None:
                why = f"Configs cannot be updated dynamically for existing listener {parts.listener}"
                raise KafkaError(invalid, f"{why}, restart broker: Set({name})")
            raise KafkaError(invalid, f"Cannot update these configs dynamically: Set({name})")
        if name in PER_LISTENER_KEYS:
            why = "These security configs can be dynamically updated only per-listener"
            raise KafkaError(invalid, f"{why} using the listener prefix: Set({name})")
        if key is None:
            continue
        if not per_broker and (
            key.update_mode is UpdateMode.PER_BROKER or listener_property(name) is not None
        ):
            why = "Cannot update these configs at default cluster level, broker id must be specified"
            raise KafkaError(invalid, f"{why}: Set({name})")
    changed = (
        msgspec.structs.replace(properties, dynamic=dict(overrides))
        if per_broker
        else msgspec.structs.replace(properties, dynamic_default=dict(overrides))
    )
    try:
        changed.effective()
    except ConfigError as error:
        raise KafkaError(invalid, str(error)) from None
    return changed


def describe_topic(
    properties: BrokerProperties, broker: BrokerConfig, overrides: Mapping[str, str]
) -> list[ConfigEntry]:
    """All properties of a topic with ``overrides``; ``broker`` is ``properties.effective()``."""
    config = topic_config(broker, overrides)
    entries = []
    for key in TOPIC_CONFIG_KEYS.values():
        value = format_value(key, getattr(config, key.attribute))
        names = tuple(synonym.name for synonym in key.synonyms)
        places = _places(properties, names)
        if key.name in overrides:
            places = (ConfigSynonym(key.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG), *places)
        entries.append(_entry(key, value, places, read_only=False))
    return entries


def describe_broker(properties: BrokerProperties, broker: BrokerConfig) -> list[ConfigEntry]:
    """All properties of this broker; ``broker`` is ``properties.effective()``."""
    entries = []
    for key in BROKER_CONFIG_KEYS.values():
        value = format_value(key, getattr(broker, key.attribute))
        group = names_of_one_thing(key.name)
        if key.name in ALIASES or key.name in ALIASES.values():  # two names of one value, not two units
            places = _places(properties, (key.name, *(name for name in group if name != key.name)))
        else:
            places = _from(key.name, _places(properties, group))
        read_only = key.update_mode is UpdateMode.READ_ONLY
        entries.append(_entry(key, value, places, read_only=read_only))
    for name in sorted(
        set().union(*(texts for _, texts in properties.by_source())) - BROKER_CONFIG_KEYS.keys()
    ):
        places, listener_key = _set_places(properties, (name,)), broker_config_key(name)
        if listener_key is None:
            entries.append(_unknown(name, places))
        else:
            read_only = listener_key.update_mode is UpdateMode.READ_ONLY
            entries.append(_entry(listener_key, places[0].value, places, read_only=read_only))
    entries += _not_honoured({each.name for each in entries})
    return sorted(entries, key=lambda entry: entry.name)


def _not_honoured(described: Container[str]) -> Iterator[ConfigEntry]:
    """Kafka's properties that do nothing here, with their defaults, but for those that are set: they are
    ``described``."""
    from minikafka.config.not_honoured import kafka_properties, not_honoured_keys

    known = kafka_properties().broker
    for name, key in not_honoured_keys().items():
        if name in described or known[name].internal:
            continue
        value = format_value(key, key.default)
        places = () if value is None else (ConfigSynonym(name, value, ConfigSource.DEFAULT_CONFIG),)
        yield _entry(key, value, places, read_only=key.update_mode is UpdateMode.READ_ONLY)


def describe_cluster_defaults(properties: BrokerProperties) -> list[ConfigEntry]:
    """What is set for all brokers (the empty resource name): only the dynamic default values, as in Kafka."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = []
    for name, text in sorted(properties.dynamic_default.items()):
        key, places = broker_config_key(name), (ConfigSynonym(name, text, source),)
        entries.append(_unknown(name, places) if key is None else _entry(key, text, places, read_only=False))
    return entries


def describe_group(
    properties: BrokerProperties, bounds: GroupBounds, overrides: Mapping[str, str]
) -> list[ConfigEntry]:
    """All properties of a group with ``overrides``; ``bounds`` is ``properties.effective()``."""
    config = group_config(bounds, overrides)
    entries = []
    for key in GROUP_CONFIG_KEYS.values():
        value = format_value(key, getattr(config, key.attribute))
        places = _places(properties, (broker_synonym(key.name),))
        if key.name in overrides:
            places = (ConfigSynonym(key.name, value, ConfigSource.GROUP_CONFIG), *places)
        entries.append(_entry(key, value, places, read_only=False))
    return entries


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All properties of a client metrics subscription with ``overrides``."""
    config = client_metrics_config(overrides)
    entries = []
    for key in CLIENT_METRICS_CONFIG_KEYS.values():
        value = format_value(key, getattr(config, key.attribute))
        places: tuple[ConfigSynonym, ...] = ()
        if key.name in overrides:
            places = (ConfigSynonym(key.name, value, ConfigSource.CLIENT_METRICS_CONFIG),)
        entries.append(_entry(key, value, places, read_only=False))
    return entries


def _topic_key(name: str) -> ConfigKey:
    key = TOPIC_CONFIG_KEYS.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return key


def _topic_defaults(broker: BrokerConfig) -> dict[str, Any]:
    """What ``broker`` says for topics, by field name."""
    texts = {key.name: getattr(broker, key.attribute) for key in BROKER_CONFIG_KEYS.values()}
    values = {}
    for key in TOPIC_CONFIG_KEYS.values():
        if key.synonyms:
            values[key.attribute] = effective_synonym(key.synonyms, texts)
    values["retention_ms"] = effective_retention_ms(broker)
    return values


def _places(properties: BrokerProperties, names: tuple[str, ...]) -> tuple[ConfigSynonym, ...]:
    """Where the broker properties ``names`` get values from, the strongest first (``configSynonyms``)."""
    found = list(_set_places(properties, names))
    for name in names:
        key = broker_config_key(name)
        default = None if key is None else format_value(key, key.default)
        if default is not None:  # no default, or a group's property that a broker has none for
            found.append(ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG))
    return tuple(found)


def _set_places(properties: BrokerProperties, names: tuple[str, ...]) -> tuple[ConfigSynonym, ...]:
    return tuple(
        ConfigSynonym(name, texts[name], source)
        for source, texts in properties.by_source()
        for name in names
        if name in texts
    )


def _known(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if broker_config_key(name) is not None}


def _unknown(name: str, places: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    """It is not known whether its value is a secret, so it is treated as one (``ConfigHelper``)."""
    return ConfigEntry(
        name=name,
        value=None,
        source=places[0].source,
        synonyms=_hidden(places),
        read_only=True,
        type=ConfigType.UNKNOWN,
        documentation="",
        is_sensitive=True,
    )


def _from(name: str, places: tuple[ConfigSynonym, ...]) -> tuple[ConfigSynonym, ...]:
    """``places`` without those in front of the first that bears ``name``."""
    return tuple(dropwhile(lambda place: place.name != name, places))


def _entry(
    key: ConfigKey, value: str | None, places: tuple[ConfigSynonym, ...], *, read_only: bool
) -> ConfigEntry:
    is_sensitive = key.type is ConfigType.PASSWORD
    return ConfigEntry(
        name=key.name,
        value=None if is_sensitive else value,
        source=places[0].source if places else ConfigSource.DEFAULT_CONFIG,
        synonyms=_hidden(places) if is_sensitive else places,
        read_only=read_only,
        type=key.type,
        documentation=key.documentation,
        is_sensitive=is_sensitive,
    )


def _hidden(places: tuple[ConfigSynonym, ...]) -> tuple[ConfigSynonym, ...]:
    """That a value is set, and where, may be told."""
    return tuple(msgspec.structs.replace(place, value=None) for place in places)
