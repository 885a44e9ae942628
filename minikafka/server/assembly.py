"""The parts of a broker, made and joined: what knows whom. ``broker.py`` says when.

**The coordinators**, and what they see of the broker. What shards ask of their surroundings comes from the
broker: their configuration, the broker's and that of single groups (Kafka: ``GroupCoordinatorConfig``,
``GroupConfigManager``), and the cluster's topics (Kafka: ``MetadataImage``; ours is the cache).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.config.listeners import Listener
from minikafka.config.resolution import topic_config
from minikafka.coordination import paths
from minikafka.coordination.paths import BrokerRegistration, Endpoint, partition_state_path
from minikafka.coordination.store import CheckOp, CoordinationStore, StoreError
from minikafka.coordinator.group.environment import (
    ConsumerGroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    TopicInfo,
)
from minikafka.deferred import deferred
from minikafka.errors import ConfigError, StartError
from minikafka.files import Files
from minikafka.flight_recorder import Record
from minikafka.log.checkpoint import encode_uuid
from minikafka.log.files import OpenFiles
from minikafka.log.log_directories import random_uuid
from minikafka.log.log_manager import LogManager
from minikafka.metrics.broker_stats import RefusedKind
from minikafka.metrics.coordinator_names import (
    GROUP_METRICS,
    SHARE_COORDINATOR_METRICS,
    TRANSACTION_METRICS,
    WRITE_LATENCY_AVG,
    WRITE_LATENCY_MAX,
)
from minikafka.metrics.sensors import Metrics
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import Handler
from minikafka.protocol.wire.api_versions import OLDER
from minikafka.replication.fetch_session import FetchSessionCache
from minikafka.replication.partition_replicas import replica_selector
from minikafka.server.client_metrics import ClientMetricsManager
from minikafka.server.client_quotas import ClientQuotas
from minikafka.server.cluster.broker_connection import Connect, ControllerConnection
from minikafka.server.cluster.coordination_store import StorePatience
from minikafka.server.cluster.features import FEATURES, FinalizedFeatures, FinalizedFeatureStore
from minikafka.server.cluster.metadata_cache import Endpoint as ClientEndpoint
from minikafka.server.cluster.metadata_cache import MetadataCache, TopicMetadata
from minikafka.server.cluster.producer_ids import ProducerIdManager, ask_for_block
from minikafka.server.cluster.registration import SessionKeeper
from minikafka.server.cluster_membership import ClusterMembership, open_sender
from minikafka.server.config_service import ConfigService
from minikafka.server.config_store import ConfigChangeListener
from minikafka.server.controller.alter_partition import AlterPartitionManager, IsrManager
from minikafka.server.controller.loop import ControllerLoop
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
from minikafka.server.replica.pending_disk_work import PendingDiskWork
from minikafka.server.replica.replica_fetcher_manager import ReplicaFetcherManager
from minikafka.server.replica.replica_manager import ParkedOperations, ReplicaManager
from minikafka.server.replica.replication_quotas import ReplicationQuotas
from minikafka.server.runtime.event_loop import LoopTimer, Restart, Supervisor
from minikafka.server.runtime.event_recorder import EventRecorder
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.services import Services
from minikafka.server.share.dead_letter_queue import DeadLetterQueues
from minikafka.server.share.share_partitions import ShareCounts, SharePartitionManager, ShareParts
from minikafka.server.topic_service import InternalTopics, ReassignmentService, TopicService
from minikafka.server.topic_store import StoredTopic, StoredTopics, adopted_config, find_topics, log_adoption
from minikafka.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from minikafka.coordinator.group import shard as group_shard
    from minikafka.coordinator.transaction import shard as transaction_shard
    from minikafka.server.apis import transactions
    from minikafka.server.replica.partition_reads import WantedPartition
    from minikafka.server.security import acl_authorizer, authentication, delegation_tokens
    from minikafka.server.security import transport as security_transport
    from minikafka.server.security.transport import TransportSecurity
    from minikafka.server.tracing import spans
else:
    transactions = deferred("minikafka.server.apis.transactions")
    acl_authorizer = deferred("minikafka.server.security.acl_authorizer", at_start_or_never=True)
    authentication = deferred("minikafka.server.security.authentication", at_start_or_never=True)
    delegation_tokens = deferred("minikafka.server.security.delegation_tokens", at_start_or_never=True)
    security_transport = deferred("minikafka.server.security.transport", at_start_or_never=True)
    spans = deferred("minikafka.server.tracing.spans", at_start_or_never=True)
    group_shard = deferred("minikafka.coordinator.group.shard")
    transaction_shard = deferred("minikafka.coordinator.transaction.shard")


logger = logging.getLogger(__name__)


def open_log_manager(
    configs: ConfigService,
    *,
    cluster_id: str,
    node_id: BrokerId,
    files: Files,
    clock: Clock,
    rng: random.Random,
    open_files_max: int,
) -> LogManager:
    """Lock and check the log directories. Blocks. Raises StartError."""
    config = configs.broker_config
    return LogManager(
        config.log_dirs,
        default_config=topic_config(config),
        topic_config=configs.topic_config,
        files=files,
        clock=clock,
        rng=rng,
        cluster_id=cluster_id,
        broker_id=node_id,
        open_files=OpenFiles(open_files_max),
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        verifies_transactions=config.transaction_partition_verification_enable,
        meta_version=0 if config.zookeeper_connect else 1,
    )


async def open_transport(config: BrokerConfig, *, clock: Clock) -> TransportSecurity | None:
    """What listeners with TLS need; None where there is none. Raises StartError: a store cannot be used."""
    if not any(listener.protocol.endswith("SSL") for listener in config.endpoints()):
        return None
    transport = security_transport.TransportSecurity(config, clock=clock)
    await transport.load()
    return transport


async def load_logs(
    log_manager: LogManager,
    log_io: LogIo,
    store: CoordinationStore,
    configs: ConfigService,
    *,
    node_id: BrokerId,
    files: Files,
    clock: Clock,
    rng: random.Random,
) -> None:
    """Load the logs of the stored topics; of those that are there, when none is stored.

    Raises:
        StartError, StoreError.
    """
    topics = StoredTopics(store, node_id=node_id)
    until_connected = StorePatience(store, clock).until_connected
    await until_connected("the list of topics", topics.read)
    found: list[StoredTopic] = []
    if topics.knows_none:
        found = await log_io.run(
            lambda: find_topics(log_manager.directories, files=files, node_id=node_id, rng=rng)
        )
        topics.expect(found)
        configs.expect_topics({topic.name: adopted_config(topic.name) for topic in found})
    await log_io.run(lambda: log_manager.load(is_stray=topics.is_stray))
    if found:
        await until_connected("the adoption of topics", lambda: topics.adopt(log_manager))
        log_adoption(found, log_manager)


def make_services(
    *,
    configs: ConfigService,
    metadata: MetadataCache,
    store: CoordinationStore,
    log_manager: LogManager,
    log_io: LogIo,
    disk_work: PendingDiskWork,
    recorder: EventRecorder,
    timer: LoopTimer,
    supervisor: Supervisor,
    sessions: SessionKeeper,
    cluster_id: str,
    node_id: BrokerId,
    files: Files,
    clock: Clock,
    rng: random.Random,
    connect: Connect,
    transport: TransportSecurity | None = None,
) -> Services:
    """Everything that handlers use; nothing runs yet. Raises StartError."""
    connect = _secured(connect, configs, transport)
    quotas = _replication_quotas(configs, node_id)
    replicas = _replica_manager(
        configs, metadata, log_manager, disk_work, timer, clock, node_id, quotas, recorder.record
    )
    topics = TopicService(store=store, metadata=metadata, configs=configs, rng=rng)
    producer_ids, metrics = ProducerIdManager(node_id=node_id, store=store), Metrics()
    features = FinalizedFeatures()
    parts = CoordinatorParts(replicas, topics, timer, log_io, supervisor, metrics, rng, connect)
    coordinators = _coordinators(configs, features, parts, producer_ids, lambda: services)
    services = Services(
        config=configs.broker_config,
        imitated=OLDER.get(configs.broker_config.api_versions),
        clock=clock,
        scheduler=WorkScheduler(clock),
        node_id=node_id,
        cluster_id=cluster_id,
        store=store,
        log_manager=log_manager,
        log_io=log_io,
        files=files,
        replica_manager=replicas,
        metadata=metadata,
        topics=topics,
        internal_topics=InternalTopics(topics, supervisor=supervisor, clock=clock),
        groups=coordinators.groups,
        transactions=coordinators.transactions,
        transaction_verification=coordinators.verification,
        shares=coordinators.shares,
        share_persister=coordinators.share_persister,
        share_partitions=_share_partitions(configs, features, coordinators, parts),
        reassignments=ReassignmentService(store=store, metadata=metadata),
        configs=configs,
        features=features,
        feature_store=FinalizedFeatureStore(store, features, node_id=node_id),
        client_metrics=_client_metrics(configs, clock=clock, rng=rng),
        replication_quotas=quotas,
        metrics=metrics,
        client_quotas=_client_quotas(configs, clock=clock, metrics=metrics),
        producer_ids=producer_ids,
        fetch_sessions=_fetch_sessions(configs.broker_config, rng=rng, clock=clock),
        supervisor=supervisor,
        controller=_controller(sessions, configs, store, supervisor, node_id, clock, rng, lambda: services),
        recorder=recorder,
        connect=connect,
        transport=transport,
    )
    _join_parts(services)
    return services


def _join_parts(services: Services) -> None:
    """Of what is told of the others' doings once all are there. Raises ConfigError."""
    _set_authorizer(services)
    drop_fast_paths_with_changes(services)
    record = services.recorder.record
    services.controller.record = record
    services.client_quotas.record = record
    services.groups.counts.record = record
    services.request_metrics.slow.record = record
    services.request_metrics.slow.from_ms = services.config.event_recorder_slow_request_ms


