"""From the rows of a table to the columns of records, and their partitions: what an import makes of a table.

Keys and values are columns, or whole rows, as bytes: what ``export.decoding`` reads, written.

bytes    as they are; text as UTF-8
string   text, and numbers, dates and booleans as their text
json     any column or a whole row, as JSON; bytes in base64, times in ISO 8601 to the microsecond
avro     a struct or a whole row by an Avro schema, with fastavro
protobuf a struct or a whole row as a message, with Google's library

``schema_id`` puts a schema registry's prefix before each: a zero and the id in four bytes, and for Protobuf
the indexes of the message in its file. The first two are Arrow's work, the others go row by row in Python.
Null is a null key, or a tombstone.

A record's timestamp is its column's, down to the millisecond; null, or no column, is when the import began,
as for Kafka's producer. A record with a partition goes there, as with Kafka's producer; all others go where
``Partitioner`` puts them. Kafka: ``BuiltInPartitioner``, ``Utils.murmur2`` (KIP-794).

A record with a key goes where Kafka's producers send it, by the murmur2 hash of the key's bytes; so a topic
may get further records from a producer, and those of one key stay together. Records without a key go to one
partition until a batch is full, then to the next: in turn, where Kafka draws them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.schema import SchemaParseException, UnknownType
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message_factory import GetMessageClass

from minikafka.errors import MinikafkaError
from minikafka.spark.export.decoding import Kind
from minikafka.spark.export.record_schemas import descriptor_pool, message_of
from minikafka.spark.load.segments import Int64s, Octets, Records, encode_headers, parts_of, sizes_at_most
from minikafka.spark.load.tables import Unit
from minikafka.spark.runtime.session import JobError

BINARY = pa.binary()

PREPARED: Final = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("key", BINARY),
        pa.field("value", BINARY),
        pa.field("timestamp", pa.int64()),
        pa.field("headers", BINARY),
        pa.field("position", pa.int64()),
    ]
)
"""Records on their way: headers encoded, timestamps in ms; the position is what orders them, or 0."""

PREPARED_DDL: Final = "partition int, key binary, value binary, timestamp long, headers binary, position long"

_MS_OF_UNIT: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_MS_OF_DAY: Final = 86_400_000
_SECONDS_MAX: Final = (1 << 63) // 1000 - 1
_HEADER_LIST: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", BINARY)]))

UInt32s = npt.NDArray[np.uint32]

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_R: Final = np.uint32(24)
_NOT_NEGATIVE: Final = np.uint32(0x7FFFFFFF)

_STEPS_MAX: Final = 256
"""Words of keys that are hashed in step with others; a longer key would be a step over arrays for each."""


# ---- rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMapping:
    """Which columns become what. A column that is None is not there."""

    key: Side | None
    value: Side | None
    timestamp: str | None = None
    headers: str | None = None
    partition: str | None = None
    order: str | None = None
    """Records lie in a partition in the order of this column."""
    now_ms: int = field()
    """The timestamp of records that have none."""

    def columns(self) -> list[str] | None:
        """Those that are read; None: all."""
        sides = [side for side in (self.key, self.value) if side is not None]
        if any(side.column is None for side in sides):
            return None
        named = [side.column for side in sides] + [self.timestamp, self.headers, self.partition, self.order]
        return list(dict.fromkeys(name for name in named if name is not None))


class RowPreparer:
    """Makes the rows of one task into records."""

    def __init__(self, mapping: RowMapping, *, partitions: int, batch_bytes: int, task: int) -> None:
        self._mapping = mapping
        self._partitions = partitions
        self._partitioner = Partitioner(partitions, batch_bytes=batch_bytes, first=task)
        self._key = None if mapping.key is None else ColumnWriter(mapping.key)
        self._value = None if mapping.value is None else ColumnWriter(mapping.value)

    def prepare(self, unit: Unit) -> Iterator[pa.RecordBatch]:
        """The records of a unit, as ``PREPARED`` has them.

        Raises:
            JobError: a row that cannot be a record, naming it and its file.
        """
        row = unit.first_row
        for rows in unit.read(self._mapping.columns()):
            try:
                yield self._prepared(rows)
            except BadRow as error:
                raise JobError(f"{unit.name}, row {row + error.row}: {error}") from error
            except (MinikafkaError, pa.ArrowException) as error:
                raise JobError(f"{unit.name}, rows from {row} on: {error}") from error
            row += rows.num_rows

    def _prepared(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        count, mapping = rows.num_rows, self._mapping
        keys = pa.nulls(count, BINARY) if self._key is None else self._key.write(rows)
        values = pa.nulls(count, BINARY) if self._value is None else self._value.write(rows)
        headers = None
        if mapping.headers is not None:
            headers = encode_headers(_header_lists(rows.column(mapping.headers), mapping.headers))
        timestamps = self._timestamps(rows)
        position = np.zeros(count, dtype=np.int64)
        if mapping.order is not None:
            position = _whole_numbers(rows.column(mapping.order), mapping.order)
        sizes = sizes_at_most(Records(keys, values, timestamps, headers))
        partitions = self._chosen_partitions(rows, keys, sizes)
        arrays = [
            pa.array(partitions),
            keys,
            values,
            pa.array(timestamps),
            pa.nulls(count, BINARY) if headers is None else headers,
            pa.array(position),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=PREPARED)

    def _timestamps(self, rows: pa.RecordBatch) -> Int64s:
        name = self._mapping.timestamp
        if name is None:
            return np.full(rows.num_rows, self._mapping.now_ms, dtype=np.int64)
        found = _milliseconds(rows.column(name), name, self._mapping.now_ms)
        if found.size and found.min() < 0:
            row = int(np.flatnonzero(found < 0)[0])
            raise BadRow(
                row, f"the timestamp in {name} is before 1970 ({found[row]} ms), which Kafka refuses"
            )
        return found

    def _chosen_partitions(
        self, rows: pa.RecordBatch, keys: pa.Array, sizes: Int64s
    ) -> npt.NDArray[np.int32]:
        name = self._mapping.partition
        if name is None:
            return self._partitioner.assign(keys, sizes)
        column = rows.column(name)
        if not pa.types.is_integer(column.type):
            raise JobError(f"the column {name} is {column.type}, partitions are whole numbers")
        wanted = pc.fill_null(column.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(~is_null & ((wanted < 0) | (wanted >= self._partitions)))
        if wrong.size:
            row = int(wrong[0])
            there = f"the topic has {self._partitions}, from 0 to {self._partitions - 1}"
            raise BadRow(row, f"partition {wanted[row]} in {name}: {there}; see --partitions")
        if column.null_count:
            wanted = np.where(is_null, self._partitioner.assign(keys, sizes), wanted)
        chosen: npt.NDArray[np.int32] = wanted.astype(np.int32)
        return chosen


def _milliseconds(column: pa.Array, name: str, now_ms: int) -> Int64s:
    kind = column.type
    filled: Any = pc.fill_null
    if pa.types.is_timestamp(kind):
        times, divided = _MS_OF_UNIT[kind.unit]
        raw = column.cast(pa.int64())
        now = now_ms * divided // times
        numbers: Int64s = filled(raw, now).to_numpy(zero_copy_only=False)
        if times > 1 and numbers.size and np.abs(numbers).max() > _SECONDS_MAX:
            raise JobError(f"a timestamp in {name} is too far from 1970 for milliseconds")
        found = numbers * times if times > 1 else numbers // divided
        return np.where(column.is_null().to_numpy(zero_copy_only=False), now_ms, found)
    if pa.types.is_date32(kind):
        days = filled(column.cast(pa.int32()).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return np.where(column.is_null().to_numpy(zero_copy_only=False), now_ms, days * _MS_OF_DAY)
    if pa.types.is_date64(kind) or pa.types.is_integer(kind):
        return filled(column.cast(pa.int64()), now_ms).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    raise JobError(
        f"the column {name} is {kind}; a timestamp is a timestamp, a date, or milliseconds since 1970 as a "
        "whole number"
    )


def _whole_numbers(column: pa.Array, name: str) -> Int64s:
    """What orders the records, as numbers."""
    kind = column.type
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise BadRow(row, f"the column {name} orders the records, and is null here")
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise JobError(f"the column {name} is {kind}; whole numbers, timestamps and dates order records")
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return column.cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _header_lists(column: pa.Array, name: str) -> pa.Array:
    """As lists of keys and values."""
    kind = column.type
    try:
        if pa.types.is_map(kind):
            return column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))).cast(
                _HEADER_LIST
            )
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if is_list and pa.types.is_struct(kind.value_type):
            names = [kind.value_type.field(index).name for index in range(kind.value_type.num_fields)]
            if names == ["key", "value"]:
                return column.cast(_HEADER_LIST)
    except pa.ArrowException as error:
        raise JobError(f"the column {name} cannot be headers: {error}") from error
    raise JobError(
        f"the column {name} is {kind}; headers are a list of struct<key: string, value: binary>, or a map of "
        "string to binary"
    )


# ---- keys and values as bytes


class BadRow(MinikafkaError):
    """A row that cannot become a record."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row
        """Of the batch of rows that was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What keys or values are made of."""

    what: str
    """``key`` or ``value``, for errors."""
    column: str | None
    """None: the whole row."""
    kind: Kind = Kind.BYTES
    schema: bytes = b""
    """Avro's text, or Protobuf's descriptor set."""
    message: str = ""
    """Protobuf's message."""
    schema_id: int | None = None
    """Of a schema registry, for the prefix."""


