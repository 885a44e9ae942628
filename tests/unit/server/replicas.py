"""A replica manager of broker 1 in a cluster of three, without network: the test plays the others.

Time and ISR writes wait for the test; logs are real.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import msgspec

from minikafka.clock import ManualClock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import Files, OsFiles
from minikafka.log.log_manager import LogManager
from minikafka.log.segment.fetch_data import ColdRead, FetchIsolation
from minikafka.metrics.sensors import WindowConfig
from minikafka.protocol.control import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    ListenerEndpoint,
    LiveBroker,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, build_batch
from minikafka.purgatory import Timer
from minikafka.replication.partition_replicas import IsrChange, IsrOutcome, IsrWritten, ReplicaSelector
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.replica.delayed_operations import Fetch
from minikafka.server.replica.partition import Partition
from minikafka.server.replica.partition_reads import (
    ClientMetadata,
    FetchParams,
    PartitionRead,
    WantedPartition,
)
from minikafka.server.replica.pending_disk_work import PendingDiskWork
from minikafka.server.replica.replica_fetchers import InitialFetchState
from minikafka.server.replica.replica_manager import ParkedOperations, ReplicaManager
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.server.runtime.log_io import LogIo
from minikafka.steps import finish
from minikafka.types import NO_OFFSET, BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
TOPIC_ID = UUID(int=7, version=4)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = (ONE, TWO, THREE)
LISTENER = "INTERNAL"
BROKER_EPOCH = 100
"""Of all brokers, until one restarts."""
LAG_MS = 30_000


def batch(count: int = 1, size: int = 100, compression: CompressionType = CompressionType.NONE) -> bytes:
    records = [Record(i, 1_700_000_000_000, None, b"x" * size, ()) for i in range(count)]
    return build_batch(records, compression=compression)


def leader_batches(count: int, *, base_offset: int = 0, epoch: int = 0) -> bytes:
    """Batches of one record, as a leader of ``epoch`` sends them to its followers."""
    return b"".join(
        build_batch(
            [Record(offset, 1_700_000_000_000 + offset, None, b"x", ())],
            base_offset=offset,
            leader_epoch=epoch,
        )
        for offset in range(base_offset, base_offset + count)
    )


def code(call: Callable[..., Any], *args: Any, **kwargs: Any) -> ErrorCode:
    """The code of the ``KafkaError`` that the call raises."""
    try:
        call(*args, **kwargs)
    except KafkaError as error:
        return error.code
    raise AssertionError("nothing was refused")


def state_of(
    at: TopicPartition = TP,
    *,
    leader: int = ONE,
    epoch: int = 0,
    isr: Sequence[int] = ALL,
    replicas: Sequence[int] = ALL,
    adding: Sequence[int] = (),
    version: int | None = None,
    topic_id: UUID = TOPIC_ID,
    controller_epoch: int = 1,
    is_new: bool = True,
    eligible: Sequence[int] = (),
) -> LeaderAndIsrPartition:
    """What the controller says. The version rises with the epoch, as in the store."""
    return LeaderAndIsrPartition(
        topic=at.topic,
        topic_id=topic_id,
        partition=at.partition,
        controller_epoch=controller_epoch,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(map(BrokerId, isr)),
        partition_epoch=epoch * 10 if version is None else version,
        replicas=tuple(map(BrokerId, replicas)),
        adding_replicas=tuple(map(BrokerId, adding)),
        is_new=is_new,
        eligible=tuple(map(BrokerId, eligible)),
    )


class IsrStore:
    """Where ISR changes are written, when the test lets them."""

    def __init__(self) -> None:
        self.submitted: list[tuple[IsrChange, Callable[[IsrOutcome], None]]] = []

    def submit(self, change: IsrChange, done: Callable[[IsrOutcome], None]) -> None:
        self.submitted.append((change, done))

    @property
    def change(self) -> IsrChange:
        """The one that is in flight."""
        ((change, _),) = self.submitted
        return change

    def finish(self, outcome: IsrOutcome | None = None) -> None:
        """The one in flight is done: written, unless ``outcome`` says otherwise."""
        ((change, done),) = self.submitted
        self.submitted.clear()
        done(outcome or IsrWritten(change.expected_version + 1, change.isr))


class Fetchers:
    """Notes what is asked of it, in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.fetching: dict[TopicPartition, InitialFetchState] = {}
        self.is_closed = False

    def add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        self.calls += [("add", at) for at in partitions]
        self.fetching |= partitions

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            self.calls.append(("remove", at))
            self.fetching.pop(at, None)

    def end_idle(self) -> None:
        self.calls.append(("end_idle",))

    async def close(self) -> None:
        self.is_closed = True


