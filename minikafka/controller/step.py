"""The controller: an event in, effects out, one event after the other.

Kafka: ``KafkaController.process``; the shell's queue is Kafka's ``ControllerEventManager``.

A ``Controller`` is made when its broker is elected, its first event is ``Elected``, and it is dropped when
the broker is the controller no more. A step that is closed in the middle is the end of it too: what it
remembers may not be true then, and only the store counts.

KIP-903 (a broker that died and came back empty must not be taken into an ISR by a leader that does not know)
is the controller's as far as that: a broker with a new epoch is taken out of all ISRs before it is told
anything, and wherever a replica goes away, the state is written at a new leader epoch, so a leader's
conditional write that was decided before fails. The leader's part is to decide again after that from fetches
of the new leader epoch only. While no controller is elected nothing is watched: a leader should not expand an
ISR with a broker whose registration is newer than what it has fetched.

**Controlled shutdown**: a broker that is about to stop has its partitions led by others first. Kafka:
``KafkaController.doControlledShutdown``. Where the broker leads, another member of the ISR does. It follows
nothing any more and leaves the ISRs. From now on, until it registers again, it is elected nowhere. A
partition without another replica, or whose topic is being deleted, has no other leader and is not counted
among what remains.

Where it differs from Kafka: followers are told to stop once, with their leaving of the ISR; Kafka tells them
before as well. Where another broker leads now, the replica goes OFFLINE at once. In Kafka it follows the new
leader until its process ends, may be in the ISR again by then, and producers wait until it is out for the
second time. A broker epoch that is not the registered one is refused, whichever of both is older.

**The first step** of a new controller: read everything, tell all brokers, put everything in order. Kafka:
``KafkaController.onControllerFailover``, ``initializeControllerContext``. The order, as in Kafka: old
announcements are dropped, since everything is read now; brokers, topics and states; requests to delete
topics; UpdateMetadata, so that all brokers know who is alive before any is told whom to follow; replicas;
partitions, where the elections are; reassignments; deletions; preferred leaders.

Where it differs from Kafka:
- The first UpdateMetadata is full: what no topic is any more, brokers forget. Kafka's names no partitions.
- A broker may have died and come back while there was no controller to see it (always so when it is the only
  one). Where its registration is newer than the state that has it in the ISR, there is an election before
  anybody hears of the old epoch: what a crash took from a log must not share an epoch with what is written in
  its place (KIP-101). Kafka leaves such a partition in its old epoch.
- The request to delete a topic that does not exist is dropped; Kafka deletes the nodes once more.

**What brokers answer**: replicas on lost log directories, and replicas that are deleted. Kafka:
``KafkaController.processLeaderAndIsrResponseReceived``, ``processTopicDeletionStopReplicaResponseReceived``,
``processLogDirEventNotification``.

A broker that loses a log directory announces that, not what lay in it. It is told again what it has, with a
LeaderAndIsr, and answers KAFKA_STORAGE_ERROR for what it has no more (KIP-112).

An answer of an earlier incarnation of a broker says nothing about the one that is registered.

What is answered about replicas that are none any more, because a reassignment has removed them, says nothing
either: it is not waited for.

Where it differs from Kafka: a replica that is answered for without an error after it was lost is ONLINE
again at once; Kafka waits for the broker's restart. Only replicas that are ONLINE or NEW are asked about,
Kafka asks about all that are not NEW: the others are known to be lost, or are being stopped or deleted.

**Topics and partitions** come and go, and leaders write new ISRs. Kafka:
``KafkaController.processTopicChange``, ``processPartitionModifications``, ``onNewPartitionCreation``,
``processTopicDeletion``, ``processIsrChangeNotification``. A topic's node says too what is to be reassigned
(``reassignment``).

Where it differs from Kafka:
- Replicas of a new partition on brokers that are away are OFFLINE; Kafka calls them online.
- A request to delete a topic may be seen before the topic is: it is looked for before the request is dropped.
- A topic that was deleted by hand and created again is known by its id; and clients are not shown what was
  deleted by hand, where Kafka's brokers do until they restart. Its logs stay.
- A topic's node that was written is read once, for new partitions and for new assignments of the others; for
  those Kafka's controller is asked by the API, and ignores the node.

**Elections that are asked for**: preferred leaders, unclean ones, and the balance that is kept by itself.
Kafka: ``KafkaController.processReplicaLeaderElection``, ``onReplicaElection``,
``checkAndTriggerAutoLeaderRebalance``, ``fetchPendingPreferredReplicaElections``; KIP-460.

An election on demand that is not needed does not happen: where the preferred replica leads, or for an unclean
one where anybody leads. An unclean election takes a member of the ISR or an eligible replica (KIP-966) where
one is online, and loses nothing then.

Where it differs from Kafka: leaders of all brokers are balanced in one election, not broker by broker; and
what ``/admin/preferred_replica_election`` asks for leaves the store when it is read, so it is forgotten when
the controller dies at once. The automatic balance comes to the same later.

**Brokers** come, go, come back (also from an unclean stop), or tell new addresses. Kafka:
``KafkaController.processBrokerChange``, ``onBrokerStartup``, ``onBrokerFailure``,
``onReplicasBecomeOffline``, ``processBrokerModification``.

What is registered is compared with what is known, by id and epoch (KIP-380): a broker with a new epoch has
died and come back, though it was never seen away. It fails first and starts then.

Where it differs from Kafka:
- Those that are gone are not live any more from the beginning of the step, so they are not elected.
- Endpoints and racks are compared here, because one watch tells of both.
- A partition whose ISR has grown between its election, which failed, and the removal of its leader is elected
  once more, where Kafka leaves it without a leader until something else happens.
- A reassignment that waits for a broker is looked at when it comes, but not begun again: its leader knows of
  it, and the broker hears of it with all that it has.

**After an unclean stop** what a broker held counts less (KIP-966). Kafka:
``ReplicationControlManager.handleUncleanBrokerShutdown`` of KRaft. A process that was killed has lost
nothing, a machine that lost power may have; a broker cannot tell them apart, and so the controller does not.
They leave the ISRs and are eligible no more, and where no other is left, the partition waits for its last
known leader. Where it differs: Kafka marks that election as unclean (the leader has to recover, KIP-704).
Here it is one from the ISR, which never becomes empty.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import assert_never

import msgspec

from minikafka.controller.context import ControllerContext, PartitionStatus, Replicas, ReplicaStatus
from minikafka.controller.effects import (
    Step,
    VersionedState,
    drop_topic_deletions,
    read_brokers,
    read_states,
    read_topic_deletions,
    read_topic_records,
    read_topics,
    take_isr_changes,
    take_log_dir_events,
    take_preferred_elections,
    write_states,
)
from minikafka.controller.events import (
    BrokersChanged,
    CaughtUpReassignmentsDue,
    ControlledShutdownAsked,
    Elected,
    Event,
    IsrChangesAnnounced,
    IsrsAltered,
    LeaderAndIsrAnswered,
    LeaderElectionsAsked,
    LeaderRebalanceDue,
    LogDirEventsAnnounced,
    PartitionsChanged,
    PreferredElectionsAsked,
    ReassignmentIsrChanged,
    ReassignmentsAsked,
    StopReplicaAnswered,
    TopicDeletionsChanged,
    TopicsChanged,
    UncleanElectionEnabled,
)
from minikafka.controller.reassignment import (
    ReassignmentRequests,
    finish_caught_up,
    finish_those_that_waited,
    finish_together,
    follow_topic_node,
    leave_admin_node,
    reassignment_isr_change,
    reassignments_asked,
    requests_of_record,
    resume,
    resume_reassignments,
)
from minikafka.controller.request_batch import ControllerBrokerRequestBatch
from minikafka.controller.state_machines import (
    ElectionStrategy,
    Machines,
    after_unclean_shutdown,
    known_brokers_only,
    preferred_replica_election,
)
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.protocol.control import EPOCH_DURING_DELETE, ControlledShutdownResponse
from minikafka.types import NO_LEADER, BrokerId, ElectionType, PartitionState, TopicPartition, joined

_log = logging.getLogger(__name__)

Elections = dict[TopicPartition, KafkaError | None]

_BY_TYPE = {
    ElectionType.PREFERRED: (ElectionStrategy.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ElectionType.UNCLEAN: (ElectionStrategy.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
}
"""How each type elects, and what is answered when no leader can be elected."""


def leader_elections(
    machines: Machines, partitions: Sequence[TopicPartition] | None, election_type: ElectionType
) -> Step[Elections]:
    """ElectLeaders. What became of each of ``partitions``; with None, of all that needed an election."""
    context = machines.context
    if partitions is not None:
        return (yield from _elect(machines, partitions, election_type))
    existing = [each for each in context.assignments if not context.is_to_be_deleted(each.topic)]
    needed = [each for each in existing if _is_needed(context, each, election_type)]
    return (yield from _elect(machines, needed, election_type))


def preferred_elections(machines: Machines) -> Step[None]:
    """``/admin/preferred_replica_election`` was written, or may have been while there was no controller."""
    asked = yield from take_preferred_elections()
    results = yield from _elect(machines, asked, ElectionType.PREFERRED)
    for each, error in results.items():
        if error is not None and error.code != ErrorCode.ELECTION_NOT_NEEDED:
            _log.warning("the preferred replica of %s is not elected: %s", each, error)


def leader_rebalance(machines: Machines, imbalance_max_percent: int) -> Step[None]:
    """Brokers that do not lead more than a share of what they are preferred for get it, where they can."""
    context = machines.context
    if context.being_reassigned:
        return
    preferred: dict[BrokerId, list[TopicPartition]] = {}
    for each, assignment in context.assignments.items():
        if assignment.replicas and not context.is_to_be_deleted(each.topic):
            preferred.setdefault(assignment.replicas[0], []).append(each)
    candidates: list[TopicPartition] = []
    for broker, partitions in preferred.items():
        led_by_others = [
            each
            for each in partitions
            if each in context.leadership and context.leadership[each].state.leader != broker
        ]
        if 100 * len(led_by_others) > imbalance_max_percent * len(partitions):
            candidates += [each for each in led_by_others if _can_lead(context, each)]
    if candidates:
        _log.info("%d partitions go back to their preferred leaders", len(candidates))
        yield from machines.partitions.elect(candidates, ElectionStrategy.PREFERRED)


def _elect(
    machines: Machines, partitions: Iterable[TopicPartition], election_type: ElectionType
) -> Step[Elections]:
    context = machines.context
    results: Elections = {}
    electable = []
    for each in dict.fromkeys(partitions):
        results[each] = None
        if each not in context.assignments:
            results[each] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        elif context.is_to_be_deleted(each.topic):
            results[each] = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")
        elif not _is_needed(context, each, election_type):
            results[each] = KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        else:
            electable.append(each)
    strategy, error_code = _BY_TYPE[election_type]
    changes = yield from machines.partitions.elect(electable, strategy)
    why = {failure.what: str(failure) for failure in changes.failed}
    for each in electable:
        if each not in changes.elected:
            results[each] = KafkaError(error_code, why[str(each)])
    return results


def _is_needed(
    context: ControllerContext, topic_partition: TopicPartition, election_type: ElectionType
) -> bool:
    current = context.leadership.get(topic_partition)
    if current is None:
        return True
    if election_type is ElectionType.UNCLEAN:
        return context.has_offline_leader(topic_partition)
    return current.state.leader != context.assignments[topic_partition].replicas[0]


def _can_lead(context: ControllerContext, topic_partition: TopicPartition) -> bool:
    state = context.leadership[topic_partition].state
    replicas = context.assignments[topic_partition].replicas
    return preferred_replica_election(state, replicas, context.online_replicas(topic_partition)) is not None


def controlled_shutdown(
    machines: Machines, broker: BrokerId, broker_epoch: int
) -> Step[ControlledShutdownResponse]:
    """Returns BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH, or the partitions that ``broker`` leads still."""
    context = machines.context
    if broker not in context.brokers:
        return ControlledShutdownResponse(ErrorCode.BROKER_NOT_AVAILABLE)
    if not context.is_current(broker, broker_epoch):
        return ControlledShutdownResponse(ErrorCode.STALE_BROKER_EPOCH)
    _log.info("broker %d shuts down", broker)
    context.shutting_down.add(broker)
    led = [each for each in context.led_by(broker) if _has_to_move(context, each)]
    followed = [
        each
        for each in context.replicas_on([broker])[broker]
        if _has_to_move(context, each) and context.leadership[each].state.leader != broker
    ]
    moved = (yield from machines.partitions.elect(led, ElectionStrategy.CONTROLLED_SHUTDOWN)).elected
    yield from machines.replicas.change(
        {broker: [*moved, *followed]}, ReplicaStatus.OFFLINE, just_elected=moved
    )
    remaining = tuple(each for each in context.led_by(broker) if _has_to_move(context, each))
    return ControlledShutdownResponse(ErrorCode.NONE, remaining)


def _has_to_move(context: ControllerContext, topic_partition: TopicPartition) -> bool:
    return (
        len(context.assignments[topic_partition].replicas) > 1
        and topic_partition in context.leadership
        and not context.is_to_be_deleted(topic_partition.topic)
    )


def controller_failover(machines: Machines) -> Step[None]:
    """``machines`` know nothing yet."""
    context = machines.context
    yield from take_log_dir_events()
    yield from take_isr_changes()
    yield from _initialize_context(context)
    machines.partitions.initialize()
    yield from machines.deletions.enqueue((yield from read_topic_deletions()))
    machines.deletions.mark_ineligible(_topics_with_offline_replicas(context))
    returned = _restarted_members(context)
    unclean = {
        each: [member for member in members if not context.brokers[member].clean_start]
        for each, members in returned.items()
    }
    yield from handle_unclean_shutdowns(machines, unclean, announce=False)
    yield from machines.partitions.elect(
        [each for each in returned if context.leadership[each].state.leader != NO_LEADER],
        ElectionStrategy.AFTER_ABSENCE,
        announce=False,
    )
    yield from machines.send_update_metadata(
        context.brokers, machines.partitions_to_show(), is_full=context.is_complete
    )
    yield from machines.replicas.startup()
    yield from machines.partitions.trigger_online_state_change()
    yield from resume_reassignments(machines)
    yield from machines.deletions.resume()
    yield from preferred_elections(machines)


def _initialize_context(context: ControllerContext) -> Step[None]:
    context.brokers.update((yield from read_brokers()))
    names = yield from read_topics()
    records = yield from read_topic_records(names)
    context.unreadable_topics = frozenset(name for name in names if name not in records)
    for name, record in records.items():
        context.add_topic(name, record)
    context.leadership.update((yield from read_states(context.assignments)))


def _topics_with_offline_replicas(context: ControllerContext) -> list[str]:
    return [
        topic
        for topic in context.topics_to_be_deleted
        if any(
            not context.is_online(replica, topic_partition)
            for replica, topic_partition, _ in context.statuses_of_topic(topic)
        )
    ]


def _restarted_members(context: ControllerContext) -> dict[TopicPartition, list[BrokerId]]:
    """Members of ISRs, and eligible replicas, that have registered since the state that names them was
    written."""
    returned = {}
    for topic_partition, current in context.leadership.items():
        members = [
            member
            for member in (*current.state.isr, *current.state.eligible)
            if context.is_online(member, topic_partition)
            and context.brokers[member].epoch > current.written_at
        ]
        if members and not context.is_to_be_deleted(topic_partition.topic):
            returned[topic_partition] = members
    return returned


def log_dir_event_notification(machines: Machines) -> Step[None]:
    """Brokers have lost log directories."""
    context = machines.context
    brokers = [broker for broker in (yield from take_log_dir_events()) if broker in context.brokers]
    asked = {
        broker: [
            each
            for each, status in context.replica_status[broker].items()
            if status in (ReplicaStatus.ONLINE, ReplicaStatus.NEW)
        ]
        for broker in brokers
    }
    if asked:
        _log.warning("log directories went offline on brokers %s", joined(brokers))
        batch = ControllerBrokerRequestBatch(context)
        for broker, partitions in asked.items():
            for each in partitions:
                if each in context.leadership:
                    batch.add_leader_and_isr([broker], each)
        yield from batch.send()


def leader_and_isr_answered(machines: Machines, answer: LeaderAndIsrAnswered) -> Step[None]:
    """Replicas are lost, or found again."""
    context, broker = machines.context, answer.broker_id
    if not context.is_current(broker, answer.broker_epoch):
        return
    if answer.response.error_code != ErrorCode.NONE:
        code = ErrorCode(answer.response.error_code)
        _log.error("broker %d answers %s to LeaderAndIsr", broker, code.name)
        return
    known = context.replica_status[broker]
    were_lost = context.replicas_on_offline_dirs.setdefault(broker, set())
    lost, found = [], []
    for topic, partition, error_code in answer.response.partitions:
        topic_partition = TopicPartition(topic, partition)
        if topic_partition in known:
            if error_code == ErrorCode.KAFKA_STORAGE_ERROR and topic_partition not in were_lost:
                lost.append(topic_partition)
            elif error_code == ErrorCode.NONE and topic_partition in were_lost:
                found.append(topic_partition)
    were_lost.update(lost)
    were_lost.difference_update(found)
    if lost:
        _log.warning("broker %d has lost %d replicas with a log directory", broker, len(lost))
        yield from replicas_become_offline(machines, {broker: lost})
    if found and context.is_live(broker):
        yield from replicas_become_online(machines, {broker: found})


def stop_replica_answered(machines: Machines, answer: StopReplicaAnswered) -> Step[None]:
    """Replicas of topics that are being deleted are deleted, or could not be."""
    context, broker = machines.context, answer.broker_id
    if not context.is_current(broker, answer.broker_epoch):
        return
    statuses = context.replica_status[broker]
    asked = [
        TopicPartition(each.topic, each.partition)
        for each in answer.asked
        if each.delete and each.leader_epoch == EPOCH_DURING_DELETE  # else a reassignment has removed it
    ]
    waiting = [each for each in asked if statuses.get(each) is ReplicaStatus.DELETION_STARTED]
    errors = {
        TopicPartition(topic, partition): error_code
        for topic, partition, error_code in answer.response.partitions
    }
    if answer.response.error_code != ErrorCode.NONE:
        code = ErrorCode(answer.response.error_code)
        _log.error("broker %d answers %s to StopReplica", broker, code.name)
        errors = dict.fromkeys(waiting, answer.response.error_code)
    failed = [each for each in waiting if errors.get(each, ErrorCode.NONE) != ErrorCode.NONE]
    deleted = [each for each in waiting if errors.get(each) == ErrorCode.NONE]
    if failed:
        yield from machines.deletions.fail({broker: failed})
    if deleted:
        yield from machines.deletions.complete({broker: deleted})


def topic_change(machines: Machines) -> Step[None]:
    """Topics that are new get leaders; those that were removed from the store are forgotten."""
    context = machines.context
    names = dict.fromkeys((yield from read_topics()))
    yield from _forget_topics(machines, [topic for topic in context.topics if topic not in names])
    new = [topic for topic in names if topic not in context.topics]
    records = yield from read_topic_records(new)
    context.unreadable_topics = frozenset(topic for topic in new if topic not in records)
    created = [each for topic, record in records.items() for each in context.add_topic(topic, record)]
    yield from _new_partition_creation(machines, created)


def _forget_topics(machines: Machines, vanished: Collection[str]) -> Step[None]:
    """Topics are gone from the store, and it was not the controller who deleted them."""
    context = machines.context
    if not vanished:
        return
    _log.warning("topics %s have vanished from the store", ", ".join(vanished))
    yield from drop_topic_deletions(
        topic
        for topic in vanished
        if context.is_to_be_deleted(topic) or topic in context.topics_waiting_for_deletion
    )
    yield from leave_admin_node(lambda each, _: each.topic in vanished)
    context.topics_to_be_deleted.update(dict.fromkeys(vanished))
    partitions = [each for topic in vanished for each in context.topics[topic].partitions]
    yield from machines.send_update_metadata(context.brokers, partitions)
    for topic in vanished:
        context.remove_topic(topic)


def partitions_change(machines: Machines, topic: str) -> Step[None]:
    """A topic's node was written. Partitions that it has more than before get leaders, those that have other
    replicas than before are reassigned."""
    context = machines.context
    if topic not in context.topics:
        return  # ``topic_change`` will see it
    record = (yield from read_topic_records([topic])).get(topic)
    created: Collection[TopicPartition] = ()
    requests: ReassignmentRequests = {}
    if record is None:
        yield from topic_change(machines)  # it has vanished, or its node cannot be read
    elif record.topic_id != context.topics[topic].topic_id:
        yield from _forget_topics(machines, [topic])
        created = context.add_topic(topic, record)
    elif not context.is_to_be_deleted(topic):
        requests = requests_of_record(context, topic, record)
        created = context.add_partitions(topic, record)
    yield from _new_partition_creation(machines, created)
    yield from follow_topic_node(machines, requests)


def _new_partition_creation(machines: Machines, created: Collection[TopicPartition]) -> Step[None]:
    if not created:
        return
    replicas = machines.context.replicas_of(created)
    machines.partitions.change(created, PartitionStatus.NEW)
    yield from machines.replicas.change(replicas, ReplicaStatus.NEW)
    yield from machines.partitions.elect(created, ElectionStrategy.OFFLINE)
    online, offline = machines.context.split_by_online(replicas)
    yield from machines.replicas.change(online, ReplicaStatus.ONLINE)
    yield from machines.replicas.change(offline, ReplicaStatus.OFFLINE, just_elected=set(created))
    yield from resume(machines, [each for each in created if each in machines.context.being_reassigned])


def topic_deletions_change(machines: Machines) -> Step[None]:
    """Topics are to be deleted."""
    wanted = yield from read_topic_deletions()
    if any(topic not in machines.context.topics for topic in wanted):
        yield from topic_change(machines)
    yield from machines.deletions.enqueue(wanted)
    yield from machines.deletions.resume()


def isr_change_notification(machines: Machines) -> Step[None]:
    """Leaders have written new ISRs."""
    yield from isrs_changed(machines, (yield from take_isr_changes()))


def isrs_changed(machines: Machines, partitions: Iterable[TopicPartition]) -> Step[None]:
    """The store has new ISRs: clients have to know them."""
    context = machines.context
    states = yield from read_states(each for each in partitions if each in context.assignments)
    for topic_partition, current in states.items():
        if current.state.controller_epoch <= context.epoch:
            context.leadership[topic_partition] = current
    if states:
        yield from machines.send_update_metadata(context.brokers, states)
    yield from finish_together(machines, states)


class Controller:
    """One broker's term as the controller. See the module header."""

    def __init__(self, controller_id: BrokerId, *, delete_topic_enable: bool = True) -> None:
        self._controller_id = controller_id
        self._delete_topic_enable = delete_topic_enable
        self._machines: Machines | None = None
        self._ended = False

    def __repr__(self) -> str:
        state = (
            "ended" if self._ended else "not elected" if self._machines is None else self._machines.context
        )
        return f"Controller({self._controller_id}, {state})"

    @property
    def context(self) -> ControllerContext | None:
        """What is known, to be looked at; None before the election."""
        return None if self._machines is None else self._machines.context

    def step(self, event: Event) -> Step[object]:
        """Handle one event; the step before has to be finished. Returns what the event's docstring says.

        Raises:
            InvariantError: the first event is not Elected, a later one is, or a step before was closed.
        """
        if self._ended or isinstance(event, Elected) != (self._machines is None):
            raise InvariantError(f"{self!r} cannot handle {event}")
        if isinstance(event, Elected):
            self._machines = Machines.of_epoch(
                event.controller_epoch, delete_topic_enable=self._delete_topic_enable
            )
        assert self._machines is not None
        try:
            return (yield from _handled(self._machines, event))
        except BaseException:
            self._ended = True
            raise

    def validate(self) -> None:
        """Check what is remembered between two steps. Raises InvariantError."""
        if self._machines is not None and not self._ended:
            self._machines.context.validate()


