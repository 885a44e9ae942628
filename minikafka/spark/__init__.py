"""Spark on segment files: log directories read as DataFrames, straight from storage, without a broker.

``register(spark)`` makes the formats known to a session: ``kafka-log`` (records) and ``kafka-log-batches``
(batch headers); ``source`` is how. Jobs on them: ``analyze``, ``compact``, ``export``.
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
    from minikafka.spark.source.datasource import (
        KafkaLogBatchesDataSource,
        KafkaLogBatchesPushdownDataSource,
        KafkaLogDataSource,
        KafkaLogPushdownDataSource,
    )

    pushes_down = spark.conf.get(_FILTER_PUSHDOWN, "false") == "true"
    spark.dataSource.register(KafkaLogPushdownDataSource if pushes_down else KafkaLogDataSource)
    spark.dataSource.register(KafkaLogBatchesPushdownDataSource if pushes_down else KafkaLogBatchesDataSource)