class Peer:
    """A connection."""


class ManualLogIo:
    """A disk that answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[ColdRead, Callable[[], None]]] = []

    def warm(self, range_: ColdRead, *, then: Callable[[], None]) -> None:
        self.waiting.append((range_, then))

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for range_, then in waiting:
            range_.fetch()
            then()


class NoFile:
    """What a ``ColdRead`` reads that a test raises."""

    def read(self, size: int, position: int) -> bytes:
        return b""


class Replicas:
    """The replica manager and what surrounds it."""

    def __init__(
        self,
        directory: Path,
        config: TopicConfig | None = None,
        *,
        others: Sequence[Path] = (),
        files: Files | None = None,
        selector: ReplicaSelector | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        """``others``: more log directories."""
        self.config = config or TopicConfig()
        self.clock = clock or ManualClock()
        self.timer = Timer(self.clock)
        self.metadata = MetadataCache()
        self._live: dict[BrokerId, LiveBroker] = {}
        for node_id in ALL:
            self.broker_started(node_id, BROKER_EPOCH)
        self.log_io = ManualLogIo()
        self.log_manager = LogManager(
            [str(each) for each in (directory, *others)],
            default_config=self.config,
            topic_config=lambda topic: self.config,
            files=files or OsFiles(),
            clock=self.clock,
            rng=random.Random(1),
            cluster_id="c",
            broker_id=ONE,
        )
        self.log_manager.load()
        self.disk_work = PendingDiskWork()
        self.leader_quota = ReplicationQuotaManager(WindowConfig(11, 1000))
        self.manager = ReplicaManager(
            node_id=ONE,
            log_manager=self.log_manager,
            metadata=self.metadata,
            parked=ParkedOperations(self.timer),
            disk_work=self.disk_work,
            clock=self.clock,
            replica_lag_time_max_ms=LAG_MS,
            inter_broker_listener_name=LISTENER,
            replica_selector=selector,
            leader_quota=self.leader_quota,
        )
        self.store = IsrStore()
        self.manager.isr_manager = self.store
        self.fetchers = Fetchers()
        self.manager.fetchers = self.fetchers
        self.answers: list[list[PartitionRead]] = []
        self.fetchers_here: dict[tuple[int, int], Peer] = {}
        """The connections of the followers' fetchers."""

    def close(self) -> None:
        for partition in self.manager.partitions.values():
            if partition.log.is_open:  # its disk may have failed
                partition.log.validate()
            partition.replication.validate()
        for purgatory in (self.manager.parked.produce, self.manager.parked.fetch):
            purgatory.validate()
        self.log_manager.shutdown()

    # The cluster

    def broker_started(self, node_id: BrokerId, epoch: int, *, listener: str = LISTENER) -> None:
        endpoint = ListenerEndpoint(listener, f"broker-{node_id}", 9092)
        self._live[node_id] = LiveBroker(node_id, epoch, (endpoint,), f"rack-{node_id}")
        self._tell_of_brokers()

    def _tell_of_brokers(self) -> None:
        self.metadata.update(UpdateMetadataRequest(THREE, 1, BROKER_EPOCH, (), tuple(self._live.values())))

    def broker_died(self, node_id: BrokerId) -> None:
        del self._live[node_id]
        self._tell_of_brokers()

    def partition(self, at: TopicPartition = TP) -> Partition:
        return self.manager.hosted(at)

    def become(self, *states: LeaderAndIsrPartition, **fields: Any) -> list[ErrorCode]:
        """LeaderAndIsr: each partition's error, or the request's."""
        brokers = tuple(
            LiveBroker(each.node_id, each.epoch, (ListenerEndpoint(LISTENER, *endpoint),), each.rack)
            for each in self.metadata.brokers()
            if (endpoint := each.endpoint(LISTENER)) is not None
        )
        request = LeaderAndIsrRequest(
            controller_id=THREE,
            controller_epoch=max([1, *(each.controller_epoch for each in states)]),
            broker_epoch=BROKER_EPOCH,
            partitions=states,
            live_leaders=brokers,
        )
        request = msgspec.structs.replace(request, **fields)
        response = run(self.manager.become_leader_or_follower(request))
        if response.error_code:
            return [ErrorCode(response.error_code)]
        assert [(each.topic, each.partition) for each in response.partitions] == [
            (state.topic, state.partition) for state in states
        ]
        return [ErrorCode(each.error_code) for each in response.partitions]

    def lead(self, at: TopicPartition = TP, **fields: Any) -> Partition:
        assert self.become(state_of(at, **fields)) == [ErrorCode.NONE]
        return self.partition(at)

    def follow(self, at: TopicPartition = TP, *, leader: int = TWO, **fields: Any) -> Partition:
        assert self.become(state_of(at, leader=leader, **fields)) == [ErrorCode.NONE]
        return self.partition(at)

    def stop_replica(self, at: TopicPartition = TP, *, controller_epoch: int = 1, **fields: Any) -> ErrorCode:
        request = StopReplicaRequest(
            THREE, controller_epoch, BROKER_EPOCH, (StopReplicaPartition(at.topic, at.partition, **fields),)
        )
        response = run(self.manager.stop_replicas(request))
        return ErrorCode(response.error_code or response.partitions[0].error_code)

    # Records

    def append(self, records: bytes | None = None, at: TopicPartition = TP, *, acks: int = 1) -> Offset:
        """Append as a producer would; returns the offset behind."""
        info = self.manager.append(at, batch() if records is None else records, required_acks=acks)
        return Offset(info.last_offset + 1)

    def fetch_params(
        self,
        *,
        replica_id: int = -1,
        replica_epoch: int = BROKER_EPOCH,
        rack: str | None = None,
        min_bytes: int = 1,
        answer_bytes_max: int = 50 << 20,
        max_wait_ms: int = 500,
        isolation: FetchIsolation | None = None,
        fetcher_id: int = 0,
    ) -> FetchParams:
        usual = FetchIsolation.HIGH_WATERMARK if replica_id == -1 else FetchIsolation.LOG_END
        return FetchParams(
            max_wait_ms,
            min_bytes,
            answer_bytes_max,
            isolation or usual,
            BrokerId(replica_id),
            replica_epoch,
            None if rack is None else ClientMetadata(rack, LISTENER),
            self.fetchers_here.setdefault((replica_id, fetcher_id), Peer()),
        )

    def fetch(
        self,
        *partitions: TopicPartition,
        offset: int = 0,
        epoch: int = -1,
        last_fetched_epoch: int = -1,
        max_bytes: int = 1 << 20,
        log_start: int = NO_OFFSET,
        topic_id: UUID = TOPIC_ID,
        **params: Any,
    ) -> Any:
        """A consumer's fetch, or a follower's if ``replica_id`` says so; answers go to ``answers``."""
        wanted = [
            WantedPartition(
                at, topic_id, Offset(offset), max_bytes, epoch, last_fetched_epoch, Offset(log_start)
            )
            for at in partitions or (TP,)
        ]

        def respond(reads: list[PartitionRead]) -> Sequence[Buffer]:
            self.answers.append(reads)
            return (b"response",)

        fetch = Fetch(
            replicas=self.manager,
            log_io=cast(LogIo, self.log_io),
            clock=self.clock,
            params=self.fetch_params(**params),
            wanted=wanted,
            respond=respond,
        )
        return finish(fetch.start())

    def follower_fetch(
        self, replica_id: int, offset: int, at: TopicPartition = TP, **fields: Any
    ) -> PartitionRead:
        """A follower fetches at ``offset`` and is answered at once."""
        self.fetch(at, offset=offset, replica_id=replica_id, **{"max_wait_ms": 0, "log_start": 0} | fields)
        return self.answers.pop()[0]

    @property
    def answer(self) -> list[PartitionRead]:
        (only,) = self.answers
        return only

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        for task in self.timer.advance(self.clock.monotonic_ms()):
            if not task.cancelled:
                task.run()


def run(coroutine: Any) -> Any:
    """Run what awaits nothing but its turn."""
    return asyncio.run(coroutine)
