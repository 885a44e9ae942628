"""Dead letter queues of share groups: what a group gives up is written to a topic of its choice.

Kafka: ``DefaultShareGroupDLQManager``, ``ShareGroupDLQStateManager``, ``ShareGroupDLQRecordFetcher``;
KIP-1191. The leader of a partition writes as a client would, with acks=all, to the leader of the queue's
partition of the same number, modulo their count. A record there has headers that say where it comes from and
why (``HEADERS``); the key and the value of the record only where
``errors.deadletterqueue.copy.record.enable`` is set. A topic must have
``errors.deadletterqueue.group.enable``, and a name that begins with the cluster's prefix; one that does not
exist is created where ``errors.deadletterqueue.auto.create.topics.enable`` says so.

What cannot be written is archived all the same, with an error in the log: a queue that is away must not hold
a group up for ever. What may have been written and was not answered is written again.

Where it differs from Kafka: one request takes what came up while the last was on its way, from all batches of
the share partition; the first pauses between attempts are shorter; more errors of the queue's partition are
tried again than NOT_LEADER_OR_FOLLOWER; of a record that is too large for the queue with its key and value,
the headers are written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.log.segment.fetch_data import ColdRead, FetchIsolation
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.broker_connection import BrokerConnection, Connect
from minikafka.server.cluster.features import DEAD_LETTER_QUEUES, SHARE_VERSION
from minikafka.types import NO_LEADER, BrokerId, Buffer, Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.coordinator.group.environment import ShareGroupSettings
    from minikafka.server.cluster.features import FinalizedFeatures
    from minikafka.server.config_service import ConfigService
    from minikafka.server.replica.partition import Partition
    from minikafka.server.replica.replica_manager import ReplicaManager
    from minikafka.server.runtime.log_io import LogIo
    from minikafka.server.share.share_partitions import ShareCounts
    from minikafka.server.topic_service import TopicService
    from minikafka.share.share_partition import Run

logger = logging.getLogger(__name__)

HEADER_PREFIX: Final = "__dlq.errors."
HEADERS: Final = tuple(
    HEADER_PREFIX + name for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
)
"""In this order; all values are text."""

ATTEMPTS_MAX: Final = 8
"""About as long as Kafka's five take."""
PAUSE_MS: Final = 100
PAUSE_MAX_MS: Final = 5_000
CREATION_TIMEOUT_MS: Final = 5_000
"""For leaders of a topic that was created, in each attempt."""

RECORDS_MAX: Final = 500
"""In a request: a few milliseconds of the event loop."""
READ_BYTES: Final = 256 * 1024
"""What is read of the log at once, and then decompressed."""
WARMING_ROUNDS_MAX: Final = 8
"""Of memory that is so short that nothing stays in the page cache; then the read is done on the loop."""

_RECORD_OVERHEAD: Final = 32
"""At most, of lengths and deltas in a record, and for each header."""
_BATCH_OVERHEAD: Final = 61

_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


class _Peer(NamedTuple):
    connection: BrokerConnection
    turn: asyncio.Lock
    """One request at a time."""


