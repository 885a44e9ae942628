"""What the headers of batches tell of each partition, without a record being decoded: sizes and damage, the
order of batches, producers and transactions.

All functions take a DataFrame with the columns of the ``kafka-log-batches`` source in which every partition
comes from one log directory. ``damaged`` finds what cannot be trusted, ``healthy`` is the rest, and the
statistics are to be made of that.

Control batches (markers of transactions) are part of a log's bytes and batches, and of nothing that is about
records. Kafka's cleaner keeps an emptied batch as a header, so a batch may have no records.

Missing offsets and timestamps that go back are found by comparing a batch with those before it, by base
offset. A gap is what compaction, removed aborted transactions or lost segments leave; an overlap is never
right. A batch is late when its first record's timestamp is below the greatest one of an earlier batch:
headers do not know the order inside a batch.

An idempotent producer's batch (KIP-98) has its id, epoch and first sequence; a broker drops one that it has
already, so the same three in two batches are a duplicate that got past it. (Sequences begin again after
2³¹ records of one producer; a partition with that many of one epoch would show some that are none.)

A transaction of a producer in a partition is its transactional batches up to its next marker. One without a
marker is open (or is the end of a log that was cut there); a marker without batches ended a transaction whose
batches are gone, or that had none here.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from minikafka.types import NO_TIMESTAMP

LOG = ("topic", "partition")
"""What every statistic is grouped by."""

LOG_APPEND_TIME = 1
BATCH_QUANTILES = (0.5, 0.99)
_ACCURACY = 10_000
"""Of ``percentile_approx``: the rank is wrong by at most 1 in this."""

CODEC, LEADER_EPOCH, SEGMENT, START_MS = BREAKDOWNS = ("codec", "leader_epoch", "segment", "start_ms")
"""What the figures of ``breakdowns`` are grouped by."""

COMMITTED, ABORTED, OPEN, EMPTY = "committed", "aborted", "open", "empty"
"""States of a transaction; EMPTY is a marker without batches."""

COMMIT, ABORT = "COMMIT", "ABORT"
"""What ``control_type`` says of a marker."""


def is_damaged() -> Column:
    """A piece that is no batch, or a batch whose CRC is wrong."""
    return F.col("error").isNotNull() | ~F.coalesce("crc_ok", F.lit(True))


def healthy(batches: DataFrame) -> DataFrame:
    """The batches that are what they say."""
    return batches.where(~is_damaged())


def damaged(batches: DataFrame) -> DataFrame:
    """The others: topic, partition, log_dir, segment, position, base_offset (null: not known), error."""
    what = F.coalesce("error", F.lit("its CRC-32C is wrong"))
    return batches.where(is_damaged()).select(
        *LOG, "log_dir", "segment", "position", "base_offset", what.alias("error")
    )


def is_data() -> Column:
    """A batch of records, not of markers."""
    return ~F.col("is_control")


def first_timestamp() -> Column:
    """The timestamp (ms) of a batch's first record, as far as the header knows it, else of its latest.

    With LogAppendTime all records have the batch's; a delete horizon stands where the first timestamp was.
    """
    unknown = (F.col("timestamp_type") == LOG_APPEND_TIME) | F.col("delete_horizon").isNotNull()
    first = F.when(unknown, F.col("max_timestamp")).otherwise(F.col("base_timestamp"))
    return F.when(first > NO_TIMESTAMP, first)


def latest_timestamp() -> Column:
    """The greatest timestamp (ms) of a batch's records; null for none."""
    return F.when(F.col("max_timestamp") > NO_TIMESTAMP, F.col("max_timestamp"))


def count_if(condition: Column) -> Column:
    """How many rows of a group are so."""
    return F.count(F.when(condition, 1))


def sum_if(condition: Column, value: Column) -> Column:
    """The sum over the rows of a group that are so; 0 for none."""
    return F.coalesce(F.sum(F.when(condition, value)), F.lit(0))


def first_of_each(rows: DataFrame, order: str, count: int) -> DataFrame:
    """The ``count`` rows of each partition that come first by ``order``."""
    place = F.row_number().over(Window.partitionBy(*LOG).orderBy(order))
    return rows.withColumn("place", place).where(F.col("place") <= count).drop("place")


