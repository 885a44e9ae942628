"""One partition on this broker: its leadership state and its log, side by side.

Kafka's ``Partition``; KIP-101, KIP-279 and KIP-320 (leader epochs), KIP-207 (offsets that are not available
yet). The log knows records; the partition knows who leads at which epoch, who is in sync, and therefore how
far the high watermark may go.

A partition is a follower until it is told to lead. As leader it notes how far each follower is, moves the
high watermark, and proposes changes of the ISR (``IsrChange``), which the caller gets written; as follower
it takes what its fetcher brings. Everything here happens at once, on the loop.

Invariants:
- only the leader at the current epoch appends for clients (I6), and leader epochs only rise;
- the high watermark of a leader never falls within its epoch (I3);
- one change of the ISR is in flight at most, and the high watermark waits for every member that it may add;
- with no other replica the high watermark equals the log end after each append;
- log start <= last stable offset <= high watermark <= log end (I9);
- where a partition must be led here, a wrong leader epoch is told before a wrong leader: it says more.

Where it differs from Kafka: see ``replication.partition_replicas``.

What the partitions of a broker know of it is apart from them, because it is there before its first one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from minikafka.clock import Clock
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.flight_recorder import LogTruncated, Record, not_recorded
from minikafka.log.append import UnexpectedAppendOffset
from minikafka.log.producers.append import BY_CLIENT, AppendTerms
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.log.unified_log import AppendInfo, UnifiedLog
from minikafka.metrics.broker_stats import TopicStats
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.control import LeaderAndIsrPartition
from minikafka.protocol.wire.fast_paths import EpochEndOffset
from minikafka.replication.partition_replicas import NO_BROKER_EPOCH, IsrChange, IsrOutcome, PartitionReplicas
from minikafka.types import (
    NO_EPOCH,
    NO_LEADER,
    NO_OFFSET,
    BrokerId,
    Buffer,
    LeaderEpoch,
    Offset,
    TopicPartition,
    joined,
)

if TYPE_CHECKING:
    from minikafka.replication.partition_replicas import LiveBrokerEpoch

logger = logging.getLogger(__name__)

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
"""The timestamps of a ListOffsets request that ask for a place, not a time (``ListOffsetsRequest.java``)."""

CONSUMER_REPLICA_ID: Final = -1
"""In a request: it comes from a consumer, who sees what is committed. Brokers give their own id."""
DEBUGGING_REPLICA_ID: Final = -2
"""In a request: it comes from a tool, who sees everything, on any replica."""


# Looked up once: a member of an Enum costs 0.1 µs each time.
_HIGH_WATERMARK, _TXN_COMMITTED = FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED


class BrokerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the partitions of a broker know of it and of its cluster."""

    node_id: BrokerId
    clock: Clock
    replica_lag_time_max_ms: int
    live_broker_epoch: LiveBrokerEpoch
    log_truncated: Callable[[UnifiedLog], None]
    """Called when records are gone that a checkpoint on the disk may count on."""
    record: Record = not_recorded


class OffsetAndEpoch(NamedTuple):
    """The answer to ListOffsets: a record's offset, its timestamp (-1 for a place) and its leader epoch."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


class FollowerProgress(NamedTuple):
    """What a follower's fetch led to."""

    high_watermark_advanced: bool
    isr_change: IsrChange | None
    """To be written: the follower joins."""


class FollowerPlace(NamedTuple):
    """Where a follower fetches: it holds all below ``fetch_offset``."""

    partition: Partition
    fetch_offset: Offset
    log_start_offset: Offset