class DeadLetterQueues:
    """See the module header."""

    def __init__(
        self,
        *,
        configs: ConfigService,
        features: FinalizedFeatures,
        topics: TopicService,
        replicas: ReplicaManager,
        log_io: LogIo,
        connect: Connect,
        counts: ShareCounts,
    ) -> None:
        self._configs = configs
        self._features = features
        self._topics = topics
        self._replicas = replicas
        self._log_io = log_io
        self._connect = connect
        self._counts = counts
        self._peers: dict[BrokerId, _Peer] = {}

    def __repr__(self) -> str:
        return f"DeadLetterQueues({len(self._peers)} brokers)"

    async def close(self) -> None:
        """Drop the connections to the leaders of queues."""
        for peer in self._peers.values():
            await peer.connection.close()

    def are_kept(self, settings: ShareGroupSettings) -> bool:
        """Whether a group has one (``isDLQEnabledForGroup``)."""
        return settings.dead_letter_topic != "" and self._features.level(SHARE_VERSION) >= DEAD_LETTER_QUEUES

    async def write(self, group_id: str, source: Partition, dead: Sequence[Run]) -> None:
        """Write records of ``source`` to the group's queue; all are there when this returns.

        Raises:
            KafkaError: INVALID_CONFIG: the group has no queue, or the topic must not be one; others: it
                cannot be created or written.
        """
        settings = self._configs.share_group_settings(group_id)
        name = settings.dead_letter_topic
        self._check(group_id, name)
        await self._create_missing(name)
        bytes_max = self._configs.topic_config(name).max_message_bytes - _BATCH_OVERHEAD
        contents = _Contents(source, self._log_io, bytes_max) if settings.dead_letters_have_records else None
        origin = source.topic_partition
        async for records in self._rounds(group_id, origin, sorted(dead, key=_first), contents, bytes_max):
            try:
                await self._produce(group_id, name, origin.partition, build_batch(records))
            except KafkaError:
                self._counts.dead_letter_failures[group_id] += 1
                raise
            self._counts.dead_letters[group_id] += len(records)

    # The topic

    def _check(self, group_id: str, name: str) -> None:
        """``validateDlqTopic``. Raises KafkaError: INVALID_CONFIG."""
        of = f"share group: {group_id}, topic: {name}"
        config = self._configs.broker_config
        reason = None
        exists = self._replicas.metadata.topic(name) is not None
        if not name:
            reason = f"Configured DLQ topic name in share group: {group_id} is empty."
        elif name.startswith("__"):
            reason = f"Configured DLQ topic name in {of} cannot start with __."
        elif exists and not self._configs.topic_config(name).errors_deadletterqueue_group_enable:
            reason = f"DLQ is not enabled on configured DLQ topic for {of}."
        elif not exists and not config.errors_deadletterqueue_auto_create_topics_enable:
            reason = f"DLQ topic does not exist and auto create is disabled on cluster for {of}."
        elif not name.startswith(config.errors_deadletterqueue_topic_name_prefix):
            prefix = config.errors_deadletterqueue_topic_name_prefix
            reason = f"Configured DLQ topic name does not comply with the DLQ topic prefix {prefix} in {of}."
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)

    async def _create_missing(self, name: str) -> None:
        """Raises KafkaError."""
        if self._replicas.metadata.topic(name) is not None:
            return
        configs = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
        for attempt in range(ATTEMPTS_MAX):
            try:
                created = await self._topics.create_topic(name, configs=configs)
                partitions = created.partitions
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    await _pause_or_raise(error, attempt)
                    continue
                partitions = 1
            try:
                await self._topics.wait_for_leaders(
                    name, partitions=partitions, timeout_ms=CREATION_TIMEOUT_MS
                )
            except KafkaError as error:
                await _pause_or_raise(error, attempt)
                continue
            return

    # Records

    async def _rounds(
        self,
        group_id: str,
        origin: TopicPartition,
        dead: Sequence[Run],
        contents: _Contents | None,
        bytes_max: int,
    ) -> AsyncIterator[list[Record]]:
        """What is for one request, again and again."""
        records: list[Record] = []
        size = 0
        now_ms = self._replicas.clock.now_ms()
        for run in dead:
            for offset in range(run.first, run.last + 1):
                key, value = (None, None) if contents is None else await contents.at(offset, dead[-1].last)
                headers = _headers(group_id, origin, offset, run)
                headers_bytes = sum(len(name) + len(text) + _RECORD_OVERHEAD for name, text in headers)
                record_bytes = headers_bytes + len(key or b"") + len(value or b"") + _RECORD_OVERHEAD
                if record_bytes > bytes_max:
                    logger.warning(
                        "offset %d of %s is too large for the dead letter queue of %s with key and value",
                        offset,
                        origin,
                        group_id,
                    )
                    key = value = None
                    record_bytes = headers_bytes + _RECORD_OVERHEAD
                if records and (size + record_bytes > bytes_max or len(records) >= RECORDS_MAX):
                    yield records
                    records, size = [], 0
                records.append(Record(Offset(len(records)), now_ms, key, value, headers))
                size += record_bytes
        if records:
            yield records

    # Producing

    async def _produce(self, group_id: str, name: str, number: int, batch: bytes) -> None:
        """Raises KafkaError."""
        for attempt in range(ATTEMPTS_MAX):
            self._counts.dead_letter_requests[group_id] += 1
            try:
                await self._produce_once(name, number, batch)
            except KafkaError as error:
                await _pause_or_raise(error, attempt)
            else:
                return

    async def _produce_once(self, name: str, number: int, batch: bytes) -> None:
        """Raises KafkaError."""
        metadata, config = self._replicas.metadata, self._configs.broker_config
        topic = metadata.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The DLQ topic {name} does not exist.")
        number %= len(topic.partitions)
        leader = topic.partitions[number].leader
        broker = metadata.broker(leader)
        if leader == NO_LEADER or broker is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"The DLQ topic {name}-{number} has no leader.")
        partition = {"index": number, "records": batch}
        body = {
            "transactional_id": None,
            "acks": -1,
            "timeout": config.request_timeout_ms,
            "topic_data": [{"name": name, "topic_id": topic.topic_id, "partition_data": [partition]}],
        }
        peer = self._peer(leader)
        try:
            async with peer.turn:
                answer = await peer.connection.request(
                    broker.endpoint(config.inter_broker_listener()), ApiKey.PRODUCE, body
                )
        except (BrokerUnavailable, PeerProtocolError) as error:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"Broker {leader} does not take dead letters: {error}"
            ) from None
        _check_answer(answer, f"{name}-{number}")

    def _peer(self, node_id: BrokerId) -> _Peer:
        peer = self._peers.get(node_id)
        if peer is None:
            connection = BrokerConnection(
                name=f"broker {node_id}",
                client_id=f"broker-{self._replicas.node_id}-share-group-dlq",
                timeout_ms=self._configs.broker_config.request_timeout_ms,
                connect=self._connect,
            )
            peer = self._peers[node_id] = _Peer(connection, asyncio.Lock())
        return peer


