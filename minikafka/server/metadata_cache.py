"""What this broker knows of the cluster: the brokers and where they listen, the topics and who leads them.

Kafka's ``MetadataCache`` (``KRaftMetadataCache``). Handlers read it synchronously on every request, so it
holds nothing but what was already decided: whoever decides (``TopicService`` today, the controller later)
writes the store first and puts the outcome here afterwards.

Invariants:
- names and topic ids are two views of the same set of topics: each topic has exactly one entry in both;
- ``topic.partitions[i].partition == i``: partitions are dense, as Kafka's are;
- values are frozen: a reader that holds a ``TopicMetadata`` across an await sees one consistent moment of it.

Where it differs from Kafka: one mutable cache on one event loop instead of an immutable image that is
swapped; no reader can see a change half made, because no change awaits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

import msgspec

from minikafka.errors import InvariantError
from minikafka.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition


class Endpoint(NamedTuple):
    """Where a client reaches a broker: the advertised host and port of one listener."""

    host: str
    port: int


class PartitionMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: who leads it, in which epoch, and who keeps copies."""

    partition: int
    leader: BrokerId
    """``NO_LEADER`` when there is none."""
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    """In the order of the assignment: the first one is the preferred leader."""
    isr: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...] = ()
    """Replicas on a failed log directory. Those on dead brokers follow from ``MetadataCache.is_alive``."""


class TopicMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One topic; ``partitions`` is indexed by partition number."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionMetadata, ...]
    is_internal: bool = False


class BrokerEndpoints(msgspec.Struct, frozen=True, kw_only=True):
    """One live broker and its advertised endpoints by listener name."""

    node_id: BrokerId
    endpoints: Mapping[str, Endpoint | tuple[str, int]]
    rack: str | None = None

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Host and port on that listener; None when the broker does not have the listener."""
        found = self.endpoints.get(listener_name)
        return None if found is None else Endpoint(*found)


class MetadataCache:
    """The current state of brokers and topics. See the module header."""

    def __init__(self, *, controller_id: BrokerId = NO_LEADER) -> None:
        self.controller_id = controller_id
        self._brokers: dict[BrokerId, BrokerEndpoints] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._topics_by_id: dict[UUID, TopicMetadata] = {}
        self._sorted: tuple[TopicMetadata, ...] | None = None

    def __repr__(self) -> str:
        return (
            f"MetadataCache(controller={self.controller_id}, brokers={sorted(self._brokers)}, "
            f"topics={len(self._topics)})"
        )

    # Topics

    def topics(self) -> tuple[TopicMetadata, ...]:
        """All topics, sorted by name (so that answers and cursors do not depend on history)."""
        if self._sorted is None:
            self._sorted = tuple(self._topics[name] for name in sorted(self._topics))
        return self._sorted

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicMetadata | None:
        return self._topics_by_id.get(topic_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        topic = self._topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def put_topic(self, topic: TopicMetadata) -> None:
        """Add a topic, or replace what was known of it (also when it was deleted and made anew)."""
        if any(partition.partition != index for index, partition in enumerate(topic.partitions)):
            raise InvariantError(f"partitions of topic {topic.name} are not 0, 1, 2, …: {topic.partitions}")
        holder = self._topics_by_id.get(topic.topic_id)
        if holder is not None and holder.name != topic.name:
            raise InvariantError(f"topics {holder.name} and {topic.name} have one id, {topic.topic_id}")
        self._forget(topic.name)
        self._topics[topic.name] = topic
        self._topics_by_id[topic.topic_id] = topic

    def remove_topic(self, name: str) -> TopicMetadata | None:
        """Forget a topic. Returns what was known of it; None when it was not known."""
        return self._forget(name)

    def _forget(self, name: str) -> TopicMetadata | None:
        self._sorted = None
        topic = self._topics.pop(name, None)
        if topic is not None:
            del self._topics_by_id[topic.topic_id]
        return topic

    # Brokers

    def brokers(self) -> tuple[BrokerEndpoints, ...]:
        """The live brokers, sorted by id."""
        return tuple(self._brokers[node_id] for node_id in sorted(self._brokers))

    def broker(self, node_id: BrokerId) -> BrokerEndpoints | None:
        return self._brokers.get(node_id)

    def is_alive(self, node_id: BrokerId) -> bool:
        return node_id in self._brokers

    def put_broker(self, broker: BrokerEndpoints) -> None:
        self._brokers[broker.node_id] = broker

    def remove_broker(self, node_id: BrokerId) -> None:
        self._brokers.pop(node_id, None)

    def offline_replicas(
        self, partition: PartitionMetadata, *, listener_name: str | None = None
    ) -> tuple[BrokerId, ...]:
        """Replicas on dead brokers, on brokers without that listener, or on a failed log directory."""
        return tuple(
            replica
            for replica in partition.replicas
            if replica in partition.offline_replicas or not self._reachable(replica, listener_name)
        )

    def reachable(self, replicas: Iterable[BrokerId], *, listener_name: str) -> tuple[BrokerId, ...]:
        """Those of ``replicas`` that live and have the listener, in the same order."""
        return tuple(replica for replica in replicas if self._reachable(replica, listener_name))

    def _reachable(self, node_id: BrokerId, listener_name: str | None) -> bool:
        broker = self._brokers.get(node_id)
        return broker is not None and (listener_name is None or listener_name in broker.endpoints)
