"""``counters``: how long this broker has run, what it has served since then, and what it holds.

What a console asks of every broker every few seconds: cheap, and nothing is measured for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minikafka import __version__
from minikafka.network.addresses import format_address
from minikafka.server.apis.shared.diagnostics_arguments import take
from minikafka.server.services import Services
from minikafka.steps import Steps

_LOGS_AT_ONCE: Final = 500
"""Whose sizes are added up before others have a turn: less than a millisecond."""


def counters(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST."""
    take(arguments)
    stats = services.replica_manager.stats.total()
    log_bytes = 0
    for count, log in enumerate(list(services.log_manager.logs.values()), start=1):
        log_bytes += log.size_bytes
        if count % _LOGS_AT_ONCE == 0:
            yield
    yield
    now_ms, phases = services.clock.now_ms(), services.start_phases
    uptime_ms = None if phases is None else max(services.clock.monotonic_ms() - phases.began_ms, 0)
    return {
        "broker": int(services.node_id),
        "version": __version__,
        "at_ms": now_ms,
        "started_at_ms": None if uptime_ms is None else now_ms - uptime_ms,
        "page": _page(services),
        "connections": services.connection_count(),
        "requests": sum(each.count for each in services.request_metrics if each.parent is None),
        "in_bytes": stats.value("bytes_in"),
        "out_bytes": stats.value("bytes_out"),
        "log_bytes": log_bytes,
    }


def _page(services: Services) -> str | None:
    """Where this broker's own page is; None: nowhere."""
    own = next((each for each in services.metadata.brokers() if each.node_id == services.node_id), None)
    if own is None or own.http is None:
        return None
    return f"{services.config.http_scheme()}://{format_address(*own.http)}/"
