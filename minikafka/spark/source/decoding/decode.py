"""From the bytes of batches to columns: all records of many batches at once, with numpy and Arrow.

The step from record to record is in ``record_starts``. Everything else is arithmetic over arrays: each field
of all records is read at once (``varints``), and keys and values become Arrow arrays without an object of
their own: an array over the whole buffer whose elements are, in turn, a key and what lies between it and the
next key; taking every other one copies the keys out. ``protocol.records`` is the reference, and says what is
wrong with a batch that this module refuses.

Pure: bytes in, arrays out. Columns that are not asked for are not decoded; the columns that a header knows
need no records at all, and neither does the offset in a batch whose records have consecutive offsets.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minikafka.protocol.records.batch import CONTROL_MASK, HEADER_SIZE, TIMESTAMP_TYPE_MASK, BatchHeader
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.record_parser import INT_BYTES_MAX, LONG_BYTES_MAX, parse_records
from minikafka.spark.source.decoding.header_columns import HEADER_COLUMNS, Rows, header_column
from minikafka.spark.source.decoding.record_headers import read_headers
from minikafka.spark.source.decoding.record_starts import append_record_starts
from minikafka.spark.source.decoding.varints import read_varints, skip_varints
from minikafka.spark.source.schemas import RECORD_SCHEMA, VALUE_SIZE, arrow_schema
from minikafka.spark.source.segment_scan import Headers, Int64s
from minikafka.types import Buffer

Bools = npt.NDArray[np.bool_]

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, no key, no value, no headers: a byte each."""

_MICROSECONDS: Final = 1000
_TIMESTAMP_MS_MAX: Final = (2**63 - 1) // _MICROSECONDS


_Places = tuple[Int64s, Int64s, Bools]
"""Where each one's bytes start and end, and which are null."""


class Origin(NamedTuple):
    """What all records of a file have in common."""

    topic: str
    partition: int
    segment: str
    log_dir: str


