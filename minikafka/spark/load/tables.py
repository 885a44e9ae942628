"""What is read: Parquet files, or the live rows of a snapshot of an Iceberg or Delta table, as units of work.

A unit is some rows of one file, read by whichever worker gets it; the order of units is the order of the
table. Parquet: files by their paths, and in them row groups; names that begin with ``_`` or ``.`` are left
out, and ``name=value`` directories are columns, as for every reader of Hive partitions. An export of
``minikafka export`` is such a directory, of which one topic is taken. Iceberg: the data files of the current
snapshot with their deletes, by pyiceberg. Delta: the files of the current version without the rows that
deletion vectors name, both of which delta-rs tells. In both, files in the order in which they were added.

Rows are read straight into the worker's Arrow memory; Spark hands out the units.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from minikafka.spark.runtime.session import JobError
from minikafka.spark.runtime.storage import (
    Location,
    UnusableLocation,
    delta_errors,
    delta_options,
    iceberg_errors,
    iceberg_properties,
    location,
    open_catalog,
    open_uri,
)

READ_BYTES: Final = 32 * 1024 * 1024
"""About how much of a table is made into records at once."""
READ_ROWS_MAX: Final = 1 << 18

_DELTA_LOG, _ICEBERG_METADATA, _HINT = "_delta_log", "metadata", "version-hint.text"
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

_DELTA_FEATURES: Final = frozenset({"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Of a table's protocol, those that a reader of its files and deletion vectors needs to do no more about."""


class TableFormat(StrEnum):
    """How a table is kept."""

    PARQUET = "parquet"
    ICEBERG = "iceberg"
    DELTA = "delta"


class Range(NamedTuple):
    """The least and the greatest value of a column."""

    least: int
    greatest: int


