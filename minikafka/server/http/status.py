"""What the status page shows: the cluster, its partitions, groups, purgatories and quotas, as one document.

It is made from live objects when somebody looks, and nothing is kept for it. Its words are Kafka's. What is
true of the whole cluster is what the controller last told this broker (``MetadataCache``); the rest is this
broker's own, and what only others know is None here:

- High watermark and log end are those of the replica on this broker. The leader's are the partition's; a
  follower's may be behind, which is why ``offsets_from`` says whose they are.
- Groups are those that this broker coordinates; ``coordinators`` says who has the others.
- A lag is the high watermark less the committed offset, known where the partition is led here.

Invariants: no list is longer than its limit, and the field ``…_left_out`` beside it counts the others;
partitions in trouble come first, the worst before the others, so that no limit hides them. There is nothing
of any record in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from minikafka import __version__
from minikafka.network.addresses import format_address
from minikafka.server.cluster.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from minikafka.server.http.status_of_groups import GroupsStatus, describe_groups
from minikafka.server.http.status_of_quotas import QuotasStatus, describe_quotas
from minikafka.server.runtime.turns import Turns
from minikafka.server.services import Services
from minikafka.types import BrokerId, TopicPartition

TOPICS_MAX = 200
PARTITIONS_MAX = 500
"""More than anybody reads; the filter finds the others."""
BROKERS_MAX = 200


class ThisBroker(msgspec.Struct, frozen=True, kw_only=True):
    """Who made the document."""

    node_id: int
    version: str
    is_controller: bool
    broker_epoch: int
    """-1: not registered."""
    offline_log_dirs: dict[str, str]
    """Directory → why."""
    offline_replicas: int


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of all there is, whatever is listed and filtered."""

    cluster_id: str
    controller_id: int
    """-1: nobody, or nobody has said."""
    controller_epoch: int
    topics: int
    partitions: int
    offline_partitions: int
    """Without a live leader."""
    under_replicated_partitions: int
    """With fewer replicas in sync than there are."""
    under_min_isr_partitions: int
    """With a live leader that refuses acks=all: fewer replicas are in sync than ``min.insync.replicas``."""


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A live broker, or one that is named as a replica and is not alive."""

    node_id: int
    is_alive: bool
    epoch: int
    """Of its registration; -1: not known."""
    listeners: dict[str, str]
    rack: str | None
    page: str | None
    """The address of its status page; None: it has none, or is not alive."""
    leaders: int
    replicas: int


class TopicStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partitions: int
    offline_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    leader: int
    """-1: nobody."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    is_offline: bool
    is_under_replicated: bool
    is_under_min_isr: bool
    min_isr: int
    """``min.insync.replicas``, but never more than there are replicas."""
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    offsets_from: str | None
    """"leader" or "follower", which this broker is; None: there is no replica of it here."""


class PurgatoryStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    delayed: int
    """``NumDelayedOperations``: operations that wait."""
    watched: int
    """``PurgatorySize``: entries in watch lists."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document."""

    at_ms: int
    topic_filter: str
    broker: ThisBroker
    cluster: Cluster
    brokers: list[BrokerStatus]
    brokers_left_out: int
    topics: list[TopicStatus]
    topics_left_out: int
    partitions: list[PartitionStatus]
    partitions_left_out: int
    groups: GroupsStatus
    purgatories: list[PurgatoryStatus]
    quotas: QuotasStatus


async def describe(services: Services, *, topic_filter: str = "") -> Status:
    """How things are now, within the turns of the loop that it takes to look at all. ``topic_filter``: list
    only topics with that in their names, their partitions, and groups with offsets in them; empty: all."""
    metadata = services.metadata
    turns = Turns()
    counts = _Counts(services)
    for topic in sorted(metadata.topics(), key=lambda topic: topic.is_internal):
        counts.add(topic, is_listed=topic_filter in topic.name)
        await turns.give_way()
    counts.sort()
    groups = await describe_groups(services, turns, topic_filter=topic_filter)
    brokers = list(_brokers(metadata, counts))
    partitions = counts.in_danger + counts.thin + counts.well
    return Status(
        at_ms=services.clock.now_ms(),
        topic_filter=topic_filter,
        broker=ThisBroker(
            node_id=services.node_id,
            version=__version__,
            is_controller=services.controller.is_controller,
            broker_epoch=services.broker_epoch,
            offline_log_dirs=dict(services.log_manager.offline_directories),
            offline_replicas=services.replica_manager.offline_count,
        ),
        cluster=Cluster(
            cluster_id=services.cluster_id,
            controller_id=metadata.controller_id,
            controller_epoch=services.replica_manager.controller_epoch,
            topics=len(metadata.topics()),
            partitions=counts.partitions,
            offline_partitions=counts.offline,
            under_replicated_partitions=counts.under_replicated,
            under_min_isr_partitions=counts.under_min_isr,
        ),
        brokers=brokers[:BROKERS_MAX],
        brokers_left_out=max(0, len(brokers) - BROKERS_MAX),
        topics=counts.topics[:TOPICS_MAX],
        topics_left_out=max(0, len(counts.topics) - TOPICS_MAX),
        partitions=[_partition(services, *each) for each in partitions[:PARTITIONS_MAX]],
        partitions_left_out=max(0, len(partitions) - PARTITIONS_MAX),
        groups=groups,
        purgatories=_purgatories(services),
        quotas=describe_quotas(services),
    )


