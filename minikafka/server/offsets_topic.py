"""``__consumer_offsets``: which of its partitions a group belongs to, who leads that, and how it is made.

Kafka: ``GroupCoordinatorService.partitionFor``, ``KafkaApis.getCoordinator``, ``AutoTopicCreationManager``.
The topic is made when a coordinator is asked for the first time. A group belongs to the partition that the
Java hash of its id says, and to the broker that leads it.

Where it differs from Kafka:
- the first question is answered when the topic is there, as Metadata answers; Kafka answers
  COORDINATOR_NOT_AVAILABLE at once and lets the client ask again;
- with ``offsets.topic.replication.factor`` unset the topic gets as many replicas as there are brokers, up to
  3, and a line in the log when these are fewer, so that a single broker works as it is. Kafka's is 3, and
  groups of a cluster of one or two wait for ever unless it is set. Where it is set, so do they here.
"""

from __future__ import annotations

import logging
from functools import lru_cache

from minikafka.config.broker import BrokerConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.java_hash import java_abs, string_hash
from minikafka.server.metadata_cache import BrokerEndpoints, MetadataCache
from minikafka.server.topic_service import AUTO_CREATE_TIMEOUT_MS, TopicService
from minikafka.server.topic_validation import GROUP_METADATA_TOPIC
from minikafka.types import TopicPartition

logger = logging.getLogger(__name__)

REPLICATION_FACTOR = "offsets.topic.replication.factor"

_GROUPS_REMEMBERED = 10_000
"""Hashing an id of 20 characters takes 3 µs, which every heartbeat would pay."""


class OffsetsTopic:
    """See the module header."""

    def __init__(self, *, config: BrokerConfig, metadata: MetadataCache, topics: TopicService) -> None:
        self._config = config
        self._metadata = metadata
        self._topics = topics
        self._complaint = ""

    def partition_for(self, group_id: str) -> int:
        """The number of the partition that keeps a group."""
        topic = self._metadata.topic(GROUP_METADATA_TOPIC)
        count = self._config.offsets_topic_num_partitions if topic is None else len(topic.partitions)
        return _group_hash(group_id) % count

    def coordinator(self, group_id: str) -> BrokerEndpoints:
        """The live broker that leads the group's partition.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE: nobody does, as far as this broker knows.
        """
        partition = self._metadata.partition(
            TopicPartition(GROUP_METADATA_TOPIC, self.partition_for(group_id))
        )
        broker = None if partition is None else self._metadata.broker(partition.leader)
        if broker is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        return broker

    @property
    def is_there(self) -> bool:
        return self._metadata.topic(GROUP_METADATA_TOPIC) is not None

    async def create(self) -> None:
        """Make the topic, and wait until its partitions are led; a failure is logged, for the asker is told
        that there is no coordinator yet."""
        config = self._config
        try:
            replication_factor = self._replication_factor()
            await self._topics.create_topic(
                GROUP_METADATA_TOPIC,
                partitions=config.offsets_topic_num_partitions,
                replication_factor=replication_factor,
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                self._complain(f"{GROUP_METADATA_TOPIC} cannot be made yet: {error}")
                return
        try:
            await self._topics.wait_for_leaders(
                GROUP_METADATA_TOPIC, partitions=1, timeout_ms=AUTO_CREATE_TIMEOUT_MS
            )
        except KafkaError as error:
            self._complain(str(error))

    def _complain(self, complaint: str) -> None:
        """Once: clients ask ten times a second."""
        if complaint != self._complaint:
            self._complaint = complaint
            logger.warning("%s", complaint)

    def _replication_factor(self) -> int:
        wanted = self._config.offsets_topic_replication_factor
        if REPLICATION_FACTOR in self._config.static_properties():
            return wanted
        live = len(self._metadata.brokers())
        if live < wanted:
            self._complain(
                f"{GROUP_METADATA_TOPIC} gets {live} replicas: only so many brokers are there, and "
                f"{REPLICATION_FACTOR} is not set"
            )
        return min(wanted, live)


@lru_cache(maxsize=_GROUPS_REMEMBERED)
def _group_hash(group_id: str) -> int:
    return java_abs(string_hash(group_id))
