"""What the controller knows of the cluster: brokers, topics, who leads what, and how far each thing has come.

Kafka: ``ControllerContext``. It is a memory of the store plus what only the controller knows (who shuts
down, which replicas lie on lost log directories, statuses, deletions under way); the next controller reads
all of it again. The machines (``state_machines``)
change the statuses and the leadership, the steps everything else.

Invariants, which ``validate`` checks between steps:
- all that is known of a partition belongs to a partition of a known topic; each replica has a status;
- an ISR is not empty and part of the assignment (I12), a leader is a member of it;
- an ONLINE partition has a leader, unless its topic is to be deleted; an ONLINE replica is on a registered
  broker, and not on a lost log directory;
- nothing here was written by a later controller than this one (I14);
- topics whose deletion has started, or is not possible now, are topics to be deleted;
- a topic that waits for its deletion has a partition that is being reassigned; one that is to be deleted has
  none.

Where it differs from Kafka: a forgotten topic is forgotten as a whole (Kafka keeps its statuses); replicas
are kept by broker, because almost all questions are about the replicas of one.

**Statuses** of partitions and replicas, and from which each may be reached. Kafka: ``PartitionState`` and
``ReplicaState`` with their ``validPreviousStates``. They are called status here, because ``PartitionState``
is what the store has about a partition: its leader, epoch and ISR.

A partition's status::

    NON_EXISTENT   never created, or its deletion has begun
    NEW            it has an assignment, but has had no leader yet
    ONLINE         it has a leader
    OFFLINE        its leader is gone, and no other could be elected so far

A replica's status::

    NEW                   part of a partition that is being created, or that is being reassigned to it
    ONLINE                on a live broker, which knows what the partition's leader is
    OFFLINE               its broker is dead, shuts down or has lost the log; or it is about to be deleted
    DELETION_STARTED      its broker was told to delete it, with its topic or because it was reassigned away
    DELETION_SUCCESSFUL   its broker has deleted it
    DELETION_INELIGIBLE   it cannot be deleted at the moment: the broker is dead, or could not do it
    NON_EXISTENT          before NEW, and after its deletion
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from types import MappingProxyType
from uuid import UUID

import msgspec

from minikafka.controller.effects import ElectionConfig, TopicRecord, VersionedState
from minikafka.errors import InvariantError
from minikafka.protocol.control import LiveBroker
from minikafka.types import NO_LEADER, BrokerId, ReplicaAssignment, TopicPartition

_log = logging.getLogger(__name__)

FAILURES_LOGGED_MAX = 5
"""Of one change. A broker that dies may take thousands of leaders with it."""


class PartitionStatus(Enum):
    """See the module header."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaStatus(Enum):
    """See the module header."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


PARTITION_PREDECESSORS: Mapping[PartitionStatus, frozenset[PartitionStatus]] = MappingProxyType(
    {
        PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
        PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
        PartitionStatus.ONLINE: frozenset(
            {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
        ),
        PartitionStatus.OFFLINE: frozenset(
            {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
        ),
    }
)

_MOVABLE = frozenset(
    {
        ReplicaStatus.NEW,
        ReplicaStatus.ONLINE,
        ReplicaStatus.OFFLINE,
        ReplicaStatus.DELETION_INELIGIBLE,
    }
)

REPLICA_PREDECESSORS: Mapping[ReplicaStatus, frozenset[ReplicaStatus]] = MappingProxyType(
    {
        ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
        ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
        ReplicaStatus.ONLINE: _MOVABLE,
        ReplicaStatus.OFFLINE: _MOVABLE,
        ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
        ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
        ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}),
    }
)


class StateChangeFailed(msgspec.Struct, frozen=True):
    """A partition or replica that stays what it was (``StateChangeFailedException``): the others go on."""

    what: str
    target: PartitionStatus | ReplicaStatus
    why: str

    def __str__(self) -> str:
        return f"{self.what} does not become {self.target.value}: {self.why}"


def log_failures(failures: Sequence[StateChangeFailed], *, controller_epoch: int) -> None:
    """One line for all failures of one change: they often have the same cause."""
    if not failures:
        return
    first = "; ".join(str(failure) for failure in failures[:FAILURES_LOGGED_MAX])
    more = len(failures) - FAILURES_LOGGED_MAX
    _log.warning("controller of epoch %d: %s%s", controller_epoch, first, f"; and {more} more" * (more > 0))


Replicas = Mapping[BrokerId, Collection[TopicPartition]]
"""Some replicas of some partitions, by the brokers that have them."""


class Topic(msgspec.Struct, frozen=True):
    topic_id: UUID
    partitions: tuple[TopicPartition, ...]


class ControllerContext:
    """The memory of one controller, from its election to its end. See the module header."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.brokers: dict[BrokerId, LiveBroker] = {}
        """All registered brokers, those that shut down too."""
        self.shutting_down: set[BrokerId] = set()
        self.replicas_on_offline_dirs: dict[BrokerId, set[TopicPartition]] = {}
        self.topics: dict[str, Topic] = {}
        self.unreadable_topics: frozenset[str] = frozenset()
        """Topics whose node is there and cannot be read. While there are any, nothing is complete."""
        self.assignments: dict[TopicPartition, ReplicaAssignment] = {}
        self.leadership: dict[TopicPartition, VersionedState] = {}
        self.partition_status: dict[TopicPartition, PartitionStatus] = {}
        self.replica_status: defaultdict[BrokerId, dict[TopicPartition, ReplicaStatus]] = defaultdict(dict)
        self.being_reassigned: dict[TopicPartition, None] = {}
        """The partitions whose assignment says so."""
        self.do_caught_up_wait = False
        """Reassignments that could end wait for others (``CaughtUpReassignmentsDue``)."""
        self.topics_to_be_deleted: dict[str, None] = {}
        """In the order in which their deletion was asked for."""
        self.topics_waiting_for_deletion: dict[str, None] = {}
        """They are to be deleted, and first a reassignment has to end."""
        self.topics_with_deletion_started: set[str] = set()
        self.topics_ineligible_for_deletion: set[str] = set()
        self.leader_elections = 0
        """Leaders that were elected where another one led, or none."""
        self.unclean_elections = 0
        """Those of them that may lack records which were committed."""

    def __repr__(self) -> str:
        statuses = list(self.partition_status.values())
        counts = ", ".join(
            f"{statuses.count(status)} {status.name.lower()}"
            for status in PartitionStatus
            if status in statuses
        )
        return (
            f"ControllerContext(epoch {self.epoch}, brokers {sorted(self.brokers)}, "
            f"shutting down {sorted(self.shutting_down)}, {len(self.topics)} topics, "
            f"partitions: {counts or 'none'}, being reassigned: {len(self.being_reassigned)}, "
            f"to be deleted: {list(self.topics_to_be_deleted)})"
        )

    # Brokers

    @property
    def live_brokers(self) -> tuple[LiveBroker, ...]:
        """All registered brokers, sorted."""
        return tuple(self.brokers[broker] for broker in sorted(self.brokers))

    def is_live(self, broker: BrokerId) -> bool:
        """Whether the broker is registered and does not shut down."""
        return broker in self.brokers and broker not in self.shutting_down

    def is_current(self, broker: BrokerId, broker_epoch: int) -> bool:
        """Whether this is the incarnation of the broker that is registered."""
        known = self.brokers.get(broker)
        return known is not None and known.epoch == broker_epoch

    # Topics and partitions

    def effective_min_isr(self, topic_partition: TopicPartition, config: ElectionConfig) -> int:
        """``min.insync.replicas``, but never more than there are replicas (``Partition.effectiveMinIsr``)."""
        return min(config.min_insync_replicas, len(self.assignments[topic_partition].replicas))

    @property
    def is_complete(self) -> bool:
        """Whether all topics of the cluster are known."""
        return not self.unreadable_topics

    def add_topic(self, name: str, record: TopicRecord) -> tuple[TopicPartition, ...]:
        """A topic that was not known so far. Returns its partitions."""
        if record.topic_id is None or name in self.topics:
            raise InvariantError(f"topic {name} has no id, or is known: {record}, {self.topics.get(name)}")
        self.topics[name] = Topic(record.topic_id, ())
        return self.add_partitions(name, record)

    def add_partitions(self, name: str, record: TopicRecord) -> tuple[TopicPartition, ...]:
        """Those of ``record`` that a known topic did not have so far. Returns them."""
        topic = self.topics[name]
        added = []
        for partition, assignment in sorted(record.partitions.items()):
            topic_partition = TopicPartition(name, partition)
            if topic_partition not in self.assignments:
                added.append(topic_partition)
                self.partition_status[topic_partition] = PartitionStatus.NON_EXISTENT
                self.set_assignment(topic_partition, assignment)
        self.topics[name] = msgspec.structs.replace(topic, partitions=(*topic.partitions, *added))
        return tuple(added)

    def set_assignment(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Replicas that were none before are NON_EXISTENT. Those that are none any more are known until they
        are forgotten (``forget_replica``)."""
        self.assignments[topic_partition] = assignment
        for replica in assignment.replicas:
            self.replica_status[replica].setdefault(topic_partition, ReplicaStatus.NON_EXISTENT)
        if assignment.is_being_reassigned:
            self.being_reassigned[topic_partition] = None
        else:
            self.being_reassigned.pop(topic_partition, None)

    def forget_replica(self, replica: BrokerId, topic_partition: TopicPartition) -> None:
        self.replica_status[replica].pop(topic_partition, None)
        self.replicas_on_offline_dirs.get(replica, set()).discard(topic_partition)

    def remove_topic(self, name: str) -> None:
        """Forget a topic and all that is known of it."""
        for topic_partition in self.topics.pop(name).partitions:
            for replica in self.assignments.pop(topic_partition).replicas:
                self.forget_replica(replica, topic_partition)
            del self.partition_status[topic_partition]
            self.leadership.pop(topic_partition, None)
            self.being_reassigned.pop(topic_partition, None)
        self.topics_waiting_for_deletion.pop(name, None)
        self.topics_to_be_deleted.pop(name, None)
        self.topics_with_deletion_started.discard(name)
        self.topics_ineligible_for_deletion.discard(name)

    def is_to_be_deleted(self, topic: str) -> bool:
        return topic in self.topics_to_be_deleted

    def topics_being_reassigned(self) -> dict[str, None]:
        """Those that have a partition that is."""
        return dict.fromkeys(each.topic for each in self.being_reassigned)

    def led_by(self, broker: BrokerId) -> Iterator[TopicPartition]:
        """The partitions that a broker leads."""
        for topic_partition in self.replica_status[broker]:
            current = self.leadership.get(topic_partition)
            if current is not None and current.state.leader == broker:
                yield topic_partition

    def has_offline_leader(self, topic_partition: TopicPartition) -> bool:
        """Whether it had a leader, and the leader cannot lead any more."""
        current = self.leadership.get(topic_partition)
        return current is not None and not self.is_online(current.state.leader, topic_partition)

    # Replicas

    def is_online(self, replica: BrokerId, topic_partition: TopicPartition) -> bool:
        """Whether a replica can lead and follow: its broker is live, and so is its log directory."""
        return self.is_live(replica) and not self._is_on_offline_dir(replica, topic_partition)

    def _is_on_offline_dir(self, replica: BrokerId, topic_partition: TopicPartition) -> bool:
        lost = self.replicas_on_offline_dirs.get(replica)
        return lost is not None and topic_partition in lost

    def online_replicas(self, topic_partition: TopicPartition) -> list[BrokerId]:
        """In the order of the assignment."""
        replicas = self.assignments[topic_partition].replicas
        return [replica for replica in replicas if self.is_online(replica, topic_partition)]

    def online_or_shutting_down_replicas(self, topic_partition: TopicPartition) -> list[BrokerId]:
        """In the order of the assignment."""
        return [
            replica
            for replica in self.assignments[topic_partition].replicas
            if replica in self.brokers and not self._is_on_offline_dir(replica, topic_partition)
        ]

    def replicas_on(self, brokers: Iterable[BrokerId]) -> dict[BrokerId, list[TopicPartition]]:
        return {broker: list(self.replica_status[broker]) for broker in brokers}

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
        """All replicas of ``partitions``."""
        replicas: dict[BrokerId, list[TopicPartition]] = {}
        for topic_partition in partitions:
            for replica in self.assignments[topic_partition].replicas:
                replicas.setdefault(replica, []).append(topic_partition)
        return replicas

    def split_by_online(
        self, replicas: Replicas
    ) -> tuple[dict[BrokerId, list[TopicPartition]], dict[BrokerId, list[TopicPartition]]]:
        """Those of ``replicas`` that are online, and the others."""
        online: dict[BrokerId, list[TopicPartition]] = {}
        offline: dict[BrokerId, list[TopicPartition]] = {}
        for broker, partitions in replicas.items():
            for topic_partition in partitions:
                side = online if self.is_online(broker, topic_partition) else offline
                side.setdefault(broker, []).append(topic_partition)
        return online, offline

    def statuses_of_topic(self, topic: str) -> Iterator[tuple[BrokerId, TopicPartition, ReplicaStatus]]:
        """Each replica of a topic with its status."""
        for topic_partition in self.topics[topic].partitions:
            for replica in self.assignments[topic_partition].replicas:
                yield replica, topic_partition, self.replica_status[replica][topic_partition]

    # Invariants

    def validate(self) -> None:
        """Raises InvariantError where the module header is not true."""
        partitions = list(chain.from_iterable(topic.partitions for topic in self.topics.values()))
        if not set(partitions) == self.assignments.keys() == self.partition_status.keys():
            raise InvariantError(f"topics, assignments and statuses are not of the same partitions: {self!r}")
        for topic_partition in partitions:
            self._validate_partition(topic_partition)
        if self.leadership.keys() - self.assignments.keys():
            raise InvariantError("the state of an unknown partition is kept")
        replicas = sum(len(assignment.replicas) for assignment in self.assignments.values())
        if replicas != sum(len(on_broker) for on_broker in self.replica_status.values()):
            raise InvariantError("a replica without an assignment has a status")
        if not self.shutting_down | self.replicas_on_offline_dirs.keys() <= self.brokers.keys():
            raise InvariantError(f"something is known of a broker that is not registered: {self!r}")
        to_be_deleted = self.topics_to_be_deleted.keys()
        if not self.topics_with_deletion_started | self.topics_ineligible_for_deletion <= to_be_deleted:
            raise InvariantError(f"a topic is being deleted without a request to delete it: {self!r}")
        if not to_be_deleted <= self.topics.keys():
            raise InvariantError(f"a topic is to be deleted that does not exist: {self!r}")
        moving = {each for each, assignment in self.assignments.items() if assignment.is_being_reassigned}
        if moving != self.being_reassigned.keys():
            raise InvariantError(f"being reassigned is {sorted(moving)}, not {list(self.being_reassigned)}")
        topics_moving = self.topics_being_reassigned().keys()
        if not self.topics_waiting_for_deletion.keys() <= topics_moving or to_be_deleted & topics_moving:
            raise InvariantError(f"a topic waits for its deletion and is not reassigned, or both: {self!r}")

    def _validate_partition(self, topic_partition: TopicPartition) -> None:
        replicas = self.assignments[topic_partition].replicas
        current = self.leadership.get(topic_partition)
        if current is not None:
            state = current.state
            if not state.isr or not set(state.isr) <= set(replicas):
                raise InvariantError(
                    f"{topic_partition} with the replicas {replicas} has the ISR {state.isr}"
                )
            if state.leader != NO_LEADER and state.leader not in state.isr:
                raise InvariantError(f"{topic_partition} is led by {state.leader}, outside of {state.isr}")
            if state.controller_epoch > self.epoch:
                raise InvariantError(f"{topic_partition} is managed by a later controller: {state}")
        if (
            self.partition_status[topic_partition] is PartitionStatus.ONLINE
            and not self.is_to_be_deleted(topic_partition.topic)
            and (current is None or current.state.leader == NO_LEADER)
        ):
            raise InvariantError(f"{topic_partition} is online without a leader: {current}")
        for replica in replicas:
            status = self.replica_status[replica].get(topic_partition)
            if status is None:
                raise InvariantError(f"the replica of {topic_partition} on {replica} has no status")
            if status is ReplicaStatus.ONLINE and (
                replica not in self.brokers or self._is_on_offline_dir(replica, topic_partition)
            ):
                raise InvariantError(f"the replica of {topic_partition} on {replica} cannot be online")
