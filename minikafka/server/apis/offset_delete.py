"""OffsetDelete (key 47): a group forgets offsets of topics that it does not read any more (KIP-496).

Behaviour (``KafkaApis.handleOffsetDeleteRequest``, ``GroupCoordinatorService.deleteOffsets``): a partition
that does not exist is UNKNOWN_TOPIC_OR_PARTITION, one of a topic that a member is subscribed to
GROUP_SUBSCRIBED_TO_TOPIC; an error of the group (INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP) is
that of the whole, and then no partition is listed.
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import OffsetCommitResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.codec import Body
from minikafka.server.group_requests import ask_group, check_group_id
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.types import TopicPartition


def handle(services: Services, context: RequestContext, request: Any) -> Result:
    wanted = dict.fromkeys(
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    known = tuple(each for each in wanted if services.metadata.partition(each) is not None)

    def body(result: OffsetCommitResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            return {"error_code": result.code, "throttle_time": 0, "topics": []}
        codes = dict.fromkeys(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        codes |= dict(zip(known, result.errors, strict=True))
        return {"error_code": ErrorCode.NONE, "throttle_time": 0, "topics": _topics(codes)}

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(request.group_id)
        return shard.delete_offsets(request.group_id, known, ticket, now_ms)

    return ask_group(services, context, request.group_id, call, body)


def _topics(codes: dict[TopicPartition, ErrorCode]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": code})
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
