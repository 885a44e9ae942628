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

**The topic** (``CoordinatorTopic``): which partition an id belongs to, who leads that, how it is made. Kafka:
``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``,
``KafkaApis.getCoordinator``, ``AutoTopicCreationManager``. The topics are ``__consumer_offsets``,
``__transaction_state`` and ``__share_group_state``. One is made when a coordinator of its kind is asked for
the first time. A group, a transactional id or a share partition belongs to the partition that the Java hash
of its id says, and to the broker that leads it.

Where it differs from Kafka:
- the first question is answered when the topic is there, as Metadata answers; Kafka answers
  COORDINATOR_NOT_AVAILABLE at once and lets the client ask again;
- with ``offsets.topic.replication.factor``, ``transaction.state.log.replication.factor`` or
  ``share.coordinator.state.topic.replication.factor`` unset its topic gets as many replicas as there are
  brokers, up to 3, and a line in the log when these are fewer, so that a single broker works as it is.
  Kafka's is 3, and clients of a cluster of one or two wait for ever unless it is set. Where it is set, so do
  they here.

**Writing** as a shard does: records in, and whether they are safe. Kafka: ``CoordinatorPartitionWriter``,
``TransactionStateManager.appendTransactionToLog``. A write is a produce with acks=-1: it is in the leader's
log at once, and committed when the high watermark has passed it (KAFKA_BEHAVIOUR: purgatory 11,
``when_committed``). It waits for that for a time that the shard says, or the coordinator's properties.

Where it differs from Kafka: there a shard of the group coordinator collects what it writes for
``group.coordinator.append.linger.ms``; here each call of a shard is a batch of its own, as it was in the
coordinator before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.coordinator.effects import BatchOfTransaction
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.log.producers.append import BY_COORDINATOR, AppendOrigin, AppendTerms, VerificationGuard
from minikafka.log.segment.fetch_data import ColdRead, FetchIsolation
from minikafka.metrics.coordinator_names import LOAD_TIME_AVG, LOAD_TIME_MAX
from minikafka.metrics.sensors import Avg, Max, MetricName, Metrics, Sensor, WindowConfig
from minikafka.metrics.series import Sample, Series
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.protocol.records.compression import CompressionType, CorruptBatch
from minikafka.protocol.records.records import (
    ControlRecordType,
    Record,
    build_batch,
    iterate_records,
    marker_batch,
    read_end_transaction_marker,
)
from minikafka.server.cluster.metadata_cache import BrokerEndpoints, MetadataCache
from minikafka.server.cluster.topic_validation import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from minikafka.server.replica.delayed_operations import Settled, when_committed
from minikafka.server.replica.partition import Partition
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.server.runtime.java_hash import java_abs, string_hash
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.topic_service import AUTO_CREATE_TIMEOUT_MS, TopicService
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer, Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.server.coordinator import hosted_shard
    from minikafka.server.coordinator.hosted_shard import (
        CoordinatorShard,
        HostedShard,
        PurgatoryOf,
        RequestTicket,
        TicketCall,
    )
else:
    hosted_shard = deferred("minikafka.server.coordinator.hosted_shard")


logger = logging.getLogger(__name__)

RELOAD_PAUSE_MS = 1_000
"""Before a shard in which something went wrong is loaded again: a bug that comes back at once must not take
all of the broker's time. Its clients hear COORDINATOR_LOAD_IN_PROGRESS, and ask again."""

S = TypeVar("S", bound="CoordinatorShard")

R = TypeVar("R")

Encode = Callable[[R], tuple[bytes, bytes | None]]
"""Key and value of a record."""

_IDS_REMEMBERED = 10_000
"""Hashing an id of 20 characters takes 3 µs, which every heartbeat would pay."""


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
        brought: ColdRead | None = None
        while True:
            try:
                return self._partition.log.read(
                    position,
                    max_bytes=self._buffer_bytes,
                    min_one_message=True,
                    isolation=FetchIsolation.LOG_END,
                    brought=brought,
                ).records
            except ColdRead as cold:
                brought = await self._log_io.warmed(cold)
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

    def ask(self, key: str | int, call: TicketCall[S], ticket: RequestTicket) -> None:
        """Have the shard of ``key`` do ``call``, which answers ``ticket`` now or later. ``key`` is a group or
        a transactional id, or the number of a partition of the topic, for what is about that as a whole. An
        error is an answer: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what ``call`` raises."""
        number = key if isinstance(key, int) else self.topic.partition_for(key)
        shard = self._shards.get(number)
        ticket = self._checked(ticket, number, shard)
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

    def _checked(self, ticket: RequestTicket, number: int, shard: HostedShard[S] | None) -> RequestTicket:
        """What stands for the request of ``ticket`` in ``shard``, of the partition ``number``, where answers
        are looked at before they are given."""
        return ticket

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


