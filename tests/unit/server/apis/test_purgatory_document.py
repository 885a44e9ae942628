"""The diagnostics kind ``purgatory``: what waits, under which keys and until when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.purgatory import DelayedOperation
from minikafka.server.apis.documents import ENTRIES_SEEN_MAX
from minikafka.types import TopicPartition
from tests.unit.server.apis.test_diagnostics import ask


class Waiting(DelayedOperation):
    """For ever, if its time allows it."""

    __slots__ = ()

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        pass

    def waits_for(self) -> str:
        return "x" * 1000


def park(broker: Any, delay_ms: int, *partitions: int) -> None:
    keys = [TopicPartition("orders", each) for each in partitions]
    broker.services.replica_manager.parked.fetch.watch(Waiting(delay_ms), keys)


async def document(broker: Any, *keys: str) -> Any:
    result = await ask(broker, "purgatory", *keys)
    assert result.error_code == ErrorCode.NONE, result.error_message
    (config,) = result.configs
    return json.loads(config.value)


async def test_what_waits_is_listed_with_its_keys_and_times(admin_broker: Any) -> None:
    park(admin_broker, 60_000, 1, 2, 3, 4, 5, 6, 7)
    park(admin_broker, 30_000, 2)
    found = await document(admin_broker, "name=fetch")
    (fetch,) = found["purgatories"]
    assert (fetch["name"], fetch["delayed"], fetch["watched"], fetch["keys"]) == ("Fetch", 2, 8, 7)
    soon, later = fetch["waiting"]
    assert (soon["keys"], soon["keys_left_out"]) == (["orders-2"], 0)
    assert (later["keys"], later["keys_left_out"]) == ([f"orders-{each}" for each in range(1, 6)], 2)
    assert (soon["until_ms"] - soon["since_ms"], later["until_ms"] - later["since_ms"]) == (30_000, 60_000)
    assert 0 <= soon["until_ms"] - found["at_ms"] <= 30_000
    assert len(soon["waits_for"]) == 300
    assert sum(sum(level["counts"]) for level in found["wheel"]) >= 2


async def test_a_key_chooses_and_a_limit_says_how_many_more_there_are(admin_broker: Any) -> None:
    for partition in range(10):
        park(admin_broker, 60_000 + partition, partition)
    (fetch,) = (await document(admin_broker, "name=Fetch", "key=orders-7"))["purgatories"]
    assert [each["keys"] for each in fetch["waiting"]] == [["orders-7"]]
    (fetch,) = (await document(admin_broker, "name=Fetch", "limit=3"))["purgatories"]
    assert [each["keys"] for each in fetch["waiting"]] == [["orders-0"], ["orders-1"], ["orders-2"]]
    assert fetch["waiting_left_out"] == 7


async def test_of_very_many_only_the_first_are_looked_at(admin_broker: Any) -> None:
    for partition in range(ENTRIES_SEEN_MAX + 5):
        park(admin_broker, 60_000, partition)
    (fetch,) = (await document(admin_broker, "name=Fetch", f"key=orders-{ENTRIES_SEEN_MAX + 1}"))[
        "purgatories"
    ]
    assert (fetch["waiting"], fetch["waiting_left_out"]) == ([], ENTRIES_SEEN_MAX + 5)


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("name=Fetsch", "there are Produce, Fetch"),
        ("limit=0", "limit=0: must be a whole number from 1 to 1000"),
        ("colour=red", "purgatory takes name, key, limit"),
    ],
)
async def test_a_wrong_question_says_what_there_is(admin_broker: Any, key: str, named: str) -> None:
    result = await ask(admin_broker, "purgatory", key)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert named in result.error_message
