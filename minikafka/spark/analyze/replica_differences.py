"""Whether the replicas of a partition hold the same batches.

Kafka's replicas are byte for byte the same below the high watermark, but for where segments begin, and for
what a compaction has rewritten on each broker by itself. So batches are compared by their base offset, in a
range of offsets that the caller knows all replicas to have as it was appended (``limits``): last offset,
size, leader epoch and the stored CRC, and whether that CRC is the one of the bytes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from minikafka.spark.analyze.batch_statistics import LOG, count_if, is_damaged

_COMPARED = ("last_offset", "size", "leader_epoch", "crc")


def comparisons(batches: DataFrame, limits: DataFrame) -> DataFrame:
    """One row for each base offset in range: brokers (how many have a batch there), size, differs.

    ``batches`` are ``kafka-log-batches`` with ``broker``, ``crc`` and ``crc_ok``; ``limits`` has a row a
    partition: from_offset, to_offset (exclusive), replicas (how many directories hold the partition).
    """
    in_range = (F.col("base_offset") >= F.col("from_offset")) & (F.col("last_offset") < F.col("to_offset"))
    differs = F.col("brokers") != F.col("replicas")
    for name in _COMPARED:
        differs = differs | (F.col(f"least_{name}") != F.col(f"greatest_{name}"))
    columns: list[Column] = []
    for name in _COMPARED:
        columns += [F.min(name).alias(f"least_{name}"), F.max(name).alias(f"greatest_{name}")]
    return (
        batches.join(F.broadcast(limits), list(LOG))
        .where(F.col("base_offset").isNotNull() & in_range)
        .groupBy(*LOG, "base_offset", "replicas")
        .agg(
            F.count_distinct("broker").alias("brokers"),
            F.max("size").alias("size"),
            count_if(is_damaged()).alias("damaged"),
            *columns,
        )
        .withColumn("differs", differs | (F.col("damaged") > 0))
        .select(*LOG, "base_offset", "brokers", "size", "differs")
    )


def comparison_totals(comparisons: DataFrame) -> DataFrame:
    """One row a partition: batches compared, their bytes, how many differ, and the base offset of the first
    that does (null: none)."""
    return comparisons.groupBy(*LOG).agg(
        F.count("*").alias("batches"),
        F.sum("size").cast("long").alias("bytes"),
        count_if(F.col("differs")).alias("differences"),
        F.min(F.when(F.col("differs"), F.col("base_offset"))).alias("first_difference"),
    )


def batches_at(batches: DataFrame, totals: DataFrame) -> DataFrame:
    """The batches of all brokers that are at the first difference of their partition."""
    first = totals.where(F.col("first_difference").isNotNull()).select(*LOG, "first_difference")
    return batches.join(F.broadcast(first), list(LOG)).where(
        F.col("base_offset") == F.col("first_difference")
    )