def read_schema(kind: Kind, schema: str) -> tuple[bytes, str]:
    """The content of a schema file as ``Side`` has it, and the message's name.

    Raises:
        JobError: it cannot be read, or is not a schema of this kind.
    """
    if kind is Kind.PROTOBUF:
        data, name = message_of(schema)
        return data, name
    try:
        content = Path(schema).read_bytes()
    except OSError as error:
        raise JobError(f"cannot read the schema {schema}: {error.strerror}") from error
    try:
        fastavro.parse_schema(json.loads(content))
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as error:
        raise JobError(f"the schema {schema} is not Avro: {type(error).__name__}: {error}") from error
    return content, ""


class ColumnWriter:
    """Makes the bytes of one side, batch by batch."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._write_row = _row_writer(side)
        self._prefix = _prefix(side)

    def write(self, rows: pa.RecordBatch) -> pa.Array:
        """The key or value of each row, a binary column.

        Raises:
            BadRow: one of them is not what the format can write.
            JobError: no row of such a column is.
        """
        side = self._side
        column: Any = rows.to_struct_array() if side.column is None else rows.column(side.column)
        if self._write_row is None:
            found = _as_bytes(column, side)
        else:
            found = self._one_by_one(column)
        if self._prefix:
            prefixed = pc.binary_join_element_wise(
                pa.scalar(self._prefix, BINARY), found, pa.scalar(b"", BINARY), null_handling="emit_null"
            )
            return prefixed
        return found

    def _one_by_one(self, column: pa.Array) -> pa.Array:
        write = self._write_row
        assert write is not None
        encoded: list[bytes | None] = []
        for index, value in enumerate(_in_microseconds(column).to_pylist()):
            if value is None:
                encoded.append(None)
                continue
            try:
                encoded.append(write(value))
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise BadRow(
                    index, f"the {self._side.what} cannot be written as {self._side.kind}: {reason}"
                ) from error
        return pa.array(encoded, BINARY)


def _in_microseconds(column: pa.Array) -> pa.Array:
    """Python's times have no nanoseconds."""
    kind = _micros(column.type)
    return column if kind == column.type else column.cast(kind, safe=False)


