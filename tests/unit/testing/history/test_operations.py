"""A history on the disk, and the command that judges it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.testing.history import (
    HistoryError,
    Kind,
    Operation,
    Outcome,
    Partition,
    Record,
    read_history,
    write_history,
)

SENT = Operation(
    process="p",
    kind=Kind.SEND,
    invoked_ms=1.5,
    completed_ms=3,
    outcome=Outcome.OK,
    records=(Record("t", 0, 0, "a"), Record("t", 0, None, "\u00fc\\xff")),
    transaction="T",
)
READ = Operation(
    process="c",
    kind=Kind.POLL,
    invoked_ms=5,
    completed_ms=6,
    outcome=Outcome.OK,
    records=(Record("t", 0, 0, "a"),),
)
ASSIGNED = Operation(process="c", kind=Kind.ASSIGN, invoked_ms=4, partitions=(Partition("t", 0),))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write_history(path, [SENT, ASSIGNED, READ])
    assert list(read_history(path)) == [SENT, ASSIGNED, READ]
    assert path.read_bytes().count(b"\n") == 3


def test_a_line_that_is_no_operation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write_history(path, [READ])
    with path.open("a") as file:
        file.write('{"process": "p", "kind": "send"}\n')
    with pytest.raises(HistoryError, match=r"history\.jsonl, line 2: .*invoked_ms"):
        list(read_history(path))


def _run(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "minikafka.testing.history", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_prints_anomalies_and_fails(tmp_path: Path) -> None:
    good, bad, broken = tmp_path / "good", tmp_path / "bad", tmp_path / "broken"
    sent = Operation(
        process="p", kind=Kind.SEND, invoked_ms=1, completed_ms=2, outcome=Outcome.OK, records=READ.records
    )
    write_history(good, [sent, READ])
    write_history(bad, [sent])
    broken.write_text("{")
    found = _run(good, bad)
    assert found.returncode == 1, found
    assert f"{good}: 2 operations: no anomaly" in found.stdout
    assert "unseen: a, acknowledged at 0 of t-0, is not there\n    1-2 ms p send ok t-0@0=a" in found.stdout
    assert _run(good).returncode == 0
    unread = _run(broken)
    assert unread.returncode == 2 and "broken, line 1" in unread.stderr
