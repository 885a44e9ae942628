"""Which part of a log may be compacted now, and which log needs it most. Kafka: ``LogToClean``, and the
choosing half of ``LogCleanerManager``.

The dirty part begins at ``UnifiedLog.first_dirty_offset`` and ends where the first segment begins that
holds any of: the last stable offset (so never above the high watermark, R18), the end of the log (the
active segment), a record younger than ``min.compaction.lag.ms``. A log is due when its dirty bytes are more
than ``min.cleanable.dirty.ratio`` of all, or a dirty record is older than ``max.compaction.lag.ms``; the
largest ratio comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from minikafka.config.definition import LONG_MAX
from minikafka.deferred import deferred
from minikafka.log.checkpoint import encode_uuid

if TYPE_CHECKING:
    from minikafka.log import staged_compaction as staged
    from minikafka.log.segment.log_segments import DeletedFiles
    from minikafka.log.segment.segment import LogSegment
    from minikafka.log.staged_compaction import CompactedSegment, CompactionJob, CompactionManifest
    from minikafka.log.unified_log import UnifiedLog
else:
    staged = deferred("minikafka.log.staged_compaction")


class CleanableLog:
    """A log and what of it may be compacted at ``now_ms``.

    Raises:
        KafkaError: CORRUPT_MESSAGE: a segment is damaged.
        OSError: the disk's.
    """

    def __init__(self, log: UnifiedLog, *, now_ms: int) -> None:
        self.log = log
        self._generation = log.generation
        self.first_dirty_offset = first_dirty_offset(log)
        segments = list(log.segments)
        floor = max(log.segments.floor_index(log.last_stable_offset), 0)
        below = segments[: min(floor, len(segments) - 1)]
        dirty_from = next(
            (i for i in range(len(below)) if segments[i + 1].base_offset > self.first_dirty_offset),
            len(below),
        )
        lag_ms = log.config.min_compaction_lag_ms
        if lag_ms > 0:
            for index in range(dirty_from, len(below)):
                if below[index].largest_timestamp() > now_ms - lag_ms:
                    del below[index:]
                    break
        self.segments: list[LogSegment] = below
        self.first_uncleanable_offset = segments[len(below)].base_offset
        dirty = below[dirty_from:]
        self.dirty_bytes = sum(segment.size for segment in dirty)
        self.total_bytes = sum(segment.size for segment in below)
        self.overdue_ms = _overdue_ms(dirty, log.config.max_compaction_lag_ms, now_ms)
        self.must_now = self.dirty_bytes > 0 and self.overdue_ms > 0

    def __repr__(self) -> str:
        return (
            f"CleanableLog({self.log.topic_partition}, [{self.first_dirty_offset}, "
            f"{self.first_uncleanable_offset}), ratio {self.dirty_ratio:.2f})"
        )

    @property
    def dirty_ratio(self) -> float:
        """The part of the bytes that has not been compacted; 0 where there is nothing to compact."""
        return self.dirty_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        return self.must_now or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio

    def job(self, *, now_ms: int, map_bytes: int, map_load_factor: float, read_bytes: int) -> CompactionJob:
        """The work, described for a process that has only the files."""
        log = self.log
        later = [
            segment.base_offset
            for segment in log.segments
            if segment.base_offset >= self.first_uncleanable_offset and segment.has_aborted_transactions
        ]
        return staged.CompactionJob(
            directory=log.directory,
            config=log.config,
            segments=tuple(
                staged.SourceSegment(
                    segment.base_offset,
                    segment.size,
                    segment.offset_index.entries * segment.offset_index.ENTRY_BYTES,
                    segment.time_index.entries * segment.time_index.ENTRY_BYTES,
                    segment.has_aborted_transactions,
                )
                for segment in self.segments
            ),
            later_txn_indexes=tuple(later),
            first_dirty_offset=self.first_dirty_offset,
            first_uncleanable_offset=self.first_uncleanable_offset,
            last_records={
                producer_id: staged.LastRecord(entry.producer_epoch, entry.last_data_offset)
                for producer_id, entry in log.producers.active_producers().items()
            },
            now_ms=now_ms,
            map_bytes=map_bytes,
            map_load_factor=map_load_factor,
            read_bytes=read_bytes,
        )

    @property
    def is_current(self) -> bool:
        """Whether the log still has what was to be compacted: nothing was truncated, deleted or moved."""
        log = self.log
        if not log.is_open or log.generation != self._generation:
            return False
        return list(log.segments)[: len(self.segments)] == self.segments

    def swap_in(self, new: CompactedSegment) -> list[DeletedFiles]:
        """Put the next new segment of its job into the log. Returns the files of the old ones, to be removed
        once the directory is durable and ``file.delete.delay.ms`` has passed. Only while it ``is_current``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the log is fenced.
        """
        old = [segment for segment in self.segments if segment.base_offset in new.replaced]
        deleted = self.log.replace_segments(old, new)
        self._generation = self.log.generation
        index = self.segments.index(old[0])
        self.segments[index : index + len(old)] = [self.log.segments[index]]
        return deleted


def check_manifest(cleanable: CleanableLog, manifest: CompactionManifest) -> None:
    """Whether a staged compaction is for this log as it is, and for no more than may be compacted now.

    Raises:
        StaleManifest: it is not; says why.
    """
    log, end_offset = cleanable.log, manifest.result.end_offset
    if (manifest.topic, manifest.partition) != log.topic_partition:
        raise staged.StaleManifest(f"what is prepared is for {manifest.topic}-{manifest.partition}")
    if log.topic_id is not None and manifest.topic_id != encode_uuid(log.topic_id):
        raise staged.StaleManifest(f"topic {manifest.topic} was deleted and created again")
    if end_offset > cleanable.first_uncleanable_offset:
        raise staged.StaleManifest(
            f"what is prepared reaches up to offset {end_offset}, but only below "
            f"{cleanable.first_uncleanable_offset} may {log.topic_partition} be compacted now"
        )
    segments = cleanable.segments[: len(manifest.sources)]
    found = [(segment.base_offset, segment.size) for segment in segments]
    following = list(log.segments)[len(segments)].base_offset
    if found != [(source.base_offset, source.size) for source in manifest.sources] or following != end_offset:
        raise staged.StaleManifest(
            f"the segments of {log.topic_partition} are not those any more that were read"
        )
    if staged.epochs_below(log.leader_epochs, end_offset) != manifest.leader_epochs:
        raise staged.StaleManifest(
            f"{log.topic_partition} was truncated or has lost its beginning since it was read"
        )


def first_dirty_offset(log: UnifiedLog) -> int:
    """Where the dirty part begins. A noted offset below the log start, or above the end of a log that has
    lost records, means that all is dirty."""
    noted = log.first_dirty_offset
    if noted is None or not log.log_start_offset <= noted <= log.log_end_offset:
        return log.log_start_offset
    return noted


def dirtiest(logs: Iterable[CleanableLog]) -> CleanableLog | None:
    """The log to compact next; None when none is due."""
    return max((each for each in logs if each.is_due), key=lambda each: each.dirty_ratio, default=None)


def dirty_bytes(log: UnifiedLog) -> int:
    """Bytes of the closed segments that have not been compacted, whatever else keeps them from it. Nothing is
    read from the disk, so it may be asked of a damaged log."""
    *closed, active = log.segments
    ends = [segment.base_offset for segment in (*closed[1:], active)]
    first = first_dirty_offset(log)
    return sum(segment.size for segment, end in zip(closed, ends, strict=True) if end > first)


def _overdue_ms(dirty: Iterable[LogSegment], lag_max_ms: int, now_ms: int) -> int:
    """By how much the oldest dirty record is older than it may be (``maxCompactionDelay``)."""
    if lag_max_ms >= LONG_MAX:
        return 0  # the usual case: do not look into the files
    timestamps = [timestamp for segment in dirty if (timestamp := _first_timestamp(segment)) > 0]
    return max(0, now_ms - lag_max_ms - min(timestamps)) if timestamps else 0


def _first_timestamp(segment: LogSegment) -> int:
    """Of the first batch; 0 or less where it has none. May read from the disk, once."""
    if segment.rolling_timestamp is None:
        first = next(segment.batches_until_damage(), None)
        segment.rolling_timestamp = -1 if first is None else first.max_timestamp
    return segment.rolling_timestamp
