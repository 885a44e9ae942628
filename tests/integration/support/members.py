"""Members of consumer groups by every stock client, each going by itself until it leaves.

A member reads one topic from the beginning of what its group has not read, notes what came and what it owns,
and commits by itself several times a second. ``leave`` commits, leaves the group and ends.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import threading
import time
from typing import Any, ClassVar, NamedTuple

from tests.integration.support.confluent import wait_until

SESSION_TIMEOUT_MS = 30_000
"""All members leave by themselves: who is only slow must not be taken for dead, or others read again."""
HEARTBEAT_MS = 500
COMMIT_MS = 200
DEADLINE_S = 90.0


class Received(NamedTuple):
    partition: int
    offset: int
    value: bytes


class Member:
    """Subclasses poll in ``_work`` until ``_leaving`` is set."""

    kind: ClassVar[str]

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.topic = topic
        self.received: list[Received] = []
        self.owned: set[int] = set()
        self.failures: list[object] = []
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{self.kind} in {group}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<{self.kind} owns {sorted(self.owned)}, received {len(self.received)}, {self.failures}>"

    @property
    def values(self) -> list[bytes]:
        return [each.value for each in self.received]

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{self!r} does not leave"
        self.owned = set()
        assert not self.failures, self.failures

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - told by ``leave``
            self.failures.append(error)

    def _work(self) -> None:
        raise NotImplementedError


class ConfluentMember(Member):
    kind = "confluent-kafka"
    settings: ClassVar[dict[str, Any]] = {
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }

    def _work(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": COMMIT_MS,
                "topic.metadata.refresh.interval.ms": 1000,
                **self.settings,
            }
        )
        consumer.subscribe([self.topic])
        while not self._leaving.is_set():
            message = consumer.poll(0.1)
            self.owned = {each.partition for each in consumer.assignment()}
            if message is not None and message.error() is None:
                self.received.append(
                    Received(message.partition() or 0, message.offset() or 0, message.value() or b"")
                )
        consumer.close()


class ConfluentNextGenerationMember(ConfluentMember):
    kind = "confluent-kafka, KIP-848"
    settings: ClassVar[dict[str, Any]] = {"group.protocol": "consumer"}


class KafkaPythonMember(Member):
    kind = "kafka-python"

    def _work(self) -> None:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        while not self._leaving.is_set():
            for partition, records in consumer.poll(timeout_ms=100).items():
                self.received += [Received(partition.partition, each.offset, each.value) for each in records]
            self.owned = {each.partition for each in consumer.assignment()}
        consumer.close()


class AiokafkaMember(Member):
    kind = "aiokafka"

    def _work(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        async with AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),
        ) as consumer:
            while not self._leaving.is_set():
                for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                    self.received += [
                        Received(partition.partition, each.offset, each.value or b"") for each in records
                    ]
                self.owned = {each.partition for each in consumer.assignment()}


class KcatMember(Member):
    """``kcat -G``, which says on its standard error what it owns."""

    kind = "kcat"
    _CHANGE = re.compile(rb"rebalanced.*?: (assigned|revoked): (.*)")
    _PARTITION = re.compile(rb"\[(\d+)\]")

    def _work(self) -> None:
        settings = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMIT_MS,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
        command = ["kcat", "-E", "-b", self.bootstrap, "-G", self.group, "-u", "-f", "%p %o %s\n"]
        command += [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        with subprocess.Popen(
            [*command, self.topic], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            readers = [
                threading.Thread(target=self._read, args=(process.stdout, self._record), daemon=True),
                threading.Thread(target=self._read, args=(process.stderr, self._change), daemon=True),
            ]
            for reader in readers:
                reader.start()
            self._leaving.wait()
            process.send_signal(signal.SIGTERM)
            for reader in readers:
                reader.join(DEADLINE_S)

    @staticmethod
    def _read(stream: Any, take: Any) -> None:
        for line in stream:
            take(line.rstrip(b"\n"))

    def _record(self, line: bytes) -> None:
        partition, offset, value = line.split(b" ", 2)
        self.received.append(Received(int(partition), int(offset), value))

    def _change(self, line: bytes) -> None:
        change = self._CHANGE.search(line)
        if change is not None:
            partitions = {int(number) for number in self._PARTITION.findall(change[2])}
            self.owned = partitions if change[1] == b"assigned" else set()


MEMBERS: dict[str, type[Member]] = {
    each.kind: each
    for each in (
        ConfluentMember,
        ConfluentNextGenerationMember,
        AiokafkaMember,
        KafkaPythonMember,
        KcatMember,
    )
}


def wait_until_shared(members: list[Member], partitions: int) -> None:
    """Until every partition has one owner among ``members``, and each of them owns some. It must stay so for
    a moment: members that rebalance go on showing what they had."""
    since: list[float] = []

    def is_shared() -> bool:
        owned = [number for member in members for number in member.owned]
        if sorted(owned) != list(range(partitions)) or not all(member.owned for member in members):
            since.clear()
            return False
        since.append(time.monotonic())
        return since[-1] - since[0] >= 3 * HEARTBEAT_MS / 1000

    wait_until(is_shared, f"{partitions} partitions are shared by {members}", deadline_s=DEADLINE_S)
