"""The spans of a batch: their ids, which all brokers make alike, the spans, and the way to a collector.

**Ids.** An application that traces puts ``traceparent`` (W3C trace context, https://www.w3.org/TR/trace-context/)
into the headers of its records. Where the first records of a batch have none, the trace id is made from the
place of the batch. So are the ids of spans: the leader, its followers and who serves a consumer give the same
batch the same ids, and tell each other nothing.

**Spans**, without OpenTelemetry:

======================  ======================================  ======================================
span                    of                                      parent
======================  ======================================  ======================================
produce T               the leader, from the socket to the      the application's, by ``traceparent``;
                        answer; its events are the steps        else it is the root
append T-P              the leader: validated to appended       produce T
wait in purgatory       the leader: parked to woken             produce T
replicate T-P to N      the leader: in an answer to the         produce T
                        follower, until it fetches behind it
append T-P              a follower                              produce T
fetch T                 who serves a consumer                   produce T
======================  ======================================  ======================================

Names of attributes are those of OpenTelemetry's semantic conventions (messaging, errors) where there is one,
else they begin with ``minikafka.``. A span never ends when it begins: Jaeger takes that for a broken clock,
and warns of it. What is known as a moment, a follower's append and a consumer's fetch, lasts ``MOMENT_NS``.

**To a collector**, Jaeger or Tempo: OTLP over HTTP, in batches, off the hot path. What makes a span puts it
into the queue of an ``OtlpExporter`` and goes on. One task takes what is there, at most ``BATCH_SPANS`` at a
time, and has OpenTelemetry's own exporter send it from a thread. While the collector is away or slow the
queue fills; what does not fit is dropped and counted, and so is a batch that the collector has not taken
after ``TIMEOUT_S``, with the exporter's own attempts. OpenTelemetry is the extra ``otel``: it is imported
when ``trace.otlp.endpoint`` is set, else never.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import socket
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from minikafka import __version__
from minikafka.errors import ConfigError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import BatchHeader
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import parse_records, plain_batch
from minikafka.types import Buffer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from minikafka.server.tracing.tracer import Step, Trace

logger = logging.getLogger(__name__)

HEADER_NAME: Final = "traceparent"

SEARCHED_BYTES_MAX: Final = 64 * 1024
"""A larger batch, compressed or not, is not searched for headers: what it takes is the loop's time."""
SEARCHED_PLAIN_BYTES_MAX: Final = 1 << 20
SEARCHED_RECORDS_MAX: Final = 16

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1

Value = str | int | bool

MOMENT_NS: Final = 1

QUEUED_SPANS_MAX: Final = 2048
"""As OpenTelemetry's batch span processor has it: some 4 MB."""
BATCH_SPANS: Final = 512
LINGER_S: Final = 0.2
"""After the first span, so that those of one produce go together."""
TIMEOUT_S: Final = 5
PAUSE_S: Final = 1.0
"""After a batch that was not taken."""

SERVICE_NAME: Final = "minikafka"


class TraceContext(NamedTuple):
    """The trace that a batch belongs to."""

    trace_id: str
    """32 hexadecimal digits."""
    parent_span_id: str | None = None
    """16 digits: the application's span; None where the batch begins the trace."""
    is_sampled: bool = True
    """False: the application has decided that nothing of this trace is exported."""


def parse_traceparent(text: str) -> TraceContext | None:
    """None where ``text`` is none, and a trace starts over (section 3.2 of the recommendation)."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, is_sampled=bool(int(flags, 16) & _SAMPLED))


def find_trace_context(batch: Buffer, header: BatchHeader) -> TraceContext | None:
    """That of the first record with one, among the first of the batch. None also for a batch that is damaged,
    or too long to be searched here."""
    if header.is_control or header.size > SEARCHED_BYTES_MAX:
        return None
    try:
        plain = plain_batch(batch, header, SEARCHED_PLAIN_BYTES_MAX)
        for record in islice(parse_records(plain, header), SEARCHED_RECORDS_MAX):
            for name, value in record.headers:
                if name == HEADER_NAME and value is not None:
                    context = parse_traceparent(bytes(value).decode("ascii", "replace"))
                    if context is not None:
                        return context
    except CorruptBatch:
        return None
    return None


def new_trace_context(topic_id: UUID, partition: int, first_offset: int) -> TraceContext:
    """For a batch whose application does not trace."""
    return TraceContext(_digest(f"{topic_id}/{partition}/{first_offset}", size=16))


def span_id(trace_id: str, *parts: object) -> str:
    """The id of the span that ``parts`` name, the same on each broker that asks."""
    return _digest("/".join((trace_id, *map(str, parts))), size=8)


def _digest(text: str, *, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


class Span(NamedTuple):
    """One span, and what was known of it when it ended."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    is_server: bool = False
    """Of a request; else it is internal."""
    events: tuple[tuple[str, int, Mapping[str, Value]], ...] = ()
    error: str | None = None


