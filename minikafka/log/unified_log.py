"""One partition's log: every way in which it changes. Kafka: ``UnifiedLog``; KIP-101 and KIP-279 (leader
epochs), KIP-98 (transactions), KIP-107 (deleting records).

The event loop owns it; nothing here is thread-safe. Appends go to the page cache at once. fsyncs and removals
are returned as values (``Flush``, ``DeletedFiles``) for the disk thread, a read of cold pages as
``ColdRead``.

Invariants: offsets ascend through the segments (I2); a failed append leaves log end and producer state as
they were; an epoch is in the epoch file before the first batch that has it is written, and durable before the
recovery point passes that batch.

Differs from Kafka: truncation in the middle of a batch leaves the log end at that batch's start, not behind a
gap; a duplicate's answer has a log append time only where the topic has one.
"""

from __future__ import annotations

from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.files import Files
from minikafka.log.append import AppendInfo, AppendPlan, plan_follower_append, plan_leader_append
from minikafka.log.files.open_files import OpenFiles
from minikafka.log.producers.append import ProducerAppend
from minikafka.log.producers.append_origin import TRANSACTION_VERSION_UNKNOWN, AppendOrigin, CheckedBatch
from minikafka.log.producers.replay import apply, prepare, prepare_replicated, rebuild_producer_state
from minikafka.log.producers.state import ProducerStateManager
from minikafka.log.producers.verification_state import VerificationGuard
from minikafka.log.readable_log import ReadableLog
from minikafka.log.recovery import LogLoader
from minikafka.log.segment.fetch_data import FetchData, LogOffsetMetadata
from minikafka.log.segment.retention import DeletedFiles, deletable_segments
from minikafka.log.segment.segment import LogSegment
from minikafka.types import NO_TIMESTAMP, Buffer, LeaderEpoch, Offset, TopicPartition

__all__ = ["AppendInfo", "AppendOrigin", "FetchData", "LogOffsetMetadata", "UnifiedLog"]


class UnifiedLog(ReadableLog):
    """A partition's log. Made by ``load``."""

    __slots__ = ()

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
        was_compacted: bool = False,
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
            was_compacted: so that offsets may be missing, whatever the topic's cleanup.policy is now.
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
            was_compacted=was_compacted,
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

    def __repr__(self) -> str:
        return (
            f"UnifiedLog({self.directory!r}, start={self.log_start_offset}, "
            f"stable={self.last_stable_offset}, high_watermark={self.high_watermark}, "
            f"end={self.log_end_offset}, segments={len(self._segments)}"
            f"{f', closed: {self._closed_reason}' if self._closed_reason else ''})"
        )

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
        plan = plan_leader_append(
            records,
            config=self.config,
            origin=origin,
            now_ms=now_ms,
            next_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            topic_partition=self.topic_partition,
            checked=checked,
        )
        prepared: list[ProducerAppend] | None = None
        header = plan.headers[0]
        if header.producer_id >= 0:
            if origin is AppendOrigin.CLIENT:
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
            append = prepare(
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
        prepared = prepare_replicated(self._producers, plan.headers, plan.source)
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
                segment_bytes=segment_bytes,
                segment_ms=self._segment_ms,
                batch_bytes=size,
                max_timestamp=plan.max_timestamp,
                last_offset=last_offset,
                now_ms=now_ms,
            )
            if rolled:
                segment = self._roll(plan.first_offset)
            if plan.last_leader_epoch != self._epochs.latest_epoch:
                self._assign_epochs(plan)
            segment.append(plan.buffers, plan.spans)
            self.log_end_offset = Offset(last_offset + 1)
            if prepared:
                for checked in prepared:
                    apply(self._producers, checked, segment)
        except OSError as error:
            self._fence(f"an append failed: {error}", error)
        return AppendInfo(
            plan.first_offset,
            last_offset,
            plan.max_timestamp,
            plan.log_append_time,
            self.log_start_offset,
            size,
            rolled,
            False,
        )

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

    # ---- epochs

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
            deletable = deletable_segments(
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
            rebuild_producer_state(
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
        """Drop everything; the log goes on, empty, at ``offset``. Raises KafkaError (KAFKA_STORAGE_ERROR)."""
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
        self._forget_high_watermark_position()

    # ---- producers

    @property
    def producers(self) -> ProducerStateManager:
        """For DescribeProducers and the group of checks that a coordinator makes; changed only by appends."""
        return self._producers

    def remove_expired_producers(self) -> int:
        """Forget producers that were idle for longer than producer.id.expiration.ms; returns how many."""
        return self._producers.remove_expired(self._clock.now_ms())
