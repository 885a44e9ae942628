"""Compaction of a log's closed segments: the work itself. Kafka: ``Cleaner``.

Reads the dirty part for the newest offset of each key (as many keys as the map holds), then copies every
segment below the end of the map, without the records that have a newer one, into new segments: ``.cleaned``
files. It touches nothing that is live and knows nothing of logs; a ``CompactionJob`` describes what to do.
Which batches and records stay is in ``batch_retention``.

``Compaction.steps`` yields the bytes it has read and written since: whoever drives it decides when it goes
on, so it can be throttled, shared out in slices, or dropped.

Every batch is checked (``source_batches``): one that is damaged ends the job, and the log stays as it is.
"""

from __future__ import annotations

from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import Files
from minikafka.log.compaction.batch_retention import (
    DECOMPRESSED_BYTES_MAX,
    BatchRetention,
    CleanedTransactions,
    read_aborted,
)
from minikafka.log.compaction.cleaned_segment import CleanedSegment
from minikafka.log.compaction.job import (
    CompactedSegment,
    CompactionJob,
    CompactionResult,
    group_segments,
    with_ends,
)
from minikafka.log.compaction.offset_map import OffsetMap
from minikafka.log.compaction.segment_copy import Steps, copy_segments
from minikafka.log.compaction.source_batches import source_batches
from minikafka.protocol.records.batch import BatchHeader
from minikafka.protocol.records.filtered_batch import raw_records


class Compaction:
    """One job under way. ``steps`` once, to its end; then there is a ``result``."""

    def __init__(self, job: CompactionJob, files: Files) -> None:
        self._job = job
        self._files = files
        self._map = OffsetMap(buffer_bytes=job.map_bytes, load_factor=job.map_load_factor)
        self._map.latest_offset = job.first_dirty_offset - 1
        self._aborted = read_aborted(job, files)
        self.result: CompactionResult | None = None

    def steps(self) -> Steps:
        """Do the work.

        Raises:
            KafkaError: CORRUPT_MESSAGE and its kin: the log holds something that cannot be compacted.
            OSError: the disk's.
        """
        yield from self._build_map()
        job, end_offset = self._job, self._map.latest_offset + 1
        retention = BatchRetention(
            self._map,
            transactions := CleanedTransactions(self._aborted),
            last_records=job.last_records,
            now_ms=job.now_ms,
            delete_retention_ms=job.config.delete_retention_ms,
        )
        compacted = []
        for group in group_segments(job, end_offset):
            cleaned = CleanedSegment(
                job.directory, group[0].base_offset, config=job.config, files=self._files
            )
            transactions.index = cleaned.txn_index
            try:
                yield from copy_segments(
                    job.directory,
                    group,
                    cleaned,
                    retention,
                    files=self._files,
                    read_bytes=job.read_bytes,
                )
                cleaned.finish()
            finally:
                cleaned.release()
            replaced = tuple(segment.base_offset for segment in group)
            has_txn_index = cleaned.txn_index.entry_count > 0
            compacted.append(CompactedSegment(replaced[0], replaced, cleaned.size, has_txn_index))
        self.result = CompactionResult(
            tuple(compacted), end_offset, retention.records_kept, retention.records_dropped, len(self._map)
        )

    # ---- the map

    def _build_map(self) -> Steps:
        """Read keys until the dirty part ends or the map is full; then the end of the map is behind the last
        batch that is in it whole."""
        job = self._job
        dirty = [each for each in with_ends(job) if each[1] > job.first_dirty_offset]
        dirty_from = min((segment.base_offset for segment, _ in dirty), default=0)
        # One that ended further below would be taken for an abort of its producer's next transaction.
        transactions = CleanedTransactions(
            aborted for aborted in self._aborted if aborted.last_offset >= dirty_from
        )
        for segment, end_offset in dirty:
            unreported = 0
            batches = source_batches(job.directory, segment, files=self._files, read_bytes=job.read_bytes)
            for header, batch in batches:
                if not self._index_batch(header, batch, transactions):
                    if self._map.latest_offset < job.first_dirty_offset:
                        raise KafkaError(
                            ErrorCode.KAFKA_STORAGE_ERROR,
                            f"{job.directory}: the batch at offset {header.base_offset} has more keys than "
                            f"log.cleaner.dedupe.buffer.size holds",
                        )
                    return
                unreported += len(batch)
                if unreported >= job.read_bytes:
                    yield unreported
                    unreported = 0
            yield unreported
            self._map.latest_offset = end_offset - 1

    def _index_batch(self, header: BatchHeader, batch: memoryview, transactions: CleanedTransactions) -> bool:
        """Note the keys of one batch; False when they do not all fit."""
        start, put = self._job.first_dirty_offset, self._map.put
        is_aborted = transactions.may_discard(header, batch)
        if header.last_offset < start:
            return True
        if not header.is_control and not is_aborted and header.record_count:
            for record in raw_records(batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                key = record.key
                if key is not None and record.offset >= start and not put(key, record.offset):
                    return False
        self._map.latest_offset = header.last_offset
        return True