def partition_totals(batches: DataFrame, batch_size: int) -> DataFrame:
    """One row a partition: records, bytes, batches, offsets, timestamps (ms), batch fill.

    ``filled_bytes`` are those of data batches, of each ``batch_size`` at most: one that is larger was made by
    a producer with a larger batch.size, and is full. ``records_quantiles`` and ``size_quantiles`` (bytes) are
    BATCH_QUANTILES over data batches, approximate: their rank is wrong by at most 1 in 10,000.
    """
    data, records, size = is_data(), F.col("records"), F.col("size")
    quantiles = list(BATCH_QUANTILES)
    missing_inside = F.col("last_offset") - F.col("base_offset") + 1 - records
    return batches.groupBy(*LOG).agg(
        sum_if(data, records).alias("records"),
        F.sum(size).alias("bytes"),
        sum_if(data, size).alias("data_bytes"),
        sum_if(data, F.least(size, F.lit(batch_size))).alias("filled_bytes"),
        count_if(data).alias("batches"),
        count_if(~data).alias("control_batches"),
        count_if(data & F.col("is_transactional")).alias("transactional_batches"),
        count_if(data & (F.col("producer_id") >= 0)).alias("idempotent_batches"),
        count_if(data & (records == 1)).alias("single_record_batches"),
        count_if(data & (F.col("timestamp_type") == LOG_APPEND_TIME)).alias("log_append_time_batches"),
        F.min("base_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.min(F.when(data, first_timestamp())).alias("first_timestamp"),
        F.max(F.when(data, latest_timestamp())).alias("last_timestamp"),
        sum_if(data, missing_inside).alias("missing_inside"),
        F.max(F.when(data, records)).alias("records_max"),
        F.max(F.when(data, size)).alias("size_max"),
        F.percentile_approx(F.when(data, records), quantiles, _ACCURACY).alias("records_quantiles"),
        F.percentile_approx(F.when(data, size), quantiles, _ACCURACY).alias("size_quantiles"),
    )


def breakdowns(batches: DataFrame, widths: DataFrame) -> DataFrame:
    """What each codec, leader epoch, segment and piece of time of a partition has, in one pass: rows with
    ``of``, one of BREAKDOWNS, and a value in the column of that name.

    first_offset, last_offset, batches, records (of data), bytes as they are stored, max_timestamp (ms; null:
    of none). Batches and bytes of codecs and time buckets are those of data. A batch counts where its
    latest record is, whole; ``start_ms`` is where a piece of time begins, and ``widths`` says how long one
    is: topic, bucket_ms.
    """
    start = F.floor(F.col("max_timestamp") / F.col("bucket_ms")) * F.col("bucket_ms")
    is_placed = is_data() & latest_timestamp().isNotNull()
    added = (
        batches.join(F.broadcast(widths), ["topic"], "left")
        .withColumn("start_ms", F.when(is_placed, start.cast("long")))
        .groupingSets([[*LOG, name] for name in BREAKDOWNS], *LOG, *BREAKDOWNS)
        .agg(
            F.grouping_id().alias("grouping"),
            F.min("base_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.count("*").alias("all_batches"),
            count_if(is_data()).alias("data_batches"),
            sum_if(is_data(), F.col("records")).alias("records"),
            F.sum("size").alias("all_bytes"),
            sum_if(is_data(), F.col("size")).alias("data_bytes"),
            F.max(latest_timestamp()).alias("max_timestamp"),
        )
    )
    of = F.lit(None)
    for place, name in enumerate(reversed(BREAKDOWNS)):  # a bit is 1 where the column is not grouped by
        of = F.when(F.col("grouping") == (1 << len(BREAKDOWNS)) - 1 - (1 << place), name).otherwise(of)
    takes_all = F.col("of").isin(LEADER_EPOCH, SEGMENT)
    return (
        added.withColumn("of", of)
        .withColumn("batches", F.when(takes_all, F.col("all_batches")).otherwise(F.col("data_batches")))
        .withColumn("bytes", F.when(takes_all, F.col("all_bytes")).otherwise(F.col("data_bytes")))
        .where((F.col("batches") > 0) & ((F.col("of") != START_MS) | F.col("start_ms").isNotNull()))
        .drop("grouping", "all_batches", "data_batches", "all_bytes", "data_bytes")
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


def duplicates(batches: DataFrame) -> DataFrame:
    """One row for each producer_id, producer_epoch and base_sequence that several batches have:
    first_offset and last_offset (base offsets of the first and the last of them), batches and records beyond
    the first."""
    return (
        batches.where(is_data() & (F.col("producer_id") >= 0) & (F.col("base_sequence") >= 0))
        .groupBy(*LOG, "producer_id", "producer_epoch", "base_sequence")
        .agg(
            F.min("base_offset").alias("first_offset"),
            F.max("base_offset").alias("last_offset"),
            (F.count("*") - 1).alias("batches"),
            (F.sum("records") - F.min_by("records", "base_offset")).alias("records"),
        )
        .where(F.col("batches") > 0)
    )


def producers(batches: DataFrame, count: int) -> DataFrame:
    """Who wrote a topic: rows of the ``count`` producers with the most bytes of each. producer_id (-1: all
    that have none), producer_epoch (the newest), partitions (how many it wrote to), batches, records, bytes,
    codecs, is_transactional, first_timestamp and last_timestamp (ms; null: none), and ``known``, how many
    the topic has."""
    topic = Window.partitionBy("topic")
    return (
        batches.where(is_data())
        .groupBy("topic", "producer_id")
        .agg(
            F.max("producer_epoch").alias("producer_epoch"),
            F.count_distinct("partition").alias("partitions"),
            F.count("*").alias("batches"),
            F.sum("records").alias("records"),
            F.sum("size").alias("bytes"),
            F.sort_array(F.collect_set("codec")).alias("codecs"),
            F.max("is_transactional").alias("is_transactional"),
            F.min(first_timestamp()).alias("first_timestamp"),
            F.max(latest_timestamp()).alias("last_timestamp"),
        )
        .withColumn("known", F.count("*").over(topic))
        .withColumn("place", F.row_number().over(topic.orderBy(F.desc("bytes"), "producer_id")))
        .where(F.col("place") <= count)
        .orderBy("topic", "place")
        .drop("place")
    )


def duplicate_totals(duplicates: DataFrame) -> DataFrame:
    """One row a partition that has any: batches and records that are there once too often."""
    return duplicates.groupBy(*LOG).agg(F.sum("batches").alias("batches"), F.sum("records").alias("records"))


def transactions(batches: DataFrame) -> DataFrame:
    """One row a transaction: producer_id, producer_epoch, state, first_offset and last_offset of its
    batches, records, bytes, marker_offset (null while open)."""
    earlier = (
        Window.partitionBy(*LOG, "producer_id")
        .orderBy("base_offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    marker = F.col("is_control")
    number = F.coalesce(F.sum(marker.cast("int")).over(earlier), F.lit(0))
    ended = F.when(F.col("control_type") == COMMIT, COMMITTED).when(F.col("control_type") == ABORT, ABORTED)
    state = (
        F.when(F.col("marker_offset").isNull(), OPEN)
        .when(F.col("first_offset").isNull(), EMPTY)
        .otherwise(ended)
    )
    return (
        batches.where((F.col("is_transactional") | marker) & (F.col("producer_id") >= 0))
        .withColumn("number", number)
        .groupBy(*LOG, "producer_id", "number")
        .agg(
            F.max("producer_epoch").alias("producer_epoch"),
            F.min(F.when(~marker, F.col("base_offset"))).alias("first_offset"),
            F.max(F.when(~marker, F.col("last_offset"))).alias("last_offset"),
            sum_if(~marker, F.col("records")).alias("records"),
            sum_if(~marker, F.col("size")).alias("bytes"),
            F.max(F.when(marker, F.col("base_offset"))).alias("marker_offset"),
            F.max("control_type").alias("control_type"),
        )
        .withColumn("state", state)
        .drop("number", "control_type")
    )


def transaction_totals(transactions: DataFrame) -> DataFrame:
    """One row a partition that has any: for each state its transactions, records and bytes."""
    columns = []
    for name in (COMMITTED, ABORTED, OPEN):
        so = F.col("state") == name
        columns += [
            count_if(so).alias(name),
            sum_if(so, F.col("records")).alias(f"{name}_records"),
            sum_if(so, F.col("bytes")).alias(f"{name}_bytes"),
        ]
    columns.append(count_if(F.col("state") == EMPTY).alias(EMPTY))
    return transactions.groupBy(*LOG).agg(*columns)
