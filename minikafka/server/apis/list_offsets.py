"""ListOffsets (key 2): where a partition begins, ends, or reaches a time.

Behaviour (``KafkaApis.handleListOffsetRequest``, ``ReplicaManager.fetchOffset``): -2 the log start, -1 the
end that the isolation level shows, -3 the record with the largest timestamp (v7, KIP-734), -4 the local log
start (v8, KIP-405), -5 the last tiered offset (v9: nothing is tiered, so -1), otherwise the first record at
or after the time.

A consumer sees what is committed, and only on the leader. While the high watermark of a new leader is behind
the start of its epoch, the end is OFFSET_NOT_AVAILABLE (KIP-207), before version 5 LEADER_NOT_AVAILABLE. A
broker (it gives its replica id) sees the log end; a debugging tool (-2) too, on any replica.

Versions: 1 one offset; 2 isolation level and throttle time; 4 leader epochs (KIP-320); 6 flexible; 10 a
timeout for remote storage, which is not used here. A place that the version does not know is
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.fetch_data import ColdRead, FetchIsolation
from minikafka.protocol.codec import Body, field
from minikafka.server import partition_offsets as places
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, TopicPartition

READ_COMMITTED = 1
FIRST_VERSION_OF_NOT_AVAILABLE = 5
FIRST_VERSION_OF_PLACE = {
    places.MAX_TIMESTAMP: 7,
    places.EARLIEST_LOCAL_TIMESTAMP: 8,
    places.LATEST_TIERED_TIMESTAMP: 9,
}


WARMING_ROUNDS_MAX = 20
"""Ranges that the disk thread reads for one request; what is still cold then, the loop reads itself."""


def handle(services: Services, context: RequestContext, request: Any) -> Body | Coroutine[Any, Any, Body]:
    try:
        return _body(services, context, request, cached_only=True)
    except ColdRead as cold:
        return _body_when_warm(services, context, request, cold)


async def _body_when_warm(services: Services, context: RequestContext, request: Any, cold: ColdRead) -> Body:
    for _ in range(WARMING_ROUNDS_MAX):
        await services.log_io.warmed(cold)
        try:
            return _body(services, context, request, cached_only=True)
        except ColdRead as another:
            cold = another
    return _body(services, context, request, cached_only=False)


def _body(services: Services, context: RequestContext, request: Any, *, cached_only: bool) -> Body:
    asked = [
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    duplicates = {pair for pair in asked if asked.count(pair) > 1} if len(set(asked)) < len(asked) else set()
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            if (topic.name, partition.partition_index) in duplicates:
                answers.append(_refusal(partition.partition_index, ErrorCode.INVALID_REQUEST))
            else:
                answers.append(_answer(services, context, request, topic.name, partition, cached_only))
        topics.append({"name": topic.name, "partitions": answers})
    return {"throttle_time": 0, "topics": topics}


def _answer(
    services: Services,
    context: RequestContext,
    request: Any,
    topic: str,
    wanted: Any,
    cached_only: bool,
) -> dict[str, Any]:
    index, timestamp_ms = wanted.partition_index, wanted.timestamp
    if timestamp_ms < 0 and (
        timestamp_ms < places.LATEST_TIERED_TIMESTAMP
        or context.api_version < FIRST_VERSION_OF_PLACE.get(timestamp_ms, 0)
    ):
        return _refusal(index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = services.replica_manager.hosted(TopicPartition(topic, index))
        current_leader_epoch = field(wanted, "current_leader_epoch", NO_EPOCH)
        if request.replica_id == places.DEBUGGING_REPLICA_ID:
            partition.check_leader_epoch(current_leader_epoch)
        else:
            partition.check_leader(current_leader_epoch)
        found = partition.offset_for_timestamp(
            timestamp_ms, isolation=_isolation(request), cached_only=cached_only
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < FIRST_VERSION_OF_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _refusal(index, code)
    if found is None:
        return _refusal(index, ErrorCode.NONE)
    return {
        "partition_index": index,
        "error_code": ErrorCode.NONE,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def _isolation(request: Any) -> FetchIsolation:
    if request.replica_id != places.CONSUMER_REPLICA_ID:
        return FetchIsolation.LOG_END
    committed = field(request, "isolation_level", 0) == READ_COMMITTED
    return FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK


def _refusal(index: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code,
        "timestamp": NO_TIMESTAMP,
        "offset": NO_OFFSET,
        "leader_epoch": NO_EPOCH,
    }
