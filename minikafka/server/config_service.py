"""The configuration that can change while the broker runs: of topics, brokers, groups and client metrics.

Kafka: ``ConfigAdminManager`` (what a client may change), ``ConfigHelper`` (what it is told),
``DynamicBrokerConfig`` and ``ConfigRepository``; KIP-133, KIP-226, KIP-339. Texts are stored under Kafka's
``/config/topics/T``, ``/config/brokers/ID`` and ``/config/brokers/<default>``, and as ``NamedConfigs`` says;
what they mean is ``minikafka.config.resolution``'s matter.

A change is read, computed and written back on condition that no other broker wrote in between (else it starts
again), and for a topic also that the topic still exists: the store is the arbiter, never this broker's
memory. Then it is applied at once: subscribers get the new ``TopicConfig`` of a topic or the new
``BrokerConfig``; topics whose defaults come from the broker are told as well. The other brokers learn of it
by a notification under ``/config/changes`` (``ConfigChangeListener``), which is a part of the write.

Invariants: what ``describe`` answers is what is in the store and what the logs run with; a refused change
changes nothing; changes of topics and configurations happen one after another (``changes``), like those in
the event queue of Kafka's controller.

Where it differs from Kafka: a stored property that this broker does not know, or that contradicts another
one, is logged and left out when it is loaded; Kafka's broker stops there.

This module is long because all of these are changed under one lock, and described as one kind of thing.

**The broker's loggers**: their levels can be read and changed while it runs (KIP-412). Kafka:
``LoggingController``, ``RuntimeLoggerManager``. Levels have Kafka's names (log4j's). They are not stored: a
restarted broker logs as its ``log.level`` says.

Where it differs from Kafka: ``root`` stands for the logger ``minikafka`` above all others of this package. A
broker may run inside another program, whose own loggers are none of its business.

**The client quotas** that are set: kept in the store, changed for clients, told to those who enforce them.
Kafka: ``ZkAdminManager.alterClientQuotas`` and ``describeClientQuotas``, ``UserConfigHandler``,
``ClientIdConfigHandler``, ``IpConfigHandler``. Belongs to ``ConfigService``, whose lock is held while
something changes.

Invariants: what is known here is in the store and can be used; those who follow have heard of every change.
Other properties of a user's node, its SCRAM credentials (``scram``), stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import combinations
from uuid import UUID

import msgspec

from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig, broker_config_key
from minikafka.config.client_metrics import CLIENT_METRICS_CONFIG_KEYS, client_metrics_config
from minikafka.config.client_quotas import (
    QuotaEntity,
    QuotaFilter,
    Quotas,
    QuotaType,
    quota_text,
    stored_quotas,
)
from minikafka.config.definition import ConfigKey, ConfigSource, ConfigType
from minikafka.config.group import (
    GROUP_CONFIG_KEYS,
    GroupConfig,
    check_group_overrides,
    group_config,
    within_bounds,
)
from minikafka.config.resolution import (
    MIN_ISR,
    BrokerProperties,
    ConfigEntry,
    check_broker_overrides,
    check_min_isr,
    check_topic_overrides,
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
    topic_config,
)
from minikafka.config.resource import (
    Alteration,
    AlterOperation,
    ConfigResource,
    ConfigResourceType,
    alter,
    check_broker_name,
    check_named,
    unsupported,
)
from minikafka.config.topic import TOPIC_CONFIG_KEYS, TopicConfig
from minikafka.coordination import paths
from minikafka.coordination.store import ANY_VERSION, CheckOp, CoordinationStore
from minikafka.coordinator.group.environment import ConsumerGroupSettings, ShareGroupSettings
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.security.acl import AUDIT_LOGGER
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.cluster.topic_validation import validate_topic_name
from minikafka.server.config_store import (
    Alter,
    ConfigStore,
    ScramCredentialConfigs,
    StoredPasswords,
    unknown_topic,
)
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.types import BrokerId

logger = logging.getLogger(__name__)

ROOT = "root"
_PACKAGE = "minikafka"

_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {level: name for name, level in _LEVELS.items() if name != "TRACE"}

ApplyQuotas = Callable[[QuotaEntity, Quotas], None]
"""Called with an entity and all that is set for it; nothing is set when it is gone."""

TOGETHER_MAX = 8
"""Properties of which all combinations are tried, of those that cannot be used one by one."""

Apply = Callable[[str, TopicConfig], None]
"""Called with a topic and its configuration."""

ApplyNamed = Callable[[str, Mapping[str, str]], None]
"""Called with a name and everything that is set for it; nothing is set when it is gone."""

_ALTERABLE_KEYS: dict[int, dict[str, ConfigKey]] = {
    ConfigResourceType.TOPIC: TOPIC_CONFIG_KEYS,
    ConfigResourceType.BROKER: BROKER_CONFIG_KEYS,
    ConfigResourceType.GROUP: GROUP_CONFIG_KEYS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIG_KEYS,
}

SHARE_GROUPS_REMEMBERED = 10_000
"""Whose settings are kept as they were made: that takes 60 µs."""


def logger_levels() -> dict[str, str]:
    """The effective level of every logger there is, by name, sorted."""
    names = [
        name
        for name in logging.root.manager.loggerDict
        if name.startswith(f"{_PACKAGE}.") or name == AUDIT_LOGGER
    ]
    levels = {ROOT: _level_name(_PACKAGE)}
    return levels | {name: _level_name(name) for name in sorted(names)}


def alter_logger_levels(alterations: Iterable[Alteration], *, validate_only: bool) -> None:
    """SET the level of loggers, or DELETE it, so that a logger follows its parent again.

    Raises:
        KafkaError: INVALID_REQUEST for an operation that levels do not have, INVALID_CONFIG for a level or a
            logger that does not exist; nothing is changed then.
    """
    levels: dict[str, int] = {}
    known = logger_levels()
    for alteration in alterations:
        name = alteration.name
        if alteration.operation not in (AlterOperation.SET, AlterOperation.DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Operation {alteration.operation} is not allowed for the BROKER_LOGGER resource",
            )
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if alteration.operation == AlterOperation.SET:
            level = _LEVELS.get((alteration.value or "").upper())
            if level is None:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {name} to {alteration.value} as it is not a supported log "
                    f"level. Valid log levels are {', '.join(_LEVELS)}",
                )
            levels[name] = level
        elif name == ROOT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
            )
        else:  # the authorizer's is no child of ours, and goes back to what all of ours are at
            levels[name] = logging.getLogger(_PACKAGE).level if name == AUDIT_LOGGER else logging.NOTSET
    if not validate_only:
        for name, level in levels.items():
            logging.getLogger(_PACKAGE if name == ROOT else name).setLevel(level)


def _level_name(logger: str) -> str:
    level = logging.getLogger(logger).getEffectiveLevel()
    return next((name for threshold, name in sorted(_NAMES.items()) if level <= threshold), "FATAL")


class ClientQuotaConfigs:
    """See the module header."""

    def __init__(
        self,
        store: ConfigStore,
        lock: asyncio.Lock,
        *,
        user_read: Callable[[str, Mapping[str, str]], None],
    ) -> None:
        """``user_read`` is told what is set for a user, whatever it is, when that is read."""
        self._store = store
        self._lock = lock
        self._user_read = user_read
        self._quotas: dict[QuotaEntity, Quotas] = {}
        self._followers: list[ApplyQuotas] = []

    def __repr__(self) -> str:
        return f"ClientQuotaConfigs({len(self._quotas)} entities)"

    def follow(self, apply: ApplyQuotas) -> None:
        """``apply`` is called now with everything there is, and at every change."""
        self._followers.append(apply)
        for entity, quotas in self._quotas.items():
            apply(entity, quotas)

    def describe(self, wanted: QuotaFilter) -> dict[QuotaEntity, Quotas]:
        """What is set for the entities that are asked for."""
        return {entity: quotas for entity, quotas in self._quotas.items() if wanted.matches(entity.parts())}

    async def load(self) -> None:
        """Read everything. Raises StoreError."""
        for user in await self._store.children(paths.USER_CONFIGS):
            await self.reload(f"{paths.USERS}/{user}")
            for client_id in await self._store.children(paths.user_clients_path(user)):
                await self.reload(f"{paths.USERS}/{user}/{paths.CLIENTS}/{client_id}")
        for client_id in await self._store.children(paths.CLIENT_CONFIGS):
            await self.reload(f"{paths.CLIENTS}/{client_id}")
        for ip in await self._store.children(paths.IP_CONFIGS):
            await self.reload(f"{paths.IPS}/{ip}")

    async def reload(self, entity_path: str) -> None:
        """Read what is set at ``/config/<entity_path>``, if that is a place for quotas. Raises StoreError."""
        entity = paths.quota_entity_at(entity_path)
        if entity is None:
            return
        stored = await self._store.read(f"{paths.CONFIGS}/{entity_path}")
        if entity.client_id is None and isinstance(entity.user, str):
            self._user_read(entity.user, stored)
        of_address = entity.ip is not None
        quotas = stored_quotas(stored, of_address=of_address)
        for quota in QuotaType:
            if quota.is_of_addresses is of_address and quota.value in stored and quota not in quotas:
                text = stored[quota.value]
                logger.error("%s=%s of %s cannot be used and is ignored", quota.value, text, entity)
        self._set(entity, quotas)

    async def alter(
        self, entity: QuotaEntity, changes: Mapping[QuotaType, float | None], *, validate_only: bool
    ) -> None:
        """Set quotas, which were checked, and remove those whose change is None.

        Raises:
            KafkaError: REQUEST_TIMED_OUT: the store cannot be reached, or others were faster too often.
        """

        def changed(current: Mapping[str, str]) -> dict[str, str]:
            texts = dict(current)
            for quota, value in changes.items():
                if value is None:
                    texts.pop(quota.value, None)
                else:
                    texts[quota.value] = quota_text(quota, value)
            return texts

        async with self._lock:
            stored = await self._store.replace(
                paths.client_quota_path(entity),
                changed,
                validate_only=validate_only,
                remove_empty=entity.user is None or entity.client_id is not None,  # a user may have clients
            )
            if stored is not None:
                self._set(entity, stored_quotas(stored, of_address=entity.ip is not None))

    def _set(self, entity: QuotaEntity, quotas: Quotas) -> None:
        if quotas == self._quotas.get(entity, {}):
            return
        if quotas:
            self._quotas[entity] = quotas
        else:
            del self._quotas[entity]
        for apply in self._followers:
            apply(entity, quotas)


class _Stored(NamedTuple):
    """A property in the store, of this broker or of all."""

    per_broker: bool
    name: str
    text: str


def usable_broker_properties(
    properties: BrokerProperties, *, dynamic_default: Mapping[str, str], dynamic: Mapping[str, str]
) -> BrokerProperties:
    """``properties`` with the stored ones that this broker can use; each of the others gets a log line.

    Some hold only together, of a broker and of all, too: they are kept whatever else is unusable. Kafka
    (``DynamicBrokerConfig.updateBrokerConfig``) then uses nothing of what is stored.
    """
    stored = [_Stored(False, *each) for each in sorted(dynamic_default.items())]
    stored += [_Stored(True, *each) for each in sorted(dynamic.items())]
    try:
        return _with_stored(properties, stored)
    except KafkaError:
        pass
    usable = [
        each for each in stored if broker_config_key(each.name) is None and _is_usable(properties, [each])
    ]
    left = [each for each in stored if each not in usable]
    has_grown = True
    while has_grown:
        has_grown = False
        for each in [*left]:
            if _is_usable(properties, [*usable, each]):
                has_grown = True
                usable.append(each)
                left.remove(each)
    if len(left) <= TOGETHER_MAX:
        groups = (group for size in range(len(left), 1, -1) for group in combinations(left, size))
        together = next((group for group in groups if _is_usable(properties, [*usable, *group])), ())
        usable += together
        left = [each for each in left if each not in together]
    for each in left:
        try:
            _with_stored(properties, [*usable, each])
        except KafkaError as error:
            whose = "this broker" if each.per_broker else "all brokers"
            logger.error("stored configuration %s of %s is ignored: %s", each.name, whose, error.message)
    return _with_stored(properties, usable)


def _with_stored(properties: BrokerProperties, stored: Iterable[_Stored]) -> BrokerProperties:
    """Raises KafkaError: one cannot be used, or not with another one."""
    texts: dict[bool, dict[str, str]] = {False: {}, True: {}}
    for per_broker, name, text in stored:
        texts[per_broker][name] = text
    own = msgspec.structs.replace(properties, dynamic=texts[True])
    of_all = check_broker_overrides(own, texts[False], per_broker=False)
    return check_broker_overrides(of_all, texts[True], per_broker=True)


def _is_usable(properties: BrokerProperties, stored: Iterable[_Stored]) -> bool:
    try:
        _with_stored(properties, stored)
    except KafkaError:
        return False
    return True


def usable_topic_properties(broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, str]:
    """``overrides`` without those that are unknown, not allowed or contradict an earlier one."""
    return usable_properties(overrides, lambda texts: topic_config(broker, texts))


def usable_properties(
    overrides: Mapping[str, str], check: Callable[[Mapping[str, str]], object]
) -> dict[str, str]:
    """All of ``overrides`` that ``check`` does not refuse; if they do not hold together, the most, in the
    order of their names."""
    try:
        check(overrides)
    except (ConfigError, KafkaError):
        pass
    else:
        return dict(overrides)
    usable: dict[str, str] = {}
    for name, text in sorted(overrides.items()):
        try:
            check({**usable, name: text})
        except (ConfigError, KafkaError):
            continue
        usable[name] = text
    return usable


class TopicConfigs:
    """What is set for each topic, and the configuration that it comes to. In memory; nothing waits.

    Kafka: ``ConfigRepository``, ``LogConfig.fromProps``. Invariants: ``config`` is what ``overrides`` and the
    broker's configuration come to now; who follows topics has seen the configuration of each that is known
    here.
    """

    def __init__(self, broker_config: Callable[[], BrokerConfig]) -> None:
        self._broker_config = broker_config
        self._overrides: dict[str, dict[str, str]] = {}
        # What they come to; an entry goes when it may change.
        self._configs: dict[str, TopicConfig] = {}
        self._followers: list[Apply] = []

    def __repr__(self) -> str:
        return f"TopicConfigs({len(self._overrides)} topics)"

    def __contains__(self, topic: str) -> bool:
        return topic in self._overrides

    def __len__(self) -> int:
        return len(self._overrides)

    def overrides(self, topic: str) -> Mapping[str, str]:
        """What is set for a topic; nothing for an unknown one."""
        return self._overrides.get(topic, {})

    def config(self, topic: str) -> TopicConfig:
        """The configuration of a topic, known or not."""
        overrides = self._overrides.get(topic)
        if overrides is None:
            return topic_config(self._broker_config())
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = self.resolve(topic, overrides)
        return config

    def resolve(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        """What ``overrides`` come to, without those that cannot be used."""
        broker_config = self._broker_config()
        try:
            return topic_config(broker_config, overrides)
        except ConfigError as error:
            logger.error("topic %s: %s; the property is ignored", topic, error)
            return topic_config(broker_config, usable_topic_properties(broker_config, overrides))

    def follow(self, apply: Apply) -> None:
        """``apply`` is called for the topics that are known, whenever one is read or set, and with the
        defaults when one is gone. Changed defaults are not told."""
        self._followers.append(apply)
        for topic in self._overrides:
            apply(topic, self.config(topic))

    def set(self, topic: str, overrides: dict[str, str]) -> None:
        """This is set for a topic now."""
        self._overrides[topic] = overrides
        self._changed(topic)

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        if self._overrides.pop(topic, None) is not None:
            self._changed(topic)

    def _changed(self, topic: str) -> None:
        self._configs.pop(topic, None)
        for apply in self._followers:
            apply(topic, self.config(topic))

    def defaults_changed(self) -> None:
        """The broker's configuration has changed, and with it what topics come to."""
        self._configs.clear()