class CoordinatorLog(Generic[R]):
    """See the module header."""

    def __init__(
        self,
        replicas: ReplicaManager,
        topic_partition: TopicPartition,
        *,
        encode: Encode[R],
        compression: CompressionType,
        timeout_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self._replicas = replicas
        self._encode = encode
        self._compression = compression
        self._timeout_ms = timeout_ms

    def __repr__(self) -> str:
        return f"CoordinatorLog({self.topic_partition})"

    def append(
        self, records: Iterable[R], *, now_ms: int, transaction: BatchOfTransaction | None = None
    ) -> Offset:
        """Write ``records``, or a marker, as one batch. Returns the offset behind it, for ``when_committed``.

        Raises:
            KafkaError: the log's own (MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER, …).
        """
        terms = BY_COORDINATOR
        if transaction is not None:
            guard = transaction.verification_guard
            assert guard is None or isinstance(guard, VerificationGuard)
            terms = AppendTerms(AppendOrigin.COORDINATOR, guard, transaction.transaction_version)
        batch = self._batch(records, now_ms, transaction)
        info = self._replicas.append(self.topic_partition, batch, required_acks=-1, terms=terms)
        return Offset(info.last_offset + 1)

    def _batch(self, records: Iterable[R], now_ms: int, transaction: BatchOfTransaction | None) -> bytes:
        if transaction is not None and transaction.marker is not None:
            return marker_batch(
                transaction.marker,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                timestamp_ms=now_ms,
            )
        return build_batch(
            (Record(index, now_ms, *self._encode(record), ()) for index, record in enumerate(records)),
            compression=self._compression,
            producer_id=NO_PRODUCER_ID if transaction is None else transaction.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if transaction is None else transaction.producer_epoch,
            transactional=transaction is not None,
        )

    def when_committed(
        self, required_offset: Offset, settled: Settled, *, timeout_ms: int | None = None
    ) -> None:
        """Call ``settled`` when all below ``required_offset`` is committed, or will not be in time; that may
        be now."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        when_committed(self._replicas, self.topic_partition, required_offset, settled, timeout_ms=timeout_ms)


class TopicPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a coordinator's topic is to be when it is made."""

    name: str
    partitions: int
    replication_factor: int
    replication_factor_property: str
    """Whether it is set decides if fewer brokers will do."""
    configs: Mapping[str, str]


def offsets_topic(config: BrokerConfig) -> TopicPlan:
    """``__consumer_offsets`` (``GroupCoordinatorService.groupMetadataTopicConfigs``)."""
    return TopicPlan(
        name=GROUP_METADATA_TOPIC,
        partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        replication_factor_property="offsets.topic.replication.factor",
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def transaction_state_topic(config: BrokerConfig) -> TopicPlan:
    """``__transaction_state`` (``TransactionStateManager.transactionTopicConfigs``)."""
    return TopicPlan(
        name=TRANSACTION_STATE_TOPIC,
        partitions=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor,
        replication_factor_property="transaction.state.log.replication.factor",
        configs={
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        },
    )


def share_group_state_topic(config: BrokerConfig) -> TopicPlan:
    """``__share_group_state`` (``ShareCoordinatorService.shareGroupStateTopicConfigs``)."""
    return TopicPlan(
        name=SHARE_GROUP_STATE_TOPIC,
        partitions=config.share_coordinator_state_topic_num_partitions,
        replication_factor=config.share_coordinator_state_topic_replication_factor,
        replication_factor_property="share.coordinator.state.topic.replication.factor",
        configs={
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            "retention.ms": "-1",
        },
    )


class CoordinatorTopic:
    """See the module header."""

    def __init__(
        self, plan: TopicPlan, *, config: BrokerConfig, metadata: MetadataCache, topics: TopicService
    ) -> None:
        self.name = plan.name
        self._plan = plan
        self._config = config
        self._metadata = metadata
        self._topics = topics
        self._warned = ""

    def __repr__(self) -> str:
        return f"CoordinatorTopic({self.name})"

    def partition_for(self, key: str) -> int:
        """The number of the partition that keeps a group or a transactional id."""
        topic = self._metadata.topic(self.name)
        count = self._plan.partitions if topic is None else len(topic.partitions)
        return _key_hash(key) % count

    def coordinator(self, key: str) -> BrokerEndpoints:
        """The live broker that leads the partition of ``key``.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE: no broker does, as far as this one knows.
        """
        partition = self._metadata.partition(TopicPartition(self.name, self.partition_for(key)))
        broker = None if partition is None else self._metadata.broker(partition.leader)
        if broker is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        return broker

    @property
    def is_there(self) -> bool:
        return self._metadata.topic(self.name) is not None

    async def create(self) -> None:
        """Make the topic, and wait until its partitions are led; a failure is logged, for the asker is told
        that there is no coordinator yet."""
        try:
            await self._topics.create_topic(
                self.name,
                partitions=self._plan.partitions,
                replication_factor=self._replication_factor(),
                configs=dict(self._plan.configs),
            )
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                self._warn_once(f"{self.name} cannot be made yet: {error}")
                return
        try:
            await self._topics.wait_for_leaders(self.name, partitions=1, timeout_ms=AUTO_CREATE_TIMEOUT_MS)
        except KafkaError as error:
            self._warn_once(str(error))

    def _warn_once(self, warning: str) -> None:
        """Once: clients ask ten times a second."""
        if warning != self._warned:
            self._warned = warning
            logger.warning("%s", warning)

    def _replication_factor(self) -> int:
        wanted, property_name = self._plan.replication_factor, self._plan.replication_factor_property
        if property_name in self._config.static_properties():
            return wanted
        live = len(self._metadata.brokers())
        if live < wanted:
            self._warn_once(
                f"{self.name} gets {live} replicas: only so many brokers are there, and "
                f"{property_name} is not set"
            )
        return min(wanted, live)


@lru_cache(maxsize=_IDS_REMEMBERED)
def _key_hash(key: str) -> int:
    return java_abs(string_hash(key))
