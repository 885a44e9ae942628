"""For each anomaly a small history that has it, and one beside it that has not."""

from __future__ import annotations

import pytest

from minikafka.testing.history import (
    AnomalyKind,
    HistoryError,
    Kind,
    Operation,
    Outcome,
    Partition,
    Record,
    check,
)

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO
At = tuple[int | None, str]
"""An offset and a value, of partition 0."""


def _records(ats: tuple[At, ...], partition: int = 0) -> tuple[Record, ...]:
    return tuple(Record("t", partition, offset, value) for offset, value in ats)


def send(
    at_ms: float,
    *ats: At,
    process: str = "p",
    outcome: Outcome = OK,
    transaction: str = "",
    partition: int = 0,
    takes_ms: float = 1,
) -> Operation:
    return Operation(
        process=process,
        kind=Kind.SEND,
        invoked_ms=at_ms,
        completed_ms=at_ms + takes_ms,
        outcome=outcome,
        records=_records(ats, partition),
        transaction=transaction,
    )


def poll(
    at_ms: float,
    *ats: At,
    process: str = "c",
    transaction: str = "",
    partition: int = 0,
    committed: bool = True,
    group: str = "",
) -> Operation:
    return Operation(
        process=process,
        kind=Kind.POLL,
        invoked_ms=at_ms,
        completed_ms=at_ms + 1,
        outcome=OK,
        records=_records(ats, partition),
        transaction=transaction,
        read_committed=committed,
        group=group,
    )


def end(at_ms: float, transaction: str, *, commit: bool, outcome: Outcome = OK) -> Operation:
    return Operation(
        process="p",
        kind=Kind.COMMIT_TRANSACTION if commit else Kind.ABORT_TRANSACTION,
        invoked_ms=at_ms,
        completed_ms=at_ms + 1,
        outcome=outcome,
        transaction=transaction,
    )


def moved(at_ms: float, kind: Kind, *partitions: int, process: str = "c") -> Operation:
    return Operation(
        process=process,
        kind=kind,
        invoked_ms=at_ms,
        completed_ms=at_ms,
        outcome=OK,
        partitions=tuple(Partition("t", number) for number in partitions),
    )


def position(at_ms: float, kind: Kind, offset: int, outcome: Outcome = OK, takes_ms: float = 1) -> Operation:
    return Operation(
        process="c",
        kind=kind,
        invoked_ms=at_ms,
        completed_ms=at_ms + takes_ms,
        outcome=outcome,
        records=(Record("t", 0, offset),),
        group="g",
    )


def deleted(at_ms: float, offset: int) -> Operation:
    return Operation(
        process="a",
        kind=Kind.DELETE,
        invoked_ms=at_ms,
        completed_ms=at_ms,
        outcome=OK,
        records=(Record("t", 0, offset),),
    )


def commit(at_ms: float, offset: int, outcome: Outcome = OK) -> Operation:
    return position(at_ms, Kind.COMMIT, offset, outcome)


def told(at_ms: float, offset: int) -> Operation:
    return position(at_ms, Kind.FETCH_COMMITTED, offset)


A, B, C = send(0, (0, "a")), send(10, (1, "b")), send(20, (2, "c"))
ALL = poll(90, (0, "a"), (1, "b"), (2, "c"), process="final")
X, Y = send(0, (0, "x"), transaction="T"), send(2, (0, "y"), transaction="T", partition=1)

