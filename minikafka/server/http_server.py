"""A small HTTP server on the broker's event loop: pages that are read with GET and HEAD, nothing else.

h11 reads and writes the protocol, asyncio streams the bytes. Everything has a limit: how many connections
there are, how large a request is, how long one may take to come, and how long an answer may take to leave.
Connections stay open between requests, as Prometheus likes them; the surplus ones are told 503, if they ask
soon.

A page is a function from a request to a response. One that fails is a 500 and a line in the log; the broker
goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from minikafka.errors import StartError
from minikafka.network.addresses import format_address
from minikafka.server.supervisor import Supervisor

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
SURPLUS_MAX = 64
"""Connections beyond that which are told 503 when they ask for something. Still more are closed without a
word, so that nobody can take the broker's file descriptors here."""
REQUEST_BYTES_MAX = 16 * 1024
"""Of the request line and the headers; and of a body, which nobody reads."""
REQUEST_TIMEOUT_S = 10.0
"""From the first byte of a request to its last."""
IDLE_TIMEOUT_S = 180.0
"""Between requests of a connection: longer than the usual scrape intervals."""
SEND_TIMEOUT_S = 30.0
_READ_BYTES = 4 * 1024

PLAIN_TEXT = "text/plain; charset=utf-8"
_METHODS = ("GET", "HEAD")


class HttpRequest(NamedTuple):
    """What a page gets. ``query`` has the last value of each name."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By lower-case name."""


class HttpResponse(NamedTuple):
    """What a page returns."""

    body: bytes
    status: int = 200
    content_type: str = PLAIN_TEXT
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def text(cls, text: str, *, status: int = 200) -> HttpResponse:
        return cls(f"{text}\n".encode(), status)


Page = Callable[[HttpRequest], Awaitable[HttpResponse]]


class HttpServer:
    """Listens on one address. ``add`` pages, ``start``, ``close``."""

    def __init__(self, *, supervisor: Supervisor, connections_max: int = CONNECTIONS_MAX) -> None:
        """``connections_max``: a bound below the usual one, and on the surplus too."""
        self._supervisor = supervisor
        self._connections_max = connections_max
        self._pages: dict[str, Page] = {}
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._address: tuple[str, int] | None = None

    def __repr__(self) -> str:
        return f"HttpServer({self._address}, {list(self._pages)}, {len(self._tasks)} connections)"

    @property
    def address(self) -> tuple[str, int] | None:
        """Host as it was given, and the port; None when not listening."""
        return self._address

    def add(self, path: str, page: Page) -> None:
        """Serve ``page`` at exactly ``path``."""
        self._pages[path] = page

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 is any free one.

        Raises:
            StartError: the address cannot be used; names it and says why.
        """
        try:
            server = await asyncio.start_server(
                self._accept, host or None, port, limit=_READ_BYTES, start_serving=True
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            where = format_address(host or "*", port)
            raise StartError(f"cannot listen on {where} (http.port): {reason}") from error
        self._server = server
        self._address = host, server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and end all connections. Idempotent."""
        server, self._server, self._address = self._server, None, None
        if server is not None:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Connections

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served_max = min(CONNECTIONS_MAX, self._connections_max)
        is_surplus = len(self._tasks) >= served_max
        if len(self._tasks) >= served_max + min(SURPLUS_MAX, self._connections_max):
            writer.transport.abort()
            return

        async def serve() -> None:
            try:
                await _Conversation(self, reader, writer).run(is_surplus=is_surplus)
            except (OSError, TimeoutError) as error:
                logger.debug("an HTTP connection ends: %r", error)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.pop(task, None)
            writer.close()  # of a task that was cancelled before it began, too

        task = self._supervisor.start("http", serve)
        self._tasks[task] = None
        task.add_done_callback(ended)

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """The response to one request; never an exception of a page."""
        if request.method not in _METHODS:
            refusal = HttpResponse.text(f"{request.method} is not served, only GET and HEAD", status=405)
            return refusal._replace(headers=(("allow", ", ".join(_METHODS)),))
        page = self._pages.get(request.path)
        if page is None:
            return HttpResponse.text(f"no such page; there are: {' '.join(self._pages)}", status=404)
        try:
            return await page(request)
        except Exception:
            logger.exception("the page %s failed", request.path)
            return HttpResponse.text("this page failed; the broker's log says why", status=500)


class _Conversation:
    """One connection: requests and responses, in turns."""

    def __init__(
        self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)

    async def run(self, *, is_surplus: bool) -> None:
        protocol = self._protocol
        try:
            idle_timeout_s = REQUEST_TIMEOUT_S if is_surplus else IDLE_TIMEOUT_S
            while (request := await self._receive(idle_timeout_s)) is not None:
                if is_surplus:
                    response = HttpResponse.text("too many connections", status=503)
                else:
                    response = await self._server.answer(request)
                is_last = is_surplus or protocol.their_state is not h11.DONE
                await self._send(response, head_only=request.method == "HEAD", close=is_last)
                if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
                    return
                protocol.start_next_cycle()
        except h11.RemoteProtocolError as error:
            if protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                refusal = HttpResponse.text(str(error), status=error.error_status_hint)
                await self._send(refusal, head_only=False, close=True)

    async def _receive(self, idle_timeout_s: float) -> HttpRequest | None:
        """The next request, with its body read and dropped; None when there is no more."""
        event = self._protocol.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(idle_timeout_s):
                await self._read()
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            while event is h11.NEED_DATA and (event := self._protocol.next_event()) is h11.NEED_DATA:
                await self._read()
            if not isinstance(event, h11.Request):
                return None
            request, dropped_bytes = event, 0
            while not isinstance(event := self._protocol.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    if self._protocol.they_are_waiting_for_100_continue:
                        break
                    await self._read()
                elif isinstance(event, h11.Data):
                    dropped_bytes += len(event.data)
                    if dropped_bytes > REQUEST_BYTES_MAX:
                        break  # it is answered, and the connection closes
                else:
                    return None
        return _request(request)

    async def _read(self) -> None:
        self._protocol.receive_data(await self._reader.read(_READ_BYTES))

    async def _send(self, response: HttpResponse, *, head_only: bool, close: bool) -> None:
        headers = [
            ("content-type", response.content_type),
            ("content-length", str(len(response.body))),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            *response.headers,
        ]
        if close:
            headers.append(("connection", "close"))
        reason = HTTPStatus(response.status).phrase
        events: list[h11.Event] = [
            h11.Response(status_code=response.status, headers=headers, reason=reason.encode())
        ]
        if not head_only:
            events.append(h11.Data(data=response.body))
        events.append(h11.EndOfMessage())
        self._writer.write(b"".join(self._protocol.send(event) or b"" for event in events))
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._writer.drain()


def _request(event: h11.Request) -> HttpRequest:
    """Raises h11.RemoteProtocolError: the target is no address."""
    try:
        target = urlsplit(event.target.decode("ascii"))
    except ValueError as error:
        raise h11.RemoteProtocolError(f"malformed target: {error}") from error
    return HttpRequest(
        event.method.decode("ascii"),
        unquote(target.path),
        dict(parse_qsl(target.query)),
        {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers},
    )