def _coordinators(
    configs: ConfigService,
    features: FinalizedFeatures,
    parts: CoordinatorParts,
    producer_ids: ProducerIdManager,
    services: Callable[[], Services],
) -> Coordinators:
    return make_coordinators(
        configs,
        features,
        parts,
        producer_ids,
        ask_here=lambda asked: transactions.ask_own_coordinator(services(), asked),
        write_here=lambda markers: transactions.write_markers(services(), markers),
        confirmed_epoch=lambda topic_partition: _confirmed_epoch(services(), topic_partition),
    )


def _share_partitions(
    configs: ConfigService, features: FinalizedFeatures, coordinators: Coordinators, parts: CoordinatorParts
) -> SharePartitionManager:
    counts = ShareCounts()
    dead_letters = DeadLetterQueues(
        configs=configs,
        features=features,
        topics=parts.topics,
        replicas=parts.replicas,
        log_io=parts.log_io,
        connect=parts.connect,
        counts=counts,
    )
    share_parts = ShareParts(
        parts.replicas,
        coordinators.share_persister,
        parts.timer,
        parts.log_io,
        parts.supervisor,
        configs.share_group_settings,
        counts,
        dead_letters,
    )
    return SharePartitionManager(
        share_parts, sessions_max=configs.broker_config.group_share_max_share_sessions
    )


