"""``broker``: how this broker started and how it is now: its event loop, garbage, disks and requests.

The event loop is measured for ``PROBES`` × ``PROBE_MS`` while the answer is awaited; that needs no HTTP port,
and costs nothing when it is not asked for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final

from minikafka.metrics.request_metrics import Phase, RequestMetrics, quantiles
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.apis.shared.diagnostics_arguments import take
from minikafka.server.runtime.process import full_collections
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.system_clock import thread_cpu_ns

PROBES: Final = 20
PROBE_MS: Final = 25
_SHARES: Final = (0.5, 0.99, 1.0)


def broker(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST."""
    take(arguments)
    loop = yield from _loop(services)
    directories = [*services.log_manager.live_directories]
    free = yield from services.scheduler.apart(lambda: [_free_bytes(each) for each in directories])
    replicas = services.replica_manager
    offline = services.log_manager.offline_directories
    return {
        "broker": int(services.node_id),
        "start": _start(services),
        "loop": loop,
        "garbage": _garbage(services),
        "disk": {
            "flushes": _times(services.log_flushes.quantiles_ms(_SHARES), services.log_flushes.count),
            "directories": [
                *(
                    {"path": path, "offline": None, "free_bytes": each}
                    for path, each in zip(directories, free, strict=True)
                ),
                *({"path": path, "offline": why, "free_bytes": None} for path, why in offline.items()),
            ],
        },
        "requests": _requests(services),
        "partitions": {
            "hosted": len(replicas.partitions),
            "led": sum(each.is_leader for each in replicas.partitions.values()),
        },
        "waiting": {"produce": replicas.parked.produce.delayed, "fetch": replicas.parked.fetch.delayed},
    }


def _start(services: Services) -> dict[str, Any] | None:
    phases = services.start_phases
    if phases is None:
        return None
    return {
        "ago_ms": max(services.clock.monotonic_ms() - phases.began_ms, 0),
        "total_ms": phases.total_ms,
        "phases": [{"name": name, "ms": ms} for name, ms in phases.phases],
        "was_clean": services.log_manager.was_clean,
        "logs": len(services.log_manager.logs),
    }


def _loop(services: Services) -> Steps[dict[str, Any]]:
    """How late short timers fire, and how much of the time its thread computes."""
    loop, clock = asyncio.get_running_loop(), services.clock
    began_ns, began_cpu_ns = clock.monotonic_ns(), thread_cpu_ns()
    late_ms = []
    for _ in range(PROBES):
        due: asyncio.Future[None] = loop.create_future()
        due_ns = clock.monotonic_ns() + PROBE_MS * 1_000_000
        loop.call_later(PROBE_MS / 1000, _fire, due)
        yield due
        late_ms.append(max(clock.monotonic_ns() - due_ns, 0) / 1_000_000)
    elapsed_ns = max(clock.monotonic_ns() - began_ns, 1)
    return {
        "measured_ms": elapsed_ns // 1_000_000,
        "late_ms": _times(quantiles(late_ms, _SHARES), PROBES),
        "busy_share": min((thread_cpu_ns() - began_cpu_ns) / elapsed_ns, 1.0),
    }


def _fire(due: asyncio.Future[None]) -> None:
    if not due.done():
        due.set_result(None)


def _garbage(services: Services) -> list[dict[str, Any]]:
    now_ms = services.clock.monotonic_ms()
    return [
        {"ago_ms": max(now_ms - each.at_ms, 0), "duration_ms": each.duration_ms} for each in full_collections
    ]


def _free_bytes(path: str) -> int | None:
    """None: it cannot be told. In a thread."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _requests(services: Services) -> list[dict[str, Any]]:
    metrics = services.request_metrics
    kinds = (metrics.of(ApiKey.PRODUCE), metrics.fetch_consumer, metrics.fetch_follower)
    return [_request(each) for each in kinds]


def _request(metrics: RequestMetrics) -> dict[str, Any]:
    by_phase = {each.name.lower(): quantiles(metrics.timed.of(each), (0.99,))[0] for each in Phase}
    slowest = max(by_phase, key=by_phase.__getitem__)
    return {
        "name": metrics.name,
        "timed": len(metrics.timed),
        "p50_ms": quantiles(metrics.timed.totals(), (0.5,))[0],
        "p99_ms": quantiles(metrics.timed.totals(), (0.99,))[0],
        "slowest_phase": slowest,
        "slowest_phase_p99_ms": by_phase[slowest],
        "throttled": metrics.throttled,
    }


def _times(found: list[float], count: int) -> dict[str, Any]:
    p50, p99, longest = found
    return {"count": count, "p50": p50, "p99": p99, "max": longest}
