"""Partitions get other replicas while their leaders lead: the twelve steps, and what asks for them.

**The steps** from one assignment to the next.
    U1  the assignment with origin and target goes into the store, where the API has not written it already
    U2  and into memory
        While the ISR misses some of the target:
    A1  a new leader epoch; LeaderAndIsr to all replicas that there are
    A2  replicas that there are not become NEW, and hear of the partition
        Whenever its state is written, look again. When all of the target is in the ISR, and a second later
        at the latest if others are being reassigned that are not so far:
    B1  the new replicas become ONLINE
    B2  the target alone goes into memory
    B3  a leader from the target, or the same, and no others in the ISR, at a new epoch; LeaderAndIsr to the
        target
    B4  the removed replicas go OFFLINE: StopReplica to them
    B5  StopReplica with deletion to them, they become NON_EXISTENT and are forgotten
    B6  the target goes into the store, over what was there
    B7  the request leaves ``/admin/reassign_partitions``
    B8  UpdateMetadata to all; a deletion of the topic that has waited may begin

Each step is done for all partitions of an event before the next one.

Invariants:
- Until B6 the store names every replica that may have a log. A controller that dies earlier leaves the whole
  way to the next one, and each step may be taken twice.
- No replica is removed before, in one version of the partition's state, the whole target was in the ISR
  (``reassign_partition_election``; B3 is written only over what it has read). B3 fails where that is true
  no more, and the partition waits again.
- The broker of a removed replica is not waited for. One that is dead is not told of the partition any more
  when it comes back, and puts the log aside as a stray.

A change of nothing but the order is no reassignment under way: it takes the steps from B1 on, with no replica
to wait for and none to remove.

Where it differs from Kafka:
- A replica that a new target gives up leaves in the end, with the others; Kafka stops it at once, and lets it
  be when it dies in between.
- The removed replicas leave the ISR in B3 and not one by one in B4, as in KRaft. Under ZooKeeper, between the
  two, the leader commits without them what they could be elected without, should this controller end.
- Partitions that are ready within a second are finished together, Kafka's when they are ready: see
  ``TOGETHER_MS``.
- Nothing of the target being online counts as not caught up; Kafka continues without a leader.
- Kafka takes B3 for granted after it has seen the ISR once, and may so delete the only replica in sync.
- New replicas are told once, as new ones; Kafka tells them in A1, as if they were not, and in A2.
- Without a leader there is no A1: who is elected will say all of it at an epoch of its own. A partition that
  has had no leader yet is created if one of the target can lead it, where Kafka gives up.
- B6 is refused when another target was written meanwhile; the topic's watch brings that one.

**Where reassignments come from**: topics' nodes, the admin node, and a controller that did not finish. Kafka:
``KafkaController.processPartitionReassignment`` (``processZkPartitionReassignment``,
``maybeBuildReassignment``, ``validateReplicas``), ``initializePartitionReassignments``.

- AlterPartitionReassignments is served by any broker, which writes the way to the target into the topic's
  node (``ReplicaAssignment.reassign_to``). The controller follows a node that says what it does not know.
- ``/admin/reassign_partitions`` names targets, as tools from before KIP-455 write them. What is valid is
  taken, and leaves the node when its reassignment is done; what is not valid leaves it at once.
- A new controller resumes every partition that the store says is being reassigned.

The way from what is known to the target is computed here, and is written where a node says another one: the
node may name replicas that were stopped since, or may have been written by hand, naming only a target.

Where it differs from Kafka:
- A request in the admin node is checked as one of the API is, and adds no broker that is not live; Kafka
  waits for it. A topic that is to be deleted takes none.
- A request of the API takes the place of the admin node's, as in Kafka, in the moment in which the controller
  sees it. When it dies just before, the next one finds both and prefers the API's, Kafka the node's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from minikafka.controller.context import ControllerContext, PartitionStatus, Replicas, ReplicaStatus
from minikafka.controller.effects import (
    AssignmentChange,
    Remind,
    Step,
    TopicRecord,
    VersionedState,
    leave_reassignments,
    read_reassignments,
    read_states,
    write_assignments,
)
from minikafka.controller.events import CaughtUpReassignmentsDue
from minikafka.controller.state_machines import ElectionStrategy, Machines
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition

_log = logging.getLogger(__name__)

Assignments = Mapping[TopicPartition, ReplicaAssignment]

TOGETHER_MS = 1_000
"""How long a partition that is ready waits for others. A client that is refused by a leader which has moved
away asks for the topic's metadata, and so learns of all that have moved together; of one that moves later it
learns by being refused again. librdkafka pauses for 100 ms each time."""

ReassignmentRequests = dict[TopicPartition, AssignmentChange]


def reassign(
    machines: Machines, requests: Mapping[TopicPartition, AssignmentChange]
) -> Step[list[TopicPartition]]:
    """Partitions shall have other replicas. ``expected`` is what the store has of each, ``new`` the way to
    its target. Returns those whose request was overtaken in the store, and is dropped."""
    taken = dict.fromkeys((yield from u1_request_into_store(requests)))
    u2_request_into_memory(machines.context, {each: requests[each].new for each in taken})
    yield from resume(machines, taken)
    return [each for each in requests if each not in taken]


def resume(machines: Machines, partitions: Collection[TopicPartition]) -> Step[None]:
    """Reassignments that memory knows of go on; replicas and leaders may not have heard of them yet."""
    complete = yield from _caught_up(machines.context, partitions)
    finished = set(complete)
    yield from _advance(machines, [each for each in partitions if each not in finished], complete)


def finish_caught_up(machines: Machines, partitions: Iterable[TopicPartition]) -> Step[None]:
    """Something has happened that may end the reassignments among ``partitions``."""
    moving = [each for each in partitions if each in machines.context.being_reassigned]
    yield from _advance(machines, [], (yield from _caught_up(machines.context, moving)))


def reassignment_isr_change(machines: Machines, topic_partition: TopicPartition) -> Step[None]:
    """The state of a partition that is being reassigned was written."""
    return finish_together(machines, [topic_partition], is_watched=True)


def finish_together(
    machines: Machines, partitions: Iterable[TopicPartition], *, is_watched: bool = False
) -> Step[None]:
    """Members have come into the ISRs of ``partitions``.

    Where many partitions move, many are ready at about the same time. So when one is, all are looked at; and
    when others are not, it waits for them, but not for longer than ``TOGETHER_MS``.
    """
    context = machines.context
    moving = [each for each in partitions if each in context.being_reassigned]
    if not (yield from _caught_up(context, moving, is_watched=is_watched)) or context.do_caught_up_wait:
        return
    complete = yield from _caught_up(context, context.being_reassigned)
    if len(complete) == len(context.being_reassigned):
        yield from _advance(machines, [], complete)
    else:
        context.do_caught_up_wait = True
        yield Remind(CaughtUpReassignmentsDue(), TOGETHER_MS)


def finish_those_that_waited(machines: Machines) -> Step[None]:
    machines.context.do_caught_up_wait = False
    yield from finish_caught_up(machines, machines.context.being_reassigned)


def _advance(
    machines: Machines, waiting: Collection[TopicPartition], complete: Collection[TopicPartition]
) -> Step[None]:
    """``waiting`` have to hear of their new replicas; they may be caught up by then.

    What is caught up is finished unless its state is written in between (``_is_complete`` asks for no
    less than the election of B3), so this ends as soon as it is not.
    """
    while waiting or complete:
        yield from a1_new_leader_epoch(machines, waiting)
        yield from a2_start_new_replicas(machines, waiting)
        ready = yield from _caught_up(machines.context, waiting, is_watched=True)
        waiting, complete = (yield from _finish(machines, [*complete, *ready])), ()


def _finish(machines: Machines, partitions: Collection[TopicPartition]) -> Step[list[TopicPartition]]:
    """Phase B. Returns those that have to wait again, because the ISR has lost some of the target."""
    if not partitions:
        return []
    context = machines.context
    moving = {each: context.assignments[each] for each in partitions}
    yield from b1_new_replicas_online(machines, moving)
    b2_target_into_memory(context, moving)
    refused = yield from b3_move_leaders(machines, moving)
    for each in refused:
        context.set_assignment(each, moving.pop(each))
    removed = _removed_replicas(moving)
    yield from b4_stop_removed_replicas(machines, moving, removed)
    yield from b5_delete_removed_replicas(machines, removed)
    yield from b6_target_into_store(moving)
    yield from b7_leave_admin_node(context, moving)
    yield from b8_tell_clients(machines, moving)
    return refused


def _caught_up(
    context: ControllerContext, partitions: Iterable[TopicPartition], *, is_watched: bool = False
) -> Step[list[TopicPartition]]:
    """``isReassignmentComplete``: those that wait for no replica, as the store says."""
    asked = list(partitions)
    moving = [each for each in asked if context.assignments[each].is_being_reassigned]
    states = yield from read_states(moving, is_watched=is_watched)
    waiting = {each for each in moving if not _is_complete(context, each, states.get(each))}
    return [each for each in asked if each not in waiting]


def _is_complete(
    context: ControllerContext, topic_partition: TopicPartition, current: VersionedState | None
) -> bool:
    if current is None or current.state.controller_epoch > context.epoch:
        return False
    target = context.assignments[topic_partition].target
    return set(target) <= set(current.state.isr) and any(
        context.is_online(replica, topic_partition) for replica in target
    )


# The request
def u1_request_into_store(requests: Mapping[TopicPartition, AssignmentChange]) -> Step[list[TopicPartition]]:
    """Returns those that the store has now."""
    return (yield from write_assignments(requests))


def u2_request_into_memory(context: ControllerContext, requests: Assignments) -> None:
    for each, assignment in requests.items():
        known = context.assignments[each]
        _log.info("%s is reassigned from %s to %s", each, list(known.replicas), list(assignment.target))
        context.set_assignment(each, assignment)


# While the new replicas are not in the ISR
def a1_new_leader_epoch(machines: Machines, partitions: Iterable[TopicPartition]) -> Step[None]:
    """Of partitions without a leader only clients hear."""
    context = machines.context
    led: list[TopicPartition] = []
    leaderless: list[TopicPartition] = []
    for each in partitions:
        is_led = context.partition_status[each] is PartitionStatus.ONLINE
        (led if is_led else leaderless).append(each)
    yield from machines.partitions.elect(led, ElectionStrategy.SAME_LEADER)
    if leaderless:
        yield from machines.send_update_metadata(context.brokers, leaderless)


def a2_start_new_replicas(machines: Machines, partitions: Collection[TopicPartition]) -> Step[None]:
    """A replica is new when there is none, not because it is called so: a target may want back what an
    earlier one has removed."""
    context = machines.context
    new = _with_status(context, context.replicas_of(partitions), ReplicaStatus.NON_EXISTENT)
    yield from machines.replicas.change(new, ReplicaStatus.NEW)
    never_led = [
        each
        for each in partitions
        if context.partition_status[each] is PartitionStatus.NEW and context.online_replicas(each)
    ]
    yield from machines.partitions.elect(never_led, ElectionStrategy.OFFLINE)
    _, dead = context.split_by_online(new)
    yield from machines.replicas.change(dead, ReplicaStatus.OFFLINE, just_elected=set(partitions))


# When they are
def b1_new_replicas_online(machines: Machines, moving: Assignments) -> Step[None]:
    targets: dict[BrokerId, list[TopicPartition]] = {}
    for each, assignment in moving.items():
        for replica in assignment.target:
            targets.setdefault(replica, []).append(each)
    new = _with_status(machines.context, targets, ReplicaStatus.NEW)
    online, _ = machines.context.split_by_online(new)
    yield from machines.replicas.change(online, ReplicaStatus.ONLINE)


def b2_target_into_memory(context: ControllerContext, moving: Assignments) -> None:
    for each, assignment in moving.items():
        context.set_assignment(each, ReplicaAssignment(assignment.target))


def b3_move_leaders(machines: Machines, moving: Assignments) -> Step[list[TopicPartition]]:
    """Returns those that have to wait again. A mere change of the order does not need a leader."""
    changes = yield from machines.partitions.elect(moving, ElectionStrategy.REASSIGN)
    return [
        each
        for each, assignment in moving.items()
        if assignment.is_being_reassigned and each not in changes.elected
    ]


def _removed_replicas(moving: Assignments) -> dict[BrokerId, list[TopicPartition]]:
    removed: dict[BrokerId, list[TopicPartition]] = {}
    for each, assignment in moving.items():
        for replica in assignment.removing:
            removed.setdefault(replica, []).append(each)
    return removed


def b4_stop_removed_replicas(machines: Machines, moving: Assignments, removed: Replicas) -> Step[None]:
    """They are out of the ISR, and the leader's late decisions to bring one back are of an old epoch."""
    started = _started(machines.context, removed)
    yield from machines.replicas.change(started, ReplicaStatus.OFFLINE, just_elected=moving.keys())