def _handled(machines: Machines, event: Event) -> Step[object]:
    match event:
        case Elected():
            yield from controller_failover(machines)
        case BrokersChanged():
            yield from broker_change(machines)
        case TopicsChanged():
            yield from topic_change(machines)
        case PartitionsChanged(topic):
            yield from partitions_change(machines, topic)
        case TopicDeletionsChanged():
            yield from topic_deletions_change(machines)
        case IsrChangesAnnounced():
            yield from isr_change_notification(machines)
        case IsrsAltered(partitions):
            yield from isrs_changed(machines, partitions)
        case LogDirEventsAnnounced():
            yield from log_dir_event_notification(machines)
        case LeaderAndIsrAnswered():
            yield from leader_and_isr_answered(machines, event)
        case StopReplicaAnswered():
            yield from stop_replica_answered(machines, event)
        case ControlledShutdownAsked(broker, broker_epoch):
            return (yield from controlled_shutdown(machines, broker, broker_epoch))
        case UncleanElectionEnabled(topic):
            yield from machines.partitions.trigger_online_state_change(topic)
        case ReassignmentsAsked():
            yield from reassignments_asked(machines)
        case ReassignmentIsrChanged(topic_partition):
            yield from reassignment_isr_change(machines, topic_partition)
        case CaughtUpReassignmentsDue():
            yield from finish_those_that_waited(machines)
        case PreferredElectionsAsked():
            yield from preferred_elections(machines)
        case LeaderElectionsAsked(partitions, election_type):
            return (yield from leader_elections(machines, partitions, election_type))
        case LeaderRebalanceDue(imbalance_max_percent):
            yield from leader_rebalance(machines, imbalance_max_percent)
        case _:
            assert_never(event)
    return None


