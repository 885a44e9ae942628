"""The passes of an analysis: transforms applied to what was read, their few rows collected, and what the rows
of records come to.

``read_headers`` takes batch headers, ``read_records`` records, ``try_codecs`` a sample of batches. What comes
back are rows by partition (or topic), in an order of their own making; nothing here judges them.

Only the records tell sizes, keys, tombstones, and what compaction would save. The log is read and decoded
once, by ``kafka-log-sums``, which adds up records by key and by size where it decodes them. ``summarised``
adds these sums up, and everything else is made of its outcome, which has a row for each key of a partition
and some hundred for its sizes. From there it is plain arithmetic, no Spark: how many records keys have
differs little, so a partition has a row for each such number (``key_frequencies``).

A record's size here is that of its key and value, without headers and the few bytes of the format. Sizes are
counted in buckets (``datasource.size_buckets``) whose limits grow by 2^(1/32): a size stands for those up to
1.1 % away (below 45 bytes: itself), which is the error of the quantiles. Keys are compared as they are, so
their numbers are exact; only the number of keys of a topic with several partitions is an estimate
(HyperLogLog, standard deviation 1 %). Aborted records count as records.

What the bytes of a topic would be in another codec is measured, by compressing batches of it again. All
batches would be a second writing of the log, so a sample is taken: batches in an order that the hash of their
offset gives, up to a number and an amount of bytes for each partition. The levels are those that minikafka
writes (``minikafka.protocol.records.compression``). The bytes are read where their headers say they are, on
the executors, so only a sample's bytes ever leave the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from minikafka.protocol.internal.group_record_codec import UnreadableRecord, decode_record
from minikafka.protocol.internal.group_records import OffsetCommitKey, OffsetCommitValue
from minikafka.protocol.records.batch import HEADER_SIZE, read_header
from minikafka.protocol.records.compression import CompressionType, CorruptBatch, compress, decompress
from minikafka.spark.analyze import batch_statistics as batch
from minikafka.spark.analyze.analysis import CommittedOffset, LogId
from minikafka.spark.analyze.batch_statistics import LOG, count_if, is_data, sum_if
from minikafka.spark.runtime.storage import Location, join
from minikafka.spark.source.datasource import BUCKETS_PER_DOUBLING
from minikafka.types import TopicPartition

PRODUCERS_MAX: Final = 20
"""Of a topic, those that wrote most."""

BYTES_SCHEMA: Final = "topic string, partition int, batch binary"
_BYTES_SCHEMA: Final = pa.schema(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("batch", pa.binary())]
)

BATCHES_MAX = 64
BYTES_MAX = 4 << 20
"""Of each partition: gzip takes about 40 ms for a MiB."""

PLAIN_BYTES_MAX = 64 << 20
"""Of one batch: what says that it is more is left out of the sample."""

TRIED: Final = tuple(CompressionType)

TRIAL_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        *(StructField(f"{codec.name.lower()}_bytes", LongType()) for codec in TRIED),
        StructField("stored_bytes", LongType()),
        StructField("error", StringType()),
    ]
)
"""One row a batch; sizes are of whole batches, headers included. ``error``: why it could not be tried; the
sizes are null then."""

_ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        *(pa.field(f"{codec.name.lower()}_bytes", pa.int64()) for codec in TRIED),
        pa.field("stored_bytes", pa.int64()),
        pa.field("error", pa.string()),
    ]
)

TIES_MAX = 1_000
"""Keys with the same number of records among which some may be top keys."""

TOPIC_KEYS_ERROR = 0.01
"""Standard deviation of the estimated number of a topic's keys."""

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

