"""A Produce request while a trace session runs: which of its batches are followed, and what happens to them.

Where a batch is followed it is checked apart from its append, so that the trace can say when it was valid;
the append then does not check it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.append import AppendInfo, check_client_batch
from minikafka.log.producers.append import CheckedBatch
from minikafka.network.connection import PendingResponse, Result
from minikafka.network.responses import UnfinishedRequest
from minikafka.server.replica.delayed_operations import UncommittedAppend
from minikafka.server.replica.partition import Partition
from minikafka.server.requests import RequestContext
from minikafka.server.tracing.tracer import Trace, Tracer
from minikafka.types import Buffer, TopicPartition

KEYS_SHOWN_MAX = 20
"""Of a purgatory."""


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
