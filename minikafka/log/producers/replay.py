"""Telling the producer state of batches: those of an append before it happens, those of a log that is loaded.

Kafka: ``UnifiedLog.updateProducers``, ``rebuildProducerState``, ``LogSegment.updateProducerState``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.producers.append import (
    TRANSACTION_VERSION_UNKNOWN,
    AppendOrigin,
    EndTransactionMarker,
    ProducerAppend,
    VerificationGuard,
)
from minikafka.log.producers.state import ProducerStateManager
from minikafka.log.segment.log_segments import LogSegments
from minikafka.log.segment.segment import CorruptSegment, LogSegment
from minikafka.log.segment.txn_index import AbortedTransaction
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, read_header
from minikafka.protocol.records.control_records import ControlRecordType, read_end_transaction_marker
from minikafka.protocol.records.records import iterate_records
from minikafka.types import Buffer

_log = logging.getLogger(__name__)

_MARKER_BYTES_MAX = 64 * 1024
"""A marker batch holds one record of a few dozen bytes; a larger one is not a marker."""


def read_marker(header: BatchHeader, batch: Buffer) -> EndTransactionMarker | None:
    """The end-transaction marker in a control batch; None when its records were compacted away or are of
    another kind.

    Raises:
        KafkaError: INVALID_RECORD when its record cannot be read as a control record.
    """
    if header.record_count == 0:
        return None
    if header.size > _MARKER_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a control batch of {header.size} bytes")
    record = next(iter(iterate_records(batch, decompressed_bytes_max=_MARKER_BYTES_MAX)))
    marker = read_end_transaction_marker(record.key, record.value)
    if marker is None:
        return None
    return EndTransactionMarker(
        marker.type is ControlRecordType.ABORT, marker.coordinator_epoch, record.timestamp
    )


def prepare(
    producers: ProducerStateManager,
    header: BatchHeader,
    read_batch: Callable[[], Buffer],
    *,
    origin: AppendOrigin,
    first_offset: int | None = None,
    previous: ProducerAppend | None = None,
    verification_guard: VerificationGuard | None = None,
    transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
) -> ProducerAppend | None:
    """Check one batch that has a producer id; None for a control batch that ends no transaction.

    Raises:
        KafkaError: what the producer state found.
    """
    if not header.is_control:
        return producers.prepare_update(
            header,
            origin=origin,
            first_offset=first_offset,
            previous=previous,
            verification_guard=verification_guard,
        )
    marker = read_marker(header, read_batch())
    if marker is None:
        return None
    if transaction_version != TRANSACTION_VERSION_UNKNOWN:
        marker = marker._replace(transaction_version=transaction_version)
    return producers.prepare_marker(
        header, marker, origin=origin, first_offset=first_offset, previous=previous
    )


def prepare_replicated(
    producers: ProducerStateManager, headers: Sequence[BatchHeader], batches: Buffer
) -> list[ProducerAppend]:
    """Check what a leader sent: ``batches`` are the batches of ``headers``, one behind the other.

    Raises:
        KafkaError: what the producer state found.
    """
    latest: dict[int, ProducerAppend] = {}
    prepared = []
    start = 0
    for header in headers:
        end = start + header.size
        if header.producer_id >= 0:
            checked = prepare(
                producers,
                header,
                _slice(batches, start, end),
                origin=AppendOrigin.REPLICATION,
                previous=latest.get(header.producer_id),
            )
            if checked is not None:
                latest[header.producer_id] = checked
                prepared.append(checked)
        start = end
    return prepared


def _slice(batches: Buffer, start: int, end: int) -> Callable[[], Buffer]:
    return lambda: memoryview(batches)[start:end]


def apply(producers: ProducerStateManager, prepared: ProducerAppend, segment: LogSegment | None) -> None:
    """The prepared batch is in the log. ``segment`` gets the aborted transaction; None when it has it
    already.

    Raises:
        OSError: the transaction index could not be written.
    """
    producers.update(prepared)
    completed = prepared.completed
    if completed is None:
        return
    if completed.is_aborted and segment is not None:
        last_stable_offset = producers.last_stable_offset(completed)
        segment.append_aborted(
            AbortedTransaction(
                completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
            )
        )
    producers.complete_transaction(completed)


def replay(
    producers: ProducerStateManager,
    header: BatchHeader,
    read_batch: Callable[[], Buffer],
    *,
    segment: LogSegment | None,
) -> None:
    """Tell of a batch that the log already holds. What its leader accepted is not refused here; nonsense is
    skipped."""
    try:
        prepared = prepare(producers, header, read_batch, origin=AppendOrigin.REPLICATION)
    except KafkaError as error:
        _log.warning("%s: batch at offset %d: %s", producers.topic_partition, header.base_offset, error)
        return
    if prepared is not None:
        apply(producers, prepared, segment)


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    *,
    log_start_offset: int,
    up_to: int,
    after_clean_stop: bool,
) -> None:
    """Bring the producer state to ``up_to``: from the newest snapshot below, and the batches behind that."""
    snapshot_bases = set(segments.base_offsets[-2:])
    if after_clean_stop and producers.latest_snapshot_offset is None:
        # A clean stop always leaves a snapshot, unless the directory is older than snapshots: nothing to
        # replay.
        producers.truncate_fully_and_start_at(up_to)
        for offset in sorted({*snapshot_bases, up_to}):
            producers.map_end_offset = offset
            producers.take_snapshot()
        return
    had_none = producers.is_empty and producers.map_end_offset >= up_to
    producers.truncate_and_reload(log_start_offset, up_to)
    if producers.map_end_offset == up_to:
        return  # with nothing to replay, a snapshot would save nothing
    if up_to > producers.map_end_offset and not had_none:
        for segment in segments.from_offset(producers.map_end_offset):
            if segment.base_offset >= up_to:
                break
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start
            if segment.base_offset in snapshot_bases:
                producers.take_snapshot()
            _replay_segment(producers, segment, start=start, up_to=up_to)
    producers.map_end_offset = up_to
    producers.take_snapshot()


def _replay_segment(producers: ProducerStateManager, segment: LogSegment, *, start: int, up_to: int) -> None:
    try:
        first = segment.find_batch(start)  # a log start may lie inside of it, and it counts all the same
    except CorruptSegment:
        return  # as damage further on: reads name it
    if first is None:
        return
    for place in segment.batches_until_damage(first.position):
        if place.base_offset >= up_to:
            break
        if place.producer_id >= 0:
            header = read_header(segment.read_bytes(HEADER_SIZE, place.position, cached_only=False))

            def read_batch(size: int = place.size, position: int = place.position) -> Buffer:
                return segment.read_bytes(size, position, cached_only=False)

            replay(producers, header, read_batch, segment=None)
