"""Iceberg tables, through pyiceberg: a catalog's tables, and commits to them.

The catalog is one that pyiceberg knows by name (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__…``), or a URI: a
REST catalog, a Hive metastore or an SQL database. A table's rows in an SQL catalog belong to the catalog's
name, so a URI may have one in front: ``lake=sqlite:////lake/catalog.db``; else it is ``default``.

pyiceberg repeats a commit that found the table changed, on top of the change. For offsets that would be
wrong, so here a commit is tried once, and what has changed decides (``table``).

An upsert takes rows away by position deletes (``row_delta``), or writes the files that hold one of its
keys again, as the table's ``write.merge.mode`` says. Equality deletes of other programs are refused:
pyiceberg does not read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from minikafka.spark.runtime.session import JobError
from minikafka.spark.runtime.storage import (
    catalog_uri,
    check_catalog_file,
    iceberg_errors,
    open_catalog,
    without_password,
)
from minikafka.spark.tables.columns import as_arrow, as_spark, small_field
from minikafka.spark.tables.files import Store, WrittenDeletes, WrittenFile
from minikafka.spark.tables.table import (
    COMMIT,
    FIELDS,
    MERGE_MODE,
    MERGE_ON_READ,
    MERGED,
    Change,
    Commit,
    CommitUnknown,
    Conflict,
    Evolution,
    LiveFile,
    PartitionField,
    Progress,
    decode_progress,
    encode_numbers,
    encode_progress,
    from_iceberg,
    need,
    place_of,
    table_name,
)

NAMESPACE = "kafka"
RETRIES = "commit.retry.num-retries"
INIT_CATALOG_TABLES = "init_catalog_tables"
"""pyiceberg's, of an SQL catalog: whether its tables are made where they are missing."""
REPLACE = "replace"
"""The operation of a snapshot that has the same rows in other files, by Iceberg's specification."""
ROLLBACK = "rollback"


class IcebergTables:
    """The tables of one namespace of a catalog."""

    widens = True
    renames = True
    has_delete_files = True

    def __init__(
        self,
        catalog: str,
        *,
        warehouse: str | None,
        namespace: str = NAMESPACE,
        is_read_only: bool = False,
    ) -> None:
        """``is_read_only``: the catalog stays as it is; else it, and the namespace, are made where they are
        missing. Raises JobError: pyiceberg is not installed, or the catalog cannot be used."""
        need("pyiceberg")
        if (catalog_uri(catalog) or "").startswith("sqlite:"):
            need("sqlalchemy")
        properties = {} if warehouse is None else {"warehouse": _as_uri(warehouse, catalog)}
        self._shown = without_password(catalog)
        self._namespace = namespace
        with iceberg_errors(f"the catalog {self._shown} cannot be used"):
            if is_read_only:
                check_catalog_file(catalog)
                properties[INIT_CATALOG_TABLES] = "false"
            self._catalog: Any = open_catalog(catalog, **properties)
            if not is_read_only:
                self._catalog.create_namespace_if_not_exists(namespace)

    def __repr__(self) -> str:
        return f"IcebergTables({self._shown!r}, {self._namespace!r})"

    def table(self, topic: str, *, errors: bool = False) -> IcebergTable:
        """The table of a topic, or of its errors."""
        return IcebergTable(self._catalog, (self._namespace, table_name(topic, errors=errors)), self._shown)


def _as_uri(text: str, catalog: str) -> str:
    """A path as a URI, so that it means the same to every reader; a name stays, which REST catalogs have for
    their warehouses."""
    if "/" not in text and (catalog_uri(catalog) or "").startswith(("http:", "https:")):
        return text
    place = place_of(text)
    return place if "://" in place else f"file://{place}"


