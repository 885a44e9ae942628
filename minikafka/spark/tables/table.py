"""What an export needs of a table, whichever format it has.

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
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from minikafka.errors import UNDECODABLE
from minikafka.spark.runtime.session import JobError
from minikafka.spark.source.storage import location
from minikafka.spark.tables.columns import Path, Rename
from minikafka.spark.tables.files import Store, WrittenFile
from minikafka.spark.tables.partitioning import PartitionField
from minikafka.spark.tables.position_deletes import WrittenDeletes

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
