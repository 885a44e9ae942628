"""From bytes to values: a compiled reader per message, for bytes that are not trusted.

Kafka: the generated ``…Data.read`` methods over ``ByteBufferAccessor``; KIP-482 for compact types and tagged
fields.

A reader is a closure over the schema; runs of fixed-width fields are unpacked in one step. Entities come out
as named tuples with the schema's field names. Values are what the wire holds: durations and timestamps are
ints in milliseconds, records are read-only views of the frame, a zero UUID is None, error codes are
``ErrorCode`` where Kafka has a name for the number.

Arrays are read in steps (``minikafka.steps``), because a request of megabytes may be millions of values.

Bounds, all checked before anything is allocated: an array's count is at most the bytes that remain ÷ the
least size of an element; a message has at most ``ELEMENTS_MAX`` elements in all its arrays, a
request ``REQUEST_ELEMENTS_MAX``; a length lies
within the frame; a tagged field fills the size it states exactly (Kafka trusts it). Unknown tags are
skipped. Bytes after the body are ignored, as Kafka ignores them. Strings must be UTF-8; Kafka puts U+FFFD
where they are not, which would give two names to one topic.
"""

from __future__ import annotations

import struct
from collections import namedtuple
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from minikafka.errors import ErrorCode, PeerProtocolError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.wire.schema import EntitySchema, FieldSchema
from minikafka.steps import ELEMENTS_A_STEP, Steps, finish

ELEMENTS_MAX: Final = 1_000_000
"""Array elements in one message that a broker sends or a log has: metadata of 100,000 partitions with three
replicas are 800,000. An element costs about 100 bytes of memory, on the wire perhaps one."""

REQUEST_ELEMENTS_MAX: Final = 250_000
"""Array elements in one request. The largest that an honest client sends moves 50,000 partitions at once: a
topic, a partition and three replicas for each. An answer costs up to 700 bytes of memory an element, and to
let go of all that 0.1 s of nothing else."""

TAGGED_FIELDS_MAX: Final = 100
"""Tagged fields of one entity. Kafka's messages have at most seven; a frame of nothing else would be skipped
for half a minute."""

Budget = list[int]
"""The array elements that a message may still have, in a list of one."""

Reader = Callable[[memoryview, int, Budget], tuple[Any, int]]
"""(frame, position, budget) → (value, position behind it)."""

StepReader = Callable[[memoryview, int, Budget], Steps[tuple[Any, int]]]
"""The same in steps."""

MALFORMED: Final = (struct.error, IndexError, UnicodeDecodeError)
"""What reading past the end, or bytes that are not UTF-8, raise; ``PeerProtocolError`` aside there is
nothing else."""

_FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "bool": "?",
}
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_STRING_BYTES_MAX = 0x7FFF
_ERROR_CODES: Final = {int(code): code for code in ErrorCode}
_IMPLICIT_DEFAULTS: Final = {"string": "", "bytes": b"", "records": None, "uuid": None}


