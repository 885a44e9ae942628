"""A task of ``minikafka compact``: one group of closed segments becomes one new one. Runs in Spark's
Python workers.

The offsets of the retained records come in ascending order, as Arrow batches, and the segments are read
beside them (``RetainedOffsets``); so a worker's memory depends on neither the number of keys nor the size
of a segment.

A task writes into a directory of its own attempt: one that Spark started twice, or again, never writes into
files that another one writes. What went wrong with the log is an answer; anything else is Spark's to report.

The keys of a compaction as DataFrames: which records are the newest, what the batches say of
transactions and producers, and what a compaction has changed. Kafka: ``Cleaner.buildOffsetMap`` and
``LogCleanerManager``, with a shuffle instead of a map in memory.

``records`` has columns of the source ``kafka-log``, ``batches`` of ``kafka-log-batches``; ``LOG`` tells
the logs of one apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import OsFiles
from minikafka.log.compaction.batch_retention import BatchRetention, CleanedTransactions
from minikafka.log.compaction.cleaner import CleanedSegment, copy_segments
from minikafka.log.compaction.offset_map import RetainedOffsets
from minikafka.log.compaction.staged_compaction import CompactedSegment, CompactionJob, SourceSegment
from minikafka.log.segment.txn_index import AbortedTransaction
from minikafka.protocol.records.compression import CompressionType
from minikafka.types import Buffer

LOG: Final = ("topic", "partition")

BEGINS_A_GROUP: Final = -1
"""Instead of an offset: every group has one such row, so that groups of which nothing is retained are
there."""


def newest_of_keys(records: DataFrame) -> DataFrame:
    """Of each key the offset of its newest record: topic, partition, key, offset. Records without a key
    are none.

    ``records`` end where the log may no longer be compacted, and have no records of aborted transactions.
    """
    keyed = records.where(f.col("key").isNotNull())
    return keyed.groupBy(*LOG, "key").agg(f.max("offset").alias("offset"))


def offsets_by_group(newest: DataFrame, groups: DataFrame, *, group_count: int) -> DataFrame:
    """``newest`` as a partition for each group of segments: group, offset; the offsets ascending, the
    first one ``BEGINS_A_GROUP``.

    Args:
        groups: topic, partition, group (0 to ``group_count`` - 1), first_offset, end_offset (exclusive).
    """
    in_group = (
        (newest["topic"] == groups["topic"])
        & (newest["partition"] == groups["partition"])
        & (newest["offset"] >= groups["first_offset"])
        & (newest["offset"] < groups["end_offset"])
    )
    retained = newest.join(f.broadcast(groups), in_group).select(groups["group"], newest["offset"])
    beginnings = groups.select("group", f.lit(BEGINS_A_GROUP).cast("long").alias("offset"))
    by_group = retained.unionByName(beginnings).repartitionById(group_count, f.col("group"))
    return by_group.sortWithinPartitions("offset")


def producers_by_segment(batches: DataFrame) -> DataFrame:
    """What each segment has of each producer (-1: none): topic, partition, segment, producer_id and

    max_timestamp         of its batches, milliseconds
    producer_epoch        the highest
    data_of_epoch         struct (producer_epoch, last_offset) of its last data batch; null without data
    transactional_data    base offset of its last transactional data batch; null without
    marker                base offset of its last marker; null without
    batches               how many
    """
    is_data = ~f.col("is_control")
    is_marker = f.col("is_control") & (f.col("records") > 0) & (f.col("producer_id") >= 0)
    is_transactional = is_data & f.col("is_transactional")
    return batches.groupBy(*LOG, "segment", "producer_id").agg(
        f.max("max_timestamp").alias("max_timestamp"),
        f.max("producer_epoch").alias("producer_epoch"),
        _latest(is_data, f.struct("producer_epoch", "last_offset")).alias("data_of_epoch"),
        _latest(is_transactional, f.col("base_offset")).alias("transactional_data"),
        _latest(is_marker, f.col("base_offset")).alias("marker"),
        f.count("*").alias("batches"),
    )


def first_open_offsets(batches: DataFrame, markers: DataFrame) -> DataFrame:
    """Where the transactions began that have no end: topic, partition, producer_id, offset.

    Args:
        markers: topic, partition, producer_id, marker: of producers with an open transaction the base
        offset of
            their last marker (-1: they have none).
    """
    data = batches.where(f.col("is_transactional") & ~f.col("is_control"))
    behind = data.join(f.broadcast(markers), [*LOG, "producer_id"]).where(
        f.col("base_offset") > f.col("marker")
    )
    return behind.groupBy(*LOG, "producer_id").agg(f.min("base_offset").alias("offset"))


def changed_keys(before: DataFrame, after: DataFrame, newest: DataFrame) -> DataFrame:
    """The keys whose newest record is another one after a compaction, or missing though it is no
    tombstone, or there though it was not: topic, partition, key, offset_before, offset_after (null:
    missing).

    Args:
        before: the records that were compacted, with ``after``'s columns topic, partition, key, offset, value
            and timestamp, and headers where there are any.
        after: the records of the new segments.
        newest: ``newest_of_keys`` of ``before``.
    """
    was = _with_content(before).join(newest.select(*LOG, "offset"), [*LOG, "offset"], "left_semi")
    left = was.where(f.col("key").isNotNull()).select(
        *LOG,
        "key",
        f.col("offset").alias("offset_before"),
        f.col("content").alias("content_before"),
        f.col("is_tombstone"),
    )
    right = _with_content(after).select(
        *LOG, "key", f.col("offset").alias("offset_after"), f.col("content").alias("content_after")
    )
    is_same = f.col("offset_before").eqNullSafe(f.col("offset_after")) & f.col("content_before").eqNullSafe(
        f.col("content_after")
    )
    has_expired = f.col("offset_after").isNull() & f.col("is_tombstone")
    both = left.join(right, [*LOG, "key"], "full_outer")
    return both.where(~(is_same | f.coalesce(has_expired, f.lit(False)))).select(
        *LOG, "key", "offset_before", "offset_after"
    )


def _with_content(records: DataFrame) -> DataFrame:
    columns = [name for name in ("value", "timestamp", "headers") if name in records.columns]
    return records.select(
        *LOG,
        "key",
        "offset",
        f.xxhash64(*columns).alias("content"),
        f.col("value").isNull().alias("is_tombstone"),
    )


def _latest(condition: Column, value: Column) -> Column:
    return f.max(f.when(condition, value))


OUTCOME_SCHEMA = "outcome binary"
_OUTCOME_ARROW = pa.schema([pa.field("outcome", pa.binary())])

_SEGMENT_BYTES_MAX = 2**31 - 1
"""An index has four bytes for a position."""


class CopyTask(msgspec.Struct, frozen=True, kw_only=True):
    """What one task is to do."""

    group: int
    job: CompactionJob
    sources: tuple[SourceSegment, ...]
    end_offset: int
    """Where the next group begins."""
    aborted: tuple[AbortedTransaction, ...]
    """That reach into the group."""
    seen: tuple[int, ...]
    """Producers with a transaction that began below the group and continues in it."""
    staging: str | None
    """Where the directories of attempts are made; None: nothing is written, only counted."""
    codec: CompressionType | None


class CopyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    group: int
    attempt: str = ""
    """The directory in the staging directory."""
    segments: tuple[CompactedSegment, ...] = ()
    records_kept: int = 0
    records_dropped: int = 0
    size: int = 0
    error: str | None = None
    """Of the log or the disk, naming file and position; then the rest means nothing."""


class _Counted:
    """A new segment that is only measured."""

    def __init__(self) -> None:
        self.size = 0

    def append(self, buffers: Sequence[Buffer], spans: Sequence[tuple[int, int, int]]) -> None:
        self.size += sum(size for _, _, size in spans)


def copy_group(
    tasks: Mapping[int, CopyTask],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: rows (group, offset) of one group in, one outcome out."""

    def run(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batches = (batch for batch in rows if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return
        task = tasks[first.column("group")[0].as_py()]
        context = TaskContext.get()
        attempt = f"attempt-{0 if context is None else context.taskAttemptId()}"
        try:
            outcome = _copy(task, _offsets(first, batches), attempt)
        except KafkaError as error:
            outcome = CopyOutcome(group=task.group, error=error.message or error.code.name)
        except OSError as error:
            outcome = CopyOutcome(group=task.group, error=str(error))
        yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(outcome)])], schema=_OUTCOME_ARROW)

    return run