class Unit(Protocol):
    """Some rows of one file."""

    @property
    def name(self) -> str:
        """Of the file, for errors."""
        ...

    @property
    def first_row(self) -> int:
        """Of the file."""
        ...

    @property
    def rows(self) -> int:
        """As the table says; an Iceberg file may have fewer that live."""
        ...

    @property
    def size(self) -> int:
        """Bytes, uncompressed where the file says it."""
        ...

    def ranges(self) -> Mapping[str, Range]:
        """Of the columns of whole numbers of which the file says it."""
        ...

    def read(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows in order; None for all columns. Raises JobError."""
        ...


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it is now."""

    format: TableFormat
    shown: str
    columns: frozenset[str]
    """That every row has."""
    units: Sequence[Unit]


@dataclass(frozen=True, slots=True)
class ParquetUnit:
    """Row groups of a Parquet file, which follow each other."""

    location: str
    """A path or URI, from which the store is known again."""
    path: str
    """In the store."""
    name: str
    row_groups: tuple[int, ...]
    first_row: int
    rows: int
    size: int
    constants: tuple[tuple[str, pa.Scalar], ...] = ()
    """Columns that the file does not have, because all its rows have the same value."""
    known_ranges: tuple[tuple[str, Range], ...] = ()
    keep: bytes | None = None
    """A bit for each row, most significant first: 0 for one that is deleted. None: none is."""

    def ranges(self) -> Mapping[str, Range]:
        return dict(self.known_ranges)

    def read(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        files, _ = file_system(Location(self.location))
        constants = {name: value for name, value in self.constants if columns is None or name in columns}
        wanted = None if columns is None else [name for name in columns if name not in constants]
        keep = None if self.keep is None else np.unpackbits(np.frombuffer(self.keep, dtype=np.uint8))
        row = 0
        rows_at_once = max(1, min(READ_ROWS_MAX, READ_BYTES * self.rows // max(1, self.size)))
        try:
            with files.open_input_file(self.path) as stream:
                file = pq.ParquetFile(stream)
                for batch in file.iter_batches(
                    rows_at_once, row_groups=list(self.row_groups), columns=wanted, use_threads=False
                ):
                    row += batch.num_rows
                    if keep is not None:
                        kept = keep[row - batch.num_rows : row].astype(np.bool_)
                        batch = batch.filter(pa.array(kept))
                    for name, value in constants.items():
                        batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
                    yield batch
        except (pa.ArrowException, OSError) as error:
            raise JobError(f"{self.name} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class IcebergUnit:
    """A data file of an Iceberg snapshot, without the rows that its deletes name."""

    name: str
    rows: int
    size: int
    task: Any
    """pyiceberg's ``FileScanTask``."""
    scan: Any
    """What pyiceberg reads it by: the table's metadata, its ``FileIO`` and the schema of the snapshot."""
    first_row: int = 0

    def ranges(self) -> Mapping[str, Range]:
        return {}

    def read(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        metadata, io, schema = self.scan
        projected = schema if columns is None else schema.select(*columns)
        try:
            reader = ArrowScan(metadata, io, projected, AlwaysTrue())
            for batch in reader.to_record_batches([self.task]):
                yield from _pieces(batch)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise JobError(f"{self.name} cannot be read: {error}") from error


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of about ``READ_BYTES``."""
    rows_at_once = max(1, batch.num_rows * READ_BYTES // max(READ_BYTES, batch.nbytes))
    for start in range(0, batch.num_rows, rows_at_once):
        yield batch.slice(start, rows_at_once)


# ---- finding them


def find_table(
    source: str,
    *,
    kind: TableFormat | None = None,
    topic: str = "",
    catalog: str | None = None,
) -> Table:
    """What there is to read.

    Args:
        source: a path or URI, or with ``catalog`` a table's name in it.
        kind: None: what it looks like.
        topic: which part of an export is wanted.

    Raises:
        JobError, UnusableLocation: there is no such table, or one that cannot be read.
    """
    if catalog is not None:
        if kind not in (None, TableFormat.ICEBERG):
            raise JobError(f"--catalog is for Iceberg tables, not for {kind}")
        return _iceberg(source, catalog)
    place = location(source)
    files, path = file_system(place)
    info = _info(files, path, place)
    if info.type is pyarrow.fs.FileType.NotFound:
        raise JobError(f"{place.shown()} does not exist")
    found = kind or _looks_like(files, path, is_file=info.type is pyarrow.fs.FileType.File)
    match found:
        case TableFormat.ICEBERG:
            return _iceberg(_metadata_of(files, path, place), None)
        case TableFormat.DELTA:
            return _delta(place)
        case TableFormat.PARQUET:
            return _parquet(files, path, place, topic)


def file_system(place: Location) -> tuple[pyarrow.fs.FileSystem, str]:
    """The store of a location, and the path in it. Raises UnusableLocation."""
    if not place.is_uri:
        return pyarrow.fs.LocalFileSystem(), place.text
    try:
        files, path = open_uri(place.text)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise UnusableLocation(f"{place.shown()}: no store can be opened for it: {error}") from error
    return files, path


def _info(files: pyarrow.fs.FileSystem, path: str, place: Location) -> pyarrow.fs.FileInfo:
    try:
        return files.get_file_info(path)
    except OSError as error:
        raise JobError(f"{place.shown()} cannot be read: {error}") from error


def _looks_like(files: pyarrow.fs.FileSystem, path: str, *, is_file: bool) -> TableFormat:
    if is_file:
        is_metadata = path.endswith(".metadata.json")
        return TableFormat.ICEBERG if is_metadata else TableFormat.PARQUET
    names = {info.base_name for info in files.get_file_info(pyarrow.fs.FileSelector(path))}
    if _DELTA_LOG in names:
        return TableFormat.DELTA
    if _ICEBERG_METADATA in names:
        inside = files.get_file_info(pyarrow.fs.FileSelector(f"{path}/{_ICEBERG_METADATA}"))
        if any(info.base_name.endswith(".metadata.json") for info in inside):
            return TableFormat.ICEBERG
    return TableFormat.PARQUET


# ---- Parquet


def _parquet(files: pyarrow.fs.FileSystem, path: str, place: Location, topic: str) -> Table:
    root, paths = os.path.dirname(path), [path]
    if files.get_file_info(path).type is pyarrow.fs.FileType.Directory:
        root, paths = path, _data_files(files, path, place, topic)
    units: list[ParquetUnit] = []
    columns: frozenset[str] | None = None
    prefix = place.shown().removesuffix(path)
    for each in paths:
        name = prefix + each
        constants = _hive_columns(each.removeprefix(root))
        metadata = _footer(files, each, name)
        found = frozenset(metadata.schema.to_arrow_schema().names) | {key for key, _ in constants}
        columns = found if columns is None else columns & found
        units += _row_group_units(metadata, place.text, each, name, constants)
    return Table(TableFormat.PARQUET, place.shown(), columns or frozenset(), units)


def _footer(files: pyarrow.fs.FileSystem, path: str, name: str) -> pq.FileMetaData:
    try:
        with files.open_input_file(path) as stream:
            return pq.ParquetFile(stream).metadata
    except (pa.ArrowException, OSError) as error:
        raise JobError(f"{name} is not a Parquet file that can be read: {error}") from error


def _data_files(files: pyarrow.fs.FileSystem, path: str, place: Location, topic: str) -> list[str]:
    """The data files of a directory, or of the part of an export in it that is the topic's, in order."""
    part = f"{path}/topic={topic}"
    if topic and files.get_file_info(part).type is pyarrow.fs.FileType.Directory:
        path = part
    try:
        found = files.get_file_info(pyarrow.fs.FileSelector(path, recursive=True))
    except OSError as error:
        raise JobError(f"{place.shown()} cannot be listed: {error}") from error
    paths = sorted(
        info.path
        for info in found
        if info.type is pyarrow.fs.FileType.File
        and info.size
        and not any(each.startswith(("_", ".")) for each in info.path.removeprefix(path).split("/"))
    )
    topics = sorted({part for each in paths for part in each.split("/") if part.startswith("topic=")})
    if topic and len(topics) > 1:
        there = ", ".join(each.removeprefix("topic=") for each in topics[:10])
        raise JobError(
            f"{place.shown()} is an export of several topics: name one with --source-topic: {there}"
        )
    if not paths:
        raise JobError(f"{place.shown()} has no data files")
    return paths


def _hive_columns(below: str) -> tuple[tuple[str, pa.Scalar], ...]:
    """The columns that the directories of a path name."""
    found = []
    for part in below.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals:
            text = None if value == _HIVE_NULL else unquote(value)
            found.append((name, pa.scalar(text, pa.string())))
    return tuple(found)


def _row_group_units(
    metadata: pq.FileMetaData, store: str, path: str, name: str, constants: tuple[tuple[str, pa.Scalar], ...]
) -> Iterator[ParquetUnit]:
    first_row = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        yield ParquetUnit(
            store,
            path,
            name,
            (index,),
            first_row,
            group.num_rows,
            group.total_byte_size,
            constants,
            tuple(_ranges(group)),
        )
        first_row += group.num_rows


def _ranges(group: pq.RowGroupMetaData) -> Iterator[tuple[str, Range]]:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.physical_type in ("INT32", "INT64") and column.is_stats_set:
            statistics = column.statistics
            if statistics.has_min_max and statistics.null_count == 0 and isinstance(statistics.min, int):
                yield column.path_in_schema, Range(statistics.min, statistics.max)


# ---- Iceberg


def _metadata_of(files: pyarrow.fs.FileSystem, path: str, place: Location) -> str:
    """The newest metadata file of an Iceberg table's directory."""
    if path.endswith(".metadata.json"):
        return place.text
    directory = f"{path}/{_ICEBERG_METADATA}"
    infos = files.get_file_info(pyarrow.fs.FileSelector(directory, allow_not_found=True))
    names = [info for info in infos if info.base_name.endswith(".metadata.json")]
    if not names:
        raise JobError(f"{place.shown()} is not an Iceberg table: it has no metadata/*.metadata.json")
    newest = max(names, key=lambda info: (_version_of(info.base_name), info.mtime_ns or 0))
    if not place.is_uri:
        return str(newest.path)
    return place.shown().removesuffix(path) + str(newest.path)


def _version_of(name: str) -> int:
    """``00003-<uuid>.metadata.json``, or a Hadoop table's ``v3.metadata.json``."""
    digits = name.removeprefix("v").partition("-")[0].partition(".")[0]
    return int(digits) if digits.isdecimal() else -1


def _iceberg(source: str, catalog: str | None) -> Table:
    if importlib.util.find_spec("pyiceberg") is None:
        raise JobError(
            f"{source} is an Iceberg table, which needs pyiceberg: pip install 'minikafka[tables]'"
        )
    from pyiceberg.table import StaticTable

    with iceberg_errors(f"the Iceberg table {source} cannot be read"):
        table: Any
        if catalog is None:
            table = StaticTable.from_metadata(source, iceberg_properties())
        else:
            table = open_catalog(catalog).load_table(source)
        scan, snapshot = table.scan(), table.current_snapshot()
        numbers = {
            entry.data_file.file_path: entry.sequence_number
            # Not inspect.entries(): it fails where a file has no column sizes, which are optional.
            for manifest in (snapshot.manifests(table.io) if snapshot is not None else ())
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        }
        tasks = sorted(
            scan.plan_files(), key=lambda task: (numbers.get(task.file.file_path) or 0, task.file.file_path)
        )
    schema = scan.projection()
    units = [
        IcebergUnit(
            name=task.file.file_path,
            rows=task.file.record_count,
            size=task.file.file_size_in_bytes,
            task=task,
            scan=(table.metadata, table.io, schema),
        )
        for task in tasks
    ]
    return Table(TableFormat.ICEBERG, source, frozenset(field.name for field in schema.fields), units)


# ---- Delta


def _delta(place: Location) -> Table:
    if importlib.util.find_spec("deltalake") is None:
        raise JobError(
            f"{place.shown()} is a Delta table, which needs deltalake: pip install 'minikafka[tables]'"
        )
    from deltalake import DeltaTable

    with delta_errors(f"the Delta table {place.shown()} cannot be read"):
        table = DeltaTable(place.text, storage_options=delta_options(place.text))
        _check_protocol(table.protocol(), place)
        names = frozenset(field.name for field in table.schema().fields)
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        deleted = {
            str(row["filepath"]): row["selection_vector"]
            for row in pa.table(table.deletion_vectors()).to_pylist()
        }
        partitioned = table.metadata().partition_columns
    files, root = file_system(place)
    units: list[ParquetUnit] = []
    for action in sorted(actions, key=lambda each: (each["modification_time"], each["path"])):
        path = unquote(action["path"])
        if "://" in path or path.startswith("/"):
            raise JobError(
                f"{place.shown()} is a shallow clone, whose files lie in another table: import that one"
            )
        keep = _kept(deleted, action["path"])
        constants = tuple((name, pa.scalar(action[f"partition.{name}"])) for name in partitioned)
        name = place.shown(path)
        footer = _footer(files, f"{root}/{path}", name)
        for unit in _row_group_units(footer, place.text, f"{root}/{path}", name, constants):
            units.append(unit if keep is None else replace(unit, keep=_packed(keep, unit)))
    return Table(TableFormat.DELTA, place.shown(), names, units)


def _check_protocol(protocol: Any, place: Location) -> None:
    """Raises JobError: the table's files do not say alone what its rows are."""
    features = frozenset(protocol.reader_features or ())
    if protocol.min_reader_version == 2:
        features |= {"columnMapping"}
    if unknown := sorted(features - _DELTA_FEATURES):
        raise JobError(
            f"the Delta table {place.shown()} has features that are not read here: {', '.join(unknown)}; "
            "write it as Parquet with Spark, and import that"
        )


def _kept(deleted: Mapping[str, Sequence[bool]], path: str) -> Sequence[bool] | None:
    """Which rows of a file live; None: all."""
    for uri, keep in deleted.items():
        if uri == path or uri.endswith(f"/{path}"):
            return keep
    return None


def _packed(keep: Sequence[bool], unit: ParquetUnit) -> bytes:
    """Of a unit's rows, a bit each. Rows behind the vector's end live."""
    bits = np.ones(unit.rows, dtype=np.bool_)
    some = np.array(keep[unit.first_row : unit.first_row + unit.rows], dtype=np.bool_)
    bits[: some.size] = some
    return np.packbits(bits).tobytes()
