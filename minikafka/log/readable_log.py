"""What may be read of a log, and reading it: the high watermark, the last stable offset, records, times.
Kafka: the reading half of ``UnifiedLog``; KIP-98 (isolation).

Invariants: log start <= last stable offset <= high watermark <= log end (I9); a read returns nothing at or
above the bound of its isolation as it was when the read began (KAFKA-9807).
"""

from __future__ import annotations

from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.files import Files
from minikafka.log.files.checkpoint import EpochEntry
from minikafka.log.local_log import LocalLog
from minikafka.log.log_check import check_log
from minikafka.log.producers.state import ProducerStateManager
from minikafka.log.recovery import LoadedLog
from minikafka.log.segment.fetch_data import (
    ColdRead,
    FetchData,
    FetchIsolation,
    LogOffsetMetadata,
    TimestampAndOffset,
)
from minikafka.log.segment.segment import LogSegment
from minikafka.log.timestamps import find_max_timestamp, find_offset_by_timestamp
from minikafka.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset, TopicPartition

_UNKNOWN = -1


class ReadableLog(LocalLog):
    """A log with its bounds for readers."""

    __slots__ = ("_hw_position", "_hw_segment_base_offset", "high_watermark")

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
        super().__init__(
            directory,
            topic_partition,
            loaded,
            config=config,
            files=files,
            clock=clock,
            producers=producers,
            topic_id=topic_id,
        )
        self.high_watermark = Offset(loaded.log_start_offset)
        self._hw_segment_base_offset = self._hw_position = _UNKNOWN

    def _roll(self, base_offset: int) -> LogSegment:
        segment = super()._roll(base_offset)
        if self.high_watermark == self.log_end_offset:
            self._hw_segment_base_offset, self._hw_position = segment.base_offset, 0
        return segment

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

    def _forget_high_watermark_position(self) -> None:
        self._hw_segment_base_offset = self._hw_position = _UNKNOWN

    def continue_for(self, current: ReadableLog) -> None:
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

    def read(
        self,
        fetch_offset: int,
        *,
        max_bytes: int,
        min_one_message: bool,
        isolation: FetchIsolation,
        cached_only: bool = True,
    ) -> FetchData:
        """Records from ``fetch_offset`` on, at most up to where ``isolation`` allowed when the read began.

        Args:
            min_one_message: return the first batch whole, even when it is larger than ``max_bytes``.
            cached_only: never wait for the disk.

        Raises:
            ColdRead: with ``cached_only``; let its range be read where waiting is allowed, then call again.
            KafkaError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        log_end_offset, high_watermark = self.log_end_offset, self.high_watermark
        self.check_range(fetch_offset)
        committed = isolation is FetchIsolation.TXN_COMMITTED
        stable_offset = self.last_stable_offset
        if isolation is FetchIsolation.HIGH_WATERMARK:
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
                )
            if found is None:
                metadata = self.offset_metadata(min(fetch_offset, end_offset))
                metadata = metadata._replace(message_offset=Offset(fetch_offset))
                return FetchData(
                    metadata,
                    b"",
                    False,
                    [] if committed else None,
                    self.log_start_offset,
                    high_watermark,
                    stable_offset,
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
        segment, position = found
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
            return find_offset_by_timestamp(
                self._segments, timestamp_ms, log_start_offset=self.log_start_offset, cached_only=cached_only
            )
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}") from error

    def offset_of_max_timestamp(self, *, cached_only: bool = False) -> TimestampAndOffset | None:
        """The first record with the largest timestamp (KIP-734); None when no record has one."""
        try:
            return find_max_timestamp(self._segments, cached_only=cached_only)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}") from error

    # ---- invariants

    def validate(self) -> None:
        """Check the invariants, reading every header. For tests and tools.

        Raises:
            InvariantError: says which does not hold.
        """
        check_log(self)
