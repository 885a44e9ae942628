"""The pages of a broker's HTTP port: ``/metrics``, ``/healthz``, ``/readyz`` and the status page, ``/``.

``/healthz`` says that the process serves, ``/readyz`` that it has its part in the cluster: registered, told
by a controller what to lead and follow, and all its log directories online. Who is not ready says why, a line
for each reason, with the status 503.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING

from minikafka.errors import StartError
from minikafka.network.socket_server import SocketServer
from minikafka.server.http_server import HttpRequest, HttpResponse, HttpServer
from minikafka.server.log_cleaner import LogCleaner
from minikafka.server.loop_lag import LoopLag
from minikafka.server.metrics_of_broker import sources_of_broker
from minikafka.server.metrics_of_clients import sources_of_clients
from minikafka.server.metrics_of_data import sources_of_data
from minikafka.server.services import Services
from minikafka.server.status_page import add_status_page
from minikafka.server.supervisor import Restart
from minikafka.server.turns import Turns

if TYPE_CHECKING:
    from minikafka.server.metrics_collector import Exposition

logger = logging.getLogger(__name__)

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""

_COLLECTOR = "minikafka.server.metrics_collector"


async def start_http(
    services: Services, *, cleaner: LogCleaner, socket_server: SocketServer, usual_port: int | None
) -> HttpServer | None:
    """Serve at ``http.port``, where that is not set at ``usual_port``, where that is None nowhere.

    Raises:
        StartError: ``http.port`` cannot be had. Nobody asked for the usual one: then there is a log line.
    """
    config = services.config
    port = usual_port if config.http_port is None else config.http_port
    if port is None:
        return None
    server = HttpServer(supervisor=services.supervisor)
    add_pages(server, services)
    try:
        await server.start(config.http_host, port)
    except StartError as error:
        if config.http_port is not None:
            raise
        logger.warning("no metrics over HTTP, which nobody has asked for: %s", error)
        return None
    loop_lag = LoopLag(services.clock)
    services.supervisor.start("loop-lag", loop_lag.run, restart=Restart.ALWAYS)
    services.metrics_sources += sources_of_data(services, cleaner)
    services.metrics_sources += sources_of_clients(services)
    services.metrics_sources += sources_of_broker(services, socket_server, loop_lag)
    return server


def add_pages(server: HttpServer, services: Services) -> None:
    """Have ``server`` serve the pages of this module, and the status page."""
    add_status_page(server, services)
    server.add("/metrics", MetricsPage(services))

    async def health(request: HttpRequest) -> HttpResponse:
        return HttpResponse.text("ok")

    async def ready(request: HttpRequest) -> HttpResponse:
        reasons = reasons_not_ready(services)
        return HttpResponse.text("\n".join(reasons), status=503) if reasons else HttpResponse.text("ready")

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

    def __init__(self, services: Services) -> None:
        self._services = services
        self._exposition: Exposition | None = None
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

    async def _load(self) -> Exposition:
        """Import prometheus-client: 80 ms, off the loop."""
        await asyncio.to_thread(importlib.import_module, _COLLECTOR)
        from minikafka.server.metrics_collector import Exposition

        self._exposition = Exposition(self._services.metrics_sources, self._services.clock.monotonic_ns)
        return self._exposition
