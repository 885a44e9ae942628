"""From columns to segments: all records of many batches are encoded at once, with numpy and Arrow, and kept
in two steps of files.

**Encoding.** Kafka: ``MemoryRecordsBuilder``, ``DefaultRecord.writeTo``, ``ByteUtils.writeVarint``; the other
way round ``spark.source.decode``. ``protocol.records`` is the reference that tests hold it equal to.

A record is bytes that are computed (lengths and deltas), its key, a length again, its value, its headers:

    length varint | attributes 1 | timestamp delta varlong | offset delta varint | key length varint
    key | value length varint | value | header count varint, headers

What is computed becomes two Arrow columns, written by numpy byte by byte for all records at once; Arrow's
join of columns then copies the five parts of every record behind one another. Its buffer is the records of
all batches, so a batch is a slice of it, which is compressed and gets a header and its CRC-32C. A null key or
value has length -1 and no bytes.

Base offset and leader epoch, which the CRC leaves out, are stamped when the place in the log is known.

**Two steps of files**: what each task has encoded, and the segments that are made of it.

A task writes its batches into one *run*, in the order of its rows within each partition, and beside it a
table of them (``BATCH_TABLE``). When all runs are there, each partition's offsets are known, and what goes
into which segment; a second task for each segment copies its batches there, stamps base offsets and leader
epochs, and writes the indexes. Kafka: ``LogSegment.append``, ``OffsetIndex``, ``TimeIndex``.

    runs/000007-<attempt>.batches     batches of all partitions; .table beside it
    logs/orders-3/000….log.<attempt>  a segment, which the driver gives its name

An attempt has files of its own, so a task that Spark runs twice, or twice at once, is there twice until the
driver takes the one whose outcome counts.
"""

from __future__ import annotations

import errno
import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minikafka.files import OsFiles, open_regular
from minikafka.log.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name
from minikafka.log.segment.indexes import OFFSET_INDEX_ENTRY, RELATIVE_OFFSET_MAX, TIME_INDEX_ENTRY
from minikafka.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, pack_header
from minikafka.protocol.records.compression import CompressionType, compress
from minikafka.spark.runtime.session import JobError
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Octets = npt.NDArray[np.uint8]

RECORD_OVERHEAD_MAX: Final = 32
"""Length, attributes, both deltas, both lengths and the count of headers, each as long as it can be (5, 1,
10, 5, 5, 5, 1)."""

NO_HEADERS: Final = b"\0"
"""Their count."""

ENCODED_BYTES_MAX: Final = (1 << 31) - 1
"""What an Arrow column with offsets of 32 bits holds."""

_BINARY = pa.binary()

CHUNK_BYTES: Final = 32 * 1024 * 1024
"""Records that are encoded at once: large enough for whole batches of several partitions, and for numpy's
calls to cost nothing."""
CHUNK_BYTES_MAX: Final = 256 * 1024 * 1024

COPY_BYTES: Final = 4 * 1024 * 1024
_BUFFERS_AT_ONCE: Final = 512
"""Batches in one write, two buffers each: Linux takes 1,024."""

BATCH_TABLE: Final = np.dtype(
    [
        ("partition", "<i4"),
        ("records", "<i4"),
        ("position", "<i8"),
        ("size", "<i8"),
        ("max_timestamp", "<i8"),
    ]
)
"""A row for each batch of a run."""

Batches = npt.NDArray[Any]
"""Of ``BATCH_TABLE``."""

_STAMP: Final = Struct(">qii")
SEGMENT_FILES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)
"""In the order in which they get their places: records come last."""


class Records(NamedTuple):
    """Columns of one length, in the order in which the records are to lie in their log."""

    keys: pa.Array
    """Binary."""
    values: pa.Array
    """Binary."""
    timestamps: Int64s
    """Milliseconds since 1970, none negative."""
    headers: pa.Array | None = None
    """Binary, as ``encode_headers`` makes it; null, or None for all: there are none."""

    @property
    def size(self) -> int:
        return len(self.timestamps)


