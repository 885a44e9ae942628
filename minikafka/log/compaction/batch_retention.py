"""What is retained of a batch when its log is compacted. Kafka: the record filter in ``Cleaner.cleanInto``,
``Cleaner.shouldRetainRecord`` (KIP-534), ``CleanedTransactionMetadata``.

| record | retained |
|---|---|
| past the end of the map | always |
| without a key | no |
| with a newer one of its key | no |
| a tombstone, the newest of its key | until the batch's delete horizon |
| of an aborted transaction | no |
| a marker | until nothing is left of its transaction, and then until the delete horizon |

The first pass that finds a tombstone, or a marker with nothing left of its transaction, writes the delete
horizon into the batch: ``delete.retention.ms`` from now. A batch without records is kept, as a header, when
it is an active producer's last one (its sequence follows from it) or the last of what becomes one segment.

Transactions (``CleanedTransactions``). The data of an aborted one may go at once, for its marker and the
transaction index have decided it. A marker may go when nothing of its transaction was seen: it ends nothing
then. An aborted transaction of which something was still seen is written into the index of the new segment,
with its marker.

Differs from Kafka: the last batch of every new segment is kept, not only that of the round; so the segment
reaches as far as the old ones did, and a start that finds an interrupted swap knows which ones they were. A
batch past the end of the map is not touched, where Kafka gives it a delete horizon.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Protocol

from minikafka.files import Files
from minikafka.log.compaction.staged_compaction import CompactionJob, LastRecord
from minikafka.log.files.names import TXN_INDEX_SUFFIX, file_name
from minikafka.log.producers.replay import read_marker
from minikafka.log.segment.txn_index import AbortedTransaction, TransactionIndex
from minikafka.protocol.records.batch import BatchHeader
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.filtered_batch import RawRecord, empty_batch, raw_records, rebuild_batch
from minikafka.types import Buffer

DECOMPRESSED_BYTES_MAX = 1024 * 1024 * 1024
"""A batch that the log holds was accepted once; this only bounds what a damaged one can cost."""


class NewestRecords(Protocol):
    """Knows which records are the newest of their keys: an ``OffsetMap``, or ``RetainedOffsets``."""

    @property
    def latest_offset(self) -> int:
        """The offset up to which it knows."""
        ...

    def select(self, records: Iterable[RawRecord]) -> list[RawRecord]:
        """Those records of one batch, in their order, that have a key and no newer one of it."""
        ...


class CleanedTransactions:
    """The transactions of one pass through a log, fed with its batches in their order.

    Args:
        aborted: every one that reaches into what is read.
        seen: producers of which data was seen whose transactions had not ended where the pass begins.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], *, seen: Iterable[int] = ()) -> None:
        self.index: TransactionIndex | None = None
        """Of the segment that is being written; None while nothing is."""
        self._to_come = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._ongoing_aborted: dict[int, AbortedTransaction] = {}
        self._seen: dict[int, None] = dict.fromkeys(seen)
        """Producers of ongoing transactions with data, aborted or not."""

    def may_discard(self, header: BatchHeader, batch: Buffer) -> bool:
        """Take note of the next batch; whether its records are no longer needed.

        Raises:
            KafkaError: a marker that cannot be read.
            OSError: the index could not be written.
        """
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            aborted = self._to_come.pop()
            self._ongoing_aborted.setdefault(aborted.producer_id, aborted)
        producer_id = header.producer_id
        if not header.is_control:
            if not header.is_transactional:
                return False
            self._seen[producer_id] = None
            return producer_id in self._ongoing_aborted
        if header.record_count == 0:
            return True
        marker = read_marker(header, batch)
        if marker is None:
            return False
        was_seen = producer_id in self._seen
        self._seen.pop(producer_id, None)
        if marker.is_abort:
            ended = self._ongoing_aborted.pop(producer_id, None)
            if ended is not None and was_seen and self.index is not None:
                self.index.append(ended)
        return not was_seen


class BatchRetention:
    """The rules of one round. With a ``codec``, batches that another one was used for are written again."""

    def __init__(
        self,
        newest: NewestRecords,
        transactions: CleanedTransactions,
        *,
        last_records: Mapping[int, LastRecord],
        now_ms: int,
        delete_retention_ms: int,
        codec: CompressionType | None = None,
    ) -> None:
        self._newest = newest
        self._codec = codec
        self._transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms
        self.records_kept = 0
        self.records_dropped = 0

    def apply(self, header: BatchHeader, batch: Buffer, *, is_last: bool) -> Buffer | None:
        """What to write for the next batch of the log: itself, another one, or nothing.

        Args:
            is_last: the last batch of what becomes one segment.

        Raises:
            CorruptBatch: its records cannot be read.
            OSError: the new transaction index could not be written.
        """
        may_discard = self._transactions.may_discard(header, batch)
        kept: Buffer | None = None
        if header.record_count and header.is_control:
            kept = self._marker(header, batch) if may_discard else batch
        elif header.record_count and not may_discard:
            kept = self._filter(header, batch)
        if kept is None:
            self.records_dropped += header.record_count
            return empty_batch(header) if is_last or self._is_last_of_producer(header) else None
        return kept

    def _marker(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """A marker with nothing left of its transaction; None once it may go."""
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is not None:
            return None if horizon_ms <= self._now_ms else batch
        records = raw_records(batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        return rebuild_batch(header, records, delete_horizon_ms=self._delete_horizon_ms)

    def _filter(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """A data batch with the retained records; None without any."""
        if header.base_offset > self._newest.latest_offset:
            self.records_kept += header.record_count
            return batch
        horizon_ms = header.delete_horizon_ms
        records = raw_records(batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        kept = self._newest.select(records)
        has_tombstones = any(record.value is None for record in kept)
        if has_tombstones and horizon_ms is not None and horizon_ms <= self._now_ms:
            kept = [record for record in kept if record.value is not None]
            has_tombstones = False
        self.records_kept += len(kept)
        if not kept:
            return None
        is_whole = len(kept) == header.record_count
        needs_horizon = has_tombstones and horizon_ms is None
        needs_codec = self._codec is not None and self._codec != header.compression
        if is_whole and not needs_horizon and not needs_codec:
            return batch
        self.records_dropped += header.record_count - len(kept)
        return rebuild_batch(
            header,
            kept,
            delete_horizon_ms=self._delete_horizon_ms if needs_horizon else horizon_ms,
            codec=self._codec,
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def read_aborted(job: CompactionJob, files: Files) -> list[AbortedTransaction]:
    """The aborted transactions that began in what a job compacts, wherever they ended. Raises OSError,
    CorruptTransactionIndex."""
    bases = [segment.base_offset for segment in job.segments if segment.has_txn_index]
    found: list[AbortedTransaction] = []
    for base_offset in (*bases, *job.later_txn_indexes):
        path = os.path.join(job.directory, file_name(base_offset, TXN_INDEX_SUFFIX))
        if files.exists(path):  # creating one is not this one's business
            index = TransactionIndex(path, files)
            try:
                found += index.all_aborted()
            finally:
                index.close()
    return [each for each in found if each.first_offset < job.first_uncleanable_offset]
