"""Protobuf: column types from a descriptor set, and messages read by Google's library.

A descriptor set is what ``protoc --include_imports --descriptor_set_out=orders.desc orders.proto`` writes. A
``.proto`` file is compiled so on the spot, by the protoc inside grpcio-tools (the extra ``protoc``), which is
not needed otherwise. The message is named as ``orders.desc#shop.Order``; one that is alone need not be.

Columns: a field that knows whether it is set (messages, ``optional``, ``oneof``) is null when it is not, any
other has its default value. Enums are their names, or the number where it has none; ``uint64`` is
decimal(20, 0); ``google.protobuf.Timestamp`` is a timestamp. A message inside itself is refused.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from minikafka.spark.export.decoding import PythonDecoder
from minikafka.spark.runtime.failures import JobError

TIMESTAMP = "google.protobuf.Timestamp"
COMPILE_S = 60

_TYPES: dict[int, DataType] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
    FieldDescriptor.CPPTYPE_STRING: StringType(),
}

Reader = Callable[[Any], Any]


def protobuf_decoder(schema: str, *, confluent: bool) -> PythonDecoder:
    """A decoder for ``FILE`` or ``FILE#MESSAGE``. ``confluent``: message indexes stand before each record.

    Raises:
        JobError: the file is not there or not Protobuf's, or no column can be such a message.
    """
    file, _, message = schema.partition("#")
    data = _compiled(Path(file)) if file.endswith(".proto") else _read(Path(file))
    name, descriptor = _message(data, message, file)
    data_type = _type_of_message(descriptor, (), file)
    return PythonDecoder(data_type, lambda: _reader(data, name, confluent))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise JobError(f"cannot read the schema {path}: {error.strerror}") from error


def _compiled(path: Path) -> bytes:
    """The descriptor set of a .proto file."""
    _read(path)
    if find_spec("grpc_tools") is None:
        raise JobError(
            f"the schema {path} needs protoc: pip install 'minikafka[protoc]', or give what "
            "protoc --include_imports --descriptor_set_out=FILE.desc has written"
        )
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "set.desc"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{path.parent}", "--include_imports"]
        done = subprocess.run(
            [*command, f"--descriptor_set_out={out}", str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMPILE_S,
        )
        if done.returncode:
            words = " ".join(done.stderr.split()) or f"protoc ended with {done.returncode}"
            raise JobError(f"the schema {path} is not Protobuf: {words}")
        return out.read_bytes()


def _message(data: bytes, message: str, file: str) -> tuple[str, Descriptor]:
    """The message's full name and descriptor."""
    try:
        files = FileDescriptorSet.FromString(data).file
    except DecodeError as error:
        raise JobError(f"the schema {file} is no descriptor set, as protoc writes it: {error}") from error
    if not files:
        raise JobError(f"the schema {file} is an empty descriptor set")
    pool = _pool(data, file)
    if not message:
        last = files[-1]
        if len(last.message_type) != 1:
            names = ", ".join(each.name for each in last.message_type) or "none"
            raise JobError(
                f"the schema {file} has several messages or none ({names}): name one with {file}#NAME"
            )
        message = f"{last.package}.{last.message_type[0].name}".lstrip(".")
    try:
        return message, pool.FindMessageTypeByName(message)
    except KeyError:
        there = ", ".join(
            f"{each.package}.{found.name}".lstrip(".")
            for each in files
            for found in each.message_type
            if each.package != "google.protobuf"
        )
        raise JobError(f"the schema {file} has no message {message}; it has {there}") from None


def _pool(data: bytes, file: str) -> DescriptorPool:
    pool = DescriptorPool()
    try:
        for each in FileDescriptorSet.FromString(data).file:  # protoc writes imports before what imports them
            pool.Add(each)
            pool.FindFileByName(each.name)
    except (TypeError, KeyError) as error:
        raise JobError(
            f"the schema {file} lacks what it imports: write it with protoc --include_imports ({error})"
        ) from error
    return pool


def _reader(data: bytes, name: str, confluent: bool) -> Callable[[bytes], Any]:
    descriptor = _pool(data, name).FindMessageTypeByName(name)
    message_class = GetMessageClass(descriptor)
    read_fields = _fields_reader(descriptor)

    def read(record: bytes) -> Any:
        message = message_class()
        message.ParseFromString(_behind_indexes(record) if confluent else record)
        return read_fields(message)

    return read


def _behind_indexes(record: bytes) -> bytes:
    """Confluent's serializer says which message of the file it is: a count and so many indexes, as zigzag
    varints; a lone zero means the first."""
    count, position = _varint(record, 0)
    for _ in range(count >> 1):
        _, position = _varint(record, position)
    return record[position:]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _type_of_message(descriptor: Descriptor, open_names: tuple[str, ...], file: str) -> DataType:
    name = descriptor.full_name
    if name == TIMESTAMP:
        return TimestampType()
    if name in open_names:
        raise JobError(f"the schema {file}: {name} is inside itself, which no column can be")
    if not descriptor.fields:
        raise JobError(f"the schema {file}: {name} has no fields")
    inner = (*open_names, name)
    return StructType([StructField(each.name, _type_of(each, inner, file)) for each in descriptor.fields])


def _type_of(field: FieldDescriptor, open_names: tuple[str, ...], file: str) -> DataType:
    if _is_map(field):
        key, value = _map_fields(field)
        return MapType(_type_of(key, open_names, file), _type_of(value, open_names, file))
    if field.type == FieldDescriptor.TYPE_BYTES:
        found: DataType = BinaryType()
    elif field.message_type is not None:
        found = _type_of_message(field.message_type, open_names, file)
    else:
        found = _TYPES[field.cpp_type]
    return ArrayType(found) if field.is_repeated else found


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _map_fields(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    assert field.message_type is not None
    fields = field.message_type.fields_by_name
    return fields["key"], fields["value"]


def _fields_reader(descriptor: Descriptor) -> Reader:
    """From a message to what Arrow takes for its column."""
    if descriptor.full_name == TIMESTAMP:
        return lambda message: message.seconds * 1_000_000 + message.nanos // 1000
    readers = [(each.name, each.has_presence, _field_reader(each)) for each in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: reader(getattr(message, name)) if not has_presence or message.HasField(name) else None
            for name, has_presence, reader in readers
        }

    return read


def _field_reader(field: FieldDescriptor) -> Reader:
    if _is_map(field):
        key, value = map(_value_reader, _map_fields(field))
        return lambda values: [(key(each), value(values[each])) for each in values]
    one = _value_reader(field)
    return (lambda values: [one(each) for each in values]) if field.is_repeated else one


def _value_reader(field: FieldDescriptor) -> Reader:
    if field.message_type is not None:
        return _fields_reader(field.message_type)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return Decimal
    return lambda value: value
