"""The pages of a broker's HTTP port: ``/metrics``, ``/healthz``, ``/readyz`` and the status page, ``/``.

``/healthz`` says that the process serves, ``/readyz`` that it has its part in the cluster: registered, told
by a controller what to lead and follow, and all its log directories online. Who is not ready says why, a line
for each reason, with the status 503.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from minikafka.clock import Clock
from minikafka.deferred import deferred
from minikafka.errors import StartError
from minikafka.metrics.series import Source
from minikafka.network.socket_server import SocketServer
from minikafka.server.http.server import HttpRequest, HttpResponse, HttpServer
from minikafka.server.runtime.loop_lag import LoopLag
from minikafka.server.runtime.supervisor import Restart
from minikafka.server.runtime.turns import Turns
from minikafka.server.services import Services
from minikafka.server.storage.log_cleaner import LogCleaner

if TYPE_CHECKING:
    from minikafka.server.http import (
        metrics_collector,
        metrics_of_broker,
        metrics_of_clients,
        metrics_of_data,
        metrics_of_disks,
        metrics_of_groups,
        status_page,
    )
else:
    metrics_collector = deferred("minikafka.server.http.metrics_collector")
    metrics_of_broker = deferred("minikafka.server.http.metrics_of_broker")
    metrics_of_clients = deferred("minikafka.server.http.metrics_of_clients")
    metrics_of_data = deferred("minikafka.server.http.metrics_of_data")
    metrics_of_disks = deferred("minikafka.server.http.metrics_of_disks")
    metrics_of_groups = deferred("minikafka.server.http.metrics_of_groups")
    status_page = deferred("minikafka.server.http.status_page")

logger = logging.getLogger(__name__)

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""


async def start_http(
    services: Services,
    *,
    cleaner: LogCleaner,
    socket_server: SocketServer,
    usual_port: int | None,
    connections_max: int,
) -> HttpServer | None:
    """Serve at ``http.port``, where that is not set at ``usual_port``, where that is None nowhere.

    ``connections_max``: how many connections the process has descriptors for.

    Raises:
        StartError: ``http.port`` cannot be had. Nobody asked for the usual one: then there is a log line.
    """
    config = services.config
    port = usual_port if config.http_port is None else config.http_port
    if port is None:
        return None
    loop_lag = LoopLag(services.clock)

    def figures() -> ScrapeFigures:
        groups, disks = metrics_of_groups.GroupFigures(services), metrics_of_disks.DiskFigures(services)
        sources = [
            *metrics_of_data.sources_of_data(services, cleaner),
            disks.samples,
            *metrics_of_clients.sources_of_clients(services),
            *metrics_of_broker.sources_of_broker(services, socket_server, loop_lag, groups),
        ]
        return ScrapeFigures(sources, (groups.read, disks.read))

    server = HttpServer(supervisor=services.supervisor, connections_max=connections_max)
    add_pages(server, services, figures)
    try:
        await server.start(config.http_host, port)
    except StartError as error:
        if config.http_port is not None:
            raise
        logger.warning("no metrics over HTTP, which nobody has asked for: %s", error)
        return None
    services.supervisor.start("loop-lag", loop_lag.run, restart=Restart.ALWAYS)
    return server


class ScrapeFigures(NamedTuple):
    """What a scrape reads."""

    sources: list[Source]
    """In this order."""
    reads: tuple[Callable[[], Awaitable[None]], ...]
    """Awaited before, for what some sources show: what takes turns, or waits."""


def add_pages(server: HttpServer, services: Services, figures: Callable[[], ScrapeFigures]) -> None:
    """Have ``server`` serve the pages of this module, and the status page. ``figures`` is called in another
    thread, before the first scrape."""

    async def page(request: HttpRequest) -> HttpResponse:
        return status_page.page()

    async def status(request: HttpRequest) -> HttpResponse:
        return await status_page.status(services, request)

    async def health(request: HttpRequest) -> HttpResponse:
        return HttpResponse.text("ok")

    async def ready(request: HttpRequest) -> HttpResponse:
        reasons = reasons_not_ready(services)
        return HttpResponse.text("\n".join(reasons), status=503) if reasons else HttpResponse.text("ready")

    server.add("/", page)
    server.add("/status.json", status)
    server.add("/metrics", MetricsPage(figures, services.clock))
    server.add("/healthz", health)
    server.add("/readyz", ready)


def reasons_not_ready(services: Services) -> list[str]:
    """Why this broker does not do all that it should; empty when it does."""
    reasons = []
    if services.broker_epoch < 0:
        reasons.append("the broker is not registered in the cluster")
    if not services.instructed.is_set():
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
        self._loaded: tuple[ScrapeFigures, metrics_collector.Exposition] | None = None
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
        figures, exposition = self._loaded
        for read in figures.reads:
            await read()
        turns = Turns()
        texts = []
        for text in exposition.texts():
            texts.append(text)
            await turns.give_way()
        return number, texts

    def _load(self) -> tuple[ScrapeFigures, metrics_collector.Exposition]:
        """Off the loop, because of the imports: 80 ms, most of them prometheus-client's."""
        figures = self._figures()
        return figures, metrics_collector.Exposition(figures.sources, self._clock.monotonic_ns)
