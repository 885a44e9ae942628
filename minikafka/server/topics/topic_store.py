"""Topics in the coordination store: Kafka's nodes for them, as clients' requests change them.

Kafka: the topic half of ``KafkaZkClient`` and ``AdminZkClient``. ``/brokers/topics/T`` holds the id and the
replicas of each partition, ``/config/topics/T`` the configuration, ``/admin/delete_topics/T`` the request to
delete it. The states of partitions below it are the controller's (``controller/store.py``).

Invariants: a topic is created with its configuration in one ``multi``, so it is there as a whole or not at
all; a write that changes what it read names the version that it read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec

from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    CreateOp,
    NodeExistsError,
    NoNodeError,
    Op,
    SetOp,
    WatchEvent,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.cluster.store_failures import gather_some, mapped_store_failures
from minikafka.types import BrokerId, PartitionState, ReplicaAssignment, is_topic_name

ATTEMPTS_MAX = 5
"""Lost races before a write gives up."""

NO_TOPIC_ID = UUID(int=0)
"""Kafka's ``Uuid.ZERO_UUID``; no topic has it."""


class StoredTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as the store has it."""

    name: str
    topic_id: UUID
    """``NO_TOPIC_ID``: made by a Kafka from before topic ids."""
    assignment: dict[int, ReplicaAssignment]
    """By partition: 0, 1, 2, …"""
    version: int = 0
    """Of the topic's node."""

    def replicas(self, partition: int) -> tuple[BrokerId, ...]:
        return self.assignment[partition].replicas


