"""A topic of 500 partitions on three brokers, each replicated three times: made, and deleted again.

Made: from the request until it is answered, and until every broker names a leader for each partition.
Deleted: until it is answered, until no broker knows the topic and the store has let go of it, and until the
last of its directories is gone from the disks. The brokers do not put that off (Kafka's default of
``log.segment.delete.delay.ms`` is 60 s, here it is 0): what is measured is the work. Each partition has one
record.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minikafka.coordination import paths
from tests.benchmarks.cluster import row, running_cluster
from tests.integration.support import confluent
from tests.integration.support.cluster import ProcessCluster

PARTITIONS = 500
ROUNDS = 3
TOPIC = "bench"
S_MAX = 5.0
DEADLINE_S = 120.0


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    partitions = PARTITIONS // (5 if quick else 1)
    properties = {"log.segment.delete.delay.ms": 0}
    measured: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        running_cluster(Path(directory), properties=properties) as cluster,
    ):
        for _ in range(1 if quick else ROUNDS):
            for name, seconds in (make(cluster, partitions) | delete(cluster, partitions)).items():
                measured.setdefault(name, []).append(seconds)
    return [limited_row(f"{partitions} partitions {name}", seconds) for name, seconds in measured.items()]


def limited_row(name: str, seconds: list[float]) -> dict[str, Any]:
    return row(f"{name}, worst of {len(seconds)}", max(seconds), "s", f"<= {S_MAX}", max(seconds) <= S_MAX)


def make(cluster: ProcessCluster, partitions: int) -> dict[str, float]:
    """Seconds by what was waited for."""
    started = time.perf_counter()
    confluent.make_topic(cluster.bootstrap, TOPIC, partitions=partitions, replicas=len(cluster.brokers))
    answered_s = time.perf_counter() - started
    until(lambda: all(led(cluster, each) == partitions for each in cluster.brokers), "all are led")
    return {"made, answered": answered_s, "made, led everywhere": time.perf_counter() - started}


def delete(cluster: ProcessCluster, partitions: int) -> dict[str, float]:
    """Seconds by what was waited for."""
    producer = confluent.make_producer(cluster.bootstrap, acks="all")
    for partition in range(partitions):
        producer.produce(TOPIC, value=b"one", partition=partition)
    assert producer.flush(DEADLINE_S) == 0
    client = confluent.admin(cluster.bootstrap)
    started = time.perf_counter()
    client.delete_topics([TOPIC])[TOPIC].result(DEADLINE_S)
    answered_s = time.perf_counter() - started
    until(lambda: is_forgotten(cluster), "the topic is forgotten")
    forgotten_s = time.perf_counter() - started
    until(lambda: not directories(cluster), "the directories are gone")
    return {
        "deleted, answered": answered_s,
        "deleted, forgotten everywhere": forgotten_s,
        "deleted, gone from the disks": time.perf_counter() - started,
    }


def led(cluster: ProcessCluster, asked: int) -> int:
    """How many partitions have a leader, as one broker knows."""
    client = confluent.admin(cluster.brokers[asked].bootstrap)
    found = client.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
    return sum(each.leader >= 0 for each in found)


def is_forgotten(cluster: ProcessCluster) -> bool:
    """By the store and by every broker."""
    return cluster.store.get(paths.topic_path(TOPIC)) is None and all(
        TOPIC not in confluent.admin(broker.bootstrap).list_topics(timeout=10).topics
        for broker in cluster.brokers.values()
    )


def directories(cluster: ProcessCluster) -> list[Path]:
    """Those of the topic's replicas, renamed or not."""
    return [each for broker in cluster.brokers.values() for each in broker.data_dir.glob(f"{TOPIC}-*")]


def until(condition: Callable[[], object], what: str) -> None:
    confluent.wait_until(condition, what, deadline_s=DEADLINE_S)
