"""Schemas of exported records, Avro, JSON and Protobuf: where they are, the types of their columns, and how
records are read.

Avro: column types as spark-avro chooses them, records by fastavro. Spark's ``from_avro`` is in a jar that is
not part of Spark; fastavro comes with pip and needs no network. Refused, because no column can be it: a type
inside itself, and a union of more than null and one type (or numbers that widen).

JSON: column types from a JSON Schema or in Spark's notation (``id bigint, name string``). A JSON Schema is
taken for what it says of structure: types, properties, items, local ``$ref``. Limits such as ``minimum`` or
``required`` are not checked, as a column cannot have them. What has no type of its own, such as several
alternatives, is refused rather than guessed.

Protobuf: column types from a descriptor set, messages by Google's library. A descriptor set is what ``protoc
--include_imports --descriptor_set_out=orders.desc orders.proto`` writes. A ``.proto`` file is compiled so on
the spot, by the protoc inside grpcio-tools (the extra ``protoc``), which is not needed otherwise. The message
is named as ``orders.desc#shop.Order``; one that is alone need not be. A field that knows whether it is set
(messages, ``optional``, ``oneof``) is null when it is not, any other has its default value. Enums are their
names, or the number where it has none; ``uint64`` is decimal(20, 0); ``google.protobuf.Timestamp`` is a
timestamp. A message inside itself is refused.

A schema registry is asked by Confluent's HTTP API, which Karapace and Apicurio have, too. A schema is named
by its URL: ``http://registry:8081/subjects/orders-value`` (the newest version), with ``/versions/3``, or
``/schemas/ids/7``. It is fetched once, at the start, and says what columns there are. The schemas by which
Avro's records were written are fetched when one is met, by its id, and kept: an id stands for one schema for
ever.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from minikafka.spark.export.decoding import (
    CONFLUENT_PREFIX_BYTES,
    Format,
    Kind,
    PythonDecoder,
    RegistryUnavailable,
)
from minikafka.spark.runtime.session import JobError, explain

_AVRO_TYPES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "fixed": BinaryType(),
    "enum": StringType(),
}
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
IDS_KNOWN_MAX = 10_000
"""Ids of which a task remembers what the registry has said, also that it has no such schema."""
_WIDENED = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}

Converter = Callable[[Any], Any]

FieldPath = tuple[str, ...]
"""A field by the names from the top; what is in a list or a map is below the list's or the map's name."""

_FORMATS: dict[str, DataType] = {"date-time": TimestampType(), "date": DateType()}
_JSON_TYPES: dict[str, DataType] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}

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

TIMEOUT_S = 10.0
SCHEMA_BYTES_MAX = 16 * 1024 * 1024
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_SUFFIX = {Kind.AVRO: ".avsc", Kind.JSON: ".json", Kind.PROTOBUF: ".proto"}
_SUBJECT = re.compile(r"/subjects/[^/]+/?$")
_ROOT = re.compile(r"(?P<root>https?://.+?)/(?:subjects|schemas/ids)/")
_ASK_AGAIN = frozenset(
    {
        http.HTTPStatus.UNAUTHORIZED,
        http.HTTPStatus.FORBIDDEN,
        http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
        http.HTTPStatus.REQUEST_TIMEOUT,
        http.HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""Answers that say nothing of the schema. Others below 500 say that it is no schema's id: a record that has
any four bytes for it must not end the run."""
SCHEMAS_CACHED_MAX = 1000
"""In a worker; a topic has a few."""


# ---- Avro


def avro_decoder(text: str, name: str, registry: str | None = None) -> PythonDecoder:
    """A decoder for records of the schema; ``name`` is its file's.

    Args:
        registry: where the schemas are by which records were written, whose ids stand before them; the one
            that is given is then the reader's (Avro's "Schema Resolution"). None: all are of that one.

    Raises:
        JobError: it is no Avro schema, or one that no column can have.
    """
    try:
        schema = _without_other_logical_types(json.loads(text))
        fastavro.parse_schema(schema)
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as error:
        raise JobError(f"the schema {name} is not Avro: {type(error).__name__}: {error}") from error
    types = _AvroTypes(name)
    data_type, converter = types.type_of(schema, "", ())
    if registry is not None:
        return PythonDecoder(data_type, lambda: _resolving_reader(schema, converter, registry))
    return PythonDecoder(data_type, lambda: _avro_reader(schema, converter))


def _avro_reader(schema: Any, converter: Converter | None) -> Callable[[bytes], Any]:
    parsed = fastavro.parse_schema(schema)

    def read(data: bytes) -> Any:
        stream = BytesIO(data)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left behind the record")
        return value if converter is None else converter(value)

    return read


