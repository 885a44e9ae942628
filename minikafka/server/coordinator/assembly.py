"""The coordinators of a broker, made and joined, and what they see of it.

``assembly`` has this part of it here. What shards ask of their surroundings comes from the broker: their
configuration, the broker's and that of single groups (Kafka: ``GroupCoordinatorConfig``,
``GroupConfigManager``), and the cluster's topics (Kafka: ``MetadataImage``; ours is the cache).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

from minikafka.config.broker import BrokerConfig
from minikafka.coordinator.group.environment import (
    ConsumerGroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    TopicInfo,
)
from minikafka.deferred import deferred
from minikafka.log.log_directories import random_uuid
from minikafka.metrics.coordinator_names import (
    GROUP_METRICS,
    SHARE_COORDINATOR_METRICS,
    TRANSACTION_METRICS,
    WRITE_LATENCY_AVG,
    WRITE_LATENCY_MAX,
)
from minikafka.metrics.registry import Metrics
from minikafka.named_tuple import NamedTuple
from minikafka.server.cluster.broker_connection import Connect
from minikafka.server.cluster.features import FinalizedFeatures
from minikafka.server.cluster.metadata_cache import MetadataCache, TopicMetadata
from minikafka.server.cluster.producer_ids import ProducerIdManager
from minikafka.server.configs.service import ConfigService
from minikafka.server.coordinator.group_service import GroupService
from minikafka.server.coordinator.service import (
    CoordinatorTopic,
    TopicPlan,
    load_time_sensor,
    max_and_avg_sensor,
    offsets_topic,
    share_group_state_topic,
    transaction_state_topic,
)
from minikafka.server.coordinator.share_service import ShareService, StatePersister
from minikafka.server.coordinator.transaction_service import (
    BrokerTransactionSettings,
    SendMarkers,
    TransactionMarkerChannels,
    TransactionService,
)
from minikafka.server.coordinator.transaction_verification import AskHere, TransactionVerification
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.event_loop import LoopTimer, Supervisor
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.topics.topic_service import TopicService
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.coordinator.group import shard as group_shard
    from minikafka.coordinator.transaction import shard as transaction_shard
else:
    group_shard = deferred("minikafka.coordinator.group.shard")
    transaction_shard = deferred("minikafka.coordinator.transaction.shard")


class BrokerGroupSettings:
    """A ``GroupSettings``. None of the broker's properties here changes while it runs; groups' do."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        consumer_group: Callable[[str], ConsumerGroupSettings],
        share_group: Callable[[str], ShareGroupSettings],
        streams_group: Callable[[str], StreamsGroupSettings],
    ) -> None:
        """``consumer_group``, ``share_group``, ``streams_group``: what holds for one group."""
        self.group_min_session_timeout_ms = config.group_min_session_timeout_ms
        self.group_max_session_timeout_ms = config.group_max_session_timeout_ms
        self.group_initial_rebalance_delay_ms = config.group_initial_rebalance_delay_ms
        self.group_max_size = config.group_max_size
        self.group_consumer_max_size = config.group_consumer_max_size
        self.group_consumer_regex_refresh_interval_ms = config.group_consumer_regex_refresh_interval_ms
        self.group_max_member_metadata_bytes = config.group_max_member_metadata_bytes
        self.group_max_memory_bytes = config.group_max_memory_bytes
        self.group_consumer_assignors: tuple[str, ...] = config.group_consumer_assignors
        self.group_consumer_migration_policy = config.group_consumer_migration_policy
        self.group_share_max_size = config.group_share_max_size
        self.group_share_initialize_retry_interval_ms = max(
            config.group_share_initialize_retry_interval_ms, config.offsets_commit_timeout_ms
        )
        self.group_streams_max_size = config.group_streams_max_size
        self.offset_metadata_max_bytes = config.offset_metadata_max_bytes
        self.offsets_retention_minutes = config.offsets_retention_minutes
        self._consumer_group = consumer_group
        self._share_group = share_group
        self._streams_group = streams_group

    def consumer_group(self, group_id: str) -> ConsumerGroupSettings:
        """What is set for the group, else the broker's values."""
        return self._consumer_group(group_id)

    def share_group(self, group_id: str) -> ShareGroupSettings:
        """The same for a share group."""
        return self._share_group(group_id)

    def streams_group(self, group_id: str) -> StreamsGroupSettings:
        """The same for a streams group."""
        return self._streams_group(group_id)


