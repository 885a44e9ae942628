"""Why a transaction does not end: from facts to reasons."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.cli.shared.admin_client import PartitionNow
from minikafka.cli.transactions import TransactionDescription
from minikafka.cli.why.answer import Reason
from minikafka.cli.why.transaction import TransactionFacts, answer_of
from minikafka.types import TopicPartition

AT, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW_MS = 1_800_000_000_000


def first(
    state: str, *, open_ms: int | None = 5_000, at: list[TopicPartition] | None = None, **more: Any
) -> Reason:
    start_ms = None if open_ms is None else NOW_MS - open_ms
    partitions = [AT, OTHER] if at is None else at
    described = TransactionDescription(2, "payments", 7, 3, state, 60_000, start_ms, partitions)
    known = {each: PartitionNow(1, (1, 2), (1, 2), ()) for each in (AT, OTHER)}
    given: dict[str, Any] = {
        "described": described,
        "now_ms": NOW_MS,
        "partitions": known,
        "live": frozenset({1, 2}),
    }
    return answer_of(TransactionFacts(**given | more)).reasons[0]


def test_it_is_open_and_has_time() -> None:
    reason = first("Ongoing")
    assert reason.code == "transaction.ongoing"
    assert "the transaction of payments is open for 5.0 s" in reason.sentence and "in 55 s" in reason.sentence


def test_its_time_is_over_and_nobody_aborts_it() -> None:
    reason = first("Ongoing", open_ms=120_000)
    assert reason.code == "transaction.overdue" and "its time was over 1 min ago" in reason.sentence


def test_nothing_was_written_in_it() -> None:
    assert first("Ongoing", at=[]).code == "transaction.nothing-written"


def test_markers_that_are_on_their_way() -> None:
    reason = first("PrepareCommit", at=[OTHER])
    assert reason.code == "transaction.markers" and "left are orders-1" in reason.sentence


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({}, "there is no such partition any more"),
        ({OTHER: PartitionNow(-1, (1, 2), (2,), ())}, "it has no leader"),
        ({OTHER: PartitionNow(3, (3,), (3,), ())}, "its leader, broker 3, is not registered"),
    ],
)
def test_a_marker_that_cannot_be_written(known: dict[TopicPartition, PartitionNow], words: str) -> None:
    reason = first("PrepareAbort", at=[OTHER], partitions=known)
    assert reason.code == "transaction.marker-blocked"
    assert f"being aborted: orders-1 has no marker yet, because {words}" in reason.sentence
    assert reason.remedy == "minikafka why partition orders:1"


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead"])
def test_none_is_open(state: str) -> None:
    assert first(state, open_ms=None, at=[]).code == "transaction.none"
