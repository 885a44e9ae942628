"""The share coordinator of this broker: a ``CoordinatorService`` over ``__share_group_state``.

Kafka: ``ShareCoordinatorService`` (KIP-932). The topic is not compacted: what later snapshots have made
redundant at its start is deleted now and then, for which snapshots of what has not changed for long are
written again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from minikafka.config.broker import BrokerConfig
from minikafka.coordination.paths import uuid_to_text
from minikafka.coordinator.share.messages import (
    SharePartitionError,
    SharePartitionState,
    SharePartitionSummary,
    WriteShareState,
)
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError
from minikafka.metrics.registry import Sensor
from minikafka.protocol.records.compression import CompressionType
from minikafka.purgatory.purgatory import DelayedOperationPurgatory
from minikafka.purgatory.timing_wheel import Timer
from minikafka.server.coordinator.service import CoordinatorService
from minikafka.server.coordinator.topic import CoordinatorLog, CoordinatorTopic
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.supervisor import Restart, Supervisor
from minikafka.types import Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.coordinator.share import shard as share_shard
    from minikafka.coordinator.share.shard import ShareShard
    from minikafka.protocol.internal import share_record_codec
    from minikafka.server.coordinator import hosted_shard
    from minikafka.server.coordinator.hosted_shard import Purgatory
else:
    hosted_shard = deferred("minikafka.server.coordinator.hosted_shard")
    share_record_codec = deferred("minikafka.protocol.internal.share_record_codec")
    share_shard = deferred("minikafka.coordinator.share.shard")


def share_key(group_id: str, topic_id: UUID, partition: int) -> str:
    """What FindCoordinator is asked for, and what partitions of the topic are chosen by
    (``SharePartitionKey.asCoordinatorKey``); the id as Kafka prints it."""
    return f"{group_id}:{uuid_to_text(topic_id)}:{partition}"


class Operation(Enum):
    """What a share coordinator is asked: the method of its shards, and what each partition is answered."""

    INITIALIZE = ("initialize", SharePartitionError)
    READ = ("read", SharePartitionState)
    WRITE = ("write", SharePartitionError)
    DELETE = ("delete", SharePartitionError)
    READ_SUMMARY = ("read_summary", SharePartitionSummary)

    def failed(self, asked: Any, error: KafkaError) -> Any:
        """The answer for a partition that is not answered otherwise."""
        return self.value[1](asked.topic_id, asked.partition, error)


class BrokerShareSettings:
    """A ``ShareCoordinatorSettings``. None of the properties here changes while the broker runs."""

    def __init__(self, config: BrokerConfig) -> None:
        self.snapshot_update_records = config.share_coordinator_snapshot_update_records_per_snapshot
        self.cold_snapshot_interval_ms = config.share_coordinator_cold_partition_snapshot_interval_ms


class ShareReplay:
    """What a load reads, as calls of a ``ShareShard``."""

    def __init__(self, shard: ShareShard) -> None:
        self._shard = shard

    def record(self, key: bytes, value: bytes | None, now_ms: int, *, offset: int, producer_id: int) -> None:
        try:
            record = share_record_codec.decode_record(key, value)
        except share_record_codec.UnreadableShareRecord as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        self._shard.replay(record, offset)

    def marker(self, producer_id: int, *, committed: bool) -> None:
        """Nothing: no transaction writes to this topic."""


class ShareService(CoordinatorService["ShareShard"]):
    """See the module header."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replicas: ReplicaManager,
        topic: CoordinatorTopic,
        timer: Timer,
        log_io: LogIo,
        supervisor: Supervisor,
        load_time: Sensor,
        write_latency: Sensor,
    ) -> None:
        """``write_latency``: milliseconds, of each request to write."""
        self.writes = 0
        """Of states of partitions, by their leaders."""
        self._config = config
        self._write_latency = write_latency
        self._pruned: dict[int, Offset] = {}
        parked: Purgatory = DelayedOperationPurgatory("Share", timer)
        settings = BrokerShareSettings(config)
        super().__init__(
            contents="share group states",
            replicas=replicas,
            topic=topic,
            new_shard=lambda: share_shard.ShareShard(settings=settings, has_partition=self._has_partition),
            replay=ShareReplay,
            new_log=lambda topic_partition: CoordinatorLog(
                replicas,
                topic_partition,
                encode=share_record_codec.encode_record,
                compression=CompressionType(config.share_coordinator_state_topic_compression_codec),
                timeout_ms=config.share_coordinator_write_timeout_ms,
            ),
            purgatory_of=lambda operation: parked,
            load_buffer_bytes=config.share_coordinator_load_buffer_size,
            log_io=log_io,
            supervisor=supervisor,
            load_time=load_time,
        )

    def start(self) -> None:
        """Follow leadership from now on, and keep the topic short."""
        self._replicas.add_leadership_listener(self.leadership_changed)
        start = self._supervisor.start
        start("share-state-pruning", self._prune_now_and_then, restart=Restart.ALWAYS)
        start("share-state-snapshots", self._snapshot_cold, restart=Restart.ALWAYS)

    async def answer(self, operation: Operation, group_id: str, partitions: Sequence[Any]) -> list[Any]:
        """``operation`` of each of ``partitions``, answered in their order when it is safe. What is not
        coordinated here is NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS."""
        began_ms = self._clock.monotonic_ms()
        if operation is Operation.WRITE:
            self.writes += len(partitions)
        by_shard: dict[int, list[int]] = defaultdict(list)
        for index, asked in enumerate(partitions):
            key = share_key(group_id, asked.topic_id, asked.partition)
            by_shard[self.topic.partition_for(key)].append(index)
        answers: list[Any] = [None] * len(partitions)
        for indexes, answered in [
            (indexes, self._ask(number, operation, group_id, [partitions[index] for index in indexes]))
            for number, indexes in by_shard.items()
        ]:
            result = await answered
            for place, index in enumerate(indexes):
                failed = isinstance(result, KafkaError)
                answers[index] = operation.failed(partitions[index], result) if failed else result[place]
        if operation is Operation.WRITE:
            now_ms = self._clock.monotonic_ms()
            self._write_latency.record(now_ms - began_ms, now_ms)
        return answers

    def write(
        self, key: str, group_id: str, write: WriteShareState, answer: Callable[[SharePartitionError], None]
    ) -> None:
        """``answer`` for one state, of the share key ``key``, that a leader on this broker writes."""
        began_ms = self._clock.monotonic_ms()
        self.writes += 1

        def answered(result: Any) -> None:
            now_ms = self._clock.monotonic_ms()
            self._write_latency.record(now_ms - began_ms, now_ms)
            failed = isinstance(result, KafkaError)
            answer(Operation.WRITE.failed(write, result) if failed else result[0])

        self.ask(
            key,
            lambda shard, ticket, now_ms: shard.write(group_id, (write,), ticket, now_ms),
            hosted_shard.RequestTicket(answered),
        )

    def _ask(
        self, number: int, operation: Operation, group_id: str, partitions: Sequence[Any]
    ) -> asyncio.Future[Any]:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answer(result: Any) -> None:
            if not answered.done():
                answered.set_result(result)

        name, _ = operation.value
        self.ask_partition(
            number,
            lambda shard, ticket, now_ms: getattr(shard, name)(group_id, partitions, ticket, now_ms),
            hosted_shard.RequestTicket(answer),
        )
        return answered

    def pruned(self) -> list[tuple[TopicPartition, Offset]]:
        """The partitions of the topic that are coordinated here, each with the offset below which it was last
        pruned; those that were not since the broker started are left out."""
        return [
            (TopicPartition(self.topic.name, number), offset)
            for number, offset in sorted(self._pruned.items())
            if number in self._shards
        ]

    def topics_deleted(self, topic_ids: Collection[UUID]) -> None:
        """Forget the states of topics that are gone."""
        for shard in self.hosted_shards():
            shard.tell(lambda states, now_ms: states.topics_deleted(topic_ids))

    def _has_partition(self, topic_id: UUID, partition: int) -> bool:
        topic = self._replicas.metadata.topic_by_id(topic_id)
        return topic is not None and partition < len(topic.partitions)

    async def _prune_now_and_then(self) -> None:
        interval_ms = self._config.share_coordinator_state_topic_prune_interval_ms
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for number, shard in list(self._shards.items()):
                self._prune(number, shard.shard.redundant_offset())
                await asyncio.sleep(0)

    def _prune(self, number: int, redundant_offset: int | None) -> None:
        at = TopicPartition(self.topic.name, number)
        partition = self._replicas.partitions.get(at)
        if redundant_offset is None or partition is None or not partition.is_leader:
            return
        offset = Offset(min(redundant_offset, partition.log.high_watermark))
        if offset > partition.log.log_start_offset:
            self._replicas.delete_records(at, offset)
            self._pruned[number] = offset

    async def _snapshot_cold(self) -> None:
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for shard in self.hosted_shards():
                shard.tell(lambda states, now_ms: states.snapshot_cold(now_ms))
                await asyncio.sleep(0)
