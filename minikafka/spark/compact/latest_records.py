"""The keys of a compaction as DataFrames: which records are the newest, what the batches say of
transactions and producers, and what a compaction has changed. Kafka: ``Cleaner.buildOffsetMap`` and
``LogCleanerManager``, with a shuffle in the place of a map in memory.

``records`` has columns of the source ``kafka-log``, ``batches`` of ``kafka-log-batches``; ``LOG`` tells
the logs of one apart.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

LOG: Final = ("topic", "partition")

BEGINS_A_GROUP: Final = -1
"""In the place of an offset: every group has one such row, so that groups of which nothing stays are
there."""


def newest_of_keys(records: DataFrame) -> DataFrame:
    """Of each key the offset of its newest record: topic, partition, key, offset. Records without a key
    are none.

    ``records`` end where the log may no longer be compacted, and have no records of aborted transactions.
    """
    keyed = records.where(f.col("key").isNotNull())
    return keyed.groupBy(*LOG, "key").agg(f.max("offset").alias("offset"))


def offsets_by_group(newest: DataFrame, groups: DataFrame, *, group_count: int) -> DataFrame:
    """``newest`` as a partition for each group of segments: group, offset; the offsets ascending, the
    first one ``BEGINS_A_GROUP``.

    Args:
        groups: topic, partition, group (0 to ``group_count`` - 1), first_offset, end_offset (exclusive).
    """
    in_group = (
        (newest["topic"] == groups["topic"])
        & (newest["partition"] == groups["partition"])
        & (newest["offset"] >= groups["first_offset"])
        & (newest["offset"] < groups["end_offset"])
    )
    retained = newest.join(f.broadcast(groups), in_group).select(groups["group"], newest["offset"])
    beginnings = groups.select("group", f.lit(BEGINS_A_GROUP).cast("long").alias("offset"))
    by_group = retained.unionByName(beginnings).repartitionById(group_count, f.col("group"))
    return by_group.sortWithinPartitions("offset")


def producers_by_segment(batches: DataFrame) -> DataFrame:
    """What each segment has of each producer (-1: none): topic, partition, segment, producer_id and

    max_timestamp         of its batches, milliseconds
    producer_epoch        the highest
    data_of_epoch         struct (producer_epoch, last_offset) of its last data batch; null without data
    transactional_data    base offset of its last transactional data batch; null without
    marker                base offset of its last marker; null without
    batches               how many
    """
    is_data = ~f.col("is_control")
    is_marker = f.col("is_control") & (f.col("records") > 0) & (f.col("producer_id") >= 0)
    is_transactional = is_data & f.col("is_transactional")
    return batches.groupBy(*LOG, "segment", "producer_id").agg(
        f.max("max_timestamp").alias("max_timestamp"),
        f.max("producer_epoch").alias("producer_epoch"),
        _latest(is_data, f.struct("producer_epoch", "last_offset")).alias("data_of_epoch"),
        _latest(is_transactional, f.col("base_offset")).alias("transactional_data"),
        _latest(is_marker, f.col("base_offset")).alias("marker"),
        f.count("*").alias("batches"),
    )


def first_open_offsets(batches: DataFrame, markers: DataFrame) -> DataFrame:
    """Where the transactions began that have no end: topic, partition, producer_id, offset.

    Args:
        markers: topic, partition, producer_id, marker: of producers with an open transaction the base
        offset of
            their last marker (-1: they have none).
    """
    data = batches.where(f.col("is_transactional") & ~f.col("is_control"))
    behind = data.join(f.broadcast(markers), [*LOG, "producer_id"]).where(
        f.col("base_offset") > f.col("marker")
    )
    return behind.groupBy(*LOG, "producer_id").agg(f.min("base_offset").alias("offset"))


def changed_keys(before: DataFrame, after: DataFrame, newest: DataFrame) -> DataFrame:
    """The keys whose newest record is another one after a compaction, or missing though it is no
    tombstone, or there though it was not: topic, partition, key, offset_before, offset_after (null:
    missing).

    Args:
        before: the records that were compacted, with ``after``'s columns topic, partition, key, offset, value
            and timestamp, and headers where there are any.
        after: the records of the new segments.
        newest: ``newest_of_keys`` of ``before``.
    """
    was = _with_content(before).join(newest.select(*LOG, "offset"), [*LOG, "offset"], "left_semi")
    left = was.where(f.col("key").isNotNull()).select(
        *LOG,
        "key",
        f.col("offset").alias("offset_before"),
        f.col("content").alias("content_before"),
        f.col("is_tombstone"),
    )
    right = _with_content(after).select(
        *LOG, "key", f.col("offset").alias("offset_after"), f.col("content").alias("content_after")
    )
    is_same = f.col("offset_before").eqNullSafe(f.col("offset_after")) & f.col("content_before").eqNullSafe(
        f.col("content_after")
    )
    has_expired = f.col("offset_after").isNull() & f.col("is_tombstone")
    both = left.join(right, [*LOG, "key"], "full_outer")
    return both.where(~(is_same | f.coalesce(has_expired, f.lit(False)))).select(
        *LOG, "key", "offset_before", "offset_after"
    )


def _with_content(records: DataFrame) -> DataFrame:
    columns = [name for name in ("value", "timestamp", "headers") if name in records.columns]
    return records.select(
        *LOG,
        "key",
        "offset",
        f.xxhash64(*columns).alias("content"),
        f.col("value").isNull().alias("is_tombstone"),
    )


def _latest(condition: Column, value: Column) -> Column:
    return f.max(f.when(condition, value))
