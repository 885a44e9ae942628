"""A broker: the composition root, and the order in which its parts come up and go down.

Kafka's ``KafkaServer``.

Start: open the store, agree on the cluster id, lock and check the log directories, load the logs (on the
disk thread: recovery may read a lot), take over the stored topics, bind the listeners, register, begin the
chores. A start that fails undoes what it did.

Stop: no new connections; answers that are ready leave; parked fetches go with their connections; the chores
end; everything is flushed and the clean-shutdown marker is written, last.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.config.listeners import Listener
from minikafka.config.resolution import topic_config
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import StoreError
from minikafka.errors import InvariantError, StartError
from minikafka.files import Files, OsFiles
from minikafka.log.log_directories import stored_cluster_id
from minikafka.log.log_manager import LogManager
from minikafka.log.log_segments import OpenSegments
from minikafka.network.socket_server import SocketServer, SocketServerConfig
from minikafka.protocol import record_codec
from minikafka.purgatory.purgatory import DelayedOperationPurgatory
from minikafka.replication.fetch_session import FetchSessionCache
from minikafka.server.adoption import find_topics, log_adoption
from minikafka.server.apis import HANDLERS
from minikafka.server.cluster_registration import RegistrationKeeper, agree_on_cluster_id, register_broker
from minikafka.server.config_service import ConfigService
from minikafka.server.descriptors import open_segments_max
from minikafka.server.disk_chores import DiskChores
from minikafka.server.dispatcher import Dispatcher
from minikafka.server.log_io import LogIo
from minikafka.server.loop_timer import LoopTimer
from minikafka.server.maintenance import Maintenance
from minikafka.server.metadata_cache import BrokerEndpoints, Endpoint, MetadataCache
from minikafka.server.producer_ids import ProducerIdManager
from minikafka.server.replica_manager import ReplicaManager
from minikafka.server.services import Services
from minikafka.server.supervisor import Restart, Supervisor
from minikafka.server.system_clock import SystemClock
from minikafka.server.topic_service import TopicService
from minikafka.server.topic_store import StoredTopic
from minikafka.types import BrokerId

logger = logging.getLogger(__name__)

RECORD_CODEC_DELAY_MS = 200
"""After the start; a produce that comes earlier loads the codec itself."""

DRAIN_TIMEOUT_MS = 1000
"""How long a stopping broker waits for clients to take the answers that are ready."""


class Broker:
    """One broker on the running event loop. ``start`` once, ``stop`` once.

    The clock, the file system and the random numbers are arguments so that a simulation can supply its own.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._files = files or OsFiles()
        self._rng = rng or random.SystemRandom()
        self._log_io: LogIo | None = None
        self._supervisor: Supervisor | None = None
        self._store: SqliteStore | None = None
        self._log_manager: LogManager | None = None
        self._timer: LoopTimer | None = None
        self._socket_server: SocketServer | None = None
        self._services: Services | None = None
        self._advertised: dict[str, Endpoint] = {}

    def __repr__(self) -> str:
        state = f"listening on {self._advertised}" if self._advertised else "not listening"
        return f"Broker(node {self.node_id}, {state})"

    @property
    def node_id(self) -> BrokerId:
        return BrokerId(self._config.node_id)

    @property
    def services(self) -> Services:
        """The parts of the running broker. Raises InvariantError before ``start``."""
        if self._services is None:
            raise InvariantError("the broker is not running")
        return self._services

    @property
    def cluster_id(self) -> str:
        return self.services.cluster_id

    @property
    def listeners(self) -> dict[str, Endpoint]:
        """Where clients reach this broker, by listener name."""
        return dict(self._advertised)

    @property
    def port(self) -> int:
        """The port that the first listener is bound to."""
        if self._socket_server is None:
            raise InvariantError("the broker is not listening")
        return self._socket_server.bound_port(self._config.endpoints()[0].name)

    @property
    def addresses(self) -> list[Endpoint]:
        """Where clients reach this broker, in the order of the listeners."""
        return list(self._advertised.values())

    @property
    def failure(self) -> asyncio.Future[BaseException]:
        """Resolves when the broker cannot go on and must be stopped, with the reason."""
        return self.services.supervisor.failure

    async def start(self) -> None:
        """Come up, or undo everything.

        Raises:
            StartError: in one line, why this cannot work.
        """
        started_ms = self._clock.monotonic_ms()
        try:
            await self._start()
        except StoreError as error:
            await self._release()
            raise StartError(f"the coordination store {self._config.coordination_path()}: {error}") from error
        except BaseException:
            await self._release()
            raise
        logger.info(
            "broker %d of cluster %s started in %d ms: %d partitions, listening on %s",
            self.node_id,
            self.cluster_id,
            self._clock.monotonic_ms() - started_ms,
            len(self.services.replica_manager.partitions),
            ", ".join(f"{name}://{host}:{port}" for name, (host, port) in self._advertised.items()),
        )

    async def _start(self) -> None:
        config = self._config
        self._supervisor = supervisor = Supervisor()
        self._log_io = log_io = LogIo()
        self._timer = LoopTimer(self._clock)
        self._make_first_directory()
        self._store = store = await SqliteStore.open(config.coordination_path(), clock=self._clock)
        cluster_id = await agree_on_cluster_id(
            store,
            configured=config.cluster_id,
            stored=stored_cluster_id(self._files, config.log_dirs),
            rng=self._rng,
        )
        metadata = MetadataCache(controller_id=self.node_id)
        configs = ConfigService(node_id=self.node_id, static_config=config, store=store, metadata=metadata)
        await configs.load()
        self._log_manager = log_manager = await log_io.run(
            lambda: self._open_log_manager(cluster_id, configs)
        )
        chores = DiskChores()
        replica_manager = ReplicaManager(
            node_id=self.node_id,
            log_manager=log_manager,
            fetch_purgatory=DelayedOperationPurgatory(
                "Fetch", self._timer, purge_interval=config.fetch_purgatory_purge_interval_requests
            ),
            chores=chores,
        )
        topics = TopicService(
            node_id=self.node_id,
            store=store,
            metadata=metadata,
            configs=configs,
            replica_manager=replica_manager,
            rng=self._rng,
        )
        await self._load_logs(log_io, log_manager, topics)
        self._services = services = Services(
            config=configs.broker_config,
            clock=self._clock,
            node_id=self.node_id,
            cluster_id=cluster_id,
            store=store,
            log_manager=log_manager,
            log_io=log_io,
            files=self._files,
            replica_manager=replica_manager,
            metadata=metadata,
            topics=topics,
            configs=configs,
            producer_ids=ProducerIdManager(node_id=self.node_id, store=store),
            fetch_sessions=FetchSessionCache(
                max_slots=config.max_incremental_fetch_session_cache_slots, rng=self._rng, clock=self._clock
            ),
            supervisor=supervisor,
        )
        configs.subscribe_topics(replica_manager.update_topic_config)
        configs.subscribe_broker(self._broker_config_changed)
        await topics.load()
        Maintenance(services, chores).start()
        await self._listen(services)
        supervisor.start("record-codec", self._load_record_codec)

    def _make_first_directory(self) -> None:
        """The store's file lies in the first log directory, which is not checked yet.

        Raises:
            StartError: it cannot be made.
        """
        directory = self._config.log_dirs[0]
        try:
            self._files.make_directory(directory)
        except OSError as error:
            raise StartError(f"cannot make the log directory {directory}: {error.strerror}") from error

    def _open_log_manager(self, cluster_id: str, configs: ConfigService) -> LogManager:
        return LogManager(
            self._config.log_dirs,
            default_config=topic_config(configs.broker_config),
            topic_config=configs.topic_config,
            files=self._files,
            clock=self._clock,
            rng=self._rng,
            cluster_id=cluster_id,
            broker_id=self.node_id,
            open_segments=OpenSegments(open_segments_max()),
            producer_id_expiration_ms=configs.broker_config.producer_id_expiration_ms,
        )

    async def _load_logs(self, log_io: LogIo, log_manager: LogManager, topics: TopicService) -> None:
        """Load the logs of the stored topics; of those that are there, when none is stored."""
        await topics.read()
        found: list[StoredTopic] = []
        if topics.knows_none:
            found = await log_io.run(
                lambda: find_topics(
                    log_manager.directories, files=self._files, node_id=self.node_id, rng=self._rng
                )
            )
            topics.expect(found)
        await log_io.run(lambda: log_manager.load(is_stray=topics.is_stray))
        if found:
            await topics.adopt()
            log_adoption(found, log_manager)

    async def _listen(self, services: Services) -> None:
        config = services.config  # with what was set dynamically before this start
        self._socket_server = server = SocketServer(
            config.endpoints(),
            Dispatcher(services, HANDLERS),
            SocketServerConfig(
                socket_request_max_bytes=config.socket_request_max_bytes,
                socket_send_buffer_bytes=config.socket_send_buffer_bytes,
                socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
                socket_listen_backlog_size=config.socket_listen_backlog_size,
                connections_max_idle_ms=config.connections_max_idle_ms,
                max_connections=config.max_connections,
                max_connections_per_ip=config.max_connections_per_ip,
                max_connections_per_ip_overrides=config.connection_overrides(),
                queued_max_request_bytes=config.queued_max_request_bytes,
            ),
        )
        await server.start()
        self._advertised = {
            listener.name: self._advertise(listener, server) for listener in config.advertised_endpoints()
        }
        entry = BrokerEndpoints(
            node_id=self.node_id, endpoints=dict(self._advertised), rack=config.broker_rack
        )
        services.metadata.put_broker(entry)

        async def register() -> None:
            await register_broker(
                services.store, entry, listeners=config.advertised_endpoints(), now_ms=self._clock.now_ms()
            )

        await register()
        keeper = RegistrationKeeper(services.store, register)
        services.supervisor.start("registration", keeper.run, restart=Restart.ALWAYS)

    async def _load_record_codec(self) -> None:
        """Before the first produce needs it, but after the first client was answered.

        On the loop, which waits a tenth of a second for it: aiokafka's modules import each other, so a thread
        that imports them would show an unfinished one to a produce that comes meanwhile.
        """
        await asyncio.sleep(RECORD_CODEC_DELAY_MS / 1000)
        record_codec.load()

    def _advertise(self, listener: Listener, server: SocketServer) -> Endpoint:
        """What clients are told: the port that the system chose for port 0, this host for "all
        interfaces"."""
        host = socket.getfqdn() if listener.is_wildcard else listener.host
        return Endpoint(host, listener.port or server.bound_port(listener.name))

    def _broker_config_changed(self, config: BrokerConfig) -> None:
        services = self.services
        services.config = config
        services.log_manager.reconfigure(
            default_config=topic_config(config), producer_id_expiration_ms=config.producer_id_expiration_ms
        )
        if self._socket_server is not None:
            limits = self._socket_server.limits
            limits.max_connections = config.max_connections
            limits.max_connections_per_ip = config.max_connections_per_ip
            limits.max_connections_per_ip_overrides = config.connection_overrides()

    async def stop(self) -> None:
        """Go down cleanly. Idempotent; also after a start that failed."""
        if self._socket_server is not None:
            await self._socket_server.close(drain_timeout_ms=DRAIN_TIMEOUT_MS)
        await self._release()

    async def _release(self) -> None:
        """Let go of everything that start took, in the opposite order."""
        server, self._socket_server = self._socket_server, None
        if server is not None:
            await server.close()
        self._advertised = {}
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await supervisor.stop()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.close()
        log_manager, self._log_manager = self._log_manager, None
        log_io, self._log_io = self._log_io, None
        if log_io is not None:
            if log_manager is not None:
                await log_io.run(log_manager.shutdown)
            log_io.close()
        store, self._store = self._store, None
        if store is not None:
            await store.close()
