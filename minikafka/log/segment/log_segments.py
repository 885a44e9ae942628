"""The segments of one log, by base offset, and which of the old ones may go. Kafka: ``LogSegments``.

A segment is found by bisection.

Invariants (``validate`` holds the files against them): base offsets, batch offsets and leader epochs ascend
through the segments (I2); index entries ascend and lead to batches which begin where they say.

**Deletion** of old segments. Kafka: ``UnifiedLog.deleteOldSegments``, ``LocalLog.deleteSegmentFiles``. A
segment goes when its records are below the log start, or (cleanup.policy delete) too old, or more than the
log may hold; oldest first, never past the first retained one, never at or above the high watermark, never an
empty active one. Its files are renamed to ``*.deleted`` at once and removed by the shell after
``file.delete.delay.ms``.

A future log follows the log start of the current one, and neither age nor size: its segments begin elsewhere,
so it would forget records that the current log still has.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from minikafka.config.topic import TopicConfig
from minikafka.errors import InvariantError
from minikafka.files import Files
from minikafka.log.files import DELETED_SUFFIX, SEGMENT_SUFFIXES, OpenFiles, file_name
from minikafka.log.segment.segment import LogSegment
from minikafka.named_tuple import NamedTuple

Predicate = Callable[[LogSegment, LogSegment | None], bool]
"""May this segment go? The second argument is the one behind it."""


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

    def validate(self, *, has_active: bool) -> int:
        """Check the invariants, reading every batch header and every index entry. Returns the offset after
        the last batch.

        Args:
            has_active: the last segment takes appends.

        Raises:
            InvariantError: says which does not hold.
            KafkaError: CORRUPT_MESSAGE.
        """
        next_offset, epoch = 0, -1
        for segment in self._segments:
            if segment.is_active != (segment is self.active and has_active):
                raise InvariantError(f"{segment!r} is the wrong one to be active")
            if segment.base_offset < next_offset:
                raise InvariantError(f"{segment!r} begins below {next_offset}, where the one before it ended")
            next_offset = segment.base_offset
            starts = {}
            for place in segment.batches():
                if place.base_offset < next_offset or -1 < place.leader_epoch < epoch:
                    raise InvariantError(
                        f"{segment.path}: {place} behind offset {next_offset - 1} of epoch {epoch}"
                    )
                next_offset, epoch = place.last_offset + 1, max(epoch, place.leader_epoch)
                starts[place.position] = place.last_offset
            _check_offset_index(segment, starts)
            _check_time_index(segment, set(starts.values()))
        return next_offset


def _check_offset_index(segment: LogSegment, starts: dict[int, int]) -> None:
    index = segment.offset_index
    previous_offset, previous_position = segment.base_offset - 1, -1
    for slot in range(index.entries):
        offset, position = index.entry(slot)
        if offset <= previous_offset or position <= previous_position:
            raise InvariantError(f"{index.path}: entry {slot} does not ascend")
        if starts.get(position) != offset:
            raise InvariantError(
                f"{index.path}: entry {slot} says {offset} at {position}, there is {starts.get(position)}"
            )
        previous_offset, previous_position = offset, position


def _check_time_index(segment: LogSegment, last_offsets: set[int]) -> None:
    index = segment.time_index
    previous_timestamp, previous_offset = -1, segment.base_offset - 1
    for slot in range(index.entries):
        timestamp, offset = index.entry(slot)
        if timestamp <= previous_timestamp or offset < previous_offset or offset not in last_offsets:
            raise InvariantError(f"{index.path}: entry {slot} is ({timestamp}, {offset})")
        previous_timestamp, previous_offset = timestamp, offset


class DeletedFiles(NamedTuple):
    """Renamed files of one segment, to be removed later."""

    paths: tuple[str, ...]

    @property
    def log_directory(self) -> str:
        """Where the directory of their log is."""
        return os.path.dirname(os.path.dirname(self.paths[0]))

    def remove(self, files: Files) -> None:
        """Remove them from the disk now. Blocks. Raises OSError."""
        for path in self.paths:
            files.remove(path)


def rename_deleted(directory: str, base_offset: int, files: Files) -> DeletedFiles:
    """Rename the files of a segment that is no longer used, so that neither a reader nor a restart finds
    them."""
    renamed = []
    for suffix in SEGMENT_SUFFIXES:
        path = os.path.join(directory, file_name(base_offset, suffix))
        try:
            files.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            continue
        renamed.append(path + DELETED_SUFFIX)
    return DeletedFiles(tuple(renamed))


def deletable_segments(
    segments: LogSegments,
    *,
    config: TopicConfig,
    is_future: bool,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> list[LogSegment]:
    """The segments that may go now, oldest first."""

    def prefix(first: int, predicate: Predicate) -> int:
        """How many segments from the oldest on may go, when ``first`` of them are known to."""
        count = first
        while count < len(segments):
            segment = segments[count]
            following = segments[count + 1] if count + 1 < len(segments) else None
            upper_bound = log_end_offset if following is None else following.base_offset
            is_empty_active = following is None and segment.size == 0
            if high_watermark < upper_bound or is_empty_active or not predicate(segment, following):
                break
            count += 1
        return count

    def below_log_start(_: LogSegment, following: LogSegment | None) -> bool:
        return following is not None and following.base_offset <= log_start_offset

    count = prefix(0, below_log_start)
    if is_future or not config.delete:
        return list(segments)[:count]
    if config.retention_bytes >= 0:
        excess_bytes = total_bytes(list(segments)[count:]) - config.retention_bytes

        def above_size(segment: LogSegment, _: LogSegment | None) -> bool:
            nonlocal excess_bytes
            if excess_bytes - segment.size < 0:
                return False
            excess_bytes -= segment.size
            return True

        if excess_bytes >= 0:
            count = prefix(count, above_size)
    if config.retention_ms >= 0:
        count = prefix(count, lambda segment, _: now_ms - segment.largest_timestamp() > config.retention_ms)
    return list(segments)[:count]


def total_bytes(segments: Sequence[LogSegment] | LogSegments) -> int:
    return sum(segment.size for segment in segments)
