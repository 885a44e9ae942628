"""Why a consumer waits or gets nothing: from facts to reasons."""

from __future__ import annotations

from typing import Any

from minikafka.cli.transactions import ProducerState, TransactionDescription
from minikafka.cli.why.answer import Reason
from minikafka.cli.why.fetch import FetchFacts, Follower, OpenTransaction, reasons_of
from minikafka.types import TopicPartition
from tests.unit.cli.why.test_partition import parses

AT = TopicPartition("orders", 0)
NOW_MS = 1_800_000_000_000


def facts(**more: Any) -> FetchFacts:
    given: dict[str, Any] = {
        "at": AT,
        "offset": None,
        "is_read_committed": False,
        "now_ms": NOW_MS,
        "start": 10,
        "last_stable": 50,
        "high_watermark": 50,
        "log_end": 50,
        "isr": (1, 2, 3),
        "followers": [],
    }
    return FetchFacts(**given | more)


def first(found: FetchFacts) -> Reason:
    return reasons_of(found)[0]


def open_since(offset: int, transaction: TransactionDescription | None) -> OpenTransaction:
    producer = ProducerState("orders", 0, 7, 2, 0, 5, NOW_MS, offset)
    return OpenTransaction(producer=producer, transaction=transaction)


def follower(broker: int, end: int | None, *, in_isr: bool = True, fetched: int | None = 4_000) -> Follower:
    return Follower(
        broker=broker,
        log_end_offset=end,
        last_fetch_ms_ago=fetched,
        not_caught_up_for_ms=fetched,
        is_in_isr=in_isr,
    )


def test_nothing_is_there() -> None:
    assert first(facts()).code == "fetch.nothing-there"
    assert first(facts(offset=50)).code == "fetch.nothing-there"


def test_something_is_there() -> None:
    reason = first(facts(offset=20))
    assert reason.code == "fetch.answers" and "30 offsets" in reason.sentence


def test_out_of_range_on_either_side() -> None:
    assert "begins at offset 10" in first(facts(offset=9)).sentence
    assert "ends at offset 50" in first(facts(offset=51)).sentence


def test_a_transaction_holds_the_last_stable_offset() -> None:
    known = TransactionDescription(1, "payments", 7, 2, "Ongoing", 60_000, NOW_MS - 20_000, [AT])
    reason = first(facts(is_read_committed=True, last_stable=30, open=[open_since(30, known)]))
    assert reason.code == "fetch.lso.open"
    assert "payments (producer 7) has been open for 20 s" in reason.sentence
    assert "transaction.timeout.ms, in 40 s" in reason.sentence


def test_a_transaction_that_no_coordinator_knows_hangs() -> None:
    reason = first(facts(is_read_committed=True, last_stable=30, open=[open_since(30, None)]))
    assert reason.code == "fetch.lso.hanging"
    assert "--start-offset 30" in reason.remedy and parses(reason.remedy)


def test_a_marker_that_is_not_replicated_yet() -> None:
    assert first(facts(is_read_committed=True, last_stable=30)).code == "fetch.lso.marker"
    assert first(facts(last_stable=30)).code == "fetch.nothing-there", "read_uncommitted sees what is behind"


def test_the_slowest_in_sync_replica_holds_the_high_watermark() -> None:
    followers = [follower(2, 45), follower(3, 40), follower(4, 20, in_isr=False)]
    reason = first(facts(last_stable=40, high_watermark=40, followers=followers))
    assert reason.code == "fetch.hw.replica"
    assert "replica 3 is waited for, has only what is below 40" in reason.sentence
    assert "fetched last 4.0 s ago" in reason.sentence


def test_one_that_is_about_to_join_is_waited_for_too() -> None:
    followers = [follower(2, 50), follower(3, None, in_isr=False, fetched=None)]
    reason = first(facts(high_watermark=40, isr=(1, 2), followers=followers, waits_for=(3,)))
    assert "replica 3 is waited for, has nothing, and has not fetched" in reason.sentence


def test_too_small_an_isr_holds_the_high_watermark() -> None:
    reason = first(facts(high_watermark=40, isr=(1,), min_isr=2, followers=[follower(2, 40, in_isr=False)]))
    assert reason.code == "fetch.hw.min-isr" and "only 1 of min.insync.replicas = 2" in reason.sentence


def test_a_leader_that_does_not_say_leaves_it_open_who_it_is() -> None:
    assert first(facts(high_watermark=40, followers=None)).code == "fetch.hw"
