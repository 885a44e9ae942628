"""A segment file read batch by batch, and its index files entry by entry, with everything that is wrong with
them. Kafka: ``DumpLogSegments``.

Nothing is trusted: lengths are checked before they are followed, and the scan ends where the next batch can
no longer be found. Memory is bounded by one batch; one too large for that has its CRC computed piece by piece
and its records left alone.

A check takes the entries of one index in step with the batches of the segment, so that neither is ever held
whole. Both must ascend for that: an entry that does not is a finding and is left out of the comparison.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from minikafka.errors import KafkaError
from minikafka.files import File, Files
from minikafka.log.files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name
from minikafka.log.segment.indexes import (
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TXN_INDEX_ENTRY,
    TXN_INDEX_VERSION,
    AbortedTransaction,
)
from minikafka.protocol.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    CompressionType,
    CorruptBatch,
    TimestampType,
    read_header,
)
from minikafka.protocol.records.records import (
    ControlRecordType,
    Record,
    iterate_records,
    read_end_transaction_marker,
)

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

_ZEROS = bytes(1 << 16)
"""20 MB are reserved for each active segment after a kill. Nearly all of it is a hole in the file, which is
passed over; the rest is compared, which costs a tenth of counting zeros."""
REBUILD = "stop the broker and delete the file: it is rebuilt from the segment when the broker starts"

FINDINGS_MAX = 100
"""So many wrong entries of one index are named, the others counted: it has to be rebuilt anyway."""

_ENTRIES_PER_READ = 8192


# Segments


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


# Indexes


class IndexEntry(NamedTuple):
    """An entry of an offset index."""

    at: int
    """Where it is in the index file."""
    offset: int
    position: int


class TimeIndexEntry(NamedTuple):
    """An entry of a time index."""

    at: int
    timestamp: int
    offset: int


class TxnIndexEntry(NamedTuple):
    """An entry of a transaction index."""

    at: int
    version: int
    transaction: AbortedTransaction


class SegmentEnd(NamedTuple):
    """How the scan of a segment ended."""

    is_whole: bool
    position: int
    last_offset: int
    max_timestamp: int


class IndexReader:
    """Reads the entries of one index file of any kind.

    ``entries`` yields what can be read; ``findings`` then holds what is wrong with the file as such. Zero
    bytes at the end of an active segment's index are space that was reserved, everywhere else damage.
    """

    def __init__(self, file: File, *, path: str, entry: Struct, is_active: bool) -> None:
        self.findings: list[Finding] = []
        self.reserved_entries = 0
        self._file = file
        self._path = path
        self._entry = entry
        self._is_active = is_active

    def entries(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Each entry's position and fields."""
        entry_size = self._entry.size
        size = self._file.size()
        if size % entry_size:
            what = f"{size} bytes are not a whole number of {entry_size}-byte entries"
            self.findings.append(Finding(self._path, size - size % entry_size, what, REBUILD))
        whole = size - size % entry_size
        position = 0
        while position < whole:
            data = self._file.read(min(_ENTRIES_PER_READ * entry_size, whole - position), position)
            if len(data) % entry_size or not data:  # the file shrank meanwhile
                return
            for number, fields in enumerate(self._entry.iter_unpack(data)):
                at = position + number * entry_size
                if not any(fields) and self._only_zeros_from(at, whole):
                    self._note_zeros(at, whole)
                    return
                yield at, fields
            position += len(data)

    def _only_zeros_from(self, position: int, end: int) -> bool:
        while (position := self._file.skip_hole(position)) < end:
            chunk = self._file.read(min(len(_ZEROS), end - position), position)
            if chunk != _ZEROS[: len(chunk)]:
                return False
            if not chunk:
                break
            position += len(chunk)
        return True

    def _note_zeros(self, position: int, end: int) -> None:
        count = (end - position) // self._entry.size
        if self._is_active:
            self.reserved_entries = count
        else:
            what = (
                f"{count} zero entries to the end of the file: the space that was reserved was never cut off"
            )
            self.findings.append(Finding(self._path, position, what, REBUILD))