class TopicStore:
    """Reads and writes topics. Several may be used side by side, by several brokers."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"TopicStore({self._store!r})"

    # Reading

    async def names(self) -> list[str]:
        """Of all topics, sorted.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures("reading the topics"):
            try:
                return await self._store.children(paths.TOPICS)
            except NoNodeError:
                return []

    async def read_all(
        self, names: Iterable[str] | None = None
    ) -> tuple[dict[str, StoredTopic], dict[str, paths.DamagedNodeError]]:
        """All topics by name, sorted, or those of ``names`` that exist in their order; and those whose node
        cannot be read. Raises StoreError."""
        if names is None:
            try:
                names = await self._store.children(paths.TOPICS)
            except NoNodeError:
                return {}, {}
        else:
            names = [name for name in names if is_topic_name(name)]
        damaged: dict[str, paths.DamagedNodeError] = {}

        async def read(name: str) -> StoredTopic | None:
            try:
                return await self._read(name)
            except paths.DamagedNodeError as error:
                damaged[name] = error
                return None

        topics = await gather_some(read(name) for name in names)
        return {topic.name: topic for topic in topics if topic is not None}, damaged

    async def read(self, name: str) -> StoredTopic | None:
        """One topic, None when there is no such topic, whatever a client takes for a topic's name.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        if not is_topic_name(name):
            return None
        with mapped_store_failures(f"reading topic {name}"):
            return await self._read(name)

    async def _read(self, name: str) -> StoredTopic | None:
        path = paths.topic_path(name)
        try:
            node = await self._store.get(path)
        except NoNodeError:
            return None
        decoded = paths.decode_topic(name, node.data)
        if list(decoded.partitions) != list(range(len(decoded.partitions))) or not decoded.partitions:
            raise paths.DamagedNodeError(path, "the partitions are not numbered 0, 1, 2, …", node.data)
        return StoredTopic(
            name=name,
            topic_id=decoded.topic_id or NO_TOPIC_ID,
            assignment=decoded.partitions,
            version=node.stat.version,
        )

    # Writing

    async def create(self, topic: StoredTopic, overrides: Mapping[str, str]) -> None:
        """Create a topic with its configuration.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS; REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures(f"creating topic {topic.name}"):
            for _ in range(ATTEMPTS_MAX):
                try:
                    await self._store.multi(
                        [
                            await self._config_op(topic.name, overrides),
                            CreateOp(paths.topic_path(topic.name), _encode(topic)),
                        ]
                    )
                except (NodeExistsError, BadVersionError) as error:
                    if error.operation_index == 0:  # the configuration appeared in the meantime
                        continue
                    raise KafkaError(
                        ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
                    ) from None
                except NoNodeError:
                    await self._make_parents()
                    continue
                return
        raise contended(topic.name)

    async def _make_parents(self) -> None:
        await self._store.ensure_path(paths.TOPICS)
        await self._store.ensure_path(paths.TOPIC_CONFIGS)

    async def adopt_all(
        self, topics: Iterable[tuple[StoredTopic, Mapping[str, str], Mapping[int, PartitionState]]]
    ) -> None:
        """Create topics with their configurations and the states of their partitions in one write: all, or
        none. Raises StoreError."""
        await self._make_parents()
        ops: list[Op] = []
        for topic, overrides, states in topics:
            ops += [
                await self._config_op(topic.name, overrides),
                CreateOp(paths.topic_path(topic.name), _encode(topic)),
                CreateOp(paths.partitions_path(topic.name)),
            ]
            for partition, state in states.items():
                path = paths.partition_state_path(topic.name, partition)
                ops.append(CreateOp(paths.partition_path(topic.name, partition)))
                ops.append(CreateOp(path, paths.encode_partition_state(state)))
        await self._store.multi(ops)

    async def _config_op(self, name: str, overrides: Mapping[str, str]) -> Op:
        """A configuration may be there without its topic: Kafka's tools write it first."""
        path, data = paths.topic_config_path(name), paths.encode_config(overrides)
        stat = await self._store.exists(path)
        return CreateOp(path, data) if stat is None else SetOp(path, data, stat.version)

    async def add_partitions(self, topic: StoredTopic, added: Mapping[int, ReplicaAssignment]) -> None:
        """Add partitions to a topic that was read before.

        Raises:
            KafkaError: REQUEST_TIMED_OUT when it was changed since, or the store cannot be reached.
        """
        grown = msgspec.structs.replace(topic, assignment={**topic.assignment, **added})
        with mapped_store_failures(f"adding partitions to topic {topic.name}"):
            try:
                await self._store.set(paths.topic_path(topic.name), _encode(grown), topic.version)
            except (BadVersionError, NoNodeError):
                raise contended(topic.name) from None

    async def replace_assignments(self, topic: StoredTopic, changed: Mapping[int, ReplicaAssignment]) -> bool:
        """Write other assignments of some partitions of a topic that was read before, all or none.

        Returns whether that was done; else the topic was changed since.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached; then it is not known.
        """
        reassigned = msgspec.structs.replace(topic, assignment={**topic.assignment, **changed})
        with mapped_store_failures(f"reassigning partitions of topic {topic.name}"):
            try:
                await self._store.set(paths.topic_path(topic.name), _encode(reassigned), topic.version)
            except (BadVersionError, NoNodeError):
                return False
        return True

    async def is_to_be_deleted(self, name: str) -> bool:
        """Whether that topic is to be deleted.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures(f"reading topic {name}"):
            return await self._store.exists(paths.delete_topic_path(name)) is not None

    async def request_deletion(self, name: str) -> None:
        """Leave the request for the controller. One that is there already is fine.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures(f"deleting topic {name}"):
            await self._store.ensure_path(paths.delete_topic_path(name))

    async def wait_until_gone(self, name: str, *, timeout_ms: int) -> bool:
        """Until the topic's node, and the request to delete it, are not there any more; whether that is so.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures(f"deleting topic {name}"):
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._gone(paths.topic_path(name))
                    await self._gone(paths.delete_topic_path(name))
            except TimeoutError:
                return False
        return True

    async def _gone(self, path: str) -> None:
        created_at = None
        while True:
            changed = asyncio.Event()

            def notice(event: WatchEvent, changed: asyncio.Event = changed) -> None:
                changed.set()

            stat = await self._store.exists(path, watch=notice)
            if stat is None or created_at not in (None, stat.czxid):  # or it is another one already
                return
            created_at = stat.czxid
            await changed.wait()


def _encode(topic: StoredTopic) -> bytes:
    return paths.encode_topic(paths.TopicAssignment(topic.topic_id, topic.assignment))


def contended(name: str) -> KafkaError:
    """Another writer was faster, each time."""
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The topic '{name}' was changed by others all the time.")