def _resolving_reader(schema: Any, converter: Converter | None, registry: str) -> Callable[[bytes], Any]:
    """Reads what stands behind a registry's prefix, by the schema of its id and then by ``schema``.

    fastavro resolves a logical type by the writer's schema, and Avro by the reader's. So what another schema
    has written is resolved without logical types, written by the reader's, and read like any other record.
    """
    read = _avro_reader(schema, converter)
    plain = _parsed_plain(schema)
    known: dict[int, Callable[[bytes], Any]] = {}

    def reader_of(schema_id: int) -> Callable[[bytes], Any]:
        try:
            writers = _plain_schema(schema_by_id(registry, schema_id))
        except UnusableSchema as error:
            return _refusing(str(error))
        if writers is None:
            return _refusing(f"the schema {schema_id} of the registry is not Avro")
        return read if writers == plain else lambda body: read(_resolved(body, writers, plain))

    def read_by_id(data: bytes) -> Any:
        schema_id = int.from_bytes(data[1:CONFLUENT_PREFIX_BYTES], "big")
        found = known.get(schema_id)
        if found is None:
            found = reader_of(schema_id)
            if len(known) < IDS_KNOWN_MAX:
                known[schema_id] = found
        return found(data[CONFLUENT_PREFIX_BYTES:])

    return read_by_id


def _refusing(why: str) -> Callable[[bytes], Any]:
    def refuse(_: bytes) -> Any:
        raise UnusableSchema(why)

    return refuse


def _resolved(body: bytes, writers: Any, readers: Any) -> bytes:
    """A record of one schema as one of the other, neither with logical types. Raises what fastavro raises."""
    stream, resolved = BytesIO(body), BytesIO()
    value = fastavro.schemaless_reader(stream, writers, readers)
    if stream.tell() != len(body):
        raise ValueError(f"{len(body) - stream.tell()} bytes are left behind the record")
    fastavro.schemaless_writer(resolved, readers, value)
    return resolved.getvalue()


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def _plain_schema(text: str) -> Any:
    """A schema without logical types, as fastavro keeps it; None: it is none. The cache is a worker's."""
    try:
        return _parsed_plain(json.loads(text))
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType):
        return None


def _parsed_plain(schema: Any) -> Any:
    parsed = fastavro.parse_schema(_without_logical_types(schema))
    _set_binary_defaults(parsed)
    return parsed


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_logical_types(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if key != "logicalType"
    }


def _set_binary_defaults(schema: Any) -> None:
    """Defaults of bytes as bytes, which JSON has as text of Latin-1, and fastavro hands out as they are."""
    if isinstance(schema, list):
        for each in schema:
            _set_binary_defaults(each)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("default"), str) and _is_binary(schema.get("type")):
        schema["default"] = schema["default"].encode("latin-1")
    for name in ("type", "items", "values", "fields"):
        _set_binary_defaults(schema.get(name))


def _is_binary(kind: Any) -> bool:
    """Whether a default of this type is bytes; of a union it is of the first of its types."""
    while isinstance(kind, list | dict) and kind:
        kind = kind[0] if isinstance(kind, list) else kind.get("type")
    return kind in ("bytes", "fixed")


def former_names(file: str) -> dict[FieldPath, list[str]]:
    """The aliases of the fields of an Avro schema's file, which an earlier schema called so."""
    found: dict[FieldPath, list[str]] = {}
    _collect_aliases(json.loads(Path(file).read_text(encoding="utf-8")), (), found)
    return found


