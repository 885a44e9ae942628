"""``minikafka bench compare`` and ``minikafka bench start``."""

from __future__ import annotations

import argparse
import sys

from minikafka.cli.bench.options import parse_duration, target_security
from minikafka.cli.bench.view import check_reports, write_reports
from minikafka.cli.shared.commands import FAILURE, OK
from minikafka.errors import ConfigError
from minikafka.loadgen import comparison, recipes
from minikafka.loadgen.comparison import lines, spread
from minikafka.loadgen.suites import SUITES, Entry


def compare(arguments: argparse.Namespace) -> int:
    """Two targets in turns. Returns the exit status: 1 when a turn failed.

    Raises:
        ConfigError: names the option. MinikafkaError: a target cannot be had.
    """
    entries = entries_of(arguments.suite)
    duration_s = parse_duration("--duration", arguments.duration)
    if arguments.rounds < 1 or duration_s <= 0:
        raise ConfigError(f"--rounds {arguments.rounds}, --duration {duration_s:g}: must be above 0")
    check_reports(json=arguments.json, html=arguments.html)
    security = target_security(arguments)
    first, second = (
        comparison.Contestant(text, recipes.parse_target(text, security=security))
        for text in arguments.targets
    )
    for event in comparison.alternate(
        (first, second), entries, rounds=arguments.rounds, duration_s=duration_s
    ):
        if isinstance(event, comparison.Turn):
            print(turn_line(event), file=sys.stderr, flush=True)
            continue
        if arguments.json != "-":
            print("\n".join(lines(event.rows, event.targets)))
        results = [turn.result for turn in event.turns if turn.result is not None and turn.round > 0]
        write_reports(results, document=event, json=arguments.json, html=arguments.html)
        return OK if event.is_ok else FAILURE
    raise AssertionError("a comparison ends with one")


def entries_of(text: str) -> dict[str, Entry]:
    """Names with commas between, or all. Raises ConfigError."""
    names = list(SUITES) if text == "all" else text.split(",")
    for name in names:
        if name not in SUITES:
            raise ConfigError(f"--suite {name}: there is no such workload; there are {', '.join(SUITES)}")
    return {name: SUITES[name] for name in names}


def turn_line(turn: comparison.Turn) -> str:
    """``produce-1k, round 2, mock: produce: 1000000 records, …``."""
    where = "warm-up" if turn.round == 0 else f"round {turn.round}"
    said = [turn.problem] if turn.problem is not None else []
    if turn.result is not None:
        said += [flow.text() for flow in turn.result.flows]
        said += [f"{name}: {value:.3g}" for name, value in turn.result.facts.items()]
    return f"{turn.entry}, {where}, {turn.contestant}: {' '.join(said)}"


def start(arguments: argparse.Namespace) -> int:
    """From the start of the process to the first answered request, several times."""
    recipe = recipes.parse_target(arguments.target)
    if isinstance(recipe, recipes.Address):
        raise ConfigError(f"target {arguments.target}: only a recipe can be started")
    if arguments.runs < 1:
        raise ConfigError(f"--runs {arguments.runs}: must be from 1")
    recipes.prepare(recipe)
    seconds = []
    for _ in range(arguments.runs):
        with recipes.running(recipe, arguments.target) as (_, start_s):
            seconds.append(start_s)
            print(f"{arguments.target}: first answer after {start_s:.3f} s")
    summary = spread(seconds)
    assert summary is not None
    print(f"median {summary.text()} s")
    return OK
