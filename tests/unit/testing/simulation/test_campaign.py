"""Many seeds: what is kept of them, what is run again, and how a plan that fails becomes small."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from minikafka.testing.history import AnomalyKind, check, read_history
from minikafka.testing.simulation import __main__ as command_line
from minikafka.testing.simulation import campaign
from minikafka.testing.simulation.campaign import (
    OPTIONAL_SETTINGS,
    SCENARIOS,
    Outcome,
    Tally,
    TallyError,
    draw,
    report,
    shrink,
)
from minikafka.testing.simulation.client import SimulatedClient
from minikafka.testing.simulation.scenarios.faults import CARRY_OUT
from minikafka.testing.simulation.scenarios.plan import ActionKind, FaultKind, Plan


def outcome(seed: int, failure: str = "") -> Outcome:
    return Outcome(
        scenario="faults", seed=seed, cpu_s=0.25, acked=20, calls=30, virtual_ms=1_800_000,
        faults={"kill": 2}, failure=failure,
    )  # fmt: skip


def test_a_tally_goes_on_after_a_line_that_was_interrupted(tmp_path: Path) -> None:
    tally = Tally(tmp_path)
    tally.add(outcome(1))
    tally.add(outcome(2, "I1: a record is lost"))
    with tally.path.open("ab") as file:
        file.write(b'{"scenario":"faults","se')
    again = Tally(tmp_path)
    assert set(again.outcomes) == {("faults", 1), ("faults", 2)}
    again.add(outcome(3))
    total, faults, failed = report(list(Tally(tmp_path).outcomes.values()))
    assert (
        total == "faults: 3 seeds, 1 failed, 1.5 virtual hours, 90 operations, 60 acked, 0.250 CPU s a seed"
    )
    assert faults == "  6 faults: 6 kill"
    assert "faults seed 2: I1: a record is lost" in failed
    assert "replay 2 --scenario faults" in failed


def test_a_file_that_is_no_tally_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "tally.jsonl").write_text("dear diary\n")
    with pytest.raises(TallyError, match=r"tally\.jsonl, line 1"):
        Tally(tmp_path)
    assert (tmp_path / "tally.jsonl").read_text() == "dear diary\n"


def test_a_run_begins_only_the_seeds_that_are_not_in_the_tally(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = []

    def run_seed(scenario: str, seed: int) -> Outcome:
        begun.append(seed)
        return outcome(seed, "I3: it fell" if seed == 4 else "")

    monkeypatch.setattr(campaign, "run_seed", run_seed)
    monkeypatch.setattr(campaign, "worker_pool", ThreadPoolExecutor)
    Tally(tmp_path).add(outcome(3))
    arguments = ["run", "--seeds", "2-5", "--jobs", "1", "--scenario", "faults", "--dir", str(tmp_path)]
    assert command_line.main(arguments) == 1
    assert begun == [2, 4, 5]
    assert "FAILED faults seed 4: I3: it fell" in capsys.readouterr().out
    assert command_line.main(arguments) == 1
    assert begun == [2, 4, 5]


def test_tallies_of_several_machines_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = Tally(tmp_path / "here"), Tally(tmp_path / "there")
    here.add(outcome(1))
    here.add(outcome(2))
    there.add(outcome(2))
    there.add(msgspec.structs.replace(outcome(2), scenario="swarm", faults={"pause": 1200}))
    with there.path.open("ab") as file:
        file.write(running := b'{"scenario":"swarm","se')
    directories = [str(tmp_path / "here"), str(tmp_path / "there")]
    assert command_line.main(["report", *directories]) == 0
    assert "faults: 2 seeds, 0 failed, 1.0 virtual hours, 60 operations" in capsys.readouterr().out
    assert command_line.main(["report", *directories, "--markdown"]) == 0
    _, _, *rows, _, by_kind = capsys.readouterr().out.splitlines()
    assert rows == [
        "| faults | 2 | 0 | 1.0 | 60 | 40 | 4 |",
        "| swarm | 1 | 0 | 0.5 | 30 | 20 | 1,200 |",
        "| all | 3 | 0 | 1.5 | 90 | 60 | 1,204 |",
    ]
    assert by_kind == "Faults by kind: 1200 pause, 4 kill."
    assert there.path.read_bytes().endswith(running), "a run is writing there"


def test_a_report_of_nothing_says_which_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["report", str(tmp_path)]) == 2
    assert f"{tmp_path} has no tally.jsonl: name the --dir of a run" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", ["9-3", "many", "-5"])
def test_seeds_that_are_none_are_refused(seeds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main(["run", f"--seeds={seeds}"])
    assert seeds in capsys.readouterr().err


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_plan_is_the_same_each_time_and_survives_a_file(scenario: str) -> None:
    for seed in range(20):
        plan = draw(scenario, seed)
        assert plan == draw(scenario, seed)
        assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
        assert len(plan.lines()) > 2


def test_the_swarm_draws_every_fault_and_every_action() -> None:
    plans = [draw("swarm", seed) for seed in range(200)]
    assert {fault.kind for plan in plans for step in plan.steps for fault in step.faults} == set(FaultKind)
    assert {action.kind for plan in plans for action in plan.actions} == set(ActionKind)
    assert {plan.brokers for plan in plans} == {1, 2, 3, 4, 5}
    assert set(CARRY_OUT) == set(FaultKind)


def test_a_plan_shrinks_to_what_makes_it_fail() -> None:
    """It fails when broker 2 is killed while the administrator moves something."""

    def failure_of(plan: Plan) -> str:
        kills = [f for step in plan.steps for f in step.faults if f.kind is FaultKind.KILL and f.victim == 2]
        moves = [action for action in plan.actions if action.kind is ActionKind.REASSIGN]
        return "I1" if kills and moves else ""

    plan = next(each for each in (draw("reassignments", seed) for seed in range(100)) if failure_of(each))
    told: list[Plan] = []
    smallest = shrink(plan, told.append, failure_of=failure_of)
    assert [(f.kind, f.victim) for step in smallest.steps for f in step.faults] == [(FaultKind.KILL, 2)]
    assert [action.kind for action in smallest.actions] == [ActionKind.REASSIGN]
    assert len(smallest.producers) == 1
    assert smallest.steps[0].faults[0].lasts_ms <= 100
    assert told[-1] == smallest


def test_settings_that_promise_nothing_are_taken_out_of_a_plan() -> None:
    """It fails where segments roll at a time of their own."""
    plan = next(
        each
        for each in (draw("swarm", seed) for seed in range(100))
        if each.config.get("min.insync.replicas") == 2
    )
    smallest = shrink(
        plan, lambda smaller: None, failure_of=lambda plan: "I4" if "log.roll.ms" in plan.config else ""
    )
    assert "log.roll.ms" in smallest.config
    assert not OPTIONAL_SETTINGS & smallest.config.keys() - {"log.roll.ms"}
    assert smallest.config["min.insync.replicas"] == 2, "with fewer, records may be lost"


def test_what_does_not_fail_does_not_shrink() -> None:
    plan = SCENARIOS["faults"].draw(0, random.Random(0))
    with pytest.raises(ValueError, match="seed 0 of faults does not fail"):
        shrink(plan, lambda smaller: None, failure_of=lambda plan: "")


def test_a_client_that_is_told_a_wrong_offset_fails_the_seed_and_its_history_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    produce = SimulatedClient.produce
    lies: list[int] = []

    async def lying(self: SimulatedClient, topic: str, partition: int, batch: bytes, **options: Any) -> int:
        offset = await produce(self, topic, partition, batch, **options)
        if offset > 0 and not lies:
            lies.append(offset)
            return offset - 1
        return offset

    monkeypatch.setattr(SimulatedClient, "produce", lying)
    plan, history = tmp_path / "plan.json", tmp_path / "history.jsonl"
    plan.write_bytes(msgspec.json.encode(msgspec.structs.replace(draw("faults", 0), steps=())))
    assert command_line.main(["replay", "--plan", str(plan), "--history", str(history)]) == 1
    assert "FAILED" in (out := capsys.readouterr().out) and "clients saw: " in out
    assert AnomalyKind.INCONSISTENT_OFFSET in check(read_history(history)).counts