class _Counts:
    """One walk over all partitions of the cluster."""

    def __init__(self, services: Services) -> None:
        self.partitions = self.offline = self.under_replicated = self.under_min_isr = 0
        self.leaders: Counter[BrokerId] = Counter()
        self.replicas: Counter[BrokerId] = Counter()
        self.topics: list[TopicStatus] = []
        self.in_danger: list[tuple[TopicMetadata, PartitionMetadata]] = []
        """Offline, or under min.insync.replicas."""
        self.thin: list[tuple[TopicMetadata, PartitionMetadata]] = []
        """Only under-replicated."""
        self.well: list[tuple[TopicMetadata, PartitionMetadata]] = []
        self._alive = frozenset(broker.node_id for broker in services.metadata.brokers())
        self._configs = services.configs

    def sort(self) -> None:
        """All are there: those in trouble come first."""
        self.topics.sort(
            key=lambda topic: (
                not (topic.offline_partitions or topic.under_min_isr_partitions),
                not topic.under_replicated_partitions,
            )
        )

    def add(self, topic: TopicMetadata, *, is_listed: bool) -> None:
        offline = under_replicated = under_min_isr = 0
        min_insync_replicas = self._configs.topic_config(topic.name).min_insync_replicas
        for partition in topic.partitions:
            is_offline = partition.leader not in self._alive
            is_under_replicated = len(partition.isr) < len(partition.replicas)
            is_under_min_isr = not is_offline and len(partition.isr) < _min_isr(
                min_insync_replicas, partition
            )
            offline += is_offline
            under_replicated += is_under_replicated
            under_min_isr += is_under_min_isr
            self.leaders[partition.leader] += 1
            self.replicas.update(partition.replicas)
            if is_listed:
                if is_offline or is_under_min_isr:
                    self.in_danger.append((topic, partition))
                else:
                    (self.thin if is_under_replicated else self.well).append((topic, partition))
        self.partitions += len(topic.partitions)
        self.offline += offline
        self.under_replicated += under_replicated
        self.under_min_isr += under_min_isr
        if is_listed:
            self.topics.append(
                TopicStatus(
                    name=topic.name,
                    partitions=len(topic.partitions),
                    offline_partitions=offline,
                    under_replicated_partitions=under_replicated,
                    under_min_isr_partitions=under_min_isr,
                )
            )


def _min_isr(min_insync_replicas: int, partition: PartitionMetadata) -> int:
    return min(min_insync_replicas, len(partition.replicas))


def _brokers(metadata: MetadataCache, counts: _Counts) -> Iterator[BrokerStatus]:
    alive = {broker.node_id: broker for broker in metadata.brokers()}
    for node_id in sorted({*alive, *counts.replicas}):
        broker = alive.get(node_id)
        yield BrokerStatus(
            node_id=node_id,
            is_alive=broker is not None,
            epoch=-1 if broker is None else broker.epoch,
            listeners={}
            if broker is None
            else {name: format_address(*endpoint) for name, endpoint in broker.endpoints.items()},
            rack=None if broker is None else broker.rack,
            page=None if broker is None or broker.http is None else f"http://{format_address(*broker.http)}/",
            leaders=counts.leaders[node_id],
            replicas=counts.replicas[node_id],
        )


def _partition(services: Services, topic: TopicMetadata, partition: PartitionMetadata) -> PartitionStatus:
    metadata = services.metadata
    hosted = services.replica_manager.partitions.get(TopicPartition(topic.name, partition.partition))
    log = None if hosted is None else hosted.log
    min_isr = _min_isr(services.configs.topic_config(topic.name).min_insync_replicas, partition)
    is_offline = not metadata.is_alive(partition.leader)
    return PartitionStatus(
        topic=topic.name,
        partition=partition.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        offline_replicas=metadata.offline_replicas(partition),
        is_offline=is_offline,
        is_under_replicated=len(partition.isr) < len(partition.replicas),
        is_under_min_isr=not is_offline and len(partition.isr) < min_isr,
        min_isr=min_isr,
        log_start_offset=None if log is None else log.log_start_offset,
        high_watermark=None if log is None else log.high_watermark,
        log_end_offset=None if log is None else log.log_end_offset,
        offsets_from=None if hosted is None else "leader" if hosted.is_leader else "follower",
    )


def _purgatories(services: Services) -> list[PurgatoryStatus]:
    parked, groups = services.replica_manager.parked, services.groups.parked
    waiting = [
        (each.name, each.delayed, each.watched)
        for each in (parked.produce, parked.fetch, parked.delete_records)
    ]
    waiting += [(each.name, each.delayed, each.watched) for each in (groups.rebalance, groups.heartbeat)]
    return [
        PurgatoryStatus(name=name, delayed=delayed, watched=watched) for name, delayed, watched in waiting
    ]
