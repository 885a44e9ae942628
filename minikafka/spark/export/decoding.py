"""Keys and values decoded: binary columns become strings or structs, and what does not decode follows a rule.

Strings and JSON are Spark's own functions; Avro and Protobuf are Arrow functions of a Python library, because
Spark's need a jar from Maven. A decoder maps a column to two: the value, and why it is not there.

Which format the keys and values of which topic are in says the command line: ``--value-format avro`` counts
for every topic, ``--value-format orders=avro`` for one. ``--value-schema`` goes the same way and names a
file; of several messages in a Protobuf file, ``orders.desc#shop.Order`` names one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from minikafka.spark.runtime.session import JobError

_BY_TOPIC = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})=(?P<text>.*)")

KEY, VALUE = "key", "value"
_RAW, _PARSED = "__raw", "__parsed"
_CORRUPT = "__corrupt"

CONFLUENT_PREFIX_BYTES = 5
"""A zero and the schema's id in four bytes, before what a registry's serializer writes."""


class Kind(StrEnum):
    """What bytes stand for."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def has_schema(self) -> bool:
        return self in (Kind.JSON, Kind.AVRO, Kind.PROTOBUF)


@dataclass(frozen=True, slots=True)
class Format:
    """A kind, and the schema that it needs."""

    kind: Kind
    schema: str | None = None
    """A file's path, with ``#message`` where it is Protobuf's."""
    registry: str | None = None
    """The URL of the schema registry that it is from, with the login: what knows records' own schemas."""

    def __str__(self) -> str:
        return f"{self.kind} {self.schema}" if self.schema else str(self.kind)


@dataclass(frozen=True, slots=True)
class TopicFormat:
    """How the records of a topic are decoded."""

    key: Format
    value: Format


def by_topic(texts: Sequence[str], option: str) -> dict[str | None, str]:
    """``text`` or ``topic=text`` as topic → text; None is every other topic.

    Raises:
        JobError: a topic, or all of them, have it twice.
    """
    found: dict[str | None, str] = {}
    for each in texts:
        match = _BY_TOPIC.fullmatch(each)
        topic, text = (match["topic"], match["text"]) if match else (None, each)
        if topic in found:
            raise JobError(f"{option} is given twice for {topic or 'all topics'}")
        found[topic] = text
    return found


def parse_formats(formats: Sequence[str], schemas: Sequence[str], side: str) -> dict[str | None, Format]:
    """``--<side>-format`` and ``--<side>-schema`` as topic → format; None is every other topic.

    Raises:
        JobError: an unknown format, one without the schema that it needs, or a schema that nothing needs.
    """
    kinds = by_topic(formats, f"--{side}-format")
    files = by_topic(schemas, f"--{side}-schema")
    kinds.setdefault(None, Kind.BYTES)
    found: dict[str | None, Format] = {}
    needed = any(_kind(text, side).has_schema for text in kinds.values())
    for topic in dict.fromkeys((*kinds, *files)):
        kind = _kind(kinds.get(topic, kinds[None]), side)
        if topic in files and not (kind.has_schema or (topic is None and needed)):
            raise JobError(f"--{side}-schema {files[topic]}: the format {kind} needs no schema")
        if kind.has_schema and not files:
            raise JobError(f"--{side}-format {kind} needs --{side}-schema FILE")
        found[topic] = Format(kind, files.get(topic, files.get(None)) if kind.has_schema else None)
    return found


