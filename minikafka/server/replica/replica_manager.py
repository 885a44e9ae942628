"""The partitions that this broker hosts, and the paths that lead to them: produce, fetch, follower, ISR.

Kafka's ``ReplicaManager``, without what the partition, the fetch and the log manager do for themselves;
KIP-516 (topic ids), KIP-570 (leader epochs in StopReplica). A partition is *online* (led or followed here),
*offline* (its log directory failed, or could not take it), or not here. An operation on several partitions
answers each on its own: the failure of one is a value beside the successes of the others.

What happens to a partition comes back here as a value (an append, a follower's progress, the outcome of an
ISR change), and only here are those woken who wait for it (``ParkedOperations``).

With ``flush.messages`` an answer waits for its flush (``flushed``), as in Kafka; the loop does not wait, and
serves other requests.

The controller's requests are carried out one at a time: their handlers hold ``state_changes``. One may name a
thousand partitions, so others have their turn in between; each partition changes at once. A partition fails
alone. What is refused:

======================================================  ===========================
an older controller epoch than the highest seen         STALE_CONTROLLER_EPOCH
another topic id than the partition here has            INCONSISTENT_TOPIC_ID
an older leader epoch, or another leader in the same    STALE_CONTROLLER_EPOCH
this broker is not in the assignment                    UNKNOWN_TOPIC_OR_PARTITION
its log directory is offline, or no directory can       KAFKA_STORAGE_ERROR
take it
StopReplica with an older leader epoch                  FENCED_LEADER_EPOCH
======================================================  ===========================

Becoming a follower, in this order: its fetcher stops, so that the log end stands; the partition follows, so
that no producer appends; what is parked answers; its fetcher begins at the new leader, the new epoch and the
log end. The fetcher truncates first, if it must.

Where it differs from Kafka:
- a LeaderAndIsr of the leader epoch that is known already is applied (assignment, ISR, controller epoch),
  where Kafka of the ZooKeeper era answers STALE_CONTROLLER_EPOCH: a controller may send it after a failover;
- a partition without a live leader is followed without a fetcher, where Kafka leaves the partition as it was:
  so a deposed leader stops at once;
- a leader that a reassignment removes stops with the UpdateMetadata that names its successor. Only the
  StopReplica with deletion would end it, two round trips later, while its producers wait for replicas that
  follow the successor already.

**Who waits** for something to happen to a partition (``ParkedOperations``), and what they are told. Kafka:
``DelayedOperations`` and the purgatories of ``ReplicaManager``. All are watched under their partitions.

============================  =========================  ==========================================
event                         wakes                      because
============================  =========================  ==========================================
records were appended         fetches                    followers and tools read to the log end
the high watermark moved      produces, fetches          acks=all is fulfilled; consumers read on
a log start offset moved      deletions of records       all live replicas have deleted
the leadership changed, or    all                        each answers with what is true now
the partition went away
============================  =========================  ==========================================
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.flight_recorder import (
    EpochBegan,
    IsrChanged,
    LogDirectoryFailed,
    Record,
    SlowProduce,
    cut,
    not_recorded,
)
from minikafka.log.log_manager import LogManager, Replacement
from minikafka.log.producers.append import BY_CLIENT, AppendTerms, OutOfOrderSequence
from minikafka.log.segment.fetch_data import ColdRead, FetchIsolation
from minikafka.metrics.broker_stats import BrokerTopicStats
from minikafka.protocol.control import (
    EPOCH_DURING_DELETE,
    UNNAMED_LISTENER,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveBroker,
    PartitionError,
    StopReplicaPartition,
    StopReplicaRequest,
    StopReplicaResponse,
)
from minikafka.purgatory import PURGE_INTERVAL, DelayedOperation, DelayedOperationPurgatory, Timer
from minikafka.replication.partition_replicas import (
    IsrChange,
    IsrOutcome,
    IsrRefused,
    IsrReread,
    IsrWritten,
    ReplicaSelector,
)
from minikafka.server.cluster.metadata_cache import Endpoint, MetadataCache
from minikafka.server.replica.partition import BrokerContext, FollowerPlace, Partition
from minikafka.server.replica.pending_disk_work import PendingDiskWork
from minikafka.server.replica.refused_sequences import RefusedSequences
from minikafka.server.replica.replica_fetchers import InitialFetchState, LeaderEndpoint, ReplicaFetchers
from minikafka.server.replica.replication_quotas import CatchUpPace, ReplicationQuotaManager
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.tracing.tracer import Tracer
from minikafka.types import NO_EPOCH, NO_LEADER, BrokerId, Buffer, Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import AppendInfo, UnifiedLog

logger = logging.getLogger(__name__)

DELETE_RECORDS_PURGE_INTERVAL: Final = 1
"""Kafka's ``delete.records.purgatory.purge.interval.requests``: deletions are few and wait for minutes."""


