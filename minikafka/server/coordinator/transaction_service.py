"""The transaction coordinator of this broker, and how its markers reach the leaders of partitions.

``TransactionService`` is a ``CoordinatorService`` over ``__transaction_state``. Kafka:
``TransactionCoordinator``, ``TransactionStateManager``. Besides what all coordinators do, this one has
markers written, gets producer ids for its shards, and looks now and then for transactions that take too long
and for transactional ids that are not used any more.

Where it differs: a broker that was paused, has lost the coordination store or is still to be told that
another leads the partition now answers a producer by what it remembers, in Kafka. An error
(INVALID_TXN_STATE) ends the producer, which may have begun its transaction at the new coordinator. The end of
a transaction may look like a retry of the last one that this broker has seen end; but the producer may have a
successor, or, in the first version of the protocol, where all its transactions have one epoch, mean the next,
which is open at the new coordinator. So it is, there, with partitions that are in the transaction already.
Here such an answer is given only after the store has confirmed that this broker leads the partition; else it
is COORDINATOR_NOT_AVAILABLE, and the producer looks for the coordinator again. What has to be written needs
no such question: it is not committed once another leads.

**Markers** (``TransactionMarkerChannels``) tell leaders how transactions have ended. Kafka:
``TransactionMarkerChannelManager``, ``TransactionMarkerRequestCompletionHandler``. Each broker has a channel:
what waits for it leaves as one WriteTxnMarkers, and what comes meanwhile as the next. The coordinator's own
broker writes its markers without a request. What became of each partition is told to the shard that wanted
the marker, which says what to send again; that leaves after a pause, to the leader of that time.

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
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from minikafka.config.broker import BrokerConfig
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, InvariantError, KafkaError, PeerProtocolError
from minikafka.metrics.sensors import Sensor
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.wire.api_versions import TRANSACTION_VERSION, ApiKey
from minikafka.protocol.wire.codec import Body
from minikafka.purgatory import DelayedOperationPurgatory, Timer
from minikafka.server.cluster.broker_connection import BrokerConnection, Connect
from minikafka.server.cluster.features import FinalizedFeatures
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.cluster.producer_ids import ProducerIdManager
from minikafka.server.coordinator.service import CoordinatorLog, CoordinatorService, CoordinatorTopic
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.event_loop import Restart, Supervisor
from minikafka.server.runtime.log_io import LogIo
from minikafka.types import NO_EPOCH, BrokerId, Offset, TopicPartition, joined

if TYPE_CHECKING:
    from minikafka.coordinator.transaction import messages
    from minikafka.coordinator.transaction.messages import AllocateProducerId, WriteMarkers
    from minikafka.coordinator.transaction.shard import TransactionShard
    from minikafka.protocol.internal import transaction_record_codec
    from minikafka.server.coordinator import hosted_shard
    from minikafka.server.coordinator.hosted_shard import HostedShard, Purgatory, RequestTicket
else:
    transaction_record_codec = deferred("minikafka.protocol.internal.transaction_record_codec")
    messages = deferred("minikafka.coordinator.transaction.messages")
    hosted_shard = deferred("minikafka.server.coordinator.hosted_shard")

logger = logging.getLogger(__name__)

_OF_STATE: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Errors that say what state a transaction is in, and that no client tries again."""

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


class BrokerTransactionSettings:
    """A ``TransactionSettings``. No property here changes while the broker runs; a feature's level may."""

    def __init__(self, config: BrokerConfig, features: FinalizedFeatures) -> None:
        self.transaction_max_timeout_ms = config.transaction_max_timeout_ms
        self.transactional_id_expiration_ms = config.transactional_id_expiration_ms
        self._features = features

    @property
    def transaction_version(self) -> int:
        return self._features.level(TRANSACTION_VERSION)


class TransactionReplay:
    """What a load reads, as calls of a ``TransactionShard``."""

    def __init__(self, shard: TransactionShard) -> None:
        self._shard = shard

    def record(self, key: bytes, value: bytes | None, now_ms: int, *, offset: int, producer_id: int) -> None:
        try:
            record = transaction_record_codec.decode_record(key, value)
        except transaction_record_codec.UnreadableTransactionRecord as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        self._shard.replay(record)

    def marker(self, producer_id: int, *, committed: bool) -> None:
        """Nothing: no transaction writes to this topic."""


class _Unconfirmed(NamedTuple):
    """An answer that waits for the store to confirm who led the partition when its request came."""

    ticket: RequestTicket
    result: Any
    number: int
    leader_epoch: int


