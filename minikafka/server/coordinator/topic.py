"""A coordinator's topic: which partition an id belongs to, who leads that, how it is made and written.

Kafka: ``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``,
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

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Generic, TypeVar

import msgspec

from minikafka.config.broker import BrokerConfig
from minikafka.coordinator.effects import BatchOfTransaction
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.producers.append import BY_COORDINATOR, AppendOrigin, AppendTerms, VerificationGuard
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, build_batch, marker_batch
from minikafka.server.cluster.metadata_cache import BrokerEndpoints, MetadataCache
from minikafka.server.cluster.topic_validation import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from minikafka.server.replica.delayed_operations import Settled, when_committed
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.java_hash import java_abs, string_hash
from minikafka.server.topics.topic_service import AUTO_CREATE_TIMEOUT_MS, TopicService
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, TopicPartition

logger = logging.getLogger(__name__)

R = TypeVar("R")

Encode = Callable[[R], tuple[bytes, bytes | None]]
"""Key and value of a record."""

_IDS_REMEMBERED = 10_000
"""Hashing an id of 20 characters takes 3 µs, which every heartbeat would pay."""


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
