"""Partitions on three brokers, each replicated three times, all of them led by one broker, which is killed.

Failover counts from the moment in which the store lets go of the dead broker's session: the session timeout
is the operator's choice. It ends when both other brokers say that every partition is led by one of them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from confluent_kafka.admin import NewTopic

from minikafka.coordination import paths
from tests.benchmarks.broker import resident_mb
from tests.benchmarks.cluster import cpu_by_broker, running_cluster
from tests.benchmarks.scale.brokers import OURS, Row, Watch, growth, limit_row, until
from tests.benchmarks.scale.partitions import ADMIN_S, SOCKET_TIMEOUT_MS, admin, logs, topics_of
from tests.integration.support.cluster import ProcessCluster

COUNTS, QUICK_COUNTS = (100, 1_000, 6_000), (100,)
IDLE_S, QUICK_IDLE_S = 10.0, 2.0
IDLE_MAX_OF, IDLE_MAX = 1_000, 0.10
"""Cores of each broker, at so many partitions."""
FAILOVER_S_MAX = 3.0
GROWTH_MAX = 1.25
SETTLE_S = 5.0
COLUMNS = {
    "creating, CPU s": 0.5,
    "idle cores": 0.05,
    "failover, CPU s": 0.3,
    "in sync again, CPU s": 0.5,
    "deleting, CPU s": 0.5,
}


def run(*, quick: bool) -> list[Row]:
    counts = QUICK_COUNTS if quick else COUNTS
    curve = [measured(count, idle_s=QUICK_IDLE_S if quick else IDLE_S) for count in counts]
    rows = [*curve, *growth(curve, "partitions", COLUMNS, most=GROWTH_MAX)]
    for row in curve:
        name = f"failover of {row['partitions']} leaders after the session"
        rows.append(limit_row(name, row["failover, s"], "s", FAILOVER_S_MAX))
        if row["partitions"] == IDLE_MAX_OF:
            name = f"idle with {IDLE_MAX_OF} partitions, the busiest broker"
            rows.append(limit_row(name, row["idle core, most"], "cores", IDLE_MAX))
    return rows


def measured(count: int, *, idle_s: float) -> Row:
    properties = {"log.segment.delete.delay.ms": 0, "auto.leader.rebalance.enable": False}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        running_cluster(Path(directory), properties=properties) as cluster,
    ):
        leader, *others = sorted(cluster.brokers, key=lambda each: each == cluster.controller)
        row: Row = {"part": "cluster", "of": OURS, "partitions": count}
        row |= created(cluster, count, replicas=[leader, *others])
        row["MB, most"] = round(max(resident_mb(each.pid) for each in cluster.brokers.values()), 1)
        row |= idle(cluster, idle_s)
        row |= failed_over(cluster, count, leader)
        row |= in_sync_again(cluster, count, leader)
        row |= deleted(cluster)
        print(row, flush=True)
        return row


def watch_of(cluster: ProcessCluster) -> Watch:
    return Watch([broker.pid for broker in cluster.brokers.values() if broker.is_running()])


def led(cluster: ProcessCluster, asked: int, count: int, *, by: Collection[int]) -> bool:
    """Whether a broker knows leaders among ``by`` for all."""
    topics = admin(cluster.brokers[asked]).list_topics(timeout=SOCKET_TIMEOUT_MS / 1000).topics
    leaders = [
        partition.leader
        for name, topic in topics.items()
        if name.startswith("scale-")
        for partition in topic.partitions.values()
    ]
    return len(leaders) == count and all(leader in by for leader in leaders)


def created(cluster: ProcessCluster, count: int, *, replicas: list[int]) -> Row:
    """Until all brokers name a leader for each, and have made all logs."""
    watch = watch_of(cluster)
    client = admin(cluster.brokers[replicas[0]])
    for name, partitions in topics_of(count):
        asked = [NewTopic(name, partitions, replica_assignment=[replicas] * partitions)]
        client.create_topics(asked, request_timeout=SOCKET_TIMEOUT_MS / 1000, operation_timeout=ADMIN_S)[
            name
        ].result(ADMIN_S)
    for each in cluster.brokers:
        until(lambda each=each: led(cluster, each, count, by=replicas[:1]), "all are led", pause_s=0.2)
    for broker in cluster.brokers.values():
        until(lambda broker=broker: logs(broker) == count, "all logs are there", pause_s=0.2)
    spent = watch.spent()
    return {"creating, s": round(spent.seconds, 2), "creating, CPU s": round(spent.cpu_s, 2)}


def idle(cluster: ProcessCluster, seconds: float) -> Row:
    time.sleep(SETTLE_S)
    before = cpu_by_broker(cluster)
    time.sleep(seconds)
    cores = [(spent - before[each]) / seconds for each, spent in cpu_by_broker(cluster).items()]
    return {"idle cores": round(sum(cores), 4), "idle core, most": round(max(cores), 4)}


def failed_over(cluster: ProcessCluster, count: int, leader: int) -> Row:
    """The leader of all is killed."""
    others = set(cluster.brokers) - {leader}
    began = time.perf_counter()
    cluster.brokers[leader].kill()
    watch = watch_of(cluster)
    path = paths.broker_path(leader)
    until(lambda: cluster.store.get(path) is None, "the session is over", pause_s=0.01)
    session_s = time.perf_counter() - began
    until(lambda: all(led(cluster, each, count, by=others) for each in others), "all are led again")
    return {
        "session, s": round(session_s, 2),
        "failover, s": round(time.perf_counter() - began - session_s, 2),
        "failover, CPU s": round(watch.spent().cpu_s, 2),
    }


def in_sync_again(cluster: ProcessCluster, count: int, back: int) -> Row:
    """From the start of the broker that was killed."""
    began = time.perf_counter()
    cluster.brokers[back].start()
    watch = watch_of(cluster)

    def is_whole() -> bool:
        topics = admin(cluster.brokers[back]).list_topics(timeout=SOCKET_TIMEOUT_MS / 1000).topics
        isrs = [
            partition.isrs
            for name, topic in topics.items()
            if name.startswith("scale-")
            for partition in topic.partitions.values()
        ]
        return len(isrs) == count and all(len(isr) == len(cluster.brokers) for isr in isrs)

    until(is_whole, "all are in sync", pause_s=0.5)
    seconds, cpu_s = time.perf_counter() - began, watch.spent().cpu_s
    return {"in sync again, s": round(seconds, 2), "in sync again, CPU s": round(cpu_s, 2)}


def deleted(cluster: ProcessCluster) -> Row:
    """Until the directories are gone from all brokers."""
    client = admin(cluster.brokers[cluster.controller])
    names = [
        name
        for name in client.list_topics(timeout=SOCKET_TIMEOUT_MS / 1000).topics
        if name.startswith("scale-")
    ]
    watch = watch_of(cluster)
    for done in client.delete_topics(
        names, request_timeout=SOCKET_TIMEOUT_MS / 1000, operation_timeout=ADMIN_S
    ).values():
        done.result(ADMIN_S)
    until(
        lambda: not any(logs(each) for each in cluster.brokers.values()),
        "the directories are gone",
        pause_s=0.2,
    )
    spent = watch.spent()
    return {"deleting, s": round(spent.seconds, 2), "deleting, CPU s": round(spent.cpu_s, 2)}
