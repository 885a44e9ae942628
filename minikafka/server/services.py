"""What the API handlers may use: every long-lived part of a running broker, by name.

Filled once by ``broker.py``; a handler takes what it needs from here and keeps nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.coordination.store import CoordinationStore
from minikafka.files import Files
from minikafka.log.log_manager import LogManager
from minikafka.metrics.broker_stats import Refusals, SecurityMetrics
from minikafka.metrics.request_metrics import KafkaTimer, RequestChannelMetrics
from minikafka.metrics.sensors import Metrics
from minikafka.network.broker_client import BrokerClient
from minikafka.network.connection import Connection
from minikafka.protocol.wire.api_versions import Release
from minikafka.replication.fetch_session import FetchSessionCache
from minikafka.server.client_metrics import ClientMetricsManager
from minikafka.server.client_quotas import ClientQuotas
from minikafka.server.cluster.broker_connection import Connect
from minikafka.server.cluster.features import FinalizedFeatures, FinalizedFeatureStore
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.cluster.producer_ids import ProducerIdManager
from minikafka.server.config_service import ConfigService
from minikafka.server.controller.loop import ControllerLoop
from minikafka.server.coordinator.group_service import GroupService
from minikafka.server.coordinator.share_service import ShareService, StatePersister
from minikafka.server.coordinator.transaction_service import TransactionService
from minikafka.server.coordinator.transaction_verification import TransactionVerification
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.replica.replication_quotas import ReplicationQuotas
from minikafka.server.requests import request_channel_metrics
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.server.runtime.event_recorder import EventRecorder
from minikafka.server.runtime.fast_paths import FastPaths
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.process import StartPhases
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.security.authorizer import Authorizer
from minikafka.server.share.share_partitions import SharePartitionManager
from minikafka.server.topic_service import InternalTopics, ReassignmentService, TopicService
from minikafka.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import UnifiedLog
    from minikafka.server.replica.partition_reads import WantedPartition
    from minikafka.server.security.acl_authorizer import AclStore
    from minikafka.server.security.authentication import Authentication
    from minikafka.server.security.delegation_tokens import DelegationTokens
    from minikafka.server.security.transport import TransportSecurity


class SwapInStaged(Protocol):
    """``LogCleaner.swap_in_staged``."""

    async def __call__(self, at: TopicPartition, manifest_id: str, *, validate_only: bool) -> None: ...


class Compactions(Protocol):
    """``LogCleaner``, for who wants to know how it goes."""

    @property
    def in_progress(self) -> Sequence[UnifiedLog]: ...

    @property
    def uncleanable(self) -> Sequence[UnifiedLog]: ...


class CloseSessions(Protocol):
    """``SocketServer.close_sessions``."""

    def __call__(self, user: str, *, but: Connection) -> int: ...


def _no_sessions(user: str, *, but: Connection) -> int:
    return 0


class Services(msgspec.Struct, kw_only=True):
    """The parts of a running broker. ``config`` is replaced as a whole when a dynamic property changes."""

    config: BrokerConfig
    clock: Clock
    node_id: BrokerId
    cluster_id: str
    files: Files
    store: CoordinationStore
    log_manager: LogManager
    log_io: LogIo
    replica_manager: ReplicaManager
    metadata: MetadataCache
    topics: TopicService
    internal_topics: InternalTopics
    """Those of streams applications."""
    groups: GroupService
    transactions: TransactionService
    transaction_verification: TransactionVerification
    shares: ShareService
    """The share coordinator."""
    share_persister: StatePersister
    share_partitions: SharePartitionManager
    reassignments: ReassignmentService
    configs: ConfigService
    features: FinalizedFeatures
    """At which level each feature of the cluster stands (KIP-584)."""
    feature_store: FinalizedFeatureStore
    """Where the levels are kept and changed."""
    client_metrics: ClientMetricsManager
    replication_quotas: ReplicationQuotas
    client_quotas: ClientQuotas
    metrics: Metrics
    """What is measured by sensors; counters of the data path are where they are counted."""
    producer_ids: ProducerIdManager
    fetch_sessions: FetchSessionCache[WantedPartition]
    supervisor: Supervisor
    controller: ControllerLoop
    recorder: EventRecorder
    """What this broker has decided of late."""
    scheduler: WorkScheduler
    """For the long work of requests."""
    request_metrics: RequestChannelMetrics = msgspec.field(default_factory=request_channel_metrics)
    security_metrics: SecurityMetrics = msgspec.field(default_factory=SecurityMetrics)
    fast_paths: FastPaths = msgspec.field(default_factory=FastPaths)
    produce_refusals: Refusals = msgspec.field(default_factory=Refusals)
    """What producers were refused lately."""
    log_flushes: KafkaTimer = msgspec.field(default_factory=KafkaTimer)
    """Flushes of logs, on the disk thread (``LogFlushStats``)."""
    start_phases: StartPhases | None = None
    """How the broker came up; None in what has no start."""
    metadata_received: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when this broker has received metadata from a controller once: the cluster's metadata, then what to
    lead and follow."""
    broker_epoch: int = -1
    """The czxid of this broker's registration (KIP-380); changes with its session."""
    authorizer: Authorizer | None = None
    """None: everybody may do everything (``authorizer.class.name`` is not set)."""
    acls: AclStore | None = None
    """What the authorizer decides by; None without one."""
    transport: TransportSecurity | None = None
    """TLS of the listeners, and of connections to other brokers; None: no listener has it."""
    authentication: Authentication | None = None
    """None: there is no SASL listener."""
    delegation_tokens: DelegationTokens | None = None
    """None: ``delegation.token.secret.key`` is not set."""
    connect: Connect = BrokerClient.connect
    """How other brokers are reached."""
    swap_in_staged: SwapInStaged | None = None
    """Puts in what ``minikafka compact`` has prepared; None until the log cleaner is there."""
    compactions: Compactions | None = None
    """What the log cleaner is at; None until it is there."""
    imitated: Release | None = None
    """The release that clients see (``api.versions``); None: the one that this broker is modelled on."""
    close_sessions: CloseSessions = _no_sessions
    """Closes the connections of a user; set when there are listeners."""
    connection_count: Callable[[], int] = lambda: 0
    """How many connections clients and brokers have here; set when there are listeners."""
    log_directory_failed: Callable[[], None] = lambda: None
    """Told when a log directory went offline."""
