"""What must hold between the properties of a broker. Kafka: ``KafkaConfig.validateValues``.

Files are not read here: what is wrong with a key store is told by ``minikafka.security``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from minikafka.config.listeners import Listener
from minikafka.config.security import (
    KERBEROS,
    LISTENER_PREFIX,
    SASL_MECHANISMS,
    listener_property_names,
)
from minikafka.config.topic import check_gzip_level
from minikafka.errors import ConfigError

if TYPE_CHECKING:
    from minikafka.config.broker import BrokerConfig

SQLITE_SCHEME = "sqlite:///"


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
    protocols = config.group_coordinator_rebalance_protocols
    if "classic" not in protocols:
        name = "group.coordinator.rebalance.protocols"
        raise _invalid(name, ",".join(protocols), "the classic protocol cannot be left out")
    if config.password_encoder_key_length not in (128, 192, 256):
        why = "a key of AES has 128, 192 or 256 bits"
        raise _invalid("password.encoder.key.length", config.password_encoder_key_length, why)
    _check_coordination(config)
    _check_protocol(config)
    _check_groups(config)
    _check_listeners(config)
    config.http_tls()
    config.http_bearer_tokens()
    config.http_basic_users()
    config.check_http_admin()
    config.registry_url()
    config.check_registry_user()
    config.otlp_url()
    config.otlp_headers()


def _check_coordination(config: BrokerConfig) -> None:
    """Raises ConfigError: the store's address is not one, or there are two; zookeeper.set.acl without a login
    to ZooKeeper."""
    url = config.coordination
    has_certificate = (
        config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location is not None
    )
    if config.zookeeper_set_acl and config.zookeeper_sasl_jaas_config is None and not has_certificate:
        raise ConfigError(
            "zookeeper.set.acl is true, but brokers do not say to ZooKeeper who they are: set "
            "zookeeper.sasl.jaas.config, or zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location"
        )
    if url is None:
        return
    if config.zookeeper_connect is not None:
        raise ConfigError(
            f"coordination ({url}) and zookeeper.connect ({config.zookeeper_connect}) name two stores; "
            "set one of them"
        )
    if not url.startswith(SQLITE_SCHEME) or not url.removeprefix(SQLITE_SCHEME).strip("/"):
        raise ConfigError(f"Invalid value {url} for configuration coordination: must be sqlite:///PATH")


_PROTOCOL: Final = re.compile(
    r"(0\.(8\.[0-2]|9\.0|1[01]\.[0-2])|1\.[01]|2\.[0-8]|3\.[0-9]|4\.[0-9])(\.[0-9]+)?(-IV[0-9]+)?"
)
"""Kafka's ``MetadataVersion.fromVersionString``: a release, or one of the steps towards it."""


def _check_protocol(config: BrokerConfig) -> None:
    """Raises ConfigError: brokers of a protocol that is not spoken here, or a migration to KRaft."""
    name, version = "inter.broker.protocol.version", config.inter_broker_protocol_version
    if not _PROTOCOL.fullmatch(version):
        raise _invalid(name, version, "must be a release of Apache Kafka, as 3.9 or 3.9-IV0")
    if version.startswith("4."):
        raise _invalid(name, version, "Kafka 4 has no ZooKeeper, and its brokers none of these requests")
    if version not in ("3.9", "3.9-IV0") and not version.startswith("3.9."):
        why = (
            "brokers here speak with each other as Kafka 3.9 does, which older ones do not understand; "
            "update all brokers to 3.9, and raise their inter.broker.protocol.version, first"
        )
        raise _invalid(name, version, why)
    if config.zookeeper_metadata_migration_enable:
        why = "there is no KRaft here, and a cluster that migrates to it must not have brokers of minikafka"
        raise _invalid("zookeeper.metadata.migration.enable", "true", why)


def _check_groups(config: BrokerConfig) -> None:
    """What must hold between properties.

    Raises:
        ConfigError: bounds that leave nothing, a default beyond its bounds, no assignor or one twice.
    """
    for kind, names in _BOUNDED.items():
        for name in names:
            _check_bounds(config, f"group.{kind}.", name)
        session_ms, heartbeat_ms = (
            getattr(config, f"group_{kind}_session_timeout_ms"),
            getattr(config, f"group_{kind}_heartbeat_interval_ms"),
        )
        if heartbeat_ms >= session_ms:
            raise ConfigError(
                f"Invalid value {heartbeat_ms} for configuration group.{kind}.heartbeat.interval.ms: must be "
                f"less than group.{kind}.session.timeout.ms ({session_ms})"
            )
    if len(config.group_share_assignors) != 1:
        raise ConfigError(
            "group.share.assignors must contain exactly one assignor, but found "
            f"{len(config.group_share_assignors)}"
        )
    if config.group_share_max_share_sessions < config.group_share_max_size:
        raise ConfigError(
            f"group.share.max.share.sessions ({config.group_share_max_share_sessions}) must be at least "
            f"group.share.max.size ({config.group_share_max_size})"
        )
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if low > high:
        raise ConfigError(
            f"Invalid value {high} for configuration group.max.session.timeout.ms: must be at least "
            f"group.min.session.timeout.ms ({low})"
        )
    assignors = config.group_consumer_assignors
    if not assignors or len(set(assignors)) != len(assignors):
        raise ConfigError(
            f"Invalid value {','.join(assignors)} for configuration group.consumer.assignors: must name each "
            "assignor once, and at least one"
        )


