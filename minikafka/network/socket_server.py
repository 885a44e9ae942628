"""The broker's listening sockets and the connections that came through them.

Kafka's ``SocketServer`` and ``Acceptor``. Only ``loop.create_server`` touches the network, and
``loop.getaddrinfo`` for names: a loop with virtual time and transports in memory can be put underneath.

Invariants:
- ``start`` leaves either all listeners bound or none.
- Every accepted connection is in ``connections`` from ``connection_opened`` until ``connection_closed``.
- A connection that ``limits`` delays is muted, or closed when its delay is over.
- One sweeper looks at all connections every few seconds; there is no timer per connection or request. A
  connection may therefore outlive ``connections.max.idle.ms`` by one round.

TCP_NODELAY is set by asyncio and uvloop themselves for every TCP transport. A listener has one port on all
its addresses: ``::`` and the empty host mean IPv4 too, as with Java's sockets, and a name may have several.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from minikafka.config.listeners import Listener
from minikafka.deferred import deferred
from minikafka.errors import StartError
from minikafka.network.addresses import format_address
from minikafka.network.connection import Connection, Handler
from minikafka.network.frame_reader import LargeFrames
from minikafka.network.limits import NO_LIMIT, ConnectionLimits, ListenerLimits, MemoryBudget

if TYPE_CHECKING:
    from minikafka.network import tls_acceptor
    from minikafka.network.tls_acceptor import Handshakes, TlsListener
else:
    tls_acceptor = deferred("minikafka.network.tls_acceptor", at_start_or_never=True)

logger = logging.getLogger(__name__)

MEMORY_BUDGET_BYTES = 512 * 1024 * 1024
"""What ``queued.max.request.bytes = -1`` (Kafka's default: no limit) means here: some bound is better than
none, and five requests of the largest size fit."""

SWEEP_SECONDS_MAX = 5.0
"""How often the sweeper looks at the latest; a scan of 10,000 connections takes about 3 ms."""

STALLED_SECONDS_MAX = 10.0
"""How long a connection may hold memory that others wait for without a byte moving."""

BODY_SECONDS_MAX = 30.0
"""How long the remainder of a request may be late when its memory is not waited for: after that Kafka's
clients have given the request up (``request.timeout.ms``)."""

RESOLVE_SECONDS_MAX = 10.0
"""How long a host in ``max.connections.per.ip.overrides`` is looked up."""

PORT_ATTEMPTS = 16
"""Tries to find a port that is free on several addresses, when the system picks it for the first one."""


class Gate(Protocol):
    """What the connections of a listener have to pass before their requests are handled like all others."""

    def opened(self, connection: Connection) -> None:
        """Called before anything was read, and where the listener speaks TLS after the handshake, which has a
        deadline of its own; hands the connection over to its own handler."""
        ...

    def closed(self, connection: Connection) -> None:
        """Called also for one that never was ``opened``."""
        ...


def stop_listening(server: asyncio.Server) -> None:
    """``Server.close``, but connections that asyncio has accepted and made no transports for are opened yet:
    before Python 3.12.1 each would stay open (CPython's issue 109564)."""
    loop = server.get_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        for listening in server.sockets:
            loop.remove_reader(listening)
        loop.call_soon(server.close)
    else:
        server.close()


class SocketServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka's properties, ``.`` written as ``_``, with Kafka's defaults."""

    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_send_buffer_bytes: int = 100 * 1024
    socket_receive_buffer_bytes: int = 100 * 1024
    socket_listen_backlog_size: int = 50
    connections_max_idle_ms: int = 600_000
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_connections_per_ip_overrides: Mapping[str, int] = msgspec.field(default_factory=dict)
    max_connection_creation_rate: int = NO_LIMIT
    listeners: Mapping[str, ListenerLimits] = msgspec.field(default_factory=dict)
    """What listeners have of their own (``listener.name.NAME.…``)."""
    protected_listener: str | None = None
    """That of the brokers, where clients have others."""
    quota_window_seconds: float = 11.0
    """All windows of quotas together: what a rate may have at once."""
    queued_max_request_bytes: int = -1
    descriptors_for_connections: int = 2**31 - 1
    """How many connections the process has descriptors for; no property of Kafka's."""


class SocketServer:
    """Listens, accepts, sweeps, closes. ``start`` and ``close`` belong to the loop they are awaited on."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        handler: Handler,
        config: SocketServerConfig | None = None,
        *,
        tls: Mapping[str, TlsListener] | None = None,
        gates: Mapping[str, Gate] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """``tls``: of the listeners that speak it, by name. ``gates``: of the listeners that have one, by
        name. ``now_ns``: when frames arrive is noted by it."""
        self._listeners = tuple(listeners)
        self._handler = handler
        self._gates = dict(gates or {})
        self._config = config or SocketServerConfig()
        self._now_ns = now_ns
        self._tls = dict(tls or {})
        self.handshakes: Handshakes | None = None
        """Of TLS; there from ``start`` on, when a listener speaks it."""
        self._servers: dict[str, list[asyncio.Server]] = {}
        self._ports: dict[str, int] = {}
        self._next_index = 0
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None
        self._is_closing = False
        self.limits = ConnectionLimits(
            max_connections=self._config.max_connections,
            max_connections_per_ip=self._config.max_connections_per_ip,
            max_connections_per_ip_overrides=self._config.max_connections_per_ip_overrides,
            descriptors=self._config.descriptors_for_connections,
            max_connection_creation_rate=self._config.max_connection_creation_rate,
            listeners=self._config.listeners,
            protected_listener=self._config.protected_listener,
            burst_s=self._config.quota_window_seconds,
        )
        self.budget: MemoryBudget
        """What all connections hold together; there from ``start`` on."""
        self._large_frames = LargeFrames()
        self.connections: dict[Connection, None] = {}
        """The open ones, the oldest first."""
        self._delays: dict[Connection, asyncio.TimerHandle] = {}

    def __repr__(self) -> str:
        return f"SocketServer({self._ports}, {len(self.connections)} connections)"

    @property
    def listener_names(self) -> tuple[str, ...]:
        return tuple(listener.name for listener in self._listeners)

    def bound_port(self, listener_name: str) -> int:
        """The port that a listener got: the configured one, unless that was 0. KeyError before start."""
        return self._ports[listener_name]

    async def start(self) -> None:
        """Bind all listeners and begin to accept.

        Raises:
            StartError: an address cannot be used; names it and says why. Nothing stays bound.
        """
        loop = asyncio.get_running_loop()
        config = self._config
        budget_bytes = config.queued_max_request_bytes
        self.budget = MemoryBudget(
            budget_bytes if budget_bytes > 0 else MEMORY_BUDGET_BYTES, call_soon=loop.call_soon
        )
        overrides, unknown = await resolved_overrides(self._config.max_connections_per_ip_overrides)
        if unknown:
            raise StartError(unknown[0])
        self.limits.max_connections_per_ip_overrides = overrides
        if self._tls:
            self.handshakes = tls_acceptor.Handshakes(loop)
        try:
            for listener in self._listeners:
                await self._bind(loop, listener)
        except StartError:
            self.stop_accepting()
            raise
        self._sweep(loop)

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections go on. Idempotent."""
        servers, self._servers = self._servers, {}
        for listening in servers.values():
            for server in listening:
                stop_listening(server)

    async def close(self, *, drain_timeout_ms: int = 0) -> None:
        """Stop accepting, let answered responses leave for ``drain_timeout_ms``, then drop what is left.

        Requests that arrive meanwhile are not handled; parked ones are told that their connection closed.
        """
        self.stop_accepting()
        self._is_closing = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._all_closed = asyncio.Event()
        for connection in list(self.connections):
            connection.close()
        if self.connections and drain_timeout_ms > 0:
            try:
                async with asyncio.timeout(drain_timeout_ms / 1000):
                    await self._all_closed.wait()
            except TimeoutError:
                logger.warning(
                    "dropping %d connections that do not take their responses", len(self.connections)
                )
        for connection in list(self.connections):
            connection.abort()
        while self.connections:  # an abort is carried out in the loop's next turn
            self._all_closed.clear()
            await self._all_closed.wait()
        if self.handshakes is not None:
            self.handshakes.close()

    # ConnectionOwner

    def connection_opened(self, connection: Connection) -> bool:
        index, self._next_index = self._next_index, self._next_index + 1
        local = format_address(connection.local_host, connection.local_port)
        connection.id = f"{local}-{connection.peer}-{index}"
        if self._is_closing:
            logger.info("refusing a connection from %s on %s: the broker is stopping", connection.peer, local)
            return False
        listener = connection.listener_name
        now_ms = self._now_ns() // 1_000_000
        refusal, delay_ms = self.limits.admit(connection.peer_host, listener, now_ms=now_ms)
        if refusal is not None:
            logger.info("refusing a connection from %s on %s: %s", connection.peer, local, refusal)
            if not delay_ms:
                return False
        self.connections[connection] = None
        if delay_ms:
            self._delay(connection, delay_ms, closes=refusal is not None)
        if self.limits.excess and self.limits.is_protected(listener):
            self._make_room()
        if listener not in self._tls:
            self._to_gate(connection)
        logger.debug("connection %s opened on %s", connection.id, listener)
        return True

    def connection_secured(self, connection: Connection) -> None:
        self._to_gate(connection)

    def _to_gate(self, connection: Connection) -> None:
        gate = self._gates.get(connection.listener_name)
        if gate is not None:
            gate.opened(connection)

    def _delay(self, connection: Connection, delay_ms: int, *, closes: bool) -> None:
        """Read it later, or close it then."""

        def over() -> None:
            del self._delays[connection]
            self.limits.delay_over()
            if closes:
                connection.abort()

        connection.mute(delay_ms + 1000 if closes else delay_ms)
        loop = asyncio.get_running_loop()
        self._delays[connection] = loop.call_later(delay_ms / 1000, over)

    def _make_room(self) -> None:
        """Close one that brokers do not use, the one that has been silent for the longest time
        (``Selector.lowestPriorityChannel``)."""
        now = asyncio.get_running_loop().time()
        others = (
            each
            for each in self.connections
            if not (self.limits.is_protected(each.listener_name) or each.is_closing)
        )
        idlest = max(others, key=lambda each: each.silent_seconds(now), default=None)
        if idlest is not None:
            logger.info(
                "closing the connection from %s (%s): a broker's takes its place (max.connections)",
                idlest.peer,
                idlest.id,
            )
            idlest.abort()

    def close_sessions(self, user: str, *, but: Connection) -> int:
        """Close all connections of a user at once, but for one. Returns how many there were."""
        found = [each for each in self.connections if each.principal.name == user and each is not but]
        for each in found:
            logger.info("closing the connection from %s (%s): sessions of %s end", each.peer, each.id, user)
            each.abort()
        return len(found)

    def connection_closed(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self.limits.release(connection.peer_host, connection.listener_name)
            delay = self._delays.pop(connection, None)
            if delay is not None:
                delay.cancel()
                self.limits.delay_over()
            gate = self._gates.get(connection.listener_name)
            if gate is not None:
                gate.closed(connection)
            logger.debug("connection %s closed", connection.id)
        if not self.connections and self._all_closed is not None:
            self._all_closed.set()

    # Binding

    async def _bind(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        """One listener, on one socket per address, all with the same port."""
        hosts = await _addresses(loop, listener)
        attempts = PORT_ATTEMPTS if listener.port == 0 and len(hosts) > 1 else 1
        for attempt in range(1, attempts + 1):
            port = listener.port
            servers: list[asyncio.Server] = []
            self._servers[listener.name] = servers
            try:
                for host in hosts:
                    server = await self._listen(loop, listener.name, host=host, port=port)
                    servers.append(server)
                    port = server.sockets[0].getsockname()[1]
            except OSError as error:
                for server in servers:
                    server.close()
                if attempt < attempts:
                    continue
                address = format_address(listener.host or "*", listener.port)
                raise StartError(f"cannot listen on {address} ({listener.name}): {_cause(error)}") from error
            self._ports[listener.name] = port
            return

    async def _listen(
        self, loop: asyncio.AbstractEventLoop, listener_name: str, *, host: str, port: int
    ) -> asyncio.Server:
        config, tls = self._config, self._tls.get(listener_name)
        large_frames = self._large_frames if tls is None else None  # what TLS decrypts comes in chunks

        def connect() -> Connection:
            return Connection(
                self._handler,
                owner=self,
                loop=loop,
                budget=self.budget,
                frame_bytes_max=config.socket_request_max_bytes,
                listener_name=listener_name,
                large_frames=large_frames,
                now_ns=self._now_ns,
            )

        factory: Callable[[], asyncio.Protocol] = connect
        if tls is not None:
            assert self.handshakes is not None
            factory = tls_acceptor.tls_factory(
                connect, listener_name=listener_name, tls=tls, handshakes=self.handshakes
            )
        server = await loop.create_server(factory, host, port, backlog=config.socket_listen_backlog_size)
        for listening in server.sockets:  # inherited by the sockets that it accepts
            _set_options(listening, config)
        return server

    # Sweeping

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        idle_ms = self._config.connections_max_idle_ms
        idle_seconds_max = idle_ms / 1000 if idle_ms >= 0 else float("inf")  # Kafka: negative means never
        for connection in list(self.connections):
            reason = connection.sweep(
                now,
                idle_seconds_max=idle_seconds_max,
                stalled_seconds_max=STALLED_SECONDS_MAX,
                body_seconds_max=BODY_SECONDS_MAX,
            )
            if reason is not None:
                logger.info("closing the connection from %s (%s): %s", connection.peer, connection.id, reason)
                connection.abort()
        self._sweep_timer = loop.call_later(min(SWEEP_SECONDS_MAX, idle_seconds_max / 4), self._sweep, loop)


def _set_options(listening: socket.socket, config: SocketServerConfig) -> None:
    if config.socket_send_buffer_bytes > 0:  # Kafka: -1 leaves the system's default
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
    if config.socket_receive_buffer_bytes > 0:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


async def _addresses(loop: asyncio.AbstractEventLoop, listener: Listener) -> list[str]:
    """Where a listener listens. A name is resolved here, or its addresses would get different ports."""
    if not listener.host:
        return ["::", "0.0.0.0"] if socket.has_dualstack_ipv6() else ["0.0.0.0"]
    if listener.host == "::":
        return ["::", "0.0.0.0"]
    try:
        ipaddress.ip_address(listener.host)
        return [listener.host]
    except ValueError:
        pass
    try:
        found = await loop.getaddrinfo(
            listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise StartError(f"cannot listen on {listener}: {_cause(error)}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def resolved_overrides(overrides: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """``max.connections.per.ip.overrides`` by address: they may name hosts, connections come from addresses.
    And a line for each host that is unknown. Names are looked up in a thread."""
    loop = asyncio.get_running_loop()
    by_address: dict[str, int] = {}
    unknown: list[str] = []
    for host, allowed in overrides.items():
        try:
            by_address[str(ipaddress.ip_address(host))] = allowed
            continue
        except ValueError:
            pass
        try:
            async with asyncio.timeout(RESOLVE_SECONDS_MAX):
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            cause = _cause(error) if isinstance(error, OSError) else "it is no host name"
            unknown.append(f"max.connections.per.ip.overrides: the host {host!r} is unknown: {cause}")
        else:
            by_address.update((str(address[0]), allowed) for *_, address in found)
    return by_address, unknown


def _cause(error: OSError) -> str:
    """The reason alone: asyncio wraps it into a sentence of its own."""
    if error.errno is None or error.errno <= 0:  # a name that could not be resolved
        return error.strerror or str(error)
    return os.strerror(error.errno)
