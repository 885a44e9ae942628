"""W3C trace context in records' headers, and ids that brokers make alike."""

from __future__ import annotations

import pytest

from minikafka.protocol.records.batch import read_header
from minikafka.protocol.records.compression import CompressionType
from minikafka.server.tracing import spans
from minikafka.server.tracing.spans import (
    TraceContext,
    find_trace_context,
    new_trace_context,
    parse_traceparent,
    span_id,
)
from tests.unit.server.tracing.batches import PARENT, TOPIC_ID, TRACE_ID, TRACEPARENT, batch


def found_in(records: bytes) -> TraceContext | None:
    return find_trace_context(records, read_header(records))


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (TRACEPARENT, TraceContext(TRACE_ID, PARENT)),
        (f"00-{TRACE_ID}-{PARENT}-00", TraceContext(TRACE_ID, PARENT, is_sampled=False)),
        (f"cc-{TRACE_ID}-{PARENT}-01-what-the-future-will-be", TraceContext(TRACE_ID, PARENT)),
        (f"00-{TRACE_ID}-{PARENT}-01-more", None),
        (f"ff-{TRACE_ID}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE_ID}-{'0' * 16}-01", None),
        (f"00-{TRACE_ID.upper()}-{PARENT}-01", None),
        ("", None),
    ],
)
def test_a_traceparent_is_read_as_the_recommendation_says(text: str, context: TraceContext | None) -> None:
    assert parse_traceparent(text) == context


@pytest.mark.parametrize("compression", list(CompressionType))
def test_the_first_record_that_has_one_counts(compression: CompressionType) -> None:
    other = f"00-{'1' * 32}-{'2' * 16}-01"
    records = batch(None, "nonsense", TRACEPARENT, other, compression=compression)
    assert found_in(records) == TraceContext(TRACE_ID, PARENT)


def test_only_the_first_records_of_a_batch_are_searched() -> None:
    late = [None] * spans.SEARCHED_RECORDS_MAX
    assert found_in(batch(*late[1:], TRACEPARENT)) is not None
    assert found_in(batch(*late, TRACEPARENT)) is None


def test_a_batch_that_is_too_long_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    records = batch(TRACEPARENT)
    monkeypatch.setattr(spans, "SEARCHED_BYTES_MAX", len(records) - 1)
    assert found_in(records) is None


def test_damaged_records_have_none() -> None:
    records = bytearray(batch(TRACEPARENT))
    records[61] = 0xFF
    assert found_in(bytes(records)) is None


def test_ids_are_of_the_place_and_the_same_for_all_who_ask() -> None:
    context = new_trace_context(TOPIC_ID, 3, 17)
    assert context == new_trace_context(TOPIC_ID, 3, 17) != new_trace_context(TOPIC_ID, 3, 18)
    made = f"00-{context.trace_id}-{span_id(context.trace_id, 'x')}-01"
    assert parse_traceparent(made) is not None
