"""``minikafka purgatory``: what waits on a real broker, as a table, as JSON, and the wheel as a drawing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from minikafka.cli.purgatory import main
from minikafka.testing import Broker
from minikafka.types import TopicPartition
from tests.unit.server.apis.test_purgatory_document import Waiting


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        parked = running.server.services.replica_manager.parked.fetch
        for delay_ms in (40_000, 50_000, 600_000):
            parked.watch(Waiting(delay_ms), [TopicPartition("orders", delay_ms // 10_000)])
        yield running


async def purgatory(broker: Broker, *options: str) -> int:
    return await asyncio.to_thread(main, ["-b", f"127.0.0.1:{broker.port}", *options])


async def test_what_waits_is_a_table(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert await purgatory(broker, "--limit", "2") == 0
    first, heads, *rows, more = capsys.readouterr().out.splitlines()
    assert first == "Broker 1: 3 in Fetch"
    assert heads.split("  ")[0] == "PURGATORY" and "WAITS FOR" in heads
    assert [row.split()[:2] for row in rows] == [["Fetch", "orders-4"], ["Fetch", "orders-5"]]
    assert more == "1 more wait, which are not shown (--limit, --key, --name)."


async def test_the_wheel_is_drawn_a_line_for_each_level(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await purgatory(broker, "--wheel", "--key", "orders-5") == 0
    out = capsys.readouterr().out
    assert "orders-5" in out and "orders-4" not in out
    levels = out.split("each character is a bucket:\n")[1].splitlines()
    buckets = [next(part for part in line.split() if "·" in part) for line in levels]
    assert {len(each) for each in buckets} == {20}
    assert sum(int(each) for line in buckets for each in line if each.isdigit()) >= 3


async def test_json_has_every_broker(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert await purgatory(broker, "--json", "--name", "Fetch") == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["broker"], document["purgatories"][0]["delayed"]) == (1, 3)


async def test_what_cannot_be_asked_is_told(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert await purgatory(broker, "--name", "Fetsch") == 1
    assert "There is no purgatory 'Fetsch': there are Produce, Fetch" in capsys.readouterr().err
    assert await purgatory(broker, "--broker", "9") == 1
    assert "broker 9 is not registered" in capsys.readouterr().err