def read_unsigned_varint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes.

    Raises:
        PeerProtocolError: longer, or above 2³¹−1.
        IndexError: the frame ends inside it.
    """
    byte = view[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = view[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                break
            return value, position + 1
    raise PeerProtocolError("a varint is too long or too large")


def skip_tagged_fields(view: memoryview, position: int) -> int:
    """Behind a section of tagged fields of which none is known."""
    count, position = _tag_count(view, position)
    for _ in range(count):
        _, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        position = _end(view, position, size)
    return position


def _tag_count(view: memoryview, position: int) -> tuple[int, int]:
    count, position = read_unsigned_varint(view, position)
    if count > TAGGED_FIELDS_MAX:
        raise PeerProtocolError(f"{count} tagged fields; {TAGGED_FIELDS_MAX} are allowed")
    return count, position


def compile_reader(schema: EntitySchema) -> Reader:
    """The reader of an entity: a named tuple with the fields of ``schema`` comes out."""
    reader = _compile(schema)
    if isinstance(reader, _InSteps):
        read_in_steps = reader.read
        return lambda view, position, budget: finish(read_in_steps(view, position, budget))
    return reader


def compile_reader_in_steps(schema: EntitySchema) -> StepReader:
    """The same in steps. An entity without arrays is one step."""
    reader = _compile(schema)
    if isinstance(reader, _InSteps):
        return reader.read
    read = reader

    def read_at_once(view: memoryview, position: int, budget: Budget) -> Steps[tuple[Any, int]]:
        return read(view, position, budget)
        yield

    return read_at_once


class _InSteps(NamedTuple):
    """The reader of something with an array in it."""

    read: StepReader


_AnyReader = Reader | _InSteps


def _compile(schema: EntitySchema) -> _AnyReader:
    untagged = [field for field in schema.fields if field.tag is None]
    tagged = [field for field in schema.fields if field.tag is not None]
    names = [field.name for field in (*untagged, *tagged)]
    make = _named_tuple(schema.name, names)
    steps = _steps(untagged, flexible=schema.flexible)
    tag_defaults = [_tagged_default(field) for field in tagged]
    tag_readers = {
        field.tag: (slot, _field_reader(field, flexible=schema.flexible)) for slot, field in enumerate(tagged)
    }
    flexible = schema.flexible

    def read(view: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        values: list[Any] = []
        for unpack_from, size, reader, _ in steps:
            if unpack_from is not None:
                values += unpack_from(view, position)
                position += size
            else:
                value, position = reader(view, position, budget)
                values.append(value)
        return make(values), position

    def read_flexible(view: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        values: list[Any] = []
        for unpack_from, size, reader, _ in steps:
            if unpack_from is not None:
                values += unpack_from(view, position)
                position += size
            else:
                value, position = reader(view, position, budget)
                values.append(value)
        if view[position] == 0:
            values += tag_defaults
            return make(values), position + 1
        tags, position = finish(_read_tagged(view, position, budget, tag_readers, tag_defaults))
        return make(values + tags), position

    def read_in_steps(view: memoryview, position: int, budget: Budget) -> Steps[tuple[Any, int]]:
        values: list[Any] = []
        for unpack_from, size, reader, in_steps in steps:
            if unpack_from is not None:
                values += unpack_from(view, position)
                position += size
            elif in_steps:
                value, position = yield from reader(view, position, budget)
                values.append(value)
            else:
                value, position = reader(view, position, budget)
                values.append(value)
        if not flexible:
            return make(values), position
        if view[position] == 0:
            values += tag_defaults
            return make(values), position + 1
        tags, position = yield from _read_tagged(view, position, budget, tag_readers, tag_defaults)
        return make(values + tags), position

    if any(in_steps for *_, in_steps in steps) or any(
        isinstance(reader, _InSteps) for _, reader in tag_readers.values()
    ):
        return _InSteps(read_in_steps)
    return read_flexible if flexible else read


def _named_tuple(name: str, fields: list[str]) -> Callable[[Iterable[Any]], Any]:
    entity: Any = namedtuple(name, fields)  # type: ignore[misc]  # the fields are known only at run time
    make: Callable[[Iterable[Any]], Any] = entity._make
    return make


def _read_tagged(
    view: memoryview,
    position: int,
    budget: Budget,
    readers: dict[int | None, tuple[int, _AnyReader]],
    defaults: list[Any],
) -> Steps[tuple[list[Any], int]]:
    values = list(defaults)
    count, position = _tag_count(view, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        end = _end(view, position, size)
        if tag in readers:
            slot, reader = readers[tag]
            if isinstance(reader, _InSteps):
                values[slot], position = yield from reader.read(view, position, budget)
            else:
                values[slot], position = reader(view, position, budget)
            if position != end:
                raise PeerProtocolError(f"tagged field {tag} does not fill the {size} bytes it states")
        position = end
    return values, position


def _steps(fields: list[FieldSchema], *, flexible: bool) -> list[tuple[Any, int, Any, bool]]:
    """Fixed-width neighbours as (unpack_from, size, None, False), everything else as (None, 0, reader,
    whether it reads in steps)."""
    steps: list[tuple[Any, int, Any, bool]] = []
    run = ""
    for field in (*fields, None):
        code = None if field is None or field.is_array else _FIXED.get(field.kafka_type or "")
        if code is not None:
            run += code
            continue
        if run:
            layout = struct.Struct(f">{run}")
            steps.append((layout.unpack_from, layout.size, None, False))
            run = ""
        if field is not None:
            reader = _field_reader(field, flexible=flexible)
            if isinstance(reader, _InSteps):
                steps.append((None, 0, reader.read, True))
            else:
                steps.append((None, 0, reader, False))
    return steps


def _field_reader(field: FieldSchema, *, flexible: bool) -> _AnyReader:
    item: _AnyReader
    if field.is_array:
        count_reader = _compact_count if flexible else _count
        if field.entity is not None:
            item, size_min = _compile(field.entity), least_size(field.entity)
        elif field.kafka_type in _FIXED:
            return _fixed_array(count_reader, _FIXED[field.kafka_type], nullable=field.nullable)
        else:
            item = _value_reader(field.kafka_type or "", nullable=False, flexible=flexible)
            size_min = _least_value_size(field.kafka_type or "", flexible=flexible)
        if isinstance(item, _InSteps):
            return _InSteps(_array_of_arrays(count_reader, item.read, size_min, nullable=field.nullable))
        return _InSteps(_array(count_reader, item, size_min, nullable=field.nullable))
    if field.entity is not None:
        reader = _compile(field.entity)
        if not field.nullable:
            return reader
        if isinstance(reader, _InSteps):
            return _InSteps(_nullable_in_steps(reader.read))
        return _nullable_entity(reader)
    nullable = (field.nullable and field.tag is None) or field.default is None
    return _value_reader(field.kafka_type or "", nullable=nullable, flexible=flexible)


def _value_reader(kafka_type: str, *, nullable: bool, flexible: bool) -> Reader:
    if kafka_type in _FIXED:
        return _fixed(struct.Struct(f">{_FIXED[kafka_type]}"))
    if kafka_type == "string":
        length = _compact_count if flexible else _string_length
        return _string(length, nullable=nullable)
    if kafka_type in ("bytes", "records"):
        length = _compact_count if flexible else _count
        return _bytes(length, nullable=nullable, copy=kafka_type == "bytes")
    return {"uuid": _read_uuid, "error_code": _read_error_code}[kafka_type]


def least_size(schema: EntitySchema) -> int:
    """The fewest bytes that an entity takes."""
    total = 1 if schema.flexible else 0
    for field in schema.fields:
        if field.tag is not None:
            continue
        if field.is_array:
            total += 1 if schema.flexible else 4
        elif field.entity is not None:
            total += 1 if field.nullable else least_size(field.entity)
        else:
            total += _least_value_size(field.kafka_type or "", flexible=schema.flexible)
    return total


def _least_value_size(kafka_type: str, *, flexible: bool) -> int:
    if kafka_type in _FIXED:
        return struct.calcsize(f">{_FIXED[kafka_type]}")
    if kafka_type == "uuid":
        return 16
    if kafka_type == "error_code":
        return 2
    if flexible:
        return 1
    return 2 if kafka_type == "string" else 4


def _tagged_default(field: FieldSchema) -> Any:
    if field.is_array:
        return ()
    if field.entity is not None and isinstance(field.default, dict):
        return _named_tuple(field.entity.name, list(field.default))(field.default.values())
    if isinstance(field.default, (int, str, bytes, bool)):
        return field.default
    return _IMPLICIT_DEFAULTS.get(field.kafka_type or "", None)


def _end(view: memoryview, position: int, size: int) -> int:
    end = position + size
    if end > len(view):
        raise PeerProtocolError(f"{size} bytes are announced where {len(view) - position} remain")
    return end


def _compact_count(view: memoryview, position: int) -> tuple[int, int]:
    count, position = read_unsigned_varint(view, position)
    return count - 1, position


def _count(view: memoryview, position: int) -> tuple[int, int]:
    return _I32.unpack_from(view, position)[0], position + 4


def _string_length(view: memoryview, position: int) -> tuple[int, int]:
    return _I16.unpack_from(view, position)[0], position + 2


def _negative(length: int, *, nullable: bool) -> None:
    if not nullable or length != -1:
        raise PeerProtocolError("null where a value must be" if length == -1 else f"a length of {length}")


def _fixed(layout: struct.Struct) -> Reader:
    def read(view: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        return layout.unpack_from(view, position)[0], position + layout.size

    return read


def _string(length_reader: Callable[[memoryview, int], tuple[int, int]], *, nullable: bool) -> Reader:
    compact = length_reader is _compact_count

    def read(view: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        if compact and 0 < view[position] < 0x80:  # a call less for the usual length
            length = view[position] - 1
            position += 1
        else:
            length, position = length_reader(view, position)
        if length < 0:
            _negative(length, nullable=nullable)
            return None, position
        if length > _STRING_BYTES_MAX:
            raise PeerProtocolError(f"a string of {length} bytes; {_STRING_BYTES_MAX} are allowed")
        end = position + length
        if end > len(view):
            raise PeerProtocolError(f"a string of {length} bytes where {len(view) - position} remain")
        return str(view[position:end], "utf-8"), end

    return read


def _bytes(
    length_reader: Callable[[memoryview, int], tuple[int, int]], *, nullable: bool, copy: bool
) -> Reader:
    def read(view: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        length, position = length_reader(view, position)
        if length < 0:
            _negative(length, nullable=nullable)
            return None, position
        end = _end(view, position, length)
        return (view[position:end].tobytes() if copy else view[position:end]), end

    return read


def _read_uuid(view: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
    end = _end(view, position, 16)
    return topic_uuid(view[position:end].tobytes()), end


@lru_cache(maxsize=4096)
def topic_uuid(raw: bytes) -> UUID | None:
    """A UUID, None for the zero one. Remembered: making one costs more than reading the rest of a request."""
    return UUID(bytes=raw) if any(raw) else None


def _read_error_code(view: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
    code = _I16.unpack_from(view, position)[0]
    return _ERROR_CODES.get(code, code), position + 2


def _nullable_entity(reader: Reader) -> Reader:
    """KIP-893: one byte, negative for null, before the entity."""

    def read(view: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        if view[position] >= 0x80:
            return None, position + 1
        return reader(view, position + 1, budget)

    return read


def _nullable_in_steps(reader: StepReader) -> StepReader:
    def read(view: memoryview, position: int, budget: Budget) -> Steps[tuple[Any, int]]:
        if view[position] >= 0x80:
            return None, position + 1
        return (yield from reader(view, position + 1, budget))

    return read


def _spend(view: memoryview, position: int, count: int, size_min: int, budget: Budget) -> None:
    if count * size_min > len(view) - position:
        raise PeerProtocolError(f"an array of {count} elements where {len(view) - position} bytes remain")
    budget[0] -= count
    if budget[0] < 0:
        raise PeerProtocolError("a message with more array elements than are allowed")


def _array(
    count_reader: Callable[[memoryview, int], tuple[int, int]],
    item: Reader,
    size_min: int,
    *,
    nullable: bool,
) -> StepReader:
    """Of elements that have no arrays themselves."""
    compact = count_reader is _compact_count

    def read(view: memoryview, position: int, budget: Budget) -> Steps[tuple[Any, int]]:
        if compact and view[position] == 2:  # one element, the usual array
            _spend(view, position + 1, 1, size_min, budget)
            value, position = item(view, position + 1, budget)
            return (value,), position
        count, position = count_reader(view, position)
        if count < 0:
            _negative(count, nullable=nullable)
            return None, position
        _spend(view, position, count, size_min, budget)
        values: list[Any] = []
        while count > 0:
            for _ in range(min(count, ELEMENTS_A_STEP)):
                value, position = item(view, position, budget)
                values.append(value)
            count -= ELEMENTS_A_STEP
            if count > 0:
                yield
        return tuple(values), position

    return read


def _array_of_arrays(
    count_reader: Callable[[memoryview, int], tuple[int, int]],
    item: StepReader,
    size_min: int,
    *,
    nullable: bool,
) -> StepReader:
    """Of elements that are read in steps."""

    def read(view: memoryview, position: int, budget: Budget) -> Steps[tuple[Any, int]]:
        count, position = count_reader(view, position)
        if count < 0:
            _negative(count, nullable=nullable)
            return None, position
        _spend(view, position, count, size_min, budget)
        values = []
        for done in range(1, count + 1):
            value, position = yield from item(view, position, budget)
            values.append(value)
            if done % ELEMENTS_A_STEP == 0:
                yield
        return tuple(values), position

    return read


def _fixed_array(
    count_reader: Callable[[memoryview, int], tuple[int, int]], code: str, *, nullable: bool
) -> Reader:
    size = struct.calcsize(f">{code}")

    def read(view: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        count, position = count_reader(view, position)
        if count < 0:
            _negative(count, nullable=nullable)
            return None, position
        _spend(view, position, count, size, budget)
        return struct.unpack_from(f">{count}{code}", view, position), position + count * size

    return read