class IcebergTable:
    """One table."""

    def __init__(self, catalog: Any, identifier: tuple[str, str], catalog_name: str) -> None:
        self._catalog = catalog
        self._identifier = identifier
        self.name = f"{'.'.join(identifier)} of {catalog_name}"
        self._table: Any = None

    def __repr__(self) -> str:
        return f"IcebergTable({self.name!r})"

    def load(self) -> bool:
        from pyiceberg.exceptions import NoSuchTableError

        with iceberg_errors(f"the table {self.name} cannot be used"):
            try:
                self._table = self._catalog.load_table(self._identifier)
            except NoSuchTableError:
                return False
        return True

    def create(
        self, columns: StructType, partitions: Sequence[PartitionField], properties: Mapping[str, str]
    ) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        given = {"format-version": "2", **properties}
        with iceberg_errors(f"the table {self.name} cannot be used"):
            try:
                with self._catalog.create_table_transaction(
                    self._identifier, schema=as_arrow(columns), properties=given
                ) as transaction:
                    if partitions:
                        with transaction.update_spec() as spec:
                            for each in partitions:
                                spec.add_field(each.column, each.iceberg, each.name)
            except (CommitFailedException, TableAlreadyExistsError):
                raise JobError(
                    f"another export has made the table {self.name} meanwhile: start again"
                ) from None
        self.load()

    def evolve(self, evolution: Evolution) -> None:
        from pyiceberg.exceptions import CommitFailedException

        with iceberg_errors(f"the table {self.name} cannot be used"):
            try:
                if evolution.renames:
                    with self._table.update_schema() as update:
                        # The innermost first: a path has the names from before.
                        for each in sorted(evolution.renames, key=lambda each: -len(each.path)):
                            update.rename_column(self._path(each.path), each.name)
                with self._table.update_schema() as update:
                    update.union_by_name(as_arrow(evolution.columns))
                if evolution.numbers:
                    with self._table.transaction() as transaction:
                        transaction.set_properties({FIELDS: encode_numbers(evolution.numbers)})
            except CommitFailedException:
                raise Conflict(self.name) from None
        self.load()

    def _path(self, path: Sequence[str]) -> tuple[str, ...]:
        """A path as pyiceberg writes it, with ``element`` and ``value`` for what is in a list or a map."""
        from pyiceberg.types import ListType, MapType

        found: list[str] = []
        level: Any = self._table.schema().as_struct()
        for name in path:
            while isinstance(level, ListType | MapType):
                found.append("element" if isinstance(level, ListType) else "value")
                level = level.element_type if isinstance(level, ListType) else level.value_type
            found.append(name)
            level = level.field_by_name(name).field_type
        return tuple(found)

    @property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._table.properties
        return found

    @property
    def columns(self) -> StructType:
        return as_spark(self.file_schema)

    @property
    def partitions(self) -> tuple[PartitionField, ...]:
        schema = self._table.schema()
        return tuple(
            from_iceberg(str(each.transform), schema.find_column_name(each.source_id))
            for each in self._table.spec().fields
            if str(each.transform) != "void"
        )

    @property
    def file_schema(self) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        found = schema_to_pyarrow(self._table.schema(), include_field_ids=True)
        return pa.schema([small_field(each) for each in found])

    @property
    def store(self) -> Store:
        return Store(self._table.location(), dict(self._table.io.properties))

    def progress(self) -> Progress | None:
        """Found in the summaries of the snapshots that the newest one is built on. Where those that an export
        made are expired, the table's own property says the same; after a rollback only summaries do."""
        metadata = self._table.metadata
        snapshot = metadata.current_snapshot()
        if snapshot is None:
            return None
        while snapshot is not None:
            text = snapshot.summary[COMMIT] if snapshot.summary is not None else None
            if text:
                return decode_progress(text, self.name)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
        text = self.properties.get(COMMIT)
        return decode_progress(text, self.name) if text else None

    def history(self, commits_max: int) -> list[Commit]:
        """From the snapshots. Where the table's own property is ahead of them, the table was rolled back."""
        metadata = self._table.metadata
        snapshot = metadata.current_snapshot()
        found: list[Commit] = []
        while snapshot is not None and len(found) < commits_max:
            summary = snapshot.summary
            text = None if summary is None else summary[COMMIT]
            operation = "" if summary is None else str(summary.operation.value)
            is_ours = bool(text) or (summary is not None and summary[MERGED] is not None)
            progress = decode_progress(text, self.name) if text else None
            is_foreign = not is_ours and operation != REPLACE
            found.append(Commit(snapshot.timestamp_ms, operation, progress, is_foreign))
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
        newest = next((each.progress for each in found if each.progress is not None), None)
        text = self.properties.get(COMMIT)
        if newest is not None and text and decode_progress(text, self.name).number > newest.number:
            found.insert(0, Commit(metadata.last_updated_ms, ROLLBACK, None, True))
        return found

    def live_files(self) -> list[LiveFile]:
        from pyiceberg.manifest import FileFormat

        spec_id = self._table.spec().spec_id
        with iceberg_errors(f"the table {self.name} cannot be used"):
            tasks = list(self._table.scan().plan_files())
        for each in tasks:
            if any(deletes.file_format != FileFormat.PARQUET for deletes in each.delete_files):
                raise JobError(
                    f"the table {self.name} has delete files that are not Parquet, which another program "
                    "wrote: rewrite its data files there first"
                )
        return [
            LiveFile(
                each.file.file_path,
                each.file.file_size_in_bytes,
                _values(each.file.partition) if each.file.spec_id == spec_id else None,
                each.file,
                records=each.file.record_count,
                deletes=tuple(sorted(deletes.file_path for deletes in each.delete_files)),
                deleted=sum(deletes.record_count for deletes in each.delete_files),
            )
            for each in tasks
        ]

    @property
    def merges_on_read(self) -> bool:
        return self.properties.get(MERGE_MODE) == MERGE_ON_READ

    def partition_key(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values

    def known_files(self) -> set[str]:
        root = f"{self._table.location().rstrip('/')}/"
        with iceberg_errors(f"the table {self.name} cannot be used"):
            return {path.removeprefix(root) for path in self._files_of(self._table.snapshots())[1]}

    def commit(self, change: Change) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        from minikafka.spark.tables.row_delta import RowDelta

        table = self._table
        # Of the copy in memory alone: other writers' commits are repeated as before.
        table.metadata.properties[RETRIES] = "0"
        files = [self._data_file(each) for each in change.files]
        if change.progress is None:
            said = {MERGED: str(len(change.removed))}
        else:
            said = {COMMIT: encode_progress(change.progress)}
        transaction = table.transaction()
        with iceberg_errors(f"the table {self.name} cannot be used"):
            if change.progress is not None:
                transaction.set_properties(said)
            if change.removed or change.deletes:
                update: Any = RowDelta(transaction, said)
            else:
                update = transaction.update_snapshot(snapshot_properties=said).fast_append()
            with update as snapshot:
                for file in files:
                    snapshot.append_data_file(file)
                for old in change.removed:
                    snapshot.delete_data_file(old.handle)
                for old, deletes in change.deletes:
                    snapshot.add_deletes(self._delete_file(old, deletes))
        try:
            with iceberg_errors(f"the table {self.name} cannot be used"):
                try:
                    transaction.commit_transaction()
                except (CommitFailedException, ValidationException):
                    raise Conflict(self.name) from None
        except JobError as error:
            raise CommitUnknown(
                f"{error}; whether the commit has arrived is not known: start again, and the next run "
                "continues where the table says"
            ) from error

    def _data_file(self, written: WrittenFile) -> Any:
        """As pyiceberg describes a file that it has written, from the file's footer."""
        import pyarrow.parquet as pq
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        table = self._table
        schema = table.schema()
        system, path = self.store.open(written.name)
        try:
            with system.open_input_file(path) as source:
                footer = pq.read_metadata(source)
        except OSError as error:
            raise JobError(f"{written.name} of the table {self.name} is gone or torn: {error}") from error
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, table.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{table.location().rstrip('/')}/{written.name}",
            file_format=FileFormat.PARQUET,
            partition=Record(*written.partition),
            file_size_in_bytes=written.size,
            sort_order_id=None,
            spec_id=table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def _delete_file(self, of: LiveFile, deletes: WrittenDeletes) -> Any:
        from minikafka.spark.tables.row_delta import delete_file

        path = f"{self._table.location().rstrip('/')}/{deletes.name}"
        return delete_file(deletes, path, of.handle.partition, of.handle.spec_id)

    def expire(self, before_ms: int) -> int:
        """pyiceberg forgets snapshots; what only they needed is removed here."""
        from pyiceberg.exceptions import CommitFailedException

        kept = {ref.snapshot_id for ref in self._table.metadata.refs.values()}
        gone = [
            each
            for each in self._table.snapshots()
            if each.timestamp_ms < before_ms and each.snapshot_id not in kept
        ]
        if not gone:
            return 0
        with iceberg_errors(f"the table {self.name} cannot be used"):
            metadata, data = self._files_of(gone)
            try:
                self._table.maintenance.expire_snapshots().by_ids(
                    [each.snapshot_id for each in gone]
                ).commit()
            except CommitFailedException:
                return 0  # the next run does it
            self.load()
            still_metadata, still_data = self._files_of(self._table.snapshots())
            unneeded = sorted((metadata - still_metadata) | (data - still_data))
            for path in unneeded:
                try:
                    self._table.io.delete(path)
                except FileNotFoundError:  # another expiry came first
                    continue
        return len(unneeded)

    def _files_of(self, snapshots: Sequence[Any]) -> tuple[set[str], set[str]]:
        """The paths of manifests and their lists, and of data files."""
        metadata: set[str] = set()
        data: set[str] = set()
        io = self._table.io
        for snapshot in snapshots:
            metadata.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(io):
                if manifest.manifest_path not in metadata:
                    metadata.add(manifest.manifest_path)
                    entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
                    data.update(entry.data_file.file_path for entry in entries)
        return metadata, data


def _values(record: Any) -> tuple[Any, ...]:
    return tuple(record[index] for index in range(len(record)))