class ParkedOperations:
    """The purgatories of a broker's partitions, on one timer."""

    def __init__(
        self,
        timer: Timer,
        *,
        produce_purge_interval: int = PURGE_INTERVAL,
        fetch_purge_interval: int = PURGE_INTERVAL,
    ) -> None:
        self.produce: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory(
            "Produce", timer, produce_purge_interval
        )
        self.fetch: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory(
            "Fetch", timer, fetch_purge_interval
        )
        self.delete_records: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory(
            "DeleteRecords", timer, DELETE_RECORDS_PURGE_INTERVAL
        )
        self.share_fetch: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory(
            "ShareFetch", timer
        )

    def __repr__(self) -> str:
        return (
            f"ParkedOperations({self.produce!r}, {self.fetch!r}, {self.delete_records!r}, "
            f"{self.share_fetch!r})"
        )

    def appended(self, topic_partition: TopicPartition) -> None:
        """The log has grown."""
        if self.fetch.watched:
            self.fetch.check_and_complete(topic_partition)

    def high_watermark_moved(self, topic_partition: TopicPartition) -> None:
        """The high watermark has moved."""
        if self.produce.watched:
            self.produce.check_and_complete(topic_partition)
        if self.fetch.watched:
            self.fetch.check_and_complete(topic_partition)
        if self.share_fetch.watched:
            self.share_fetch.check_and_complete(topic_partition)

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """Records were deleted on this replica or another, or may have been."""
        if self.delete_records.watched:
            self.delete_records.check_and_complete(topic_partition)

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """Another broker leads, or in another epoch, or the partition is not here any more."""
        self.high_watermark_moved(topic_partition)
        self.log_start_moved(topic_partition)


class IsrWriter(Protocol):
    """Has ISR changes written to the store: ``AlterPartitionManager``."""

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


