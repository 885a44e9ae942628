"""The passes of an analysis: transforms applied to what was read, their few rows collected.

``read_headers`` takes batch headers, ``read_records`` records, ``try_codecs`` a sample of batches. What comes
back are rows by partition (or topic), in an order of their own making; nothing here judges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from minikafka.spark.analyze import batch_statistics as batch
from minikafka.spark.analyze import codec_trials
from minikafka.spark.analyze import record_statistics as record
from minikafka.spark.analyze.analysis import LogId
from minikafka.spark.analyze.record_statistics import (
    KeysFrom,
    KeyTotals,
    SizesFrom,
    SizeTotals,
    key_histogram,
    key_totals,
    size_histogram,
    size_totals,
    top_keys_least,
)

QUANTILES = (0.5, 0.9, 0.99, 0.999)
"""Of record sizes."""

SHOWN_MAX = 20
"""Gaps, duplicates, open transactions and damaged batches that are named, of each partition."""

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
    order: dict[LogId, Row]
    gaps: ByLog
    duplicate_totals: dict[LogId, Row]
    duplicates: ByLog
    transaction_totals: dict[LogId, Row]
    open_transactions: ByLog
    damaged: ByLog
    bucket_ms: dict[str, int]
    """By topic."""
    throughput: ByLog


@dataclass(frozen=True)
class RecordFigures:
    """What records told, by partition; histograms and ``topic_keys`` by topic."""

    sizes: dict[LogId, SizeTotals]
    keys: dict[LogId, KeyTotals]
    null_key_records: dict[LogId, int]
    top_keys: ByLog
    undecodable: ByLog
    topic_keys: dict[str, int]
    """Of topics with several partitions."""
    size_histogram: dict[str, list[SizesFrom]]
    key_histogram: dict[str, list[KeysFrom]]


class Span(NamedTuple):
    """First and last timestamp (ms) of a topic."""

    first: int
    last: int


def read_headers(batches: DataFrame, damage_counts: Mapping[LogId, int], *, batch_size: int) -> HeaderFigures:
    """Run what headers suffice for. ``batches`` should be persisted: it is read several times.

    A query costs some tenths of a second even if it finds nothing, and most logs have nothing of what a
    report names: that is looked for where totals say that it is there.
    """
    whole = batch.healthy(batches)
    totals = _single(batch.partition_totals(whole, batch_size))
    order = _single(batch.order_totals(whole))
    bucket_ms = bucket_widths(totals)
    breakdowns = _breakdowns(whole, bucket_ms)
    duplicates = batch.duplicates(whole).persist()
    transactions = batch.transactions(whole).persist()
    is_idempotent = any(row.idempotent_batches for row in totals.values())
    is_transactional = any(row.control_batches + row.transactional_batches for row in totals.values())
    try:
        duplicate_totals = _single(batch.duplicate_totals(duplicates)) if is_idempotent else {}
        transaction_totals = _single(batch.transaction_totals(transactions)) if is_transactional else {}
        has_open = any(row.open for row in transaction_totals.values())
        open_ones = transactions.where(transactions.state == batch.OPEN)
        return HeaderFigures(
            totals=totals,
            codecs=breakdowns[batch.CODEC],
            epochs=breakdowns[batch.LEADER_EPOCH],
            segments=breakdowns[batch.SEGMENT],
            order=order,
            gaps=_first(batch.gaps(whole), "before_offset")
            if any(row.gaps + row.overlaps for row in order.values())
            else {},
            duplicate_totals=duplicate_totals,
            duplicates=_first(duplicates, "last_offset") if duplicate_totals else {},
            transaction_totals=transaction_totals,
            open_transactions=_first(open_ones, "first_offset") if has_open else {},
            damaged=_first(batch.damaged(batches), "position") if any(damage_counts.values()) else {},
            bucket_ms=bucket_ms,
            throughput=breakdowns[batch.START_MS],
        )
    finally:
        for each in (duplicates, transactions):
            each.unpersist()


def read_records(sums: DataFrame, *, top_keys: int) -> RecordFigures:
    """Run the pass over records, which come added up (``record_sums.SUMS_SCHEMA``)."""
    summary = record.summarised(sums).persist()
    try:
        keys = record.by_key(summary)
        frequencies = _grouped(record.key_frequencies(keys), "records")
        others = _grouped(record.without_keys(summary, errors_max=SHOWN_MAX))

        sizes = {
            log: found
            for log, rows in others.items()
            if (found := [row for row in rows if row.bucket is not None])
        }
        topics = {log.topic for log in sizes}
        several = {topic for topic in topics if sum(log.topic == topic for log in sizes) > 1}
        return RecordFigures(
            sizes={log: size_totals(rows, QUANTILES) for log, rows in sizes.items()},
            keys={log: key_totals(rows) for log, rows in frequencies.items()},
            null_key_records={
                log: row.records
                for log, rows in others.items()
                for row in rows
                if row.bucket is None and row.error is None
            },
            top_keys=_top_keys(keys, frequencies, top_keys),
            undecodable={log: [row for row in rows if row.error is not None] for log, rows in others.items()},
            topic_keys={row.topic: row["keys"] for row in record.topic_keys(keys).collect()}
            if several
            else {},
            size_histogram={topic: size_histogram(_of_topic(sizes, topic)) for topic in topics},
            key_histogram={topic: key_histogram(_of_topic(frequencies, topic)) for topic in topics},
        )
    finally:
        summary.unpersist()


def _top_keys(keys: DataFrame, frequencies: ByLog, count: int) -> ByLog:
    least = [
        (*log, found)
        for log, rows in frequencies.items()
        if (found := top_keys_least(rows, count=count)) is not None
    ]
    if not least:
        return {}
    columns = [("topic", pa.string()), ("partition", pa.int32()), ("least", pa.int64())]
    return _grouped(
        record.top_keys(keys, small_frame(keys.sparkSession, least, columns), count=count), "place"
    )


def _of_topic(rows: ByLog, topic: str) -> list[Row]:
    return [row for log, members in rows.items() if log.topic == topic for row in members]


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


def _breakdowns(batches: DataFrame, bucket_ms: Mapping[str, int]) -> dict[str, ByLog]:
    """By what they are of."""
    columns = [("topic", pa.string()), ("bucket_ms", pa.int64())]
    widths = small_frame(batches.sparkSession, list(bucket_ms.items()), columns)
    rows = batch.breakdowns(batches, widths).collect()
    order = dict.fromkeys(batch.BREAKDOWNS, "first_offset") | {
        name: name for name in (batch.CODEC, batch.START_MS)
    }
    return {name: _by_log((row for row in rows if row.of == name), order[name]) for name in batch.BREAKDOWNS}


def small_frame(
    spark: SparkSession, rows: Sequence[tuple[Any, ...]], columns: Sequence[tuple[str, pa.DataType]]
) -> DataFrame:
    """A few rows as a DataFrame. By way of Arrow Spark has them at once; of a list of Python's it would make
    a job."""
    schema = pa.schema(columns)
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
    return spark.createDataFrame(table)


def _grouped(frame: DataFrame, *order: str) -> ByLog:
    return _by_log(frame.collect(), *order)


def _by_log(rows: Iterable[Row], *order: str) -> ByLog:
    found: ByLog = {}
    for row in rows:
        found.setdefault(LogId(row.topic, row.partition), []).append(row)
    for members in found.values():
        members.sort(key=lambda row: tuple(row[name] for name in order))
    return found


def _first(frame: DataFrame, order: str) -> ByLog:
    return _grouped(batch.first_of_each(frame, order, SHOWN_MAX), order)


def _single(frame: DataFrame) -> dict[LogId, Row]:
    return {LogId(row.topic, row.partition): row for row in frame.collect()}
