"""What the network's tests share: frames, a transport and a loop in memory, servers and clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from minikafka.config.listeners import Listener
from minikafka.network.connection import Connection, Handler, Result
from minikafka.network.frame_reader import LargeFrames
from minikafka.network.limits import MemoryBudget
from minikafka.network.socket_server import SocketServer, SocketServerConfig
from minikafka.types import Buffer

DEADLINE_SECONDS = 60.0
"""For waits that end at once unless something is broken."""


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def echo(connection: Connection, frame: Buffer) -> Result:
    return (framed(bytes(frame)),)


async def until(is_so: Callable[[], bool]) -> None:
    """Turn the loop until a state inside of a server is reached; nothing outside of it could be awaited."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not is_so():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0)


class MemoryTransport(asyncio.Transport):
    """Collects what is written. The peer reads all of it unless ``peer_reads`` is False."""

    HIGH_WATER_BYTES = 1000

    def __init__(self, protocol: asyncio.Protocol, peer: tuple[str, int] = ("10.0.0.1", 5000)) -> None:
        super().__init__({"peername": peer, "sockname": ("10.0.0.9", 9092)})
        self._protocol = protocol
        self._unsent_bytes = 0
        self.peer_reads = True
        self.writes: list[bytes] = []
        self.reading = True
        self.closed = False
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.writes.append(bytes(data))
        if not self.peer_reads:
            self._unsent_bytes += len(data)
            if self._unsent_bytes > self.HIGH_WATER_BYTES:
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Sequence[Any]) -> None:  # type: ignore[override]
        self.write(b"".join(list_of_data))

    def take(self) -> bytes:
        """All that was written since the last time."""
        data = b"".join(self.writes)
        self.writes.clear()
        return data

    def peer_catches_up(self) -> None:
        self.peer_reads = True
        self._unsent_bytes = 0
        self._protocol.resume_writing()

    def peer_takes(self, count: int) -> None:
        """Some bytes leave, too few to resume."""
        self._unsent_bytes -= count

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class ManualLoop:
    """The few things that a connection asks of its loop, done when told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self._soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self._later: list[tuple[float, asyncio.TimerHandle]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        when = self.now + delay
        handle = asyncio.TimerHandle(when, callback, args, cast(asyncio.AbstractEventLoop, self))
        self._later.append((when, handle))
        return handle

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def turn(self) -> int:
        """Run what is due now; how many callbacks that was."""
        soon, self._soon = self._soon, []
        for callback, args in soon:
            callback(*args)
        return len(soon)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [handle for when, handle in self._later if when <= self.now and not handle.cancelled()]
        self._later = [(when, handle) for when, handle in self._later if when > self.now]
        for handle in due:
            handle._run()
        self.turn()


class Owner:
    """Admits every connection."""

    def __init__(self) -> None:
        self.closed: list[Connection] = []

    def connection_opened(self, connection: Connection) -> bool:
        connection.id = "test"
        return True

    def connection_secured(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection) -> None:
        self.closed.append(connection)


class Wire:
    """One connection on a transport in memory."""

    def __init__(
        self,
        handler: Handler,
        *,
        budget_bytes: int = 1 << 30,
        frame_bytes_max: int = 1 << 20,
        like: Wire | None = None,
        host: str = "10.0.0.1",
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.loop = like.loop if like else ManualLoop()
        self.budget = like.budget if like else MemoryBudget(budget_bytes, call_soon=self.loop.call_soon)
        self.large_frames = like.large_frames if like else LargeFrames()
        self.owner = Owner()
        self.connection = Connection(
            handler,
            owner=self.owner,
            loop=cast(asyncio.AbstractEventLoop, self.loop),
            budget=self.budget,
            frame_bytes_max=frame_bytes_max,
            listener_name="PLAINTEXT",
            large_frames=self.large_frames,
            now_ns=now_ns,
        )
        self.transport = MemoryTransport(self.connection, (host, 5000))
        self.connection.connection_made(self.transport)

    def send(self, *contents: bytes) -> None:
        """One chunk with these frames."""
        self.connection.data_received(b"".join(map(framed, contents)))

    def receive(self, data: bytes) -> None:
        """A chunk, cut anywhere, by the way in which the connection reads now."""
        while data:
            protocol, received = self.transport.get_protocol(), data
            if isinstance(protocol, asyncio.BufferedProtocol):
                room = memoryview(protocol.get_buffer(-1))
                received = data[: len(room)]
                room[: len(received)] = received
                protocol.buffer_updated(len(received))
            else:
                cast(asyncio.Protocol, protocol).data_received(received)
            data = data[len(received) :]

    def sent(self) -> list[bytes]:
        """The frames that the peer has received since the last time."""
        data, contents = self.transport.take(), []
        while data:
            (size,) = struct.unpack_from(">i", data)
            contents.append(data[4 : 4 + size])
            data = data[4 + size :]
        return contents

    def lose(self) -> None:
        """The peer is gone."""
        self.connection.connection_lost(None)


class Client:
    """A plain client on a real socket; every wait has a deadline."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @property
    def local(self) -> str:
        host, port, *_ = self.writer.get_extra_info("sockname")
        return f"{host}:{port}"

    def send(self, *contents: bytes) -> None:
        self.writer.write(b"".join(map(framed, contents)))

    async def receive(self) -> bytes:
        async with asyncio.timeout(DEADLINE_SECONDS):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def ask(self, content: bytes) -> bytes:
        self.send(content)
        return await self.receive()

    async def is_closed_by_peer(self) -> bool:
        """Waits for the end; whatever comes before it is dropped. True, or the deadline passes."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(1 << 16):
                    pass
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Server:
    """A socket server on loopback with its clients, all closed at the end."""

    def __init__(self, server: SocketServer) -> None:
        self.server = server
        self.clients: list[Client] = []

    @property
    def port(self) -> int:
        return self.server.bound_port("TEST")

    async def connect(self, host: str = "127.0.0.1", *, receive_buffer_bytes: int | None = None) -> Client:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family)
        sock.setblocking(False)
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        await asyncio.get_running_loop().sock_connect(sock, (host, self.port))
        client = Client(*await asyncio.open_connection(sock=sock, limit=1 << 21))
        self.clients.append(client)
        return client


@contextlib.asynccontextmanager
async def serving(
    handler: Handler = echo, *, host: str = "127.0.0.1", **config: Any
) -> AsyncIterator[Server]:
    """A running server with one listener, TEST."""
    server = SocketServer([Listener("TEST", host, 0)], handler, SocketServerConfig(**config))
    await server.start()
    running = Server(server)
    try:
        yield running
    finally:
        await server.close()
        for client in running.clients:
            await client.close()
        assert not server.connections
        assert server.limits.count == 0
        assert server.budget.used_bytes == 0
