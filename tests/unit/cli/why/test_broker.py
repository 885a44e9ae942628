"""Why a broker started slowly, is slow now, or has left: from facts to reasons."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.cli.cluster.describe import BrokerState
from minikafka.cli.why.answer import Answer
from minikafka.cli.why.broker import BrokerFacts, answer_of

STATE = BrokerState(
    3,
    is_registered=False,
    host=None,
    port=None,
    rack=None,
    leaders=0,
    replicas=7,
    answers=False,
    offline_log_dirs=[],
)


def document(**more: Any) -> dict[str, Any]:
    phases = [{"name": "coordination store", "ms": 20}, {"name": "logs", "ms": 80}]
    given = {
        "start": {"ago_ms": 60_000, "total_ms": 100, "phases": phases, "was_clean": True, "logs": 9},
        "loop": {
            "measured_ms": 500,
            "busy_share": 0.02,
            "late_ms": {"count": 20, "p50": 0.1, "p99": 0.5, "max": 1.0},
        },
        "garbage": [],
        "disk": {
            "flushes": {"count": 4, "p50": 1.0, "p99": 2.0, "max": 2.0},
            "directories": [{"path": "/a", "offline": None, "free_bytes": 50_000_000_000}],
        },
        "requests": [],
    }
    return given | more


def answered(**more: Any) -> Answer:
    given: dict[str, Any] = {"broker": 3, "is_registered": True, "document": document()}
    return answer_of(BrokerFacts(**given | more))


def test_a_broker_that_is_well_says_how_it_is() -> None:
    found = answered()
    assert not found.reasons
    assert "it started in 100 ms, 1 min ago; its event loop computes 2% of the time" in found.sentence
    assert answered(document=None).sentence == "broker 3 is in the cluster"


# It is not there


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"state": STATE, "address": ("a", 9092), "listens": False}, "broker.left"),
        ({"state": STATE, "address": ("a", 9092), "listens": True}, "broker.lost-session"),
        ({"state": STATE}, "broker.left"),
        ({}, "broker.unknown"),
    ],
)
def test_why_it_is_not_there(more: dict[str, Any], code: str) -> None:
    found = answered(is_registered=False, document=None, offline=["orders-0"], **more)
    assert [each.code for each in found.reasons] == [code]
    assert found.sentence.endswith("; offline without it: 1 partition")


# It is slow


@pytest.mark.parametrize(
    ("late", "busy", "code", "words"),
    [
        (1.0, 0.97, "broker.loop-busy", "computes 97% of the time"),
        (250.0, 0.1, "broker.loop-late", "held up for 250 ms in the last 500 ms"),
    ],
)
def test_its_event_loop(late: float, busy: float, code: str, words: str) -> None:
    loop = {"measured_ms": 500, "busy_share": busy, "late_ms": {"p50": 0.1, "p99": late, "max": late}}
    found = answered(document=document(loop=loop))
    assert [each.code for each in found.reasons] == [code] and words in found.sentence


@pytest.mark.parametrize(
    ("directory", "flush_ms", "code"),
    [
        ({"offline": "Input/output error", "free_bytes": None}, 2.0, "broker.disk-failed"),
        ({"offline": None, "free_bytes": 0}, 2.0, "broker.disk-full"),
        ({"offline": None, "free_bytes": None}, 400.0, "broker.disk-slow"),
    ],
)
def test_its_disks(directory: dict[str, Any], flush_ms: float, code: str) -> None:
    disk = {
        "flushes": {"count": 4, "p50": 1.0, "p99": flush_ms, "max": flush_ms},
        "directories": [{"path": "/a", **directory}],
    }
    assert [each.code for each in answered(document=document(disk=disk)).reasons] == [code]


def test_garbage_that_took_long_and_is_not_long_ago() -> None:
    long, short, old = (
        {"ago_ms": 9_000, "duration_ms": 300.0},
        {"ago_ms": 9_000, "duration_ms": 3.0},
        {"ago_ms": 9_000_000, "duration_ms": 900.0},
    )
    found = answered(document=document(garbage=[old, long, short]))
    assert [each.code for each in found.reasons] == ["broker.garbage"]
    assert "stood still for 300 ms 9.0 s ago" in found.sentence
    assert not answered(document=document(garbage=[old, short])).reasons


@pytest.mark.parametrize(("clean", "words"), [(False, "it was not stopped cleanly"), (True, "for 900 logs")])
def test_a_slow_start_names_its_longest_part(clean: bool, words: str) -> None:
    phases = [{"name": "coordination store", "ms": 20}, {"name": "logs", "ms": 9_000}]
    start = {"ago_ms": 1_000, "total_ms": 9_020, "phases": phases, "was_clean": clean, "logs": 900}
    found = answered(document=document(start=start))
    assert [each.code for each in found.reasons] == ["broker.slow-start"]
    assert "took 9.0 s to start: logs took 9.0 s of it" in found.sentence and words in found.sentence
