"""Copies the batches of closed segments into a new one, without what need not stay. Kafka:
``Cleaner.cleanSegments``, ``cleanInto``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from minikafka.files import Files
from minikafka.log.compaction.batch_retention import BatchRetention
from minikafka.log.compaction.job import SourceSegment
from minikafka.log.compaction.source_batches import source_batches
from minikafka.log.segment.segment import BatchSpan
from minikafka.protocol.records.batch import BatchHeader, read_header
from minikafka.types import Buffer

Steps = Iterator[int]
"""Bytes read and written since the last step."""

_WRITE_BYTES = 1024 * 1024
"""Batches are written together up to this many bytes: one call of the system for thousands of small ones."""


class Destination(Protocol):
    """What batches are copied into: a ``CleanedSegment``, or something that only counts."""

    def append(self, buffers: Sequence[Buffer], spans: Sequence[BatchSpan], /) -> None: ...


def copy_segments(
    directory: str,
    group: Sequence[SourceSegment],
    cleaned: Destination,
    retention: BatchRetention,
    *,
    files: Files,
    read_bytes: int,
) -> Steps:
    """Copy what ``retention`` keeps of the segments of ``group``, in their order.

    Raises:
        KafkaError: CORRUPT_MESSAGE and its kin.
        OSError: the disk's.
    """
    last_with_records = max((s.base_offset for s in group if s.size), default=-1)
    pending: list[bytes | bytearray | memoryview] = []
    spans: list[BatchSpan] = []
    pending_bytes = unreported = 0
    for segment in group:
        batches = source_batches(directory, segment, files=files, read_bytes=read_bytes)
        for position, (header, batch) in with_positions(batches):
            is_last = segment.base_offset == last_with_records and position + len(batch) == segment.size
            kept = retention.apply(header, batch, is_last=is_last)
            unreported += len(batch)
            if kept is not None:
                max_timestamp = header.max_timestamp if kept is batch else read_header(kept).max_timestamp
                pending.append(kept)
                spans.append((header.last_offset, max_timestamp, len(kept)))
                pending_bytes += len(kept)
            if pending_bytes >= _WRITE_BYTES:
                cleaned.append(pending, spans)
                unreported += pending_bytes
                pending, spans, pending_bytes = [], [], 0
            if unreported >= read_bytes:
                yield unreported
                unreported = 0
    if pending:
        cleaned.append(pending, spans)
    yield unreported + pending_bytes


def with_positions(
    batches: Iterator[tuple[BatchHeader, memoryview]],
) -> Iterator[tuple[int, tuple[BatchHeader, memoryview]]]:
    """Each batch with the position in its file."""
    position = 0
    for header, batch in batches:
        yield position, (header, batch)
        position += len(batch)
