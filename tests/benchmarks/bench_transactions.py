"""Transactions: how many a second one producer gets through, and what they cost a producer of bulk.

- small: transactions of one record each, one after the other, from one producer on one broker, by each stock
  client; a transaction is over when its commit has returned.
- bulk: 1 KB records by librdkafka as fast as it can, linger 5 ms; a plain idempotent producer and one with a
  transaction every 100 ms take turns (A B A B …); the ratio is the median of those of neighbouring turns, so
  that it holds while the machine's speed drifts. A turn is over when all is acknowledged or committed.
- in a row: 1,000 transactions of Kafka's Java producer, without a pause, on three brokers, a record for each
  of 1 and of 12 partitions with three replicas; by clients of two versions. None may fail. Needs Java and
  Maven.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.benchmarks.broker import cpu_seconds, running_broker
from tests.benchmarks.cluster import row
from tests.integration.support import confluent, java
from tests.integration.support.cluster import ProcessCluster, SqliteEngine
from tests.integration.support.process import BrokerProcess, java_is_there
from tests.integration.support.transactional import PRODUCERS, TransactionalProducer

TOPIC = "bench"
SMALL_S, SMALL_MIN = 5.0, 100
RECORD = b"x" * 1024
TURN_S, TURNS, TRANSACTION_S, RATIO_MIN = 2.0, 7, 0.1, 0.7
IN_A_ROW = 1_000
LINGER_MS = 5
QUEUE_KB = 65_536
"""What librdkafka holds: enough for it never to wait for us, little enough to be acknowledged soon."""
DEADLINE_S = 60.0


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        confluent.make_topic(broker.bootstrap, TOPIC)
        rows = [*small(broker, seconds=SMALL_S / (5 if quick else 1)), *bulk(broker, 2 if quick else TURNS)]
    return [*rows, *in_a_row(IN_A_ROW // (10 if quick else 1))] if java_is_there() else rows


def in_a_row(count: int) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        cluster = ProcessCluster(Path(directory), SqliteEngine(Path(directory)))
        try:
            cluster.start()
            for version in java.CLIENT_VERSIONS:
                for partitions in (1, 12):
                    topic = f"{TOPIC}-{version}-{partitions}"
                    confluent.make_topic(cluster.bootstrap, topic, partitions=partitions, replicas=3)
                    cluster.wait_until_led(topic, partitions=partitions)
                    failed = java.failed_transactions(
                        java.class_path(version), cluster.bootstrap, topic, partitions=partitions, count=count
                    )
                    name = f"failed of {count} in a row, {partitions} partitions, Java {version}"
                    rows.append(row(name, len(failed), "", "0", not failed))
        finally:
            cluster.close()
    return rows


def small(broker: BrokerProcess, *, seconds: float) -> list[dict[str, Any]]:
    rates = {}
    rows = []
    for name, make in PRODUCERS.items():
        producer = make(broker.bootstrap, f"small-{name}")
        transact(producer)
        before, began, count = cpu_seconds(broker.pid), time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            transact(producer)
            count += 1
        rates[name] = count / (time.perf_counter() - began)
        broker_ms = (cpu_seconds(broker.pid) - before) / count * 1000
        producer.close()
        rows.append(row(f"one record each, {name}", rates[name], "1/s"))
        rows.append(row(f"one record each, {name}: broker's CPU", broker_ms, "ms"))
    best = max(rates, key=rates.__getitem__)
    name = f"transactions of one record, {best}"
    return [row(name, rates[best], "1/s", f">= {SMALL_MIN}", rates[best] >= SMALL_MIN), *rows]


def transact(producer: TransactionalProducer) -> None:
    producer.begin()
    producer.send(TOPIC, b"x")
    producer.commit()


def bulk(broker: BrokerProcess, turns: int) -> list[dict[str, Any]]:
    settings: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "linger.ms": LINGER_MS,
        "queue.buffering.max.kbytes": QUEUE_KB,
    }
    idempotent = Producer(settings | {"enable.idempotence": True})
    transactional = Producer(settings | {"transactional.id": "bulk"})
    transactional.init_transactions(DEADLINE_S)
    rates: dict[str, list[float]] = {"idempotent": [], "transactional": []}
    cpu_us: dict[str, list[float]] = {"idempotent": [], "transactional": []}
    for number in range(turns + 1):
        for name, producer in (("idempotent", idempotent), ("transactional", transactional)):
            before, began = cpu_seconds(broker.pid), time.perf_counter()
            records = written(producer, in_transactions=name == "transactional")
            if number:  # the first turns warm up
                rates[name].append(records / (time.perf_counter() - began))
                cpu_us[name].append((cpu_seconds(broker.pid) - before) / records * 1e6)
    ratios = [ours / plain for ours, plain in zip(*reversed(rates.values()), strict=True)]
    ratio = statistics.median(ratios)
    megabytes = {name: statistics.median(each) * len(RECORD) / 1e6 for name, each in rates.items()}
    return [
        row(
            "1 KB records, transactions of 100 ms / idempotent",
            ratio,
            "",
            f">= {RATIO_MIN}",
            ratio >= RATIO_MIN,
        ),
        row("least of these ratios", min(ratios), ""),
        row("greatest of these ratios", max(ratios), ""),
        *(row(f"1 KB records, {name}", value, "MB/s") for name, value in megabytes.items()),
        *(
            row(f"1 KB records, {name}: broker's CPU for a record", statistics.median(each), "us")
            for name, each in cpu_us.items()
        ),
    ]


def written(producer: Producer, *, in_transactions: bool) -> int:
    """Write for the length of a turn; returns how many records that were."""
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    records, ends = 0, time.perf_counter() + TURN_S
    while time.perf_counter() < ends:
        transaction_ends = min(ends, time.perf_counter() + TRANSACTION_S) if in_transactions else ends
        if in_transactions:
            producer.begin_transaction()
        while time.perf_counter() < transaction_ends:
            try:
                for _ in range(100):
                    producer.produce(TOPIC, RECORD, on_delivery=delivered)
                    records += 1
                producer.poll(0)
            except BufferError:
                producer.poll(0.005)
        if in_transactions:
            producer.commit_transaction(DEADLINE_S)
    assert producer.flush(DEADLINE_S) == 0
    assert not failures, failures[:3]
    return records
