"""Topics in the coordination store: Kafka's nodes for them, read and written as wholes.

Kafka: the topic half of ``KafkaZkClient`` and ``AdminZkClient``. ``/brokers/topics/T`` holds the id and the
replicas of each partition, ``…/partitions/P/state`` its leader, epoch and ISR, ``/config/topics/T`` the
configuration.

Invariants: a topic is created and deleted with all of its nodes in one ``multi``, so it is there as a whole
or not at all; a write that changes what it read names the version that it read.

Where it differs from Kafka: Kafka's controller adds the state nodes after the topic's node, in writes of
their own. A topic that was left without them, by a crash of Kafka, is read as it is; ``write_states`` adds
what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    SetOp,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.store_failures import mapped_store_failures
from minikafka.types import BrokerId, PartitionState, ReplicaAssignment

T = TypeVar("T")

ATTEMPTS_MAX = 5
"""Lost races before a write gives up."""

STATE_WRITES_PER_MULTI = 5000
"""In an election of all partitions. One ``multi`` costs one fsync, however many writes it holds."""


CONCURRENT_READS_MAX = 100
"""Of one topic's nodes. A task costs the loop 0.05 ms, and nobody else gets a turn while they all start."""

NO_TOPIC_ID = UUID(int=0)
"""Kafka's ``Uuid.ZERO_UUID``; no topic has it."""


class StoredTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as the store has it."""

    name: str
    topic_id: UUID
    """``NO_TOPIC_ID``: made by a Kafka from before topic ids."""
    assignment: dict[int, ReplicaAssignment]
    """By partition: 0, 1, 2, …"""
    states: dict[int, PartitionState]
    """By partition; those that were never led are missing."""
    version: int = 0
    """Of the topic's node."""
    state_versions: dict[int, int] = msgspec.field(default_factory=dict)
    """Of the state nodes, by partition."""
    partition_nodes: frozenset[str] | None = None
    """The children of ``…/partitions`` where a state is missing; None when that node is missing too."""

    def replicas(self, partition: int) -> tuple[BrokerId, ...]:
        return tuple(BrokerId(replica) for replica in self.assignment[partition].replicas)


