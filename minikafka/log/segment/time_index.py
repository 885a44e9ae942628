"""From a timestamp to an offset. Kafka: ``TimeIndex`` (KIP-33).

Entries of 12 bytes: a timestamp (int64, milliseconds) and an offset relative to the segment's base (int32).
An entry (T, O) says that T is the largest timestamp up to offset O; so whatever is later than T comes after
O. Timestamps strictly ascend, offsets ascend. One slot is kept free for the entry that is added when the
segment closes.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, NamedTuple

from minikafka.errors import InvariantError
from minikafka.files import Files
from minikafka.log.files.open_files import OpenFiles
from minikafka.log.segment.index_file import RELATIVE_OFFSET_MAX, IndexFile
from minikafka.types import NO_TIMESTAMP

_ENTRY = Struct(">qi")
_LONG = Struct(">q")
_INT = Struct(">i")


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
        timestamp, relative_offset = _ENTRY.unpack_from(self._mapped(), slot * 12)
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
        self._append_entry(_ENTRY, timestamp, relative_offset)
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