def _secured(connect: Connect, configs: ConfigService, transport: TransportSecurity | None) -> Connect:
    """``connect`` as the listener needs it that brokers use among themselves. Raises StartError."""
    if configs.broker_config.inter_broker_protocol() == "PLAINTEXT":
        return connect
    try:
        return security_transport.InterBrokerConnect(
            connect,
            lambda: configs.broker_config,
            client_context=None if transport is None else transport.client_context,
        )
    except ConfigError as error:
        raise StartError(str(error)) from None


async def start_authentication(
    services: Services, handler: Handler, *, sessions: SessionKeeper, rng: random.Random
) -> None:
    """What SASL listeners and delegation tokens need, where there are any.

    Raises:
        StartError: they are configured so that no client can log in. StoreError.
    """
    config, store = services.config, services.store
    until_connected = StorePatience(store, services.clock).until_connected
    if config.delegation_token_secret_key is not None:
        services.delegation_tokens = tokens = delegation_tokens.DelegationTokens(
            store,
            secret_key=config.delegation_token_secret_key,
            config=lambda: services.config,
            clock=services.clock,
            rng=rng,
        )
        changes = ConfigChangeListener(
            store,
            clock=services.clock,
            reload=tokens.reload,
            path=paths.DELEGATION_TOKEN_CHANGES,
            decode=paths.decode_delegation_token_change,
        )
        await until_connected("the list of changed delegation tokens", changes.begin)
        await until_connected("the delegation tokens", tokens.load)
        sessions.on_new_session(changes.session_began)
        services.supervisor.start("delegation-token-changes", changes.run, restart=Restart.ALWAYS)
        services.supervisor.start("delegation-token-expiry", tokens.remove_expired, restart=Restart.ALWAYS)
    if not any(listener.protocol.startswith("SASL") for listener in config.endpoints()):
        return
    secret = await until_connected("the login secret", lambda: authentication.read_login_secret(store, rng))
    try:
        services.authentication = authentication.Authentication(
            config,
            handler=handler,
            credentials=services.configs.scram.credentials,
            tokens=services.delegation_tokens,
            login_secret=secret,
            clock=services.clock,
            rng=rng,
            scheduler=services.scheduler,
            supervisor=services.supervisor,
            metrics=services.security_metrics,
        )
    except ConfigError as error:
        raise StartError(str(error)) from error
    services.configs.check_broker_with(services.authentication.check)
    await services.authentication.keys_tried()


