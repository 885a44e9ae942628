"""What only the records tell: sizes, keys, tombstones, what compaction would save.

The log is read and decoded once, by ``record_sums``, which adds up records by key and by size where it
decodes them. ``summarised`` adds these sums up, and everything else is made of its outcome, which has a row
for each key of a partition and some hundred for its sizes.

A record's size here is that of its key and value, without headers and the few bytes of the format. Sizes are
counted in buckets whose limits grow by 2^(1/32): a size stands for those up to 1.1 % away (below 45 bytes:
itself), which is the error of the quantiles. Keys are compared as they are, so their numbers are exact; only
the number of keys of a topic with several partitions is an estimate (HyperLogLog, standard deviation 1 %).
Aborted records count as records.

From the few rows that records came to, the figures of partitions and topics: plain arithmetic, no Spark.

Sizes are counted in buckets (``record_sums.size_buckets``): a partition has some hundred of them. How many
records keys have differs little: a partition has a row for each such number (``key_frequencies``), and
numbers that differ cannot be many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from minikafka.spark.analyze.batch_statistics import LOG, count_if, sum_if
from minikafka.spark.source.record_sums import BUCKETS_PER_DOUBLING

TIES_MAX = 1_000
"""Keys with the same number of records among which some may be top keys."""


class SizeTotals(NamedTuple):
    """Of a partition's records; sizes are bytes."""

    records: int
    bytes: int
    tombstones: int
    size_min: int
    size_max: int
    quantiles: list[int]
    """The smallest size that at least that share of the records does not exceed."""


class KeyTotals(NamedTuple):
    """Of a partition's keys; null is none."""

    keys: int
    keys_once: int
    """With one record."""
    records_max: int
    """Of one key."""
    superseded_records: int
    """Those whose key has a newer one."""
    superseded_bytes: int
    newest_tombstones: int
    """Keys whose newest record is one."""
    newest_tombstone_bytes: int


class SizesFrom(NamedTuple):
    """Records of ``size_min`` (0, 1, 2, 4 …) to below twice as many bytes."""

    size_min: int
    records: int
    bytes: int


class KeysFrom(NamedTuple):
    """Keys with ``records_min`` (1, 2, 4 …) to below twice as many records; one in several partitions counts
    in each."""

    records_min: int
    keys: int
    records: int


def size_of_bucket(bucket: int) -> int:
    """The size in bytes that a bucket stands for."""
    return round(math.pow(2.0, bucket / BUCKETS_PER_DOUBLING) - 1)


def size_totals(sizes: Iterable[Any], quantiles: Sequence[float]) -> SizeTotals:
    """Of one partition's rows (bucket, records, bytes, tombstones), at least one; ``quantiles`` ascend."""
    rows = sorted(sizes, key=lambda row: row.bucket)
    records = sum(row.records for row in rows)
    found: list[int] = []
    up_to = 0
    for row in rows:
        up_to += row.records
        while len(found) < len(quantiles) and up_to >= quantiles[len(found)] * records:
            found.append(size_of_bucket(row.bucket))
    return SizeTotals(
        records,
        sum(row.bytes for row in rows),
        sum(row.tombstones for row in rows),
        size_of_bucket(rows[0].bucket),
        size_of_bucket(rows[-1].bucket),
        found,
    )


def size_histogram(sizes: Iterable[Any]) -> list[SizesFrom]:
    """Of a topic's rows, by size."""
    found: dict[int, SizesFrom] = {}
    for row in sizes:
        least = _power_of_two(size_of_bucket(row.bucket))
        _, records, size = found.get(least, SizesFrom(least, 0, 0))
        found[least] = SizesFrom(least, records + row.records, size + row.bytes)
    return [found[least] for least in sorted(found)]


def key_totals(frequencies: Sequence[Any]) -> KeyTotals:
    """Of one partition's rows of ``key_frequencies``, at least one."""
    return KeyTotals(
        keys=sum(row["keys"] for row in frequencies),
        keys_once=sum(row["keys"] for row in frequencies if row.records == 1),
        records_max=max(row.records for row in frequencies),
        superseded_records=sum((row.records - 1) * row["keys"] for row in frequencies),
        superseded_bytes=sum(row.superseded_bytes for row in frequencies),
        newest_tombstones=sum(row.newest_tombstones for row in frequencies),
        newest_tombstone_bytes=sum(row.newest_tombstone_bytes for row in frequencies),
    )


def key_histogram(frequencies: Iterable[Any]) -> list[KeysFrom]:
    """Of a topic's rows of ``key_frequencies``, by number."""
    found: dict[int, KeysFrom] = {}
    for row in frequencies:
        least = _power_of_two(row.records)
        _, keys, records = found.get(least, KeysFrom(least, 0, 0))
        found[least] = KeysFrom(least, keys + row["keys"], records + row.records * row["keys"])
    return [found[least] for least in sorted(found)]


def top_keys_least(frequencies: Iterable[Any], *, count: int, ties_max: int = TIES_MAX) -> int | None:
    """How many records a partition's ``count`` top keys have at least; None: there are none.

    No key stands out that has one record, or as many as more than ``ties_max`` others: such are left out.
    """
    least, above = None, 0
    for row in sorted(frequencies, key=lambda row: -row.records):
        if row.records > 1 and row["keys"] <= ties_max and above < count:
            least = row.records
        above += row["keys"]
    return least


def _power_of_two(number: int) -> int:
    """The greatest that is not above; 0 for 0."""
    return 1 << number.bit_length() - 1 if number else 0


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
