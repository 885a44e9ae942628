"""Share groups beside Apache Kafka 4.4.0: ten members of one group on one partition, records of 1 KB.

``drain``
    The records are there; acknowledged records a second. Asked: 1.5 times Kafka's.
``paced``
    Records come at a steady rate; 99th percentile from produce to acknowledgement. Asked: at most Kafka's.

The members are threads of one JVM (``ShareLoad.java``), or of two processes of Python with librdkafka: one
would have both brokers wait for its lock. They are the same for both brokers. Both brokers are up; one is
loaded at a time, in turn. CPU is that of the broker's process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import ShareConsumer

from tests.benchmarks.bench_security import ratio_row
from tests.benchmarks.broker import COMMAND, NO_HTTP, cpu_seconds
from tests.benchmarks.logins import HOST
from tests.benchmarks.secured_brokers import ApacheKafka
from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess
from tests.integration.support.sharing import configure_group
from tests.support.ports import free_port

VERSION = "4.4.0"
MEMBERS = 10
CLIENT_PROCESSES = 2
RECORDS, PACED_RECORDS, PACED_RATE = 1_600_000, 10_000, 1_000
"""A turn has to last for seconds: in half of one the JVM compiles its client and members join."""
WRITTEN_AT_ONCE = 200_000
"""Records in the producer's memory."""
ROUNDS = 5
RATE_MIN, LATENCY_MAX = ">= 1.5", "<= 1.0"
VALUE = bytes(1024)
DEADLINE_S = 180
LOG_ERRORS = 3
"""Not that the share consumer is a preview, of each member."""

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """Rows of name, ratio with its interval, both sides, asked, ok."""
    rounds = 3 if quick else ROUNDS
    with both() as brokers:
        return [
            *drained("Java", brokers, rounds, drain_by_java),
            *drained("librdkafka", brokers, rounds, drain_by_librdkafka),
            *paced(brokers, rounds),
        ]


@contextlib.contextmanager
def both() -> Iterator[Sequence[BrokerProcess]]:
    """Ours, and Apache Kafka."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        contextlib.ExitStack() as stack,
    ):
        port = free_port()
        kafka = {
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "offsets.topic.replication.factor": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
        }
        brokers = (
            BrokerProcess(Path(directory) / "ours", command=[*COMMAND, NO_HTTP]),
            ApacheKafka(Path(directory) / "kafka", properties=kafka, port=port),
        )
        for broker in brokers:
            stack.callback(broker.kill)
            broker.start()
        yield brokers


def drained(client: str, brokers: Sequence[BrokerProcess], rounds: int, drain: Any) -> Iterator[Row]:
    rates: list[list[float]] = [[], []]
    seconds: list[list[float]] = [[], []]
    for number in range(-1, rounds):  # the first warms both up
        for side in (0, 1) if number % 2 else (1, 0):
            broker = brokers[side]
            name = f"drain-{client}-{number}"
            prepare(broker, name)
            write(broker, name)
            before = cpu_seconds(broker.pid)
            rate = drain(broker, name)
            if number >= 0:
                rates[side].append(rate)
                seconds[side].append((cpu_seconds(broker.pid) - before) * 100_000 / RECORDS)
            admin = confluent.admin(broker.bootstrap)
            admin.delete_topics([name])[name].result(DEADLINE_S)
    yield ratio_row(f"{client}: acknowledged a second / Kafka", rates[0], rates[1], RATE_MIN)
    yield ratio_row(f"{client}: CPU s for 100,000 / Kafka", seconds[0], seconds[1], LATENCY_MAX)


def paced(brokers: Sequence[BrokerProcess], rounds: int) -> Iterator[Row]:
    latencies: list[list[float]] = [[], []]
    for number in range(-1, rounds):  # the first warms both up
        for side in (0, 1) if number % 2 else (1, 0):
            name = f"paced-{number}"
            prepare(brokers[side], name)
            p99_ms = share_load(brokers[side], name, PACED_RECORDS, PACED_RATE)[3]
            if number >= 0:
                latencies[side].append(p99_ms)
    yield ratio_row(
        "Java: p99 from produce to acknowledgement, ms / Kafka", latencies[0], latencies[1], LATENCY_MAX
    )


def prepare(broker: BrokerProcess, name: str) -> None:
    confluent.make_topic(broker.bootstrap, name)
    configure_group(broker.bootstrap, name, share_auto_offset_reset="earliest")


def write(broker: BrokerProcess, topic: str) -> None:
    producer = confluent.make_producer(
        broker.bootstrap, linger_ms=5, queue_buffering_max_messages=WRITTEN_AT_ONCE
    )
    for _ in range(RECORDS // WRITTEN_AT_ONCE):
        for _ in range(WRITTEN_AT_ONCE):
            producer.produce(topic, VALUE, partition=0)
        assert producer.flush(60) == 0


def drain_by_java(broker: BrokerProcess, name: str) -> float:
    count, seconds, *_ = share_load(broker, name, RECORDS, 0)
    return count / seconds


def share_load(broker: BrokerProcess, name: str, records: int, rate: int) -> list[float]:
    """Records, seconds, and the latencies' 50th and 99th percentile in ms."""
    arguments = [broker.bootstrap, name, name, *map(str, (MEMBERS, records, rate))]
    printed = java.run(java.class_path(VERSION), "ShareLoad", *arguments, deadline_s=DEADLINE_S)
    return [float(each) for each in printed.split()[-4:]]


def drain_by_librdkafka(broker: BrokerProcess, name: str) -> float:
    context = multiprocessing.get_context("spawn")
    accepted = context.Value("i", 0)
    times = context.Queue()
    members = MEMBERS // CLIENT_PROCESSES
    processes = [
        context.Process(target=consume_by_librdkafka, args=(broker.bootstrap, name, members, accepted, times))
        for _ in range(CLIENT_PROCESSES)
    ]
    for process in processes:
        process.start()
    spans = [times.get(timeout=DEADLINE_S) for _ in processes]
    for process in processes:
        process.join()
    assert accepted.value >= RECORDS, f"{accepted.value} of {RECORDS} in {DEADLINE_S} s"
    return RECORDS / (max(last for _, last in spans) - min(first for first, _ in spans))


def consume_by_librdkafka(bootstrap: str, name: str, members: int, accepted: Any, times: Any) -> None:
    """In a process of its own: ``members`` in threads, until all processes have ``RECORDS`` together. When
    the first record came, and the last acknowledgement was answered, goes to ``times``."""
    seen: list[float] = []

    def consume() -> None:
        consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": name, "log_level": LOG_ERRORS})
        consumer.subscribe([name])
        until = time.monotonic() + DEADLINE_S
        while accepted.value < RECORDS and time.monotonic() < until:
            messages = [each for each in consumer.poll(0.1) if each.error() is None]
            if messages:
                seen.append(time.monotonic())
                consumer.commit_sync(30.0)
                seen.append(time.monotonic())
                with accepted.get_lock():
                    accepted.value += len(messages)
        consumer.close()

    threads = [threading.Thread(target=consume) for _ in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.put((min(seen), max(seen)))
