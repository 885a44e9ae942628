"""A whole broker on the test's loop, for tests that look at what it does to the disk and leaves behind."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from minikafka.config.broker import broker_config
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.records import Record, build_batch
from minikafka.server.broker import Broker
from minikafka.server.cluster.metadata_cache import TopicMetadata
from minikafka.server.topic_service import CreatedTopic, TopicService
from minikafka.types import TopicPartition
from tests.unit.server.disk import Disk

PATIENCE_MS = 60_000
"""For what the controller does soon; a test that waits so long has failed."""


def make_broker(
    *directories: Path, disk: Disk | None = None, usual_http_port: int | None = None, **properties: object
) -> Broker:
    """Not started yet. Properties with underscores for dots."""
    settings = {"log.dirs": ",".join(map(str, directories)), "listeners": "PLAINTEXT://127.0.0.1:0"}
    settings |= {name.replace("_", "."): str(value) for name, value in properties.items()}
    return Broker(broker_config(settings), files=disk or Disk(), usual_http_port=usual_http_port)


@asynccontextmanager
async def running(
    *directories: Path, disk: Disk | None = None, **properties: object
) -> AsyncIterator[Broker]:
    broker = make_broker(*directories, disk=disk, **properties)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


class PatientTopics:
    """The broker's ``TopicService``; who changes a topic waits until the broker knows of the change."""

    def __init__(self, topics: TopicService) -> None:
        self.service = topics

    def __getattr__(self, name: str) -> Any:
        return getattr(self.service, name)

    async def create_topic(self, name: str, **arguments: Any) -> CreatedTopic:
        created = await self.service.create_topic(name, **arguments)
        if created.topic_id is not None:
            await self.led(name, created.partitions)
        return created

    async def led(self, name: str, partitions: int = 1) -> None:
        await self.service.wait_for_leaders(name, partitions=partitions, timeout_ms=PATIENCE_MS)

    async def create_partitions(self, name: str, *, total: int, **arguments: Any) -> None:
        await self.service.create_partitions(name, total=total, **arguments)
        await self.led(name, total)

    async def delete_topic(self, name: str, *, topic_id: UUID | None = None) -> TopicMetadata:
        deleted = await self.service.delete_topic(name, topic_id=topic_id)
        await self.service.wait_until_deleted(deleted, timeout_ms=PATIENCE_MS)
        return deleted


def topics_of(broker: Broker) -> PatientTopics:
    return PatientTopics(broker.services.topics)


def append(broker: Broker, topic: str, partition: int = 0, *, age_ms: int = 0) -> UnifiedLog:
    """One record."""
    timestamp = int(time.time() * 1000) - age_ms
    at = TopicPartition(topic, partition)
    batch = build_batch([Record(0, timestamp, b"k", b"v", ())])
    broker.services.replica_manager.append(at, batch, required_acks=1)
    return log_of(broker, topic, partition)


def log_of(broker: Broker, topic: str, partition: int = 0) -> UnifiedLog:
    return broker.services.replica_manager.partition(TopicPartition(topic, partition)).log


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """``condition`` is asked at every turn of the loop; for what is not announced."""
    try:
        async with asyncio.timeout(PATIENCE_MS / 1000):
            while not await condition():  # noqa: ASYNC110 - it is not announced
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


async def until(broker: Broker, condition: Callable[[], object], what: str) -> None:
    """Let the broker work until ``condition`` holds; each look costs a hop to the disk thread."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        await broker.services.log_io.run(lambda: None)


class Held(NamedTuple):
    """What a broker could leave behind."""

    tasks: int
    threads: int
    descriptors: frozenset[str]

    def is_within(self, before: Held) -> bool:
        """Whether nothing was added."""
        more = self.tasks > before.tasks or self.threads > before.threads
        return not more and self.descriptors <= before.descriptors


def held() -> Held:
    descriptors = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if not target.startswith(("/proc", "/dev", "anon_inode")):
            descriptors.add(f"{name}:{target}")
    return Held(len(asyncio.all_tasks()), threading.active_count(), frozenset(descriptors))