def of_produce(trace: Trace, node_id: int) -> list[Span]:
    """The leader's, when the request is over."""
    if not trace.steps:
        return []
    at: dict[str, Step] = {}
    for step in trace.steps:
        at.setdefault(step.name, step)
    refused = at.get("refused")
    woken = at.get("woken")
    error = None if refused is None else refused.detail.get("error")
    if error is None and woken is not None:
        error = woken.detail.get("error")
    topic, partition = trace.topic_partition
    attributes = _attributes(trace, node_id, "produce") | {"messaging.operation.type": "send"}
    if error is not None:
        attributes["error.type"] = str(error)
    received = trace.steps[0].detail
    attributes |= {
        name: received[key]
        for name, key in (("messaging.client.id", "client"), ("minikafka.acks", "acks"))
        if received.get(key) is not None
    }
    begin_ns, end_ns = trace.steps[0].at_ns, trace.steps[-1].at_ns
    spans = [
        Span(
            trace.context.trace_id,
            produce_span_id(trace),
            trace.context.parent_span_id,
            f"produce {topic}",
            begin_ns,
            max(end_ns, begin_ns + MOMENT_NS),
            attributes,
            is_server=True,
            events=tuple((step.name, step.at_ns, _flat(step.detail)) for step in trace.steps),
            error=error,
        )
    ]
    for operation, name, first, last in (
        ("append", f"append {topic}-{partition}", "validated", "appended"),
        ("wait", "wait in purgatory", "parked", "woken"),
    ):
        if first in at and last in at:
            detail = _flat(at[first].detail | at[last].detail)
            spans.append(_below(trace, node_id, operation, name, at[first].at_ns, at[last].at_ns, **detail))
    return spans


def of_replication(trace: Trace, node_id: int, replica_id: int, since_ns: int, until_ns: int) -> Span:
    """The leader's, of one follower."""
    topic, partition = trace.topic_partition
    name = f"replicate {topic}-{partition} to broker {replica_id}"
    return _below(trace, node_id, "replicate", name, since_ns, until_ns, replica=replica_id)


def of_follower_append(trace: Trace, node_id: int) -> Span:
    topic, partition = trace.topic_partition
    step = trace.steps[-1]
    name = f"append {topic}-{partition}"
    return _below(trace, node_id, "append", name, step.at_ns, step.at_ns, **step.detail)


def of_consumer_fetch(trace: Trace, node_id: int, client_id: str) -> Span:
    now_ns = trace.steps[-1].at_ns
    name = f"fetch {trace.topic_partition.topic}"
    ordinal = sum(step.name == "consumed" for step in trace.steps) + trace.dropped_steps
    made = _below(trace, node_id, "fetch", name, now_ns, now_ns, ordinal=ordinal)
    of_reader = {"messaging.operation.type": "receive", "messaging.client.id": client_id}
    return made._replace(attributes={**made.attributes, **of_reader})


def produce_span_id(trace: Trace) -> str:
    """The parent of all others of the batch, on whichever broker they are made."""
    return span_id(trace.context.trace_id, *trace.topic_partition, trace.first_offset, "produce")


def _below(
    trace: Trace, node_id: int, operation: str, name: str, start_ns: int, end_ns: int, **detail: Any
) -> Span:
    trace_id = trace.context.trace_id
    return Span(
        trace_id,
        span_id(
            trace_id, *trace.topic_partition, trace.first_offset, node_id, name, detail.get("ordinal", 0)
        ),
        produce_span_id(trace),
        name,
        start_ns,
        max(end_ns, start_ns + MOMENT_NS),
        _attributes(trace, node_id, operation)
        | {f"minikafka.{key}": value for key, value in _flat(detail).items()},
    )


