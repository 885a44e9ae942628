"""``minikafka bench``: a load generator for any Kafka-compatible broker, driven by librdkafka.

Subcommands are workloads (``produce``, ``latency``, …), ``run`` for a workload file in OpenMessaging
Benchmark's shape, ``compare`` for two targets run by run, ``start`` for how soon a recipe's broker answers.

Exit status: 0 when all went well and the counts agree, 1 when the target could not be reached, died, or
the counts differ, 2 for bad usage, 130 after Ctrl-C.

``minikafka bench compare`` and ``minikafka bench start``.

What ``minikafka bench`` shows during a run, and writes when it is over.

On a terminal one line is kept up to date; otherwise there is a plain line every few seconds. Both go to
standard error, so that standard output is the report.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from minikafka.cli.bench.options import parse_duration, target_security
from minikafka.cli.shared.commands import (
    FAILURE,
    INTERRUPTED,
    OK,
    ProfileParser,
    add_command_config_option,
    as_json,
    ended_by_signals,
    read_text,
    write_text,
)
from minikafka.deferred import deferred
from minikafka.errors import ConfigError, MinikafkaError
from minikafka.loadgen import comparison
from minikafka.loadgen.comparison import SUITES, Entry, lines, spread
from minikafka.loadgen.report import Point, Result, page
from minikafka.units import format_rate

if TYPE_CHECKING:
    from minikafka.loadgen import recipes, runner
    from minikafka.loadgen.workload import Workload
else:  # so that the command line is there, and says what is missing, without the extra
    recipes = deferred("minikafka.loadgen.recipes", at_start_or_never=True)
    runner = deferred("minikafka.loadgen.runner", at_start_or_never=True)


PLAIN_INTERVAL_S = 5.0

PROG = "minikafka bench"
USAGE_ERROR = 2
EXTRAS = {
    "confluent_kafka": "confluent-kafka",
    "hdrh": "hdrhistogram",
    "plotly": "plotly",
    "yaml": "pyyaml",
}
"""Modules of the extra ``bench``, and the packages they come from."""


def show(events: Iterator[runner.Progress | Result]) -> Result:
    """Follow a run to its end; returns its result."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return _plain(events)
    with Live(console=console, transient=True, auto_refresh=False) as live:
        for event in events:
            if isinstance(event, Result):
                return event
            live.update(Text(line(event)), refresh=True)
    raise AssertionError("a run ends with a result")


def _plain(events: Iterator[runner.Progress | Result]) -> Result:
    shown_s, phase = 0.0, ""
    for event in events:
        if isinstance(event, Result):
            return event
        is_new = event.phase != phase or event.elapsed_s < shown_s
        if any(event.totals.values()) and (is_new or event.elapsed_s >= shown_s + PLAIN_INTERVAL_S):
            shown_s, phase = event.elapsed_s, event.phase
            print(line(event), file=sys.stderr, flush=True)
    raise AssertionError("a run ends with a result")


def line(progress: runner.Progress) -> str:
    """``run 12 s | produce 1,234,000: 103,000/s, 105 MB/s, p99 4.1 ms``."""
    flows = (_flow(name, point, progress.totals[name]) for name, point in progress.flows.items())
    return " | ".join([f"{progress.phase} {progress.elapsed_s:.0f} s", *flows])


def _flow(name: str, point: Point, total: int) -> str:
    text = f"{name} {total:,}: {point.records / runner.PROGRESS_S:,.0f}/s"
    if point.bytes:
        text += f", {format_rate(point.bytes / runner.PROGRESS_S)}"
    if point.p99_ms is not None:
        text += f", p50 {point.p50_ms:.1f} ms, p99 {point.p99_ms:.1f} ms"
    return text


def check_reports(*, json: str | None, html: str | None) -> None:
    """Before the work, not after it. Raises ConfigError: there is no directory for a report."""
    for option, name in (("--json", json), ("--html", html)):
        if name is not None and not Path(name).absolute().parent.is_dir():
            raise ConfigError(f"{option} {name}: there is no such directory")


