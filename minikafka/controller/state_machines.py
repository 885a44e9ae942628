"""The state machines of partitions, of replicas, and of topics that are being deleted.

A step works with the context and these, which change it (``Machines``; Kafka: fields of ``KafkaController``).

**Partitions** (``PartitionStateMachine``) go from one status to another, with elections on the way. Kafka:
``ZkPartitionStateMachine``; the statuses and their valid predecessors are in ``context``.

    to NEW            nothing but the status
    NEW to ONLINE     the first state is created: the online replicas are the ISR, the first of them leads;
                      LeaderAndIsr to them
    others to ONLINE  an election by an ``ElectionStrategy``; LeaderAndIsr to the replicas that can hear it
    to OFFLINE        nothing but the status
    to NON_EXISTENT   nothing but the status

Invariants:
- An election starts from what the store has, not from memory, and is written only over that: the leader may
  have changed the ISR at the same time. A write that lost this race starts over.
- A state that a later controller has written is not overwritten (I14).
- What cannot be done to one partition is returned and logged, and does not keep the others.

Where it differs from Kafka: the state of a NEW partition may be there already (a write that was repeated
because its answer got lost, a topic that was created together with its states); then it is taken up and a
leader elected, where Kafka gives up until the next controller. ``AFTER_ABSENCE`` does not exist in Kafka, and
``SAME_LEADER`` is ``KafkaController.updateLeaderEpochAndSendRequest`` there.

**Elections**: who leads a partition, and who is in its ISR afterwards. Pure: a state in, a state or None out.
Kafka: ``Election``, ``PartitionLeaderElectionAlgorithms``; leader recovery: KIP-704.

Invariants:
- Each election and each removal from the ISR takes the partition to a new leader epoch (KIP-101: what is
  written under a leader and what a crash took from it must not share an epoch).
- The ISR never becomes empty. Its last member stays in it when it dies: only it has all records.
- A state without a leader says who led last (KIP-966): where no replica is sure to hold all that is
  committed, because all have stopped uncleanly, that one leads, and until it is back none does.
- A leader is a member of the ISR.

``replicas`` is the assignment, the preferred leader first; ``online`` are those that can lead, ``state`` is
what the store has. None says that no leader can be elected.

**Replicas** (``ReplicaStateMachine``) do too, and their brokers are told on the way. Kafka:
``ZkReplicaStateMachine``; the statuses and their valid predecessors are in ``context``.

    to NEW                   LeaderAndIsr to the replica, if its partition has a leader
    NEW to ONLINE            nothing: the election that created the partition has told it
    others to ONLINE         LeaderAndIsr to the replica, if its partition ever had a leader
    to OFFLINE               StopReplica (no deletion) to the replica, which leaves the ISR; LeaderAndIsr to
                             the other replicas if that changed something
    to DELETION_STARTED      StopReplica with deletion
    to DELETION_SUCCESSFUL   nothing
    to DELETION_INELIGIBLE   nothing
    to NON_EXISTENT          nothing

A replica that a reassignment has removed takes the way of a deleted one, while its partition's assignment
names it no more (``reassignment``).

Invariants: as for partitions. A replica goes OFFLINE even when its ISR cannot be written: that it is away
does not depend on the store.

Where it differs from Kafka: a replica that was NEW or ONLINE and outside of the ISR when it goes OFFLINE
raises the leader epoch too. An expansion of the ISR that names it and is on its way from the leader to the
store then loses the race against this write, and what the replica fetched before is of an old epoch (KIP-903;
Kafka's controllers under ZooKeeper leave this gap). And where nothing in a state would change, it is not
written, and LeaderAndIsr is not sent.

**Deleting topics** (``TopicDeletionManager``): all replicas first, then the topic's nodes.

A request to delete a topic is a node that a client has left. From then on the topic's partitions have no
leader, and clients are told that it is gone (``LEADER_DURING_DELETE``). Its replicas, by status::

    ONLINE, OFFLINE --> OFFLINE --StopReplica, delete--> DELETION_STARTED --answer--> DELETION_SUCCESSFUL
                           |                                   |
                           | broker dead                       | error, or broker dead
                           +------> DELETION_INELIGIBLE <------+ --next try--> OFFLINE

When all are DELETION_SUCCESSFUL, the nodes are deleted and the topic is forgotten; one of the same name may
come at once, it has another id. A topic with a replica that cannot be deleted is ineligible, until a broker
that has one of its replicas comes (back).

Invariants:
- The topic's nodes go last: a controller that dies earlier leaves enough for the next one to go on.
- A replica counts as deleted only when its broker has answered a request that said so.
- One topic's deletion does not wait for another's.

A topic of which a partition is being reassigned waits with its deletion until that is done. Until then it is
a topic like any other: it has leaders, elections and clients, because without them the reassignment could
not end. Who wants it gone and cannot wait cancels the reassignment.

Where it differs from Kafka:
- There such a topic is queued for deletion and ineligible, and no leader is elected for it: when its leader
  dies, neither the reassignment nor the deletion comes to an end.
- Replicas that were ONLINE when their broker died, before the deletion could begin, go OFFLINE first; Kafka
  tries to make them ineligible at once, which its own table forbids.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import assert_never

import msgspec

from minikafka.controller.context import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    ControllerContext,
    PartitionStatus,
    Replicas,
    ReplicaStatus,
    StateChangeFailed,
    log_failures,
)
from minikafka.controller.effects import (
    ElectionConfig,
    Step,
    VersionedState,
    create_states,
    delete_topic_nodes,
    drop_topic_deletions,
    read_election_configs,
    read_states,
    write_states,
)
from minikafka.controller.request_batch import ControllerBrokerRequestBatch, update_metadata
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.control import keep_eligible
from minikafka.types import NO_LEADER, BrokerId, LeaderEpoch, PartitionState, TopicPartition

FIRST_LEADER_EPOCH = LeaderEpoch(0)
"""``LeaderAndIsr.InitialLeaderEpoch``."""

_log = logging.getLogger(__name__)


class Machines(NamedTuple):
    """All of one controller, from its election to its end."""

    context: ControllerContext
    partitions: PartitionStateMachine
    replicas: ReplicaStateMachine
    deletions: TopicDeletionManager

    @classmethod
    def of_epoch(cls, controller_epoch: int, *, delete_topic_enable: bool) -> Machines:
        context = ControllerContext(controller_epoch)
        partitions, replicas = PartitionStateMachine(context), ReplicaStateMachine(context)
        deletions = TopicDeletionManager(context, partitions, replicas, is_enabled=delete_topic_enable)
        return cls(context, partitions, replicas, deletions)

    def send_update_metadata(
        self,
        brokers: Iterable[BrokerId],
        partitions: Iterable[TopicPartition] = (),
        *,
        is_full: bool = False,
    ) -> Step[None]:
        """Tell ``brokers``, if there are any, who is alive and what became of ``partitions``."""
        if to := tuple(brokers):
            yield update_metadata(self.context, to, partitions, is_full=is_full)

    def partitions_to_show(self) -> list[TopicPartition]:
        """``partitionsWithLeaders``: all that clients may know of."""
        deleted = self.context.topics_to_be_deleted
        return [each for each in self.context.leadership if each.topic not in deleted]


def first_state(
    replicas: Sequence[BrokerId], online: Collection[BrokerId], *, controller_epoch: int
) -> PartitionState | None:
    """A new partition: the online replicas are in sync, and the first of them leads."""
    isr = tuple(replica for replica in replicas if replica in online)
    if not isr:
        return None
    return PartitionState(isr[0], FIRST_LEADER_EPOCH, isr, controller_epoch)


def offline_partition_election(
    state: PartitionState,
    replicas: Sequence[BrokerId],
    online: Collection[BrokerId],
    *,
    unclean: bool,
    min_isr: int = 1,
) -> PartitionState | None:
    """The leader is gone: the first online member of the ISR follows it, and the ISR keeps who is online.
    When no member is online, an eligible replica leads, alone in the ISR: it holds all that is committed.

    With ``unclean`` any online replica may lead when no member of the ISR is online: the one that led last,
    which lacks least, or else the first. It is alone in the ISR then, records may be lost, and the state says
    that the leader has to recover.
    """
    leader = _first(replicas, lambda replica: replica in online and replica in state.isr)
    if leader is not None:
        return _new_epoch(state, leader, tuple(member for member in state.isr if member in online))
    leader = _first(replicas, lambda replica: replica in online and replica in state.eligible)
    if leader is not None and len(state.isr) < min_isr:  # else the high watermark may have gone on without it
        return _new_epoch(state, leader, (leader,))
    if not unclean:
        return None
    leader = _first((state.last_known_leader, *replicas), lambda replica: replica in online)
    if leader is None:
        return None
    return msgspec.structs.replace(_new_epoch(state, leader, (leader,)), leader_recovering=True)


def preferred_replica_election(
    state: PartitionState, replicas: Sequence[BrokerId], online: Collection[BrokerId]
) -> PartitionState | None:
    """The first of the assignment leads, if it can."""
    preferred = replicas[0]
    if preferred not in online or preferred not in state.isr:
        return None
    return _new_epoch(state, preferred, state.isr)


def reassign_partition_election(
    state: PartitionState, replicas: Sequence[BrokerId], online: Collection[BrokerId]
) -> PartitionState | None:
    """``replicas`` are the target of a reassignment. The leader stays if it is one of them, else the first
    leads that is online and in the ISR. Who is none of the target leaves the ISR at the same time: the leader
    does not count it any more when it commits.

    No leader can be elected while the ISR has members that will leave, and misses one of the target: what
    they hold must not be given up before the target holds it.
    """
    isr = tuple(member for member in state.isr if member in replicas)
    if len(isr) < min(len(state.isr), len(replicas)):
        return None
    if state.leader in isr and state.leader in online:
        return _new_epoch(state, state.leader, isr)
    leader = _first(replicas, lambda replica: replica in online and replica in isr)
    return None if leader is None else _new_epoch(state, leader, isr)


def known_brokers_only(state: PartitionState, replicas: Collection[BrokerId]) -> PartitionState:
    """The state in which only ``replicas`` are eligible or led last: those that a reassignment has removed
    have no log any more."""
    eligible = tuple(each for each in state.eligible if each in replicas)
    led_last = state.last_known_leader if state.last_known_leader in replicas else NO_LEADER
    if (eligible, led_last) == (state.eligible, state.last_known_leader):
        return state
    return msgspec.structs.replace(state, eligible=eligible, last_known_leader=led_last)


def controlled_shutdown_election(
    state: PartitionState,
    replicas: Sequence[BrokerId],
    online: Collection[BrokerId],
    *,
    shutting_down: Collection[BrokerId],
) -> PartitionState | None:
    """The leader shuts down: another member of the ISR leads, and those that shut down leave the ISR.

    ``online`` has those that shut down too.
    """
    isr = tuple(member for member in state.isr if member not in shutting_down)
    leader = _first(replicas, lambda replica: replica in online and replica in isr)
    return None if leader is None else _new_epoch(state, leader, isr)


def election_after_absence(
    state: PartitionState, replicas: Sequence[BrokerId], online: Collection[BrokerId], *, min_isr: int = 1
) -> PartitionState | None:
    """Members of the ISR have been away while there was no controller to see it, and are back. The leader
    stays if it can. The epoch rises in any case.

    Those whose stop was not clean are out of the ISR before (``after_unclean_shutdown``).
    """
    order = [state.leader, *replicas] if state.leader in online else replicas
    return offline_partition_election(state, order, online, unclean=False, min_isr=min_isr)


def without_replica(state: PartitionState, replica: BrokerId) -> PartitionState:
    """The state after ``replica`` has left the ISR, if anybody else is in it, and has ceased to lead."""
    leader = NO_LEADER if state.leader == replica else state.leader
    isr = state.isr if len(state.isr) == 1 else tuple(member for member in state.isr if member != replica)
    return _new_epoch(state, leader, isr)


def after_unclean_shutdown(state: PartitionState, returned: Collection[BrokerId]) -> PartitionState | None:
    """``returned`` are back from unclean stops and may have lost the ends of their logs: they are in sync and
    eligible no more. None: nothing changes.

    When none of the ISR is left, the eligible ones take its place, because they surely hold what is
    committed. When none of those is left either, no replica can be trusted more than the last known leader:
    it is the ISR then, whether or not it has returned, so that none that has less leads before it.
    """
    isr = tuple(each for each in state.isr if each not in returned)
    eligible = tuple(each for each in state.eligible if each not in returned)
    if not isr and eligible:
        isr, eligible = eligible, ()
    elif not isr:
        led_last = _last_leader(state)
        isr = state.isr if led_last == NO_LEADER else (led_last,)
    if (isr, eligible) == (state.isr, state.eligible):
        return None
    after = _new_epoch(state, state.leader if state.leader in isr else NO_LEADER, isr)
    return msgspec.structs.replace(after, eligible=eligible)


def same_leader(state: PartitionState) -> PartitionState:
    """Nothing but a new leader epoch: what others are about to write, or to fetch, is of an old one then."""
    return _new_epoch(state, state.leader, state.isr)


def _new_epoch(state: PartitionState, leader: BrokerId, isr: tuple[BrokerId, ...]) -> PartitionState:
    return msgspec.structs.replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        isr=isr,
        last_known_leader=_last_leader(state) if leader == NO_LEADER else NO_LEADER,
    )


def _last_leader(state: PartitionState) -> BrokerId:
    """Who leads, or else led last; ``NO_LEADER`` when an earlier release did not remember that."""
    return state.last_known_leader if state.leader == NO_LEADER else state.leader


def _first(replicas: Sequence[BrokerId], fits: Callable[[BrokerId], bool]) -> BrokerId | None:
    return next((replica for replica in replicas if fits(replica)), None)


class ElectionStrategy(Enum):
    """``PartitionLeaderElectionStrategy``: which function elects."""

    OFFLINE = "offline"
    UNCLEAN = "unclean"
    """As OFFLINE, whatever ``unclean.leader.election.enable`` says: it was asked for (KIP-460)."""
    PREFERRED = "preferred"
    REASSIGN = "reassign"
    """The assignment is the target of a reassignment already."""
    SAME_LEADER = "same leader"
    """No election, but a new leader epoch: with it the leader hears of a new assignment."""
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    AFTER_ABSENCE = "after absence"


class StateChanges(msgspec.Struct):
    """What came of a change: who leads now, and what failed."""

    elected: dict[TopicPartition, PartitionState] = msgspec.field(default_factory=dict)
    failed: list[StateChangeFailed] = msgspec.field(default_factory=list)


class PartitionStateMachine:
    """See the module header."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"PartitionStateMachine({self._context!r})"

    def initialize(self) -> None:
        """Statuses of what was read from the store, at the controller's start."""
        context = self._context
        for topic_partition in context.partition_status:
            if topic_partition not in context.leadership:
                status = PartitionStatus.NEW
            elif context.has_offline_leader(topic_partition):
                status = PartitionStatus.OFFLINE
            else:
                status = PartitionStatus.ONLINE
            context.partition_status[topic_partition] = status

    def trigger_online_state_change(self, topic: str | None = None) -> Step[StateChanges]:
        """Elect leaders for all partitions that have none (of one topic), but for topics to be deleted."""
        context = self._context
        statuses = context.partition_status
        if topic is None:
            asked: Iterable[TopicPartition] = statuses
        else:
            asked = context.topics[topic].partitions if topic in context.topics else ()
        waiting = [
            each
            for each in asked
            if statuses[each] in (PartitionStatus.NEW, PartitionStatus.OFFLINE)
            and not context.is_to_be_deleted(each.topic)
        ]
        return (yield from self.elect(waiting, ElectionStrategy.OFFLINE))

    def change(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> StateChanges:
        """To any status but ONLINE, for which there has to be an election. Reads nothing, tells no broker."""
        changes = StateChanges()
        for topic_partition in self._valid(partitions, target, changes):
            self._transition(topic_partition, target)
        log_failures(changes.failed, controller_epoch=self._context.epoch)
        return changes

    def elect(
        self,
        partitions: Iterable[TopicPartition],
        strategy: ElectionStrategy,
        *,
        announce: bool = True,
    ) -> Step[StateChanges]:
        """To ONLINE. NEW partitions are created, for the others a leader is elected by ``strategy``.

        Without ``announce`` no broker is told: the caller tells them all.
        """
        changes = StateChanges()
        batch = ControllerBrokerRequestBatch(self._context)
        valid = self._valid(partitions, PartitionStatus.ONLINE, changes)
        statuses = self._context.partition_status
        created = [each for each in valid if statuses[each] is PartitionStatus.NEW]
        led_before = [each for each in valid if statuses[each] is not PartitionStatus.NEW]
        led_before += yield from self._create(created, batch, changes)
        while led_before:
            led_before = yield from self._elect_once(led_before, strategy, batch, changes)
        log_failures(changes.failed, controller_epoch=self._context.epoch)
        if announce:
            yield from batch.send()
        return changes

    # The table

    def _valid(
        self, partitions: Iterable[TopicPartition], target: PartitionStatus, changes: StateChanges
    ) -> list[TopicPartition]:
        valid = []
        for topic_partition in partitions:
            status = self._context.partition_status[topic_partition]
            if status in PARTITION_PREDECESSORS[target]:
                valid.append(topic_partition)
            else:
                _fail(changes, topic_partition, target, f"it is {status.value}")
        return valid

    def _transition(self, topic_partition: TopicPartition, target: PartitionStatus) -> None:
        self._context.partition_status[topic_partition] = target

    def _led(
        self,
        topic_partition: TopicPartition,
        current: VersionedState,
        batch: ControllerBrokerRequestBatch,
        changes: StateChanges,
        *,
        tell: Iterable[BrokerId],
        is_new: bool = False,
    ) -> None:
        """The store has the new state: so does the context, and the brokers will."""
        self._context.leadership[topic_partition] = current
        batch.add_leader_and_isr(tell, topic_partition, is_new=is_new)
        self._transition(topic_partition, PartitionStatus.ONLINE)
        changes.elected[topic_partition] = current.state

    # Creating

    def _create(
        self,
        partitions: Iterable[TopicPartition],
        batch: ControllerBrokerRequestBatch,
        changes: StateChanges,
    ) -> Step[list[TopicPartition]]:
        """Returns those whose state was there already; they are OFFLINE now, and wait for an election."""
        context = self._context
        first_states: dict[TopicPartition, PartitionState] = {}
        for each in partitions:
            replicas, online = context.assignments[each].replicas, context.online_replicas(each)
            state = first_state(replicas, online, controller_epoch=context.epoch)
            if state is None:
                _fail(changes, each, PartitionStatus.ONLINE, f"none of {replicas} is online")
            else:
                first_states[each] = state
        versions = yield from create_states(first_states)
        for each, version in versions.items():
            state = first_states[each]
            self._led(each, VersionedState(state, version), batch, changes, tell=state.isr, is_new=True)
        existing = yield from read_states(each for each in first_states if each not in versions)
        for each in first_states:
            if each in existing:
                context.leadership[each] = existing[each]
                self._transition(each, PartitionStatus.OFFLINE)
            elif each not in versions:
                _fail(changes, each, PartitionStatus.ONLINE, "its state can be neither made nor read")
        return list(existing)

    # Electing

    def _elect_once(
        self,
        partitions: Collection[TopicPartition],
        strategy: ElectionStrategy,
        batch: ControllerBrokerRequestBatch,
        changes: StateChanges,
    ) -> Step[list[TopicPartition]]:
        """Elect once. Returns those whose state another writer has changed in the meantime."""
        context = self._context
        current = yield from read_states(partitions)
        configs = yield from read_election_configs(each.topic for each in current)
        elected: dict[TopicPartition, VersionedState] = {}
        for each in partitions:
            if (why := self._why_not(current.get(each))) is not None:
                _fail(changes, each, PartitionStatus.ONLINE, why)
                continue
            state = self._election(each, current[each].state, strategy, configs[each.topic])
            if state is None:
                why = f"no leader can be elected ({strategy.value}) with {current[each].state}"
                _fail(changes, each, PartitionStatus.ONLINE, why)
            else:
                min_isr = context.effective_min_isr(each, configs[each.topic])
                state = keep_eligible(current[each].state, state, min_isr=min_isr)
                state = known_brokers_only(state, context.assignments[each].replicas)
                state = msgspec.structs.replace(state, controller_epoch=context.epoch)
                elected[each] = VersionedState(state, current[each].version)
        versions = yield from write_states(elected)
        for each, version in versions.items():
            written = VersionedState(elected[each].state, version)
            self._count(current[each].state, written.state)
            self._led(each, written, batch, changes, tell=self._recipients(each, strategy))
        return [each for each in elected if each not in versions]

    def _count(self, before: PartitionState, after: PartitionState) -> None:
        if after.leader not in (before.leader, NO_LEADER):
            self._context.leader_elections += 1
        if after.leader_recovering and after.leader not in (*before.isr, *before.eligible):
            self._context.unclean_elections += 1

    def _why_not(self, current: VersionedState | None) -> str | None:
        if current is None:
            return "it has no state in the store"
        if current.state.controller_epoch > self._context.epoch:
            return f"a later controller has written its state: {current.state}"
        return None

    def _election(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        strategy: ElectionStrategy,
        config: ElectionConfig,
    ) -> PartitionState | None:
        context = self._context
        replicas = context.assignments[topic_partition].replicas
        online = context.online_replicas(topic_partition)
        match strategy:
            case ElectionStrategy.OFFLINE | ElectionStrategy.UNCLEAN:
                unclean = strategy is ElectionStrategy.UNCLEAN or config.unclean_leader_election
                min_isr = context.effective_min_isr(topic_partition, config)
                return offline_partition_election(state, replicas, online, unclean=unclean, min_isr=min_isr)
            case ElectionStrategy.PREFERRED:
                return preferred_replica_election(state, replicas, online)
            case ElectionStrategy.REASSIGN:
                return reassign_partition_election(state, replicas, online)
            case ElectionStrategy.SAME_LEADER:
                return None if state.leader == NO_LEADER else same_leader(state)
            case ElectionStrategy.CONTROLLED_SHUTDOWN:
                online = context.online_or_shutting_down_replicas(topic_partition)
                return controlled_shutdown_election(
                    state, replicas, online, shutting_down=context.shutting_down
                )
            case ElectionStrategy.AFTER_ABSENCE:
                min_isr = context.effective_min_isr(topic_partition, config)
                return election_after_absence(state, replicas, online, min_isr=min_isr)
            case _:
                assert_never(strategy)

    def _recipients(
        self, topic_partition: TopicPartition, strategy: ElectionStrategy
    ) -> Collection[BrokerId]:
        match strategy:
            case ElectionStrategy.OFFLINE | ElectionStrategy.UNCLEAN | ElectionStrategy.AFTER_ABSENCE:
                return self._context.online_replicas(topic_partition)
            case ElectionStrategy.PREFERRED | ElectionStrategy.REASSIGN:
                return self._context.assignments[topic_partition].replicas
            case ElectionStrategy.SAME_LEADER:
                return self._started_replicas(topic_partition)
            case ElectionStrategy.CONTROLLED_SHUTDOWN:
                return self._context.online_or_shutting_down_replicas(topic_partition)
            case _:
                assert_never(strategy)

    def _started_replicas(self, topic_partition: TopicPartition) -> list[BrokerId]:
        """Those that have been told before that they are replicas."""
        statuses = self._context.replica_status
        return [
            replica
            for replica in self._context.assignments[topic_partition].replicas
            if statuses[replica][topic_partition] is not ReplicaStatus.NON_EXISTENT
        ]


def _fail(changes: StateChanges, topic_partition: TopicPartition, target: PartitionStatus, why: str) -> None:
    changes.failed.append(StateChangeFailed(str(topic_partition), target, why))


class ReplicaStateMachine:
    """See the module header."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"ReplicaStateMachine({self._context!r})"

    def startup(self) -> Step[None]:
        """Tell every broker what it has to do, and take those that are away out of the ISRs.

        A replica that is away starts as DELETION_INELIGIBLE, as in Kafka: if its topic is being deleted,
        nothing else would hold the deletion up.
        """
        context = self._context
        online, offline = context.split_by_online(context.replica_status)
        for replicas, status in (
            (online, ReplicaStatus.ONLINE),
            (offline, ReplicaStatus.DELETION_INELIGIBLE),
        ):
            for broker, partitions in replicas.items():
                context.replica_status[broker].update(dict.fromkeys(partitions, status))
        yield from self.change(online, ReplicaStatus.ONLINE, full_for=context.brokers)
        yield from self.change(offline, ReplicaStatus.OFFLINE)

    def change(
        self,
        replicas: Replicas,
        target: ReplicaStatus,
        *,
        full_for: Collection[BrokerId] = (),
        just_elected: Collection[TopicPartition] = (),
    ) -> Step[list[StateChangeFailed]]:
        """Take ``replicas`` to ``target``. Returns what failed.

        ``full_for``: brokers of which ``replicas`` has all; they are told so, even if that is none.
        ``just_elected``: partitions with a leader epoch that is newer than whatever happened to ``replicas``.
        """
        failed: list[StateChangeFailed] = []
        batch = ControllerBrokerRequestBatch(self._context)
        for broker in full_for:
            batch.add_all_leader_and_isr(broker)
        for broker, partitions in replicas.items():
            valid = self._valid(broker, partitions, target, failed)
            match target:
                case ReplicaStatus.NEW:
                    self._to_new(broker, valid, batch)
                case ReplicaStatus.ONLINE:
                    self._to_online(broker, valid, batch)
                case ReplicaStatus.OFFLINE:
                    yield from self._to_offline(broker, valid, batch, failed, just_elected)
                case ReplicaStatus.DELETION_STARTED:
                    for each in valid:
                        batch.add_stop_replica(broker, each, delete=True)
                        self._transition(broker, each, target)
                case (
                    ReplicaStatus.DELETION_SUCCESSFUL
                    | ReplicaStatus.DELETION_INELIGIBLE
                    | ReplicaStatus.NON_EXISTENT
                ):
                    for each in valid:
                        self._transition(broker, each, target)
                case _:
                    assert_never(target)
        log_failures(failed, controller_epoch=self._context.epoch)
        yield from batch.send()
        return failed

    # The table

    def _valid(
        self,
        broker: BrokerId,
        partitions: Iterable[TopicPartition],
        target: ReplicaStatus,
        failed: list[StateChangeFailed],
    ) -> list[TopicPartition]:
        valid = []
        for topic_partition in partitions:
            status = self._context.replica_status[broker][topic_partition]
            if status in REPLICA_PREDECESSORS[target]:
                valid.append(topic_partition)
            else:
                failed.append(_failure(broker, topic_partition, target, f"it is {status.value}"))
        return valid

    def _transition(self, broker: BrokerId, topic_partition: TopicPartition, target: ReplicaStatus) -> None:
        self._context.replica_status[broker][topic_partition] = target

    # To where brokers are told something

    def _to_new(
        self, broker: BrokerId, partitions: list[TopicPartition], batch: ControllerBrokerRequestBatch
    ) -> None:
        for each in partitions:
            if each in self._context.leadership:
                batch.add_leader_and_isr([broker], each, is_new=True)
            self._transition(broker, each, ReplicaStatus.NEW)

    def _to_online(
        self, broker: BrokerId, partitions: list[TopicPartition], batch: ControllerBrokerRequestBatch
    ) -> None:
        statuses = self._context.replica_status.get(broker, {})
        for each in partitions:
            if statuses[each] is not ReplicaStatus.NEW and each in self._context.leadership:
                batch.add_leader_and_isr([broker], each)
            self._transition(broker, each, ReplicaStatus.ONLINE)

    def _to_offline(
        self,
        broker: BrokerId,
        partitions: list[TopicPartition],
        batch: ControllerBrokerRequestBatch,
        failed: list[StateChangeFailed],
        just_elected: Collection[TopicPartition],
    ) -> Step[None]:
        context = self._context
        statuses = context.replica_status.get(broker, {})
        fenced = {
            each
            for each in partitions
            if statuses[each] in (ReplicaStatus.ONLINE, ReplicaStatus.NEW)
            and each not in just_elected
            and not context.is_to_be_deleted(each.topic)
        }
        for each in partitions:
            batch.add_stop_replica(broker, each, delete=False)
            self._transition(broker, each, ReplicaStatus.OFFLINE)
        if leaderless := [each for each in partitions if each not in context.leadership]:
            batch.add_update_metadata(context.brokers, leaderless)
        led = [each for each in partitions if each in context.leadership]
        while led:
            led = yield from self._remove_from_isrs(broker, led, fenced, batch, failed)

    def _remove_from_isrs(
        self,
        broker: BrokerId,
        partitions: Collection[TopicPartition],
        fenced: Collection[TopicPartition],
        batch: ControllerBrokerRequestBatch,
        failed: list[StateChangeFailed],
    ) -> Step[list[TopicPartition]]:
        """``doRemoveReplicasFromIsr``. Returns those whose state another writer has changed meanwhile."""
        context = self._context
        current = yield from read_states(partitions)
        configs = yield from read_election_configs(each.topic for each in current)
        changed: dict[TopicPartition, VersionedState] = {}
        for each in partitions:
            versioned = current.get(each)
            if versioned is None:
                if not context.is_to_be_deleted(each.topic):
                    failed.append(
                        _failure(broker, each, ReplicaStatus.OFFLINE, "it has no state in the store")
                    )
                continue
            if versioned.state.controller_epoch > context.epoch:
                why = f"a later controller has written the partition's state: {versioned.state}"
                failed.append(_failure(broker, each, ReplicaStatus.OFFLINE, why))
                continue
            state = _after_leaving(versioned.state, broker, is_fenced=each in fenced)
            if state is None:
                context.leadership[each] = versioned
                if not context.is_to_be_deleted(each.topic):
                    batch.add_update_metadata(context.brokers, [each])
            else:
                min_isr = context.effective_min_isr(each, configs[each.topic])
                state = keep_eligible(versioned.state, state, min_isr=min_isr)
                state = msgspec.structs.replace(state, controller_epoch=context.epoch)
                changed[each] = VersionedState(state, versioned.version)
        versions = yield from write_states(changed)
        for each, version in versions.items():
            context.leadership[each] = VersionedState(changed[each].state, version)
            if not context.is_to_be_deleted(each.topic):
                others = (replica for replica in context.assignments[each].replicas if replica != broker)
                batch.add_leader_and_isr(others, each)
        return [each for each in changed if each not in versions]


def _after_leaving(state: PartitionState, broker: BrokerId, *, is_fenced: bool) -> PartitionState | None:
    """The state without ``broker`` in the ISR; None when it is without it, and no leader has to be fenced."""
    if broker not in state.isr:
        return same_leader(state) if is_fenced and state.leader != NO_LEADER else None
    if state.isr == (broker,) and state.leader == NO_LEADER:
        return None
    return without_replica(state, broker)


def _failure(
    broker: BrokerId, topic_partition: TopicPartition, target: ReplicaStatus, why: str
) -> StateChangeFailed:
    return StateChangeFailed(f"the replica of {topic_partition} on broker {broker}", target, why)


class TopicDeletionManager:
    """See the module header. ``is_enabled`` is ``delete.topic.enable``."""

    def __init__(
        self,
        context: ControllerContext,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        *,
        is_enabled: bool,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._replicas = replicas
        self._is_enabled = is_enabled

    def __repr__(self) -> str:
        return (
            f"TopicDeletionManager(to be deleted {list(self._context.topics_to_be_deleted)}, "
            f"started {sorted(self._context.topics_with_deletion_started)}, "
            f"ineligible {sorted(self._context.topics_ineligible_for_deletion)})"
        )

    def enqueue(self, wanted: Iterable[str]) -> Step[None]:
        """These topics are to be deleted. Requests that cannot be granted are dropped, those that cannot
        be granted yet are kept."""
        context = self._context
        moving = context.topics_being_reassigned()
        dropped: list[str] = []
        for topic in wanted:
            if not self._is_enabled or topic not in context.topics:
                dropped.append(topic)
            elif topic in moving:
                _log.info("deletion of topic %s waits until it is reassigned", topic)
                context.topics_waiting_for_deletion[topic] = None
            else:
                context.topics_waiting_for_deletion.pop(topic, None)
                context.topics_to_be_deleted[topic] = None
        yield from drop_topic_deletions(dropped)

    def resume_after_reassignment(self) -> Step[None]:
        """Partitions are not being reassigned any more: their topics may have waited for that."""
        moving = self._context.topics_being_reassigned()
        ready = [topic for topic in self._context.topics_waiting_for_deletion if topic not in moving]
        if ready:
            yield from self.enqueue(ready)
            yield from self.resume()

    def mark_ineligible(self, topics: Iterable[str]) -> None:
        """Halt the deletion of those of ``topics`` that are to be deleted."""
        context = self._context
        halted = [topic for topic in topics if context.is_to_be_deleted(topic)]
        context.topics_ineligible_for_deletion.update(halted)
        if halted:
            _log.info("deletion of topics %s is halted", ", ".join(halted))

    def resume_for(self, topics: Iterable[str]) -> Step[None]:
        """What halted the deletion of ``topics`` may be over."""
        self._context.topics_ineligible_for_deletion.difference_update(topics)
        yield from self.resume()

    def fail(self, replicas: Replicas) -> Step[None]:
        """Replicas of topics to be deleted cannot be deleted at the moment."""
        yield from self._halt(replicas)
        yield from self.resume()

    def _halt(self, replicas: Replicas) -> Step[None]:
        """What is deleted already stays so."""
        online = self._with_status(replicas, ReplicaStatus.ONLINE)
        yield from self._replicas.change(online, ReplicaStatus.OFFLINE)
        undeleted = self._with_status(replicas, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED)
        yield from self._replicas.change(undeleted, ReplicaStatus.DELETION_INELIGIBLE)
        self.mark_ineligible(
            dict.fromkeys(each.topic for partitions in undeleted.values() for each in partitions)
        )

    def complete(self, replicas: Replicas) -> Step[None]:
        """Replicas have been deleted."""
        yield from self._replicas.change(replicas, ReplicaStatus.DELETION_SUCCESSFUL)
        yield from self.resume()

    def resume(self) -> Step[None]:
        """Begin, try again or finish the deletion of each topic for which it is time."""
        context = self._context
        retried, begun = [], []
        for topic in list(context.topics_to_be_deleted):
            statuses = {status for _, _, status in context.statuses_of_topic(topic)}
            if statuses <= {ReplicaStatus.DELETION_SUCCESSFUL}:
                yield from self._finish(topic)
            elif ReplicaStatus.DELETION_STARTED not in statuses:
                if ReplicaStatus.DELETION_INELIGIBLE in statuses:
                    retried.append(topic)
                if topic not in context.topics_ineligible_for_deletion:
                    begun.append(topic)
        failed = self._with_status(
            context.replicas_of(each for topic in retried for each in context.topics[topic].partitions),
            ReplicaStatus.DELETION_INELIGIBLE,
        )
        yield from self._replicas.change(failed, ReplicaStatus.OFFLINE)
        if begun:
            yield from self._begin(begun)

    def _begin(self, topics: list[str]) -> Step[None]:
        """The topics have no leaders any more, and their replicas are deleted where they are alive."""
        context = self._context
        partitions = [each for topic in topics for each in context.topics[topic].partitions]
        unseen = [each for each in partitions if each.topic not in context.topics_with_deletion_started]
        self._partitions.change(unseen, PartitionStatus.OFFLINE)
        self._partitions.change(unseen, PartitionStatus.NON_EXISTENT)
        context.topics_with_deletion_started.update(topics)
        _log.info("deletion of topics %s has (re)started", ", ".join(topics))
        if context.brokers:
            yield update_metadata(context, context.brokers, partitions)
        alive, dead = context.split_by_online(context.replicas_of(partitions))
        yield from self._halt(dead)
        deleted = self._with_status(
            alive, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE
        )
        yield from self._replicas.change(deleted, ReplicaStatus.OFFLINE)
        yield from self._replicas.change(deleted, ReplicaStatus.DELETION_STARTED)

    def _finish(self, topic: str) -> Step[None]:
        deleted = self._context.replicas_of(self._context.topics[topic].partitions)
        yield from self._replicas.change(deleted, ReplicaStatus.NON_EXISTENT)
        yield from delete_topic_nodes(topic)
        self._context.remove_topic(topic)
        _log.info("topic %s is deleted", topic)

    def _with_status(
        self, replicas: Replicas, *wanted: ReplicaStatus
    ) -> dict[BrokerId, list[TopicPartition]]:
        statuses = self._context.replica_status
        return {
            broker: [each for each in partitions if statuses[broker][each] in wanted]
            for broker, partitions in replicas.items()
        }
