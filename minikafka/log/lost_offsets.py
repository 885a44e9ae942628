"""Offsets that a log must have and does not: a segment was emptied or removed while no broker was looking.

Kafka says nothing then, and its consumers go on behind the gap. Compaction leaves gaps between segments as
well (Kafka's; the segments of ours reach as far as those that they replace), so in a log that was ever
compacted only its two ends can be told.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from minikafka.log.segment.file_records import CorruptSegment
from minikafka.log.segment.log_segments import LogSegments


def find_lost_offsets(
    segments: LogSegments, *, was_compacted: bool, start_offset: int, end_offset: int, log_end_offset: int
) -> list[tuple[int, int]]:
    """First and last offset of each range that is missing.

    Args:
        start_offset, end_offset: where the log began and how far it was flushed when it was last open.

    Raises:
        OSError: the disk's.
    """
    lost = [(start_offset, segments[0].base_offset - 1)] if start_offset < segments[0].base_offset else []
    if not was_compacted:
        lost += _between(segments)
    if log_end_offset < end_offset:
        lost.append((log_end_offset, end_offset - 1))
    return lost


def _between(segments: LogSegments) -> Iterator[tuple[int, int]]:
    """A look-up for each closed segment: does it reach the next one?"""
    for segment, following in pairwise(segments):
        last_offset = following.base_offset - 1
        try:
            if segment.find_batch(last_offset) is None:
                last = segment.find_last_batch_below(following.base_offset)
                yield (segment.base_offset if last is None else last.next_offset), last_offset
        except CorruptSegment:
            pass  # it has bytes there that are no batch: whoever reads them is told, they are not missing
        finally:
            segment.release()
