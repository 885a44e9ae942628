"""Tasks that read a table's rows: those of its data files, without what position deletes have taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from minikafka.spark.tables.columns import FIELD_ID, projected_batch
from minikafka.spark.tables.files import Store

PATH, POSITION = "__path", "__position"
"""Columns of frames: the data file of a row, and its place in it, from 0 on."""
FILE_PATH, POS = "file_path", "pos"
"""The columns of a position delete file."""
READ_SCHEMA = "path string, deletes array<string>"
"""A data file, and the delete files that have rows of it."""


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
