"""What one partition knows of its producers: epochs, sequence numbers, open transactions.

Kafka's class: ``ProducerStateManager`` (KIP-98, KIP-360, KIP-890). It refuses a producer's stale or
out-of-order batches, recognises duplicates, and says up to which offset every transaction is decided and
replicated (with the high watermark: the LSO).

How an append uses it: ``find_duplicate`` (clients only), ``prepare_update`` for data or ``prepare_marker``
for an end-transaction marker, write the bytes, ``update``. Preparing changes nothing, so an append that fails
later leaves the state as it was. Several batches of one producer in one append are chained with ``previous``.

Invariants
- ``map_end_offset`` is the offset up to which the log is reflected here; the log sets it to its end offset at
  the latest before ``take_snapshot``.

fsync: ``take_snapshot`` writes into the page cache only and returns the path; the log fsyncs it with its next
flush (on the disk thread), before it raises the recovery point. A snapshot torn by a power cut fails its CRC
and an older one serves, with more of the log to replay.

With ``verifies_transactions`` a client or a coordinator begins a transaction here only with the guard of a
check that has succeeded (KIP-890, ``verification_state``).

Different from Kafka: the first unstable offset is a plain offset, without a position.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from minikafka.clock import Clock
from minikafka.files import Files
from minikafka.log.producers.append import (
    BatchMetadata,
    EndTransactionMarker,
    ProducerAppend,
    ProducerStateEntry,
    check_data_batch,
    check_epoch_is_not_stale,
    check_marker,
    check_verified,
    find_duplicate,
)
from minikafka.log.producers.append_origin import AppendOrigin
from minikafka.log.producers.known_producers import KnownProducers
from minikafka.log.producers.snapshot import (
    CorruptSnapshot,
    SnapshotEntry,
    SnapshotFiles,
    loaded_entry,
    saved_entry,
)
from minikafka.log.producers.verification_state import VerificationGuard
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.protocol.records.batch import BatchHeader

_log = logging.getLogger(__name__)

_NEVER = 1 << 63
"""Above every offset."""


class ProducerStateManager(KnownProducers):
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
        super().__init__(topic_partition)
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.verifies_transactions = False
        """``transaction.partition.verification.enable``; the tools that read a log have nobody to ask."""
        self.map_end_offset = 0
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
    def snapshot_offsets(self) -> Sequence[int]:
        """Of the snapshot files there are, ascending."""
        return self._snapshots.offsets

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self._snapshots.offsets[-1] if self._snapshots.offsets else None

    def snapshot_path(self, offset: int) -> str:
        return self._snapshots.path(offset)

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def active_producers(self) -> Mapping[int, ProducerStateEntry]:
        """A read-only view, by producer id (DescribeProducers)."""
        return MappingProxyType(self._producers)

    # Appending

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The retained batch with exactly these sequences, when ``header`` is a retry of it."""
        entry = self._producers.get(header.producer_id)
        return None if entry is None else find_duplicate(entry, header)

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
        if self.verifies_transactions and header.is_transactional and origin is not AppendOrigin.REPLICATION:
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

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that have been idle for too long; returns how many."""
        expired = [
            producer_id for producer_id, entry in self._producers.items() if self._is_expired(entry, now_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        self.verifications.remove_expired(now_ms, self.producer_id_expiration_ms)
        return len(expired)

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

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int) -> None:
        """The log now covers [``log_start_offset``, ``log_end_offset``): drop what lies outside.

        Afterwards the log replays what is between ``map_end_offset`` and its end: nothing, when the appends
        that are gone could be taken back. Completed transactions that the snapshot has forgotten go on
        waiting for the high watermark, which may be below that end.
        """
        for offset in list(self._snapshots.offsets):
            if not log_start_offset < offset <= log_end_offset:
                self._snapshots.delete(offset)
        if log_end_offset < self.map_end_offset and self.take_back(log_end_offset):
            self.map_end_offset = log_end_offset
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
        else:
            unreplicated = self._unreplicated.items()
            self.load_from_snapshots(log_start_offset, log_end_offset)
            self._unreplicated.update(each for each in unreplicated if each[1] < self.map_end_offset)
            self._find_first_unstable()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """The log was emptied and goes on at ``offset``."""
        self._begin_at(offset)
        self._snapshots.delete_before(_NEVER)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Records were deleted; producers stay known."""
        self._forget_unreplicated_below(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def mark_snapshot_for_deletion(self, offset: int) -> str | None:
        """Rename the snapshot at ``offset`` to ``*.deleted``; returns the new path, None without one."""
        if offset == self._last_snapshot_offset:
            self._last_snapshot_offset = offset - 1  # where an empty segment is rolled, one is taken again
        return self._snapshots.mark_for_deletion(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """On load: keep the snapshots at segment starts, and the newest one if it is beyond all of them
        (a clean shutdown leaves it at the log's end)."""
        self._snapshots.remove_strays(segment_base_offsets)

    def update_directory(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self._snapshots.directory = directory

    def take_over(self, other: ProducerStateManager) -> None:
        """Know what ``other`` knows, which is of a log with the same records and is used no more. It may know
        producers whose records are deleted."""
        self._producers, self._ongoing = other._producers, other._ongoing
        self._unreplicated, self._first_unstable = other._unreplicated, other._first_unstable
        self._undo, self._undo_start = other._undo, other._undo_start
        self.verifications = other.verifications

    # Inside

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


__all__ = ["EndTransactionMarker", "ProducerAppend", "ProducerStateManager"]
