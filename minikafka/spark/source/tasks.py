"""What batch reads and streams share on Spark's side: partitions of work, and doing one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from minikafka.spark.source.options import BadOption, ReadOptions
from minikafka.spark.source.schemas import check_columns
from minikafka.spark.source.split_reader import SplitReader
from minikafka.spark.source.splits import Split, pack

OPEN_BYTES = 1024 * 1024
"""What a file more in a task is worth, in bytes read instead: so that small segments share tasks."""


class SplitPartition(InputPartition):
    """What one task reads."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(splits)
        self.splits = splits


def check_schema(schema: StructType, options: ReadOptions, reader: type[SplitReader]) -> None:
    """Whether a reader can serve the schema that Spark asks for.

    Raises:
        UnknownColumn: there is no such column, or not in that type.
        BadOption: the option ``columns`` says otherwise.
    """
    check_columns(schema, reader.known_columns)
    if options.columns is not None and list(options.columns) != schema.names:
        columns, names = ", ".join(options.columns), ", ".join(schema.names)
        raise BadOption(f"columns names {columns}, the schema {names}: give one of them")


def tasks_of(splits: list[Split], options: ReadOptions) -> list[InputPartition]:
    """Spark's partitions for these splits; one with nothing to do where there are none."""
    return [SplitPartition(task) for task in pack(splits, options.split_bytes, OPEN_BYTES)] or [
        SplitPartition(())
    ]


def read_splits(
    reader: type[SplitReader],
    partition: InputPartition,
    columns: Sequence[str],
    options: ReadOptions,
    timestamp_ms_min: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one task."""
    assert isinstance(partition, SplitPartition)
    for split in partition.splits:
        yield from reader(split, columns, options, timestamp_ms_min=timestamp_ms_min).record_batches()