def _collect_aliases(schema: Any, path: FieldPath, found: dict[FieldPath, list[str]]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _collect_aliases(each, path, found)
    if not isinstance(schema, dict):
        return
    for each in schema.get("fields", ()):
        below = (*path, each["name"])
        if each.get("aliases"):
            found[below] = list(each["aliases"])
        _collect_aliases(each["type"], below, found)
    for inside in ("type", "items", "values"):
        if isinstance(schema.get(inside), dict | list):
            _collect_aliases(schema[inside], path, found)


def _without_other_logical_types(schema: Any) -> Any:
    """What has no column type of its own is read as the type below it: a time as a number, a UUID as text."""
    if isinstance(schema, list):
        return [_without_other_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    keeps = schema.get("logicalType") in (*_LOGICAL, "decimal")
    return {
        key: _without_other_logical_types(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if key != "logicalType" or keeps
    }


class _AvroTypes:
    """Walks a schema; named types are known from their definition on."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._named: dict[str, tuple[Any, str]] = {}

    def type_of(
        self, schema: Any, space: str, open_names: tuple[str, ...]
    ) -> tuple[DataType, Converter | None]:
        """The column type, and what makes its values of fastavro's (None: they are right)."""
        if isinstance(schema, list):
            return self._union(schema, space, open_names)
        if isinstance(schema, str):
            if schema in _AVRO_TYPES:
                return _AVRO_TYPES[schema], None
            full = schema if "." in schema or not space else f"{space}.{schema}"
            full = full if full in self._named else schema
            if full in open_names:
                raise self._error(f"{full} is inside itself, which no column can be")
            if full not in self._named:
                raise self._error(f"there is no type {schema}")
            return self.type_of(*self._named[full], open_names)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.type_of(kind, space, open_names)
        match kind:
            case "record" | "error":
                return self._record(schema, space, open_names)
            case "array":
                item, convert = self.type_of(schema["items"], space, open_names)
                return ArrayType(item), _each(convert)
            case "map":
                value, convert = self.type_of(schema["values"], space, open_names)
                return MapType(StringType(), value), _pairs(convert)
        if kind in ("enum", "fixed"):
            self._define(schema, space)
        logical = schema.get("logicalType")
        if logical == "decimal":
            return DecimalType(schema["precision"], schema.get("scale", 0)), None
        if logical in _LOGICAL:
            return _LOGICAL[logical], None
        return (_AVRO_TYPES[kind], None) if kind in _AVRO_TYPES else self.type_of(kind, space, open_names)

    def _record(
        self, schema: Any, space: str, open_names: tuple[str, ...]
    ) -> tuple[DataType, Converter | None]:
        full, inner = self._define(schema, space)
        fields, converters = [], {}
        for each in schema["fields"]:
            data_type, convert = self.type_of(each["type"], inner, (*open_names, full))
            fields.append(StructField(each["name"], data_type))
            if convert is not None:
                converters[each["name"]] = convert
        if not fields:
            raise self._error(f"{full} has no fields")
        if not converters:
            return StructType(fields), None

        def convert_fields(record: dict[str, Any]) -> dict[str, Any]:
            return record | {name: convert(record[name]) for name, convert in converters.items()}

        return StructType(fields), convert_fields

    def _union(
        self, schemas: list[Any], space: str, open_names: tuple[str, ...]
    ) -> tuple[DataType, Converter | None]:
        others = [each for each in schemas if each != "null"]
        names = frozenset(each for each in others if isinstance(each, str))
        if len(names) == len(others) and names in _WIDENED:
            return _AVRO_TYPES[_WIDENED[names]], None
        if len(others) != 1:
            raise self._error("there is a union of several types, and a column has one")
        data_type, convert = self.type_of(others[0], space, open_names)
        return data_type, _or_null(convert)

    def _define(self, schema: Any, space: str) -> tuple[str, str]:
        """Its full name, and the namespace inside it."""
        name, own = schema["name"], schema.get("namespace", space)
        full = name if "." in name or not own else f"{own}.{name}"
        self._named[full] = schema, space
        return full, full.rpartition(".")[0]

    def _error(self, what: str) -> JobError:
        return JobError(f"the schema {self._file}: {what}")


def _each(convert: Converter | None) -> Converter | None:
    return None if convert is None else lambda values: [convert(each) for each in values]


def _or_null(convert: Converter | None) -> Converter | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _pairs(convert: Converter | None) -> Converter:
    """Arrow takes a map as a list of pairs."""
    if convert is None:
        return lambda values: list(values.items())
    return lambda values: [(key, convert(value)) for key, value in values.items()]


# ---- JSON


def json_type(text: str, name: str) -> StructType:
    """The type of the objects that a schema file describes; ``name`` is the file's, for the error.

    Raises:
        JobError: names the file, and the place in it.
    """
    if text.lstrip().startswith("{"):
        try:
            schema = json.loads(text)
        except ValueError as error:
            raise JobError(f"the schema {name} is not JSON: {error}") from error
        found = _JsonSchema(schema, name).type_of(schema, "#", ())
    else:
        try:
            found = DataType.fromDDL(text.strip())
        except PySparkException as error:
            raise JobError(f"the schema {name} is no list of columns: {explain(error)}") from error
    if not isinstance(found, StructType) or not found.fields:
        raise JobError(f"the schema {name} must describe an object with fields")
    return found


class _JsonSchema:
    def __init__(self, root: Any, name: str) -> None:
        self._root = root
        self._name = name

    def type_of(self, schema: Any, where: str, open_refs: tuple[str, ...]) -> DataType:
        """``open_refs``: the references that led here, none of which may come again."""
        if not isinstance(schema, dict):
            raise self._error(where, "is not an object")
        if (ref := schema.get("$ref")) is not None:
            if ref in open_refs:
                raise self._error(where, f"refers to {ref} inside itself, which no column can do")
            return self.type_of(self._resolve(ref, where), str(ref), (*open_refs, ref))
        for word in ("oneOf", "anyOf", "allOf"):
            if word in schema:
                return self._alternative(schema[word], f"{where}/{word}", open_refs)
        match self._type_name(schema, where):
            case "object":
                return self._object(schema, where, open_refs)
            case "array":
                if "items" not in schema:
                    raise self._error(where, "is an array without items")
                return ArrayType(self.type_of(schema["items"], f"{where}/items", open_refs))
            case "string":
                return _FORMATS.get(str(schema.get("format")), StringType())
            case str(plain) if plain in _JSON_TYPES:
                return _JSON_TYPES[plain]
            case other:
                raise self._error(where, f"has the type {other!r}")

    def _alternative(self, schemas: Any, where: str, open_refs: tuple[str, ...]) -> DataType:
        """One alternative besides null is that alternative, which may be null."""
        others = [each for each in schemas if each != {"type": "null"}] if isinstance(schemas, list) else []
        if len(others) != 1:
            raise self._error(where, "has several alternatives, and a column has one type")
        return self.type_of(others[0], where, open_refs)

    def _type_name(self, schema: dict[str, Any], where: str) -> Any:
        found = schema.get("type")
        if isinstance(found, list):
            others = [each for each in found if each != "null"]
            if len(others) != 1:
                raise self._error(where, "has several types, and a column has one")
            return others[0]
        if found is not None:
            return found
        if "properties" in schema:
            return "object"
        if all(isinstance(each, str) for each in schema.get("enum", [None])):
            return "string"
        raise self._error(where, "says no type")

    def _object(self, schema: dict[str, Any], where: str, open_refs: tuple[str, ...]) -> DataType:
        properties = schema.get("properties")
        if properties:
            return StructType(
                [
                    StructField(name, self.type_of(each, f"{where}/properties/{name}", open_refs))
                    for name, each in properties.items()
                ]
            )
        values = schema.get("additionalProperties")
        if not isinstance(values, dict):
            raise self._error(where, "is an object without properties")
        return MapType(StringType(), self.type_of(values, f"{where}/additionalProperties", open_refs))

    def _resolve(self, ref: Any, where: str) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise self._error(where, f"refers to {ref}, which is not in the file")
        found = self._root
        for part in ref.removeprefix("#").strip("/").split("/"):
            if part:
                found = (
                    found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
                )
        if found is None:
            raise self._error(where, f"refers to {ref}, which is not there")
        return found

    def _error(self, where: str, what: str) -> JobError:
        return JobError(f"the schema {self._name}: {where} {what}")


# ---- Protobuf


def protobuf_decoder(schema: str, *, confluent: bool) -> PythonDecoder:
    """A decoder for ``FILE`` or ``FILE#MESSAGE``. ``confluent``: message indexes stand before each record.

    Raises:
        JobError: the file is not there or not Protobuf's, or no column can be such a message.
    """
    data, name = message_of(schema)
    file = schema.partition("#")[0]
    data_type = _type_of_message(descriptor_pool(data, file).FindMessageTypeByName(name), (), file)
    return PythonDecoder(data_type, lambda: _protobuf_reader(data, name, confluent))


def message_of(schema: str) -> tuple[bytes, str]:
    """The descriptor set of ``FILE`` or ``FILE#MESSAGE``, and the message's full name.

    Raises:
        JobError: the file is not there or not Protobuf's, or has no such message.
    """
    file, _, message = schema.partition("#")
    data = _compiled(Path(file)) if file.endswith(".proto") else _read(Path(file))
    return data, _message_name(data, message, file)


def protobuf_numbers(schema: str) -> dict[FieldPath, int]:
    """The numbers of the fields of ``FILE`` or ``FILE#MESSAGE``: what stays where a field is renamed.

    Raises:
        JobError: as ``protobuf_decoder``.
    """
    data, name = message_of(schema)
    descriptor = descriptor_pool(data, schema.partition("#")[0]).FindMessageTypeByName(name)
    found: dict[FieldPath, int] = {}
    _collect_numbers(descriptor, (), found)
    return found


def _collect_numbers(descriptor: Descriptor, path: FieldPath, found: dict[FieldPath, int]) -> None:
    if descriptor.full_name == TIMESTAMP:
        return
    for field in descriptor.fields:
        below = (*path, field.name)
        found[below] = field.number
        inside = _map_fields(field)[1] if _is_map(field) else field
        if inside.message_type is not None:
            _collect_numbers(inside.message_type, below, found)


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


def _message_name(data: bytes, message: str, file: str) -> str:
    """The message's full name."""
    try:
        files = FileDescriptorSet.FromString(data).file
    except DecodeError as error:
        raise JobError(f"the schema {file} is no descriptor set, as protoc writes it: {error}") from error
    if not files:
        raise JobError(f"the schema {file} is an empty descriptor set")
    pool = descriptor_pool(data, file)
    if not message:
        last = files[-1]
        if len(last.message_type) != 1:
            names = ", ".join(each.name for each in last.message_type) or "none"
            raise JobError(
                f"the schema {file} has several messages or none ({names}): name one with {file}#NAME"
            )
        message = f"{last.package}.{last.message_type[0].name}".lstrip(".")
    try:
        pool.FindMessageTypeByName(message)
        return message
    except KeyError:
        there = ", ".join(
            f"{each.package}.{found.name}".lstrip(".")
            for each in files
            for found in each.message_type
            if each.package != "google.protobuf"
        )
        raise JobError(f"the schema {file} has no message {message}; it has {there}") from None


def descriptor_pool(data: bytes, file: str) -> DescriptorPool:
    """The messages of a descriptor set; ``file`` is for the error.

    Raises:
        JobError: it lacks what it imports.
    """
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


def _protobuf_reader(data: bytes, name: str, confluent: bool) -> Callable[[bytes], Any]:
    descriptor = descriptor_pool(data, name).FindMessageTypeByName(name)
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


# ---- a schema registry


class UnusableSchema(JobError):
    """The registry answers, and what it has is no schema to read by."""


def fetched(formats: Mapping[str | None, Format], directory: Path) -> dict[str | None, Format]:
    """The formats with files in ``directory`` in the place of URLs.

    Raises:
        JobError: a registry does not answer, or has no such schema.
    """
    return {topic: _fetched(each, directory) for topic, each in formats.items()}


def _fetched(wanted: Format, directory: Path) -> Format:
    if wanted.schema is None or not wanted.schema.startswith(("http://", "https://")):
        return wanted
    url, sharp, message = wanted.schema.partition("#")
    text = fetch_schema(url, wanted.kind)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", urlsplit(url).path).strip("-")
    path, number = directory / f"{name}{_SUFFIX[wanted.kind]}", 1
    while path.exists() and path.read_text(encoding="utf-8") != text:  # of another registry
        number += 1
        path = directory / f"{name}-{number}{_SUFFIX[wanted.kind]}"
    path.write_text(text, encoding="utf-8")
    root = _ROOT.match(url)
    return Format(wanted.kind, f"{path}{sharp}{message}", None if root is None else root["root"])


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def schema_by_id(registry: str, schema_id: int) -> str:
    """The text of the Avro schema of an id.

    Raises:
        UnusableSchema: there is none, or no Avro.
        RegistryUnavailable: the registry does not answer.
    """
    return fetch_schema(f"{registry}/schemas/ids/{schema_id}", Kind.AVRO)


def fetch_schema(url: str, kind: Kind) -> str:
    """The text of a schema.

    Raises:
        UnusableSchema: the registry has no such schema, or one of another kind.
        RegistryUnavailable: it does not answer.
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/") + "/versions/latest" if _SUBJECT.search(parts.path) else parts.path
    shown = urlunsplit((parts.scheme, host, path, parts.query, ""))
    headers = {"Accept": _ACCEPT}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    try:
        request = urllib.request.Request(shown, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            found = json.loads(response.read(SCHEMA_BYTES_MAX))
    except urllib.error.HTTPError as error:
        is_away = error.code in _ASK_AGAIN or error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR
        kind_of_error = RegistryUnavailable if is_away else UnusableSchema
        with error:
            raise kind_of_error(
                f"the schema {shown}: the registry answers {error.code} {error.reason}"
            ) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise RegistryUnavailable(f"the schema {shown}: {why}") from None
    except ValueError as error:
        raise RegistryUnavailable(f"the schema {shown}: the answer is not a registry's: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        raise RegistryUnavailable(f"the schema {shown}: the answer is not a registry's: it has no schema")
    given = str(found.get("schemaType", "AVRO")).lower()
    if given != kind:
        raise UnusableSchema(f"the schema {shown} is {given}, and the format {kind}")
    if found.get("references"):
        raise UnusableSchema(f"the schema {shown} refers to others: give it as one file")
    return str(found["schema"])
