"""What only the records tell: sizes, keys, tombstones, what compaction would save. One pass over them.

``summarised`` is that pass: records are grouped by key and by size at the same time (``GROUPING SETS``), so
the log is read and decoded once, and values stay where they are. Everything else is made of
its outcome, which has a row for each key of a partition and some hundred for its sizes.

A record's size here is that of its key and value, without headers and the few bytes of the format. Sizes are
counted in buckets whose limits grow by 2^(1/32): a size stands for those up to 1.1 % away (below 45 bytes:
itself), which is the error of the quantiles. Keys are compared as they are, so their numbers are exact; only
the number of keys of a topic with several partitions is an estimate (HyperLogLog, standard deviation 1 %).
Aborted records count as records.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from minikafka.spark.transforms.batch_statistics import LOG, count_if, sum_if

BUCKETS_PER_DOUBLING = 32
TOPIC_KEYS_ERROR = 0.01
"""Standard deviation of the estimated number of a topic's keys."""

TIES_MAX = 1_000
"""Keys with the same number of records among which some may be top keys."""

BY_KEY, BY_SIZE = 0b011, 0b100
"""``grouping_id`` of the two kinds of rows: key, bucket, error; a bit is 1 where the column is not grouped
by."""


def size_bucket(size: Column) -> Column:
    """The number of the bucket of a size in bytes."""
    return F.floor(F.log2(size + 1) * BUCKETS_PER_DOUBLING + 0.5).cast("int")


def size_of_bucket(bucket: Column) -> Column:
    """The size in bytes that a bucket stands for."""
    return F.round(F.pow(F.lit(2.0), bucket / BUCKETS_PER_DOUBLING) - 1).cast("long")


def summarised(records: DataFrame) -> DataFrame:
    """Records (topic, partition, offset, key, value_size, error) by key and by size, in one pass.

    Rows of ``by_key`` and of ``by_size``; persist it, both are read several times. A row of the input with an
    error is no record.
    """
    is_record = F.col("error").isNull()
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce("value_size", F.lit(0))
    narrow = records.select(
        *LOG,
        "key",
        "offset",
        "error",
        F.when(is_record, size.cast("long")).alias("size"),
        is_record.cast("int").alias("is_record"),
        (is_record & F.col("value_size").isNull()).cast("int").alias("is_tombstone"),
    ).withColumn("bucket", size_bucket(F.col("size")))
    return narrow.groupingSets(
        [[*LOG, "key"], [*LOG, "bucket", "error"]], *LOG, "key", "bucket", "error"
    ).agg(
        F.grouping_id().alias("grouping"),
        F.sum("is_record").alias("records"),
        F.coalesce(F.sum("size"), F.lit(0)).alias("bytes"),
        F.sum("is_tombstone").alias("tombstones"),
        # Twice the size, and one for a tombstone: one number, which the aggregation changes in place.
        F.max_by(F.col("size") * 2 + F.col("is_tombstone"), "offset").alias("newest"),
    )


def by_key(summary: DataFrame) -> DataFrame:
    """One row a partition and key: records, bytes, newest_bytes, newest_is_tombstone; records without a key
    are the row with a null key."""
    return summary.where((_kind() == BY_KEY) & (F.col("records") > 0)).select(
        *LOG,
        "key",
        "records",
        "bytes",
        F.shiftright("newest", 1).alias("newest_bytes"),
        (F.col("newest") % 2).alias("newest_is_tombstone"),
    )


def by_size(summary: DataFrame) -> DataFrame:
    """One row a partition and size bucket: records, bytes, tombstones."""
    return summary.where((_kind() == BY_SIZE) & F.col("error").isNull()).select(
        *LOG, "bucket", "records", "bytes", "tombstones"
    )


def undecodable(summary: DataFrame) -> DataFrame:
    """The errors of rows that are no records: topic, partition, error."""
    return summary.where((_kind() == BY_SIZE) & F.col("error").isNotNull()).select(*LOG, "error")


def _kind() -> Column:
    return F.col("grouping").cast("int")


def size_totals(sizes: DataFrame, quantiles: Sequence[float]) -> DataFrame:
    """One row a partition: records, bytes, tombstones, size_min, size_max, and ``quantiles``, the smallest
    size that at least that share of the records does not exceed."""
    in_order = Window.partitionBy(*LOG).orderBy("bucket")
    counted = sizes.withColumn("up_to", F.sum("records").over(in_order)).withColumn(
        "all", F.sum("records").over(Window.partitionBy(*LOG))
    )
    wanted = [
        size_of_bucket(F.min(F.when(F.col("up_to") >= F.lit(each) * F.col("all"), F.col("bucket"))))
        for each in quantiles
    ]
    return counted.groupBy(*LOG).agg(
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.sum("tombstones").alias("tombstones"),
        size_of_bucket(F.min("bucket")).alias("size_min"),
        size_of_bucket(F.max("bucket")).alias("size_max"),
        F.array(*wanted).alias("quantiles"),
    )