def handle_unclean_shutdowns(
    machines: Machines,
    returned: Mapping[TopicPartition, Collection[BrokerId]],
    *,
    announce: bool = True,
) -> Step[None]:
    """``returned`` replicas have stopped uncleanly: they are in sync and eligible no more; see
    ``after_unclean_shutdown``. Without ``announce`` no broker is told: the caller tells them all."""
    context = machines.context
    affected = [
        each
        for each, brokers in returned.items()
        if each in context.leadership
        and after_unclean_shutdown(context.leadership[each].state, brokers) is not None
        and not context.is_to_be_deleted(each.topic)
    ]
    batch = ControllerBrokerRequestBatch(context)
    while affected:
        affected = yield from _rewrite(machines, {each: returned[each] for each in affected}, batch)
    if announce:
        yield from batch.send()


def _rewrite(
    machines: Machines,
    returned: Mapping[TopicPartition, Collection[BrokerId]],
    batch: ControllerBrokerRequestBatch,
) -> Step[list[TopicPartition]]:
    """Returns those whose state another writer has changed in the meantime."""
    context = machines.context
    current = yield from read_states(returned)
    changed: dict[TopicPartition, VersionedState] = {}
    for each, versioned in current.items():
        before = known_brokers_only(versioned.state, context.assignments[each].replicas)
        state = after_unclean_shutdown(before, returned[each])
        if state is not None and versioned.state.controller_epoch <= context.epoch:
            state = msgspec.structs.replace(state, controller_epoch=context.epoch)
            changed[each] = VersionedState(state, versioned.version)
    versions = yield from write_states(changed)
    for each, version in versions.items():
        state = changed[each].state
        _log_distrust(each, returned[each], current[each].state, state)
        context.leadership[each] = VersionedState(state, version)
        if state.leader == NO_LEADER:
            machines.partitions.change([each], PartitionStatus.OFFLINE)
        else:
            told = [broker for broker in context.online_replicas(each) if broker not in returned[each]]
            batch.add_leader_and_isr(told, each)
    return [each for each in changed if each not in versions]