class TransactionService(CoordinatorService["TransactionShard"]):
    """See the module header."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replicas: ReplicaManager,
        topic: CoordinatorTopic,
        new_shard: Callable[[], TransactionShard],
        markers: TransactionMarkerChannels,
        producer_ids: ProducerIdManager,
        confirmed_epoch: Callable[[TopicPartition], Awaitable[int | None]],
        timer: Timer,
        log_io: LogIo,
        supervisor: Supervisor,
        load_time: Sensor,
    ) -> None:
        self.markers = markers
        self.parked: Purgatory = DelayedOperationPurgatory("Transaction", timer)
        self._config = config
        self._producer_ids = producer_ids
        self._confirmed_epoch = confirmed_epoch
        self._unconfirmed: list[_Unconfirmed] = []
        self._is_confirming = False
        super().__init__(
            contents="transactions",
            replicas=replicas,
            topic=topic,
            new_shard=new_shard,
            replay=TransactionReplay,
            new_log=lambda topic_partition: CoordinatorLog(
                replicas,
                topic_partition,
                encode=transaction_record_codec.encode_record,
                compression=CompressionType.NONE,
                timeout_ms=config.request_timeout_ms,
            ),
            purgatory_of=lambda operation: self.parked,
            load_buffer_bytes=config.transaction_state_log_load_buffer_size,
            log_io=log_io,
            supervisor=supervisor,
            load_time=load_time,
        )

    def _checked(
        self, ticket: RequestTicket, number: int, shard: HostedShard[TransactionShard] | None
    ) -> RequestTicket:
        """An error ends a producer for good, and an end that is told by the state ends its transaction; so
        neither is given away when it may come of an old state."""
        leader_epoch = NO_EPOCH if shard is None else shard.leader_epoch
        return hosted_shard.RequestTicket(partial(self._answer, number, leader_epoch, ticket))

    def _answer(self, number: int, leader_epoch: int, ticket: RequestTicket, result: Any) -> None:
        codes = (result.code,) if isinstance(result, KafkaError) else getattr(result, "errors", ())
        if _OF_STATE.isdisjoint(codes) and not getattr(result, "is_remembered", False):
            ticket.answer(result)
            return
        self._unconfirmed.append(_Unconfirmed(ticket, result, number, leader_epoch))
        if not self._is_confirming:
            self._is_confirming = True
            self._supervisor.start("confirm-coordinator", self._confirm)

    async def _confirm(self) -> None:
        """Give the answers that wait, each after a question to the store that was asked when it was there.
        One question at a time: who asks for errors has no more of the store."""
        asked: list[_Unconfirmed] = []
        try:
            while self._unconfirmed:
                asked, self._unconfirmed = self._unconfirmed, []
                epochs = {
                    number: await self._confirmed_epoch(TopicPartition(self.topic.name, number))
                    for number in dict.fromkeys(each.number for each in asked)
                }
                while asked:
                    each = asked.pop()
                    is_confirmed = epochs[each.number] == each.leader_epoch
                    each.ticket.answer(each.result if is_confirmed else _maybe_replaced())
        finally:  # however this ends, no request waits for it any longer
            self._is_confirming = False
            unanswered, self._unconfirmed = asked + self._unconfirmed, []
            for each in unanswered:
                each.ticket.answer(_maybe_replaced())

    def start(self) -> None:
        """Follow leadership from now on, and look for what has timed out or expired now and then."""
        self._replicas.add_leadership_listener(self.leadership_changed)
        start = self._supervisor.start
        start("transaction-abort", self._abort_timed_out, restart=Restart.ALWAYS)
        start("transactional-id-expiration", self._remove_expired, restart=Restart.ALWAYS)

    async def _until_ready(self, shard: HostedShard[TransactionShard], end_offset: Offset) -> None:
        """Until the high watermark has passed what was read: what the shard begins with are the markers of
        decisions, and a decision that is not committed may yet be lost.

        Raises:
            KafkaError: that cannot be heard of any more.
        """
        while shard.state is hosted_shard.ShardState.LOADING:
            settled: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
            shard.when_committed(end_offset, partial(_settle, settled))
            error = await settled
            if error is None or error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                return
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise error

    def _do_other(self, shard: HostedShard[TransactionShard], effect: Any) -> None:
        match effect:
            case messages.WriteMarkers():
                self.markers.write(shard, effect)
            case messages.AllocateProducerId():
                self._supervisor.start("producer-id", lambda: self._allocate(shard, effect))
            case _:
                raise InvariantError(f"{shard!r} wants {effect!r}")

    async def _allocate(self, shard: HostedShard[TransactionShard], wanted: AllocateProducerId) -> None:
        try:
            producer_id = await self._producer_ids.next()
        except KafkaError as error:
            reason = error
            shard.tell(lambda transactions, now_ms: wanted.failed(reason, now_ms))
        else:
            shard.tell(lambda transactions, now_ms: wanted.allocated(producer_id, now_ms))

    async def _abort_timed_out(self) -> None:
        interval_ms = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for shard in self.hosted_shards():
                shard.tell(lambda transactions, now_ms: transactions.abort_timed_out(now_ms))
                await asyncio.sleep(0)

    async def _remove_expired(self) -> None:
        interval_ms = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for shard in self.hosted_shards():
                shard.tell(lambda transactions, now_ms: transactions.remove_expired(now_ms))
                await asyncio.sleep(0)


def _maybe_replaced() -> KafkaError:
    return KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, "Another broker may have become the coordinator meanwhile."
    )


def _settle(future: asyncio.Future[KafkaError | None], error: KafkaError | None) -> None:
    if not future.done():  # the broker stops
        future.set_result(error)


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
