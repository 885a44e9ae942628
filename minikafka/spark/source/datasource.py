"""The format ``kafka-log``: Spark's Data Source API on one side, plans and splits on the
other.

Spark pickles the source and the reader, plans in a Python process of the driver, and calls ``read`` in a
Python process of each task; what comes back are Arrow batches. Spark (4.3) tells a Python source nothing of
the columns that a query uses, so whoever wants few names them: with a schema, or with the option
``columns``. Filters it does tell, if ``spark.sql.python.filterPushdown.enabled`` is true; and it
refuses a source that could take them while it is not. So there are two readers, and ``register`` chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from minikafka.spark.source.decoding.decode import needs_records
from minikafka.spark.source.filters import Search, narrowed
from minikafka.spark.source.options import (
    HEADER_SPLIT_BYTES,
    SPLIT_BYTES,
    BadOption,
    OnCorrupt,
    Reading,
    ReadOptions,
    parse_options,
)
from minikafka.spark.source.planning import check_named, selected_logs, splits_of, wanted_of
from minikafka.spark.source.schemas import RECORD_SCHEMA, chosen_columns, record_schema
from minikafka.spark.source.split_reader import SplitReader
from minikafka.spark.source.stream import KafkaLogStreamReader
from minikafka.spark.source.tasks import check_schema, read_splits, tasks_of

FORMAT = "kafka-log"


class KafkaLogReader(DataSourceReader):
    """A batch read."""

    split_reader: type[SplitReader] = SplitReader

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options, self.split_reader)
        self._options = options
        self._columns = schema.names
        self._search = Search()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        logs = selected_logs(options)
        for limit in (options.starting, options.ending):
            check_named(limit, logs)
        splits = [
            split
            for log in logs
            if self._search.includes(log.topic_partition)
            for split in splits_of(wanted_of(log, options), options, self._search)
        ]
        return tasks_of(splits, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_splits(
            self.split_reader, partition, self._columns, self._options, self._search.timestamp_ms_min
        )


class KafkaLogPushdownReader(KafkaLogReader):
    """A batch read that is told of the query's filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 Spark's name
        self._search = narrowed(filters)
        return filters  # each narrows the search, none is left for Spark to trust


class KafkaLogDataSource(DataSource):
    """``spark.read.format("kafka-log")``."""

    reader_class: type[KafkaLogReader] = KafkaLogReader

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return default_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        split_bytes = SPLIT_BYTES if needs_records(schema.names) else HEADER_SPLIT_BYTES
        return self.reader_class(parse_options(self.options, split_bytes=split_bytes), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        return KafkaLogStreamReader(parse_options(self.options, Reading.STREAM), schema)


class KafkaLogPushdownDataSource(KafkaLogDataSource):
    """The same for a session that hands filters down."""

    reader_class = KafkaLogPushdownReader


def default_schema(given: Mapping[str, str]) -> StructType:
    """The columns where the user gives no schema. Spark does not say whether a stream asks."""
    try:
        options = parse_options(given)
    except BadOption as error:
        try:
            options = parse_options(given, Reading.STREAM)
        except BadOption:
            raise error from None
    if options.columns is not None:
        return chosen_columns(options.columns, RECORD_SCHEMA)
    return record_schema(
        with_headers=options.include_headers, with_error=options.on_corrupt is OnCorrupt.COLUMN
    )
