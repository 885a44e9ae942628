"""A walk through a segment file: where its batches lie, and their headers as one table.

Only what lies between two batches is judged here, as ``LogSegment`` does: a length, magic or offset
that cannot be ends the walk, with the position and the reason, after everything before it was yielded. What
is inside a batch, its CRC included, is for the reader of the records.

Reads are positioned. A walk for headers alone reads a page and jumps to the next header, so it moves through
a segment of large batches without reading it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from minikafka.errors import MinikafkaError
from minikafka.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from minikafka.spark.source.storage import LogFile
from minikafka.types import Buffer

HEADER_DTYPE: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""A batch header as it lies in the file; the names are those of ``protocol.records.batch.BatchHeader``."""

Int64s = npt.NDArray[np.int64]
Headers = npt.NDArray[Any]
"""An array of ``HEADER_DTYPE``."""

_fields = Struct(">qi4xb6xi").unpack_from  # base offset, length, magic, last offset delta
_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_HEADER_BYTES: Final = np.arange(HEADER_SIZE)
_HEADERS_MAX: Final = 4096
"""That are collected before they are handed on, where only headers are wanted."""


class DamagedSegment(MinikafkaError):
    """No batch where one should be."""

    def __init__(self, position: int, reason: str, *, is_tail: bool = False) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason
        self.is_tail = is_tail
        """Whether the last segment of a log may look like this: a batch that is not written to its end yet,
        or never was, or space that was reserved."""
        self.next_offset = -1
        """The offset behind the last whole batch before; set by the walk."""


class Block(NamedTuple):
    """Batches that lie one behind the other."""

    data: Buffer
    """Of the file from ``file_position`` on, with the whole batches; empty where only headers were asked
    for."""
    file_position: int
    positions: Int64s
    """Of the batches, in ``data``; in the file where only headers were asked for."""
    headers: Headers


def scan(
    file: LogFile,
    *,
    position: int,
    end: int,
    base_offset: int,
    read_bytes: int,
    whole_batches: bool,
    stop_offset: int | None = None,
    offset_bound: int | None = None,
) -> Iterator[Block]:
    """The batches from ``position``, where one must start, to ``end`` or the first at or above
    ``stop_offset``.

    Args:
        base_offset: no batch may begin below; at first the segment's.
        read_bytes: how much to read at once; more where one batch is larger and ``whole_batches``.
        offset_bound: no batch before ``end`` may reach it. A batch's checksum does not cover its base offset:
            only its neighbours can show that one is wrong.

    Raises:
        DamagedSegment: the way to ``end`` is damaged; what lies before was yielded.
        OSError: the store's.
    """
    if not whole_batches:
        walk = _Walk(position, end, base_offset, base_offset, stop_offset, offset_bound)
        yield from _scan_headers(file, walk, read_bytes)
        return
    least_offset = base_offset
    size_wanted = read_bytes
    while position < end:
        data = file.read(position, min(size_wanted, end - position))
        size_wanted = read_bytes
        walk = _Walk(position, end, base_offset, least_offset, stop_offset, offset_bound)
        places, behind = walk.batches_in(data, must_be_whole=True)
        least_offset = walk.least_offset
        if places:
            yield Block(data, position, np.array(places, dtype=np.int64), _headers(data, places))
        if walk.damage is not None:
            walk.damage.next_offset = walk.least_offset
            raise walk.damage
        if walk.is_done:
            return
        size_wanted = max(read_bytes, walk.size_wanted)
        position += behind


def _scan_headers(file: LogFile, walk: _Walk, read_bytes: int) -> Iterator[Block]:
    """The same for headers alone: they are collected from many reads."""
    found: list[Buffer] = []
    positions: list[int] = []
    while walk.position < walk.end and walk.damage is None and not walk.is_done:
        data = file.read(walk.position, min(read_bytes, walk.end - walk.position))
        start = walk.position
        places, behind = walk.batches_in(data, must_be_whole=False)
        for at in places:
            found.append(data[at : at + HEADER_SIZE])
            positions.append(start + at)
        walk.position = start + behind
        if len(found) >= _HEADERS_MAX:
            yield _header_block(found, positions)
            found, positions = [], []
    if found:
        yield _header_block(found, positions)
    if walk.damage is not None:
        walk.damage.next_offset = walk.least_offset
        raise walk.damage


