"""Which old segments may go, and how they go. Kafka: ``UnifiedLog.deleteOldSegments``,
``LocalLog.deleteSegmentFiles``.

A segment goes when its records are below the log start, or (cleanup.policy delete) too old, or more than the
log may hold; oldest first, never past the first retained one, never at or above the high watermark, never an
empty active one. Its files are renamed to ``*.deleted`` at once and removed by the shell after
``file.delete.delay.ms``.

A future log follows the log start of the current one, and neither age nor size: its segments begin elsewhere,
so it would forget records that the current log still has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from minikafka.config.topic import TopicConfig
from minikafka.files import Files
from minikafka.log.files.names import DELETED_SUFFIX, SEGMENT_SUFFIXES, file_name
from minikafka.log.segment.log_segments import LogSegments
from minikafka.log.segment.segment import LogSegment

Predicate = Callable[[LogSegment, LogSegment | None], bool]
"""May this segment go? The second argument is the one behind it."""


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
