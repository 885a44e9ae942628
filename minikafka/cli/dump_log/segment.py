"""A segment file read batch by batch, with everything that is wrong with it. Kafka: ``DumpLogSegments``.

Nothing is trusted: lengths are checked before they are followed, and the scan ends where the next batch can
no longer be found. Memory is bounded by one batch; one too large for that has its CRC computed piece by piece
and its records left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from minikafka.files import File
from minikafka.protocol.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    CompressionType,
    CorruptBatch,
    TimestampType,
    read_header,
)
from minikafka.protocol.records.records import Record, iterate_records

CHUNK_BYTES = 1 << 20
BATCH_IN_MEMORY_BYTES_MAX = 128 << 20
"""Larger batches are not decoded. Kafka's clients send 1 MiB at most unless told otherwise."""
DECOMPRESSED_BYTES_MAX = 256 << 20

_MAGIC_POSITION = 16
_CRC_COVERS_FROM = 21
_RELATIVE_OFFSET_MAX = 2**31 - 1

CUT_OFF = (
    "a broker that recovers the log cuts it off here; if the partition has other replicas, remove this one's "
    "directory while the broker is down and let it copy them"
)
NOT_WRITTEN_SO = (
    "no broker writes this; prefer another replica, and keep a copy of the file for the bug report"
)


class Finding(NamedTuple):
    """One thing that is wrong: where (``position`` in bytes, if it has one), what, and what to do."""

    file: str
    position: int | None
    what: str
    advice: str


class ScannedBatch(NamedTuple):
    """A batch whose extent is known; what is wrong inside it came before it as findings."""

    position: int
    header: BatchHeader
    crc_is_valid: bool
    records: list[Record] | None
    """None when they were not asked for or cannot be read."""


