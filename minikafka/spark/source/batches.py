"""The format ``kafka-log-batches``: a row a batch, from headers alone.

No record is decoded and nothing decompressed; a page is read for each batch, so a segment of large batches is
passed through faster than it could be read. The columns ``crc_ok`` and ``control_type`` take whole batches
and are there when they are named. All batches are shown: control batches, aborted ones, and what lies
above the high watermark; of all replicas, if the directories of several brokers are given. Damage is a row
with ``error``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

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
from minikafka.protocol.records.control_records import read_end_transaction_marker
from minikafka.protocol.records.records import iterate_records
from minikafka.spark.source.datasource import KafkaLogDataSource, KafkaLogPushdownReader, KafkaLogReader
from minikafka.spark.source.decode import CODEC_NAMES, is_control
from minikafka.spark.source.options import HEADER_SPLIT_BYTES, SPLIT_BYTES, Reading, parse_options
from minikafka.spark.source.schemas import (
    BATCH_SCHEMA,
    WHOLE_BATCH_COLUMNS,
    arrow_schema,
    batch_schema,
    chosen_columns,
)
from minikafka.spark.source.segment_scan import Block
from minikafka.spark.source.split_reader import SplitReader
from minikafka.spark.source.storage import LogFile

FORMAT: Final = "kafka-log-batches"

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
        return FORMAT

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
