"""Where a record lies in an export: partition columns from its topic and timestamp, in UTC."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

BY_DATE, BY_HOUR = "date", "hour"
PARTITION_COLUMNS = {BY_DATE: ["topic", "date"], BY_HOUR: ["topic", "date", "hour"]}


def lay_out(frame: DataFrame, by: str) -> DataFrame:
    """With ``date`` (and ``hour``), each task's rows in the order of its files, inside them by offset."""
    frame = frame.withColumn("date", F.date_format("timestamp", "yyyy-MM-dd"))
    if by == BY_HOUR:
        frame = frame.withColumn("hour", F.date_format("timestamp", "HH"))
    return frame.sortWithinPartitions(*PARTITION_COLUMNS[by], "partition", "offset")
