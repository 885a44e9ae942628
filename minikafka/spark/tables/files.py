"""The data files of a run: written by tasks into a directory of the run, named to the driver, then committed.
And position deletes; and how tasks read both.

    <table>/data/<run>/00003-0-….parquet     written by tasks; readers see those that are committed
    <table>/data/<run>/_running              while the run lasts, and left by one that was killed

Only what the successful attempt of a task returns is committed; what another attempt has written into the
directory goes when the run ends. Only the driver makes that directory: a task that outlives its driver
finds it gone, and ends. Where the table is on this machine, a running export holds a lock on its
``_running``, so files of a killed one are known as such and removed by the next run. Elsewhere such a
directory is named, and removed when it is a day old.

Files are durable before they are committed. Parquet's field ids are those of the schema, where it has any.

**Reading**: tasks read the rows of data files, without what position deletes have taken away.

**Position deletes** are Iceberg's: rows that are taken from a data file without writing it again. A delete
file is Parquet with the path of a data file and the row's place in it, for each row that is gone. Here one
belongs to one data file, which the bounds in its manifest say, so that a reader opens only those of the files
that it reads (``write.delete.granularity=file``). Tasks write them into the run's directory, beside its data
files; what says that the table has them is the commit (``row_delta``). Those of other programs, which may
hold rows of several data files, are read as well.

Format: Iceberg's specification, "Position Delete Files".
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from minikafka.files import OsFiles
from minikafka.spark.runtime.storage import Endpoint, open_uri
from minikafka.spark.tables.columns import FIELD_ID, projected_batch

DATA = "data"
RUNNING = "_running"
REMOVED = ".removed"
"""Behind the name of a run whose files go."""
ORPHAN_AGE_MS = 24 * 60 * 60 * 1000
"""When a run that a lock cannot tell of counts as dead; a run that lasts longer fails at its commit."""

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""In memory; Parquet's usual 128 MB would be half of a Python worker's share."""
ROWS_MAX = 1024 * 1024
"""In a row group: pyarrow's own limit."""

REASON = "__reason"
RAW_KEY, RAW_VALUE = "__raw_key", "__raw_value"

WRITTEN_SCHEMA = "is_error boolean, name string, size long, records long, partition string"
_WRITTEN = pa.schema(
    [
        ("is_error", pa.bool_()),
        ("name", pa.string()),
        ("size", pa.int64()),
        ("records", pa.int64()),
        ("partition", pa.string()),
    ]
)

PATH, POSITION = "__path", "__position"
"""Columns of frames: the data file of a row, and its place in it, from 0 on."""
FILE_PATH, POS = "file_path", "pos"
"""The columns of a position delete file."""
READ_SCHEMA = "path string, deletes array<string>"
"""A data file, and the delete files that have rows of it."""

FILE_PATH_ID, POS_ID = 2147483546, 2147483545
"""The field ids that the specification keeps for the two columns."""
DELETES_SCHEMA = "path string, name string, size long, records long, first long, last long"
"""What tasks yield; see ``WrittenDeletes``."""

