"""Where reassignments come from: topics' nodes, the admin node, and a controller that did not finish.

Kafka: ``KafkaController.processPartitionReassignment`` (``processZkPartitionReassignment``,
``maybeBuildReassignment``, ``validateReplicas``), ``initializePartitionReassignments``.

- AlterPartitionReassignments is served by any broker, which writes the way to the target into the topic's
  node (``ReplicaAssignment.reassign_to``). The controller follows a node that says what it does not know.
- ``/admin/reassign_partitions`` names targets, as tools from before KIP-455 write them. What is valid is
  taken, and leaves the node when its reassignment is done; the rest leaves it at once.
- A new controller goes on with every partition that the store says is being reassigned.

The way from what is known to the target is computed here, and is written where a node says another one: the
node may name replicas that were stopped since, or may have been written by hand, naming only a target.

Where it differs from Kafka:
- A wish in the admin node is checked as one of the API is, and adds no broker that is not live; Kafka waits
  for it. A topic that somebody wants deleted takes none.
- A wish of the API takes the place of the admin node's, as in Kafka, in the moment in which the controller
  sees it. When it dies just before, the next one finds both and prefers the API's, Kafka the node's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import AssignmentChange, Step, TopicRecord
from minikafka.controller.machines import Machines
from minikafka.controller.reassignment import leave_admin_node, reassign, resume
from minikafka.controller.store_access import leave_reassignments, read_reassignments
from minikafka.types import BrokerId, TopicPartition

_log = logging.getLogger(__name__)

Wishes = dict[TopicPartition, AssignmentChange]


def resume_reassignments(machines: Machines) -> Step[None]:
    """A new controller, to which all replicas are known already."""
    under_way = list(machines.context.being_reassigned)
    yield from _grant(machines, (yield from _take_admin_wishes(machines.context, not_of=set(under_way))))
    yield from resume(machines, under_way)


def reassignments_asked(machines: Machines) -> Step[None]:
    """``/admin/reassign_partitions`` was written."""
    yield from _grant(machines, (yield from _take_admin_wishes(machines.context)))


def _grant(machines: Machines, wishes: Wishes) -> Step[None]:
    overtaken = yield from reassign(machines, wishes)
    if overtaken:
        yield from leave_admin_node(lambda each, _: each in overtaken)


def follow_topic_node(machines: Machines, wishes: Wishes) -> Step[None]:
    """``wishes_of_record`` has found something."""
    if wishes:
        yield from leave_admin_node(lambda each, _: each in wishes)
        yield from reassign(machines, wishes)


def wishes_of_record(context: ControllerContext, topic: str, record: TopicRecord) -> Wishes:
    """Where a topic's node differs from what is known of its partitions."""
    wishes = {}
    for partition, stored in record.partitions.items():
        topic_partition = TopicPartition(topic, partition)
        known = context.assignments.get(topic_partition)
        if known is None or known == stored:
            continue
        if (why := _why_no_target(stored.target)) is None:
            wishes[topic_partition] = AssignmentChange(stored, known.reassign_to(stored.target))
        else:
            _log.error("the assignment of %s is ignored, its target %s: %s", topic_partition, why, stored)
    return wishes


def _take_admin_wishes(
    context: ControllerContext, *, not_of: Collection[TopicPartition] = ()
) -> Step[Wishes]:
    """Targets that are new. What is refused, or reached, leaves the node, and so do other targets of the
    partitions ``not_of``."""
    asked = yield from read_reassignments()
    wishes: Wishes = {}
    left = {}
    for each, target in asked.items():
        known = context.assignments.get(each)
        if known is not None and known.target == target:
            if known.is_being_reassigned:
                left[each] = target
        elif known is None:
            _log.warning("%s is not reassigned to %s: it does not exist", each, list(target))
        elif each in not_of:
            _log.warning("%s goes on to %s, not to %s", each, list(known.target), list(target))
        elif (why := _why_refused(context, each, target)) is not None:
            _log.warning("%s is not reassigned to %s: %s", each, list(target), why)
        else:
            left[each] = target
            wishes[each] = AssignmentChange(known, known.reassign_to(target))
    if len(left) < len(asked):
        yield from leave_reassignments(left)
    return wishes


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
