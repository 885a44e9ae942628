"""What compaction does to one batch: its records are looked at, and it is written again with some of them.

Kafka: ``MemoryRecords.filterTo`` and ``buildRetainedRecordsInto``, ``DefaultRecordBatch.writeEmptyHeader``;
KIP-534 (the delete horizon).

Offsets, producer, sequence and leader epoch are kept, and the codec unless another one is asked for;
record count, timestamps and CRC are those of what is left. The header's last offset is kept too, because a
producer's last sequence follows from it.

A batch with a delete horizon has it where the base timestamp was, and the records' timestamps count from
there. aiokafka's builder takes the first record's timestamp for the base; so a record of the horizon's time
goes in front and its bytes are cut off again.

Measured (µs a record of 100 bytes, a key of 16, uncompressed): ``raw_records`` 0.12, ``rebuild_batch`` 0.46.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from minikafka.protocol.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    TimestampType,
    pack_header,
)
from minikafka.protocol.records.compression import CompressionType, compress
from minikafka.protocol.records.record_codec import load as record_codec
from minikafka.protocol.records.record_parser import parse_records
from minikafka.protocol.records.records import plain_batch
from minikafka.types import NO_TIMESTAMP, Buffer

_FRONT_RECORD_BYTES: Final = 7
"""A record without key, value and headers, at the base offset and the base timestamp: every field is one
byte."""

_BATCH_BYTES_MAX: Final = 2**31 - 1


class RawRecord(Protocol):
    """A record as aiokafka's codec or the parser yields it. ``timestamp`` is None or -1 where there is
    none."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def raw_records(batch: Buffer, header: BatchHeader, *, decompressed_bytes_max: int) -> list[RawRecord]:
    """The records of one whole batch whose CRC is known to be right.

    Raises:
        CorruptBatch: it cannot be decompressed within the bound, or a record is malformed.
    """
    plain = plain_batch(batch, header, decompressed_bytes_max)
    try:
        return list(record_codec().Batch(plain))
    except record_codec().refusals:
        return list(parse_records(plain, header))


def rebuild_batch(
    header: BatchHeader,
    records: Sequence[RawRecord],
    *,
    delete_horizon_ms: int | None,
    codec: CompressionType | None = None,
) -> bytes:
    """The batch of ``header`` with only these of its records, at least one, in their order.

    Args:
        delete_horizon_ms: when its tombstones (or its marker) may go; None: not decided.
        codec: what to compress it with; None: as it was.
    """
    if codec is None:
        codec = CompressionType(header.attributes & COMPRESSION_MASK)
    builder = record_codec().Builder(MAGIC, 0, 0, -1, -1, -1, _BATCH_BYTES_MAX)
    if delete_horizon_ms is not None:
        builder.append(0, delete_horizon_ms, None, None, [])
    base_offset = header.base_offset
    for record in records:
        timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        builder.append(record.offset - base_offset, timestamp, record.key, record.value, list(record.headers))
    with memoryview(builder.build()) as built:
        body = compress(
            built[HEADER_SIZE + (0 if delete_horizon_ms is None else _FRONT_RECORD_BYTES) :],
            codec,
        )
    first, *_ = (NO_TIMESTAMP if record.timestamp is None else record.timestamp for record in records)
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max(
            NO_TIMESTAMP if record.timestamp is None else record.timestamp for record in records
        )
    rebuilt = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(body),
        attributes=header.attributes & ~(DELETE_HORIZON_MASK | COMPRESSION_MASK)
        | codec
        | (0 if delete_horizon_ms is None else DELETE_HORIZON_MASK),
        base_timestamp=first if delete_horizon_ms is None else delete_horizon_ms,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    return pack_header(rebuilt, body) + body


def empty_batch(header: BatchHeader) -> bytes:
    """The batch of ``header`` without its records: what is left says where a producer or a log was."""
    emptied = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD,
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return pack_header(emptied, b"")
