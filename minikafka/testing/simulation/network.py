"""``SimulatedNetwork``: hosts, listeners, connections, what is done to the links between them, and the trace
of a run.

The unchanged code calls ``loop.create_server`` and ``loop.create_connection``; which host it is on says the
context variable of ``loop``. Names are the hosts' names; addresses are 10.0.0.1 and so on.

A connection is made as TCP makes it: a request to the target, an answer back, and a third message after
which the target accepts. So with one direction cut no connection is made either way, and open ones still
work in the direction that is left.

The trace has what happened, in order: two runs of one seed must agree in every line.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from collections.abc import Callable, Sequence
from typing import Any

from minikafka.testing.simulation.loop import Host, Process, VirtualTimeLoop, current_process
from minikafka.testing.simulation.transport import Address, Channel, Link, SimulatedSocket, SimulatedTransport

ANY_ADDRESS = ("0.0.0.0", "::", "")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
EPHEMERAL_PORT_FIRST = 32768
CONNECT_LIMIT_MS = 127_000
"""Linux's tcp_syn_retries = 6: when an unanswered connection attempt fails with ETIMEDOUT."""


class Trace:
    """Notes as tuples, which cost little; lines only when they are read."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self._notes: list[tuple[int, str, str, object]] = []

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, host: str, event: str, detail: object = "") -> None:
        """``detail`` must say the same whenever it is printed: numbers, texts, tuples of them."""
        self._notes.append((self._loop.now_ns, host, event, detail))

    def forget(self) -> None:
        """All of them, in a run so long that they would fill the memory."""
        self._notes.clear()

    def lines(self) -> list[str]:
        """``milliseconds host: event detail``."""
        return [
            f"{ns / 1e6:.6f} {host}: {event} {detail}".rstrip() for ns, host, event, detail in self._notes
        ]


class SimulatedServer(asyncio.AbstractServer):
    """What ``create_server`` returns."""

    def __init__(
        self,
        network: SimulatedNetwork,
        process: Process,
        addresses: Sequence[Address],
        factory: Callable[[], Any],
    ) -> None:
        self.sockets = tuple(SimulatedSocket(address) for address in addresses)
        self.process = process
        self.factory = factory
        self._network = network
        self._is_serving = True

    def __repr__(self) -> str:
        return f"<SimulatedServer {[s.getsockname() for s in self.sockets]} of {self.process.host.name}>"

    def close(self) -> None:
        self._is_serving = False
        self._network.unlisten(self)

    def is_serving(self) -> bool:
        return self._is_serving

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def start_serving(self) -> None:
        """It does already."""

    async def serve_forever(self) -> None:
        """Until cancelled."""
        await self._network.loop.create_future()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""


class SimulatedNetwork:
    """All hosts and the links between each two of them."""

    def __init__(self, loop: VirtualTimeLoop, *, rng: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.hosts: dict[str, Host] = {}
        self._rng = rng
        self._trace = trace
        self._links: dict[tuple[Host, Host], Link] = {}
        self._addresses: dict[str, Host] = {}
        self._listeners: dict[Host, dict[Address, SimulatedServer]] = {}
        self._next_ports: dict[Host, int] = {}
        self._connections: dict[SimulatedTransport, None] = {}
        self._lost: dict[Host, list[SimulatedTransport]] = {}
        self._isolated: dict[str, bool] = {}  # and whether new connections are refused
        loop.network = self

    # Hosts and links

    def host(self, name: str) -> Host:
        """The host of that name; a new one when there is none."""
        if name not in self.hosts:
            host = Host(name, f"10.0.0.{len(self.hosts) + 1}")
            self.hosts[name] = host
            self._addresses[host.address] = host
            self._listeners[host] = {}
            self._next_ports[host] = EPHEMERAL_PORT_FIRST
        return self.hosts[name]

    def link(self, source: str, target: str) -> Link:
        """The way from ``source`` to ``target``."""
        return self._link(self.host(source), self.host(target))

    def _link(self, source: Host, target: Host) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(source, target, loop=self.loop, rng=self._rng)
            for name in (source.name, target.name):
                if name in self._isolated and source is not target:  # one of the two is new
                    link.is_cut, link.refuses = True, self._isolated[name]
        return link

    def cut(self, source: str, target: str, *, refuse: bool = False) -> None:
        """Nothing more gets from ``source`` to ``target``; the other direction is left as it is.

        Connections last and wait. New ones wait too, or fail at once with ``refuse``.
        """
        link = self.link(source, target)
        link.is_cut, link.refuses = True, refuse
        self._trace.add(source, "cut to", target)

    def heal(self, source: str, target: str) -> None:
        """End the cut of this direction."""
        link = self.link(source, target)
        link.is_cut = link.refuses = False
        self._trace.add(source, "healed to", target)
        link.opened()

    def isolate(self, name: str, *, refuse: bool = False) -> None:
        """Cut both directions between a host and every other one, hosts to come included."""
        self._isolated[name] = refuse
        for other in self._others(name):
            self.cut(name, other, refuse=refuse)
            self.cut(other, name, refuse=refuse)

    def rejoin(self, name: str) -> None:
        """Heal all links of a host, but for those to hosts that are isolated themselves."""
        self._isolated.pop(name, None)
        for other in self._others(name):
            if other not in self._isolated:
                self.heal(name, other)
                self.heal(other, name)

    def heal_all(self) -> None:
        """End every cut."""
        self._isolated.clear()
        for link in list(self._links.values()):
            if link.is_cut:
                self.heal(link.source.name, link.target.name)

    def delay(self, source: str, target: str, least_ms: float, most_ms: float | None = None) -> None:
        """How long messages take from here on, one way; between the two when there are two."""
        self.link(source, target).delay_ms = (least_ms, least_ms if most_ms is None else most_ms)

    def drop(self, one: str, other: str) -> None:
        """Reset every connection between two hosts, at both ends."""
        hosts = {self.host(one).name, self.host(other).name}
        self._trace.add(one, "dropped connections with", other)
        for connection in list(self._connections):
            if {connection.process.host.name, connection.peer.process.host.name} == hosts:
                connection.reset()

    def cut_in_frame(self, name: str) -> None:
        """Every connection of a host ends in the middle of what it, or its peer, sends next."""
        self._trace.add(name, "cuts connections in a frame")
        for connection in list(self._connections):
            if name in (connection.process.host.name, connection.peer.process.host.name):
                connection.break_in_frame()

    def _others(self, name: str) -> list[str]:
        self.host(name)
        return [other for other in self.hosts if other != name]

    # What happens to machines

    def process_killed(self, process: Process) -> None:
        """Its kernel closes what it had open."""
        self._forget_listeners(process)
        for connection in self._connections_of(process):
            connection.process_killed()

    def power_lost(self, process: Process) -> None:
        """No peer is told anything."""
        host = process.host
        host.is_up = False
        self._forget_listeners(process)
        for connection in self._connections_of(process):
            connection.power_lost()
            self._lost.setdefault(host, []).append(connection)

    def power_restored(self, host: Host) -> None:
        """The machine is back, and knows nothing of its old connections."""
        for connection in self._lost.pop(host, []):
            connection.rebooted(self._channel(host, connection.peer.process.host, connection.peer))
        for link in list(self._links.values()):
            if link.target is host:
                link.opened()

    def _connections_of(self, process: Process) -> list[SimulatedTransport]:
        mine = [connection for connection in self._connections if connection.process is process]
        for connection in mine:
            del self._connections[connection]
        process.kept.extend(mine)
        return mine

    def _forget_listeners(self, process: Process) -> None:
        listeners = self._listeners[process.host]
        for address, server in list(listeners.items()):
            if server.process is process:
                del listeners[address]
                process.kept.append(server)

    # The event loop's side

    def resolve(self, name: Any, port: Any) -> list[tuple[Any, ...]]:
        """What ``getaddrinfo`` answers: one IPv4 address. Raises socket.gaierror."""
        address = self._address(current_process().host, str(name))
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, int(port or 0)))]

    def listen(self, factory: Callable[[], Any], names: Any, port: int) -> SimulatedServer:
        """Raises OSError: the port is taken, or the address is another host's."""
        process = current_process()
        host = process.host
        wanted = [names or ANY_ADDRESS[0]] if names is None or isinstance(names, str) else list(names)
        listeners = self._listeners[host]
        addresses: list[Address] = []
        for name in wanted:
            address = name if name in ANY_ADDRESS else self._address(host, name)
            if address not in ANY_ADDRESS and self._addresses[address] is not host:
                raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
            port = port or self._free_port(host)
            if (address, port) in listeners:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            addresses.append((address, port))
        server = SimulatedServer(self, process, addresses, factory)
        listeners.update(dict.fromkeys(addresses, server))
        return server

    def unlisten(self, server: SimulatedServer) -> None:
        """The server takes no connections from here on."""
        listeners = self._listeners[server.process.host]
        for listening in server.sockets:
            if listeners.get(listening.getsockname()) is server:
                del listeners[listening.getsockname()]

    async def connect(
        self, factory: Callable[[], Any], name: Any, port: Any
    ) -> tuple[SimulatedTransport, Any]:
        """Raises OSError: unknown name, refused, or no answer for ``CONNECT_LIMIT_MS``."""
        process = current_process()
        host = process.host
        target = self._addresses[self._address(host, str(name))]
        mine = (host.address, self._free_port(host))
        theirs = (target.address, int(port))
        link = self._link(host, target)
        if link.is_cut and link.refuses:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {theirs}")
        answer: asyncio.Future[SimulatedTransport] = self.loop.create_future()
        self._channel_to(link, lambda _: self._requested(process, mine, theirs, answer)).send(None)
        try:
            async with asyncio.timeout(CONNECT_LIMIT_MS / 1000):
                transport = await answer
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed {theirs}") from None
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                answer.result().abort()
            raise
        protocol = factory()
        transport.open(protocol)
        self._trace.add(host.name, "connected to", f"{target.name}:{port} from port {mine[1]}")
        return transport, protocol

    # How a connection is made. These run in no process's context.

    def _requested(
        self, process: Process, mine: Address, theirs: Address, answer: asyncio.Future[SimulatedTransport]
    ) -> None:
        """The first message is at the target."""
        source, target = process.host, self._addresses[theirs[0]]
        listeners = self._listeners[target]
        server = next(
            (
                listeners[host, theirs[1]]
                for host in (theirs[0], *ANY_ADDRESS)
                if (host, theirs[1]) in listeners
            ),
            None,
        )
        back = self._link(target, source)
        if server is None:
            self._channel_to(back, lambda _: _refuse(answer, theirs)).send(None)
        else:
            self._channel_to(back, lambda _: self._answered(process, server, mine, theirs, answer)).send(None)

    def _answered(
        self,
        process: Process,
        server: SimulatedServer,
        mine: Address,
        theirs: Address,
        answer: asyncio.Future[SimulatedTransport],
    ) -> None:
        """The answer is back: the connection stands at the active end."""
        if answer.done() or process.is_dead:
            return
        if server.process.is_dead:
            _refuse(answer, theirs)
            return
        active = self._transport(process, mine, theirs)
        passive = self._transport(server.process, theirs, mine, accept=lambda end: self._accept(server, end))
        active.connect(passive, self._channel(process.host, server.process.host, passive, sender=active))
        passive.connect(active, self._channel(server.process.host, process.host, active, sender=passive))
        active.send_open()
        answer.set_result(active)

    def _accept(self, server: SimulatedServer, end: SimulatedTransport) -> None:
        """In the context of the process that listens."""
        if server.is_serving():
            end.open(server.factory())
        else:
            end.refuse()

    def _transport(
        self, process: Process, mine: Address, theirs: Address, **options: Any
    ) -> SimulatedTransport:
        transport = SimulatedTransport(
            process=process,
            sockname=mine,
            peername=theirs,
            loop=self.loop,
            rng=self._rng,
            gone=self._gone,
            **options,
        )
        self._connections[transport] = None
        return transport

    def _gone(self, transport: SimulatedTransport) -> None:
        self._connections.pop(transport, None)
        self._trace.add(
            transport.process.host.name, "closed", f"{transport.sockname} to {transport.peername}"
        )

    def _channel(
        self,
        source: Host,
        target: Host,
        receiver: SimulatedTransport,
        *,
        sender: SimulatedTransport | None = None,
    ) -> Channel:
        stuck = None if sender is None else sender.wait_for_acknowledgement
        return Channel(self._link(source, target), receiver.arrived, loop=self.loop, stuck=stuck)

    def _channel_to(self, link: Link, arrived: Callable[[Any], None]) -> Channel:
        return Channel(link, arrived, loop=self.loop)

    # Addresses

    def _address(self, host: Host, name: str) -> str:
        """Raises socket.gaierror."""
        if name in LOOPBACK:
            return host.address
        if name in self._addresses:
            return name
        if name in self.hosts:
            return self.hosts[name].address
        raise socket.gaierror(socket.EAI_NONAME, f"no simulated host is called {name!r}")

    def _free_port(self, host: Host) -> int:
        port = self._next_ports[host]
        self._next_ports[host] = port + 1 if port < 65535 else EPHEMERAL_PORT_FIRST
        return port


def _refuse(answer: asyncio.Future[Any], theirs: Address) -> None:
    if not answer.done():
        answer.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {theirs}"))
