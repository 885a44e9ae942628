"""A task's work: the batches of a split, found where they are now, checked, and decoded; and how segments are
cut into the chunks that tasks read.

The log may have changed since the split was planned. A segment that retention or the cleaner took away is
still there under its ``.deleted`` name for a minute, and read from there; one that the cleaner replaced has
its offsets in another file, and is looked up by them; what is in no file any more is lost data, an error
unless ``failOnDataLoss`` is false. An open file is readable whatever happens to its name.

Damage ends nothing but the batch it is in, unless ``onCorrupt`` is ``fail``: the next batch is found by the
chain of lengths, or, where that is broken, by the next entry of the offset index.

Segments are cut at batch boundaries, through the offset index. That is pure but for one look at the header
where a chunk is to begin: an index carries no checksum, so an entry that leads to no batch is passed over,
and the chunk before it becomes longer. A chunk is a range of offsets, with the place in the file where they
were when it was planned. So it still means the same when the file was replaced by a compacted one since.
Every offset of the range that was asked for lies in exactly one chunk.

What batch reads and streams share on Spark's side is here, too: partitions of work, and doing one.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from minikafka.errors import KafkaError, MinikafkaError
from minikafka.log.files import DELETED_SUFFIX, LOG_SUFFIX, file_name
from minikafka.log.segment.indexes import AbortedTransaction
from minikafka.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from minikafka.protocol.records.compression import CorruptBatch, decompress
from minikafka.spark.runtime.storage import Location, LogFile, LogStorage, UnusableLocation, join
from minikafka.spark.source.decode import (
    ERROR,
    RECORD_BYTES_MIN,
    RECORD_SCHEMA,
    Bools,
    OffsetRange,
    Origin,
    PlainBatches,
    arrow_schema,
    check_columns,
    decode,
    has_dense_offsets,
    is_control,
    needs_records,
    rows_of_headers,
)
from minikafka.spark.source.log_files import (
    Block,
    DamagedSegment,
    Headers,
    IndexEntries,
    Int64s,
    PartitionLog,
    SegmentFiles,
    partition_log,
    read_offset_index,
    scan,
)
from minikafka.spark.source.options import BadOption, OnCorrupt, ReadOptions
from minikafka.types import Buffer, TopicPartition

_log = logging.getLogger(__name__)

OPEN_END: Final = 2**63 - 1
"""The end of a chunk that reads whatever the segment held when it was planned."""

READ_BYTES: Final = 4 * 1024 * 1024
"""What is read and decoded at once."""
_ROWS_MAX: Final = 1 << 16
"""In one Arrow batch where only headers are read; more rows in a single batch of a log go through whole."""
_BAD_CRC: Final = "its CRC is not that of its bytes"
_LOOKUPS_MAX: Final = 10

OPEN_BYTES = 1024 * 1024
"""What a file more in a task is worth, in bytes read instead: so that small segments share tasks."""


# ---- chunks


@dataclass(frozen=True, slots=True)
class Split:
    """A chunk of one segment, for one task."""

    topic_partition: TopicPartition
    log_dir: Location
    base_offset: int
    """Of the segment."""
    position: int
    """A batch starts here, at or before the first offset."""
    end_position: int
    segment_size: int
    """When it was planned; the last segment grows."""
    identity: int
    """Of the file, where its store knows one."""
    first_offset: int
    end_offset: int
    """Exclusive."""
    offset_bound: int
    """Where the batch behind ``end_position`` begins, or at most does: no batch of the chunk may reach it."""
    is_last: bool
    """Whether the segment was the last one of its log: what is cut off at its end is no damage."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """Whose records are not wanted; those that reach into the chunk."""

    @property
    def size(self) -> int:
        return self.end_position - self.position


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where a split begins."""

    position: int
    offset: int
    """The least that a batch from here on may have."""


