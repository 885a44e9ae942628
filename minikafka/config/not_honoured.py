"""Kafka's broker properties that this broker knows and does not act on, and why.

Kafka: ``AbstractKafkaConfig.CONFIG_DEF`` and ``DynamicBrokerConfig`` of 4.4.0, recorded in
``kafka_4_4_properties.json`` (by ``tests/support/data/RecordConfigs.java``): types, defaults, documentation,
and which of them change while a broker runs. Those that ``BrokerConfig`` has are honoured and have nothing to
do with this module. Each other one is one of two kinds:

- it changes nothing that a client gets from the cluster: any value of its type is accepted, and the broker
  names all of them in one line at its start;
- it would change results (a plug-in, tiered storage): only the value that says "no" is accepted, and any
  other is an error that says why. Nothing that was asked for silently does not happen.

DescribeConfigs has both kinds, and so has the reference (``docs/reference/kafka-properties.md``). Imported
when a name is looked for that ``BrokerConfig`` does not have: a broker that sets none starts without.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from minikafka.config.definition import HIDDEN, ConfigKey, ConfigType, Importance, UpdateMode, parse_value
from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple

_TIERED = "There is no tiered storage: all segments are in log.dirs."
_PLUG_IN = "Plug-ins are Java classes, and cannot run here."
_OWN_TOKEN = "The token that a broker logs in with to other brokers comes by sasl.jaas.config alone."
_UNSTABLE = "There are no versions here that Kafka holds back."

_PYTHON_TYPES: Final[Mapping[ConfigType, object]] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple[str, ...],
}


class KafkaProperty(msgspec.Struct, frozen=True):
    """A property as Kafka defines it."""

    type: str
    default: str | None
    importance: str
    documentation: str
    valid: str = ""
    internal: bool = False
    """Of Kafka's tests: described only where it is set."""
    update: str = "read-only"


class KafkaProperties(msgspec.Struct, frozen=True):
    """All of a release, by resource and name."""

    broker: dict[str, KafkaProperty]
    topic: dict[str, KafkaProperty]
    group: dict[str, KafkaProperty]


@cache
def kafka_properties() -> KafkaProperties:
    """Those of Kafka 4.4."""
    data = files("minikafka.config").joinpath("kafka_4_4_properties.json").read_bytes()
    return msgspec.json.decode(data, type=KafkaProperties)


class Treatment(NamedTuple):
    """What becomes of properties that are not honoured."""

    why: str
    names: tuple[str, ...]
    """A name that ends in a dot stands for all that begin so and have no treatment of their own."""
    only: tuple[str, ...] | None = None
    """The values that can be given beside Kafka's default; None: any."""


