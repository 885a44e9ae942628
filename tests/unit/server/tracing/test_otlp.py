"""Spans on their way to a collector that is there, or is not (``server.tracing.spans``)."""

from __future__ import annotations

import asyncio
import builtins
import logging
import socket
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode

from minikafka.errors import ConfigError
from minikafka.server.tracing import spans
from minikafka.server.tracing.spans import OtlpExporter, Span
from tests.unit.server.tracing.batches import EPOCH_NS, PARENT, TRACE_ID

PRODUCE = Span(
    TRACE_ID,
    "1" * 16,
    PARENT,
    "produce orders",
    EPOCH_NS,
    EPOCH_NS + 5,
    {"messaging.system": "kafka"},
    is_server=True,
    events=(("received", EPOCH_NS, {"client": "shop"}),),
    error="REQUEST_TIMED_OUT",
)


class Library:
    """In the place of OpenTelemetry's exporter."""

    def __init__(self, *results: SpanExportResult) -> None:
        self.results = list(results)
        self.batches: list[list[ReadableSpan]] = []
        self.is_shut_down = False

    def export(self, spans: list[ReadableSpan]) -> SpanExportResult:
        self.batches.append(spans)
        return self.results.pop(0) if self.results else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.is_shut_down = True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "LINGER_S", 0)
    monkeypatch.setattr(spans, "PAUSE_S", 0)


def exporter_with(library: Library) -> Any:
    exporter: Any = OtlpExporter("http://127.0.0.1:1/v1/traces", {}, node_id=1, cluster_id="c")
    exporter._exporter = library
    return exporter


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a thread works on it
            await asyncio.sleep(0.001)


async def test_spans_leave_in_batches_and_are_the_librarys(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "BATCH_SPANS", 2)
    library = Library()
    exporter = exporter_with(library)
    exporter.add([PRODUCE, PRODUCE._replace(parent_span_id=None, error=None), PRODUCE])
    running = asyncio.create_task(exporter.run())
    await until(lambda: exporter.exported == 3)
    assert [len(each) for each in library.batches] == [2, 1]
    first, second = library.batches[0]
    assert first.context is not None and first.context.trace_id == int(TRACE_ID, 16)
    assert first.parent is not None and first.parent.span_id == int(PARENT, 16)
    assert (first.kind, first.status.status_code) == (SpanKind.SERVER, StatusCode.ERROR)
    assert (first.start_time, first.end_time) == (EPOCH_NS, EPOCH_NS + 5)
    assert [(each.name, each.timestamp) for each in first.events] == [("received", EPOCH_NS)]
    assert second.parent is None and second.status.status_code is StatusCode.UNSET
    exporter.add([PRODUCE])
    await until(lambda: exporter.exported == 4)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert library.is_shut_down and exporter.dropped == 0


async def test_what_there_is_no_room_for_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "QUEUED_SPANS_MAX", 3)
    exporter = exporter_with(Library())
    exporter.add([PRODUCE] * 5)
    assert exporter.dropped == 2


async def test_a_collector_that_is_away_is_told_of_once_and_again_when_it_is_back(
    quick: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(spans, "BATCH_SPANS", 1)
    failure = SpanExportResult.FAILURE
    exporter = exporter_with(Library(failure, failure))
    exporter.add([PRODUCE] * 3)
    running = asyncio.create_task(exporter.run())
    await until(lambda: exporter.exported == 1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert exporter.dropped == 2
    told = [each.getMessage() for each in caplog.records if each.name == spans.__name__]
    assert len(told) == 2 and "does not take spans" in told[0] and "2 were dropped" in told[1]


async def test_the_loop_goes_on_while_nobody_listens(quick: None) -> None:
    """With the library's own exporter: a port without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1/traces"
    exporter = OtlpExporter(url, {}, node_id=1, cluster_id="c")
    exporter.add([PRODUCE])
    running = asyncio.create_task(exporter.run())
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while not exporter.dropped:
            turns += 1
            await asyncio.sleep(0.001)

    async with asyncio.timeout(20):
        await turn()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert turns > 10 and exporter.exported == 0


def test_without_the_extra_a_broker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *arguments: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real_import(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"install minikafka\[otel\]"):
        OtlpExporter("http://127.0.0.1:1", {}, node_id=1, cluster_id="c")
