"""``Cluster``: several brokers on the event loop of the test that uses them, and what can befall them.

They are real brokers with directories of their own, that share a SQLite store (or a ZooKeeper of yours) and
elect a controller. What a test does to them happens at the edges, so that no word of the server's code is for
it: clients and other brokers reach a broker through relays (``Links``), it reaches the store through a gate
(SQLite) or a relay (ZooKeeper), and its disk can be taken away. It can be cut off, held still and killed::

    STOPPED --start--> RUNNING --stop, kill--> STOPPED

Not thread-safe: a cluster belongs to the loop that started it. A loop that is blocked for longer than
``zookeeper.session.timeout.ms`` (3 s here) takes the sessions of all brokers along.

Links are TCP relays on loopback whose traffic a test may hold back or delay. Every end is a broker's id, or a
name for what is not a broker (``CLIENTS``, ``STORE``). Traffic from one end to another has a ``Flow``,
whichever opened the connection: what broker 1 sends to broker 2 as a request and what it sends there as an
answer are held back together. What is held back is not lost: TCP would send it again, so it arrives when the
flow is released, unless the connection was closed meanwhile. That is how a network that drops packets looks
to both ends.

The gate in front of a SQLite store:

    OPEN    everything goes through
    HELD    calls wait, for a broker that stands still
    SHUT    calls fail at once with ConnectionLossError, for a broker that is cut off or dead

While it is not open the session is not renewed and no watch fires, so the session runs out and the others end
it. The broker learns of that when the gate is open again. (A real cut-off broker would see by its own clock
that its lease has run out; one that finds out late is the harder case for the others.)

From the moment of a kill nothing that a broker does reaches its disk. What was written before is kept, as
after a SIGKILL: the page cache outlives a process. What it still writes while its remains are closed (its
checkpoints, the mark of a clean shutdown) goes nowhere, and answers as if it had succeeded. Memory maps are
the exception: the indexes are written through them. Appends have ended, but a time index gets its last entry
when it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.clock import Clock
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import ConnectionLossError
from minikafka.files import OsFile, OsFiles, make_private_directory, open_regular
from minikafka.network.socket_server import stop_listening
from minikafka.testing.broker import Property, SecureAccess, acl_binding, property_text
from minikafka.testing.groups import AsksGroups
from minikafka.types import Buffer

if TYPE_CHECKING:
    from minikafka.config.broker import BrokerConfig
    from minikafka.coordination.store import CoordinationStore
    from minikafka.network.broker_client import BrokerClient
    from minikafka.security.secure_setup import FirstUser
    from minikafka.server.broker import Broker as ServerBroker
    from minikafka.server.services import Services

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 256 * 1024
CHUNKS_ON_THE_WAY_MAX = 16
"""A sender is not read any further when so much waits: it notices, as with a full TCP window."""

CLIENTS = "clients"
STORE = "store"

End = int | str
Target = tuple[str, int]

T = TypeVar("T")

WAIT_TIMEOUT_S = 30.0
POLL_S = 0.01

DEFAULTS: dict[str, Property] = {
    "zookeeper.session.timeout.ms": 3_000,  # Kafka's 18 s are long for a test that waits for them
    "controlled.shutdown.retry.backoff.ms": 100,
    "replica.fetch.backoff.ms": 100,
}


# Links


class Flow:
    """What one end sends to another."""

    def __init__(self) -> None:
        self.delay_ms = 0.0
        self.chunk_bytes = CHUNK_BYTES
        """What arrives at once; each chunk is ``delay_ms`` late."""
        self.released = asyncio.Event()
        self.released.set()

    def __repr__(self) -> str:
        return f"Flow({'open' if self.released.is_set() else 'held'}, {self.delay_ms:g} ms)"

    def hold(self) -> None:
        self.released.clear()

    def release(self) -> None:
        self.delay_ms = 0.0
        self.chunk_bytes = CHUNK_BYTES
        self.released.set()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes until either side ends the connection."""
        loop = asyncio.get_running_loop()
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_ON_THE_WAY_MAX)

        async def take() -> None:
            data = b"-"
            while data:
                try:
                    data = await reader.read(self.chunk_bytes)
                except OSError:
                    data = b""
                await on_the_way.put((loop.time() + self.delay_ms / 1000, data))

        taking = asyncio.ensure_future(take())
        try:
            while True:
                due, data = await on_the_way.get()
                if (wait_s := due - loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                await self.released.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        finally:
            taking.cancel()


class Relay:
    """A port that leads to ``target``. It keeps its port when it is shut and opened again."""

    def __init__(self, there: Flow, back: Flow, target: Callable[[], Target | None]) -> None:
        """``target`` is asked for every connection; None refuses it."""
        self._there = there
        self._back = back
        self._target = target
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}  # in the order of their beginnings
        self.port = 0

    def __repr__(self) -> str:
        return f"Relay({self.port} to {self._target()}, {len(self._connections)} connections)"

    def flows(self, writer: asyncio.StreamWriter) -> tuple[Flow, Flow]:
        """There and back, of a connection that ``writer`` leads back on."""
        return self._there, self._back

    async def open(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Cut all connections and refuse new ones."""
        server, self._server = self._server, None
        if server is not None:
            stop_listening(server)
        await self.cut()

    async def cut(self) -> None:
        """Reset all connections."""
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # shut since the kernel had it
            writer.transport.abort()
            return

        def ended(connection: asyncio.Task[None]) -> None:
            del self._connections[connection]
            if connection.cancelled():  # before it began
                writer.transport.abort()

        connection = asyncio.ensure_future(self._carry(reader, writer))
        self._connections[connection] = None
        connection.add_done_callback(ended)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transports = [writer.transport]
        try:
            target = self._target()
            if target is None:
                raise ConnectionRefusedError
            far_reader, far_writer = await asyncio.open_connection(*target)
            transports.append(far_writer.transport)
            there, back = self.flows(writer)
            pumps = [
                asyncio.ensure_future(there.pump(reader, far_writer)),
                asyncio.ensure_future(back.pump(far_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for transport in transports:  # what was written is still to leave
                    transport.close()
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            for transport in transports:
                transport.abort()


class Network:
    """All flows between the ends of a cluster, and the relays that carry them."""

    def __init__(self) -> None:
        self._flows: defaultdict[tuple[End, End], Flow] = defaultdict(Flow)
        self._relays: list[Relay] = []

    def __repr__(self) -> str:
        changed = {ends: flow for ends, flow in self._flows.items() if not flow.released.is_set()}
        return f"Network(held: {list(changed)})"

    def flow(self, source: End, target: End) -> Flow:
        return self._flows[source, target]

    def flows_of(self, end: End) -> list[Flow]:
        """All that leads to ``end`` and away from it."""
        return [flow for ends, flow in self._flows.items() if end in ends]

    def flows(self) -> list[Flow]:
        return list(self._flows.values())

    def relay(self, source: End, target: End, address: Callable[[], Target | None]) -> Relay:
        """A new way, not yet open, on which ``source`` connects to ``target``."""
        relay = Relay(self.flow(source, target), self.flow(target, source), address)
        self._relays.append(relay)
        return relay

    async def close(self) -> None:
        """Shut all relays."""
        with contextlib.suppress(OSError):
            await asyncio.gather(*(relay.shut() for relay in self._relays))


# The gate to the store


class GateState(Enum):
    OPEN = "open"
    HELD = "held"
    SHUT = "shut"


class StoreGate:
    """Belongs to one broker."""

    def __init__(self) -> None:
        self.state = GateState.OPEN
        self._moved = asyncio.Event()
        self._moved.set()

    def __repr__(self) -> str:
        return f"StoreGate({self.state.value})"

    def move(self, state: GateState) -> None:
        self.state = state
        if state is GateState.HELD:
            self._moved.clear()
        else:
            self._moved.set()

    async def pass_through(self) -> None:
        """Raises ConnectionLossError: the gate is shut."""
        await self._moved.wait()
        if self.state is GateState.SHUT:
            raise ConnectionLossError("the store is out of reach")


class GatedSqliteStore(SqliteStore):
    """A ``SqliteStore`` whose calls go through ``gate``; ``open`` takes it as an option."""

    def __init__(self, path: str, *, gate: StoreGate, clock: Clock, session_timeout_ms: int) -> None:
        self._gate = gate  # before the SQL thread starts, which looks at it
        super().__init__(path, clock=clock, session_timeout_ms=session_timeout_ms)

    async def _submit(self, call: Callable[[], T], *, closing: bool = False) -> T:
        if not (closing and call == self._client.close):  # the file is closed in any case
            await self._gate.pass_through()
        return await super()._submit(call, closing=closing)

    def _idle_interval(self) -> float | None:
        return super()._idle_interval() if self._gate.state is GateState.OPEN else None


# The disk


class MortalFile(OsFile):
    """An open file of a ``MortalFiles``."""

    __slots__ = ("_owner",)

    def __init__(self, owner: MortalFiles, path: str, fd: int, *, read_only: bool) -> None:
        super().__init__(path, fd, read_only=read_only)
        self._owner = owner

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        if self._owner.is_dead:
            return sum(map(len, buffers))
        return super().write(buffers, position)

    def truncate(self, size: int) -> None:
        if not self._owner.is_dead:
            super().truncate(size)

    def fsync(self) -> None:
        if not self._owner.is_dead:
            super().fsync()


class MortalFiles(OsFiles):
    """``OsFiles`` until ``is_dead`` is set."""

    def __init__(self) -> None:
        self.is_dead = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MortalFile:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        nowhere = create and self.is_dead
        fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) if nowhere else open_regular(path, flags)
        return MortalFile(self, path, fd, read_only=read_only)

    def write_atomically(self, path: str, data: bytes) -> None:
        if not self.is_dead:
            super().write_atomically(path, data)

    def replace(self, path: str, data: bytes) -> None:
        if not self.is_dead:
            super().replace(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        if not self.is_dead:
            super().overwrite(path, data)

    def make_directory(self, path: str) -> None:
        if not self.is_dead:
            super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        if not self.is_dead:
            super().rename(source, target)

    def remove(self, path: str) -> None:
        if not self.is_dead:
            super().remove(path)

    def remove_tree(self, path: str) -> None:
        if not self.is_dead:
            super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        if not self.is_dead:
            super().sync_directory(path)


# Brokers


class ClusterBroker:
    """Made by ``Cluster``. ``node_id``, ``data_dir`` and ``port`` are the same over restarts."""

    def __init__(
        self,
        node_id: int,
        *,
        config: Mapping[str, Property],
        data_dir: str,
        network: Network,
        access: SecureAccess | None = None,
    ) -> None:

        self.node_id = node_id
        self.data_dir = data_dir
        self.is_cut_off = False
        """Isolated or paused: what it knows may be out of date."""
        self._config = dict(config)
        self._access = access
        self._network = network
        self._front = network.relay(CLIENTS, node_id, self._address)
        self._ways: dict[int, tuple[ClusterBroker, Relay]] = {}
        self._store_ways: list[Relay] = []
        self._gate = StoreGate()
        self._files: MortalFiles | None = None
        self._server: ServerBroker | None = None

    def __repr__(self) -> str:
        state = "stopped" if self._server is None else f"listening on {self.bootstrap_servers}"
        return f"<minikafka.testing.ClusterBroker {self.node_id} {state}>"

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @property
    def is_up(self) -> bool:
        """Whether its start has come as far as hearing from the controller."""
        return self._server is not None and bool(self._server.listeners)

    @property
    def server(self) -> ServerBroker:
        """The running broker itself, for tests that look inside. Raises RuntimeError when not running."""
        if self._server is None:
            raise RuntimeError(f"broker {self.node_id} is not running")
        return self._server

    @property
    def port(self) -> int:
        """Where clients reach it."""
        return self._front.port

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, as every Kafka client takes it."""
        return f"{LOOPBACK}:{self.port}"

    # For the cluster

    async def connect_to(self, others: list[ClusterBroker]) -> None:
        """Make the ways on which this broker reaches clients, the others and ZooKeeper."""
        await self._front.open()
        for other in others:
            relay = self._network.relay(self.node_id, other.node_id, other._address)
            await relay.open()
            self._ways[other.node_id] = (other, relay)
        connect = self._config.get("zookeeper.connect")
        if connect is None:
            return
        hosts, slash, chroot = str(connect).partition("/")
        for address in hosts.split(","):
            host, _, port = address.rpartition(":")
            self._store_ways.append(self._store_way((host.strip("[]"), int(port))))
        for relay in self._store_ways:
            await relay.open()
        ways = ",".join(f"{LOOPBACK}:{relay.port}" for relay in self._store_ways)
        self._config["zookeeper.connect"] = ways + slash + chroot

    def _store_way(self, target: Target) -> Relay:
        return self._network.relay(self.node_id, STORE, lambda: target)

    async def start(self) -> None:
        """Start on its directory and its port. Raises StartError, ConfigError."""
        from minikafka.config.loader import Setting, load
        from minikafka.server.broker import Broker as ServerBroker

        if self._server is not None:
            raise RuntimeError(f"broker {self.node_id} is already running")
        self.reach_store()
        for relay in (self._front, *self._store_ways):
            await relay.open()
        protocol = "PLAINTEXT" if self._access is None else "SASL_SSL"
        properties = self._config | {
            "node.id": self.node_id,
            "log.dirs": self.data_dir,
            "listeners": f"{protocol}://{LOOPBACK}:0",
            "advertised.listeners": f"{protocol}://{LOOPBACK}:{self.port}",
        }
        make_private_directory(self.data_dir)
        settings = [Setting(name, property_text(value), "config") for name, value in properties.items()]
        first_users: tuple[FirstUser, ...] = ()
        if self._access is not None:
            setup = self._access.setup({setting.name: setting for setting in settings})
            settings += setup.settings
            first_users = setup.first_users
        config = load(settings=settings).config
        files = self._files = MortalFiles()
        server = ServerBroker(
            config,
            files=files,
            open_store=self._open_store,
            connect=self._connect,
            first_users=first_users,
        )
        self._server = server
        try:
            await server.start()
        except BaseException:
            self._server = None
            raise

    async def stop(self) -> None:
        """Stop cleanly; a broker that is not running is left so."""
        server = self._server
        if server is None:
            return
        try:
            await server.stop()
        finally:
            self._server = None
            await self._front.shut()

    async def kill(self) -> None:
        """See ``Cluster.kill``."""
        server = self.server
        assert self._files is not None
        self._files.is_dead = True
        self.lose_store()
        await asyncio.gather(*(relay.shut() for relay in (self._front, *self._store_ways)))
        for _, relay in self._ways.values():
            await relay.cut()
        await self._close_remains(server)

    async def _close_remains(self, server: ServerBroker) -> None:
        """End the tasks and threads of a dead broker, and close its files. Its peers are not told."""
        import msgspec

        services = server.services
        services.config = msgspec.structs.replace(services.config, controlled_shutdown_enable=False)
        try:
            await server.stop()
        finally:
            self._server = None

    def reach_store(self) -> None:

        self._gate.move(GateState.OPEN)

    def hold_store(self) -> None:

        self._gate.move(GateState.HELD)

    def lose_store(self) -> None:

        self._gate.move(GateState.SHUT)

    # What the broker is given

    def _address(self) -> Target | None:
        """Where it really listens; None while it does not."""
        if self._server is None or not self._server.listeners:
            return None
        return LOOPBACK, self._server.port

    async def _open_store(self, config: BrokerConfig, **options: Any) -> CoordinationStore:
        from minikafka.server.cluster.coordination_store import open_store

        if config.zookeeper_connect is not None:
            return await open_store(config, **options)
        return await GatedSqliteStore.open(
            config.coordination_path(),
            gate=self._gate,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            **options,
        )

    async def _connect(self, host: str, port: int, **options: Any) -> BrokerClient:
        from minikafka.network.broker_client import BrokerClient

        for other, relay in self._ways.values():
            if other.port == port:
                return await BrokerClient.connect(LOOPBACK, relay.port, **options)
        return await BrokerClient.connect(host, port, **options)


# The cluster


class Cluster(AsksGroups):
    """A cluster for the length of an ``async with`` block::

        async with Cluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
            ...
            await cluster.kill(cluster.leader_of("orders", 0))

    Args:
        brokers: how many; their ids are 1, 2, 3 and so on.
        config: Kafka's broker properties, for all of them; they win over the defaults made here. With
            ``coordination`` or ``zookeeper.connect`` the cluster uses that store.
        data_dir: keep records and store here, so that a later ``Cluster`` continues with them. None: a
            temporary directory that goes when the cluster stops.
        secure: TLS and users with passwords, between brokers too, and nothing allowed that no ACL allows; see
            ``Broker``.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        config: Mapping[str, Property] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        secure: bool = False,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster needs a broker, not {brokers}")
        self._count = brokers
        self._config: dict[str, Property] = DEFAULTS | {"default.replication.factor": min(3, brokers)}
        self._config |= config or {}
        self._given_data_dir = None if data_dir is None else os.path.abspath(data_dir)
        self._data_dir: str | None = None
        self._network = Network()
        self._is_secure = secure
        self._access: SecureAccess | None = None
        self.brokers: dict[int, ClusterBroker] = {}
        """All brokers by id, those too that are stopped."""

    def __repr__(self) -> str:
        return f"<minikafka.testing.Cluster {list(self.brokers.values())}>"

    # What a test asks

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, as every Kafka client takes them."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def data_dir(self) -> str:
        """Where records and store are. Raises RuntimeError when the cluster is not running."""
        if self._data_dir is None:
            raise RuntimeError("the cluster is not running: use it inside `async with Cluster() as cluster:`")
        return self._data_dir

    @property
    def controller(self) -> int | None:
        """The broker that is the controller; None while there is none. One that is isolated or paused does
        not count, whatever it believes."""
        for broker in self._best_informed():
            controller = broker.server.services.metadata.controller_id
            if controller == broker.node_id and broker.server.services.controller.is_controller:
                return controller
        return None

    def leader_of(self, topic: str, partition: int) -> int | None:
        """The leader of a partition, as the last controller has told; None: no leader, or not known yet."""
        best = self._best_informed()
        return _leader(best[0], topic, partition) if best else None

    def isr_of(self, topic: str, partition: int) -> tuple[int, ...]:
        """The ISR, as the leader knows it; the controller learns of it seconds later. Empty while the leader
        has not heard yet that it leads."""
        from minikafka.types import TopicPartition

        leader = self.leader_of(topic, partition)
        broker = next((each for each in self._reachable() if each.node_id == leader), None)
        if broker is None:
            return ()
        led = broker.server.services.replica_manager.partitions.get(TopicPartition(topic, partition))
        return () if led is None or not led.is_leader else tuple(led.isr)

    def client_config(
        self, user: str = "admin", password: str | None = None, *, client: str = "confluent-kafka"
    ) -> dict[str, Any]:
        """How a client of a secure cluster connects: see ``Broker.client_config``."""
        return self._secure_access.client_config(self.bootstrap_servers, user, password, client=client)

    async def add_user(self, name: str, password: str | None = None) -> str:
        """See ``Broker.add_user``. Returns when all brokers know."""
        return await self._secure_access.add_user(self._addresses(), name, password)

    async def add_acl(self, user: str, operation: str, **resource: Any) -> None:
        """See ``Broker.add_acl``. Returns when all brokers know."""
        await self._secure_access.add_acl(self._addresses(), acl_binding(user, operation, **resource))

    @property
    def _secure_access(self) -> SecureAccess:
        if self._access is None:
            raise RuntimeError("there are users and ACLs only inside `async with Cluster(secure=True)`")
        return self._access

    def _addresses(self) -> list[Target]:
        return [(LOOPBACK, broker.port) for broker in self._reachable()]

    async def wait_until(self, condition: Callable[[], object], *, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Until ``condition`` holds, which is asked every 10 ms. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - anything may be asked, so nothing can announce it
                await asyncio.sleep(POLL_S)

    # What a test does

    async def start(self, node_id: int | None = None) -> None:
        """Start one broker again, with its records and on its port; without an id the whole cluster.

        Raises:
            StartError, ConfigError: why it cannot start. A cluster that fails to start leaves nothing behind.
        """
        if node_id is not None:
            await self._broker(node_id).start()
            return
        if self._data_dir is not None:
            raise RuntimeError("the cluster is already running")
        self._data_dir = data_dir = self._given_data_dir or tempfile.mkdtemp(prefix="minikafka-test-")
        try:
            await self._start_all(data_dir)
        except BaseException:
            await self.close()
            raise

    async def stop(self, node_id: int) -> None:
        """Stop one broker cleanly: its leaders are moved, its logs flushed, its session ended."""
        await self._broker(node_id).stop()

    async def kill(self, node_id: int) -> None:
        """End one broker as SIGKILL would: in one moment its connections are reset, nothing that it does
        reaches the disk any more, and its session is not ended but runs out.

        What one process cannot show: the broker's tasks are cancelled, not stopped between two instructions,
        so a write is never torn; memory maps (indexes) are not taken away; and what others see of the store
        when a process dies in the middle of a transaction. ``tests/integration`` has real processes for that.
        """
        await self._broker(node_id).kill()

    def isolate(self, node_id: int) -> None:
        """Cut one broker off from the other brokers and from the store. Clients still reach it, as in the
        usual bad story: it believes that it leads. Its session runs out."""
        broker = self._broker(node_id)
        broker.is_cut_off = True
        self._hold(node_id, [*self.brokers, STORE])
        broker.lose_store()

    def pause(self, node_id: int) -> None:
        """Hold one broker still, nearly as SIGSTOP would: it reads no request, answers none, sends none, and
        does not renew its session.

        What one process cannot show: its timers run on, so what it waits for may time out meanwhile.
        """
        broker = self._broker(node_id)
        broker.is_cut_off = True
        self._hold(node_id, [*self.brokers, STORE, CLIENTS])
        broker.hold_store()

    def resume(self, node_id: int) -> None:
        """Let a paused broker continue: it finds what came meanwhile, and that its session has run out."""
        self.heal(node_id)

    def delay(self, source: int, target: int, ms: float) -> None:
        """What ``source`` sends to ``target`` arrives so much later, until ``heal``."""
        self._broker(source), self._broker(target)
        self._network.flow(source, target).delay_ms = ms

    def drop(self, source: int, target: int) -> None:
        """Nothing that ``source`` sends to ``target`` arrives, until ``heal``; the other direction works.
        TCP would send it again, so what was dropped arrives after that, on connections that still live."""
        self._broker(source), self._broker(target)
        self._network.flow(source, target).hold()

    def heal(self, node_id: int | None = None) -> None:
        """End everything that was done to the links and the store of one broker, or of all."""
        healed = list(self.brokers) if node_id is None else [node_id]
        for each in healed:
            broker = self._broker(each)
            broker.is_cut_off = False
            broker.reach_store()
            for flow in self._network.flows_of(each):
                flow.release()

    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Have a member of the ISR lead a partition, and wait until all brokers know.

        As an operator does it by hand with ZooKeeper's shell, in one transaction: the partition's state is
        written with the new leader and the next leader epoch, and ``/controller`` is deleted, so that a new
        controller is elected, which tells all brokers. (The controllership may move, too.)

        Raises:
            ValueError: ``to`` is not in the ISR.
        """
        await self._write_leader(topic, partition, to)
        await self.wait_until(
            lambda: all(_leader(broker, topic, partition) == to for broker in self._reachable())
        )

    # Inside

    def _hold(self, node_id: int, others: Iterable[End]) -> None:
        for other in others:
            self._network.flow(node_id, other).hold()
            self._network.flow(other, node_id).hold()

    async def _write_leader(self, topic: str, partition: int, to: int) -> None:
        import msgspec

        from minikafka.coordination import paths
        from minikafka.coordination.store import BadVersionError, DeleteOp, NoNodeError, SetOp
        from minikafka.types import BrokerId, LeaderEpoch

        store = self._reachable()[0].server.services.store
        path = paths.partition_state_path(topic, partition)
        while True:
            node = await store.get(path)
            state = paths.decode_partition_state(topic, partition, node.data)
            if state.leader == to:
                return
            if to not in state.isr:
                raise ValueError(f"broker {to} is not in the ISR of {topic}-{partition}: {state.isr}")
            moved = msgspec.structs.replace(
                state, leader=BrokerId(to), leader_epoch=LeaderEpoch(state.leader_epoch + 1)
            )
            try:
                await store.multi(
                    [
                        SetOp(path, paths.encode_partition_state(moved), node.stat.version),
                        DeleteOp(paths.CONTROLLER),
                    ]
                )
                return
            except (BadVersionError, NoNodeError):  # the ISR has just changed, or there is no controller
                await asyncio.sleep(POLL_S)

    def _broker(self, node_id: int) -> ClusterBroker:
        if node_id not in self.brokers:
            raise ValueError(f"there is no broker {node_id}, there are {', '.join(map(str, self.brokers))}")
        return self.brokers[node_id]

    def _reachable(self) -> list[ClusterBroker]:
        return [
            broker
            for broker in self.brokers.values()
            if broker.is_running and broker.is_up and not broker.is_cut_off
        ]

    def _services(self) -> list[Services]:
        return [broker.server.services for broker in self._reachable()]

    def _best_informed(self) -> list[ClusterBroker]:
        """Those with metadata from the last controller, that one first: it has it before the others."""
        brokers = self._reachable()
        epochs = {each.node_id: each.server.services.replica_manager.controller_epoch for each in brokers}
        return sorted(
            (each for each in brokers if epochs[each.node_id] == max(epochs.values())),
            key=lambda each: not each.server.services.controller.is_controller,
        )

    async def _start_all(self, data_dir: str) -> None:
        config = dict(self._config)
        if "zookeeper.connect" not in config:
            config.setdefault("coordination", f"sqlite:///{data_dir}/coordination.sqlite")
        if self._is_secure:
            self._access = SecureAccess(os.path.join(data_dir, "security"))
        self.brokers = {
            node_id: ClusterBroker(
                node_id,
                config=config,
                data_dir=os.path.join(data_dir, f"broker-{node_id}"),
                network=self._network,
                access=self._access,
            )
            for node_id in range(1, self._count + 1)
        }
        for broker in self.brokers.values():
            await broker.connect_to([other for other in self.brokers.values() if other is not broker])
        async with asyncio.TaskGroup() as starting:
            for broker in self.brokers.values():
                starting.create_task(broker.start())
        await self.wait_until(
            lambda: all(
                len(broker.server.services.metadata.brokers()) == self._count for broker in self._reachable()
            )
        )

    async def close(self) -> None:
        """Stop all brokers cleanly, the controller last, and remove the temporary directory."""
        data_dir, self._data_dir = self._data_dir, None
        try:
            self.heal()
            controller = self.controller
            others = [broker for node_id, broker in self.brokers.items() if node_id != controller]
            await asyncio.gather(*(broker.stop() for broker in others))
            if controller is not None:
                await self.brokers[controller].stop()
        finally:
            await self._network.close()
            self._network = Network()
            self._access = None
            self.brokers = {}
            if data_dir is not None and self._given_data_dir is None:
                shutil.rmtree(data_dir)

    async def __aenter__(self) -> Cluster:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _leader(broker: ClusterBroker, topic: str, partition: int) -> int | None:
    """As this broker was told."""
    from minikafka.types import TopicPartition

    known = broker.server.services.metadata.partition(TopicPartition(topic, partition))
    return None if known is None or known.leader < 0 else known.leader
