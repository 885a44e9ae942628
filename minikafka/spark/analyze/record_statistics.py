"""What only the records tell: sizes, keys, tombstones, what compaction would save.

The log is read and decoded once, by ``record_sums``, which adds up records by key and by size where it
decodes them. ``summarised`` adds these sums up, and everything else is made of its outcome, which has a row
for each key of a partition and some hundred for its sizes.

A record's size here is that of its key and value, without headers and the few bytes of the format. Sizes are
counted in buckets whose limits grow by 2^(1/32): a size stands for those up to 1.1 % away (below 45 bytes:
itself), which is the error of the quantiles. Keys are compared as they are, so their numbers are exact; only
the number of keys of a topic with several partitions is an estimate (HyperLogLog, standard deviation 1 %).
Aborted records count as records.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from minikafka.spark.analyze.batch_statistics import LOG, count_if, sum_if

TOPIC_KEYS_ERROR = 0.01
"""Standard deviation of the estimated number of a topic's keys."""


def summarised(sums: DataFrame) -> DataFrame:
    """Rows of ``record_sums.SUMS_SCHEMA``, one for each key, size bucket and error of a partition.

    Persist it: ``by_key`` and ``without_keys`` both read it.
    """
    return sums.groupBy(*LOG, "key", "bucket", "error").agg(
        *(F.sum(name).alias(name) for name in ("records", "bytes", "tombstones")),
        # Numbers alone: the aggregation changes them in place.
        F.max_by("newest", "offset").alias("newest"),
    )


def by_key(summary: DataFrame) -> DataFrame:
    """One row a partition and key: records, bytes, newest_bytes, newest_is_tombstone; records without a key
    are the row with a null key."""
    return summary.where(F.col("bucket").isNull() & F.col("error").isNull()).select(
        *LOG,
        "key",
        "records",
        "bytes",
        F.shiftright("newest", 1).alias("newest_bytes"),
        (F.col("newest") % 2).alias("newest_is_tombstone"),
    )


def without_keys(summary: DataFrame, *, errors_max: int) -> DataFrame:
    """The few rows that are not of a key: those by size (``bucket``), those of records without a key, and of
    each partition the first ``errors_max`` of those with an error."""
    is_error = F.col("error").isNotNull()
    place = F.row_number().over(Window.partitionBy(*LOG, is_error).orderBy("error"))
    return (
        summary.where(F.col("key").isNull())
        .withColumn("place", place)
        .where(~is_error | (F.col("place") <= errors_max))
        .drop("place")
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


def top_keys(keys: DataFrame, least: DataFrame, *, count: int) -> DataFrame:
    """The ``count`` keys of each partition with the most records: key, records, bytes, place (from 1); of
    equals the least keys. ``least`` says how many records they have at least (topic, partition, least), so
    that few keys are sorted, however many there are; a partition that it does not name has none."""
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
