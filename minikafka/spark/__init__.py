"""Spark on segment files: log directories read as DataFrames, straight from storage, without a broker.

``register(spark)`` makes the formats known to a session: ``kafka-log`` (records) and ``kafka-log-batches``
(batch headers). The modules on the way from bytes to rows, each below those that use it:

    schemas          the columns, as Spark and as Arrow name their types
    storage          list, open and read: local directories, and whatever pyarrow.fs reaches
    log_files        which partitions and segments a log directory has
    options          what a user may say
    segment_scan     a walk through a segment: its batches and their headers
    log_index        the index files as arrays
    varints, record_starts, header_columns, record_headers, decode
                     from the bytes of batches to Arrow columns
    splits           segments cut into pieces at batch boundaries
    split_reader     a task's work: find, check, decode; what becomes of damage and of files that went
    transactions, log_bounds, filters, planning
                     what is read of each log
    tasks, datasource, batches, stream
                     Spark's side
    record_sums, sums_source
                     records added up before Spark sees them, for ``minikafka analyze``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the data sources known to a session.

    Filters skip partitions and segments if the session has ``spark.sql.python.filterPushdown.enabled`` by
    now; else they are left to Spark.
    """
    from minikafka.spark.batches import KafkaLogBatchesDataSource, KafkaLogBatchesPushdownDataSource
    from minikafka.spark.datasource import KafkaLogDataSource, KafkaLogPushdownDataSource

    pushes_down = spark.conf.get(_FILTER_PUSHDOWN, "false") == "true"
    spark.dataSource.register(KafkaLogPushdownDataSource if pushes_down else KafkaLogDataSource)
    spark.dataSource.register(KafkaLogBatchesPushdownDataSource if pushes_down else KafkaLogBatchesDataSource)
