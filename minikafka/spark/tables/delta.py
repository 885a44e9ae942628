"""Delta tables, through delta-rs: a directory each, and commits to their logs.

A commit is tried once: delta-rs would repeat one that found the table changed. Besides the commitInfo a
commit has a transaction identifier (``txn`` of Delta's protocol) for each partition, whose version is the
next offset: it is kept in checkpoints when the commitInfo is long gone.

Delta has neither hidden partitions nor, without features that delta-rs does not write, widened or renamed
columns. So transforms are plain columns, int and float are wide from the beginning, and what was renamed is a
new column.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructField, StructType

from minikafka.spark.runtime.session import JobError
from minikafka.spark.runtime.storage import delta_errors, delta_options, endpoint
from minikafka.spark.tables.columns import as_arrow, as_spark
from minikafka.spark.tables.files import Store, WrittenFile
from minikafka.spark.tables.table import (
    COMMIT,
    MERGED,
    PARTITIONS,
    TOPIC,
    Change,
    Commit,
    CommitUnknown,
    Conflict,
    Evolution,
    LiveFile,
    PartitionField,
    Progress,
    decode_progress,
    delta_type,
    delta_value,
    encode_progress,
    need,
    parse_partitions,
    place_of,
    table_name,
)

HOUR_MS = 60 * 60 * 1000
HISTORY = (1, 20, 1000)
"""Commits that are looked through for an export's newest one, more and more of them, before the transaction
identifiers count."""
KEEPS_ROWS = frozenset(
    {
        "CREATE TABLE",
        "ADD COLUMN",
        "ADD FEATURE",
        "SET TBLPROPERTIES",
        "UPDATE TABLE METADATA",
        "OPTIMIZE",
        "REORG",
        "VACUUM START",
        "VACUUM END",
    }
)
"""Operations, as delta-rs and Delta for Spark call them, after which a table has the rows that it had."""
STATISTICS_MAX = 32
"""Columns with statistics: Delta's delta.dataSkippingNumIndexedCols."""


class DeltaTables:
    """The tables below one directory."""

    widens = False
    renames = False
    has_delete_files = False

    def __init__(self, output: str) -> None:
        """Raises JobError: deltalake is not installed, or the place cannot be used."""
        need("deltalake")
        need("mmh3")
        self._root = place_of(output)

    def __repr__(self) -> str:
        return f"DeltaTables({self._root!r})"

    def table(self, topic: str, *, errors: bool = False) -> DeltaTable:
        """The table of a topic, or of its errors."""
        return DeltaTable(f"{self._root.rstrip('/')}/{table_name(topic, errors=errors)}")