def _log_distrust(
    topic_partition: TopicPartition,
    returned: Collection[BrokerId],
    before: PartitionState,
    after: PartitionState,
) -> None:
    text = f"{topic_partition}: brokers {joined(returned)} are back after an unclean shutdown: {after}"
    if set(returned).issuperset((*before.isr, *before.eligible)):
        _log.warning("%s; no replica is sure to hold all that was committed", text)
    else:
        _log.info("%s", text)


def broker_change(machines: Machines) -> Step[None]:
    """Something under ``/brokers/ids`` has changed."""
    context = machines.context
    registered = yield from read_brokers()
    known = dict(context.brokers)
    new = {each: broker for each, broker in registered.items() if each not in known}
    dead = [each for each in known if each not in registered]
    bounced = {
        each: broker
        for each, broker in registered.items()
        if each in known and broker.epoch != known[each].epoch
    }
    modified = [
        each
        for each, broker in registered.items()
        if each in known and each not in bounced and broker != known[each]
    ]
    _forget_brokers(context, dead)
    context.brokers.update({each: registered[each] for each in modified})
    unclean = [each for each, broker in (new | bounced).items() if not broker.clean_start]
    if unclean:  # before anything else is written, which would make them look as if they had come before it
        yield from handle_unclean_shutdowns(machines, dict.fromkeys(context.leadership, unclean))
    if new:
        context.brokers.update(new)
        yield from _broker_startup(machines, sorted(new))
    if bounced:
        _forget_brokers(context, bounced)
        yield from _broker_failure(machines, sorted(bounced))
        context.brokers.update(bounced)
        yield from _broker_startup(machines, sorted(bounced))
    if dead:
        yield from _broker_failure(machines, sorted(dead))
    elif modified and not new and not bounced:
        yield from machines.send_update_metadata(context.brokers)


