"""The offsets of partitions: ListOffsets, OffsetForLeaderEpoch and DeleteRecords (keys 2, 23, 21).

**The ends of partitions**, wherever they are led (``latest_offsets``). Kafka:
``NetworkPartitionMetadataClient``.

What is behind of groups is counted from there: up to the high watermark, as a consumer's ListOffsets says.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable
from functools import partial
from itertools import groupby
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.segment.fetch_data import ColdRead, FetchIsolation
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    Permission,
    is_authorized_on_cluster,
    permission,
    topic_denied,
)
from minikafka.server.cluster.broker_connection import BrokerConnection
from minikafka.server.replica import partition as places
from minikafka.server.replica.delayed_operations import DelayedDeleteRecords, PartitionDeletion
from minikafka.server.requests import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, BrokerId, LeaderEpoch, Offset, TopicPartition

READ_COMMITTED = 1
FIRST_VERSION_OF_NOT_AVAILABLE = 5
FIRST_VERSION_OF_PLACE = {
    places.MAX_TIMESTAMP: 7,
    places.EARLIEST_LOCAL_TIMESTAMP: 8,
    places.LATEST_TIERED_TIMESTAMP: 9,
    places.EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}

WARMING_ROUNDS_MAX = 20
"""A lookup by time touches an index and some headers, one cold range after the other. What is still cold
after so many was evicted again and again, and the loop reads it itself, one partition a step."""

_Answers = dict[int, dict[str, Any] | ColdRead]
"""By the place in the request."""

logger = logging.getLogger(__name__)

TIMEOUT_MS = 10_000
"""For one leader's answer."""
PARTITIONS_PER_REQUEST = 500
"""About 5 ms of the leader's loop."""
LATEST_TIMESTAMP, READ_UNCOMMITTED, CONSUMER = -1, 0, -1


class _Lookup(NamedTuple):
    """One partition of a request, where no partition of it comes twice."""

    topic: str
    wanted: Any


