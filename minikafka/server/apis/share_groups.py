"""Share groups (KIP-932): what members and administrators ask, and what brokers ask the share coordinator.

Members: ShareGroupHeartbeat, ShareGroupDescribe (keys 76, 77). Administrators: DescribeShareGroupOffsets,
AlterShareGroupOffsets, DeleteShareGroupOffsets (90 to 92).

Brokers: InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState,
ReadShareGroupStateSummary (83 to 87). Behaviour (``KafkaApis.handleInitializeShareGroupStateRequest`` and its
siblings): each partition is answered for itself, when what it changes is safe: NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION,
INVALID_REQUEST. Without CLUSTER_ACTION all partitions are CLUSTER_AUTHORIZATION_FAILED. A request without a
group id, or without partitions, is answered with no results, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from minikafka.coordinator.group.messages import (
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResult,
    DeleteShareGroupOffsetsResult,
    DescribedShareGroup,
    ShareGroupHeartbeat,
)
from minikafka.coordinator.share.messages import (
    DEFAULT_LEADER_EPOCH,
    NO_LEADER_EPOCH,
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    InitializeShareState,
    ReadShareState,
    SharePartitionState,
    SharePartitionSummary,
    StateBatch,
    TopicIdPartition,
    WriteShareState,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    Permission,
    denied,
    denied_on_cluster,
    permission,
    require,
    topic_denied,
)
from minikafka.server.apis.shared.coordinator_requests import (
    ask_group,
    assigned_topics,
    check_group_id,
    client_host,
    client_id,
    describe_groups,
    heartbeat_body,
    member_body,
    refusal_of_group,
    refusal_of_topics,
)
from minikafka.server.apis.shared.leader_offsets import latest_offsets
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.coordinator.share_service import Operation
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import Offset, TopicPartition

MEMBER_ID_LENGTH_MAX = 36
"""A member id is a UUID that the client has made, as text (``KafkaApis.isMemberIdValid``)."""
UNKNOWN_LAG = -1

Answer = Body | Coroutine[Any, Any, Body]


def handle_share_group_heartbeat(
    services: Services, context: RequestContext, request: Any
) -> Body | Result | Coroutine[Any, Any, Body]:
    """ShareGroupHeartbeat (key 76): a member of a share group joins, lives, changes its mind, leaves.

    Behaviour (``KafkaApis.handleShareGroupHeartbeat``, ``GroupCoordinatorService.shareGroupHeartbeat``): the
    answer says the member's epoch, how soon it is to be heard of again, and the partitions that it shares in
    when that has changed. It needs READ on the group, else GROUP_AUTHORIZATION_FAILED, and DESCRIBE on the
    topics it names, else TOPIC_AUTHORIZATION_FAILED. What else is wrong with a request is for the groups to
    say (``coordinator.group.share_groups``).

    Versions: 1.
    """
    error = _refusal(services, context, request)
    if error is not None:
        return heartbeat_body(error)
    names = request.subscribed_topic_names
    heartbeat = ShareGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        subscribed_topic_names=None if names is None else tuple(names),
        client_id=client_id(context),
        client_host=client_host(context),
    )
    return ask_group(
        services,
        context,
        heartbeat.group_id,
        lambda shard, ticket, now_ms: shard.share_group_heartbeat(heartbeat, ticket, now_ms),
        heartbeat_body,
    )


def _refusal(services: Services, context: RequestContext, request: Any) -> KafkaError | None:
    error = refusal_of_group(services, context, request.group_id)
    if error is None and not 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX:
        error = KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return error or refusal_of_topics(services, context, request.subscribed_topic_names)


def handle_share_group_describe(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """ShareGroupDescribe (key 77): share groups, with what their members share in.

    Behaviour (``KafkaApis.handleShareGroupDescribe``): one that is not there, or is no share group, is
    GROUP_ID_NOT_FOUND; what else there is: ``describe_groups``.

    Versions: 1.
    """
    return (
        yield from describe_groups(
            services,
            context,
            request,
            kind=DescribedShareGroup,
            describe=lambda shard, group_id: shard.describe_share_group(group_id),
            topics=lambda group: assigned_topics(services.metadata, group.members),
            member=partial(member_body, services.metadata),
        )
    )


async def handle_describe_share_group_offsets(
    services: Services, context: RequestContext, request: Any
) -> Body:
    """DescribeShareGroupOffsets (key 90): from where share groups read on, and how far behind they are.

    Behaviour (``KafkaApis.handleDescribeShareGroupOffsetsRequest``, ``GroupCoordinatorService``): a group
    without DESCRIBE is GROUP_AUTHORIZATION_FAILED. Topics that are named without DESCRIBE are
    TOPIC_AUTHORIZATION_FAILED; where none is named those are left out. What the share coordinator does not
    know, a topic that is not there too, has the start offset -1 and no error. The lag is the partition's end
    less the start offset and what is acknowledged beyond it.

    Versions: 0; 1 the lag (KIP-1226).
    """
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    groups = []
    for group in request.groups:
        try:
            require(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
            topics = await _offsets_of(services, describable, group)
            groups.append({"group_id": group.group_id, "topics": topics, **NO_ERROR})
        except KafkaError as error:
            groups.append({"group_id": group.group_id, "topics": [], **error_fields(error)})
    return {"throttle_time": 0, "groups": groups}


async def _offsets_of(services: Services, describable: Permission | None, group: Any) -> list[dict[str, Any]]:
    metadata = services.metadata
    asked: dict[str, Sequence[int]] = {}
    if group.topics is None:
        known = services.groups.shard_of(group.group_id).share_partitions(group.group_id)
        for topic_id, each in known.items():
            topic = metadata.topic_by_id(topic_id)
            if topic is not None and (describable is None or describable[topic.name]):
                asked[topic.name] = sorted(each.partitions)
    else:
        for named in group.topics:
            asked[named.topic_name] = tuple(dict.fromkeys(named.partitions))
    readable = {
        name: topic.topic_id
        for name in asked
        if (topic := metadata.topic(name)) is not None and (describable is None or describable[name])
    }
    summaries = await _summaries(services, group.group_id, asked, readable)
    ends = await latest_offsets(
        services,
        [
            TopicPartition(name, number)
            for name, topic_id in readable.items()
            for number in asked[name]
            if _has_lag(summaries.get((topic_id, number)))
        ],
    )
    topics = []
    for name, numbers in asked.items():
        error = topic_denied() if describable is not None and not describable[name] else None
        found = readable.get(name)
        partitions = []
        for number in numbers:
            summary = None if found is None else summaries.get((found, number))
            end = ends.get(TopicPartition(name, number))
            partitions.append({"partition_index": number, **_offset_fields(summary, end, error)})
        topics.append({"topic_name": name, "topic_id": found, "partitions": partitions})
    return topics


async def _summaries(
    services: Services, group_id: str, asked: Mapping[str, Sequence[int]], topics: Mapping[str, UUID]
) -> dict[tuple[UUID, int], SharePartitionSummary]:
    states = [
        ReadShareState(topic_id, number, NO_LEADER_EPOCH)
        for name, topic_id in topics.items()
        for number in asked[name]
    ]
    if not states:
        return {}
    persister = services.groups.persister
    if persister is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no share coordinator yet.")
    summaries = await persister.read_summary(group_id, states)
    return {(each.topic_id, each.partition): each for each in summaries if each.error is None}


def _has_lag(summary: SharePartitionSummary | None) -> bool:
    return (
        summary is not None
        and summary.start_offset != UNINITIALIZED_START_OFFSET
        and summary.delivery_complete_count != UNINITIALIZED_DELIVERY_COMPLETE_COUNT
    )


def _offset_fields(
    summary: SharePartitionSummary | None, end: Offset | None, error: KafkaError | None
) -> dict[str, Any]:
    start_offset, leader_epoch, lag = UNINITIALIZED_START_OFFSET, DEFAULT_LEADER_EPOCH, UNKNOWN_LAG
    if summary is not None:
        start_offset, leader_epoch = summary.start_offset, summary.leader_epoch
        if _has_lag(summary) and end is not None:
            lag = end - summary.start_offset - summary.delivery_complete_count
    fields = NO_ERROR if error is None else error_fields(error)
    return {"start_offset": start_offset, "leader_epoch": leader_epoch, "lag": lag, **fields}


def handle_alter_share_group_offsets(
    services: Services, context: RequestContext, request: Any
) -> Body | Result:
    """AlterShareGroupOffsets (key 91): an empty share group reads on from other offsets.

    Behaviour (``KafkaApis.handleAlterShareGroupOffsetsRequest``): it needs READ on the group
    (GROUP_AUTHORIZATION_FAILED for the whole) and on each topic (TOPIC_AUTHORIZATION_FAILED for its
    partitions). An error of the group is that of the whole: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP. A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; one of which the share
    coordinator cannot keep the offset has its error.

    Versions: 0.
    """
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if error is not None:
        return _refused_offsets(error)
    readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    wanted = {
        topic.topic_name: {each.partition_index: each.start_offset for each in topic.partitions}
        for topic in request.topics
    }
    allowed = {name: each for name, each in wanted.items() if readable is None or readable[name]}
    alteration = AlterShareGroupOffsets(group_id=request.group_id, topics=allowed)

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(request.group_id)
        return shard.alter_share_offsets(alteration, ticket, now_ms)

    def body(result: AlterShareGroupOffsetsResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            return _refused_offsets(result)
        responses = []
        for name, offsets in wanted.items():
            errors = result.topics.get(name) or dict.fromkeys(offsets, topic_denied())
            responses.append(
                {
                    **_topic_fields(services.metadata, name),
                    "partitions": [
                        {"partition_index": number, **_error_fields(each)} for number, each in errors.items()
                    ],
                }
            )
        return {"throttle_time": 0, **NO_ERROR, "responses": responses}

    if request.group_id and not allowed:  # the group is not asked, whether it is there or not
        return body(AlterShareGroupOffsetsResult(topics={}))
    return ask_group(services, context, request.group_id, call, body)


def handle_delete_share_group_offsets(
    services: Services, context: RequestContext, request: Any
) -> Body | Result:
    """DeleteShareGroupOffsets (key 92): an empty share group forgets topics.

    Behaviour (``KafkaApis.handleDeleteShareGroupOffsetsRequest``): it needs DELETE on the group
    (GROUP_AUTHORIZATION_FAILED for the whole) and READ on each topic (TOPIC_AUTHORIZATION_FAILED). An error
    of the group is that of the whole: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. A topic that is
    not there, or of which nothing is kept, is UNKNOWN_TOPIC_OR_PARTITION.

    Versions: 0.
    """
    error = denied(services, context, AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    if error is not None:
        return _refused_offsets(error)
    readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    names = tuple(dict.fromkeys(topic.topic_name for topic in request.topics))
    allowed = tuple(name for name in names if readable is None or readable[name])

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(request.group_id)
        return shard.delete_share_offsets(request.group_id, allowed, ticket, now_ms)

    def body(result: DeleteShareGroupOffsetsResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            return _refused_offsets(result)
        responses = [
            _topic_fields(services.metadata, name) | _error_fields(result.topics.get(name, topic_denied()))
            for name in names
        ]
        return {"throttle_time": 0, **NO_ERROR, "responses": responses}

    return ask_group(services, context, request.group_id, call, body)


def _refused_offsets(error: KafkaError) -> Body:
    return {"throttle_time": 0, **error_fields(error), "responses": []}


def _topic_fields(metadata: MetadataCache, name: str) -> dict[str, Any]:
    topic = metadata.topic(name)
    return {"topic_name": name, "topic_id": None if topic is None else topic.topic_id}


def _error_fields(error: KafkaError | None) -> dict[str, Any]:
    return NO_ERROR if error is None else error_fields(error)


def handle_initialize_share_group_state(
    services: Services, context: RequestContext, request: Any
) -> Steps[Answer]:
    """InitializeShareGroupState (key 83): the group coordinator begins the state of partitions."""
    return _handle_state_request(
        services,
        context,
        request,
        Operation.INITIALIZE,
        lambda topic_id, each: InitializeShareState(
            topic_id, each.partition, each.state_epoch, each.start_offset
        ),
    )


def handle_read_share_group_state(services: Services, context: RequestContext, request: Any) -> Steps[Answer]:
    """ReadShareGroupState (key 84): the leader of a partition reads what it begins with."""
    return _handle_state_request(services, context, request, Operation.READ, _read_state)


def handle_write_share_group_state(
    services: Services, context: RequestContext, request: Any
) -> Steps[Answer]:
    """WriteShareGroupState (key 85): the leader of a partition keeps what was acknowledged.

    Versions: 1 delivery complete count (KIP-1226).
    """

    def write(topic_id: UUID, each: Any) -> WriteShareState:
        return WriteShareState(
            topic_id,
            each.partition,
            each.state_epoch,
            each.leader_epoch,
            each.start_offset,
            field(each, "delivery_complete_count", -1),
            tuple(StateBatch(*batch) for batch in each.state_batches),
        )

    return _handle_state_request(services, context, request, Operation.WRITE, write)


def handle_delete_share_group_state(
    services: Services, context: RequestContext, request: Any
) -> Steps[Answer]:
    """DeleteShareGroupState (key 86): a group is deleted, or the offsets of a topic in it."""
    return _handle_state_request(
        services,
        context,
        request,
        Operation.DELETE,
        lambda topic_id, each: TopicIdPartition(topic_id, each.partition),
    )


def handle_read_share_group_state_summary(
    services: Services, context: RequestContext, request: Any
) -> Steps[Answer]:
    """ReadShareGroupStateSummary (key 87): the group coordinator reads where partitions are.

    Versions: 1 delivery complete count (KIP-1226).
    """
    return _handle_state_request(services, context, request, Operation.READ_SUMMARY, _read_state)


def _read_state(topic_id: UUID, each: Any) -> ReadShareState:
    return ReadShareState(topic_id, each.partition, each.leader_epoch)


def _handle_state_request(
    services: Services,
    context: RequestContext,
    request: Any,
    operation: Operation,
    read: Callable[[UUID, Any], Any],
) -> Steps[Answer]:
    asked = []
    for topic in request.topics:
        for partition in topic.partitions:
            asked.append(read(topic.topic_id, partition))
            yield
    if not request.group_id or not asked:
        return {"results": []}
    error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
    if error is not None:
        return (yield from _state_body(context, [operation.failed(each, error) for each in asked]))
    return _state_answer(services, context, operation, request.group_id, asked)


async def _state_answer(
    services: Services, context: RequestContext, operation: Operation, group_id: str, asked: list[Any]
) -> Body:
    answers = await services.shares.answer(operation, group_id, asked)
    return await services.scheduler.finished(_state_body(context, answers))


def _state_body(context: RequestContext, answers: list[Any]) -> Steps[Body]:
    by_topic: dict[UUID, list[dict[str, Any]]] = {}
    for each in answers:
        fields = {"partition": each.partition, **(error_fields(each.error) if each.error else NO_ERROR)}
        if isinstance(each, SharePartitionState):
            fields |= {
                "state_epoch": each.state_epoch,
                "start_offset": each.start_offset,
                "state_batches": [batch._asdict() for batch in each.batches],
            }
        elif isinstance(each, SharePartitionSummary):
            fields |= {
                "state_epoch": each.state_epoch,
                "leader_epoch": each.leader_epoch,
                "start_offset": each.start_offset,
            }
            if context.api_version >= 1:
                fields["delivery_complete_count"] = each.delivery_complete_count
        by_topic.setdefault(each.topic_id, []).append(fields)
        yield
    return {
        "results": [
            {"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in by_topic.items()
        ]
    }
