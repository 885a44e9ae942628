"""OffsetDelete (key 47): a group forgets offsets of topics that it does not read any more (KIP-496).

Behaviour (``KafkaApis.handleOffsetDeleteRequest``, ``GroupCoordinatorService.deleteOffsets``): a partition
that does not exist is UNKNOWN_TOPIC_OR_PARTITION, one of a topic that a member is subscribed to
GROUP_SUBSCRIBED_TO_TOPIC, without READ on the topic TOPIC_AUTHORIZATION_FAILED; an error of the group
(INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, GROUP_AUTHORIZATION_FAILED without DELETE) is that of
the whole, and then no partition is listed.
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import OffsetCommitResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import denied, permission
from minikafka.server.apis.shared.coordinator_requests import ask_group, check_group_id
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import TopicPartition


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body | Result]:
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
        topics = yield from _topics(codes)
        return {"error_code": ErrorCode.NONE, "throttle_time": 0, "topics": topics}

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(request.group_id)
        return shard.delete_offsets(request.group_id, tuple(known), ticket, now_ms)

    return ask_group(services, context, request.group_id, call, body)


def _topics(codes: dict[TopicPartition, ErrorCode]) -> Steps[list[dict[str, Any]]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": code})
        yield
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
