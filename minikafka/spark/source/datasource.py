"""The formats ``kafka-log``, also as a stream, and ``kafka-log-batches``: Spark's Data Source API on one
side, plans and splits on the other.

Spark pickles the source and the reader, plans in a Python process of the driver, and calls ``read`` in a
Python process of each task; what comes back are Arrow batches. Spark (4.3) tells a Python source nothing of
the columns that a query uses, so a reader of few columns names them: with a schema, or with the option
``columns``. Filters it does tell, if ``spark.sql.python.filterPushdown.enabled`` is true; and it
refuses a source that could take them while it is not. So there are two readers, and ``register`` chooses.

A stream follows a directory while a broker writes to it. Its offsets are those of Spark's own Kafka source,
as JSON: ``{"topic":{"0":123}}``, each the next offset to be read. Spark keeps them in the query's checkpoint
and gives them back after a restart, so the stream continues exactly where it stopped. Partitions that appear
are read from their start. Each micro-batch ends at the high watermark, as far as the directory's checkpoint
knows it (``options.Latest``), and with read_committed at the last stable offset: what was read does not
change after. Offsets never go back. Where a log has become shorter than what was read of it, or begins later
than where reading would continue, data is lost, and ``failOnDataLoss`` says what then.

``kafka-log-batches`` has a row a batch, from headers alone. No record is decoded and nothing decompressed; a
page is read for each batch, so a segment of large batches is passed through faster than it could be read. The
columns ``crc_ok`` and ``control_type`` take whole batches and are there when they are named. All batches are
shown: control batches, aborted ones, and what lies above the high watermark; of all replicas, if the
directories of several brokers are given. Damage is a row with ``error``.

**Sums**, ``kafka-log-sums``: what many records add up to, by key and by size: made where they are decoded, so
that Spark is handed a row for each key of a piece of log instead of each record.

It is for ``minikafka analyze``, and takes the options of ``kafka-log`` but for
``columns``. Ten million records with a million keys come to Spark as one or two million rows.

Adding up is pure: Arrow batches in, Arrow batches of ``SUMS_SCHEMA`` out. Sums are partial: a key has a row
in each piece that it is in, and more where a piece has more keys than are held at once.
``analyze.passes.summarised`` adds them up.

A record's size here is that of its key and value, without headers and the few bytes of the format. Sizes are
counted in buckets whose limits grow by 2^(1/32).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from minikafka.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    CorruptBatch,
    crc_is_valid,
)
from minikafka.protocol.records.records import iterate_records, read_end_transaction_marker
from minikafka.spark.runtime.storage import LogFile
from minikafka.spark.source.decode import (
    BATCH_SCHEMA,
    CODEC_NAMES,
    RECORD_SCHEMA,
    WHOLE_BATCH_COLUMNS,
    OffsetRange,
    arrow_schema,
    batch_schema,
    chosen_columns,
    is_control,
    needs_records,
    record_schema,
)
from minikafka.spark.source.log_files import Block, PartitionLog
from minikafka.spark.source.options import (
    HEADER_SPLIT_BYTES,
    SPLIT_BYTES,
    BadOption,
    OnCorrupt,
    Reading,
    ReadOptions,
    Search,
    narrowed,
    parse_options,
)
from minikafka.spark.source.planning import (
    Wanted,
    check_named,
    latest_offset,
    log_end_offset,
    offset_at,
    selected_logs,
    splits_of,
    transactions_of,
    wanted_of,
)
from minikafka.spark.source.split_reader import (
    OPEN_END,
    DataLoss,
    SplitPartition,
    SplitReader,
    check_schema,
    read_splits,
    tasks_of,
)
from minikafka.types import TopicPartition

_log = logging.getLogger(__name__)

StreamOffset = dict[str, dict[str, int]]
"""As Spark stores it."""

Offsets = dict[TopicPartition, int]

FORMAT = "kafka-log"

BATCHES_FORMAT: Final = "kafka-log-batches"

SUMS_FORMAT: Final = "kafka-log-sums"

_FIELDS: Final = {
    "base_offset": "base_offset",
    "leader_epoch": "leader_epoch",
    "crc": "crc",
    "records": "record_count",
    "base_timestamp": "base_timestamp",
    "max_timestamp": "max_timestamp",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "base_sequence": "base_sequence",
}
_BITS: Final = {
    "timestamp_type": TIMESTAMP_TYPE_MASK,
    "is_transactional": TRANSACTIONAL_MASK,
    "is_control": CONTROL_MASK,
}


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

SUMMED_ROWS_MAX: Final = 1 << 20
SUMMED_KEY_BYTES_MAX: Final = 64 << 20
"""What is held before it is added up; about 50 bytes a row besides the key."""

_ARROW: Final = arrow_schema(SUMS_SCHEMA.names, SUMS_SCHEMA)
_BY_KEY: Final = arrow_schema(("key", "records", "bytes", "offset", "newest"), SUMS_SCHEMA)
_SUMS: Final = [("records", "sum"), ("bytes", "sum"), ("offset", "last"), ("newest", "last")]

Int64s = npt.NDArray[np.int64]
_Columns = dict[str, pa.Array]


# ---- the stream


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads splits in tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options, SplitReader)
        self._options = options
        self._columns = schema.names
        self._target: Offsets | None = None
        """Where a query with the trigger AvailableNow ends; None for every other."""
        self._latest: Offsets = {}

    def initialOffset(self) -> StreamOffset:  # noqa: N802 Spark's name
        logs = selected_logs(self._options)
        check_named(self._options.starting, logs)
        found = {}
        for log in logs:
            offset = offset_at(log, self._options.starting, self._options)
            found[log.topic_partition] = latest_offset(log, self._options) if offset == OPEN_END else offset
        return to_json(found)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        self._target = {log.topic_partition: self._end_of(log) for log in selected_logs(self._options)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802 Spark's name
        begun = from_json(start)
        logs = selected_logs(self._options)
        there = {log.topic_partition for log in logs}
        gone = [str(each) for each in begun if each not in there]
        if gone:
            self._lose(f"{', '.join(gone)}: no longer there")
        starts = {**begun, **{log.topic_partition: self._start_of(log, begun) for log in logs}}
        self._latest = {log.topic_partition: self._end_of(log) for log in logs}
        ends = {}
        for log in logs:
            each = log.topic_partition
            end = self._latest[each] if self._target is None else self._target.get(each, starts[each])
            ends[each] = end if end >= starts[each] else self._behind(log, starts[each])
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json({**starts, **(ends if most is None else limited(starts, ends, most))})

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802 Spark's name
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        begun, ends = from_json(start), from_json(end)
        splits = []
        logs = {log.topic_partition: log for log in selected_logs(self._options)}
        for each, end_offset in sorted(ends.items()):
            first = begun.get(each, -1)
            if first == end_offset:
                continue
            log = logs.get(each)
            if log is None:
                self._lose(f"{each}: no longer there, from offset {first} on")
                continue
            first = self._start_of(log, begun)
            if first < log.log_start_offset:
                self._lose(f"{log.name}: offsets {first} to {log.log_start_offset - 1} are no longer there")
                first = log.log_start_offset
            if first < end_offset:
                wanted = Wanted(
                    log, OffsetRange(first, end_offset), transactions_of(log, self._options, first)
                )
                splits += splits_of(wanted, self._options, Search())
        return tasks_of(splits, self._options) if splits else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_splits(SplitReader, partition, self._columns, self._options)

    def _start_of(self, log: PartitionLog, begun: Mapping[TopicPartition, int]) -> int:
        """Where reading continues; a partition that is new begins at its start."""
        return begun.get(log.topic_partition, log.log_start_offset)

    def _end_of(self, log: PartitionLog) -> int:
        return latest_offset(log, self._options)

    def _behind(self, log: PartitionLog, read: int) -> int:
        """The end of a log that "latest" puts below what has been read of it: the checkpoint may be old, the
        log itself must not."""
        end = log_end_offset(log)
        if end >= read:
            return read
        self._lose(f"{log.name}: it ended at {read} or later, now it ends at {end}; is it another log?")
        return end

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}; failOnDataLoss=false continues without")
        _log.warning("%s", what)


def limited(starts: Offsets, ends: Offsets, offsets_max: int) -> Offsets:
    """Ends that are together at most about ``offsets_max`` beyond the starts; each partition gets its share
    of what there is, and one offset at least. Kafka's source in Spark: ``rateLimit``."""
    there = {each: ends[each] - starts[each] for each in ends if ends[each] > starts[each]}
    total = sum(there.values())
    if total <= offsets_max:
        return ends
    return {
        each: min(end, starts[each] + max(1, offsets_max * there[each] // total)) if each in there else end
        for each, end in ends.items()
    }


def to_json(offsets: Mapping[TopicPartition, int]) -> StreamOffset:
    """As Spark stores it; equal offsets are equal text."""
    found: StreamOffset = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offset: StreamOffset) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): number
        for topic, partitions in offset.items()
        for partition, number in partitions.items()
    }


