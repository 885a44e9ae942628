"""What the controller reads from the coordination store and writes there: its effects, carried out.

Kafka: what ``KafkaController`` and its state machines ask of ``KafkaZkClient``.

**Watches.** Whatever is read is watched from then on: ZooKeeper's watches fire once, so a read that follows
an event is also what makes the next event possible. A watch puts an event into the controller's queue and
does nothing else.

**Parts.** ``ControllerStore`` has brokers, topics and their assignments, ``PartitionStates`` the states of
partitions, ``ControllerNotifications`` what others have left. All write through ``GuardedStore``, so only as
long as this is the controller.

**Damage.** A node whose JSON cannot be read is left out with an error that names it, once until it was read
again. Its topic is not managed until the node is repaired, which its watch tells; nothing else suffers.

**States** of partitions: who leads, and who is in sync. Kafka: the ``TopicPartitionStateZNode`` half of
``KafkaZkClient``. Leaders write these nodes too, when the ISR changes, so whatever is written names the
version that was read.

**Notifications**: what brokers and operators leave in the store, read and taken away here. Kafka: the events
``TopicDeletion``, ``IsrChangeNotification``, ``LogDirEventNotification``, ``ZkPartitionReassignment`` and
``ReplicaLeaderElection`` of ``KafkaController``, as far as they touch ZooKeeper.

Each node, and the absence of each, is watched from its reading on. Announcements and elections are taken:
once read they are gone. ``/admin/reassign_partitions`` stays until what it asks for is done, so that the next
controller finds it.

**Writes** are an elected controller's, only for as long as it is the controller. Kafka: the
``expectedControllerEpochZkVersion`` of ``KafkaZkClient``'s writes.

**The guard.** Each write is one ``multi`` that begins with a check of ``/controller_epoch``: it has the
version that this controller wrote when it was elected, or the whole write fails (I14). ``ControllerMoved``
says so. Reading needs no guard.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

import msgspec

from minikafka.controller.effects import AssignmentChange, TopicRecord, VersionedState
from minikafka.controller.events import (
    BrokersChanged,
    Event,
    IsrChangesAnnounced,
    LogDirEventsAnnounced,
    PartitionsChanged,
    PreferredElectionsAsked,
    ReassignmentIsrChanged,
    ReassignmentsAsked,
    TopicDeletionsChanged,
    TopicsChanged,
)
from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CheckOp,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    Node,
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
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.control import ListenerEndpoint, LiveBroker
from minikafka.server.cluster.coordination_store import gather_some
from minikafka.server.cluster.features import keep_to_levels_of_kafka
from minikafka.types import BrokerId, PartitionState, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

STATES_PER_MULTI = 1000
"""In one write of states. A ``multi`` costs one fsync, however many writes it holds; ZooKeeper takes at most
1 MiB, and a state with its paths is below 300 bytes."""

Replicas = Mapping[TopicPartition, tuple[BrokerId, ...]]


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
            self._store.report_damage(error)
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
        """All at once; after a refusal one by one, for then another writer has changed one."""
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


class _Asked(NamedTuple):
    """What ``/admin/reassign_partitions`` held when it was read or written last, and by which write."""

    replicas: Replicas
    mzxid: int


class ControllerNotifications:
    """See the module header."""

    def __init__(self, store: GuardedStore, *, notify: Callable[[Event], object]) -> None:
        self._store = store
        self._asked: _Asked | None = None
        # One callback for each kind of event: the same one on the same node counts once.
        self._on_deletions: Watch = lambda event: notify(TopicDeletionsChanged())
        self._on_isr_changes: Watch = lambda event: notify(IsrChangesAnnounced())
        self._on_log_dir_events: Watch = lambda event: notify(LogDirEventsAnnounced())
        self._on_reassignments: Watch = lambda event: notify(ReassignmentsAsked())
        self._on_preferred_elections: Watch = lambda event: notify(PreferredElectionsAsked())

    # Topics to be deleted

    async def topic_deletions(self) -> list[str]:
        return await self._store.reads.children(paths.DELETE_TOPICS, watch=self._on_deletions)

    async def drop_topic_deletions(self, topics: Iterable[str]) -> None:
        for topic in topics:
            await self._store.delete(paths.delete_topic_path(topic))

    # Announcements

    async def take_isr_changes(self) -> list[TopicPartition]:
        """What leaders have announced; each announcement is deleted, read or not."""
        top = paths.ISR_CHANGE_NOTIFICATION
        changed: set[TopicPartition] = set()
        for path, data in await self._announcements(top, self._on_isr_changes):
            try:
                changed.update(paths.decode_partitions(data, path))
            except paths.DamagedNodeError as error:
                logger.error("%s; the announcement is dropped", error)
            await self._store.delete(path)
        return sorted(changed)

    async def take_log_dir_events(self) -> list[BrokerId]:
        """The brokers that lost a log directory."""
        top = paths.LOG_DIR_EVENT_NOTIFICATION
        brokers: set[BrokerId] = set()
        for path, data in await self._announcements(top, self._on_log_dir_events):
            try:
                brokers.add(paths.decode_log_dir_event(data, path))
            except paths.DamagedNodeError as error:
                logger.error("%s; the announcement is dropped", error)
            await self._store.delete(path)
        return sorted(brokers)

    async def _announcements(self, top: str, watch: Watch) -> list[tuple[str, bytes]]:
        found = []
        for name in await self._store.reads.children(top, watch=watch):
            try:
                node = await self._store.reads.get(f"{top}/{name}")
            except NoNodeError:
                continue
            found.append((f"{top}/{name}", node.data))
        return found

    # Elections

    async def take_preferred_elections(self) -> list[TopicPartition]:
        """The partitions whose preferred replicas are to be elected. The node is gone, read or not:
        a client that wants more writes another."""
        path = paths.PREFERRED_REPLICA_ELECTION
        while True:
            node = await self._store.node(path, watch=self._on_preferred_elections)
            if node is None:
                return []
            try:
                await self._store.multi([DeleteOp(path, node.stat.version)])
            except (NoNodeError, BadVersionError):
                continue  # written again, or withdrawn
            try:
                return paths.decode_partitions(node.data, path)
            except paths.DamagedNodeError as error:
                logger.error("%s; no election is held", error)
                return []

    # Reassignments

    async def reassignments(self) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """What ``/admin/reassign_partitions`` asks for: nothing, when it is damaged."""
        path = paths.REASSIGN_PARTITIONS
        self._asked = None
        node = await self._store.node(path, watch=self._on_reassignments)
        if node is None:
            self._store.repaired(path)
            return {}
        try:
            asked = paths.decode_reassignment(node.data)
        except paths.DamagedNodeError as error:
            self._store.report_damage(error)
            return {}
        self._store.repaired(path)
        self._asked = _Asked(asked, node.stat.mzxid)
        return dict(asked)

    async def leave_reassignments(self, replicas: Replicas) -> None:
        """``/admin/reassign_partitions`` asks for no more than ``replicas``; without any it is deleted.

        Only what was read last is written over: a damaged node stays as it is, and so does one that another
        client has written since, of which the watch tells.
        """
        asked = self._asked
        if asked is None or asked.replicas == replicas:
            return
        path = paths.REASSIGN_PARTITIONS
        stat = await self._store.reads.exists(path)
        if stat is None or stat.mzxid != asked.mzxid:
            return
        op: Op = DeleteOp(path, stat.version)
        if replicas:
            op = SetOp(path, paths.encode_reassignment(replicas), stat.version)
        try:
            (result,) = await self._store.multi([op])
        except (NoNodeError, BadVersionError):
            return
        self._asked = _Asked(replicas, result.mzxid) if isinstance(result, NodeStat) else None


class ControllerMoved(MinikafkaError):
    """Another broker has been elected since: this one is the controller no more."""


class GuardedStore:
    """What the parts of a controller's store share."""

    def __init__(self, store: CoordinationStore, *, epoch_version: int) -> None:
        """``epoch_version``: of ``/controller_epoch``, as this controller wrote it."""
        self.reads = store
        """For reading, and for nothing else."""
        self._guard = CheckOp(paths.CONTROLLER_EPOCH, epoch_version)
        self._damaged: set[str] = set()

    # Reading

    async def node(self, path: str, *, watch: Watch) -> Node | None:
        """None when there is no such node. Either way ``watch`` hears of the next change."""
        while True:
            try:
                return await self.reads.get(path, watch=watch)
            except NoNodeError:
                if await self.reads.exists(path, watch=watch) is None:
                    return None

    def report_damage(self, error: paths.DamagedNodeError) -> None:
        """Once for each node, until it was read again."""
        if error.path not in self._damaged:
            self._damaged.add(error.path)
            logger.error(
                "%s; repair the node, or delete it: what it describes is left alone until then", error
            )

    def repaired(self, path: str) -> None:
        """The node can be read, or is gone."""
        self._damaged.discard(path)

    def is_damaged(self, path: str) -> bool:
        """Whether the node could not be read when it was read last."""
        return path in self._damaged

    # Writing

    async def multi(self, ops: list[Op]) -> list[OpResult]:
        """Write, as long as this is the controller.

        Raises:
            ControllerMoved: it is not.
            StoreError: what an operation raises, with its index behind the guard's 0.
        """
        try:
            results = await self.reads.multi([self._guard, *ops])
        except StoreError as error:
            if error.operation_index == 0:
                raise ControllerMoved("another controller has been elected") from error
            raise
        return results[1:]

    async def delete(self, path: str) -> None:
        """One that is gone already is fine. Raises ControllerMoved, StoreError."""
        try:
            await self.multi([DeleteOp(path)])
        except NoNodeError:
            return


