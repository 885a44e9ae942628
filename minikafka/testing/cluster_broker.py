"""One broker of a ``Cluster``: the real one, with everything that it says and hears in the test's hands.

Clients and other brokers reach it through relays, and it reaches the store through a gate (SQLite) or a relay
(ZooKeeper). So it can be cut off, held still and killed without a word of the server's code for that.

States::

    STOPPED --start--> RUNNING --stop, kill--> STOPPED
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minikafka.testing.broker import Property, property_text
from minikafka.testing.links import CLIENTS, LOOPBACK, STORE, Network, Relay, Target

if TYPE_CHECKING:
    from minikafka.config.broker import BrokerConfig
    from minikafka.coordination.store import CoordinationStore
    from minikafka.network.broker_client import BrokerClient
    from minikafka.server.broker import Broker as ServerBroker
    from minikafka.testing.mortal_files import MortalFiles


class ClusterBroker:
    """Made by ``Cluster``. ``node_id``, ``data_dir`` and ``port`` stay the same over restarts."""

    def __init__(
        self, node_id: int, *, config: Mapping[str, Property], data_dir: str, network: Network
    ) -> None:
        from minikafka.testing.gated_store import StoreGate

        self.node_id = node_id
        self.data_dir = data_dir
        self.is_cut_off = False
        """Isolated or paused: what it knows may be out of date."""
        self._config = dict(config)
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
        from minikafka.testing.mortal_files import MortalFiles

        if self._server is not None:
            raise RuntimeError(f"broker {self.node_id} is already running")
        self.reach_store()
        for relay in (self._front, *self._store_ways):
            await relay.open()
        properties = self._config | {
            "node.id": self.node_id,
            "log.dirs": self.data_dir,
            "listeners": f"PLAINTEXT://{LOOPBACK}:0",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
        }
        os.makedirs(self.data_dir, exist_ok=True)
        settings = [Setting(name, property_text(value), "config") for name, value in properties.items()]
        config = load(settings=settings).config
        files = self._files = MortalFiles()
        server = ServerBroker(config, files=files, open_store=self._open_store, connect=self._connect)
        self._server = server
        try:
            await server.start()
        except BaseException:
            self._server = None
            raise

    async def stop(self) -> None:
        """Stop cleanly; a broker that is not running stays so."""
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
        await self._put_away(server)

    async def _put_away(self, server: ServerBroker) -> None:
        """End the tasks and threads of a dead broker, and close its files. Nobody hears any of it."""
        import msgspec

        services = server.services
        services.config = msgspec.structs.replace(services.config, controlled_shutdown_enable=False)
        try:
            await server.stop()
        finally:
            self._server = None

    def reach_store(self) -> None:
        from minikafka.testing.gated_store import GateState

        self._gate.move(GateState.OPEN)

    def hold_store(self) -> None:
        from minikafka.testing.gated_store import GateState

        self._gate.move(GateState.HELD)

    def lose_store(self) -> None:
        from minikafka.testing.gated_store import GateState

        self._gate.move(GateState.SHUT)

    # What the broker is given

    def _address(self) -> Target | None:
        """Where it really listens; None while it does not."""
        if self._server is None or not self._server.listeners:
            return None
        return LOOPBACK, self._server.port

    async def _open_store(self, config: BrokerConfig, **options: Any) -> CoordinationStore:
        from minikafka.server.cluster.coordination_engine import open_store
        from minikafka.testing.gated_store import GatedSqliteStore

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
