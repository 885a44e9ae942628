"""What can be configured for a broker. Kafka: ``KafkaConfig``, ``AbstractKafkaConfig``.

``BrokerConfig`` holds typed values; ``broker_config`` makes one from property texts and checks what must hold
between properties. There are only properties that do something here; Kafka's others are unknown names.

``broker.id`` is another name of ``node.id``, and ``log.dir`` of ``log.dirs``, with Kafka's relations: ids
given under both names must agree, ``log.dirs`` wins over ``log.dir``. ``node.id`` is 1 where Kafka insists
on a value. ``cluster.id``, ``coordination``, ``http.port``, ``http.host``, ``log.level`` and
``log.format`` are minikafka's own.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from minikafka.config.coordination_properties import check_coordination
from minikafka.config.definition import (
    INT_MAX,
    ConfigKey,
    ConfigType,
    Importance,
    config_keys,
    format_value,
    parse_value,
    prop,
)
from minikafka.config.group_properties import check_groups
from minikafka.config.listeners import Listener, parse_listeners, parse_protocol_map
from minikafka.config.quota_properties import QuotaProperties
from minikafka.config.topic import HOUR_MS, MINUTE_MS, check_gzip_level
from minikafka.errors import ConfigError

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


class BrokerConfig(QuotaProperties, frozen=True, kw_only=True):
    """The properties of one broker; a field is the property's name with underscores for dots."""

    node_id: Annotated[int, prop(INT, HIGH, "The broker's id, unique in its cluster.", ge=0)] = 1
    broker_rack: Annotated[str, prop(STRING, MEDIUM, "The rack that the broker stands in.")] | None = None
    cluster_id: (
        Annotated[
            str, prop(STRING, MEDIUM, "The id of the cluster; unset: what the data says, or a new one.")
        ]
        | None
    ) = None
    num_partitions: Annotated[int, prop(INT, MEDIUM, "Partitions of a topic that does not say.", ge=1)] = 1
    default_replication_factor: Annotated[
        int, prop(INT, MEDIUM, "Replicas of a topic that does not say.", ge=1)
    ] = 1
    auto_create_topics_enable: Annotated[
        bool, prop(BOOLEAN, HIGH, "Whether a topic comes into being when a client first asks for it.")
    ] = True
    delete_topic_enable: Annotated[bool, prop(BOOLEAN, HIGH, "Whether topics can be deleted.")] = True
    fetch_max_bytes: Annotated[int, prop(INT, MEDIUM, "The most bytes in one fetch response.", ge=1024)] = (
        55 * 1024 * 1024
    )
    fetch_purgatory_purge_interval_requests: Annotated[
        int,
        prop(INT, MEDIUM, "Sweep finished fetches out of the purgatory when this many may be in it.", ge=0),
    ] = 1000
    max_incremental_fetch_session_cache_slots: Annotated[
        int, prop(INT, MEDIUM, "How many incremental fetch sessions the broker keeps.", ge=0)
    ] = 1000
    telemetry_max_bytes: Annotated[
        int, prop(INT, LOW, "The most bytes of metrics that a client may send at once.", ge=1)
    ] = 1024 * 1024
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        prop(STRING, LOW, "The least severe lines that are logged."),
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"],
        prop(STRING, LOW, "How log lines look: for people, or one JSON object a line."),
    ] = "text"

    originals: dict[str, str] = msgspec.field(default_factory=dict)
    """The property texts that this was made of (``AbstractConfig.originals``); no property itself."""

    @property
    def broker_id(self) -> int:
        """The same as ``node_id``, as in Kafka."""
        return self.node_id

    def endpoints(self) -> tuple[Listener, ...]:
        """Where to listen, without the listeners of a KRaft controller."""
        return self._listeners("listeners", self.listeners, distinct_ports=True)

    def advertised_endpoints(self) -> tuple[Listener, ...]:
        """What clients are told to connect to. A host may be empty (all interfaces, nothing advertised)
        and a port 0 (the system's choice) when ``advertised.listeners`` is unset: the server fills both in.
        """
        if self.advertised_listeners is None:
            return self.endpoints()
        return self._listeners("advertised.listeners", self.advertised_listeners, distinct_ports=False)

    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use: the configured one, PLAINTEXT, or the first there is."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        names = [listener.name for listener in self.advertised_endpoints()]
        return "PLAINTEXT" if "PLAINTEXT" in names else names[0]

    def connection_overrides(self) -> dict[str, int]:
        """``max.connections.per.ip.overrides`` as host → most connections."""
        return _parse_overrides(self.max_connections_per_ip_overrides)

    def static_properties(self) -> dict[str, str]:
        """The texts this was made of, and values that code has set: Kafka's static broker configs."""
        changed = {
            key.name: text
            for key in BROKER_CONFIG_KEYS.values()
            if ALIASES.get(key.name) is None
            and getattr(self, key.attribute) != key.default
            and (text := format_value(key, getattr(self, key.attribute))) is not None
            and not any(name in self.originals for name in names_of_one_thing(key.name))
        }
        return {**changed, **self.originals}

    def _listeners(self, name: str, values: tuple[str, ...], *, distinct_ports: bool) -> tuple[Listener, ...]:
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        return parse_listeners(
            name,
            values,
            protocols=protocols,
            left_out=self.controller_listener_names,
            distinct_ports=distinct_ports,
        )


ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Other names that Kafka has for a property."""


def _broker_keys() -> dict[str, ConfigKey]:
    keys = config_keys(BrokerConfig)
    for alias, name in ALIASES.items():
        keys[alias] = msgspec.structs.replace(
            keys[name], name=alias, documentation=f"Another name of {name}. {keys[name].documentation}"
        )
    return dict(sorted(keys.items()))


BROKER_CONFIG_KEYS: dict[str, ConfigKey] = _broker_keys()
"""Every broker property by its name."""

_GROUPS: tuple[tuple[str, ...], ...] = (
    ("node.id", "broker.id"),
    ("log.dirs", "log.dir"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def names_of_one_thing(name: str) -> tuple[str, ...]:
    """``name`` and the other names for what it sets, the strongest first (``brokerConfigSynonyms``)."""
    return next((group for group in _GROUPS if name in group), (name,))


def override_properties(base: dict[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """``base`` with ``overrides`` on top (``DynamicBrokerConfig.overrideProps``).

    A property that is overridden takes its other names with it: ``log.retention.hours`` in a stronger place
    beats ``log.retention.ms`` in a weaker one. (The flush interval and its scheduler: two settings.)
    """
    merged = dict(base)
    for name in overrides:
        for other in names_of_one_thing(name):
            if name != "log.flush.scheduler.interval.ms" and other != "log.flush.scheduler.interval.ms":
                merged.pop(other, None)
    return {**merged, **overrides}


def broker_config(properties: Mapping[str, str]) -> BrokerConfig:
    """A checked ``BrokerConfig`` from property texts.

    Raises:
        ConfigError: an unknown name, a value that is not allowed, or values that contradict each other.
    """
    values: dict[str, Any] = {}
    for name in sorted(properties, key=lambda name: name in ALIASES):  # an alias only fills a gap
        key = BROKER_CONFIG_KEYS.get(name)
        if key is None:
            raise ConfigError(f"Unknown broker config name: {name}")
        text = properties[name]
        value = None if key.nullable and not text.strip() else parse_value(key, text)
        if values.setdefault(key.attribute, value) != value and name == "broker.id":
            raise ConfigError(
                f"node.id ({values['node_id']}) and broker.id ({value}) must be the same when both are set"
            )
    config = BrokerConfig(**values, originals=dict(properties))
    check_broker_config(config)
    return config


def check_broker_config(config: BrokerConfig) -> None:
    """What must hold between properties (``KafkaConfig.validateValues``).

    Raises:
        ConfigError: names the property and what is wrong.
    """
    if not config.log_dirs or not all(config.log_dirs):
        raise _invalid("log.dirs", repr(",".join(config.log_dirs)), "a directory without a name")
    if len(set(config.log_dirs)) != len(config.log_dirs):
        raise _invalid("log.dirs", ",".join(config.log_dirs), "a directory twice")
    for name, value in (
        ("log.retention.ms", config.log_retention_ms),
        ("log.retention.minutes", config.log_retention_minutes),
        ("log.retention.hours", config.log_retention_hours),
    ):
        if value == 0:
            raise _invalid(name, value, "must be -1 (no limit) or at least 1")
    check_gzip_level(config.compression_gzip_level)
    low, high = config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms
    if low > high:
        why = f"must not be more than log.cleaner.max.compaction.lag.ms ({high})"
        raise _invalid("log.cleaner.min.compaction.lag.ms", low, why)
    queued = config.queued_max_request_bytes
    if 0 <= queued < config.socket_request_max_bytes:
        why = f"must be -1 or at least socket.request.max.bytes ({config.socket_request_max_bytes})"
        raise _invalid("queued.max.request.bytes", queued, why)
    if not config.connection_overrides() and config.max_connections_per_ip == 0:
        raise _invalid("max.connections.per.ip", 0, "needs max.connections.per.ip.overrides")
    check_coordination(config)
    check_groups(config)
    _check_listeners(config)


def _check_listeners(config: BrokerConfig) -> None:
    names = {listener.name for listener in config.endpoints()}
    advertised = config.advertised_endpoints()
    for listener in advertised:
        if listener.name not in names:
            raise _invalid("advertised.listeners", listener, f"no listener is named {listener.name}")
        if listener.host and listener.is_wildcard:
            example = f"{listener.name}://localhost:{listener.port}"
            raise ConfigError(
                f"advertised.listeners cannot use the nonroutable address {listener.host}; set it to an "
                f"address that clients can connect to, for example {example}"
            )
        if config.advertised_listeners is not None and not listener.host:
            raise _invalid("advertised.listeners", listener, "a host is missing")
    inter_broker = config.inter_broker_listener_name
    if inter_broker is not None and inter_broker.upper() not in {listener.name for listener in advertised}:
        allowed = ", ".join(listener.name for listener in advertised)
        raise _invalid("inter.broker.listener.name", inter_broker, f"must be one of {allowed}")


def _parse_overrides(text: str) -> dict[str, int]:
    overrides: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = entry.rpartition(":")
        digits = count.strip()
        is_count = digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= INT_MAX
        if not host or not is_count:
            raise _invalid("max.connections.per.ip.overrides", entry, "must be host:count")
        overrides[host.strip().strip("[]")] = int(digits)
    return overrides


def _invalid(name: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {why}")


def effective_retention_ms(config: BrokerConfig) -> int:
    """``log.retention.ms``, else ``.minutes``, else ``.hours``, in milliseconds; -1 for no limit."""
    if config.log_retention_ms is not None:
        value = config.log_retention_ms
    elif config.log_retention_minutes is not None:
        value = config.log_retention_minutes * MINUTE_MS
    else:
        value = config.log_retention_hours * HOUR_MS
    return max(value, -1)