def note_failed_handshake(services: Services, listener_name: str, peer: str, why: str) -> None:
    """A client did not get through TLS: remember it beside the logins that have failed."""
    services.security_metrics.refusals.note(
        RefusedKind.LOGIN,
        listener_name,
        "TLS_HANDSHAKE_FAILED",
        f"the TLS handshake failed: {why}",
        host=peer.rpartition(":")[0].strip("[]"),
        now_ms=services.clock.now_ms(),
    )


def start_tracing(services: Services) -> None:
    """Follow what ``trace.one.in`` says, and send spans where they are wanted. Raises StartError."""
    config, tracer = services.config, services.replica_manager.tracer
    url = config.otlp_url()
    if url is not None:
        try:
            exporter = spans.OtlpExporter(
                url, config.otlp_headers(), node_id=services.node_id, cluster_id=services.cluster_id
            )
        except ConfigError as error:
            raise StartError(str(error)) from None
        tracer.exporter = exporter
        services.supervisor.start("trace-otlp", exporter.run)
    tracer.follow_one_in(config.trace_one_in)
    services.configs.subscribe_broker(lambda changed: tracer.follow_one_in(changed.trace_one_in))


def drop_fast_paths_with_changes(services: Services) -> None:
    """Of all that a fast path looks up once. See ``runtime.fast_paths``."""
    drop = services.fast_paths.drop
    services.client_quotas.follow(drop)
    services.metadata.follow_topics(drop)
    services.replica_manager.add_leadership_listener(drop)
    services.configs.subscribe_topics(drop)  # after the logs, which have it then
    services.configs.subscribe_broker(drop)
    services.feature_store.follow(drop)
    if services.authorizer is not None:
        services.authorizer.follow(drop)


def _set_authorizer(services: Services) -> None:
    """Where one is configured. Raises ConfigError."""
    if not services.config.has_authorizer:
        return
    data = acl_authorizer.authorizer_data(services.config)
    services.acls = acl_authorizer.AclStore(services.store, data, clock=services.clock)
    services.authorizer = acl_authorizer.AclAuthorizer(
        data, services.acls, services.security_metrics.authorizer
    )


async def _confirmed_epoch(services: Services, topic_partition: TopicPartition) -> int | None:
    """The leader epoch in which this broker leads the partition, if the store confirms that nothing has been
    written over the state that it leads by."""
    partition = services.replica_manager.partitions.get(topic_partition)
    if partition is None or not partition.is_leader:
        return None
    path = partition_state_path(topic_partition.topic, topic_partition.partition)
    leader_epoch = partition.leader_epoch
    try:
        await services.store.multi([CheckOp(path, partition.partition_epoch)])
    except StoreError as error:
        logger.info("cannot confirm the leadership of %s: %s", topic_partition, error)
        return None
    return leader_epoch


def _controller(
    sessions: SessionKeeper,
    configs: ConfigService,
    store: CoordinationStore,
    supervisor: Supervisor,
    node_id: BrokerId,
    clock: Clock,
    rng: random.Random,
    services: Callable[[], Services],
) -> ControllerLoop:
    return ControllerLoop(
        node_id=node_id,
        store=store,
        sessions=sessions,
        configs=configs,
        clock=clock,
        rng=rng,
        supervisor=supervisor,
        open_sender=lambda broker, epoch: open_sender(services(), broker, epoch),
    )


def _replica_manager(
    configs: ConfigService,
    metadata: MetadataCache,
    log_manager: LogManager,
    disk_work: PendingDiskWork,
    timer: LoopTimer,
    clock: Clock,
    node_id: BrokerId,
    quotas: ReplicationQuotas,
    record: Record,
) -> ReplicaManager:
    config = configs.broker_config
    replicas = ReplicaManager(
        node_id=node_id,
        log_manager=log_manager,
        metadata=metadata,
        parked=_parked_operations(config, timer),
        disk_work=disk_work,
        clock=clock,
        replica_lag_time_max_ms=config.replica_lag_time_max_ms,
        inter_broker_listener_name=config.inter_broker_listener(),
        replica_selector=replica_selector(config.replica_selector_class),
        leader_quota=quotas.leader,
        record=record,
        slow_request_ms=config.event_recorder_slow_request_ms,
    )
    configs.subscribe_topics(replicas.update_topic_config)
    return replicas


