"""The pages of a broker's HTTP port: ``/metrics``, ``/healthz``, ``/readyz`` and the status page, ``/``, with
what that page draws: ``/status.json``, ``/events.json``, ``/purgatory.json``.

``/healthz`` says that the process serves, ``/readyz`` that it has its part in the cluster: registered, told
by a controller what to lead and follow, and all its log directories online. Who is not ready says why, a line
for each reason, with the status 503. Both are open: where a token or a password is wanted, who has none gets
the status and nothing else.

Below ``/api/`` is the console, where the command that starts the broker gives it one (``MakeConsole``): it is
a client of the cluster, above this package, and is imported and connects at its first request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.config.listeners import is_loopback
from minikafka.deferred import deferred
from minikafka.errors import StartError
from minikafka.metrics.series import Source
from minikafka.named_tuple import NamedTuple
from minikafka.network.addresses import format_address
from minikafka.network.socket_server import SocketServer
from minikafka.server.cluster.broker_connection import Connect
from minikafka.server.http.server import (
    AllowedHosts,
    Credentials,
    HttpRequest,
    HttpResponse,
    HttpServer,
    HttpTls,
)
from minikafka.server.runtime.event_loop import LoopLag, Restart
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services
from minikafka.server.storage.log_cleaner import LogCleaner

if TYPE_CHECKING:
    from minikafka.server.http import coordinator_metrics, metrics, status
else:
    coordinator_metrics = deferred("minikafka.server.http.coordinator_metrics")
    metrics = deferred("minikafka.server.http.metrics")
    status = deferred("minikafka.server.http.status")

logger = logging.getLogger(__name__)

LISTENER_NAME = "HTTP"
"""What the port is called where there are listeners: in metrics, and in messages about its stores."""

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""

CONSOLE_PREFIX = "/api/"


async def start_http(
    services: Services,
    *,
    cleaner: LogCleaner,
    socket_server: SocketServer,
    usual_port: int | None,
    connections_max: int,
    advertised_hosts: Iterable[str] = (),
    make_console: MakeConsole | None = None,
    own_address: tuple[str, int] | None = None,
) -> HttpServer | None:
    """Serve at ``http.port``, where that is not set at ``usual_port``, where that is None nowhere.

    ``connections_max``: how many connections the process has descriptors for. ``advertised_hosts``: what the
    broker is called, so that its pages may be asked under these names too. ``make_console`` is for all below
    /api/; it reaches the cluster at ``own_address``, this broker's for other brokers.

    Raises:
        StartError: ``http.port`` cannot be had. For the usual one, which was not asked for, there is a log
        line.
        ConfigError: its key or trust store is no good.
    """
    config = services.config
    port = usual_port if config.http_port is None else config.http_port
    if port is None:
        return None
    loop_lag = LoopLag(services.clock)
    tls, credentials = await _tls(config), _credentials(config)

    def figures() -> ScrapeFigures:
        groups = coordinator_metrics.GroupFigures(services)
        disks = metrics.DiskFigures(services)
        sources = [
            *metrics.sources_of_data(services, cleaner),
            disks.samples,
            *metrics.sources_of_clients(services),
            *metrics.sources_of_broker(services, socket_server, loop_lag, groups),
            *coordinator_metrics.sources_of_coordinators(services, groups),
            *metrics.sources_of_security(
                services, socket_server, dict if tls is None else tls.handshakes_failed
            ),
        ]
        return ScrapeFigures(sources, (groups.read, disks.read))

    server = HttpServer(
        supervisor=services.supervisor,
        connections_max=connections_max,
        hosts=AllowedHosts((config.http_host, *advertised_hosts, *config.http_allowed_hosts)),
        credentials=credentials,
        tls=tls,
        wants_certificates=config.http_ssl_client_auth == "required",
        authentications=services.security_metrics.of(LISTENER_NAME) if credentials or tls else None,
    )
    add_pages(server, services, socket_server, figures)
    if make_console is not None and own_address is not None:
        pages = ConsolePages(make_console, _console_host(services, own_address))
        server.add_below(CONSOLE_PREFIX, pages, close=pages.close)
    try:
        await server.start(config.http_host, port)
    except StartError as error:
        if config.http_port is not None:
            raise
        logger.warning("no metrics over HTTP, http.port is not set: %s", error)
        return None
    if not is_loopback(config.http_host):
        _warn_of_readers(config, server)
    services.supervisor.start("loop-lag", loop_lag.run, restart=Restart.ALWAYS)
    if tls is not None:
        services.supervisor.start("http-tls", tls.watch, restart=Restart.ALWAYS)
    return server


async def _tls(config: BrokerConfig) -> HttpTls | None:
    security = config.http_tls()
    if security is None:
        return None
    from minikafka.config.security import PropertyNames
    from minikafka.security.tls import server_context
    from minikafka.security.tls_settings import tls_settings  # of plain HTTP nothing of this is imported

    settings = tls_settings(security, PropertyNames("http."))
    tls = HttpTls(lambda: server_context(settings), settings.files, name=LISTENER_NAME)
    await tls.begin()
    return tls


def _credentials(config: BrokerConfig) -> Credentials | None:
    tokens, users = config.http_bearer_tokens(), config.http_basic_users()
    return Credentials(tokens=tokens, users=users) if tokens or users else None


def _warn_of_readers(config: BrokerConfig, server: HttpServer) -> None:
    """It listens beyond this machine."""
    assert server.address is not None
    where = format_address(config.http_host or "*", server.address[1])
    has_credentials = config.http_bearer_token or config.http_basic_auth_users
    if not has_credentials and config.http_ssl_client_auth != "required":
        logger.warning(
            "the HTTP port %s answers other machines without authentication: anyone who can reach it can "
            "read the names of topics, groups and clients. Set http.bearer.token or http.basic.auth.users, "
            "or listen on this machine only (http.host=127.0.0.1)",
            where,
        )
    elif has_credentials and server.tls is None:
        logger.warning(
            "the HTTP port %s takes tokens and passwords from other machines without TLS: anyone on the way "
            "can read them. Set http.ssl.keystore.location",
            where,
        )


class ConsoleHost(NamedTuple):
    """What a console gets of the broker that it is in."""

    node_id: int
    address: tuple[str, int]
    """Where other brokers reach this one."""
    connect: Connect
    """As this broker reaches the others: with its own credentials."""
    config: Callable[[], BrokerConfig]
    """As it is now."""


class ConsoleApi(Protocol):
    """A page that is closed with the server."""

    async def __call__(self, request: HttpRequest) -> HttpResponse: ...

    async def close(self) -> None: ...


MakeConsole = Callable[[ConsoleHost], ConsoleApi]
"""Called in another thread, for it imports."""


def _console_host(services: Services, own_address: tuple[str, int]) -> ConsoleHost:
    host, port = own_address
    return ConsoleHost(services.node_id, (host, port), services.connect, lambda: services.config)


class ConsolePages:
    """All below ``CONSOLE_PREFIX``; made at the first request, so that a start and a broker without readers
    pay nothing."""

    def __init__(self, make: MakeConsole, host: ConsoleHost) -> None:
        self._make = make
        self._host = host
        self._console: ConsoleApi | None = None
        self._making = asyncio.Lock()

    def __repr__(self) -> str:
        return f"ConsolePages({self._console})"

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        async with self._making:
            if self._console is None:
                self._console = await asyncio.to_thread(self._make, self._host)
        return await self._console(request)

    async def close(self) -> None:
        console, self._console = self._console, None
        if console is not None:
            await console.close()


class ScrapeFigures(NamedTuple):
    """What a scrape reads."""

    sources: list[Source]
    """In this order."""
    reads: tuple[Callable[[], Awaitable[None]], ...]
    """Awaited before, for what some sources show: what takes turns, or waits."""


def add_pages(
    server: HttpServer,
    services: Services,
    socket_server: SocketServer,
    figures: Callable[[], ScrapeFigures],
) -> None:
    """Have ``server`` serve the pages of this module, and the status page. ``figures`` is called in another
    thread, before the first scrape."""

    async def page(request: HttpRequest) -> HttpResponse:
        return status.page()

    async def status_json(request: HttpRequest) -> HttpResponse:
        return await status.status(services, socket_server, request)

    async def events_json(request: HttpRequest) -> HttpResponse:
        return await status.diagnostics(services, "events", request)

    async def purgatory_json(request: HttpRequest) -> HttpResponse:
        return await status.diagnostics(services, "purgatory", request)

    async def health(request: HttpRequest) -> HttpResponse:
        return HttpResponse.text("ok")

    async def ready(request: HttpRequest) -> HttpResponse:
        reasons = reasons_not_ready(services)
        if not reasons:
            return HttpResponse.text("ready")
        return HttpResponse.text("\n".join(reasons) if request.is_trusted else "not ready", status=503)

    server.add("/", page)
    server.add("/status.json", status_json)
    server.add("/events.json", events_json)
    server.add("/purgatory.json", purgatory_json)
    server.add("/metrics", MetricsPage(figures, services.clock))
    server.add("/healthz", health, is_open=True)
    server.add("/readyz", ready, is_open=True)


def reasons_not_ready(services: Services) -> list[str]:
    """Why this broker does not do all that it should; empty when it does."""
    reasons = []
    if services.broker_epoch < 0:
        reasons.append("the broker is not registered in the cluster")
    if not services.metadata_received.is_set():
        reasons.append("no controller has said what to lead and follow")
    for directory, reason in services.log_manager.offline_directories.items():
        reasons.append(f"the log directory {directory} is offline: {reason}")
    return reasons


class MetricsPage:
    """``/metrics``. Scrapes take turns, and all who ask while one is under way are answered with the next: so
    many at once cost as much as two."""

    def __init__(self, figures: Callable[[], ScrapeFigures], clock: Clock) -> None:
        self._figures = figures
        self._clock = clock
        self._loaded: tuple[ScrapeFigures, metrics.Exposition] | None = None
        self._scraping = asyncio.Lock()
        self._begun = 0
        self._last: list[bytes] = []
        self._last_begun = 0
        self._asking = 0

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        begun = self._begun
        self._asking += 1
        try:
            async with self._scraping:
                if self._last_begun <= begun:  # no other has begun since, so what is there may be old
                    self._last_begun, self._last = await self._scrape()
                texts = self._last
        finally:
            self._asking -= 1
            if not self._asking:
                self._last = []
        return HttpResponse(texts, content_type=METRICS_CONTENT_TYPE)

    async def _scrape(self) -> tuple[int, list[bytes]]:
        """Which scrape it is, and its text."""
        self._begun += 1
        number = self._begun
        if self._loaded is None:
            self._loaded = await asyncio.to_thread(self._load)
        figures, scraped = self._loaded
        for read in figures.reads:
            await read()
        time_slice = TimeSlice()
        texts = []
        for text in scraped.texts():
            texts.append(text)
            await time_slice.give_way()
        return number, texts

    def _load(self) -> tuple[ScrapeFigures, metrics.Exposition]:
        """Off the loop, because of the imports: 80 ms, most of them prometheus-client's."""
        figures = self._figures()
        return figures, metrics.Exposition(figures.sources, self._clock.monotonic_ns)
