"""Histories of a log that works have no anomaly, whatever fails; and one that is changed shows it.

The log is a list in memory with transactions. Its clients lose answers (a send or a commit is then uncertain,
whether it happened or not), are refused, and forget where they were.
"""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.testing.history import AnomalyKind, Kind, Operation, Outcome, Partition, Record, check

PARTITIONS = 2
MARKER = None


class Model:
    """A cluster and its clients, all driven by one seed. ``run`` returns their history."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._now_ms = 0.0
        self._logs: list[list[tuple[str | None, str]]] = [[] for _ in range(PARTITIONS)]
        """Values with their transactions; None for a marker."""
        self._decided: dict[str, bool] = {"": True}
        self._history: list[Operation] = []
        self._positions: dict[tuple[str, int], int] = {}
        self._open: dict[str, list[int]] = {}
        """By transaction: the partitions that it has written to."""
        self._count = 0

    def run(self, steps: int) -> list[Operation]:
        choices = (self._send, self._send, self._transact, self._end, self._poll, self._poll, self._seek)
        for _ in range(steps):
            self._rng.choice(choices)()
        for name in list(self._open):
            self._finish(name, commit=False, outcome=Outcome.INFO)
        for partition in range(PARTITIONS):
            self._read(f"final-{partition}", partition, len(self._logs[partition]))
        return self._history

    def _note(self, process: str, kind: Kind, outcome: Outcome, **fields: object) -> None:
        began_ms = self._now_ms
        self._now_ms += self._rng.choice((1, 5))
        self._history.append(
            msgspec.convert(
                {
                    "process": process,
                    "kind": kind,
                    "invoked_ms": began_ms,
                    "completed_ms": self._now_ms,
                    "outcome": outcome,
                    **fields,
                },
                Operation,
            )
        )
        self._now_ms += 1

    def _send(self, transaction: str = "") -> None:
        partition = self._rng.randrange(PARTITIONS)
        self._count += 1
        value = f"v{self._count}"
        outcome = self._rng.choice((Outcome.OK, Outcome.OK, Outcome.OK, Outcome.INFO, Outcome.FAIL))
        happened = outcome is Outcome.OK or (outcome is Outcome.INFO and self._rng.random() < 0.5)
        offset = None
        if happened:
            offset = len(self._logs[partition])
            self._logs[partition].append((value, transaction))
            if transaction and partition not in self._open[transaction]:
                self._open[transaction].append(partition)
        told = offset if outcome is Outcome.OK and self._rng.random() < 0.9 else None
        records = (("t", partition, told, value),)
        process = f"tx-{transaction}" if transaction else "plain"
        self._note(process, Kind.SEND, outcome, records=records, transaction=transaction)

    def _transact(self) -> None:
        if len(self._open) < 2:
            self._count += 1
            self._open[f"T{self._count}"] = []
        self._send(self._rng.choice(list(self._open)))

    def _end(self) -> None:
        if self._open:
            commit = self._rng.random() < 0.6
            outcome = self._rng.choice((Outcome.OK, Outcome.OK, Outcome.INFO))
            self._finish(self._rng.choice(list(self._open)), commit=commit, outcome=outcome)

    def _finish(self, name: str, *, commit: bool, outcome: Outcome) -> None:
        for partition in self._open.pop(name):
            self._logs[partition].append((MARKER, name))
        happened = outcome is Outcome.OK or self._rng.random() < 0.5  # else it is aborted for its time-out
        self._decided[name] = commit and happened
        kind = Kind.COMMIT_TRANSACTION if commit else Kind.ABORT_TRANSACTION
        self._note(f"tx-{name}", kind, outcome, transaction=name)

    def _poll(self) -> None:
        self._read(self._rng.choice("ab"), self._rng.randrange(PARTITIONS), self._rng.randrange(1, 5))

    def _read(self, process: str, partition: int, count: int) -> None:
        start = self._positions.get((process, partition), 0)
        log = self._logs[partition]
        stable = next((i for i, (_, name) in enumerate(log) if name in self._open), len(log))
        until = max(start, min(start + count, stable))
        records = tuple(
            ("t", partition, offset, value)
            for offset, (value, name) in enumerate(log[start:until], start)
            if value is not MARKER and self._decided[name]
        )
        self._positions[process, partition] = until
        self._note(process, Kind.POLL, Outcome.OK, records=records, read_committed=True, group="g")

    def _seek(self) -> None:
        """A crash: the process starts again."""
        process = self._rng.choice("ab")
        for partition in range(PARTITIONS):
            self._positions.pop((process, partition), None)
        self._note(
            process, Kind.SEEK, Outcome.OK, partitions=tuple(("t", number) for number in range(PARTITIONS))
        )


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 60))
def test_a_log_that_works_has_no_anomaly(seed: int, steps: int) -> None:
    report = check(Model(seed).run(steps))
    assert report.is_valid, report


def _polls(history: list[Operation], *, records: int) -> list[int]:
    return [i for i, each in enumerate(history) if each.kind is Kind.POLL and len(each.records) >= records]


def _lose(history: list[Operation], rng: random.Random) -> bool:
    """Nothing that is read has an acknowledged value any more."""
    read = {(r.partition, r.value) for each in history if each.kind is Kind.POLL for r in each.records}
    sent = [
        (each.records[0].partition, each.records[0].value)
        for each in history
        if each.kind is Kind.SEND and each.outcome is Outcome.OK
    ]
    present = [each for each in sent if each in read]
    if not present:
        return False
    lost = rng.choice(present)
    for index in _polls(history, records=1):
        kept = tuple(each for each in history[index].records if (each.partition, each.value) != lost)
        history[index] = msgspec.structs.replace(history[index], records=kept)
    return True


def _change(history: list[Operation], index: int, at: int, record: Record) -> None:
    records = list(history[index].records)
    records[at] = record
    history[index] = msgspec.structs.replace(history[index], records=tuple(records))


def _swap(history: list[Operation], rng: random.Random) -> bool:
    """A poll has two records in the wrong order."""
    if not (polls := _polls(history, records=2)):
        return False
    index = rng.choice(polls)
    records = history[index].records
    at = rng.randrange(len(records) - 1)
    swapped = (*records[:at], records[at + 1], records[at], *records[at + 2 :])
    history[index] = msgspec.structs.replace(history[index], records=swapped)
    return True


def _repeat(history: list[Operation], rng: random.Random) -> bool:
    """A value is at a second offset, too."""
    if not (polls := _polls(history, records=1)):
        return False
    index = rng.choice(polls)
    records = history[index].records
    again = msgspec.structs.replace(records[-1], offset=(records[-1].offset or 0) + 10_000)
    history[index] = msgspec.structs.replace(history[index], records=(*records, again))
    return True


def _replace(history: list[Operation], rng: random.Random) -> bool:
    """A value comes from nowhere."""
    if not (polls := _polls(history, records=1)):
        return False
    index = rng.choice(polls)
    _change(history, index, 0, msgspec.structs.replace(history[index].records[0], value="from nowhere"))
    return True


def _refuse(history: list[Operation], rng: random.Random) -> bool:
    """What was read was refused."""
    read = {(r.partition, r.value) for each in history if each.kind is Kind.POLL for r in each.records}
    sends = [
        i
        for i, each in enumerate(history)
        if each.kind is Kind.SEND and (each.records[0].partition, each.records[0].value) in read
    ]
    if not sends:
        return False
    index = rng.choice(sends)
    history[index] = msgspec.structs.replace(history[index], outcome=Outcome.FAIL)
    return True


def _abort(history: list[Operation], rng: random.Random) -> bool:
    """What was read was of an aborted transaction."""
    read = {r.value for each in history if each.kind is Kind.POLL for r in each.records}
    names = {each.transaction for each in history if each.records and each.records[0].value in read} - {""}
    ends = [
        i
        for i, each in enumerate(history)
        if each.kind is Kind.COMMIT_TRANSACTION and each.transaction in names
    ]
    if not ends:
        return False
    index = rng.choice(ends)
    history[index] = msgspec.structs.replace(history[index], kind=Kind.ABORT_TRANSACTION, outcome=Outcome.OK)
    return True


@pytest.mark.parametrize("mutate", [_lose, _swap, _repeat, _replace, _refuse, _abort])
def test_a_change_of_such_a_history_is_found(mutate: object) -> None:
    assert callable(mutate)
    changed = 0
    for seed in range(60):
        history = Model(seed).run(40)
        if mutate(history, random.Random(seed)):
            changed += 1
            assert not check(history).is_valid, f"seed {seed}: nothing was found"
    assert changed > 20, "the model makes too few histories that can be changed"


def test_a_partition_names_itself() -> None:
    assert str(Partition("orders", 3)) == "orders-3"
    assert AnomalyKind.LOST_WRITE == "lost write"
