"""What the bytes of a topic would be in another codec: measured, by compressing batches of it again.

All batches would be a second writing of the log, so a sample is taken: batches in an order that the hash of
their offset gives, up to a number and an amount of bytes for each partition. The levels are those that
minikafka writes (``minikafka.protocol.records.compression``).

The bytes of chosen batches, read where their headers say they are: the one step of the codec trial that
reads. It runs on the executors, so only a sample's bytes ever leave the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from minikafka.protocol.records.batch import HEADER_SIZE, read_header
from minikafka.protocol.records.compression import CompressionType, CorruptBatch, compress, decompress
from minikafka.spark.analyze.batch_statistics import LOG, is_data
from minikafka.spark.source.storage import Location, join
from minikafka.types import TopicPartition

BYTES_SCHEMA: Final = "topic string, partition int, batch binary"
_BYTES_SCHEMA: Final = pa.schema(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("batch", pa.binary())]
)


def read_batches(batches: DataFrame) -> DataFrame:
    """topic, partition and the bytes of each of ``batches`` (rows of ``kafka-log-batches``). A segment that
    was removed since is left out: a running broker still applies retention."""
    return batches.select("log_dir", "topic", "partition", "segment", "position", "size").mapInArrow(
        _read_bytes, BYTES_SCHEMA
    )


def _read_bytes(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
                [{"topic": row["topic"], "partition": row["partition"], "batch": data}], schema=_BYTES_SCHEMA
            )


BATCHES_MAX = 64
BYTES_MAX = 4 << 20
"""Of each partition: gzip takes about 40 ms for a MiB."""

PLAIN_BYTES_MAX = 64 << 20
"""Of one batch: what says that it is more is left out of the sample."""

TRIED: Final = tuple(CompressionType)

TRIAL_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        *(StructField(f"{codec.name.lower()}_bytes", LongType()) for codec in TRIED),
        StructField("stored_bytes", LongType()),
        StructField("error", StringType()),
    ]
)
"""One row a batch; sizes are of whole batches, headers included. ``error``: why it could not be tried; the
sizes are null then."""


def sampled(batches: DataFrame, *, count: int = BATCHES_MAX, size_bytes: int = BYTES_MAX) -> DataFrame:
    """Up to ``count`` data batches of each partition, ``size_bytes`` at most but for the first."""
    by_hash = Window.partitionBy(*LOG).orderBy(F.xxhash64("base_offset"), "base_offset")
    return (
        batches.where(is_data() & (F.col("records") > 0))
        .withColumn("place", F.row_number().over(by_hash))
        .withColumn("up_to", F.sum("size").over(by_hash.rowsBetween(Window.unboundedPreceding, 0)))
        .where((F.col("place") <= count) & ((F.col("up_to") <= size_bytes) | (F.col("place") == 1)))
        .drop("place", "up_to")
    )


def tried(batches: DataFrame) -> DataFrame:
    """``batches`` (topic, partition, batch: its bytes) as TRIAL_SCHEMA says."""
    return batches.select(*LOG, "batch").mapInArrow(_try_all, TRIAL_SCHEMA)


def trial_totals(trials: DataFrame) -> DataFrame:
    """One row a partition: batches in the sample, failed, stored_bytes, and the bytes in each codec."""
    sizes = [f"{codec.name.lower()}_bytes" for codec in TRIED]
    return trials.groupBy(*LOG).agg(
        F.count("stored_bytes").alias("batches"),
        F.count("error").alias("failed"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("stored_bytes", *sizes)),
    )


def _try_all(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = TRIAL_SCHEMA.names
    for part in parts:
        rows = [
            dict(zip(names, (topic, partition, *_tried(batch)), strict=True))
            for topic, partition, batch in zip(*(column.to_pylist() for column in part.columns), strict=True)
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_SCHEMA)


def _tried(batch: bytes) -> tuple[int | str | None, ...]:
    """The columns behind topic and partition."""
    try:
        header = read_header(batch)
        plain = decompress(
            memoryview(batch)[HEADER_SIZE : header.size], header.compression, bytes_max=PLAIN_BYTES_MAX
        )
    except CorruptBatch as error:
        return (*(None for _ in TRIED), None, str(error))
    sizes = [HEADER_SIZE + len(compress(plain, codec)) for codec in TRIED]
    return (*sizes, len(batch), None)


_ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        *(pa.field(f"{codec.name.lower()}_bytes", pa.int64()) for codec in TRIED),
        pa.field("stored_bytes", pa.int64()),
        pa.field("error", pa.string()),
    ]
)