def handle_list_offsets(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | Coroutine[Any, Any, Body]]:
    """ListOffsets (key 2): where a partition begins, ends, or reaches a time.

    Behaviour (``KafkaApis.handleListOffsetRequest``, ``ReplicaManager.fetchOffset``): -2 the log start, -1
    the end that the isolation level shows, -3 the record with the largest timestamp (v7, KIP-734), -4 the
    local log start (v8, KIP-405), -5 the last tiered offset (v9: nothing is tiered, so -1), -6 the earliest
    that is still to be tiered (v11: none, so -1), otherwise the first record at or after the time.

    A consumer sees what is committed, and only on the leader. While the high watermark of a new leader is
    behind the start of its epoch, the end is OFFSET_NOT_AVAILABLE (KIP-207), before version 5
    LEADER_NOT_AVAILABLE. A broker (it gives its replica id) sees the log end; a debugging tool (-2) too, on
    any replica. A topic without DESCRIBE is TOPIC_AUTHORIZATION_FAILED.

    Versions: 1 one offset; 2 isolation level and throttle time; 4 leader epochs (KIP-320); 6 flexible; 10 a
    timeout for remote storage, which is not used here. A place that the version does not know is
    UNSUPPORTED_VERSION.
    """
    counts: Counter[tuple[str, int]] = Counter()
    lookups = []
    for topic in request.topics:
        for partition in topic.partitions:
            lookups.append(_Lookup(topic.name, partition))
            counts[topic.name, partition.partition_index] += 1
            yield
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    answers: _Answers = {}
    for place, (topic, wanted) in enumerate(lookups):
        if describable is not None and not describable[topic]:
            answers[place] = _refusal(wanted.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif counts[topic, wanted.partition_index] > 1:
            answers[place] = _refusal(wanted.partition_index, ErrorCode.INVALID_REQUEST)
        else:
            answers[place] = _answer(services, context, request, topic, wanted, cached_only=True)
        yield
    if any(isinstance(answer, ColdRead) for answer in answers.values()):
        return _body_when_warm(services, context, request, lookups, answers)
    return (yield from _body(request, answers))


async def _body_when_warm(
    services: Services, context: RequestContext, request: Any, lookups: list[_Lookup], answers: _Answers
) -> Body:
    for round_ in range(WARMING_ROUNDS_MAX + 1):
        cold = {place: answer for place, answer in answers.items() if isinstance(answer, ColdRead)}
        if not cold:
            break
        await services.log_io.all_warmed(cold.values())
        is_last = round_ == WARMING_ROUNDS_MAX

        def again(place: int, *, cached_only: bool = not is_last) -> None:
            topic, wanted = lookups[place]
            answers[place] = _answer(services, context, request, topic, wanted, cached_only=cached_only)

        await services.scheduler.finished(each(again, cold))
    return await services.scheduler.finished(_body(request, answers))


def _body(request: Any, answers: _Answers) -> Steps[Body]:
    in_order = iter(answers.values())
    topics = []
    for topic in request.topics:
        partitions = yield from each(lambda _: next(in_order), topic.partitions)
        topics.append({"name": topic.name, "partitions": partitions})
    return {"throttle_time": 0, "topics": topics}


def _answer(
    services: Services,
    context: RequestContext,
    request: Any,
    topic: str,
    wanted: Any,
    *,
    cached_only: bool,
) -> dict[str, Any] | ColdRead:
    """The answer, or what has to be read from the disk first."""
    index, timestamp_ms = wanted.partition_index, wanted.timestamp
    if timestamp_ms < 0 and (
        timestamp_ms < places.EARLIEST_PENDING_UPLOAD_TIMESTAMP
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
    except ColdRead as cold:
        return cold
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


def handle_offset_for_leader_epoch(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    # CLUSTER_ACTION is what followers have; consumers ask as well since KIP-320.
    """OffsetForLeaderEpoch (key 23): where a leader epoch ended, so that a reader can find where its history
    parts.

    Behaviour (KIP-101, KIP-279, KIP-320; ``ReplicaManager.lastOffsetForLeaderEpoch``): the end offset of the
    largest epoch at most the one asked for; the log end for the current epoch; -1 and -1 where nothing is
    known. Only the leader answers, consumers and followers alike. It needs CLUSTER_ACTION on the cluster, or
    DESCRIBE on the topic (TOPIC_AUTHORIZATION_FAILED).

    Versions: 2 the current leader epoch in the request, throttle time; 3 a replica id, which changes nothing;
    4 flexible.
    """
    describable = None
    if not is_authorized_on_cluster(services, context, AclOperation.CLUSTER_ACTION, logs_denied=False):
        describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    topics = []
    for topic in request.topics:
        partitions = yield from each(
            partial(_end_of_epoch, services, describable, topic.topic), topic.partitions
        )
        topics.append({"topic": topic.topic, "partitions": partitions})
        yield
    return {"throttle_time": 0, "topics": topics}


def _end_of_epoch(
    services: Services, describable: Permission | None, topic: str, wanted: Any
) -> dict[str, Any]:
    answer = {"partition": wanted.partition, "error_code": ErrorCode.NONE}
    try:
        if describable is not None and not describable[topic]:
            raise topic_denied()
        partition = services.replica_manager.hosted(TopicPartition(topic, wanted.partition))
        partition.check_leader(field(wanted, "current_leader_epoch", NO_EPOCH))
        end = partition.epoch_end_offset(LeaderEpoch(wanted.leader_epoch))
    except KafkaError as error:
        return answer | {"error_code": error.code, "leader_epoch": NO_EPOCH, "end_offset": NO_OFFSET}
    return answer | {"leader_epoch": end.epoch, "end_offset": end.end_offset}


def handle_delete_records(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | Coroutine[Any, Any, Body]]:
    """DeleteRecords (key 21): raise the log start offset of partitions (KIP-107).

    Behaviour (``ReplicaManager.deleteRecords``): -1 stands for the high watermark; OFFSET_OUT_OF_RANGE above
    it; POLICY_VIOLATION where the topic is only compacted; TOPIC_AUTHORIZATION_FAILED without DELETE on it.
    Answers the new low watermark when all live replicas have deleted, or REQUEST_TIMED_OUT
    (``DelayedDeleteRecords``). The answer does not wait for the disk: as in Kafka, the checkpoint of log
    start offsets follows, and until then a crash may bring records back.

    Versions: 0 to 2; 2 is flexible.
    """
    replicas = services.replica_manager
    deletable = permission(services, context, AclOperation.DELETE, ResourceType.TOPIC)
    topics = []
    for topic in request.topics:
        deletions = []
        for wanted in topic.partitions:
            deletion = PartitionDeletion(TopicPartition(topic.name, wanted.partition_index))
            if deletable is not None and not deletable[topic.name]:
                deletion.settle(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            else:
                deletion.begin(replicas, Offset(wanted.offset))
            deletions.append(deletion)
            yield
        topics.append((topic.name, deletions))
    waiting = []
    for _, group in topics:
        for deletion in group:
            if not deletion.try_settle(replicas):
                waiting.append(deletion)
            yield
    if not waiting:
        return _delete_records_body(topics)
    operation = DelayedDeleteRecords(replicas, waiting, timeout_ms=request.timeout)
    operation.park()

    async def answer() -> Body:
        await operation.done
        return _delete_records_body(topics)

    return answer()


def _delete_records_body(topics: Iterable[tuple[str, list[PartitionDeletion]]]) -> Body:
    return {
        "throttle_time": 0,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": deletion.topic_partition.partition,
                        "low_watermark": deletion.low_watermark,
                        "error_code": deletion.error,
                    }
                    for deletion in deletions
                ],
            }
            for name, deletions in topics
        ],
    }