class _TopicWrite(NamedTuple):
    """One topic's part of ``write_assignments``."""

    settled: list[TopicPartition]
    """What stands in the node once ``op`` is done, or already without one."""
    op: SetOp | None


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
        self._store = guarded = GuardedStore(store, epoch_version=epoch_version)
        self._rng = rng
        self._notify = notify
        self.states = PartitionStates(guarded, notify=notify)
        self.notifications = ControllerNotifications(guarded, notify=notify)
        # One callback for each kind of event: the same one on the same node counts once.
        self._on_brokers: Watch = lambda event: notify(BrokersChanged())
        self._on_topics: Watch = lambda event: notify(TopicsChanged())
        self._topic_watches: dict[str, Watch] = {}

    # Reading

    async def brokers(self) -> dict[BrokerId, LiveBroker]:
        """The registered brokers; the epoch of each is the czxid of its registration. With the first of
        Apache Kafka among them the cluster's features are on the levels of Kafka 3.9."""
        names = await self._store.reads.children(paths.BROKER_IDS, watch=self._on_brokers)
        read = await gather_some(self._broker(BrokerId(int(name))) for name in names if name.isdecimal())
        return {broker.node_id: broker for broker in read if broker is not None}

    async def _broker(self, node_id: BrokerId) -> LiveBroker | None:
        try:
            node = await self._store.reads.get(paths.broker_path(node_id), watch=self._on_brokers)
            registration = paths.decode_broker(node_id, node.data)
        except NoNodeError:
            return None
        except paths.DamagedNodeError as error:
            self._store.report_damage(error)
            return None
        self._store.repaired(paths.broker_path(node_id))
        if registration.is_kafka:
            await keep_to_levels_of_kafka(self._store.reads)
        endpoints = tuple(
            ListenerEndpoint(each.listener_name, each.host, each.port, each.security_protocol)
            for each in registration.endpoints
        )
        return LiveBroker(
            node_id,
            node.stat.czxid,
            endpoints,
            registration.rack,
            registration.clean_start,
            registration.http,
            is_of_0_2=registration.is_of_0_2,
        )

    async def topics(self) -> list[str]:
        return await self._store.reads.children(paths.TOPICS, watch=self._on_topics)

    async def assignments(self, topics: Iterable[str]) -> dict[str, TopicRecord]:
        """Those of ``topics`` that exist and can be read."""
        asked = list(topics)
        read = await gather_some(self._assignment(topic) for topic in asked)
        return {topic: record for topic, record in zip(asked, read, strict=True) if record is not None}

    async def _assignment(self, topic: str) -> TopicRecord | None:
        path = paths.topic_path(topic)
        try:
            node = await self._store.reads.get(path, watch=self._topic_watch(topic))
            decoded = paths.decode_topic(topic, node.data)
        except NoNodeError:
            self._topic_watches.pop(topic, None)
            return None
        except paths.DamagedNodeError as error:
            self._store.report_damage(error)
            return None
        self._store.repaired(path)
        return TopicRecord(decoded.topic_id, decoded.partitions)

    def _topic_watch(self, topic: str) -> Watch:
        watch = self._topic_watches.get(topic)
        if watch is None:

            def changed(event: object) -> None:
                if self._store.is_damaged(paths.topic_path(topic)):
                    self._notify(TopicsChanged())  # to the controller it did not exist so far
                self._notify(PartitionsChanged(topic))

            watch = self._topic_watches[topic] = changed
        return watch

    # Writing

    async def assign_topic_ids(self, topics: Iterable[str]) -> None:
        """For topics that a Kafka from before topic ids has made."""
        for topic in topics:
            try:
                node = await self._store.reads.get(paths.topic_path(topic))
                assignment = paths.decode_topic(topic, node.data)
                if assignment.topic_id is None:
                    named = msgspec.structs.replace(assignment, topic_id=random_uuid(self._rng))
                    path = paths.topic_path(topic)
                    await self._store.multi([SetOp(path, paths.encode_topic(named), node.stat.version)])
            except (NoNodeError, BadVersionError, paths.DamagedNodeError):
                continue  # its watch tells of what happened to it

    async def write_assignments(
        self, changes: Mapping[TopicPartition, AssignmentChange]
    ) -> list[TopicPartition]:
        """New assignments, each only over the one that was expected. Returns those that stand there now.

        A topic is written over the version that was read of it; where another writer was faster it is read
        again. One that has the new assignment already counts as written: an answer of the store may have been
        lost.
        """
        left: dict[str, dict[int, AssignmentChange]] = defaultdict(dict)
        for (topic, partition), change in changes.items():
            left[topic][partition] = change
        written: list[TopicPartition] = []
        while left:
            names = list(left)
            planned = await gather_some(self._topic_write(topic, left[topic]) for topic in names)
            by_path: dict[str, _TopicWrite] = {}
            for topic, write in zip(names, planned, strict=True):
                if write.op is None:
                    written += write.settled
                    del left[topic]
                else:
                    by_path[write.op.path] = write
            for ops in in_multis(write.op for write in by_path.values() if write.op is not None):
                try:
                    await self._store.multi(ops)
                except (BadVersionError, NoNodeError):
                    continue  # all of this group are read again
                for op in ops:
                    settled = by_path[op.path].settled
                    written += settled
                    del left[settled[0].topic]
        return written

    async def _topic_write(self, topic: str, changes: Mapping[int, AssignmentChange]) -> _TopicWrite:
        try:
            node = await self._store.reads.get(paths.topic_path(topic))
            stored = paths.decode_topic(topic, node.data)
        except NoNodeError:
            return _TopicWrite([], None)
        except paths.DamagedNodeError as error:
            self._store.report_damage(error)
            return _TopicWrite([], None)
        partitions = stored.partitions
        settled = [each for each in changes if partitions.get(each) in changes[each]]
        new = {each: changes[each].new for each in settled if partitions[each] != changes[each].new}
        op = None
        if new:
            data = paths.encode_topic(msgspec.structs.replace(stored, partitions={**partitions, **new}))
            op = SetOp(paths.topic_path(topic), data, node.stat.version)
        return _TopicWrite([TopicPartition(topic, each) for each in settled], op)

    async def delete_topic(self, topic: str) -> None:
        """All nodes of a topic, its configuration, and the request to delete it."""
        while True:
            nodes = await self._nodes_below(paths.topic_path(topic))
            for path in (paths.topic_config_path(topic), paths.delete_topic_path(topic)):
                if await self._store.reads.exists(path) is not None:
                    nodes.append(path)
            try:
                for ops in in_multis(DeleteOp(path) for path in nodes):
                    await self._store.multi(ops)
            except (NoNodeError, NotEmptyError):
                continue  # another client added or deleted a node since
            self._topic_watches.pop(topic, None)
            return

    async def _nodes_below(self, top: str) -> list[str]:
        """The nodes below and at ``top``, children before their parents."""
        found: list[str] = []
        level = [top] if await self._store.reads.exists(top) is not None else []
        while level:
            found += level
            children = await gather_some(self._children(path) for path in level)
            level = [f"{path}/{name}" for path, names in zip(level, children, strict=True) for name in names]
        return found[::-1]

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.reads.children(path)
        except NoNodeError:
            return []

    async def resign(self) -> None:
        """Let another broker be elected. Raises ControllerMoved, StoreError."""
        await self._store.delete(paths.CONTROLLER)