class IndexCheck:
    """Compares one index with the batches of its segment. Subclasses say how.

    ``batch`` is called for each batch in order, ``finish`` once at the end.
    """

    SUFFIX = ""
    ENTRY: Struct

    def __init__(self, path: str, file: File, *, base_offset: int, is_active: bool) -> None:
        self.path = path
        self._file = file
        self._base_offset = base_offset
        self._is_active = is_active
        self._reader = IndexReader(file, path=path, entry=self.ENTRY, is_active=is_active)
        self._entries = self._reader.entries()
        self._found: list[Finding] = []
        self._named = 0
        self._more = 0

    @classmethod
    def open(cls, directory: str, base_offset: int, files: Files, *, is_active: bool) -> IndexCheck | None:
        """The check for a segment; None when it has no such index."""
        path = os.path.join(directory, file_name(base_offset, cls.SUFFIX))
        if not files.exists(path):
            return None
        file = files.open(path, read_only=True)
        return cls(path, file, base_offset=base_offset, is_active=is_active)

    def batch(self, batch: ScannedBatch) -> list[Finding]:
        raise NotImplementedError

    def finish(self, end: SegmentEnd) -> list[Finding]:
        """The segment has ended. One that could not be read to its end says nothing about the rest."""
        if end.is_whole:
            self._compare_end(end)
        if self._more:
            what = f"{self._more} more entries are wrong"
            self._found.append(Finding(self.path, None, what, REBUILD))
        return self._take_found()

    def _compare_end(self, end: SegmentEnd) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._file.close()

    def _finding(self, at: int, what: str) -> None:
        self._named += 1
        if self._named <= FINDINGS_MAX:
            self._found.append(Finding(self.path, at, what, REBUILD))
        else:
            self._more += 1

    def _take_found(self) -> list[Finding]:
        found, self._found = self._found + self._reader.findings, []
        self._reader.findings = []
        return found


class OffsetIndexCheck(IndexCheck):
    """Every entry leads to the start of a batch that ends with the entry's offset.

    Kafka before 4.0 made one entry for an append of several batches: the last offset of all, the start of the
    first. Such an entry is right when its offset is in the segment.
    """

    SUFFIX = INDEX_SUFFIX
    ENTRY = OFFSET_INDEX_ENTRY

    def __init__(self, path: str, file: File, *, base_offset: int, is_active: bool) -> None:
        super().__init__(path, file, base_offset=base_offset, is_active=is_active)
        self._last = (base_offset - 1, -1)
        self._next = self._advance()
        self._ahead: list[IndexEntry] = []  # entries of several batches, whose end has yet to come

    def batch(self, batch: ScannedBatch) -> list[Finding]:
        while self._next is not None and self._next.position < batch.position:
            self._finding(self._next.at, f"{_entry(self._next)} points to where no batch begins")
            self._next = self._advance()
        entry = self._next
        last_offset = batch.header.last_offset
        if entry is not None and entry.position == batch.position:
            if entry.offset > last_offset:
                self._ahead.append(entry)
            elif entry.offset < last_offset:
                self._finding(entry.at, f"{_entry(entry)} points to a batch that ends at {last_offset}")
            self._next = self._advance()
        while self._ahead and self._ahead[0].offset <= last_offset:
            entry = self._ahead.pop(0)
            if entry.offset != last_offset:
                self._finding(entry.at, f"{_entry(entry)} is the last offset of no batch")
        return self._take_found()

    def _compare_end(self, end: SegmentEnd) -> None:
        while self._next is not None:
            if self._next.position >= end.position:
                self._finding(
                    self._next.at, f"{_entry(self._next)} is beyond the segment's end {end.position}"
                )
            else:
                self._finding(self._next.at, f"{_entry(self._next)} points to where no batch begins")
            self._next = self._advance()
        for entry in self._ahead:
            self._finding(entry.at, f"{_entry(entry)} is beyond the segment's last offset {end.last_offset}")

    def _advance(self) -> IndexEntry | None:
        for at, (relative_offset, position) in self._entries:
            entry = IndexEntry(at, self._base_offset + relative_offset, position)
            if entry.offset > self._last[0] and position > self._last[1]:
                self._last = (entry.offset, position)
                return entry
            self._finding(
                at, f"{_entry(entry)} does not ascend from offset {self._last[0]} → {self._last[1]}"
            )
        return None


