"""The indexes of one segment: from offsets and timestamps to places in it, and its aborted transactions.

**What offset and time index have in common** (``IndexFile``): a file of fixed-size, ordered entries. Kafka:
``AbstractIndex``. It is mapped into memory when it is used, and stays so until ``OpenFiles`` wants its
descriptor (Python's map keeps one). While its segment is active the file has its full size
(``segment.index.bytes``, a sparse file), at the latest with its first entry; when the segment closes it is
trimmed to its entries. The file carries no checksum: each lookup checks what it finds in the segment, and a
corrupt index is rebuilt from the segment. Differs from Kafka: before the map is written into a new page, that
page is written through the file, because a store into a hole of a mapped file on a full disk kills the
process (SIGBUS); a write answers ENOSPC instead.

**Offset index**: entries of 8 bytes, the offset relative to the segment's base (int32) and a position
(int32). An entry (O, P) says that the batch whose last offset is O starts at P (an append of several batches,
in logs that Kafka before 4.0 wrote: the last offset of the append and the start of its first batch). Offsets
and positions strictly ascend. Kafka: ``OffsetIndex``.

**Time index**: entries of 12 bytes, a timestamp (int64, milliseconds) and an offset relative to the segment's
base (int32). An entry (T, O) says that T is the largest timestamp up to offset O; so whatever is later than T
comes after O. Timestamps strictly ascend, offsets ascend. One slot is kept free for the entry that is added
when the segment closes. Kafka: ``TimeIndex`` (KIP-33).

**Transaction index**: which transactions were aborted by markers in this segment, so that the consumer of a
read_committed fetch can drop their records. Kafka: ``TransactionIndex``, ``AbortedTxn``,
``TxnIndexSearchResult`` (KIP-98). The file ``<base offset>.txnindex`` holds 34-byte entries, big-endian:
version int16 (0) · producer id int64 · first offset int64 · last offset int64 (the marker's) · last stable
offset int64 (as it was after that marker). Last offsets strictly increase through the file, which does not
exist until the first transaction aborts; most segments never have one. Appends do not fsync; the log's flush
does, on the disk thread. Different from Kafka: a search starts with a bisection over the last offsets instead
of at the beginning of the file, and an index whose size is not a whole number of entries fails
``sanity_check``.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Any, ClassVar

from minikafka.errors import InvariantError, MinikafkaError
from minikafka.files import File, Files
from minikafka.log.files import OpenFiles
from minikafka.log.segment.fetch_data import ColdFile, ColdRead
from minikafka.named_tuple import NamedTuple
from minikafka.types import NO_TIMESTAMP

RELATIVE_OFFSET_MAX = 2**31 - 1
"""The index has four bytes for an offset, so a segment holds none that is further from its base offset."""

PAGE_BYTES = 4096
WARM_BYTES = 8192
"""Kafka's warm section: lookups near the end touch only the last two pages, which therefore stay in
memory."""

OFFSET_INDEX_ENTRY = Struct(">ii")
_INT = Struct(">i")

TIME_INDEX_ENTRY = Struct(">qi")
_LONG = Struct(">q")

TXN_INDEX_ENTRY = Struct(">hqqqq")
TXN_INDEX_ENTRY_SIZE = TXN_INDEX_ENTRY.size
TXN_INDEX_VERSION = 0

_ENTRIES_PER_READ = 1024
"""34 KiB at a time: an index of any size is read in bounded memory."""


class IndexFile:
    """Entries of ``ENTRY_BYTES`` each, in ascending order. ``entries`` is how many there are."""

    ENTRY_BYTES: ClassVar[int]

    __slots__ = (
        "_files",
        "_map",
        "_open_files",
        "_reserved_bytes",
        "_writable",
        "base_offset",
        "entries",
        "entries_max",
        "path",
        "was_used",
    )

    def __init__(
        self,
        path: str,
        *,
        base_offset: int,
        bytes_max: int,
        files: Files,
        open_files: OpenFiles | None = None,
    ) -> None:
        """``open_files``: the cache that its map shares with others; one of its own unless given."""
        self.path = path
        self.base_offset = base_offset
        self.entries = 0
        self.entries_max = bytes_max // self.ENTRY_BYTES  # while the segment is active
        self._files = files
        self._open_files = OpenFiles() if open_files is None else open_files
        self.was_used = False
        self._map: mmap.mmap | memoryview | None = None
        self._writable = False
        self._reserved_bytes = 0

    def __repr__(self) -> str:
        state = "active" if self._writable else "mapped" if self._map is not None else "not open"
        return f"{type(self).__name__}({self.path!r}, entries={self.entries}, {state})"

    @property
    def is_mapped(self) -> bool:
        return self._map is not None

    # ---- life: create or load, activate, trim, release

    def load(self) -> bool:
        """Take over the existing file, unread. False when it is missing or its size is not whole entries."""
        try:
            size = self._files.size(self.path)
        except FileNotFoundError:
            return False
        self.entries = size // self.ENTRY_BYTES
        return size % self.ENTRY_BYTES == 0

    def reset(self) -> None:
        """Start empty, ready for appends, whatever the file held."""
        self.release()
        self.entries = 0
        file = self._files.open(self.path, create=True)
        try:
            file.truncate(0)
            file.truncate(self.entries_max * self.ENTRY_BYTES)
        finally:
            file.close()
        self.activate()

    def activate(self) -> None:
        """Take appends from now on."""
        if self._writable:
            return
        self.release()
        self._writable = True
        self._reserved_bytes = self.entries * self.ENTRY_BYTES

    def trim(self) -> None:
        """Cut the file to its entries; it is mapped again, to read, at the next lookup."""
        was_writable, self._writable = self._writable, False
        self.release()
        if was_writable:
            file = self._files.open(self.path, create=True)
            try:
                file.truncate(self.entries * self.ENTRY_BYTES)
            finally:
                file.close()

    def release(self) -> None:
        """Release the map and its descriptor; the file is left as it is."""
        if self._map is not None:
            self._open_files.forget(self)
            self.close_idle()

    def close_idle(self) -> None:
        """Let go of the map, for ``OpenFiles``; the next use maps the file again."""
        mapped, self._map = self._map, None
        if isinstance(mapped, memoryview):
            mapped.release()
        elif mapped is not None:
            mapped.close()

    def open(self, *, cached_only: bool = False) -> None:
        """Map the entries to read them.

        Raises:
            ColdRead: with ``cached_only``, when they are not in memory.
        """
        if self._map is None and self.entries:
            self._open(cached_only)

    def _open(self, cached_only: bool) -> None:
        self._map = self._open_files.open(self, partial(self._map_file, cached_only))
        if self._map is None:
            self._open_files.forget(self)

    def _map_file(self, cached_only: bool) -> mmap.mmap | memoryview | None:
        file = self._files.open(self.path, read_only=not self._writable)
        try:
            size = self.entries * self.ENTRY_BYTES
            if file.size() < size:  # shrunk behind our back: a map of it would end the process
                self.entries = file.size() // self.ENTRY_BYTES
                size = self.entries * self.ENTRY_BYTES
            if size and cached_only and file.read_cached(size, 0) is None:
                raise ColdRead(ColdFile(self._files, self.path), 0, size)
            if self._writable:
                size = max(self.entries_max * self.ENTRY_BYTES, size)
                if file.size() > size:
                    file.truncate(size)
            return file.map(size) if size else None
        finally:
            file.close()

    # ---- entries

    def _mapped(self) -> Any:
        """The map, opened when it is not; for a reader that knows that there are entries."""
        self.was_used = True
        if self._map is None:
            self._open(cached_only=False)
            if self._map is None:
                raise InvariantError(f"{self.path} has no entries to map")
        return self._map

    def _append_entry(self, entry: Struct, first: int, second: int) -> None:
        position = self.entries * self.ENTRY_BYTES
        end = position + self.ENTRY_BYTES
        if end > self._reserved_bytes:
            self._reserve(end)
        entry.pack_into(self._mapped(), position, first, second)
        self.entries += 1

    def _reserve(self, end: int) -> None:
        """Have the disk promise the pages up to ``end``. Raises OSError (ENOSPC) when it cannot."""
        if not self._writable or end > self.entries_max * self.ENTRY_BYTES:
            raise InvariantError(f"no room for another entry: {self!r}")
        start = self._reserved_bytes
        stop = min(-(-end // PAGE_BYTES) * PAGE_BYTES, self.entries_max * self.ENTRY_BYTES)
        file = self._files.open(self.path)
        try:
            file.write([bytes(stop - start)], start)
        finally:
            file.close()
        self._reserved_bytes = stop

    def _truncate_to_entries(self, entries: int) -> None:
        """Drop the later ones, and blank them: until the segment closes nothing but zeros says where the
        entries of the file end, to a reader after a kill or while the broker runs."""
        if entries < self.entries:
            start, end = entries * self.ENTRY_BYTES, self.entries * self.ENTRY_BYTES
            self._mapped()[start:end] = bytes(end - start)
        self.entries = entries
        self._reserved_bytes = min(self._reserved_bytes, entries * self.ENTRY_BYTES)

    def _slots_up_to(
        self, unpack_from: Callable[[Any, int], tuple[int, ...]], key_at: int, target: int
    ) -> int:
        """How many leading entries have a key of at most ``target``; the key is read ``key_at`` bytes into
        each."""
        entry_bytes = self.ENTRY_BYTES
        low, high = 0, self.entries
        if not high:
            return 0
        mapped = self._mapped()
        warm = high - WARM_BYTES // entry_bytes
        if warm > 0 and unpack_from(mapped, warm * entry_bytes + key_at)[0] <= target:
            low = warm + 1
        while low < high:
            middle = (low + high) >> 1
            if unpack_from(mapped, middle * entry_bytes + key_at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low


class OffsetPosition(NamedTuple):
    """An offset and the position of the batch (or append) that ends with it."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """A sparse, ordered map from offsets to positions."""

    ENTRY_BYTES: ClassVar[int] = 8

    __slots__ = ()

    @property
    def is_full(self) -> bool:
        return self.entries >= self.entries_max

    def entry(self, slot: int) -> OffsetPosition:
        relative_offset, position = OFFSET_INDEX_ENTRY.unpack_from(self._mapped(), slot * 8)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def last_entry(self) -> OffsetPosition:
        """The last entry, or (base offset, 0)."""
        return self.entry(self.entries - 1) if self.entries else OffsetPosition(self.base_offset, 0)

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the largest offset of at most ``offset``, or (base offset, 0)."""
        count = self._slots_up_to(_INT.unpack_from, 0, offset - self.base_offset)
        return self.entry(count - 1) if count else OffsetPosition(self.base_offset, 0)

    def entry_at_or_before(self, position: int) -> OffsetPosition:
        """The last entry whose position is at most ``position``, or (base offset, 0)."""
        count = self._slots_up_to(_INT.unpack_from, 4, position)
        return self.entry(count - 1) if count else OffsetPosition(self.base_offset, 0)

    def upper_bound_offset(self, position: int) -> int | None:
        """An offset that lies at or after ``position``: that of the first entry there, if there is one."""
        count = self._slots_up_to(_INT.unpack_from, 4, position - 1)
        return self.entry(count).offset if count < self.entries else None

    def append(self, offset: int, position: int) -> None:
        """Raises OSError when the disk has no room; InvariantError when full or out of order."""
        relative_offset = offset - self.base_offset
        if not 0 <= relative_offset <= RELATIVE_OFFSET_MAX or self.is_full:
            raise InvariantError(f"offset {offset} does not fit into {self!r}")
        if self.entries and _INT.unpack_from(self._mapped(), self.entries * 8 - 8)[0] >= relative_offset:
            raise InvariantError(
                f"offset {offset} is not above the last one of {self!r}: {self.last_entry()}"
            )
        self._append_entry(OFFSET_INDEX_ENTRY, relative_offset, position)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""
        self._truncate_to_entries(self._slots_up_to(_INT.unpack_from, 0, offset - 1 - self.base_offset))

    def is_plausible(self, segment_bytes: int) -> bool:
        """A look at the first and the last entry: do they ascend, and lie inside a segment of this size?"""
        if not self.entries:
            return True
        first, last = self.entry(0), self.last_entry()
        return (
            0 <= first.position <= last.position < segment_bytes
            and self.base_offset <= first.offset <= last.offset
            and (self.entries == 1 or (first.offset < last.offset and first.position < last.position))
        )