class NamedConfigs:
    """What is set for things that exist for the configuration only by their names: groups, and client metrics
    subscriptions.

    Kafka: ``GroupConfigManager``, ``ClientMetricsManager.updateSubscription``. Each has a node under its
    root, ``/config/groups`` or ``/config/client-metrics``, as long as something is set for it. (Kafka 3.9
    creates these roots in ZooKeeper and leaves them empty: it has such resources in KRaft only.)

    The lock of ``ConfigService`` is held while something changes. Invariant: what is known here is in the
    store, without properties that this broker cannot use; those who follow have heard of every change.
    """

    def __init__(
        self,
        store: ConfigStore,
        root: str,
        *,
        check: Callable[[Mapping[str, str]], object],
        what_holds: Callable[[Mapping[str, str]], list[str]] = lambda overrides: [],
    ) -> None:
        """``check`` raises ConfigError or KafkaError for properties that cannot be used. ``what_holds`` says
        of those that can be which hold otherwise than they are set, for the log."""
        self._store = store
        self._root = root
        self._check = check
        self._what_holds = what_holds
        self._overrides: dict[str, dict[str, str]] = {}
        self._followers: list[ApplyNamed] = []

    def __repr__(self) -> str:
        return f"NamedConfigs({self._root}, {len(self._overrides)} names)"

    def names(self) -> list[str]:
        """For which something is set, sorted."""
        return sorted(self._overrides)

    def overrides(self, name: str) -> Mapping[str, str]:
        """What is set; nothing for an unknown name."""
        return self._overrides.get(name, {})

    def follow(self, apply: ApplyNamed) -> None:
        """``apply`` is called now with everything there is, and at every change."""
        self._followers.append(apply)
        for name, overrides in self._overrides.items():
            apply(name, overrides)

    async def load(self) -> None:
        """Read everything. Raises StoreError."""
        for node in await self._store.children(self._root):
            await self.load_one(paths.named_config(node))

    async def load_one(self, name: str) -> None:
        """Read what is set for one. Raises StoreError."""
        stored = await self._store.read(paths.named_config_path(self._root, name))
        usable = usable_properties(stored, self._check)
        for property_name in sorted(stored.keys() - usable.keys()):
            logger.error("%s of %s/%s cannot be used and is ignored", property_name, self._root, name)
        for note in self._what_holds(usable):
            logger.warning("%s/%s: %s", self._root, name, note)
        self._set(name, usable)

    async def change(self, name: str, change: Alter, *, validate_only: bool) -> None:
        """Raises KafkaError: what ``change`` raises, and that of ``ConfigStore.replace``."""
        changed = await self._store.replace(
            paths.named_config_path(self._root, name), change, validate_only=validate_only, remove_empty=True
        )
        if changed is not None:
            self._set(name, changed)

    def _set(self, name: str, overrides: dict[str, str]) -> None:
        if overrides:
            self._overrides[name] = overrides
        else:
            self._overrides.pop(name, None)
        for apply in self._followers:
            apply(name, overrides)


