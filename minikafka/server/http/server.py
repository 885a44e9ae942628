"""A small HTTP server on the broker's event loop: pages that are read with GET and HEAD; some take POST.

h11 reads and writes the protocol, asyncio streams the bytes. Everything has a limit: how many connections
there are, how large a request is, how long one may take to come, and how long an answer may take to leave.
Connections stay open between requests, as Prometheus likes them. When there are too many, the one that has
waited longest for its peer is closed in favour of the new one: so a health check is answered however many
connections are held open, and nothing is held by keeping silent.

A page is a function from a request to a response. One that fails is a 500 and a line in the log; the broker
keeps running. One that takes POST gets a body of at most ``BODY_BYTES_MAX``, and decides who may change what:
the request says whether its sender has authenticated.

A request under a name that is not ours is a 421, and where there are tokens or users, one that shows none is
a 401. An open page is for all, and tells who is not trusted nothing but its status. With TLS (``tls``) a
connection counts from its handshake on.

**Who may read**: under which names the port is asked, and who asks. A request under a name that is not ours
is refused: a page of another site, whose name its owner points at this machine (DNS rebinding), would
otherwise read everything through a visitor's browser.

Tokens (RFC 6750) and passwords (RFC 7617) are kept as digests and compared in constant time, all of them each
time, so that no answer's time tells how many characters were right or which users there are. From one address
``FAILURES_AT_ONCE`` may be wrong, then one a second; more are not even compared. Who has proved itself on a
connection is served whatever others at its address do.

**TLS of the HTTP port**: its certificate is read again when its files change. Handshakes are those of Kafka's
listeners (``network.tls_acceptor``): in threads, with a deadline, and bounded in number together with the
connections.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from minikafka.config.listeners import is_loopback
from minikafka.deferred import deferred
from minikafka.errors import ConfigError, StartError
from minikafka.metrics.broker_stats import AuthenticationMetrics
from minikafka.named_tuple import NamedTuple
from minikafka.network.addresses import format_address, split_address
from minikafka.network.socket_server import stop_listening
from minikafka.security.acl import ANONYMOUS, KafkaPrincipal
from minikafka.server.runtime.event_loop import Supervisor

if TYPE_CHECKING:
    import h11

    from minikafka.network import tls_acceptor
else:
    h11 = deferred("h11")
    """15 ms. Loaded soon after the start: ``Broker._load_deferred_modules``."""
    tls_acceptor = deferred("minikafka.network.tls_acceptor", at_start_or_never=True)

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
REQUEST_BYTES_MAX = 16 * 1024
"""Of the request line and the headers; and of the body of a GET or HEAD, which is not read."""
BODY_BYTES_MAX = 64 * 1024
"""Of a POST. What is longer is refused (413), and the connection closed."""
REQUEST_TIMEOUT_S = 10.0
"""From the first byte of a request to its last; and from a connection's begin to its first request."""
IDLE_TIMEOUT_S = 180.0
"""Between requests of a connection: longer than the usual scrape intervals."""
SEND_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
"""For what is still to be sent when a connection ends, and for its peer's end of TLS."""
_READ_BYTES = 4 * 1024
_WRITE_BYTES = 64 * 1024
"""So much of an answer is written before others have a turn: a page of megabytes is no long slice."""

PLAIN_TEXT = "text/plain; charset=utf-8"
_METHODS = ("GET", "HEAD")
_POST = "POST"

FAILURES_AT_ONCE = 10
FAILURE_INTERVAL_S = 1.0
ADDRESSES_MAX = 1_000
"""That have failed lately; more share one allowance."""

_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+)(:[0-9]*)?")
_IPV6_NEIGHBOURS = 64
"""Bits: who has one IPv6 address usually has all with the same ones."""

CHECK_INTERVAL_S = 10.0
"""A renewed certificate holds from then on at the latest."""


class HttpRequest(NamedTuple):
    """What a page gets. ``query`` has the last value of each name."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By lower-case name."""
    is_trusted: bool = True
    """False: an open page is asked by a client that has not authenticated."""
    is_authenticated: bool = False
    """Its sender has shown a token, a password or a certificate; False also where none is wanted."""
    body: bytes | None = b""
    """Of a POST; None: it is longer than ``BODY_BYTES_MAX``."""


