"""Share groups (KIP-932): their records, what members and administrators ask, and the share coordinator.

Records: ShareFetch, ShareAcknowledge (keys 78, 79). Members: ShareGroupHeartbeat, ShareGroupDescribe (76,
77). Administrators: DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets (90 to 92).

Brokers: InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState,
ReadShareGroupStateSummary (83 to 87). Behaviour (``KafkaApis.handleInitializeShareGroupStateRequest`` and its
siblings): each partition is answered for itself, when what it changes is safe: NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION,
INVALID_REQUEST. Without CLUSTER_ACTION all partitions are CLUSTER_AUTHORIZATION_FAILED. A request without a
group id, or without partitions, is answered with no results, as Kafka does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from minikafka.config.client_quotas import QuotaType
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
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.protocol.wire.fast_paths import CurrentLeader
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.partition_offsets import latest_offsets
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
from minikafka.server.apis.shared.current_leader import current_leader, leader_endpoints
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.coordinator.share_service import Operation
from minikafka.server.requests import NO_ERROR, RequestContext, client_of, error_fields
from minikafka.server.services import Services
from minikafka.server.share.delayed_share_fetch import ShareFetchParams, ShareRead
from minikafka.server.tracing.tracer import Reader
from minikafka.share.share_partition import AcknowledgementBatch, AcknowledgeType, AcquireMode
from minikafka.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession
from minikafka.steps import Steps
from minikafka.types import Offset, TopicPartition

MEMBER_ID_LENGTH_MAX = 36
"""A member id is a UUID that the client has made, as text (``KafkaApis.isMemberIdValid``)."""
UNKNOWN_LAG = -1

Answer = Body | Coroutine[Any, Any, Body]

FIRST_VERSION_WITH_RENEWAL: Final = 2
LED_ELSEWHERE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Acknowledgements = dict[TopicIdPartition, list[AcknowledgementBatch]]
Outcome = KafkaError | None


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


class _Asked(NamedTuple):
    """What a request says of partitions."""

    partitions: list[TopicIdPartition]
    acknowledgements: Acknowledgements
    errors: dict[TopicIdPartition, KafkaError]
    """Of acknowledgements that make no sense."""


def handle_share_fetch(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | Coroutine[Any, Any, Body]]:
    """ShareFetch (key 78): acknowledge records, and acquire others.

    Behaviour (``KafkaApis.handleShareFetchRequest``, KIP-932): the session (``share_session``) says which
    partitions are fetched; SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED
    and INVALID_REQUEST are of the whole request. Acknowledgements that come with it take effect before
    records are acquired, and are answered when they are safe. A fetch waits for min bytes up to max wait; all
    of its partitions together give max records, see ``AcquireMode``. In the answer are partitions with
    records, with an error, and those that were acknowledged. Epoch -1 ends the session, and releases what the
    member holds.

    It needs READ on the group (GROUP_AUTHORIZATION_FAILED) and on topics (TOPIC_AUTHORIZATION_FAILED). Bytes
    count for the consumer's quota; beyond it the answer comes, since its records are acquired, and the
    connection is muted for the throttle time.

    Versions: 1 the first stable one; 2 acquire modes (KIP-1206), renewal of locks (KIP-1222).
    """
    asked = yield from _asked(request, may_renew=_may_renew(services, request))
    forgotten = [
        TopicIdPartition(topic.topic_id, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
    try:
        key = _session_key(services, context, request)
        params = _fetch_params(context, request)
        if request.share_session_epoch == INITIAL_EPOCH and asked.acknowledgements:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A new share session has nothing to acknowledge.")
        session = _session_of_fetch(services, context, request.share_session_epoch, key, asked, forgotten)
    except KafkaError as error:
        return _fetch_body(error_fields(error))
    names = _Names(services, context)
    acknowledging = yield from _acknowledge(services, session.key, asked, names)
    is_final = request.share_session_epoch == FINAL_EPOCH
    return _fetch(services, context, session, params, names, acknowledging, is_final=is_final)


def handle_share_acknowledge(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | Coroutine[Any, Any, Body]]:
    """ShareAcknowledge (key 79): acknowledge records without fetching others.

    Behaviour (``KafkaApis.handleShareAcknowledgeRequest``): as ShareFetch; it cannot make a session, so epoch
    0 is INVALID_SHARE_SESSION_EPOCH. A partition that is not served here is UNKNOWN_TOPIC_OR_PARTITION, what
    the member does not hold INVALID_RECORD_STATE, and nothing of such a partition is acknowledged.

    Versions: 1 the first stable one; 2 renewal of locks (KIP-1222), and the lock's duration in the answer.
    """
    asked = yield from _asked(request, may_renew=_may_renew(services, request))
    epoch = request.share_session_epoch
    try:
        key = _session_key(services, context, request)
        sessions = services.share_partitions.sessions
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "The share session epoch is invalid.")
        session = sessions.find(key) if epoch == FINAL_EPOCH else sessions.proceed(key, epoch)
    except KafkaError as error:
        return _acknowledge_body(context, error_fields(error))
    names = _Names(services, context)
    acknowledging = yield from _acknowledge(services, session.key, asked, names)

    def answer() -> Body:
        if epoch == FINAL_EPOCH:
            services.share_partitions.end_session(session)
        partitions = _Partitions(services, context)
        for at, outcome in acknowledging.outcomes().items():
            partitions.add_acknowledged(at, names, outcome)
        lock_ms = services.share_partitions.settings_of(key.group_id).record_lock_duration_ms
        return _acknowledge_body(context, NO_ERROR, partitions, lock_ms=lock_ms)

    async def answer_later() -> Body:
        await acknowledging.are_safe()
        return answer()

    return answer() if acknowledging.is_done else answer_later()


# What requests say


def _session_key(services: Services, context: RequestContext, request: Any) -> SessionKey:
    """Raises KafkaError: INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED."""
    group_id, member_id = request.group_id, request.member_id
    if not group_id or not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A group id and a member id are needed.")
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, group_id)
    if error is not None:
        raise error
    return SessionKey(group_id, member_id)


def _may_renew(services: Services, request: Any) -> bool:
    """Whether it says that it does, and may (``share.renew.acknowledge.enable``)."""
    if not field(request, "is_renew_ack", False):
        return False
    return services.share_partitions.settings_of(request.group_id or "").renew_acknowledge_enable


def _asked(request: Any, *, may_renew: bool) -> Steps[_Asked]:
    asked = _Asked([], {}, {})
    for topic in request.topics:
        for partition in topic.partitions:
            at = TopicIdPartition(topic.topic_id, partition.partition_index)
            asked.partitions.append(at)
            if partition.acknowledgement_batches:
                batches = [
                    AcknowledgementBatch(each.first_offset, each.last_offset, tuple(each.acknowledge_types))
                    for each in partition.acknowledgement_batches
                ]
                asked.acknowledgements[at] = batches
                error = _why_invalid(batches, may_renew=may_renew)
                if error is not None:
                    asked.errors[at] = KafkaError(ErrorCode.INVALID_REQUEST, error)
            yield
    return asked


def _why_invalid(batches: Sequence[AcknowledgementBatch], *, may_renew: bool) -> str | None:
    """``KafkaApis.validateAcknowledgementBatches``."""
    types = range(AcknowledgeType.GAP, AcknowledgeType.RENEW + (1 if may_renew else 0))
    last = -1
    for batch in batches:
        if batch.first_offset > batch.last_offset:
            return "The acknowledgement batch has a first offset behind its last offset."
        if batch.first_offset <= last:
            return "The acknowledgement batches overlap, or are not in order."
        if len(batch.types) not in (1, batch.last_offset - batch.first_offset + 1):
            return "An acknowledgement batch needs one acknowledge type, or one for each of its offsets."
        if any(each not in types for each in batch.types):
            return f"There is an invalid acknowledge type among {sorted(set(batch.types))}."
        last = batch.last_offset
    return None


def _fetch_params(context: RequestContext, request: Any) -> ShareFetchParams | None:
    """None: the request fetches nothing, for it renews locks.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    if field(request, "is_renew_ack", False):
        if request.max_bytes or request.min_bytes or request.max_records or request.max_wait:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A request that renews locks must not fetch: its limits must be 0."
            )
        return None
    mode = field(request, "share_acquire_mode", AcquireMode.BATCH_OPTIMIZED)
    if mode not in list(AcquireMode):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no share acquire mode {mode}.")
    max_bytes = min(request.max_bytes, context.connection.answer_bytes_max)
    return ShareFetchParams(
        request.member_id,
        request.max_wait,
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.max_records,
        request.batch_size,
        AcquireMode(mode),
    )


