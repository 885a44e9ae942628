"""A task of ``minikafka compact``: one group of closed segments becomes one new one. Runs in Spark's
Python workers.

The offsets of the records that stay come in ascending order, as Arrow batches, and the segments are read
beside them (``RetainedOffsets``); so a worker's memory depends on neither the number of keys nor the size
of a segment.

A task writes into a directory of its own attempt: one that Spark started twice, or again, never writes into
files that another one writes. What went wrong with the log is an answer; anything else is Spark's to report.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import OsFiles
from minikafka.log.compaction.batch_retention import BatchRetention, CleanedTransactions
from minikafka.log.compaction.cleaner import CleanedSegment, copy_segments
from minikafka.log.compaction.job import CompactedSegment, CompactionJob, SourceSegment
from minikafka.log.compaction.offset_map import RetainedOffsets
from minikafka.log.segment.txn_index import AbortedTransaction
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark.compact.latest_records import BEGINS_A_GROUP
from minikafka.types import Buffer

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
    """Producers with a transaction that began below the group and goes on in it."""
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
    one, each of its segments, for nobody knows yet how large they will be."""
    return [task.sources] if task.codec is None else [[source] for source in task.sources]
