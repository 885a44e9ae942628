"""The share coordinator of this broker, and how state of share partitions reaches whichever broker keeps it.

``ShareService`` is a ``CoordinatorService`` over ``__share_group_state``. Kafka: ``ShareCoordinatorService``
(KIP-932). The topic is not compacted: what later snapshots have made redundant at its start is deleted now
and then, for which snapshots of what has not changed for long are written again.

``StatePersister`` is a client of all share coordinators, for leaders of partitions and the group coordinator.
Kafka: ``DefaultStatePersister``, ``PersisterStateManager``. The broker that coordinates a share partition is
known from the metadata; this broker's own coordinator is asked without the wire. What one call asks of the
same broker is one request. A coordinator that is moving or cannot be reached is asked again for
``PATIENCE_MS``, with pauses that double; what then is missing is COORDINATOR_NOT_AVAILABLE. The first
question makes the topic. Where it differs from Kafka: its pauses begin at a second. A write that is asked
again may be written twice, which changes nothing: see ``combine_batches``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from minikafka.config.broker import BrokerConfig
from minikafka.coordination.paths import uuid_to_text
from minikafka.coordinator.share.messages import (
    InitializeShareState,
    ReadShareState,
    SharePartitionError,
    SharePartitionState,
    SharePartitionSummary,
    StateBatch,
    TopicIdPartition,
    WriteShareState,
)
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.metrics.sensors import Sensor
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.purgatory import DelayedOperationPurgatory, Timer
from minikafka.server.cluster.broker_connection import Connect
from minikafka.server.coordinator.service import CoordinatorLog, CoordinatorService, CoordinatorTopic
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.event_loop import Restart, Supervisor
from minikafka.server.runtime.log_io import LogIo
from minikafka.types import NO_LEADER, BrokerId, Offset, TopicPartition

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

logger = logging.getLogger(__name__)

PATIENCE_MS: Final = 15_000
"""As long as Kafka's five attempts take (``MAX_FIND_COORD_ATTEMPTS``); consumers wait for 30 s."""
PAUSE_MS: Final = 20
PAUSE_MAX_MS: Final = 1_000

_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


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


