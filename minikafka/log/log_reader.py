"""Reading a log: from an offset to bytes, from a time to a record. Kafka: ``LocalLog.read``,
``LogSegment.read``; ``UnifiedLog.fetchOffsetByTimestamp`` and ``LogSegment.findOffsetByTimestamp`` (KIP-33),
MAX_TIMESTAMP (KIP-734).

What a read costs does not depend on the size of the log: a bisection over base offsets, a binary search in
one mapped index, one bounded scan of batch headers, one read of the records. A reader at the tail is spared
the search, and so is one that reads batch after batch, each larger than a read was to be: where the last read
ended is remembered.

By time: the time index leads to a batch near the place; headers lead to the batch; its records to the exact
offset. Only that one batch is read and decompressed. Timestamps need not ascend: the answer is the first
record in offset order.

Differs from Kafka: nothing waits for the disk with ``cached_only``; a first batch that is too large is left
out here and not in the fetch layer.

What follows cold records is cold, up to the end of the log: where a disk thread has stopped is remembered
(``LogSegment.cold_from``), also at which batch, and a read that goes beyond it is a ``ColdRecords`` at once.
By then it may well be in memory, because the kernel reads ahead; but it does so in the call of who comes to
where it had read ahead, and that takes milliseconds which the loop has not.
"""

from __future__ import annotations

from struct import Struct

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.segment.fetch_data import (
    ColdRead,
    ColdRecords,
    FetchedAbortedTransaction,
    TimestampAndOffset,
)
from minikafka.log.segment.indexes import CorruptTransactionIndex
from minikafka.log.segment.log_segments import LogSegments
from minikafka.log.segment.segment import LogSegment
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.records import iterate_records
from minikafka.types import Buffer, Offset, ProducerId

_LENGTH = Struct(">i")
_LENGTH_AT = 8
_LENGTH_ENDS_AT = 12
_OFFSETS = Struct(">q15xi")
"""Base offset and last offset delta of a batch."""

TAIL_POSITIONS_MAX = 64
"""Ends of recent reads that are remembered: about the readers at different places of one partition's tail."""

DECOMPRESSED_BYTES_MAX = 1024 * 1024 * 1024
"""A batch that the log holds was accepted once; this only bounds what a damaged one can cost."""


class Slice(NamedTuple):
    """Where records were found, and they."""

    segment: LogSegment
    position: int
    records: Buffer
    first_entry_incomplete: bool


class Place(NamedTuple):
    """Where a batch is."""

    segment: LogSegment
    position: int
    size: int = 0
    """0: not known."""


