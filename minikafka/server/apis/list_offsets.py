"""ListOffsets (key 2): where a partition begins, ends, or reaches a time.

Behaviour (``KafkaApis.handleListOffsetRequest``, ``ReplicaManager.fetchOffset``): -2 the log start, -1 the
end that the isolation level shows, -3 the record with the largest timestamp (v7, KIP-734), -4 the local log
start (v8, KIP-405), -5 the last tiered offset (v9: nothing is tiered, so -1), otherwise the first record at
or after the time.

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
from minikafka.server import partition as places
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, TopicPartition

READ_COMMITTED = 1
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
    committed = field(request, "isolation_level", 0) == READ_COMMITTED
    isolation = FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
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
                answers.append(_answer(services, context, topic.name, partition, isolation, cached_only))
        topics.append({"name": topic.name, "partitions": answers})
    return {"throttle_time": 0, "topics": topics}


def _answer(
    services: Services,
    context: RequestContext,
    topic: str,
    wanted: Any,
    isolation: FetchIsolation,
    cached_only: bool,
) -> dict[str, Any]:
    index, timestamp_ms = wanted.partition_index, wanted.timestamp
    if timestamp_ms < 0 and (
        timestamp_ms < places.LATEST_TIERED_TIMESTAMP
        or context.api_version < FIRST_VERSION_OF_PLACE.get(timestamp_ms, 0)
    ):
        return _refusal(index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = services.replica_manager.partition(TopicPartition(topic, index))
        partition.check_leader_epoch(field(wanted, "current_leader_epoch", NO_EPOCH))
        found = partition.offset_for_timestamp(timestamp_ms, isolation=isolation, cached_only=cached_only)
    except KafkaError as error:
        return _refusal(index, error.code)
    if found is None:
        return _refusal(index, ErrorCode.NONE)
    return {
        "partition_index": index,
        "error_code": ErrorCode.NONE,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def _refusal(index: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code,
        "timestamp": NO_TIMESTAMP,
        "offset": NO_OFFSET,
        "leader_epoch": NO_EPOCH,
    }
