"""Compaction of a log's closed segments: the work itself. Kafka: ``Cleaner``.

Reads the dirty part for the newest offset of each key (as many keys as the map holds), then copies every
segment below the end of the map, without the records that have a newer one, into new segments: ``.cleaned``
files. It touches nothing that is live and knows nothing of logs; a ``CompactionJob`` describes what to do.
How new segments become live is in ``staged_compaction``.

``Compaction.steps`` yields the bytes it has read and written since: the caller decides when it
continues, so it can be throttled, shared out in slices, or dropped. ``minikafka compact`` uses the copying
alone.

Every batch is checked (``source_batches``): one that is damaged ends the job, and the log is left as it is.

**What is retained of a batch.**
| record | retained |
|---|---|
| past the end of the map | always |
| without a key | no |
| with a newer one of its key | no |
| a tombstone, the newest of its key | until the batch's delete horizon |
| of an aborted transaction | no |
| a marker | until nothing is left of its transaction, and then until the delete horizon |

The first pass that finds a tombstone, or a marker with nothing left of its transaction, writes the delete
horizon into the batch: ``delete.retention.ms`` from now. A batch without records is kept, as a header, when
it is an active producer's last one (its sequence follows from it) or the last of what becomes one segment.

Transactions (``CleanedTransactions``). The data of an aborted one may go at once, for its marker and the
transaction index have decided it. A marker may go when nothing of its transaction was seen: it ends nothing
then. An aborted transaction of which something was still seen is written into the index of the new segment,
with its marker.

Differs from Kafka: the last batch of every new segment is kept, not only that of the round; so the segment
reaches as far as the old ones did, and a start that finds an interrupted swap knows which ones they were. A
batch past the end of the map is not touched, where Kafka gives it a delete horizon.

**Which records are the newest of their keys** is what a compaction knows when it copies (``NewestRecords``).
``OffsetMap`` has the newest offset of each key in the dirty part of a log in memory. Kafka:
``SkimpyOffsetMap``, which keeps 24 bytes an entry (MD5 and offset) in one preallocated table. In Python a
table of that kind costs several interpreted steps a probe; a ``dict`` does the same in one. So this is a
``dict``, with a bound on its entries that counts what an entry takes at worst.

Measured (CPython 3.11, 100,000 to 900,000 entries): 110 to 186 bytes an entry, the most right after the
table has grown, when the old one is still there: ``ENTRY_BYTES``. ``put`` takes 0.2 µs for a key shorter
than a digest, 0.6 µs for a longer one. The default of 128 MiB holds 630,000 keys, Kafka's 5 million; a log
with more dirty keys than that is compacted in several rounds.

A key shorter than a digest stands for itself; a longer one for its digest of 16 bytes. So memory does not
depend on the length of keys, and short ones never collide.

``RetainedOffsets`` knows the same by going through two ordered things side by side: the offsets of the newest
records, which a shuffle of Spark's has sorted, and the batches of a log. So it needs no more memory for a
billion keys than for one.

Invariants: ``latest_offset`` is the offset up to which every key is known. Every retained offset is found in
the batches: one that is not means that the log is not the one which was read before, or that both readings
disagree about it; then nothing may be dropped.

**What is done to one batch**: its records are looked at, and it is written again with some of them. Kafka:
``MemoryRecords.filterTo`` and ``buildRetainedRecordsInto``, ``DefaultRecordBatch.writeEmptyHeader``; KIP-534
(the delete horizon).

Offsets, producer, sequence and leader epoch are kept, and the codec unless another one is asked for;
record count, timestamps and CRC are those of what is left. The header's last offset is kept too, because a
producer's last sequence follows from it.

A batch with a delete horizon has it where the base timestamp was, and the records' timestamps count from
there. aiokafka's builder takes the first record's timestamp for the base; so a record of the horizon's time
goes in front and its bytes are cut off again.

Measured (µs a record of 100 bytes, a key of 16, uncompressed): ``raw_records`` 0.12, ``rebuild_batch`` 0.46.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, Protocol

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import Files
from minikafka.log.files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_MAX,
    TXN_INDEX_SUFFIX,
    file_name,
    fsync_file,
)
from minikafka.log.producers.state import read_marker
from minikafka.log.segment.indexes import RELATIVE_OFFSET_MAX, AbortedTransaction, TransactionIndex
from minikafka.log.segment.segment import BatchSpan, CorruptSegment, LogSegment
from minikafka.log.staged_compaction import (
    CompactedSegment,
    CompactionJob,
    CompactionResult,
    LastRecord,
    SourceSegment,
    group_segments,
    with_ends,
)
from minikafka.protocol.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    TimestampType,
    crc_is_valid,
    pack_header,
    read_header,
)
from minikafka.protocol.records.compression import CompressionType, compress
from minikafka.protocol.records.record_codec import load as record_codec
from minikafka.protocol.records.records import parse_records, plain_batch
from minikafka.types import NO_TIMESTAMP, Buffer

_FRONT_RECORD_BYTES: Final = 7
"""A record without key, value and headers, at the base offset and the base timestamp: every field is one
byte."""

_BATCH_BYTES_MAX: Final = 2**31 - 1

DECOMPRESSED_BYTES_MAX = 1024 * 1024 * 1024
"""A batch that the log holds was accepted once; this only bounds what a damaged one can cost."""

ENTRY_BYTES = 192
_DIGEST_BYTES = 16

Steps = Iterator[int]
"""Bytes read and written since the last step."""

_WRITE_BYTES = 1024 * 1024
"""Batches are written together up to this many bytes: one call of the system for thousands of small ones."""


class RawRecord(Protocol):
    """A record as aiokafka's codec or the parser yields it. ``timestamp`` is None or -1 where there is
    none."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def raw_records(batch: Buffer, header: BatchHeader, *, decompressed_bytes_max: int) -> list[RawRecord]:
    """The records of one whole batch whose CRC is known to be right.

    Raises:
        CorruptBatch: it cannot be decompressed within the bound, or a record is malformed.
    """
    plain = plain_batch(batch, header, decompressed_bytes_max)
    try:
        return list(record_codec().Batch(plain))
    except record_codec().refusals:
        return list(parse_records(plain, header))


