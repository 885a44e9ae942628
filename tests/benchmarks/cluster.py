"""A cluster for benchmarks: three processes that ``bin/minikafka-broker`` starts, on a shared SQLite file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.benchmarks.broker import COMMAND, cpu_seconds
from tests.integration.support.cluster import ProcessCluster, SqliteEngine


@contextlib.contextmanager
def running_cluster(
    directory: Path, *, brokers: int = 3, properties: Mapping[str, object] | None = None
) -> Iterator[ProcessCluster]:
    """Brokers 1 to ``brokers`` with their data below ``directory``; ended at the end."""
    cluster = ProcessCluster(
        directory, SqliteEngine(directory), brokers=brokers, properties=properties, command=COMMAND
    )
    try:
        yield cluster.start()
    finally:
        cluster.close()


def cpu_by_broker(cluster: ProcessCluster) -> dict[int, float]:
    """User and system seconds of each broker that runs."""
    return {
        node_id: cpu_seconds(broker.pid) for node_id, broker in cluster.brokers.items() if broker.is_running()
    }


def row(name: str, value: float, unit: str, asked: str = "", ok: bool = True) -> dict[str, object]:
    """A line of a benchmark's table."""
    return {"name": name, "value": round(value, 3), "unit": unit, "asked": asked, "ok": ok}
