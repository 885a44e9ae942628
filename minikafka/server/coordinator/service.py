"""A coordinator of this broker: the partitions of its topic that the broker leads, as shards.

Kafka: ``GroupCoordinatorService`` with its ``CoordinatorRuntime``, ``TransactionCoordinator`` with its
``TransactionStateManager``. Which shards are here follows leadership: a partition that this broker leads is
loaded, and is loaded again in every leader epoch; one that it does not lead is unloaded, and requests that
wait for it get NOT_COORDINATOR. A partition that cannot be loaded stays so, and answers NOT_COORDINATOR,
until its leadership changes.

A request goes to the shard of its group or transactional id (``ask``); what may be read at once is read by
way of ``shard_of``. Nothing in here awaits but the loads.

**Loading** a partition of the topic into a shard. Kafka: ``CoordinatorLoaderImpl``,
``TransactionStateManager.loadTransactionMetadata``. The log is read from its start to its end, a piece of
``offsets.load.buffer.size`` or ``transaction.state.log.load.buffer.size`` at a time; the loop gets its turn
between batches, and a cold piece is brought into memory by a disk thread. What is read last is replayed
without a pause before the load ends, so a shard that is loaded has seen all that is in the log.

Where it differs from Kafka: there a damaged record keeps the whole partition from being loaded. Here a record
or a batch that cannot be read is logged with its offset and left out, so that the other groups and
transactional ids are served. Only where the batches themselves cannot be told apart the load fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from minikafka.clock import Clock
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.log.segment.fetch_data import ColdRead, FetchIsolation
from minikafka.metrics.coordinator_names import LOAD_TIME_AVG, LOAD_TIME_MAX
from minikafka.metrics.sensors import Avg, Max, MetricName, Metrics, Sensor, WindowConfig
from minikafka.metrics.series import Sample, Series
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import ControlRecordType, iterate_records, read_end_transaction_marker
from minikafka.server.coordinator.topic import CoordinatorTopic
from minikafka.server.replica.partition import Partition
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.supervisor import Supervisor
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.types import NO_PRODUCER_ID, Buffer, Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.server.coordinator import hosted_shard
    from minikafka.server.coordinator.hosted_shard import (
        CoordinatorShard,
        HostedShard,
        PurgatoryOf,
        RequestTicket,
        TicketCall,
    )
    from minikafka.server.coordinator.topic import CoordinatorLog
else:
    hosted_shard = deferred("minikafka.server.coordinator.hosted_shard")

logger = logging.getLogger(__name__)

RELOAD_PAUSE_MS = 1_000
"""Before a shard in which something went wrong is loaded again: a bug that comes back at once must not take
all of the broker's time. Its clients hear COORDINATOR_LOAD_IN_PROGRESS, and ask again."""

S = TypeVar("S", bound="CoordinatorShard")


def load_time_sensor(metrics: Metrics, group: str, *, now_ms: int) -> Sensor:
    """Of milliseconds, each load's from when its leadership was known here. ``group``: of the metrics."""
    names = LOAD_TIME_MAX, LOAD_TIME_AVG
    return max_and_avg_sensor(metrics, group, f"{group}-PartitionLoadTime", names, now_ms=now_ms)


def max_and_avg_sensor(
    metrics: Metrics, group: str, sensor_name: str, names: tuple[str, str], *, now_ms: int
) -> Sensor:
    """Its most and its mean of the last windows, under ``names``."""
    sensor = metrics.sensor(sensor_name, now_ms=now_ms)
    windows = WindowConfig()
    max_name, avg_name = names
    sensor.add(MetricName(max_name, group), Max(windows))
    sensor.add(MetricName(avg_name, group), Avg(windows))
    return sensor


def max_and_avg_samples(
    metrics: Metrics, group: str, series: Mapping[str, Series], *, now_ms: int
) -> Iterator[Sample]:
    """Of a ``max_and_avg_sensor``. ``series`` by the metric's name."""
    for name, shown in series.items():
        yield Sample(shown, metrics.metrics[MetricName(name, group)].measure(now_ms))


class Loaded(NamedTuple):
    """What a load has read."""

    records: int
    damaged: int
    end_offset: Offset


class Replay(Protocol):
    """What is read goes here, in the order of the log."""

    def record(self, key: bytes, value: bytes | None, now_ms: int, *, offset: int, producer_id: int) -> None:
        """``producer_id`` is that of the transaction which the record is part of, or NO_PRODUCER_ID.

        Raises:
            KafkaError, InvariantError: it is left out.
        """

    def marker(self, producer_id: int, *, committed: bool) -> None:
        """The transaction of ``producer_id`` has ended."""


