"""The partitions that this broker hosts, by name.

Kafka: ``HostedPartition`` and the lookups of ``ReplicaManager``. A partition is *online* (led or followed
here), *offline* (its log directory failed, or could not take it), or not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.manager.log_manager import LogManager
from minikafka.metrics.broker_topic_stats import BrokerTopicStats
from minikafka.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from minikafka.server.replica.partition import Partition


class HostedPartitions:
    """A registry that finds the right partition, or says why it is not here."""

    def __init__(
        self, *, node_id: BrokerId, log_manager: LogManager, is_known: Callable[[TopicPartition], bool]
    ) -> None:
        """``is_known``: whether the cluster has the partition, on whatever broker, or may have it."""
        self.node_id = node_id
        self.log_manager = log_manager
        self.partitions: dict[TopicPartition, Partition] = {}
        self.stats = BrokerTopicStats()
        """What has gone through them."""
        self.by_topic_id: dict[bytes, dict[int, Partition]] = {}
        """The same partitions, by the bytes of their topics' ids."""
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._names: dict[UUID, str] = {}
        self._without_log: set[TopicPartition] = set()
        self._is_known = is_known

    def __repr__(self) -> str:
        return f"{type(self).__name__}(node {self.node_id}, {len(self.partitions)} partitions)"

    def hosted(self, topic_partition: TopicPartition) -> Partition:
        """The partition, if this broker leads or follows it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when its log directory is offline; NOT_LEADER_OR_FOLLOWER when it
                is on other brokers, or may be; UNKNOWN_TOPIC_OR_PARTITION.
        """
        partition = self.partitions.get(topic_partition)
        if partition is not None:
            return partition
        if self.is_offline(topic_partition):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic_partition} is offline"
            )
        if self._is_known(topic_partition):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {topic_partition}"
            )
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this broker does not host {topic_partition}")

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition, if this broker leads it.

        Raises:
            KafkaError: see ``hosted``; NOT_LEADER_OR_FOLLOWER.
        """
        partition = self.partitions.get(topic_partition)
        if partition is None or partition.leader_id != self.node_id:
            partition = self.hosted(topic_partition)
            partition.check_leader()
        return partition

    def partitions_of(self, topic: str) -> Iterator[Partition]:
        return iter(self._by_topic.get(topic, {}).values())

    def topic_name(self, topic_id: UUID) -> str:
        """The name of a hosted topic, which may be hosted before the metadata show it; else empty."""
        return self._names.get(topic_id, "")

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether its log was in a directory that failed, or could not be made."""
        return topic_partition in self._without_log or self.log_manager.is_offline(topic_partition)

    @property
    def offline_count(self) -> int:
        """How many replicas ``is_offline`` is true of."""
        return len(self._without_log | self.log_manager.offline_partitions)

    def _host(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        self.by_topic_id.setdefault(partition.topic_id.bytes, {})[number] = partition
        self.partitions[partition.topic_partition] = partition
        self._by_topic.setdefault(topic, {})[number] = partition
        self._names[partition.topic_id] = topic
        partition.stats = self.stats.host(topic)
        self._without_log.discard(partition.topic_partition)

    def _mark_offline(self, topic_partition: TopicPartition) -> None:
        """Its log could not be made."""
        self._forget(topic_partition)
        self._without_log.add(topic_partition)

    def _forget(self, topic_partition: TopicPartition) -> None:
        self._without_log.discard(topic_partition)
        partition = self.partitions.pop(topic_partition, None)
        if partition is not None:
            partition.leave()
            siblings = self._by_topic[topic_partition.topic]
            of_id = self.by_topic_id[partition.topic_id.bytes]
            del siblings[topic_partition.partition], of_id[topic_partition.partition]
            if not of_id:
                del self.by_topic_id[partition.topic_id.bytes]
            if not siblings:
                del self._by_topic[topic_partition.topic]
                self._names.pop(partition.topic_id, None)
                self.stats.forget(topic_partition.topic)
