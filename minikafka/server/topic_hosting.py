"""Making this broker do what the store says of a topic: lead its partitions, let them go, show the topic.

Kafka: what ``BrokerMetadataPublisher`` and ``ReplicaManager.applyDelta`` do with a change of the metadata.
The metadata cache comes last when a topic appears and first when it goes, so that a client which is told of
a partition finds it.

A partition whose log cannot be made fails alone: clients are told that nobody leads it and that this replica
is offline, which is what Kafka tells them after a log directory has failed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set

import msgspec

from minikafka.errors import KafkaError
from minikafka.server.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from minikafka.server.replica_manager import ReplicaManager
from minikafka.server.topic_store import StoredTopic
from minikafka.server.topic_validation import is_internal
from minikafka.server.turns import Turns
from minikafka.types import NO_LEADER, BrokerId, PartitionState, TopicPartition

logger = logging.getLogger(__name__)


class TopicHosting:
    """The topics on this broker."""

    def __init__(
        self, *, node_id: BrokerId, metadata: MetadataCache, replica_manager: ReplicaManager
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replica_manager = replica_manager

    def __repr__(self) -> str:
        return f"TopicHosting(node {self._node_id}, {len(self._metadata.topics())} topics)"

    async def take_up(
        self, topic: StoredTopic, states: Mapping[int, PartitionState], *, new: Set[int]
    ) -> None:
        """Take up the partitions in ``states``, then show the topic; those in ``new`` never had a log."""
        turns = Turns()
        for partition, state in states.items():
            if state.leader == self._node_id:
                self._lead(topic, partition, state, is_new=partition in new)
                await turns.give_way()
        led = self._replica_manager.partitions
        offline = {  # its log could not be made, or its disk failed while others were made
            partition
            for partition, state in states.items()
            if state.leader == self._node_id and TopicPartition(topic.name, partition) not in led
        }
        known = self._metadata.topic(topic.name)
        partitions = {} if known is None else {each.partition: each for each in known.partitions}
        for partition, state in states.items():
            partitions[partition] = PartitionMetadata(
                partition=partition,
                leader=NO_LEADER if partition in offline else state.leader,
                leader_epoch=state.leader_epoch,
                replicas=topic.replicas(partition),
                isr=_broker_ids(state.isr),
                offline_replicas=(self._node_id,) if partition in offline else (),
            )
        self._metadata.put_topic(
            TopicMetadata(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(partitions[partition] for partition in sorted(partitions)),
                is_internal=is_internal(topic.name),
            )
        )

    def _lead(self, topic: StoredTopic, partition: int, state: PartitionState, *, is_new: bool) -> None:
        """Lead one partition; a disk that fails is no reason to fail the others."""
        try:
            self._replica_manager.become_leader(
                TopicPartition(topic.name, partition),
                topic_id=topic.topic_id,
                leader_epoch=state.leader_epoch,
                replicas=topic.replicas(partition),
                isr=_broker_ids(state.isr),
                is_new=is_new,
            )
        except (KafkaError, OSError) as error:
            logger.error("%s-%d is offline: %s", topic.name, partition, error)

    async def let_go(self, topic: TopicMetadata) -> None:
        """The topic is deleted: forget it, and delete its logs."""
        self._metadata.remove_topic(topic.name)
        turns = Turns()
        for partition in topic.partitions:
            await turns.give_way()
            if self._node_id not in partition.replicas:
                continue
            topic_partition = TopicPartition(topic.name, partition.partition)
            try:
                self._replica_manager.delete_partition(topic_partition)
            except (KafkaError, OSError) as error:
                # The topic is gone all the same; what is left of its log is a stray at the next start.
                logger.warning("the log of the deleted %s stays: %s", topic_partition, error)

    def mark_offline(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """A log directory failed: tell clients that nobody leads what lay in it."""
        lost: dict[str, set[int]] = defaultdict(set)
        for name, partition in topic_partitions:
            lost[name].add(partition)
        for name, numbers in lost.items():
            topic = self._metadata.topic(name)
            if topic is not None:
                partitions = tuple(
                    self._without_us(each) if each.partition in numbers else each for each in topic.partitions
                )
                self._metadata.put_topic(msgspec.structs.replace(topic, partitions=partitions))

    def _without_us(self, partition: PartitionMetadata) -> PartitionMetadata:
        if self._node_id in partition.offline_replicas:
            return partition
        return msgspec.structs.replace(
            partition,
            leader=NO_LEADER if partition.leader == self._node_id else partition.leader,
            offline_replicas=(*partition.offline_replicas, self._node_id),
        )


def _broker_ids(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in ids)