class DeltaTable:
    """One table."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.name = root
        self._table: Any = None
        self._partitions: tuple[PartitionField, ...] = ()

    def __repr__(self) -> str:
        return f"DeltaTable({self._root!r})"

    def load(self) -> bool:
        import deltalake
        from deltalake.exceptions import TableNotFoundError

        with delta_errors(f"the table {self.name} cannot be used"):
            try:
                options = delta_options(self._root)
                self._table = deltalake.DeltaTable(self._root, storage_options=options)
            except TableNotFoundError:
                return False
        text = self.properties.get(PARTITIONS)
        self._partitions = parse_partitions(text) if text else ()
        if [each.name for each in self._partitions] != list(self._table.metadata().partition_columns):
            names = ", ".join(self._table.metadata().partition_columns)
            raise JobError(f"the table {self.name} is partitioned by {names}, and not by an export")
        return True

    def create(
        self, columns: StructType, partitions: Sequence[PartitionField], properties: Mapping[str, str]
    ) -> None:
        import deltalake

        given = dict(properties)
        if partitions:
            given[PARTITIONS] = ", ".join(map(str, partitions))
        with delta_errors(f"the table {self.name} cannot be used"):
            if "://" not in self._root:
                os.makedirs(self._root, exist_ok=True)
            deltalake.DeltaTable.create(
                self._root,
                schema=as_arrow(_with_partitions(columns, partitions)),
                mode="error",
                partition_by=[each.name for each in partitions],
                configuration=given,
                storage_options=delta_options(self._root),
                raise_if_key_not_exists=False,
            )
        self.load()

    def evolve(self, evolution: Evolution) -> None:
        import deltalake
        from deltalake.exceptions import CommitFailedError

        columns = as_arrow(evolution.columns)
        with delta_errors(f"the table {self.name} cannot be used"):
            try:
                self._table.alter.add_columns(
                    deltalake.Schema.from_arrow(columns).fields,
                    commit_properties=deltalake.CommitProperties(max_commit_retries=0),
                )
            except CommitFailedError:
                raise Conflict(self.name) from None
        self.load()

    @property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._table.metadata().configuration
        return found

    @property
    def columns(self) -> StructType:
        return as_spark(self.file_schema)

    @property
    def partitions(self) -> tuple[PartitionField, ...]:
        return self._partitions

    @property
    def file_schema(self) -> pa.Schema:
        found = as_spark(pa.schema(self._table.schema().to_arrow()))
        names = {each.name for each in self._partitions if _is_added(each, found)}
        return as_arrow(StructType([each for each in found.fields if each.name not in names]))

    @property
    def store(self) -> Store:
        return Store(self._root, endpoint=endpoint())

    def progress(self) -> Progress | None:
        """From the newest commitInfo of an export. Where the log no longer has any, offsets are those of the
        transaction identifiers."""
        for count in HISTORY:
            with delta_errors(f"the table {self.name} cannot be used"):
                history = self._table.history(count)
            for entry in history:
                if COMMIT in entry:
                    return decode_progress(json.dumps(entry[COMMIT]), self.name)
            if len(history) < count:
                break
        number = self._version("commits")
        if number is None:
            return None
        count = self._version("partitions") or 0
        offsets = {
            partition: offset
            for partition in range(count)
            if (offset := self._version(str(partition))) is not None
        }
        topic = self.properties.get(TOPIC, "")
        return Progress(
            topic=topic,
            topic_id=None,
            run="",
            number=number,
            records=0,
            ranges={},
            offsets=offsets,
            errors=[],
        )

    def history(self, commits_max: int) -> list[Commit]:
        """From the commitInfos of its log."""
        with delta_errors(f"the table {self.name} cannot be used"):
            entries = self._table.history(commits_max)
        found = []
        for entry in entries:
            operation = str(entry.get("operation", ""))
            progress = None
            if COMMIT in entry:
                progress = decode_progress(json.dumps(entry[COMMIT]), self.name)
            is_foreign = progress is None and MERGED not in entry and operation not in KEEPS_ROWS
            found.append(Commit(int(entry.get("timestamp", 0)), operation, progress, is_foreign))
        return found

    def _version(self, what: str) -> int | None:
        found: int | None = self._table.transaction_version(f"minikafka/{what}")
        return found

    def live_files(self) -> list[LiveFile]:
        with delta_errors(f"the table {self.name} cannot be used"):
            actions = pa.table(self._table.get_add_actions(flatten=True))
        names = [each.name for each in self._partitions]
        found = []
        for row in actions.to_pylist():
            values = {name: row.get(f"partition.{name}") for name in names}
            path = unquote(row["path"])
            found.append(
                LiveFile(
                    f"{self._root.rstrip('/')}/{path}",
                    row["size_bytes"],
                    tuple(_text(each) for each in values.values()),
                    (row["path"], {name: _text(each) for name, each in values.items()}),
                )
            )
        return found

    @property
    def merges_on_read(self) -> bool:
        return False  # delta-rs writes no deletion vectors

    def partition_key(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        pairs = zip(self._partitions, values, strict=True)
        return tuple(delta_value(each, value) for each, value in pairs)

    def known_files(self) -> set[str]:
        """Every file that the log has ever named and vacuum has not removed is known to the log; only those
        that it has not named are an export's leftovers."""
        paths = pa.table(self._table.get_add_actions(flatten=True))["path"].to_pylist()
        known = {unquote(path) for path in paths}
        return known | self._removed_files()

    def _removed_files(self) -> set[str]:
        found: set[str] = set()
        system, log = self.store.open("_delta_log")
        for info in system.get_file_info(pa.fs.FileSelector(log, allow_not_found=True)):
            if info.base_name.endswith(".json"):
                with system.open_input_file(info.path) as file:
                    for line in file.read().splitlines():
                        action = json.loads(line)
                        for kind in ("add", "remove"):
                            if kind in action:
                                found.add(unquote(action[kind]["path"]))
        return found

    def commit(self, change: Change) -> None:
        from deltalake._internal import RemoveAction
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        is_new = change.progress is not None
        actions: list[Any] = []
        for written in change.files:
            values = zip(self._partitions, written.partition, strict=True)
            actions.append(
                AddAction(
                    path=quote(written.name),
                    size=written.size,
                    partition_values={each.name: delta_value(each, value) for each, value in values},
                    modification_time=now_ms,
                    data_change=is_new,
                    stats=json.dumps(self._statistics(written)),
                )
            )
        for old in change.removed:
            path, values = old.handle
            actions.append(
                RemoveAction(
                    path=path,
                    data_change=is_new,
                    deletion_timestamp=now_ms,
                    size=old.size,
                    partition_values=values,
                )
            )
        schema = as_arrow(_with_partitions(self.columns, self._partitions))
        said: dict[str, Any] = {}
        versions: dict[str, int] = {}
        if change.progress is not None:
            said[COMMIT] = json.loads(encode_progress(change.progress))
            versions = {str(partition): end for partition, end in change.progress.offsets.items()}
            versions["commits"] = change.progress.number
            versions["partitions"] = max(change.progress.offsets, default=-1) + 1
        else:
            said[MERGED] = str(len(change.removed))
        try:
            with delta_errors(f"the table {self.name} cannot be used"):
                self._write(actions, schema, said, versions)
        except JobError as error:
            raise CommitUnknown(
                f"{error}; whether the commit has arrived is not known: start again, and the next run "
                "continues where the table says"
            ) from error

    def _write(
        self,
        actions: Sequence[Any],
        schema: pa.Schema,
        said: Mapping[str, Any],
        versions: Mapping[str, int] | None = None,
    ) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        properties = CommitProperties(
            custom_metadata=dict(said),
            max_commit_retries=0,
            app_transactions=[
                Transaction(f"minikafka/{name}", version) for name, version in (versions or {}).items()
            ],
        )
        try:
            self._table.create_write_transaction(
                list(actions),
                mode="append",
                schema=schema,
                partition_by=[each.name for each in self._partitions],
                commit_properties=properties,
            )
        except CommitFailedError:
            raise Conflict(self.name) from None

    def _statistics(self, written: WrittenFile) -> dict[str, Any]:
        """For readers that skip files: of the integers at the top, and of the timestamp."""
        system, path = self.store.open(written.name)
        try:
            with system.open_input_file(path) as source:
                footer = pq.read_metadata(source)
        except OSError as error:
            raise JobError(f"{written.name} of the table {self.name} is gone or torn: {error}") from error
        least: dict[str, int] = {}
        most: dict[str, int] = {}
        nulls: dict[str, int] = {}
        for group in range(footer.num_row_groups):
            for index in range(min(footer.num_columns, STATISTICS_MAX)):
                column = footer.row_group(group).column(index)
                name, found = column.path_in_schema, column.statistics
                if name not in ("partition", "offset") or found is None or not found.has_min_max:
                    continue
                least[name] = min(found.min, least.get(name, found.min))
                most[name] = max(found.max, most.get(name, found.max))
                nulls[name] = nulls.get(name, 0) + found.null_count
        return {
            "numRecords": written.records,
            "minValues": least,
            "maxValues": most,
            "nullCount": nulls,
        }

    def expire(self, before_ms: int) -> int:
        """Delta's vacuum: files that were removed from the table before, and the log's own retention."""
        hours = max(0, (time.time_ns() // 1_000_000 - before_ms) // HOUR_MS)
        with delta_errors(f"the table {self.name} cannot be used"):
            removed = self._table.vacuum(
                retention_hours=hours, dry_run=False, enforce_retention_duration=False
            )
        self.load()
        return len(removed)


def _text(value: Any) -> str | None:
    """A partition's value as the log writes it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_added(field: PartitionField, columns: StructType) -> bool:
    """Whether the partition is a column that no record has."""
    return field.name != field.column


def _with_partitions(columns: StructType, partitions: Sequence[PartitionField]) -> StructType:
    added = [
        StructField(each.name, delta_type(each, columns)) for each in partitions if _is_added(each, columns)
    ]
    return StructType([*columns.fields, *added])
