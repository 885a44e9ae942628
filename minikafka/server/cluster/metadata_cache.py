"""What this broker knows of the cluster: the brokers and where they listen, the topics and who leads them.

Kafka's ``MetadataCache`` (``ZkMetadataCache``). Handlers read it synchronously on every request, so it holds
nothing but what was already decided: the controller writes the store first and then tells every broker with
UpdateMetadata, which ends here (``update``).

Invariants:
- names and topic ids are two views of the same set of topics: each topic has exactly one entry in both;
- ``topic.partitions[i].partition == i``: where the controller has not told of a partition yet, because none
  of its replicas lives, a partition without replicas stands in its place;
- values are frozen: a reader that holds a ``TopicMetadata`` across an await sees one consistent moment of it.

Where it differs from Kafka: one mutable cache on one event loop instead of an immutable image that is
swapped; no reader can see a change half made, because no change awaits.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import msgspec

from minikafka.errors import InvariantError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.control import (
    LEADER_DURING_DELETE,
    LeaderAndIsrPartition,
    LiveBroker,
    UpdateMetadataRequest,
)
from minikafka.server.cluster.topic_validation import is_internal
from minikafka.types import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, TopicPartition

EncodedPartitions = dict[tuple[str, int], bytes]
"""The partitions of a topic as they stand in answers, by listener name and version of Metadata."""

ENCODED_FROM_PARTITIONS = 16
"""Of a smaller topic the bytes would take more memory than the work takes time."""


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
    eligible: tuple[BrokerId, ...] = ()
    """Out of the ISR, and sure to hold all that is committed (KIP-966)."""
    last_known_leader: BrokerId = NO_LEADER
    """Who led last, while no replica leads (KIP-966)."""


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
    epoch: int = -1
    """The czxid of its registration (KIP-380); -1 when that is not known."""
    http: Endpoint | None = None
    """Where its pages are; None: nowhere."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Host and port on that listener; None when the broker does not have the listener."""
        found = self.endpoints.get(listener_name)
        return None if found is None else Endpoint(*found)


