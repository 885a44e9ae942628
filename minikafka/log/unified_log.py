"""One partition's log: its segments, what may be read of them, and every way in which it changes. Kafka:
``UnifiedLog`` and ``LocalLog``; KIP-98 (transactions, isolation), KIP-101 and KIP-279 (leader epochs),
KIP-107 (deleting records).

The event loop owns it; nothing here is thread-safe. Appends go to the page cache at once. What is for the
disk thread is returned: fsyncs and removals (``Flush``, ``DeletedFiles``), reads of the disk (``ColdRead``).

A log whose disk failed is fenced: every later append answers KAFKA_STORAGE_ERROR, for what is on the disk
behind the log end is not known (KAFKA-10778). The next start's recovery cuts it off.

Invariants
- Offsets ascend through the segments (I2); the last segment is the active one.
- Log start <= last stable offset <= high watermark <= log end (I9); recovery point <= log end.
- A read returns nothing at or above the bound of its isolation as it was when the read began (KAFKA-9807).
- A failed append leaves log end and producer state as they were.
- An epoch is in the epoch file before the first batch that has it is written, and durable before the recovery
  point passes that batch.

Differs from Kafka: truncation in the middle of a batch leaves the log end at that batch's start, not behind a
gap; a duplicate's answer has a log append time only where the topic has one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NoReturn
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.files import Files
from minikafka.log.append import AppendInfo, AppendPlan, plan_follower_append, plan_leader_append
from minikafka.log.checkpoint import EpochEntry
from minikafka.log.files import DELETED_SUFFIX, Flush, OpenFiles
from minikafka.log.leader_epoch_cache import LeaderEpochCache
from minikafka.log.log_reader import LogReader
from minikafka.log.producers import state as producer_state
from minikafka.log.producers.append import (
    TRANSACTION_VERSION_UNKNOWN,
    AppendOrigin,
    CheckedBatch,
    ProducerAppend,
    VerificationGuard,
)
from minikafka.log.producers.state import ProducerStateManager
from minikafka.log.recovery import LoadedLog, LogLoader
from minikafka.log.segment import log_segments
from minikafka.log.segment.fetch_data import (
    ColdRead,
    FetchData,
    FetchIsolation,
    LogOffsetMetadata,
    TimestampAndOffset,
)
from minikafka.log.segment.log_segments import DeletedFiles, LogSegments
from minikafka.log.segment.segment import LogSegment
from minikafka.log.staged_compaction import CompactedSegment, swap_files
from minikafka.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, Buffer, LeaderEpoch, Offset, TopicPartition

__all__ = ["AppendInfo", "AppendOrigin", "FetchData", "LogOffsetMetadata", "UnifiedLog"]

_UNKNOWN = -1
_CLIENT = AppendOrigin.CLIENT  # looked up once: a member of an Enum costs 0.1 µs each time
_HIGH_WATERMARK, _TXN_COMMITTED = FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED


class UnifiedLog:
    """A partition's log. Made by ``load``."""

    __slots__ = (
        "_clock",
        "_closed_by",
        "_closed_reason",
        "_deleted_files",
        "_epochs",
        "_files",
        "_generation",
        "_hw_position",
        "_hw_segment_base_offset",
        "_last_flush_ms",
        "_producers",
        "_reader",
        "_segment_ms",
        "_segments",
        "_small_files_to_sync",
        "_truncated_segments",
        "config",
        "directory",
        "first_dirty_offset",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    @classmethod
    def load(
        cls,
        directory: str,
        topic_partition: TopicPartition,
        *,
        config: TopicConfig,
        files: Files,
        clock: Clock,
        clean_shutdown: bool,
        first_dirty_offset: int | None = None,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        producer_id_expiration_ms: int = 86_400_000,
        topic_id: UUID | None = None,
        open_files: OpenFiles | None = None,
    ) -> UnifiedLog:
        """Open the log in ``directory``, or begin one there; repair what is damaged. Blocks.

        Args:
            log_start_offset, recovery_point: from the checkpoints.
            clean_shutdown: the files are as the last broker left them when it stopped cleanly.
            first_dirty_offset: it was compacted up to there, whatever cleanup.policy is now; None: never.
            open_files: the cache of open files that this log shares with others.

        Raises:
            OSError: the disk's.
        """
        files.make_directory(directory)
        producers = ProducerStateManager(
            topic_partition, directory, files, clock, producer_id_expiration_ms=producer_id_expiration_ms
        )
        loaded = LogLoader(
            directory,
            config=config,
            files=files,
            clock=clock,
            producers=producers,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean_shutdown,
            first_dirty_offset=first_dirty_offset,
            open_files=open_files,
        ).load()
        return cls(
            directory,
            topic_partition,
            loaded,
            config=config,
            files=files,
            clock=clock,
            producers=producers,
            topic_id=topic_id,
        )

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        loaded: LoadedLog,
        *,
        config: TopicConfig,
        files: Files,
        clock: Clock,
        producers: ProducerStateManager,
        topic_id: UUID | None,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self._segment_ms = config.max_segment_ms
        self.log_start_offset = Offset(loaded.log_start_offset)
        self.log_end_offset = Offset(loaded.log_end_offset)
        self.high_watermark = Offset(loaded.log_start_offset)
        self._hw_segment_base_offset = self._hw_position = _UNKNOWN
        self.recovery_point = Offset(loaded.recovery_point)
        self._files = files
        self._clock = clock
        self._producers = producers
        self._epochs: LeaderEpochCache = loaded.epochs
        self._segments: LogSegments = loaded.segments
        self._reader = LogReader(loaded.segments)
        self._closed_reason: str | None = None
        self._closed_by: OSError | None = None
        self._deleted_files: list[DeletedFiles] = []
        self._small_files_to_sync = loaded.written_snapshots
        self._truncated_segments: list[LogSegment] = []
        """Cut since the last flush. The recovery point may be where they end, so a flush would pass them by;
        and once another segment lies behind them, what was cut off must not come back."""
        self._generation = 0
        self._last_flush_ms = clock.monotonic_ms()
        self.first_dirty_offset: int | None = None
        """Up to here the log is compacted (``cleaner-offset-checkpoint``); None: it never was."""

    def __repr__(self) -> str:
        return (
            f"UnifiedLog({self.directory!r}, start={self.log_start_offset}, "
            f"stable={self.last_stable_offset}, high_watermark={self.high_watermark}, "
            f"end={self.log_end_offset}, segments={len(self._segments)}"
            f"{f', closed: {self._closed_reason}' if self._closed_reason else ''})"
        )

    @property
    def generation(self) -> int:
        """Changes when the log is truncated or renamed, or its segments are replaced: what was begun with its
        files before is void."""
        return self._generation

    @property
    def segments(self) -> LogSegments:
        return self._segments

    @property
    def producers(self) -> ProducerStateManager:
        """For DescribeProducers and the group of checks that a coordinator makes; changed only by appends."""
        return self._producers

    @property
    def size_bytes(self) -> int:
        return log_segments.total_bytes(self._segments)

    @property
    def is_open(self) -> bool:
        return self._closed_reason is None

    @property
    def is_future(self) -> bool:
        """Whether it is a copy that will take the current log's place (KIP-113)."""
        return self.directory.endswith("-future")

    def update_config(self, config: TopicConfig) -> None:
        """Takes effect with the next append; index sizes and intervals with the next segment."""
        self.config = config
        self._segment_ms = config.max_segment_ms

    def _refuse(self) -> NoReturn:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {self._closed_reason}"
        ) from self._closed_by

    def _fence(self, reason: str, error: OSError | None = None) -> NoReturn:
        """No more appends: what is on the disk behind the log end is not known."""
        self._closed_reason, self._closed_by = reason, error
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {reason}") from error

    def fence(self, reason: str) -> None:
        """The disk failed elsewhere (a flush, another log of the directory): accept no more appends."""
        if self._closed_reason is None:
            self._closed_reason = reason

    # ---- append

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: LeaderEpoch,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
        checked: CheckedBatch | None = None,
    ) -> AppendInfo:
        """Append one batch of a producer or coordinator at the log end, on what are ``AppendTerms``.

        Raises:
            KafkaError: what is wrong with it (``plan_leader_append``, the producer state),
                RECORD_LIST_TOO_LARGE, or KAFKA_STORAGE_ERROR; log end and producer state are as they were.
            HeavyBatch: a client's takes long to be checked; so they are then.
        """
        if self._closed_reason is not None:
            self._refuse()
        now_ms = self._clock.now_ms()
        # By position where every append passes: CPython 3.11 is slower with names, by 0.05 µs a call.
        plan = plan_leader_append(
            records,
            self.config,
            origin,
            now_ms,
            self.log_end_offset,
            leader_epoch,
            self.topic_partition,
            checked,
        )
        prepared: list[ProducerAppend] | None = None
        header = plan.headers[0]
        if header.producer_id >= 0:
            if origin is _CLIENT:
                duplicate = self._producers.find_duplicate(header)
                if duplicate is not None:
                    return AppendInfo(
                        Offset(duplicate.first_offset),
                        Offset(duplicate.last_offset),
                        duplicate.timestamp,
                        NO_TIMESTAMP if plan.log_append_time == NO_TIMESTAMP else duplicate.timestamp,
                        self.log_start_offset,
                        0,
                        False,
                        True,
                    )
            append = producer_state.prepare(
                self._producers,
                header,
                lambda: plan.source,
                origin=origin,
                first_offset=plan.first_offset,
                verification_guard=verification_guard,
                transaction_version=transaction_version,
            )
            prepared = None if append is None else [append]
        return self._append(plan, prepared, now_ms)

    def append_as_follower(
        self, records: Buffer, *, current_leader_epoch: LeaderEpoch | None = None
    ) -> AppendInfo | None:
        """Append what the leader sent, offsets and epochs as they are. None when it holds no batch to take.

        Raises:
            KafkaError: CORRUPT_MESSAGE, UnexpectedAppendOffset, KAFKA_STORAGE_ERROR.
        """
        if self._closed_reason is not None:
            self._refuse()
        plan = plan_follower_append(
            records,
            next_offset=self.log_end_offset,
            topic_partition=self.topic_partition,
            current_leader_epoch=current_leader_epoch,
        )
        if plan is None:
            return None
        prepared = producer_state.prepare_replicated(self._producers, plan.headers, plan.source)
        return self._append(plan, prepared, self._clock.now_ms())

    def _append(self, plan: AppendPlan, prepared: list[ProducerAppend] | None, now_ms: int) -> AppendInfo:
        size, last_offset = plan.size, plan.last_offset
        segment_bytes = self.config.segment_bytes
        if size > segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self.topic_partition}: {size} bytes do not fit into a segment of {segment_bytes}",
            )
        segment = self._segments.active
        try:
            rolled = segment.should_roll(
                segment_bytes, self._segment_ms, size, plan.max_timestamp, last_offset, now_ms
            )
            if rolled:
                segment = self._roll(plan.first_offset)
            if plan.last_leader_epoch != self._epochs.written_epoch:
                self._assign_epochs(plan)
            segment.append(plan.buffers, plan.spans)
            self.log_end_offset = Offset(last_offset + 1)
            if prepared:
                for checked in prepared:
                    producer_state.apply(self._producers, checked, segment)
        except OSError as error:
            self._fence(f"an append failed: {error}", error)
        return AppendInfo(
            plan.first_offset, last_offset, plan.max_timestamp, plan.log_append_time, self.log_start_offset,
            size, rolled, False,
        )  # fmt: skip

    def _assign_epochs(self, plan: AppendPlan) -> None:
        """Note the epochs that begin with these batches, before the batches are written."""
        first_offset = plan.first_offset
        if len(plan.headers) == 1:
            if plan.last_leader_epoch >= 0:
                self._epochs.assign(plan.last_leader_epoch, first_offset)
            return
        for header in plan.headers:
            if header.partition_leader_epoch >= 0:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)

    # ---- high watermark and last stable offset

    @property
    def last_stable_offset(self) -> Offset:
        """Below it every transaction is decided and replicated; at most the high watermark."""
        first_unstable = self._producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(Offset(first_unstable), self.log_start_offset)

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark, within log start and log end; returns whether it moved."""
        end = self.log_end_offset
        if offset >= end:
            active = self._segments.active
            self._hw_segment_base_offset, self._hw_position = active.base_offset, active.size
            if self.high_watermark == end:
                return False
            self.high_watermark = end
        else:
            offset = max(offset, self.log_start_offset)
            if self.high_watermark == offset:
                return False
            self._hw_segment_base_offset = self._hw_position = _UNKNOWN
            self.high_watermark = Offset(offset)
        self._producers.on_high_watermark_updated(self.high_watermark)
        return True

    # ---- read

    def read(
        self,
        fetch_offset: int,
        *,
        max_bytes: int,
        min_one_message: bool,
        isolation: FetchIsolation,
        cached_only: bool = True,
        brought: ColdRead | None = None,
    ) -> FetchData:
        """Records from ``fetch_offset`` on, at most up to where ``isolation`` allowed when the read began.

        Args:
            min_one_message: return the first batch whole, even when it is larger than ``max_bytes``.
            cached_only: never wait for the disk.
            brought: what the same read has raised before, when it was fetched.

        Raises:
            ColdRead: with ``cached_only``; fetch it where waiting is allowed, then call again with it.
            KafkaError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        log_end_offset, high_watermark = self.log_end_offset, self.high_watermark
        self.check_range(fetch_offset)
        committed = isolation is _TXN_COMMITTED
        stable_offset = self.last_stable_offset
        if isolation is _HIGH_WATERMARK:
            end_offset = high_watermark
        else:
            end_offset = stable_offset if committed else log_end_offset
        found = None
        try:
            if fetch_offset < end_offset:
                end_segment_base_offset, end_position = self._position_of(end_offset, cached_only)
                found = self._reader.read(
                    fetch_offset,
                    end_offset=end_offset,
                    end_segment_base_offset=end_segment_base_offset,
                    end_position=end_position,
                    max_bytes=max_bytes,
                    min_one_message=min_one_message,
                    cached_only=cached_only,
                    brought=brought,
                )
            if found is None:
                at = self.offset_metadata(min(fetch_offset, end_offset))
                if fetch_offset > end_offset:
                    at = at._replace(message_offset=Offset(fetch_offset))
                start = self.log_start_offset
                return FetchData(
                    at, b"", False, [] if committed else None, start, high_watermark, stable_offset
                )
            segment, position, records, incomplete = found
            aborted = None
            if committed:
                aborted = self._reader.aborted_transactions(
                    fetch_offset, found, log_end_offset=log_end_offset
                )
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}") from error
        return FetchData(
            LogOffsetMetadata(Offset(fetch_offset), Offset(segment.base_offset), position),
            records,
            incomplete,
            aborted,
            self.log_start_offset,
            high_watermark,
            stable_offset,
        )

    def check_range(self, fetch_offset: int) -> None:
        """Raises KafkaError (OFFSET_OUT_OF_RANGE) where ``read`` would."""
        if not self.log_start_offset <= fetch_offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} holds offsets {self.log_start_offset} to {self.log_end_offset}, "
                f"not {fetch_offset}",
            )

    def _position_of(self, offset: int, cached_only: bool) -> tuple[int, int]:
        """Segment base offset and position where the batch of ``offset`` starts, or would."""
        if offset == self.log_end_offset:
            active = self._segments.active
            return active.base_offset, active.size
        if offset == self.high_watermark and self._hw_position >= 0:
            return self._hw_segment_base_offset, self._hw_position
        found = self._reader.place_of(offset, cached_only=cached_only)
        if found is None:
            active = self._segments.active
            return active.base_offset, active.size
        segment, position, _ = found
        if offset == self.high_watermark:
            self._hw_segment_base_offset, self._hw_position = segment.base_offset, position
        return segment.base_offset, position

    def offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Where ``offset`` lies; without a position when that is outside of the log or not in memory."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return LogOffsetMetadata(Offset(offset))
        try:
            segment_base_offset, position = self._position_of(offset, True)
        except ColdRead:
            return LogOffsetMetadata(Offset(offset))
        return LogOffsetMetadata(Offset(offset), Offset(segment_base_offset), position)

    def offset_for_timestamp(
        self, timestamp_ms: int, *, cached_only: bool = False
    ) -> TimestampAndOffset | None:
        """The first record at or after the time; None when there is none. May wait for the disk.

        Raises:
            ColdRead: with ``cached_only``.
            KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        try:
            return self._reader.find_offset_by_timestamp(
                timestamp_ms, log_start_offset=self.log_start_offset, cached_only=cached_only
            )
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}") from error

    def offset_of_max_timestamp(self, *, cached_only: bool = False) -> TimestampAndOffset | None:
        """The first record with the largest timestamp (KIP-734); None when no record has one."""
        try:
            return self._reader.find_max_timestamp(cached_only=cached_only)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}") from error

    # ---- leader epochs

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The latest epoch that is known here; -1 when there is none."""
        epoch = self._epochs.latest_epoch
        return NO_EPOCH if epoch is None else epoch

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        """Every epoch that the log still has records of, and where it began."""
        return self._epochs.entries()

    def end_offset_for_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch up to ``epoch`` and where it ended (KIP-279); (-1, -1) when that is not
        known."""
        found, end_offset = self._epochs.end_offset_for(epoch, self.log_end_offset)
        return (found, end_offset) if end_offset >= 0 else (NO_EPOCH, NO_OFFSET)

    def epoch_for_offset(self, offset: int) -> LeaderEpoch:
        """The leader epoch of the record at ``offset``; -1 when that is not known."""
        epoch = self._epochs.epoch_for_offset(offset)
        return NO_EPOCH if epoch is None else epoch

    def assign_epoch_start(self, epoch: int, start_offset: int) -> bool:
        """A leader begins ``epoch`` here, even when it never writes (KAFKA-7415). Returns whether that was
        news: ``begin_flush`` then makes it durable.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._closed_reason is not None:
            self._refuse()
        try:
            return self._epochs.assign(epoch, start_offset)
        except OSError as error:
            self._fence(f"the leader epoch could not be written: {error}", error)

    # ---- segments

    def roll(self) -> None:
        """Close the active segment and begin a new one at the log end. Raises KafkaError
        (KAFKA_STORAGE_ERROR)."""
        if self._closed_reason is not None:
            self._refuse()
        try:
            self._roll(self.log_end_offset)
        except OSError as error:
            self._fence(f"a roll failed: {error}", error)

    def _roll(self, base_offset: int) -> LogSegment:
        old = self._segments.active
        base_offset = max(base_offset, self.log_end_offset)
        if old.base_offset == base_offset:
            if old.size:
                raise InvariantError(f"{self!r} cannot roll to {base_offset}, where {old!r} begins")
            self._delete_segment(old)  # its index is full though it is empty (KAFKA-6388): begin it again
        else:
            old.become_inactive()
            # Its records may be flushed, or about to be, so that no later flush covers them; but the indexes
            # were trimmed just now, and the time index has got its last entry.
            self._small_files_to_sync += [old.offset_index.path, old.time_index.path]
        segment = LogSegment.create(
            self.directory,
            base_offset,
            config=self.config,
            files=self._files,
            created_ms=self._clock.now_ms(),
            open_files=self._segments.open_files,
        )
        self._segments.add(segment)
        self._producers.map_end_offset = base_offset
        snapshot = self._producers.take_snapshot()
        if snapshot is not None:
            self._small_files_to_sync.append(snapshot)
        if self.high_watermark == self.log_end_offset:
            self._hw_segment_base_offset, self._hw_position = segment.base_offset, 0
        return segment

    def _delete_segment(self, segment: LogSegment) -> None:
        self._segments.remove(segment)
        renamed = log_segments.rename_deleted(self.directory, segment.base_offset, self._files)
        snapshot = self._producers.mark_snapshot_for_deletion(segment.base_offset)
        self._deleted_files.append(renamed if snapshot is None else DeletedFiles((*renamed.paths, snapshot)))
        self._reader.forget_positions()

    def replace_segments(self, old: Sequence[LogSegment], new: CompactedSegment) -> list[DeletedFiles]:
        """Put a compacted segment, which lies there as ``.cleaned`` files, into the place of ``old``
        (``replaceSegments``). Returns the old ones' files, to be removed after ``file.delete.delay.ms``.

        The caller makes the directory durable before they are. A crash at any moment leaves all of the old
        segments or the new one.

        Raises:
            InvariantError: the old ones are no closed neighbours in this log any more; nothing has changed.
            KafkaError: KAFKA_STORAGE_ERROR; the log is fenced.
        """
        if self._closed_reason is not None:
            self._refuse()
        index = self._segments.floor_index(old[0].base_offset)
        if list(self._segments)[index : index + len(old)] != list(old) or old[-1].is_active:
            raise InvariantError(f"{self!r} no longer has {old!r}")
        for segment in old:
            segment.release()
        try:
            deleted = swap_files(self.directory, [new], files=self._files)
            for segment in old[1:]:
                snapshot = self._producers.mark_snapshot_for_deletion(segment.base_offset)
                if snapshot is not None:
                    deleted.append(DeletedFiles((snapshot,)))
            segment = LogSegment(
                self.directory,
                new.base_offset,
                config=self.config,
                files=self._files,
                size=new.size,
                created_ms=old[0].created_ms,
                open_files=self._segments.open_files,
            )
            segment.load_indexes()
        except OSError as error:
            self._fence(f"a swap of segments failed: {error}", error)
        segment.has_aborted_transactions = new.has_txn_index
        self._segments.replace(old, segment)
        self._reader.forget_positions()
        self._generation += 1  # a flush under way may have looked for a file between two renames
        return deleted

    def take_deleted_files(self) -> list[DeletedFiles]:
        """Files that retention, truncation or a roll have renamed and that were not taken for removal yet."""
        deleted, self._deleted_files = self._deleted_files, []
        return deleted

    # ---- deletion

    def delete_old_segments(self) -> list[DeletedFiles]:
        """Let go of segments that are too old, too much, or below the log start (``deleteOldSegments``).

        Their files are renamed now; the caller removes them after ``file.delete.delay.ms``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the log is fenced.
        """
        if self._closed_reason is not None:
            self._refuse()
        try:
            deletable = log_segments.deletable_segments(
                self._segments,
                config=self.config,
                is_future=self.is_future,
                now_ms=self._clock.now_ms(),
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
            )
            if deletable:
                if len(deletable) == len(self._segments):
                    self._roll(self.log_end_offset)
                following = self._segments[len(deletable)]
                self._move_log_start(following.base_offset)
                for segment in deletable:
                    self._delete_segment(segment)
        except OSError as error:
            self._fence(f"deleting segments failed: {error}", error)
        return self.take_deleted_files()

    def increment_log_start_offset(self, offset: int) -> bool:
        """DeleteRecords (KIP-107), or a follower's leader did: records below ``offset`` are gone.

        Returns whether the log start moved.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE above the high watermark, KAFKA_STORAGE_ERROR.
        """
        if self._closed_reason is not None:
            self._refuse()
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: records up to {offset} cannot be deleted, the high watermark is "
                f"{self.high_watermark}",
            )
        try:
            return self._move_log_start(offset)
        except OSError as error:
            self._fence(f"the log start could not be moved: {error}", error)

    def _move_log_start(self, offset: int) -> bool:
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = Offset(offset)
        if self.recovery_point < offset:
            self.recovery_point = Offset(offset)
        self._epochs.truncate_from_start(offset)
        self._producers.on_log_start_offset_incremented(offset)
        return True

    def remove_expired_producers(self) -> int:
        """Forget producers that were idle for longer than producer.id.expiration.ms; returns how many."""
        return self._producers.remove_expired(self._clock.now_ms())

    # ---- truncation

    def truncate_to(self, offset: int) -> bool:
        """Drop every record at or above ``offset``; False when there is none.

        Epoch entries that begin at the log end go even then: a leader that never wrote left them (R4).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._closed_reason is not None:
            self._refuse()
        if offset < 0:
            raise InvariantError(f"{self!r} cannot be truncated to {offset}")
        try:
            if offset >= self.log_end_offset:
                self._epochs.truncate_from_end(self.log_end_offset)
                return False
            if offset < self._segments[0].base_offset:
                self._start_over(offset)
                return True
            self._producers.map_end_offset = self.log_end_offset
            for segment in [s for s in self._segments if s.base_offset > offset]:
                self._delete_segment(segment)
            active = self._segments.active
            end_offset = active.truncate_to(offset, now_ms=self._clock.now_ms())
            self._truncated_segments.append(active)
            self._epochs.truncate_from_end(end_offset)
            self._set_end_after_truncation(end_offset)
            producer_state.rebuild_producer_state(
                self._producers,
                self._segments,
                log_start_offset=self.log_start_offset,
                up_to=end_offset,
                after_clean_stop=False,
            )
            self._producers.on_high_watermark_updated(self.high_watermark)
        except OSError as error:
            self._fence(f"a truncation failed: {error}", error)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the empty log continues at ``offset``. Raises KafkaError (KAFKA_STORAGE_ERROR)."""
        if self._closed_reason is not None:
            self._refuse()
        try:
            self._start_over(offset)
        except OSError as error:
            self._fence(f"a truncation failed: {error}", error)

    def _start_over(self, offset: int) -> None:
        for segment in list(self._segments):
            self._delete_segment(segment)
        self._truncated_segments.clear()
        segment = LogSegment.create(
            self.directory,
            offset,
            config=self.config,
            files=self._files,
            created_ms=self._clock.now_ms(),
            open_files=self._segments.open_files,
        )
        self._segments.add(segment)
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(offset)
        self.first_dirty_offset = None
        self.log_start_offset = Offset(offset)
        self._set_end_after_truncation(offset)
        self.high_watermark = Offset(offset)

    def _set_end_after_truncation(self, end_offset: int) -> None:
        self._generation += 1
        self._reader.forget_positions()
        self.log_end_offset = Offset(end_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, self.log_end_offset)
        self._hw_segment_base_offset = self._hw_position = _UNKNOWN

    # ---- taking the place of another log

    def continue_for(self, current: UnifiedLog) -> None:
        """Take the place of ``current``, whose records this log has all copied: with epochs that never had a
        record, producers whose records are deleted, and the same bounds.

        Raises:
            InvariantError: the logs do not end at one offset.
            KafkaError: KAFKA_STORAGE_ERROR: the epochs could not be written here.
        """
        if self._closed_reason is not None:
            self._refuse()
        if self.log_end_offset != current.log_end_offset:
            raise InvariantError(f"{self!r} cannot take the place of {current!r}")
        self._producers.take_over(current._producers)
        try:
            self._epochs.take_over(current._epochs)
        except OSError as error:
            self._fence(f"the leader epochs could not be written: {error}", error)
        self.log_start_offset = max(self.log_start_offset, current.log_start_offset)
        self.first_dirty_offset = current.first_dirty_offset
        self.update_high_watermark(current.high_watermark)

    def skip_to(self, offset: int) -> None:
        """End at ``offset``, in a new segment: up to there the log that this one copies holds no more
        records, for they were compacted away. Raises KafkaError (KAFKA_STORAGE_ERROR)."""
        if self._closed_reason is not None:
            self._refuse()
        try:
            self._roll(offset)
        except OSError as error:
            self._fence(f"a roll failed: {error}", error)
        self.log_end_offset = Offset(offset)

    # ---- flush

    @property
    def flush_is_due(self) -> bool:
        """Whether flush.messages or flush.ms asks for a flush now."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages
            or self._clock.monotonic_ms() - self._last_flush_ms >= self.config.flush_ms
        )

    def begin_flush(self, up_to: int | None = None) -> Flush | None:
        """The fsyncs that make the log durable up to ``up_to`` (the log end); None when it is.

        ``run`` it on the disk thread, then call ``complete_flush``. After a roll, ``up_to`` the active
        segment's base offset is what Kafka flushes.
        """
        if up_to is None:
            up_to = self.log_end_offset
        paths = self.take_unsynced_paths()
        paths += [segment.path for segment in self._truncated_segments]
        if up_to <= self.recovery_point and not paths:
            return None
        has_new_files = bool(paths)
        unflushed = self._segments.from_offset(self.recovery_point) if up_to > self.recovery_point else ()
        for segment in unflushed:
            if segment.base_offset >= up_to and segment.base_offset > self.recovery_point:
                break
            paths += [segment.path, segment.offset_index.path, segment.time_index.path]
            if segment.has_aborted_transactions:
                paths.append(segment.txn_index.path)
            has_new_files = has_new_files or segment.base_offset >= self.recovery_point
        return Flush(
            self._files,
            paths=list(dict.fromkeys(paths)),
            directory=self.directory,
            has_new_files=has_new_files,
            up_to=up_to,
            generation=self._generation,
        )

    def take_unsynced_paths(self) -> list[str]:
        """Small files that wait for their fsync; the caller sees to that and to the directory's. The recovery
        point may rise above what they say only after that, or not at all when it failed."""
        paths, self._small_files_to_sync = self._small_files_to_sync, []
        epochs = self._epochs.take_unsynced()
        return paths if epochs is None else [*paths, epochs]

    def complete_flush(self, flush: Flush) -> None:
        """The flush has run: raise the recovery point, unless the log was truncated or renamed meanwhile.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: a file of the log is not where it was; the log is fenced.
        """
        if self._closed_reason is not None or flush.generation != self._generation:
            return
        live = {segment.path for segment in self._segments}
        if any(path in live for path in flush.missing_paths):
            gone = ", ".join(sorted(live.intersection(flush.missing_paths)))
            self._fence(f"files are gone: {gone}", FileNotFoundError(errno.ENOENT, "files are gone", gone))
        self._truncated_segments.clear()  # a truncation begins a generation, so the flush had them all
        self._last_flush_ms = self._clock.monotonic_ms()
        if flush.up_to > self.recovery_point:
            self.recovery_point = Offset(min(flush.up_to, self.log_end_offset))

    def give_up_flush(self, flush: Flush) -> None:
        """The flush could not be run, or not to its end: the next one has its files too."""
        self._small_files_to_sync += flush.paths

    # ---- close and rename

    def close(self) -> None:
        """Write the producer snapshot, trim the indexes, make all durable, close every file. Blocks;
        idempotent.

        A fenced log only closes its files. Raises OSError.
        """
        if self._closed_reason is not None:
            self._segments.release()
            return
        self._producers.map_end_offset = self.log_end_offset
        snapshot = self._producers.take_snapshot()
        if snapshot is not None:
            self._small_files_to_sync.append(snapshot)
        self._segments.active.become_inactive()
        flush = self.begin_flush()
        if flush is not None:
            flush.run()
            self.complete_flush(flush)
        self._segments.release()
        self._closed_reason = "the log is closed"

    def put_away(self, directory: str, *, reason: str) -> None:
        """Rename the log's directory; nothing can be read or appended afterwards. Raises OSError."""
        self._segments.release()
        self._closed_reason = reason
        self._files.rename(self.directory, directory)
        self.directory = directory

    def rename(self, directory: str) -> None:
        """Rename the log's directory (``renameDir``); reads and appends continue as if nothing had happened.

        A flush that is under way may not have found its files, so it does not count, and the small ones are
        fsynced once more. Raises OSError.
        """
        self._files.rename(self.directory, directory)
        self.directory = directory
        self._segments.update_directory(directory)
        self._epochs.update_directory(directory)
        self._producers.update_directory(directory)
        self._generation += 1
        indexes = [
            path
            for each in list(self._segments)[:-1]
            for path in (each.offset_index.path, each.time_index.path)
        ]
        snapshots = [self._producers.snapshot_path(offset) for offset in self._producers.snapshot_offsets]
        self._small_files_to_sync = indexes + snapshots
        names = [name for name in self._files.list(directory) if name.endswith(DELETED_SUFFIX)]
        paths = tuple(os.path.join(directory, name) for name in names)
        self._deleted_files = [DeletedFiles(paths)] if paths else []

    # ---- invariants

    def validate(self) -> None:
        """Check the invariants against the files, reading every header and every index entry. Tests do it
        after every step; tools may.

        Raises:
            InvariantError: says which does not hold.
            KafkaError: CORRUPT_MESSAGE.
        """
        bounds = (self.log_start_offset, self.last_stable_offset, self.high_watermark, self.log_end_offset)
        if list(bounds) != sorted(bounds):
            raise InvariantError(
                f"log start, stable offset, high watermark and log end do not ascend: {self!r}"
            )
        if self.recovery_point > self.log_end_offset:
            raise InvariantError(f"recovery point {self.recovery_point} is above the log end: {self!r}")
        next_offset = self._segments.validate(has_active=self.is_open)
        if next_offset > self.log_end_offset:
            raise InvariantError(f"the last batch ends at {next_offset - 1}, above the log end: {self!r}")
        if self.leader_epoch >= 0 and self.epoch_for_offset(self.log_end_offset) != self.leader_epoch:
            raise InvariantError(f"epoch {self.leader_epoch} begins above the log end: {self!r}")
