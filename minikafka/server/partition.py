"""One partition on this broker: its leadership state and its log, side by side.

Kafka's ``Partition``. The log knows records; the partition knows who leads at which epoch, who is in sync,
and therefore how far the high watermark may go.

Invariants: log start <= last stable offset <= high watermark <= log end (I9); only the leader at the
current epoch appends for clients (I6); with no other member in the ISR the high watermark equals the log
end after each append.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.log.fetch_data import FetchIsolation, LogOffsetMetadata
from minikafka.log.unified_log import AppendInfo, UnifiedLog
from minikafka.protocol.fast_paths import EpochEndOffset
from minikafka.types import NO_EPOCH, NO_OFFSET, BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
"""The timestamps of a ListOffsets request that ask for a place, not a time (``ListOffsetsRequest.java``)."""


class OffsetAndEpoch(NamedTuple):
    """The answer to ListOffsets: a record's offset, its timestamp (-1 for a place) and its leader epoch."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


class Partition:
    """A partition that this broker hosts."""

    __slots__ = (
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "node_id",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, *, topic_id: UUID, node_id: BrokerId, log: UnifiedLog
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.node_id = node_id
        self.log = log
        self.leader_id: BrokerId | None = None
        self.leader_epoch = NO_EPOCH
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Partition({self.topic_partition}, leader={self.leader_id}, epoch={self.leader_epoch}, "
            f"isr={list(self.isr)}, high_watermark={self.log.high_watermark}, "
            f"log_end={self.log.log_end_offset})"
        )

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    def make_leader(
        self, *, leader_epoch: LeaderEpoch, replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...]
    ) -> bool:
        """Lead from now on. The epoch is written to the epoch cache even when no record follows (KAFKA-7415).
        Returns whether that was news to the log, which then wants a flush.

        Raises:
            InvariantError: the epoch goes back.
        """
        if leader_epoch < self.leader_epoch:
            raise InvariantError(f"{self.topic_partition}: epoch {leader_epoch} after {self.leader_epoch}")
        self.leader_id = self.node_id
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr
        is_news = self.log.assign_epoch_start(leader_epoch, self.log.log_end_offset)
        self._advance_high_watermark()
        return is_news

    def append_as_leader(self, records: Buffer, *, required_acks: int) -> AppendInfo:
        """Append one producer's batch.

        Raises:
            KafkaError: what the validation found, or NOT_ENOUGH_REPLICAS before anything was appended.
        """
        if required_acks == -1 and len(self.isr) < self.effective_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the ISR {list(self.isr)} of {self.topic_partition} is smaller than "
                f"min.insync.replicas = {self.effective_min_isr}",
            )
        info = self.log.append_as_leader(records, leader_epoch=self.leader_epoch)
        self._advance_high_watermark()
        return info

    @property
    def effective_min_isr(self) -> int:
        """``min.insync.replicas``, but never more than there are replicas (``Partition.effectiveMinIsr``)."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def _advance_high_watermark(self) -> None:
        # The leader is the whole ISR, so whatever it holds is committed.
        self.log.update_high_watermark(self.log.log_end_offset)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a request that believes in another epoch (KIP-320); -1 believes in none.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH (the peer is behind), UNKNOWN_LEADER_EPOCH (the peer is ahead).
        """
        if current_leader_epoch == self.leader_epoch or current_leader_epoch == NO_EPOCH:
            return
        behind = current_leader_epoch < self.leader_epoch
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH if behind else ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic_partition} is at leader epoch {self.leader_epoch}, "
            f"the request at {current_leader_epoch}",
        )

    def end_offset_metadata(self, isolation: FetchIsolation) -> LogOffsetMetadata:
        """The place up to which a reader with this isolation may read."""
        return self.log.offset_metadata(self.end_offset(isolation))

    def end_offset(self, isolation: FetchIsolation) -> Offset:
        match isolation:
            case FetchIsolation.LOG_END:
                return self.log.log_end_offset
            case FetchIsolation.HIGH_WATERMARK:
                return self.log.high_watermark
            case FetchIsolation.TXN_COMMITTED:
                return self.log.last_stable_offset

    def diverging_epoch(self, *, last_fetched_epoch: int, fetch_offset: Offset) -> EpochEndOffset | None:
        """Where a reader that last fetched ``last_fetched_epoch`` left this log's history (KIP-595), if it
        did."""
        if last_fetched_epoch == NO_EPOCH:
            return None
        end = self.epoch_end_offset(LeaderEpoch(last_fetched_epoch))
        if end.end_offset == NO_OFFSET:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} no longer knows the end of epoch {last_fetched_epoch}",
            )
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None

    def epoch_end_offset(self, leader_epoch: LeaderEpoch) -> EpochEndOffset:
        """The end of ``leader_epoch``, or of the largest earlier one that is known (KIP-101, KIP-279)."""
        epoch, end_offset = self.log.end_offset_for_epoch(leader_epoch)
        return EpochEndOffset(epoch, end_offset)

    def offset_for_timestamp(
        self, timestamp_ms: int, *, isolation: FetchIsolation, cached_only: bool
    ) -> OffsetAndEpoch | None:
        """ListOffsets: a place (negative) or the first record at or after a time; None when there is none.

        What lies above ``isolation``'s end does not exist for the asker.
        """
        log = self.log
        end_offset = self.end_offset(isolation)
        if timestamp_ms == LATEST_TIMESTAMP:
            return OffsetAndEpoch(end_offset, -1, self.leader_epoch)
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return OffsetAndEpoch(log.log_start_offset, -1, log.epoch_for_offset(log.log_start_offset))
        if timestamp_ms == LATEST_TIERED_TIMESTAMP:  # nothing is tiered
            return OffsetAndEpoch(NO_OFFSET, -1, NO_EPOCH)
        found = (
            log.offset_of_max_timestamp(cached_only=cached_only)
            if timestamp_ms == MAX_TIMESTAMP
            else log.offset_for_timestamp(timestamp_ms, cached_only=cached_only)
        )
        if found is None or found.offset >= end_offset:
            return None
        return OffsetAndEpoch(found.offset, found.timestamp, log.epoch_for_offset(found.offset))