class EncodedBatch(NamedTuple):
    """A record batch at base offset 0, without a leader epoch: header and records are written one after the
    other."""

    header: bytes
    records: Buffer
    record_count: int
    max_timestamp: int

    @property
    def size(self) -> int:
        return len(self.header) + len(self.records)


# ---- varints


def zigzag(values: Int64s) -> UInt64s:
    """Signed numbers as the unsigned ones that varints are written from."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_sizes(zigzagged: UInt64s) -> Int64s:
    """Bytes of each one's varint: 1 to 10."""
    sizes = np.ones(zigzagged.size, dtype=np.int64)
    top = int(zigzagged.max()) if zigzagged.size else 0
    shift = 7
    while top >> shift and shift < 64:
        sizes += zigzagged >= np.uint64(1 << shift)
        shift += 7
    return sizes


def write_varints(octets: Octets, at: Int64s, zigzagged: UInt64s, sizes: Int64s) -> None:
    """Write each one's varint at its position."""
    longest = int(sizes.max()) if sizes.size else 0
    if longest == 1:
        octets[at] = zigzagged
        return
    low = (zigzagged & np.uint64(0x7F)).astype(np.uint8)
    octets[at] = low | ((sizes > 1).astype(np.uint8) << np.uint8(7))
    for place in range(1, longest):
        index: Any = np.flatnonzero(sizes > place)
        if index.size == sizes.size:
            index = slice(None)
        rest = zigzagged[index] >> np.uint64(7 * place)
        low = (rest & np.uint64(0x7F)).astype(np.uint8)
        octets[at[index] + place] = low | ((sizes[index] > place + 1).astype(np.uint8) << np.uint8(7))


def _varint_column(values: Int64s) -> pa.Array:
    """Each one's varint, as a binary column."""
    numbers = zigzag(values)
    sizes = varint_sizes(numbers)
    offsets = _offsets(sizes)
    octets = np.empty(int(offsets[-1]), dtype=np.uint8)
    write_varints(octets, offsets[:-1], numbers, sizes)
    return binary_column(offsets, octets)


