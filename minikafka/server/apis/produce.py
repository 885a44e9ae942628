"""Produce (key 0): append batches of records to partitions that this broker leads.

Behaviour (``KafkaApis.handleProduceRequest``, ``ReplicaManager.handleProduceAppend``): acks 0, 1 or -1,
anything else is INVALID_REQUIRED_ACKS for every partition; each partition answers for itself. acks=0 gets no
response, and an error closes the connection, because that is the only way to tell the producer. Internal
topics are their coordinators' own: INVALID_TOPIC_EXCEPTION. A topic without WRITE is
TOPIC_AUTHORIZATION_FAILED, and where there are transactional records and no WRITE on the transactional id,
every partition is TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

Transactional batches are all of one producer, or INVALID_PRODUCER_ID_MAPPING. Where the transaction has no
records yet, its coordinator is asked first (``transaction_verification``), and the batch waits; the other
partitions of the request do not. A batch that says it is transactional and names no producer is in no
transaction: INVALID_TXN_STATE; Kafka appends it, and nothing would ever end it.

With acks=-1 the answer waits until the in-sync replicas have the records (``DelayedProduce``); where the
leader is alone they have them at once. Where ``flush.messages`` makes a flush due, the answer waits for it.
In all these cases the connection serves its next requests meanwhile, and the answers keep their order.

A client beyond a quota has its records appended all the same; the answer carries the throttle time, and the
connection reads no more for so long (KIP-219), with acks=0 too. The bytes count when they come, not when the
answer leaves as in Kafka, because the requests behind this one are to wait.

While a trace session runs, ``TracedProduce`` knows which batches of a request are followed, and what happens
to them. Such a batch is checked apart from its append, so that the trace can say when it was valid; the
append then does not check it again.

Versions: 3 to 8 legacy encoding, 8 record errors (KIP-467), 9 flexible, 10 the current leader on
NOT_LEADER_OR_FOLLOWER (KIP-951), 11 TRANSACTION_ABORTABLE, 12 partitions are added to the transaction here
(KIP-890), 13 topic ids instead of names (KIP-516). Versions 0 to 2 are advertised but not served
(KAFKA-18659).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.client_quotas import QuotaType
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.log.append import AppendInfo, HeavyBatch, check_client_batch
from minikafka.log.producers.append import BY_CLIENT, AppendOrigin, AppendTerms, CheckedBatch
from minikafka.network.connection import PendingResponse, Result
from minikafka.network.responses import UnfinishedRequest
from minikafka.protocol.records.batch import (
    ATTRIBUTES_LOW_AT,
    COMPRESSION_MASK,
    BatchHeader,
    is_transactional,
    iterate_headers,
)
from minikafka.protocol.records.compression import CompressionType, CorruptBatch
from minikafka.protocol.records.records import InvalidRecords
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.fast_paths import ProducePartitionResponse
from minikafka.protocol.wire.produce_request import ZSTD_SINCE
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import denied, permission, topic_denied
from minikafka.server.apis.shared.current_leader import answer_produce
from minikafka.server.cluster.topic_validation import is_internal
from minikafka.server.coordinator.transaction_verification import (
    Transaction,
    TransactionSupportedOperation,
    Verified,
    produce_error,
)
from minikafka.server.replica.delayed_operations import DelayedProduce, UncommittedAppend
from minikafka.server.replica.partition import Partition
from minikafka.server.requests import RequestContext, client_of
from minikafka.server.services import Services
from minikafka.server.tracing.tracer import Trace, Tracer
from minikafka.steps import ELEMENTS_A_STEP, Steps, finish
from minikafka.types import Buffer, Offset, TopicPartition

FIRST_VERSION_WITH_TOPIC_IDS = 13
VALID_ACKS = (-1, 0, 1)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

ANSWERED_AT_ONCE_MAX = 256
"""Partitions whose answers are written where the last of them is there: half a millisecond."""

ADMIN_CLIENT_ID = "__admin_client"
"""``AdminUtils.ADMIN_CLIENT_ID``: only who calls itself so may produce to internal topics."""

KEYS_SHOWN_MAX = 20
"""Of a purgatory."""


def handle_produce(services: Services, context: RequestContext, request: Any) -> Steps[Result]:
    return _Produce(services, context, request).start()


class _Slot:
    """One partition of a request, and its answer."""

    __slots__ = ("answer", "heavy", "index", "records", "topic", "topic_id", "topic_partition")

    def __init__(self, topic: str, topic_id: UUID | None, index: int, records: Buffer | None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.topic_partition = TopicPartition(topic, index)
        self.records: Buffer = b"" if records is None else records  # an empty batch list has its own error
        self.answer = ProducePartitionResponse(topic, topic_id, index, 0)
        self.heavy: tuple[HeavyBatch, Verified] | None = None
        """Not appended yet: its batch has to be checked apart."""

    def refuse(self, error: KafkaError) -> None:
        self.answer = ProducePartitionResponse(
            self.topic,
            self.topic_id,
            self.index,
            error.code,
            error_message=error.message,
            record_errors=error.record_errors if isinstance(error, InvalidRecords) else (),
        )


class _Produce:
    """One request, until it is answered::

        VERIFYING   --every partition is appended or refused--> REPLICATING
        REPLICATING --all in-sync replicas have it------------> FLUSHING
        FLUSHING    --it is on the disk-----------------------> answered

    Each is left at once where there is nothing to wait for.
    """

    __slots__ = (
        "_context",
        "_pending",
        "_request",
        "_services",
        "_slots",
        "_throttle_time_ms",
        "_traced",
        "_uncommitted",
        "_unverified",
    )

    def __init__(self, services: Services, context: RequestContext, request: Any) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._slots: list[_Slot] = []
        self._uncommitted: list[tuple[_Slot, UncommittedAppend]] = []
        self._unverified = 0
        self._throttle_time_ms = 0
        self._pending: PendingResponse | None = None
        tracer = services.replica_manager.tracer
        self._traced = (
            TracedProduce(tracer, context, acks=request.acks, clock=services.clock) if tracer.is_on else None
        )

    def start(self) -> Steps[Result]:
        """The response, or the promise of one."""
        result = yield from self._begin_each()
        return result if self._traced is None else self._traced.answered(result)

    def _begin_each(self) -> Steps[Result]:
        services, by_id = self._services, self._context.header.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        for topic in self._request.topic_data:
            topic_id = topic.topic_id if by_id else None
            name = _name_of(services, topic_id) if by_id else topic.name
            for data in topic.partition_data:
                self._slots.append(_Slot(name, topic_id, data.index, data.records))
                if len(self._slots) % ELEMENTS_A_STEP == 0:
                    yield
        producers = set()
        for count, slot in enumerate(self._slots, start=1):
            header = _transactional_header(slot.records)
            if header is not None:
                producers.add((header.producer_id, header.producer_epoch))
            if count % ELEMENTS_A_STEP == 0:
                yield
        if producers and not self._may_write_transactions():
            self._unverified = 1
            for slot in self._slots:
                slot.refuse(KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
                yield
            return self._answer_begun()
        writable = permission(services, self._context, AclOperation.WRITE, ResourceType.TOPIC)
        self._unverified = 1  # until all have begun: an answer of the coordinator may come in between
        for slot in self._slots:
            if writable is not None and slot.topic and not writable[slot.topic]:
                slot.refuse(topic_denied())
            else:
                self._begin(slot, is_one_producer=len(producers) <= 1)
            if slot.heavy is not None:
                yield from self._append_heavy(slot)
            yield
        return self._answer_begun()

    def _answer_begun(self) -> Result:
        """Each partition is appended or refused, or waits for the coordinator of its transaction."""
        self._unverified -= 1
        self._throttle_time_ms = _throttle(self._services, self._context)
        if self._request.acks == 0:
            if not self._unverified:
                _close_on_error(self._slots)
            return None
        if self._unverified:
            waiting_bytes = sum(len(slot.records) for slot in self._slots)
            self._pending = PendingResponse(expected_bytes=waiting_bytes)
            return self._pending
        return self._replicate()

    def _may_write_transactions(self) -> bool:
        """Asked first, and for the whole request: without WRITE on its transactional id no
        transactional batch is written (CVE-2018-17196)."""
        if self._services.authorizer is None:
            return True
        transactional_id = self._request.transactional_id
        return (
            transactional_id is not None
            and denied(
                self._services,
                self._context,
                AclOperation.WRITE,
                ResourceType.TRANSACTIONAL_ID,
                transactional_id,
            )
            is None
        )

    # Appending

    def _begin(self, slot: _Slot, *, is_one_producer: bool) -> None:
        """Append the batch of a partition, or let it wait for the coordinator of its transaction."""
        acks = self._request.acks
        try:
            if is_internal(slot.topic) and self._context.header.client_id != ADMIN_CLIENT_ID:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {slot.topic}"
                )
            if not slot.topic:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {slot.topic_id}")
            _check_compression(slot.records, self._context.api_version)
            if acks not in VALID_ACKS:
                raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
            if not is_one_producer:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    "Transactional records contained more than one producer ID",
                )
            verified: Verified | None = Verified()
            header = _transactional_header(slot.records)
            if header is not None:
                verified = self._verify(slot, header)
        except KafkaError as error:
            self._refuse(slot, error)
            return
        if verified is None:
            self._unverified += 1
        else:
            self._append(slot, verified)

    def _verify(self, slot: _Slot, header: BatchHeader) -> Verified | None:
        """None: the coordinator is asked."""
        if header.producer_id < 0:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a transactional batch without a producer id")
        transaction = None
        if self._request.transactional_id is not None:
            transaction = Transaction(
                self._request.transactional_id, header.producer_id, header.producer_epoch, self._operation()
            )
        return self._services.transaction_verification.begin(
            transaction,
            slot.topic_partition,
            sequence=header.base_sequence,
            then=lambda verified: self._verified(slot, verified),
        )

    def _operation(self) -> TransactionSupportedOperation:
        return TransactionSupportedOperation.of_produce(self._context.header.api_version)

    def _verified(self, slot: _Slot, verified: Verified) -> None:
        """The coordinator has answered."""
        self._append(slot, verified)
        if slot.heavy is None:
            self._settled()
            return

        async def append() -> None:
            await self._services.scheduler.finished(self._append_heavy(slot))
            self._settled()

        self._services.supervisor.start("PRODUCE", append)

    def _settled(self) -> None:
        """One that had to wait is appended or refused; the last of them continues the request."""
        self._unverified -= 1
        if self._unverified:
            return
        if self._request.acks == 0:
            try:
                _close_on_error(self._slots)
            except PeerProtocolError:
                self._context.connection.close()
            return
        pending = self._pending
        assert pending is not None
        if not pending.is_waiting:
            return
        result = self._replicate()
        if not isinstance(result, PendingResponse):
            pending.complete(result)

    def _append_heavy(self, slot: _Slot) -> Steps[None]:
        """Check a batch that takes long in a thread, and append it."""
        assert slot.heavy is not None
        (heavy, verified), slot.heavy = slot.heavy, None
        try:
            checked = yield from self._services.scheduler.apart(heavy.check)
        except KafkaError as error:
            self._refuse(slot, error)
        else:
            self._append(slot, verified, checked)

    def _append(self, slot: _Slot, verified: Verified, checked: CheckedBatch | None = None) -> None:
        replicas, acks, at = self._services.replica_manager, self._request.acks, slot.topic_partition
        traced = self._traced
        try:
            if verified.error:
                raise produce_error(verified, self._operation())
            if traced is not None:
                checked = traced.before_append(replicas.partition(at), slot.records, checked)
            terms = BY_CLIENT
            if verified.guard is not None or checked is not None:
                terms = AppendTerms(AppendOrigin.CLIENT, verified.guard, checked=checked)
            info = replicas.append(at, slot.records, required_acks=acks, topic_id=slot.topic_id, terms=terms)
        except HeavyBatch as heavy:
            slot.heavy = heavy, verified
            return
        except KafkaError as error:
            if traced is not None:
                traced.refused(at, error)
            self._refuse(slot, error)
            return
        if traced is not None:
            traced.after_append(at, info)
        slot.answer = slot.answer._replace(
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time,
            log_start_offset=info.log_start_offset,
        )
        if acks == -1 and replicas.partitions[at].log.high_watermark <= info.last_offset:
            self._uncommitted.append((slot, UncommittedAppend(at, Offset(info.last_offset + 1))))

    def _refuse(self, slot: _Slot, error: KafkaError) -> None:
        stats = self._services.replica_manager.stats.of(slot.topic)
        stats.produce_requests += 1
        stats.failed_produce_requests += 1
        if error.code in _TOO_LARGE:
            stats.bytes_rejected += len(slot.records)
        slot.refuse(error)

    # Answering

    def _replicate(self) -> tuple[Buffer, ...] | PendingResponse:
        flushes = self._flushes()
        if not self._uncommitted:
            return self._flush(flushes)
        pending = self._pending
        if pending is None:
            pending = self._pending = PendingResponse()

        def replicated() -> None:
            if self._traced is not None:
                self._traced.woken(appends)
            for slot, append in self._uncommitted:
                if append.error is not None:
                    slot.refuse(append.error)
            result = self._flush(flushes)
            if not isinstance(result, PendingResponse):
                pending.complete(result)

        appends = [append for _, append in self._uncommitted]
        timeout_ms = self._request.timeout
        operation = DelayedProduce(self._services.replica_manager, appends, replicated, timeout_ms=timeout_ms)
        operation.park(pending)
        if self._traced is not None and not operation.is_completed:
            self._traced.parked(appends, timeout_ms=timeout_ms)
        return pending

    def _flushes(self) -> list[tuple[_Slot, asyncio.Future[None]]]:
        """Those that have to wait for the disk (``flush.messages``)."""
        return [
            (slot, done)
            for slot in self._slots
            if slot.answer.error_code == 0
            and (done := self._services.replica_manager.flushed(slot.topic_partition)) is not None
        ]

    def _flush(
        self, flushes: list[tuple[_Slot, asyncio.Future[None]]]
    ) -> tuple[Buffer, ...] | PendingResponse:
        if not flushes and len(self._slots) <= ANSWERED_AT_ONCE_MAX:
            return (finish(self._response()),)
        pending = self._pending
        if pending is None:
            pending = self._pending = PendingResponse()

        async def answer() -> None:
            try:
                for slot, done in flushes:
                    await done
                    try:
                        self._services.replica_manager.hosted(slot.topic_partition)
                    except KafkaError as error:  # the flush failed, and took the log directory offline
                        slot.refuse(error)
                response = await self._services.scheduler.finished(self._response())
            except BaseException:
                pending.abandon()
                raise
            pending.complete((response,))

        self._services.supervisor.start("PRODUCE", answer)
        return pending

    def _response(self) -> Steps[bytes]:
        return answer_produce(
            self._services,
            self._context.connection,
            self._context.header,
            [slot.answer for slot in self._slots],
            throttle_time_ms=self._throttle_time_ms,
        )


def _check_compression(records: Buffer, version: int) -> None:
    """Kafka's ``ProduceRequest.validateRecords``, which looks at the first batch, too.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE.
    """
    if (
        version < ZSTD_SINCE
        and len(records) > ATTRIBUTES_LOW_AT
        and records[ATTRIBUTES_LOW_AT] & COMPRESSION_MASK == CompressionType.ZSTD
    ):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )


def _transactional_header(records: Buffer) -> BatchHeader | None:
    """Of the first transactional batch; None where there is none, or nothing that can be told apart: the log
    says what is wrong with that."""
    try:
        if not records or not is_transactional(records):
            return None
        return next((header for _, header in iterate_headers(records)), None)
    except CorruptBatch:
        return None


def _throttle(services: Services, context: RequestContext) -> int:
    """Count the request for its client. Returns the throttle time, in ms; the connection is muted for it."""
    quotas = services.client_quotas
    client = client_of(quotas, context)
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


def _name_of(services: Services, topic_id: UUID | None) -> str:
    """The name of a topic, empty when the id is not known."""
    topic = services.metadata.topic_by_id(topic_id) if topic_id is not None else None
    return "" if topic is None else topic.name


def _close_on_error(slots: list[_Slot]) -> None:
    """With acks=0 no client reads an answer.

    Raises:
        PeerProtocolError: an append failed, and the connection must say so by closing.
    """
    for slot in slots:
        if slot.answer.error_code:
            raise PeerProtocolError(
                f"{slot.topic}-{slot.index} was not appended "
                f"({ErrorCode(slot.answer.error_code).name}: {slot.answer.error_message}) and acks=0 has no "
                f"answer"
            )


class TracedProduce:
    """One request. Also the observer of its response (``ResponseObserver``)."""

    __slots__ = ("_acks", "_clock", "_context", "_received_ns", "_tracer", "_traces")

    def __init__(self, tracer: Tracer, context: RequestContext, *, acks: int, clock: Clock) -> None:
        """Its handler begins now."""
        self._tracer = tracer
        self._clock = clock
        self._context = context
        self._acks = acks
        self._received_ns = context.connection.received_ns or tracer.monotonic_ns()
        self._traces: dict[TopicPartition, Trace] = {}

    def before_append(
        self, partition: Partition, records: Buffer, checked: CheckedBatch | None
    ) -> CheckedBatch | None:
        """Follow a batch, if a session wants that. Returns it as it was checked, here or before, if it was.

        Raises:
            HeavyBatch: it has to be checked in a thread.
        """
        tracer, at, log = self._tracer, partition.topic_partition, partition.log
        if not tracer.may_choose(at, log.log_end_offset):
            return checked
        if checked is None:
            now_ms = self._clock.now_ms()
            try:
                checked = check_client_batch(records, config=log.config, now_ms=now_ms, topic_partition=at)
            except KafkaError:
                checked = None  # the append finds the same, and says so
        trace = tracer.begin(
            at,
            partition.topic_id,
            records,
            first_offset=log.log_end_offset,
            received_ns=self._received_ns,
            client=self._context.header.client_id,
            peer=self._context.connection.peer,
            bytes=self._context.size_bytes,
            acks=self._acks,
        )
        if trace is not None:
            self._traces[at] = trace
            if checked is not None:
                header = checked.header
                tracer.note(trace, "validated", records=header.record_count, bytes=header.size)
        return checked

    def after_append(self, at: TopicPartition, info: AppendInfo) -> None:
        trace = self._traces.get(at)
        if trace is not None and info.duplicate:
            self._tracer.duplicate(trace, info.first_offset)

    def refused(self, at: TopicPartition, error: KafkaError) -> None:
        trace = self._traces.get(at)
        if trace is not None:
            self._tracer.refused(trace, error)

    def parked(self, appends: Sequence[UncommittedAppend], *, timeout_ms: int) -> None:
        """The request waits for the replicas."""
        keys = [str(append.topic_partition) for append in appends[:KEYS_SHOWN_MAX]]
        for append in appends:
            trace = self._traces.get(append.topic_partition)
            if trace is not None:
                self._tracer.note(
                    trace,
                    "parked",
                    purgatory="Produce",
                    keys=keys,
                    until_high_watermark=append.required_offset,
                    timeout_ms=timeout_ms,
                )

    def woken(self, appends: Sequence[UncommittedAppend]) -> None:
        """The wait is over."""
        for append in appends:
            trace = self._traces.get(append.topic_partition)
            if trace is None:
                continue
            error = append.error
            if error is None:
                by = "the high watermark"
            elif error.code is ErrorCode.REQUEST_TIMED_OUT:
                by = "the timer: its time was up"
            else:
                by = error.message or error.code.name
            self._tracer.note(trace, "woken", by=by, error=None if error is None else error.code.name)

    def answered(self, result: Result) -> Result:
        """What the handler has returned: from here on its response is observed."""
        assert not isinstance(result, UnfinishedRequest)
        if result is None:
            self._finish()
            return None
        if not isinstance(result, PendingResponse):
            if not self._traces:
                return result
            buffers, result = result, PendingResponse()
            result.complete(buffers)
            self.completed()
        result.observer = self
        return result

    def completed(self) -> None:
        """There is an answer."""
        for trace in self._traces.values():
            self._tracer.note(trace, "answered")

    def left(self) -> None:
        """All earlier answers of the connection have left: no step."""

    def sent(self) -> None:
        """The transport has it."""
        for trace in self._traces.values():
            self._tracer.note(trace, "sent", client=self._context.header.client_id)
        self._finish()

    def _finish(self) -> None:
        for trace in self._traces.values():
            self._tracer.finished(trace)
        self._traces = {}
