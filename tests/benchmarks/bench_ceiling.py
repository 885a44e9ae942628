"""How much the client can do at all on this machine, and how much of it is left beside minikafka.

Client and broker share the cores here, so a ratio beside librdkafka's mock has a ceiling: what the client
itself costs. Four take turns on workloads of ``docs/how-to/load.md``: the mock, the idle broker
(``idle_broker``: answers as a broker must, and does nothing else), one that reads what it answers from files
and does nothing else, and minikafka. *Idle broker / mock* is about the most that any broker could reach
beside the mock on this machine, *idle broker that reads files / mock* the most for one whose log lies in
files; minikafka beside these two is its share of that. ``CPU s/GB`` is what each target itself used for 10⁹
bytes of values: how idle the idle ones were.

``BENCH_ROUNDS`` and ``BENCH_SECONDS`` say how many turns and how long. A ratio is the median of neighbouring
turns, with the least and the greatest; a turn that failed is told, and has no value.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from minikafka.cli.bench import turn_line
from minikafka.loadgen import comparison, targets
from minikafka.loadgen.comparison import SUITES, Contestant, Entry, Turn, spread
from minikafka.loadgen.comparison import row as paired
from tests.benchmarks import idle_broker
from tests.benchmarks.broker import COMMAND

MOCK, IDLE, READER, OURS = "mock", "idle broker", "idle broker that reads files", "minikafka"
RATIOS = ((IDLE, MOCK), (READER, MOCK), (OURS, MOCK), (OURS, IDLE), (OURS, READER))
WORKLOADS = ("produce-1k", "produce-100", "consume-1k")
ROUNDS, DURATION_S = 5, 5.0
QUICK_ROUNDS, QUICK_DURATION_S = 1, 1.0

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """For each workload, a row for each target and one for each ratio."""
    subprocess.run([*COMMAND, "--version"], check=True, capture_output=True)  # makes its environment
    rounds = QUICK_ROUNDS if quick else int(os.environ.get("BENCH_ROUNDS", ROUNDS))
    duration_s = QUICK_DURATION_S if quick else float(os.environ.get("BENCH_SECONDS", DURATION_S))
    rows: list[Row] = []
    with idle_broker.running() as idle, idle_broker.running(idle_broker.READS) as reader:
        contestants = [
            Contestant(MOCK, targets.parse_target("mock")),
            Contestant(IDLE, idle),
            Contestant(READER, reader),
            Contestant(OURS, targets.parse_target(f"minikafka:{COMMAND[0]}")),
        ]
        for name in WORKLOADS:
            turns = []
            for turn in comparison.take_turns(
                contestants, name, SUITES[name], rounds=rounds, duration_s=duration_s
            ):
                print(turn_line(turn), file=sys.stderr, flush=True)
                turns.append(turn)
            rows += rows_of(SUITES[name], turns)
    return rows


def rows_of(entry: Entry, turns: Sequence[Turn]) -> list[Row]:
    """Of one workload; its warm-up does not count."""
    rate = entry.measures[0]
    rates: dict[str, list[float | None]] = {MOCK: [], IDLE: [], READER: [], OURS: []}
    costs: dict[str, list[float]] = {each: [] for each in rates}
    for turn in turns:
        if turn.round == 0:
            continue
        result = turn.result if turn.problem is None else None
        rates[turn.contestant].append(rate.value(result) if result is not None else None)
        if result is not None and result.usage is not None:
            size_gb = sum(flow.bytes for flow in result.flows) / 1e9
            costs[turn.contestant].append(result.usage.cpu_seconds / size_gb)
    rows: list[Row] = []
    for name, values in rates.items():
        found, cost = spread([value for value in values if value is not None]), spread(costs[name])
        rows.append(
            {
                "workload": entry.purpose,
                "target": name,
                rate.unit: round(found.median) if found is not None else None,
                "min": round(found.least) if found is not None else None,
                "max": round(found.greatest) if found is not None else None,
                "CPU s/GB": round(cost.median, 3) if cost is not None else None,
            }
        )
    for first, second in RATIOS:
        ratio = paired(entry.purpose, rate.name, rate.unit, rates[first], rates[second]).ratio
        rows.append(
            {
                "workload": entry.purpose,
                "ratio": f"{first} / {second}",
                "median": round(ratio.median, 3) if ratio is not None else None,
                "min": round(ratio.least, 3) if ratio is not None else None,
                "max": round(ratio.greatest, 3) if ratio is not None else None,
            }
        )
    return rows