TREATMENTS: Final = (
    Treatment(
        "There is no KRaft: brokers elect a controller and keep the cluster's state through coordination "
        "or zookeeper.connect, and zookeeper.session.timeout.ms says when a silent broker is dead.",
        (
            "broker.heartbeat.interval.ms",
            "broker.session.timeout.ms",
            "controller.performance.",
            "controller.quorum.",
            "initial.broker.registration.timeout.ms",
            "internal.metadata.",
            "metadata.log.",
            "metadata.max.",
            "sasl.mechanism.controller.protocol",
            "server.max.startup.time.ms",
            "unclean.leader.election.interval.ms",
        ),
    ),
    Treatment(
        "Each process is a broker, and one of them is the controller, too; there is no other controller.",
        ("process.roles",),
        only=("broker", "broker,controller", "controller,broker"),
    ),
    Treatment(
        "One event loop serves all requests; disks have threads of their own, and compaction processes.",
        (
            "background.threads",
            "share.coordinator.threads",
            "group.coordinator.background.threads",
            "group.coordinator.threads",
            "num.io.threads",
            "num.network.threads",
            "num.recovery.threads.per.data.dir",
            "num.replica.alter.log.dirs.threads",
        ),
    ),
    Treatment(
        "Requests in memory are bounded by queued.max.request.bytes, and connections by max.connections.",
        ("queued.max.requests",),
    ),
    Treatment(
        "A coordinator appends the records of a request together and at once, into no buffer that is kept.",
        (
            "group.coordinator.append.linger.ms",
            "group.coordinator.cached.buffer.max.bytes",
            "share.coordinator.append.linger.ms",
            "share.coordinator.cached.buffer.max.bytes",
        ),
    ),
    Treatment(
        "Metrics are scraped from /metrics (http.port).",
        (
            "kafka.metrics.polling.interval.secs",
            "kafka.metrics.reporters",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
        ),
    ),
    Treatment(
        "Purgatories drop what is complete at once.",
        ("delete.records.purgatory.purge.interval.requests", "share.fetch.purgatory.purge.interval.requests"),
    ),
    Treatment(
        "All listeners open together, when the ACLs are read.",
        ("early.start.listeners",),
    ),
    Treatment(
        "Replicas of a failed log directory are offline at once; a broker that loses its last one stops.",
        ("log.dir.failure.timeout.ms",),
    ),
    Treatment(
        "Sockets between brokers are left to the system, and each request has a deadline.",
        (
            "replica.socket.receive.buffer.bytes",
            "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
        ),
    ),
    Treatment(
        "There is no Kerberos: GSSAPI is no mechanism of a listener.",
        ("sasl.kerberos.",),
    ),
    Treatment(
        "OpenSSL is what does TLS, and no provider of Java's.",
        ("ssl.keymanager.algorithm", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm"),
    ),
    Treatment(
        "A token is fetched again before it runs out, and a failed login is tried again with the next "
        "connection.",
        (
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.",
            "sasl.login.retry.",
        ),
    ),
    Treatment(
        "Read when the broker starts, before all other properties.",
        ("config.providers",),
    ),
    Treatment(
        _TIERED,
        ("follower.fetch.last.tiered.offset.enable", "log.remote.", "remote."),
    ),
    Treatment(_TIERED, ("remote.log.storage.system.enable",), only=("false",)),
    Treatment(
        _PLUG_IN,
        (
            "alter.config.policy.class.name",
            "client.quota.callback.class",
            "create.topic.policy.class.name",
            "group.share.dlq.manager.class.name",
            "group.share.persister.class.name",
            "group.streams.topology.description.plugin.class",
            "principal.builder.class",
            "sasl.client.callback.handler.class",
            "sasl.login.callback.handler.class",
            "sasl.login.class",
            "sasl.oauthbearer.jwt.",
            "security.providers",
            "ssl.engine.factory.class",
            "ssl.provider",
        ),
        only=(),
    ),
    Treatment(
        _OWN_TOKEN,
        (
            "sasl.oauthbearer.assertion.",
            "sasl.oauthbearer.client.credentials.",
            "sasl.oauthbearer.scope",
        ),
        only=(),
    ),
    Treatment(
        "A batch may be 128 MiB once it is decompressed, whatever its records are.",
        ("max.decompressed.message.bytes",),
        only=(),
    ),
    Treatment(
        "Transactions that another coordinator prepares (KIP-939) need InitProducerId 6, which Kafka 4.4 "
        "holds back.",
        ("transaction.two.phase.commit.enable",),
        only=("false",),
    ),
    Treatment(
        "A log directory cannot be cordoned (KIP-1066); kafka-reassign-partitions.sh moves replicas out of "
        "one.",
        ("cordoned.log.dirs",),
        only=(),
    ),
    Treatment(_UNSTABLE, ("unstable.",), only=("false",)),
)
"""The first that has a name exactly, else the first that has its beginning."""


def treatment_of(name: str) -> Treatment | None:
    """What becomes of a property of Kafka's; None: it has no treatment, as it is honoured or not Kafka's."""
    for treatment in TREATMENTS:
        if name in treatment.names:
            return treatment
    for treatment in TREATMENTS:
        if any(each.endswith(".") and name.startswith(each) for each in treatment.names):
            return treatment
    return None


@cache
def not_honoured_keys() -> dict[str, ConfigKey]:
    """Each of them as Kafka defines it, by its name, sorted."""
    keys = {}
    from minikafka.config.broker import BROKER_CONFIG_KEYS  # which looks here for what it does not have

    for name, known in kafka_properties().broker.items():
        if name not in BROKER_CONFIG_KEYS and treatment_of(name) is not None:
            keys[name] = _key(name, known)
    return keys


def _key(name: str, known: KafkaProperty) -> ConfigKey:
    key = ConfigKey(
        name=name,
        attribute="",
        type=ConfigType[known.type.upper()],
        default=None,
        importance=Importance(known.importance),
        documentation=known.documentation,
        update_mode=UpdateMode(known.update),
        annotation=_PYTHON_TYPES.get(ConfigType[known.type.upper()], str),
    )
    if known.default is None:
        return key
    return msgspec.structs.replace(key, default=parse_value(key, known.default))


def check_not_honoured(name: str, text: str, *, given_name: str = "") -> None:
    """Whether a property that is not honoured may be set to ``text``. ``given_name``: with its listener,
    where it has one.

    Raises:
        ConfigError: it would change results, and says why it cannot.
    """
    treatment, key = treatment_of(name), not_honoured_keys()[name]
    if treatment is None or treatment.only is None or not text.strip():
        return
    default = kafka_properties().broker[name].default
    allowed = [each for each in (default, *treatment.only) if each]
    given = (
        ",".join(each.strip() for each in text.split(",")) if key.type is ConfigType.LIST else text.strip()
    )
    if given in allowed or (key.type is ConfigType.BOOLEAN and given.lower() in allowed):
        return
    possible = f"only {' or '.join(dict.fromkeys(allowed))} can be given" if allowed else "it cannot be set"
    shown = HIDDEN if key.type is ConfigType.PASSWORD else text
    raise ConfigError(
        f"Invalid value {shown} for configuration {given_name or name}: {possible} here. {treatment.why}"
    )