def _offsets(sizes: Int64s) -> Int64s:
    offsets = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def binary_column(offsets: Int64s, octets: Buffer | Octets) -> pa.Array:
    """A binary column over these bytes, not copied."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(octets)]
    return pa.Array.from_buffers(_BINARY, offsets.size - 1, buffers)


def lengths(column: pa.Array) -> Int64s:
    """Bytes of each element of a binary column; -1 for null, as Kafka writes it."""
    found: Int64s = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _joined(*parts: Any) -> pa.Array:
    """The parts of each row behind one another; null is no bytes."""
    separator = pa.scalar(b"", _BINARY)
    return pc.binary_join_element_wise(*parts, separator, null_handling="replace", null_replacement="")


# ---- headers


def encode_headers(column: pa.Array) -> pa.Array | None:
    """Lists of structs of a key and a value as records have their headers, their count included.

    Returns a binary column, null for a record without; None where no record has any.

    Raises:
        JobError: a header has no key.
    """
    counts = np.maximum(lengths_of_lists(column), 0)
    if not counts.any():
        return None
    flat = column.flatten()  # of the lists that are there
    names, values = flat.flatten()
    if names.null_count:
        raise JobError("a header without a key")
    names, values = names.cast(_BINARY), values.cast(_BINARY)
    each = _joined(_varint_column(lengths(names)), names, _varint_column(lengths(values)), values)
    each_offsets, octets = parts_of(each)
    whole = binary_column(each_offsets[_offsets(counts)], octets)
    encoded = _joined(_varint_column(counts), whole)
    return pc.if_else(pa.array(counts > 0), encoded, pa.scalar(None, _BINARY))


def lengths_of_lists(column: pa.Array) -> Int64s:
    """Elements of each list; -1 for null."""
    found: Int64s = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


def parts_of(column: pa.Array) -> tuple[Int64s, Octets]:
    """Offsets and bytes of a binary column."""
    _, offsets, data = column.buffers()
    chosen = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    octets = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return chosen.astype(np.int64), octets


# ---- batches


def sizes_at_most(records: Records) -> Int64s:
    """An upper bound of the bytes of each record."""
    sizes = np.maximum(lengths(records.keys), 0) + np.maximum(lengths(records.values), 0)
    if records.headers is not None:
        sizes += np.maximum(lengths(records.headers), 0)
    bounds: Int64s = sizes + RECORD_OVERHEAD_MAX
    return bounds


def cut_into_batches(sizes: Int64s, first_of_groups: Int64s, batch_bytes: int) -> Int64s:
    """Where each batch begins: it holds records of one group, up to ``batch_bytes`` with its header; at least
    one.

    Args:
        sizes: bytes of each record at most.
        first_of_groups: where each group begins, ascending, the first at 0.
    """
    starts: list[int] = []
    ends = np.cumsum(sizes)
    limit = max(1, batch_bytes - HEADER_SIZE)
    for group, group_end in zip(
        first_of_groups.tolist(), [*first_of_groups[1:].tolist(), sizes.size], strict=True
    ):
        start = group
        while start < group_end:
            starts.append(start)
            before = int(ends[start - 1]) if start else 0
            start = min(group_end, max(start + 1, int(np.searchsorted(ends, before + limit, side="right"))))
    return np.array(starts, dtype=np.int64)


def encode(
    records: Records, starts: Int64s, codec: CompressionType, level: int | None = None
) -> list[EncodedBatch]:
    """The batches that begin at ``starts``, the first of which is 0.

    Raises:
        JobError: more than 2 GiB at once.
    """
    if not records.size:
        return []
    counts = np.diff(starts, append=records.size)
    column = _record_column(records, starts, counts)
    offsets, octets = parts_of(column)
    edges = offsets[np.append(starts, records.size)].tolist()
    first_timestamps = records.timestamps[starts].tolist()
    latest = np.maximum.reduceat(records.timestamps, starts).tolist()
    data = octets.data
    batches = []
    for index, count in enumerate(counts.tolist()):
        plain = data[edges[index] : edges[index + 1]]
        packed: Buffer = plain if codec is CompressionType.NONE else compress(plain, codec, level)
        header = BatchHeader(
            base_offset=0,
            batch_length=HEADER_SIZE - LOG_OVERHEAD + len(packed),
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec,
            last_offset_delta=count - 1,
            base_timestamp=first_timestamps[index],
            max_timestamp=latest[index],
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=count,
        )
        batches.append(EncodedBatch(pack_header(header, packed), packed, count, latest[index]))
    return batches


def _record_column(records: Records, starts: Int64s, counts: Int64s) -> pa.Array:
    """The bytes of each record."""
    first = np.repeat(starts, counts)
    key_sizes, value_sizes = lengths(records.keys), lengths(records.values)
    fields = [
        zigzag(records.timestamps - records.timestamps[first]),
        zigzag(np.arange(records.size, dtype=np.int64) - first),
        zigzag(key_sizes),
    ]
    widths = [varint_sizes(field) for field in fields]
    value_length = _varint_column(value_sizes)
    headers: Any = pa.scalar(NO_HEADERS, _BINARY)
    header_sizes: Int64s | int = len(NO_HEADERS)
    if records.headers is not None and records.headers.null_count < records.size:
        headers = pc.fill_null(records.headers, NO_HEADERS)
        header_sizes = lengths(headers)
    length: Int64s = np.array(np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + header_sizes + 1)
    for width in widths:
        length += width
    length += lengths(value_length)
    length_field = zigzag(length)
    length_width = varint_sizes(length_field)
    if int((length + length_width).sum()) > ENCODED_BYTES_MAX:
        raise JobError(
            f"{records.size} records of more than 2 GiB at once; one of them is too large for Kafka"
        )
    offsets = _offsets(length_width + 1 + sum(widths))
    octets = np.zeros(int(offsets[-1]), dtype=np.uint8)  # the attributes remain
    at = offsets[:-1]
    write_varints(octets, at, length_field, length_width)
    at = at + length_width + 1
    for field, width in zip(fields, widths, strict=True):
        write_varints(octets, at, field, width)
        at = at + width
    return _joined(binary_column(offsets, octets), records.keys, value_length, records.values, headers)


# ---- runs


class EncodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How batches are made."""

    codec: CompressionType
    level: int | None
    batch_bytes: int
    """The records of a batch before compression, and its header."""
    batch_bytes_max: int
    """A larger batch is refused: ``max.message.bytes``, and no larger than a segment."""
    chunk_bytes: int = CHUNK_BYTES