def _kind(text: str, side: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        raise JobError(f"--{side}-format {text}: must be one of {', '.join(Kind)}") from None


def format_of(topic: str, formats: Mapping[str | None, Format], side: str) -> Format:
    """The format of this topic. Raises JobError: it needs a schema and has none."""
    found = formats.get(topic, formats[None])
    if found.kind.has_schema and found.schema is None:
        raise JobError(f"--{side}-format {found.kind} of topic {topic} needs --{side}-schema {topic}=FILE")
    return found


class RegistryUnavailable(JobError):
    """A schema registry does not answer as one: no record is to blame, and the run ends."""


class OnError(StrEnum):
    """What becomes of a record whose key or value does not decode."""

    FAIL = "fail"
    NULL = "null"
    COLUMN = "column"


class Decoder(Protocol):
    """Decodes one column."""

    def decode(self, frame: DataFrame, raw: str) -> tuple[DataFrame, Column, Column]:
        """``frame`` with what it needs beside, the decoded value, and why it is null (null: it is right)."""
        ...


class BytesDecoder:
    """As it is."""

    def decode(self, frame: DataFrame, raw: str) -> tuple[DataFrame, Column, Column]:
        return frame, F.col(raw), F.lit(None).cast("string")


class StringDecoder:
    """UTF-8."""

    def decode(self, frame: DataFrame, raw: str) -> tuple[DataFrame, Column, Column]:
        text = F.try_validate_utf8(F.col(raw).cast("string"))
        is_wrong = F.col(raw).isNotNull() & text.isNull()
        return frame, text, F.when(is_wrong, F.lit("is not UTF-8"))


class JsonDecoder:
    """A JSON object. Fields that it lacks are null; others than the schema's are left out."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def decode(self, frame: DataFrame, raw: str) -> tuple[DataFrame, Column, Column]:
        text = F.col(raw).cast("string")
        asked = StructType([*self._schema.fields, StructField(_CORRUPT, StringType())])
        # The option also keeps Spark from parsing less than the whole schema, which would find less wrong.
        parsed = F.from_json(text, asked, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})
        column = f"{_PARSED}{raw}"
        frame = frame.withColumn(column, parsed)  # a column of its own, so that it is parsed once
        found = F.col(column)
        is_wrong = F.col(raw).isNotNull() & (found.isNull() | found[_CORRUPT].isNotNull())
        fields = [found[name].alias(name) for name in self._schema.names]
        value = F.when(F.col(raw).isNotNull() & ~is_wrong, F.struct(*fields))
        return frame, value, F.when(is_wrong, F.lit("is not JSON of the schema"))


class PythonDecoder:
    """Any function from bytes to a value of ``data_type``; what it raises is why the value is null."""

    def __init__(self, data_type: DataType, make: Callable[[], Callable[[bytes], Any]]) -> None:
        """``make`` is called in the worker, and makes the function there: schemas need not be pickled."""
        self._data_type = data_type
        self._make = make

    def decode(self, frame: DataFrame, raw: str) -> tuple[DataFrame, Column, Column]:
        column = f"{_PARSED}{raw}"
        frame = frame.withColumn(column, _arrow_function(self._data_type, self._make)(F.col(raw)))
        return frame, F.col(column)["value"], F.col(column)["error"]


def _arrow_function(data_type: DataType, make: Callable[[], Callable[[bytes], Any]]) -> Any:
    result = StructType([StructField("value", data_type), StructField("error", StringType())])
    arrow_type = to_arrow_type(data_type, timezone="UTC")
    made: list[Callable[[bytes], Any]] = []

    def decode(column: pa.Array) -> pa.Array:
        if not made:
            made.append(make())
        function = made[0]
        values: list[Any] = []
        errors: list[str | None] = []
        for data in column.to_pylist():
            value, error = None, None
            if data is not None:
                try:
                    value = function(data)
                except RegistryUnavailable:
                    raise
                except Exception as failure:  # noqa: BLE001 foreign bytes: the library raises whatever
                    error = _told(failure)
            values.append(value)
            errors.append(error)
        decoded = _as_arrow(values, errors, arrow_type)  # adds to the errors
        arrays = [decoded, pa.array(errors, pa.string())]
        return pa.StructArray.from_arrays(arrays, ["value", "error"])

    return arrow_udf(decode, result)  # type: ignore[call-overload]  # its stub wants more than it does


def _as_arrow(values: list[Any], errors: list[str | None], arrow_type: pa.DataType) -> pa.Array:
    """``values`` as a column; one that it cannot hold (a timestamp of the year 40,000) becomes null, and its
    error says so."""
    try:
        return pa.array(values, arrow_type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        for index, value in enumerate(values):
            try:
                pa.array([value], arrow_type)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as failure:
                values[index], errors[index] = None, _told(failure)
        return pa.array(values, arrow_type)


def _told(failure: Exception) -> str:
    return f"does not decode: {type(failure).__name__}: {failure}"


class ConfluentDecoder:
    """What stands behind a schema registry's prefix."""

    def __init__(self, inner: Decoder, *, keeps_prefix: bool = False) -> None:
        """``keeps_prefix``: the inner decoder reads the schema's id itself, else it has one schema."""
        self._inner = inner
        self._keeps_prefix = keeps_prefix

    def decode(self, frame: DataFrame, raw: str) -> tuple[DataFrame, Column, Column]:
        data = F.col(raw)
        first, rest = F.substring(data, 1, 1), f"{_RAW}{raw}"
        is_wrong = (F.length(data) < CONFLUENT_PREFIX_BYTES) | (F.hex(first) != "00")
        start = 1 if self._keeps_prefix else CONFLUENT_PREFIX_BYTES + 1
        behind = F.when(~is_wrong, F.expr(f"substring(`{raw}`, {start})"))
        frame, value, error = self._inner.decode(frame.withColumn(rest, behind), rest)
        return frame, value, F.when(is_wrong, F.lit("does not begin with a schema id")).otherwise(error)


def decode(frame: DataFrame, key: Decoder, value: Decoder, on_error: OnError) -> DataFrame:
    """``frame`` with ``key`` and ``value`` decoded, and ``key_error`` and ``value_error``: why one is null.

    With ``OnError.FAIL`` the first such record fails whatever reads the frame.
    """
    others = [name for name in frame.columns if name not in (KEY, VALUE)]
    frame = frame.withColumnsRenamed({KEY: f"{_RAW}{KEY}", VALUE: f"{_RAW}{VALUE}"})
    frame, key_column, key_error = key.decode(frame, f"{_RAW}{KEY}")
    frame, value_column, value_error = value.decode(frame, f"{_RAW}{VALUE}")
    if on_error is OnError.FAIL:
        key_column = _or_fail(KEY, key_column, key_error)
        value_column = _or_fail(VALUE, value_column, value_error)
    return frame.select(
        key_column.alias(KEY),
        value_column.alias(VALUE),
        *others,
        key_error.alias(f"{KEY}_error"),
        value_error.alias(f"{VALUE}_error"),
    )


def _or_fail(name: str, column: Column, error: Column) -> Column:
    where = F.concat(
        *(F.col("topic"), F.lit("-"), F.col("partition"), F.lit(", offset "), F.col("offset")),
        *(F.lit(f": the {name} "), error),
    )
    return F.when(error.isNotNull(), F.raise_error(where)).otherwise(column)
