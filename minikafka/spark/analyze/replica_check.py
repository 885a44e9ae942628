"""Whether the directories of several brokers hold the same: which offsets to compare, and the first
difference of each partition by name.

Kafka's replicas are byte for byte the same below the high watermark, but for where segments begin, and for
what a compaction has rewritten on each broker by itself. So batches are compared by their base offset: last
offset, size, leader epoch and the stored CRC, and whether that CRC is the one of the bytes.

Compared is what all replicas must have as it was appended (``limits_of``): from the greatest log start and
the furthest point that any broker's cleaner has reached (each compacts by itself) up to the least high
watermark of the checkpoints. A directory without a checkpoint has a high watermark of 0, so nothing of it is
compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from minikafka.log.files.names import parse_file_name
from minikafka.spark.analyze.analysis import Difference, LogId, ReplicaBatch, ReplicaComparison
from minikafka.spark.analyze.batch_statistics import LOG, count_if, damaged, is_damaged
from minikafka.spark.analyze.inputs import LogDirectory, known_broker
from minikafka.spark.source.log_files import PartitionLog
from minikafka.types import TopicPartition

_COMPARED = ("last_offset", "size", "leader_epoch", "crc")

_CRC_FROM = 21
"""Where the bytes begin that a batch's CRC is of."""


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