class Partition:
    """A partition that this broker hosts."""

    __slots__ = (
        "_clock",
        "_log_truncated",
        "_record",
        "adding_replicas",
        "controller_epoch",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "node_id",
        "replication",
        "stats",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, *, topic_id: UUID, context: BrokerContext, log: UnifiedLog
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.node_id = context.node_id
        self.log = log
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset: Offset | None = None
        """Where the log ended when this broker took the epoch; None unless it leads."""
        self.stats = TopicStats()
        """What goes through here is counted in it; one for all partitions of a topic that are hosted."""
        self._clock = context.clock
        self._log_truncated = context.log_truncated
        self._record = context.record
        self.replication = PartitionReplicas(
            context.node_id,
            live_broker_epoch=context.live_broker_epoch,
            lag_time_max_ms=context.replica_lag_time_max_ms,
        )
        self.adding_replicas: tuple[BrokerId, ...] = ()
        """Those that a reassignment adds; known while this broker leads."""
        self.controller_epoch: int = NO_EPOCH
        """Of the controller that took the last decision here; goes into the state node with the ISR."""

    def __repr__(self) -> str:
        return (
            f"Partition({self.topic_partition}, leader={self.leader_id}, epoch={self.leader_epoch}, "
            f"isr={list(self.isr)}, high_watermark={self.log.high_watermark}, "
            f"log_end={self.log.log_end_offset}, {self.replication!r})"
        )

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    @property
    def replicas(self) -> tuple[BrokerId, ...]:
        """The assignment; the first is the preferred leader."""
        return self.replication.assignment

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """The in-sync replicas as the store has them; empty unless this broker leads."""
        return self.replication.isr.committed

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """``isr`` and what a change in flight adds (KIP-497)."""
        return self.replication.isr.maximal

    @property
    def partition_epoch(self) -> int:
        """The version of the state node that this broker knows."""
        return self.replication.isr.version

    @property
    def is_under_replicated(self) -> bool:
        """Led here, and the ISR lacks a replica. What a reassignment adds is not missing yet
        (``OngoingReassignmentState.replicationFactor``)."""
        return self.is_leader and len(self.isr) < len(set(self.replicas).difference(self.adding_replicas))

    @property
    def effective_min_isr(self) -> int:
        """``min.insync.replicas``, but never more than there are replicas (``Partition.effectiveMinIsr``)."""
        return min(self.log.config.min_insync_replicas, len(self.replication.assignment))

    # Becoming leader or follower

    def make_leader(self, state: LeaderAndIsrPartition, *, now_ms: int) -> bool:
        """Lead from now on. The epoch is written to the epoch cache even when no record follows (KAFKA-7415).
        Returns whether that was news to the log, which then wants a flush.

        The same leader epoch with another assignment or ISR changes just these. A state that is older than
        what the last change of the ISR has told is ignored.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; nothing has changed.
            InvariantError: the epoch goes back.
        """
        if self._is_stale(state):
            return False
        log, replication = self.log, self.replication
        start_offset = log.log_end_offset
        is_news = False
        if state.leader_epoch > self.leader_epoch:
            is_news = log.assign_epoch_start(state.leader_epoch, start_offset)
            replication.begin_epoch(
                state.replicas,
                state.isr,
                state.partition_epoch,
                eligible=state.eligible,
                log_end_offset=start_offset,
                now_ms=now_ms,
                was_leading=self.is_leader,
            )
            self.leader_epoch = state.leader_epoch
            self.leader_epoch_start_offset = start_offset
        else:
            replication.update(state.replicas, state.isr, state.partition_epoch, eligible=state.eligible)
        self.adding_replicas = state.adding_replicas
        self.controller_epoch = state.controller_epoch
        self.leader_id = self.node_id
        self._advance_high_watermark(now_ms)  # the ISR may be down to this broker
        return is_news

    def make_follower(self, state: LeaderAndIsrPartition) -> bool:
        """Follow ``state.leader``, which may be none. Returns whether the leader epoch is new: fetching then
        starts over, also when the leader is the same, which may have lost records (KAFKA-7164).

        Raises:
            InvariantError: the epoch goes back.
        """
        if self._is_stale(state):
            return False
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.leader_epoch_start_offset = None
        self.controller_epoch = state.controller_epoch
        self.replication.follow(state.replicas, state.partition_epoch)
        return is_new_epoch

    def leave(self) -> None:
        """It is not hosted here any more. Those that still hold it find no leader."""
        self.leader_id = NO_LEADER

    def _is_stale(self, state: LeaderAndIsrPartition) -> bool:
        if state.partition_epoch < self.partition_epoch:
            logger.info(
                "%s is at version %d already, not %d",
                self.topic_partition,
                self.partition_epoch,
                state.partition_epoch,
            )
            return True
        if state.leader_epoch < self.leader_epoch:
            raise InvariantError(
                f"{self.topic_partition}: epoch {state.leader_epoch} after {self.leader_epoch}"
            )
        return False

    # The leader: producers

    def append_as_leader(
        self, records: Buffer, required_acks: int, terms: AppendTerms = BY_CLIENT
    ) -> AppendInfo:
        """Append one batch of a producer or coordinator.

        Raises:
            KafkaError: what the validation found, or NOT_ENOUGH_REPLICAS before anything was appended.
        """
        if required_acks == -1 and len(self.isr) < self.effective_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the ISR {list(self.isr)} of {self.topic_partition} is smaller than "
                f"min.insync.replicas = {self.effective_min_isr}",
            )
        origin, guard, transaction_version, checked = terms
        info = self.log.append_as_leader(
            records, self.leader_epoch, origin, guard, transaction_version, checked
        )
        self._advance_high_watermark()
        return info

    def is_committed(self, required_offset: Offset) -> bool:
        """Whether everything below ``required_offset`` is, on enough replicas. Only the leader knows.

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS_AFTER_APPEND: it is, but on fewer than min.insync.replicas.
        """
        if self.log.high_watermark < required_offset:
            return False
        if len(self.maximal_isr) < self.effective_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"the ISR {list(self.maximal_isr)} of {self.topic_partition} became smaller than "
                f"min.insync.replicas = {self.effective_min_isr}",
            )
        return True

    def delete_records(self, offset: Offset) -> Offset:
        """Forget what lies below ``offset`` (-1: the high watermark). Returns the offset that was meant.

        Raises:
            KafkaError: POLICY_VIOLATION for a compacted-only topic, OFFSET_OUT_OF_RANGE above the high
                watermark.
        """
        log = self.log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self.topic_partition} are not deleted: its cleanup.policy is "
                f"{','.join(log.config.cleanup_policy)}",
            )
        target = log.high_watermark if offset == -1 else offset
        if target < 0 or target > log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete records of {self.topic_partition} below {target}: "
                f"its high watermark is {log.high_watermark}",
            )
        log.increment_log_start_offset(target)
        return target

    def low_watermark(self) -> Offset:
        """Below it the records are deleted on all live replicas; -1 while one of them has not fetched yet.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        self.check_leader()
        return self.replication.low_watermark(self.log.log_start_offset)

    # The leader: followers

    def check_follower(self, replica_id: BrokerId, *, current_leader_epoch: int, broker_epoch: int) -> None:
        """Refuse a fetch that is not from a replica, or from an earlier life of its broker (KIP-903).

        Raises:
            KafkaError: UNKNOWN_LEADER_EPOCH (the assignment here may be behind the follower's; it tries
                again), NOT_LEADER_OR_FOLLOWER.
        """
        if replica_id not in self.replication.followers:
            knows_epoch = current_leader_epoch != NO_EPOCH
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} is no replica of {self.topic_partition} in leader epoch "
                f"{self.leader_epoch}, but {list(self.replicas)} are",
            )
        if self.replication.is_of_earlier_broker(replica_id, broker_epoch):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} has restarted since it had broker epoch {broker_epoch}",
            )

    def record_follower_fetch(
        self,
        replica_id: BrokerId,
        *,
        fetch_offset: Offset,
        log_start_offset: Offset,
        now_ms: int,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> FollowerProgress:
        """A follower fetched at ``fetch_offset``: it holds everything below. Only for a fetch that found
        neither a diverging epoch nor an error.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: see ``check_follower``.
        """
        self.check_follower(replica_id, current_leader_epoch=NO_EPOCH, broker_epoch=broker_epoch)
        log, replication = self.log, self.replication
        follower = replication.followers[replica_id]
        has_moved = follower.log_end_offset != fetch_offset
        follower.fetched(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end_offset=log.log_end_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
        )
        change, start_offset = None, self.leader_epoch_start_offset
        if start_offset is not None:
            wanted = replication.isr_with(
                follower, high_watermark=log.high_watermark, epoch_start_offset=start_offset
            )
            if wanted is not None:
                change = self._propose(wanted, cause=f"broker {replica_id} has caught up, to {fetch_offset}")
        return FollowerProgress(has_moved and self._advance_high_watermark(now_ms), change)

    def is_waited_for(self, replica_id: BrokerId, now_ms: int) -> bool:
        """Whether records are committed only when that follower has them: acks=all waits for it, although it
        may not be in the ISR yet."""
        return replica_id in self.maximal_isr or self.replication.is_waited_for(
            replica_id, log_end_offset=self.log.log_end_offset, now_ms=now_ms
        )

    def maybe_shrink_isr(self, now_ms: int) -> IsrChange | None:
        """The change that removes those who were not caught up for ``replica.lag.time.max.ms``, if any."""
        log = self.log
        lagging = self.replication.lagging(log_end_offset=log.log_end_offset, now_ms=now_ms)
        if not lagging:
            return None
        leaving = [follower.broker_id for follower in lagging]
        cause = "; ".join(follower.lag_text(log.log_end_offset, now_ms) for follower in lagging)
        logger.info(
            "%s: %s: high watermark %d, log end %d",
            self.topic_partition,
            cause,
            log.high_watermark,
            log.log_end_offset,
        )
        return self._propose(tuple(member for member in self.isr if member not in leaving), cause=cause)

    def maybe_clear_eligible(self) -> IsrChange | None:
        """The change after which no replica outside of the ISR is eligible, if that is due: this leader
        commits without them from then on. Until it is written the high watermark stands."""
        isr = self.replication.isr
        if not self.is_leader or isr.in_flight is not None:
            return None
        if not isr.has_outdated_eligible(self.effective_min_isr):
            return None
        return self._propose(isr.committed, cause="no replica outside of the ISR is eligible any more")

    def _propose(self, isr: tuple[BrokerId, ...], *, cause: str) -> IsrChange:
        change = IsrChange(
            self.topic_partition,
            self.topic_id,
            self.leader_epoch,
            isr,
            expected_version=self.partition_epoch,
            controller_epoch=self.controller_epoch,
            min_isr=self.effective_min_isr,
            broker_epochs=self.replication.broker_epochs(isr),
            cause=cause,
        )
        return self.replication.isr.propose(change)

    def isr_change_done(self, change: IsrChange, outcome: IsrOutcome) -> bool:
        """What became of ``change``. Returns whether the high watermark has moved."""
        if not self.replication.isr.resolve(change, outcome):
            logger.info("the ISR of %s stays %s", self.topic_partition, joined(self.isr))
            return False
        logger.info("the ISR of %s is %s now", self.topic_partition, joined(self.isr))
        return self._advance_high_watermark()

    def config_changed(self) -> bool:
        """The log has another configuration: fewer replicas may be enough to commit. Returns whether the high
        watermark has moved."""
        return self.is_leader and self._advance_high_watermark()

    def _advance_high_watermark(self, now_ms: int | None = None) -> bool:
        """Returns whether it moved."""
        log, replication = self.log, self.replication
        if not replication.followers and replication.isr.committed:  # none to wait for, and one is enough
            return log.update_high_watermark(log.log_end_offset)
        high_watermark = replication.high_watermark(
            log.high_watermark,
            log_end_offset=log.log_end_offset,
            effective_min_isr=self.effective_min_isr,
            now_ms=self._clock.monotonic_ms() if now_ms is None else now_ms,
        )
        return high_watermark > log.high_watermark and log.update_high_watermark(high_watermark)

    # The follower: what its fetcher brings

    def append_as_follower(self, records: Buffer, *, current_leader_epoch: LeaderEpoch) -> AppendInfo | None:
        """Append what the leader sent. None when it holds no batch to take.

        Raises:
            KafkaError: CORRUPT_MESSAGE, UnexpectedAppendOffset, KAFKA_STORAGE_ERROR.
        """
        log = self.log
        try:
            return log.append_as_follower(records, current_leader_epoch=current_leader_epoch)
        except UnexpectedAppendOffset as error:
            if not error.first_offset < log.log_end_offset == log.log_start_offset <= error.last_offset:
                raise
            # An empty log, and the leader's log start lies inside of a batch: begin with the whole batch.
            cause = f"it is empty, and the leader's log begins inside of a batch, at {log.log_start_offset}"
            self.truncate_fully_and_start_at(Offset(error.first_offset), cause=cause)
            return log.append_as_follower(records, current_leader_epoch=current_leader_epoch)

    def truncate_to(self, offset: Offset, *, cause: str = "") -> None:
        """Drop the records at and above ``offset``, and epochs that begin at the log end (KAFKA-10706).
        ``cause``: for the flight recorder.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        recovery_point, end_before = self.log.recovery_point, self.log.log_end_offset
        if not self.log.truncate_to(offset):
            return
        self._record_truncation(end_before, cause)
        if self.log.recovery_point < recovery_point:
            self._log_truncated(self.log)

    def truncate_fully_and_start_at(self, offset: Offset, *, cause: str = "") -> None:
        """Drop everything and go on at ``offset``. Raises KafkaError (KAFKA_STORAGE_ERROR)."""
        end_before = self.log.log_end_offset
        self.log.truncate_fully_and_start_at(offset)
        self._record_truncation(end_before, cause)
        self._log_truncated(self.log)

    def _record_truncation(self, end_before: Offset, cause: str) -> None:
        self._record(
            LogTruncated(
                topic=self.topic_partition.topic,
                partition=self.topic_partition.partition,
                from_offset=end_before,
                to_offset=self.log.log_end_offset,
                leader=self.leader_id,
                leader_epoch=self.leader_epoch,
                cause=cause,
            )
        )

    def update_follower_high_watermark(self, leader_high_watermark: Offset) -> bool:
        """Take over the leader's high watermark as far as this log goes; True when it moved."""
        return self.log.update_high_watermark(leader_high_watermark)

    def maybe_increment_log_start_offset(self, leader_log_start_offset: Offset) -> None:
        """Records below the leader's log start are deleted here too, never above the high watermark."""
        self.log.increment_log_start_offset(min(leader_log_start_offset, self.log.high_watermark))

    # Offsets, on the leader and on followers

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
        if isolation is _HIGH_WATERMARK:
            return self.log.high_watermark
        return self.log.last_stable_offset if isolation is _TXN_COMMITTED else self.log.log_end_offset

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
        if timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):  # nothing is tiered
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
