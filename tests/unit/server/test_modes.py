"""Whatever a broker makes is its owner's alone, also where the umask would let everybody read it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from minikafka.testing import Broker


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def too_open(directory: Path) -> list[str]:
    """What others than the owner may touch, but for the directory itself."""
    return sorted(
        f"{path.relative_to(directory)} {stat.S_IMODE(path.lstat().st_mode):o}"
        for path in directory.rglob("*")
        if path.lstat().st_mode & 0o077
    )


async def test_all_files_of_a_broker_are_its_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "made" / "data"
    data.parent.mkdir(mode=0o755)
    config = {"log.dirs": str(data), "offsets.topic.num.partitions": 1, "num.partitions": 2}
    async with Broker(config=config) as broker:
        async with (
            AIOKafkaProducer(
                bootstrap_servers=broker.bootstrap_servers, transactional_id="orders"
            ) as producer,
            producer.transaction(),
        ):
            await producer.send_and_wait("orders", b"one")
        async with AIOKafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            await consumer.getone()
            await consumer.commit()
        assert too_open(tmp_path / "made") == []
    assert too_open(tmp_path / "made") == []
    found = {path.name for path in data.rglob("*")}
    assert {"coordination.sqlite", "meta.properties", ".lock", "00000000000000000000.log"} <= found
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
