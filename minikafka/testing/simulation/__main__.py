"""``python -m minikafka.testing.simulation``: random faults from seeds, by the thousand or one again.

``run`` counts in a directory and goes on where it was interrupted; ``report`` adds such counts up; ``replay``
shows what happened; ``shrink`` looks for the little that is needed to fail.

See ``docs/how-to/simulation.md``.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

import msgspec

from minikafka.testing.simulation.campaign import (
    FILE,
    SCENARIOS,
    Outcome,
    Tally,
    TallyError,
    draw,
    failure_line,
    markdown,
    play,
    read_outcomes,
    report,
    run_seeds,
    shrink,
    simulation_of,
)
from minikafka.testing.simulation.scenarios.plan import Plan

PROGRAM = "python -m minikafka.testing.simulation"


def main(arguments: list[str] | None = None) -> int:
    """0: nothing failed; 1: a seed failed (``shrink``: did not); 2: what was asked for cannot be done."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "run":
            return _run(options)
        if options.command == "report":
            return _report(options)
        if options.command == "replay":
            return _replay(options)
        return _shrink(options)
    except (OSError, TallyError, ValueError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Runs whole clusters in virtual time, with faults drawn from a seed, and checks that no "
        "acknowledged record is lost and no invariant broken. One seed is the same run everywhere.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run many seeds and count what became of them")
    run.add_argument("--seeds", type=_seeds, default=range(100), help="one, or FIRST-LAST (default: 0-99)")
    run.add_argument(
        "--jobs", type=_count, default=os.cpu_count() or 1, help="worker processes (default: %(default)s)"
    )
    run.add_argument("--minutes", type=float, help="begin no further seed after so many")
    run.add_argument(
        "--dir",
        type=Path,
        default=Path("simulation"),
        help="where tally.jsonl is; seeds that it has are not run again (default: %(default)s)",
    )
    run.add_argument(
        "--scenario", choices=[*SCENARIOS, "all"], default="all", help="which to run (default: all)"
    )
    reporting = commands.add_parser("report", help="what the tallies of some directories add up to")
    reporting.add_argument(
        "directories",
        type=Path,
        nargs="*",
        default=[Path("simulation")],
        metavar="DIR",
        help="where tally.jsonl is; a seed that several have counts once (default: simulation)",
    )
    reporting.add_argument("--markdown", action="store_true", help="as a table")
    replay = commands.add_parser("replay", help="one seed again: its plan, the brokers' logs, its trace")
    replay.add_argument(
        "--history",
        type=Path,
        default=Path("history.jsonl"),
        help="write what clients did and saw there, for python -m minikafka.testing.history (default: "
        "%(default)s)",
    )
    shrinking = commands.add_parser("shrink", help="fewer faults and operations, as long as it fails")
    for each in (replay, shrinking):
        each.add_argument("seed", type=int, nargs="?", default=0)
        each.add_argument("--scenario", choices=list(SCENARIOS), default="faults", help="(default: faults)")
        each.add_argument("--plan", type=Path, help="a plan that shrink has written, instead of a seed's own")
    shrinking.add_argument("--out", type=Path, help="write the smallest plan there, for replay --plan")
    return parser


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        seeds = range(int(first), int(last or first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor FIRST-LAST") from None
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return seeds


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    scenarios = list(SCENARIOS) if options.scenario == "all" else [options.scenario]
    tally = Tally(options.dir)

    def tell(outcome: Outcome) -> None:
        if outcome.failure:
            print(failure_line(outcome), flush=True)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run_seeds(scenarios, options.seeds, tally, jobs=options.jobs, minutes=options.minutes, tell=tell)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
    print(f"all that is in {tally.path}:", *report(list(tally.outcomes.values())), sep="\n")
    return 1 if any(each.failure for each in tally.outcomes.values()) else 0


def _report(options: argparse.Namespace) -> int:
    found: dict[tuple[str, int], Outcome] = {}
    for directory in options.directories:
        if not (directory / FILE).exists():
            raise ValueError(f"{directory} has no {FILE}: name the --dir of a run")
        found |= read_outcomes(directory / FILE)[0]
    outcomes = list(found.values())
    print(*(markdown(outcomes) if options.markdown else report(outcomes)), sep="\n")
    return 1 if any(each.failure for each in outcomes) else 0


def _plan(options: argparse.Namespace) -> Plan:
    """Raises ValueError: the file is no plan. OSError."""
    if options.plan is None:
        return draw(options.scenario, options.seed)
    try:
        return msgspec.json.decode(options.plan.read_bytes(), type=Plan)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{options.plan} is no plan: {error}") from error


def _replay(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s %(levelname)s %(message)s")
    plan = _plan(options)
    simulation = simulation_of(plan)
    print(*plan.lines(), sep="\n")
    try:
        played = play(plan, simulation, history=options.history)
    except Exception as error:  # noqa: BLE001 - that is what is shown
        print(*simulation.trace, sep="\n")
        print(f"FAILED after {simulation.loop.time():.3f} virtual s: {type(error).__name__}: {error}")
        return 1
    print(*simulation.trace, sep="\n")
    print(f"well after {played.virtual_ms / 1000:.3f} virtual s: {played.acked} acked")
    return 0


def _shrink(options: argparse.Namespace) -> int:
    plan = _plan(options)

    def tell(smaller: Plan) -> None:
        faults = sum(len(step.faults) for step in smaller.steps)
        rest = f"{len(smaller.actions)} actions, {len(smaller.producers)} producers"
        print(f"still fails with {faults} faults, {rest}", file=sys.stderr)

    try:
        smallest = shrink(plan, tell)
    except ValueError as error:
        print(error)
        return 1
    print(*smallest.lines(), sep="\n")
    if options.out is not None:
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(smallest)))
        print(f"again: {PROGRAM} replay --plan {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
