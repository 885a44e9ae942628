"""From the transaction coordinator to the leaders of partitions: how transactions have ended.

Kafka: ``TransactionMarkerChannelManager``, ``TransactionMarkerRequestCompletionHandler``. Each broker has a
channel: what waits for it leaves as one WriteTxnMarkers, and what comes meanwhile as the next. The
coordinator's own broker writes its markers without a request. What became of each partition is told to the
shard that wanted the marker, which says what to send again; that leaves after a pause, to the leader of
that time.

- A partition whose leader is not alive waits here until it has one.
- A partition that there is not was deleted, and its transaction with it: its marker counts as written.
- A broker that does not answer may have written the markers all the same: they are written again, which does
  no harm.
- Markers of a shard that is closed are dropped: the next coordinator finds in the log what is to be done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import Body
from minikafka.server.cluster.broker_connection import BrokerConnection, Connect
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.runtime.supervisor import Supervisor
from minikafka.types import BrokerId, TopicPartition, joined

if TYPE_CHECKING:
    from minikafka.coordinator.transaction.messages import WriteMarkers
    from minikafka.coordinator.transaction.shard import TransactionShard
    from minikafka.server.coordinator import hosted_shard
    from minikafka.server.coordinator.hosted_shard import HostedShard
else:
    hosted_shard = deferred("minikafka.server.coordinator.hosted_shard")

logger = logging.getLogger(__name__)

RETRY_PAUSE_MS = 100
"""Before what failed is sent again. Kafka sends it with its next round, and waits 50 ms before it connects to
a broker again; a pause here keeps a coordinator from asking a leader that is not ready as fast as it can."""

Errors = Mapping[TopicPartition, ErrorCode]

CoordinatorMarkers = Sequence[tuple[int, "WriteMarkers"]]
"""Markers, each with the leader epoch of its transaction's partition."""

WrittenMarkers = Mapping[tuple[int, TopicPartition], ErrorCode]
"""What became of each, by producer id and partition."""

SendMarkers = Callable[[CoordinatorMarkers], Awaitable[WrittenMarkers]]
"""Have the leader of the markers' partitions write them: this broker or another one."""


class WantedMarkers(NamedTuple):
    """Markers of one transaction for partitions that one broker leads."""

    shard: HostedShard[TransactionShard]
    markers: WriteMarkers

    @property
    def is_wanted(self) -> bool:
        return self.shard.state is hosted_shard.ShardState.ACTIVE

    def tell(self, errors: Errors) -> None:
        """Tell the shard what became of them."""
        self.shard.tell(
            lambda transactions, now_ms: transactions.markers_written(self.markers, errors, now_ms)
        )


class MarkerChannel:
    """What is to be written by one broker, in order. A task runs while something waits."""

    def __init__(
        self,
        node_id: BrokerId,
        send: SendMarkers,
        *,
        supervisor: Supervisor,
    ) -> None:
        self._node_id = node_id
        self._send = send
        self._supervisor = supervisor
        self._queue: list[WantedMarkers] = []
        self._is_running = False
        self._failing = False

    def __repr__(self) -> str:
        return f"MarkerChannel(broker {self._node_id}, {len(self._queue)} waiting)"

    def enqueue(self, wanted: WantedMarkers) -> None:
        self._queue.append(wanted)
        if not self._is_running:
            self._is_running = True
            self._supervisor.start(f"markers-to-broker-{self._node_id}", self._run)

    async def _run(self) -> None:
        try:
            while self._queue:
                queue, self._queue = self._queue, []
                wanted = [each for each in queue if each.is_wanted]
                if wanted:
                    await self._deliver(wanted)
        finally:
            self._is_running = False

    async def _deliver(self, wanted: Sequence[WantedMarkers]) -> None:
        try:
            written = await self._send([(each.shard.leader_epoch, each.markers) for each in wanted])
        except (BrokerUnavailable, PeerProtocolError, KafkaError) as error:
            if not self._failing:
                self._failing = True
                logger.warning("broker %d does not take markers of transactions: %s", self._node_id, error)
            written = {}
        except Exception:  # our bug: transactions would never end for it, so they are tried again
            logger.exception("markers for broker %d could not be sent", self._node_id)
            written = {}
        else:
            if self._failing:
                self._failing = False
                logger.info("broker %d takes markers of transactions again", self._node_id)
        for each in wanted:
            producer_id = each.markers.producer_id
            each.tell(
                {
                    partition: written.get((producer_id, partition), ErrorCode.REQUEST_TIMED_OUT)
                    for partition in each.markers.partitions
                }
            )


