"""The links of a cluster for tests: TCP relays on loopback whose traffic a test may hold back or delay.

Every end is a broker's id, or a name for what is not a broker (``CLIENTS``, ``STORE``). Traffic from one end
to another has a ``Flow``, whichever opened the connection: what broker 1 sends to broker 2 as a request and
what it sends there as an answer are held back together.

What is held back is not lost: TCP would send it again, so it arrives when the flow is released, unless the
connection was closed meanwhile. That is how a network that drops packets looks to both ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 256 * 1024
CHUNKS_ON_THE_WAY_MAX = 16
"""A sender is not read any further when so much waits: it notices, as with a full TCP window."""

CLIENTS = "clients"
STORE = "store"

End = int | str
Target = tuple[str, int]


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
            self._server = await asyncio.start_server(self._connected, LOOPBACK, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Cut all connections and refuse new ones."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self.cut()

    async def cut(self) -> None:
        """Reset all connections."""
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections[connection] = None
        connection.add_done_callback(lambda done: self._connections.pop(done, None))
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
