"""prometheus-client's side of a job's counters: the text format, a file, a pushgateway, a page."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, pushadd_to_gateway, start_http_server, write_to_textfile
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from minikafka.metrics.names_of_spark import JOB

if TYPE_CHECKING:
    from minikafka.spark.runtime.counters import JobCounters

GATEWAY_JOB = "minikafka_spark"
GATEWAY_S = 5.0


class _Counters(Collector):
    def __init__(self, counters: JobCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for series, labels, value in self._counters.samples():
            family = families.setdefault(series.name, Metric(series.name, series.help, series.type.value))
            family.add_sample(series.name, labels, value)
        yield from families.values()


def _registry(counters: JobCounters) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Counters(counters))
    return registry


def write_file(counters: JobCounters, path: Path) -> str | None:
    """Replace ``path`` in one step. Returns what went wrong."""
    try:
        write_to_textfile(str(path), _registry(counters))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def push(counters: JobCounters, gateway: str) -> str | None:
    """Push; series that are not there now stay in the gateway as they were. Returns what went wrong."""
    key = {JOB: counters.job}
    try:
        pushadd_to_gateway(gateway, GATEWAY_JOB, _registry(counters), grouping_key=key, timeout=GATEWAY_S)
    except (OSError, ValueError, http.client.HTTPException) as error:  # urllib's errors are OSErrors
        return f"the pushgateway {gateway}: {error}"
    return None


def read_value(path: Path, name: str, job: str) -> float | None:
    """A job's value in a file that an earlier run left; None when it is not there or no such file."""
    try:
        families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # the next write replaces it
        return None
    for family in families:
        for sample in family.samples:
            if sample.name == name and sample.labels.get(JOB) == job:
                return float(sample.value)
    return None


class MetricsPage:
    """``/metrics``. Raises OSError: the port is taken, the address is none of this machine's."""

    def __init__(self, counters: JobCounters, address: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, address, registry=_registry(counters))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
