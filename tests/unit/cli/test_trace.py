"""What brokers noted becomes one time line (``cli.trace``)."""

from __future__ import annotations

from typing import Any

from minikafka.cli.trace import Answer, Event, describe, document, timelines

MS = 1_000_000


def noted(broker: int, *steps: tuple[str, int] | tuple[str, int, dict[str, Any]], offset: int = 5) -> Any:
    """A broker's document with one trace: steps with their times in ms."""
    return {
        "broker": broker,
        "now_ns": 1000 * MS,
        "traces": [
            {
                "topic": "orders",
                "partition": 0,
                "first_offset": offset,
                "last_offset": offset,
                "trace_id": "ab",
                "parent_span_id": None,
                "dropped_steps": 0,
                "steps": [
                    {"step": name, "at_ns": ms * MS, **(detail[0] if detail else {})}
                    for name, ms, *detail in steps
                ],
            }
        ],
    }


def asked(found: Any, *, asked_ms: int = 999, got_ms: int = 1001) -> Answer:
    return Answer(found, asked_ms * MS, got_ms * MS)


def test_the_steps_of_brokers_are_merged_by_time() -> None:
    leader = noted(1, ("received", 10, {"acks": -1}), ("appended", 11), ("sent", 20))
    follower = noted(2, ("follower_appended", 15))
    (line,) = timelines([asked(follower), asked(leader)])
    assert [(each.step, each.broker) for each in line.events] == [
        ("received", 1),
        ("appended", 1),
        ("follower_appended", 2),
        ("sent", 1),
    ]
    assert line.is_answered


def test_a_clock_that_cannot_be_right_is_set_right() -> None:
    """The follower's shows 1000 ms when it is asked at 400 by ours: it is 600 ms ahead."""
    leader = noted(1, ("received", 10, {"acks": -1}), ("sent", 20))
    follower = noted(2, ("follower_appended", 615))
    (line,) = timelines([asked(leader), asked(follower, asked_ms=399, got_ms=401)])
    assert [each.step for each in line.events] == ["received", "follower_appended", "sent"]


def test_a_clock_that_may_be_right_is_believed() -> None:
    assert asked(noted(1), asked_ms=0, got_ms=1000).fast_ns == 0


def test_a_follower_alone_makes_no_time_line() -> None:
    assert timelines([asked(noted(2, ("follower_appended", 15)))]) == []


def test_what_needs_no_answer_is_over_when_it_is_appended() -> None:
    (line,) = timelines([asked(noted(1, ("received", 10, {"acks": 0}), ("appended", 11)))])
    assert line.is_answered
    (line,) = timelines([asked(noted(1, ("received", 10, {"acks": 1}), ("appended", 11)))])
    assert not line.is_answered


def test_steps_of_one_moment_come_in_the_order_of_things() -> None:
    detail = {"acks": -1, "client": "shop", "peer": "10.0.0.1:5", "bytes": 99}
    (line,) = timelines([asked(noted(1, ("sent", 10), ("answered", 10), ("received", 10, detail)))])
    line = line.with_events([Event(10 * MS, None, "client_sent", {"broker": 1})])
    assert [each.step for each in line.events] == ["client_sent", "received", "answered", "sent"]


def test_json_has_the_steps_with_their_words() -> None:
    detail = {"first_offset": 5, "last_offset": 7, "leader_epoch": 2}
    (line,) = timelines([asked(noted(1, ("received", 1, {"acks": 0}), ("appended", 3, detail)))])
    _, appended = line.events
    line = line._replace(events=(appended._replace(at_ns=1 * MS), appended))
    (first, second) = document(line)["steps"]
    assert (first["after_us"], second["after_us"]) == (0, 2000)
    assert second["text"] == "appended at offsets 5 to 7 in leader epoch 2"
    assert second["detail"] == detail


def test_every_step_of_a_broker_has_words() -> None:
    detail = {
        "client": "shop", "peer": "10.0.0.1:5", "bytes": 1, "acks": -1, "records": 2, "first_offset": 5,
        "last_offset": 5, "leader_epoch": 1, "error": None, "message": "no", "purgatory": "Produce",
        "keys": ["orders-0"], "until_high_watermark": 6, "timeout_ms": 30, "replica": 2, "fetch_offset": 5,
        "leader": 1, "high_watermark": 6, "cause": "it may", "by": "the timer", "broker": 1, "answer": "yes",
    }  # fmt: skip
    steps = [
        "received", "validated", "appended", "refused", "duplicate", "parked", "sent_to_follower",
        "follower_appended", "follower_has", "high_watermark_moved", "woken", "answered", "sent", "consumed",
        "client_sent", "client_answered", "client_read",
    ]  # fmt: skip
    texts = {step: describe(Event(0, 1, step, detail)) for step in steps}
    assert all(text != step for step, text in texts.items() if step != "answered")
    assert texts["received"] == "read from the socket: 1 byte from shop at 10.0.0.1:5, acks=all"
    assert describe(Event(0, 1, "consumed", detail | {"share_group": "workers"})) == (
        "read by consumer shop at 10.0.0.1:5, of share group workers"
    )
    assert describe(Event(0, 1, "of_a_later_broker", {})) == "of_a_later_broker"