class _Walk:
    """The chain of batches, followed through one buffer after the other."""

    def __init__(
        self,
        position: int,
        end: int,
        base_offset: int,
        least_offset: int,
        stop_offset: int | None,
        offset_bound: int | None,
    ) -> None:
        self.position = position
        self.least_offset = least_offset
        self.damage: DamagedSegment | None = None
        self.is_done = False
        self.size_wanted = 0
        """Of a batch that did not fit into the buffer as its first."""
        self.end = end
        self._offset_max = base_offset + _RELATIVE_OFFSET_MAX
        self._offset_bound = offset_bound
        self._stop_offset = stop_offset

    def batches_in(self, data: Buffer, *, must_be_whole: bool) -> tuple[list[int], int]:
        """Where batches start in ``data``, which is what the file has at ``position``; and where the next one
        does, which may be behind it. Stops at damage and where the walk is done."""
        at, places = 0, []
        last_start = len(data) - HEADER_SIZE
        while at <= last_start:
            first_offset, length, magic, last_offset_delta = _fields(data, at)
            if (
                length < _LENGTH_MIN
                or magic != MAGIC
                or last_offset_delta < 0
                or not self.least_offset <= first_offset <= self._offset_max
            ):
                self.damage = _what_is_wrong(data, at, self.position, self.least_offset)
                break
            last = first_offset + last_offset_delta
            if self._offset_bound is not None and last >= self._offset_bound:
                reason = (
                    f"a batch that ends at offset {last}, where {self._offset_bound} belongs to the next one"
                )
                self.damage = DamagedSegment(self.position + at, reason)
                break
            if self._stop_offset is not None and first_offset >= self._stop_offset:
                self.is_done = True
                break
            behind = at + LOG_OVERHEAD + length
            if self.position + behind > self.end:
                there = self.end - self.position - at
                reason = f"a batch of {LOG_OVERHEAD + length} bytes where the file has {there}"
                self.damage = DamagedSegment(self.position + at, reason, is_tail=True)
                break
            if must_be_whole and behind > len(data):
                self.size_wanted = behind - at
                break
            places.append(at)
            self.least_offset = last + 1
            at = behind
        if at == 0 and len(data) < HEADER_SIZE:
            reason = f"{len(data)} bytes are too few for the header of a batch"
            self.damage = DamagedSegment(self.position, reason, is_tail=True)
        return places, at


def _headers(data: Buffer, places: list[int]) -> Headers:
    octets = np.frombuffer(data, dtype=np.uint8)
    headers: Headers = octets[np.array(places)[:, None] + _HEADER_BYTES].view(HEADER_DTYPE)[:, 0]
    return headers


def _header_block(found: list[Buffer], positions: list[int]) -> Block:
    headers = np.frombuffer(b"".join(found), dtype=HEADER_DTYPE)
    return Block(b"", 0, np.array(positions, dtype=np.int64), headers)


def _what_is_wrong(data: Buffer, at: int, position: int, least_offset: int) -> DamagedSegment:
    first_offset, length, magic, last_offset_delta = _fields(data, at)
    if not any(data[at : at + HEADER_SIZE]):
        return DamagedSegment(position + at, "zeros where a batch should be", is_tail=True)
    if magic in (0, 1) and length > 0:
        reason = f"a message of format v{magic}; only v{MAGIC}, Kafka's since 0.11, can be read"
    elif magic != MAGIC:
        reason = f"no batch: its magic would be {magic}"
    elif length < _LENGTH_MIN:
        reason = f"no batch: its length would be {length}"
    elif last_offset_delta < 0:
        reason = f"no batch: its last offset would be {first_offset + last_offset_delta}"
    else:
        reason = (
            f"a batch that begins at offset {first_offset}, where {least_offset} is the least there can be"
        )
    return DamagedSegment(position + at, reason)
