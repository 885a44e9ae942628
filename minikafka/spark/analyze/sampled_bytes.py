"""The bytes of chosen batches, read where their headers say they are: the one step of the codec trial that
reads. It runs on the executors, so only a sample's bytes ever leave the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from minikafka.spark.source.storage import Location, join
from minikafka.types import TopicPartition

SCHEMA: Final = "topic string, partition int, batch binary"
_ARROW_SCHEMA: Final = pa.schema(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("batch", pa.binary())]
)


def read_batches(batches: DataFrame) -> DataFrame:
    """topic, partition and the bytes of each of ``batches`` (rows of ``kafka-log-batches``). A segment that
    was removed since is left out: retention goes on beside a running broker."""
    return batches.select("log_dir", "topic", "partition", "segment", "position", "size").mapInArrow(
        _read, SCHEMA
    )


def _read(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        for row in part.to_pylist():
            storage, directory = Location(row["log_dir"]).open()
            partition = join(directory, str(TopicPartition(row["topic"], row["partition"])))
            try:
                file = storage.open(join(partition, row["segment"]))
            except FileNotFoundError:
                continue
            try:
                data = bytes(file.read(row["position"], row["size"]))
            finally:
                file.close()
            yield pa.RecordBatch.from_pylist(
                [{"topic": row["topic"], "partition": row["partition"], "batch": data}], schema=_ARROW_SCHEMA
            )
