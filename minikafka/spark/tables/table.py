"""What an export needs of a table, whichever format it has; and how a table is partitioned.

Each commit of an export says which offsets it holds, in one property, ``minikafka.commit``: of the
snapshot's summary in Iceberg, of the commitInfo in Delta. The next run reads from the table itself where to
continue. What the table's format commits at once, files and property, is all that decides:

| crash                    | what the next run finds               | what it does                         |
|--------------------------|---------------------------------------|--------------------------------------|
| while writing            | files that no commit names            | removes them, reads the same offsets |
| after the commit         | errors that are named, not committed  | commits them to the errors table     |
| after the errors' commit | a mark in the run's directory         | removes it                           |

Of two exports at once the second to commit finds that the table has moved. Where the offsets have moved with
it, it loses: its files are removed. Where they have not (another job has compacted the table), it commits on
top.

Partitions are written as Iceberg's transforms: ``day(timestamp), bucket(16, key)``. Values are Iceberg's, to
the bit (its specification, "Partition Transforms"): a bucket is the 32-bit Murmur3 hash of the value with
seed 0, of an int as of a long of eight bytes. Delta has no transforms: there a transform becomes a plain
column with the same name, and readers that want to skip files filter by it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import msgspec
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

from minikafka.errors import UNDECODABLE
from minikafka.spark.runtime.session import JobError
from minikafka.spark.runtime.storage import location
from minikafka.spark.tables.columns import Path, Rename
from minikafka.spark.tables.files import Store, WrittenDeletes, WrittenFile

COMMIT = "minikafka.commit"
"""The property of a commit: ``Progress`` as JSON."""
TOPIC = "minikafka.topic"
"""The property of a table: whose records it holds."""
TOPIC_ID = "minikafka.topic-id"
"""The property of a table: that topic's id, where the log says it."""
UPSERT = "minikafka.upsert"
"""The property of a table: ``true`` where it holds the newest record of each key."""
MERGE_MODE = "write.merge.mode"
"""Iceberg's property of a table: whether an upsert is merge-on-read; without it, it is copy-on-write."""
MERGE_ON_READ, COPY_ON_WRITE = "merge-on-read", "copy-on-write"
FIELDS = "minikafka.fields"
"""The property of a table: path → the number of a Protobuf field, as JSON."""
MERGED = "minikafka.merged"
"""The property of a commit that writes the same rows in larger files: how many files it replaces."""
PARTITIONS = "minikafka.partition-by"
"""The property of a Delta table: its transforms."""
VERSION = 1

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


# ---- what an export needs


class Conflict(Exception):
    """The table has changed since it was read; nothing was committed."""


class CommitUnknown(JobError):
    """Whether the commit has arrived is not known; nothing may be removed."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit added, and where the next one continues."""

    version: int = VERSION
    topic: str
    topic_id: str | None
    """Where the log says it."""
    run: str
    number: int
    """Of the export's commits to this table, from 1 on."""
    records: int
    ranges: dict[int, tuple[int, int]]
    """Partition → the offsets that the commit holds: the first, and the one behind the last."""
    offsets: dict[int, int]
    """Of every partition that was ever exported, the next offset."""
    errors: list[WrittenFile]
    """Files that belong to the errors table; committed there right behind this commit."""


def encode_progress(progress: Progress) -> str:
    """As JSON."""
    return msgspec.json.encode(progress).decode()


def decode_progress(text: str | bytes, table: str) -> Progress:
    """Raises JobError: it is not what an export of this version writes."""
    try:
        found = msgspec.json.decode(text, type=Progress)
    except UNDECODABLE as error:
        raise JobError(f"the table {table}: its {COMMIT} is not that of an export: {error}") from error
    if found.version != VERSION:
        raise JobError(f"the table {table} was written by another version of minikafka")
    return found


def encode_numbers(numbers: Mapping[Path, int]) -> str:
    """Path → number as JSON, ``[[["value", "id"], 1]]``: names may have dots."""
    return json.dumps([[list(path), number] for path, number in sorted(numbers.items())])


def decode_numbers(text: str) -> dict[Path, int]:
    """The reverse. Raises ValueError."""
    return {tuple(path): number for path, number in json.loads(text)}


class LiveFile(NamedTuple):
    """A data file that the table's readers see."""

    path: str
    """As ``Store.open_path`` takes it."""
    size: int
    partition: tuple[Any, ...] | None
    """None: of another partitioning."""
    handle: Any
    """The format's own."""
    records: int = 0
    """Rows that are written in it; 0: not told."""
    deletes: tuple[str, ...] = ()
    """The position delete files that have rows of it, as ``Store.open_path`` takes them."""
    deleted: int = 0
    """Rows that these take away, at most."""