class TransactionMarkerChannels:
    """See the module header."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        metadata: MetadataCache,
        supervisor: Supervisor,
        listener_name: str,
        timeout_ms: int,
        connect: Connect,
        write_here: SendMarkers,
    ) -> None:
        """``listener_name`` is the one that brokers use among themselves."""
        self._node_id = node_id
        self._metadata = metadata
        self._supervisor = supervisor
        self._listener_name = listener_name
        self._timeout_ms = timeout_ms
        self._connect = connect
        self._write_here = write_here
        self._channels: dict[BrokerId, MarkerChannel] = {}
        self._without_leader: list[WantedMarkers] = []

    def __repr__(self) -> str:
        channels = list(self._channels.values())
        return f"TransactionMarkerChannels({channels}, {self.without_leader} without a leader)"

    @property
    def without_leader(self) -> int:
        """How many wait for a partition to have a leader (``UnknownDestinationQueueSize``)."""
        return len(self._without_leader)

    def write(self, shard: HostedShard[TransactionShard], markers: WriteMarkers) -> None:
        """Send markers; those that failed before after a pause."""
        wanted = WantedMarkers(shard, markers)
        if markers.attempt:
            asyncio.get_running_loop().call_later(RETRY_PAUSE_MS / 1000, self._route, wanted)
        else:
            self._route(wanted)

    def _route(self, wanted: WantedMarkers) -> None:
        """To the channels of the partitions' leaders."""
        if not wanted.is_wanted:
            return
        by_leader: dict[BrokerId | None, list[TopicPartition]] = {}
        gone: dict[TopicPartition, ErrorCode] = {}
        for partition in wanted.markers.partitions:
            known = self._metadata.partition(partition)
            if known is None:
                gone[partition] = ErrorCode.NONE
            else:
                leader = known.leader if self._metadata.is_alive(known.leader) else None
                by_leader.setdefault(leader, []).append(partition)
        for leader, partitions in by_leader.items():
            part = wanted._replace(markers=wanted.markers._replace(partitions=tuple(partitions)))
            if leader is None:
                self._wait_for_leader(part)
            else:
                self._channel(leader).enqueue(part)
        if gone:
            logger.info("partitions of a transaction are not there any more: %s", joined(gone))
            wanted.tell(gone)

    def _wait_for_leader(self, wanted: WantedMarkers) -> None:
        if not self._without_leader:
            asyncio.get_running_loop().call_later(RETRY_PAUSE_MS / 1000, self._look_for_leaders)
        self._without_leader.append(wanted)

    def _look_for_leaders(self) -> None:
        waiting, self._without_leader = self._without_leader, []
        for wanted in waiting:
            self._route(wanted)

    def _channel(self, node_id: BrokerId) -> MarkerChannel:
        channel = self._channels.get(node_id)
        if channel is None:
            send = self._write_here if node_id == self._node_id else self._remote(node_id)
            channel = self._channels[node_id] = MarkerChannel(node_id, send, supervisor=self._supervisor)
        return channel

    def _remote(self, node_id: BrokerId) -> SendMarkers:
        connection = BrokerConnection(
            name=f"broker {node_id}",
            client_id=f"broker-{self._node_id}-txn-marker-sender",
            timeout_ms=self._timeout_ms,
            connect=self._connect,
        )

        async def send(markers: CoordinatorMarkers) -> WrittenMarkers:
            broker = self._metadata.broker(node_id)
            if broker is None:
                raise BrokerUnavailable(f"broker {node_id} is not alive")
            address = broker.endpoint(self._listener_name)
            body = request_body(markers)
            return _answered(await connection.request(address, ApiKey.WRITE_TXN_MARKERS, body))

        return send


def request_body(markers: CoordinatorMarkers) -> Body:
    """A WriteTxnMarkers of markers and the leader epoch of their transaction's partition."""
    return {
        "markers": [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "transaction_result": each.is_commit,
                "topics": [
                    {"name": topic, "partition_indexes": [number for _, number in partitions]}
                    for topic, partitions in groupby(sorted(each.partitions), key=lambda each: each.topic)
                ],
                "coordinator_epoch": coordinator_epoch,
                "transaction_version": each.transaction_version,
            }
            for coordinator_epoch, each in markers
        ]
    }


def _answered(answer: Any) -> WrittenMarkers:
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): ErrorCode(
            partition.error_code
        )
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