_API_KEYS: Final = {
    Operation.INITIALIZE: ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    Operation.READ: ApiKey.READ_SHARE_GROUP_STATE,
    Operation.WRITE: ApiKey.WRITE_SHARE_GROUP_STATE,
    Operation.DELETE: ApiKey.DELETE_SHARE_GROUP_STATE,
    Operation.READ_SUMMARY: ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
}


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
        self.ask(
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


class StatePersister:
    """A ``SharePersister``; see the module header."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        replicas: ReplicaManager,
        service: ShareService,
        connect: Connect,
    ) -> None:
        """``service`` is this broker's own share coordinator."""
        self._config = config
        self._replicas = replicas
        self._service = service
        self._connect = connect
        self._peers: dict[BrokerId, _Peer] = {}

    def __repr__(self) -> str:
        return f"StatePersister({len(self._peers)} other brokers)"

    async def close(self) -> None:
        """Drop the connections to other brokers."""
        for peer in self._peers.values():
            await peer.close()

    async def initialize_state(
        self, group_id: str, partitions: Sequence[InitializeShareState]
    ) -> list[SharePartitionError]:
        return await self._ask(Operation.INITIALIZE, group_id, partitions)

    async def read_state(
        self, group_id: str, partitions: Sequence[ReadShareState]
    ) -> list[SharePartitionState]:
        return await self._ask(Operation.READ, group_id, partitions)

    def write_here(
        self, group_id: str, write: WriteShareState, answer: Callable[[SharePartitionError], None]
    ) -> bool:
        key = share_key(group_id, write.topic_id, write.partition)
        try:
            is_here = self._service.topic.coordinator(key).node_id == self._replicas.node_id
        except KafkaError:
            return False
        if is_here:
            self._service.write(key, group_id, write, answer)
        return is_here

    async def write_state(
        self, group_id: str, partitions: Sequence[WriteShareState]
    ) -> list[SharePartitionError]:
        return await self._ask(Operation.WRITE, group_id, partitions)

    async def delete_state(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> list[SharePartitionError]:
        return await self._ask(Operation.DELETE, group_id, partitions)

    async def read_summary(
        self, group_id: str, partitions: Sequence[ReadShareState]
    ) -> list[SharePartitionSummary]:
        return await self._ask(Operation.READ_SUMMARY, group_id, partitions)

    async def _ask(self, operation: Operation, group_id: str, partitions: Sequence[Any]) -> list[Any]:
        clock = self._replicas.clock
        deadline_ms = clock.monotonic_ms() + PATIENCE_MS
        pause_ms = PAUSE_MS
        answers: list[Any] = [None] * len(partitions)
        missing = list(range(len(partitions)))
        while True:
            found = await self._ask_once(operation, group_id, [partitions[index] for index in missing])
            for index, answer in zip(missing, found, strict=True):
                answers[index] = answer
            missing = [
                index
                for index in missing
                if answers[index].error is not None and answers[index].error.code in _AGAIN
            ]
            if not missing or clock.monotonic_ms() >= deadline_ms:
                return answers
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, PAUSE_MAX_MS)

    async def _ask_once(self, operation: Operation, group_id: str, partitions: Sequence[Any]) -> list[Any]:
        topic = self._service.topic
        if partitions and not topic.is_there:
            await topic.create()
        by_broker: dict[BrokerId, list[int]] = defaultdict(list)
        for index, asked in enumerate(partitions):
            try:
                node_id = topic.coordinator(share_key(group_id, asked.topic_id, asked.partition)).node_id
            except KafkaError:
                node_id = NO_LEADER
            by_broker[node_id].append(index)
        answers: list[Any] = [None] * len(partitions)

        async def ask(node_id: BrokerId, indexes: Sequence[int]) -> None:
            asked = [partitions[index] for index in indexes]
            for index, answer in zip(
                indexes, await self._ask_broker(node_id, operation, group_id, asked), strict=True
            ):
                answers[index] = answer

        if len(by_broker) == 1:  # nearly always
            await ask(*by_broker.popitem())
        else:
            async with asyncio.TaskGroup() as asking:
                for node_id, indexes in by_broker.items():
                    asking.create_task(ask(node_id, indexes))
        return answers

    async def _ask_broker(
        self, node_id: BrokerId, operation: Operation, group_id: str, asked: Sequence[Any]
    ) -> list[Any]:
        if node_id == self._replicas.node_id:
            return await self._service.answer(operation, group_id, asked)
        try:
            if node_id == NO_LEADER:
                raise BrokerUnavailable("the share coordinator has no leader")
            peer = self._peers.get(node_id)
            if peer is None:
                peer = self._peers[node_id] = _Peer(
                    f"broker-{self._replicas.node_id}-share-persister", self._connect
                )
            broker = self._replicas.metadata.broker(node_id)
            address = None if broker is None else broker.endpoint(self._config().inter_broker_listener())
            body = {"group_id": group_id, "topics": _topics(asked)}
            timeout_ms = self._config().request_timeout_ms
            answer = await peer.request(address, _API_KEYS[operation], body, timeout_ms=timeout_ms)
        except (BrokerUnavailable, PeerProtocolError) as error:
            logger.debug("no answer from the share coordinator on broker %d: %s", node_id, error)
            failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
            return [operation.failed(each, failure) for each in asked]
        except KafkaError as error:  # UNSUPPORTED_VERSION, of a broker that is being upgraded
            return [operation.failed(each, error) for each in asked]
        found = {
            (topic.topic_id, partition.partition): _answer(operation, topic.topic_id, partition)
            for topic in answer.results
            for partition in topic.partitions
        }
        unanswered = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The share coordinator did not answer.")
        return [
            found.get((each.topic_id, each.partition)) or operation.failed(each, unanswered) for each in asked
        ]


class _Peer:
    """A connection to another broker, over which requests follow each other without waiting."""

    def __init__(self, client_id: str, connect: Connect) -> None:
        self._client_id = client_id
        self._connect = connect
        self._client: BrokerClient | None = None
        self._address: tuple[str, int] | None = None
        self._connecting = asyncio.Lock()

    async def request(
        self, address: tuple[str, int] | None, api_key: ApiKey, body: Any, *, timeout_ms: int
    ) -> Any:
        """Raises BrokerUnavailable, PeerProtocolError, KafkaError (UNSUPPORTED_VERSION)."""
        if address is None:
            raise BrokerUnavailable("the broker is not there, or not on the inter-broker listener")
        async with self._connecting:
            if self._client is None or address != self._address or not self._client.is_connected:
                await self.close()
                self._client = await self._connect(
                    *address, client_id=self._client_id, deadline_ms=timeout_ms
                )
                self._address = address
            client = self._client
        return await client.request(api_key, body, deadline_ms=timeout_ms)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _topics(asked: Sequence[Any]) -> list[dict[str, Any]]:
    by_topic: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for each in asked:
        fields = each._asdict()
        if "batches" in fields:
            fields["state_batches"] = [batch._asdict() for batch in fields.pop("batches")]
        by_topic[fields.pop("topic_id")].append(fields)
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in by_topic.items()]


def _answer(operation: Operation, topic_id: Any, partition: Any) -> Any:
    error = None
    if partition.error_code:
        error = KafkaError(ErrorCode(partition.error_code), partition.error_message or "")
    if operation is Operation.READ:
        batches = tuple(StateBatch(*batch) for batch in partition.state_batches)
        return SharePartitionState(
            topic_id, partition.partition, error, partition.state_epoch, partition.start_offset, batches
        )
    if operation is Operation.READ_SUMMARY:
        return SharePartitionSummary(
            topic_id,
            partition.partition,
            error,
            partition.state_epoch,
            partition.leader_epoch,
            partition.start_offset,
            partition.delivery_complete_count,
        )
    return SharePartitionError(topic_id, partition.partition, error)