async def latest_offsets(
    services: Services, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """High watermarks; without those whose leader is gone or has not answered."""
    found: dict[TopicPartition, Offset] = {}
    by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for topic_partition in sorted(set(wanted)):
        told = services.metadata.partition(topic_partition)
        if told is None:
            continue
        partition = services.replica_manager.partitions.get(topic_partition)
        if partition is not None and partition.is_leader:
            found[topic_partition] = partition.log.high_watermark
        elif services.metadata.is_alive(told.leader):
            by_leader[told.leader].append(topic_partition)
    for answer in await asyncio.gather(
        *(ask_leader(services, leader, asked) for leader, asked in by_leader.items())
    ):
        found |= answer
    return found


async def ask_leader(
    services: Services, leader: BrokerId, asked: list[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """The high watermarks that ``leader`` tells of its partitions; without those that it does not know, or
    when it does not answer."""
    connection = BrokerConnection(
        name=f"broker {leader}",
        client_id=f"broker-{services.node_id}-lag",
        timeout_ms=TIMEOUT_MS,
        connect=services.connect,
    )
    broker = services.metadata.broker(leader)
    address = None if broker is None else broker.endpoint(services.config.inter_broker_listener())
    found: dict[TopicPartition, Offset] = {}
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            for first in range(0, len(asked), PARTITIONS_PER_REQUEST):
                body = _request(asked[first : first + PARTITIONS_PER_REQUEST])
                answer = await connection.request(address, ApiKey.LIST_OFFSETS, body)
                found |= {
                    TopicPartition(topic.name, each.partition_index): Offset(each.offset)
                    for topic in answer.topics
                    for each in topic.partitions
                    if each.error_code == ErrorCode.NONE
                }
    except (BrokerUnavailable, KafkaError, TimeoutError) as error:
        reason = error if str(error) else f"it does not answer within {TIMEOUT_MS} ms"
        logger.info("the lag of groups in partitions of broker %d is not known: %s", leader, reason)
    finally:
        await connection.close()
    return found


def _request(asked: list[TopicPartition]) -> dict[str, object]:
    return {
        "replica_id": CONSUMER,
        "isolation_level": READ_UNCOMMITTED,
        "timeout": TIMEOUT_MS,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "current_leader_epoch": NO_EPOCH,
                        "timestamp": LATEST_TIMESTAMP,
                    }
                    for each in partitions
                ],
            }
            for topic, partitions in groupby(asked, key=lambda each: each.topic)
        ],
    }
