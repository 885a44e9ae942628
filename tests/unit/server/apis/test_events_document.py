"""The diagnostics kind ``events``: pages and filters (``server.apis.documents``)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.flight_recorder import GroupRebalanced, LogTruncated
from tests.unit.server.apis.test_diagnostics import ask


async def document(broker: Any, *keys: str) -> Any:
    result = await ask(broker, "events", *keys)
    assert result.error_code == ErrorCode.NONE, result.error_message
    (config,) = result.configs
    return json.loads(config.value)


def record(broker: Any) -> None:
    """Three truncations of two topics, and a rebalance."""
    recorder = broker.services.recorder
    for topic, to in (("orders", 1), ("payments", 2), ("orders", 3)):
        recorder.record(
            LogTruncated(
                topic=topic, partition=0, from_offset=9, to_offset=to, leader=2, leader_epoch=5, cause="new"
            )
        )
    recorder.record(GroupRebalanced(group="app", generation=4, members=2, cause="a member joins"))


async def test_an_event_is_shown_with_its_fields_and_in_words(admin_broker: Any) -> None:
    record(admin_broker)
    (event,) = (await document(admin_broker, "kind=truncation", "topic=payments"))["events"]
    assert (event["broker"], event["kind"], event["subject"]) == (1, "truncation", "payments-0")
    assert event["text"] == "truncated from 9 to 2: new"
    assert event["event"]["to_offset"] == 2
    assert event["sequence"] // 1_000_000_000 == event["at_ms"] // 1_000_000


async def test_what_the_broker_did_when_it_started_is_there(admin_broker: Any) -> None:
    events = (await document(admin_broker))["events"]
    assert [each["kind"] for each in events[:2]] == ["started", "controller"]
    assert "for the first time" in events[0]["text"]


async def test_pages_follow_each_other_until_the_last(admin_broker: Any) -> None:
    record(admin_broker)
    seen, after, pages = [], 0, 0
    while True:
        page = await document(admin_broker, f"after={after}", "limit=2", "kind=truncation,rebalance")
        seen += [each["subject"] for each in page["events"]]
        after, pages = page["last_sequence"], pages + 1
        if page["is_last"]:
            break
    assert seen == ["orders-0", "payments-0", "orders-0", "app"]
    assert pages == 2
    assert (await document(admin_broker, f"after={after}", "kind=truncation"))["events"] == []


async def test_a_group_and_a_time_choose_events(admin_broker: Any) -> None:
    record(admin_broker)
    (event,) = (await document(admin_broker, "group=app"))["events"]
    assert event["kind"] == "rebalance"
    assert (await document(admin_broker, f"since_ms={event['at_ms'] + 1000}"))["events"] == []


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("kind=elections", "there are started"),
        ("limit=0", "limit=0: must be a whole number of at least 1"),
        ("after=-1", "after=-1"),
        ("colour=red", "events take after"),
    ],
)
async def test_a_wrong_question_says_what_there_is(admin_broker: Any, key: str, named: str) -> None:
    result = await ask(admin_broker, "events", key)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert named in result.error_message
