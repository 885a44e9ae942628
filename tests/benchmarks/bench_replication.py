"""What acknowledgement by three replicas costs: acks=all on a cluster of three, beside acks=1 on one broker.

Both run at the same time on this machine and take turns (A B A B …), with the same client: records of 1 KB,
linger 5 ms, at most 10,000 under way. A ratio is the median of the ratios of neighbouring turns. Latency is
from ``produce`` to the delivery report, at a load of 2,000 records a second. ``cpu`` is the cores that each
process used in the turns for throughput; on a machine with fewer cores than processes it is what limits.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer

from tests.benchmarks.broker import cpu_seconds, running_broker
from tests.benchmarks.cluster import cpu_by_broker, row, running_cluster
from tests.integration.support import confluent

ROUNDS = 5
RECORDS, SIZE = 200_000, 1024
UNDER_WAY_MAX = 10_000
LATENCY_RECORDS, LATENCY_RATE = 10_000, 2_000
TOPIC = "bench"
RATIO_MIN = 0.30
BATCH = 500


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    rounds, scale = (3, 5) if quick else (ROUNDS, 1)
    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory)) as single,
        running_cluster(Path(directory)) as cluster,
    ):
        confluent.make_topic(single.bootstrap, TOPIC)
        cluster.make_topic(TOPIC)
        peers = {"acks=1, one broker": (single.bootstrap, 1), "acks=all, three": (cluster.bootstrap, -1)}
        rates: dict[str, list[float]] = {name: [] for name in peers}
        latencies: dict[str, list[float]] = {name: [] for name in peers}
        used: dict[str, float] = {}
        seconds = 0.0
        for _ in range(rounds):
            for name, (bootstrap, acks) in peers.items():
                before, started = cpu_by_broker(cluster), time.perf_counter()
                rates[name].append(throughput(bootstrap, acks, RECORDS // scale))
                if acks == -1:
                    seconds += time.perf_counter() - started
                    for node_id, spent in cpu_by_broker(cluster).items():
                        role = "leader" if node_id == cluster.leader(TOPIC) else f"follower {node_id}"
                        used[role] = used.get(role, 0.0) + spent - before[node_id]
                latencies[name] += latency(bootstrap, acks, LATENCY_RECORDS // scale)
        idle = cpu_seconds(single.pid)
    one, three = (rates[name] for name in peers)
    ratio = statistics.median(b / a for a, b in zip(one, three, strict=True))
    rows = [row(f"{name}: throughput", statistics.median(rates[name]), "MB/s") for name in peers]
    rows.append(row("throughput, acks=all / acks=1", ratio, "ratio", f">= {RATIO_MIN}", ratio >= RATIO_MIN))
    for name in peers:
        rows += [
            row(f"{name}: {label} latency", 1000 * at(latencies[name], share), "ms")
            for label, share in (("p50", 0.5), ("p99", 0.99))
        ]
    rows += [row(f"acks=all: cpu of {role}", spent / seconds, "cores") for role, spent in used.items()]
    return [*rows, row("single broker: cpu in all", idle, "s")]


def throughput(bootstrap: str, acks: int, records: int) -> float:
    """MB/s from the first ``produce`` to the last delivery report."""
    producer = confluent.make_producer(bootstrap, acks=acks, linger_ms=5)
    warm_up(producer)
    batch = [{"value": b"x" * SIZE} for _ in range(BATCH)]
    started = time.perf_counter()
    for _ in range(records // BATCH):
        while len(producer) > UNDER_WAY_MAX:
            producer.poll(0.001)
        producer.produce_batch(TOPIC, batch, partition=0)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records were not delivered")
    return records * SIZE / 1e6 / (time.perf_counter() - started)


def latency(bootstrap: str, acks: int, records: int) -> list[float]:
    """Seconds to each delivery report, at a steady rate, without linger."""
    producer = confluent.make_producer(bootstrap, acks=acks, linger_ms=0)
    warm_up(producer)
    took: list[float] = []
    value = b"x" * SIZE
    due = time.perf_counter()
    for _ in range(records):
        due += 1 / LATENCY_RATE
        sent = time.perf_counter()

        def delivered(error: object, _: Message, sent: float = sent) -> None:
            if error is not None:
                raise RuntimeError(str(error))
            took.append(time.perf_counter() - sent)

        producer.produce(TOPIC, value, partition=0, on_delivery=delivered)
        while True:
            wait_s = due - time.perf_counter()
            producer.poll(max(0.0, wait_s))
            if wait_s <= 0:
                break
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records were not delivered")
    return took


def warm_up(producer: Producer) -> None:
    producer.produce(TOPIC, b"first", partition=0)
    producer.flush(30)


def at(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of all lie below."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