COMMIT_COLUMNS: Final = ("key", "value", "offset")
COMMITTED_MAX: Final = 100_000
"""Offsets that groups have committed: the driver holds them. What is more is left out, the oldest commits."""
_OFFSET_COMMIT_TYPES: Final = (b"\0\0", b"\0\1")
"""How a key of theirs begins (``OffsetCommitKey``, versions 0 and 1)."""
_COMMITTED: Final = (
    "group_id string, topic string, partition int, committed bigint, committed_ms bigint, at bigint"
)
_COMMITTED_ARROW: Final = pa.schema(
    [
        pa.field("group_id", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("committed", pa.int64()),
        pa.field("committed_ms", pa.int64()),
        pa.field("at", pa.int64()),
    ]
)


# ---- the trial of codecs


def read_batches(batches: DataFrame) -> DataFrame:
    """topic, partition and the bytes of each of ``batches`` (rows of ``kafka-log-batches``). A segment that
    was removed since is left out: a running broker still applies retention."""
    return batches.select("log_dir", "topic", "partition", "segment", "position", "size").mapInArrow(
        _read_bytes, BYTES_SCHEMA
    )


def _read_bytes(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        for row in part.to_pylist():
            storage, directory = Location(row["log_dir"]).open()
            partition = join(directory, str(TopicPartition(row["topic"], row["partition"])))
            try:
                file = storage.open(join(partition, row["segment"]))
            except FileNotFoundError:
                continue
            try:
                data = bytes(file.read(row["position"], row["size"]))
            finally:
                file.close()
            yield pa.RecordBatch.from_pylist(
                [{"topic": row["topic"], "partition": row["partition"], "batch": data}], schema=_BYTES_SCHEMA
            )


def sampled(batches: DataFrame, *, count: int = BATCHES_MAX, size_bytes: int = BYTES_MAX) -> DataFrame:
    """Up to ``count`` data batches of each partition, ``size_bytes`` at most but for the first."""
    by_hash = Window.partitionBy(*LOG).orderBy(F.xxhash64("base_offset"), "base_offset")
    return (
        batches.where(is_data() & (F.col("records") > 0))
        .withColumn("place", F.row_number().over(by_hash))
        .withColumn("up_to", F.sum("size").over(by_hash.rowsBetween(Window.unboundedPreceding, 0)))
        .where((F.col("place") <= count) & ((F.col("up_to") <= size_bytes) | (F.col("place") == 1)))
        .drop("place", "up_to")
    )


def tried(batches: DataFrame) -> DataFrame:
    """``batches`` (topic, partition, batch: its bytes) as TRIAL_SCHEMA says."""
    return batches.select(*LOG, "batch").mapInArrow(_try_all, TRIAL_SCHEMA)


def trial_totals(trials: DataFrame) -> DataFrame:
    """One row a partition: batches in the sample, failed, stored_bytes, and the bytes in each codec."""
    sizes = [f"{codec.name.lower()}_bytes" for codec in TRIED]
    return trials.groupBy(*LOG).agg(
        F.count("stored_bytes").alias("batches"),
        F.count("error").alias("failed"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("stored_bytes", *sizes)),
    )


def _try_all(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = TRIAL_SCHEMA.names
    for part in parts:
        rows = [
            dict(zip(names, (topic, partition, *_tried(batch)), strict=True))
            for topic, partition, batch in zip(*(column.to_pylist() for column in part.columns), strict=True)
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_SCHEMA)


def _tried(batch: bytes) -> tuple[int | str | None, ...]:
    """The columns behind topic and partition."""
    try:
        header = read_header(batch)
        plain = decompress(
            memoryview(batch)[HEADER_SIZE : header.size], header.compression, bytes_max=PLAIN_BYTES_MAX
        )
    except CorruptBatch as error:
        return (*(None for _ in TRIED), None, str(error))
    sizes = [HEADER_SIZE + len(compress(plain, codec)) for codec in TRIED]
    return (*sizes, len(batch), None)


# ---- from sums to figures


class SizeTotals(NamedTuple):
    """Of a partition's records; sizes are bytes."""

    records: int
    bytes: int
    tombstones: int
    size_min: int
    size_max: int
    quantiles: list[int]
    """The smallest size that at least that share of the records does not exceed."""


class KeyTotals(NamedTuple):
    """Of a partition's keys; null is none."""

    keys: int
    keys_once: int
    """With one record."""
    records_max: int
    """Of one key."""
    superseded_records: int
    """Those whose key has a newer one."""
    superseded_bytes: int
    newest_tombstones: int
    """Keys whose newest record is one."""
    newest_tombstone_bytes: int


class SizesFrom(NamedTuple):
    """Records of ``size_min`` (0, 1, 2, 4 …) to below twice as many bytes."""

    size_min: int
    records: int
    bytes: int


class KeysFrom(NamedTuple):
    """Keys with ``records_min`` (1, 2, 4 …) to below twice as many records; one in several partitions counts
    in each."""

    records_min: int
    keys: int
    records: int


def size_of_bucket(bucket: int) -> int:
    """The size in bytes that a bucket stands for."""
    return round(math.pow(2.0, bucket / BUCKETS_PER_DOUBLING) - 1)


def size_totals(sizes: Iterable[Any], quantiles: Sequence[float]) -> SizeTotals:
    """Of one partition's rows (bucket, records, bytes, tombstones), at least one; ``quantiles`` ascend."""
    rows = sorted(sizes, key=lambda row: row.bucket)
    records = sum(row.records for row in rows)
    found: list[int] = []
    up_to = 0
    for row in rows:
        up_to += row.records
        while len(found) < len(quantiles) and up_to >= quantiles[len(found)] * records:
            found.append(size_of_bucket(row.bucket))
    return SizeTotals(
        records,
        sum(row.bytes for row in rows),
        sum(row.tombstones for row in rows),
        size_of_bucket(rows[0].bucket),
        size_of_bucket(rows[-1].bucket),
        found,
    )


def size_histogram(sizes: Iterable[Any]) -> list[SizesFrom]:
    """Of a topic's rows, by size."""
    found: dict[int, SizesFrom] = {}
    for row in sizes:
        least = _power_of_two(size_of_bucket(row.bucket))
        _, records, size = found.get(least, SizesFrom(least, 0, 0))
        found[least] = SizesFrom(least, records + row.records, size + row.bytes)
    return [found[least] for least in sorted(found)]


def key_totals(frequencies: Sequence[Any]) -> KeyTotals:
    """Of one partition's rows of ``key_frequencies``, at least one."""
    return KeyTotals(
        keys=sum(row["keys"] for row in frequencies),
        keys_once=sum(row["keys"] for row in frequencies if row.records == 1),
        records_max=max(row.records for row in frequencies),
        superseded_records=sum((row.records - 1) * row["keys"] for row in frequencies),
        superseded_bytes=sum(row.superseded_bytes for row in frequencies),
        newest_tombstones=sum(row.newest_tombstones for row in frequencies),
        newest_tombstone_bytes=sum(row.newest_tombstone_bytes for row in frequencies),
    )


def key_histogram(frequencies: Iterable[Any]) -> list[KeysFrom]:
    """Of a topic's rows of ``key_frequencies``, by number."""
    found: dict[int, KeysFrom] = {}
    for row in frequencies:
        least = _power_of_two(row.records)
        _, keys, records = found.get(least, KeysFrom(least, 0, 0))
        found[least] = KeysFrom(least, keys + row["keys"], records + row.records * row["keys"])
    return [found[least] for least in sorted(found)]


def top_keys_least(frequencies: Iterable[Any], *, count: int, ties_max: int = TIES_MAX) -> int | None:
    """How many records a partition's ``count`` top keys have at least; None: there are none.

    No key stands out that has one record, or as many as more than ``ties_max`` others: such are left out.
    """
    least, above = None, 0
    for row in sorted(frequencies, key=lambda row: -row.records):
        if row.records > 1 and row["keys"] <= ties_max and above < count:
            least = row.records
        above += row["keys"]
    return least


def _power_of_two(number: int) -> int:
    """The greatest that is not above; 0 for 0."""
    return 1 << number.bit_length() - 1 if number else 0


# ---- what records tell


def summarised(sums: DataFrame) -> DataFrame:
    """Rows of ``datasource.SUMS_SCHEMA``, one for each key, size bucket and error of a partition.

    Persist it: ``by_key`` and ``without_keys`` both read it.
    """
    return sums.groupBy(*LOG, "key", "bucket", "error").agg(
        *(F.sum(name).alias(name) for name in ("records", "bytes", "tombstones")),
        # Numbers alone: the aggregation changes them in place.
        F.max_by("newest", "offset").alias("newest"),
    )


def by_key(summary: DataFrame) -> DataFrame:
    """One row a partition and key: records, bytes, newest_bytes, newest_is_tombstone; records without a key
    are the row with a null key."""
    return summary.where(F.col("bucket").isNull() & F.col("error").isNull()).select(
        *LOG,
        "key",
        "records",
        "bytes",
        F.shiftright("newest", 1).alias("newest_bytes"),
        (F.col("newest") % 2).alias("newest_is_tombstone"),
    )


def without_keys(summary: DataFrame, *, errors_max: int) -> DataFrame:
    """The few rows that are not of a key: those by size (``bucket``), those of records without a key, and of
    each partition the first ``errors_max`` of those with an error."""
    is_error = F.col("error").isNotNull()
    place = F.row_number().over(Window.partitionBy(*LOG, is_error).orderBy("error"))
    return (
        summary.where(F.col("key").isNull())
        .withColumn("place", place)
        .where(~is_error | (F.col("place") <= errors_max))
        .drop("place")
    )


def key_frequencies(keys: DataFrame) -> DataFrame:
    """One row a partition and number of records that keys have: how many keys (null keys are none of them),
    superseded bytes, tombstones that are their key's newest record with their bytes. Few rows: numbers that
    differ cannot be many."""
    tombstone = F.col("newest_is_tombstone") == 1
    return (
        keys.where(F.col("key").isNotNull())
        .groupBy(*LOG, "records")
        .agg(
            F.count("*").alias("keys"),
            F.sum(F.col("bytes") - F.col("newest_bytes")).alias("superseded_bytes"),
            count_if(tombstone).alias("newest_tombstones"),
            sum_if(tombstone, F.col("newest_bytes")).alias("newest_tombstone_bytes"),
        )
    )


def top_keys(keys: DataFrame, least: DataFrame, *, count: int) -> DataFrame:
    """The ``count`` keys of each partition with the most records: key, records, bytes, place (from 1); of
    equals the least keys. ``least`` says how many records they have at least (topic, partition, least), so
    that few keys are sorted, however many there are; a partition that it does not name has none."""
    place = F.row_number().over(Window.partitionBy(*LOG).orderBy(F.desc("records"), "key"))
    return (
        keys.where(F.col("key").isNotNull())
        .join(F.broadcast(least), list(LOG))
        .where(F.col("records") >= F.col("least"))
        .withColumn("place", place)
        .where(F.col("place") <= count)
        .select(*LOG, "key", "records", "bytes", "place")
    )


def topic_keys(keys: DataFrame) -> DataFrame:
    """One row a topic: keys, about how many different ones it has over all partitions."""
    return (
        keys.where(F.col("key").isNotNull())
        .groupBy("topic")
        .agg(F.approx_count_distinct("key", TOPIC_KEYS_ERROR).alias("keys"))
    )


# ---- the passes


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
    producers: dict[str, list[Row]]
    """By topic; none where no producer has an id."""


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
            producers=_by_topic(batch.producers(whole, PRODUCERS_MAX).collect()) if is_idempotent else {},
        )
    finally:
        for each in (duplicates, transactions):
            each.unpersist()


def read_records(sums: DataFrame, *, top_keys: int) -> RecordFigures:
    """Run the pass over records, which come added up (``datasource.SUMS_SCHEMA``)."""
    summary = summarised(sums).persist()
    try:
        keys = by_key(summary)
        frequencies = _grouped(key_frequencies(keys), "records")
        others = _grouped(without_keys(summary, errors_max=SHOWN_MAX))

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
            topic_keys={row.topic: row["keys"] for row in topic_keys(keys).collect()} if several else {},
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
    return _grouped(top_keys(keys, small_frame(keys.sparkSession, least, columns), count=count), "place")


def _of_topic(rows: ByLog, topic: str) -> list[Row]:
    return [row for log, members in rows.items() if log.topic == topic for row in members]


def try_codecs(batches: DataFrame) -> dict[LogId, Row]:
    """Compress a sample (topic, partition, batch) in every codec."""
    return _single(trial_totals(tried(batches)))


def _by_topic(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.topic, []).append(row)
    return found


def read_committed(records: DataFrame) -> list[CommittedOffset]:
    """The newest commit of each group and partition, of the records of ``__consumer_offsets``
    (COMMIT_COLUMNS). A group that has been deleted, or an offset that has expired, has none."""
    commits = records.filter("key is not null").mapInArrow(decode_commits, _COMMITTED)
    newest = (
        commits.groupBy("group_id", "topic", "partition")
        .agg(F.max_by(F.struct("committed", "committed_ms"), "at").alias("newest"))
        .filter("newest.committed is not null")
        .select("group_id", "topic", "partition", "newest.*")
        .orderBy(F.desc("committed_ms"), "group_id", "topic", "partition")
        .limit(COMMITTED_MAX)
    )
    return [
        CommittedOffset(
            group_id=row.group_id,
            topic=row.topic,
            partition=row.partition,
            offset=row.committed,
            committed_ms=row.committed_ms,
        )
        for row in newest.collect()
    ]


def decode_commits(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """COMMIT_COLUMNS to a row for each commit, ``committed`` null where one was removed; ``at`` is the offset
    of the record. Members of groups, and what cannot be decoded, are left out."""
    for piece in batches:
        rows = []
        keys, values, offsets = (piece.column(name).to_pylist() for name in COMMIT_COLUMNS)
        for key, value, at in zip(keys, values, offsets, strict=True):
            if key[:2] not in _OFFSET_COMMIT_TYPES:
                continue
            try:
                record = decode_record(key, value)
            except UnreadableRecord:
                continue
            assert isinstance(record.key, OffsetCommitKey)
            commit = record.value
            offset, time_ms = (
                (commit.offset, commit.commit_timestamp_ms)
                if isinstance(commit, OffsetCommitValue)
                else (None, None)
            )
            rows.append((record.key.group_id, record.key.topic, record.key.partition, offset, time_ms, at))
        columns = list(zip(*rows, strict=True)) or [()] * len(_COMMITTED_ARROW)
        arrays = [pa.array(column, each.type) for column, each in zip(columns, _COMMITTED_ARROW, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_COMMITTED_ARROW)


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