def write_reports(results: Sequence[Result], *, document: object, json: str | None, html: str | None) -> None:
    """``document`` as JSON, ``results`` as a page. Raises CommandError."""
    if json == "-":
        print(as_json(document))
    elif json is not None:
        write_text(json, as_json(document) + "\n")
    if html is not None:
        write_text(html, page(results))


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


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka bench``."""
    from minikafka.cli.bench import options as bench_options
    from minikafka.loadgen.comparison import SUITES

    options = ProfileParser(
        prog=PROG,
        description="Benchmark of any Kafka-compatible broker.",
        epilog="Latencies count from when a record was due: a stall of the target shows in all of them.",
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="WORKLOAD")
    for name, purpose in bench_options.PURPOSES.items():
        each = actions.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
        bench_options.add_target_options(each)
        bench_options.add_workload_options(each, name)
    file = actions.add_parser(
        "run", help="a workload file like OpenMessaging Benchmark's", allow_abbrev=False
    )
    bench_options.add_target_options(file)
    file.set_defaults(target=None)
    file.add_argument("workload", metavar="WORKLOAD.yaml")
    file.add_argument("--driver", metavar="DRIVER.yaml", help="a driver file: client and topic properties")
    start = actions.add_parser("start", help="how soon a recipe's broker answers", allow_abbrev=False)
    start.add_argument("target", metavar="RECIPE")
    start.add_argument("--runs", type=int, default=5, metavar="N", help="how often (5)")
    compare = actions.add_parser("compare", help="two targets, run by run in turns", allow_abbrev=False)
    compare.add_argument("targets", nargs=2, metavar="TARGET", help="addresses or recipes; ratios are A / B")
    compare.add_argument(
        "--suite", required=True, metavar="NAME,…", help=f"what to run: {', '.join(SUITES)}; or all"
    )
    compare.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each target (5)")
    compare.add_argument("--duration", default="10", metavar="TIME", help="of each turn (10)")
    add_command_config_option(compare)
    bench_options.add_report_options(compare)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run a workload. Returns the exit status."""
    missing = [package for module, package in EXTRAS.items() if find_spec(module) is None]
    if missing:
        print(f"{PROG}: needs {', '.join(missing)}: pip install 'minikafka[bench]'", file=sys.stderr)
        return FAILURE
    options = parser()
    arguments = options.parse_args(argv)
    try:
        with ended_by_signals():  # brokers that a recipe has started would outlive us, and their data too
            return _act(arguments)
    except ConfigError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return USAGE_ERROR
    except MinikafkaError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED


def _act(arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "compare":
            return compare(arguments)
        case "start":
            return start(arguments)
        case _:
            return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from minikafka.cli.bench.options import target_security

    workload = _workload(arguments)
    check_reports(json=arguments.json, html=arguments.html)
    if arguments.brokers < 1:
        raise ConfigError(f"--brokers {arguments.brokers}: must be from 1")
    security = target_security(arguments)
    recipe = recipes.parse_target(arguments.target, pids=tuple(arguments.pid), security=security)
    recipes.prepare(recipe)
    with (
        recipes.running(recipe, arguments.target, brokers=arguments.brokers) as (target, _),
        Interruption() as interruption,
    ):
        events = runner.run(
            workload, target, timeout_s=arguments.timeout, is_interrupted=interruption.has_come
        )
        result = show(events)
    if arguments.json != "-":
        print("\n".join(result.lines()))
    write_reports([result], document=result, json=arguments.json, html=arguments.html)
    return status_of(result)


class Interruption:
    """The first Ctrl-C is noted, so that the run can be brought to an end; the second ends us."""

    def __init__(self) -> None:
        self._has_come = False

    def __enter__(self) -> Interruption:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._has_come = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def has_come(self) -> bool:
        return self._has_come


def status_of(result: Result) -> int:
    """Of a run: interrupted, failed, or well."""
    from minikafka.loadgen.runner import INTERRUPTED as BY_SIGNAL

    if BY_SIGNAL in result.problems:
        return INTERRUPTED
    return OK if result.is_ok else FAILURE


def _workload(arguments: argparse.Namespace) -> Workload:
    """Of the command line, or of the file; completes ``arguments.target``. Raises ConfigError."""
    from minikafka.cli.bench import options as bench_options
    from minikafka.cli.shared.commands import DEFAULT_BOOTSTRAP, CommandError

    if arguments.action != "run":
        return bench_options.workload_of(arguments.action, arguments)
    from minikafka.loadgen.omb import parse_workload

    try:
        text = read_text(arguments.workload)
        driver = read_text(arguments.driver) if arguments.driver is not None else None
    except CommandError as error:
        raise ConfigError(str(error)) from None
    beside = Path(arguments.workload).parent
    workload, bootstrap = parse_workload(
        text,
        name=Path(arguments.workload).stem if arguments.workload != "-" else "workload",
        driver=driver,
        read_bytes=lambda path: (beside / path).read_bytes(),
    )
    arguments.target = arguments.target or bootstrap or DEFAULT_BOOTSTRAP
    return workload
