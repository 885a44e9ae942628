"""Which segments become one when a log is compacted. Kafka: ``Cleaner.groupSegmentsBySize``."""

from __future__ import annotations

from minikafka.log.compaction.job import CompactionJob, SourceSegment
from minikafka.log.segment.index_file import RELATIVE_OFFSET_MAX


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