# ---- records


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


# ---- batch headers


class BatchHeaderReader(SplitReader):
    """Reads the batch headers of one split."""

    known_columns = BATCH_SCHEMA

    @property
    def _reads_whole_batches(self) -> bool:
        return not WHOLE_BATCH_COLUMNS.isdisjoint(self._columns)

    def _rows(self, file: LogFile, blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._columns, BATCH_SCHEMA)
        for block in blocks:
            last = block.headers["base_offset"] + block.headers["last_offset_delta"].astype(np.int64)
            chosen = last >= self._wanted.first
            if self._timestamp_ms_min is not None:
                chosen &= block.headers["max_timestamp"] >= self._timestamp_ms_min
            if chosen.any():
                rows = block._replace(positions=block.positions[chosen], headers=block.headers[chosen])
                arrays = [self._column(field.name, field.type, rows) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, wanted: pa.DataType, block: Block) -> pa.Array:
        headers = block.headers
        match name:
            case "topic" | "partition" | "log_dir" | "segment":
                return pa.repeat(pa.scalar(getattr(self._origin, name), type=wanted), headers.size)
            case "position":
                return pa.array(block.positions + block.file_position)
            case "size":
                return pa.array(_native(headers["batch_length"]) + 12)
            case "last_offset":
                return pa.array(_native(headers["base_offset"]) + headers["last_offset_delta"])
            case "codec":
                codes = (headers["attributes"] & COMPRESSION_MASK).astype(np.int8)
                return pa.array(CODEC_NAMES, type=wanted).take(pa.array(codes))
            case "delete_horizon":
                has_none = (headers["attributes"] & DELETE_HORIZON_MASK) == 0
                return pa.array(_native(headers["base_timestamp"]), mask=has_none)
            case "crc_ok":
                batches = zip(block.positions.tolist(), headers.tolist(), strict=True)
                return pa.array([crc_is_valid(block.data, at, BatchHeader(*each)) for at, each in batches])
            case "control_type":
                return pa.array(_control_types(block), type=wanted)
            case "error":
                return pa.nulls(headers.size, type=wanted)
            case _ if name in _BITS:
                is_set = (headers["attributes"] & _BITS[name]) != 0
                return pa.array(is_set.astype(np.int32) if name == "timestamp_type" else is_set)
            case _:
                return pa.array(_native(headers[_FIELDS[name]]), type=wanted)


