"""Spans to a collector, Jaeger or Tempo: OTLP over HTTP, in batches, off the hot path.

What makes a span puts it into a queue and goes on. One task takes what is there, at most ``BATCH_SPANS``
at a time, and has OpenTelemetry's own exporter send it from a thread. While the collector is away or slow the
queue fills; what does not fit is dropped and counted, and so is a batch that the collector has not taken
after ``TIMEOUT_S``, with the exporter's own attempts.

OpenTelemetry is the extra ``otel``. It is imported when ``trace.otlp.endpoint`` is set, else never.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from minikafka import __version__
from minikafka.errors import ConfigError
from minikafka.server.tracing.spans import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

QUEUED_SPANS_MAX: Final = 2048
"""As OpenTelemetry's batch span processor has it: some 4 MB."""
BATCH_SPANS: Final = 512
LINGER_S: Final = 0.2
"""After the first span, so that those of one produce go together."""
TIMEOUT_S: Final = 5
PAUSE_S: Final = 1.0
"""After a batch that was not taken."""

SERVICE_NAME: Final = "minikafka"

logger = logging.getLogger(__name__)


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
