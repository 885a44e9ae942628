"""The partitions that this broker hosts, and the roads that lead to them: produce, fetch, follower, ISR.

Kafka's ``ReplicaManager``, without what the partition, the fetch and the log manager do for themselves; how
partitions come and go is in ``leadership_changes``. An operation on several partitions answers each on its
own: the failure of one is a value beside the successes of the others.

What happens to a partition comes back here as a value (an append, a follower's progress, the outcome of an
ISR change), and only here are those woken who wait for it (``parked_operations``).

With ``flush.messages`` an answer waits for its flush (``flushed``), as in Kafka; the loop does not wait, and
goes on with other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.log.manager.log_manager import LogManager, Replacement
from minikafka.log.producers.append_origin import BY_CLIENT, AppendTerms
from minikafka.protocol.control.messages import LeaderAndIsrPartition
from minikafka.replication.isr import IsrChange, IsrOutcome, IsrWritten
from minikafka.replication.replica_selector import ReplicaSelector
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.replica.catch_up_pace import CatchUpPace
from minikafka.server.replica.disk_chores import DiskChores
from minikafka.server.replica.host_broker import HostBroker
from minikafka.server.replica.leadership_changes import LeadershipChanges
from minikafka.server.replica.parked_operations import ParkedOperations
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.server.runtime.turns import Turns
from minikafka.types import BrokerId, Buffer, Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import AppendInfo, UnifiedLog
    from minikafka.server.replica.partition import Partition


class IsrWriter(Protocol):
    """Writes ISR changes to the store: Kafka's ``AlterPartitionManager``, ours is ``IsrManager``."""

    def submit(self, change: IsrChange, done: Callable[[IsrOutcome], None]) -> None:
        """Write ``change``, and call ``done`` with what became of it, later, on the loop."""
        ...


class IsrCounts:
    """What became of the changes of ISRs that were proposed here."""

    __slots__ = ("expands", "failed", "shrinks")

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0
        self.failed = 0

    def note(self, change: IsrChange, outcome: IsrOutcome, *, size_before: int, size_after: int) -> None:
        if not isinstance(outcome, IsrWritten):
            self.failed += 1
        elif size_after < size_before:
            self.shrinks += 1
        elif size_after > size_before:
            self.expands += 1


