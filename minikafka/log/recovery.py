"""Loading a log from its directory, whatever state that is in. Kafka: ``LogLoader``.

After a clean stop the files are taken as they are; sizes and last entries of indexes are looked at, and a
damaged or missing index is built anew from its segment. After an unclean one, everything from the recovery
point on is read and checked; at the first bad batch the log ends, and all later segments go. Then all leader
epochs are held against the batches (``epoch_check``).

Afterwards: there is an active segment; indexes, producer state and leader epochs agree with the batches; the
recovery point is at most the log end; the log start is at most the log end.

Differs from Kafka: removed files are gone at once, not after file.delete.delay.ms; after a clean stop a
damaged tail of the last segment is cut off instead of failing the directory.
"""

from __future__ import annotations

import logging
import os
from itertools import pairwise
from typing import NamedTuple

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.files import Files
from minikafka.log.compaction.swap_files import finish_swaps
from minikafka.log.epoch_check import find_contradiction, read_epochs
from minikafka.log.files.flush import fsync_file
from minikafka.log.files.open_files import OpenFiles
from minikafka.log.leader_epoch_cache import CorruptCheckpoint, LeaderEpochCache
from minikafka.log.lost_offsets import find_lost_offsets
from minikafka.log.producers.replay import rebuild_producer_state
from minikafka.log.producers.state import ProducerStateManager
from minikafka.log.segment.file_records import CorruptSegment
from minikafka.log.segment.files import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TXN_INDEX_SUFFIX,
    file_name,
    parse_file_name,
)
from minikafka.log.segment.log_segments import LogSegments
from minikafka.log.segment.segment import LogSegment
from minikafka.log.segment.txn_index import CorruptTransactionIndex
from minikafka.log.segment_recovery import recover_segment

_log = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    """What a directory held."""

    segments: LogSegments
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int


