"""Streams groups (KIP-1071): StreamsGroupHeartbeat and StreamsGroupDescribe (keys 88, 89)."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from minikafka.coordinator.group.messages import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    MemberTasks,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResult,
    StreamsStatus,
    StreamsTask,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.internal.group_records import (
    StreamsGroupTopologyValue,
    StreamsSubtopology,
    StreamsTopicInfo,
    TaskIds,
)
from minikafka.protocol.internal.streams_record_bodies import subtopologies
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis import refusal as refused
from minikafka.server.apis.shared.authorization import is_authorized_on_cluster, permission
from minikafka.server.apis.shared.coordinator_requests import (
    ask_group,
    client_host,
    client_id,
    describe_groups,
    refusal_of_group,
    refusal_of_topics,
)
from minikafka.server.apis.topics import NEVER, MutationQuota
from minikafka.server.cluster.topic_validation import is_internal, validate_topic_name
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps

MISSING_INTERNAL_TOPICS = 3
"""A status (KIP-1071)."""
DESCRIPTION_NOT_REQUESTED = 0
DESCRIPTION_NOT_STORED = 1
"""Status of a topology description (KIP-1331), of which no broker here keeps any."""
FAILURES_SHOWN_MAX = 3
LAG_MAX = 2**31 - 1

_NO_TASKS = {"active_tasks": None, "standby_tasks": None, "warmup_tasks": None}


def handle_streams_group_heartbeat(
    services: Services, context: RequestContext, request: Any
) -> Body | Result | Coroutine[Any, Any, Body]:
    """StreamsGroupHeartbeat (key 88): a member of a streams group joins, lives, leaves.

    Behaviour (``KafkaApis.handleStreamsGroupHeartbeat``, ``GroupCoordinatorService.streamsGroupHeartbeat``):
    the answer says the member's epoch, its tasks when they have changed, where queries are answered when that
    has changed, and what is the matter with the application (its status). It needs READ on the group, else
    GROUP_AUTHORIZATION_FAILED, and DESCRIBE on all topics of a topology that it brings, else
    TOPIC_AUTHORIZATION_FAILED; names that no topic of an application may have are STREAMS_INVALID_TOPOLOGY.
    Internal topics that are missing are created (``server.topic_service``), for which it needs
    CREATE on the cluster or on each: without it the status names them. The answer does not wait for them;
    what goes wrong is told by the status of later heartbeats. Without ``streams`` in
    ``group.coordinator.rebalance.protocols`` it is UNSUPPORTED_VERSION. What else is wrong with a request is
    for the groups to say (``coordinator.group.streams``).

    Versions: 0; 1 the acceptable recovery lag as a long, and the status of missing client tags.
    """
    error = _refusal(services, context, request)
    if error is not None:
        return _refused_heartbeat(error)
    topology = request.topology
    heartbeat = StreamsGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_information_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout,
        topology=(
            None
            if topology is None
            else StreamsGroupTopologyValue(topology.epoch, subtopologies(topology.subtopologies))
        ),
        active_tasks=_task_ids(request.active_tasks),
        standby_tasks=_task_ids(request.standby_tasks),
        warmup_tasks=_task_ids(request.warmup_tasks),
        process_id=request.process_id,
        user_endpoint=None if request.user_endpoint is None else tuple(request.user_endpoint),
        client_tags=None if request.client_tags is None else tuple(map(tuple, request.client_tags)),
        task_offsets=_task_offsets(request.task_offsets),
        task_end_offsets=_task_offsets(request.task_end_offsets),
        shutdown_application=request.shutdown_application,
        client_id=client_id(context),
        client_host=client_host(context),
        version=context.api_version,
    )

    def body(result: StreamsGroupHeartbeatResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            return _refused_heartbeat(result)
        status = _create_internal_topics(services, context, request.group_id, result)
        return _heartbeat_body(result, status)

    return ask_group(
        services,
        context,
        heartbeat.group_id,
        lambda shard, ticket, now_ms: shard.streams_group_heartbeat(heartbeat, ticket, now_ms),
        body,
    )


def is_streams_enabled(services: Services) -> bool:
    """Whether this broker has streams groups (``group.coordinator.rebalance.protocols``)."""
    return "streams" in services.config.group_coordinator_rebalance_protocols


def _refusal(services: Services, context: RequestContext, request: Any) -> KafkaError | None:
    if not is_streams_enabled(services):
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    error = refusal_of_group(services, context, request.group_id)
    if error is not None or request.topology is None:
        return error
    names = list(dict.fromkeys(_topics_of(request.topology.subtopologies)))
    internal = [name for name in names if is_internal(name)]
    if internal:
        return KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.",
        )
    invalid = [name for name in names if not _is_valid(name)]
    if invalid:
        return KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names."
        )
    return refusal_of_topics(services, context, names)


def _is_valid(name: str) -> bool:
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True


def _topics_of(topology: Iterable[Any]) -> Iterator[str]:
    for each in topology:
        yield from each.source_topics
        yield from each.repartition_sink_topics
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
            yield topic.name


def _task_ids(tasks: Iterable[Any] | None) -> TaskIds | None:
    if tasks is None:
        return None
    found: TaskIds = {}
    for each in tasks:
        known = found.get(each.subtopology_id, frozenset())
        found[each.subtopology_id] = known | frozenset(each.partitions)
    return found


def _task_offsets(tasks: Iterable[Any] | None) -> tuple[StreamsTask, ...] | None:
    return None if tasks is None else tuple(StreamsTask(*each) for each in tasks)


def _create_internal_topics(
    services: Services, context: RequestContext, group_id: str, result: StreamsGroupHeartbeatResult
) -> list[StreamsStatus]:
    """Begin to create what is missing; the status with what keeps it from being created."""
    status = list(result.status)
    missing = {topic.name: topic for topic in result.internal_topics}
    if not missing:
        return status
    if not is_authorized_on_cluster(services, context, AclOperation.CREATE, logs_denied=False):
        creatable = permission(services, context, AclOperation.CREATE, ResourceType.TOPIC)
        unauthorized = [name for name in missing if creatable is not None and not creatable[name]]
        if unauthorized:
            return _with_detail(status, f"Unauthorized to CREATE on topics {','.join(unauthorized)}.")
    quota = MutationQuota(services.client_quotas, context, strict_since_version=NEVER)
    services.internal_topics.create(missing.values(), spend=quota.spend)
    failures = services.internal_topics.failures(missing)
    if not failures:
        return status
    shown = ", ".join(f"{name} ({reason})" for name, reason in islice(failures.items(), FAILURES_SHOWN_MAX))
    more = len(failures) - FAILURES_SHOWN_MAX
    return _with_detail(status, f"Creation failed: {shown}{f' and {more} more topics' if more > 0 else ''}.")


def _with_detail(status: list[StreamsStatus], detail: str) -> list[StreamsStatus]:
    """The status of missing internal topics says ``detail`` too."""
    told = [
        StreamsStatus(each.code, f"{each.detail}; {detail}") if each.code == MISSING_INTERNAL_TOPICS else each
        for each in status
    ]
    if all(each.code != MISSING_INTERNAL_TOPICS for each in told):
        told.append(StreamsStatus(MISSING_INTERNAL_TOPICS, detail))
    return told


def _heartbeat_body(result: StreamsGroupHeartbeatResult, status: Iterable[StreamsStatus]) -> Body:
    endpoints = result.partitions_by_user_endpoint
    return {
        "throttle_time": 0,
        **NO_ERROR,
        "member_id": result.member_id,
        "member_epoch": result.member_epoch,
        "heartbeat_interval": result.heartbeat_interval_ms,
        "acceptable_recovery_lag_legacy": min(result.acceptable_recovery_lag, LAG_MAX),
        "task_offset_interval": result.task_offset_interval_ms,
        "acceptable_recovery_lag": result.acceptable_recovery_lag,
        "status": [{"status_code": each.code, "status_detail": each.detail} for each in status],
        **(_NO_TASKS if result.tasks is None else _tasks(result.tasks)),
        "topology_description_required": False,
        "endpoint_information_epoch": result.endpoint_information_epoch,
        "partitions_by_user_endpoint": (
            None
            if endpoints is None
            else [
                {
                    "user_endpoint": _endpoint(each.endpoint),
                    "active_partitions": _partitions(each.active),
                    "standby_partitions": _partitions(each.standby),
                }
                for each in endpoints
            ]
        ),
    }


def _refused_heartbeat(error: KafkaError) -> Body:
    return {
        "throttle_time": 0,
        **error_fields(error),
        "member_id": "",
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "acceptable_recovery_lag_legacy": 0,
        "task_offset_interval": 0,
        "acceptable_recovery_lag": -1,
        "status": None,
        **_NO_TASKS,
        "topology_description_required": False,
        "endpoint_information_epoch": 0,
        "partitions_by_user_endpoint": None,
    }


def _tasks(tasks: MemberTasks) -> dict[str, Any]:
    return {
        "active_tasks": _ids(tasks.active),
        "standby_tasks": _ids(tasks.standby),
        "warmup_tasks": _ids(tasks.warmup),
    }


def _ids(tasks: TaskIds) -> list[dict[str, Any]]:
    return [{"subtopology_id": key, "partitions": sorted(numbers)} for key, numbers in tasks.items()]


def _endpoint(endpoint: tuple[str, int] | None) -> dict[str, Any] | None:
    return None if endpoint is None else {"host": endpoint[0], "port": endpoint[1]}


def _partitions(topics: Iterable[tuple[str, tuple[int, ...]]]) -> list[dict[str, Any]]:
    return [{"topic": name, "partitions": list(numbers)} for name, numbers in topics]


def handle_streams_group_describe(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """StreamsGroupDescribe (key 89): streams groups, with their topologies, members and tasks.

    Behaviour (``KafkaApis.handleStreamsGroupDescribe``): each group has its own error; one that is not there,
    or is no streams group, is GROUP_ID_NOT_FOUND, and an empty id INVALID_GROUP_ID; without DESCRIBE on the
    group it is GROUP_AUTHORIZATION_FAILED, and without DESCRIBE on a topic of its topology
    TOPIC_AUTHORIZATION_FAILED. A group that is named again is answered once. Topology descriptions (KIP-1331)
    are kept by a plugin of Kafka's brokers, of which there is none here: none is stored.

    Versions: 0; 1 the assignor's name, and topology descriptions.
    """
    if not is_streams_enabled(services):
        return refused.handle(services, context, request)
    wants_description = field(request, "include_topology_description", False)
    return (
        yield from describe_groups(
            services,
            context,
            request,
            kind=DescribedStreamsGroup,
            describe=lambda shard, group_id: shard.describe_streams_group(group_id),
            topics=lambda group: () if group.topology is None else _topics_of(group.topology.subtopologies),
            member=_member,
            more=lambda group: _topology_fields(group, wants_description=wants_description),
            topics_denied="The described group uses topics that the client is not authorized to describe.",
        )
    )


def _topology_fields(group: DescribedStreamsGroup, *, wants_description: bool) -> Body:
    topology = group.topology
    return {
        "topology": (
            None
            if topology is None
            else {
                "epoch": topology.epoch,
                "subtopologies": [_subtopology(each) for each in topology.subtopologies],
            }
        ),
        "topology_description": None,
        "topology_description_status": (
            DESCRIPTION_NOT_STORED
            if wants_description and group.error is ErrorCode.NONE
            else DESCRIPTION_NOT_REQUESTED
        ),
    }


def _subtopology(each: StreamsSubtopology) -> dict[str, Any]:
    return {
        "subtopology_id": each.subtopology_id,
        "source_topics": list(each.source_topics),
        "repartition_sink_topics": list(each.repartition_sink_topics),
        "state_changelog_topics": _topic_infos(each.state_changelog_topics),
        "repartition_source_topics": _topic_infos(each.repartition_source_topics),
    }


def _topic_infos(topics: Iterable[StreamsTopicInfo]) -> list[Mapping[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "topic_configs": [{"key": key, "value": value} for key, value in topic.topic_configs],
        }
        for topic in topics
    ]


def _member(member: DescribedStreamsMember) -> dict[str, Any]:
    told = member.metadata
    return {
        "member_id": member.member_id,
        "member_epoch": member.member_epoch,
        "instance_id": told.instance_id,
        "rack_id": told.rack_id,
        "client_id": told.client_id,
        "client_host": told.client_host,
        "topology_epoch": told.topology_epoch,
        "process_id": told.process_id,
        "user_endpoint": _endpoint(told.user_endpoint),
        "client_tags": [{"key": key, "value": value} for key, value in told.client_tags],
        "task_offsets": [each._asdict() for each in member.task_offsets],
        "task_end_offsets": [each._asdict() for each in member.task_end_offsets],
        "assignment": _tasks(member.assignment),
        "target_assignment": _tasks(member.target_assignment),
        "is_classic": False,
    }
