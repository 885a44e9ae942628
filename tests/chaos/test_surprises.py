"""Errors of client libraries that a run outlives: told, counted, and not for ever."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.run import judge
from tests.chaos.surprises import Surprises, surprises_of


def test_one_is_told_with_its_traceback_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    surprises = Surprises()
    for _ in range(3):
        try:
            raise ValueError("no such partition")
        except ValueError as error:
            surprises.note("send", error)

    told = capsys.readouterr().err
    assert told.count("unexpected: send: ValueError('no such partition')\n") == 3
    assert told.count("Traceback") == 3 and __file__ in told
    (tmp_path / "member-6-kafka-python.err").write_text(f"poll: NodeNotReadyError\n{told}")
    (tmp_path / "member-0-confluent.err").write_text("begins again after an unexpected: end\n")
    assert surprises_of(tmp_path) == {"member-6-kafka-python": 3}


def test_a_client_that_does_nothing_else_ends(capsys: pytest.CaptureFixture[str]) -> None:
    surprises = Surprises(maximum=2)
    error = AssertionError("never")
    surprises.note("poll", error)
    surprises.note("poll", error)
    with pytest.raises(AssertionError, match="never"):
        surprises.note("poll", error)
    assert capsys.readouterr().err.count("unexpected: poll") == 3, "the last one is told, too"


def test_the_report_of_a_run_has_them(tmp_path: Path) -> None:
    (tmp_path / "member-6-kafka-python.err").write_text("unexpected: poll: KeyError(3)\n")
    report = judge(tmp_path, seed=1, store="sqlite", seconds=1, faults=Counter(), of_kafka=())

    assert report.surprises == {"member-6-kafka-python": 1}
    assert "unexpected errors of client libraries: 1 of member-6-kafka-python; no anomaly" in str(report)
    assert report.is_valid, "they say nothing of the brokers"
