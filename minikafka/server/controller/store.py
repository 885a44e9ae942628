"""What the controller reads from the coordination store and writes there: its effects, carried out.

Kafka: what ``KafkaController`` and its state machines ask of ``KafkaZkClient``.

**Watches.** Whatever is read is watched from then on: ZooKeeper's watches fire once, so a read that follows
an event is also what makes the next event possible. A watch puts an event into the controller's queue and
does nothing else.

**Parts.** Here are brokers, topics and their assignments; ``states`` has the partitions' states
(``controller/states``), ``notifications`` what others have left (``controller/notifications``). All write
through ``GuardedStore``, so only as long as this is the controller.

**Damage.** A node whose JSON cannot be read is left out with an error that names it. Its topic is not managed
until somebody repairs the node, which its watch tells; nothing else suffers.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from minikafka.controller.effects import AssignmentChange, TopicRecord
from minikafka.controller.events import BrokersChanged, Event, PartitionsChanged, TopicsChanged
from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    DeleteOp,
    NoNodeError,
    NotEmptyError,
    SetOp,
    Watch,
    in_multis,
)
from minikafka.log.manager.log_directories import random_uuid
from minikafka.protocol.control.messages import ListenerEndpoint, LiveBroker
from minikafka.server.cluster.store_reads import gather_some
from minikafka.server.controller.guarded_store import GuardedStore
from minikafka.server.controller.notifications import ControllerNotifications
from minikafka.server.controller.states import PartitionStates
from minikafka.types import BrokerId, TopicPartition


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
        """The registered brokers; the epoch of each is the czxid of its registration."""
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
            self._store.complain(error)
            return None
        self._store.repaired(paths.broker_path(node_id))
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
            self._store.complain(error)
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

        A topic is written over the version that was read of it; where somebody else was faster it is read
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
            self._store.complain(error)
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
        """All nodes of a topic, its configuration, and the wish to delete it."""
        while True:
            nodes = await self._nodes_below(paths.topic_path(topic))
            for path in (paths.topic_config_path(topic), paths.delete_topic_path(topic)):
                if await self._store.reads.exists(path) is not None:
                    nodes.append(path)
            try:
                for ops in in_multis(DeleteOp(path) for path in nodes):
                    await self._store.multi(ops)
            except (NoNodeError, NotEmptyError):
                continue  # somebody added or deleted a node since we looked
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