def b5_delete_removed_replicas(machines: Machines, removed: Replicas) -> Step[None]:
    started = _started(machines.context, removed)
    for status in (
        ReplicaStatus.DELETION_STARTED,
        ReplicaStatus.DELETION_SUCCESSFUL,
        ReplicaStatus.NON_EXISTENT,
    ):
        yield from machines.replicas.change(started, status)
    for broker, partitions in removed.items():
        for each in partitions:
            machines.context.forget_replica(broker, each)


def b6_target_into_store(moving: Assignments) -> Step[None]:
    written = yield from write_assignments(
        {
            each: AssignmentChange(assignment, ReplicaAssignment(assignment.target))
            for each, assignment in moving.items()
        }
    )
    if len(written) < len(moving):
        overtaken = [str(each) for each in moving if each not in written]
        _log.info("the reassignment of %s is done, and another one is requested", ", ".join(overtaken))


def b7_leave_admin_node(context: ControllerContext, moving: Assignments) -> Step[None]:
    """Another target than the one that is reached now stays requested."""
    yield from leave_admin_node(
        lambda each, target: each in moving and target == context.assignments[each].replicas
    )


def b8_tell_clients(machines: Machines, moving: Assignments) -> Step[None]:
    yield from machines.send_update_metadata(machines.context.brokers, moving)
    yield from machines.deletions.resume_after_reassignment()