def _session_of_fetch(
    services: Services,
    context: RequestContext,
    epoch: int,
    key: SessionKey,
    asked: _Asked,
    forgotten: Iterable[TopicIdPartition],
) -> ShareSession:
    """Raises KafkaError: see ``handle_share_fetch``."""
    manager = services.share_partitions
    if epoch == INITIAL_EPOCH:
        return manager.begin_session(key, asked.partitions, context.connection)
    if epoch == FINAL_EPOCH:
        if len(asked.partitions) > len(asked.acknowledgements):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "The last request of a share session fetches nothing."
            )
        return manager.sessions.find(key)
    return manager.sessions.proceed(key, epoch, add=asked.partitions, forget=forgotten)


# What is done


class _Acknowledging:
    """The acknowledgements of one request, some of which are not safe yet."""

    def __init__(self, services: Services, acknowledgements: Acknowledgements) -> None:
        self._services = services
        self._acknowledgements = acknowledgements
        self._known: dict[TopicIdPartition, Outcome] = {}
        self._waiting: dict[TopicIdPartition, asyncio.Future[Outcome]] = {}
        self._topics: dict[TopicIdPartition, str] = {}
        """Of those that make sense."""

    def begin(self, key: SessionKey, at: TopicIdPartition, names: _Names, error: KafkaError | None) -> None:
        """``error``: why it makes no sense."""
        manager = self._services.share_partitions
        try:
            topic = names.readable(at)
            if error is not None:
                raise error
            self._topics[at] = topic
            batches = self._acknowledgements[at]
            self._waiting[at] = manager.acknowledge(key.group_id, key.member_id, at, batches)
        except KafkaError as why:
            self._known[at] = why

    @property
    def is_done(self) -> bool:
        """Whether all are safe, or failed: often now, see ``HostedSharePartition.submit``."""
        return all(each.done() for each in self._waiting.values())

    async def are_safe(self) -> None:
        """Or failed: then ``outcomes`` says."""
        for each in self._waiting.values():
            await each

    def outcomes(self) -> dict[TopicIdPartition, Outcome]:
        """Of all, when they are done; and they are counted. Once."""
        for at, safe in self._waiting.items():
            self._known[at] = safe.result()
            if self._known[at] is None:
                self._services.share_partitions.count(self._acknowledgements[at])
        failed = {topic for at, topic in self._topics.items() if self._known[at] is not None}
        for topic in dict.fromkeys(self._topics.values()):
            counts = self._services.replica_manager.stats.of(topic)
            counts.share_acknowledgement_requests += 1
            counts.failed_share_acknowledgement_requests += topic in failed
        return self._known


