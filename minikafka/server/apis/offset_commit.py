"""OffsetCommit (key 8): how far a group has read, kept for it.

Behaviour (``KafkaApis.handleOffsetCommitRequest``, ``GroupCoordinatorService.commitOffsets``): a partition
that does not exist is UNKNOWN_TOPIC_OR_PARTITION, a topic id UNKNOWN_TOPIC_ID, the others are committed; an
error of the group or of its coordinator is that of each of these. It needs READ on the group and on each
topic (TOPIC_AUTHORIZATION_FAILED where it is missing). The group id may be empty, as in Kafka. The answer
leaves when the offsets are in all in-sync replicas.

Versions: 2 a retention time, until 4; 3 throttle time; 6 leader epochs (KIP-320); 7 group instance ids; 8
flexible; 9 members of KIP-848 groups, with STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND; 10 topic ids in the
place of names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from minikafka.coordinator.group.messages import OffsetCommit, OffsetCommitResult, OffsetToCommit
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, denied, permission
from minikafka.server.apis.shared.coordinator_requests import ask_group
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import TopicPartition


class TopicOffsets(NamedTuple):
    """A topic of a request, by name or by id."""

    name: str | None
    """None when no topic has the id."""
    topic_id: UUID | None
    partitions: Sequence[Any]


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body | Result]:
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
