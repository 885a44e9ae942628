"""Histories: what clients did and saw, and a checker that judges them without knowing the broker.

A test records what its clients do (``recorder``), or any other program writes the same JSON lines; then::

    report = check(recorder.history())
    assert report.is_valid, report

or, for a file, ``python -m minikafka.testing.history FILE``, which prints the anomalies. ``operations`` says
what a history is, ``checker`` what is looked for.
"""

from __future__ import annotations

from minikafka.testing.history.checker import Anomaly, AnomalyKind, Report, check
from minikafka.testing.history.operations import (
    HistoryError,
    Kind,
    Operation,
    Outcome,
    Partition,
    Record,
    read_history,
    write_history,
)

__all__ = [
    "Anomaly",
    "AnomalyKind",
    "HistoryError",
    "Kind",
    "Operation",
    "Outcome",
    "Partition",
    "Record",
    "Report",
    "check",
    "read_history",
    "write_history",
]
