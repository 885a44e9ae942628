"""The offsets of groups: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete (keys 8, 28, 9, 47)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from minikafka.coordinator.group.messages import (
    FetchedOffset,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetchGroup,
    OffsetFetchResult,
    OffsetToCommit,
    TxnOffsetCommit,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, denied, permission
from minikafka.server.apis.shared.coordinator_requests import (
    CoordinatorAnswer,
    ask_group,
    check_group_id,
    error_code,
    outcome,
)
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC
from minikafka.server.coordinator.hosted_shard import RequestTicket
from minikafka.server.coordinator.transaction_verification import (
    Transaction,
    TransactionSupportedOperation,
    Verified,
)
from minikafka.server.requests import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_EPOCH, NO_OFFSET, NO_SEQUENCE, TopicPartition

FIRST_VERSION_WITH_LOADING = 2

_Offsets = dict[TopicPartition, OffsetToCommit]

FIRST_VERSION_WITH_GROUP_ERRORS = 2
FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10

AT_ONCE_MAX = 5_000
"""Partitions whose offsets are of one moment: what takes 5 ms. Of more, others get turns in between."""

_Partitions = tuple[TopicPartition, ...]


class TopicOffsets(NamedTuple):
    """A topic of a request, by name or by id."""

    name: str | None
    """None when no topic has the id."""
    topic_id: UUID | None
    partitions: Sequence[Any]


def handle_offset_commit(services: Services, context: RequestContext, request: Any) -> Steps[Body | Result]:
    """OffsetCommit (key 8): how far a group has read, kept for it.

    Behaviour (``KafkaApis.handleOffsetCommitRequest``, ``GroupCoordinatorService.commitOffsets``): a
    partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, a topic id UNKNOWN_TOPIC_ID, the others are
    committed; an error of the group or of its coordinator is that of each of these. It needs READ on the
    group and on each topic (TOPIC_AUTHORIZATION_FAILED where it is missing). The group id may be empty, as in
    Kafka. The answer leaves when the offsets are in all in-sync replicas.

    Versions: 2 a retention time, until 4; 3 throttle time; 6 leader epochs (KIP-320); 7 group instance ids; 8
    flexible; 9 members of KIP-848 groups, with STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND; 10 topic ids in the
    place of names.
    """
    topics = yield from named_topics(services, request)
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if error is not None:
        return (yield from refused_commit_body(topics, error))
    readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    offsets = yield from known_offsets(services, topics, readable)

    def body(result: OffsetCommitResult | KafkaError | None) -> Steps[Body]:
        return offset_commit_body(topics, offsets, readable, result)

    if not offsets:
        return (yield from body(None))
    commit = OffsetCommit(
        group_id=request.group_id,
        generation_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=field(request, "group_instance_id", None),
        retention_time_ms=field(request, "retention_time", -1),
        offsets=tuple(offsets.values()),
        version=context.api_version,
    )
    return ask_group(
        services,
        context,
        commit.group_id,
        lambda shard, ticket, now_ms: shard.commit_offsets(commit, ticket, now_ms),
        body,
    )


def named_topics(services: Services, request: Any) -> Steps[list[TopicOffsets]]:
    """The topics of an OffsetCommit or TxnOffsetCommit, with the names of those that come by id."""
    topics = []
    for topic in request.topics:
        topic_id = field(topic, "topic_id", None)
        name = topic.name if hasattr(topic, "name") else topic_name(services, topic_id)
        topics.append(TopicOffsets(name, topic_id, topic.partitions))
        yield
    return topics


def topic_name(services: Services, topic_id: UUID | None) -> str | None:
    """None when no topic has the id; of this API, TxnOffsetCommit and OffsetFetch."""
    known = services.metadata.topic_by_id(topic_id) if topic_id is not None else None
    return None if known is None else known.name


def known_offsets(
    services: Services, topics: Sequence[TopicOffsets], readable: Permission | None
) -> Steps[dict[TopicPartition, OffsetToCommit]]:
    """Those of partitions that exist, of topics that may be read. One that comes twice has its last
    offset."""
    offsets = {}
    for topic in topics:
        if topic.name is None or (readable is not None and not readable[topic.name]):
            yield
            continue
        known = services.metadata.topic(topic.name)
        count = 0 if known is None else len(known.partitions)
        for partition in topic.partitions:
            if 0 <= partition.partition_index < count:
                at = TopicPartition(topic.name, partition.partition_index)
                offsets[at] = OffsetToCommit(
                    topic=at.topic,
                    topic_id=topic.topic_id,
                    partition=at.partition,
                    offset=partition.committed_offset,
                    leader_epoch=field(partition, "committed_leader_epoch", -1),
                    metadata=partition.committed_metadata,
                )
            yield
        yield
    return offsets


def offset_commit_body(
    topics: Sequence[TopicOffsets],
    offsets: dict[TopicPartition, OffsetToCommit],
    readable: Permission | None,
    result: OffsetCommitResult | KafkaError | None,
) -> Steps[Body]:
    """The response for ``topics``, of which ``offsets`` were to be committed; of this API and of
    TxnOffsetCommit. ``result`` None: nothing was."""
    codes: dict[TopicPartition, ErrorCode]
    if isinstance(result, OffsetCommitResult):
        codes = dict(zip(offsets, result.errors, strict=True))
    else:
        codes = dict.fromkeys(offsets, ErrorCode.NONE if result is None else result.code)

    def code_of(topic: TopicOffsets, at: TopicPartition) -> ErrorCode:
        if topic.name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if readable is not None and not readable[at.topic]:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return codes.get(at, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return (yield from _body(topics, code_of))


def refused_commit_body(topics: Sequence[TopicOffsets], error: KafkaError) -> Steps[Body]:
    """``error`` for every partition; of this API and of TxnOffsetCommit."""
    return (yield from _body(topics, lambda _topic, _at: error.code))


def _body(
    topics: Sequence[TopicOffsets], code_of: Callable[[TopicOffsets, TopicPartition], ErrorCode]
) -> Steps[Body]:
    answers = []
    for topic in topics:
        partitions = []
        for partition in topic.partitions:
            at = TopicPartition(topic.name or "", partition.partition_index)
            partitions.append({"partition_index": at.partition, "error_code": code_of(topic, at)})
            yield
        answers.append({"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions})
        yield
    return {"throttle_time": 0, "topics": answers}


def handle_txn_offset_commit(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | Result]:
    """TxnOffsetCommit (key 28): a producer commits with its transaction how far a group has read (KIP-98).

    Behaviour (``KafkaApis.handleTxnOffsetCommitRequest``, ``GroupCoordinatorService``'s
    ``commitTransactionalOffsets``): a partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; an error
    of the group or of a coordinator is that of each of the others. It needs WRITE on the transactional id,
    READ on the group, and READ on each topic (TOPIC_AUTHORIZATION_FAILED where it is missing). An empty group
    id is INVALID_GROUP_ID. Where the transaction has no offsets in the group's partition of
    ``__consumer_offsets`` yet, its own coordinator is asked first, as for a produce
    (``transaction_verification``). The answer leaves when the offsets are in all in-sync replicas; they are
    seen when the transaction is committed.

    Versions: before 2 COORDINATOR_LOAD_IN_PROGRESS crashes clients (KAFKA-7296), who hear
    COORDINATOR_NOT_AVAILABLE; 2 leader epochs (KIP-320); 3 flexible, and who reads (KIP-447); 4
    TRANSACTION_ABORTABLE; 5 the partition of the group is added to the transaction here (KIP-890); 6 topic
    ids in the place of names, with GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).
    """
    transactional_id, group_id = request.transactional_id, request.group_id
    topics = yield from named_topics(services, request)
    error = denied(
        services, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ) or denied(services, context, AclOperation.READ, ResourceType.GROUP, group_id)
    if error is not None:
        return (yield from refused_commit_body(topics, error))
    readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    offsets = yield from known_offsets(services, topics, readable)

    def body(result: OffsetCommitResult | KafkaError | None) -> Steps[Body]:
        return offset_commit_body(topics, offsets, readable, _told(result, context.api_version))

    if not offsets:
        return (yield from body(None))
    answer = CoordinatorAnswer(services, context, body)
    try:
        check_group_id(request.group_id)
        _begin(services, context, request, offsets, answer)
    except KafkaError as error:
        answer.answer(error)
    return answer.pending


def _begin(
    services: Services, context: RequestContext, request: Any, offsets: _Offsets, answer: CoordinatorAnswer
) -> None:
    """Commit, when the coordinator of the transaction says so.

    Raises:
        KafkaError: see ``TransactionVerification.begin``; in the words of a group coordinator.
    """
    transaction = Transaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        TransactionSupportedOperation.of_txn_offset_commit(context.api_version),
    )
    at = TopicPartition(GROUP_METADATA_TOPIC, services.groups.topic.partition_for(request.group_id))

    def commit(verified: Verified) -> None:
        if verified.error:
            answer.answer(KafkaError(verified.error))
            return
        commit = _commit(context, request, offsets, verified)
        services.groups.ask(
            commit.group_id,
            lambda shard, ticket, now_ms: shard.commit_transactional_offsets(commit, ticket, now_ms),
            RequestTicket(answer.answer),
        )

    verified = services.transaction_verification.begin(transaction, at, sequence=NO_SEQUENCE, then=commit)
    if verified is not None:
        commit(verified)


def _commit(context: RequestContext, request: Any, offsets: _Offsets, verified: Verified) -> TxnOffsetCommit:
    return TxnOffsetCommit(
        group_id=request.group_id,
        generation=field(request, "generation_id_or_member_epoch", -1),
        member_id=field(request, "member_id", ""),
        group_instance_id=field(request, "group_instance_id", None),
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        verification_guard=verified.guard,
        offsets=tuple(offsets.values()),
        version=context.api_version,
    )


def _told(
    result: OffsetCommitResult | KafkaError | None, version: int
) -> OffsetCommitResult | KafkaError | None:
    """Errors of the log and of the other coordinator in words that a client expects of this one
    (``GroupCoordinatorService.handleOperationException``)."""
    if not isinstance(result, KafkaError):
        return result
    code = result.code
    if code is ErrorCode.NETWORK_EXCEPTION:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        code = ErrorCode.NOT_COORDINATOR
    elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_WITH_LOADING:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return KafkaError(code, result.message)


def handle_offset_fetch(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """OffsetFetch (key 9): what groups have committed, of some partitions or of all.

    Behaviour (``KafkaApis.handleOffsetFetchRequest``, ``GroupCoordinatorService.fetchOffsets``): a partition
    without an offset has -1 and no error; each group has its own error, and then no partitions. Version 1 has
    no error of a group: each partition asked for has it. It needs DESCRIBE on the group
    (GROUP_AUTHORIZATION_FAILED). A topic without DESCRIBE is TOPIC_AUTHORIZATION_FAILED when it was asked
    for, and else left out. The group id may be empty, as in Kafka. A group that is named again is answered
    once, unlike Kafka's: all its offsets, for each few bytes.

    Versions: 2 all partitions (null), an error of the group; 3 throttle time; 5 leader epochs; 6 flexible; 7
    require stable: a partition with an offset of an open transaction is UNSTABLE_OFFSET_COMMIT (KIP-447); 8
    several groups (KIP-709); 9 members of KIP-848 groups say who they are; 10 topic ids in the place of
    names: one that is not known is UNKNOWN_TOPIC_ID, an offset of another topic of the name is none, and of
    all offsets those of topics that are gone are left out.
    """
    fetching = _Fetching(
        services,
        context,
        permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC),
        require_stable=field(request, "require_stable", False),
    )
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        groups = []
        for group in {group.group_id: group for group in request.groups}.values():
            groups.append((yield from _group(fetching, group)))
            yield
        return {"throttle_time": 0, "groups": groups}
    wanted = yield from _wanted(services, request)
    found = yield from _fetch(fetching, request, wanted)
    topics = (yield from _topics(found.offsets)) if isinstance(found, OffsetFetchResult) else []
    if isinstance(found, KafkaError) and context.api_version < FIRST_VERSION_WITH_GROUP_ERRORS:
        topics = yield from _topics(
            FetchedOffset(topic_partition=each, error=found.code) for each in wanted.partitions or ()
        )
    return {"throttle_time": 0, "topics": topics, "error_code": error_code(found)}


class _Fetching(NamedTuple):
    """What holds for the whole request."""

    services: Services
    context: RequestContext
    describable: Permission | None
    require_stable: bool


class _Wanted(NamedTuple):
    """What is asked of one group."""

    partitions: _Partitions | None
    """None: all."""
    topic_ids: Mapping[str, UUID]
    """Of the topics that were asked for by id."""
    unknown: list[dict[str, Any]]
    """The answers for the ids that no topic has."""


def _group(fetching: _Fetching, group: Any) -> Steps[dict[str, Any]]:
    services, by_id = fetching.services, fetching.context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    wanted = yield from _wanted(services, group)
    found = yield from _fetch(fetching, group, wanted)
    topics = []
    if isinstance(found, OffsetFetchResult):
        topics = yield from _topics(found.offsets)
        if by_id:
            topics = [*_with_ids(services, topics), *wanted.unknown]
    return {"group_id": group.group_id, "topics": topics, "error_code": error_code(found)}


def _with_ids(services: Services, topics: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those whose topic is there, and its id."""
    for topic in topics:
        known = services.metadata.topic(topic["name"])
        if known is not None:
            yield {**topic, "topic_id": known.topic_id}


