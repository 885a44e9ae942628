"""Members of a share group, and what they have seen: of confluent-kafka, or kgo's program."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.integration.support import confluent

POLL_S = 0.5


def configure_group(bootstrap: str, group: str, **config: str) -> None:
    """Properties with underscores for dots."""
    entries = [
        ConfigEntry(each.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for each, value in config.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    client = confluent.admin(bootstrap)  # its futures need it alive
    client.incremental_alter_configs([resource])[resource].result()


class Delivery(NamedTuple):
    """A record that a member was given. Times are those of one monotonic clock, in seconds."""

    member: int
    value: bytes
    at_s: float


class ShareGroup:
    """Members that accept all they get, until ``close``; each has a thread here."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        members: int,
        config: Mapping[str, Any] | None = None,
        kgo: Path | None = None,
    ) -> None:
        """``config`` is that of confluent-kafka's consumers; ``kgo``: the program that runs instead."""
        self.deliveries: list[Delivery] = []
        self.accepted: dict[bytes, float] = {}
        """When it was first answered that a value is accepted."""
        self.errors: list[BaseException] = []
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            **(config or {}),
        }
        self._topic = topic
        command = [str(kgo), "share-member", bootstrap, group, topic]
        self._processes = [] if kgo is None else [_started(command) for _ in range(members)]
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(members)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        for process in self._processes:
            process.terminate()
        for thread in self._threads:
            thread.join(60)
        for process in self._processes:
            process.kill()  # else it outlives the test
        assert not any(thread.is_alive() for thread in self._threads), "a share consumer does not close"
        if self.errors:
            raise self.errors[0]

    def wait_for(self, values: set[bytes], *, deadline_s: float = 60) -> None:
        """Until all of ``values`` are accepted."""
        confluent.wait_until(
            lambda: self.errors or values <= self.accepted.keys(),
            f"all of {len(values)} records are accepted",
            deadline_s=deadline_s,
        )
        if self.errors:
            raise self.errors[0]

    def check(self) -> None:
        """Nothing that was answered to be accepted came again."""
        again = [each for each in self.deliveries if each.at_s > self.accepted.get(each.value, float("inf"))]
        assert not again, f"{len(again)} records came again after they were accepted: {again[:5]}"

    def _run(self, member: int) -> None:
        try:
            if self._processes:
                self._read(self._processes[member], member)
            else:
                self._consume(member)
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.errors.append(error)

    def _read(self, process: subprocess.Popen[str], member: int) -> None:
        """What kgo's program prints until it has ended; its clock is that of ``time.monotonic``."""
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                what, at_ms, value = line.split()
                at_s = float(at_ms) / 1000
                if what == "got":
                    self.deliveries.append(Delivery(member, value.encode(), at_s))
                else:
                    self.accepted.setdefault(value.encode(), at_s)
        assert process.returncode == 0, f"kgo's program ended with {process.returncode}"

    def _consume(self, member: int) -> None:
        consumer = ShareConsumer(self._config)
        try:
            consumer.subscribe([self._topic])
            while not self._over.is_set():
                self._poll(consumer, member)
        finally:
            consumer.close()

    def _poll(self, consumer: ShareConsumer, member: int) -> None:
        values = []
        for message in consumer.poll(POLL_S):
            if message.error() is None:
                value = message.value()
                assert isinstance(value, bytes)
                self.deliveries.append(Delivery(member, value, time.monotonic()))
                consumer.acknowledge(message)
                values.append(value)
        if not values:
            return
        try:
            outcomes = consumer.commit_sync(30.0)
        except KafkaException:
            return  # not known what became of them: they may come again
        if outcomes and all(error is None for error in outcomes.values()):
            for value in values:
                self.accepted.setdefault(value, time.monotonic())


def _started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
