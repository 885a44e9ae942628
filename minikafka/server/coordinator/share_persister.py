"""Where leaders of partitions and the group coordinator keep the state of share partitions: a client of the
share coordinators.

Kafka: ``DefaultStatePersister``, ``PersisterStateManager`` (KIP-932). The broker that coordinates a share
partition is known from the metadata; this broker's own coordinator is asked without the wire. What one call
asks of the same broker is one request. A coordinator that is moving or cannot be reached is asked again for
``PATIENCE_MS``, with pauses that double; what then is missing is COORDINATOR_NOT_AVAILABLE. The first
question makes the topic.

Where it differs from Kafka: its pauses begin at a second. A write that is asked again may be written twice,
which changes nothing: see ``combine_batches``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from minikafka.config.broker import BrokerConfig
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
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.broker_connection import Connect
from minikafka.server.coordinator.share_service import Operation, ShareService, share_key
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.types import NO_LEADER, BrokerId

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
_API_KEYS: Final = {
    Operation.INITIALIZE: ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    Operation.READ: ApiKey.READ_SHARE_GROUP_STATE,
    Operation.WRITE: ApiKey.WRITE_SHARE_GROUP_STATE,
    Operation.DELETE: ApiKey.DELETE_SHARE_GROUP_STATE,
    Operation.READ_SUMMARY: ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
}


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
