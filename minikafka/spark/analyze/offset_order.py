"""The order of a partition's batches: offsets that nobody has, and timestamps that go back.

Both compare a batch with those before it, by base offset. A gap is what compaction, removed aborted
transactions or lost segments leave; an overlap is never right. A batch is late when its first record's
timestamp is below the greatest one of an earlier batch: headers do not know the order inside a batch.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from minikafka.spark.analyze.batch_statistics import (
    LOG,
    count_if,
    first_timestamp,
    is_data,
    latest_timestamp,
    sum_if,
)


def _in_order() -> WindowSpec:
    return Window.partitionBy(*LOG).orderBy("base_offset", "position")


def order_totals(batches: DataFrame) -> DataFrame:
    """One row a partition: gaps, missing (offsets), overlaps; late_batches, late_records (those in late
    batches), late_max_ms (null: none)."""
    before = _in_order().rowsBetween(Window.unboundedPreceding, -1)
    compared = batches.select(
        *LOG,
        "position",
        "base_offset",
        "last_offset",
        "records",
        F.when(is_data(), first_timestamp()).alias("first"),
        F.when(is_data(), latest_timestamp()).alias("latest"),
    ).select(
        *LOG,
        "records",
        (F.col("base_offset") - F.max("last_offset").over(before) - 1).alias("missing"),
        (F.max("latest").over(before) - F.col("first")).alias("late_ms"),
    )
    missing, late = F.col("missing"), F.col("late_ms") > 0
    return compared.groupBy(*LOG).agg(
        count_if(missing > 0).alias("gaps"),
        sum_if(missing > 0, missing).alias("missing"),
        count_if(missing < 0).alias("overlaps"),
        count_if(late).alias("late_batches"),
        sum_if(late, F.col("records")).alias("late_records"),
        F.max(F.when(late, F.col("late_ms"))).alias("late_max_ms"),
    )


def gaps(batches: DataFrame) -> DataFrame:
    """One row for each place where offsets do not follow: after_offset (the last one before it),
    before_offset (the first one behind), missing (offsets in between; negative: an overlap)."""
    previous = F.max("last_offset").over(_in_order().rowsBetween(Window.unboundedPreceding, -1))
    missing = F.col("base_offset") - F.col("after_offset") - 1
    return (
        batches.select(*LOG, "position", "base_offset", "last_offset")
        .withColumn("after_offset", previous)
        .where(F.col("after_offset").isNotNull() & (missing != 0))
        .select(*LOG, "after_offset", F.col("base_offset").alias("before_offset"), missing.alias("missing"))
    )
