"""What of a log may be compacted, which records are the newest of their keys, and the task that copies a
group of segments without the others. Kafka: ``LogCleanerManager.cleanableOffsets``,
``Cleaner.buildOffsetMap``, with a shuffle instead of a map in memory.

The bounds are the broker's (``log.cleanable_log``): nothing at or above the last stable offset,
which is at most the high watermark; not the active segment; nothing from the first segment on that holds
a record younger than ``min.compaction.lag.ms``. The high watermark is the checkpoint's, which a running
broker writes every few seconds, and the last stable offset is where the first transaction without a
marker begins: both can only rise later. They are found out purely: the files' names and sizes, and what the
batches say, are arguments.

Keys are DataFrames: ``records`` has columns of the source ``kafka-log``, ``batches`` of
``kafka-log-batches``; ``LOG`` tells the logs of one apart.

A task makes one new segment of a group of closed ones, in Spark's Python workers. The offsets of the retained
records come in ascending order, as Arrow batches, and the segments are read beside them
(``RetainedOffsets``); so a worker's memory depends on neither the number of keys nor the size of a segment. A
task writes into a directory of its own attempt: one that Spark started twice, or again, never writes into
files that another one writes. What went wrong with the log is an answer; anything else is Spark's to report.
"""

from __future__ import annotations

import os
import platform
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import OsFiles
from minikafka.log.checkpoint import REPLICATION_OFFSET_CHECKPOINT, EpochEntry
from minikafka.log.cleaner import (
    BatchRetention,
    CleanedSegment,
    CleanedTransactions,
    RetainedOffsets,
    copy_segments,
)
from minikafka.log.segment.indexes import AbortedTransaction
from minikafka.log.staged_compaction import (
    CompactedSegment,
    CompactionJob,
    LastRecord,
    SourceSegment,
    group_segments,
)
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark.runtime.storage import UnusableLocation
from minikafka.types import Buffer, TopicPartition

LOG: Final = ("topic", "partition")

BEGINS_A_GROUP: Final = -1
"""Instead of an offset: every group has one such row, so that groups of which nothing is retained are
there."""

OUTCOME_SCHEMA = "outcome binary"
_OUTCOME_ARROW = pa.schema([pa.field("outcome", pa.binary())])

_SEGMENT_BYTES_MAX = 2**31 - 1
"""An index has four bytes for a position."""