class OffsetRange(NamedTuple):
    """The offsets that are wanted: from ``first`` to below ``end``."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class PlainBatches:
    """Batches whose records lie uncompressed in one buffer, CRC checked, in the order of the log."""

    data: Buffer
    starts: Int64s
    """Of the records of each batch, in ``data``."""
    ends: Int64s
    headers: Headers


class BadBatch(NamedTuple):
    """A batch that could not be decoded."""

    place: int
    """Among those that were given."""
    reason: str


def needs_records(columns: Collection[str]) -> bool:
    """Whether these columns take more than headers say."""
    return not HEADER_COLUMNS.issuperset(columns)


def has_dense_offsets(headers: Headers) -> Bools:
    """Of which batches the offsets are known without their records: they ascend, so as many records as there
    are offsets leave no gap."""
    dense: Bools = (
        headers["record_count"].astype(np.int64) == headers["last_offset_delta"].astype(np.int64) + 1
    )
    return dense


def rows_of_headers(
    headers: Headers, columns: Sequence[str], origin: Origin, wanted: OffsetRange
) -> pa.RecordBatch:
    """The records of batches with dense offsets, in columns that need no records."""
    counts = headers["record_count"].astype(np.int64)
    batch_index = np.repeat(np.arange(counts.size), counts)
    firsts = np.cumsum(counts) - counts
    deltas = np.arange(batch_index.size, dtype=np.int64) - firsts[batch_index]
    rows = Rows(headers, batch_index, deltas)
    offsets = headers["base_offset"].astype(np.int64)[batch_index] + deltas
    rows = rows.only(_within(offsets, wanted))
    arrays = [header_column(name, rows, origin) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns, RECORD_SCHEMA))


def decode(
    batches: PlainBatches, columns: Sequence[str], origin: Origin, wanted: OffsetRange
) -> tuple[pa.RecordBatch, list[BadBatch]]:
    """The records of ``batches`` within ``wanted``, and the batches that are left out because they are
    damaged."""
    bad: list[BadBatch] = []
    remaining = np.arange(batches.starts.size)
    while True:
        chosen = PlainBatches(
            batches.data, batches.starts[remaining], batches.ends[remaining], batches.headers[remaining]
        )
        starts, refused = _record_starts(chosen)
        if not refused:
            decoder = _Decoder(chosen, starts, columns)
            refused = decoder.refused()
            if not refused:
                return decoder.record_batch(columns, origin, wanted), bad
        bad += [BadBatch(int(remaining[index]), _reason(chosen, index, columns)) for index in refused]
        remaining = np.delete(remaining, refused)


def _within(offsets: Int64s, wanted: OffsetRange) -> Int64s | None:
    """The rows whose offset is wanted; None for all."""
    if not offsets.size or (offsets.min() >= wanted.first and offsets.max() < wanted.end):
        return None
    return np.flatnonzero((offsets >= wanted.first) & (offsets < wanted.end))


def _record_starts(batches: PlainBatches) -> tuple[Int64s, list[int]]:
    """Where all records begin, and the batches whose records do not fit."""
    starts: array[int] = array("q")
    refused = []
    counts = batches.headers["record_count"].tolist()
    with memoryview(batches.data) as view:
        for index, (start, end, count) in enumerate(
            zip(batches.starts.tolist(), batches.ends.tolist(), counts, strict=True)
        ):
            if not 0 <= count * RECORD_BYTES_MIN <= end - start:
                refused.append(index)
                continue
            try:
                append_record_starts(view, start, end, count, starts)
            except CorruptBatch:
                refused.append(index)
    return np.frombuffer(starts, dtype=np.int64) if starts else np.empty(0, dtype=np.int64), refused


def _reason(batches: PlainBatches, index: int, columns: Sequence[str]) -> str:
    """What the reference has to say about a batch that was refused."""
    start, end = int(batches.starts[index]), int(batches.ends[index])
    header = BatchHeader(*batches.headers[index].item())
    plain = memoryview(bytes(HEADER_SIZE) + bytes(memoryview(batches.data)[start:end]))
    try:
        for record in parse_records(plain, header):
            if "timestamp" in columns and not -_TIMESTAMP_MS_MAX <= record.timestamp <= _TIMESTAMP_MS_MAX:
                return f"offset {record.offset} has timestamp {record.timestamp}, which Spark has no room for"
    except CorruptBatch as error:
        return error.message or str(error)
    return "its records are malformed"


class _Decoder:
    """The fields of all records, read as far as ``columns`` need them."""

    def __init__(self, batches: PlainBatches, starts: Int64s, columns: Sequence[str]) -> None:
        self._data = batches.data
        self._headers = batches.headers
        self._octets = np.frombuffer(batches.data, dtype=np.uint8)
        counts = batches.headers["record_count"].astype(np.int64)
        self._batch_index = np.repeat(np.arange(counts.size), counts)
        self._bad = np.zeros(starts.size, dtype=np.bool_)
        self.timestamps: Int64s | None = None
        self._key: _Places | None = None
        self._value: _Places | None = None
        self.record_headers: pa.Array | None = None
        length, at = self._varints(starts)
        self._ends = at + length
        self._check_ends(starts, batches.ends, counts)
        at += 1  # attributes: Kafka uses none of them
        if "timestamp" in columns:
            delta, at = self._varints(at, LONG_BYTES_MAX)
            self._read_timestamps(delta)
        else:
            at = self._skip(at, LONG_BYTES_MAX)
        self.offset_deltas, at = self._varints(at)
        if not {"key", "value", "headers", VALUE_SIZE}.isdisjoint(columns):
            self._read_bytes(at, columns)
        else:
            self._bad |= at > self._ends

    def refused(self) -> list[int]:
        """The batches with a record that is not what it should be."""
        return np.unique(self._batch_index[self._bad]).tolist() if self._bad.any() else []

    def record_batch(self, columns: Sequence[str], origin: Origin, wanted: OffsetRange) -> pa.RecordBatch:
        """The columns of the records that are wanted."""
        rows = Rows(self._headers, self._batch_index, self.offset_deltas)
        offsets = self._headers["base_offset"].astype(np.int64)[self._batch_index] + self.offset_deltas
        chosen = _within(offsets, wanted)
        arrays = []
        for name in columns:
            match name:
                case "key" | "value":
                    arrays.append(self._bytes_column(self._key if name == "key" else self._value, chosen))
                case _ if name == VALUE_SIZE:
                    arrays.append(self._size_column(self._value, chosen))
                case "timestamp":
                    timestamps = self.timestamps if chosen is None else _some(self.timestamps)[chosen]
                    arrays.append(
                        pa.array(_some(timestamps) * _MICROSECONDS, type=pa.timestamp("us", tz="UTC"))
                    )
                case "headers":
                    headers = _some(self.record_headers)
                    arrays.append(headers if chosen is None else headers.take(pa.array(chosen)))
                case _:
                    arrays.append(header_column(name, rows.only(chosen), origin))
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns, RECORD_SCHEMA))

    def _varints(self, at: Int64s, bytes_max: int = INT_BYTES_MAX) -> tuple[Int64s, Int64s]:
        value, behind, too_long = read_varints(self._octets, at, bytes_max)
        if too_long is not None:
            self._bad |= too_long
        return value, behind

    def _skip(self, at: Int64s, bytes_max: int) -> Int64s:
        behind, too_long = skip_varints(self._octets, at, bytes_max)
        if too_long is not None:
            self._bad |= too_long
        return behind

    def _check_ends(self, starts: Int64s, batch_ends: Int64s, counts: Int64s) -> None:
        """Each record ends where the next begins, the last one where its batch ends."""
        if starts.size:
            expected = np.empty_like(starts)
            expected[:-1] = starts[1:]
            has_records = counts > 0
            expected[np.cumsum(counts)[has_records] - 1] = batch_ends[has_records]
            self._bad |= self._ends != expected

    def _read_timestamps(self, delta: Int64s) -> None:
        base = self._headers["base_timestamp"].astype(np.int64)[self._batch_index]
        with np.errstate(over="ignore"):
            timestamps = base + delta  # wraps, as a Java long does
        is_append_time = (self._headers["attributes"] & TIMESTAMP_TYPE_MASK) != 0
        if is_append_time.any():
            latest = self._headers["max_timestamp"].astype(np.int64)
            timestamps = np.where(is_append_time[self._batch_index], latest[self._batch_index], timestamps)
        self._bad |= (timestamps > _TIMESTAMP_MS_MAX) | (timestamps < -_TIMESTAMP_MS_MAX)
        self.timestamps = timestamps

    def _read_bytes(self, at: Int64s, columns: Sequence[str]) -> None:
        """Key, value and headers; those that follow the last one asked for are not looked at."""
        self._key, at = self._nullable(at)
        if {"value", "headers", VALUE_SIZE}.isdisjoint(columns):
            return
        self._value, at = self._nullable(at)
        count, at = self._varints(at)
        self._bad |= (count < 0) | (count > self._ends - at) | ((count == 0) & (at != self._ends))
        if "headers" in columns:
            counts = np.where(self._bad, 0, count)
            self.record_headers, malformed = read_headers(self._data, self._octets, at, self._ends, counts)
            self._bad |= malformed

    def _nullable(self, at: Int64s) -> tuple[_Places, Int64s]:
        """The places of each one's key or value, and the positions behind them."""
        length, start = self._varints(at)
        end = start + np.maximum(length, 0)
        outside = end > self._ends
        if outside.any():  # refused; until then nobody may follow it out of the buffer
            self._bad |= outside
            end = np.minimum(end, self._ends)
            start = np.minimum(start, end)
        return (start, end, length < 0), end

    def _bytes_column(self, place: Any, chosen: Int64s | None) -> pa.Array:
        start, end, is_null = place
        return taken(self._data, start, end, is_null, chosen, pa.binary())

    @staticmethod
    def _size_column(place: Any, chosen: Int64s | None) -> pa.Array:
        start, end, is_null = place
        sizes = (end - start).astype(np.int32)
        return (
            pa.array(sizes, mask=is_null) if chosen is None else pa.array(sizes[chosen], mask=is_null[chosen])
        )


def taken(
    data: Buffer, start: Int64s, end: Int64s, is_null: Bools, chosen: Int64s | None, arrow_type: pa.DataType
) -> pa.Array:
    """An array of ``data[start:end]`` for each pair, which ascend and do not overlap; of the ``chosen``
    ones."""
    if not start.size:
        return pa.array([], type=arrow_type)
    edges = np.empty(2 * start.size, dtype=np.int32)
    edges[0::2] = start
    edges[1::2] = end
    whole = pa.Array.from_buffers(arrow_type, edges.size - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    slots = np.arange(0, edges.size, 2, dtype=np.int32)
    if chosen is not None:
        slots, is_null = slots[chosen], is_null[chosen]
    return whole.take(pa.array(slots, mask=is_null if is_null.any() else None))


def _some(values: Any) -> Any:
    """What a column that is asked for has been read into."""
    assert values is not None
    return values


def is_control(headers: Headers) -> Bools:
    """Which batches hold markers instead of data."""
    control: Bools = (headers["attributes"] & CONTROL_MASK) != 0
    return control
