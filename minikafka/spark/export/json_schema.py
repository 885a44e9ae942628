"""The column type of JSON records, from a JSON Schema or in Spark's notation (``id bigint, name string``).

A JSON Schema is taken for what it says of structure: types, properties, items, local ``$ref``. Limits such
as ``minimum`` or ``required`` are not checked, as a column cannot have them. What has no type of its own,
such as several alternatives, is refused rather than guessed.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from minikafka.spark.runtime.failures import JobError, explain

_FORMATS: dict[str, DataType] = {"date-time": TimestampType(), "date": DateType()}
_PLAIN: dict[str, DataType] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}


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
            case str(plain) if plain in _PLAIN:
                return _PLAIN[plain]
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
