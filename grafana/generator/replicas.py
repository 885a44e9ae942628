"""How many replicas are not well, as several dashboards show it: of the cluster, of brokers, of topics."""

from __future__ import annotations

from grafana.generator.panels import Panel, faults
from grafana.generator.query import REPLICAS, series, total


def under_replicated(partitions: str) -> Panel:
    """``partitions``: the series that count them."""
    return faults(
        "Under-replicated",
        "Partitions of which a replica is not in sync. Normal is 0, and more for a while when a broker "
        "restarts or replicas move: a new replica is not in sync until it has caught up.",
        total(partitions),
        "partitions",
        is_warning=True,
    )


def under_min_isr(partitions: str) -> Panel:
    """``partitions``: the series that count them."""
    return faults(
        "Under min.insync.replicas",
        "Partitions that refuse producers with acks=all, because too few replicas are in sync. Normal is 0.",
        total(partitions),
        "partitions",
    )


def offline_replicas(*matchers: str) -> Panel:
    """Of the brokers that match."""
    return faults(
        "Offline replicas",
        "Replicas in log directories that failed. Normal is 0.",
        total(series(f"{REPLICAS}offlinereplicacount", *matchers)),
        "replicas",
    )
