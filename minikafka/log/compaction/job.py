"""One compaction as a value: what is to be read, by which rules, which segments become one (Kafka:
``Cleaner.groupSegmentsBySize``), and what came of it.

Made on the loop from a log, worked off by whoever has the files (``Compaction``, in another process
or on the disk thread), and handed back to the loop, which puts the new segments into the log if that is
still the one that was described. Everything here can be written as JSON.
"""

from __future__ import annotations

import msgspec

from minikafka.config.topic import TopicConfig
from minikafka.log.segment.index_file import RELATIVE_OFFSET_MAX


class SourceSegment(msgspec.Struct, frozen=True):
    """A closed segment as it was when the job was made. Sizes in bytes."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int
    has_txn_index: bool


class LastRecord(msgspec.Struct, frozen=True):
    """Where an active producer has written last (Kafka's ``LastRecord``)."""

    producer_epoch: int
    last_data_offset: int
    """-1: only a marker of this epoch is known."""


class CompactionJob(msgspec.Struct, frozen=True, kw_only=True):
    """Compact the log in ``directory`` below ``first_uncleanable_offset``, which is where a segment
    begins."""

    directory: str
    config: TopicConfig
    segments: tuple[SourceSegment, ...]
    """All that begin below ``first_uncleanable_offset``, in order."""
    later_txn_indexes: tuple[int, ...]
    """Base offsets of later segments with a transaction index: a marker there may end what begins here."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    last_records: dict[int, LastRecord]
    """By producer id."""
    now_ms: int
    map_bytes: int
    map_load_factor: float
    read_bytes: int
    """How much to read at a time."""


class CompactedSegment(msgspec.Struct, frozen=True):
    """A new segment, on the disk as ``.cleaned`` files, for the old ones at ``replaced``."""

    base_offset: int
    replaced: tuple[int, ...]
    size: int
    has_txn_index: bool


class CompactionResult(msgspec.Struct, frozen=True):
    """What a job has done."""

    segments: tuple[CompactedSegment, ...]
    """In the order of offsets, which is the order in which they have to be swapped in."""
    end_offset: int
    """The first offset that is not compacted: the next first dirty one."""
    records_kept: int
    records_dropped: int
    map_entries: int


def with_ends(job: CompactionJob) -> list[tuple[SourceSegment, int]]:
    """Each segment of a job with the offset where the next one begins."""
    starts = [segment.base_offset for segment in job.segments] + [job.first_uncleanable_offset]
    return list(zip(job.segments, starts[1:], strict=True))


def group_segments(job: CompactionJob, end_offset: int) -> list[list[SourceSegment]]:
    """The segments that begin below ``end_offset``, in groups that become one segment each: as large as the
    topic's segments and indexes may be, within reach of an index."""
    groups: list[list[SourceSegment]] = []
    size = index_bytes = time_index_bytes = 0
    for segment, next_base_offset in with_ends(job):
        if segment.base_offset >= end_offset:
            break
        fits = (
            groups
            and size + segment.size <= job.config.segment_bytes
            and index_bytes + segment.index_bytes <= job.config.segment_index_bytes
            and time_index_bytes + segment.time_index_bytes <= job.config.segment_index_bytes
            and (not segment.size or next_base_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if not fits:
            groups.append([])
            size = index_bytes = time_index_bytes = 0
        groups[-1].append(segment)
        size += segment.size
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
    return groups