def rebuild_batch(
    header: BatchHeader,
    records: Sequence[RawRecord],
    *,
    delete_horizon_ms: int | None,
    codec: CompressionType | None = None,
) -> bytes:
    """The batch of ``header`` with only these of its records, at least one, in their order.

    Args:
        delete_horizon_ms: when its tombstones (or its marker) may go; None: not decided.
        codec: what to compress it with; None: as it was.
    """
    if codec is None:
        codec = CompressionType(header.attributes & COMPRESSION_MASK)
    builder = record_codec().Builder(MAGIC, 0, 0, -1, -1, -1, _BATCH_BYTES_MAX)
    if delete_horizon_ms is not None:
        builder.append(0, delete_horizon_ms, None, None, [])
    base_offset = header.base_offset
    for record in records:
        timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        builder.append(record.offset - base_offset, timestamp, record.key, record.value, list(record.headers))
    with memoryview(builder.build()) as built:
        body = compress(
            built[HEADER_SIZE + (0 if delete_horizon_ms is None else _FRONT_RECORD_BYTES) :],
            codec,
        )
    first, *_ = (NO_TIMESTAMP if record.timestamp is None else record.timestamp for record in records)
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max(
            NO_TIMESTAMP if record.timestamp is None else record.timestamp for record in records
        )
    rebuilt = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(body),
        attributes=header.attributes & ~(DELETE_HORIZON_MASK | COMPRESSION_MASK)
        | codec
        | (0 if delete_horizon_ms is None else DELETE_HORIZON_MASK),
        base_timestamp=first if delete_horizon_ms is None else delete_horizon_ms,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    return pack_header(rebuilt, body) + body


