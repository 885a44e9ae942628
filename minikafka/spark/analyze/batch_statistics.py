"""What the headers of batches tell, without a record being decoded: of each partition sizes and damage, the
order of batches, producers and transactions; and whether the directories of several brokers hold the same.

All functions take a DataFrame with the columns of the ``kafka-log-batches`` source. The statistics are of one
in which every partition comes from one log directory: ``damaged`` finds what cannot be trusted, ``healthy``
is the rest, and they are to be made of that.

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

Kafka's replicas are byte for byte the same below the high watermark, but for where segments begin, and for
what a compaction has rewritten on each broker by itself. So replicas are compared batch by batch, by base
offset: last offset, size, leader epoch and the stored CRC, and whether that CRC is the one of the bytes; the
first difference of each partition is named. Compared is what all replicas must have as it was appended
(``limits_of``): from the greatest log start and the furthest point that any broker's cleaner has reached
(each compacts by itself) up to the least high watermark of the checkpoints. A directory without a checkpoint
has a high watermark of 0, so nothing of it is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from minikafka.log.files import parse_file_name
from minikafka.spark.analyze.analysis import Difference, LogId, ReplicaBatch, ReplicaComparison
from minikafka.spark.analyze.inputs import LogDirectory, known_broker
from minikafka.spark.source.log_files import PartitionLog
from minikafka.types import NO_TIMESTAMP, TopicPartition

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

_COMPARED = ("last_offset", "size", "leader_epoch", "crc")

_CRC_FROM = 21
"""Where the bytes begin that a batch's CRC is of."""


# ---- batches


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


# ---- sizes


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


# ---- order


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


# ---- producers and transactions


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


# ---- replicas


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


@dataclass(frozen=True)
class Limits:
    """What of a partition is compared."""

    from_offset: int
    to_offset: int
    """Exclusive."""
    logs: dict[int, PartitionLog]
    """By broker, in order."""


def limits_of(directories: Sequence[LogDirectory]) -> dict[LogId, Limits]:
    """The partitions that several brokers have."""
    found: dict[LogId, Limits] = {}
    for topic_partition in sorted({each for directory in directories for each in directory.logs}):
        holders = [directory for directory in directories if topic_partition in directory.logs]
        if len(holders) > 1:
            found[LogId(*topic_partition)] = _limits(topic_partition, holders)
    return found


def _limits(topic_partition: TopicPartition, holders: Sequence[LogDirectory]) -> Limits:
    logs = {known_broker(each): each.logs[topic_partition] for each in sorted(holders, key=known_broker)}
    starts = [log.log_start_offset for log in logs.values()]
    cleaned = [each.compacted_up_to.get(topic_partition, 0) for each in holders]
    return Limits(
        from_offset=max(starts + cleaned),
        to_offset=min(log.high_watermark or 0 for log in logs.values()),
        logs=logs,
    )


def check_replicas(
    batches: DataFrame, directories: Sequence[LogDirectory], limits: Mapping[LogId, Limits]
) -> list[ReplicaComparison]:
    """Compare; ``batches`` are those of all directories. Reads the bytes of batches that differ."""
    if not limits:
        return []
    spark = batches.sparkSession
    brokers = spark.createDataFrame(
        [(each.path, known_broker(each)) for each in directories if each.broker is not None],
        "log_dir string, broker int",
    )
    ranges = spark.createDataFrame(
        [(*log, each.from_offset, each.to_offset, len(each.logs)) for log, each in limits.items()],
        "topic string, partition int, from_offset long, to_offset long, replicas int",
    )
    of_brokers = batches.join(F.broadcast(brokers), ["log_dir"])
    totals = comparison_totals(comparisons(of_brokers, ranges)).persist()
    rows = {LogId(row.topic, row.partition): row for row in totals.collect()}
    at_difference: dict[LogId, list[Any]] = {}
    unreadable: dict[LogId, list[Any]] = {}
    if any(row.differences for row in rows.values()):
        for row in batches_at(of_brokers, totals).collect():
            at_difference.setdefault(LogId(row.topic, row.partition), []).append(row)
        for row in damaged(batches).join(F.broadcast(brokers), ["log_dir"]).collect():
            unreadable.setdefault(LogId(row.topic, row.partition), []).append(row)
    totals.unpersist()
    return [
        _comparison(log, each, rows.get(log), at_difference.get(log, []), unreadable.get(log, []))
        for log, each in limits.items()
    ]


def _comparison(
    log: LogId, limits: Limits, row: Any, there: Sequence[Any], unreadable: Sequence[Any]
) -> ReplicaComparison:
    return ReplicaComparison(
        topic=log.topic,
        partition=log.partition,
        brokers=list(limits.logs),
        from_offset=limits.from_offset,
        to_offset=limits.to_offset,
        batches=row.batches if row else 0,
        bytes=row.bytes if row else 0,
        differences=row.differences if row else 0,
        first=_difference(row.first_difference, limits, there, unreadable)
        if row and row.differences
        else None,
    )


def _difference(offset: int, limits: Limits, there: Sequence[Any], unreadable: Sequence[Any]) -> Difference:
    batches = []
    for broker, log in limits.logs.items():
        found = next((row for row in there if row.broker == broker), None)
        if found is not None:
            batches.append(_replica_batch(broker, log, found))
            continue
        piece = next((row for row in unreadable if row.broker == broker), None)
        batches.append(_absent(broker, log, piece))
    return Difference(offset=offset, what=_what(batches), batches=batches)


def _replica_batch(broker: int, log: PartitionLog, row: Any) -> ReplicaBatch:
    parsed = parse_file_name(row.segment)
    assert parsed is not None, row.segment
    file = log.storage.open(log.file(parsed[0]))
    try:
        data = file.read(row.position, row["size"])
    finally:
        file.close()
    return ReplicaBatch(
        broker=broker,
        file=log.shown(parsed[0]),
        position=row.position,
        last_offset=row.last_offset,
        leader_epoch=row.leader_epoch,
        size=row["size"],
        stored_crc=row.crc,
        actual_crc=crc32c(memoryview(data)[_CRC_FROM:]),
    )


def _absent(broker: int, log: PartitionLog, piece: Any) -> ReplicaBatch:
    """A broker without the batch: where it has something unreadable instead, that is the place to look at."""
    return ReplicaBatch(
        broker=broker,
        file=None if piece is None else f"{log.name}/{piece.segment}",
        position=None if piece is None else piece.position,
        last_offset=None,
        leader_epoch=None,
        size=None,
        stored_crc=None,
        actual_crc=None,
    )


def _what(batches: Sequence[ReplicaBatch]) -> str:
    """The difference in words."""
    said = []
    for batch in batches:
        if batch.stored_crc is None:
            where = "" if batch.file is None else f", but an unreadable batch at position {batch.position}"
            said.append(f"broker {batch.broker} has no batch there{where}")
        elif batch.stored_crc != batch.actual_crc:
            said.append(f"the bytes of broker {batch.broker} do not have the CRC of their header")
    have = [batch for batch in batches if batch.stored_crc is not None]
    for name, words in (
        ("stored_crc", "CRCs"),
        ("leader_epoch", "leader epochs"),
        ("last_offset", "last offsets"),
        ("size", "sizes"),
    ):
        if len({getattr(batch, name) for batch in have}) > 1:
            said.append(f"the {words} differ")
    return "; ".join(said)