class _Contents:
    """Keys and values of records, read in the order of their offsets (``ShareGroupDLQRecordFetcher``)."""

    def __init__(self, source: Partition, log_io: LogIo, bytes_max: int) -> None:
        """``bytes_max``: of what is larger when it is decompressed, nothing is read."""
        self._source = source
        self._log_io = log_io
        self._bytes_max = bytes_max
        self._found: dict[int, tuple[bytes | None, bytes | None]] = {}
        self._known_until = -1
        """Up to here, this included, what is not found is not there."""

    async def at(self, offset: int, last: int) -> tuple[bytes | None, bytes | None]:
        """Key and value; nothing of what is not in the log. No offset behind ``last`` will be asked for."""
        if offset > self._known_until:
            self._found, self._known_until = {}, last
            try:
                self._read(await self._chunk(offset), offset, last)
            except KafkaError as error:
                logger.warning("%s cannot be read at %d: %s", self._source.topic_partition, offset, error)
                self._found, self._known_until = {}, last
        return self._found.get(offset, (None, None))

    def _read(self, records: Buffer, offset: int, last: int) -> None:
        view = memoryview(records)
        size = 0
        for position, header in iterate_headers(records):
            if size and size + header.size > self._bytes_max:
                return
            self._known_until = min(last, header.last_offset)
            if header.base_offset > last:
                return
            if header.is_control:
                continue
            try:
                batch = view[position : position + header.size]
                for record in iterate_records(batch, decompressed_bytes_max=self._bytes_max):
                    if offset <= record.offset <= last:
                        self._found[record.offset] = (record.key, record.value)
                        size += len(record.key or b"") + len(record.value or b"")
            except CorruptBatch as error:
                logger.warning(
                    "the batch of %s at %d is not copied to a dead letter queue: %s",
                    self._source.topic_partition,
                    header.base_offset,
                    error,
                )
            if size >= self._bytes_max:
                return

    async def _chunk(self, offset: int) -> Buffer:
        """Raises KafkaError."""
        brought: ColdRead | None = None
        for warmed in range(WARMING_ROUNDS_MAX + 1):
            try:
                return self._source.log.read(
                    Offset(offset),
                    max_bytes=min(READ_BYTES, self._bytes_max),
                    min_one_message=True,
                    isolation=FetchIsolation.HIGH_WATERMARK,
                    cached_only=warmed < WARMING_ROUNDS_MAX,
                    brought=brought,
                ).records
            except ColdRead as cold:
                brought = await self._log_io.warmed(cold)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._source.topic_partition} cannot be read")


async def _pause_or_raise(error: KafkaError, attempt: int) -> None:
    """Before another attempt; raises ``error`` when there is none."""
    if error.code not in _AGAIN or attempt == ATTEMPTS_MAX - 1:
        raise error
    await asyncio.sleep(min(PAUSE_MS * 2**attempt, PAUSE_MAX_MS) / 1000)


def _headers(group_id: str, origin: TopicPartition, offset: int, run: Run) -> tuple[tuple[str, bytes], ...]:
    assert run.cause is not None
    values = (
        origin.topic,
        str(origin.partition),
        str(offset),
        group_id,
        str(run.delivery_count),
        run.cause.value,
    )
    return tuple((name, value.encode()) for name, value in zip(HEADERS, values, strict=True))


def _check_answer(answer: Any, name: str) -> None:
    """Raises KafkaError."""
    for topic in answer.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                message = partition.error_message or f"The DLQ topic partition {name} cannot be written."
                raise KafkaError(ErrorCode(partition.error_code), message)
            return
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"No answer to what was produced to {name}.")


def _first(run: Run) -> int:
    return run.first
