"""The format ``kafka-log-sums``: records by key and by size, added up in the tasks that decode them.

For ``minikafka analyze``: it takes the options of ``kafka-log`` but for ``columns``, and its rows are those
of ``record_sums``. Ten million records with a million keys come to Spark as one or two million rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from minikafka.spark.source.datasource import KafkaLogDataSource, KafkaLogReader
from minikafka.spark.source.options import SPLIT_BYTES, BadOption, ReadOptions, parse_options
from minikafka.spark.source.record_sums import SUMMED_COLUMNS, SUMS_SCHEMA, summed
from minikafka.spark.source.schemas import RECORD_SCHEMA, chosen_columns
from minikafka.spark.source.tasks import SplitPartition, read_splits

FORMAT: Final = "kafka-log-sums"


class KafkaLogSumsReader(KafkaLogReader):
    """A read of records that are added up."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options, chosen_columns(SUMMED_COLUMNS, RECORD_SCHEMA))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitPartition)
        for log, splits in groupby(partition.splits, key=lambda split: split.topic_partition):
            records = read_splits(
                self.split_reader, SplitPartition(tuple(splits)), self._columns, self._options
            )
            yield from summed(records, log)


class KafkaLogSumsDataSource(KafkaLogDataSource):
    """``spark.read.format("kafka-log-sums")``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SUMS_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options, split_bytes=SPLIT_BYTES)
        if options.columns is not None or schema != SUMS_SCHEMA:
            raise BadOption(f"{FORMAT} has always the same columns: {', '.join(SUMS_SCHEMA.names)}")
        return KafkaLogSumsReader(options)
