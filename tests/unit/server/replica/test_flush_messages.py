"""With flush.messages an answer waits for the disk, and says so when the disk failed; other requests do not
wait."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.broker import Broker
from tests.unit.server.disk import Disk
from tests.unit.server.running import log_of, running, topics_of

DEADLINE_MS = 20_000


async def produce(client: BrokerClient, *topics: str, version: int = 9) -> list[Any]:
    """One record for partition 0 of each topic; the partitions' answers."""
    records = build_batch([Record(0, -1, None, b"v", ())])
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 1000,
        "topic_data": [
            {"name": topic, "partition_data": [{"index": 0, "records": records}]} for topic in topics
        ],
    }
    answer = await client.request(ApiKey.PRODUCE, body, version=version, deadline_ms=DEADLINE_MS)
    return [topic.partition_responses[0] for topic in answer.responses]


async def connect(broker: Broker) -> BrokerClient:
    await topics_of(broker).create_topic("synced", configs={"flush.messages": "1"})
    await topics_of(broker).create_topic("usual")
    return await BrokerClient.connect("127.0.0.1", broker.port, client_id="test", deadline_ms=DEADLINE_MS)


async def test_what_was_answered_is_on_the_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await connect(broker)
        for count in range(1, 4):
            (answer,) = await produce(client, "synced")
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, count - 1)
            assert log_of(broker, "synced").recovery_point == count
        await client.close()


async def test_other_requests_do_not_wait_for_that_disk(tmp_path: Path) -> None:
    disk, entered, go_on = Disk(), threading.Event(), threading.Event()

    def slow(operation: str, path: str) -> int | None:
        if operation == "fsync" and path.endswith(".log"):
            entered.set()
            go_on.wait(20)
        return None

    async with running(tmp_path, disk=disk) as broker:
        client = await connect(broker)
        other = await BrokerClient.connect(
            "127.0.0.1", broker.port, client_id="other", deadline_ms=DEADLINE_MS
        )
        disk.fault = slow
        waiting = asyncio.create_task(produce(client, "synced", "usual"))
        await asyncio.to_thread(entered.wait, 20)
        (answer,) = await produce(other, "usual")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
        assert not waiting.done()
        go_on.set()
        assert [one.error_code for one in await waiting] == [ErrorCode.NONE] * 2
        await client.close()
        await other.close()


async def test_a_flush_that_fails_is_answered_as_a_storage_error(tmp_path: Path) -> None:
    disk = Disk()
    first, second = tmp_path / "a", tmp_path / "b"
    async with running(first, second, disk=disk) as broker:
        client = await connect(broker)
        bad = str(Path(log_of(broker, "synced").directory))

        def failing(operation: str, path: str) -> int | None:
            return errno.EIO if operation == "fsync" and path.startswith(bad) else None

        disk.fault = failing
        synced, usual = await produce(client, "synced", "usual")
        assert (synced.error_code, usual.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE)
        await client.close()


@pytest.mark.parametrize("version", [9, 12])
async def test_a_flush_is_due_only_when_enough_records_wait(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await topics_of(broker).create_topic("third", configs={"flush.messages": "3"})
        client = await BrokerClient.connect(
            "127.0.0.1", broker.port, client_id="test", deadline_ms=DEADLINE_MS
        )
        points = []
        for _ in range(6):
            await produce(client, "third", version=version)
            points.append(log_of(broker, "third").recovery_point)
        assert points == [0, 0, 3, 3, 3, 6]
        await client.close()
