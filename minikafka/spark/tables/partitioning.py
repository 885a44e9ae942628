"""How a table is partitioned: ``day(timestamp), bucket(16, key)``, as Iceberg's partition transforms.

Values are Iceberg's, to the bit (its specification, "Partition Transforms"): a bucket is the 32-bit Murmur3
hash of the value with seed 0, of an int as of a long of eight bytes. Delta has no transforms: there a
transform becomes a plain column with the same name, and readers that want to skip files filter by it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from minikafka.spark.runtime.session import JobError

IDENTITY, BUCKET = "identity", "bucket"
_TIMES = {"year": None, "month": None, "day": 86_400_000_000, "hour": 3_600_000_000}
"""Microseconds, where the length is fixed."""
_BUCKETED = (IntegerType, LongType, StringType, BinaryType)
_TIMED = (TimestampType, TimestampNTZType, DateType)
_PLAIN = (IntegerType, LongType, StringType, BooleanType)
BUCKETS_MAX = 100_000

_TERM = re.compile(
    r"\s*(?:(?P<transform>[a-z]+)\s*\(\s*(?:(?P<buckets>\d+)\s*,\s*)?(?P<inside>[^\s(),]+)\s*\)"
    r"|(?P<plain>[^\s(),]+))\s*(?:,|$)"
)
_ICEBERG = re.compile(r"(?P<transform>[a-z]+)(?:\[(?P<buckets>\d+)\])?")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PartitionField(NamedTuple):
    """One transform of one column."""

    transform: str
    """identity, bucket, year, month, day or hour."""
    column: str
    """Its path, with dots."""
    buckets: int | None = None

    def __str__(self) -> str:
        if self.transform == IDENTITY:
            return self.column
        if self.buckets is not None:
            return f"{self.transform}({self.buckets}, {self.column})"
        return f"{self.transform}({self.column})"

    @property
    def name(self) -> str:
        """Of the partition field, as Iceberg names it by default: ``timestamp_day``, ``key_bucket``."""
        column = self.column.replace(".", "_")
        return column if self.transform == IDENTITY else f"{column}_{self.transform}"

    @property
    def iceberg(self) -> str:
        """The transform as Iceberg writes it."""
        return self.transform if self.buckets is None else f"{self.transform}[{self.buckets}]"


def parse_partitions(text: str) -> tuple[PartitionField, ...]:
    """``day(timestamp), bucket(16, key), partition``.

    Raises:
        JobError: names what cannot be read.
    """
    found: list[PartitionField] = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            raise JobError(f"--partition-by {text}: cannot read {text[position:].strip()!r}")
        position = match.end()
        if match["plain"]:
            found.append(PartitionField(IDENTITY, match["plain"]))
            continue
        transform, buckets = match["transform"], match["buckets"]
        if transform not in (IDENTITY, BUCKET, *_TIMES):
            raise JobError(
                f"--partition-by {text}: there is no transform {transform}; there are "
                f"{', '.join((BUCKET, *_TIMES))}"
            )
        if (buckets is None) == (transform == BUCKET):
            raise JobError(
                f"--partition-by {text}: bucket needs a number, bucket(16, key), and no other does"
            )
        count = None if buckets is None else int(buckets)
        if count is not None and not 0 < count <= BUCKETS_MAX:
            raise JobError(f"--partition-by {text}: there may be 1 to {BUCKETS_MAX:,} buckets")
        found.append(PartitionField(transform, match["inside"], count))
    if not found:
        raise JobError("--partition-by names no column")
    if len({each.name for each in found}) < len(found):
        raise JobError(f"--partition-by {text} has the same twice")
    return tuple(found)


def from_iceberg(transform: str, column: str) -> PartitionField:
    """A field of a table's partition spec. Raises JobError: one that is not written here."""
    match = _ICEBERG.fullmatch(transform)
    if match is None or match["transform"] not in (IDENTITY, BUCKET, *_TIMES):
        raise JobError(f"the table is partitioned by {transform} of {column}, which an export does not write")
    return PartitionField(match["transform"], column, int(match["buckets"]) if match["buckets"] else None)


def check_partitions(fields: Sequence[PartitionField], columns: StructType) -> None:
    """Raises JobError: there is no such column, or it has no such transform."""
    for each in fields:
        found = source_type(each, columns)
        if each.transform == BUCKET:
            able: tuple[type[DataType], ...] = _BUCKETED
        elif each.transform == IDENTITY:
            able = _PLAIN
        else:
            able = _TIMED
        if not isinstance(found, able):
            raise JobError(f"--partition-by {each}: the column is {found.simpleString()}")


def source_type(field: PartitionField, columns: StructType) -> DataType:
    """The type of the column that it is made of. Raises JobError: there is none."""
    found: DataType = columns
    for name in field.column.split("."):
        if not isinstance(found, StructType) or name not in found.names:
            names = ", ".join(columns.names)
            raise JobError(f"--partition-by {field}: there is no column {field.column}; there are {names}")
        found = found[name].dataType
    return found


def partition_value(field: PartitionField, columns: StructType) -> Column:
    """A column with Iceberg's value: an int for all but identity."""
    found = F.col(field.column.split(".")[0])
    for name in field.column.split(".")[1:]:
        found = found.getField(name)
    if field.transform == IDENTITY:
        return found
    if field.transform == BUCKET:
        assert field.buckets is not None
        return _bucket_function(field.buckets)(found)  # type: ignore[no-any-return]
    if field.transform == "year":
        return (F.year(found) - 1970).cast("int")
    if field.transform == "month":
        return ((F.year(found) - 1970) * 12 + F.month(found) - 1).cast("int")
    if isinstance(source_type(field, columns), DateType):
        return F.unix_date(found) if field.transform == "day" else F.unix_date(found) * 24
    length = _TIMES[field.transform]
    assert length is not None
    micros = F.unix_micros(found.cast("timestamp"))
    return ((micros - F.pmod(micros, F.lit(length))) / length).cast("int")


def _bucket_function(buckets: int) -> Any:
    def bucket(column: pa.Array) -> pa.Array:
        hashed = bucket_of(buckets)
        return pa.array([None if each is None else hashed(each) for each in column.to_pylist()], pa.int32())

    return arrow_udf(bucket, IntegerType())  # type: ignore[call-overload]  # its stub wants more than it does


def bucket_of(buckets: int) -> Callable[[bytes | str | int], int]:
    """A value's bucket. Iceberg's specification, "Bucket Transform Details"."""
    import mmh3

    def bucket(value: bytes | str | int) -> int:
        data = struct.pack("<q", value) if isinstance(value, int) else value
        return (mmh3.hash(data) & 0x7FFFFFFF) % buckets

    return bucket


def delta_type(field: PartitionField, columns: StructType) -> DataType:
    """The type of the plain column that Delta has for it."""
    match field.transform:
        case "identity":
            return source_type(field, columns)
        case "bucket" | "year":
            return IntegerType()
        case "day":
            return DateType()
    return StringType()


def delta_value(field: PartitionField, value: Any) -> str | None:
    """A value of ``partition_value`` as Delta's log writes it: ``2026``, ``2026-11``, ``2026-11-22``,
    ``2026-11-22-07``."""
    if value is None:
        return None
    match field.transform:
        case "year":
            return str(1970 + value)
        case "month":
            return f"{1970 + value // 12}-{value % 12 + 1:02}"
        case "day":
            return (_EPOCH + timedelta(days=value)).strftime("%Y-%m-%d")
        case "hour":
            return (_EPOCH + timedelta(hours=value)).strftime("%Y-%m-%d-%H")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
