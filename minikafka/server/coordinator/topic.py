"""A coordinator's topic: which of its partitions an id belongs to, who leads that, and how it is made.

Kafka: ``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``,
``KafkaApis.getCoordinator``, ``AutoTopicCreationManager``. The topics are ``__consumer_offsets`` and
``__transaction_state``. One is made when a coordinator of its kind is asked for the first time. A group or a
transactional id belongs to the partition that the Java hash of its id says, and to the broker that leads it.

Where it differs from Kafka:
- the first question is answered when the topic is there, as Metadata answers; Kafka answers
  COORDINATOR_NOT_AVAILABLE at once and lets the client ask again;
- with ``offsets.topic.replication.factor`` or ``transaction.state.log.replication.factor`` unset its topic
  gets as many replicas as there are brokers, up to 3, and a line in the log when these are fewer, so that a
  single broker works as it is. Kafka's is 3, and clients of a cluster of one or two wait for ever unless it
  is set. Where it is set, so do they here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from minikafka.config.broker import BrokerConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.cluster.metadata_cache import BrokerEndpoints, MetadataCache
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from minikafka.server.runtime.java_hash import java_abs, string_hash
from minikafka.server.topics.topic_service import AUTO_CREATE_TIMEOUT_MS, TopicService
from minikafka.types import TopicPartition

logger = logging.getLogger(__name__)

_IDS_REMEMBERED = 10_000
"""Hashing an id of 20 characters takes 3 µs, which every heartbeat would pay."""


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
        self._complaint = ""

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
            KafkaError: COORDINATOR_NOT_AVAILABLE: nobody does, as far as this broker knows.
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
                self._complain(f"{self.name} cannot be made yet: {error}")
                return
        try:
            await self._topics.wait_for_leaders(self.name, partitions=1, timeout_ms=AUTO_CREATE_TIMEOUT_MS)
        except KafkaError as error:
            self._complain(str(error))

    def _complain(self, complaint: str) -> None:
        """Once: clients ask ten times a second."""
        if complaint != self._complaint:
            self._complaint = complaint
            logger.warning("%s", complaint)

    def _replication_factor(self) -> int:
        wanted, property_name = self._plan.replication_factor, self._plan.replication_factor_property
        if property_name in self._config.static_properties():
            return wanted
        live = len(self._metadata.brokers())
        if live < wanted:
            self._complain(
                f"{self.name} gets {live} replicas: only so many brokers are there, and "
                f"{property_name} is not set"
            )
        return min(wanted, live)


@lru_cache(maxsize=_IDS_REMEMBERED)
def _key_hash(key: str) -> int:
    return java_abs(string_hash(key))
