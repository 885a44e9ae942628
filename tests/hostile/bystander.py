"""A producer that has done nothing wrong: 1,000 records a second with acks=all, while another client attacks.

It is librdkafka in a process of its own, so that neither the attack's Python nor the broker's holds it up.
The latency of a record counts from the moment when it was due, so a broker that stands still for a second
shows as a second, not as one slow record.

``python -m tests.hostile.bystander BOOTSTRAP TOPIC`` runs until its standard input is closed, and then prints
its report as one line of JSON.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from tests.integration.support.process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "bystander"
RECORDS_PER_SECOND = 1_000
DELIVERY_TIMEOUT_S = 120
"""librdkafka's own patience: a broker that is away for longer has lost the record."""
REPORT_DEADLINE_S = DELIVERY_TIMEOUT_S + 30


class Report(NamedTuple):
    """What the bystander noticed. A latency is from when a record was due to its acknowledgement."""

    sent: int
    failed: int
    p99_ms: float
    worst_ms: float


class Bystander:
    """``with Bystander(broker) as bystander: attack()``, then ``bystander.report``."""

    report: Report

    def __init__(self, broker: BrokerProcess) -> None:
        self._bootstrap = broker.bootstrap

    def __enter__(self) -> Bystander:
        command = [sys.executable, "-m", "tests.hostile.bystander", self._bootstrap, TOPIC]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the bystander could not write its first record"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            out, _ = self._process.communicate(timeout=REPORT_DEADLINE_S)
            self.report = Report(**json.loads(out))
        finally:
            self._process.kill()
            self._process.wait()


def main(bootstrap: str, topic: str) -> None:
    """Send until standard input ends; then wait for the last acknowledgements and report."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "allow.auto.create.topics": True,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_S * 1000,
        }
    )
    warm_up(producer, topic)
    print("ready", flush=True)
    latencies: list[float] = []
    failures: list[KafkaError] = []

    def send(due: float) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)
            latencies.append(time.perf_counter() - due)

        producer.produce(topic, b"x" * 100, on_delivery=delivered)

    started = time.perf_counter()
    sent = 0
    while not sent or not select.select([sys.stdin], [], [], 0)[0]:  # an attack may be over before it begins
        due = started + sent / RECORDS_PER_SECOND
        wait = due - time.perf_counter()
        if wait > 0:
            producer.poll(wait)
            continue
        send(due)
        sent += 1
        producer.poll(0)
    producer.flush(DELIVERY_TIMEOUT_S)
    for error in failures[:3]:
        print(f"bystander: {error}", file=sys.stderr)
    print(json.dumps(report(sent, len(failures) + len(producer), latencies)._asdict()))


def warm_up(producer: Producer, topic: str) -> None:
    """The topic is there and its leader is known: that is not what is measured."""
    refused: list[Any] = []
    for _ in range(10):
        producer.produce(
            topic, b"warm", on_delivery=lambda error, _: refused.append(error) if error else None
        )
        if producer.flush(DELIVERY_TIMEOUT_S) or refused:
            sys.exit(f"the bystander's first record was refused: {refused}")


def report(sent: int, failed: int, latencies: list[float]) -> Report:
    """Of a run without a single record there is nothing to say, so that is an error."""
    in_order = sorted(latencies)
    p99 = in_order[int(len(in_order) * 0.99)]
    return Report(sent, failed, round(p99 * 1000, 1), round(in_order[-1] * 1000, 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