class TimestampOffset(NamedTuple):
    """The largest timestamp so far and the last offset of the batch that has it."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """A sparse, ordered map from timestamps to offsets."""

    ENTRY_BYTES: ClassVar[int] = 12

    __slots__ = ("_last_timestamp",)

    def __init__(
        self,
        path: str,
        *,
        base_offset: int,
        bytes_max: int,
        files: Files,
        open_files: OpenFiles | None = None,
    ) -> None:
        super().__init__(
            path, base_offset=base_offset, bytes_max=bytes_max, files=files, open_files=open_files
        )
        self._last_timestamp: int | None = NO_TIMESTAMP  # None: not read yet

    @property
    def is_full(self) -> bool:
        return self.entries >= self.entries_max - 1

    def load(self) -> bool:
        is_whole = super().load()
        self._last_timestamp = None if self.entries else NO_TIMESTAMP
        return is_whole

    def reset(self) -> None:
        super().reset()
        self._last_timestamp = NO_TIMESTAMP

    def entry(self, slot: int) -> TimestampOffset:
        timestamp, relative_offset = TIME_INDEX_ENTRY.unpack_from(self._mapped(), slot * 12)
        return TimestampOffset(timestamp, self.base_offset + relative_offset)

    def last_entry(self) -> TimestampOffset:
        """The last entry, or (-1, base offset)."""
        return (
            self.entry(self.entries - 1) if self.entries else TimestampOffset(NO_TIMESTAMP, self.base_offset)
        )

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The entry with the largest timestamp of at most ``timestamp``, or (-1, base offset)."""
        count = self._slots_up_to(_LONG.unpack_from, 0, timestamp)
        return self.entry(count - 1) if count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def maybe_append(self, timestamp: int, offset: int, *, use_last_slot: bool = False) -> None:
        """Add an entry, but for a timestamp that is no later than the last one.

        Args:
            use_last_slot: the segment closes, so the slot that is kept free may be used.

        Raises:
            OSError: the disk has no room.
        """
        if self._last_timestamp is None:
            self._last_timestamp = self.last_entry().timestamp
        if timestamp <= self._last_timestamp:
            return
        relative_offset = offset - self.base_offset
        is_full = self.entries >= self.entries_max if use_last_slot else self.is_full
        if is_full or not 0 <= relative_offset <= RELATIVE_OFFSET_MAX:
            raise InvariantError(f"({timestamp}, {offset}) does not fit into {self!r}")
        self._append_entry(TIME_INDEX_ENTRY, timestamp, relative_offset)
        self._last_timestamp = timestamp

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""
        self._truncate_to_entries(self._slots_up_to(_INT.unpack_from, 8, offset - 1 - self.base_offset))
        self._last_timestamp = self.last_entry().timestamp

    def is_plausible(self) -> bool:
        """A look at the first and the last entry: do they ascend from the base offset on?"""
        if not self.entries:
            return True
        first, last = self.entry(0), self.last_entry()
        return (
            0 <= first.timestamp <= last.timestamp
            and self.base_offset <= first.offset <= last.offset
            and (self.entries == 1 or first.timestamp < last.timestamp)
        )