class LogLoader:
    """Loads one log; used once, when the broker starts or a partition is created. Blocks."""

    def __init__(
        self,
        directory: str,
        *,
        config: TopicConfig,
        files: Files,
        clock: Clock,
        producers: ProducerStateManager,
        log_start_offset: int,
        recovery_point: int,
        clean_shutdown: bool,
        was_compacted: bool,
        open_files: OpenFiles | None = None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._files = files
        self._now_ms = clock.now_ms()
        self._producers = producers
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._clean_shutdown = clean_shutdown
        self._was_compacted = was_compacted or "compact" in config.cleanup_policy
        self._segments = LogSegments(open_files)
        self._epochs_damaged = False
        self._epochs = self._load_epochs()

    def load(self) -> LoadedLog:
        """Read the directory, repair what is damaged.

        Raises:
            OSError: the disk's.
        """
        names = finish_swaps(self._directory, config=self._config, files=self._files)
        damaged = self._open_segments(names)
        if self._clean_shutdown:
            self._repair(damaged)
        else:
            self._repair([s for s in damaged if s.base_offset < self._first_unflushed_base()])
            self._cut_overlaps()
            self._recover_from(self._recovery_point)
        log_end_offset = self._find_log_end()
        if log_end_offset < self._log_start_offset:
            log_end_offset = self._start_over(log_end_offset)
        log_start_offset = max(self._log_start_offset, self._segments[0].base_offset)
        self._name_lost_offsets(log_end_offset)
        self._settle_epochs(log_start_offset, log_end_offset)
        self._segments.active.activate()
        self._producers.remove_stray_snapshots(self._segments.base_offsets)
        rebuild_producer_state(
            self._producers,
            self._segments,
            log_start_offset=log_start_offset,
            up_to=log_end_offset,
            after_clean_stop=self._clean_shutdown,
        )
        recovery_point = log_end_offset if self._clean_shutdown else min(self._recovery_point, log_end_offset)
        return LoadedLog(
            self._segments,
            self._epochs,
            log_start_offset,
            log_end_offset,
            max(recovery_point, log_start_offset),
        )

    def _name_lost_offsets(self, log_end_offset: int) -> None:
        # The first epoch begins at the log start. After a power cut the file may be older than retention.
        first = self._epochs.earliest_entry if self._clean_shutdown else None
        lost = find_lost_offsets(
            self._segments,
            was_compacted=self._was_compacted,
            start_offset=self._segments[0].base_offset
            if first is None
            else max(first.start_offset, self._log_start_offset),
            end_offset=self._recovery_point,
            log_end_offset=log_end_offset,
        )
        if lost:
            _log.error(
                "%s: offsets %s are lost, a segment was emptied or removed while the broker was stopped: "
                "stop it and put the missing .log files back into %s, or consumers go on behind them",
                self._producers.topic_partition,
                ", ".join(f"{first} to {last}" for first, last in lost),
                self._directory,
            )

    # ---- epochs

    def _load_epochs(self) -> LeaderEpochCache:
        try:
            return LeaderEpochCache(self._directory, self._files)
        except CorruptCheckpoint as error:
            _log.warning("%s; the epochs are read from the batches", error)
            LeaderEpochCache.reset(self._directory, self._files)
            self._epochs_damaged = True
            return LeaderEpochCache(self._directory, self._files)

    def _settle_epochs(self, log_start_offset: int, log_end_offset: int) -> None:
        """Bring the epochs within the log, and read them from all batches where the file cannot be trusted.

        Once the segments are sound, and not before: a batch that recovery cuts off has no say.
        """
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        if not self._epochs_damaged and (not self._clean_shutdown or not self._epochs):
            contradiction = find_contradiction(
                self._epochs.entries(),
                self._segments,
                log_start_offset=log_start_offset,
                log_end_offset=log_end_offset,
            )
            if contradiction is not None:
                _log.warning(
                    "%s: the leader epochs on the disk are not those of the log: %s; they are read from the "
                    "batches",
                    self._directory,
                    contradiction,
                )
                self._epochs_damaged = True
        if self._epochs_damaged:
            self._epochs.replace(read_epochs(self._segments))
            self._epochs.truncate_from_end(log_end_offset)
            self._epochs.truncate_from_start(log_start_offset)

    # ---- segments

    def _open_segments(self, names: list[str]) -> list[LogSegment]:
        """Take over the segment files; returns the segments whose indexes are damaged or missing."""
        parsed = [(name, *found) for name in names if (found := parse_file_name(name)) is not None]
        bases = sorted(offset for _, offset, suffix in parsed if suffix == LOG_SUFFIX)
        with_txn_index = {offset for _, offset, suffix in parsed if suffix == TXN_INDEX_SUFFIX}
        known = set(bases)
        for name, offset, suffix in parsed:
            if suffix in INDEX_SUFFIXES and offset not in known:
                _log.warning("%s: %s belongs to no segment and is removed", self._directory, name)
                self._files.remove(os.path.join(self._directory, name))
        damaged = []
        for base_offset in bases:
            size = self._files.size(os.path.join(self._directory, file_name(base_offset, LOG_SUFFIX)))
            segment = LogSegment(
                self._directory,
                base_offset,
                config=self._config,
                files=self._files,
                size=size,
                created_ms=self._now_ms,
                open_files=self._segments.open_files,
            )
            is_sound = segment.load_indexes()
            if base_offset in with_txn_index:
                is_sound = self._check_txn_index(segment) and is_sound
            if not is_sound:
                damaged.append(segment)
            self._segments.add(segment)
        if (
            bases
            and self._segments.active not in damaged
            and not self._indexes_are_plausible(self._segments.active)
        ):
            damaged.append(self._segments.active)
        return damaged

    def _check_txn_index(self, segment: LogSegment) -> bool:
        try:
            segment.txn_index.sanity_check()
        except CorruptTransactionIndex as error:
            _log.warning("%s", error)
            return False
        finally:
            segment.txn_index.close()
        segment.has_aborted_transactions = segment.txn_index.entry_count > 0
        return True

    @staticmethod
    def _indexes_are_plausible(segment: LogSegment) -> bool:
        return segment.offset_index.is_plausible(segment.size) and segment.time_index.is_plausible()

    def _repair(self, damaged: list[LogSegment]) -> None:
        """Build the indexes of flushed segments anew; their batches are kept as they are."""
        for segment in damaged:
            _log.warning("%s: an index is missing or damaged; building it anew", segment.path)
            segment.rebuild_indexes()
            if segment.has_aborted_transactions or not segment.txn_index.exists:
                continue
            segment.txn_index.reset()
            self._rebuild_txn_index(segment)

    def _rebuild_txn_index(self, segment: LogSegment) -> None:
        """A damaged transaction index needs the producers as they were at the segment's start: read it all
        again."""
        self._recover(segment)

    def _first_unflushed_base(self) -> int:
        unflushed = self._segments.from_offset(self._recovery_point)
        return unflushed[0].base_offset if unflushed else 0

    def _cut_overlaps(self) -> None:
        """Cut off what reaches into the next segment, in all segments that recovery does not read as a whole.

        A segment is made where its log ends. So the one before it was truncated to there, and that had not
        reached the disk when the power failed (Kafka does not fsync it either, and then has two batches with
        one offset).
        """
        for segment, following in pairwise(self._segments):
            if following.base_offset > self._first_unflushed_base():
                return
            try:
                overlap = segment.find_batch(following.base_offset)
            except CorruptSegment:
                segment.release()
                continue  # whoever reads there is told
            if overlap is None:
                segment.release()
                continue
            _log.warning(
                "%s: batch %d reaches into the next segment, which was made when the log had been truncated "
                "to %d: it is cut off",
                segment.path,
                overlap.base_offset,
                following.base_offset,
            )
            segment.truncate_to(following.base_offset, now_ms=self._now_ms)
            segment.become_inactive()
            fsync_file(self._files, segment.path)

    def _recover_from(self, offset: int) -> None:
        unflushed = self._segments.from_offset(offset)
        for index, segment in enumerate(unflushed):
            _log.info("%s: checking, the broker did not stop cleanly", segment.path)
            if self._recover(segment):
                self._drop(unflushed[index + 1 :])
                return

    def _recover(self, segment: LogSegment) -> int:
        """Check one segment; returns the bytes that were cut off."""
        producers = self._producers
        if producers.map_end_offset != segment.base_offset or producers.is_empty:
            below = LogSegments()
            for other in self._segments:
                if other.base_offset < segment.base_offset:
                    below.add(other)
            rebuild_producer_state(
                producers,
                below,
                log_start_offset=min(self._log_start_offset, segment.base_offset),
                up_to=segment.base_offset,
                after_clean_stop=False,
            )
        following = self._segments.floor_index(segment.base_offset) + 1
        next_base_offset = self._segments[following].base_offset if following < len(self._segments) else None
        cut = recover_segment(
            segment, next_base_offset=next_base_offset, producers=producers, epochs=self._epochs
        )
        producers.take_snapshot()
        return cut

    def _drop(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            _log.warning("%s: removed, it lies behind damage or below the log start", segment.path)
            self._segments.remove(segment)
            for suffix in SEGMENT_SUFFIXES:
                self._files.remove(os.path.join(self._directory, file_name(segment.base_offset, suffix)))

    def _find_log_end(self) -> int:
        """The offset after the last batch; a first segment is made when there is none."""
        if not len(self._segments):
            self._create_first()
            return self._log_start_offset
        active = self._segments.active
        try:
            return active.read_next_offset()
        except CorruptSegment as error:
            _log.warning("%s", error)
        self._recover(active)
        return active.read_next_offset()

    def _start_over(self, log_end_offset: int) -> int:
        _log.warning(
            "%s: the log ends at %d, below its start %d: every segment is removed",
            self._directory,
            log_end_offset,
            self._log_start_offset,
        )
        self._drop(list(self._segments))
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(self._log_start_offset)
        self._create_first()
        return self._log_start_offset

    def _create_first(self) -> None:
        segment = LogSegment.create(
            self._directory,
            self._log_start_offset,
            config=self._config,
            files=self._files,
            created_ms=self._now_ms,
            open_files=self._segments.open_files,
        )
        self._segments.add(segment)