class TimeIndexCheck(IndexCheck):
    """Every entry names the largest timestamp so far and a batch that has it."""

    SUFFIX = TIME_INDEX_SUFFIX
    ENTRY = TIME_INDEX_ENTRY

    def __init__(self, path: str, file: File, *, base_offset: int, is_active: bool) -> None:
        super().__init__(path, file, base_offset=base_offset, is_active=is_active)
        self._last = (-1, base_offset - 1)
        self._last_at = 0
        self._latest = -1  # of the batches so far
        self._next = self._advance()

    def batch(self, batch: ScannedBatch) -> list[Finding]:
        header = batch.header
        while self._next is not None and self._next.offset < header.base_offset:
            self._finding(self._next.at, f"{_time(self._next)} names an offset that is in no batch")
            self._next = self._advance()
        latest_before = self._latest
        self._latest = max(self._latest, header.max_timestamp)
        while self._next is not None and self._next.offset <= header.last_offset:
            if self._next.timestamp != header.max_timestamp:
                what = f"{_time(self._next)} names a batch whose max timestamp is {header.max_timestamp}"
                self._finding(self._next.at, what)
            elif latest_before > self._next.timestamp:
                what = f"{_time(self._next)} is not the largest so far: an earlier batch has {latest_before}"
                self._finding(self._next.at, what)
            self._next = self._advance()
        return self._take_found()

    def _compare_end(self, end: SegmentEnd) -> None:
        while self._next is not None:
            self._finding(
                self._next.at, f"{_time(self._next)} is beyond the segment's last offset {end.last_offset}"
            )
            self._next = self._advance()
        recorded = self._last[0]
        if not self._is_active and end.max_timestamp >= 0 and recorded < end.max_timestamp:
            what = f"the last entry has timestamp {recorded}, the segment's largest is {end.max_timestamp}"
            self._finding(self._last_at, what)

    def _advance(self) -> TimeIndexEntry | None:
        for at, (timestamp, relative_offset) in self._entries:
            entry = TimeIndexEntry(at, timestamp, self._base_offset + relative_offset)
            if timestamp > self._last[0] and entry.offset > self._last[1]:
                self._last, self._last_at = (timestamp, entry.offset), at
                return entry
            self._finding(at, f"{_time(entry)} does not ascend from {self._last[0]} → offset {self._last[1]}")
        return None


class TxnIndexCheck(IndexCheck):
    """Every entry ends with an abort marker of its producer in this segment."""

    SUFFIX = TXN_INDEX_SUFFIX
    ENTRY = TXN_INDEX_ENTRY

    def __init__(self, path: str, file: File, *, base_offset: int, is_active: bool) -> None:
        # Nothing is ever reserved in a transaction index.
        super().__init__(path, file, base_offset=base_offset, is_active=False)
        self._last_offset = base_offset - 1
        self._next = self._advance()

    def batch(self, batch: ScannedBatch) -> list[Finding]:
        header = batch.header
        while self._next is not None and self._next.transaction.last_offset <= header.last_offset:
            transaction = self._next.transaction
            if transaction.last_offset < header.base_offset or not header.is_control:
                what = f"{transaction} names offset {transaction.last_offset}, where no marker is"
                self._finding(self._next.at, what)
            elif header.producer_id != transaction.producer_id:
                what = f"{transaction} names the marker of producer {header.producer_id}"
                self._finding(self._next.at, what)
            elif not _is_abort(batch):
                self._finding(self._next.at, f"{transaction} names a marker that is no abort")
            self._next = self._advance()
        return self._take_found()

    def _compare_end(self, end: SegmentEnd) -> None:
        while self._next is not None:
            what = f"{self._next.transaction} is beyond the segment's last offset {end.last_offset}"
            self._finding(self._next.at, what)
            self._next = self._advance()

    def _advance(self) -> TxnIndexEntry | None:
        for at, (version, *fields) in self._entries:
            transaction = AbortedTransaction._make(fields)
            if version != TXN_INDEX_VERSION:
                self._finding(at, f"an entry of unknown version {version}")
            elif transaction.last_offset <= self._last_offset:
                self._finding(at, f"{transaction} does not ascend from offset {self._last_offset}")
            elif not 0 <= transaction.first_offset <= transaction.last_offset or transaction.producer_id < 0:
                self._finding(at, f"{transaction} is no transaction")
            else:
                self._last_offset = transaction.last_offset
                return TxnIndexEntry(at, version, transaction)
        return None


def _is_abort(batch: ScannedBatch) -> bool:
    if not batch.records:
        return True  # cannot be read, which is a finding of the segment's
    try:
        marker = read_end_transaction_marker(batch.records[0].key, batch.records[0].value)
    except KafkaError:
        return True
    return marker is not None and marker.type is ControlRecordType.ABORT


def _entry(entry: IndexEntry) -> str:
    return f"offset {entry.offset} → position {entry.position}"


def _time(entry: TimeIndexEntry) -> str:
    return f"timestamp {entry.timestamp} → offset {entry.offset}"