def _micros(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return pa.struct([each.with_type(_micros(each.type)) for each in fields])
    if pa.types.is_map(kind):
        return pa.map_(_micros(kind.key_type), _micros(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_micros(kind.value_type)))
    return kind


def _as_bytes(column: pa.Array, side: Side) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _as_bytes(column.dictionary_decode(), side)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), BINARY)
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_string(kind):
        return column.view(BINARY) if not column.offset else column.cast(BINARY)
    is_octets = (
        pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_fixed_size_binary(kind)
        or kind in (pa.string_view(), pa.binary_view())
    )
    if is_octets:
        return column.cast(BINARY)
    if side.kind is Kind.STRING and not pa.types.is_nested(kind):
        return column.cast(pa.string()).cast(BINARY)
    way = "json writes it" if pa.types.is_nested(kind) else "string writes its text, json a JSON value"
    raise JobError(
        f"the column {side.column} is {kind}, which {side.kind} does not write: --{side.what}-format {way}"
    )


def _prefix(side: Side) -> bytes:
    if side.schema_id is None:
        return b""
    prefix = b"\0" + side.schema_id.to_bytes(4, "big")
    if side.kind is not Kind.PROTOBUF:
        return prefix
    indexes = _indexes(_descriptor(side))
    if indexes == [0]:
        return prefix + b"\0"  # Confluent's short form
    return prefix + b"".join(_varint(number) for number in (len(indexes), *indexes))


def _indexes(descriptor: Descriptor) -> list[int]:
    """Where the message stands in its file, from the outermost one on."""
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_indexes(outer), [each.name for each in outer.nested_types].index(descriptor.name)]


def _varint(number: int) -> bytes:
    rest = number << 1  # zigzag of what is not negative
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _descriptor(side: Side) -> Descriptor:
    found: Descriptor = descriptor_pool(side.schema, side.message).FindMessageTypeByName(side.message)
    return found


def _row_writer(side: Side) -> Callable[[Any], bytes] | None:
    """None: Arrow writes them all at once."""
    match side.kind:
        case Kind.BYTES | Kind.STRING:
            return None
        case Kind.JSON:
            return msgspec.json.Encoder(enc_hook=str).encode
        case Kind.AVRO:
            return _avro_writer(side)
        case Kind.PROTOBUF:
            return _protobuf_writer(side)


