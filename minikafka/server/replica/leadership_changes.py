"""Leading, following and letting go of partitions, as the controller says.

Kafka: ``ReplicaManager.becomeLeaderOrFollower``, ``makeLeaders``, ``makeFollowers`` and ``stopReplicas``;
KIP-516 (topic ids), KIP-570 (leader epochs in StopReplica).

One request is carried out at a time. It may name a thousand partitions, so others have their turn in
between; each partition changes at once. A partition fails alone.

What is refused:

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
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.manager.log_manager import LogManager
from minikafka.protocol.control.messages import (
    EPOCH_DURING_DELETE,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveBroker,
    PartitionError,
    StopReplicaPartition,
    StopReplicaRequest,
    StopReplicaResponse,
)
from minikafka.server.replica.disk_chores import DiskChores
from minikafka.server.replica.host_broker import HostBroker
from minikafka.server.replica.hosted_partitions import HostedPartitions
from minikafka.server.replica.parked_operations import ParkedOperations
from minikafka.server.replica.replica_fetchers import InitialFetchState, LeaderEndpoint, ReplicaFetchers
from minikafka.server.runtime.turns import Turns
from minikafka.types import NO_EPOCH, NO_LEADER, BrokerId, TopicPartition

if TYPE_CHECKING:
    from minikafka.server.replica import partition as partitions_file
    from minikafka.server.replica.partition import Partition
else:
    partitions_file = deferred("minikafka.server.replica.partition")

logger = logging.getLogger(__name__)


class LeadershipChanges(HostedPartitions):
    """The hosted partitions, and how they come and go."""

    def __init__(
        self,
        *,
        host: HostBroker,
        log_manager: LogManager,
        is_known: Callable[[TopicPartition], bool],
        parked: ParkedOperations,
        chores: DiskChores,
        inter_broker_listener_name: str,
    ) -> None:
        super().__init__(node_id=host.node_id, log_manager=log_manager, is_known=is_known)
        self.controller_epoch = 0
        """The highest seen."""
        self.fetchers: ReplicaFetchers | None = None
        """Set once they are made, which needs this object; None for a broker that is alone."""
        self.is_leaving = False
        """The broker has asked for others to lead what it leads. It does not follow them: it would be in the
        ISR again just before it stops, and producers would wait for it."""
        self.parked = parked
        self._leadership_followers: list[Callable[[TopicPartition], None]] = []
        self._host_broker = host
        self._chores = chores
        self._listener_name = inter_broker_listener_name
        self._changing = asyncio.Lock()
        self._without_fetcher: set[TopicPartition] = set()

    def follow_leadership(self, tell: Callable[[TopicPartition], None]) -> None:
        """``tell`` is told of a partition that is led by another broker from now on, in another epoch, or is
        not here any more."""
        self._leadership_followers.append(tell)

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
        """Lead or follow the partitions of ``request``. Each answers for itself."""
        async with self._changing:
            try:
                self.accept_controller_epoch(request.controller_epoch)
            except KafkaError as error:
                logger.warning("LeaderAndIsr of controller %d is refused: %s", request.controller_id, error)
                return LeaderAndIsrResponse(error.code)
            if request.is_full:
                self._set_strays_aside(request)
            leaders = self._endpoints(request.live_leaders)
            answers: list[PartitionError] = []
            turns = Turns()
            for state in request.partitions:
                answers.append(PartitionError(state.topic, state.partition, self._become(state, leaders)))
                await turns.give_way()
            if self.fetchers is not None:
                self.fetchers.end_idle()
            return LeaderAndIsrResponse(ErrorCode.NONE, tuple(answers))

    def _endpoints(self, brokers: Iterable[LiveBroker]) -> dict[BrokerId, LeaderEndpoint]:
        return {
            broker.node_id: LeaderEndpoint(broker.node_id, endpoint.host, endpoint.port)
            for broker in brokers
            if (endpoint := broker.endpoint(self._listener_name)) is not None
        }

    def _become(self, state: LeaderAndIsrPartition, leaders: Mapping[BrokerId, LeaderEndpoint]) -> ErrorCode:
        topic_partition = state.topic_partition
        try:
            partition = self._partition_for(state)
            if state.leader == self.node_id:
                self._lead(partition, state)
            else:
                self._follow(partition, state, leaders)
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
        self._chores.logs_changed()  # also when it fails: the log manager may have found a failed disk
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
        partition = partitions_file.Partition(
            topic_partition, topic_id=state.topic_id, host=self._host_broker, log=log
        )
        self._host(partition)
        if topic_partition in self.log_manager.future_logs:
            self._chores.moves.set()  # it was being moved when the broker stopped
        return partition

    def _lead(self, partition: Partition, state: LeaderAndIsrPartition) -> None:
        topic_partition = partition.topic_partition
        self._stop_fetching(topic_partition)
        if partition.make_leader(state, now_ms=self._host_broker.clock.monotonic_ms()):
            self._chores.flush_closed(partition.log)
        self._leadership_changed(topic_partition)

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
        partition.make_follower(state)
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

    def let_go_of_moved(self, states: Iterable[LeaderAndIsrPartition]) -> None:
        """What all brokers are told of partitions. Where this one leads, has no replica any more and somebody
        else leads in a later epoch, it stops: whoever waits, and whoever comes, is sent to the new leader."""
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
                partition.make_follower(state)
                self._leadership_changed(state.topic_partition)

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
            self._chores.logs_changed()
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
        """Let go of the partitions of ``request``: stop fetching them, and delete what shall be deleted."""
        async with self._changing:
            try:
                self.accept_controller_epoch(request.controller_epoch)
            except KafkaError as error:
                logger.warning("StopReplica of controller %d is refused: %s", request.controller_id, error)
                return StopReplicaResponse(error.code)
            answers: list[PartitionError] = []
            turns = Turns()
            for wanted in request.partitions:
                answers.append(PartitionError(wanted.topic, wanted.partition, self._stop(wanted)))
                await turns.give_way()
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
        self._chores.logs_changed()
        self.log_manager.delete(topic_partition)

    def _leadership_changed(self, topic_partition: TopicPartition) -> None:
        for tell in self._leadership_followers:
            tell(topic_partition)
        self.parked.leadership_changed(topic_partition)

    # Failing

    def note_failure(self, partition: Partition, error: KafkaError) -> None:
        """When ``error`` is the disk's, the log directory of ``partition`` goes offline, soon."""
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._chores.directory_failed(self.log_manager.directory_of(partition.log), error)

    def take_directory_offline(self, directory: str, *, reason: str) -> list[TopicPartition]:
        """A log directory failed: stop hosting what lay in it, and answer what waits for it."""
        lost = self.log_manager.take_offline(directory, reason)
        for topic_partition in lost:
            self._stop_fetching(topic_partition)
            self._forget(topic_partition)
            self._leadership_changed(topic_partition)
        return lost