def _control_types(block: Block) -> list[str | None]:
    """What the markers among the batches do; null for one that is damaged, as for a batch of data."""
    types: list[str | None] = [None] * block.headers.size
    for index in np.flatnonzero(is_control(block.headers)).tolist():
        position = int(block.positions[index])
        size = int(block.headers[index]["batch_length"]) + LOG_OVERHEAD
        try:
            record = next(iterate_records(memoryview(block.data)[position : position + size]), None)
            marker = None if record is None else read_end_transaction_marker(record.key, record.value)
        except CorruptBatch:
            continue
        types[index] = None if marker is None else marker.type.name
    return types


def _native(values: Any) -> Any:
    """The same numbers in the machine's byte order."""
    return values.astype(values.dtype.newbyteorder("="))


class KafkaLogBatchesReader(KafkaLogReader):
    """A read of batch headers."""

    split_reader = BatchHeaderReader


class KafkaLogBatchesPushdownReader(KafkaLogPushdownReader):
    """The same, told of the query's filters."""

    split_reader = BatchHeaderReader


class KafkaLogBatchesDataSource(KafkaLogDataSource):
    """``spark.read.format("kafka-log-batches")``."""

    reader_class: type[KafkaLogReader] = KafkaLogBatchesReader

    @classmethod
    def name(cls) -> str:
        return BATCHES_FORMAT

    def schema(self) -> StructType:
        columns = parse_options(self.options, Reading.HEADERS).columns
        return batch_schema() if columns is None else chosen_columns(columns, BATCH_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        from_headers = WHOLE_BATCH_COLUMNS.isdisjoint(schema.names)
        split_bytes = HEADER_SPLIT_BYTES if from_headers else SPLIT_BYTES
        return self.reader_class(
            parse_options(self.options, Reading.HEADERS, split_bytes=split_bytes), schema
        )


class KafkaLogBatchesPushdownDataSource(KafkaLogBatchesDataSource):
    """The same for a session that hands filters down."""

    reader_class = KafkaLogBatchesPushdownReader


# ---- sums of records


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
    """Records by key, added up whenever there are SUMMED_ROWS_MAX."""

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
        if self._is_full(SUMMED_ROWS_MAX, SUMMED_KEY_BYTES_MAX):
            self._add_up()
            if self._is_full(SUMMED_ROWS_MAX // 2, SUMMED_KEY_BYTES_MAX // 2):  # few of them come back
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
        return SUMS_FORMAT

    def schema(self) -> StructType:
        return SUMS_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options, split_bytes=SPLIT_BYTES)
        if options.columns is not None or schema != SUMS_SCHEMA:
            raise BadOption(f"{SUMS_FORMAT} has always the same columns: {', '.join(SUMS_SCHEMA.names)}")
        return KafkaLogSumsReader(options)
