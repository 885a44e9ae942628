"""Elections that somebody asks for: preferred leaders, unclean ones, and the balance that is kept by itself.

Kafka: ``KafkaController.processReplicaLeaderElection``, ``onReplicaElection``,
``checkAndTriggerAutoLeaderRebalance``, ``fetchPendingPreferredReplicaElections``; KIP-460.

An election on demand that is not needed does not happen: where the preferred replica leads, or for an unclean
one where anybody leads. An unclean election takes a member of the ISR or an eligible replica (KIP-966) where
one is online, and loses nothing then.

Where it differs from Kafka: leaders of all brokers are balanced in one election, not broker by broker; and
what ``/admin/preferred_replica_election`` asks for leaves the store when it is read, so it is forgotten when
the controller dies at once. The automatic balance comes to the same later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import Step
from minikafka.controller.leader_election import preferred_replica_election
from minikafka.controller.machines import Machines
from minikafka.controller.partition_state_machine import ElectionStrategy
from minikafka.controller.store_access import take_preferred_elections
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import BrokerId, ElectionType, TopicPartition

_log = logging.getLogger(__name__)

Elections = dict[TopicPartition, KafkaError | None]


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


_BY_TYPE = {
    ElectionType.PREFERRED: (ElectionStrategy.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ElectionType.UNCLEAN: (ElectionStrategy.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
}
"""How each type elects, and what is answered when nobody can be elected."""


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