class CoordinatorLoad:
    """One load of one partition into one shard. ``run`` once."""

    def __init__(
        self,
        partition: Partition,
        replay: Replay,
        *,
        log_io: LogIo,
        clock: Clock,
        buffer_bytes: int,
        is_wanted: Callable[[], bool],
    ) -> None:
        """``is_wanted`` is asked after each pause: a load for a leadership that is over ends."""
        self._partition = partition
        self._replay = replay
        self._log_io = log_io
        self._now_ms = clock.now_ms()
        self._buffer_bytes = buffer_bytes
        self._is_wanted = is_wanted
        self._records = 0
        self._damaged = 0

    async def run(self) -> Loaded | None:
        """Replay all there is; None: it is not wanted any more.

        Raises:
            KafkaError: the log cannot be read.
        """
        time_slice = TimeSlice()
        position = self._partition.log.log_start_offset
        while position < self._partition.log.log_end_offset:
            records = await self._read(position)
            if not self._is_wanted():
                return None
            begin = position
            for at, header in iterate_headers(records):
                self._replay_batch(memoryview(records)[at : at + header.size], header)
                position = Offset(header.next_offset)
                await time_slice.give_way()
                if not self._is_wanted():
                    return None
            if position == begin:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"there is no batch at offset {position}")
        if not self._is_wanted():
            return None
        return Loaded(self._records, self._damaged, self._partition.log.log_end_offset)

    async def _read(self, position: Offset) -> Buffer:
        while True:
            try:
                return self._partition.log.read(
                    position,
                    max_bytes=self._buffer_bytes,
                    min_one_message=True,
                    isolation=FetchIsolation.LOG_END,
                ).records
            except ColdRead as cold:
                await self._log_io.warmed(cold)
                if not self._is_wanted():
                    return b""

    def _replay_batch(self, batch: memoryview, header: BatchHeader) -> None:
        try:
            if header.is_control:
                self._replay_marker(batch, header)
                return
            records = list(iterate_records(batch))  # all of it, before any of it
        except CorruptBatch as error:
            self._left_out(header.base_offset, error, count=header.record_count)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            try:
                if record.key is None:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a record without a key")
                self._replay.record(
                    record.key, record.value, self._now_ms, offset=record.offset, producer_id=producer_id
                )
                self._records += 1
            except (KafkaError, InvariantError) as error:
                self._left_out(record.offset, error)

    def _replay_marker(self, batch: memoryview, header: BatchHeader) -> None:
        for record in iterate_records(batch):
            marker = read_end_transaction_marker(record.key, record.value)
            if marker is not None:
                self._replay.marker(header.producer_id, committed=marker.type is ControlRecordType.COMMIT)

    def _left_out(self, offset: int, error: Exception, *, count: int = 1) -> None:
        self._damaged += count
        logger.error(
            "%s: the record at offset %d is damaged and left out: %s",
            self._partition.topic_partition,
            offset,
            error,
        )


