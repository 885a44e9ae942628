"""Compaction of a log's closed segments: the work itself. Kafka: ``Cleaner``.

Reads the dirty part for the newest offset of each key (as many keys as the map holds), then copies every
segment below the end of the map, without the records that have a newer one, into new segments: ``.cleaned``
files. It touches nothing that is live and knows nothing of logs; a ``CompactionJob`` describes what to do.
Which batches and records are retained is in ``batch_retention``, how new segments become live in
``staged_compaction``.

``Compaction.steps`` yields the bytes it has read and written since: the caller decides when it
continues, so it can be throttled, shared out in slices, or dropped. ``minikafka compact`` uses the copying
alone.

Every batch is checked (``source_batches``): one that is damaged ends the job, and the log is left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import Files
from minikafka.log.compaction.batch_retention import (
    DECOMPRESSED_BYTES_MAX,
    BatchRetention,
    CleanedTransactions,
    read_aborted,
)
from minikafka.log.compaction.offset_map import OffsetMap
from minikafka.log.compaction.staged_compaction import (
    CompactedSegment,
    CompactionJob,
    CompactionResult,
    SourceSegment,
    group_segments,
    with_ends,
)
from minikafka.log.files.names import CLEANED_SUFFIX, LOG_SUFFIX, TXN_INDEX_SUFFIX, file_name
from minikafka.log.files.open_files import fsync_file
from minikafka.log.segment.index_file import RELATIVE_OFFSET_MAX
from minikafka.log.segment.segment import BatchSpan, CorruptSegment, LogSegment
from minikafka.log.segment.txn_index import TransactionIndex
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, read_header
from minikafka.protocol.records.filtered_batch import raw_records
from minikafka.types import Buffer

Steps = Iterator[int]
"""Bytes read and written since the last step."""

_WRITE_BYTES = 1024 * 1024
"""Batches are written together up to this many bytes: one call of the system for thousands of small ones."""


class Compaction:
    """One job under way. ``steps`` once, to its end; then there is a ``result``."""

    def __init__(self, job: CompactionJob, files: Files) -> None:
        self._job = job
        self._files = files
        self._map = OffsetMap(buffer_bytes=job.map_bytes, load_factor=job.map_load_factor)
        self._map.latest_offset = job.first_dirty_offset - 1
        self._aborted = read_aborted(job, files)
        self.result: CompactionResult | None = None

    def steps(self) -> Steps:
        """Do the work.

        Raises:
            KafkaError: CORRUPT_MESSAGE and its kin: the log holds something that cannot be compacted.
            OSError: the disk's.
        """
        yield from self._build_map()
        job, end_offset = self._job, self._map.latest_offset + 1
        retention = BatchRetention(
            self._map,
            transactions := CleanedTransactions(self._aborted),
            last_records=job.last_records,
            now_ms=job.now_ms,
            delete_retention_ms=job.config.delete_retention_ms,
        )
        compacted = []
        for group in group_segments(job, end_offset):
            cleaned = CleanedSegment(
                job.directory, group[0].base_offset, config=job.config, files=self._files
            )
            transactions.index = cleaned.txn_index
            try:
                yield from copy_segments(
                    job.directory,
                    group,
                    cleaned,
                    retention,
                    files=self._files,
                    read_bytes=job.read_bytes,
                )
                cleaned.finish()
            finally:
                cleaned.release()
            replaced = tuple(segment.base_offset for segment in group)
            has_txn_index = cleaned.txn_index.entry_count > 0
            compacted.append(CompactedSegment(replaced[0], replaced, cleaned.size, has_txn_index))
        self.result = CompactionResult(
            tuple(compacted), end_offset, retention.records_kept, retention.records_dropped, len(self._map)
        )

    # ---- the map

    def _build_map(self) -> Steps:
        """Read keys until the dirty part ends or the map is full; then the end of the map is behind the last
        batch that is in it whole."""
        job = self._job
        dirty = [each for each in with_ends(job) if each[1] > job.first_dirty_offset]
        dirty_from = min((segment.base_offset for segment, _ in dirty), default=0)
        # One that ended further below would be taken for an abort of its producer's next transaction.
        transactions = CleanedTransactions(
            aborted for aborted in self._aborted if aborted.last_offset >= dirty_from
        )
        for segment, end_offset in dirty:
            unreported = 0
            batches = source_batches(job.directory, segment, files=self._files, read_bytes=job.read_bytes)
            for header, batch in batches:
                if not self._index_batch(header, batch, transactions):
                    if self._map.latest_offset < job.first_dirty_offset:
                        raise KafkaError(
                            ErrorCode.KAFKA_STORAGE_ERROR,
                            f"{job.directory}: the batch at offset {header.base_offset} has more keys than "
                            f"log.cleaner.dedupe.buffer.size holds",
                        )
                    return
                unreported += len(batch)
                if unreported >= job.read_bytes:
                    yield unreported
                    unreported = 0
            yield unreported
            self._map.latest_offset = end_offset - 1

    def _index_batch(self, header: BatchHeader, batch: memoryview, transactions: CleanedTransactions) -> bool:
        """Note the keys of one batch; False when they do not all fit."""
        start, put = self._job.first_dirty_offset, self._map.put
        is_aborted = transactions.may_discard(header, batch)
        if header.last_offset < start:
            return True
        if not header.is_control and not is_aborted and header.record_count:
            for record in raw_records(batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                key = record.key
                if key is not None and record.offset >= start and not put(key, record.offset):
                    return False
        self._map.latest_offset = header.last_offset
        return True


# ---- reading


def source_batches(
    directory: str, segment: SourceSegment, *, files: Files, read_bytes: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch of a segment with its header, in order: CRC, size, place and offsets are right.

    Args:
        read_bytes: how much to read at a time.

    Raises:
        CorruptSegment: at the first that is not what it should be.
        OSError: the disk's.
    """
    path = os.path.join(directory, file_name(segment.base_offset, LOG_SUFFIX))
    file = files.open(path, read_only=True)
    position, chunk_bytes = 0, read_bytes
    next_offset, last_offset_max = segment.base_offset, segment.base_offset + RELATIVE_OFFSET_MAX
    try:
        while position < segment.size:
            chunk = memoryview(file.read(min(chunk_bytes, segment.size - position), position))
            at = 0
            while len(chunk) - at >= HEADER_SIZE:
                header = _header(chunk, at, path, position + at)
                if at + header.size > len(chunk):
                    break
                if (
                    header.base_offset < next_offset
                    or header.last_offset_delta < 0
                    or header.last_offset > last_offset_max
                    or not crc_is_valid(chunk, at, header)
                ):
                    raise CorruptSegment(path, position + at)
                next_offset = header.next_offset
                yield header, chunk[at : at + header.size]
                at += header.size
            chunk_bytes = read_bytes
            if at == 0:  # a batch that is larger than what was read, or none
                if len(chunk) < HEADER_SIZE:
                    raise CorruptSegment(path, position)
                chunk_bytes = _header(chunk, 0, path, position).size
                if chunk_bytes > segment.size - position or chunk_bytes <= len(chunk):
                    raise CorruptSegment(path, position)
            position += at
    finally:
        file.close()


