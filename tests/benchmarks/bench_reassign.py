"""How fast partitions move, and what clients notice: 20 partitions of 100 MB change brokers under load.

Three brokers; the partitions have two replicas each, on brokers 1 and 2. First the followers move to broker
3, then the leaders to each other's broker, unthrottled. Measured from AlterPartitionReassignments until no
partition is being reassigned. The load is 1,000 records of 1 KB a second at acks=all over the partitions that
move; latency is from ``produce`` to the acknowledgement, as the client sees it, before the move and during.
The clients are kept small: on two processors they would take them from the brokers.

Two clients, each with a cluster of its own: librdkafka and, where Maven reaches it, Apache Kafka's producer.
When a leader moves, a client is refused once and told the new leader (KIP-951), or asks for all of
the topic. Kafka's goes at once to the one that it is told; librdkafka first rests for its
``retry.backoff.ms`` (100, give or take a fifth), and all later records of the partition with it: five of 50 a
second. Were it refused in all of 20 partitions, these would be the 99th percentile of a move of ten seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Message, Producer
from confluent_kafka.admin import NewTopic
from kafka import KafkaAdminClient, TopicPartition

from minikafka.coordination import paths
from tests.benchmarks.bench_replication import at
from tests.benchmarks.cluster import cpu_by_broker, row, running_cluster
from tests.integration.support import confluent, java
from tests.integration.support.cluster import ProcessCluster

TOPIC = "bench"
PARTITIONS = 20
PARTITION_BYTES = 100_000_000
SIZE = 1024
BATCH = 500
UNDER_WAY_MAX = 20_000
RATE = 1_000
EVERY_S = 0.01
"""The load comes in small portions, so that the client leaves the processors to the brokers."""
LOOK_EVERY_S = 0.2
PROPERTIES = {"log.segment.bytes": 1 << 30}
"""Kafka's; the tests' small segments would all roll, and be flushed, in the middle of the move."""
QUIET_S = 10.0
DEADLINE_S = 300.0
MEGABYTES_A_SECOND_MIN = 100
P99_RATIO_MAX = 3

WARM_UP_S = 3.0
AFTERMATH_S = 0.5
"""Leaders move in the end, and their clients notice it then: what is sent so much later counts too."""

FOLLOWERS_MOVE = [1, 3], [2, 3]
LEADERS_MOVE = [2, 3], [1, 3]
"""The replicas of even and of odd partitions, after [1, 2] and [2, 1]."""


@dataclass(frozen=True)
class Outcome:
    """One record: when it was sent (``perf_counter``), seconds to its acknowledgement, and what failed."""

    sent: float
    took: float
    error: str = ""


class LibrdkafkaLoad:
    """Records to all partitions in turn, at ``RATE`` a second, from a thread."""

    NAME = "librdkafka"

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent.make_producer(bootstrap, acks="all", linger_ms=0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.outcomes: list[Outcome] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.outcomes += [Outcome(0.0, 0.0, "never answered")] * self._producer.flush(60)

    def _run(self) -> None:
        due = time.perf_counter()
        number = 0
        while not self._stop.is_set():
            due += EVERY_S
            for _ in range(round(RATE * EVERY_S)):
                self._send(number % PARTITIONS)
                number += 1
            while (wait_s := due - time.perf_counter()) > 0:
                self._producer.poll(wait_s)

    def _send(self, partition: int) -> None:
        sent = time.perf_counter()

        def delivered(error: object, message: Message) -> None:
            failure = "" if error is None else str(error)
            self.outcomes.append(Outcome(sent, message.latency() or 0.0, failure))

        self._producer.produce(TOPIC, b"x" * SIZE, partition=partition, on_delivery=delivered)


class JavaLoad:
    """The same from Apache Kafka's producer, in its own JVM (``SteadyLoad.java``)."""

    NAME = "Java"

    def __init__(self, bootstrap: str) -> None:
        command = java.command(java.class_path())
        arguments = [bootstrap, TOPIC, str(PARTITIONS), str(RATE), str(SIZE)]
        self._process = subprocess.Popen(
            [*command, "SteadyLoad", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.outcomes: list[Outcome] = []

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the Java producer has not started")
        return self

    def __exit__(self, *_: object) -> None:
        output, _error = self._process.communicate("\n")
        for line in output.splitlines():
            sent_ns, took_ns, failure = line.split(" ", 2)
            self.outcomes.append(Outcome(int(sent_ns) / 1e9, int(took_ns) / 1e9, failure))
        if self._process.returncode:
            raise RuntimeError(f"the Java producer ended with {self._process.returncode}")


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    partition_bytes = PARTITION_BYTES // (10 if quick else 1)
    clients: list[type[LibrdkafkaLoad | JavaLoad]] = [LibrdkafkaLoad]
    if shutil.which("mvn") and shutil.which("java"):
        clients.append(JavaLoad)
    return [each for client in clients for each in _measured(client, partition_bytes, quick=quick)]


def _measured(
    client: type[LibrdkafkaLoad | JavaLoad], partition_bytes: int, *, quick: bool
) -> list[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory() as directory,
        running_cluster(Path(directory), properties=PROPERTIES) as cluster,
    ):
        _make_topic(cluster.bootstrap)
        _fill(cluster.bootstrap, partition_bytes)
        os.sync()  # or the kernel writes it in the middle of what is measured
        with client(cluster.bootstrap) as load:
            time.sleep(WARM_UP_S)  # connections, first batches, and what a JVM compiles
            quiet_since = time.perf_counter()
            time.sleep(QUIET_S / (5 if quick else 1))
            quiet_until = time.perf_counter()
            cpu_before = cpu_by_broker(cluster)
            followers = _move(cluster, FOLLOWERS_MOVE)
            used = cpu_by_broker(cluster)
            time.sleep(AFTERMATH_S)
            os.sync()
            leaders = _move(cluster, LEADERS_MOVE)
            time.sleep(AFTERMATH_S)

    def p99(since: float, until: float) -> float:
        return at([each.took for each in load.outcomes if since <= each.sent < until], 0.99)

    quiet_s = p99(quiet_since, quiet_until)
    megabytes = PARTITIONS * partition_bytes / 1e6
    rows = [row(f"{load.NAME}: produce p99, quiet", 1000 * quiet_s, "ms")]
    for what, (started, ended) in (("followers", followers), ("leaders", leaders)):
        rate, p99_s = megabytes / (ended - started), p99(started, ended + AFTERMATH_S)
        ratio = p99_s / quiet_s
        rows += [
            row(
                f"{load.NAME}: moving {PARTITIONS} {what}, {partition_bytes / 1e6:,.0f} MB each",
                rate,
                "MB/s",
                f">= {MEGABYTES_A_SECOND_MIN}",
                rate >= MEGABYTES_A_SECOND_MIN,
            ),
            row(f"{load.NAME}: produce p99, moving {what}", 1000 * p99_s, "ms"),
            row(
                f"{load.NAME}: p99, moving {what} / quiet",
                ratio,
                "ratio",
                f"<= {P99_RATIO_MAX}",
                ratio <= P99_RATIO_MAX,
            ),
        ]
    failures = sum(1 for each in load.outcomes if each.error)
    seconds = followers[1] - followers[0]
    return [
        *rows,
        row(f"{load.NAME}: failed records", failures, "records", "0", not failures),
        *(
            row(
                f"{load.NAME}: cpu of broker {node_id}, moving followers",
                (spent - cpu_before[node_id]) / seconds,
                "cores",
            )
            for node_id, spent in used.items()
        ),
    ]


def _is_moving(cluster: ProcessCluster) -> bool:
    node = cluster.store.get(paths.topic_path(TOPIC))
    assert node is not None
    return any(each.is_being_reassigned for each in paths.decode_topic(TOPIC, node).partitions.values())


def _make_topic(bootstrap: str) -> None:
    """Half of the partitions are led by broker 1, half by broker 2."""
    assignment = [[1, 2] if number % 2 == 0 else [2, 1] for number in range(PARTITIONS)]
    client = confluent.admin(bootstrap)
    client.create_topics([NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment)])[TOPIC].result(30)


def _fill(bootstrap: str, partition_bytes: int) -> None:
    producer: Producer = confluent.make_producer(bootstrap, acks="all", linger_ms=5)
    batch = [{"value": b"x" * SIZE} for _ in range(BATCH)]
    for _ in range(partition_bytes // (SIZE * BATCH)):
        for partition in range(PARTITIONS):
            while len(producer) > UNDER_WAY_MAX:
                producer.poll(0.001)
            producer.produce_batch(TOPIC, batch, partition=partition)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records were not delivered")


def _move(cluster: ProcessCluster, targets: tuple[list[int], list[int]]) -> tuple[float, float]:
    """Even and odd partitions go to their targets. Returns when that began and ended (``perf_counter``)."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    wanted = {TopicPartition(TOPIC, number): targets[number % 2] for number in range(PARTITIONS)}
    started = time.perf_counter()
    refused = {each: error for each, error in admin.alter_partition_reassignments(wanted).items() if error}
    if refused:
        raise RuntimeError(f"not reassigned: {refused}")
    while _is_moving(cluster):
        if time.perf_counter() - started > DEADLINE_S:
            raise RuntimeError(f"the partitions have not moved within {DEADLINE_S:.0f} s")
        time.sleep(LOOK_EVERY_S)
    ended = time.perf_counter()
    admin.close()
    for number in range(PARTITIONS):
        state = cluster.store.state(TOPIC, number)
        if state is None or sorted(state.isr) != sorted(targets[number % 2]):
            raise RuntimeError(f"partition {number} has not arrived: {state}")
    return started, ended