def _forget_brokers(context: ControllerContext, brokers: Collection[BrokerId]) -> None:
    for broker in brokers:
        del context.brokers[broker]
        context.shutting_down.discard(broker)
        context.replicas_on_offline_dirs.pop(broker, None)


def _broker_startup(machines: Machines, started: Collection[BrokerId]) -> Step[None]:
    """``started`` are live, and know nothing yet."""
    context = machines.context
    _log.info("new brokers: %s", joined(started))
    existing = [broker for broker in context.brokers if broker not in started]
    yield from machines.send_update_metadata(existing)
    yield from machines.send_update_metadata(
        started, machines.partitions_to_show(), is_full=context.is_complete
    )
    yield from replicas_become_online(machines, context.replicas_on(started), full_for=started)


def replicas_become_online(
    machines: Machines, replicas: Replicas, *, full_for: Collection[BrokerId] = ()
) -> Step[None]:
    """Replicas are there (again): they hear what to do, may be elected, may be what a reassignment has waited
    for, or can be deleted at last.

    ``full_for`` are brokers of which these are all replicas.
    """
    context = machines.context
    undeleted = {
        broker: [
            each
            for each in partitions
            if context.replica_status[broker][each] is not ReplicaStatus.DELETION_SUCCESSFUL
        ]
        for broker, partitions in replicas.items()
    }
    yield from machines.replicas.change(undeleted, ReplicaStatus.ONLINE, full_for=full_for)
    yield from machines.partitions.trigger_online_state_change()
    yield from finish_caught_up(machines, _targets_on(context, undeleted))
    to_be_deleted = [
        topic
        for topic in dict.fromkeys(each.topic for partitions in undeleted.values() for each in partitions)
        if context.is_to_be_deleted(topic)
    ]
    if to_be_deleted:
        yield from machines.deletions.resume_for(to_be_deleted)