def _attributes(trace: Trace, node_id: int, operation: str) -> dict[str, Value]:
    topic, partition = trace.topic_partition
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(partition),
        "messaging.kafka.offset": trace.first_offset,
        "messaging.batch.message_count": trace.last_offset - trace.first_offset + 1,
        "minikafka.broker": node_id,
    }


def _flat(detail: Mapping[str, Any]) -> dict[str, Value]:
    """As attributes can be: no None, no lists."""
    return {
        key: value if isinstance(value, str | int | bool) else ", ".join(map(str, value))
        for key, value in detail.items()
        if value is not None
    }


class OtlpExporter:
    """A broker's. ``run`` is its task."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], *, node_id: int, cluster_id: str) -> None:
        """Raises ConfigError: the extra is not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError:
            raise ConfigError(
                "trace.otlp.endpoint needs OpenTelemetry: install minikafka[otel] where the broker runs"
            ) from None
        # The exporter logs each failure; we say when it begins and when it ends.
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
        self.exported = 0
        """Spans that the collector has taken."""
        self.dropped = 0
        """Spans that it has not, or that there was no room for."""
        self._endpoint = endpoint
        self._exporter = OTLPSpanExporter(endpoint=endpoint, headers=dict(headers), timeout=TIMEOUT_S)
        # By the host Jaeger 2 tells spans whose clocks may differ, and may be moved, from those of one clock.
        self._resource = Resource(
            {
                "service.name": SERVICE_NAME,
                "service.version": __version__,
                "service.instance.id": f"{cluster_id}/{node_id}",
                "host.name": socket.gethostname(),
            }
        )
        self._queue: deque[Span] = deque()
        self._filled = asyncio.Event()
        self._is_away = False

    def __repr__(self) -> str:
        return f"OtlpExporter({self._endpoint}, {len(self._queue)} queued, {self.dropped} dropped)"

    def add(self, spans: Iterable[Span]) -> None:
        """Queue them, as far as there is room."""
        for span in spans:
            if len(self._queue) < QUEUED_SPANS_MAX:
                self._queue.append(span)
            else:
                self.dropped += 1
        self._filled.set()

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            while True:
                await self._filled.wait()
                await asyncio.sleep(LINGER_S)
                self._filled.clear()
                while self._queue:
                    batch = [self._queue.popleft() for _ in range(min(BATCH_SPANS, len(self._queue)))]
                    await self._send(batch)
        finally:
            self._exporter.shutdown()  # type: ignore[no-untyped-call]  # a thread in it ends its attempts

    async def _send(self, batch: Sequence[Span]) -> None:
        if await asyncio.to_thread(self._export, batch):
            self.exported += len(batch)
            if self._is_away:
                self._is_away = False
                logger.info("%s takes spans again; %d were dropped", self._endpoint, self.dropped)
            return
        self.dropped += len(batch)
        if not self._is_away:
            self._is_away = True
            logger.warning("%s does not take spans: they are dropped until it does", self._endpoint)
        await asyncio.sleep(PAUSE_S)

    def _export(self, batch: Sequence[Span]) -> bool:
        """In a thread. Whether the collector has taken it."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            made = [_readable(span, self._resource) for span in batch]
            return self._exporter.export(made) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - of a library; what it cannot send is dropped
            logger.warning("spans could not be exported: %r", error)
            return False


def _readable(span: Span, resource: Any) -> ReadableSpan:
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    trace_id, flags = int(span.trace_id, 16), TraceFlags(TraceFlags.SAMPLED)
    parent = None
    if span.parent_span_id is not None:
        parent = SpanContext(trace_id, int(span.parent_span_id, 16), is_remote=True, trace_flags=flags)
    return ReadableSpan(
        name=span.name,
        context=SpanContext(trace_id, int(span.span_id, 16), is_remote=False, trace_flags=flags),
        parent=parent,
        resource=resource,
        attributes=dict(span.attributes),
        events=[Event(name, attributes=dict(detail), timestamp=at_ns) for name, at_ns, detail in span.events],
        kind=SpanKind.SERVER if span.is_server else SpanKind.INTERNAL,
        status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR, span.error),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=InstrumentationScope("minikafka", __version__),
    )