class TopicStore:
    """Reads and writes topics. Several may be used side by side, by several brokers."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"TopicStore({self._store!r})"

    # Reading

    async def read_all(self) -> dict[str, StoredTopic]:
        """All topics by name, sorted. Raises StoreError."""
        try:
            names = await self._store.children(paths.TOPICS)
        except NoNodeError:
            return {}
        topics = [await self.read(name) for name in names]
        return {topic.name: topic for topic in topics if topic is not None}

    async def read(self, name: str) -> StoredTopic | None:
        """One topic, None when there is no such topic. Raises StoreError."""
        path = paths.topic_path(name)
        try:
            node = await self._store.get(path)
        except NoNodeError:
            return None
        decoded = paths.decode_topic(name, node.data)
        if list(decoded.partitions) != list(range(len(decoded.partitions))) or not decoded.partitions:
            raise paths.DamagedNodeError(path, "the partitions are not numbered 0, 1, 2, …", node.data)
        found = await _gather(self._read_state(name, partition) for partition in decoded.partitions)
        states = {partition: state for partition, state in enumerate(found) if state is not None}
        partition_nodes = None if len(states) == len(found) else await self._partition_nodes(name)
        return StoredTopic(
            name=name,
            topic_id=decoded.topic_id or NO_TOPIC_ID,
            assignment=decoded.partitions,
            states={partition: state for partition, (state, _) in states.items()},
            version=node.stat.version,
            state_versions={partition: version for partition, (_, version) in states.items()},
            partition_nodes=partition_nodes,
        )

    async def _partition_nodes(self, name: str) -> frozenset[str] | None:
        try:
            return frozenset(await self._store.children(paths.partitions_path(name)))
        except NoNodeError:
            return None

    async def _read_state(self, name: str, partition: int) -> tuple[PartitionState, int] | None:
        try:
            node = await self._store.get(paths.partition_state_path(name, partition))
        except NoNodeError:
            return None
        return paths.decode_partition_state(name, partition, node.data), node.stat.version

    # Writing

    async def create(self, topic: StoredTopic, overrides: Mapping[str, str]) -> None:
        """Create a topic with its configuration and all of its states.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS; REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures(f"creating topic {topic.name}"):
            for _ in range(ATTEMPTS_MAX):
                try:
                    await self._store.multi(
                        [await self._config_op(topic.name, overrides), *_topic_ops(topic)]
                    )
                except (NodeExistsError, BadVersionError) as error:
                    if error.operation_index == 0:  # the configuration appeared in the meantime
                        continue
                    raise KafkaError(
                        ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
                    ) from None
                except NoNodeError:
                    await self._store.ensure_path(paths.TOPICS)
                    await self._store.ensure_path(paths.TOPIC_CONFIGS)
                    continue
                return
        raise _contended(topic.name)

    async def create_all(self, topics: Iterable[tuple[StoredTopic, Mapping[str, str]]]) -> None:
        """Create topics with their configurations in one write: all, or none. Raises StoreError."""
        await self._store.ensure_path(paths.TOPICS)
        await self._store.ensure_path(paths.TOPIC_CONFIGS)
        ops: list[Op] = []
        for topic, overrides in topics:
            ops += [await self._config_op(topic.name, overrides), *_topic_ops(topic)]
        await self._store.multi(ops)

    async def _config_op(self, name: str, overrides: Mapping[str, str]) -> Op:
        """A configuration may be there without its topic: Kafka's tools write it first."""
        path, data = paths.topic_config_path(name), paths.encode_config(overrides)
        stat = await self._store.exists(path)
        return CreateOp(path, data) if stat is None else SetOp(path, data, stat.version)

    async def add_partitions(
        self,
        topic: StoredTopic,
        added: Mapping[int, tuple[BrokerId, ...]],
        states: Mapping[int, PartitionState],
    ) -> StoredTopic:
        """Add partitions to a topic that was read before. Returns the topic as it is now.

        Raises:
            KafkaError: REQUEST_TIMED_OUT when somebody changed it since, or the store cannot be reached.
        """
        grown = msgspec.structs.replace(
            topic,
            assignment={
                **topic.assignment,
                **{partition: ReplicaAssignment(replicas) for partition, replicas in added.items()},
            },
            states={**topic.states, **states},
        )
        with mapped_store_failures(f"adding partitions to topic {topic.name}"):
            try:
                await self._store.multi(
                    [
                        SetOp(paths.topic_path(topic.name), _encode(grown), topic.version),
                        *_create_states(topic.name, states),
                    ]
                )
            except (BadVersionError, NoNodeError, NodeExistsError):
                raise _contended(topic.name) from None
        return grown

    async def write_states(self, topics: Iterable[tuple[StoredTopic, Mapping[int, PartitionState]]]) -> None:
        """Write new states of partitions, and the ids of topics, as they were elected after reading.

        Raises:
            StoreError: somebody wrote since (``BadVersionError``), or the store failed.
        """
        ops: list[Op] = []
        for topic, states in topics:
            ops += _state_ops(topic, states)
            if len(ops) >= STATE_WRITES_PER_MULTI:
                await self._store.multi(ops)
                ops = []
        if ops:
            await self._store.multi(ops)

    async def assign_id(self, topic: StoredTopic, topic_id: UUID) -> StoredTopic:
        """Give an id to a topic from before topic ids. Raises StoreError."""
        identified = msgspec.structs.replace(topic, topic_id=topic_id)
        stat = await self._store.set(paths.topic_path(topic.name), _encode(identified), topic.version)
        return msgspec.structs.replace(identified, version=stat.version)

    async def delete(self, name: str) -> None:
        """Delete a topic with all of its nodes, its configuration too. A missing one is fine.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached or others write all the time.
        """
        with mapped_store_failures(f"deleting topic {name}"):
            for _ in range(ATTEMPTS_MAX):
                ops: list[Op] = [DeleteOp(path) for path in await self._nodes_of(name)]
                if await self._store.exists(paths.topic_config_path(name)) is not None:
                    ops.append(DeleteOp(paths.topic_config_path(name)))
                try:
                    if ops:
                        await self._store.multi(ops)
                except (NoNodeError, NotEmptyError):
                    continue  # somebody else added or deleted a node since we looked
                return
        raise _contended(name)

    async def _nodes_of(self, name: str) -> list[str]:
        """The nodes below and at a topic, children before their parents."""
        top = paths.topic_path(name)
        found: list[str] = []
        level = [top] if await self._store.exists(top) is not None else []
        while level:
            found += level
            children = await _gather(self._children(path) for path in level)
            level = [
                f"{path}/{child}" for path, names in zip(level, children, strict=True) for child in names
            ]
        return found[::-1]

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNodeError:
            return []


async def _gather(reads: Iterator[Coroutine[Any, Any, T]]) -> list[T]:
    """What ``reads`` return, some of them at a time."""
    results: list[T] = []
    while some := list(islice(reads, CONCURRENT_READS_MAX)):
        results += await asyncio.gather(*some)
    return results


def _encode(topic: StoredTopic) -> bytes:
    return paths.encode_topic(paths.TopicAssignment(topic.topic_id, topic.assignment))


def _topic_ops(topic: StoredTopic) -> list[Op]:
    """The nodes of a new topic, without its configuration."""
    return [
        CreateOp(paths.topic_path(topic.name), _encode(topic)),
        CreateOp(paths.partitions_path(topic.name)),
        *_create_states(topic.name, topic.states),
    ]


def _create_states(name: str, states: Mapping[int, PartitionState]) -> list[Op]:
    """The nodes of new partitions."""
    ops: list[Op] = []
    for partition, state in states.items():
        ops.append(CreateOp(paths.partition_path(name, partition)))
        ops.append(CreateOp(paths.partition_state_path(name, partition), paths.encode_partition_state(state)))
    return ops


def _state_ops(topic: StoredTopic, states: Mapping[int, PartitionState]) -> list[Op]:
    """The writes that bring a topic which was read to these states."""
    ops: list[Op] = []
    if not topic.states and topic.partition_nodes is None:
        ops.append(CreateOp(paths.partitions_path(topic.name)))
    for partition, state in states.items():
        path, data = paths.partition_state_path(topic.name, partition), paths.encode_partition_state(state)
        if partition in topic.state_versions:
            ops.append(SetOp(path, data, topic.state_versions[partition]))
            continue
        if str(partition) not in (topic.partition_nodes or ()):
            ops.append(CreateOp(paths.partition_path(topic.name, partition)))
        ops.append(CreateOp(path, data))
    return ops


def _contended(name: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The topic '{name}' was changed by others all the time.")
