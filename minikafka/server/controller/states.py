"""The states of partitions as the controller reads and writes them: who leads, and who is in sync.

Kafka: the ``TopicPartitionStateZNode`` half of ``KafkaZkClient``. Leaders write these nodes too, when the ISR
changes, so whatever is written names the version that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from minikafka.controller.effects import VersionedState
from minikafka.controller.events import Event, ReassignmentIsrChanged
from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CreateOp,
    Node,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    Op,
    SetOp,
    Watch,
)
from minikafka.server.cluster.store_reads import gather_some
from minikafka.server.controller.guarded_store import GuardedStore
from minikafka.types import PartitionState, TopicPartition

T = TypeVar("T")

STATES_PER_MULTI = 1000
"""In one write of states. A ``multi`` costs one fsync, however many writes it holds; ZooKeeper takes at most
1 MiB, and a state with its paths is below 300 bytes."""


class PartitionStates:
    """``/brokers/topics/T/partitions/P/state`` of all partitions."""

    def __init__(self, store: GuardedStore, *, notify: Callable[[Event], object]) -> None:
        self._store = store
        self._notify = notify
        self._watches: dict[TopicPartition, Watch] = {}
        """Those that have not fired: the same one on the same node counts once."""

    # Reading

    async def read(
        self, partitions: Iterable[TopicPartition], *, is_watched: bool = False
    ) -> dict[TopicPartition, VersionedState]:
        """Those that exist and can be read. ``is_watched``: the next write of each, also the first one of a
        state that does not exist, comes as ``ReassignmentIsrChanged``."""
        asked = list(partitions)
        read = await gather_some(self._read(each, is_watched=is_watched) for each in asked)
        return {each: state for each, state in zip(asked, read, strict=True) if state is not None}

    async def _read(self, topic_partition: TopicPartition, *, is_watched: bool) -> VersionedState | None:
        path = paths.partition_state_path(*topic_partition)
        try:
            node = await self._node(path, self._watch(topic_partition) if is_watched else None)
            if node is None:
                return None
            state = paths.decode_partition_state(*topic_partition, node.data)
        except paths.DamagedNodeError as error:
            self._store.complain(error)
            return None
        self._store.repaired(path)
        return VersionedState(state, node.stat.version, node.stat.mzxid)

    async def _node(self, path: str, watch: Watch | None) -> Node | None:
        if watch is not None:
            return await self._store.node(path, watch=watch)
        try:
            return await self._store.reads.get(path)
        except NoNodeError:
            return None

    def _watch(self, topic_partition: TopicPartition) -> Watch:
        watch = self._watches.get(topic_partition)
        if watch is None:

            def changed(event: object) -> None:
                self._watches.pop(topic_partition, None)
                self._notify(ReassignmentIsrChanged(topic_partition))

            watch = self._watches[topic_partition] = changed
        return watch

    # Writing

    async def create(self, states: Mapping[TopicPartition, PartitionState]) -> dict[TopicPartition, int]:
        """First states, with the nodes above them; versions of those created. Others existed, or their topic
        does not."""
        created: dict[TopicPartition, int] = {}
        parents = {topic for topic, _ in states}
        missing = [
            topic
            for topic in sorted(parents)
            if await self._store.reads.exists(paths.partitions_path(topic)) is None
        ]
        for topic in missing:
            try:
                await self._store.multi([CreateOp(paths.partitions_path(topic))])
            except (NodeExistsError, NoNodeError):
                continue
        for chunk in _chunks(states.items()):
            created |= await self._create_chunk(dict(chunk))
        return created

    async def _create_chunk(self, states: dict[TopicPartition, PartitionState]) -> dict[TopicPartition, int]:
        """All at once; after a refusal one by one, for then somebody else has been at it."""
        try:
            await self._store.multi([op for each, state in states.items() for op in _creation(each, state)])
        except (NodeExistsError, NoNodeError):
            if len(states) > 1:
                created: dict[TopicPartition, int] = {}
                for each, state in states.items():
                    created |= await self._create_chunk({each: state})
                return created
            return await self._create_below_existing(*next(iter(states.items())))
        return dict.fromkeys(states, 0)

    async def _create_below_existing(
        self, topic_partition: TopicPartition, state: PartitionState
    ) -> dict[TopicPartition, int]:
        """The partition's node may be there without its state: a controller died between the two."""
        try:
            await self._store.multi([_creation(topic_partition, state)[1]])
        except (NodeExistsError, NoNodeError):
            return {}
        return {topic_partition: 0}

    async def write(self, states: Mapping[TopicPartition, VersionedState]) -> dict[TopicPartition, int]:
        """New states; each only over the version beside it. Returns the new versions of those written."""
        written: dict[TopicPartition, int] = {}
        for chunk in _chunks(states.items()):
            written |= await self._write_chunk(dict(chunk))
        return written

    async def _write_chunk(self, states: dict[TopicPartition, VersionedState]) -> dict[TopicPartition, int]:
        """Without those that lost their race: each refusal names one, and the others are tried again."""
        left = dict(states)
        while left:
            ops: list[Op] = [
                SetOp(paths.partition_state_path(*each), paths.encode_partition_state(new.state), new.version)
                for each, new in left.items()
            ]
            try:
                results = await self._store.multi(ops)
            except (BadVersionError, NoNodeError) as error:
                assert error.operation_index is not None
                del left[list(left)[error.operation_index - 1]]
                continue
            stats = [result for result in results if isinstance(result, NodeStat)]
            return {each: stat.version for each, stat in zip(left, stats, strict=True)}
        return {}


def _creation(topic_partition: TopicPartition, state: PartitionState) -> list[Op]:
    return [
        CreateOp(paths.partition_path(*topic_partition)),
        CreateOp(paths.partition_state_path(*topic_partition), paths.encode_partition_state(state)),
    ]


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, STATES_PER_MULTI)):
        yield chunk
