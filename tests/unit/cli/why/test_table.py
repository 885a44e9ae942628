"""Why a table lacks records of its topic: from facts to reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from minikafka.cli.why.answer import Answer, Reason
from minikafka.cli.why.command import export_command, parser
from minikafka.cli.why.table import (
    OtherCommit,
    TableCommit,
    TableFacts,
    TableNow,
    TablePartition,
    answer_of,
    deadline,
    pace,
)
from minikafka.types import TopicPartition

AT = TopicPartition("orders", 0)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "retention.bytes": "-1"}


def commits(*ms_ago: int, offsets: int = 100, errors: int = 0, partitions: Sequence[int] = (0,)) -> Any:
    """The newest first."""
    return [
        TableCommit(
            number=len(ms_ago) - place,
            ms_ago=ago,
            offsets=offsets,
            records=offsets,
            errors=errors if not place else 0,
            partitions=frozenset(partitions),
        )
        for place, ago in enumerate(ms_ago)
    ]


def table(**more: Any) -> TableNow:
    given: dict[str, Any] = {
        "name": "/lake/orders",
        "errors_name": "/lake/orders_errors",
        "number": 3,
        "offsets": {0: 100},
        "commits": commits(12_000, 22_000, 32_000),
    }
    return TableNow(**given | more)


def partition(**more: Any) -> TablePartition:
    given: dict[str, Any] = {"at": AT, "position": 100, "start": 0, "end": 100, "stable": 100}
    return TablePartition(**given | more)


def ask(*partitions: TablePartition, **more: Any) -> Answer:
    given: dict[str, Any] = {"topic": "orders", "table": table(), "config": WEEK} | more
    return answer_of(TableFacts(partitions=partitions or [partition()], **given))


def codes(answer: Answer) -> list[str]:
    return [each.code for each in answer.reasons]


def late(**more: Any) -> TablePartition:
    return partition(**{"end": 150, "stable": 150, "next_age_ms": 120_000} | more)


def only(answer: Answer) -> Reason:
    (reason,) = answer.reasons
    return reason


def test_a_table_that_has_everything_is_in_step() -> None:
    answer = ask()
    assert not answer.reasons
    assert answer.sentence == (
        "the table /lake/orders is in step with topic orders: it has every record below the high watermarks; "
        "its last commit, number 3, was 12 s ago"
    )


def test_where_a_leader_does_not_answer_it_does_not_claim_to_know() -> None:
    assert "every known record" in ask(partition(start=None, end=None, stable=None)).sentence


# What it does not have yet


def test_an_export_that_has_stopped() -> None:
    stopped = table(commits=commits(HOUR_MS, HOUR_MS + 10_000, HOUR_MS + 20_000))
    reason = only(ask(late(), table=stopped, export="minikafka export LOG-DIR -o /lake"))
    assert reason.code == "table.behind.stopped"
    assert reason.sentence == (
        "the table /lake/orders lacks 50 records of topic orders, the oldest written 2 min ago: the export "
        "has not committed for 1 h; before, commits came every 10 s"
    )
    assert "minikafka export LOG-DIR -o /lake" in reason.remedy
    (row,) = reason.evidence["partitions"]
    assert (row["table's next"], row["high watermark"], row["lacks"]) == (100, 150, 50)


def test_one_that_runs_once_a_day_is_waited_for() -> None:
    daily = table(commits=commits(HOUR_MS, DAY_MS + HOUR_MS, 2 * DAY_MS + HOUR_MS))
    reason = only(ask(late(), table=daily))
    assert reason.code == "table.behind.next-commit" and "its commits come every 1 d" in reason.sentence


def test_what_was_written_just_now_is_not_late() -> None:
    reason = only(ask(late(next_age_ms=4_000)))
    assert reason.code == "table.behind.newest"
    assert "the high watermark that brokers write down every 5.0 s" in reason.sentence
    assert "the last commits came every 10 s" in reason.sentence


@pytest.mark.parametrize(
    ("produced", "code", "says"),
    [
        (
            60,
            "too-slow",
            "the table gets 10 records/s (over 20 s), and 30 are written (over 2.0 s); so it falls",
        ),
        (4, "catching-up", "it will have caught up in about 6.2 s"),
        (20, "steady", "so it keeps its distance"),
    ],
)
def test_an_export_that_commits_is_compared_with_its_producers(produced: int, code: str, says: str) -> None:
    reason = only(ask(late(produced=produced), sample_ms=2_000))
    assert reason.code == f"table.behind.{code}" and says in reason.sentence


def test_without_rates_it_says_that_the_export_commits() -> None:
    assert only(ask(late())).code == "table.behind.running"


def test_a_commit_between_the_two_looks_is_a_sign_of_life() -> None:
    unknown = table(commits=())
    assert only(ask(late(), table=unknown)).code == "table.behind.stopped"
    assert only(ask(late(), table=unknown, has_committed=True)).code == "table.behind.running"


def test_an_open_transaction_holds_records_back() -> None:
    answer = ask(partition(end=150, stable=100))
    reason = only(answer)
    assert reason.code == "table.behind.transaction"
    assert "50 records yet: a transaction in orders-0 is open from offset 100 on" in reason.sentence
    assert "minikafka why fetch orders:0 --read-committed" in reason.remedy
    assert codes(ask(late(stable=120))) == ["table.behind.transaction", "table.behind.running"], (
        "20 are not held"
    )


def test_an_export_that_reads_uncommitted_is_held_by_no_transaction() -> None:
    read = partition(position=130, end=150, stable=100, next_age_ms=120_000)
    assert codes(ask(read)) == ["table.behind.running"]


def test_a_table_without_a_commit() -> None:
    reason = only(ask(late(position=None), table=table(number=0, commits=(), offsets={})))
    assert reason.code == "table.no-commit" and "topic orders has 150 records" in reason.sentence


def test_partitions_that_the_export_does_not_read() -> None:
    never = late(at=TopicPartition("orders", 1), position=None, next_age_ms=20_000)
    reason = only(ask(partition(), never))
    assert reason.code == "table.partitions-left-out"
    assert "150 records of orders-1, which its last commit leaves out" in reason.sentence
    assert "its run had begun before they were written, or the broker" in reason.sentence
    moved = late(at=TopicPartition("orders", 1), next_age_ms=60_000)
    reason = only(ask(partition(), moved))
    assert reason.code == "table.partitions-left-out" and "commits leave out: the broker" in reason.sentence
    begun = late(at=TopicPartition("orders", 1), next_age_ms=20_000)
    assert codes(ask(partition(), begun)) == ["table.behind.running"], "one commit may be of an earlier run"
    first = late(at=TopicPartition("orders", 1), position=None, next_age_ms=5_000)
    assert codes(ask(partition(), first)) == ["table.behind.newest"], "its first records are just written"
    read = table(commits=commits(12_000, 22_000, 32_000, partitions=(0, 1)))
    assert codes(ask(partition(), moved, table=read)) == ["table.behind.running"]


# What it will never have


def test_what_retention_has_deleted_first_is_lost() -> None:
    answer = ask(partition(position=100, start=220, end=300, stable=300, next_age_ms=4_000))
    assert codes(answer) == ["table.lost", "table.behind.newest"]
    assert answer.sentence == (
        "the table /lake/orders has lost 120 records for good: the log of orders-0 begins at offset 220, and "
        "the table ends before 100"
    )


def test_what_retention_will_delete_soon() -> None:
    answer = ask(late(next_age_ms=6 * DAY_MS))
    assert codes(answer) == ["table.retention.soon", "table.behind.running"]
    assert answer.sentence == (
        "the table /lake/orders does not have the records from offset 100 of orders-0 on, which will be "
        "deleted in about 1 d at the earliest by retention.ms (7 d)"
    )
    assert codes(ask(late(next_age_ms=8 * DAY_MS)))[0] == "table.retention.due"
    younger = late(next_age_ms=8 * DAY_MS, segment_age_ms=DAY_MS)
    assert codes(ask(younger)) == ["table.behind.running"], "a segment goes by its newest record"


def test_what_retention_bytes_will_delete_soon() -> None:
    config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1000000"}
    near = late(log_bytes=2_400_000)  # a third of the log is behind: 0.8 MB
    answer = ask(near, config=config)
    assert codes(answer)[0] == "table.retention.soon"
    assert "when another 200 kB are written, at the earliest by retention.bytes (1.00 MB)" in answer.sentence
    growing = late(log_bytes=2_400_000, produced=50)
    assert "in about 500 ms at the earliest" in ask(growing, config=config, sample_ms=2_000).sentence
    exact = late(log_bytes=2_400_000, bytes_behind=1_000_000)
    assert codes(ask(exact, config=config))[0] == "table.retention.due"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "1"},
        {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
    ],
)
def test_what_no_retention_deletes(config: dict[str, str]) -> None:
    facts = TableFacts(topic="orders", table=table(), config=config)
    assert deadline(late(next_age_ms=DAY_MS, log_bytes=1_000), facts) is None


# What can no longer be continued


def test_a_topic_that_was_created_again() -> None:
    again = table(topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    answer = ask(partition(end=7, log_end=7), table=again, topic_id="AAAAAAAAAAAAAAAAAAAAAg")
    assert codes(answer) == ["table.topic-recreated"], "offsets say nothing"
    assert codes(ask(table=again, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")) == []
    assert codes(ask(table=again)) == [], "brokers that know no ids"


def test_a_topic_that_is_gone() -> None:
    answer = answer_of(TableFacts(topic="orders", table=table()))
    assert codes(answer) == ["table.topic-gone"]


def test_a_log_that_ends_before_the_table() -> None:
    short = partition(end=40, stable=40, log_end=50)
    answer = ask(short)
    assert codes(answer) == ["table.ahead"]
    assert "offsets of orders-0 up to 99, and its log ends at 50" in answer.sentence
    assert "or the topic was deleted and created again" in answer.sentence
    named = ask(short, table=table(topic_id="a"), topic_id="a")
    assert "deleted and created again" not in named.sentence
    assert not ask(partition(end=40, stable=40, log_end=100)).reasons, "an export with --latest logEnd"


# What else is with it


def test_records_of_the_last_commit_that_went_to_the_errors_table() -> None:
    reason = only(ask(table=table(commits=commits(12_000, errors=7))))
    assert reason.code == "table.errors"
    assert "did not get 7 of the 100 records of its last commit" in reason.sentence
    assert "/lake/orders_errors" in reason.sentence


def test_a_table_that_others_have_changed() -> None:
    others = [OtherCommit(operation="DELETE", ms_ago=60_000), OtherCommit(operation="WRITE", ms_ago=DAY_MS)]
    reason = only(ask(table=table(others=others)))
    assert reason.code == "table.written-by-others"
    assert "has changed it by DELETE 1 min ago, 2 times of late" in reason.sentence


def test_what_is_lost_for_good_comes_first_and_what_is_as_it_should_be_last() -> None:
    gone = partition(position=100, start=220, end=300, stable=300, next_age_ms=4 * DAY_MS, produced=0)
    others = [OtherCommit(operation="DELETE", ms_ago=60_000)]
    changed = table(others=others, commits=commits(1_000, 11_000, errors=1))
    assert codes(ask(gone, table=changed, sample_ms=2_000)) == [
        "table.lost",
        "table.retention.soon",
        "table.written-by-others",
        "table.errors",
        "table.behind.catching-up",
    ]


def test_how_an_export_commits() -> None:
    assert pace([]).rate is None and pace(commits(5_000)).gap_ms is None
    found = pace(commits(5_000, 15_000, 45_000))
    assert (found.gap_ms, found.span_ms, found.rate) == (10_000, 40_000, 5.0), "what the oldest has is older"
    assert pace(commits(5_000, 5_000)).rate is None


def test_the_command_that_continues_the_table_has_no_password() -> None:
    uri = "postgresql://me:secret@db/catalog"
    words = ["table", "orders", "--format", "iceberg", "--catalog", uri, "-o", "/my lake"]
    assert export_command(parser().parse_args(words)) == (
        "minikafka export LOG-DIR --topics orders --format iceberg --catalog postgresql://db/catalog "
        "-o '/my lake'"
    )