class CachedTopics:
    """A ``TopicImage`` over what this broker knows."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    @property
    def version(self) -> int:
        return self._metadata.topics_version

    def topic(self, name: str) -> TopicInfo | None:
        return _info(self._metadata.topic(name))

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        return _info(self._metadata.topic_by_id(topic_id))

    def names(self) -> tuple[str, ...]:
        return self._metadata.topic_names()


def _info(topic: TopicMetadata | None) -> TopicInfo | None:
    return None if topic is None else TopicInfo(topic.name, topic.topic_id, len(topic.partitions))


class CoordinatorParts(NamedTuple):
    """What every coordinator is made with."""

    replicas: ReplicaManager
    topics: TopicService
    timer: LoopTimer
    log_io: LogIo
    supervisor: Supervisor
    metrics: Metrics
    rng: random.Random
    connect: Connect
    """How other brokers are reached."""


class Coordinators(NamedTuple):
    """Those of groups, of transactions and of share groups' states, and who asks the latter two for
    partitions that this broker leads."""

    groups: GroupService
    transactions: TransactionService
    verification: TransactionVerification
    shares: ShareService
    share_persister: StatePersister


def make_coordinators(
    configs: ConfigService,
    features: FinalizedFeatures,
    parts: CoordinatorParts,
    producer_ids: ProducerIdManager,
    *,
    ask_here: AskHere,
    write_here: SendMarkers,
    confirmed_epoch: Callable[[TopicPartition], Awaitable[int | None]],
) -> Coordinators:
    """Nothing runs yet. ``confirmed_epoch``: the leader epoch in which this broker leads a partition, as the
    store confirms; None when it does not."""
    transactions = _transaction_service(configs, features, parts, producer_ids, write_here, confirmed_epoch)
    groups, shares = _group_service(configs, parts), _share_service(configs, parts)
    persister = StatePersister(
        config=lambda: configs.broker_config,
        replicas=parts.replicas,
        service=shares,
        connect=parts.connect,
    )
    groups.persister = persister
    return Coordinators(
        groups,
        transactions,
        TransactionVerification(
            config=lambda: configs.broker_config,
            replicas=parts.replicas,
            topic=transactions.topic,
            connect=parts.connect,
            ask_here=ask_here,
            supervisor=parts.supervisor,
        ),
        shares,
        persister,
    )


def _topic(plan: TopicPlan, configs: ConfigService, parts: CoordinatorParts) -> CoordinatorTopic:
    return CoordinatorTopic(
        plan, config=configs.broker_config, metadata=parts.replicas.metadata, topics=parts.topics
    )


def _group_service(configs: ConfigService, parts: CoordinatorParts) -> GroupService:
    config = configs.broker_config
    settings = BrokerGroupSettings(
        config,
        consumer_group=configs.consumer_group_settings,
        share_group=configs.share_group_settings,
        streams_group=lambda group_id: StreamsGroupSettings.of(configs.group_config(group_id)),
    )
    image = CachedTopics(parts.replicas.metadata)
    return GroupService(
        config=config,
        replicas=parts.replicas,
        topic=_topic(offsets_topic(config), configs, parts),
        new_shard=lambda counts, memory_bytes: group_shard.GroupShard(
            counts,
            settings=settings,
            topics=image,
            new_uuid=lambda: random_uuid(parts.rng),
            memory_bytes=memory_bytes,
        ),
        timer=parts.timer,
        log_io=parts.log_io,
        supervisor=parts.supervisor,
        load_time=load_time_sensor(parts.metrics, GROUP_METRICS, now_ms=parts.replicas.clock.monotonic_ms()),
    )


def _transaction_service(
    configs: ConfigService,
    features: FinalizedFeatures,
    parts: CoordinatorParts,
    producer_ids: ProducerIdManager,
    write_here: SendMarkers,
    confirmed_epoch: Callable[[TopicPartition], Awaitable[int | None]],
) -> TransactionService:
    config, replicas = configs.broker_config, parts.replicas
    settings = BrokerTransactionSettings(config, features)
    return TransactionService(
        config=config,
        replicas=replicas,
        topic=_topic(transaction_state_topic(config), configs, parts),
        new_shard=lambda: transaction_shard.TransactionShard(settings=settings),
        markers=TransactionMarkerChannels(
            node_id=replicas.node_id,
            metadata=replicas.metadata,
            supervisor=parts.supervisor,
            listener_name=config.inter_broker_listener(),
            timeout_ms=config.request_timeout_ms,
            connect=parts.connect,
            write_here=write_here,
        ),
        producer_ids=producer_ids,
        confirmed_epoch=confirmed_epoch,
        timer=parts.timer,
        log_io=parts.log_io,
        supervisor=parts.supervisor,
        load_time=load_time_sensor(
            parts.metrics, TRANSACTION_METRICS, now_ms=parts.replicas.clock.monotonic_ms()
        ),
    )


def _share_service(configs: ConfigService, parts: CoordinatorParts) -> ShareService:
    config, now_ms = configs.broker_config, parts.replicas.clock.monotonic_ms()
    return ShareService(
        config=config,
        replicas=parts.replicas,
        topic=_topic(share_group_state_topic(config), configs, parts),
        timer=parts.timer,
        log_io=parts.log_io,
        supervisor=parts.supervisor,
        load_time=load_time_sensor(parts.metrics, SHARE_COORDINATOR_METRICS, now_ms=now_ms),
        write_latency=max_and_avg_sensor(
            parts.metrics,
            SHARE_COORDINATOR_METRICS,
            "ShareCoordinatorWriteLatency",
            (WRITE_LATENCY_MAX, WRITE_LATENCY_AVG),
            now_ms=now_ms,
        ),
    )