class HttpResponse(NamedTuple):
    """What a page returns."""

    body: bytes | Sequence[bytes]
    """Or its chunks."""
    status: int = 200
    content_type: str = PLAIN_TEXT
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def text(cls, text: str, *, status: int = 200) -> HttpResponse:
        return cls(f"{text}\n".encode(), status)


Page = Callable[[HttpRequest], Awaitable[HttpResponse]]


class HttpServer:
    """Listens on one address. ``add`` pages, ``start``, ``close``."""

    def __init__(
        self,
        *,
        supervisor: Supervisor,
        connections_max: int = CONNECTIONS_MAX,
        hosts: AllowedHosts | None = None,
        credentials: Credentials | None = None,
        tls: HttpTls | None = None,
        wants_certificates: bool = False,
        authentications: AuthenticationMetrics | None = None,
    ) -> None:
        """``connections_max``: a bound below the usual one. ``hosts``: names besides this machine's own.
        ``credentials`` let one in; None: everybody may read. ``tls``: begun; None: plain HTTP.
        ``wants_certificates``: without a trusted one there is no connection. ``authentications``
        counts connections that did or did not prove what they had to."""
        self._supervisor = supervisor
        self._connections_max = min(CONNECTIONS_MAX, connections_max)
        self._hosts = hosts or AllowedHosts(())
        self._credentials = credentials
        self._failures = Failures(asyncio.get_running_loop().time)
        self.authentications = authentications or AuthenticationMetrics()
        self.tls = tls
        self._wants_certificates = tls is not None and wants_certificates
        self._pages: dict[str, Page] = {}
        self._prefixes: dict[str, Page] = {}
        self._open_pages: set[str] = set()
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], _Conversation] = {}
        self._address: tuple[str, int] | None = None

    def __repr__(self) -> str:
        return f"HttpServer({self._address}, {list(self._pages)}, {len(self._tasks)} connections)"

    @property
    def address(self) -> tuple[str, int] | None:
        """Host as it was given, and the port; None when not listening."""
        return self._address

    def add(self, path: str, page: Page, *, is_open: bool = False) -> None:
        """Serve ``page`` at exactly ``path``; when ``is_open`` to all."""
        self._pages[path] = page
        if is_open:
            self._open_pages.add(path)

    def add_below(
        self, prefix: str, page: Page, *, close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Serve ``page`` at all that begins with ``prefix`` and has no page of its own; it takes POST, too.
        ``close`` is awaited when the server has ended."""
        self._prefixes[prefix] = page
        if close is not None:
            self._closers.append(close)

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 is any free one.

        Raises:
            StartError: the address cannot be used; names it and says why.
        """
        try:
            loop = asyncio.get_running_loop()
            make = self._protocol if self.tls is None else self.tls.above(self._protocol)
            server = await loop.create_server(make, host or None, port)
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
            stop_listening(server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.tls is not None:
            self.tls.close()
        closers, self._closers = self._closers, []
        for close in closers:
            await close()

    # Connections

    def _protocol(self) -> asyncio.Protocol:
        """Of a socket that is accepted, as ``asyncio.start_server`` makes it."""
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_READ_BYTES), self._accept)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it came as this closed
            writer.transport.abort()
            return
        while len(self._tasks) >= self._connections_max:
            self._make_room()
        conversation = _Conversation(self, reader, writer)

        async def serve() -> None:
            try:
                await conversation.run()
                await conversation.end()
            except OSError as error:  # and TimeoutError
                logger.debug("an HTTP connection ends: %r", error)
            finally:
                conversation.abort()  # a peer that is late may never take what is left

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.pop(task, None)
            writer.close()  # of a task that was cancelled before it began, too

        task = self._supervisor.start("http", serve)
        self._tasks[task] = conversation
        task.add_done_callback(ended)

    def _make_room(self) -> None:
        """End the connection that is missed least."""
        task = min(self._tasks, key=lambda task: self._tasks[task].worth)
        logger.debug("an HTTP connection is closed to make room for a new one")
        self._tasks.pop(task).abort()
        task.cancel()

    async def answer(self, request: HttpRequest, peer: Peer) -> HttpResponse:
        """The response to one request; never an exception of a page."""
        host = request.headers.get("host")
        if host is not None and not self._hosts.has(host, local_host=peer.local_host):  # HTTP/1.0 has none
            return HttpResponse.text(
                f"{host[:255]} is no name of this broker; http.allowed.hosts in its configuration has those "
                "under which it may be asked besides its own",
                status=HTTPStatus.MISDIRECTED_REQUEST,
            )
        refusal = self._refusal(request, peer)
        if refusal is not None:
            if request.path not in self._open_pages or "authorization" in request.headers:
                return refusal
            request = request._replace(is_trusted=False)
        page = self._pages.get(request.path)
        methods: tuple[str, ...] = _METHODS
        if page is None:
            page = self._below(request.path)
            methods = _METHODS if page is None else (*_METHODS, _POST)
        if request.method not in methods:
            served = "only GET and HEAD" if methods is _METHODS else "only GET, HEAD and POST"
            refusal = HttpResponse.text(f"{request.method} is not served, {served}", status=405)
            return refusal._replace(headers=(("allow", ", ".join(methods)),))
        if page is None:
            return HttpResponse.text(f"no such page; there are: {' '.join(self._pages)}", status=404)
        if request.body is None:
            return HttpResponse.text(f"a body may have {BODY_BYTES_MAX} bytes", status=413)
        shows_token = self._credentials is not None and request.is_trusted
        request = request._replace(is_authenticated=shows_token or self._wants_certificates)
        try:
            return await page(request)
        except Exception:
            logger.exception("the page %s failed", request.path)
            return HttpResponse.text("this page failed; the broker's log says why", status=500)

    def _below(self, path: str) -> Page | None:
        return next((page for prefix, page in self._prefixes.items() if path.startswith(prefix)), None)

    def _refusal(self, request: HttpRequest, peer: Peer) -> HttpResponse | None:
        """None: it may read everything."""
        credentials = self._credentials
        if credentials is None:
            return None
        authorization = request.headers.get("authorization")
        if authorization is not None:
            wait_s = 0.0 if peer.has_proved_itself else self._failures.wait_s(peer.host)
            if wait_s > 0:
                refusal = HttpResponse.text("too many wrong credentials; try again later", status=429)
                return refusal._replace(headers=(("retry-after", str(ceil(wait_s))),))
            if credentials.are_shown_by(authorization):
                self.authentications.successful += not peer.has_proved_itself
                peer.has_proved_itself = True
                return None
            self._failures.add(peer.host)
            self.authentications.failed += 1
            logger.info("a request for %s from %s shows wrong credentials", request.path[:255], peer.host)
        refusal = HttpResponse.text("this page is for those who may read it (401)", status=401)
        return refusal._replace(headers=credentials.challenges)


