"""``bin/bench ceiling``: from turns of its targets to rates, costs and ratios."""

from __future__ import annotations

from minikafka.loadgen.comparison import SUITES, Turn
from minikafka.loadgen.report import Flow, Result, Usage
from tests.benchmarks.bench_ceiling import IDLE, MOCK, OURS, READER, rows_of

ENTRY = SUITES["produce-1k"]


def turn(contestant: str, number: int, rate: float, problem: str | None = None) -> Turn:
    """One that produced 2 GB with a second of the target's CPU."""
    flow = Flow("produce", 2_000_000, 2_000_000_000, 0, 1.0, rate, rate / 1e6, None, "", [])
    result = Result(
        workload="produce-1k",
        target=contestant,
        started_at="",
        seconds=1.0,
        settings={},
        flows=[flow],
        checks=[],
        problems=[],
        usage=Usage(cpu_seconds=1.0, cpu_share=1.0, resident_before_bytes=0, resident_peak_bytes=0),
        facts={},
    )
    return Turn("produce-1k", number, contestant, result, problem)


def test_ratios_are_of_neighbours_and_leave_out_the_warm_up_and_what_failed() -> None:
    rates = {0: (1, 1, 1, 1), 1: (100, 200, 300, 150), 2: (10, 30, 20, 15)}
    turns = [
        turn(contestant, number, rate, "it broke" if (contestant, number) == (OURS, 2) else None)
        for number, of_round in rates.items()
        for contestant, rate in zip((MOCK, IDLE, READER, OURS), of_round, strict=True)
    ]
    rows = rows_of(ENTRY, turns)
    of_targets = {
        row["target"]: (row["records/s"], row["min"], row["max"]) for row in rows if "target" in row
    }
    assert of_targets == {
        MOCK: (55, 10, 100),
        IDLE: (115, 30, 200),
        READER: (160, 20, 300),
        OURS: (150, 150, 150),
    }
    assert {row["CPU s/GB"] for row in rows if "target" in row} == {0.5}
    ratios = {row["ratio"]: (row["median"], row["min"], row["max"]) for row in rows if "ratio" in row}
    assert ratios == {
        "idle broker / mock": (2.5, 2.0, 3.0),
        "idle broker that reads files / mock": (2.5, 2.0, 3.0),
        "minikafka / mock": (1.5, 1.5, 1.5),
        "minikafka / idle broker": (0.75, 0.75, 0.75),
        "minikafka / idle broker that reads files": (0.5, 0.5, 0.5),
    }


def test_a_target_that_always_failed_has_no_numbers() -> None:
    names = (MOCK, IDLE, READER, OURS)
    rows = rows_of(ENTRY, [turn(name, 1, 5.0, "it broke" if name == IDLE else None) for name in names])
    idle = next(row for row in rows if row.get("target") == IDLE)
    assert (idle["records/s"], idle["CPU s/GB"]) == (None, None)
    assert [row["median"] for row in rows if "ratio" in row] == [None, 1.0, 1.0, None, 1.0]
