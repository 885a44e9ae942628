"""The client of ``bench_produce``: one workload in a process of its own; prints one JSON line.

librdkafka does the work, and gets its records in batches, because calling it once a record takes a whole
core at 600,000 records a second. The same for the broker and for librdkafka's own mock cluster, which lives
inside this process.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

MOCK = "mock"
ONE_RECORD = {"batch.num.messages": 1, "linger.ms": 0}
LINGER = {"linger.ms": 5}

BATCH = 500
QUEUED_MAX = 50_000
"""Half of librdkafka's default queue."""


def connection(bootstrap: str) -> dict[str, Any]:
    """Where to connect; the mock cluster starts with the client."""
    if bootstrap == MOCK:
        return {"test.mock.num.brokers": 1, "log_level": 0}
    return {"bootstrap.servers": bootstrap}


def produce(bootstrap: str, topic: str, *, records: int, size: int, settings: dict[str, Any]) -> float:
    """Seconds from the first ``produce`` to the last acknowledgement."""
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(connection(bootstrap) | settings | {"acks": 1})
    value = b"x" * size
    producer.produce(topic, value, partition=0, on_delivery=delivered)
    producer.flush(30)
    batch = [{"value": value} for _ in range(BATCH)]
    started = time.perf_counter()
    for _ in range(records // BATCH):
        while len(producer) > QUEUED_MAX:
            producer.poll(0.001)
        if producer.produce_batch(topic, batch, partition=0) != BATCH:
            raise SystemExit("the producer's queue is full")
    left = producer.flush(120)
    seconds = time.perf_counter() - started
    if failures or left:
        raise SystemExit(f"{left} records were not delivered: {failures[:1]}")
    return seconds


def consume(bootstrap: str, topic: str, *, records: int, settings: dict[str, Any]) -> float:
    """Seconds from the first record to the last."""
    consumer = Consumer(
        connection(bootstrap)
        | settings
        | {"group.id": "bench", "enable.auto.commit": False, "fetch.max.bytes": 50 << 20, "log_level": 0}
        | {"max.partition.fetch.bytes": 4 << 20, "queued.min.messages": 50_000}
        | {"fetch.queue.backoff.ms": 5}  # by default librdkafka rests for 1 s whenever its queue is full
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    first = consumer.consume(1, timeout=30)
    if not first or first[0].error():
        raise SystemExit(f"nothing to consume: {[message.error() for message in first]}")
    started = time.perf_counter()
    seen = 1
    while seen < records:
        messages = consumer.consume(10_000, timeout=30)
        if not messages:
            raise SystemExit(f"only {seen} of {records} records came")
        seen += len(messages)
    seconds = time.perf_counter() - started
    consumer.close()
    return seconds


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("workload", choices=["linger", "one", "consume"])
    options.add_argument("bootstrap")
    options.add_argument("topic")
    options.add_argument("--records", type=int, required=True)
    options.add_argument("--size", type=int, required=True)
    options.add_argument("--settings", type=json.loads, default={}, help="more of librdkafka's, JSON")
    arguments = options.parse_args()
    cpu_started = time.process_time()
    if arguments.workload == "consume":
        seconds = consume(
            arguments.bootstrap, arguments.topic, records=arguments.records, settings=arguments.settings
        )
    else:
        settings = ONE_RECORD if arguments.workload == "one" else LINGER
        seconds = produce(
            arguments.bootstrap,
            arguments.topic,
            records=arguments.records,
            size=arguments.size,
            settings=arguments.settings | settings,
        )
    cpu_seconds = time.process_time() - cpu_started
    print(json.dumps({"seconds": seconds, "client_cpu_seconds": cpu_seconds}))


if __name__ == "__main__":
    main()
