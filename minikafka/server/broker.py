"""A broker: the composition root, and the order in which its parts come up and go down.

Kafka's ``KafkaServer``.

Start: open the store, agree on the cluster id, lock and check the log directories, load the logs (on the
disk thread: recovery may read a lot) and the ACLs, start the maintenance, bind the listeners, join the
cluster: register, be a candidate for controller, hear from the controller what to lead and follow. A start
that fails undoes what it did.

Stop: the controller moves what is led here, and clients are told for a moment who leads it now; no new
connections; answers that are ready leave; parked fetches go with their connections; fetchers and maintenance
stop; everything is flushed and the clean-shutdown marker is written; the session ends, last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

from minikafka import __version__
from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.config.listeners import Listener
from minikafka.config.resolution import topic_config
from minikafka.coordination.store import CoordinationStore, StoreError
from minikafka.deferred import deferred, own_modules
from minikafka.errors import InvariantError, StartError
from minikafka.files import Files, OsFiles
from minikafka.flight_recorder import BrokerStarted, BrokerStopped
from minikafka.log.log_directories import stored_cluster_id
from minikafka.log.log_manager import LogManager
from minikafka.network.broker_client import BrokerClient
from minikafka.network.socket_server import SocketServer, SocketServerConfig
from minikafka.protocol.records import record_codec
from minikafka.server.apis import HANDLERS
from minikafka.server.assembly import (
    join_membership,
    load_logs,
    make_services,
    note_failed_handshake,
    open_log_manager,
    open_transport,
    registration,
    start_authentication,
    start_tracing,
)
from minikafka.server.client_quotas import ConnectionOverrides, apply_ip_quota, listener_limits
from minikafka.server.cluster.broker_connection import Connect
from minikafka.server.cluster.coordination_store import StorePatience, create_top_level_paths, store_name
from minikafka.server.cluster.coordination_store import open_store as open_configured_store
from minikafka.server.cluster.metadata_cache import Endpoint, MetadataCache
from minikafka.server.cluster.registration import SessionKeeper, agree_on_cluster_id, refuse_migration
from minikafka.server.cluster_membership import ClusterMembership
from minikafka.server.config_service import ConfigService
from minikafka.server.config_store import ConfigChangeListener
from minikafka.server.dispatch.dispatcher import Dispatcher
from minikafka.server.replica.pending_disk_work import PendingDiskWork
from minikafka.server.runtime.event_loop import LoopTimer, Restart, Supervisor
from minikafka.server.runtime.event_recorder import EventRecorder
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.process import DescriptorBudget, StartPhases
from minikafka.server.services import Services
from minikafka.server.storage.alter_log_dirs import ReplicaAlterLogDirs
from minikafka.server.storage.log_cleaner import LogCleaner
from minikafka.server.storage.maintenance import Maintenance
from minikafka.system_clock import SystemClock
from minikafka.types import BrokerId

if TYPE_CHECKING:
    from minikafka.security.secure_setup import FirstUser
    from minikafka.server.http import pages as http_pages
    from minikafka.server.http.pages import MakeConsole
    from minikafka.server.http.server import HttpServer
    from minikafka.server.security.transport import TransportSecurity
else:
    http_pages = deferred("minikafka.server.http.pages")

logger = logging.getLogger(__name__)

OpenStore = Callable[..., Awaitable[CoordinationStore]]
"""Called with the configuration and ``clock``; returns a store that has a session."""

RECORD_CODEC_DELAY_MS = 200
"""After the first partition came; a produce that comes earlier loads the codec itself."""

OWN_MODULES_DELAY_MS = 200
"""After the start, when a client that waited for it has its first answer."""

DRAIN_TIMEOUT_MS = 1000
"""How long a stopping broker waits for clients to take the answers that are ready."""


class Broker:
    """One broker on the running event loop. ``start`` once, ``stop`` once.

    The clock, the file system, the random numbers and the coordination store are arguments so that a
    simulation can supply its own.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        rng: random.Random | None = None,
        open_store: OpenStore | None = None,
        connect: Connect = BrokerClient.connect,
        usual_http_port: int | None = None,
        first_users: Sequence[FirstUser] = (),
        make_console: MakeConsole | None = None,
    ) -> None:
        """``connect`` is how this broker reaches the others; ``usual_http_port`` is tried where ``http.port``
        says nothing, and is done without where it is taken. ``secure_broker`` can log in from the start.
        ``make_console``: the console's API on the HTTP port, made at its first request; None: there is none.
        """
        self._config = config
        self._connect = connect
        self._usual_http_port = usual_http_port
        self._first_users = first_users
        self._make_console = make_console
        self._clock = clock or SystemClock()
        self._files = files or OsFiles()
        self._rng = rng or random.SystemRandom()
        self._log_io: LogIo | None = None
        self._supervisor: Supervisor | None = None
        self._open_store = open_store or open_configured_store
        self._store: CoordinationStore | None = None
        self._log_manager: LogManager | None = None
        self._phases = StartPhases(self._clock)
        self._recorder: EventRecorder | None = None
        self._timer: LoopTimer | None = None
        self._socket_server: SocketServer | None = None
        self._http: HttpServer | None = None
        self._services: Services | None = None
        self._membership: ClusterMembership | None = None
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
    def socket_server(self) -> SocketServer:
        """Raises InvariantError: it does not listen."""
        if self._socket_server is None:
            raise InvariantError("the broker is not listening")
        return self._socket_server

    @property
    def bound(self) -> list[Listener]:
        """Where the broker listens, with the ports that the system has chosen.

        Raises:
            InvariantError: it does not listen.
        """
        port = self.socket_server.bound_port
        return [listener._replace(port=port(listener.name)) for listener in self._config.endpoints()]

    @property
    def unprotected(self) -> list[Listener]:
        """Of those, where anyone on another machine may do anything: neither passwords nor certificates of
        clients are required, and there are no ACLs. Raises as ``bound``."""
        return [
            listener for listener in self.bound if listener.is_unprotected and not self._is_guarded(listener)
        ]

    def _is_guarded(self, listener: Listener) -> bool:
        """By certificates that clients must show, or by ACLs."""
        security = self._config.listener_security(listener.name)
        shows_certificate = listener.protocol == "SSL" and security.ssl_client_auth == "required"
        return shows_certificate or self._config.has_authorizer

    @property
    def port(self) -> int:
        """The port that the first listener is bound to."""
        return self.socket_server.bound_port(self._config.endpoints()[0].name)

    @property
    def addresses(self) -> list[Endpoint]:
        """Where clients reach this broker, in the order of the listeners."""
        return list(self._advertised.values())

    @property
    def http_address(self) -> Endpoint | None:
        """Where metrics and health are read; None when nowhere."""
        address = None if self._http is None else self._http.address
        return None if address is None else Endpoint(*address)

    @property
    def failure(self) -> asyncio.Future[BaseException]:
        """Resolves when the broker cannot go on and must be stopped, with the reason."""
        return self.services.supervisor.failure

    async def start(self) -> None:
        """Come up, or undo everything.

        Raises:
            StartError: in one line, why this cannot work.
        """
        self._phases = phases = StartPhases(self._clock)
        try:
            await self._start()
        except StoreError as error:
            await self._release()
            raise StartError(f"the coordination store {store_name(self._config)}: {error}") from error
        except BaseException:
            await self._release()
            raise
        logger.info(
            "broker %d of cluster %s started in %d ms: %d partitions, listening on %s",
            self.node_id,
            self.cluster_id,
            phases.total_ms,
            len(self.services.replica_manager.partitions),
            ", ".join(map(str, self.bound)),
        )
        for listener in self.unprotected:
            logger.warning(
                "listener %s accepts connections from other machines without authentication: anyone who can "
                "reach it can read and delete everything. Listen on localhost (listeners=%s://localhost:%d), "
                "or let only trusted machines through to port %d",
                listener,
                listener.name,
                listener.port,
                listener.port,
            )

    async def _start(self) -> None:
        config = self._config
        self._supervisor = supervisor = Supervisor()
        self._log_io = log_io = LogIo()
        self._timer = timer = LoopTimer(self._clock)
        budget = DescriptorBudget.of_process()
        logger.info("%s", budget)
        await log_io.run(self._make_first_directory)
        self._store = store = await self._open_store(config, clock=self._clock)
        first_session_id = store.session_id
        until_connected = StorePatience(store, self._clock).until_connected
        cluster_id = await until_connected("the cluster id", lambda: self._join_cluster(store, log_io))
        self._phases.done("coordination store")
        metadata = MetadataCache()
        configs = ConfigService(node_id=self.node_id, static_config=config, store=store, metadata=metadata)
        config_changes = ConfigChangeListener(store, clock=self._clock, reload=configs.reload)
        await until_connected("the list of configuration changes", config_changes.begin)
        await until_connected("the cluster's first configuration", configs.found_cluster)
        await until_connected("the configuration", configs.load)
        transport = await open_transport(configs.broker_config, clock=self._clock)
        self._phases.done("configuration")
        log_manager = await self._load_logs(configs, store, log_io, cluster_id, budget)
        disk_work = PendingDiskWork()
        recorder = await self._start_recorder(configs.broker_config, log_manager, log_io, supervisor)
        sessions = SessionKeeper(store, first_session_id=first_session_id, record=recorder.record)
        self._services = services = make_services(
            configs=configs,
            metadata=metadata,
            store=store,
            log_manager=log_manager,
            log_io=log_io,
            disk_work=disk_work,
            recorder=recorder,
            timer=timer,
            supervisor=supervisor,
            sessions=sessions,
            cluster_id=cluster_id,
            node_id=self.node_id,
            files=self._files,
            clock=self._clock,
            rng=self._rng,
            connect=self._connect,
            transport=transport,
        )
        services.start_phases = self._phases
        await self._load(services)
        self._follow_changes(services, transport)
        membership = join_membership(services, sessions=sessions, config_changes=config_changes)
        for part in (services.groups, services.transactions, services.shares, services.share_partitions):
            part.start()
        cleaner = self._start_maintenance(services, disk_work)
        self._phases.done("features, ACLs, coordinators")
        await self._open(services, sessions, cleaner, budget)
        self._phases.done("listeners")
        await self._join(services, membership)
        self._phases.done("registration, and what to lead and follow")
        supervisor.start("own-modules", lambda: self._load_deferred_modules(log_io))

    async def _load_logs(
        self,
        configs: ConfigService,
        store: CoordinationStore,
        log_io: LogIo,
        cluster_id: str,
        budget: DescriptorBudget,
    ) -> LogManager:
        """Open the log directories and all that is in them. Raises StartError."""
        self._log_manager = log_manager = await log_io.run(
            lambda: open_log_manager(
                configs,
                cluster_id=cluster_id,
                node_id=self.node_id,
                files=self._files,
                clock=self._clock,
                rng=self._rng,
                open_files_max=budget.open_files,
            )
        )
        await load_logs(
            log_manager,
            log_io,
            store,
            configs,
            node_id=self.node_id,
            files=self._files,
            clock=self._clock,
            rng=self._rng,
        )
        self._phases.done("logs")
        return log_manager

    async def _start_recorder(
        self, config: BrokerConfig, log_manager: LogManager, log_io: LogIo, supervisor: Supervisor
    ) -> EventRecorder:
        """The log directory is locked, so that no other process writes its files."""
        recorder = EventRecorder(config, clock=self._clock, files=self._files, log_io=log_io)
        await recorder.load()
        self._recorder = recorder
        has_run = recorder.ring.first is not None or bool(log_manager.logs)
        was_clean = log_manager.was_clean if has_run else None
        recorder.record(BrokerStarted(version=__version__, was_clean=was_clean))
        supervisor.start("event-recorder", recorder.run, restart=Restart.ALWAYS)
        return recorder

    async def _load(self, services: Services) -> None:
        """What the cluster has agreed on, before clients come. Raises StartError, StoreError."""
        until_connected = StorePatience(services.store, self._clock).until_connected
        await until_connected("the levels of the features", services.feature_store.load)
        if services.acls is not None:
            await until_connected("the ACLs", services.acls.load)

    async def _open(
        self, services: Services, sessions: SessionKeeper, cleaner: LogCleaner, budget: DescriptorBudget
    ) -> None:
        """From here on clients can come. Raises StartError."""
        self._prepare_for_records(services)
        dispatcher = Dispatcher(services, HANDLERS, imitated=services.imitated)
        await start_authentication(services, dispatcher, sessions=sessions, rng=self._rng)
        socket_server = await self._listen(services, dispatcher, budget)
        self._http = await self._start_http(services, cleaner, socket_server, budget)

    async def _join(self, services: Services, membership: ClusterMembership) -> None:
        self._membership = membership
        await membership.join(registration(services, self._advertised, http=self.http_address))

    def _follow_changes(self, services: Services, transport: TransportSecurity | None) -> None:
        """Of the configuration, and of the files with keys and certificates."""
        services.configs.subscribe_broker(self._broker_config_changed)
        start_tracing(services)
        if transport is not None:
            services.configs.check_broker_with(transport.check)
            services.configs.subscribe_broker(transport.apply)
            services.supervisor.start("tls-stores", transport.watch, restart=Restart.ALWAYS)

    def _start_maintenance(self, services: Services, disk_work: PendingDiskWork) -> LogCleaner:
        maintenance = Maintenance(services, disk_work)
        maintenance.start()
        cleaner = LogCleaner(services, remove_later=maintenance.remove_later)
        cleaner.start()
        services.swap_in_staged = cleaner.swap_in_staged
        services.compactions = cleaner
        ReplicaAlterLogDirs(services, disk_work, quota=services.replication_quotas.alter_log_dirs).start()
        return cleaner

    async def _join_cluster(self, store: CoordinationStore, log_io: LogIo) -> str:
        """The cluster's id; the store's top nodes and the first users. Raises StartError, StoreError."""
        await refuse_migration(store)
        await create_top_level_paths(store)
        if self._first_users:
            from minikafka.server.security.secure_broker import ensure_users  # an open broker has none

            await ensure_users(store, self._first_users, log_io=log_io)
        return await agree_on_cluster_id(
            store,
            configured=self._config.cluster_id,
            stored=stored_cluster_id(self._files, self._config.log_dirs),
            rng=self._rng,
        )

    def _make_first_directory(self) -> None:
        """The store's file lies in the first log directory, which is not checked yet.

        On the disk thread: what is made is made durable, or a power cut would take the directory and all that
        was flushed in it.

        Raises:
            StartError: it cannot be made.
        """
        directory = self._config.log_dirs[0]
        try:
            if not self._files.is_directory(directory):
                self._files.make_directory(directory)
                self._files.sync_directory(os.path.dirname(directory) or ".")
        except OSError as error:
            raise StartError(f"cannot make the log directory {directory}: {error.strerror}") from error

    async def _listen(
        self, services: Services, dispatcher: Dispatcher, budget: DescriptorBudget
    ) -> SocketServer:
        config = services.config  # with what was set dynamically before this start
        gates = {} if services.authentication is None else services.authentication.listeners
        for listener in config.endpoints():
            if listener.protocol.startswith("SASL") and listener.name not in gates:
                raise InvariantError(f"listener {listener} would take everybody")
        self._socket_server = server = SocketServer(
            config.endpoints(),
            dispatcher,
            SocketServerConfig(
                socket_request_max_bytes=config.socket_request_max_bytes,
                socket_send_buffer_bytes=config.socket_send_buffer_bytes,
                socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
                socket_listen_backlog_size=min(config.socket_listen_backlog_size, budget.backlog),
                connections_max_idle_ms=config.connections_max_idle_ms,
                max_connections=config.max_connections,
                max_connections_per_ip=config.max_connections_per_ip,
                max_connections_per_ip_overrides=config.connection_overrides(),
                max_connection_creation_rate=config.max_connection_creation_rate,
                listeners=listener_limits(config),
                protected_listener=config.inter_broker_listener() if len(config.endpoints()) > 1 else None,
                quota_window_seconds=config.quota_window_num * config.quota_window_size_seconds,
                queued_max_request_bytes=config.queued_max_request_bytes,
                descriptors_for_connections=budget.connections,
            ),
            tls=None if services.transport is None else services.transport.listeners,
            gates=gates,
            now_ns=self._clock.monotonic_ns,
        )
        services.close_sessions = server.close_sessions
        services.connection_count = lambda: len(server.connections)
        services.configs.client_quotas.follow(partial(apply_ip_quota, server.limits))
        await server.start()
        if server.handshakes is not None:
            server.handshakes.note_failure = partial(note_failed_handshake, services)
        overrides = ConnectionOverrides(config, server.limits)
        services.configs.check_broker_with(overrides.check)
        services.configs.subscribe_broker(overrides.apply)
        services.supervisor.start("connection-overrides", overrides.run, restart=Restart.ALWAYS)
        self._advertised = {
            listener.name: self._advertise(listener, server) for listener in config.advertised_endpoints()
        }
        return server

    async def _start_http(
        self, services: Services, cleaner: LogCleaner, socket_server: SocketServer, budget: DescriptorBudget
    ) -> HttpServer | None:
        if self._usual_http_port is None and services.config.http_port is None:
            return None
        return await http_pages.start_http(
            services,
            cleaner=cleaner,
            socket_server=socket_server,
            usual_port=self._usual_http_port,
            connections_max=budget.http_connections,
            advertised_hosts=[endpoint.host for endpoint in self._advertised.values()],
            make_console=self._make_console,
            own_address=self._advertised[services.config.inter_broker_listener()],
        )

    def _prepare_for_records(self, services: Services) -> None:
        """Load the record codec soon after the first partition came: a broker without one saves 4 MB."""
        has_partitions = asyncio.Event()
        services.replica_manager.add_leadership_listener(lambda topic_partition: has_partitions.set())
        work = partial(self._load_record_codec, has_partitions, services.log_io)
        services.supervisor.start("record-codec", work)

    async def _load_record_codec(self, has_partitions: asyncio.Event, log_io: LogIo) -> None:
        """Before the first produce needs it, but after the first client was answered. In the disk thread: on
        the loop all others would wait a tenth of a second, and on a busy machine a whole one."""
        await has_partitions.wait()
        await asyncio.sleep(RECORD_CODEC_DELAY_MS / 1000)
        await log_io.run(record_codec.load)

    async def _load_deferred_modules(self, log_io: LogIo) -> None:
        """All of ours that the start has deferred, before an upgrade may replace its files; and what the
        first request of the status page would wait for.

        One at a time, in the disk thread, so that the loop is free. Our modules import each other in no
        circle, so code that needs one meanwhile waits for it.
        """
        await asyncio.sleep(OWN_MODULES_DELAY_MS / 1000)
        of_http = ("h11",) if self._http is not None else ()
        for name in chain(of_http, HANDLERS.modules(), own_modules()):
            if name not in sys.modules:
                await log_io.run(partial(import_module, name))

    def _advertise(self, listener: Listener, server: SocketServer) -> Endpoint:
        """What clients are told: the port that the system chose for port 0, this host for "all
        interfaces"."""
        host = socket.getfqdn() if listener.is_wildcard else listener.host
        return Endpoint(host, listener.port or server.bound_port(listener.name))

    def _broker_config_changed(self, config: BrokerConfig) -> None:
        services = self.services
        services.config = config
        services.replication_quotas.update_rates(config)
        services.log_manager.reconfigure(
            default_config=topic_config(config),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            verifies_transactions=config.transaction_partition_verification_enable,
        )
        if services.authentication is not None:
            services.authentication.reconfigure(config)
        if self._socket_server is not None:
            limits = self._socket_server.limits
            limits.max_connections = config.max_connections
            limits.max_connections_per_ip = config.max_connections_per_ip
            limits.max_connection_creation_rate = config.max_connection_creation_rate
            limits.listeners = listener_limits(config)

    async def stop(self) -> None:
        """Go down cleanly. Idempotent; also after a start that failed."""
        membership, self._membership = self._membership, None
        if membership is not None:
            await membership.leave()
        if self._socket_server is not None:
            await self._socket_server.close(drain_timeout_ms=DRAIN_TIMEOUT_MS)
        await self._release()

    async def _release(self) -> None:
        """Let go of everything that start took, in the opposite order."""
        server, self._socket_server = self._socket_server, None
        if server is not None:
            await server.close()
        self._advertised = {}
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        if self._services is not None:
            await self._services.replica_manager.close()
            await self._services.transaction_verification.close()
            await self._services.share_persister.close()
            await self._services.share_partitions.close()
            self._services.scheduler.close()
            if self._services.authentication is not None:
                self._services.authentication.close()
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await supervisor.stop()
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.record(BrokerStopped())
            await recorder.close()
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