class Change(NamedTuple):
    """What a commit does."""

    files: Sequence[WrittenFile]
    removed: Sequence[LiveFile] = ()
    deletes: Sequence[tuple[LiveFile, WrittenDeletes]] = ()
    """Rows that are taken from files which stay, where the table merges on read."""
    progress: Progress | None = None
    """None: the same rows in other files."""


class Evolution(NamedTuple):
    """What becomes of a table's columns."""

    columns: StructType
    """All that it has from now on."""
    renames: Sequence[Rename] = ()
    numbers: Mapping[Path, int] = {}
    """Of Protobuf fields."""


class Commit(NamedTuple):
    """A commit of any program, as the table's history has it."""

    time_ms: int
    operation: str
    """As the format calls it."""
    progress: Progress | None
    """None: not one by which an export added records."""
    is_foreign: bool
    """Another program's, and one that changes which rows there are; or the table was set back."""


class Table(Protocol):
    """A table of a lake. Raises JobError everywhere: with one line that says what to do."""

    @property
    def name(self) -> str:
        """For errors."""
        ...

    def load(self) -> bool:
        """Read its newest state. Whether it is there."""
        ...

    def create(
        self, columns: StructType, partitions: Sequence[PartitionField], properties: Mapping[str, str]
    ) -> None:
        """And load it."""
        ...

    def evolve(self, evolution: Evolution) -> None:
        """And load it. Raises Conflict."""
        ...

    @property
    def properties(self) -> Mapping[str, str]: ...

    @property
    def columns(self) -> StructType:
        """Without those that only partition it."""
        ...

    @property
    def partitions(self) -> tuple[PartitionField, ...]: ...

    @property
    def merges_on_read(self) -> bool:
        """Whether an upsert leaves the files with older rows of its keys as they are, and says beside them
        which rows are gone; else it writes them again."""
        ...

    @property
    def file_schema(self) -> pa.Schema:
        """Of its data files; with field ids where the format has them."""
        ...

    @property
    def store(self) -> Store: ...

    def progress(self) -> Progress | None:
        """Of the newest commit of an export that the table's present state is built on."""
        ...

    def history(self, commits_max: int) -> list[Commit]:
        """The commits that its present state is built on, as far as the table still knows them; the newest
        first."""
        ...

    def live_files(self) -> list[LiveFile]: ...

    def partition_key(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Values as in ``WrittenFile`` as ``LiveFile.partition`` has them."""
        ...

    def known_files(self) -> set[str]:
        """The names, relative to the table, of all files that some snapshot needs."""
        ...

    def commit(self, change: Change) -> None:
        """Raises Conflict: another commit came first. CommitUnknown."""
        ...

    def expire(self, before_ms: int) -> int:
        """Forget snapshots that are older than this and that are not the newest, and remove the files that
        only they need. Returns how many files."""
        ...


def check_topic(table: Table, topic: str) -> None:
    """Whether the table, which is loaded, is an export's of the topic. Raises JobError."""
    found = table.properties.get(TOPIC)
    if found is None:
        raise JobError(
            f"the table {table.name} was not made by an export: choose another namespace or "
            "directory, or drop the table"
        )
    if found != topic:
        raise JobError(
            f"the table {table.name} holds the topic {found}, not {topic}: choose another "
            "namespace or directory"
        )


class Tables(Protocol):
    """Where tables are."""

    widens: bool
    """Whether columns can be widened; else int and float are wide from the beginning."""
    renames: bool
    """Whether columns can be renamed."""
    has_delete_files: bool
    """Whether a new table can merge on read; see ``Table.merges_on_read``."""

    def table(self, topic: str, *, errors: bool = False) -> Table: ...


def place_of(output: str) -> str:
    """What the user gave as the place of tables: an absolute path, or a URI.

    Raises:
        JobError: it has settings behind a ?, which would end up in the names of files.
    """
    place = location(output)
    if not place.is_uri:
        return place.text
    if place.shown() != place.text:
        raise JobError(
            f"the output {place.shown()} cannot have settings behind ?: those of S3 are in the environment "
            "(AWS_ENDPOINT_URL, AWS_REGION)"
        )
    return place.text


def need(module: str) -> None:
    """Raises JobError: an optional library is not installed."""
    if find_spec(module) is None:
        raise JobError(f"{module} is not installed: pip install 'minikafka[tables]'")


def table_name(topic: str, *, errors: bool = False) -> str:
    """The table of a topic: SQL splits names at dots, so dots are underscores, as in the names of Kafka's
    metrics."""
    name = topic.replace(".", "_")
    return f"{name}_errors" if errors else name


# ---- partitions


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