_BOUNDED = {
    "consumer": ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
    "share": (
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "assignment.interval.ms",
        "delivery.count.limit",
        "record.lock.duration.ms",
        "partition.max.record.locks",
    ),
}
"""What a single group may set, within bounds that the broker has for it."""


def _check_bounds(config: BrokerConfig, prefix: str, name: str) -> None:
    def value(of: str) -> int:
        number: int = getattr(config, f"{prefix}{of}".replace(".", "_"))
        return number

    low, high = value(f"min.{name}"), value(f"max.{name}")
    if not low <= value(name) <= high:
        raise ConfigError(
            f"Invalid value {value(name)} for configuration {prefix}{name}: must be at least "
            f"{prefix}min.{name} ({low}) and at most {prefix}max.{name} ({high})"
        )


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
    _check_inter_broker_listener(config, advertised)
    for listener in config.endpoints():
        if listener.protocol != "PLAINTEXT":
            _check_listener_security(config, listener)


def _check_inter_broker_listener(config: BrokerConfig, advertised: Sequence[Listener]) -> None:
    allowed = ", ".join(map(str, advertised))
    inter_broker, protocol_name = config.inter_broker_listener_name, "security.inter.broker.protocol"
    protocol = config.security_inter_broker_protocol
    if inter_broker is not None:
        if protocol_name in config.originals:
            raise ConfigError(
                f"Only one of inter.broker.listener.name and {protocol_name} should be set: "
                f"{inter_broker} and {protocol}"
            )
        if inter_broker.upper() not in {listener.name for listener in advertised}:
            raise _invalid("inter.broker.listener.name", inter_broker, f"must be one of {allowed}")
    elif protocol_name in config.originals and all(each.protocol != protocol for each in advertised):
        raise _invalid(protocol_name, protocol, f"no listener has it; there are {allowed}")


def _check_listener_security(config: BrokerConfig, listener: Listener) -> None:
    """What can be told without reading a file: for the stores see ``minikafka.security``."""
    security = config.listener_security(listener.name)
    prefix = f"{LISTENER_PREFIX}{listener.name.lower()}."
    if listener.protocol.endswith("SSL") and (
        security.ssl_keystore_location is None and security.ssl_keystore_key is None
    ):
        raise ConfigError(
            f"the listener {listener} ({listener.protocol}) has no key store: set ssl.keystore.location and "
            "ssl.keystore.type (PEM or PKCS12), or for this listener alone "
            f"{prefix}ssl.keystore.location and {prefix}ssl.keystore.type"
        )
    if not listener.protocol.startswith("SASL"):
        return
    names = listener_property_names(listener.name, "sasl.", config.originals)
    enabled = names.of("sasl.enabled.mechanisms")
    for mechanism in security.sasl_enabled_mechanisms:
        _check_mechanism(enabled, mechanism, listener)
    if not security.sasl_enabled_mechanisms:
        raise _invalid(enabled, "", f"the listener {listener} needs at least one")
    if listener.name == config.inter_broker_listener():
        of_brokers = names.of("sasl.mechanism.inter.broker.protocol")
        mechanism = security.sasl_mechanism_inter_broker_protocol
        _check_mechanism(of_brokers, mechanism, listener)
        if mechanism not in security.sasl_enabled_mechanisms:
            raise ConfigError(
                f"{of_brokers} ({mechanism}) must be included in {enabled} "
                f"({', '.join(security.sasl_enabled_mechanisms)}) of the listener {listener}, which brokers "
                "use among themselves"
            )


def _check_mechanism(name: str, mechanism: str, listener: Listener) -> None:
    if mechanism == KERBEROS:
        raise _invalid(
            name,
            mechanism,
            f"Kerberos is not there; the listener {listener} can have {', '.join(SASL_MECHANISMS)}",
        )
    if mechanism not in SASL_MECHANISMS:
        raise _invalid(name, mechanism, f"the listener {listener} can have {', '.join(SASL_MECHANISMS)}")


def _invalid(name: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {why}")
