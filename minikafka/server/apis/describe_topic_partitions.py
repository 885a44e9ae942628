"""DescribeTopicPartitions (key 75): topics page by page, for clusters with very many partitions (KIP-966).

Behaviour (``DescribeTopicPartitionsRequestHandler``): topics in the order of their names, all of them when
none is named; at most ``response_partition_limit`` partitions (and at most ``PARTITIONS_MAX``) in one
answer, and where that is not all, a cursor from which the next request continues. A cursor must lie in the
topics that are asked for. Among all topics, one that was deleted since the last page is passed over; a topic
that was asked for by name gets its error. A topic without DESCRIBE is TOPIC_AUTHORIZATION_FAILED when it was
asked for by name, and else left out; neither counts for the limit.

Where it differs from Kafka: a limit below 1 counts as 1, because with none an asker would never get on.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import NOT_ASKED, authorized_operations, permission
from minikafka.server.cluster.metadata_cache import MetadataCache, PartitionMetadata
from minikafka.server.cluster.topic_validation import is_internal, validate_topic_name
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_LEADER

PARTITIONS_MAX = 2000
"""Kafka's default of ``max.request.partition.size.limit``."""

SORTED_A_STEP = 1_000
"""Names; to sort 240,000 takes 0.2 s."""


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    metadata, cursor = services.metadata, request.cursor
    asked_for_all = not request.topics
    names = yield from each(
        lambda topic: topic.name, list(metadata.topics()) if asked_for_all else request.topics
    )
    if cursor is not None:
        if cursor.partition_index < 0 or not (asked_for_all or cursor.topic_name in names):
            return (yield from _refuse(request))
        names = yield from _from_cursor_on(names, cursor.topic_name)
    listener_name = context.connection.listener_name
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    remaining = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    answers: list[dict[str, Any]] = []
    last = None
    for name in (yield from _sorted(names)):
        yield
        if name == last:
            continue
        last = name
        if describable is not None and not describable[name]:
            if not asked_for_all:
                answers.append(_denied(name))
            continue
        if remaining == 0:
            return _body(answers, next_cursor=(name, 0))
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        answer = _topic(metadata, listener_name, name, start=start, limit=remaining)
        if answer["error_code"] is ErrorCode.NONE:
            answer["topic_authorized_operations"] = authorized_operations(
                services, context, ResourceType.TOPIC, name, asked=True
            )
        answers.append(answer)
        remaining -= len(answer["partitions"])
        topic, end = metadata.topic(name), start + len(answer["partitions"])
        if topic is not None and end < len(topic.partitions):
            return _body(answers, next_cursor=(name, end))
    return _body(answers, next_cursor=None)


def _from_cursor_on(names: list[str], first: str) -> Steps[list[str]]:
    left = []
    for name in names:
        if name >= first:
            left.append(name)
        yield
    return left


def _sorted(names: list[str]) -> Steps[Iterator[str]]:
    """``names`` in order, those that come several times one after the other."""
    runs = []
    for start in range(0, len(names), SORTED_A_STEP):
        runs.append(sorted(names[start : start + SORTED_A_STEP]))
        yield
    return merge(*runs)


def _body(topics: list[dict[str, Any]], *, next_cursor: tuple[str, int] | None) -> Body:
    cursor = None
    if next_cursor is not None:
        cursor = {"topic_name": next_cursor[0], "partition_index": next_cursor[1]}
    return {"throttle_time": 0, "topics": topics, "next_cursor": cursor}


def _refuse(request: Any) -> Steps[Body]:
    """The answer has no error of its own, so each topic that was asked for carries it, as in Kafka."""
    topics = yield from each(lambda topic: _error(ErrorCode.INVALID_REQUEST, topic.name), request.topics)
    return _body(topics, next_cursor=None)


def _denied(name: str) -> dict[str, Any]:
    """Of a topic that may not be described. Whether there is one of that name is not told."""
    return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name) | {"is_internal": False}


def _error(code: ErrorCode, name: str) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": None,
        "is_internal": is_internal(name),
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED,
    }


def _topic(
    metadata: MetadataCache, listener_name: str, name: str, *, start: int, limit: int
) -> dict[str, Any]:
    topic = metadata.topic(name)
    if topic is None:
        try:
            validate_topic_name(name)
        except KafkaError as error:
            return _error(error.code, name)
        return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    return {
        "error_code": ErrorCode.NONE,
        "name": name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            _partition(metadata, listener_name, partition)
            for partition in topic.partitions[start : start + limit]
        ],
        "topic_authorized_operations": NOT_ASKED,
    }


def _partition(metadata: MetadataCache, listener_name: str, partition: PartitionMetadata) -> dict[str, Any]:
    leader = metadata.broker(partition.leader)
    if leader is None:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    elif leader.endpoint(listener_name) is None:
        code = ErrorCode.LISTENER_NOT_FOUND
    else:
        code = ErrorCode.NONE
    return {
        "error_code": code,
        "partition_index": partition.partition,
        "leader_id": partition.leader if code is ErrorCode.NONE else NO_LEADER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "eligible_leader_replicas": partition.eligible,
        "last_known_elr": [] if partition.last_known_leader == NO_LEADER else [partition.last_known_leader],
        "offline_replicas": metadata.offline_replicas(partition, listener_name=listener_name),
    }
