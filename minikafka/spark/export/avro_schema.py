"""Avro: column types from a schema, as spark-avro chooses them, and records read by fastavro.

Spark's ``from_avro`` is in a jar that is not part of Spark; fastavro comes with pip and needs no network.
Refused, because no column can be it: a type inside itself, and a union of more than null and one type (or
numbers that widen).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
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

from minikafka.spark.export.decoding import PythonDecoder
from minikafka.spark.runtime.failures import JobError

_PLAIN: dict[str, DataType] = {
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
_WIDENED = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}

Converter = Callable[[Any], Any]


def avro_decoder(text: str, name: str) -> PythonDecoder:
    """A decoder for records of the schema; ``name`` is its file's.

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
    return PythonDecoder(data_type, lambda: _reader(schema, converter))


def _reader(schema: Any, converter: Converter | None) -> Callable[[bytes], Any]:
    parsed = fastavro.parse_schema(schema)

    def read(data: bytes) -> Any:
        stream = BytesIO(data)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left behind the record")
        return value if converter is None else converter(value)

    return read


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
            if schema in _PLAIN:
                return _PLAIN[schema], None
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
        return (_PLAIN[kind], None) if kind in _PLAIN else self.type_of(kind, space, open_names)

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
            return _PLAIN[_WIDENED[names]], None
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
