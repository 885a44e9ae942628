"""What one partition knows of its producers: epochs, sequence numbers, open transactions.

Kafka's class: ``ProducerStateManager`` (KIP-98, KIP-360, KIP-890). It refuses a producer's stale or
out-of-order batches, recognises duplicates, and says up to which offset every transaction is decided and
replicated (with the high watermark: the LSO).

How an append uses it: ``find_duplicate`` (clients only), ``prepare_update`` for data or ``prepare_marker``
for an end-transaction marker, write the bytes, ``update``. Preparing changes nothing, so an append that fails
later leaves the state as it was. Several batches of one producer in one append are chained with ``previous``.

A follower whose leader changes truncates the newest records, practically always above the high watermark.
Kafka goes back to the snapshot at the segment's start and replays the batches behind it, in a thread; here
the event loop and every other partition would wait for that (100 MB: 0.5 s in batches of 1 KB, 60 ms in
batches of 16 KB). An entry is never changed in place, so the appends above the high watermark are kept, each
with the entry that it replaced. Rolled back from the newest on (``roll_back``), they leave the state as it
was: with all of a producer's last batches, where a snapshot has one.

Invariants
- ``map_end_offset`` is the offset up to which the log is reflected here; the log sets it to its end offset at
  the latest before ``take_snapshot``.
- ``_undo`` has every append whose last offset is at or above ``_undo_start``, unless it is full: then every
  one behind its first.
- Ongoing transactions are ordered by first offset, unreplicated ones by last offset: both are insertion
  order, because offsets only grow.

fsync: ``take_snapshot`` writes into the page cache only and returns the path; the log fsyncs it with its next
flush (on the disk thread), before it raises the recovery point. A snapshot torn by a power cut fails its CRC
and an older one serves, with more of the log to replay.

With ``verifies_transactions`` a client or a coordinator begins a transaction here only with the guard of a
check that has succeeded (KIP-890, ``append.VerificationStates``).

Different from Kafka: the first unstable offset is a plain offset, without a position.

**How it is told of batches**: of those of an append before it happens, of those of a log that is loaded.
Kafka: ``UnifiedLog.updateProducers``, ``rebuildProducerState``, ``LogSegment.updateProducerState``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from minikafka.clock import Clock
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.files import Files
from minikafka.log.producers.append import (
    TRANSACTION_VERSION_UNKNOWN,
    AppendOrigin,
    BatchMetadata,
    CompletedTransaction,
    EndTransactionMarker,
    ProducerAppend,
    ProducerStateEntry,
    VerificationGuard,
    VerificationStates,
    check_data_batch,
    check_epoch_is_not_stale,
    check_marker,
    check_verified,
    find_duplicate,
)
from minikafka.log.producers.snapshot import (
    CorruptSnapshot,
    SnapshotEntry,
    SnapshotFiles,
    loaded_entry,
    saved_entry,
)
from minikafka.log.segment.indexes import AbortedTransaction
from minikafka.log.segment.log_segments import LogSegments
from minikafka.log.segment.segment import CorruptSegment, LogSegment
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, read_header
from minikafka.protocol.records.records import ControlRecordType, iterate_records, read_end_transaction_marker
from minikafka.types import Buffer, TopicPartition

__all__ = ["EndTransactionMarker", "ProducerAppend", "ProducerStateManager"]

_log = logging.getLogger(__name__)

UNDO_MAX = 1000
"""Appends that can be rolled back, about 450 KB: 1 MiB of a fetch in batches of 1 KB. A high watermark that
stands still for longer makes a truncation replay the log."""

_NEVER = 1 << 63
"""Above every offset."""

_REPLICATION = AppendOrigin.REPLICATION  # looked up once: a member of an Enum costs 0.1 µs each time

_MARKER_BYTES_MAX = 64 * 1024
"""A marker batch holds one record of a few dozen bytes; a larger one is not a marker."""


class DuplicateAppends:
    """Batches that came again and were answered with the offsets that they have since the first time, since
    the log was opened."""

    __slots__ = ("count", "last_ms", "last_offset", "last_producer_id")

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0
        self.last_offset = 0
        """Where the batch is that came last."""
        self.last_producer_id = 0

    def __repr__(self) -> str:
        return f"DuplicateAppends({self.count}, the last one of producer {self.last_producer_id})"

    def note(self, producer_id: int, offset: int, now_ms: int) -> None:
        self.count += 1
        self.last_ms, self.last_offset, self.last_producer_id = now_ms, offset, producer_id


class ProducerStateManager:
    """The producers of one partition, in memory and in its snapshot files."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        files: Files,
        clock: Clock,
        *,
        producer_id_expiration_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.verifies_transactions = False
        """``transaction.partition.verification.enable``; tools that read a log have no coordinator to ask."""
        self.verifications = VerificationStates()
        self.map_end_offset = 0
        self.duplicates: DuplicateAppends | None = None
        """None: no batch came twice."""
        self._producers: dict[int, ProducerStateEntry] = {}
        self._ongoing: dict[int, int] = {}  # first offset -> producer id, by first offset
        self._unreplicated: dict[int, int] = {}  # first offset -> last offset, by last offset
        self._first_unstable: int | None = None
        self._undo: deque[ProducerAppend] | None = None  # an empty one has 600 bytes; most have no producers
        self._undo_start = 0
        self._clock = clock
        self._last_snapshot_offset = 0
        self._snapshots = SnapshotFiles(directory, files)

    def __repr__(self) -> str:
        return (
            f"ProducerStateManager({self.topic_partition}, producers={len(self._producers)}, "
            f"map_end_offset={self.map_end_offset}, first_unstable_offset={self._first_unstable}, "
            f"snapshots={self._snapshots.offsets})"
        )

    # Looking

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def active_producers(self) -> Mapping[int, ProducerStateEntry]:
        """A read-only view, by producer id (DescribeProducers)."""
        return MappingProxyType(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or whose marker is above the high watermark."""
        return self._first_unstable

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of an open transaction."""
        return next(iter(self._ongoing), None)

    @property
    def snapshot_offsets(self) -> Sequence[int]:
        """Of the snapshot files there are, ascending."""
        return self._snapshots.offsets

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self._snapshots.offsets[-1] if self._snapshots.offsets else None

    def snapshot_path(self, offset: int) -> str:
        return self._snapshots.path(offset)

    # Appending

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The retained batch with exactly these sequences, when ``header`` is a retry of it; then it is
        noted in ``duplicates``."""
        entry = self._producers.get(header.producer_id)
        found = None if entry is None else find_duplicate(entry, header)
        if found is not None:
            if self.duplicates is None:
                self.duplicates = DuplicateAppends()
            self.duplicates.note(header.producer_id, found.first_offset, self._clock.now_ms())
        return found

    def prepare_update(
        self,
        header: BatchHeader,
        *,
        origin: AppendOrigin,
        first_offset: int | None = None,
        previous: ProducerAppend | None = None,
        verification_guard: VerificationGuard | None = None,
    ) -> ProducerAppend:
        """Check a data batch of an idempotent or transactional producer; changes nothing.

        Args:
            header: with its final ``max_timestamp``.
            first_offset: the offset that the batch will get, where ``header`` does not have it yet.
            previous: the prepared append of the same producer's batch before, in the same append.
            verification_guard: of the check that the coordinator has confirmed.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        entry = self._producers.get(header.producer_id) if previous is None else previous.entry
        if entry is None:
            entry = ProducerStateEntry(header.producer_id)
        if first_offset is None:
            first_offset = header.base_offset
        if self.verifies_transactions and header.is_transactional and origin is not _REPLICATION:
            verification = self.verifications.get(header.producer_id)
            check_verified(entry, header, verification, verification_guard, origin, self.topic_partition)
        return check_data_batch(entry, header, first_offset, origin, self.topic_partition)

    def begin_verification(
        self, producer_id: int, *, sequence: int, epoch: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """A transactional batch has come: what its append will have to show, once the coordinator has
        confirmed that the partition is in the transaction; None: that is known here.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH.
        """
        entry = self._producers.get(producer_id)
        if entry is not None:
            check_epoch_is_not_stale(entry, epoch, self.topic_partition)
            if entry.is_in_transaction(epoch):
                return None
        return self.verifications.begin(
            producer_id,
            sequence=sequence,
            epoch=epoch,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=self._clock.now_ms(),
        )

    def prepare_marker(
        self,
        header: BatchHeader,
        marker: EndTransactionMarker,
        *,
        origin: AppendOrigin,
        first_offset: int | None = None,
        previous: ProducerAppend | None = None,
    ) -> ProducerAppend:
        """Check an end-transaction marker; changes nothing. An empty control batch (compacted) needs no call.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._producers.get(header.producer_id) if previous is None else previous.entry
        return check_marker(
            entry or ProducerStateEntry(header.producer_id),
            marker,
            producer_epoch=header.producer_epoch,
            offset=header.base_offset if first_offset is None else first_offset,
            origin=origin,
            topic_partition=self.topic_partition,
        )

    def update(self, prepared: ProducerAppend) -> None:
        """The prepared append has happened."""
        entry, _, _, started, _ = prepared
        self._producers[entry[0]] = entry
        if self._undo is None:
            self._undo = deque(maxlen=UNDO_MAX)
        self._undo.append(prepared)
        if self.verifications:
            self.verifications.forget(entry[0])
        if started is not None:
            self._ongoing[started] = entry[0]
            if self._first_unstable is None:
                self._first_unstable = started

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The LSO as it will be after ``completed``: what the transaction index records."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Its marker is in the log; it remains unstable until the high watermark has passed the marker."""
        if self._ongoing.pop(completed.first_offset, None) is None:
            raise InvariantError(f"{self.topic_partition}: {completed} was never begun")
        self._unreplicated[completed.first_offset] = completed.last_offset

    # What time and the log's bounds bring

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        undo = self._undo
        while undo and undo[0].last_offset < high_watermark:
            self._undo_start = undo.popleft().last_offset + 1
        if self._unreplicated:
            self._forget_unreplicated_below(high_watermark)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Records were deleted; their producers are kept."""
        self._forget_unreplicated_below(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that have been idle for too long; returns how many."""
        expired = [
            producer_id for producer_id, entry in self._producers.items() if self._is_expired(entry, now_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        self.verifications.remove_expired(now_ms, self.producer_id_expiration_ms)
        return len(expired)

    def roll_back(self, log_end_offset: int) -> bool:
        """Forget the appends at and above ``log_end_offset``, which no batch reaches across. False, and
        nothing has changed, when they are not all known any more."""
        undo = self._undo
        if undo is not None and len(undo) == UNDO_MAX:
            self._undo_start = undo[0].last_offset + 1
        if log_end_offset < self._undo_start:
            return False
        reopened = False
        while undo and undo[-1].last_offset >= log_end_offset:
            entry, replaced, _, started, completed = undo.pop()
            producer_id = entry.producer_id
            if replaced == ProducerStateEntry(producer_id):  # nothing was known of it
                self._producers.pop(producer_id, None)  # it may have expired since
            else:
                self._producers[producer_id] = replaced
            if started is not None:
                del self._ongoing[started]
            if completed is not None:
                self._unreplicated.pop(completed.first_offset, None)
                self._ongoing[completed.first_offset] = producer_id
                reopened = True
        if reopened:
            self._ongoing = dict(sorted(self._ongoing.items()))
        self._find_first_unstable()
        return True

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int) -> None:
        """The log now covers [``log_start_offset``, ``log_end_offset``): drop what lies outside.

        Afterwards the log replays what is between ``map_end_offset`` and its end: nothing, when the appends
        that are gone could be rolled back. Completed transactions that are not in the snapshot still
        wait for the high watermark, which may be below that end.
        """
        for offset in list(self._snapshots.offsets):
            if not log_start_offset < offset <= log_end_offset:
                self._snapshots.delete(offset)
        if log_end_offset < self.map_end_offset and self.roll_back(log_end_offset):
            self.map_end_offset = log_end_offset
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
        else:
            unreplicated = self._unreplicated.items()
            self.load_from_snapshots(log_start_offset, log_end_offset)
            self._unreplicated.update(each for each in unreplicated if each[1] < self.map_end_offset)
            self._find_first_unstable()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """The log was emptied and continues at ``offset``."""
        self._begin_at(offset)
        self._snapshots.delete_before(_NEVER)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def take_over(self, other: ProducerStateManager) -> None:
        """Know what ``other`` knows, which is of a log with the same records and is used no more. It may know
        producers whose records are deleted."""
        self._producers, self._ongoing = other._producers, other._ongoing
        self._unreplicated, self._first_unstable = other._unreplicated, other._first_unstable
        self._undo, self._undo_start = other._undo, other._undo_start
        self.verifications = other.verifications

    # Snapshots

    def take_snapshot(self) -> str | None:
        """Write the state at ``map_end_offset``; returns the path, or None when there is one already.

        Not fsynced here: see the header.
        """
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        entries = [saved_entry(entry) for entry in self._producers.values()]
        path = self._snapshots.write(offset, entries)
        self._last_snapshot_offset = offset
        return path

    def load_from_snapshots(self, log_start_offset: int, up_to: int) -> int:
        """Forget all and start from the newest good snapshot in (``log_start_offset``, ``up_to``].

        Damaged snapshots are removed. Returns the offset from which the log has to be replayed.
        """
        self._begin_at(log_start_offset)
        now_ms = self._clock.now_ms()
        for offset in reversed(list(self._snapshots.offsets)):
            if not log_start_offset < offset <= up_to:
                continue
            try:
                entries = self._snapshots.read(offset)
            except (CorruptSnapshot, FileNotFoundError) as error:
                _log.warning(
                    "%s: producer snapshot at %d is dropped: %s", self.topic_partition, offset, error
                )
                self._snapshots.delete(offset)
                continue
            self._load(entries, now_ms)
            break
        else:
            offset = log_start_offset
        self._last_snapshot_offset = self.map_end_offset = self._undo_start = offset
        return offset

    def mark_snapshot_for_deletion(self, offset: int) -> str | None:
        """Rename the snapshot at ``offset`` to ``*.deleted``; returns the new path, None without one."""
        if offset == self._last_snapshot_offset:
            self._last_snapshot_offset = offset - 1  # where an empty segment is rolled, one is taken again
        return self._snapshots.mark_for_deletion(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """On load: keep the snapshots at segment starts, and the newest one if it is beyond all of them
        (a clean shutdown leaves it at the log's end)."""
        self._snapshots.remove_strays(segment_base_offsets)

    def remove_damaged_snapshots(self, from_offset: int) -> None:
        """On load after an unclean stop: those from ``from_offset`` on may not have been synced."""
        self._snapshots.remove_damaged(from_offset)

    def snapshot_paths_from(self, offset: int) -> list[str]:
        """The files of the snapshots at ``offset`` and above."""
        return [self._snapshots.path(each) for each in self._snapshots.offsets if each >= offset]

    def update_directory(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self._snapshots.directory = directory

    # Inside

    def _begin_at(self, offset: int) -> None:
        """Know of no producer, and of nothing below ``offset``."""
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated = {}
        self._first_unstable = None
        self._undo = None
        self._undo_start = offset

    def _forget_unreplicated_below(self, offset: int) -> None:
        gone = []
        for first_offset, last_offset in self._unreplicated.items():
            if last_offset >= offset:
                break
            gone.append(first_offset)
        for first_offset in gone:
            del self._unreplicated[first_offset]
        if gone:
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = min(next(iter(self._ongoing), _NEVER), min(self._unreplicated, default=_NEVER))
        self._first_unstable = None if first == _NEVER else first

    def _load(self, entries: list[SnapshotEntry], now_ms: int) -> None:
        for saved in entries:
            entry = loaded_entry(saved)
            if not self._is_expired(entry, now_ms):
                self._producers[saved.producer_id] = entry
        open_transactions = (
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self._producers.values()
            if entry.current_txn_first_offset is not None
        )
        self._ongoing.update(sorted(open_transactions))
        self._first_unstable = next(iter(self._ongoing), None)

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return (
            entry.current_txn_first_offset is None
            and now_ms - entry.last_timestamp >= self.producer_id_expiration_ms
        )


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