def _header(chunk: memoryview, at: int, path: str, position: int) -> BatchHeader:
    try:
        return read_header(chunk, at)
    except KafkaError:
        raise CorruptSegment(path, position) from None


# ---- writing


class Destination(Protocol):
    """What batches are copied into: a ``CleanedSegment``, or something that only counts."""

    def append(self, buffers: Sequence[Buffer], spans: Sequence[BatchSpan], /) -> None: ...


class CleanedSegment(LogSegment):
    """The new segment that a compaction writes: ``.cleaned`` files, which are not read until they become live
    by a swap (``UnifiedLog.createNewCleanedSegment``)."""

    __slots__ = ()

    def __init__(self, directory: str, base_offset: int, *, config: TopicConfig, files: Files) -> None:
        """Begin it; what an earlier compaction has left under its names is gone."""
        super().__init__(directory, base_offset, config=config, files=files, size=0, created_ms=0)
        for file in (self, self.offset_index, self.time_index):
            file.path += CLEANED_SUFFIX
        txn_index_path = os.path.join(directory, file_name(base_offset, TXN_INDEX_SUFFIX)) + CLEANED_SUFFIX
        files.remove(txn_index_path)
        self._txn_index = TransactionIndex(txn_index_path, files)
        self._is_active = True
        self._file = files.open(self.path, create=True)
        self._file.truncate(0)
        self.offset_index.reset()
        self.time_index.reset()

    def finish(self) -> None:
        """Close it and make its content durable, but not its names. Blocks. Raises OSError."""
        self.become_inactive()
        for path in (self.path, self.offset_index.path, self.time_index.path, self.txn_index.path):
            fsync_file(self._files, path)


def copy_segments(
    directory: str,
    group: Sequence[SourceSegment],
    cleaned: Destination,
    retention: BatchRetention,
    *,
    files: Files,
    read_bytes: int,
) -> Steps:
    """Copy what ``retention`` keeps of the segments of ``group``, in their order (``Cleaner.cleanSegments``,
    ``cleanInto``).

    Raises:
        KafkaError: CORRUPT_MESSAGE and its kin.
        OSError: the disk's.
    """
    last_with_records = max((s.base_offset for s in group if s.size), default=-1)
    pending: list[bytes | bytearray | memoryview] = []
    spans: list[BatchSpan] = []
    pending_bytes = unreported = 0
    for segment in group:
        batches = source_batches(directory, segment, files=files, read_bytes=read_bytes)
        for position, (header, batch) in _with_positions(batches):
            is_last = segment.base_offset == last_with_records and position + len(batch) == segment.size
            kept = retention.apply(header, batch, is_last=is_last)
            unreported += len(batch)
            if kept is not None:
                max_timestamp = header.max_timestamp if kept is batch else read_header(kept).max_timestamp
                pending.append(kept)
                spans.append((header.last_offset, max_timestamp, len(kept)))
                pending_bytes += len(kept)
            if pending_bytes >= _WRITE_BYTES:
                cleaned.append(pending, spans)
                unreported += pending_bytes
                pending, spans, pending_bytes = [], [], 0
            if unreported >= read_bytes:
                yield unreported
                unreported = 0
    if pending:
        cleaned.append(pending, spans)
    yield unreported + pending_bytes


def _with_positions(
    batches: Iterator[tuple[BatchHeader, memoryview]],
) -> Iterator[tuple[int, tuple[BatchHeader, memoryview]]]:
    """Each batch with the position in its file."""
    position = 0
    for header, batch in batches:
        yield position, (header, batch)
        position += len(batch)
