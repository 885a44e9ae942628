"""The segments of one log, by base offset. Kafka: ``LogSegments``.

A segment is found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from minikafka.errors import InvariantError
from minikafka.log.files.open_files import OpenFiles

if TYPE_CHECKING:
    from minikafka.log.segment.segment import LogSegment


class LogSegments:
    """An ordered map from base offset to segment; the last one is the active one."""

    __slots__ = ("_base_offsets", "_segments", "active", "open_files")

    def __init__(self, open_files: OpenFiles | None = None) -> None:
        self.open_files = OpenFiles() if open_files is None else open_files  # an empty one is false
        self._base_offsets: list[int] = []
        self._segments: list[LogSegment] = []
        self.active: LogSegment  # set with the first ``add``; a loaded log always has one

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> LogSegment:
        return self._segments[index]

    @property
    def base_offsets(self) -> list[int]:
        return self._base_offsets

    def add(self, segment: LogSegment) -> None:
        """Put it behind all others."""
        if self._segments and segment.base_offset <= self._base_offsets[-1]:
            raise InvariantError(f"{segment!r} does not belong behind {self._segments[-1]!r}")
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def remove(self, segment: LogSegment) -> None:
        """Take it out; its descriptors close."""
        index = bisect_left(self._base_offsets, segment.base_offset)
        if self._segments[index] is not segment:
            raise InvariantError(f"{segment!r} is not one of this log's segments")
        del self._segments[index], self._base_offsets[index]
        segment.release()
        if self._segments:
            self.active = self._segments[-1]

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Put ``new`` into the place of these neighbours, of which none is the active one."""
        index = bisect_left(self._base_offsets, old[0].base_offset)
        self._segments[index : index + len(old)] = [new]
        self._base_offsets[index : index + len(old)] = [new.base_offset]
        for segment in old:
            segment.release()

    def floor_index(self, offset: int) -> int:
        """The index of the segment with the largest base offset of at most ``offset``; -1 when all are
        above."""
        return bisect_right(self._base_offsets, offset) - 1

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment that holds ``offset``, or the first one when all are above, and all behind it."""
        return self._segments[max(self.floor_index(offset), 0) :]

    def update_directory(self, directory: str) -> None:
        """The log's directory was renamed."""
        for segment in self._segments:
            segment.update_directory(directory)

    def release(self) -> None:
        """Close every descriptor."""
        for segment in self._segments:
            segment.release()
