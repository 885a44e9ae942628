"""What the controller reads from the coordination store and writes there: its effects, carried out.

Kafka: what ``KafkaController`` and its state machines ask of ``KafkaZkClient``.

**Watches.** Whatever is read is watched from then on: ZooKeeper's watches fire once, so a read that follows
an event is also what makes the next event possible. A watch puts an event into the controller's queue and
does nothing else.

**The guard.** Each write is one ``multi`` that begins with a check of ``/controller_epoch``: it has the
version that this controller wrote when it was elected, or the whole write fails (I14). ``ControllerMoved``
says so.

**Damage.** A node whose JSON cannot be read is left out with an error that names it. Its topic is not managed
until somebody repairs the node, which its watch tells; nothing else suffers.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

import msgspec

from minikafka.controller.effects import TopicRecord, VersionedState
from minikafka.controller.events import (
    BrokersChanged,
    Event,
    IsrChangesAnnounced,
    LogDirEventsAnnounced,
    PartitionsChanged,
    TopicDeletionsChanged,
    TopicsChanged,
)
from minikafka.coordination import notifications, paths
from minikafka.coordination.store import (
    BadVersionError,
    CheckOp,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Op,
    OpResult,
    SetOp,
    StoreError,
    Watch,
    in_multis,
)
from minikafka.errors import MinikafkaError
from minikafka.log.log_directories import random_uuid
from minikafka.protocol.control.messages import ListenerEndpoint, LiveBroker
from minikafka.server.store_reads import gather_some
from minikafka.types import BrokerId, PartitionState, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

STATES_PER_MULTI = 1000
"""In one write of states. A ``multi`` costs one fsync, however many writes it holds; ZooKeeper takes at most
1 MiB, and a state with its paths is below 300 bytes."""


class ControllerMoved(MinikafkaError):
    """Another broker has been elected since: this one is the controller no more."""


class ControllerStore:
    """The store as one elected controller sees it. Made at its election, dropped when it resigns."""

    def __init__(
        self,
        store: CoordinationStore,
        *,
        epoch_version: int,
        rng: random.Random,
        notify: Callable[[Event], object],
    ) -> None:
        self._store = store
        self._guard = CheckOp(paths.CONTROLLER_EPOCH, epoch_version)
        self._rng = rng
        self._notify = notify
        self._damaged: set[str] = set()
        # One callback for each kind of event: the same one on the same node counts once.
        self._on_brokers: Watch = lambda event: notify(BrokersChanged())
        self._on_topics: Watch = lambda event: notify(TopicsChanged())
        self._on_deletions: Watch = lambda event: notify(TopicDeletionsChanged())
        self._on_isr_changes: Watch = lambda event: notify(IsrChangesAnnounced())
        self._on_log_dir_events: Watch = lambda event: notify(LogDirEventsAnnounced())
        self._topic_watches: dict[str, Watch] = {}

    # Reading

    async def brokers(self) -> dict[BrokerId, LiveBroker]:
        """The registered brokers; the epoch of each is the czxid of its registration."""
        names = await self._store.children(paths.BROKER_IDS, watch=self._on_brokers)
        read = await gather_some(self._broker(BrokerId(int(name))) for name in names if name.isdecimal())
        return {broker.node_id: broker for broker in read if broker is not None}

    async def _broker(self, node_id: BrokerId) -> LiveBroker | None:
        try:
            node = await self._store.get(paths.broker_path(node_id), watch=self._on_brokers)
            registration = paths.decode_broker(node_id, node.data)
        except NoNodeError:
            return None
        except paths.DamagedNodeError as error:
            self._complain(error)
            return None
        self._damaged.discard(paths.broker_path(node_id))
        endpoints = tuple(
            ListenerEndpoint(each.listener_name, each.host, each.port, each.security_protocol)
            for each in registration.endpoints
        )
        return LiveBroker(node_id, node.stat.czxid, endpoints, registration.rack, registration.clean_start)

    async def topics(self) -> list[str]:
        return await self._store.children(paths.TOPICS, watch=self._on_topics)

    async def assignments(self, topics: Iterable[str]) -> dict[str, TopicRecord]:
        """Those of ``topics`` that exist and can be read."""
        asked = list(topics)
        read = await gather_some(self._assignment(topic) for topic in asked)
        return {topic: record for topic, record in zip(asked, read, strict=True) if record is not None}

    async def _assignment(self, topic: str) -> TopicRecord | None:
        path = paths.topic_path(topic)
        try:
            node = await self._store.get(path, watch=self._topic_watch(topic))
            decoded = paths.decode_topic(topic, node.data)
        except NoNodeError:
            self._topic_watches.pop(topic, None)
            return None
        except paths.DamagedNodeError as error:
            self._complain(error)
            return None
        self._damaged.discard(path)
        return TopicRecord(decoded.topic_id, decoded.partitions)

    def _topic_watch(self, topic: str) -> Watch:
        watch = self._topic_watches.get(topic)
        if watch is None:

            def changed(event: object) -> None:
                if paths.topic_path(topic) in self._damaged:
                    self._notify(TopicsChanged())  # to the controller it did not exist so far
                self._notify(PartitionsChanged(topic))

            watch = self._topic_watches[topic] = changed
        return watch

    async def partition_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, VersionedState]:
        """Those that exist and can be read."""
        asked = list(partitions)
        read = await gather_some(self._partition_state(each) for each in asked)
        return {each: state for each, state in zip(asked, read, strict=True) if state is not None}

    async def _partition_state(self, topic_partition: TopicPartition) -> VersionedState | None:
        path = paths.partition_state_path(*topic_partition)
        try:
            node = await self._store.get(path)
            state = paths.decode_partition_state(*topic_partition, node.data)
        except NoNodeError:
            return None
        except paths.DamagedNodeError as error:
            self._complain(error)
            return None
        self._damaged.discard(path)
        return VersionedState(state, node.stat.version, node.stat.mzxid)

    async def topic_deletions(self) -> list[str]:
        return await self._store.children(paths.DELETE_TOPICS, watch=self._on_deletions)

    def _complain(self, error: paths.DamagedNodeError) -> None:
        """Once for each node, until it was read again."""
        if error.path not in self._damaged:
            self._damaged.add(error.path)
            logger.error(
                "%s; repair the node, or delete it: what it describes is left alone until then", error
            )

    # Writing

    async def create_states(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, int]:
        """First states, with the nodes above them; versions of those created. Others existed, or their topic
        does not."""
        created: dict[TopicPartition, int] = {}
        parents = {topic for topic, _ in states}
        missing = [
            topic
            for topic in sorted(parents)
            if await self._store.exists(paths.partitions_path(topic)) is None
        ]
        for topic in missing:
            try:
                await self._multi([CreateOp(paths.partitions_path(topic))])
            except (NodeExistsError, NoNodeError):
                continue
        for chunk in _chunks(states.items()):
            created |= await self._create_chunk(dict(chunk))
        return created

    async def _create_chunk(self, states: dict[TopicPartition, PartitionState]) -> dict[TopicPartition, int]:
        """All at once; after a refusal one by one, for then somebody else has been at it."""
        try:
            await self._multi([op for each, state in states.items() for op in _creation(each, state)])
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
            await self._multi([_creation(topic_partition, state)[1]])
        except (NodeExistsError, NoNodeError):
            return {}
        return {topic_partition: 0}

    async def write_states(
        self, states: Mapping[TopicPartition, VersionedState]
    ) -> dict[TopicPartition, int]:
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
                results = await self._multi(ops)
            except (BadVersionError, NoNodeError) as error:
                assert error.operation_index is not None
                del left[list(left)[error.operation_index - 1]]
                continue
            stats = [result for result in results if isinstance(result, NodeStat)]
            return {each: stat.version for each, stat in zip(left, stats, strict=True)}
        return {}

    async def assign_topic_ids(self, topics: Iterable[str]) -> None:
        """For topics that a Kafka from before topic ids has made."""
        for topic in topics:
            try:
                node = await self._store.get(paths.topic_path(topic))
                assignment = paths.decode_topic(topic, node.data)
                if assignment.topic_id is None:
                    named = msgspec.structs.replace(assignment, topic_id=random_uuid(self._rng))
                    path = paths.topic_path(topic)
                    await self._multi([SetOp(path, paths.encode_topic(named), node.stat.version)])
            except (NoNodeError, BadVersionError, paths.DamagedNodeError):
                continue  # its watch tells of what happened to it

    async def delete_topic(self, topic: str) -> None:
        """All nodes of a topic, its configuration, and the wish to delete it."""
        while True:
            nodes = await self._nodes_below(paths.topic_path(topic))
            for path in (paths.topic_config_path(topic), paths.delete_topic_path(topic)):
                if await self._store.exists(path) is not None:
                    nodes.append(path)
            try:
                for ops in in_multis(DeleteOp(path) for path in nodes):
                    await self._multi(ops)
            except (NoNodeError, NotEmptyError):
                continue  # somebody added or deleted a node since we looked
            self._topic_watches.pop(topic, None)
            return

    async def _nodes_below(self, top: str) -> list[str]:
        """The nodes below and at ``top``, children before their parents."""
        found: list[str] = []
        level = [top] if await self._store.exists(top) is not None else []
        while level:
            found += level
            children = await gather_some(self._children(path) for path in level)
            level = [f"{path}/{name}" for path, names in zip(level, children, strict=True) for name in names]
        return found[::-1]

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNodeError:
            return []

    async def drop_topic_deletions(self, topics: Iterable[str]) -> None:
        for topic in topics:
            await self._delete(paths.delete_topic_path(topic))

    async def take_isr_changes(self) -> list[TopicPartition]:
        """What leaders have announced; each announcement is deleted, read or not."""
        top = paths.ISR_CHANGE_NOTIFICATION
        changed: set[TopicPartition] = set()
        for path, data in await self._announcements(top, self._on_isr_changes):
            try:
                changed.update(notifications.decode_partitions(data, path))
            except paths.DamagedNodeError as error:
                logger.error("%s; the announcement is dropped", error)
            await self._delete(path)
        return sorted(changed)

    async def take_log_dir_events(self) -> list[BrokerId]:
        """The brokers that lost a log directory."""
        top = paths.LOG_DIR_EVENT_NOTIFICATION
        brokers: set[BrokerId] = set()
        for path, data in await self._announcements(top, self._on_log_dir_events):
            try:
                brokers.add(notifications.decode_log_dir_event(data, path))
            except paths.DamagedNodeError as error:
                logger.error("%s; the announcement is dropped", error)
            await self._delete(path)
        return sorted(brokers)

    async def _announcements(self, top: str, watch: Watch) -> list[tuple[str, bytes]]:
        found = []
        for name in await self._store.children(top, watch=watch):
            try:
                node = await self._store.get(f"{top}/{name}")
            except NoNodeError:
                continue
            found.append((f"{top}/{name}", node.data))
        return found

    async def resign(self) -> None:
        """Let another broker be elected. Raises ControllerMoved, StoreError."""
        await self._delete(paths.CONTROLLER)

    async def _delete(self, path: str) -> None:
        try:
            await self._multi([DeleteOp(path)])
        except NoNodeError:
            return

    async def _multi(self, ops: list[Op]) -> list[OpResult]:
        """Write, as long as this is the controller.

        Raises:
            ControllerMoved: it is not.
            StoreError: what an operation raises, with its index behind the guard's 0.
        """
        try:
            results = await self._store.multi([self._guard, *ops])
        except StoreError as error:
            if error.operation_index == 0:
                raise ControllerMoved("another controller has been elected") from error
            raise
        return results[1:]


def _creation(topic_partition: TopicPartition, state: PartitionState) -> list[Op]:
    return [
        CreateOp(paths.partition_path(*topic_partition)),
        CreateOp(paths.partition_state_path(*topic_partition), paths.encode_partition_state(state)),
    ]


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, STATES_PER_MULTI)):
        yield chunk