READ_BYTES = 1024 * 1024
PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of producer.id.expiration.ms: one that was silent for so long is no active producer."""


# ---- keys


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


# ---- the copy of a group


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
        except (OSError, UnusableLocation) as error:
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
    """Raises KafkaError, OSError, UnusableLocation."""
    job, files = task.job, OsFiles()
    directory = None if task.staging is None else _directory_of(attempt, task.staging, files)
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


def _directory_of(attempt: str, staging: str, files: OsFiles) -> str:
    """Make an attempt's directory. A staging directory is never made here: where it is missing this is
    another machine's disk, or an attempt that comes when the job has ended.

    Raises UnusableLocation.
    """
    if not files.is_directory(staging):
        raise UnusableLocation(
            f"{staging} is not on {platform.node()}: with executors on other machines the log directory must "
            "be on all of them, at the same path (NFS)"
        )
    directory = os.path.join(staging, attempt)
    files.make_directory(directory)
    return directory


def _parts(task: CopyTask) -> list[Sequence[SourceSegment]]:
    """What becomes one segment each: the group; with another codec, which may need more room than the old
    one, each of its segments, because their size is not known yet."""
    return [task.sources] if task.codec is None else [[source] for source in task.sources]


# ---- the plan


class ProducerInSegment(NamedTuple):
    """A row of ``producers_by_segment``; -1 for null."""

    base_offset: int
    """Of the segment."""
    producer_id: int
    max_timestamp: int
    producer_epoch: int
    data_epoch: int
    last_data_offset: int
    transactional_data: int
    marker: int
    batches: int = 0
    """How many of them the segment has."""


class StoredLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log as its directory shows it."""

    topic_partition: TopicPartition
    directory: str
    segments: tuple[SourceSegment, ...]
    """All of them, the active one last."""
    modified_ms: Mapping[int, int]
    """When each record file was written last, by base offset."""
    log_start_offset: int
    high_watermark: int | None
    """None: the checkpoint does not name the log."""
    first_dirty_offset: int
    """As the checkpoint has it; 0 where it does not."""
    topic_id: str | None = None
    leader_epochs: tuple[EpochEntry, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A log and what of it is compacted; ``groups`` is empty where nothing can be, and ``reason`` says
    why."""

    log: StoredLog
    job: CompactionJob | None = None
    groups: tuple[tuple[SourceSegment, ...], ...] = ()
    seen: tuple[tuple[int, ...], ...] = ()
    """Of each group the producers with a transaction that began below it and continues in it."""
    reason: str = ""
    batches: int = 0
    """Of the groups."""

    @property
    def end_offset(self) -> int:
        return 0 if self.job is None else self.job.first_uncleanable_offset

    def ends(self) -> list[tuple[int, int]]:
        """Each group's first offset, and where the next one begins."""
        starts = [group[0].base_offset for group in self.groups]
        return list(zip(starts, [*starts[1:], self.end_offset], strict=True))


def open_producers(rows: Iterable[ProducerInSegment]) -> dict[int, int]:
    """The producers whose last transaction has no marker, each with the offset of its last marker (-1:
    none)."""
    markers: dict[int, int] = {}
    data: dict[int, int] = {}
    for row in rows:
        markers[row.producer_id] = max(markers.get(row.producer_id, -1), row.marker)
        data[row.producer_id] = max(data.get(row.producer_id, -1), row.transactional_data)
    return {each: markers[each] for each, last in data.items() if last > markers[each]}


def make_plan(
    log: StoredLog,
    rows: Sequence[ProducerInSegment],
    *,
    first_open_offset: int | None,
    config: TopicConfig,
    now_ms: int,
) -> Plan:
    """Decide what is compacted.

    Args:
        first_open_offset: where the first transaction without a marker begins; None: there is none.
    """
    bases = [segment.base_offset for segment in log.segments]
    last_stable_offset = 0 if log.high_watermark is None else log.high_watermark
    if first_open_offset is not None:
        last_stable_offset = min(last_stable_offset, first_open_offset)
    count = max(0, min(bisect_right(bases, last_stable_offset) - 1, len(bases) - 1))
    if not count:
        return Plan(log=log, reason=_why_nothing(log, last_stable_offset))
    count = _without_young(log, rows, count, lag_ms=config.min_compaction_lag_ms, now_ms=now_ms)
    if not count:
        lag_ms = config.min_compaction_lag_ms
        return Plan(log=log, reason=f"the first segment has records younger than {lag_ms} ms")
    below = log.segments[:count]
    job = CompactionJob(
        directory=log.directory,
        config=config,
        segments=below,
        later_txn_indexes=tuple(each.base_offset for each in log.segments[count:] if each.has_txn_index),
        first_dirty_offset=log.log_start_offset,
        first_uncleanable_offset=bases[count],
        last_records=last_records(rows, now_ms=now_ms),
        now_ms=now_ms,
        map_bytes=0,
        map_load_factor=0,
        read_bytes=READ_BYTES,
    )
    groups = group_segments(job, job.first_uncleanable_offset)
    grouped = {segment.base_offset for group in groups for segment in group}
    return Plan(
        log=log,
        job=job,
        groups=tuple(map(tuple, groups)),
        seen=_seen_before(rows, [group[0].base_offset for group in groups]),
        batches=sum(row.batches for row in rows if row.base_offset in grouped),
    )


def copy_tasks(
    plan: Plan,
    aborted: Sequence[AbortedTransaction],
    *,
    first_group: int,
    staging: str | None,
    codec: CompressionType | None,
) -> list[CopyTask]:
    """The tasks of a plan, numbered from ``first_group`` on."""
    assert plan.job is not None
    return [
        CopyTask(
            group=first_group + index,
            job=msgspec.structs.replace(plan.job, segments=()),
            sources=group,
            end_offset=end,
            aborted=tuple(each for each in aborted if each.first_offset < end and each.last_offset >= start),
            seen=seen,
            staging=staging,
            codec=codec,
        )
        for index, (group, seen, (start, end)) in enumerate(
            zip(plan.groups, plan.seen, plan.ends(), strict=True)
        )
    ]


def last_records(rows: Iterable[ProducerInSegment], *, now_ms: int) -> dict[int, LastRecord]:
    """Where the active producers have written last, as the broker's producer state has it: of the newest
    epoch."""
    newest: dict[int, tuple[int, int, int]] = {}
    for row in rows:
        if row.producer_id >= 0:
            epoch, offset, timestamp = newest.get(row.producer_id, (-1, -1, -1))
            if row.producer_epoch > epoch:
                epoch, offset = row.producer_epoch, -1
            if row.data_epoch == epoch:
                offset = max(offset, row.last_data_offset)
            newest[row.producer_id] = epoch, offset, max(timestamp, row.max_timestamp)
    return {
        producer_id: LastRecord(epoch, offset)
        for producer_id, (epoch, offset, timestamp) in newest.items()
        if now_ms - timestamp < PRODUCER_ID_EXPIRATION_MS
    }


def _without_young(
    log: StoredLog, rows: Iterable[ProducerInSegment], count: int, *, lag_ms: int, now_ms: int
) -> int:
    """How many of the first ``count`` segments are old enough. What was compacted before is."""
    if lag_ms <= 0:
        return count
    newest: dict[int, int] = {}
    for row in rows:
        newest[row.base_offset] = max(newest.get(row.base_offset, -1), row.max_timestamp)
    bases = [segment.base_offset for segment in log.segments]
    first_dirty = max(log.first_dirty_offset, log.log_start_offset)
    for index in range(count):
        timestamp = newest.get(bases[index], -1)
        if timestamp < 0:
            timestamp = log.modified_ms[bases[index]]
        if bases[index + 1] > first_dirty and timestamp > now_ms - lag_ms:
            return index
    return count


def _seen_before(rows: Iterable[ProducerInSegment], starts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Of each offset of ``starts``, ascending, the producers with a transaction that continues there."""
    in_order = deque(sorted(rows))
    seen: set[int] = set()
    found = []
    for start in starts:
        while in_order and in_order[0].base_offset < start:
            row = in_order.popleft()
            if row.transactional_data > row.marker:
                seen.add(row.producer_id)
            elif row.marker >= 0:
                seen.discard(row.producer_id)
        found.append(tuple(sorted(seen)))
    return tuple(found)


def _why_nothing(log: StoredLog, last_stable_offset: int) -> str:
    if len(log.segments) < 2:
        return "it has only its active segment"
    if log.high_watermark is None:
        return f"its high watermark is not known: {REPLICATION_OFFSET_CHECKPOINT} does not name it"
    if log.high_watermark < log.segments[1].base_offset:
        return f"the high watermark, {log.high_watermark}, is in the first segment"
    return f"a transaction that began at offset {last_stable_offset}, in the first segment, has no end"
