"""Rows that are taken from a data file without writing it again: Iceberg's position deletes.

A delete file is Parquet with the path of a data file and the row's place in it, for each row that is gone.
Here one belongs to one data file, which the bounds in its manifest say, so that a reader opens only those of
the files that it reads (``write.delete.granularity=file``). Tasks write them into the run's directory, beside
its data files; what says that the table has them is the commit (``row_delta``). Those of other programs,
which may hold rows of several data files, are read as well (``reading``).

Format: Iceberg's specification, "Position Delete Files".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from minikafka.spark.tables.columns import FIELD_ID
from minikafka.spark.tables.files import Store, make_durable
from minikafka.spark.tables.reading import FILE_PATH, PATH, POS, POSITION

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
_WRITTEN = pa.schema(
    [
        ("path", pa.string()),
        ("name", pa.string()),
        ("size", pa.int64()),
        ("records", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)


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
        yield pa.RecordBatch.from_pylist([each._asdict() for each in writer.close()], schema=_WRITTEN)

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
