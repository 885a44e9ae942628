"""The page of what was measured shows the kept results, and says which of them were not what was asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.generator import performance

MACHINE = {
    "date": "2026-01-02T03:04:05+00:00", "commit": "abc", "system": "Linux", "cpu": "a | b", "cpus": 2,
    "memory_bytes": 24_000_000_000, "python": "CPython 3.11",
}  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"part": "groups", "of": "minikafka", "groups": 100, "core": 0.01},
    {"part": "groups", "of": "minikafka", "groups": 1_600, "core": 0.2, "more MB": 1_234.5},
    {"part": "groups", "of": "Apache Kafka", "groups": 100, "core": 0.5},
    {
        "growth of": "groups: core", "from": 100, "to": 1_600, "exponent": 1.5,
        "asked": "<= 1.25", "ok": False,
    },
    {"name": "heartbeats", "value": 3.5, "unit": "ms", "asked": "<= 50", "ok": True},
]  # fmt: skip


def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **kept: list[dict[str, Any]]) -> str:
    """``kept``: rows by their file, with ``_`` for ``-``; the first word of it is the benchmark."""
    for name, rows in kept.items():
        report = {"machine": MACHINE, "results": {name.partition("_")[0]: {"rows": rows}}}
        (tmp_path / f"{name.replace('_', '-')}.json").write_text(json.dumps(report))
    monkeypatch.setattr(performance, "MEASUREMENTS", tmp_path)
    return performance.performance()


def test_a_curve_has_a_column_for_each_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page(tmp_path, monkeypatch, scale=ROWS)
    assert "|  | 100 | 1,600 | 100 (Apache Kafka) |" in text
    assert "| core | 0.01 | 0.2 | 0.5 |" in text
    assert "| more MB |  | 1,234 |  |" in text
    assert "on 2 cores (a \\| b) with 24 GB of memory" in text and "2026-01-02" in text


def test_what_was_missed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page(tmp_path, monkeypatch, scale=ROWS)
    assert "| core | 100 to 1,600 | 1.50 | &lt;= 1.25, **missed** |" in text
    assert "| heartbeats | 3.5 ms | &lt;= 50 |" in text


def test_what_was_not_measured_is_not_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert page(tmp_path, monkeypatch).count("No result is kept here yet.") == 2
    assert page(tmp_path, monkeypatch, cost=[{"name": "1 KB", "value": 0.4}]).count("No result") == 1


def test_a_second_measurement_stands_beside_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = {"part": "log size", "of": "minikafka", "GB": 200, "clean start, s": 0.5}
    stall = {"name": "a stall", "value": 154, "unit": "ms", "asked": "<= 50", "ok": False}
    first, second = [{"name": "1 KB", "ratio": 0.8}], [{"name": "1 KB", "ratio": 0.3}, {"workload": "1 KB"}]
    text = page(
        tmp_path, monkeypatch, scale=ROWS, scale_large_log=[log, stall], cost=first, cost_again=second
    )
    whole, larger = text.split("### A log larger than the disk")
    assert "| heartbeats |" in whole and "| heartbeats |" not in larger and "a stall" not in whole
    assert "| clean start, s | 0.5 |" in larger and "| a stall | 154 ms | &lt;= 50, **missed** |" in larger
    assert "| 1 KB | 0.8 |" in larger.split("### Some of it again")[0]
    assert "| 1 KB | 0.3 |" in larger.split("### Some of it again")[1]
    assert 'ONLY="1 KB" bin/bench cost --json' in larger
