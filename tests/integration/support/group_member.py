"""One member of a consumer group as a process, so that it can be killed and paused: a stock client that reads
topics and writes the value of each record to its output, a line each, before it commits it.

    python -m tests.integration.support.group_member CLIENT BOOTSTRAP GROUP TOPIC

CLIENT: ``confluent``, ``confluent-consumer`` (KIP-848), ``aiokafka`` or ``kafka-python``. SIGTERM leaves the
group. All use the ``range`` assignor, so that they can share a group of the classic protocol.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_MS = 500
POLL_S = 0.2
RECORDS_MAX = 500


def write(values: Iterable[bytes]) -> None:
    """One ``write`` call, so that a line is there whole or not at all; a SIGKILL takes only what follows."""
    if lines := b"".join(value + b"\n" for value in values):
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()


def confluent(bootstrap: str, group: str, topic: str, *, stop: threading.Event, protocol: str) -> None:
    from confluent_kafka import Consumer, KafkaException

    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 1_000,
        "reconnect.backoff.max.ms": 500,
        "group.protocol": protocol,
    }
    if protocol == "classic":
        config |= {
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": "range",
        }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    while not stop.is_set():
        messages = [each for each in consumer.consume(RECORDS_MAX, POLL_S) if each.error() is None]
        write(each.value() or b"" for each in messages)
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:  # a rebalance, a coordinator that moves: read again by others
                print(f"commit: {error}", file=sys.stderr)
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str, *, stop: threading.Event) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=1_000,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    while not stop.is_set():
        polled = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=RECORDS_MAX)
        write(record.value for records in polled.values() for record in records)
        if polled:
            try:
                consumer.commit()
            except KafkaError as error:
                print(f"commit: {error!r}", file=sys.stderr)
    consumer.close(autocommit=False)


async def aiokafka(bootstrap: str, group: str, topic: str, *, stop: threading.Event) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=1_000,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    await consumer.start()
    try:
        while not stop.is_set():
            polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=RECORDS_MAX)
            write(record.value for records in polled.values() for record in records)
            if polled:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    print(f"commit: {error!r}", file=sys.stderr)
    finally:
        await consumer.stop()


def main(arguments: Sequence[str]) -> None:
    client, *where = arguments
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    match client:
        case "confluent":
            confluent(*where, stop=stop, protocol="classic")
        case "confluent-consumer":
            confluent(*where, stop=stop, protocol="consumer")
        case "kafka-python":
            kafka_python(*where, stop=stop)
        case "aiokafka":
            asyncio.run(aiokafka(*where, stop=stop))
        case _:
            raise SystemExit(f"no client {client}")


class MemberProcess:
    """A member that runs; ``client`` may also be ``kcat``, which reads by ``kcat -G``."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, output: Path) -> None:
        self.client, self.group = client, group
        self._output = output
        command = [sys.executable, "-m", __name__, client, bootstrap, group, topic]
        if client == "kcat":
            settings = {
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": "range",
                "auto.commit.interval.ms": 500,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
            options = [option for name, value in settings.items() for option in ("-X", f"{name}={value}")]
            command = ["kcat", "-b", bootstrap, *options, "-G", group, "-u", "-f", "%s\n", topic]
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def __repr__(self) -> str:
        return f"<{self.client} {self._process.pid} {self._output.name}>"

    def values(self) -> list[bytes]:
        """What it has written so far, the unfinished last line left out."""
        return self._output.read_bytes().split(b"\n")[:-1]

    def written_bytes(self) -> int:
        """How much that is; it grows when it gets records, and is cheap to ask for again and again."""
        return self._output.stat().st_size

    def errors(self) -> str:
        return self._output.with_suffix(".err").read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        """SIGTERM, and wait."""
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


if __name__ == "__main__":
    main(sys.argv[1:])
