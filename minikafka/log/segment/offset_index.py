"""From an offset to a place in its segment file. Kafka: ``OffsetIndex``.

Entries of 8 bytes: the offset relative to the segment's base (int32) and a position (int32). An entry (O, P)
says that the batch whose last offset is O starts at P (an append of several batches, in logs that Kafka
before 4.0 wrote: the last offset of the append and the start of its first batch). Offsets and positions
strictly ascend.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, NamedTuple

from minikafka.errors import InvariantError
from minikafka.log.segment.index_file import RELATIVE_OFFSET_MAX, IndexFile

_ENTRY = Struct(">ii")
_INT = Struct(">i")


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
        relative_offset, position = _ENTRY.unpack_from(self._mapped(), slot * 8)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def last_entry(self) -> OffsetPosition:
        """The last entry, or (base offset, 0)."""
        return self.entry(self.entries - 1) if self.entries else OffsetPosition(self.base_offset, 0)

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the largest offset of at most ``offset``, or (base offset, 0)."""
        count = self._slots_up_to(_INT.unpack_from, 0, offset - self.base_offset)
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
        self._append_entry(_ENTRY, relative_offset, position)

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
