"""What the API handlers may use: every long-lived part of a running broker, by name.

Filled once by ``broker.py``; a handler takes what it needs from here and keeps nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.coordination.store import CoordinationStore
from minikafka.files import Files
from minikafka.log.log_manager import LogManager
from minikafka.replication.fetch_session import FetchSessionCache
from minikafka.server.config_service import ConfigService
from minikafka.server.log_io import LogIo
from minikafka.server.metadata_cache import MetadataCache
from minikafka.server.partition_reads import WantedPartition
from minikafka.server.producer_ids import ProducerIdManager
from minikafka.server.replica_manager import ReplicaManager
from minikafka.server.supervisor import Supervisor
from minikafka.server.topic_service import TopicService
from minikafka.types import BrokerId


@dataclass(slots=True, kw_only=True)
class Services:
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
    configs: ConfigService
    producer_ids: ProducerIdManager
    fetch_sessions: FetchSessionCache[WantedPartition]
    supervisor: Supervisor