class CoordinatorService(Generic[S]):
    """See the module header. What differs between coordinators is given by those that derive from this."""

    def __init__(
        self,
        *,
        contents: str,
        replicas: ReplicaManager,
        topic: CoordinatorTopic,
        new_shard: Callable[[], S],
        replay: Callable[[S], Replay],
        new_log: Callable[[TopicPartition], CoordinatorLog[Any]],
        purgatory_of: PurgatoryOf,
        load_buffer_bytes: int,
        log_io: LogIo,
        supervisor: Supervisor,
        load_time: Sensor,
    ) -> None:
        """``contents`` is what the shards keep, for the log. ``load_time``: milliseconds, of each load."""
        self.topic = topic
        self._contents = contents
        self._replicas = replicas
        self._clock = replicas.clock
        self._supervisor = supervisor
        self._new_shard = new_shard
        self._replay = replay
        self._new_log = new_log
        self._purgatory_of = purgatory_of
        self._load_buffer_bytes = load_buffer_bytes
        self._log_io = log_io
        self._load_time = load_time
        self._shards: dict[int, HostedShard[S]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._shards)} shards)"

    # Requests

    def ask(self, key: str, call: TicketCall[S], ticket: RequestTicket) -> None:
        """Have the shard of a group or a transactional id do ``call``, which answers ``ticket`` now or later.
        An error is an answer: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what ``call`` raises."""
        self.ask_partition(self.topic.partition_for(key), call, ticket)

    def ask_partition(self, number: int, call: TicketCall[S], ticket: RequestTicket) -> None:
        """``ask`` for what is about a partition of the topic as a whole."""
        shard = self._shards.get(number)
        if shard is None:
            ticket.answer(hosted_shard.not_coordinator())
        else:
            shard.ask(call, ticket)

    def shard_of(self, key: str) -> S:
        """The shard that keeps ``key``, for what needs no waiting.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self.hosted_shard_of(key).check_active()

    def hosted_shard_of(self, key: str) -> HostedShard[S]:
        """``shard_of``, in whatever state, with what waits in it. Raises KafkaError: NOT_COORDINATOR."""
        shard = self._shards.get(self.topic.partition_for(key))
        if shard is None:
            raise hosted_shard.not_coordinator()
        return shard

    def shards(self) -> Iterator[S]:
        """All that are served here; those that could not be loaded are not.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS: one is not there yet.
        """
        for _, shard in sorted(self._shards.items()):
            if shard.state is not hosted_shard.ShardState.FAILED:
                yield shard.check_active()

    def hosted_shards(self) -> list[HostedShard[S]]:
        """All, in whatever state."""
        return list(self._shards.values())

    async def _until_ready(self, shard: HostedShard[S], end_offset: Offset) -> None:
        """What a shard that has read its log up to ``end_offset`` waits for before it begins."""

    def _do_other(self, shard: HostedShard[S], effect: Any) -> None:
        """Carry out an effect that only this coordinator's shards have."""
        raise NotImplementedError(f"{shard!r} wants {effect!r}")

    # What happens around

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """Another broker leads the partition, or in another epoch, or it is not here any more, or none of
        these."""
        if topic_partition.topic != self.topic.name:
            return
        number = topic_partition.partition
        partition = self._replicas.partitions.get(topic_partition)
        if partition is not None and not partition.is_leader:
            partition = None
        shard = self._shards.get(number)
        if shard is not None and (partition is None or partition.leader_epoch != shard.leader_epoch):
            del self._shards[number]
            logger.debug(
                "unloading the %s of %s in leader epoch %d",
                self._contents,
                topic_partition,
                shard.leader_epoch,
            )
            shard.close()
            shard = None
        if shard is None and partition is not None:
            self._begin(partition)

    def _begin(self, partition: Partition, *, pause_ms: int = 0) -> None:
        topic_partition = partition.topic_partition
        shard = hosted_shard.HostedShard(
            self._new_shard(),
            self._new_log(topic_partition),
            leader_epoch=partition.leader_epoch,
            purgatory_of=self._purgatory_of,
            do_other=self._do_other,
            clock=self._clock,
            broken=lambda: self._begin(partition, pause_ms=RELOAD_PAUSE_MS),
        )
        self._shards[topic_partition.partition] = shard
        load = partial(self._load, partition, shard, pause_ms, self._clock.monotonic_ms())
        self._supervisor.start(f"load-{topic_partition}", load)

    async def _load(self, partition: Partition, shard: HostedShard[S], pause_ms: int, began_ms: int) -> None:
        await asyncio.sleep(pause_ms / 1000)
        load = CoordinatorLoad(
            partition,
            self._replay(shard.shard),
            log_io=self._log_io,
            clock=self._clock,
            buffer_bytes=self._load_buffer_bytes,
            is_wanted=lambda: shard.state is hosted_shard.ShardState.LOADING,
        )
        try:
            loaded = await load.run()
            if loaded is not None:
                await self._until_ready(shard, loaded.end_offset)
        except KafkaError as error:
            if shard.state is hosted_shard.ShardState.LOADING:
                logger.error(
                    "the %s of %s cannot be loaded: %s", self._contents, partition.topic_partition, error
                )
                shard.fail()
            return
        except Exception:  # our bug, which the supervisor logs; else clients were told to wait for ever
            if shard.state is hosted_shard.ShardState.LOADING:
                shard.fail()
            raise
        if loaded is None or shard.state is not hosted_shard.ShardState.LOADING:
            return
        shard.activate()
        ended_ms = self._clock.monotonic_ms()
        self._load_time.record(ended_ms - began_ms, ended_ms)
        logger.log(
            logging.INFO if loaded.records or loaded.damaged else logging.DEBUG,
            "loaded the %s of %s up to offset %d in leader epoch %d: %d records in %d ms, %d damaged",
            self._contents,
            partition.topic_partition,
            loaded.end_offset,
            shard.leader_epoch,
            loaded.records,
            ended_ms - began_ms,
            loaded.damaged,
        )