class ReplicaManager(LeadershipChanges):
    """The hosted partitions, led and followed."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        log_manager: LogManager,
        metadata: MetadataCache,
        parked: ParkedOperations,
        chores: DiskChores,
        clock: Clock,
        replica_lag_time_max_ms: int,
        inter_broker_listener_name: str,
        replica_selector: ReplicaSelector | None = None,
        leader_quota: ReplicationQuotaManager,
    ) -> None:
        super().__init__(
            host=HostBroker(
                node_id=node_id,
                clock=clock,
                replica_lag_time_max_ms=replica_lag_time_max_ms,
                live_broker_epoch=metadata.live_broker_epoch,
                log_truncated=self._log_truncated,
            ),
            log_manager=log_manager,
            is_known=metadata.may_have,
            parked=parked,
            chores=chores,
            inter_broker_listener_name=inter_broker_listener_name,
        )
        self.metadata = metadata
        self.clock = clock
        self.replica_selector = replica_selector
        """Where consumers are sent (KIP-392); None: they stay."""
        self.catch_up_pace = CatchUpPace(clock, lambda: parked.produce.delayed > 0)
        self.leader_quota = leader_quota
        """For what followers fetch here."""
        self.isr_counts = IsrCounts()
        self.isr_manager: IsrWriter | None = None
        """Set before a partition with more than one replica is led here."""

    async def close(self) -> None:
        """Fetch no more."""
        if self.fetchers is not None:
            await self.fetchers.close()

    # Producers

    def append(
        self,
        topic_partition: TopicPartition,
        records: Buffer,
        *,
        required_acks: int,
        topic_id: UUID | None = None,
        terms: AppendTerms = BY_CLIENT,
    ) -> AppendInfo:
        """Append a batch of a producer or coordinator, count it and wake those who wait for it.

        Raises:
            KafkaError: see ``partition`` and ``Partition.append_as_leader``; UNKNOWN_TOPIC_ID: another topic
                of that name is hosted here than the one with ``topic_id``.
        """
        partition = self.partition(topic_partition)
        if topic_id is not None and topic_id != partition.topic_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"{topic_partition} has topic id {partition.topic_id} here, not {topic_id}",
            )
        info = self.append_to(partition, records, required_acks=required_acks, terms=terms)
        stats = partition.stats
        stats.produce_requests += 1
        stats.messages_in += info.last_offset - info.first_offset + 1
        stats.bytes_in += len(records)
        return info

    def append_to(
        self, partition: Partition, records: Buffer, *, required_acks: int, terms: AppendTerms = BY_CLIENT
    ) -> AppendInfo:
        """``append`` for who has looked the partition up, knows that this broker leads it, and counts what
        was appended.

        Raises:
            KafkaError: see ``Partition.append_as_leader``.
        """
        log = partition.log
        high_watermark = log.high_watermark
        try:
            info = partition.append_as_leader(records, required_acks=required_acks, terms=terms)
        except KafkaError as error:
            self.note_failure(partition, error)
            raise
        self._note_flush(log, rolled=info.rolled)
        if log.high_watermark != high_watermark:
            self.parked.high_watermark_moved(partition.topic_partition)
        else:
            self.parked.appended(partition.topic_partition)
        return info

    def _note_flush(self, log: UnifiedLog, *, rolled: bool) -> None:
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self._chores.flush(log)
        elif rolled:
            self._chores.flush_closed(log)

    def flushed(self, topic_partition: TopicPartition) -> asyncio.Future[None] | None:
        """For an append's answer: what it waits for, when ``flush.messages`` says that a flush is due."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            return None
        log = partition.log
        if log.log_end_offset - log.recovery_point < log.config.flush_messages:
            return None
        return self._chores.flushed(log)

    def delete_records(self, topic_partition: TopicPartition, offset: Offset) -> Offset:
        """Forget what lies below ``offset`` (-1: the high watermark) on this replica; the others follow with
        their next fetches. Returns the offset that was meant: they have followed when the low watermark has
        reached it.

        Raises:
            KafkaError: see ``partition`` and ``Partition.delete_records``.
        """
        target = self.partition(topic_partition).delete_records(offset)
        self.parked.log_start_moved(topic_partition)
        return target

    def update_topic_config(self, topic: str, config: TopicConfig) -> None:
        """Apply a topic's new configuration to its logs."""
        for partition in self.partitions_of(topic):
            partition.log.update_config(config)
            self._clear_eligible(partition)
            if partition.config_changed():
                self.parked.high_watermark_moved(partition.topic_partition)
            future = self.log_manager.future_logs.get(partition.topic_partition)
            if future is not None:
                future.update_config(config)

    # Log directories

    def alter_log_dir(self, topic_partition: TopicPartition, log_directory: str) -> None:
        """Move a replica to another log directory of this broker, while it goes on serving (KIP-113). A move
        to elsewhere ends, also when it is asked for where it is. One that is not here is remembered: its log
        will be made there.

        Raises:
            KafkaError: see ``LogManager.check_move`` and ``start_move``; KAFKA_STORAGE_ERROR: the replica
                is offline; REPLICA_NOT_AVAILABLE: there is none here.
        """
        self.log_manager.check_move(topic_partition, log_directory)
        if topic_partition not in self.partitions:
            if self.is_offline(topic_partition):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline here")
            self.log_manager.prefer_directory(topic_partition, log_directory)
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"this broker has no replica of {topic_partition}"
            )
        self._chores.logs_changed()  # also when it fails: the log manager may have found a failed disk
        self.log_manager.start_move(topic_partition, log_directory)
        self._chores.moves.set()

    def replace_with_future_log(self, partition: Partition) -> Replacement:
        """The copy of a replica in another log directory has caught up and takes the replica's place, see
        ``LogManager.begin_replacement``.

        Parked fetches have noted positions in the log that was. Where segments begin elsewhere in this one,
        they count too many bytes, never too few, and answer early.
        """
        replacement = self.log_manager.begin_replacement(partition.topic_partition)
        partition.log = replacement.log
        self._chores.flush(replacement.log)
        self._chores.logs_changed()
        return replacement

    # Followers of partitions that are led here

    def record_follower_fetch(
        self,
        partition: Partition,
        replica_id: BrokerId,
        *,
        fetch_offset: Offset,
        log_start_offset: Offset,
        now_ms: int,
        broker_epoch: int,
    ) -> None:
        """A follower fetched: it may move the watermarks and join the ISR. See
        ``Partition.record_follower_fetch``."""
        progress = partition.record_follower_fetch(
            replica_id,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
        )
        if progress.isr_change is not None:
            self._submit(partition, progress.isr_change)
        if progress.high_watermark_advanced:
            self.parked.high_watermark_moved(partition.topic_partition)
        self.parked.log_start_moved(partition.topic_partition)

    async def shrink_isrs(self) -> None:
        """Let those leave the ISRs who lag behind. To be called every half of ``replica.lag.time.max.ms``."""
        now_ms = self.clock.monotonic_ms()
        turns = Turns()
        for topic_partition in list(self.partitions):
            partition = self.partitions.get(topic_partition)
            change = None if partition is None else partition.maybe_shrink_isr(now_ms)
            if partition is not None and change is not None:
                self._submit(partition, change)
            await turns.give_way()

    def _lead(self, partition: Partition, state: LeaderAndIsrPartition) -> None:
        super()._lead(partition, state)
        self._clear_eligible(partition)

    def _clear_eligible(self, partition: Partition) -> None:
        """See ``replication.isr``; looked at when the leadership, the ISR or the configuration changes."""
        change = partition.maybe_clear_eligible()
        if change is not None:
            self._submit(partition, change)

    def _submit(self, partition: Partition, change: IsrChange) -> None:
        if self.isr_manager is None:
            raise InvariantError(f"nobody can write {change}")
        self.isr_manager.submit(change, partial(self._isr_change_done, partition, change))

    def _isr_change_done(self, partition: Partition, change: IsrChange, outcome: IsrOutcome) -> None:
        topic_partition = partition.topic_partition
        if self.partitions.get(topic_partition) is not partition:  # deleted, or offline
            return
        size_before = len(partition.isr)
        has_advanced = partition.isr_change_done(change, outcome)
        self.isr_counts.note(change, outcome, size_before=size_before, size_after=len(partition.isr))
        self._clear_eligible(partition)
        if has_advanced:
            self.parked.high_watermark_moved(topic_partition)

    # Partitions that are followed here

    def follower_appended(self, partition: Partition, info: AppendInfo | None) -> None:
        """A fetcher has appended, or only moved the high watermark (``info`` None)."""
        log = partition.log
        if info is not None:
            self.stats.replication_bytes_in += info.size_bytes
            self._note_flush(log, rolled=info.rolled)
        self.parked.appended(partition.topic_partition)

    def _log_truncated(self, log: UnifiedLog) -> None:
        """The recovery point fell, and the checkpoint that says more must not be believed after a crash."""
        self.log_manager.note_truncation(log)
        self._chores.logs_changed()
