"""AlterPartitionReassignments, ListPartitionReassignments and ElectLeaders (keys 45, 46, 43)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster, require_on_cluster
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import NO_LEADER, ElectionType, TopicPartition


async def handle_alter_partition_reassignments(
    services: Services, context: RequestContext, request: Any
) -> Body:
    """AlterPartitionReassignments (key 45): move partitions to other brokers, or take that back (KIP-455).

    Behaviour (``KafkaApis.handleAlterPartitionReassignmentsRequest``): a list of replicas is the whole target
    of a partition, null cancels the reassignment; each partition has its own error. A partition that is named
    twice gets what is said last. The answer comes when the requests are written; the request's timeout is not
    used, the store has its own. Without ALTER on the cluster all is CLUSTER_AUTHORIZATION_FAILED, the whole
    and each partition.

    Versions: 1 may forbid another replication factor (KIP-860).
    """
    allow_replication_factor_change = field(request, "allow_replication_factor_change", True)
    targets = await services.scheduler.finished(_targets(request))
    outcomes: Mapping[TopicPartition, KafkaError | None]
    error = denied_on_cluster(services, context, AclOperation.ALTER)
    if error is None:
        outcomes = await services.reassignments.alter(
            targets, allow_replication_factor_change=allow_replication_factor_change
        )
    else:
        outcomes = dict.fromkeys(targets, error)
    return {
        "throttle_time": 0,
        "allow_replication_factor_change": allow_replication_factor_change,
        **(NO_ERROR if error is None else error_fields(error)),
        "responses": await services.scheduler.finished(_responses(outcomes)),
    }


def _targets(request: Any) -> Steps[dict[TopicPartition, Sequence[int] | None]]:
    targets = {}
    for topic in request.topics:
        for partition in topic.partitions:
            targets[TopicPartition(topic.name, partition.partition_index)] = partition.replicas
            yield
        yield
    return targets


def _responses(outcomes: Mapping[TopicPartition, KafkaError | None]) -> Steps[list[dict[str, Any]]]:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, partition), error in outcomes.items():
        outcome = NO_ERROR if error is None else error_fields(error)
        topics[topic].append({"partition_index": partition} | outcome)
        yield
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


async def handle_list_partition_reassignments(
    services: Services, context: RequestContext, request: Any
) -> Body:
    """ListPartitionReassignments (key 46): which partitions are on their way to other brokers (KIP-455).

    Behaviour (``KafkaApis.handleListPartitionReassignmentsRequest``): of the partitions that are asked for,
    or of all when the list of topics is null, those that are being moved; all others, unknown ones too, are
    left out. ``replicas`` are all that hold the partition or are to hold it. One that is both added and
    removed was wanted and is not any more, and has not been stopped yet. It needs DESCRIBE on the cluster.
    """
    denied = denied_on_cluster(services, context, AclOperation.DESCRIBE)
    if denied is not None:
        return {"throttle_time": 0, **error_fields(denied), "topics": _as_asked(request)}
    asked = None
    if request.topics is not None:
        asked = [
            TopicPartition(topic.name, partition)
            for topic in request.topics
            for partition in topic.partition_indexes
        ]
    try:
        ongoing = await services.reassignments.ongoing(asked)
    except KafkaError as error:
        return {"throttle_time": 0, **error_fields(error), "topics": []}
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, partition), assignment in ongoing.items():
        topics[topic].append(
            {
                "partition_index": partition,
                "replicas": assignment.replicas,
                "adding_replicas": assignment.adding,
                "removing_replicas": assignment.removing,
            }
        )
    return {
        "throttle_time": 0,
        **NO_ERROR,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


def _as_asked(request: Any) -> list[Body]:
    """What was asked for, without an answer (``ListPartitionReassignmentsRequest.getErrorResponse``)."""
    nothing: Body = {"replicas": [], "adding_replicas": [], "removing_replicas": []}
    return [
        {
            "name": topic.name,
            "partitions": [{"partition_index": each, **nothing} for each in topic.partition_indexes],
        }
        for topic in request.topics or ()
    ]


async def handle_elect_leaders(services: Services, context: RequestContext, request: Any) -> Body:
    """ElectLeaders (key 43): elect preferred leaders, or any replica where there is no leader (KIP-183,
    KIP-460).

    Behaviour (``KafkaApis.handleElectLeaders``, ``DelayedElectLeader``): only the controller's broker holds
    elections, all others answer NOT_CONTROLLER for the whole and, because version 0 has no place for that,
    for each partition; so is CLUSTER_AUTHORIZATION_FAILED answered to one without ALTER on the cluster. Each
    partition has its own outcome; of all partitions (a null list) only those for which there was something to
    do. The answer waits until this broker has heard of the new leaders, or for the request's timeout.

    Versions: 0 knows preferred elections only; 1 the election type and an error for the whole; 2 flexible.
    """
    asked = None
    if request.topic_partitions is not None:
        asked = tuple(
            dict.fromkeys(
                TopicPartition(each.topic, partition)
                for each in request.topic_partitions
                for partition in each.partitions
            )
        )
    try:
        require_on_cluster(services, context, AclOperation.ALTER)
        election_type = _election_type(field(request, "election_type", ElectionType.PREFERRED))
        results = await services.controller.elect_leaders(asked, election_type)
    except KafkaError as error:
        return _body(dict.fromkeys(asked or (), error), error_code=error.code)
    elected = [each for each, error in results.items() if error is None]
    unheard = await _unheard(services.metadata, elected, election_type, timeout_ms=request.timeout)
    return _body(results | unheard, error_code=ErrorCode.NONE)


def _election_type(number: int) -> ElectionType:
    try:
        return ElectionType(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {number}.") from None


async def _unheard(
    metadata: MetadataCache,
    elected: Iterable[TopicPartition],
    election_type: ElectionType,
    *,
    timeout_ms: int,
) -> dict[TopicPartition, KafkaError]:
    """Those whose new leaders this broker has not heard of in time."""

    def is_heard(topic_partition: TopicPartition) -> bool:
        partition = metadata.partition(topic_partition)
        if partition is None:
            return True  # deleted meanwhile
        if election_type is ElectionType.PREFERRED:
            return partition.leader in partition.replicas[:1]
        return partition.leader != NO_LEADER

    def waiting() -> list[TopicPartition]:
        return [each for each in elected if not is_heard(each)]

    await metadata.wait_for(lambda: not waiting(), timeout_ms=max(timeout_ms, 0))
    return {
        each: KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"The leader of {each} was not heard of within {timeout_ms} ms."
        )
        for each in waiting()
    }


def _body(results: Mapping[TopicPartition, KafkaError | None], *, error_code: ErrorCode) -> Body:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, partition), error in sorted(results.items(), key=lambda item: item[0]):
        outcome = NO_ERROR if error is None else error_fields(error)
        topics[topic].append({"partition_id": partition} | outcome)
    return {
        "throttle_time": 0,
        "error_code": error_code,
        "replica_election_results": [
            {"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()
        ],
    }