class LogReader:
    """Finds and reads records in the segments of one log."""

    __slots__ = ("_generation", "_segments", "_tail_positions")

    def __init__(self, segments: LogSegments) -> None:
        self._segments = segments
        self._generation = 0
        self._tail_positions: dict[int, Place] = {}  # offset -> where its batch starts

    def forget_positions(self) -> None:
        """Segments were removed or truncated."""
        self._tail_positions.clear()
        self._generation += 1

    def place_of(self, offset: int, *, cached_only: bool = False) -> Place | None:
        """Of the first batch that reaches ``offset``; None behind the last batch."""
        known = self._tail_positions.get(offset)
        segments = self._segments
        if known is not None and known.position < known.segment.size:
            return known
        index = segments.floor_index(offset)
        if index < 0:
            index = 0
        while index < len(segments):
            segment = segments[index]
            if segment.size:
                place = segment.find_batch(offset, cached_only=cached_only)
                if place is not None:
                    return Place(segment, place.position, place.size)
            index += 1
        return None

    def read(
        self,
        fetch_offset: int,
        *,
        end_offset: int,
        end_segment_base_offset: int,
        end_position: int,
        max_bytes: int,
        min_one_message: bool,
        cached_only: bool,
        brought: ColdRead | None = None,
    ) -> Slice | None:
        """Records from ``fetch_offset`` on, none at or behind the end; None when there are none.

        ``brought``: what this has raised, fetched meanwhile.

        Raises:
            ColdRead: they are not in memory, and ``cached_only``.
            KafkaError: CORRUPT_MESSAGE.
        """
        found = self.place_of(fetch_offset, cached_only=cached_only)
        if found is None:
            return None
        segment, position, _ = found
        if segment.base_offset == end_segment_base_offset:
            available = end_position - position
        elif segment.base_offset < end_segment_base_offset:
            available = segment.size - position
        else:
            return None
        if available <= 0:
            return None
        if isinstance(brought, ColdRecords) and brought.is_at(segment, position, self._generation):
            self._note_cold(segment, brought, is_rest=brought.size >= available)
            size = min(available, len(brought.records))
            handed_over = self._handed_over(found, brought.records, size, max_bytes, min_one_message)
            if handed_over is not None:
                return handed_over
        if available <= max_bytes:
            records = self._records(segment, available, position, cached_only, brought)
            if len(records) < available:
                raise self._too_short(segment, position + len(records))
            if segment.base_offset == end_segment_base_offset:
                self._remember(end_offset, segment, end_position)
            return Slice(segment, position, records, False)
        return self._read_part(found, max_bytes, min_one_message, cached_only, brought)

    def _note_cold(self, segment: LogSegment, brought: ColdRecords, *, is_rest: bool) -> None:
        """What follows ``brought`` is cold, too: in this segment, or when that was the rest of it, in the
        next one."""
        if not is_rest:
            segment.cold_from = brought.position + brought.size
            cut = segment.cut_batch(brought.records, brought.position)
            if cut is not None:
                self._remember(cut.offset, segment, cut.position, cut.size)
            return
        segment.cold_from = -1
        index = self._segments.floor_index(segment.base_offset) + 1
        if index < len(self._segments):
            following = self._segments[index]
            following.cold_from = 0
            self._remember(following.base_offset, following, 0)

    def _handed_over(
        self, place: Place, records: Buffer, size: int, max_bytes: int, min_one_message: bool
    ) -> Slice | None:
        """The first ``size`` bytes that a disk thread has brought, or less; None when they will not do."""
        segment, position, _ = place
        if size < _OFFSETS.size:
            return None
        batch_bytes = _LENGTH.unpack_from(records, _LENGTH_AT)[0] + _LENGTH_ENDS_AT
        size = min(size, max(max_bytes, batch_bytes) if min_one_message else max_bytes)
        if not _OFFSETS.size <= batch_bytes <= size:
            return None
        return Slice(segment, position, memoryview(records)[:size], False)

    def _records(
        self, segment: LogSegment, size: int, position: int, cached_only: bool, brought: ColdRead | None
    ) -> Buffer:
        """From the file. What follows cold records is not looked for, unless what was brought of it was of
        no use.

        Raises:
            ColdRecords: with ``cached_only``.
        """
        if not cached_only:
            return segment.read_bytes(size, position, cached_only=False)
        records = None
        if brought is not None or not segment.is_cold(position, size):
            records = segment.read_cached(size, position)
        if records is None:
            raise ColdRecords(
                segment.cold_file(),
                position,
                size,
                segment=segment,
                generation=self._generation,
                index=segment.cold_index(),
            )
        return records

    def _read_part(
        self,
        place: Place,
        max_bytes: int,
        min_one_message: bool,
        cached_only: bool,
        brought: ColdRead | None,
    ) -> Slice:
        """At most ``max_bytes``, but the whole first batch where the caller wants one.

        A few bytes tell first how large that is, where it is not known: a fetch of many partitions may ask
        whether it fits at all of each, with all but one batch of its bytes left.
        """
        segment, position, batch_bytes = place
        if not batch_bytes and cached_only and brought is None and segment.is_cold(position, _OFFSETS.size):
            batch_bytes = _OFFSETS.size  # at least; how large it is shows with what is brought
        if not batch_bytes:
            head = segment.read_bytes(_LENGTH_ENDS_AT, position, cached_only=cached_only)
            if len(head) < _LENGTH_ENDS_AT:
                raise self._too_short(segment, position)
            batch_bytes = _LENGTH.unpack_from(head, _LENGTH_AT)[0] + _LENGTH_ENDS_AT
        if batch_bytes > max_bytes and not min_one_message:
            return Slice(segment, position, b"", True)
        if not _OFFSETS.size <= batch_bytes <= segment.size - position:
            raise self._too_short(segment, position)
        size = max(batch_bytes, max_bytes)
        records = self._records(segment, size, position, cached_only, brought)
        if len(records) < batch_bytes:
            raise self._too_short(segment, position)
        if batch_bytes >= max_bytes:
            base_offset, last_offset_delta = _OFFSETS.unpack_from(records)
            self._remember(base_offset + last_offset_delta + 1, segment, position + batch_bytes)
        return Slice(segment, position, records, False)

    def _remember(self, offset: int, segment: LogSegment, position: int, size: int = 0) -> None:
        positions = self._tail_positions
        if offset not in positions and len(positions) >= TAIL_POSITIONS_MAX:
            del positions[next(iter(positions))]
        positions[offset] = Place(segment, position, size)

    def _too_short(self, segment: LogSegment, position: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{segment.path} is damaged or too short at position {position}"
        )

    def aborted_transactions(
        self, fetch_offset: int, read: Slice, *, log_end_offset: int
    ) -> list[FetchedAbortedTransaction]:
        """The aborted transactions that reach into what was read (``LocalLog.addAbortedTransactions``)."""
        segments = self._segments
        index = segments.floor_index(read.segment.base_offset)
        upper_bound = read.segment.offset_index.upper_bound_offset(read.position + len(read.records))
        if upper_bound is None:
            is_last = index + 1 >= len(segments)
            upper_bound = log_end_offset if is_last else segments[index + 1].base_offset
        found: list[FetchedAbortedTransaction] = []
        for segment in segments.from_offset(read.segment.base_offset):
            if not segment.has_aborted_transactions:
                continue
            try:
                result = segment.txn_index.collect_aborted(fetch_offset, upper_bound)
            except CorruptTransactionIndex as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            found += [
                FetchedAbortedTransaction(ProducerId(aborted.producer_id), Offset(aborted.first_offset))
                for aborted in result.aborted_transactions
            ]
            if result.is_complete:
                break
        return found

    # ---- by time

    def find_offset_by_timestamp(
        self, timestamp_ms: int, *, log_start_offset: int, cached_only: bool
    ) -> TimestampAndOffset | None:
        """The first record at or after both ``log_start_offset`` and the time; None when there is none.

        Raises:
            ColdRead: with ``cached_only``.
            KafkaError: CORRUPT_MESSAGE.
        """
        for segment in self._segments.from_offset(log_start_offset):
            if segment.size == 0:
                continue
            if segment.largest_timestamp() >= timestamp_ms:
                found = _find_in_segment(segment, timestamp_ms, log_start_offset, cached_only)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self, *, cached_only: bool) -> TimestampAndOffset | None:
        """The first record with the largest timestamp of the log; None when no record has one. Raises as
        ``find_offset_by_timestamp``."""
        best: LogSegment | None = None
        for segment in self._segments:
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
