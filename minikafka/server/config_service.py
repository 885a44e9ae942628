"""The configuration that can change while the broker runs: of topics, of this broker, of all brokers.

Kafka: ``ConfigAdminManager`` (what a client may change), ``ConfigHelper`` (what it is told),
``DynamicBrokerConfig`` and ``ConfigRepository``; KIP-133, KIP-226, KIP-339. Texts are stored under Kafka's
``/config/topics/T``, ``/config/brokers/ID`` and ``/config/brokers/<default>``; what they mean is
``minikafka.config.resolution``'s matter.

A change is read, computed and written back on condition that nobody wrote in between (else it starts again),
and for a topic also that the topic still exists: the store is the arbiter, never this broker's memory. Then
it is applied at once: subscribers get the new ``TopicConfig`` of a topic or the new ``BrokerConfig``; topics
whose defaults come from the broker are told as well. The other brokers learn of it by a notification under
``/config/changes`` (``config_changes.py``), which is a part of the write.

Invariants: what ``describe`` answers is what is in the store and what the logs run with; a refused change
changes nothing; changes of topics and configurations happen one after another (``changes``), like those in
the event queue of Kafka's controller.

Where it differs from Kafka: a stored property that this broker does not know, or that contradicts another
one, is logged and left out when it is loaded; Kafka's broker stops there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from minikafka.config.alteration import Alteration, alter
from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig
from minikafka.config.definition import ConfigSource, ConfigType
from minikafka.config.resolution import (
    BrokerProperties,
    ConfigEntry,
    check_broker_overrides,
    check_topic_overrides,
    describe_broker,
    describe_cluster_defaults,
    describe_topic,
)
from minikafka.config.topic import TOPIC_CONFIG_KEYS, TopicConfig
from minikafka.coordination import notifications, paths
from minikafka.coordination.store import (
    ANY_VERSION,
    BadVersionError,
    CheckOp,
    CoordinationStore,
    CreateOp,
    NodeExistsError,
    NoNodeError,
    Op,
    SetOp,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.broker_loggers import alter_logger_levels, logger_levels
from minikafka.server.config_resource import (
    ConfigResource,
    ConfigResourceType,
    check_broker_name,
    unsupported,
)
from minikafka.server.metadata_cache import MetadataCache
from minikafka.server.store_failures import mapped_store_failures
from minikafka.server.stored_configs import usable_broker_properties, usable_topic_properties
from minikafka.server.topic_configs import Apply, TopicConfigs
from minikafka.server.topic_validation import validate_topic_name
from minikafka.server.turns import Turns
from minikafka.types import BrokerId

WRITE_ATTEMPTS_MAX = 5
"""Lost races before a change gives up; in each of them somebody else's change of the node won."""