def _acknowledge(services: Services, key: SessionKey, asked: _Asked, names: _Names) -> Steps[_Acknowledging]:
    acknowledging = _Acknowledging(services, asked.acknowledgements)
    for at in asked.acknowledgements:
        acknowledging.begin(key, at, names, asked.errors.get(at))
        yield
    return acknowledging


async def _fetch(
    services: Services,
    context: RequestContext,
    session: ShareSession,
    params: ShareFetchParams | None,
    names: _Names,
    acknowledging: _Acknowledging,
    *,
    is_final: bool,
) -> Body:
    manager = services.share_partitions
    found: Mapping[TopicIdPartition, ShareRead | KafkaError] = {}
    if params is not None and not is_final:
        found = await _found(services, session, params, names)
        if context.connection.is_closing and not manager.sessions.has(session.key):
            manager.release(session.key)  # no member gets these: the session has ended meanwhile
    await acknowledging.are_safe()
    if is_final:
        manager.end_session(session)
    outcomes = acknowledging.outcomes()
    size_bytes = sum(len(each.records) for each in found.values() if isinstance(each, ShareRead))
    throttle_time_ms = _throttle(services, context, size_bytes)
    if services.replica_manager.tracer.is_on:
        _trace(services, context, session.key.group_id, found)
    partitions = _Partitions(services, context)
    for at in dict.fromkeys((*found, *outcomes)):
        partitions.add_fetched(at, names, found.get(at), outcomes.get(at))
    lock_ms = manager.settings_of(session.key.group_id).record_lock_duration_ms
    return _fetch_body(NO_ERROR, partitions, throttle_time_ms=throttle_time_ms, lock_ms=lock_ms)


async def _found(
    services: Services, session: ShareSession, params: ShareFetchParams, names: _Names
) -> dict[TopicIdPartition, ShareRead | KafkaError]:
    refused: dict[TopicIdPartition, ShareRead | KafkaError] = {}
    wanted = []
    for at in session.in_turn():
        try:
            wanted.append((at, names.readable(at)))
        except KafkaError as error:
            refused[at] = error
    if refused:
        params = params._replace(max_wait_ms=0)
    found = await services.share_partitions.fetch(session.key.group_id, wanted, params)
    if params.asks_for_records:
        failed = {topic for at, topic in wanted if isinstance(found.get(at), KafkaError)}
        for topic in dict.fromkeys(topic for _, topic in wanted):
            counts = services.replica_manager.stats.of(topic)
            counts.share_fetch_requests += 1
            counts.failed_share_fetch_requests += topic in failed
    return refused | found


