"""Columns of a table as the bytes of keys and values: what ``export.decoding`` reads, written.

bytes    as they are; text as UTF-8
string   text, and numbers, dates and booleans as their text
json     any column or a whole row, as JSON; bytes in base64, times in ISO 8601 to the microsecond
avro     a struct or a whole row by an Avro schema, with fastavro
protobuf a struct or a whole row as a message, with Google's library

``schema_id`` puts a schema registry's prefix before each: a zero and the id in four bytes, and for Protobuf
the indexes of the message in its file. The first two are Arrow's work, the others go row by row in Python.
Null is a null key, or a tombstone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.schema import SchemaParseException, UnknownType
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message_factory import GetMessageClass

from minikafka.errors import MinikafkaError
from minikafka.spark.export.decoding import Kind
from minikafka.spark.export.record_schemas import descriptor_pool, message_of
from minikafka.spark.runtime.session import JobError

BINARY = pa.binary()


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
