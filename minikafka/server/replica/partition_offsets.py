"""What may be asked of a partition about its offsets, whoever leads it.

The reading half of Kafka's ``Partition``; KIP-101, KIP-279 and KIP-320 (leader epochs), KIP-207 (offsets that
are not available yet).

Invariants: log start <= last stable offset <= high watermark <= log end (I9); where a partition must be led
here, a wrong leader epoch is told before a wrong leader, because it says more.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.log.unified_log import UnifiedLog
from minikafka.metrics.broker_topic_stats import TopicStats
from minikafka.protocol.wire.fast_paths import EpochEndOffset
from minikafka.types import NO_EPOCH, NO_LEADER, NO_OFFSET, BrokerId, LeaderEpoch, Offset, TopicPartition

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
"""The timestamps of a ListOffsets request that ask for a place, not a time (``ListOffsetsRequest.java``)."""

CONSUMER_REPLICA_ID: Final = -1
"""In a request: it comes from a consumer, who sees what is committed. Brokers give their own id."""
DEBUGGING_REPLICA_ID: Final = -2
"""In a request: it comes from a tool, who sees everything, on any replica."""


class OffsetAndEpoch(NamedTuple):
    """The answer to ListOffsets: a record's offset, its timestamp (-1 for a place) and its leader epoch."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


class PartitionOffsets:
    """A partition that this broker leads or follows: its leader, its epoch and its log."""

    __slots__ = (
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "node_id",
        "stats",
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
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset: Offset | None = None
        """Where the log ended when this broker took the epoch; None unless it leads."""
        self.stats = TopicStats()
        """What goes through here is counted in it; one for all partitions of a topic that are hosted."""

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

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

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Refuse what only the leader answers, and what believes in another epoch.

        Raises:
            KafkaError: see ``check_leader_epoch``; NOT_LEADER_OR_FOLLOWER.
        """
        self.check_leader_epoch(current_leader_epoch)
        if self.leader_id != self.node_id:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}"
            )

    def end_offset(self, isolation: FetchIsolation) -> Offset:
        """The place up to which a reader with this isolation may read."""
        match isolation:
            case FetchIsolation.LOG_END:
                return self.log.log_end_offset
            case FetchIsolation.HIGH_WATERMARK:
                return self.log.high_watermark
            case FetchIsolation.TXN_COMMITTED:
                return self.log.last_stable_offset

    def diverging_epoch(self, *, last_fetched_epoch: int, fetch_offset: Offset) -> EpochEndOffset | None:
        """Where a reader that last fetched ``last_fetched_epoch`` left this log's history (KIP-595), if it
        did.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE: that place is not known here (any more).
        """
        if last_fetched_epoch == NO_EPOCH:
            return None
        end = self.epoch_end_offset(LeaderEpoch(last_fetched_epoch))
        if end.end_offset == NO_OFFSET:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} no longer knows the end of epoch {last_fetched_epoch}",
            )
        if fetch_offset < self.log.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} begins at {self.log.log_start_offset}, behind {fetch_offset}",
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

        Raises:
            KafkaError: OFFSET_NOT_AVAILABLE to a consumer, while the high watermark of this new leader has
                not reached the start of its epoch: it may be below what an earlier leader has shown (R15).
        """
        log = self.log
        end_offset = self.end_offset(isolation)
        if timestamp_ms == LATEST_TIMESTAMP:
            self._check_offsets_are_available(isolation)
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
            self._check_offsets_are_available(isolation)
            return None
        return OffsetAndEpoch(found.offset, found.timestamp, log.epoch_for_offset(found.offset))

    def _check_offsets_are_available(self, isolation: FetchIsolation) -> None:
        start_offset, high_watermark = self.leader_epoch_start_offset, self.log.high_watermark
        if start_offset is None or isolation is FetchIsolation.LOG_END or start_offset <= high_watermark:
            return
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"the high watermark {high_watermark} of {self.topic_partition} has not reached {start_offset}, "
            f"where leader epoch {self.leader_epoch} began",
        )
