"""A way to a server that a test can shut or freeze: a TCP proxy on loopback with a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from minikafka.network.socket_server import stop_listening
from tests.support.ports import free_port


class Gate:
    """``async with Gate(port) as gate``: clients connect to ``gate.address`` and reach 127.0.0.1:``port``."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._port = free_port()
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._pipes: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def connections(self) -> int:
        return len(self._pipes)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def shut(self) -> None:
        """Cut all connections and refuse new ones."""
        if self._server is not None:
            stop_listening(self._server)
            self._server = None
        pipes = list(self._pipes)
        for pipe in pipes:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)

    def freeze(self) -> None:
        """Keep connections and take new ones, but let nothing through."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    async def __aenter__(self) -> Gate:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.shut()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def ended(pipe: asyncio.Task[None]) -> None:
            self._pipes.discard(pipe)
            writer.transport.abort()  # of a pipe that was cancelled before it began, too

        pipe = asyncio.ensure_future(self._carry(reader, writer))
        self._pipes.add(pipe)
        pipe.add_done_callback(ended)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.ExitStack() as stack:
            stack.callback(writer.transport.abort)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            stack.callback(far_writer.transport.abort)
            there = asyncio.ensure_future(self._pump(reader, far_writer))
            back = asyncio.ensure_future(self._pump(far_reader, writer))
            stack.callback(there.cancel)
            stack.callback(back.cancel)
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
