"""``api/cluster``: brokers, what they have served, and what is wrong with how many partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from minikafka.cli.console.snapshot import ClusterView, KnownBroker, Snapshot
from minikafka.errors import KafkaError

LOG_DIRS_PARTITIONS_MAX: Final = 5_000
"""Of a cluster whose brokers have no ``counters``: in a larger one the sizes of logs are not asked for."""

_COUNTED: Final = (
    *("version", "started_at_ms", "page", "log_bytes", "in_bytes", "out_bytes", "requests", "connections"),
)


async def cluster(view: ClusterView, *, asked_of: int | None) -> dict[str, Any]:
    """Raises KafkaError, BrokerUnavailable: no broker answers."""
    snapshot = await view.snapshot()
    counters = await view.of_brokers(snapshot.alive(), lambda node_id: _counters(view, snapshot, node_id))
    partitions = [each for topic in snapshot.topics.values() for each in topic.partitions]
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(node_id for each in partitions for node_id in each.replicas)
    versions = [each["version"] for each in counters.values() if isinstance(each, dict) and each["version"]]
    return {
        "at_ms": view.clock.now_ms(),
        "cluster_id": snapshot.cluster_id,
        "controller_id": snapshot.controller_id,
        "software": f"minikafka {versions[0]}" if versions else None,
        "asked_of": asked_of,
        "brokers": [
            {
                **_broker(each, is_controller=each.node_id == snapshot.controller_id),
                "leaders": leaders[each.node_id],
                "replicas": replicas[each.node_id],
                **_counted(each, counters.get(each.node_id)),
            }
            for each in snapshot.brokers.values()
        ],
        "topics": len(snapshot.topics),
        "partitions": len(partitions),
        "offline_partitions": sum(each.offline for each in snapshot.topics.values()),
        "under_replicated_partitions": sum(each.under_replicated for each in snapshot.topics.values()),
        "under_min_isr_partitions": sum(each.under_min_isr for each in snapshot.topics.values()),
        "preferred_leader_partitions": sum(each.leader == each.replicas[0] for each in partitions),
    }


def _broker(broker: KnownBroker, *, is_controller: bool) -> dict[str, Any]:
    return {
        "node_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "is_controller": is_controller,
    }


def _counted(broker: KnownBroker, found: dict[str, Any] | str | None) -> dict[str, Any]:
    why = found if isinstance(found, str) else None
    if not broker.is_alive:
        why = "it is not registered"
    values = found if isinstance(found, dict) else {}
    return {"is_alive": broker.is_alive, "why_not": why, **{name: values.get(name) for name in _COUNTED}}


async def _counters(view: ClusterView, snapshot: Snapshot, node_id: int) -> dict[str, Any]:
    """Raises BrokerUnavailable: it does not answer."""
    try:
        found = await view.admin.diagnostics("counters", node_id=node_id)
        return {name: found.get(name) for name in _COUNTED}
    except KafkaError:  # it is Apache Kafka, an older minikafka, or we may not ask
        return dict.fromkeys(_COUNTED) | {"log_bytes": await _log_bytes(view, snapshot, node_id)}


async def _log_bytes(view: ClusterView, snapshot: Snapshot, node_id: int) -> int | None:
    if sum(len(each.partitions) for each in snapshot.topics.values()) > LOG_DIRS_PARTITIONS_MAX:
        return None
    try:
        dirs = await view.admin.log_dirs(node_id, None)
    except KafkaError:
        return None
    return sum(replica.size_bytes for each in dirs for replica in each.replicas.values())