def size_histogram(sizes: DataFrame) -> DataFrame:
    """One row a topic and doubling of the size: size_min (bytes, included; 0, 1, 2, 4 …), records, bytes."""
    doubling = F.floor(F.log2(F.greatest(size_of_bucket(F.col("bucket")), F.lit(1))))
    least = F.when(size_of_bucket(F.col("bucket")) == 0, 0).otherwise(F.pow(F.lit(2.0), doubling))
    return sizes.groupBy("topic", least.cast("long").alias("size_min")).agg(
        F.sum("records").alias("records"), F.sum("bytes").alias("bytes")
    )


def key_frequencies(keys: DataFrame) -> DataFrame:
    """One row a partition and number of records that keys have: how many keys (null keys are none of them),
    superseded bytes, tombstones that are their key's newest record with their bytes. Few rows: numbers that
    differ cannot be many."""
    tombstone = F.col("newest_is_tombstone") == 1
    return (
        keys.where(F.col("key").isNotNull())
        .groupBy(*LOG, "records")
        .agg(
            F.count("*").alias("keys"),
            F.sum(F.col("bytes") - F.col("newest_bytes")).alias("superseded_bytes"),
            count_if(tombstone).alias("newest_tombstones"),
            sum_if(tombstone, F.col("newest_bytes")).alias("newest_tombstone_bytes"),
        )
    )


def key_totals(frequencies: DataFrame) -> DataFrame:
    """One row a partition with keys: keys, keys_once (with one record), records_max (of one key),
    superseded_records and superseded_bytes (those whose key has a newer record), newest_tombstones and
    newest_tombstone_bytes."""
    records, keys = F.col("records"), F.col("keys")
    return frequencies.groupBy(*LOG).agg(
        F.sum("keys").alias("keys"),
        sum_if(records == 1, keys).alias("keys_once"),
        F.max("records").alias("records_max"),
        F.sum((records - 1) * keys).alias("superseded_records"),
        F.sum("superseded_bytes").alias("superseded_bytes"),
        F.sum("newest_tombstones").alias("newest_tombstones"),
        F.sum("newest_tombstone_bytes").alias("newest_tombstone_bytes"),
    )


def key_histogram(frequencies: DataFrame) -> DataFrame:
    """One row a topic and doubling of the records that a key has: records_min (1, 2, 4 …), keys, records.

    A key in several partitions counts in each.
    """
    least = F.pow(F.lit(2.0), F.floor(F.log2("records"))).cast("long")
    return frequencies.groupBy("topic", least.alias("records_min")).agg(
        F.sum("keys").alias("keys"), F.sum(F.col("records") * F.col("keys")).alias("records")
    )


def top_keys(keys: DataFrame, frequencies: DataFrame, *, count: int, ties_max: int = TIES_MAX) -> DataFrame:
    """The ``count`` keys of each partition with the most records: key, records, bytes, place (from 1); of
    equals the least keys.

    No key stands out that has one record, or as many as more than ``ties_max`` others: such are left out, so
    that few keys are sorted, however many there are. ``key_frequencies`` tells which.
    """
    from_top = Window.partitionBy(*LOG).orderBy(F.desc("records"))
    above = F.coalesce(F.sum("keys").over(from_top.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    least = (
        frequencies.withColumn("above", above)
        .where((F.col("records") > 1) & (F.col("keys") <= ties_max) & (F.col("above") < count))
        .groupBy(*LOG)
        .agg(F.min("records").alias("least"))
    )
    place = F.row_number().over(Window.partitionBy(*LOG).orderBy(F.desc("records"), "key"))
    return (
        keys.where(F.col("key").isNotNull())
        .join(F.broadcast(least), list(LOG))
        .where(F.col("records") >= F.col("least"))
        .withColumn("place", place)
        .where(F.col("place") <= count)
        .select(*LOG, "key", "records", "bytes", "place")
    )


def topic_keys(keys: DataFrame) -> DataFrame:
    """One row a topic: keys, about how many different ones it has over all partitions."""
    return (
        keys.where(F.col("key").isNotNull())
        .groupBy("topic")
        .agg(F.approx_count_distinct("key", TOPIC_KEYS_ERROR).alias("keys"))
    )