def cut(
    index: IndexEntries,
    *,
    segment_size: int,
    first_offset: int,
    end_offset: int,
    split_bytes: int,
    header_at: Callable[[int], Buffer],
) -> tuple[list[Chunk], int]:
    """The chunks that hold the offsets from ``first_offset`` to below ``end_offset`` of a segment, and the
    position where the last one ends.

    Args:
        header_at: the 61 bytes at a position, or fewer at the end of the file.
    """
    position = index.position_of(first_offset)
    if (
        position
        and (batch := batch_at(header_at(position))) is not None
        and batch.base_offset <= first_offset
    ):
        chunks = [Chunk(position, first_offset)]
    else:
        chunks = [Chunk(0, first_offset)]
    end = min(index.position_behind(end_offset - 1, segment_size), segment_size)
    wanted = chunks[0].position + split_bytes
    while wanted < end:
        slot = int(np.searchsorted(index.positions, wanted, side="left"))
        if slot == index.positions.size or int(index.positions[slot]) >= end:
            break
        position, offset = int(index.positions[slot]), int(index.offsets[slot])
        batch = batch_at(header_at(position))
        # An entry has the last offset of its append: a batch that reaches behind it is not where it says.
        if (
            batch is not None
            and chunks[-1].offset < batch.base_offset < end_offset
            and batch.last_offset <= offset
        ):
            chunks.append(Chunk(position, batch.base_offset))
            wanted = position + split_bytes
        else:
            wanted = position + 1
    return chunks, end


def batch_at(header: Buffer) -> BatchHeader | None:
    """What the header of a batch says; None where it is none."""
    try:
        read = read_header(header)
    except KafkaError:
        return None
    return read if read.last_offset_delta >= 0 else None


def pack(splits: Sequence[Split], task_bytes: int, open_bytes: int) -> list[tuple[Split, ...]]:
    """Splits in their order, put together so that a task has about ``task_bytes`` to do.

    Args:
        open_bytes: what opening a file is worth, in bytes that could be read meanwhile.
    """
    tasks: list[tuple[Split, ...]] = []
    current: list[Split] = []
    size = 0
    for split in splits:
        cost = split.size + open_bytes
        if current and size + cost > task_bytes:
            tasks.append(tuple(current))
            current, size = [], 0
        current.append(split)
        size += cost
    if current:
        tasks.append(tuple(current))
    return tasks


# ---- reading them


class CorruptLog(MinikafkaError):
    """A damaged chunk of a log: names file and position."""


class DataLoss(MinikafkaError):
    """Records that are wanted and no longer there: names the partition and the offsets."""


