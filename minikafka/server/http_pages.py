"""The pages of a broker's HTTP port: ``/metrics``, ``/healthz``, ``/readyz`` and the status page, ``/``.

``/healthz`` says that the process serves, ``/readyz`` that it has its part in the cluster: registered, told
by a controller what to lead and follow, and all its log directories online. Who is not ready says why, a line
for each reason, with the status 503.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from minikafka.clock import Clock
from minikafka.deferred import deferred
from minikafka.errors import StartError
from minikafka.metrics.series import Source
from minikafka.network.socket_server import SocketServer
from minikafka.server.http_server import HttpRequest, HttpResponse, HttpServer
from minikafka.server.log_cleaner import LogCleaner
from minikafka.server.loop_lag import LoopLag
from minikafka.server.services import Services
from minikafka.server.supervisor import Restart
from minikafka.server.turns import Turns

if TYPE_CHECKING:
    from minikafka.server import (
        metrics_collector,
        metrics_of_broker,
        metrics_of_clients,
        metrics_of_data,
        status_page,
    )
else:
    metrics_collector = deferred("minikafka.server.metrics_collector")
    metrics_of_broker = deferred("minikafka.server.metrics_of_broker")
    metrics_of_clients = deferred("minikafka.server.metrics_of_clients")
    metrics_of_data = deferred("minikafka.server.metrics_of_data")
    status_page = deferred("minikafka.server.status_page")

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

    def sources() -> list[Source]:
        return [
            *metrics_of_data.sources_of_data(services, cleaner),
            *metrics_of_clients.sources_of_clients(services),
            *metrics_of_broker.sources_of_broker(services, socket_server, loop_lag),
        ]

    server = HttpServer(supervisor=services.supervisor, connections_max=connections_max)
    add_pages(server, services, sources)
    try:
        await server.start(config.http_host, port)
    except StartError as error:
        if config.http_port is not None:
            raise
        logger.warning("no metrics over HTTP, which nobody has asked for: %s", error)
        return None
    services.supervisor.start("loop-lag", loop_lag.run, restart=Restart.ALWAYS)
    return server


def add_pages(server: HttpServer, services: Services, sources: Callable[[], list[Source]]) -> None:
    """Have ``server`` serve the pages of this module, and the status page. ``sources`` says what a scrape
    reads, in this order; it is called in another thread, before the first one."""

    async def page(request: HttpRequest) -> HttpResponse:
        return status_page.page()

    async def status(request: HttpRequest) -> HttpResponse:
        return status_page.status(services, request)

    async def health(request: HttpRequest) -> HttpResponse:
        return HttpResponse.text("ok")

    async def ready(request: HttpRequest) -> HttpResponse:
        reasons = reasons_not_ready(services)
        return HttpResponse.text("\n".join(reasons), status=503) if reasons else HttpResponse.text("ready")

    server.add("/", page)
    server.add("/status.json", status)
    server.add("/metrics", MetricsPage(sources, services.clock))
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
    """``/metrics``. Scrapes take turns: two at once would only make both slower."""

    def __init__(self, sources: Callable[[], list[Source]], clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._exposition: metrics_collector.Exposition | None = None
        self._scraping = asyncio.Lock()

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        async with self._scraping:
            exposition = self._exposition or await self._load()
            turns = Turns()
            texts = []
            for text in exposition.texts():
                texts.append(text)
                await turns.give_way()
        return HttpResponse(b"".join(texts), content_type=METRICS_CONTENT_TYPE)

    async def _load(self) -> metrics_collector.Exposition:
        """Off the loop, because of the imports: 80 ms, most of them prometheus-client's."""
        self._exposition = await asyncio.to_thread(
            lambda: metrics_collector.Exposition(self._sources(), self._clock.monotonic_ns)
        )
        return self._exposition
