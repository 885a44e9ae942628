"""Produce (key 0): append batches of records to partitions that this broker leads.

Behaviour (``KafkaApis.handleProduceRequest``, ``ReplicaManager.appendRecords``): acks 0, 1 or -1, anything
else is INVALID_REQUIRED_ACKS for every partition; each partition answers for itself. acks=0 gets no
response, and an error closes the connection, because that is the only way to tell the producer. A
transactional batch needs a transaction that a coordinator has begun; there is none, so INVALID_TXN_STATE.
Internal topics are their coordinators' own: INVALID_TOPIC_EXCEPTION.

With acks=-1 the answer waits until the in-sync replicas have the records (``DelayedProduce``); where the
leader is alone they have them at once. Where ``flush.messages`` makes a flush due, the answer waits for it.
In both cases the connection goes on with its next requests meanwhile, and the answers keep their order.

A client beyond a quota has its records appended all the same; the answer carries the throttle time, and the
connection reads no more for so long (KIP-219), with acks=0 too. The bytes count when they come, not when the
answer leaves as in Kafka, because the requests behind this one are to wait.

Versions: 3 to 8 legacy encoding, 8 record errors (KIP-467), 9 flexible, 10 the current leader on
NOT_LEADER_OR_FOLLOWER (KIP-951), 13 topic ids instead of names (KIP-516). Versions 0 to 2 are advertised
but not served (KAFKA-18659).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from minikafka.config.client_quotas import QuotaType
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.network.connection import PendingResponse, Result
from minikafka.protocol.api_versions import ApiKey
from minikafka.protocol.batch import is_transactional
from minikafka.protocol.fast_paths import ProducePartitionResponse
from minikafka.protocol.record_parser import InvalidRecords
from minikafka.server.current_leader import answer_produce
from minikafka.server.delayed_produce import DelayedProduce, UncommittedAppend
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.server.topic_validation import is_internal
from minikafka.types import Buffer, Offset, TopicPartition

FIRST_VERSION_WITH_TOPIC_IDS = 13
VALID_ACKS = (-1, 0, 1)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

ADMIN_CLIENT_ID = "__admin_client"
"""``AdminUtils.ADMIN_CLIENT_ID``: only who calls itself so may produce to internal topics."""


def handle(services: Services, context: RequestContext, request: Any) -> Result:
    by_id = context.header.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    acks = request.acks
    answers: list[ProducePartitionResponse] = []
    uncommitted: list[tuple[int, UncommittedAppend]] = []
    for topic in request.topic_data:
        topic_id = topic.topic_id if by_id else None
        name = _name_of(services, topic_id) if by_id else topic.name
        for data in topic.partition_data:
            answer, append = _append(
                services,
                name,
                topic_id,
                data.index,
                data.records,
                acks,
                may_write_internal_topics=context.header.client_id == ADMIN_CLIENT_ID,
            )
            if append is not None:
                uncommitted.append((len(answers), append))
            answers.append(answer)
    flushes = _flushes(services, answers)
    throttle_time_ms = _throttle(services, context)
    if acks == 0:
        _close_on_error(answers)
        return None
    if not uncommitted and not flushes:
        return (_response(services, context, answers, throttle_time_ms),)
    pending = PendingResponse()

    def respond() -> bytes:
        return _response(services, context, answers, throttle_time_ms)

    def replicated() -> None:
        for index, append in uncommitted:
            if append.error is not None:
                answers[index] = _refused(answers[index], append.error)
        if flushes:
            _answer_when_flushed(services, answers, flushes, pending, respond)
        else:
            pending.complete((respond(),))

    if uncommitted:
        appends = [append for _, append in uncommitted]
        DelayedProduce(services.replica_manager, appends, replicated, timeout_ms=request.timeout).park(
            pending
        )
    else:
        replicated()
    return pending


def _throttle(services: Services, context: RequestContext) -> int:
    """Count the request for its client. Returns the throttle time, in ms; the connection is muted for it."""
    quotas = services.client_quotas
    client = quotas.client(context.header.client_id)
    client.produced_bytes += context.size_bytes
    if not client.is_limited:
        return 0
    sensor = client.sensors.get(QuotaType.PRODUCE)
    bandwidth = None if sensor is None else sensor.record(context.size_bytes, quotas.clock)
    time = None if context.handler_time is None else context.handler_time.record()
    throttle_time_ms = quotas.slow_down(context.connection, client, bandwidth, time)
    if throttle_time_ms:
        services.request_metrics.of(ApiKey.PRODUCE).note_throttle(throttle_time_ms)
    return throttle_time_ms


def _response(
    services: Services,
    context: RequestContext,
    answers: list[ProducePartitionResponse],
    throttle_time_ms: int,
) -> bytes:
    return answer_produce(
        services,
        context.header,
        answers,
        listener_name=context.connection.listener_name,
        throttle_time_ms=throttle_time_ms,
    )


def _refused(answer: ProducePartitionResponse, error: KafkaError) -> ProducePartitionResponse:
    return ProducePartitionResponse(
        answer.topic, answer.topic_id, answer.index, error.code, error_message=error.message
    )


def _flushes(
    services: Services, answers: list[ProducePartitionResponse]
) -> list[tuple[int, asyncio.Future[None]]]:
    """The answers, by index, that have to wait for the disk (``flush.messages``)."""
    return [
        (index, done)
        for index, answer in enumerate(answers)
        if answer.error_code == 0
        and (done := services.replica_manager.flushed(TopicPartition(answer.topic, answer.index))) is not None
    ]


def _answer_when_flushed(
    services: Services,
    answers: list[ProducePartitionResponse],
    flushes: list[tuple[int, asyncio.Future[None]]],
    pending: PendingResponse,
    respond: Callable[[], bytes],
) -> None:
    async def answer() -> None:
        try:
            for index, done in flushes:
                await done
                appended = answers[index]
                try:
                    services.replica_manager.hosted(TopicPartition(appended.topic, appended.index))
                except KafkaError as error:  # the flush failed, and took the log directory offline
                    answers[index] = _refused(appended, error)
            response = respond()
        except BaseException:
            pending.abandon()
            raise
        pending.complete((response,))

    services.supervisor.start("PRODUCE", answer)


def _append(
    services: Services,
    topic: str,
    topic_id: UUID | None,
    index: int,
    records: Buffer | None,
    acks: int,
    *,
    may_write_internal_topics: bool,
) -> tuple[ProducePartitionResponse, UncommittedAppend | None]:
    """The answer for one partition, and what it has to wait for."""
    try:
        if is_internal(topic) and not may_write_internal_topics:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
        if not topic:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        if acks not in VALID_ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
        if records is None:
            records = b""  # an empty batch list has its own error
        elif is_transactional(records):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction was begun: this broker has none")
        topic_partition = TopicPartition(topic, index)
        replicas = services.replica_manager
        info = replicas.append(topic_partition, records, required_acks=acks)
    except KafkaError as error:
        _count_failure(services, topic, records, error)
        return ProducePartitionResponse(
            topic,
            topic_id,
            index,
            error.code,
            error_message=error.message,
            record_errors=error.record_errors if isinstance(error, InvalidRecords) else (),
        ), None
    answer = ProducePartitionResponse(
        topic, topic_id, index, 0, info.first_offset, info.log_append_time, info.log_start_offset
    )
    if acks != -1 or replicas.partitions[topic_partition].log.high_watermark > info.last_offset:
        return answer, None
    return answer, UncommittedAppend(topic_partition, Offset(info.last_offset + 1))


def _count_failure(services: Services, topic: str, records: Buffer | None, error: KafkaError) -> None:
    stats = services.replica_manager.stats.of(topic)
    stats.produce_requests += 1
    stats.failed_produce_requests += 1
    if error.code in _TOO_LARGE:
        stats.bytes_rejected += len(records or b"")


def _name_of(services: Services, topic_id: UUID | None) -> str:
    """The name of a topic, empty when the id is not known."""
    topic = services.metadata.topic_by_id(topic_id) if topic_id is not None else None
    return "" if topic is None else topic.name


def _close_on_error(answers: list[ProducePartitionResponse]) -> None:
    """With acks=0 nobody reads an answer.

    Raises:
        PeerProtocolError: an append failed, and the connection must say so by closing.
    """
    for answer in answers:
        if answer.error_code:
            raise PeerProtocolError(
                f"{answer.topic}-{answer.index} was not appended "
                f"({ErrorCode(answer.error_code).name}: {answer.error_message}) and acks=0 has no answer"
            )