def _avro_writer(side: Side) -> Callable[[Any], bytes]:
    schema = fastavro.parse_schema(json.loads(side.schema))

    def write(value: Any) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, schema, value, strict_allow_default=True)
        return stream.getvalue()

    return write


def _protobuf_writer(side: Side) -> Callable[[Any], bytes]:
    message_class = GetMessageClass(_descriptor(side))

    def write(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise ParseError(f"a message is made of a struct's fields, not of {type(value).__name__}")
        found: bytes = ParseDict(_plain(value), message_class()).SerializeToString(deterministic=True)
        return found

    return write


def _plain(value: Any) -> Any:
    """As Protobuf's JSON mapping has it; a field that is null is not set."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items() if each is not None}
        case [(_, _), *_] if all(isinstance(each, tuple) for each in value):  # a map's entries
            return {str(key): _plain(each) for key, each in value}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            text = value.isoformat()
            return text.replace("+00:00", "Z") if value.tzinfo else f"{text}Z"
        case date() | Decimal():
            return str(value)
        case _:
            return value


# ---- partitions


def murmur2(keys: pa.Array) -> UInt32s:
    """The hash of each element of a binary column; that of no bytes for null."""
    offsets, octets = parts_of(keys)
    starts, sizes = offsets[:-1], np.diff(offsets)
    if keys.null_count:
        sizes = np.where(keys.is_null().to_numpy(zero_copy_only=False), 0, sizes)
    padded = octets if octets.size >= 4 else np.concatenate([octets, np.zeros(4, dtype=np.uint8)])
    words: Any = np.ndarray(shape=(padded.size - 3,), dtype="<u4", buffer=padded, strides=(1,))
    hashes = _SEED ^ sizes.astype(np.uint32)
    word_counts = sizes >> 2
    longest = int(word_counts.max()) if word_counts.size else 0
    for step in range(min(longest, _STEPS_MAX)):
        index: Any = np.flatnonzero(word_counts > step)
        if index.size == sizes.size:
            index = slice(None)
        hashes[index] = _mixed(hashes[index], words[starts[index] + 4 * step])
    if longest > _STEPS_MAX:
        for row in np.flatnonzero(word_counts > _STEPS_MAX).tolist():
            hashes[row] = _rest_of(hashes[row], words, int(starts[row]), int(word_counts[row]))
    return _finished(hashes, octets, starts + 4 * word_counts, sizes & 3)


def _mixed(hashes: Any, word: Any) -> Any:
    k = word.astype(np.uint32) * _M
    k ^= k >> _R
    k *= _M
    return hashes * _M ^ k


def _rest_of(value: Any, words: Any, start: int, count: int) -> int:
    """A long key's hash, word by word. Python's numbers: numpy's warn of what overflows alone."""
    mask, m = 0xFFFFFFFF, int(_M)
    h = int(value)
    for k in words[start + 4 * _STEPS_MAX : start + 4 * count : 4].tolist():
        k = k * m & mask
        k ^= k >> 24
        h = (h * m & mask) ^ (k * m & mask)
    return h


def _finished(hashes: UInt32s, octets: Octets, tails: Int64s, left: Int64s) -> UInt32s:
    """With the one to three bytes behind the last whole word, and the last mixing."""
    for place in (2, 1, 0):
        index = np.flatnonzero(left > place)
        if index.size:
            hashes[index] ^= octets[tails[index] + place].astype(np.uint32) << np.uint32(8 * place)
    index = np.flatnonzero(left)
    hashes[index] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


class Partitioner:
    """Assigns the records of one task."""

    def __init__(self, partitions: int, *, batch_bytes: int, first: int = 0) -> None:
        """``first``: where records without a key begin, so that tasks do not all begin at the same."""
        self._partitions = partitions
        self._batch_bytes = batch_bytes
        self._turn_bytes = first % partitions * batch_bytes

    def assign(self, keys: pa.Array, sizes: Int64s) -> npt.NDArray[np.int32]:
        """The partition of each record. ``sizes``: bytes of each record, at most."""
        count = len(keys)
        if self._partitions == 1:
            return np.zeros(count, dtype=np.int32)
        if keys.null_count == count:
            return self._in_turn(sizes)
        chosen = ((murmur2(keys) & _NOT_NEGATIVE) % np.uint32(self._partitions)).astype(np.int32)
        if keys.null_count:
            without = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
            chosen[without] = self._in_turn(sizes[without])
        return chosen

    def _in_turn(self, sizes: Int64s) -> npt.NDArray[np.int32]:
        ends = np.cumsum(sizes) + self._turn_bytes
        begun = (ends - sizes) // self._batch_bytes
        if ends.size:
            self._turn_bytes = int(ends[-1]) % (self._batch_bytes * self._partitions)
        return (begun % self._partitions).astype(np.int32)
