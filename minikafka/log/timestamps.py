"""From a time to a record. Kafka: ``UnifiedLog.fetchOffsetByTimestamp``, ``LogSegment.findOffsetByTimestamp``
(KIP-33), MAX_TIMESTAMP (KIP-734).

The time index leads to a batch near the place; headers lead to the batch; its records to the exact offset.
Only that one batch is read and decompressed. Timestamps need not ascend: the answer is the first record in
offset order.
"""

from __future__ import annotations

from minikafka.log.segment.fetch_data import TimestampAndOffset
from minikafka.log.segment.log_segments import LogSegments
from minikafka.log.segment.segment import LogSegment
from minikafka.protocol.records.records import iterate_records
from minikafka.types import Offset

DECOMPRESSED_BYTES_MAX = 1024 * 1024 * 1024
"""A batch that the log holds was accepted once; this only bounds what a damaged one can cost."""


def find_offset_by_timestamp(
    segments: LogSegments, timestamp_ms: int, *, log_start_offset: int, cached_only: bool = False
) -> TimestampAndOffset | None:
    """The first record at or after both ``log_start_offset`` and the time; None when there is none.

    Raises:
        ColdRead: with ``cached_only``.
        KafkaError: CORRUPT_MESSAGE.
    """
    for segment in segments.from_offset(log_start_offset):
        if segment.size == 0:
            continue
        if segment.largest_timestamp() >= timestamp_ms:
            found = _find_in_segment(segment, timestamp_ms, log_start_offset, cached_only)
            if found is not None:
                return found
    return None


def _find_in_segment(
    segment: LogSegment, timestamp_ms: int, start_offset: int, cached_only: bool
) -> TimestampAndOffset | None:
    indexed = segment.time_index.lookup(timestamp_ms)
    first = segment.find_batch(max(indexed.offset, start_offset), cached_only=cached_only)
    if first is None:
        return None
    for place in segment.batches(first.position, cached_only=cached_only):
        if place.max_timestamp < timestamp_ms or place.last_offset < start_offset:
            continue
        batch = segment.read_bytes(place.size, place.position, cached_only=cached_only)
        for record in iterate_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
            if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                return TimestampAndOffset(record.timestamp, Offset(record.offset))
    return None


def find_max_timestamp(segments: LogSegments, *, cached_only: bool = False) -> TimestampAndOffset | None:
    """The first record with the largest timestamp of the log; None when no record has one."""
    best: LogSegment | None = None
    for segment in segments:
        if segment.size and (
            best is None or segment.max_timestamp().timestamp > best.max_timestamp().timestamp
        ):
            best = segment
    if best is None:
        return None
    timestamp, last_offset = best.max_timestamp()
    if timestamp < 0:
        return None
    place = best.find_batch(last_offset, cached_only=cached_only)
    if place is None:
        return None
    batch = best.read_bytes(place.size, place.position, cached_only=cached_only)
    for record in iterate_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
        if record.timestamp == timestamp:
            return TimestampAndOffset(timestamp, Offset(record.offset))
    return None