class Run(msgspec.Struct, frozen=True):
    """What one task has encoded."""

    task: int
    path: str
    records: int
    record_bytes: int
    """Of keys and values."""
    size: int


class RunWriter:
    """Encodes what it is given, chunk by chunk, into one file."""

    def __init__(self, directory: str, task: int, settings: EncodeSettings) -> None:
        """Raises OSError."""
        self._settings = settings
        self._task = task
        self._path = os.path.join(directory, f"{task:06d}-{uuid.uuid4().hex}.batches")
        self._file = OsFiles().open(self._path, create=True)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._size = self._records = self._record_bytes = 0
        self._tables: list[Batches] = []

    def add(self, prepared: pa.RecordBatch) -> None:
        """Take records as ``rows.PREPARED`` has them. Raises JobError: one is too large; OSError."""
        size = prepared.nbytes
        if self._waiting and self._waiting_bytes + size > 2 * self._settings.chunk_bytes:
            self._flush()
        self._waiting.append(prepared)
        self._waiting_bytes += size
        if self._waiting_bytes >= self._settings.chunk_bytes:
            self._flush()

    def finish(self) -> Run:
        """Write the rest, and the table. Raises JobError, OSError."""
        try:
            self._flush()
            table = np.concatenate(self._tables) if self._tables else np.empty(0, dtype=BATCH_TABLE)
            file = OsFiles().open(_table_path(self._path), create=True)
            try:
                file.write([table.tobytes()], 0)
            finally:
                file.close()
        finally:
            self.close()
        return Run(self._task, self._path, self._records, self._record_bytes, self._size)

    def close(self) -> None:
        """Idempotent."""
        self._file.close()

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if not rows.num_rows:
            return
        rows, partitions = _by_partition(rows)
        firsts = np.append(0, np.flatnonzero(np.diff(partitions)) + 1)
        records = Records(
            rows.column("key"),
            rows.column("value"),
            rows.column("timestamp").to_numpy(),
            rows.column("headers"),
        )
        sizes = sizes_at_most(records)
        settings = self._settings
        starts = cut_into_batches(sizes, firsts, settings.batch_bytes)
        batches = encode(records, starts, settings.codec, settings.level)
        self._check(batches)
        self._records += records.size
        self._record_bytes += _bytes_of(rows)
        self._write(batches, partitions[starts])

    def _check(self, batches: Sequence[EncodedBatch]) -> None:
        for batch in batches:
            if batch.size > self._settings.batch_bytes_max:
                raise JobError(
                    f"a record takes a batch of {batch.size} bytes, and the topic takes "
                    f"{self._settings.batch_bytes_max}: raise --config max.message.bytes, and the topic's own"
                )

    def _write(self, batches: Sequence[EncodedBatch], partitions: npt.NDArray[np.int32]) -> None:
        table = np.empty(len(batches), dtype=BATCH_TABLE)
        table["partition"] = partitions
        table["records"] = [batch.record_count for batch in batches]
        table["size"] = [batch.size for batch in batches]
        table["max_timestamp"] = [batch.max_timestamp for batch in batches]
        table["position"] = self._size + np.cumsum(table["size"]) - table["size"]
        self._tables.append(table)
        for first in range(0, len(batches), _BUFFERS_AT_ONCE):
            some = batches[first : first + _BUFFERS_AT_ONCE]
            self._size += self._file.write(
                [part for batch in some for part in (batch.header, batch.records)], self._size
            )


