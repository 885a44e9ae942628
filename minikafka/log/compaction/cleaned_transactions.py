"""Which batches belong to aborted transactions, and which markers are no longer needed. Kafka:
``CleanedTransactionMetadata``.

Fed with the batches of a log in their order. The data of an aborted transaction may go at once, for its
marker and the transaction index have decided it. A marker may go when nothing of its transaction was seen:
it ends nothing then. An aborted transaction of which something was still seen is written into the index of
the new segment, with its marker.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from minikafka.files import Files
from minikafka.log.compaction.job import CompactionJob
from minikafka.log.files.names import TXN_INDEX_SUFFIX, file_name
from minikafka.log.producers.replay import read_marker
from minikafka.log.segment.txn_index import AbortedTransaction, TransactionIndex
from minikafka.protocol.records.batch import BatchHeader
from minikafka.types import Buffer


class CleanedTransactions:
    """The transactions of one pass through a log.

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