Alter = Callable[[Mapping[str, str]], dict[str, str]]
"""What is set for a resource now → what is to be set."""


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
        """Held by whoever changes topics or configurations; ``TopicService`` takes it too."""
        self._node_id = node_id
        self._store = store
        self._metadata = metadata
        self._properties = BrokerProperties.of(static_config)
        self._broker_config = static_config
        self._topics = TopicConfigs(lambda: self._broker_config)
        self._read_for: dict[str, UUID] = {}
        self._topic_subscribers: list[Apply] = []
        self._broker_subscribers: list[Callable[[BrokerConfig], None]] = []

    def __repr__(self) -> str:
        return (
            f"ConfigService(node {self._node_id}, dynamic={self._properties.dynamic}, "
            f"default={self._properties.dynamic_default}, topics with overrides={len(self._topics)})"
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

    async def load(self) -> None:
        """Read everything from the store. Call it once, before logs are opened."""
        await self._load_broker()
        for topic in await self._store.children(paths.TOPIC_CONFIGS):
            await self.load_topic(topic)

    async def _load_broker(self) -> None:
        dynamic_default = await self._read(paths.broker_config_path(None))
        dynamic = await self._read(paths.broker_config_path(self._node_id))
        self._properties = usable_broker_properties(
            self._properties, dynamic_default=dynamic_default, dynamic=dynamic
        )
        self._broker_config = self._properties.effective()

    async def load_topic(self, topic: str) -> None:
        """Read what is set for one topic."""
        self._topics.set(topic, await self._read(paths.topic_config_path(topic)))

    async def read_topic_configs(self, topics: Iterable[str]) -> dict[str, TopicConfig]:
        """The configurations of ``topics``. Those that are not known here are read and not kept: they may be
        on their way in or out. Raises StoreError."""
        configs = {}
        for topic in topics:
            if topic in self._topics:
                configs[topic] = self._topics.config(topic)
            else:
                configs[topic] = self._topics.resolve(topic, await self._read(paths.topic_config_path(topic)))
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
            case _:
                raise unsupported(resource.type)

    async def alter(
        self, resource: ConfigResource, properties: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Set exactly ``properties``; what else was set returns to its default.

        Raises:
            KafkaError: INVALID_CONFIG, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION.
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
        keys = TOPIC_CONFIG_KEYS if resource.type == ConfigResourceType.TOPIC else BROKER_CONFIG_KEYS
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
            case _:
                raise unsupported(resource.type)

    async def _change_topic(self, topic: str, change: Alter, *, validate_only: bool) -> None:
        def checked(current: Mapping[str, str]) -> dict[str, str]:
            self._check_topic_exists(topic)
            overrides = change(current)
            check_topic_overrides(self._broker_config, overrides)
            return overrides

        async with self.changes:
            changed = await self._write(
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
            return overrides

        async with self.changes:
            changed = await self._write(
                paths.broker_config_path(self._node_id if per_broker else None),
                checked,
                guard=None,
                validate_only=validate_only,
            )
            if changed is None:
                return
            self._properties = check_broker_overrides(self._properties, changed, per_broker=per_broker)
            self._broker_config = self._properties.effective()
            await self._apply_broker()

    async def _apply_broker(self) -> None:
        self._topics.defaults_changed()
        for apply in self._broker_subscribers:
            apply(self._broker_config)
        turns = Turns()
        for topic in self._metadata.topics():
            self._apply_topic(topic.name)
            await turns.give_way()

    async def _write(
        self, path: str, change: Alter, *, guard: CheckOp | None, validate_only: bool
    ) -> dict[str, str] | None:
        """Replace the properties at ``path`` by what ``change`` makes of them; None when only validating.

        Raises:
            KafkaError: what ``change`` raises; UNKNOWN_TOPIC_OR_PARTITION when the guarded topic is gone;
                REQUEST_TIMED_OUT when others were faster too often.
        """
        with mapped_store_failures(f"changing {path}"):
            for _ in range(WRITE_ATTEMPTS_MAX):
                try:
                    node = await self._store.get(path)
                except NoNodeError:
                    node = None
                changed = change({} if node is None else paths.decode_config(node.data))
                if validate_only:
                    return None
                data = paths.encode_config(changed)
                write: Op = CreateOp(path, data) if node is None else SetOp(path, data, node.stat.version)
                try:
                    await self._store.multi([*([] if guard is None else [guard]), write, _announcement(path)])
                except (BadVersionError, NodeExistsError):
                    continue
                except NoNodeError as error:
                    if guard is not None and error.operation_index == 0:
                        raise _unknown_topic(guard.path.rpartition("/")[2]) from None
                    for parent in (path.rpartition("/")[0], paths.CONFIG_CHANGES):
                        await self._store.ensure_path(parent)
                    continue
                return changed
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Others changed the same configuration all the time.")

    def _apply_topic(self, topic: str) -> None:
        config = self.topic_config(topic)
        for apply in self._topic_subscribers:
            apply(topic, config)

    def _check_topic_exists(self, topic: str) -> None:
        validate_topic_name(topic)
        if self._metadata.topic(topic) is None:
            raise _unknown_topic(topic)

    # Loading

    async def _read(self, path: str) -> dict[str, str]:
        try:
            return paths.decode_config((await self._store.get(path)).data)
        except NoNodeError:
            return {}


def _announcement(path: str) -> CreateOp:
    """Tells the other brokers (``DynamicConfigManager``)."""
    entity_path = path.removeprefix(f"{paths.CONFIGS}/")
    return CreateOp(
        paths.CONFIG_CHANGE_PREFIX, notifications.encode_config_change(entity_path), sequential=True
    )


def _logger_entry(name: str, level: str) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=level,
        source=ConfigSource.DYNAMIC_BROKER_CONFIG,
        synonyms=(),
        read_only=False,
        type=ConfigType.STRING,
        documentation="The level from which on the logger writes.",
    )


def _unknown_topic(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