def _by_partition(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
    """The records of each partition together, in their order."""
    partitions = rows.column("partition").to_numpy()
    if (np.diff(partitions) < 0).any():
        narrow = partitions.astype(np.uint16) if partitions.max() < 1 << 16 else partitions
        order = np.argsort(narrow, kind="stable")  # of 16 bits: numpy sorts them by counting
        rows = rows.take(pa.array(order))
        partitions = partitions[order]
    return rows, partitions


def _bytes_of(rows: pa.RecordBatch) -> int:
    total = 0
    for name in ("key", "value"):
        column = rows.column(name)
        _, offsets, _ = column.buffers()
        edges = np.frombuffer(offsets, dtype=np.int32)
        if len(column):
            total += int(edges[column.offset + len(column)]) - int(edges[column.offset])
    return total


def _table_path(path: str) -> str:
    return f"{path.removesuffix('.batches')}.table"


def read_table(run: Run) -> Batches:
    """The batches of a run. Raises OSError."""
    return np.frombuffer(OsFiles().read_bytes(_table_path(run.path)), dtype=BATCH_TABLE)


# ---- segments


class Piece(NamedTuple):
    """Batches of one run, in their order."""

    path: str
    batches: Batches


class SegmentTask(NamedTuple):
    """A segment to be made."""

    partition: int
    base_offset: int
    leader_epoch: int
    index_interval_bytes: int
    directory: str
    pieces: tuple[Piece, ...]


class MadeSegment(msgspec.Struct, frozen=True):
    """One attempt's segment: its files are ``<name><suffix>.<attempt>``."""

    partition: int
    base_offset: int
    directory: str
    attempt: str
    size: int
    records: int
    batches: int


class Assembly(NamedTuple):
    """The segments of one partition."""

    tasks: tuple[SegmentTask, ...]
    end_offset: int


def plan_segments(
    pieces: Iterable[Piece],
    *,
    partition: int,
    first_offset: int,
    leader_epoch: int,
    directory: str,
    segment_bytes: int,
    index_interval_bytes: int,
) -> Assembly:
    """Cut the batches of a partition, in their order, into segments of at most ``segment_bytes``."""
    chosen = list(pieces)
    if not chosen:
        return Assembly((), first_offset)
    batches = np.concatenate([piece.batches for piece in chosen])
    run_of_batch = np.repeat(np.arange(len(chosen)), [piece.batches.size for piece in chosen])
    ends = np.cumsum(batches["size"])
    offsets = first_offset + np.cumsum(batches["records"].astype(np.int64))
    tasks = []
    start, base_offset = 0, first_offset
    while start < batches.size:
        before = int(ends[start - 1]) if start else 0
        end = min(
            int(np.searchsorted(ends, before + segment_bytes, side="right")),
            int(np.searchsorted(offsets, base_offset + RELATIVE_OFFSET_MAX, side="right")),
        )
        end = max(start + 1, end)
        tasks.append(
            SegmentTask(
                partition,
                base_offset,
                leader_epoch,
                index_interval_bytes,
                directory,
                tuple(_pieces(chosen, run_of_batch, batches, start, end)),
            )
        )
        start, base_offset = end, int(offsets[end - 1])
    return Assembly(tuple(tasks), base_offset)


def _pieces(
    pieces: Sequence[Piece], run_of_batch: Int64s, batches: Batches, start: int, end: int
) -> Iterator[Piece]:
    runs = run_of_batch[start:end]
    edges = [start, *(start + np.flatnonzero(np.diff(runs)) + 1).tolist(), end]
    for first, last in itertools.pairwise(edges):
        yield Piece(pieces[int(run_of_batch[first])].path, batches[first:last])


def make_segment(task: SegmentTask) -> MadeSegment:
    """Write the segment and its indexes; durable on return. Raises OSError."""
    attempt = uuid.uuid4().hex
    files = OsFiles()
    size = records = batches = 0
    spans: list[tuple[int, int, int]] = []
    largest = max(int(piece.batches["size"].max()) for piece in task.pieces)
    buffer = memoryview(bytearray(max(COPY_BYTES, largest)))  # one for all: new memory costs page faults
    log = files.open(_attempt_path(task, LOG_SUFFIX, attempt), create=True)
    try:
        for piece in task.pieces:
            source = open_regular(piece.path, os.O_RDONLY)
            try:
                for first, last in _copies(piece.batches):
                    some = piece.batches[first:last]
                    data = buffer[: int(some["size"].sum())]
                    _read_into(data, source, int(some["position"][0]), piece.path)
                    at = 0
                    for length, count, latest in zip(
                        some["size"].tolist(),
                        some["records"].tolist(),
                        some["max_timestamp"].tolist(),
                        strict=True,
                    ):
                        base_offset = task.base_offset + records
                        _STAMP.pack_into(data, at, base_offset, length - LOG_OVERHEAD, task.leader_epoch)
                        at += length
                        records += count
                        spans.append((task.base_offset + records - 1, latest, length))
                    size += log.write([data], size)
                    batches += some.size
            finally:
                os.close(source)
        log.fsync()
    finally:
        log.close()
    offset_index, time_index = index_entries(spans, task.base_offset, task.index_interval_bytes)
    for suffix, content in ((INDEX_SUFFIX, offset_index), (TIME_INDEX_SUFFIX, time_index)):
        index = files.open(_attempt_path(task, suffix, attempt), create=True)
        try:
            index.write([content], 0)
            index.fsync()
        finally:
            index.close()
    return MadeSegment(task.partition, task.base_offset, task.directory, attempt, size, records, batches)


def _read_into(data: memoryview, descriptor: int, position: int, path: str) -> None:
    """Fill ``data`` from the file. Raises OSError, also where it ends before."""
    done = 0
    while done < len(data):
        count = os.preadv(descriptor, [data[done:]], position + done)
        if not count:
            raise OSError(errno.EIO, "the file is shorter than its table says", path)
        done += count


def _copies(batches: Batches) -> Iterator[tuple[int, int]]:
    """Batches that lie behind one another in their run, in portions of about ``COPY_BYTES``."""
    positions, ends = batches["position"], batches["position"] + batches["size"]
    gaps = np.flatnonzero(positions[1:] != ends[:-1]) + 1
    edges = [0, *gaps.tolist(), batches.size]
    for first, last in itertools.pairwise(edges):
        start = first
        while start < last:
            end = int(np.searchsorted(ends[:last], int(positions[start]) + COPY_BYTES, side="right"))
            if end <= start:
                end = start + 1
            yield start, min(end, last)
            start = min(end, last)


def index_entries(
    spans: Iterable[tuple[int, int, int]], base_offset: int, interval_bytes: int
) -> tuple[bytes, bytes]:
    """What ``LogSegment.index_batch`` and the end of the segment make of batches: the content of the offset
    index and of the time index.

    Args:
        spans: of each batch its last offset, its largest timestamp and its bytes.
    """
    offsets, times = bytearray(), bytearray()
    latest = written = -1
    offset_of_latest = base_offset
    position = since = 0
    for last_offset, max_timestamp, size in spans:
        if max_timestamp > latest:
            latest, offset_of_latest = max_timestamp, last_offset
        if since > interval_bytes:
            offsets += OFFSET_INDEX_ENTRY.pack(last_offset - base_offset, position)
            if latest > written:
                times += TIME_INDEX_ENTRY.pack(latest, offset_of_latest - base_offset)
                written = latest
            since = size
        else:
            since += size
        position += size
    if latest > written:
        times += TIME_INDEX_ENTRY.pack(latest, offset_of_latest - base_offset)
    return bytes(offsets), bytes(times)


def _attempt_path(task: SegmentTask, suffix: str, attempt: str) -> str:
    return os.path.join(task.directory, f"{file_name(task.base_offset, suffix)}.{attempt}")


def name_segments(made: Sequence[MadeSegment]) -> None:
    """Give the segments that count their names; what other attempts have left goes. Raises OSError."""
    files = OsFiles()
    for segment in made:
        for suffix in SEGMENT_FILES:
            name = file_name(segment.base_offset, suffix)
            source = os.path.join(segment.directory, f"{name}.{segment.attempt}")
            files.rename(source, os.path.join(segment.directory, name))
    for directory in sorted({segment.directory for segment in made}):
        for name in files.list(directory):
            if not name.endswith(SEGMENT_FILES):
                files.remove(os.path.join(directory, name))
