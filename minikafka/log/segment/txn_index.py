"""The transaction index of one segment: which transactions were aborted by markers in it.

Kafka's classes: ``TransactionIndex``, ``AbortedTxn``, ``TxnIndexSearchResult`` (KIP-98). A read_committed
fetch gets these so that its consumer can drop the records of aborted transactions.

The file ``<base offset>.txnindex`` holds 34-byte entries, big-endian: version int16 (0) · producer id int64 ·
first offset int64 · last offset int64 (the marker's) · last stable offset int64 (as it was after that
marker).

Invariants
- Last offsets strictly increase through the file.
- The file does not exist until the first transaction aborts; most segments never have one.

Different from Kafka: a search starts with a bisection over the last offsets instead of at the beginning of
the file, and an index whose size is not a whole number of entries fails ``sanity_check``.
Appends do not fsync; the log's flush does, on the disk thread.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from minikafka.errors import InvariantError, MinikafkaError
from minikafka.files import File, Files
from minikafka.log.files.open_files import OpenFiles
from minikafka.named_tuple import NamedTuple

TXN_INDEX_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = TXN_INDEX_ENTRY.size
CURRENT_VERSION = 0

_ENTRIES_PER_READ = 1024
"""34 KiB at a time: an index of any size is read in bounded memory."""


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
        return self._size // ENTRY_SIZE

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
            written = file.write([TXN_INDEX_ENTRY.pack(CURRENT_VERSION, *transaction)], self._size)
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
        if index * ENTRY_SIZE < self._size:
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
        if self._size % ENTRY_SIZE:
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
        self._open().truncate(entry_count * ENTRY_SIZE)
        self._size = entry_count * ENTRY_SIZE
        self._last_offset = None

    def _entry(self, number: int) -> AbortedTransaction:
        return self._decode(self._open().read(ENTRY_SIZE, number * ENTRY_SIZE), 0, number)

    def _entries(self, first: int = 0) -> Iterator[AbortedTransaction]:
        count = self.entry_count
        if first >= count:
            return
        for start in range(first, count, _ENTRIES_PER_READ):
            block = min(_ENTRIES_PER_READ, count - start)
            data = self._open().read(block * ENTRY_SIZE, start * ENTRY_SIZE)
            for number in range(block):
                yield self._decode(data, number * ENTRY_SIZE, start + number)

    def _decode(self, data: bytes, position: int, number: int) -> AbortedTransaction:
        if len(data) - position < ENTRY_SIZE:
            raise CorruptTransactionIndex(f"{self._path}: entry {number} is cut short")
        version, *fields = TXN_INDEX_ENTRY.unpack_from(data, position)
        if version != CURRENT_VERSION:
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
    whole = data[: len(data) - len(data) % ENTRY_SIZE]
    found = []
    for number, (version, *fields) in enumerate(TXN_INDEX_ENTRY.iter_unpack(whole)):
        if version != CURRENT_VERSION:
            raise CorruptTransactionIndex(f"{path}: entry {number} has unknown version {version}")
        found.append(AbortedTransaction._make(fields))
    return found


def _start_offset(path: str) -> int:
    stem = os.path.basename(path).partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise InvariantError(f"{path} does not begin with a segment's base offset")
    return int(stem)