class Peer:
    """Who is at the other end of a connection."""

    __slots__ = ("has_proved_itself", "host", "local_host")

    def __init__(self, *, host: str, local_host: str) -> None:
        """``local_host``: the address that it came to."""
        self.host = host
        self.local_host = local_host
        self.has_proved_itself = False


class _Phase(IntEnum):
    """Where a conversation is; the first ones end before the others when there are too many."""

    RECEIVING = 0
    """Between requests, or in the middle of one."""
    SENDING = 1
    ANSWERING = 2


class _Conversation:
    """One connection: requests and responses, in turns."""

    def __init__(
        self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        self._loop = asyncio.get_running_loop()
        self._peer = Peer(
            host=split_address(writer.get_extra_info("peername"))[0],
            local_host=split_address(writer.get_extra_info("sockname"))[0],
        )
        self._enter(_Phase.RECEIVING)

    def _enter(self, phase: _Phase) -> None:
        self.worth = (phase, self._loop.time())
        """Less is ended first: of one phase, what has lasted longest."""

    def abort(self) -> None:
        """Drop the connection, and what its peer has not taken."""
        self._writer.transport.abort()

    async def end(self) -> None:
        """Close it when all has been taken. Raises OSError, or TimeoutError."""
        self._writer.close()
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await self._writer.wait_closed()

    async def run(self) -> None:
        """Raises OSError, or TimeoutError: it ended before its time."""
        protocol = self._protocol
        try:
            idle_timeout_s = REQUEST_TIMEOUT_S
            while (request := await self._receive(idle_timeout_s)) is not None:
                self._enter(_Phase.ANSWERING)
                response = await self._server.answer(request, self._peer)
                is_last = protocol.their_state is not h11.DONE
                self._enter(_Phase.SENDING)
                await self._send(response, head_only=request.method == "HEAD", close=is_last)
                if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
                    return
                protocol.start_next_cycle()
                self._enter(_Phase.RECEIVING)
                idle_timeout_s = IDLE_TIMEOUT_S
        except h11.RemoteProtocolError as error:
            if protocol.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                refusal = HttpResponse.text(str(error), status=error.error_status_hint)
                await self._send(refusal, head_only=False, close=True)

    async def _receive(self, idle_timeout_s: float) -> HttpRequest | None:
        """The next request, with its body, which is dropped unless it is a POST; None: there is no more."""
        event = self._protocol.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(idle_timeout_s):
                await self._read()
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            while event is h11.NEED_DATA and (event := self._protocol.next_event()) is h11.NEED_DATA:
                await self._read()
            if not isinstance(event, h11.Request):
                return None
            request, body, is_whole = event, bytearray(), True
            bytes_max = BODY_BYTES_MAX if request.method == b"POST" else REQUEST_BYTES_MAX
            while not isinstance(event := self._protocol.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    if self._protocol.they_are_waiting_for_100_continue:
                        is_whole = False
                        break
                    await self._read()
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > bytes_max:
                        is_whole = False
                        break  # it is answered, and the connection closes
                else:
                    return None
        is_post = request.method == b"POST"
        return _request(request)._replace(body=(bytes(body) if is_whole else None) if is_post else b"")

    async def _read(self) -> None:
        self._protocol.receive_data(await self._reader.read(_READ_BYTES))

    async def _send(self, response: HttpResponse, *, head_only: bool, close: bool) -> None:
        body = (response.body,) if isinstance(response.body, bytes) else response.body
        headers = [
            ("content-type", response.content_type),
            ("content-length", str(sum(map(len, body)))),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            *response.headers,
        ]
        if close:
            headers.append(("connection", "close"))
        reason = HTTPStatus(response.status).phrase
        head = h11.Response(status_code=response.status, headers=headers, reason=reason.encode())
        async with asyncio.timeout(SEND_TIMEOUT_S):
            waiting = self._protocol.send(head) or b""
            for chunk in () if head_only else _chunks(body):
                waiting += self._protocol.send(h11.Data(data=chunk)) or b""
                if len(waiting) >= _WRITE_BYTES:
                    self._writer.write(waiting)
                    waiting = b""
                    await self._writer.drain()
                    await asyncio.sleep(0)  # drain returns at once while the peer keeps up
            self._writer.write(waiting + (self._protocol.send(h11.EndOfMessage()) or b""))
            await self._writer.drain()


def _chunks(body: Sequence[bytes]) -> Iterator[bytes]:
    for part in body:
        for start in range(0, len(part), _WRITE_BYTES):
            yield part[start : start + _WRITE_BYTES]


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


class AllowedHosts:
    """The names under which the port may be asked."""

    def __init__(self, names: Iterable[str]) -> None:
        """``names``: of hosts, or addresses; ``*``: any."""
        self._names = frozenset(_normal(name) for name in names if name)

    def __repr__(self) -> str:
        return f"AllowedHosts({sorted(self._names)})"

    def has(self, header: str, *, local_host: str) -> bool:
        """Whether a ``Host`` header is about us. ``local_host``: the address that the connection came to."""
        if "*" in self._names:
            return True
        match = _HOST.fullmatch(header.strip())
        if match is None:
            return False
        host = _normal(match[1])
        return is_loopback(host) or host in self._names or host == _normal(local_host)


def _normal(host: str) -> str:
    """One text for each host: lower case, without brackets and the root's dot, IPv6 in its short form."""
    host = host.strip().strip("[]").rstrip(".").lower()
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


class Credentials:
    """Tokens and passwords that let one in."""

    def __init__(self, *, tokens: Sequence[str], users: Sequence[tuple[str, str]]) -> None:
        self._digests = (
            *(_digest("bearer", token.encode()) for token in tokens),
            *(_digest("basic", f"{name}:{password}".encode()) for name, password in users),
        )
        realm = 'realm="minikafka"'
        self._challenges = (
            *((f'Basic {realm}, charset="UTF-8"',) if users else ()),
            *((f"Bearer {realm}",) if tokens else ()),
        )

    def __repr__(self) -> str:
        return f"Credentials({len(self._digests)})"

    @property
    def challenges(self) -> tuple[tuple[str, str], ...]:
        """The headers of a refusal, which say what would do."""
        return tuple(("www-authenticate", challenge) for challenge in self._challenges)

    def are_shown_by(self, authorization: str) -> bool:
        """Whether a header ``Authorization`` has one of them."""
        scheme, _, shown = authorization.strip().partition(" ")
        scheme, data = scheme.lower(), shown.strip().encode("utf-8")
        if scheme == "basic":
            try:
                data = base64.b64decode(data, validate=True)
            except binascii.Error:
                return False
        digest = _digest(scheme, data)
        is_one = False
        for each in self._digests:
            is_one |= hmac.compare_digest(digest, each)
        return is_one


def _digest(scheme: str, data: bytes) -> bytes:
    return hashlib.sha256(scheme.encode() + b" " + data).digest()


class Failures:
    """How many more wrong credentials an address may show. Bounded for every address."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._forgiven_s: dict[str, float] = {}
        """Address → when all of its failures are forgiven: each adds an interval."""

    def __repr__(self) -> str:
        return f"Failures({len(self._forgiven_s)} addresses)"

    def wait_s(self, address: str) -> float:
        """In how many seconds it may try again; 0: now."""
        forgiven_s = self._forgiven_s.get(self._key(address), 0.0)
        too_many_s = forgiven_s - self._now_s() - (FAILURES_AT_ONCE - 1) * FAILURE_INTERVAL_S
        return max(0.0, too_many_s)

    def add(self, address: str) -> None:
        now_s = self._now_s()
        if len(self._forgiven_s) >= ADDRESSES_MAX:
            self._forgiven_s = {key: at_s for key, at_s in self._forgiven_s.items() if at_s > now_s}
        key = self._key(address)
        self._forgiven_s[key] = max(now_s, self._forgiven_s.get(key, 0.0)) + FAILURE_INTERVAL_S

    def _key(self, address: str) -> str:
        key = address
        if ":" in address:
            network = ipaddress.IPv6Network((address.partition("%")[0], _IPV6_NEIGHBOURS), strict=False)
            key = str(network)
        return key if key in self._forgiven_s or len(self._forgiven_s) < ADDRESSES_MAX else ""


class HttpTls:
    """A ``TlsListener``. ``begin`` once, and have ``watch`` run."""

    def __init__(self, load: Callable[[], ssl.SSLContext], files: Sequence[str], *, name: str) -> None:
        """``load`` reads ``files``, in a thread. Raises ConfigError: what is wrong with them. ``name``: of
        the port in messages."""
        self._load = load
        self._files = tuple(files)
        self._name = name
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[object, ...] = ()
        self._handshakes = tls_acceptor.Handshakes(asyncio.get_running_loop())

    def __repr__(self) -> str:
        return f"HttpTls({', '.join(self._files)})"

    def handshakes_failed(self) -> Mapping[str, int]:
        """How many, by the port's name."""
        return self._handshakes.failed

    def context(self) -> ssl.SSLContext:
        """For a connection that begins now."""
        assert self._context is not None, "begin comes first"
        return self._context

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        """A certificate lets one in; there is nothing that only some of those may read."""
        return ANONYMOUS

    def above(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """What makes the protocol of an accepted socket, with what ``make`` makes above TLS."""
        return tls_acceptor.tls_factory(make, listener_name=self._name, tls=self, handshakes=self._handshakes)

    async def begin(self) -> None:
        """Raises ConfigError: what is wrong with the stores."""
        self._stamps = await asyncio.to_thread(self._stamped)
        self._context = await asyncio.to_thread(self._load)

    async def watch(self) -> None:
        """Take what changes, until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Take what the files say now; while they are no good, what they said last holds."""
        stamps = await asyncio.to_thread(self._stamped)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._context = await asyncio.to_thread(self._load)
        except (ConfigError, OSError) as error:
            logger.warning("the HTTP port keeps its old certificate: %s", error)
        else:
            logger.info("the HTTP port has read its certificate again")

    def close(self) -> None:
        """Once no connection is left."""
        self._handshakes.close()

    def _stamped(self) -> tuple[object, ...]:
        return tuple(map(_stamp, self._files))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
