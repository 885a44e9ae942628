"""What brokers and operators leave in the store for the controller, read and taken away by it.

Kafka: the events ``TopicDeletion``, ``IsrChangeNotification``, ``LogDirEventNotification``,
``ZkPartitionReassignment`` and ``ReplicaLeaderElection`` of ``KafkaController``, as far as they touch
ZooKeeper.

Each node, and the absence of each, is watched from its reading on. Announcements and elections are taken:
once read they are gone. ``/admin/reassign_partitions`` stays until what it asks for is done, so that the next
controller finds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from minikafka.controller.events import (
    Event,
    IsrChangesAnnounced,
    LogDirEventsAnnounced,
    PreferredElectionsAsked,
    ReassignmentsAsked,
    TopicDeletionsChanged,
)
from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    DeleteOp,
    NodeStat,
    NoNodeError,
    Op,
    SetOp,
    Watch,
)
from minikafka.server.controller.guarded_store import GuardedStore
from minikafka.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

Replicas = Mapping[TopicPartition, tuple[BrokerId, ...]]


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
        """The partitions whose preferred replicas somebody wants elected. The node is gone, read or not:
        whoever wants more writes another."""
        path = paths.PREFERRED_REPLICA_ELECTION
        while True:
            node = await self._store.node(path, watch=self._on_preferred_elections)
            if node is None:
                return []
            try:
                await self._store.multi([DeleteOp(path, node.stat.version)])
            except (NoNodeError, BadVersionError):
                continue  # written anew, or withdrawn
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
            self._store.complain(error)
            return {}
        self._store.repaired(path)
        self._asked = _Asked(asked, node.stat.mzxid)
        return dict(asked)

    async def leave_reassignments(self, replicas: Replicas) -> None:
        """``/admin/reassign_partitions`` asks for no more than ``replicas``; without any it is deleted.

        Only what was read last is written over: a damaged node stays as it is, and so does one that somebody
        has written since, of which the watch tells.
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