def leave_admin_node(
    is_over: Callable[[TopicPartition, tuple[BrokerId, ...]], bool],
) -> Step[None]:
    """``maybeRemoveFromZkReassignment``: requests, given by partition and target, leave the admin node."""
    asked = yield from read_reassignments()
    left = {each: target for each, target in asked.items() if not is_over(each, target)}
    if len(left) < len(asked):
        yield from leave_reassignments(left)


# Replicas
def _with_status(
    context: ControllerContext, replicas: Replicas, status: ReplicaStatus
) -> dict[BrokerId, list[TopicPartition]]:
    return {
        broker: found
        for broker, partitions in replicas.items()
        if (found := [each for each in partitions if context.replica_status[broker][each] is status])
    }


def _started(context: ControllerContext, replicas: Replicas) -> dict[BrokerId, list[TopicPartition]]:
    """Those that have ever been told of their partition: the others have nothing to stop."""
    statuses = context.replica_status
    return {
        broker: [each for each in partitions if statuses[broker][each] is not ReplicaStatus.NON_EXISTENT]
        for broker, partitions in replicas.items()
    }


def resume_reassignments(machines: Machines) -> Step[None]:
    """A new controller, to which all replicas are known already."""
    under_way = list(machines.context.being_reassigned)
    yield from _start_requested(
        machines, (yield from _take_admin_requests(machines.context, not_of=set(under_way)))
    )
    yield from resume(machines, under_way)


