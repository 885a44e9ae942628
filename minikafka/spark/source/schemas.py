"""The columns of the data sources, for Spark and for Arrow: one table each, from which both schemas are made.

``RECORD_SCHEMA`` begins with the columns of Spark's own Kafka source, with its names, types and meaning
(``KafkaRecordToRowConverter``); ``headers`` is there on request, and null in a record without headers, as
there. Behind them is what only the log knows. ``error`` is there with ``onCorrupt=column``.

Arrow's types are those that Spark's Python workers expect, to the letter: a batch whose schema differs in a
unit or a time zone is refused by Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

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
