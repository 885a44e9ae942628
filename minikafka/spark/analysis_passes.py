"""The passes of an analysis: transforms applied to what was read, their few rows collected.

``read_headers`` takes batch headers, ``read_records`` records, ``try_codecs`` a sample of batches. What comes
back are rows by partition (or topic), in an order of their own making; nothing here judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row

from minikafka.spark.analysis import LogId
from minikafka.spark.transforms import batch_statistics as batch
from minikafka.spark.transforms import codec_trials, offset_order
from minikafka.spark.transforms import producer_statistics as producers
from minikafka.spark.transforms import record_statistics as record

QUANTILES = (0.5, 0.9, 0.99, 0.999)
"""Of record sizes."""

SHOWN_MAX = 20
"""Gaps, duplicates, open transactions and damaged pieces that are named, of each partition."""

BUCKETS_MAX = 120
"""Points of a throughput chart."""

BUCKET_WIDTHS_MS = (
    *(1, 10, 100),
    *(seconds * 1_000 for seconds in (1, 5, 10, 30)),
    *(minutes * 60_000 for minutes in (1, 5, 10, 30)),
    *(hours * 3_600_000 for hours in (1, 3, 6, 12)),
    *(days * 86_400_000 for days in (1, 7, 30, 90, 365)),
)

ByLog = dict[LogId, list[Row]]


@dataclass(frozen=True)
class HeaderFigures:
    """What batch headers told, by partition."""

    totals: dict[LogId, Row]
    codecs: ByLog
    epochs: ByLog
    segments: ByLog
    gap_totals: dict[LogId, Row]
    gaps: ByLog
    disorder: dict[LogId, Row]
    duplicate_totals: dict[LogId, Row]
    duplicates: ByLog
    transaction_totals: dict[LogId, Row]
    open_transactions: ByLog
    damaged_totals: dict[LogId, Row]
    damaged: ByLog
    bucket_ms: dict[str, int]
    """By topic."""
    throughput: ByLog


@dataclass(frozen=True)
class RecordFigures:
    """What records told, by partition; histograms and ``topic_keys`` by topic."""

    sizes: dict[LogId, Row]
    keys: dict[LogId, Row]
    null_keys: dict[LogId, Row]
    top_keys: ByLog
    undecodable: ByLog
    topic_keys: dict[str, int]
    size_histogram: dict[str, list[Row]]
    key_histogram: dict[str, list[Row]]


class Span(NamedTuple):
    """First and last timestamp (ms) of a topic."""

    first: int
    last: int


def read_headers(batches: DataFrame) -> HeaderFigures:
    """Run what headers suffice for. ``batches`` should be persisted: it is read a dozen times."""
    whole, damaged = batch.healthy(batches), batch.damaged(batches)
    totals = _single(batch.partition_totals(whole))
    bucket_ms = bucket_widths(totals)
    gaps = offset_order.gaps(whole).persist()
    duplicates = producers.duplicates(whole).persist()
    transactions = producers.transactions(whole).persist()
    # Most logs have nothing of this, and a query costs a tenth of a second even if it finds nothing.
    is_idempotent = any(row.idempotent_batches for row in totals.values())
    is_transactional = any(row.control_batches + row.transactional_batches for row in totals.values())
    gap_totals = _single(offset_order.gap_totals(gaps))
    duplicate_totals = _single(producers.duplicate_totals(duplicates)) if is_idempotent else {}
    transaction_totals = _single(producers.transaction_totals(transactions)) if is_transactional else {}
    has_open = any(row.open for row in transaction_totals.values())
    damaged_totals = _single(batch.damaged_totals(damaged))
    try:
        return HeaderFigures(
            totals=totals,
            codecs=_grouped(batch.codecs(whole), "codec"),
            epochs=_grouped(batch.leader_epochs(whole), "first_offset"),
            segments=_grouped(batch.segments(whole), "first_offset"),
            gap_totals=gap_totals,
            gaps=_first(gaps, "before_offset") if gap_totals else {},
            disorder=_single(offset_order.disorder(whole)),
            duplicate_totals=duplicate_totals,
            duplicates=_first(duplicates, "last_offset") if duplicate_totals else {},
            transaction_totals=transaction_totals,
            open_transactions=_first(transactions.where(transactions.state == producers.OPEN), "first_offset")
            if has_open
            else {},
            damaged_totals=damaged_totals,
            damaged=_first(damaged, "position") if damaged_totals else {},
            bucket_ms=bucket_ms,
            throughput=_throughput(whole, bucket_ms),
        )
    finally:
        for each in (gaps, duplicates, transactions):
            each.unpersist()


def read_records(records: DataFrame, *, top_keys: int) -> RecordFigures:
    """Run the pass over records (topic, partition, offset, key, value_size, error)."""
    summary = record.summarised(records).persist()
    try:
        keys, sizes = record.by_key(summary), record.by_size(summary)
        frequencies = record.key_frequencies(keys).persist()
        figures = RecordFigures(
            sizes=_single(record.size_totals(sizes, QUANTILES)),
            keys=_single(record.key_totals(frequencies)),
            null_keys=_single(keys.where(keys.key.isNull())),
            top_keys=_grouped(record.top_keys(keys, frequencies, count=top_keys), "place"),
            undecodable=_first(record.undecodable(summary), "error"),
            topic_keys={row.topic: row["keys"] for row in record.topic_keys(keys).collect()},
            size_histogram=_by_topic(record.size_histogram(sizes), "size_min"),
            key_histogram=_by_topic(record.key_histogram(frequencies), "records_min"),
        )
        frequencies.unpersist()
        return figures
    finally:
        summary.unpersist()


def try_codecs(batches: DataFrame) -> dict[LogId, Row]:
    """Compress a sample (topic, partition, batch) in every codec."""
    return _single(codec_trials.trial_totals(codec_trials.tried(batches)))


def bucket_widths(totals: Mapping[LogId, Any]) -> dict[str, int]:
    """How long (ms) a piece of each topic's time is, so that there are at most BUCKETS_MAX of them."""
    spans: dict[str, Span] = {}
    for log, row in totals.items():
        if row.first_timestamp is None or row.last_timestamp is None:
            continue
        span = spans.get(log.topic, Span(row.first_timestamp, row.last_timestamp))
        spans[log.topic] = Span(min(span.first, row.first_timestamp), max(span.last, row.last_timestamp))
    return {topic: _width(span.last - span.first) for topic, span in sorted(spans.items())}


def _width(span_ms: int) -> int:
    least = span_ms / BUCKETS_MAX
    fitting = [width for width in BUCKET_WIDTHS_MS if width >= least]
    return fitting[0] if fitting else -(-span_ms // BUCKETS_MAX)


def _throughput(batches: DataFrame, bucket_ms: Mapping[str, int]) -> ByLog:
    if not bucket_ms:
        return {}
    widths = batches.sparkSession.createDataFrame(list(bucket_ms.items()), "topic string, bucket_ms long")
    return _grouped(batch.throughput(batches, widths), "start_ms")


def _grouped(frame: DataFrame, *order: str) -> ByLog:
    found: ByLog = {}
    for row in frame.collect():
        found.setdefault(LogId(row.topic, row.partition), []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: tuple(row[name] for name in order))
    return found


def _first(frame: DataFrame, order: str) -> ByLog:
    return _grouped(batch.first_of_each(frame, order, SHOWN_MAX), order)


def _single(frame: DataFrame) -> dict[LogId, Row]:
    return {LogId(row.topic, row.partition): row for row in frame.collect()}


def _by_topic(frame: DataFrame, order: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in frame.orderBy(order).collect():
        found.setdefault(row.topic, []).append(row)
    return found
