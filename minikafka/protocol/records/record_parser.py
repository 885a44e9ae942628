"""Records read one by one in Python: slow, exact, and never past the end. What it refuses is refused.

Kafka: ``DefaultRecord.readFrom``, ``ByteUtils.readVarint`` (an int takes at most 5 bytes, a long 10).

    length varint | attributes 1 | timestamp delta varlong | offset delta varint
    key length varint, key | value length varint, value | header count varint, headers (key length, key, …)

Signed varints are zigzag-encoded. A length below 0 is null, for a header's key an error. A header key that
is not UTF-8 is read with U+FFFD, as Java reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from minikafka.errors import ErrorCode
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, TimestampType
from minikafka.protocol.records.compression import CorruptBatch

INT_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 10
_LONG_MASK: Final = (1 << 64) - 1
_LONG_SIGN: Final = 1 << 63


class Record(NamedTuple):
    """One record, with its own copy of key, value and headers. ``timestamp`` is in ms, NO_TIMESTAMP (-1) for
    none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordError(NamedTuple):
    """Why one record was refused (KIP-467)."""

    batch_index: int
    message: str | None


class InvalidRecords(CorruptBatch):
    """Records that break the rules (Kafka's ``InvalidRecordException`` and ``RecordValidationException``)."""

    def __init__(
        self,
        message: str,
        record_errors: Sequence[RecordError] = (),
        code: ErrorCode = ErrorCode.INVALID_RECORD,
    ) -> None:
        super().__init__(message, code)
        self.record_errors = tuple(record_errors)


def parse_records(plain: memoryview, header: BatchHeader) -> Iterator[Record]:
    """The records of an uncompressed batch; ``plain`` ends with the batch.

    Raises:
        InvalidRecords: a record is malformed, or the batch holds more or fewer bytes than its records.
    """
    position = HEADER_SIZE
    for index in range(header.record_count):
        try:
            record, position = _parse_record(plain, position, header)
        except IndexError:
            raise InvalidRecords(f"record {index} of {header.record_count} is cut off") from None
        except InvalidRecords as error:
            raise InvalidRecords(f"record {index} of {header.record_count}: {error.message}") from None
        yield record
    if position != len(plain):
        raise InvalidRecords(f"{len(plain) - position} bytes behind the last record")


def _parse_record(plain: memoryview, position: int, header: BatchHeader) -> tuple[Record, int]:
    length, position = read_varint(plain, position, INT_BYTES_MAX)
    if not 0 <= length <= len(plain) - position:
        raise InvalidRecords(f"a length of {length} where {len(plain) - position} bytes remain")
    record = plain[position : position + length]
    timestamp_delta, at = read_varint(record, 1, LONG_BYTES_MAX)  # byte 0: attributes, unused
    offset_delta, at = read_varint(record, at, INT_BYTES_MAX)
    key, at = _nullable_bytes(record, at)
    value, at = _nullable_bytes(record, at)
    header_count, at = read_varint(record, at, INT_BYTES_MAX)
    if not 0 <= header_count <= length - at:
        raise InvalidRecords(f"{header_count} headers where {length - at} bytes remain")
    headers = []
    for _ in range(header_count):
        name, at = _nullable_bytes(record, at)
        if name is None:
            raise InvalidRecords("a header without a key")
        content, at = _nullable_bytes(record, at)
        headers.append((name.decode("utf-8", "replace"), content))
    if at != length:
        raise InvalidRecords(f"a length of {length}, but {at} bytes are used")
    timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:  # adds up in 64 bits, as a Java long does
        timestamp = ((header.base_timestamp + timestamp_delta + _LONG_SIGN) & _LONG_MASK) - _LONG_SIGN
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers)), position + length


def _nullable_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(view, position, INT_BYTES_MAX)
    if length < 0:
        return None, position
    end = position + length
    if end > len(view):
        raise InvalidRecords(f"{length} bytes are announced where {len(view) - position} remain")
    return view[position:end].tobytes(), end


def read_varint(view: memoryview, position: int, bytes_max: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it; bits that an int or a long has no room for are dropped.

    Raises:
        IndexError: the view ends inside it.
        InvalidRecords: it is longer than ``bytes_max``.
    """
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if bytes_max == INT_BYTES_MAX:
                value &= 0xFFFFFFFF
            elif bytes_max == LONG_BYTES_MAX:
                value &= _LONG_MASK
            return (value >> 1) ^ -(value & 1), position
    raise InvalidRecords(f"a varint of more than {bytes_max} bytes")
