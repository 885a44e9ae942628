"""The 61-byte header of a record batch (magic 2): read, check, stamp, rewrite. Records are opaque here.

Kafka: ``DefaultRecordBatch``, ``MutableRecordBatch``; KIP-98 (the format), KIP-534 (the delete horizon).

    0 base offset 8 | 8 length 4 | 12 partition leader epoch 4 | 16 magic 1 | 17 CRC-32C 4 | 21 attributes 2
    23 last offset delta 4 | 27 base timestamp 8 | 35 max timestamp 8 | 43 producer id 8 | 51 producer epoch 2
    53 base sequence 4 | 57 record count 4 | 61 records

The length counts from byte 12, the CRC covers byte 21 to the end: base offset and leader epoch can be stamped
without touching it. Kafka looks at the low byte of the attributes only; so do the properties here.

Measured (µs; an empty Python call took 0.07): ``read_header`` 0.7, ``stamp`` 0.2, ``crc_is_valid`` 0.9 for 1
KiB, 52 for 1 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct, error
from typing import Final

from minikafka.deferred import crc32c
from minikafka.errors import ErrorCode
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.compression import CompressionType, CorruptBatch
from minikafka.types import NO_SEQUENCE, Buffer

__all__ = [
    "ATTRIBUTES_LOW_AT",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "TRANSACTIONAL_MASK",
    "BatchHeader",
    "CompressionType",
    "CorruptBatch",
    "TimestampType",
    "crc_is_valid",
    "is_transactional",
    "iterate_headers",
    "producer_of",
    "read_header",
    "rewrite",
    "stamp",
]

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""Base offset and length: what the length does not count."""

MAGIC: Final = 2
_MAGIC_POSITION: Final = 16
_ATTRIBUTES_POSITION: Final = 21
ATTRIBUTES_LOW_AT: Final = _ATTRIBUTES_POSITION + 1
"""Of the attributes, the byte that has a meaning."""
_BATCH_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
_SEQUENCE_MAX: Final = 2**31 - 1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

HEADER: Final = Struct(">qiibIhiqqqhii")
_STAMP: Final = Struct(">qii")
_ATTRIBUTES: Final = Struct(">h")
_PRODUCER: Final = Struct(">qh")
_PRODUCER_POSITION: Final = 43


class TimestampType(IntEnum):
    """Who set the timestamps of a batch's records."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """A batch header as it stands on the wire and on disk."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    """Of the first record; with a delete horizon, the horizon instead."""
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """A ``CompressionType``, or a number from 5 to 7 that stands for none."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return (
            TimestampType.LOG_APPEND_TIME
            if self.attributes & TIMESTAMP_TYPE_MASK
            else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, past 2³¹−1 back to 0; NO_SEQUENCE where the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MAX

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of a compacted batch may go; None before its first compaction."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``. Neither the CRC nor the presence of the whole batch is checked.

    Raises:
        CorruptBatch: fewer than 61 bytes, a length that cannot be; INVALID_RECORD where the magic is not 2.
    """
    try:
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    except error:
        raise CorruptBatch(
            f"{len(buffer) - position} bytes are too few for the header of a batch ({HEADER_SIZE})"
        ) from None
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic}, only {MAGIC} is supported", ErrorCode.INVALID_RECORD)
    if header.batch_length < _BATCH_LENGTH_MIN:
        raise CorruptBatch(
            f"a batch of length {header.batch_length}, {_BATCH_LENGTH_MIN} is the least there is"
        )
    return header


def iterate_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Every complete batch from ``position`` on, with its position. Stops before a batch that is cut off.

    Raises:
        CorruptBatch: as ``read_header``.
    """
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if header.size > end - position:
            return
        yield position, header
        position += header.size


def is_transactional(buffer: Buffer, position: int = 0) -> bool:
    """Whether the batch at ``position`` belongs to a transaction, without reading the rest of its header.

    What is no batch of magic 2 belongs to none; its error is found when the whole header is read.

    Raises:
        CorruptBatch: the buffer ends before the attributes.
    """
    try:
        attributes: int = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_POSITION)[0]
    except error:
        raise CorruptBatch(f"{len(buffer) - position} bytes are too few for the header of a batch") from None
    return attributes & TRANSACTIONAL_MASK != 0 and buffer[position + _MAGIC_POSITION] == MAGIC


def producer_of(buffer: Buffer) -> tuple[int, int]:
    """Producer id and epoch of a batch whose header is there."""
    producer_id, epoch = _PRODUCER.unpack_from(buffer, _PRODUCER_POSITION)
    return producer_id, epoch


def crc_is_valid(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the stored CRC-32C is that of the bytes; False for a batch that is cut off."""
    end = position + LOG_OVERHEAD + header.batch_length
    if end > len(buffer):
        return False
    crc: int = crc32c.crc32c(memoryview(buffer)[position + _ATTRIBUTES_POSITION : end])
    return crc == header.crc


def stamp(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of the batch at its place in a log; write ``buffer[16:]`` behind them. The CRC
    stays."""
    return _STAMP.pack(base_offset, header.batch_length, leader_epoch)


def rewrite(
    buffer: Buffer,
    header: BatchHeader,
    *,
    position: int = 0,
    base_offset: int | None = None,
    leader_epoch: int | None = None,
    timestamp_type: TimestampType | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int | None = None,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
) -> bytes:
    """The 61 bytes of a changed header with their CRC; write ``buffer[position + 61:]`` behind them.

    What is not given is kept. The CRC is computed over the records at ``position`` in ``buffer``, which must
    be whole.
    """
    attributes = header.attributes
    if timestamp_type is not None:
        attributes = attributes & ~TIMESTAMP_TYPE_MASK | (TIMESTAMP_TYPE_MASK if timestamp_type else 0)
    new = header._replace(
        base_offset=header.base_offset if base_offset is None else base_offset,
        partition_leader_epoch=header.partition_leader_epoch if leader_epoch is None else leader_epoch,
        attributes=attributes,
        base_timestamp=header.base_timestamp if base_timestamp is None else base_timestamp,
        max_timestamp=header.max_timestamp if max_timestamp is None else max_timestamp,
        producer_id=header.producer_id if producer_id is None else producer_id,
        producer_epoch=header.producer_epoch if producer_epoch is None else producer_epoch,
        base_sequence=header.base_sequence if base_sequence is None else base_sequence,
    )
    with memoryview(buffer) as view:
        return pack_header(new, view[position + HEADER_SIZE : position + header.size])


def pack_header(header: BatchHeader, records: Buffer) -> bytes:
    """``header`` with the CRC that it and ``records`` (as they stand in the batch) have."""
    packed = bytearray(HEADER.pack(*header))
    crc = crc32c.crc32c(records, crc32c.crc32c(packed[_ATTRIBUTES_POSITION:]))
    packed[_MAGIC_POSITION + 1 : _ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(packed)