FILE_SCHEMA = pa.schema(
    [
        pa.field(FILE_PATH, pa.string(), nullable=False, metadata={FIELD_ID: str(FILE_PATH_ID)}),
        pa.field(POS, pa.int64(), nullable=False, metadata={FIELD_ID: str(POS_ID)}),
    ]
)
"""Of a delete file."""
_WRITTEN_DELETES = pa.schema(
    [
        ("path", pa.string()),
        ("name", pa.string()),
        ("size", pa.int64()),
        ("records", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)


class Store(NamedTuple):
    """Where a table lies. Goes to tasks."""

    root: str
    """A path or URI."""
    io: Mapping[str, str] | None = None
    """The properties of pyiceberg's file systems; None: pyarrow's own."""
    endpoint: Endpoint | None = None
    """Of S3 for pyarrow's own, as the driver's environment has it: an executor needs no more than keys."""

    def open(self, name: str = "") -> tuple[pyarrow.fs.FileSystem, str]:
        """A file system and the path in it, of the table or of ``name`` below it."""
        place = f"{self.root.rstrip('/')}/{name}" if name else self.root
        return self.open_path(place)

    def open_path(self, place: str) -> tuple[pyarrow.fs.FileSystem, str]:
        """The same for a whole path or URI."""
        if self.io is not None:
            from pyiceberg.io.pyarrow import PyArrowFileIO

            files = PyArrowFileIO(dict(self.io))
            scheme, netloc, path = files.parse_location(place, dict(self.io))
            system = files.fs_by_scheme(scheme, netloc)
            if not isinstance(system, pyarrow.fs.LocalFileSystem):
                return system, path
            # Not pyiceberg's own, which makes directories: one that is gone must stay so.
            return pyarrow.fs.LocalFileSystem(), path
        if "://" in place:
            return open_uri(place, self.endpoint)
        return pyarrow.fs.LocalFileSystem(), place


class WrittenFile(NamedTuple):
    """A data file of this run."""

    name: str
    """Relative to the table."""
    size: int
    records: int
    partition: tuple[Any, ...]
    """Values of ``table.partition_value``."""


class FileSet(NamedTuple):
    """What tasks write of one table."""

    store: Store
    run: str
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    """Of the frame, not of the files."""
    target_bytes: int
    compression: str

    @property
    def directory(self) -> str:
        """Of the run, relative to the table."""
        return f"{DATA}/{self.run}"


def new_run() -> str:
    """The name of a run: when it began, and a random part."""
    return f"{time.time_ns() // 1_000_000:013}-{uuid.uuid4().hex}"


def run_ms(run: str) -> int | None:
    """When it began; None: it is no run's name."""
    text = run.partition("-")[0]
    return int(text) if len(text) == 13 and text.isdigit() else None


def writing(
    records: FileSet, errors: FileSet | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: writes the rows, those that have a reason to the errors, and yields the files."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        right = _Writer(records, task)
        wrong = None if errors is None else _Writer(errors, task)
        for batch in batches:
            if REASON in batch.schema.names:
                is_wrong = pc.is_valid(batch.column(REASON))
                if wrong is not None and pc.any(is_wrong).as_py():
                    wrong.write(_as_errors(batch.filter(is_wrong)))
                batch = batch.filter(pc.invert(is_wrong))
            right.write(batch)
        done = [(False, each) for each in right.close()]
        if wrong is not None:
            done += [(True, each) for each in wrong.close()]
        rows = [
            {
                "is_error": is_error,
                "name": each.name,
                "size": each.size,
                "records": each.records,
                "partition": json.dumps(each.partition),
            }
            for is_error, each in done
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_WRITTEN)

    return write


def _as_errors(batch: pa.RecordBatch) -> pa.RecordBatch:
    names = {"reason": REASON, "key": RAW_KEY, "value": RAW_VALUE}
    wanted = ("partition", "offset", "timestamp", "reason", "key", "value")
    return pa.RecordBatch.from_arrays(
        [batch.column(names.get(name, name)) for name in wanted], names=list(wanted)
    )


def written(rows: Iterable[Any]) -> tuple[list[WrittenFile], list[WrittenFile]]:
    """What tasks have yielded: the records' files and the errors'."""
    right: list[WrittenFile] = []
    wrong: list[WrittenFile] = []
    for row in rows:
        found = WrittenFile(row["name"], row["size"], row["records"], tuple(json.loads(row["partition"])))
        (wrong if row["is_error"] else right).append(found)
    return sorted(right), sorted(wrong)


class _Writer:
    """The files of one task, one open at a time: rows come in the order of their partitions."""

    def __init__(self, files: FileSet, task: int) -> None:
        self._files = files
        self._task = task
        self._system, self._root = files.store.open()
        self._done: list[WrittenFile] = []
        self._partition: tuple[Any, ...] = ()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self._name = ""
        self._records = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        rows = projected_batch(batch, self._files.schema)
        for first, end, partition in _runs(batch, self._files.partition_columns):
            if partition != self._partition:
                self._finish()
                self._partition = partition
            self._add(rows.slice(first, end - first))

    def close(self) -> list[WrittenFile]:
        """Every file that it has written."""
        self._finish()
        return self._done

    def _add(self, rows: pa.RecordBatch) -> None:
        row_bytes = max(1, rows.nbytes // rows.num_rows)
        group_bytes = min(ROW_GROUP_BYTES, self._files.target_bytes)
        step = max(1, group_bytes // row_bytes)
        for first in range(0, rows.num_rows, step):
            piece = rows.slice(first, step)
            self._waiting.append(piece)
            self._waiting_bytes += piece.num_rows * row_bytes
            if self._waiting_bytes >= group_bytes or sum(map(len, self._waiting)) >= ROWS_MAX:
                self._flush()
                if self._sink.tell() >= self._files.target_bytes:
                    self._finish()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._name = (
                f"{self._files.directory}/{self._task:05}-{len(self._done)}-{uuid.uuid4().hex}.parquet"
            )
            path = f"{self._root}/{self._name}"
            self._sink = self._system.open_output_stream(path)
            self._writer = pq.ParquetWriter(
                self._sink, self._files.schema, compression=self._files.compression
            )
        table = pa.Table.from_batches(self._waiting, schema=self._files.schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._records += table.num_rows
        self._waiting, self._waiting_bytes = [], 0

    def _finish(self) -> None:
        self._flush()
        if self._writer is None:
            return
        self._writer.close()
        self._sink.close()
        path = f"{self._root}/{self._name}"
        if isinstance(self._system, pyarrow.fs.LocalFileSystem):
            make_durable(path)
        size = self._system.get_file_info(path).size
        self._done.append(WrittenFile(self._name, size, self._records, self._partition))
        self._writer = self._sink = None
        self._records = 0


def _runs(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """First row, row behind the last, and values, of rows of one partition that follow each other."""
    if not columns:
        yield 0, batch.num_rows, ()
        return
    values = list(zip(*(batch.column(name).to_pylist() for name in columns), strict=True))
    first = 0
    for index in range(1, len(values) + 1):
        if index == len(values) or values[index] != values[first]:
            yield first, index, values[first]
            first = index


def make_durable(path: str) -> None:
    """A file on this machine, and its name in its directory."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    OsFiles().sync_directory(os.path.dirname(path))


class RunDirectory:
    """The directory of a run, marked as running from its start to its end."""

    def __init__(self, store: Store, run: str) -> None:
        self._store = store
        self.run = run
        self._system, self._path = store.open(f"{DATA}/{run}")
        self._lock: Any = None

    def begin(self) -> None:
        """Raises OSError."""
        if isinstance(self._system, pyarrow.fs.LocalFileSystem):
            os.makedirs(self._path, exist_ok=True)
            self._lock = OsFiles().lock(f"{self._path}/{RUNNING}")
        else:
            with self._system.open_output_stream(f"{self._path}/{RUNNING}") as stream:
                stream.write(self.run.encode())

    def end(self, kept: Iterable[str]) -> None:
        """Remove what is not in ``kept``: names relative to the table.

        Where nothing is kept, and it lies on this machine, under another name first: a task that outlives its
        driver would make a file while the others are removed.
        """
        keep = {name.rpartition("/")[2] for name in kept}
        is_local = isinstance(self._system, pyarrow.fs.LocalFileSystem)
        if is_local and not keep and not self._path.endswith(REMOVED):
            os.rename(self._path, self._path + REMOVED)
            self._path += REMOVED
        infos = self._system.get_file_info(pyarrow.fs.FileSelector(self._path, allow_not_found=True))
        names = [info.base_name for info in infos if info.base_name not in keep]
        for name in sorted(names, key=lambda name: name == RUNNING):  # the mark last
            self._system.delete_file(f"{self._path}/{name}")
        if infos and len(names) == len(infos):
            self._system.delete_dir(self._path)
        self.release()

    def release(self) -> None:
        """Give the lock back and leave the files: whether they are committed is not known."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def is_dead(self, now_ms: int) -> bool:
        """Whether the run that has left its mark is over; ``release`` or ``end`` follows."""
        if isinstance(self._system, pyarrow.fs.LocalFileSystem):
            try:
                self._lock = OsFiles().lock(f"{self._path}/{RUNNING}")
            except BlockingIOError:
                return False
            return True
        began = run_ms(self.run)
        return began is not None and now_ms - began > ORPHAN_AGE_MS


def unfinished_runs(store: Store) -> list[str]:
    """Runs whose mark is still there: they go on, or were killed."""
    system, path = store.open(DATA)
    infos = system.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True))
    runs = [info.base_name for info in infos if run_ms(info.base_name) is not None]
    marks = system.get_file_info([f"{path}/{run}/{RUNNING}" for run in runs]) if runs else []
    kinds = pyarrow.fs.FileType
    return sorted(run for run, mark in zip(runs, marks, strict=True) if mark.type is kinds.File)


def reading(
    store: Store, schema: pa.Schema, *, with_place: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over ``READ_SCHEMA``: the rows of these files with the columns of ``schema``.

    Args:
        with_place: the columns ``__path`` and ``__position`` behind them say where a row is from.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, deletes in zip(
                batch.column("path").to_pylist(), batch.column("deletes").to_pylist(), strict=True
            ):
                deleted = _deleted_positions(store, path, deletes)
                system, name = store.open_path(path)
                with system.open_input_file(name) as source:
                    file = pq.ParquetFile(source)
                    all_rows = file.iter_batches(columns=_there(file.schema_arrow, schema))
                    for rows, places in _without(all_rows, deleted):
                        found = projected_batch(rows, schema, by_id=True)
                        if with_place:
                            path_column = pa.repeat(pa.scalar(path), found.num_rows)
                            found = found.append_column(PATH, path_column)
                            found = found.append_column(POSITION, pa.array(places))
                        yield found.replace_schema_metadata(None)

    return read


def _deleted_positions(store: Store, path: str, deletes: Sequence[str]) -> npt.NDArray[np.int64]:
    """Which rows of the data file are gone, ascending, by these delete files."""
    found: list[Any] = [np.empty(0, np.int64)]
    for each in deletes:
        system, name = store.open_path(each)
        with system.open_input_file(name) as source:
            rows = pq.read_table(source, columns=[FILE_PATH, POS])
        own = rows.filter(pc.equal(rows[FILE_PATH], path))
        found.append(own[POS].to_numpy())
    return np.unique(np.concatenate(found))


def _without(
    batches: Iterable[pa.RecordBatch], deleted: npt.NDArray[np.int64]
) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]:
    """The rows of a data file that are left, batch by batch from its start, each with its place."""
    begin = 0
    for batch in batches:
        places = np.arange(begin, begin + batch.num_rows, dtype=np.int64)
        first, end = np.searchsorted(deleted, (begin, begin + batch.num_rows))
        if first < end:
            is_left = np.ones(batch.num_rows, bool)
            is_left[deleted[first:end] - begin] = False
            yield batch.filter(pa.array(is_left)), places[is_left]
        else:
            yield batch, places
        begin += batch.num_rows


def _there(have: pa.Schema, wanted: pa.Schema) -> list[str]:
    """The top-level columns that are needed, by the file's names."""
    ids = {(each.metadata or {}).get(FIELD_ID, each.name) for each in wanted}
    return [each.name for each in have if (each.metadata or {}).get(FIELD_ID, each.name) in ids]


class WrittenDeletes(NamedTuple):
    """A delete file of this run."""

    path: str
    """Of the data file that the rows are taken from."""
    name: str
    """Relative to the table."""
    size: int
    records: int
    first: int
    last: int
    """The places of the first and the last row that is gone."""


def writing_deletes(
    store: Store, directory: str, compression: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over ``__path`` and ``__position`` in this order, with all rows of a path in one
    task: writes a delete file for each path into ``directory``, and yields them."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = _DeletesWriter(store, directory, compression)
        for batch in batches:
            runs = pc.run_end_encode(batch.column(PATH))
            first = 0
            for path, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
                writer.add(path, batch.column(POSITION).slice(first, end - first))
                first = end
        yield pa.RecordBatch.from_pylist([each._asdict() for each in writer.close()], schema=_WRITTEN_DELETES)

    return write


class _DeletesWriter:
    """One file open at a time."""

    def __init__(self, store: Store, directory: str, compression: str) -> None:
        self._system, self._root = store.open()
        self._directory = directory
        self._compression = compression
        self._done: list[WrittenDeletes] = []
        self._path: str | None = None
        self._positions: list[pa.Array] = []

    def add(self, path: str, positions: pa.Array) -> None:
        if path != self._path:
            self._finish()
            self._path = path
        self._positions.append(positions)

    def close(self) -> list[WrittenDeletes]:
        self._finish()
        return self._done

    def _finish(self) -> None:
        if self._path is None or not self._positions:
            return
        positions = pa.concat_arrays(self._positions)
        paths = pa.repeat(pa.scalar(self._path), len(positions))
        name = f"{self._directory}/deletes-{uuid.uuid4().hex}.parquet"
        place = f"{self._root}/{name}"
        with self._system.open_output_stream(place) as sink:
            pq.write_table(
                pa.Table.from_arrays([paths, positions], schema=FILE_SCHEMA),
                sink,
                compression=self._compression,
            )
        if isinstance(self._system, pyarrow.fs.LocalFileSystem):
            make_durable(place)
        size = self._system.get_file_info(place).size
        first, last = positions[0].as_py(), positions[-1].as_py()
        self._done.append(WrittenDeletes(self._path, name, size, len(positions), first, last))
        self._positions = []