class _ShareGroup(NamedTuple):
    """The settings of a share group, and what they were made of."""

    broker_config: BrokerConfig
    overrides: Mapping[str, str]
    settings: ShareGroupSettings


class ConfigService:
    """Dynamic configuration of one broker. See the module header."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        static_config: BrokerConfig,
        store: CoordinationStore,
        metadata: MetadataCache,
    ) -> None:
        self.changes = asyncio.Lock()
        """Held while topics or configurations are changed; ``TopicService`` takes it too."""
        self._node_id = node_id
        self._config_store = ConfigStore(store)
        self._metadata = metadata
        self._properties = BrokerProperties.of(static_config)
        self._passwords = StoredPasswords(static_config)
        self._broker_config = static_config
        self._topics = TopicConfigs(lambda: self._broker_config)
        self._share_groups: dict[str, _ShareGroup] = {}
        self._groups = NamedConfigs(
            self._config_store, paths.GROUP_CONFIGS, check=self._group_config, what_holds=self._group_notes
        )
        self._client_metrics = NamedConfigs(
            self._config_store, paths.CLIENT_METRICS_CONFIGS, check=client_metrics_config
        )
        self.scram = ScramCredentialConfigs(self._config_store, self.changes)
        self.client_quotas = ClientQuotaConfigs(
            self._config_store, self.changes, user_read=self.scram.credentials.read
        )
        self._read_for: dict[str, UUID] = {}
        self._topic_subscribers: list[Apply] = []
        self._broker_subscribers: list[Callable[[BrokerConfig], None]] = []
        self._broker_checks: list[Callable[[BrokerConfig], Awaitable[None]]] = []

    def __repr__(self) -> str:
        return (
            f"ConfigService(node {self._node_id}, {self._properties}, "
            f"topics with overrides={len(self._topics)})"
        )

    @property
    def broker_config(self) -> BrokerConfig:
        """The broker's configuration as it is now: dynamic over static over defaults."""
        return self._broker_config

    def subscribe_topics(self, apply: Apply) -> None:
        """``apply`` is called with a topic and its new configuration whenever that changes."""
        self._topic_subscribers.append(apply)

    def follow_topics(self, apply: Apply) -> None:
        """``apply`` is called with each topic and its configuration: now, when it is read or set, when it is
        gone. For what a topic alone can set; changed defaults are not told."""
        self._topics.follow(apply)

    def subscribe_broker(self, apply: Callable[[BrokerConfig], None]) -> None:
        """``apply`` is called with the broker's new configuration whenever that changes."""
        self._broker_subscribers.append(apply)

    def check_broker_with(self, check: Callable[[BrokerConfig], Awaitable[None]]) -> None:
        """``check`` is awaited with what a client's change of the broker's configuration would come to,
        before it is stored. It raises ConfigError where that cannot be used
        (``BrokerReconfigurable.validateReconfiguration``)."""
        self._broker_checks.append(check)

    async def load(self) -> None:
        """Read everything from the store. Call it once, before logs are opened."""
        await self._encode_passwords_again()
        await self._load_broker()
        for topic in await self._config_store.children(paths.TOPIC_CONFIGS):
            await self.load_topic(topic)
        await self._groups.load()
        await self._client_metrics.load()
        await self.client_quotas.load()

    async def found_cluster(self) -> None:
        """The first broker of a cluster makes its ``min.insync.replicas`` that of all: with eligible leader
        replicas (KIP-966) no two brokers may differ in it
        (``ConfigurationControlManager.maybeGenerateElrSafetyRecords``). Raises StoreError."""
        own = self._properties.static.get(MIN_ISR) or str(self._broker_config.min_insync_replicas)
        await self._config_store.set_if_missing(paths.broker_config_path(None), MIN_ISR, own)

    async def _load_broker(self) -> None:
        dynamic_default = await self._config_store.read(paths.broker_config_path(None))
        dynamic = await self._read_own()
        self._properties = usable_broker_properties(
            self._properties, dynamic_default=dynamic_default, dynamic=dynamic
        )
        self._broker_config = self._properties.effective()
        static, of_all = self._properties.static.get(MIN_ISR), dynamic_default.get(MIN_ISR)
        if static is not None and of_all is not None and static != of_all:
            logger.warning(
                "%s=%s of this broker's configuration has no effect: the whole cluster has %s, which is "
                "changed while it runs (kafka-configs.sh --alter --entity-type brokers --entity-default)",
                MIN_ISR,
                static,
                of_all,
            )

    async def _read_own(self) -> dict[str, str]:
        """What is set for this broker, with plain passwords; each that cannot be decoded gets a log line and
        is left out. Raises StoreError."""
        stored = await self._config_store.read(paths.broker_config_path(self._node_id))
        texts, failures = await self._passwords.decoded(stored)
        for name, why in failures.items():
            logger.error("stored broker configuration ignored: %s: %s", name, why)
            del texts[name]
        return texts

    async def _encode_passwords_again(self) -> None:
        """With the secret of now what is encrypted with the old one (``maybeReEncodePasswords``)."""
        path = paths.broker_config_path(self._node_id)
        if await self._passwords.is_outdated(await self._config_store.read(path)):
            await self._config_store.replace(path, dict, passwords=self._passwords, validate_only=False)
            logger.info("passwords of this broker are encrypted again, with password.encoder.secret")

    async def load_topic(self, topic: str) -> None:
        """Read what is set for one topic. Raises StoreError."""
        self._topics.set(topic, await self._read_topic(topic))

    async def _read_topic(self, topic: str) -> dict[str, str]:
        """A node whose JSON cannot be read holds up no other topic: what was read before is kept, or nothing
        is set, as in Kafka (``ConfigEntityZNode.decode``). Raises StoreError."""
        try:
            return await self._config_store.read(paths.topic_config_path(topic))
        except paths.DamagedNodeError as error:
            logger.error("%s; topic %s keeps the configuration that it has here", error, topic)
            return dict(self._topics.overrides(topic))

    async def read_topic_configs(self, topics: Iterable[str]) -> dict[str, TopicConfig]:
        """The configurations of ``topics``. Those that are not known here are read and not kept: they may be
        on their way in or out. Raises StoreError."""
        configs = {}
        for topic in topics:
            if topic in self._topics:
                configs[topic] = self._topics.config(topic)
            else:
                configs[topic] = self._topics.resolve(topic, await self._read_topic(topic))
        return configs

    async def load_topics(self, topics: Mapping[str, UUID]) -> None:
        """Read what is set for those that are new here: of a name, or another topic of the same name. What
        was read at the start may have been left by an earlier one. Raises StoreError."""
        for topic, topic_id in topics.items():
            if self._read_for.get(topic) != topic_id:
                await self.load_topic(topic)
                self._read_for[topic] = topic_id

    async def reload(self, entity_path: str) -> None:
        """Another broker has changed what lies at ``/config/<entity_path>``: read it and apply it."""
        kind, _, name = entity_path.partition("/")
        async with self.changes:
            if kind == "topics" and name in self._topics:
                await self.load_topic(name)
                self._apply_topic(name)
            elif kind == "brokers" and name in (paths.DEFAULT_ENTITY, str(self._node_id)):
                await self._load_broker()
                await self._apply_broker()
            elif kind == "groups":
                await self._groups.load_one(paths.named_config(name))
            elif kind == "client-metrics":
                await self._client_metrics.load_one(paths.named_config(name))
            else:
                await self.client_quotas.reload(entity_path)

    # Groups and client metrics

    def consumer_group_settings(self, group_id: str) -> ConsumerGroupSettings:
        """What holds for one group: what is set for it, else the broker's."""
        config = self.group_config(group_id)
        return ConsumerGroupSettings(
            session_timeout_ms=config.consumer_session_timeout_ms,
            heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
            assignment_interval_ms=config.consumer_assignment_interval_ms,
            assignor_offload_enable=config.consumer_assignor_offload_enable,
        )

    def share_group_settings(self, group_id: str) -> ShareGroupSettings:
        """The same for a share group, for its coordinator and for the leaders of its partitions, who ask with
        each fetch."""
        overrides = self._groups.overrides(group_id)
        made = self._share_groups.get(group_id)
        if made is None or made.broker_config is not self._broker_config or made.overrides != overrides:
            if len(self._share_groups) >= SHARE_GROUPS_REMEMBERED:
                self._share_groups.clear()
            settings = ShareGroupSettings.of(self._group_config(overrides))
            made = _ShareGroup(self._broker_config, dict(overrides), settings)
            self._share_groups[group_id] = made
        return made.settings

    def group_config(self, group_id: str) -> GroupConfig:
        """All that holds for one group."""
        return self._group_config(self._groups.overrides(group_id))

    def configured_groups(self) -> list[str]:
        """The ids of groups for which something is set; whether they exist is another matter."""
        return self._groups.names()

    def client_metrics_subscriptions(self) -> list[str]:
        """The names of the client metrics subscriptions."""
        return self._client_metrics.names()

    def follow_client_metrics(self, apply: ApplyNamed) -> None:
        """``apply`` is called with each subscription and what is set for it: now, and whenever it changes."""
        self._client_metrics.follow(apply)

    def _group_config(self, overrides: Mapping[str, str]) -> GroupConfig:
        """What holds for a group that sets ``overrides``. Raises ConfigError."""
        broker = self._broker_config
        return within_bounds(broker, group_config(broker, overrides), overrides)[0]

    def _group_notes(self, overrides: Mapping[str, str]) -> list[str]:
        broker = self._broker_config
        return within_bounds(broker, group_config(broker, overrides), overrides)[1]

    # Topics

    def topic_config(self, topic: str) -> TopicConfig:
        """The configuration of a topic, whether it exists or not."""
        return self._topics.config(topic)

    def check_topic(self, overrides: Mapping[str, str | None]) -> dict[str, str]:
        """What a client wants to set for a new topic, checked.

        Raises:
            KafkaError: INVALID_CONFIG, naming property and value.
        """
        check_topic_overrides(self._broker_config, overrides)
        return {name: text for name, text in overrides.items() if text is not None}

    def describe_topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """The properties of a topic with these ``overrides``."""
        return describe_topic(self._properties, self._broker_config, overrides)

    def expect_topics(self, overrides: Mapping[str, dict[str, str]]) -> None:
        """Topics that are about to be stored, so that their logs are opened with their configurations."""
        for topic, texts in overrides.items():
            self._topics.set(topic, texts)

    def topic_gone(self, topic: str) -> None:
        """The topic was deleted: forget what was set for it."""
        self._topics.forget(topic)
        self._read_for.pop(topic, None)

    # What clients ask

    def describe(self, resource: ConfigResource) -> list[ConfigEntry]:
        """All properties of a resource, sorted by name.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
        """
        match resource.type:
            case ConfigResourceType.TOPIC:
                self._check_topic_exists(resource.name)
                overrides = self._topics.overrides(resource.name)
                return self.describe_topic(usable_topic_properties(self._broker_config, overrides))
            case ConfigResourceType.BROKER:
                check_broker_name(resource.name, node_id=self._node_id, may_be_empty=True)
                if not resource.name:
                    return describe_cluster_defaults(self._properties)
                return describe_broker(self._properties, self._broker_config)
            case ConfigResourceType.BROKER_LOGGER:
                check_broker_name(resource.name, node_id=self._node_id, may_be_empty=False)
                return [_logger_entry(name, level) for name, level in logger_levels().items()]
            case ConfigResourceType.GROUP:
                check_named(resource)
                overrides = self._groups.overrides(resource.name)
                return describe_group(self._properties, self._broker_config, overrides)
            case ConfigResourceType.CLIENT_METRICS:
                check_named(resource)
                return describe_client_metrics(self._client_metrics.overrides(resource.name))
            case _:
                raise unsupported(resource.type)

    async def alter(
        self, resource: ConfigResource, properties: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Set exactly ``properties``; what else was set returns to its default.

        Raises:
            KafkaError: INVALID_CONFIG, for what is set for a broker INVALID_REQUEST (KAFKA-13609),
                INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION.
        """
        await self._change(resource, lambda _: dict(properties), validate_only=validate_only)

    async def alter_incrementally(
        self, resource: ConfigResource, alterations: Sequence[Alteration], *, validate_only: bool = False
    ) -> None:
        """Change single properties; the others stay as they are.

        Raises:
            KafkaError: as ``alter``.
        """
        if resource.type == ConfigResourceType.BROKER_LOGGER:
            check_broker_name(resource.name, node_id=self._node_id, may_be_empty=False)
            alter_logger_levels(alterations, validate_only=validate_only)
            return
        keys = dict(_ALTERABLE_KEYS.get(resource.type, {}))
        if resource.type == ConfigResourceType.BROKER:  # those of listeners
            named = ((each.name, broker_config_key(each.name)) for each in alterations)
            keys |= {name: key for name, key in named if key is not None}
        await self._change(
            resource, lambda current: alter(current, alterations, keys), validate_only=validate_only
        )

    # Changing

    async def _change(self, resource: ConfigResource, change: Alter, *, validate_only: bool) -> None:
        match resource.type:
            case ConfigResourceType.TOPIC:
                await self._change_topic(resource.name, change, validate_only=validate_only)
            case ConfigResourceType.BROKER:
                check_broker_name(resource.name, node_id=self._node_id, may_be_empty=True)
                await self._change_broker(change, per_broker=bool(resource.name), validate_only=validate_only)
            case ConfigResourceType.BROKER_LOGGER:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Levels of loggers can only be altered incrementally."
                )
            case ConfigResourceType.GROUP | ConfigResourceType.CLIENT_METRICS:
                check_named(resource)
                await self._change_named(resource, change, validate_only=validate_only)
            case _:
                raise unsupported(resource.type)

    async def _change_topic(self, topic: str, change: Alter, *, validate_only: bool) -> None:
        self._check_topic_exists(topic)

        def checked(current: Mapping[str, str]) -> dict[str, str]:
            overrides = change(current)
            check_topic_overrides(self._broker_config, overrides)
            return overrides

        async with self.changes:
            changed = await self._config_store.replace(
                paths.topic_config_path(topic),
                checked,
                guard=CheckOp(paths.topic_path(topic), ANY_VERSION),
                validate_only=validate_only,
            )
            if changed is not None:
                self._topics.set(topic, changed)
                self._apply_topic(topic)

    async def _change_broker(self, change: Alter, *, per_broker: bool, validate_only: bool) -> None:
        def checked(current: Mapping[str, str]) -> dict[str, str]:
            overrides = change(current)
            check_broker_overrides(self._properties, overrides, per_broker=per_broker)
            check_min_isr(current, overrides, per_broker=per_broker)  # Kafka's controller does, so afterwards
            return overrides

        async def check_uses(overrides: Mapping[str, str]) -> None:
            properties = check_broker_overrides(self._properties, overrides, per_broker=per_broker)
            for check in self._broker_checks:
                try:
                    await check(properties.effective())
                except ConfigError as error:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

        async with self.changes:
            changed = await self._config_store.replace(
                paths.broker_config_path(self._node_id if per_broker else None),
                checked,
                check=check_uses,
                passwords=self._passwords,
                validate_only=validate_only,
            )
            if changed is None:
                return
            self._properties = check_broker_overrides(self._properties, changed, per_broker=per_broker)
            self._broker_config = self._properties.effective()
            await self._apply_broker()

    async def _change_named(self, resource: ConfigResource, change: Alter, *, validate_only: bool) -> None:
        is_group = resource.type == ConfigResourceType.GROUP

        def checked(current: Mapping[str, str]) -> dict[str, str]:
            overrides = change(current)
            if is_group:
                check_group_overrides(self._broker_config, overrides)
            else:
                client_metrics_config(overrides)
            return overrides

        configs = self._groups if is_group else self._client_metrics
        async with self.changes:
            await configs.change(resource.name, checked, validate_only=validate_only)

    async def _apply_broker(self) -> None:
        self._topics.defaults_changed()
        for apply in self._broker_subscribers:
            apply(self._broker_config)
        time_slice = TimeSlice()
        for topic in self._metadata.topics():
            self._apply_topic(topic.name)
            await time_slice.give_way()

    def _apply_topic(self, topic: str) -> None:
        config = self.topic_config(topic)
        for apply in self._topic_subscribers:
            apply(topic, config)

    def _check_topic_exists(self, topic: str) -> None:
        validate_topic_name(topic)
        if self._metadata.topic(topic) is None:
            raise unknown_topic(topic)


def _logger_entry(name: str, level: str) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=level,
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        synonyms=(),
        read_only=False,
        type=ConfigType.STRING,
        documentation="The level from which on the logger writes.",
    )