class SegmentScanner:
    """Scans one segment file. ``next_offset`` and ``leader_epoch`` are what the file before it ended with.

    Afterwards they are what this one ends with; ``end_position`` is where the last readable batch ended, and
    ``is_whole`` says whether that is the end of the file.
    """

    def __init__(
        self,
        file: File,
        *,
        path: str,
        base_offset: int | None,
        decode: bool,
        next_offset: int = 0,
        leader_epoch: int = -1,
    ) -> None:
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.max_timestamp = -1
        self.end_position = 0
        self.is_whole = False
        self._file = file
        self._path = path
        self._base_offset = base_offset
        self._decode = decode

    def scan(self) -> Iterator[ScannedBatch | Finding]:
        """Every batch in its order, and the findings about it before it."""
        size = self._file.size()
        position = 0
        while position < size:
            head = self._file.read(HEADER_SIZE, position)
            broken = self._unreadable(head, position, size)
            if broken is not None:
                yield broken
                return
            header = read_header(head)
            data = b""
            if header.size <= BATCH_IN_MEMORY_BYTES_MAX:
                data = self._file.read(header.size, position)
                crc = crc32c(memoryview(data)[_CRC_COVERS_FROM:])
            else:
                crc = self._crc(position + _CRC_COVERS_FROM, position + header.size)
            if crc != header.crc:
                what = (
                    f"the CRC of batch {header.base_offset} is {header.crc:#010x}, its bytes have {crc:#010x}"
                )
                yield Finding(self._path, position, what, CUT_OFF)
            for what in self._header_problems(header):
                yield Finding(self._path, position, what, NOT_WRITTEN_SO)
            records = None
            if self._decode and crc == header.crc and data:
                records, problems = _decode(data, header)
                for what in problems:
                    yield Finding(self._path, position, what, NOT_WRITTEN_SO)
            yield ScannedBatch(position, header, crc == header.crc, records)
            position += header.size
            self.end_position = position
            self.next_offset = max(self.next_offset, header.next_offset)
            self.leader_epoch = max(self.leader_epoch, header.partition_leader_epoch)
            self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        self.is_whole = True

    def _unreadable(self, head: bytes, position: int, size: int) -> Finding | None:
        """Why the scan cannot continue behind ``position``."""
        left = size - position
        if not any(head) and self._is_zero(position):
            what = (
                f"{left} zero bytes behind the last batch (space that was reserved, or lost in a power cut)"
            )
        elif len(head) < HEADER_SIZE:
            what = f"{left} bytes are too few for a batch ({HEADER_SIZE} at least): it was cut short"
        elif head[_MAGIC_POSITION] != MAGIC:
            magic = head[_MAGIC_POSITION]
            what = f"magic {magic} where a batch should begin, only {MAGIC} is supported"
            if magic < MAGIC and head[8:12] != b"\0\0\0\0":
                advice = (
                    "were this an old log (Kafka before 0.11): let a Kafka of 3.x convert it by compaction"
                )
                return Finding(self._path, position, what, f"{CUT_OFF}; {advice}")
        else:
            try:
                header = read_header(head)
            except CorruptBatch as error:
                return Finding(self._path, position, str(error.message), CUT_OFF)
            if header.size <= left:
                return None
            what = f"batch {header.base_offset} of {header.size} bytes was cut short: only {left} are left"
        return Finding(self._path, position, what, CUT_OFF)

    def _header_problems(self, header: BatchHeader) -> Iterator[str]:
        name = f"batch {header.base_offset}"
        base = self._base_offset
        if base is not None and header.base_offset < base:
            yield f"{name} is below the segment's base offset {base}"
        elif header.base_offset < self.next_offset:
            yield f"{name} does not follow offset {self.next_offset - 1}: offsets have to ascend"
        if base is not None and header.last_offset - base > _RELATIVE_OFFSET_MAX:
            yield f"{name} ends at {header.last_offset}, more than 2^31 behind the segment's base offset"
        if header.last_offset_delta < 0:
            yield f"{name} has last offset delta {header.last_offset_delta}"
        elif not 0 <= header.record_count <= header.last_offset_delta + 1:
            yield (
                f"{name} announces {header.record_count} records for {header.last_offset_delta + 1} offsets"
            )
        if header.partition_leader_epoch < self.leader_epoch:
            yield (
                f"{name} has leader epoch {header.partition_leader_epoch} behind a batch of epoch "
                f"{self.leader_epoch}"
            )
        if header.compression not in CompressionType.__members__.values():
            yield f"{name} names compression {header.compression}, which there is not"

    def _is_zero(self, position: int) -> bool:
        while chunk := self._file.read(CHUNK_BYTES, position):
            if chunk.count(0) != len(chunk):
                return False
            position += len(chunk)
        return True

    def _crc(self, position: int, end: int) -> int:
        crc = 0
        while position < end:
            chunk = self._file.read(min(CHUNK_BYTES, end - position), position)
            if not chunk:  # the file shrank meanwhile
                break
            crc = crc32c(chunk, crc)
            position += len(chunk)
        return crc


def _decode(data: bytes, header: BatchHeader) -> tuple[list[Record] | None, list[str]]:
    """The records of a batch with a good CRC, and what is wrong with them."""
    name = f"batch {header.base_offset}"
    try:
        records = list(iterate_records(data, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX))
    except CorruptBatch as error:
        return None, [f"the records of {name} cannot be read: {error.message}"]
    problems = []
    if len(records) != header.record_count:
        problems.append(f"{name} announces {header.record_count} records and holds {len(records)}")
    previous = header.base_offset - 1
    for record in records:
        if not previous < record.offset <= header.last_offset:
            problems.append(
                f"{name} (to {header.last_offset}) holds offset {record.offset} behind {previous}"
            )
            break
        previous = record.offset
    if records and header.timestamp_type is TimestampType.CREATE_TIME:
        latest = max(record.timestamp for record in records)
        if latest != header.max_timestamp:
            problems.append(f"{name} has max timestamp {header.max_timestamp}, its records {latest}")
    return records, problems