def _fetch(fetching: _Fetching, group: Any, wanted: _Wanted) -> Steps[OffsetFetchResult | KafkaError]:
    services, context, describable, require_stable = fetching
    error = denied(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
    if error is not None:
        return error
    partitions = wanted.partitions
    offsets: list[FetchedOffset] = []
    refused: list[FetchedOffset] = []
    if describable is not None and partitions is not None:
        partitions = yield from _described(partitions, describable, refused)
    for part in _parts(partitions):
        asked = OffsetFetchGroup(
            group_id=group.group_id,
            member_id=field(group, "member_id", None),
            member_epoch=field(group, "member_epoch", -1),
            partitions=part,
            topic_ids=wanted.topic_ids,
            require_stable=require_stable,
        )
        found = outcome(partial(_fetch_at_once, services, asked))
        if isinstance(found, KafkaError):
            return found
        offsets += (
            found.offsets
            if describable is None
            else [each for each in found.offsets if describable[each.topic_partition.topic]]
        )
        yield
    return OffsetFetchResult((*offsets, *refused))


def _described(
    partitions: _Partitions, describable: Permission, refused: list[FetchedOffset]
) -> Steps[_Partitions]:
    """Those of topics that who asks may describe; the answers of the others are added to ``refused``."""
    left = []
    for at in partitions:
        if describable[at.topic]:
            left.append(at)
        else:
            refused.append(FetchedOffset(topic_partition=at, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        yield
    return tuple(left)


def _fetch_at_once(services: Services, wanted: OffsetFetchGroup) -> OffsetFetchResult:
    return services.groups.shard_of(wanted.group_id).fetch_offsets(wanted)


def _parts(partitions: _Partitions | None) -> Iterator[_Partitions | None]:
    if not partitions:
        yield partitions
        return
    for start in range(0, len(partitions), AT_ONCE_MAX):
        yield partitions[start : start + AT_ONCE_MAX]


def _wanted(services: Services, group: Any) -> Steps[_Wanted]:
    if group.topics is None:
        return _Wanted(None, {}, [])
    partitions: list[TopicPartition] = []
    topic_ids: dict[str, UUID] = {}
    unknown: list[dict[str, Any]] = []
    for topic in group.topics:
        topic_id = field(topic, "topic_id", None)
        name = topic.name if hasattr(topic, "name") else topic_name(services, topic_id)
        if name is None:
            answers = yield from each(_unknown_id, topic.partition_indexes)
            unknown.append({"topic_id": topic_id, "partitions": answers})
            continue
        if topic_id is not None:
            topic_ids[name] = topic_id
        partitions += yield from each(partial(TopicPartition, name), topic.partition_indexes)
        yield
    return _Wanted(tuple(partitions), topic_ids, unknown)


def _unknown_id(partition: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_EPOCH,
        "metadata": "",
        "error_code": ErrorCode.UNKNOWN_TOPIC_ID,
    }


def _topics(offsets: Iterable[FetchedOffset]) -> Steps[list[dict[str, Any]]]:
    partitions: dict[str, list[dict[str, Any]]] = {}
    for offset in offsets:
        partitions.setdefault(offset.topic_partition.topic, []).append(
            {
                "partition_index": offset.topic_partition.partition,
                "committed_offset": offset.offset,
                "committed_leader_epoch": offset.leader_epoch,
                "metadata": offset.metadata,
                "error_code": offset.error,
            }
        )
        yield
    return [{"name": name, "partitions": found} for name, found in partitions.items()]


def handle_offset_delete(services: Services, context: RequestContext, request: Any) -> Steps[Body | Result]:
    """OffsetDelete (key 47): a group forgets offsets of topics that it does not read any more (KIP-496).

    Behaviour (``KafkaApis.handleOffsetDeleteRequest``, ``GroupCoordinatorService.deleteOffsets``): a
    partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, one of a topic that a member is subscribed to
    GROUP_SUBSCRIBED_TO_TOPIC, without READ on the topic TOPIC_AUTHORIZATION_FAILED; an error of the group
    (INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, GROUP_AUTHORIZATION_FAILED without DELETE) is that
    of the whole, and then no partition is listed.
    """
    error = denied(services, context, AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    if error is not None:
        return {"error_code": error.code, "throttle_time": 0, "topics": []}
    readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    codes: dict[TopicPartition, ErrorCode] = {}
    known = []
    for topic in request.topics:
        for partition in topic.partitions:
            at = TopicPartition(topic.name, partition.partition_index)
            if at not in codes:
                codes[at] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if readable is not None and not readable[topic.name]:
                    codes[at] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif services.metadata.partition(at) is not None:
                    known.append(at)
            yield

    def body(result: OffsetCommitResult | KafkaError) -> Steps[Body]:
        if isinstance(result, KafkaError):
            return {"error_code": result.code, "throttle_time": 0, "topics": []}
        codes.update(zip(known, result.errors, strict=True))
        topics = yield from _deleted_topics(codes)
        return {"error_code": ErrorCode.NONE, "throttle_time": 0, "topics": topics}

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(request.group_id)
        return shard.delete_offsets(request.group_id, tuple(known), ticket, now_ms)

    return ask_group(services, context, request.group_id, call, body)


def _deleted_topics(codes: dict[TopicPartition, ErrorCode]) -> Steps[list[dict[str, Any]]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": code})
        yield
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