def _targets_on(context: ControllerContext, brokers: Collection[BrokerId]) -> list[TopicPartition]:
    """The partitions that are being reassigned to ``brokers``, or stay there."""
    return [
        each
        for each in context.being_reassigned
        if any(broker in brokers for broker in context.assignments[each].target)
    ]


def _broker_failure(machines: Machines, failed: Collection[BrokerId]) -> Step[None]:
    """``failed`` are not live any more."""
    _log.info("brokers %s are gone", list(failed))
    yield from replicas_become_offline(machines, machines.context.replicas_on(failed))


def replicas_become_offline(machines: Machines, replicas: Replicas) -> Step[None]:
    """Replicas are away, with their brokers or their log directories: others lead, the ISRs shrink."""
    context = machines.context
    staying, to_be_deleted = _split_by_deletion(context, replicas)
    leaderless = [
        each
        for each in context.leadership
        if context.has_offline_leader(each) and not context.is_to_be_deleted(each.topic)
    ]
    machines.partitions.change(leaderless, PartitionStatus.OFFLINE)
    changes = yield from machines.partitions.trigger_online_state_change()
    yield from machines.replicas.change(staying, ReplicaStatus.OFFLINE, just_elected=changes.elected)
    yield from _elect_from_last_isrs(machines, [each for each in leaderless if each not in changes.elected])
    if to_be_deleted:
        yield from machines.deletions.fail(to_be_deleted)
    if not staying and not changes.elected:
        yield from machines.send_update_metadata(context.brokers)  # no broker has heard who is gone


def _elect_from_last_isrs(machines: Machines, leaderless: Collection[TopicPartition]) -> Step[None]:
    """A leader may have expanded its ISR just before it died, after no leader could be elected."""
    context = machines.context
    electable = [
        each
        for each in leaderless
        if any(context.is_online(member, each) for member in context.leadership[each].state.isr)
    ]
    if electable:
        yield from machines.partitions.elect(electable, ElectionStrategy.OFFLINE)


def _split_by_deletion(
    context: ControllerContext, replicas: Replicas
) -> tuple[dict[BrokerId, list[TopicPartition]], dict[BrokerId, list[TopicPartition]]]:
    """Those that stay, and those of topics to be deleted."""
    staying: dict[BrokerId, list[TopicPartition]] = {}
    to_be_deleted: dict[BrokerId, list[TopicPartition]] = {}
    for broker, partitions in replicas.items():
        for each in partitions:
            side = to_be_deleted if context.is_to_be_deleted(each.topic) else staying
            side.setdefault(broker, []).append(each)
    return staying, to_be_deleted