class ReplicaManager:
    """The hosted partitions, led and followed."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        log_manager: LogManager,
        metadata: MetadataCache,
        parked: ParkedOperations,
        disk_work: PendingDiskWork,
        clock: Clock,
        replica_lag_time_max_ms: int,
        inter_broker_listener_name: str,
        replica_selector: ReplicaSelector | None = None,
        leader_quota: ReplicationQuotaManager,
        record: Record = not_recorded,
        slow_request_ms: int = 1000,
    ) -> None:
        self.node_id = node_id
        self._record = record
        self._refused_sequences = RefusedSequences(clock, record)
        self.slow_request_ms = slow_request_ms
        """``event.recorder.slow.request.ms``."""
        self.log_manager = log_manager
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
        self.fetchers: ReplicaFetchers | None = None
        """Set once they are made, which needs this object; None for a broker that is alone."""
        self.state_changes = asyncio.Lock()
        """Held while a controller's request is carried out: one at a time (``replicaStateChangeLock``)."""
        self.controller_epoch = 0
        """The highest seen."""
        self.is_leaving = False
        """The broker has asked for others to lead what it leads. It does not follow them: it would be in the
        ISR again just before it stops, and producers would wait for it."""
        self.parked = parked
        self.tracer = Tracer(node_id=node_id, clock=clock)
        self.stats = BrokerTopicStats()
        """What has gone through the partitions."""
        self.partitions: dict[TopicPartition, Partition] = {}
        self.by_topic_id: dict[bytes, dict[int, Partition]] = {}
        """The same partitions, by the bytes of their topics' ids."""
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._names: dict[UUID, str] = {}
        self._without_log: set[TopicPartition] = set()
        self._without_fetcher: set[TopicPartition] = set()
        self._leadership_listeners: list[Callable[[TopicPartition], None]] = []
        self._disk_work = disk_work
        self._listener_name = inter_broker_listener_name
        self._broker_context = BrokerContext(
            node_id=node_id,
            clock=clock,
            replica_lag_time_max_ms=replica_lag_time_max_ms,
            live_broker_epoch=metadata.live_broker_epoch,
            log_truncated=self._log_truncated,
            record=record,
        )

    def __repr__(self) -> str:
        return f"ReplicaManager(node {self.node_id}, {len(self.partitions)} partitions)"

    async def close(self) -> None:
        """Fetch no more."""
        if self.fetchers is not None:
            await self.fetchers.close()

    # Which partitions are here

    def hosted(self, topic_partition: TopicPartition) -> Partition:
        """The partition, if this broker leads or follows it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when its log directory is offline; NOT_LEADER_OR_FOLLOWER when it
                is on other brokers, or may be; UNKNOWN_TOPIC_OR_PARTITION.
        """
        partition = self.partitions.get(topic_partition)
        if partition is not None:
            return partition
        if self.is_offline(topic_partition):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic_partition} is offline"
            )
        if self.metadata.may_have(topic_partition):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {topic_partition}"
            )
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this broker does not host {topic_partition}")

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition, if this broker leads it.

        Raises:
            KafkaError: see ``hosted``; NOT_LEADER_OR_FOLLOWER.
        """
        partition = self.partitions.get(topic_partition)
        if partition is None or partition.leader_id != self.node_id:
            partition = self.hosted(topic_partition)
            partition.check_leader()
        return partition

    def partitions_of(self, topic: str) -> Iterator[Partition]:
        return iter(self._by_topic.get(topic, {}).values())

    def topic_name(self, topic_id: UUID) -> str:
        """The name of a hosted topic, which may be hosted before the metadata show it; else empty."""
        return self._names.get(topic_id, "")

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether its log was in a directory that failed, or could not be made."""
        return topic_partition in self._without_log or self.log_manager.is_offline(topic_partition)

    @property
    def offline_count(self) -> int:
        """How many replicas ``is_offline`` is true of."""
        return len(self._without_log | self.log_manager.offline_partitions)

    def _host(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        self.by_topic_id.setdefault(partition.topic_id.bytes, {})[number] = partition
        self.partitions[partition.topic_partition] = partition
        self._by_topic.setdefault(topic, {})[number] = partition
        self._names[partition.topic_id] = topic
        partition.stats = self.stats.host(topic)
        self._without_log.discard(partition.topic_partition)

    def _mark_offline(self, topic_partition: TopicPartition) -> None:
        """Its log could not be made."""
        self._forget(topic_partition)
        self._without_log.add(topic_partition)

    def _forget(self, topic_partition: TopicPartition) -> None:
        self._without_log.discard(topic_partition)
        partition = self.partitions.pop(topic_partition, None)
        if partition is not None:
            partition.leave()
            siblings = self._by_topic[topic_partition.topic]
            of_id = self.by_topic_id[partition.topic_id.bytes]
            del siblings[topic_partition.partition], of_id[topic_partition.partition]
            if not of_id:
                del self.by_topic_id[partition.topic_id.bytes]
            if not siblings:
                del self._by_topic[topic_partition.topic]
                self._names.pop(partition.topic_id, None)
                self.stats.forget(topic_partition.topic)

    # The controller: leading, following and resigning

    def add_leadership_listener(self, listener: Callable[[TopicPartition], None]) -> None:
        """``listener`` is called with a partition that another broker leads from now on, in another epoch, or
        that is not here any more."""
        self._leadership_listeners.append(listener)

    def accept_controller_epoch(self, controller_epoch: int) -> None:
        """A request of a controller came.

        Raises:
            KafkaError: STALE_CONTROLLER_EPOCH: a later controller has spoken before.
        """
        if controller_epoch < self.controller_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"the controller epoch is {self.controller_epoch}, not {controller_epoch}",
            )
        self.controller_epoch = controller_epoch

    # LeaderAndIsr

    async def become_leader_or_follower(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Lead or follow the partitions of ``request``, with ``state_changes`` held. Each answers for
        itself."""
        try:
            self.accept_controller_epoch(request.controller_epoch)
        except KafkaError as error:
            logger.warning("LeaderAndIsr of controller %d is refused: %s", request.controller_id, error)
            return LeaderAndIsrResponse(error.code)
        if request.is_full:
            self._set_strays_aside(request)
        leaders = self._endpoints(request.live_leaders)
        answers: list[PartitionError] = []
        time_slice = TimeSlice()
        for state in request.partitions:
            answers.append(PartitionError(state.topic, state.partition, self._become(state, leaders)))
            await time_slice.give_way()
        if self.fetchers is not None:
            self.fetchers.end_idle()
        topic_ids = tuple({each.topic: each.topic_id for each in request.partitions}.items())
        return LeaderAndIsrResponse(ErrorCode.NONE, tuple(answers), topic_ids)

    def _endpoints(self, brokers: Iterable[LiveBroker]) -> dict[BrokerId, LeaderEndpoint]:
        return {
            broker.node_id: LeaderEndpoint(broker.node_id, endpoint.host, endpoint.port)
            for broker in brokers
            if (endpoint := broker.endpoint(self._listener_name) or self._known_endpoint(broker))
        }

    def _known_endpoint(self, leader: LiveBroker) -> Endpoint | None:
        """Where to reach a leader whose address came without a listener's name: as the metadata have it, if
        that address is of another of its listeners. So it is while the brokers' listener is changed one
        broker after the other, and the controller is on the other side."""
        told = leader.endpoint(UNNAMED_LISTENER)
        if told is None:
            return None
        address = Endpoint(told.host, told.port)
        known = self.metadata.broker(leader.node_id)
        if known is not None and address in known.endpoints.values():
            return known.endpoint(self._listener_name) or address
        return address

    def _become(self, state: LeaderAndIsrPartition, leaders: Mapping[BrokerId, LeaderEndpoint]) -> ErrorCode:
        topic_partition = state.topic_partition
        try:
            partition = self._partition_for(state)
            if state.leader != self.node_id:
                self._follow(partition, state, leaders)
                return ErrorCode.NONE
            epoch_before = partition.leader_epoch
            self._stop_fetching(topic_partition)
            if partition.make_leader(state, now_ms=self._broker_context.clock.monotonic_ms()):
                self._disk_work.flush_closed(partition.log)
            if partition.leader_epoch != epoch_before:
                self._record_epoch(partition)
            self._leadership_changed(topic_partition)
            self._clear_eligible(partition)
        except KafkaError as error:
            logger.warning("LeaderAndIsr for %s is refused: %s", topic_partition, error)
            known = self.partitions.get(topic_partition)
            if known is not None:
                self.note_failure(known, error)
            return error.code
        return ErrorCode.NONE

    def _partition_for(self, state: LeaderAndIsrPartition) -> Partition:
        """The partition that ``state`` is for, made if need be. Raises KafkaError, see the module header."""
        topic_partition = state.topic_partition
        partition = self.partitions.get(topic_partition)
        if partition is not None:
            if partition.topic_id != state.topic_id:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{topic_partition} has topic id {partition.topic_id} here, not {state.topic_id}",
                )
            if state.leader_epoch < partition.leader_epoch or (
                state.leader_epoch == partition.leader_epoch and state.leader != partition.leader_id
            ):
                raise KafkaError(
                    ErrorCode.STALE_CONTROLLER_EPOCH,
                    f"{topic_partition} has leader {partition.leader_id} in leader epoch "
                    f"{partition.leader_epoch}, not {state.leader} in {state.leader_epoch}",
                )
        if self.node_id not in state.replicas:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {self.node_id} is none of the replicas {list(state.replicas)} of {topic_partition}",
            )
        return self._create(state) if partition is None else partition

    def _create(self, state: LeaderAndIsrPartition) -> Partition:
        """Waits for no disk: the disk thread makes a new log durable soon after."""
        topic_partition = state.topic_partition
        if self.is_offline(topic_partition) and not state.is_new:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline here")
        self._disk_work.logs_changed()  # also when it fails: the log manager may have found a failed disk
        try:
            log = self.log_manager.get_or_create(
                topic_partition, topic_id=state.topic_id, is_new=state.is_new
            )
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._mark_offline(topic_partition)
            raise
        except OSError as error:
            self._mark_offline(topic_partition)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition}: {error}") from error
        partition = Partition(topic_partition, topic_id=state.topic_id, context=self._broker_context, log=log)
        self._host(partition)
        if topic_partition in self.log_manager.future_logs:
            self._disk_work.moves.set()  # it was being moved when the broker stopped
        return partition

    def _follow(
        self,
        partition: Partition,
        state: LeaderAndIsrPartition,
        leaders: Mapping[BrokerId, LeaderEndpoint],
    ) -> None:
        topic_partition = partition.topic_partition
        if state.leader_epoch > partition.leader_epoch:
            self._stop_fetching(topic_partition)
            if not (self.is_leaving and partition.leader_id == self.node_id):
                self._without_fetcher.add(topic_partition)
        if partition.make_follower(state):
            self._record_epoch(partition)
        self._leadership_changed(topic_partition)
        if topic_partition not in self._without_fetcher or state.leader == NO_LEADER:
            return
        leader = leaders.get(state.leader)
        if leader is None:
            logger.error("%s has leader %d, whose address is not known", topic_partition, state.leader)
        elif self.fetchers is not None:
            self._without_fetcher.discard(topic_partition)
            log = partition.log
            offset = log.high_watermark if log.leader_epoch == NO_EPOCH else log.log_end_offset
            start = InitialFetchState(partition.topic_id, leader, partition.leader_epoch, offset)
            self.fetchers.add({topic_partition: start})

    def resign_moved_leaders(self, states: Iterable[LeaderAndIsrPartition]) -> None:
        """What all brokers are told of partitions. Where this one leads, has no replica any more and another
        broker leads in a later epoch, it resigns: requests that wait, and those that come later, are sent to
        the new leader."""
        for state in states:
            partition = self.partitions.get(state.topic_partition)
            if (
                partition is not None
                and partition.leader_id == self.node_id
                and partition.topic_id == state.topic_id
                and partition.leader_epoch < state.leader_epoch
                and state.leader >= 0
                and self.node_id not in state.replicas
            ):
                if partition.make_follower(state):
                    self._record_epoch(partition)
                self._leadership_changed(state.topic_partition)

    def _record_epoch(self, partition: Partition) -> None:
        self._record(
            EpochBegan(
                topic=partition.topic_partition.topic,
                partition=partition.topic_partition.partition,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                is_leader=partition.is_leader,
                log_end_offset=partition.log.log_end_offset,
                high_watermark=partition.log.high_watermark,
            )
        )

    def _stop_fetching(self, topic_partition: TopicPartition) -> None:
        self._without_fetcher.discard(topic_partition)
        if self.fetchers is not None:
            self.fetchers.remove([topic_partition])

    def _set_strays_aside(self, request: LeaderAndIsrRequest) -> None:
        """``request`` names all that this broker has: what else is here was moved away while it could not be
        told. Kafka does so with the full requests of KIP-866 (``LogManager.findStrayReplicas``)."""
        topic_ids = {state.topic_partition: state.topic_id for state in request.partitions}
        for topic_partition, log in list(self.log_manager.logs.items()):
            wanted = topic_ids.get(topic_partition)
            if wanted is not None and log.topic_id in (wanted, None):
                continue
            self._stop_fetching(topic_partition)
            self._forget(topic_partition)
            self._leadership_changed(topic_partition)
            self._disk_work.logs_changed()
            reason = (
                f"is no replica of this broker any more, says controller {request.controller_id} in epoch "
                f"{request.controller_epoch},"
            )
            try:
                self.log_manager.set_aside(topic_partition, reason)
            except OSError as error:
                logger.error("the directory of stray %s could not be renamed: %s", topic_partition, error)

    # StopReplica

    async def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Let go of the partitions of ``request``, with ``state_changes`` held: stop fetching them, and
        delete what shall be deleted."""
        try:
            self.accept_controller_epoch(request.controller_epoch)
        except KafkaError as error:
            logger.warning("StopReplica of controller %d is refused: %s", request.controller_id, error)
            return StopReplicaResponse(error.code)
        answers: list[PartitionError] = []
        time_slice = TimeSlice()
        for wanted in request.partitions:
            answers.append(PartitionError(wanted.topic, wanted.partition, self._stop(wanted)))
            await time_slice.give_way()
        if self.fetchers is not None:
            self.fetchers.end_idle()
        return StopReplicaResponse(ErrorCode.NONE, tuple(answers))

    def _stop(self, wanted: StopReplicaPartition) -> ErrorCode:
        topic_partition = TopicPartition(wanted.topic, wanted.partition)
        partition = self.partitions.get(topic_partition)
        if partition is None:
            if self.is_offline(topic_partition):
                return ErrorCode.KAFKA_STORAGE_ERROR
        elif wanted.leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and (
            wanted.leader_epoch < partition.leader_epoch
        ):
            return ErrorCode.FENCED_LEADER_EPOCH
        if not wanted.delete:
            self._stop_fetching(topic_partition)
            self._leadership_changed(topic_partition)
            return ErrorCode.NONE
        try:
            self.delete_partition(topic_partition)
        except KafkaError as error:
            return error.code
        except OSError as error:
            logger.error("the directory of %s could not be renamed: %s", topic_partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def delete_partition(self, topic_partition: TopicPartition) -> None:
        """Stop hosting a partition; its directory is renamed now and removed in the background.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: its log directory is offline.
            OSError: the directory could not be renamed; the partition is not hosted any more.
        """
        self._stop_fetching(topic_partition)
        self._forget(topic_partition)
        self._leadership_changed(topic_partition)
        self._disk_work.logs_changed()
        self.log_manager.delete(topic_partition)

    def _leadership_changed(self, topic_partition: TopicPartition) -> None:
        for listener in self._leadership_listeners:
            listener(topic_partition)
        self.parked.leadership_changed(topic_partition)

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
        try:
            info = self.append_to(partition, records, required_acks, terms)
        except OutOfOrderSequence as refused:
            self._refused_sequences.note(refused)
            raise
        stats = partition.stats
        stats.produce_requests += 1
        stats.messages_in += info.last_offset - info.first_offset + 1
        stats.bytes_in += len(records)
        return info

    def append_to(
        self, partition: Partition, records: Buffer, required_acks: int, terms: AppendTerms = BY_CLIENT
    ) -> AppendInfo:
        """``append`` for who has looked the partition up, knows that this broker leads it, and counts what
        was appended.

        Raises:
            KafkaError: see ``Partition.append_as_leader``.
        """
        log = partition.log
        high_watermark = log.high_watermark
        try:
            info = partition.append_as_leader(records, required_acks, terms)
        except KafkaError as error:
            self.note_failure(partition, error)
            raise
        if info.rolled or log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self._note_flush(log, rolled=info.rolled)
        if self.tracer.is_on and self.tracer.follows(partition.topic_partition):
            self._trace_append(partition, info, high_watermark)
        if log.high_watermark != high_watermark:
            self.parked.high_watermark_moved(partition.topic_partition)
        else:
            self.parked.appended(partition.topic_partition)
        return info

    def _trace_append(self, partition: Partition, info: AppendInfo, high_watermark: int) -> None:
        """Before those are woken who wait for it; the high watermark was where it is said to have been."""
        log, at = partition.log, partition.topic_partition
        if not info.duplicate:
            self.tracer.appended(
                at, info.first_offset, last_offset=info.last_offset, leader_epoch=partition.leader_epoch
            )
        if log.high_watermark != high_watermark:
            self.tracer.high_watermark_moved(
                at, log.high_watermark, "the append: no other in-sync replica is waited for"
            )

    def _note_flush(self, log: UnifiedLog, *, rolled: bool) -> None:
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self._disk_work.flush(log)
        elif rolled:
            self._disk_work.flush_closed(log)

    def flushed(self, topic_partition: TopicPartition) -> asyncio.Future[None] | None:
        """For an append's answer: what it waits for, when ``flush.messages`` says that a flush is due."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            return None
        log = partition.log
        if log.log_end_offset - log.recovery_point < log.config.flush_messages:
            return None
        return self._disk_work.flushed(log)

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
                self._high_watermark_moved(partition, "the topic's configuration changed")
            future = self.log_manager.future_logs.get(partition.topic_partition)
            if future is not None:
                future.update_config(config)

    # Log directories

    def note_failure(self, partition: Partition, error: KafkaError) -> None:
        """When ``error`` is the disk's, the log directory of ``partition`` goes offline, soon."""
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._disk_work.directory_failed(self.log_manager.directory_of(partition.log), error)

    def take_directory_offline(self, directory: str, *, reason: str) -> list[TopicPartition]:
        """A log directory failed: stop hosting what lay in it, and answer what waits for it."""
        lost = self.log_manager.take_offline(directory, reason)
        self._record(LogDirectoryFailed(directory=directory, partitions=len(lost), cause=cut(reason)))
        for topic_partition in lost:
            self._stop_fetching(topic_partition)
            self._forget(topic_partition)
            self._leadership_changed(topic_partition)
        return lost

    def alter_log_dir(self, topic_partition: TopicPartition, log_directory: str) -> None:
        """Move a replica to another log directory of this broker, while it continues to serve (KIP-113). A
        move to elsewhere ends, also when it is asked for where it is. One that is not here is remembered: its
        log will be made there.

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
        self._disk_work.logs_changed()  # also when it fails: the log manager may have found a failed disk
        self.log_manager.start_move(topic_partition, log_directory)
        self._disk_work.moves.set()

    def replace_with_future_log(self, partition: Partition) -> Replacement:
        """The copy of a replica in another log directory has caught up and takes the replica's place, see
        ``LogManager.begin_replacement``.

        Parked fetches have noted positions in the log that was. Where segments begin elsewhere in this one,
        they count too many bytes, never too few, and answer early.
        """
        replacement = self.log_manager.begin_replacement(partition.topic_partition)
        partition.log = replacement.log
        self._disk_work.flush(replacement.log)
        self._disk_work.logs_changed()
        return replacement

    def record_slow_produce(
        self, topic_partition: TopicPartition, required_offset: Offset, *, waited_ms: int, is_committed: bool
    ) -> None:
        """A produce has waited long until all below ``required_offset`` was committed, or was not."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            return
        now_ms = self.clock.monotonic_ms()
        self._record(
            SlowProduce(
                topic=topic_partition.topic,
                partition=topic_partition.partition,
                waited_ms=waited_ms,
                is_committed=is_committed,
                isr=partition.isr,
                cause=partition.replication.held_back_by(required_offset, now_ms=now_ms),
            )
        )

    # Followers of partitions that are led here

    def record_follower_fetch(
        self, replica_id: BrokerId, broker_epoch: int, places: Iterable[FollowerPlace]
    ) -> None:
        """A follower fetched ``places``: it may move the watermarks and join the ISRs. See
        ``Partition.record_follower_fetch``."""
        now_ms = self.clock.monotonic_ms()
        for partition, fetch_offset, log_start_offset in places:
            progress = partition.record_follower_fetch(
                replica_id,
                fetch_offset=fetch_offset,
                log_start_offset=log_start_offset,
                now_ms=now_ms,
                broker_epoch=broker_epoch,
            )
            if progress.isr_change is not None:
                self._submit(partition, progress.isr_change)
            if self.tracer.is_on:
                self.tracer.follower_fetched(partition.topic_partition, replica_id, fetch_offset=fetch_offset)
            if progress.high_watermark_advanced:
                self._high_watermark_moved(partition, "broker %d fetched at %d", replica_id, fetch_offset)
            self.parked.log_start_moved(partition.topic_partition)

    async def shrink_isrs(self) -> None:
        """Let those leave the ISRs who lag behind. To be called every half of ``replica.lag.time.max.ms``."""
        now_ms = self.clock.monotonic_ms()
        time_slice = TimeSlice()
        for topic_partition in list(self.partitions):
            partition = self.partitions.get(topic_partition)
            change = None if partition is None else partition.maybe_shrink_isr(now_ms)
            if partition is not None and change is not None:
                self._submit(partition, change)
            await time_slice.give_way()

    def _clear_eligible(self, partition: Partition) -> None:
        """See ``IsrState``; looked at when the leadership, the ISR or the configuration changes."""
        change = partition.maybe_clear_eligible()
        if change is not None:
            self._submit(partition, change)

    def _submit(self, partition: Partition, change: IsrChange) -> None:
        if self.isr_manager is None:
            raise InvariantError(f"there is no ISR manager to write {change}")
        self.isr_manager.submit(change, partial(self._isr_change_done, partition, change))

    def _isr_change_done(self, partition: Partition, change: IsrChange, outcome: IsrOutcome) -> None:
        topic_partition = partition.topic_partition
        if self.partitions.get(topic_partition) is not partition:  # deleted, or offline
            return
        isr_before = partition.isr
        has_advanced = partition.isr_change_done(change, outcome)
        self.isr_counts.note(change, outcome, size_before=len(isr_before), size_after=len(partition.isr))
        self._record_isr(partition, change, outcome, isr_before)
        self._clear_eligible(partition)
        if has_advanced:
            self._high_watermark_moved(partition, "the ISR became %s", list(partition.isr))

    def _high_watermark_moved(self, partition: Partition, cause: str, *arguments: object) -> None:
        if self.tracer.is_on:
            at, high_watermark = partition.topic_partition, partition.log.high_watermark
            self.tracer.high_watermark_moved(at, high_watermark, cause % arguments)
        self.parked.high_watermark_moved(partition.topic_partition)

    def _record_isr(
        self,
        partition: Partition,
        change: IsrChange,
        outcome: IsrOutcome,
        isr_before: tuple[BrokerId, ...],
    ) -> None:
        cause = change.cause
        match outcome:
            case IsrRefused(reason):
                cause = f"{reason}; wanted was {list(change.isr)}: {cause}"
            case IsrReread():
                cause = f"so it is in the store; wanted was {list(change.isr)}: {cause}"
            case IsrWritten() if partition.isr == isr_before:  # only who is eligible has changed
                return
        self._record(
            IsrChanged(
                topic=partition.topic_partition.topic,
                partition=partition.topic_partition.partition,
                isr=partition.isr,
                previous_isr=isr_before,
                leader_epoch=change.leader_epoch,
                is_refused=not isinstance(outcome, IsrWritten),
                cause=cause,
            )
        )

    # Partitions that are followed here

    def follower_appended(self, partition: Partition, info: AppendInfo | None) -> None:
        """A fetcher has appended, or only moved the high watermark (``info`` None)."""
        log = partition.log
        if info is not None:
            self.stats.replication_bytes_in += info.size_bytes
            self._note_flush(log, rolled=info.rolled)
        if self.tracer.is_on:
            self._trace_replication(partition, info)
        self.parked.appended(partition.topic_partition)

    def _trace_replication(self, partition: Partition, info: AppendInfo | None) -> None:
        """What was just appended is read again, from the page cache."""
        log, at = partition.log, partition.topic_partition
        if info is not None and self.tracer.covers(at.topic):
            with contextlib.suppress(ColdRead, KafkaError):  # then this replica's step is missing
                data = log.read(
                    info.first_offset,
                    max_bytes=info.size_bytes,
                    min_one_message=True,
                    isolation=FetchIsolation.LOG_END,
                )
                self.tracer.follower_appended(
                    at, partition.topic_id, data.records, leader_id=partition.leader_id
                )
        self.tracer.high_watermark_moved(at, log.high_watermark, f"leader {partition.leader_id} told it")

    def _log_truncated(self, log: UnifiedLog) -> None:
        """The recovery point fell, and the checkpoint that says more must not be believed after a crash."""
        self.log_manager.note_truncation(log)
        self._disk_work.logs_changed()
