"""From the bytes of batches to columns: all records of many batches at once, with numpy and Arrow.

The step from record to record is ``append_record_starts``. Everything else is arithmetic over arrays: each
field of all records is read at once (``read_varints``), and keys and values become Arrow arrays without an
object of their own: an array over the whole buffer whose elements are, in turn, a key and what lies between
it and the next key; taking every other one copies the keys out. ``protocol.records`` is the reference, and
says what is wrong with a batch that this module refuses.

Pure: bytes in, arrays out. Columns that are not asked for are not decoded; the columns that a header knows
need no records at all, and neither does the offset in a batch whose records have consecutive offsets.

Where records begin is the one pass that has to go from record to record: a record says how long it is, so the
next begins where it ends. Records of one size are found without a step each: if the record at p takes s bytes
and the bytes of its length stand at p + s too, the next takes s bytes as well, and so on; one strided
comparison finds how far that goes. It is exact, not a guess. Nothing is judged there: the decoder checks that
each record ends where the next begins.

Signed varints (Kafka: ``ByteUtils.readVarint``, ``readVarlong``) are read as ``record_parser.read_varint``
does: zigzag, at most 5 bytes for an int and 10 for a long, bits that do not fit are dropped. Positions past
the end read the last byte instead of failing: the caller checks where a field ended before it believes it.

Headers (``DefaultRecord.readHeaders``, KIP-82) become one Arrow array of lists, in step: the first header of
every record that has one, then the second of those that have two, and so on; each step reads its field for
all records at once. A record without headers gets null, as in Spark's own Kafka source. A header's key that
is not UTF-8 is read with U+FFFD, as Java reads it. Records with more headers than ``_STEPS_MAX`` go one by
one behind that: a million headers in one record must not cost a million steps over arrays.

**The columns** of the data sources stand in one table each, from which the schemas for Spark and for Arrow
are made. ``RECORD_SCHEMA`` begins with the columns of Spark's own Kafka source, with its names, types and
meaning (``KafkaRecordToRowConverter``); ``headers`` is there on request, and null in a record without
headers, as there. Behind them is what only the log knows. ``error`` is there with ``onCorrupt=column``.

Arrow's types are those that Spark's Python workers expect, to the letter: a batch whose schema differs in a
unit or a time zone is refused by Spark.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from minikafka.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    CompressionType,
)
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import (
    INT_BYTES_MAX,
    LONG_BYTES_MAX,
    InvalidRecords,
    parse_records,
    read_varint,
)
from minikafka.spark.source.log_files import Headers, Int64s
from minikafka.types import NO_SEQUENCE, Buffer

HEADERS: Final = "headers"
ERROR: Final = "error"
VALUE_SIZE: Final = "value_size"

HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

_ARROW_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

_ARROW_TYPES: Final[dict[type[DataType], pa.DataType]] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    ShortType: pa.int16(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    ArrayType: pa.list_(pa.field("element", _ARROW_HEADER)),  # the only array there is: headers
}

RECORD_SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(HEADERS, HEADERS_TYPE),
        StructField("leader_epoch", IntegerType()),
        StructField("producer_id", LongType()),
        StructField("producer_epoch", ShortType()),
        StructField("sequence", IntegerType()),
        StructField("batch_offset", LongType()),
        StructField("codec", StringType()),
        StructField("segment", StringType()),
        StructField("log_dir", StringType()),
        StructField(VALUE_SIZE, IntegerType()),
        StructField(ERROR, StringType()),
    ]
)
"""Every column that ``kafka-log`` has. ``sequence`` is -1 without a producer id; ``batch_offset`` is the base
offset of the record's batch; ``codec`` is none, gzip, snappy, lz4 or zstd. ``value_size``, the bytes of a
value (null of a null one), is there when it is named: so sizes can be had without the values."""

BATCH_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("log_dir", StringType()),
        StructField("segment", StringType()),
        StructField("position", LongType()),
        StructField("size", IntegerType()),
        StructField("base_offset", LongType()),
        StructField("last_offset", LongType()),
        StructField("leader_epoch", IntegerType()),
        StructField("crc", LongType()),
        StructField("crc_ok", BooleanType()),
        StructField("codec", StringType()),
        StructField("records", IntegerType()),
        StructField("timestamp_type", IntegerType()),
        StructField("base_timestamp", LongType()),
        StructField("max_timestamp", LongType()),
        StructField("producer_id", LongType()),
        StructField("producer_epoch", ShortType()),
        StructField("base_sequence", IntegerType()),
        StructField("is_transactional", BooleanType()),
        StructField("is_control", BooleanType()),
        StructField("control_type", StringType()),
        StructField("delete_horizon", LongType()),
        StructField(ERROR, StringType()),
    ]
)
"""Every column that ``kafka-log-batches`` has: a row a batch. Timestamps are milliseconds; ``crc_ok`` and
``control_type`` (what ends a transaction: COMMIT or ABORT; null for all else) cost reading the whole batch
and are there on request; ``crc`` is the header's; ``delete_horizon`` is null where there is none; ``error``
says what is wrong with a damaged piece, whose other columns behind ``position`` are null."""

WHOLE_BATCH_COLUMNS: Final = frozenset({"crc_ok", "control_type"})
"""Those for which more than headers is read."""

Octets = npt.NDArray[np.uint8]

_INT_MASK = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)

_RUN_MIN = 8
_SHORT_RUNS_MAX = 3
"""A comparison costs as much as a few steps: where runs are short, they are no longer looked for."""

_STEPS_MAX = 64

_KEY, _VALUE = pa.string(), pa.binary()
_LIST = pa.list_(pa.field("element", pa.struct([pa.field("key", _KEY), pa.field("value", _VALUE)])))

_FIELDS: Final = {
    "leader_epoch": "leader_epoch",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "batch_offset": "base_offset",
}

HEADER_COLUMNS: Final = frozenset(
    {
        *_FIELDS,
        "topic",
        "partition",
        "offset",
        "timestampType",
        "sequence",
        "codec",
        "segment",
        "log_dir",
        "error",
    }
)
"""What can be told without a record. The offset only where the offsets of a batch leave no gaps."""

CODEC_NAMES: Final = [
    CompressionType(code).name.lower() if code in CompressionType.__members__.values() else f"unknown {code}"
    for code in range(COMPRESSION_MASK + 1)
]
_SEQUENCE_MAX: Final = 2**31 - 1

Bools = npt.NDArray[np.bool_]

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, no key, no value, no headers: a byte each."""

