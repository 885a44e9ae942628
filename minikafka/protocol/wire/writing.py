"""From plain bodies to bytes: a compiled writer per message.

Kafka: the generated ``…Data.write`` methods; KIP-482 for compact types and tagged fields.

A body is a tree of dicts and lists with the schema's field names. One body serves all versions: a name that
this version lacks but another has is left out, a missing name takes the schema's default. Durations and
timestamps are ints in milliseconds, UUIDs are ``UUID`` or None, bytes are any buffer. A tagged field that
equals its default is not written, as in Kafka.

Whatever does not fit is our bug, never the peer's: ``InvariantError`` with the entity and the field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from minikafka.errors import InvariantError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.wire.schema import REQUIRED, EntitySchema, FieldSchema
from minikafka.steps import BYTES_A_STEP, ELEMENTS_A_STEP, Steps, finish
from minikafka.types import Buffer

Body = Mapping[str, Any]
Writer = Callable[[bytearray, Any], None]
StepWriter = Callable[[bytearray, Any], Steps[None]]
NamesElsewhere = Callable[[tuple[str, ...]], Iterable[frozenset[str]]]
"""The names that the entity at a path has in each version; as many versions are asked as are needed."""

_MISFIT: Final = (struct.error, TypeError, ValueError, AttributeError, OverflowError)

_FIXED: Final = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "uint32": ">I",
    "float64": ">d",
    "error_code": ">h",
}
_pack_i16 = struct.Struct(">h").pack
_pack_i32 = struct.Struct(">i").pack
_NULL_I16 = _pack_i16(-1)
_NULL_I32 = _pack_i32(-1)
_ZERO_UUID = bytes(16)


LARGE_BYTES: Final = 32 * 1024
"""Values of so many bytes leave from where they are."""


class FrameWriter(bytearray):
    """What a message is written to, but for large values, which are not copied."""

    def __init__(self, size: int = 0) -> None:
        super().__init__(size)
        self.large: list[tuple[int, Buffer]] = []
        """Each with the position before which it belongs."""

    @property
    def size_bytes(self) -> int:
        """Of all."""
        return len(self) + sum(len(value) for _, value in self.large)

    def buffers(self) -> list[Buffer]:
        """All in its order. Nothing is written after this."""
        if not self.large:
            return [bytes(self)]
        written = memoryview(self)
        buffers: list[Buffer] = []
        begin = 0
        for end, value in self.large:
            buffers += (written[begin:end], value)
            begin = end
        if begin < len(self):
            buffers.append(written[begin:])
        return buffers


class EncodedArray(NamedTuple):
    """An array in a body, as it was encoded before for this version: its count and its elements."""

    data: bytes


class ArrayToKeep(list[Any]):
    """An array in a body whose bytes are put into ``kept`` under ``key`` when it is written, for an
    ``EncodedArray``; where they have come to be there meanwhile, those are written."""

    def __init__(self, values: Iterable[Any], kept: dict[Any, bytes], key: object) -> None:
        super().__init__(values)
        self.kept = kept
        self.key = key


def unsigned_varint(value: int) -> bytes:
    """The bytes of a length, count or tag."""
    if value < 0x80:
        return _ONE_BYTE[value]
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def compile_writer(schema: EntitySchema, names_elsewhere: NamesElsewhere) -> Writer:
    """The writer of an entity, given as a mapping."""
    writer = _compile(schema, names_elsewhere, ())
    return _at_once(writer)


def compile_writer_in_steps(schema: EntitySchema, names_elsewhere: NamesElsewhere) -> StepWriter:
    """The same in steps. An entity without arrays is one step."""
    writer = _compile(schema, names_elsewhere, ())
    if isinstance(writer, _InSteps):
        return writer.write
    write = writer

    def write_at_once(out: bytearray, body: Body) -> Steps[None]:
        write(out, body)
        return
        yield

    return write_at_once


class _InSteps(NamedTuple):
    """The writer of something with an array in it."""

    write: StepWriter


_AnyWriter = Writer | _InSteps


def _at_once(writer: _AnyWriter) -> Writer:
    if not isinstance(writer, _InSteps):
        return writer
    write_in_steps = writer.write
    return lambda out, value: finish(write_in_steps(out, value))


def _compile(schema: EntitySchema, names_elsewhere: NamesElsewhere, path: tuple[str, ...]) -> _AnyWriter:
    fields: list[tuple[str, Any, Any, bool]] = []
    tagged: list[_TaggedField] = []
    for field in schema.fields:
        writer = _field_writer(field, names_elsewhere, (*path, field.name), flexible=schema.flexible)
        if field.tag is not None:
            writer = _at_once(writer)
            tagged.append(
                _TaggedField(field.name, unsigned_varint(field.tag), _encoded_default(field, writer), writer)
            )
        elif isinstance(writer, _InSteps):
            fields.append((field.name, field.default, writer.write, True))
        else:
            fields.append((field.name, field.default, writer, False))
    accepted = frozenset(field.name for field in schema.fields)
    flexible = schema.flexible
    write_tagged = _tagged_section(schema.name, tagged) if tagged else _write_no_tags
    pieces = _pieces(schema, fields)

    def check_names(body: Body) -> None:
        nonlocal accepted
        for names in names_elsewhere(path):
            accepted |= names
            if body.keys() <= accepted:
                return
        unknown = ", ".join(sorted(body.keys() - accepted))
        raise InvariantError(f"{schema.name} has no field {unknown} in any version")

    def write(out: bytearray, body: Body) -> None:
        if not body.keys() <= accepted:
            check_names(body)
        for write_run, name, default, writer, _ in pieces:
            if write_run is not None:
                write_run(out, body)
                continue
            value = body.get(name, default)
            try:
                writer(out, value)
            except _MISFIT as error:
                raise _misfit(schema.name, name, value, error) from error
        if flexible:
            write_tagged(out, body)

    def write_in_steps(out: bytearray, body: Body) -> Steps[None]:
        if not body.keys() <= accepted:
            check_names(body)
        for write_run, name, default, writer, in_steps in pieces:
            if write_run is not None:
                write_run(out, body)
                continue
            value = body.get(name, default)
            try:
                if in_steps:
                    yield from writer(out, value)
                else:
                    writer(out, value)
            except _MISFIT as error:
                raise _misfit(schema.name, name, value, error) from error
        if flexible:
            write_tagged(out, body)

    return _InSteps(write_in_steps) if any(in_steps for *_, in_steps in fields) else write


_Field = tuple[str, Any, Any, bool]
"""Its name, its default, its writer, and whether that writes in steps."""
_Piece = tuple[Writer | None, str, Any, Any, bool]
"""What writes several fields of a body, or None and one field."""


def _pieces(schema: EntitySchema, fields: Sequence[_Field]) -> list[_Piece]:
    """The fields in their order. Neighbours of fixed width are one piece, as they are for the reader."""
    codes = {
        each.name: "" if each.is_array else _FIXED.get(each.kafka_type or "", "") for each in schema.fields
    }
    pieces: list[_Piece] = []
    for is_fixed, group in groupby(fields, key=lambda field: bool(codes[field[0]])):
        run = list(group)
        if is_fixed and len(run) > 1:
            pack = struct.Struct(">" + "".join(codes[field[0]][1:] for field in run)).pack
            pieces.append((_run_writer(schema.name, run, pack), "", None, None, False))
        else:
            pieces += [(None, *field) for field in run]
    return pieces


def _run_writer(entity: str, run: Sequence[_Field], pack: Callable[..., bytes]) -> Writer:
    named = [(name, default) for name, default, _, _ in run]

    def write(out: bytearray, body: Body) -> None:
        get = body.get
        try:
            out += pack(*[get(name, default) for name, default in named])
        except _MISFIT:
            for name, default, writer, _ in run:  # one of them raises the same, and is named
                value = get(name, default)
                try:
                    writer(out, value)
                except _MISFIT as error:
                    raise _misfit(entity, name, value, error) from error

    return write


def _misfit(entity: str, name: str, value: Any, error: BaseException) -> InvariantError:
    if value is REQUIRED:
        return InvariantError(f"{entity}.{name} is missing")
    return InvariantError(f"{entity}.{name} cannot be {value!r}: {error}")


def _write_no_tags(out: bytearray, body: Body) -> None:
    out.append(0)


class _TaggedField(NamedTuple):
    name: str
    tag: bytes
    default: bytes | None
    write: Writer


def _tagged_section(entity: str, tagged: Sequence[_TaggedField]) -> Writer:
    """The writer of the tagged fields, those that are not their default."""
    tags = frozenset(field.name for field in tagged)

    def write(out: bytearray, body: Body) -> None:
        if tags.isdisjoint(body):
            out.append(0)
            return
        count = 0
        section = bytearray()
        for name, tag, default, write_value in tagged:
            value = body.get(name)
            if value is None:
                continue
            content = bytearray()
            try:
                write_value(content, value)
            except _MISFIT as error:
                raise InvariantError(f"{entity}.{name} cannot be {value!r}: {error}") from error
            if bytes(content) == default:
                continue
            count += 1
            section += tag
            section += unsigned_varint(len(content))
            section += content
        out.append(count)
        out += section

    return write


def _encoded_default(field: FieldSchema, writer: Writer) -> bytes | None:
    """What a tagged field must differ from to be written; None when there is no default (or it is null)."""
    if field.default is REQUIRED or field.default is None:
        return None
    content = bytearray()
    writer(content, field.default)
    return bytes(content)


def _field_writer(
    field: FieldSchema, names_elsewhere: NamesElsewhere, path: tuple[str, ...], *, flexible: bool
) -> _AnyWriter:
    if field.entity is not None:
        writer = _compile(field.entity, names_elsewhere, path)
        if field.is_array:
            return _InSteps(_array(writer, nullable=field.nullable, flexible=flexible))
        if not field.nullable:
            return writer
        if isinstance(writer, _InSteps):
            return _InSteps(_nullable_in_steps(writer.write))
        return _nullable_entity(writer)
    kafka_type = field.kafka_type or ""
    if field.is_array:
        item = _value_writer(kafka_type, nullable=False, flexible=flexible)
        return _InSteps(_array(item, nullable=field.nullable, flexible=flexible))
    return _value_writer(kafka_type, nullable=field.nullable, flexible=flexible)


def _value_writer(kafka_type: str, *, nullable: bool, flexible: bool) -> Writer:
    if kafka_type in _FIXED:
        return _fixed(struct.Struct(_FIXED[kafka_type]).pack)
    if kafka_type == "bool":
        return _write_bool
    if kafka_type == "uuid":
        return _write_uuid
    if kafka_type == "string":
        return _compact_string(nullable=nullable) if flexible else _string(nullable=nullable)
    return _compact_bytes(nullable=nullable) if flexible else _bytes(nullable=nullable)


def _refuse_null(value: Any, *, nullable: bool) -> None:
    """Called on a value that has no length: fine when it is a null that may be."""
    if value is not None or not nullable:
        raise TypeError("null where a value must be" if value is None else f"a {type(value).__name__}")


def _fixed(pack: Callable[[Any], bytes]) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _write_bool(out: bytearray, value: bool) -> None:
    """``struct`` would take any object for True, also the mark of a field that is missing."""
    if not isinstance(value, bool):
        raise TypeError(f"a {type(value).__name__}")
    out.append(value)


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += _ZERO_UUID if value is None else value.bytes


def _string(*, nullable: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, str):
            _refuse_null(value, nullable=nullable)
            out += _NULL_I16
            return
        data = value.encode()
        out += _pack_i16(len(data))
        out += data

    return write


def _compact_string(*, nullable: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, str):
            _refuse_null(value, nullable=nullable)
            out.append(0)
            return
        data = value.encode()
        out += unsigned_varint(len(data) + 1)
        out += data

    return write


def _bytes(*, nullable: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            _refuse_null(value, nullable=nullable)
            out += _NULL_I32
            return
        out += _pack_i32(len(value))
        _write_value(out, value)

    return write


def _compact_bytes(*, nullable: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            _refuse_null(value, nullable=nullable)
            out.append(0)
            return
        out += unsigned_varint(len(value) + 1)
        _write_value(out, value)

    return write


def _write_value(out: bytearray, value: Buffer) -> None:
    if len(value) >= LARGE_BYTES and isinstance(out, FrameWriter):
        out.large.append((len(out), value))
    else:
        out += value


def _array(item: _AnyWriter, *, nullable: bool, flexible: bool) -> StepWriter:
    in_steps = item.write if isinstance(item, _InSteps) else None
    at_once = _at_once(item)

    def write_kept(out: bytearray, values: EncodedArray | ArrayToKeep) -> Steps[None]:
        data = values.data if isinstance(values, EncodedArray) else values.kept.get(values.key)
        if data is not None:
            out += data
        elif isinstance(values, ArrayToKeep):
            start = len(out)
            yield from write(out, list(values))
            values.kept[values.key] = bytes(memoryview(out)[start:])

    def write(out: bytearray, values: Any) -> Steps[None]:
        if values is None:
            _refuse_null(values, nullable=nullable)
            out += b"\0" if flexible else _NULL_I32
            return
        if isinstance(values, (EncodedArray, ArrayToKeep)):
            yield from write_kept(out, values)
            return
        out += unsigned_varint(len(values) + 1) if flexible else _pack_i32(len(values))
        if in_steps is None:
            for done, value in enumerate(values, start=1):
                at_once(out, value)
                if done % ELEMENTS_A_STEP == 0:
                    yield
            return
        yielded_bytes = len(out)
        for value in values:
            yield from in_steps(out, value)
            if len(out) - yielded_bytes >= BYTES_A_STEP:
                yield
                yielded_bytes = len(out)

    return write


def _nullable_entity(writer: Writer) -> Writer:
    """KIP-893: −1 for null, 1 before the entity."""

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
            return
        out.append(1)
        writer(out, value)

    return write


def _nullable_in_steps(writer: StepWriter) -> StepWriter:
    def write(out: bytearray, value: Any) -> Steps[None]:
        if value is None:
            out.append(0xFF)
            return
        out.append(1)
        yield from writer(out, value)

    return write