def _parked_operations(config: BrokerConfig, timer: LoopTimer) -> ParkedOperations:
    return ParkedOperations(
        timer,
        produce_purge_interval=config.producer_purgatory_purge_interval_requests,
        fetch_purge_interval=config.fetch_purgatory_purge_interval_requests,
    )


def _fetch_sessions(
    config: BrokerConfig, *, rng: random.Random, clock: Clock
) -> FetchSessionCache[WantedPartition]:
    return FetchSessionCache(max_slots=config.max_incremental_fetch_session_cache_slots, rng=rng, clock=clock)


def _client_metrics(configs: ConfigService, *, clock: Clock, rng: random.Random) -> ClientMetricsManager:
    manager = ClientMetricsManager(
        clock=clock, rng=rng, telemetry_max_bytes=configs.broker_config.telemetry_max_bytes
    )
    configs.follow_client_metrics(manager.update_subscription)
    return manager


def _replication_quotas(configs: ConfigService, node_id: BrokerId) -> ReplicationQuotas:
    quotas = ReplicationQuotas(configs.broker_config, node_id=node_id)
    configs.follow_topics(quotas.update_topic)
    return quotas


def _client_quotas(configs: ConfigService, *, clock: Clock, metrics: Metrics) -> ClientQuotas:
    quotas = ClientQuotas(configs.broker_config, clock=clock, metrics=metrics)
    configs.client_quotas.follow(quotas.update)
    return quotas


def join_membership(
    services: Services, *, sessions: SessionKeeper, config_changes: ConfigChangeListener
) -> ClusterMembership:
    """What the broker needs of others, and they of it: ISR changes, fetchers, its place in the cluster."""
    isr_manager = IsrManager(services.store, node_id=services.node_id, clock=services.clock)
    alter_partitions = AlterPartitionManager(
        services.controller,
        _controller_connection(services),
        isr_manager,
        node_id=services.node_id,
        broker_epoch=lambda: services.broker_epoch,
    )
    services.replica_manager.isr_manager = alter_partitions
    services.producer_ids.ask_controller = lambda: _ask_for_producer_ids(services)
    services.replica_manager.fetchers = ReplicaFetcherManager(
        node_id=services.node_id,
        replicas=services.replica_manager,
        clock=services.clock,
        supervisor=services.supervisor,
        config=lambda: services.config,
        broker_epoch=lambda: services.broker_epoch,
        quota=services.replication_quotas.follower,
        connect=services.connect,
    )
    membership = ClusterMembership(
        services,
        sessions=sessions,
        alter_partitions=alter_partitions,
        isr_manager=isr_manager,
        config_changes=config_changes,
    )
    services.log_directory_failed = membership.log_directory_failed
    return membership


def _controller_connection(services: Services) -> ControllerConnection:
    return ControllerConnection(
        services.metadata, services.config, node_id=services.node_id, connect=services.connect
    )


async def _ask_for_producer_ids(services: Services) -> tuple[int, int] | None:
    """Of the controller, unless this broker is it. A connection is not kept: it is once for 1000 ids."""
    if services.controller.is_controller:
        return None
    connection = _controller_connection(services)
    try:
        return await ask_for_block(connection, node_id=services.node_id, broker_epoch=services.broker_epoch)
    finally:
        await connection.close()


def registration(
    services: Services, advertised: Mapping[str, ClientEndpoint], *, http: ClientEndpoint | None
) -> BrokerRegistration:
    """What the broker writes into the store about itself. Pages that listen on all interfaces have the host
    that the first listener advertises."""
    if http is not None and Listener("HTTP", http.host, http.port).is_wildcard:
        http = ClientEndpoint(next(iter(advertised.values())).host, http.port)
    config, directory_ids = services.config, services.log_manager.directories.directory_ids
    protocols = {listener.name: listener.protocol for listener in config.advertised_endpoints()}
    return BrokerRegistration(
        endpoints=tuple(
            Endpoint(name, host, port, protocols[name]) for name, (host, port) in advertised.items()
        ),
        timestamp_ms=services.clock.now_ms(),
        rack=config.broker_rack,
        directory_ids=tuple(encode_uuid(each) for _, each in sorted(directory_ids.items())),
        clean_start=services.log_manager.was_clean,
        http=http,
        features={name: (levels.min, levels.max) for name, levels in FEATURES.items()},
    )


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
