"""Counters of a job, for Prometheus: which series there are is ``minikafka.metrics.series``.

A job ends before it is scraped, so there are three ways out, by prometheus-client, and any number of them may
be used:

- ``--metrics-file``: a file for node_exporter's textfile collector, replaced while the job runs and at its
  end. It is kept, so it also says when the job last ended well; the next run carries that on.
- ``--pushgateway``: the same, pushed. What this run does not know is left there as it was.
- ``--metrics-port``: a page ``/metrics`` as long as the job runs, on loopback unless an address is given.

That a series cannot be delivered does not fail the job: it is said in one line.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, pushadd_to_gateway, start_http_server, write_to_textfile
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from minikafka.errors import MinikafkaError
from minikafka.metrics.series import (
    DURATION,
    FAILED,
    JOB,
    LAST_SUCCESS,
    RUNNING,
    SPARK_SERIES,
    TASKS,
    TASKS_DONE,
    Series,
)

GATEWAY_JOB = "minikafka_spark"
GATEWAY_S = 5.0

TOPICS_MAX = 100
"""Topics with a label of their own; a job may read thousands, and Prometheus keeps each for ever."""

OTHER_TOPICS = "(others)"

REFRESH_S = 5.0
"""A third of Prometheus's usual interval."""

LOOPBACK, EVERY_ADDRESS = "127.0.0.1", "0.0.0.0"


# ---- the ways out


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
    """Push; series that are not there now are left in the gateway as they were. Returns what went wrong."""
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


# ---- counters


class ListenAddress(NamedTuple):
    """Where a page is served."""

    address: str
    port: int


class UnusableMetrics(MinikafkaError):
    """An option of these cannot be used: a port that is taken, a directory that is not there."""


def add_counter_options(options: argparse.ArgumentParser) -> None:
    """``--metrics-file``, ``--pushgateway`` and ``--metrics-port``."""
    group = options.add_argument_group("Prometheus")
    group.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE.prom",
        help="write the job's series here, for node_exporter's textfile collector",
    )
    group.add_argument("--pushgateway", metavar="HOST:PORT", help="push them to this pushgateway")
    group.add_argument(
        "--metrics-port",
        type=listen_address,
        metavar="[ADDRESS:]PORT",
        help=f"serve them while the job runs (on {LOOPBACK} unless it is said; :PORT for all addresses)",
    )


def listen_address(text: str) -> ListenAddress:
    """``PORT``, ``ADDRESS:PORT``, ``[IPV6]:PORT``, ``:PORT`` as in Prometheus. Raises ArgumentTypeError."""
    address, colon, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, or ADDRESS:PORT such as 0.0.0.0:9500")
    if not colon:
        return ListenAddress(LOOPBACK, int(port))
    return ListenAddress(address.strip("[]") or EVERY_ADDRESS, int(port))


class JobCounters:
    """The numbers of one run. Any thread may read them."""

    def __init__(self, job: str, now_s: Callable[[], float] = time.time) -> None:
        self.job = job
        self._now_s = now_s
        self._began_s = now_s()
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        # What is not counted is 0 and not absent, so that a graph says "none" and not "no data".
        self._values: dict[tuple[Series, str], float] = {
            (series, ""): 0 for series in SPARK_SERIES if series not in (DURATION, LAST_SUCCESS)
        }
        self._values[RUNNING, ""] = 1

    def __repr__(self) -> str:
        return f"<JobCounters {self.job} {len(self._values)} values>"

    def add(self, series: Series, value: float, *, topic: str = "") -> None:
        """Count ``value`` more."""
        with self._lock:
            key = series, self._label(topic)
            self._values[key] = self._values.get(key, 0) + value

    def set(self, series: Series, value: float, *, topic: str = "") -> None:
        """What is true now: of the job, or of a topic."""
        with self._lock:
            self._values[series, self._label(topic)] = value

    def value(self, series: Series, *, topic: str = "") -> float | None:
        """None: it has not been counted."""
        with self._lock:
            return self._values.get((series, topic))

    def of_topics(self, series: Series) -> list[tuple[str, float]]:
        """What has been counted of each topic, by topic."""
        with self._lock:
            return sorted((topic, value) for (found, topic), value in self._values.items() if found is series)

    def samples(self) -> Iterator[tuple[Series, dict[str, str], float]]:
        """Every number with its labels, those of one series one after the other."""
        with self._lock:
            values = dict(self._values)
        if values[RUNNING, ""]:
            values[DURATION, ""] = self._now_s() - self._began_s
        for series in SPARK_SERIES:
            for (found, topic), value in sorted(values.items(), key=lambda item: item[0][1]):
                if found is series:
                    yield series, dict(zip(series.labels, (self.job, topic), strict=False)), value

    def finish(self, *, is_success: bool) -> None:
        """The run has ended."""
        now_s = self._now_s()
        with self._lock:
            ended = {RUNNING: 0, TASKS: 0, TASKS_DONE: 0, FAILED: not is_success}
            self._values |= {(series, ""): float(value) for series, value in ended.items()}
            self._values[DURATION, ""] = now_s - self._began_s
            if is_success:
                self._values[LAST_SUCCESS, ""] = now_s

    def _label(self, topic: str) -> str:
        if topic and topic not in self._topics:
            if len(self._topics) >= TOPICS_MAX:
                return OTHER_TOPICS
            self._topics.add(topic)
        return topic


@contextmanager
def published(counters: JobCounters, arguments: argparse.Namespace) -> Iterator[None]:
    """While the body runs its counters are where the options say; at its end they are there once more.

    Raises:
        UnusableMetrics: before the body, when one of them cannot be used at all.
    """
    file: Path | None = arguments.metrics_file
    gateway: str | None = arguments.pushgateway
    page = None
    if file is not None:
        if file.is_dir() or not file.parent.is_dir():
            raise UnusableMetrics(f"--metrics-file {file}: must be a file in a directory that is there")
        last_success = read_value(file, LAST_SUCCESS.name, counters.job)
        if last_success is not None:
            counters.set(LAST_SUCCESS, last_success)
    if arguments.metrics_port is not None:
        try:
            page = MetricsPage(counters, *arguments.metrics_port)
        except OSError as error:
            raise UnusableMetrics(
                f"--metrics-port {':'.join(map(str, arguments.metrics_port))}: {error}"
            ) from error

    def deliver() -> None:
        if file is not None:
            _tell(write_file(counters, file))
        if gateway is not None:
            _tell(push(counters, gateway))

    stopped = threading.Event()

    def refresh() -> None:
        while not stopped.wait(REFRESH_S):
            deliver()

    thread = threading.Thread(target=refresh, name="job-counters", daemon=True)
    is_success = False
    try:
        if file is not None or gateway is not None:
            deliver()
            thread.start()
        yield
        is_success = True
    finally:
        stopped.set()
        if thread.is_alive():
            thread.join()
        counters.finish(is_success=is_success)
        deliver()
        if page is not None:
            page.close()


def _tell(problem: str | None) -> None:
    if problem is not None:
        print(f"minikafka: the job's metrics: {problem}", file=sys.stderr)