class SplitReader:
    """Reads the records of one split.

    Args:
        columns: of ``known_columns``, in the order in which they are wanted.
        timestamp_ms_min: records before are not wanted; batches that hold no others are passed over.
    """

    known_columns: StructType = RECORD_SCHEMA

    def __init__(
        self,
        split: Split,
        columns: Sequence[str],
        options: ReadOptions,
        *,
        timestamp_ms_min: int | None = None,
        store: tuple[LogStorage, str] | None = None,
    ) -> None:
        self._split = split
        self._columns = columns
        self._options = options
        self._timestamp_ms_min = timestamp_ms_min
        self._store, self._directory = store or split.log_dir.open()
        self._segment_name = file_name(split.base_offset, LOG_SUFFIX)
        self._shown = split.log_dir.shown(str(split.topic_partition), self._segment_name)
        self._wanted = OffsetRange(split.first_offset, split.end_offset)
        self._origin = Origin(*split.topic_partition, self._segment_name, split.log_dir.text)

    def record_batches(self, lookups: int = 0) -> Iterator[pa.RecordBatch]:
        """The records of the split, in their order.

        Raises:
            CorruptLog: damage, with ``onCorrupt`` ``fail``.
            DataLoss: offsets that are gone, with ``failOnDataLoss``.
            UnusableLocation: this machine does not have the log directory.
            OSError: the store's.
        """
        file = self._open()
        if file is None:
            for found in self._looked_up(lookups):
                yield from found.record_batches(lookups + 1)
            return
        split = self._split
        position: int | None = split.position
        try:
            while position is not None:
                try:
                    yield from self._rows(file, self._blocks(file, position))
                    return
                except DamagedSegment as damage:
                    wants_more = split.end_offset != OPEN_END and damage.next_offset < split.end_offset
                    if damage.is_tail and split.is_last and not wants_more:
                        return
                    yield from self._damaged(damage.position, None, damage.reason)
                    position = self._next_position(damage.position)
        finally:
            file.close()

    def _open(self) -> LogFile | None:
        """The file that the split was planned for; None when it is gone or was replaced."""
        split = self._split
        path = join(join(self._directory, str(split.topic_partition)), self._segment_name)
        for each in (path, path + DELETED_SUFFIX):
            try:
                file = self._store.open(each)
            except FileNotFoundError:
                continue
            size = file.size()
            grown = size >= split.segment_size if split.is_last else size == split.segment_size
            if grown and split.identity in (0, file.identity):
                return file
            file.close()
        return None

    def _looked_up(self, lookups: int) -> Iterator[SplitReader]:
        """The offsets of the split, where the log has them now."""
        split = self._split
        log = partition_log(split.log_dir, self._store, self._directory, split.topic_partition)
        if log is None or not log.segments:
            self._check_is_reachable()
            self._lose(split.first_offset, split.end_offset, "the log is gone")
            return
        if lookups == _LOOKUPS_MAX:
            raise DataLoss(f"{self._shown}: the log changes faster than it can be read")
        if log.segments[0].base_offset > split.first_offset:
            self._lose(
                split.first_offset, log.segments[0].base_offset, "retention or DeleteRecords removed them"
            )
        for place, segment in enumerate(log.segments):
            is_last = place + 1 == len(log.segments)
            end = OPEN_END if is_last else log.segments[place + 1].base_offset
            if segment.base_offset < split.end_offset and end > split.first_offset:
                found = replace(
                    split,
                    base_offset=segment.base_offset,
                    position=0,
                    end_position=segment.size,
                    segment_size=segment.size,
                    identity=0,
                    first_offset=max(split.first_offset, segment.base_offset),
                    end_offset=min(split.end_offset, end),
                    offset_bound=end,
                    is_last=is_last,
                )
                yield type(self)(
                    found,
                    self._columns,
                    self._options,
                    timestamp_ms_min=self._timestamp_ms_min,
                    store=(self._store, self._directory),
                )

    def _check_is_reachable(self) -> None:
        """A log that is not there may have been deleted; a log directory with nothing in it is another
        machine's. Raises UnusableLocation: it is not here."""
        try:
            is_there = bool(self._store.list(self._directory))
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise UnusableLocation(
                f"{self._split.log_dir.shown()} is not on {platform.node()}: with executors on other "
                "machines the log directory must be on all of them, at the same path, or in an object store"
            )

    def _lose(self, first: int, end: int, why: str) -> None:
        message = f"{self._shown}: offsets {first} to {end - 1} are no longer there: {why}"
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{message}; failOnDataLoss=false continues without them")
        _log.warning("%s", message)

    @property
    def _reads_whole_batches(self) -> bool:
        return needs_records(self._columns)

    def _blocks(self, file: LogFile, position: int) -> Iterator[Block]:
        """The batches of the split from ``position`` on. Raises DamagedSegment, at the first that is none."""
        split = self._split
        return scan(
            file,
            position=position,
            end=split.end_position,
            base_offset=split.base_offset,
            read_bytes=READ_BYTES if self._reads_whole_batches else self._store.scan_bytes,
            whole_batches=self._reads_whole_batches,
            stop_offset=split.end_offset,
            offset_bound=split.offset_bound,
        )

    def _rows(self, file: LogFile, blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
        """The rows of batches."""
        return self._records(blocks) if self._reads_whole_batches else self._headers_only(file, blocks)

    def _next_position(self, damaged: int) -> int | None:
        """Where a batch starts behind a broken chain, as far as the split goes."""
        segment_log = partition_log(
            self._split.log_dir, self._store, self._directory, self._split.topic_partition
        )
        segment = _segment(segment_log, self._split.base_offset)
        if segment_log is None or segment is None:
            return None
        position = read_offset_index(segment_log, segment).next_position(damaged)
        return position if position is not None and position < self._split.end_position else None

    def _headers_only(self, file: LogFile, blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
        for block in blocks:
            chosen = self._chosen(block.headers)
            if not chosen.any():
                continue
            positions, headers = block.positions[chosen], block.headers[chosen]
            told = has_dense_offsets(headers) & self._is_plausible(headers)
            for run in np.split(np.arange(told.size), np.flatnonzero(np.diff(told)) + 1):
                if told[run[0]]:
                    for portion in _portions(headers[run]):
                        rows = headers[run[portion]]
                        yield rows_of_headers(rows, self._columns, self._origin, self._wanted)
                else:  # compacted: which offsets are left, only the records say
                    for place in run.tolist():
                        data = file.read(int(positions[place]), int(headers[place]["batch_length"]) + 12)
                        one = Block(data, int(positions[place]), np.zeros(1, np.int64), headers[[place]])
                        yield from self._decoded(one)

    def _is_plausible(self, headers: Headers) -> Bools:
        """Whether as many records as a header claims can be there at all."""
        body = headers["batch_length"].astype(np.int64) + 12 - HEADER_SIZE
        is_plain = (headers["attributes"] & COMPRESSION_MASK) == 0
        room = np.where(is_plain, body, self._options.decompressed_bytes_max)
        plausible: Bools = headers["record_count"].astype(np.int64) * RECORD_BYTES_MIN <= room
        return plausible

    def _records(self, blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
        for block in blocks:
            chosen = self._chosen(block.headers)
            yield from self._damage_among(block, ~chosen)
            if chosen.any():
                yield from self._decoded(
                    block._replace(positions=block.positions[chosen], headers=block.headers[chosen])
                )

    def _damage_among(self, block: Block, passed_over: Bools) -> Iterator[pa.RecordBatch]:
        """Batches that are passed over for what a damaged header says: they may well hold what is wanted."""
        for place in np.flatnonzero(passed_over).tolist():
            position, header = int(block.positions[place]), BatchHeader(*block.headers[place].item())
            if header.last_offset >= self._wanted.first and not crc_is_valid(block.data, position, header):
                yield from self._damaged(block.file_position + position, header.base_offset, _BAD_CRC)

    def _chosen(self, headers: Headers) -> Bools:
        """The batches that may hold records that are wanted."""
        last = headers["base_offset"] + headers["last_offset_delta"].astype(np.int64)
        chosen: Bools = (last >= self._wanted.first) & (headers["record_count"] != 0)
        if not self._options.include_control_batches:
            chosen &= ~is_control(headers)
        if self._timestamp_ms_min is not None:
            chosen &= headers["max_timestamp"] >= self._timestamp_ms_min
        transactional = (headers["attributes"] & TRANSACTIONAL_MASK) != 0
        for each in self._split.aborted:
            chosen &= ~(
                transactional
                & ~is_control(headers)
                & (headers["producer_id"] == each.producer_id)
                & (headers["base_offset"] >= each.first_offset)
                & (headers["base_offset"] <= each.last_offset)
            )
        return chosen

    def _decoded(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The records of whole batches."""
        good: list[int] = []
        parts: list[bytes | bytearray | memoryview] = []
        size = 0
        is_plain = not (block.headers["attributes"] & COMPRESSION_MASK).any()
        for place, (position, fields) in enumerate(
            zip(block.positions.tolist(), block.headers.tolist(), strict=True)
        ):
            header = BatchHeader(*fields)
            try:
                if not crc_is_valid(block.data, position, header):
                    raise CorruptBatch(_BAD_CRC)
                if not is_plain:
                    body = memoryview(block.data)[position + HEADER_SIZE : position + header.size]
                    part = decompress(
                        body, header.compression, bytes_max=self._options.decompressed_bytes_max
                    )
                    parts.append(part)
                    size += len(part)
            except CorruptBatch as error:
                yield from self._damaged(
                    block.file_position + position, header.base_offset, error.message or str(error)
                )
                continue
            good.append(place)
            if size >= READ_BYTES:
                yield from self._columns_of(block, good, parts)
                good, parts, size = [], [], 0
        if good:
            yield from self._columns_of(block, good, None if is_plain else parts)

    def _columns_of(
        self, block: Block, good: list[int], parts: list[bytes | bytearray | memoryview] | None
    ) -> Iterator[pa.RecordBatch]:
        headers, positions = block.headers[good], block.positions[good]
        if parts is None:
            ends = positions + headers["batch_length"] + 12
            batches = PlainBatches(block.data, positions + HEADER_SIZE, ends, headers)
        else:
            ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
            starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
            batches = PlainBatches(b"".join(parts), starts, ends, headers)
        rows, bad = decode(batches, self._columns, self._origin, self._wanted)
        for each in bad:
            at = block.file_position + int(positions[each.place])
            yield from self._damaged(at, int(headers["base_offset"][each.place]), each.reason)
        if rows.num_rows:
            yield rows

    def _damaged(self, position: int, batch_offset: int | None, reason: str) -> Iterator[pa.RecordBatch]:
        """What ``onCorrupt`` makes of damage."""
        message = f"{self._shown}, position {position}: {reason}"
        match self._options.on_corrupt:
            case OnCorrupt.FAIL:
                raise CorruptLog(f"{message}; onCorrupt=skip or column reads what is left")
            case OnCorrupt.SKIP:
                _log.warning("left out: %s", message)
            case OnCorrupt.COLUMN:
                said = {"batch_offset": batch_offset, "position": position, ERROR: message}
                said |= self._origin._asdict()
                schema = arrow_schema(self._columns, self.known_columns)
                arrays = [pa.array([said.get(field.name)], type=field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _segment(log: PartitionLog | None, base_offset: int) -> SegmentFiles | None:
    segments = log.segments if log is not None else ()
    return next((each for each in segments if each.base_offset == base_offset), None)


def _portions(headers: Headers) -> Iterator[Int64s]:
    """The places of batches, in portions of about ``_ROWS_MAX`` records."""
    rows = np.cumsum(headers["record_count"].astype(np.int64).clip(0))
    yield from np.split(np.arange(rows.size), np.flatnonzero(np.diff(rows // _ROWS_MAX)) + 1)


# ---- Spark's side


class SplitPartition(InputPartition):
    """What one task reads."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(splits)
        self.splits = splits


def check_schema(schema: StructType, options: ReadOptions, reader: type[SplitReader]) -> None:
    """Whether a reader can serve the schema that Spark asks for.

    Raises:
        UnknownColumn: there is no such column, or not in that type.
        BadOption: the option ``columns`` says otherwise.
    """
    check_columns(schema, reader.known_columns)
    if options.columns is not None and list(options.columns) != schema.names:
        columns, names = ", ".join(options.columns), ", ".join(schema.names)
        raise BadOption(f"columns names {columns}, the schema {names}: give one of them")


def tasks_of(splits: list[Split], options: ReadOptions) -> list[InputPartition]:
    """Spark's partitions for these splits; one with nothing to do where there are none."""
    return [SplitPartition(task) for task in pack(splits, options.split_bytes, OPEN_BYTES)] or [
        SplitPartition(())
    ]


def read_splits(
    reader: type[SplitReader],
    partition: InputPartition,
    columns: Sequence[str],
    options: ReadOptions,
    timestamp_ms_min: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one task."""
    assert isinstance(partition, SplitPartition)
    for split in partition.splits:
        yield from reader(split, columns, options, timestamp_ms_min=timestamp_ms_min).record_batches()