_MICROSECONDS: Final = 1000
_TIMESTAMP_MS_MAX: Final = (2**63 - 1) // _MICROSECONDS

_Places = tuple[Int64s, Int64s, Bools]
"""Where each one's bytes start and end, and which are null."""


# ---- the columns


class UnknownColumn(ValueError):
    """A column that a source does not have, or has in another type."""


def record_schema(*, with_headers: bool, with_error: bool) -> StructType:
    """What ``kafka-log`` yields when no columns are chosen."""
    left_out = {HEADERS: with_headers, ERROR: with_error, VALUE_SIZE: False}
    return StructType([field for field in RECORD_SCHEMA.fields if left_out.get(field.name, True)])


def batch_schema() -> StructType:
    """What ``kafka-log-batches`` yields when no columns are chosen: what headers alone tell."""
    return StructType([field for field in BATCH_SCHEMA.fields if field.name not in WHOLE_BATCH_COLUMNS])


def chosen_columns(names: Sequence[str], known: StructType) -> StructType:
    """The columns ``names`` of ``known``, in that order.

    Raises:
        UnknownColumn: there is no such column, or it is named twice.
    """
    fields = {field.name: field for field in known.fields}
    for index, name in enumerate(names):
        if name not in fields:
            raise UnknownColumn(f"there is no column {name!r}; there are {', '.join(fields)}")
        if name in names[:index]:
            raise UnknownColumn(f"column {name!r} is named twice")
    return StructType([fields[name] for name in names])