class CorruptTransactionIndex(MinikafkaError):
    """A transaction index that cannot be right; the loader drops it and rebuilds it from the segment."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction (Kafka's ``AbortedTxn``)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndexSearchResult(NamedTuple):
    """What one segment's index knows of a range; when not ``is_complete`` the next segment may know more."""

    aborted_transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """The transaction index of the segment that its file name says."""

    def __init__(self, path: str, files: Files, open_files: OpenFiles | None = None) -> None:
        """``open_files``: the cache that its file shares with others; one of its own unless given."""
        self._path = path
        self._files = files
        self._open_files = OpenFiles() if open_files is None else open_files
        self.was_used = False
        self._file: File | None = None
        self._size = files.size(path) if files.exists(path) else 0
        self._last_offset: int | None = None  # of the last entry; None: not known yet
        self._start_offset = _start_offset(path)

    def __repr__(self) -> str:
        return f"TransactionIndex({self._path!r}, entries={self.entry_count})"

    @property
    def path(self) -> str:
        return self._path

    @property
    def entry_count(self) -> int:
        return self._size // TXN_INDEX_ENTRY_SIZE

    @property
    def exists(self) -> bool:
        """Whether there is a file at all."""
        return self._file is not None or self._files.exists(self._path)

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction, creating the file for the first one.

        Raises:
            InvariantError: its last offset is not above that of the last entry.
            OSError: the disk's; the index is as it was.
        """
        if self._last_offset is None and self._size:
            self._last_offset = self._entry(self.entry_count - 1).last_offset
        if self._last_offset is not None and transaction.last_offset <= self._last_offset:
            raise InvariantError(
                f"{self._path}: an aborted transaction that ends at {transaction.last_offset} cannot follow "
                f"one that ends at {self._last_offset}"
            )
        file = self._open()
        try:
            written = file.write([TXN_INDEX_ENTRY.pack(TXN_INDEX_VERSION, *transaction)], self._size)
        except OSError:
            file.truncate(self._size)
            raise
        self._size += written
        self._last_offset = transaction.last_offset

    def all_aborted(self) -> list[AbortedTransaction]:
        return list(self._entries())

    def collect_aborted(self, fetch_offset: int, upper_bound_offset: int) -> TxnIndexSearchResult:
        """The aborted transactions that overlap [``fetch_offset``, ``upper_bound_offset``).

        Complete once an entry shows that everything below ``upper_bound_offset`` was decided by then.

        Raises:
            CorruptTransactionIndex: an entry has an unknown version.
        """
        if not self._size:
            return TxnIndexSearchResult([], False)
        found = []
        for transaction in self._entries(self._first_ending_at_or_after(fetch_offset)):
            if transaction.first_offset < upper_bound_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound_offset:
                return TxnIndexSearchResult(found, True)
        return TxnIndexSearchResult(found, False)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of transactions that ended at or above ``offset``."""
        if not self._size:
            return
        index = self._first_ending_at_or_after(offset)
        if index * TXN_INDEX_ENTRY_SIZE < self._size:
            self._truncate(index)

    def reset(self) -> None:
        """Drop every entry; what a rebuild starts with. Works on a damaged file too."""
        if self.exists:
            self._truncate(0)

    def sanity_check(self) -> None:
        """Read it all once.

        Raises:
            CorruptTransactionIndex: a torn or unknown entry, offsets that do not increase, a transaction
                that ended before this segment began or after it was stable.
        """
        if self._size % TXN_INDEX_ENTRY_SIZE:
            raise CorruptTransactionIndex(
                f"{self._path}: {self._size} bytes are not a whole number of entries"
            )
        previous = self._start_offset - 1
        for number, entry in enumerate(self._entries()):
            where = f"{self._path}: entry {number}"
            if entry.last_offset < self._start_offset:
                raise CorruptTransactionIndex(
                    f"{where} ends at offset {entry.last_offset}, before the segment's {self._start_offset}"
                )
            if entry.last_offset <= previous:
                raise CorruptTransactionIndex(
                    f"{where} ends at offset {entry.last_offset}, the one before at {previous}"
                )
            if not 0 <= entry.first_offset <= entry.last_offset or entry.producer_id < 0:
                raise CorruptTransactionIndex(f"{where} is not a transaction: {entry}")
            previous = entry.last_offset

    def close(self) -> None:
        if self._file is not None:
            self._open_files.forget(self)
            self.close_idle()

    def close_idle(self) -> None:
        """Close the file, for ``OpenFiles``; the next use opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def update_directory(self, directory: str) -> None:
        """The directory around the file was renamed to ``directory``."""
        self._path = os.path.join(directory, os.path.basename(self._path))

    def _open(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._open_files.open(self, lambda: self._files.open(self._path, create=True))
        self.was_used = True
        return file

    def _truncate(self, entry_count: int) -> None:
        self._open().truncate(entry_count * TXN_INDEX_ENTRY_SIZE)
        self._size = entry_count * TXN_INDEX_ENTRY_SIZE
        self._last_offset = None

    def _entry(self, number: int) -> AbortedTransaction:
        return self._decode(self._open().read(TXN_INDEX_ENTRY_SIZE, number * TXN_INDEX_ENTRY_SIZE), 0, number)

    def _entries(self, first: int = 0) -> Iterator[AbortedTransaction]:
        count = self.entry_count
        if first >= count:
            return
        for start in range(first, count, _ENTRIES_PER_READ):
            block = min(_ENTRIES_PER_READ, count - start)
            data = self._open().read(block * TXN_INDEX_ENTRY_SIZE, start * TXN_INDEX_ENTRY_SIZE)
            for number in range(block):
                yield self._decode(data, number * TXN_INDEX_ENTRY_SIZE, start + number)

    def _decode(self, data: bytes, position: int, number: int) -> AbortedTransaction:
        if len(data) - position < TXN_INDEX_ENTRY_SIZE:
            raise CorruptTransactionIndex(f"{self._path}: entry {number} is cut short")
        version, *fields = TXN_INDEX_ENTRY.unpack_from(data, position)
        if version != TXN_INDEX_VERSION:
            raise CorruptTransactionIndex(f"{self._path}: entry {number} has unknown version {version}")
        return AbortedTransaction._make(fields)

    def _first_ending_at_or_after(self, offset: int) -> int:
        low, high = 0, self.entry_count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


def decode_aborted(data: bytes, path: str) -> list[AbortedTransaction]:
    """The entries in the bytes of an index; one that is still being written at the end does not count.

    Raises:
        CorruptTransactionIndex: an entry has an unknown version; names ``path``.
    """
    whole = data[: len(data) - len(data) % TXN_INDEX_ENTRY_SIZE]
    found = []
    for number, (version, *fields) in enumerate(TXN_INDEX_ENTRY.iter_unpack(whole)):
        if version != TXN_INDEX_VERSION:
            raise CorruptTransactionIndex(f"{path}: entry {number} has unknown version {version}")
        found.append(AbortedTransaction._make(fields))
    return found


def _start_offset(path: str) -> int:
    stem = os.path.basename(path).partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise InvariantError(f"{path} does not begin with a segment's base offset")
    return int(stem)