def _throttle(services: Services, context: RequestContext, size_bytes: int) -> int:
    """Count what a consumer gets. Returns the throttle time, for which its connection is muted."""
    quotas = services.client_quotas
    client = client_of(quotas, context)
    if not client.is_limited:
        client.fetched_bytes += size_bytes
        return 0
    sensor = client.sensors.get(QuotaType.FETCH)
    bandwidth = None if sensor is None else sensor.record(size_bytes, quotas.clock)
    client.fetched_bytes += size_bytes
    return quotas.slow_down(context.connection, client, bandwidth)


def _trace(
    services: Services,
    context: RequestContext,
    group_id: str,
    found: Mapping[TopicIdPartition, ShareRead | KafkaError],
) -> None:
    """Batches that are followed are on their way to a member."""
    reader = Reader(-1, context.header.client_id or "", context.connection.peer, share_group=group_id)
    for read in found.values():
        if isinstance(read, ShareRead) and read.records:
            services.replica_manager.tracer.sent(
                read.hosted.topic_partition, read.records, fetch_offset=0, reader=reader
            )


# What is answered


class _Names:
    """The topics of a request, by their ids."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        self._readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)

    def find(self, topic_id: UUID) -> str:
        """Empty: it is not known."""
        name = self._services.replica_manager.topic_name(topic_id)
        if not name:
            topic = self._services.metadata.topic_by_id(topic_id)
            name = "" if topic is None else topic.name
        return name

    def readable(self, at: TopicIdPartition) -> str:
        """Raises KafkaError: UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED."""
        name = self.find(at.topic_id)
        if not name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if self._readable is not None and not self._readable[name]:
            raise topic_denied()
        return name


class _Partitions:
    """The partitions of an answer, by topics, and where the leaders of those are that are led elsewhere."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        self._listener_name = context.connection.listener_name
        self._leaders: list[CurrentLeader] = []
        self.by_topic: dict[UUID, list[dict[str, Any]]] = {}

    def topics(self) -> list[dict[str, Any]]:
        return [{"topic_id": topic_id, "partitions": each} for topic_id, each in self.by_topic.items()]

    def endpoints(self) -> list[dict[str, Any]]:
        if not self._leaders:
            return []
        found = leader_endpoints(self._services, self._leaders, listener_name=self._listener_name)
        return [each._asdict() for each in found]

    def add_fetched(
        self, at: TopicIdPartition, names: _Names, found: ShareRead | KafkaError | None, outcome: Outcome
    ) -> None:
        error = found if isinstance(found, KafkaError) else None
        read = found if isinstance(found, ShareRead) else None
        fields = self._fields(at, names, error)
        acknowledge = NO_ERROR if outcome is None else error_fields(outcome)
        fields |= {
            "acknowledge_error_code": acknowledge["error_code"],
            "acknowledge_error_message": acknowledge["error_message"],
            "records": b"" if read is None else read.records,
            "acquired_records": [] if read is None else [each._asdict() for each in read.acquired],
        }
        self.by_topic.setdefault(at.topic_id, []).append(fields)
        if read is not None:
            stats = self._services.replica_manager.stats
            stats.of(read.hosted.topic_partition.topic).bytes_out += len(read.records)

    def add_acknowledged(self, at: TopicIdPartition, names: _Names, error: Outcome) -> None:
        self.by_topic.setdefault(at.topic_id, []).append(self._fields(at, names, error))

    def _fields(self, at: TopicIdPartition, names: _Names, error: Outcome) -> dict[str, Any]:
        leader = None
        if error is not None and error.code in LED_ELSEWHERE:
            leader = current_leader(self._services, TopicPartition(names.find(at.topic_id), at.partition))
        if leader is not None:
            self._leaders.append(leader)
        return {
            "partition_index": at.partition,
            **(NO_ERROR if error is None else error_fields(error)),
            "current_leader": {
                "leader_id": -1 if leader is None else leader.leader_id,
                "leader_epoch": -1 if leader is None else leader.leader_epoch,
            },
        }


def _fetch_body(
    error: Mapping[str, Any],
    partitions: _Partitions | None = None,
    *,
    throttle_time_ms: int = 0,
    lock_ms: int = 0,
) -> Body:
    return {
        "throttle_time": throttle_time_ms,
        **error,
        "acquisition_lock_timeout": lock_ms,
        "responses": [] if partitions is None else partitions.topics(),
        "node_endpoints": [] if partitions is None else partitions.endpoints(),
    }


def _acknowledge_body(
    context: RequestContext,
    error: Mapping[str, Any],
    partitions: _Partitions | None = None,
    *,
    lock_ms: int = 0,
) -> Body:
    body: dict[str, Any] = {
        "throttle_time": 0,
        **error,
        "responses": [] if partitions is None else partitions.topics(),
        "node_endpoints": [] if partitions is None else partitions.endpoints(),
    }
    if context.api_version >= FIRST_VERSION_WITH_RENEWAL:
        body["acquisition_lock_timeout"] = lock_ms
    return body