def check_columns(asked: StructType, known: StructType) -> None:
    """Whether a reader's schema can be served.

    Raises:
        UnknownColumn: names the first column that cannot.
    """
    for expected, field in zip(chosen_columns(asked.names, known).fields, asked.fields, strict=True):
        if field.dataType != expected.dataType:
            raise UnknownColumn(
                f"column {field.name!r} is {expected.dataType.simpleString()}, "
                f"it cannot be read as {field.dataType.simpleString()}"
            )


def arrow_type(name: str, known: StructType) -> pa.DataType:
    """Arrow's type of a column."""
    return _ARROW_TYPES[type(known[name].dataType)]


def arrow_schema(columns: Iterable[str], known: StructType) -> pa.Schema:
    """Arrow's schema of these columns of ``known``, in that order."""
    return pa.schema([pa.field(name, arrow_type(name, known)) for name in columns])


# ---- varints


def read_varints(octets: Octets, positions: Int64s, bytes_max: int) -> tuple[Int64s, Int64s, Bools | None]:
    """The values at ``positions``, the positions behind them, and which are too long (None: none is)."""
    byte = octets.take(positions, mode="clip")
    value = (byte & 0x7F).astype(np.uint64)
    behind = positions + 1
    index: Any = np.flatnonzero(byte & 0x80)
    if index.size == byte.size:
        index = slice(None)
    shift = 7
    too_long: Bools | None = None
    while _varint_sizes(index, byte):
        if shift == 7 * bytes_max:
            too_long = np.zeros(byte.size, dtype=np.bool_)
            too_long[index] = True
            break
        following = octets.take(behind[index], mode="clip")
        value[index] |= (following & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[index] += 1
        goes_on = following > 0x7F
        index = np.flatnonzero(goes_on) if isinstance(index, slice) else index[goes_on]
        shift += 7
    if bytes_max == INT_BYTES_MAX and shift > 28:
        value &= _INT_MASK
    return ((value >> _ONE) ^ (~(value & _ONE) + _ONE)).view(np.int64), behind, too_long


def skip_varints(octets: Octets, positions: Int64s, bytes_max: int) -> tuple[Int64s, Bools | None]:
    """The positions behind the varints at ``positions``, and which are too long (None: none is)."""
    byte = octets.take(positions, mode="clip")
    behind = positions + 1
    index = np.flatnonzero(byte & 0x80)
    read = 1
    while index.size:
        if read == bytes_max:
            too_long = np.zeros(byte.size, dtype=np.bool_)
            too_long[index] = True
            return behind, too_long
        following = octets.take(behind[index], mode="clip")
        behind[index] += 1
        index = index[following > 0x7F]
        read += 1
    return behind, None


def _varint_sizes(index: Any, byte: Octets) -> int:
    return byte.size if isinstance(index, slice) else int(index.size)


# ---- where records begin


def append_record_starts(view: memoryview, start: int, end: int, count: int, starts: array[int]) -> None:
    """Append the positions of ``count`` records that lie between ``start`` and ``end`` of ``view``.

    Raises:
        InvalidRecords: they do not fit.
    """
    position, missing, short_runs = start, count, 0
    try:
        while missing >= _RUN_MIN and short_runs < _SHORT_RUNS_MAX:
            run, size = _run(view, position, end, missing)
            starts.extend(range(position, position + run * size, size))
            position += run * size
            missing -= run
            short_runs += run < _RUN_MIN
        append = starts.append
        for _ in range(missing):
            append(position)
            first = view[position]
            if first < 0x80:
                position += 1 + (first >> 1)
            elif (second := view[position + 1]) < 0x80:
                position += 2 + ((first & 0x7F | second << 7) >> 1)
            else:
                position += _record_size(view, position)[0]
    except IndexError:
        raise InvalidRecords("the records are cut off") from None
    if position != end:
        raise InvalidRecords(f"the records end at {position - start} of {end - start} bytes")


def _run(view: memoryview, position: int, end: int, count_max: int) -> tuple[int, int]:
    """How many records from ``position`` on have one size, at least 1, and that size."""
    size, width = _record_size(view, position)
    run = min(count_max, (end - position) // size)
    stop = position + run * size
    for at in range(position, position + width):
        column = view[at : stop + at - position : size].tobytes()
        run = min(run, len(column) - len(column.lstrip(column[:1])))
    return max(1, run), size


def _record_size(view: memoryview, position: int) -> tuple[int, int]:
    """Bytes of the record at ``position``, and how many of them are its length."""
    length, behind = read_varint(view, position, INT_BYTES_MAX)
    if length < 0:
        raise InvalidRecords(f"a record of length {length}")
    return behind - position + length, behind - position


# ---- headers


class _Found:
    """Headers as they turn up: of which record, and where their parts lie."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64s, ...]] = []

    def add(self, *parts: Any) -> None:
        self._parts.append(tuple(np.asarray(part, dtype=np.int64) for part in parts))

    def by_record(self) -> tuple[Int64s, ...]:
        """Record, key start, key end, value start, value end, value is null; by record, in their order."""
        if not self._parts:
            return (np.empty(0, dtype=np.int64),) * 6
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return tuple(column[order] for column in columns)


def read_headers(
    data: Buffer, octets: Octets, positions: Int64s, ends: Int64s, counts: Int64s
) -> tuple[pa.Array, Bools]:
    """The headers of records whose first one lies at ``positions``, and which records are malformed.

    Args:
        ends: where each record ends; its last header must end there too.
        counts: how many headers each has; 0 for a record that is not to be looked at.
    """
    malformed = np.zeros(positions.size, dtype=np.bool_)
    found = _Found()
    active = np.flatnonzero(counts > 0)
    at = positions[active]
    for step in range(_STEPS_MAX):
        if not active.size:
            break
        at, is_bad = _step(octets, active, at, ends[active], found)
        goes_on = ~is_bad & (counts[active] > step + 1)
        is_bad |= ~goes_on & (at != ends[active])
        malformed[active[is_bad]] = True
        active, at = active[goes_on], at[goes_on]
    with memoryview(data) as view:
        for record, position in zip(active.tolist(), at.tolist(), strict=True):
            rest = int(counts[record]) - _STEPS_MAX
            malformed[record] = not _one_by_one(view, record, position, int(ends[record]), rest, found)
    return _lists(data, found, counts, malformed), malformed


def _step(octets: Octets, active: Int64s, at: Int64s, ends: Int64s, found: _Found) -> tuple[Int64s, Bools]:
    """The next header of each of these records; the positions behind, and which records are malformed."""
    key_size, key_start, key_too_long = read_varints(octets, at, INT_BYTES_MAX)
    is_bad = (key_size < 0) | (key_size > ends - key_start)
    key_end = key_start + np.where(is_bad, 0, key_size)
    value_size, value_start, value_too_long = read_varints(octets, key_end, INT_BYTES_MAX)
    is_bad |= value_size > ends - value_start
    value_end = value_start + np.where(is_bad, 0, np.maximum(value_size, 0))
    is_bad |= value_end > ends
    for too_long in (key_too_long, value_too_long):
        if too_long is not None:
            is_bad |= too_long
    good = ~is_bad
    found.add(
        active[good], key_start[good], key_end[good], value_start[good], value_end[good], value_size[good] < 0
    )
    return value_end, is_bad


def _one_by_one(view: memoryview, record: int, at: int, end: int, count: int, found: _Found) -> bool:
    """The headers of one record that has very many; whether they are well-formed."""
    rows = []
    try:
        for _ in range(count):
            key_size, key_start = read_varint(view, at, INT_BYTES_MAX)
            key_end = key_start + key_size
            value_size, value_start = read_varint(view, key_end, INT_BYTES_MAX)
            at = value_start + max(0, value_size)
            if key_size < 0 or at > end:
                return False
            rows.append((record, key_start, key_end, value_start, at, value_size < 0))
    except (IndexError, CorruptBatch):
        return False
    found.add(*zip(*rows, strict=True))
    return at == end


def _lists(data: Buffer, found: _Found, counts: Int64s, malformed: Bools) -> pa.Array:
    record, key_start, key_end, value_start, value_end, value_is_null = found.by_record()
    # Four edges a header: of an array over the whole buffer, one element in four is a key, another a value.
    edges = np.empty(4 * record.size, dtype=np.int32)
    for slot, edge in enumerate((key_start, key_end, value_start, value_end)):
        edges[slot::4] = edge
    keys = _strings(_taken(data, edges, 0, None))
    values = _taken(data, edges, 2, value_is_null.astype(np.bool_))
    present = np.bincount(record, minlength=counts.size)
    offsets = np.zeros(counts.size + 1, dtype=np.int32)
    np.cumsum(present, out=offsets[1:])
    is_null = np.append((counts == 0) | malformed, False)
    structs = pa.StructArray.from_arrays([keys, values], fields=list(_LIST.value_type))
    return pa.ListArray.from_arrays(
        pa.array(offsets, mask=is_null if is_null.any() else None), structs, type=_LIST
    )


def _taken(data: Buffer, edges: npt.NDArray[np.int32], first: int, is_null: Bools | None) -> pa.Array:
    if not edges.size:
        return pa.array([], type=_VALUE)
    whole = pa.Array.from_buffers(_VALUE, edges.size - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return whole.take(pa.array(np.arange(first, edges.size, 4, dtype=np.int32), mask=is_null))


def _strings(octets: pa.Array) -> pa.Array:
    try:
        return octets.cast(_KEY)
    except pa.ArrowInvalid:  # one of them is no UTF-8
        return pa.array([each.decode("utf-8", "replace") for each in octets.to_pylist()], type=_KEY)


# ---- what a batch header knows


class Rows(NamedTuple):
    """Which batch each record belongs to, and its offset from there."""

    headers: Headers
    batch_index: Int64s
    offset_deltas: Int64s

    def only(self, chosen: Int64s | None) -> Rows:
        """The ``chosen`` ones; None: all."""
        if chosen is None:
            return self
        return self._replace(batch_index=self.batch_index[chosen], offset_deltas=self.offset_deltas[chosen])


def header_column(name: str, rows: Rows, origin: Origin) -> pa.Array:
    """One of ``HEADER_COLUMNS``, a value a row."""
    count = rows.batch_index.size
    wanted = arrow_type(name, RECORD_SCHEMA)
    match name:
        case "topic" | "segment" | "log_dir":
            return pa.repeat(pa.scalar(getattr(origin, name), type=wanted), count)
        case "partition":
            return pa.array(np.full(count, origin.partition, dtype=np.int32))
        case "error":
            return pa.nulls(count, type=wanted)
        case "offset":
            return pa.array(_of_each(rows, "base_offset") + rows.offset_deltas)
        case "sequence":
            base = rows.headers["base_sequence"].astype(np.int64)[rows.batch_index]
            sequence = np.where(base == NO_SEQUENCE, NO_SEQUENCE, (base + rows.offset_deltas) & _SEQUENCE_MAX)
            return pa.array(sequence.astype(np.int32))
        case "timestampType":
            types = (rows.headers["attributes"] & TIMESTAMP_TYPE_MASK) != 0
            return pa.array(types.astype(np.int32)[rows.batch_index])
        case "codec":
            codes = (rows.headers["attributes"] & COMPRESSION_MASK).astype(np.int8)
            return pa.array(CODEC_NAMES, type=wanted).take(pa.array(codes[rows.batch_index]))
        case _:
            return pa.array(_of_each(rows, _FIELDS[name]), type=wanted)


def _of_each(rows: Rows, field: str) -> Int64s:
    """A field of the header of each record's batch, in the machine's byte order."""
    values = rows.headers[field]
    return values.astype(values.dtype.newbyteorder("="))[rows.batch_index]


class Origin(NamedTuple):
    """What all records of a file have in common."""

    topic: str
    partition: int
    segment: str
    log_dir: str


# ---- decoding


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
        if outside.any():  # refused; until then it must not lead out of the buffer
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
