"""What idempotent and transactional producers left in a log.

Kafka: KIP-98. A producer's batch has its id, epoch and first sequence; a broker drops one that it has
already, so the same three in two batches are a duplicate that got past it. (Sequences begin again after
2³¹ records of one producer; a partition with that many of one epoch would show some that are none.)

A transaction of a producer in a partition is its transactional batches up to its next marker. One without a
marker is open (or is the end of a log that was cut there); a marker without batches ended a transaction whose
batches are gone, or that had none here.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from minikafka.spark.analyze.batch_statistics import LOG, count_if, is_data, sum_if

COMMITTED, ABORTED, OPEN, EMPTY = "committed", "aborted", "open", "empty"
"""States of a transaction; EMPTY is a marker without batches."""

COMMIT, ABORT = "COMMIT", "ABORT"
"""What ``control_type`` says of a marker."""


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
