"""What the offset and the time index have in common: a file of fixed-size, ordered entries. Kafka:
``AbstractIndex``.

It is mapped into memory when it is used, and stays so until ``OpenFiles`` wants its descriptor (Python's map
keeps one). While its segment is active the file has its full size (``segment.index.bytes``, a sparse file),
at the latest with its first entry; when the segment closes it is trimmed to its entries. The file carries no
checksum: whoever follows an entry checks what it finds there, and a damaged index is built anew from the
segment.

Differs from Kafka: before the map is written into a new page, that page is written through the file, because
a store into a hole of a mapped file on a full disk kills the process (SIGBUS); a write answers ENOSPC
instead.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, ClassVar

from minikafka.errors import InvariantError
from minikafka.files import Files
from minikafka.log.files.open_files import OpenFiles
from minikafka.log.segment.fetch_data import ColdFile, ColdRead

RELATIVE_OFFSET_MAX = 2**31 - 1
"""The index has four bytes for an offset, so a segment holds none that is further from its base offset."""

PAGE_BYTES = 4096
WARM_BYTES = 8192
"""Kafka's warm section: lookups near the end touch only the last two pages, which therefore stay in
memory."""


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
        """Cut the file to its entries; it is mapped again, to read, when somebody asks."""
        was_writable, self._writable = self._writable, False
        self.release()
        if was_writable:
            file = self._files.open(self.path, create=True)
            try:
                file.truncate(self.entries * self.ENTRY_BYTES)
            finally:
                file.close()

    def release(self) -> None:
        """Let go of the map and its descriptor; the file stays as it is."""
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
        entries of the file end, to whoever reads it after a kill or while the broker runs."""
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