HAS: dict[AnomalyKind, list[list[Operation]]] = {
    AnomalyKind.LOST_WRITE: [
        [A, B, C, poll(90, (0, "a"), (2, "c"))],
        [A, B, C, deleted(50, 1), poll(90, (2, "c"))],
    ],
    AnomalyKind.UNSEEN: [[A, B, poll(90, (0, "a"))], [A]],
    AnomalyKind.DIRTY_COMMIT: [
        [X, Y, end(5, "T", commit=True), poll(90, (0, "x"))],
        # Nothing is known of the commit, but that half of it is there.
        [X, Y, end(5, "T", commit=True, outcome=INFO), poll(90, (0, "x"))],
        [X, end(5, "T", commit=False, outcome=INFO), poll(90, (0, "x"))],
        # It is in the log, and not for consumers with read_committed.
        [
            A,
            send(2, (1, "x"), transaction="T"),
            end(5, "T", commit=True),
            poll(90, (0, "a")),
            poll(91, (0, "a"), (1, "x"), committed=False, process="d"),
        ],
    ],
    AnomalyKind.ABORTED_READ: [
        [send(0, (None, "a"), outcome=FAIL), poll(90, (0, "a"))],
        [X, end(5, "T", commit=False), poll(90, (0, "x"))],
        [X, poll(90, (0, "x"))],
        [X, end(5, "T", commit=True, outcome=FAIL), poll(90, (0, "x"))],
    ],
    AnomalyKind.UNCOMMITTED_READ: [[X, poll(2, (0, "x")), end(5, "T", commit=True)]],
    AnomalyKind.PHANTOM_READ: [[A, poll(90, (0, "a"), (1, "?"))]],
    AnomalyKind.DUPLICATE: [
        [A, poll(90, (0, "a"), (1, "a"))],
        [A, poll(90, (3, "a"))],
        [X, end(5, "T", commit=True), poll(90, (0, "x"), (1, "x"))],
        [send(0, (None, "a"), outcome=INFO), poll(50, (0, "a")), poll(90, (1, "a"))],
    ],
    AnomalyKind.INCONSISTENT_OFFSET: [
        [A, send(9, (0, "b"), process="q"), poll(90, (0, "a"))],
        [A, send(0, (None, "b"), process="q"), poll(80, (0, "a")), poll(90, (0, "b"), process="d")],
    ],
    AnomalyKind.REORDERED: [
        [send(0, (1, "a")), send(5, (0, "b"), process="q"), poll(90, (0, "b"), (1, "a"))],
    ],
    AnomalyKind.NONMONOTONIC_SEND: [
        [send(0, (1, "a"), takes_ms=50), send(1, (0, "b"), takes_ms=50), poll(90, (0, "b"), (1, "a"))],
    ],
    AnomalyKind.INTERNAL_NONMONOTONIC_SEND: [[send(0, (1, "a"), (0, "b")), poll(90, (0, "b"), (1, "a"))]],
    AnomalyKind.NONMONOTONIC_POLL: [
        [A, B, C, poll(50, (0, "a"), (1, "b")), poll(60, (1, "b"), (2, "c"))],
        [A, B, C, poll(50, (0, "a"), (1, "b")), moved(55, Kind.ASSIGN, 0, 1), poll(60, (0, "a")), ALL],
        [A, B, C, poll(50, (1, "b")), moved(60.5, Kind.ASSIGN, 0, 1), poll(60, (0, "a")), ALL],
    ],
    AnomalyKind.INTERNAL_NONMONOTONIC_POLL: [[A, B, poll(50, (1, "b"), (0, "a"))]],
    AnomalyKind.POLL_SKIP: [
        [A, B, C, poll(50, (0, "a")), poll(60, (2, "c")), ALL],
        # A transaction that was committed may not be passed by.
        [
            A,
            send(5, (1, "x"), transaction="T"),
            end(7, "T", commit=True),
            C,
            poll(50, (0, "a")),
            poll(60, (2, "c")),
            poll(90, (0, "a"), (1, "x"), (2, "c"), process="final"),
        ],
    ],
    AnomalyKind.INTERNAL_POLL_SKIP: [[A, B, C, poll(50, (0, "a"), (2, "c")), ALL]],
    AnomalyKind.LOST_COMMIT: [
        [commit(0, 5), commit(10, 7), told(20, 5)],
        [commit(0, 5), told(20, -1)],
        [told(20, 5)],
        # The second commit may have failed, but a member was told of it.
        [commit(0, 5), commit(10, 7, INFO), told(20, 7), told(30, 5)],
        [commit(0, 5), commit(10, 7, FAIL), told(20, 7)],
    ],
    AnomalyKind.GROUP_SKIP: [
        [A, B, C, poll(50, (0, "a"), group="g"), poll(60, (2, "c"), process="d", group="g"), ALL],
    ],
    AnomalyKind.CIRCULAR_READ: [
        [
            send(0, (0, "x"), transaction="T", partition=0),
            send(1, (0, "y"), transaction="U", partition=1, process="q"),
            poll(30, (0, "y"), transaction="T", partition=1, process="p"),
            poll(30, (0, "x"), transaction="U", partition=0, process="q"),
            end(4, "T", commit=True),
            end(5, "U", commit=True),
        ]
    ],
    AnomalyKind.WRITE_CYCLE: [
        [
            send(0, (0, "x0"), transaction="T", takes_ms=50),
            send(1, (1, "y0"), transaction="U", process="q", takes_ms=50),
            send(2, (0, "y1"), transaction="U", process="q", partition=1, takes_ms=50),
            send(3, (1, "x1"), transaction="T", partition=1, takes_ms=50),
            end(60, "T", commit=True),
            end(60, "U", commit=True),
            poll(90, (0, "x0"), (1, "y0")),
            poll(90, (0, "y1"), (1, "x1"), partition=1, process="d"),
        ]
    ],
    AnomalyKind.MIXED_CYCLE: [
        [
            send(0, (0, "x"), transaction="T", takes_ms=50),
            send(1, (1, "y"), transaction="U", process="q", takes_ms=50),
            send(2, (0, "z"), transaction="U", process="q", partition=1, takes_ms=5),
            end(10, "U", commit=True),
            poll(20, (0, "z"), transaction="T", partition=1, process="p"),
            end(60, "T", commit=True),
            poll(90, (0, "x"), (1, "y")),
        ],
    ],
}
"""Every history shows this anomaly, and may show others."""