class MetadataCache:
    """The current state of brokers and topics. See the module header."""

    def __init__(self) -> None:
        self.controller_id = NO_LEADER
        self._waiting: list[tuple[Callable[[], object], asyncio.Future[None]]] = []
        self._brokers: dict[BrokerId, BrokerEndpoints] = {}
        self._live_brokers: dict[BrokerId, LiveBroker] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._topics_by_id: dict[UUID, TopicMetadata] = {}
        self._sorted: tuple[TopicMetadata, ...] | None = None
        self._names: tuple[str, ...] | None = None
        self.topics_version = 0
        """Rises whenever a topic comes, grows or goes; not when its leaders change."""
        self._topics_followers: list[Callable[[], None]] = []
        self._encoded: dict[str, EncodedPartitions] = {}
        """By topic; gone with the topic as it is, and when a broker comes or goes."""

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

    def topic_names(self) -> tuple[str, ...]:
        """Their names, in that order; the same tuple until a topic comes or goes."""
        if self._names is None:
            self._names = tuple(sorted(self._topics))
        return self._names

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicMetadata | None:
        return self._topics_by_id.get(topic_id)

    def encoded(self, topic: TopicMetadata) -> EncodedPartitions | None:
        """What Metadata's answers have of this topic's partitions, to look up and to add to; valid until
        something about the topic or the brokers changes, and then another one. None: it is not worth it, or
        ``topic`` is not what is known any more.

        After a failover all clients ask for the same: 100 of them for 1,000 partitions took 0.8 CPU s.
        """
        if len(topic.partitions) < ENCODED_FROM_PARTITIONS or self._topics.get(topic.name) is not topic:
            return None
        return self._encoded.setdefault(topic.name, {})

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        topic = self._topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def may_have(self, topic_partition: TopicPartition) -> bool:
        """Whether the cluster has the partition. Until a controller has told, that cannot be denied of any:
        clients that have known it for long take an UNKNOWN_TOPIC_OR_PARTITION of a broker that has just
        started for the end of it."""
        return self.controller_id == NO_LEADER or self.partition(topic_partition) is not None

    def has_replica_on(self, node_id: BrokerId) -> bool:
        """Whether a partition has a replica on that broker. Looks at all of them."""
        return any(node_id in each.replicas for topic in self._topics.values() for each in topic.partitions)

    def put_topic(self, topic: TopicMetadata) -> None:
        """Add a topic, or replace what was known of it (also when it was deleted and created again)."""
        if any(partition.partition != index for index, partition in enumerate(topic.partitions)):
            raise InvariantError(f"partitions of topic {topic.name} are not 0, 1, 2, …: {topic.partitions}")
        holder = self._topics_by_id.get(topic.topic_id)
        if holder is not None and holder.name != topic.name:
            raise InvariantError(f"topics {holder.name} and {topic.name} have one id, {topic.topic_id}")
        known = self._topics.get(topic.name)
        if known is None or _shape(known) != _shape(topic):
            self._topics_changed()
        self._remove(topic.name)
        self._topics[topic.name] = topic
        self._topics_by_id[topic.topic_id] = topic
        if known is None:
            self._names = None

    def _forget(self, name: str) -> None:
        if name in self._topics:
            self._topics_changed()
            self._remove(name)
            self._names = None

    def follow_topics(self, tell: Callable[[], None]) -> None:
        """``tell`` is told whenever ``topics_version`` rises."""
        self._topics_followers.append(tell)

    def _topics_changed(self) -> None:
        self.topics_version += 1
        for tell in self._topics_followers:
            tell()

    def _remove(self, name: str) -> None:
        self._sorted = None
        self._encoded.pop(name, None)
        topic = self._topics.pop(name, None)
        if topic is not None:
            del self._topics_by_id[topic.topic_id]

    # What the controller tells

    def update(self, request: UpdateMetadataRequest) -> dict[str, UUID]:
        """Take in what the controller says. Returns the topics that are gone, name → id, sorted by name;
        there may be another one of the name now."""
        self.controller_id = request.controller_id
        brokers = {
            each.node_id: BrokerEndpoints(
                node_id=each.node_id,
                endpoints={
                    listener.listener_name: Endpoint(listener.host, listener.port)
                    for listener in each.endpoints
                },
                rack=each.rack,
                epoch=each.epoch,
                http=None if each.http is None else Endpoint(*each.http),
            )
            for each in request.live_brokers
        }
        if brokers != self._brokers:
            self._brokers = brokers
            self._encoded.clear()
        self._live_brokers = {each.node_id: each for each in request.live_brokers}
        gone: dict[str, UUID] = {}
        by_topic: dict[str, list[LeaderAndIsrPartition]] = defaultdict(list)
        for partition in request.partitions:
            by_topic[partition.topic].append(partition)
        if request.is_full:
            gone.update(
                (name, topic.topic_id) for name, topic in self._topics.items() if name not in by_topic
            )
        for name, partitions in by_topic.items():
            known = self._topics.get(name)
            if any(each.leader == LEADER_DURING_DELETE for each in partitions):
                gone[name] = partitions[0].topic_id if known is None else known.topic_id
            else:
                if known is not None and known.topic_id != partitions[0].topic_id:
                    gone[name] = known.topic_id
                    known = None
                self.put_topic(_updated(known, partitions))
        for name in sorted(gone):
            if name not in by_topic or by_topic[name][0].leader == LEADER_DURING_DELETE:
                self._forget(name)
        self._wake()
        return dict(sorted(gone.items()))

    async def wait_for(self, condition: Callable[[], object], *, timeout_ms: int) -> bool:
        """Until ``condition`` holds, which is looked at after each update. Returns whether it does."""
        if condition():
            return True
        waiting = (condition, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiting[1]
        except TimeoutError:
            return bool(condition())
        finally:
            self._waiting.remove(waiting)
        return True

    def _wake(self) -> None:
        for condition, future in self._waiting:
            if not future.done() and condition():
                future.set_result(None)

    # Brokers

    def brokers(self) -> tuple[BrokerEndpoints, ...]:
        """The live brokers, sorted by id."""
        return tuple(self._brokers[node_id] for node_id in sorted(self._brokers))

    def broker(self, node_id: BrokerId) -> BrokerEndpoints | None:
        return self._brokers.get(node_id)

    def is_alive(self, node_id: BrokerId) -> bool:
        return node_id in self._brokers

    def live_broker(self, node_id: BrokerId) -> LiveBroker | None:
        """A broker as the controller told of it; None: it is not alive."""
        return self._live_brokers.get(node_id)

    def live_broker_epoch(self, node_id: BrokerId) -> int | None:
        """The epoch of a live broker's registration, -1 when that is not known; None: it is not alive."""
        broker = self._brokers.get(node_id)
        return None if broker is None else broker.epoch

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


def _shape(topic: TopicMetadata) -> tuple[UUID, int]:
    return topic.topic_id, len(topic.partitions)


def _updated(known: TopicMetadata | None, news: list[LeaderAndIsrPartition]) -> TopicMetadata:
    """A topic with what is new of some of its partitions."""
    partitions = {} if known is None else {each.partition: each for each in known.partitions}
    for each in news:
        partitions[each.partition] = PartitionMetadata(
            partition=each.partition,
            leader=each.leader,
            leader_epoch=each.leader_epoch,
            replicas=each.replicas,
            isr=each.isr,
            offline_replicas=each.offline_replicas,
            eligible=each.eligible,
            last_known_leader=each.last_known_leader,
        )
    count = max(partitions) + 1
    return TopicMetadata(
        name=news[0].topic,
        topic_id=news[0].topic_id,
        partitions=tuple(partitions.get(number) or _placeholder(number) for number in range(count)),
        is_internal=is_internal(news[0].topic),
    )


def _placeholder(partition: int) -> PartitionMetadata:
    """A partition of which the controller has said nothing, because none of its replicas was ever alive."""
    return PartitionMetadata(
        partition=partition, leader=NO_LEADER, leader_epoch=NO_EPOCH, replicas=(), isr=()
    )
