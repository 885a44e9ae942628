"""From columns to record batches: all records of many batches at once, with numpy and Arrow.

Kafka: ``MemoryRecordsBuilder``, ``DefaultRecord.writeTo``, ``ByteUtils.writeVarint``; the other way round
``spark.source.decode``. ``protocol.records`` is the reference that tests hold it equal to.

A record is bytes that are computed (lengths and deltas), its key, a length again, its value, its headers:

    length varint | attributes 1 | timestamp delta varlong | offset delta varint | key length varint
    key | value length varint | value | header count varint, headers

What is computed becomes two Arrow columns, written by numpy byte by byte for all records at once; Arrow's
join of columns then copies the five parts of every record behind one another. Its buffer is the records of
all batches, so a batch is a slice of it, which is compressed and gets a header and its CRC-32C. A null key or
value has length -1 and no bytes.

Base offset and leader epoch, which the CRC leaves out, are stamped when the place in the log is known.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