HAS_NOT = {
    "nothing is left out": [A, B, C, ALL],
    "an uncertain send is missing": [A, send(10, (None, "b"), outcome=INFO), poll(90, (0, "a"))],
    "an uncertain send is there": [A, send(10, (None, "b"), outcome=INFO), poll(90, (0, "a"), (1, "b"))],
    "a refused send is missing": [A, send(10, (None, "b"), outcome=FAIL), poll(90, (0, "a"))],
    "what was deleted is missing": [A, B, C, deleted(50, 2), poll(90, (2, "c"))],
    "deleted between two polls": [A, B, C, poll(30, (0, "a")), deleted(50, 2), poll(90, (2, "c"))],
    "markers take offsets": [A, send(9, (4, "b")), poll(90, (0, "a"), (4, "b"))],
    "a committed transaction is there": [
        X, Y, end(5, "T", commit=True), poll(6, (0, "x")), poll(7, (0, "y"), partition=1),
    ],
    "an aborted transaction is passed by": [
        A, send(9, (1, "x"), transaction="T"), end(12, "T", commit=False), C, poll(90, (0, "a"), (2, "c")),
    ],
    "read_uncommitted sees what is aborted": [
        X, end(5, "T", commit=False), poll(90, (0, "x"), committed=False),
    ],
    "a client sends again what its coordinator has aborted": [
        send(0, (2, "x"), transaction="T"),
        end(5, "T", commit=False, outcome=INFO),
        poll(90, (0, "x"), (2, "x"), committed=False),
    ],
    "an uncertain commit is nowhere": [X, Y, end(5, "T", commit=True, outcome=INFO), poll(90)],
    "an uncertain commit is whole": [
        X, Y, end(5, "T", commit=True, outcome=INFO), poll(90, (0, "x")), poll(91, (0, "y"), partition=1),
    ],
    "a read while the commit is answered": [
        X, end(5, "T", commit=True, outcome=OK), poll(5, (0, "x")),
    ],
    "another sends while the first waits": [
        send(0, (1, "a"), takes_ms=50), send(5, (0, "b"), process="q"), poll(90, (0, "b"), (1, "a")),
    ],
    "each process has a position of its own": [A, B, ALL, C, poll(95, (0, "a")), poll(96, (1, "b"))],
    "a seek goes back": [A, B, C, poll(50, (1, "b")), moved(55, Kind.SEEK, 0), poll(60, (0, "a")), ALL],
    "a partition that was given away and came back": [
        A, B, C, poll(50, (1, "b")), moved(55, Kind.ASSIGN, 1), moved(56, Kind.ASSIGN, 0, 1),
        poll(60, (0, "a")), ALL,
    ],
    "a partition that was given away and came back in the poll that reads it again": [
        A, B, C, poll(50, (1, "b")), moved(60.2, Kind.ASSIGN, 1), moved(60.6, Kind.ASSIGN, 0, 1),
        poll(60, (0, "a")), ALL,
    ],
    "the last commit is told": [commit(0, 5), commit(10, 7), told(20, 7), commit(30, 3), told(40, 3)],
    "a deposed coordinator is behind": [commit(0, 5), commit(10, 7), told(20, 5), told(40, 7)],
    "an uncertain commit is told, or not": [commit(0, 5), commit(10, 7, INFO), told(20, 5), told(30, 7)],
    "a commit is told while it waits": [position(0, Kind.COMMIT, 5, takes_ms=50), told(10, -1), told(20, 5)],
    "members share a partition": [
        A, B, C, poll(50, (0, "a"), (1, "b"), group="g"),
        poll(60, (1, "b"), (2, "c"), process="d", group="g"),
    ],
    "one transaction reads from another": [
        X, end(5, "T", commit=True), poll(10, (0, "x"), transaction="U", process="q"),
        send(12, (1, "y"), transaction="U", process="q"), end(14, "U", commit=True),
        poll(90, (0, "x"), (1, "y")),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "history"), [(kind, history) for kind, histories in HAS.items() for history in histories]
)
def test_an_anomaly_is_found_with_what_shows_it(kind: AnomalyKind, history: list[Operation]) -> None:
    report = check(history)
    assert report.counts.get(kind), report
    found = next(each for each in report.anomalies if each.kind is kind)
    assert found.operations and all(each in history for each in found.operations)
    assert report.is_valid == (kind in (AnomalyKind.WRITE_CYCLE, AnomalyKind.MIXED_CYCLE)), report


def test_every_anomaly_has_a_history() -> None:
    assert set(HAS) == set(AnomalyKind)


@pytest.mark.parametrize("name", HAS_NOT)
def test_what_may_be_is_no_anomaly(name: str) -> None:
    report = check(HAS_NOT[name])
    assert not report.counts, report


def test_the_order_of_the_lines_does_not_matter() -> None:
    assert check([ALL, C, B, A]).is_valid


def test_of_many_anomalies_some_are_shown_and_all_are_counted() -> None:
    report = check([send(number, (number, f"v{number}")) for number in range(100)])
    assert report.counts == {AnomalyKind.UNSEEN: 100}
    assert len(report.anomalies) == 20


def test_a_value_that_is_sent_twice_names_no_record() -> None:
    with pytest.raises(HistoryError, match="a is sent to t-0 twice"):
        check([A, send(5, (1, "a"))])