def empty_batch(header: BatchHeader) -> bytes:
    """The batch of ``header`` without its records: what is left says where a producer or a log was."""
    emptied = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD,
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return pack_header(emptied, b"")


class NewestRecords(Protocol):
    """Knows which records are the newest of their keys: an ``OffsetMap``, or ``RetainedOffsets``."""

    @property
    def latest_offset(self) -> int:
        """The offset up to which it knows."""
        ...

    def select(self, records: Iterable[RawRecord]) -> list[RawRecord]:
        """Those records of one batch, in their order, that have a key and no newer one of it."""
        ...


class CleanedTransactions:
    """The transactions of one pass through a log, fed with its batches in their order.

    Args:
        aborted: every one that reaches into what is read.
        seen: producers of which data was seen whose transactions had not ended where the pass begins.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], *, seen: Iterable[int] = ()) -> None:
        self.index: TransactionIndex | None = None
        """Of the segment that is being written; None while nothing is."""
        self._to_come = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._ongoing_aborted: dict[int, AbortedTransaction] = {}
        self._seen: dict[int, None] = dict.fromkeys(seen)
        """Producers of ongoing transactions with data, aborted or not."""

    def may_discard(self, header: BatchHeader, batch: Buffer) -> bool:
        """Take note of the next batch; whether its records are no longer needed.

        Raises:
            KafkaError: a marker that cannot be read.
            OSError: the index could not be written.
        """
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            aborted = self._to_come.pop()
            self._ongoing_aborted.setdefault(aborted.producer_id, aborted)
        producer_id = header.producer_id
        if not header.is_control:
            if not header.is_transactional:
                return False
            self._seen[producer_id] = None
            return producer_id in self._ongoing_aborted
        if header.record_count == 0:
            return True
        marker = read_marker(header, batch)
        if marker is None:
            return False
        was_seen = producer_id in self._seen
        self._seen.pop(producer_id, None)
        if marker.is_abort:
            ended = self._ongoing_aborted.pop(producer_id, None)
            if ended is not None and was_seen and self.index is not None:
                self.index.append(ended)
        return not was_seen


class BatchRetention:
    """The rules of one round. With a ``codec``, batches that another one was used for are written again."""

    def __init__(
        self,
        newest: NewestRecords,
        transactions: CleanedTransactions,
        *,
        last_records: Mapping[int, LastRecord],
        now_ms: int,
        delete_retention_ms: int,
        codec: CompressionType | None = None,
    ) -> None:
        self._newest = newest
        self._codec = codec
        self._transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms
        self.records_kept = 0
        self.records_dropped = 0

    def apply(self, header: BatchHeader, batch: Buffer, *, is_last: bool) -> Buffer | None:
        """What to write for the next batch of the log: itself, another one, or nothing.

        Args:
            is_last: the last batch of what becomes one segment.

        Raises:
            CorruptBatch: its records cannot be read.
            OSError: the new transaction index could not be written.
        """
        may_discard = self._transactions.may_discard(header, batch)
        kept: Buffer | None = None
        if header.record_count and header.is_control:
            kept = self._marker(header, batch) if may_discard else batch
        elif header.record_count and not may_discard:
            kept = self._filter(header, batch)
        if kept is None:
            self.records_dropped += header.record_count
            return empty_batch(header) if is_last or self._is_last_of_producer(header) else None
        return kept

    def _marker(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """A marker with nothing left of its transaction; None once it may go."""
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is not None:
            return None if horizon_ms <= self._now_ms else batch
        records = raw_records(batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        return rebuild_batch(header, records, delete_horizon_ms=self._delete_horizon_ms)

    def _filter(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """A data batch with the retained records; None without any."""
        if header.base_offset > self._newest.latest_offset:
            self.records_kept += header.record_count
            return batch
        horizon_ms = header.delete_horizon_ms
        records = raw_records(batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        kept = self._newest.select(records)
        has_tombstones = any(record.value is None for record in kept)
        if has_tombstones and horizon_ms is not None and horizon_ms <= self._now_ms:
            kept = [record for record in kept if record.value is not None]
            has_tombstones = False
        self.records_kept += len(kept)
        if not kept:
            return None
        is_whole = len(kept) == header.record_count
        needs_horizon = has_tombstones and horizon_ms is None
        needs_codec = self._codec is not None and self._codec != header.compression
        if is_whole and not needs_horizon and not needs_codec:
            return batch
        self.records_dropped += header.record_count - len(kept)
        return rebuild_batch(
            header,
            kept,
            delete_horizon_ms=self._delete_horizon_ms if needs_horizon else horizon_ms,
            codec=self._codec,
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def read_aborted(job: CompactionJob, files: Files) -> list[AbortedTransaction]:
    """The aborted transactions that began in what a job compacts, wherever they ended. Raises OSError,
    CorruptTransactionIndex."""
    bases = [segment.base_offset for segment in job.segments if segment.has_txn_index]
    found: list[AbortedTransaction] = []
    for base_offset in (*bases, *job.later_txn_indexes):
        path = os.path.join(job.directory, file_name(base_offset, TXN_INDEX_SUFFIX))
        if files.exists(path):  # creating one is not this one's business
            index = TransactionIndex(path, files)
            try:
                found += index.all_aborted()
            finally:
                index.close()
    return [each for each in found if each.first_offset < job.first_uncleanable_offset]


class OffsetMap:
    """A bounded map from keys to offsets."""

    __slots__ = ("_offsets", "entries_max", "latest_offset")

    def __init__(self, *, buffer_bytes: int, load_factor: float) -> None:
        """``load_factor`` is the part of the buffer that may be filled."""
        self.entries_max = max(1, int(buffer_bytes * load_factor) // ENTRY_BYTES)
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __repr__(self) -> str:
        return f"OffsetMap({len(self)} of {self.entries_max} entries, latest_offset={self.latest_offset})"

    def put(self, key: bytes, offset: int) -> bool:
        """Note a key's newer offset. False, and nothing noted, when there is no room for another key."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        offsets = self._offsets
        if len(offsets) >= self.entries_max and key not in offsets:
            return False
        offsets[key] = offset
        return True

    def get(self, key: bytes) -> int:
        """The newest known offset of the key; -1 for a key that is not in the dirty part."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)

    def select(self, records: Iterable[RawRecord]) -> list[RawRecord]:
        """Those records, in their order, that have a key and no newer one of it."""
        newest = self.get
        return [
            record for record in records if (key := record.key) is not None and record.offset >= newest(key)
        ]


class RetainedOffsets:
    """Selects records by their offsets. Batches must come in the order of offsets."""

    def __init__(self, offsets: Iterator[int], *, latest_offset: int) -> None:
        """``latest_offset`` is the last one of the log that the offsets cover; beyond it, all is retained."""
        self.latest_offset = latest_offset
        self._offsets = offsets
        self._next = next(offsets, OFFSET_MAX)

    def __repr__(self) -> str:
        return f"RetainedOffsets(next={self._next}, latest_offset={self.latest_offset})"

    def select(self, records: Iterable[RawRecord]) -> list[RawRecord]:
        """The retained records.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: an offset before them was in no batch.
        """
        following, offsets = self._next, self._offsets
        kept = []
        for record in records:
            offset = record.offset
            if offset >= following:
                if offset > following:
                    raise _missing(following)
                kept.append(record)
                following = next(offsets, OFFSET_MAX)
        self._next = following
        return kept

    def finish(self) -> None:
        """All batches were seen.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: an offset was in none of them.
        """
        if self._next != OFFSET_MAX:
            raise _missing(self._next)


def _missing(offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the record at offset {offset}, the newest of its key, is not in the log any more: it has changed "
        f"since it was read",
    )


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
