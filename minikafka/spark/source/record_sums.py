"""What many records add up to, by key and by size: made where they are decoded, so that Spark is handed a row
for each key of a piece of log instead of each record.

It is the format ``kafka-log-sums``, for ``minikafka analyze``: it takes the options of ``kafka-log`` but for
``columns``. Ten million records with a million keys come to Spark as one or two million rows.

Adding up is pure: Arrow batches in, Arrow batches of ``SUMS_SCHEMA`` out. Sums are partial: a key has a row
in each piece that it is in, and more where a piece has more keys than are held at once.
``analyze.passes.summarised`` adds them up.

A record's size here is that of its key and value, without headers and the few bytes of the format. Sizes are
counted in buckets whose limits grow by 2^(1/32).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from minikafka.spark.source.datasource import KafkaLogDataSource, KafkaLogReader
from minikafka.spark.source.options import SPLIT_BYTES, BadOption, ReadOptions, parse_options
from minikafka.spark.source.schemas import RECORD_SCHEMA, arrow_schema, chosen_columns
from minikafka.spark.source.split_reader import SplitPartition, read_splits
from minikafka.types import TopicPartition

SUMMED_COLUMNS: Final = ("offset", "key", "value_size", "error")
"""Of the records."""

SUMS_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("key", BinaryType()),
        StructField("bucket", IntegerType()),
        StructField("error", StringType()),
        StructField("records", LongType()),
        StructField("bytes", LongType()),
        StructField("tombstones", LongType()),
        StructField("offset", LongType()),
        StructField("newest", LongType()),
    ]
)
"""Three kinds of rows. By size: ``bucket`` is not null. Damage: ``error`` is not. By key, of records without
one too: both are null; ``offset`` is that of the newest record, ``newest`` twice its size, and one for a
tombstone, and ``tombstones`` is not counted."""

BUCKETS_PER_DOUBLING: Final = 32
_BUCKETS: Final = 33 * BUCKETS_PER_DOUBLING
"""Key and value have 31 bits of length each."""

ROWS_MAX: Final = 1 << 20
KEY_BYTES_MAX: Final = 64 << 20
"""What is held before it is added up; about 50 bytes a row besides the key."""

_ARROW: Final = arrow_schema(SUMS_SCHEMA.names, SUMS_SCHEMA)
_BY_KEY: Final = arrow_schema(("key", "records", "bytes", "offset", "newest"), SUMS_SCHEMA)
_SUMS: Final = [("records", "sum"), ("bytes", "sum"), ("offset", "last"), ("newest", "last")]

Int64s = npt.NDArray[np.int64]
_Columns = dict[str, pa.Array]

FORMAT: Final = "kafka-log-sums"


def size_buckets(sizes: Int64s) -> Int64s:
    """The numbers of the buckets of sizes in bytes."""
    buckets: Int64s = np.floor(np.log2(sizes + 1) * BUCKETS_PER_DOUBLING + 0.5).astype(np.int64)
    return buckets


def summed(records: Iterable[pa.RecordBatch], log: TopicPartition) -> Iterator[pa.RecordBatch]:
    """The sums of one log's records (SUMMED_COLUMNS), in whatever order; a row with an error is none.

    No batch is empty: where Spark makes a DataFrame of batches, what lies behind an empty one is lost.
    """
    keys, sizes = _KeySums(), _SizeSums()
    for batch in records:
        error = batch.column("error")
        if error.null_count < batch.num_rows:
            yield _rows(log, {"error": error.drop_null()})
            batch = batch.filter(error.is_null())
        key, value_size = batch.column("key"), batch.column("value_size")
        size = _numbers(pc.binary_length(key)) + _numbers(value_size)
        is_tombstone = value_size.is_null().to_numpy(zero_copy_only=False)
        sizes.add(size, is_tombstone)
        for part in keys.add(key, _numbers(batch.column("offset")), size, is_tombstone):
            yield _rows(log, part)
    for part in keys.rest():
        yield _rows(log, part)
    if found := sizes.columns():
        yield _rows(log, found)


class _KeySums:
    """Records by key, added up whenever there are ROWS_MAX."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []
        self._rows = self._key_bytes = 0
        self._end = -1
        """No record that is held has a greater offset."""

    def add(
        self, key: pa.Array, offset: Int64s, size: Int64s, is_tombstone: npt.NDArray[np.bool_]
    ) -> Iterator[_Columns]:
        """Take records in; what must give way to them comes out."""
        if not offset.size:
            return
        ones, newest = np.ones(offset.size, dtype=np.int64), 2 * size + is_tombstone
        part = pa.table([key, ones, size, offset, newest], schema=_BY_KEY)
        if (np.diff(offset) < 0).any():
            part = part.sort_by("offset")
        if offset.min() < self._end:  # the newest of a key would not be its last
            yield from self.rest()
        self._end = int(offset.max())
        self._hold(part)
        if self._is_full(ROWS_MAX, KEY_BYTES_MAX):
            self._add_up()
            if self._is_full(ROWS_MAX // 2, KEY_BYTES_MAX // 2):  # few of them come back
                yield from self.rest()

    def rest(self) -> Iterator[_Columns]:
        """All that is held."""
        self._add_up()
        for part in self._parts:
            for batch in part.to_batches():
                yield dict(zip(batch.schema.names, batch.columns, strict=True))
        self._parts, self._rows, self._key_bytes, self._end = [], 0, 0, -1

    def _add_up(self) -> None:
        parts, self._parts, self._rows, self._key_bytes = self._parts, [], 0, 0
        if parts:
            # One thread: only so the last row is the last one.
            added = pa.concat_tables(parts).group_by("key", use_threads=False).aggregate(_SUMS)
            self._hold(pa.table(added.columns, schema=_BY_KEY))

    def _hold(self, part: pa.Table) -> None:
        self._parts.append(part)
        self._rows += part.num_rows
        self._key_bytes += part.column("key").nbytes

    def _is_full(self, rows: int, key_bytes: int) -> bool:
        return self._rows >= rows or self._key_bytes >= key_bytes


class _SizeSums:
    """Records by the bucket of their size."""

    def __init__(self) -> None:
        self._sums = np.zeros((3, _BUCKETS), dtype=np.int64)

    def add(self, size: Int64s, is_tombstone: npt.NDArray[np.bool_]) -> None:
        bucket = size_buckets(size)
        for sums, weights in zip(self._sums, (None, size, is_tombstone), strict=True):
            # Sums of floats, exact up to 2^53.
            sums += np.bincount(bucket, weights, _BUCKETS).astype(np.int64)

    def columns(self) -> _Columns:
        """Of the buckets that have records; none where there are no such."""
        bucket = np.flatnonzero(self._sums[0])
        if not bucket.size:
            return {}
        records, size, tombstones = self._sums[:, bucket]
        return {
            "bucket": pa.array(bucket.astype(np.int32)),
            "records": pa.array(records),
            "bytes": pa.array(size),
            "tombstones": pa.array(tombstones),
        }


def _numbers(column: pa.Array) -> Int64s:
    """As numpy's; 0 for null."""
    numbers: Int64s = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _rows(log: TopicPartition, columns: _Columns) -> pa.RecordBatch:
    """The columns behind topic and partition, null where they are not given."""
    count = len(next(iter(columns.values())))
    columns = columns | {
        "topic": pa.repeat(pa.scalar(log.topic), count),
        "partition": pa.repeat(pa.scalar(log.partition, pa.int32()), count),
    }
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


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
