"""OffsetCommit (key 8): how far a group has read, kept for it.

Behaviour (``KafkaApis.handleOffsetCommitRequest``, ``GroupCoordinatorService.commitOffsets``): a partition
that does not exist is UNKNOWN_TOPIC_OR_PARTITION, the others are committed; an error of the group or of its
coordinator is that of each of these. The group id may be empty, as in Kafka. The answer leaves when the
offsets are in all in-sync replicas.

Versions: 2 a retention time, until 4; 3 throttle time; 6 leader epochs (KIP-320); 7 group instance ids; 8
flexible; 9 members of KIP-848 groups, with STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import OffsetCommit, OffsetCommitResult, OffsetToCommit
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.server.apis.shared.coordinator_requests import ask_group
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import TopicPartition


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body | Result]:
    offsets = yield from known_offsets(services, request)

    def body(result: OffsetCommitResult | KafkaError | None) -> Steps[Body]:
        return offset_commit_body(request, offsets, result)

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


def known_offsets(services: Services, request: Any) -> Steps[dict[TopicPartition, OffsetToCommit]]:
    """Those of partitions that exist. One that comes twice has its last offset."""
    offsets = {}
    for topic in request.topics:
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
    result: OffsetCommitResult | KafkaError | None,
) -> Steps[Body]:
    """The response to ``request``, of which ``offsets`` were to be committed; of this API and of
    TxnOffsetCommit. ``result`` None: nothing was."""
    codes: dict[TopicPartition, ErrorCode]
    if isinstance(result, OffsetCommitResult):
        codes = dict(zip(offsets, result.errors, strict=True))
    else:
        codes = dict.fromkeys(offsets, ErrorCode.NONE if result is None else result.code)
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            at = TopicPartition(topic.name, partition.partition_index)
            code = codes.get(at, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partitions.append({"partition_index": at.partition, "error_code": code})
            yield
        topics.append({"name": topic.name, "partitions": partitions})
        yield
    return {"throttle_time": 0, "topics": topics}