def reassignments_asked(machines: Machines) -> Step[None]:
    """``/admin/reassign_partitions`` was written."""
    yield from _start_requested(machines, (yield from _take_admin_requests(machines.context)))


def _start_requested(machines: Machines, requests: ReassignmentRequests) -> Step[None]:
    overtaken = yield from reassign(machines, requests)
    if overtaken:
        yield from leave_admin_node(lambda each, _: each in overtaken)


def follow_topic_node(machines: Machines, requests: ReassignmentRequests) -> Step[None]:
    """``requests_of_record`` has found something."""
    if requests:
        yield from leave_admin_node(lambda each, _: each in requests)
        yield from reassign(machines, requests)


def requests_of_record(context: ControllerContext, topic: str, record: TopicRecord) -> ReassignmentRequests:
    """Where a topic's node differs from what is known of its partitions."""
    requests = {}
    for partition, stored in record.partitions.items():
        topic_partition = TopicPartition(topic, partition)
        known = context.assignments.get(topic_partition)
        if known is None or known == stored:
            continue
        if (why := _why_no_target(stored.target)) is None:
            requests[topic_partition] = AssignmentChange(stored, known.reassign_to(stored.target))
        else:
            _log.error("the assignment of %s is ignored, its target %s: %s", topic_partition, why, stored)
    return requests


def _take_admin_requests(
    context: ControllerContext, *, not_of: Collection[TopicPartition] = ()
) -> Step[ReassignmentRequests]:
    """Targets that are new. What is refused, or reached, leaves the node, and so do other targets of the
    partitions ``not_of``."""
    asked = yield from read_reassignments()
    requests: ReassignmentRequests = {}
    left = {}
    for each, target in asked.items():
        known = context.assignments.get(each)
        if known is not None and known.target == target:
            if known.is_being_reassigned:
                left[each] = target
        elif known is None:
            _log.warning("%s is not reassigned to %s: it does not exist", each, list(target))
        elif each in not_of:
            _log.warning("%s is being reassigned to %s, not to %s", each, list(known.target), list(target))
        elif (why := _why_refused(context, each, target)) is not None:
            _log.warning("%s is not reassigned to %s: %s", each, list(target), why)
        else:
            left[each] = target
            requests[each] = AssignmentChange(known, known.reassign_to(target))
    if len(left) < len(asked):
        yield from leave_reassignments(left)
    return requests


def _why_refused(
    context: ControllerContext, topic_partition: TopicPartition, target: Sequence[BrokerId]
) -> str | None:
    topic = topic_partition.topic
    if context.is_to_be_deleted(topic) or topic in context.topics_waiting_for_deletion:
        return "its topic is to be deleted"
    if (why := _why_no_target(target)) is not None:
        return f"the target {why}"
    origin = context.assignments[topic_partition].origin
    absent = [broker for broker in target if broker not in origin and not context.is_live(broker)]
    return f"the brokers {absent} are not live" if absent else None


def _why_no_target(target: Sequence[BrokerId]) -> str | None:
    if not target:
        return "is empty"
    if len(set(target)) < len(target):
        return "names a broker twice"
    return "names a negative broker" if min(target) < 0 else None