def _offsets(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[int]:
    batch: pa.RecordBatch | None = first
    while batch is not None:
        for offset in batch.column("offset").to_pylist():
            if offset != BEGINS_A_GROUP:
                yield offset
        batch = next(others, None)


def _copy(task: CopyTask, offsets: Iterator[int], attempt: str) -> CopyOutcome:
    """Raises KafkaError, OSError."""
    job, files = task.job, OsFiles()
    retained = RetainedOffsets(offsets, latest_offset=task.end_offset - 1)
    transactions = CleanedTransactions(task.aborted, seen=task.seen)
    retention = BatchRetention(
        retained,
        transactions,
        last_records=job.last_records,
        now_ms=job.now_ms,
        delete_retention_ms=job.config.delete_retention_ms,
        codec=task.codec,
    )
    directory = None if task.staging is None else os.path.join(task.staging, attempt)
    if directory is not None:
        files.make_directory(directory)
    written, size = [], 0
    for part in _parts(task):
        base_offset = part[0].base_offset
        cleaned: CleanedSegment | _Counted
        if directory is None:
            cleaned = _Counted()
        else:
            cleaned = CleanedSegment(directory, base_offset, config=job.config, files=files)
            transactions.index = cleaned.txn_index
        try:
            for _ in copy_segments(
                job.directory, part, cleaned, retention, files=files, read_bytes=job.read_bytes
            ):
                if cleaned.size > _SEGMENT_BYTES_MAX:
                    raise KafkaError(
                        ErrorCode.INVALID_CONFIG,
                        f"{job.directory}: the segment at {base_offset} grows beyond 2 GiB with this codec",
                    )
            if isinstance(cleaned, CleanedSegment):
                cleaned.finish()
        finally:
            if isinstance(cleaned, CleanedSegment):
                cleaned.release()
        has_txn_index = isinstance(cleaned, CleanedSegment) and cleaned.txn_index.entry_count > 0
        replaced = tuple(segment.base_offset for segment in part)
        written.append(CompactedSegment(base_offset, replaced, cleaned.size, has_txn_index))
        size += cleaned.size
    retained.finish()
    return CopyOutcome(
        group=task.group,
        attempt=attempt,
        segments=tuple(written),
        records_kept=retention.records_kept,
        records_dropped=retention.records_dropped,
        size=size,
    )


def _parts(task: CopyTask) -> list[Sequence[SourceSegment]]:
    """What becomes one segment each: the group; with another codec, which may need more room than the old
    one, each of its segments, because their size is not known yet."""
    return [task.sources] if task.codec is None else [[source] for source in task.sources]
