"""The table in ``docs/how-to/load.md``: minikafka beside Apache Kafka and librdkafka's mock, by workload.

Runs the suites of ``minikafka bench compare`` twice, once beside each, and writes the table in Markdown to
``bench-results/table.md`` with every turn in ``bench-results/table.json``. ``BENCH_KAFKA`` names another
Kafka (``kafka:DIR``, ``kafka:maven:VERSION``), or ``none``; where it cannot be had, the table says so and
has the mock alone. ``BENCH_SUITE`` names some of the workloads, with commas; ``BENCH_ROUNDS`` and
``BENCH_SECONDS`` say how many turns and how long.

A ratio is the median of neighbouring turns, with the least and the greatest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from minikafka.cli.bench import entries_of, turn_line
from minikafka.cli.shared.commands import as_json
from minikafka.errors import MinikafkaError
from minikafka.loadgen import comparison, targets
from minikafka.loadgen.comparison import Row, number
from tests.benchmarks.broker import COMMAND, ROOT

KAFKA = "kafka:maven:4.4.0"
OURS = f"minikafka:{COMMAND[0]}"
ROUNDS, DURATION_S = 5, 10.0
QUICK_ROUNDS, QUICK_DURATION_S = 1, 1.0

ASKED = {
    ("produce 1 KB, acks=1, linger 5 ms", "rate"): (">= 1.2", ">= 1.5"),
    ("produce 100 B, acks=1, linger 5 ms", "rate"): (">= 1.0", ">= 1.0"),
    ("consume 1 KB, warm", "rate"): (">= 1.2", ">= 1.2"),
    ("one record a request, 1 connection", "rate"): (">= 1.0", ">= 0.75"),
    ("one record a request, 50 connections", "rate"): (">= 1.0", ">= 0.75"),
    ("3 brokers, acks=all, 1 KB", "rate"): (">= 1.0", ""),
    ("end to end at 2,000 records/s", "p50"): ("<= 1.0", ""),
    ("end to end at 2,000 records/s", "p99"): ("<= 1.0", ""),
    ("end to end at 2,000 records/s", "p99.9"): ("<= 1.0", ""),
    ("100 consumers waiting on 100 partitions, one record each a second", "CPU"): ("<= 1.0", ""),
    ("start to first answered request", "time"): ("<= 0.1", ""),
    ("resident memory, fresh broker", "idle"): ("<= 0.125", ""),
    ("resident memory, fresh broker", "under load"): ("<= 0.25", ""),
}
"""Workload and measure → the ratio asked beside Apache Kafka, and beside the mock."""


def run(quick: bool) -> list[dict[str, Any]]:
    """A row for each measure; also writes the table."""
    subprocess.run([*COMMAND, "--version"], check=True, capture_output=True)  # makes its environment
    kafka = os.environ.get("BENCH_KAFKA", KAFKA)
    suite = os.environ.get("BENCH_SUITE", "all")
    beside_kafka, why_not = None, "it was not asked for"
    if kafka != "none":
        try:
            beside_kafka = beside(kafka, suite, quick=quick)
        except MinikafkaError as error:
            why_not = str(error)
    beside_mock = beside("mock", suite, quick=quick)
    comparisons = [each for each in (beside_kafka, beside_mock) if each is not None]
    directory = ROOT / "bench-results"
    directory.mkdir(exist_ok=True)
    (directory / "table.json").write_text(as_json(comparisons) + "\n")
    lines = table(beside_kafka.rows if beside_kafka is not None else [], beside_mock.rows)
    if beside_kafka is None:
        lines += ["", f"Apache Kafka is missing: {why_not}."]
    (directory / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return [row(each, comparison.targets[1]) for comparison in comparisons for each in comparison.rows]


def beside(other: str, suite: str, *, quick: bool) -> comparison.Comparison:
    """Ours and another in turns. Raises MinikafkaError: the other cannot be had."""
    contestants = (
        comparison.Contestant("minikafka", targets.parse_target(OURS)),
        comparison.Contestant(other, targets.parse_target(other)),
    )
    events = comparison.alternate(
        contestants,
        entries_of(suite),
        rounds=QUICK_ROUNDS if quick else int(os.environ.get("BENCH_ROUNDS", ROUNDS)),
        duration_s=QUICK_DURATION_S if quick else float(os.environ.get("BENCH_SECONDS", DURATION_S)),
    )
    for event in events:
        if isinstance(event, comparison.Comparison):
            return event
        print(turn_line(event), file=sys.stderr, flush=True)
    raise AssertionError("a comparison ends with one")


def table(beside_kafka: list[Row], beside_mock: list[Row]) -> list[str]:
    """In Markdown; our own number is the one beside Kafka, where there is one."""
    kafka = {(row.workload, row.measure): row for row in beside_kafka}
    mock = {(row.workload, row.measure): row for row in beside_mock}
    lines = [
        "| workload | minikafka | Apache Kafka | mock | beside Apache Kafka | beside the mock |",
        "|---|---|---|---|---|---|",
    ]
    for key in [*kafka, *(key for key in mock if key not in kafka)]:
        one, other = kafka.get(key), mock.get(key)
        either = one or other
        assert either is not None
        cells = [
            f"{either.workload}: {either.measure}, {either.unit}",
            median(either, ours=True),
            median(one, ours=False),
            median(other, ours=False),
            ratio(one, ASKED[key][0]),
            ratio(other, ASKED[key][1]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def median(row: Row | None, *, ours: bool) -> str:
    if row is None:
        return "–"
    found = row.first if ours else row.second
    return number(found.median) if found is not None else "failed"


def ratio(row: Row | None, asked: str) -> str:
    if row is None:
        return "–"
    if row.ratio is None:
        return "failed"
    return f"{row.ratio.text()} ×" + (f", asked {asked}" if asked else "")


def row(found: Row, other: str) -> dict[str, Any]:
    """As ``bin/bench`` shows it, with whether the ratio is what was asked."""
    asked = ASKED[found.workload, found.measure][1 if other == "mock" else 0]
    value = found.ratio.median if found.ratio is not None else None
    return {
        "name": f"{found.workload}: {found.measure}",
        "beside": other,
        "ratio": round(value, 3) if value is not None else None,
        "min": round(found.ratio.least, 3) if found.ratio is not None else None,
        "max": round(found.ratio.greatest, 3) if found.ratio is not None else None,
        "asked": asked or "-",
        "ok": holds(value, asked),
    }


def holds(value: float | None, asked: str) -> bool:
    """Nothing asked holds; a turn that failed does not."""
    if value is None:
        return False
    sign, _, bound = asked.partition(" ")
    return {">=": value >= float(bound or 0), "<=": value <= float(bound or 0)}.get(sign, True)
