"""OffsetCommit (key 8): how far a group has read, kept for it.

Behaviour (``KafkaApis.handleOffsetCommitRequest``, ``GroupCoordinatorService.commitOffsets``): a partition
that does not exist is UNKNOWN_TOPIC_OR_PARTITION, the others are committed; an error of the group or of its
coordinator is that of each of these. It needs READ on the group and on each topic (TOPIC_AUTHORIZATION_FAILED
where it is missing). The group id may be empty, as in Kafka. The answer leaves when the offsets are in all
in-sync replicas.

Versions: 2 a retention time, until 4; 3 throttle time; 6 leader epochs (KIP-320); 7 group instance ids; 8
flexible; 9 members of KIP-848 groups, with STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body | Result]:
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if error is not None:
        return (yield from refused_commit_body(request, error))
    readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    offsets = yield from known_offsets(services, request, readable)

    def body(result: OffsetCommitResult | KafkaError | None) -> Steps[Body]:
        return offset_commit_body(request, offsets, readable, result)

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


def known_offsets(
    services: Services, request: Any, readable: Permission | None
) -> Steps[dict[TopicPartition, OffsetToCommit]]:
    """Those of partitions that exist, of topics that may be read. One that comes twice has its last
    offset."""
    offsets = {}
    for topic in request.topics:
        if readable is not None and not readable[topic.name]:
            yield
            continue
        known = services.metadata.topic(topic.name)
        count = 0 if known is None else len(known.partitions)
        for partition in topic.partitions:
            if 0 <= partition.partition_index < count:
                at = TopicPartition(topic.name, partition.partition_index)
                offsets[at] = OffsetToCommit(
                    topic=at.topic,
                    partition=at.partition,
                    offset=partition.committed_offset,
                    leader_epoch=field(partition, "committed_leader_epoch", -1),
                    metadata=partition.committed_metadata,
                )
            yield
        yield
    return offsets


def offset_commit_body(
    request: Any,
    offsets: dict[TopicPartition, OffsetToCommit],
    readable: Permission | None,
    result: OffsetCommitResult | KafkaError | None,
) -> Steps[Body]:
    """The response to ``request``, of which ``offsets`` were to be committed; of this API and of
    TxnOffsetCommit. ``result`` None: nothing was."""
    codes: dict[TopicPartition, ErrorCode]
    if isinstance(result, OffsetCommitResult):
        codes = dict(zip(offsets, result.errors, strict=True))
    else:
        codes = dict.fromkeys(offsets, ErrorCode.NONE if result is None else result.code)

    def code_of(at: TopicPartition) -> ErrorCode:
        if readable is not None and not readable[at.topic]:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return codes.get(at, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return (yield from _body(request, code_of))


def refused_commit_body(request: Any, error: KafkaError) -> Steps[Body]:
    """``error`` for every partition of ``request``; of this API and of TxnOffsetCommit."""
    return (yield from _body(request, lambda _: error.code))


def _body(request: Any, code_of: Callable[[TopicPartition], ErrorCode]) -> Steps[Body]:
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            at = TopicPartition(topic.name, partition.partition_index)
            partitions.append({"partition_index": at.partition, "error_code": code_of(at)})
            yield
        topics.append({"name": topic.name, "partitions": partitions})
        yield
    return {"throttle_time": 0, "topics": topics}
