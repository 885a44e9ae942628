"""Validation of records that look alike, at the speed of C: runs of records of one size, compared column by
column.

Load generators, sensors and fixed-width formats send records of one size. Within such a run the bytes that
give a record its structure stand at equal distances, so a strided slice has one byte of every record, and
one comparison checks them all. The first record of a run is parsed exactly; a record whose structure bytes
equal the first's, at the same place, is as well-formed as the first. Anything that is not plain enough
(headers, many sizes, offsets that are not consecutive) is left to the general road: this module never
refuses, it says "I do not know".

Measured: half the time of aiokafka's iteration in batches of 1,000 (``records`` has the numbers), equal at
100.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minikafka.protocol.batch import HEADER_SIZE, BatchHeader, TimestampType
from minikafka.protocol.record_parser import INT_BYTES_MAX, InvalidRecords, read_varint

COUNT_MIN: Final = 128
"""Below, a run costs as much as it saves."""
COUNT_MAX: Final = 1 << 13
"""Offset deltas up to here take one or two bytes."""

_ONE_BYTE_OFFSETS: Final = 64
_RUN_MIN: Final = 32
_SHORT_RUNS_MAX: Final = 4
"""A run costs some microseconds, however many records it has, so many short ones gain nothing. A few come
from deltas that grow by a byte."""

_OFFSET_ONLY: Final = bytes(2 * delta for delta in range(_ONE_BYTE_OFFSETS))
_OFFSET_LOW: Final = bytes(2 * delta & 0x7F | 0x80 for delta in range(COUNT_MAX))
_OFFSET_HIGH: Final = bytes(2 * delta >> 7 for delta in range(COUNT_MAX))
"""The offset delta of record n as a zigzag varint: in one byte, or the low and the high one of two."""

_ZIGZAG: Final = tuple((value >> 1) ^ -(value & 1) for value in range(1 << 14))


class _Shape(NamedTuple):
    """Where the structure of a record stands, relative to its start."""

    size: int
    structure: tuple[int, ...]
    timestamp_at: int
    timestamp_size: int
    offset_at: int
    offset_size: int
    has_key: bool


def timestamp_deltas(plain: memoryview, header: BatchHeader, *, keys_required: bool) -> list[int] | None:
    """The timestamp delta of every record of a batch with valid records; None where that is not certain."""
    count = header.record_count
    if not COUNT_MIN <= count <= COUNT_MAX or header.timestamp_type is not TimestampType.CREATE_TIME:
        return None
    deltas: list[int] = []
    position = HEADER_SIZE
    short_runs = 0
    while (index := len(deltas)) < count:
        shape = _shape(plain, position)
        if shape is None or (keys_required and not shape.has_key):
            return None
        run = min(count - index, (len(plain) - position) // shape.size)
        if shape.offset_size == 1:
            run = min(run, _ONE_BYTE_OFFSETS - index)
        found = _run(plain, position, shape, index, run) if run > 0 else None
        if found is None:
            return None
        deltas += found
        position += len(found) * shape.size
        if len(found) < _RUN_MIN:
            short_runs += 1
            if index == 0 or short_runs > _SHORT_RUNS_MAX:
                return None
    return deltas if position == len(plain) else None


def _shape(plain: memoryview, start: int) -> _Shape | None:
    """Of the record at ``start``; None unless it is well-formed, without headers, with short deltas."""
    try:
        length, at = read_varint(plain, start, INT_BYTES_MAX)
        end = at + length
        if not 0 < length <= len(plain) - at:
            return None
        structure = list(range(start, at))
        timestamp_at = at + 1
        _, at = read_varint(plain, timestamp_at, 2)
        offset_at = at
        _, at = read_varint(plain, offset_at, 2)
        offset_size = at - offset_at
        key_size, behind = read_varint(plain, at, INT_BYTES_MAX)
        structure += range(at, behind)
        at = behind + max(0, key_size)
        value_size, behind = read_varint(plain, at, INT_BYTES_MAX)
        structure += range(at, behind)
        at = behind + max(0, value_size)
        if at + 1 != end or plain[at] != 0:
            return None
    except (IndexError, InvalidRecords):
        return None
    structure.append(at)
    return _Shape(
        end - start,
        tuple(place - start for place in structure),
        timestamp_at - start,
        offset_at - timestamp_at,
        offset_at - start,
        offset_size,
        key_size >= 0,
    )


def _run(plain: memoryview, start: int, shape: _Shape, index: int, run: int) -> list[int] | None:
    """The timestamp deltas of the records that follow each other in this shape, at most ``run``."""
    size = shape.size
    end = start + run * size
    for place in shape.structure:
        column = plain[start + place : end : size].tobytes()
        alike = run - len(column.lstrip(column[:1]))
        if alike < run:
            run = alike
            end = start + run * size
    column = plain[start + shape.offset_at : end : size].tobytes()
    if shape.offset_size == 1:
        if column != _OFFSET_ONLY[index : index + run]:
            return None
    else:
        high = plain[start + shape.offset_at + 1 : end : size].tobytes()
        if column != _OFFSET_LOW[index : index + run] or high != _OFFSET_HIGH[index : index + run]:
            return None
    low = plain[start + shape.timestamp_at : end : size].tobytes()
    if shape.timestamp_size == 1:
        return [_ZIGZAG[byte] for byte in low] if low.isascii() else None
    high = plain[start + shape.timestamp_at + 1 : end : size].tobytes()
    if min(low) < 0x80 or not high.isascii():
        return None
    return [_ZIGZAG[first & 0x7F | second << 7] for first, second in zip(low, high, strict=True)]
