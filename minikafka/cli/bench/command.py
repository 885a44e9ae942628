"""``minikafka bench``: a load generator for any Kafka-compatible broker, driven by librdkafka.

Subcommands are workloads (``produce``, ``latency``, …), ``run`` for a workload file in OpenMessaging
Benchmark's shape, ``compare`` for two targets run by run, ``start`` for how soon a recipe's broker answers.

Exit status: 0 when all went well and the counts agree, 1 when the target could not be reached, died, or
the counts differ, 2 for bad usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from minikafka.cli.shared.commands import (
    FAILURE,
    INTERRUPTED,
    OK,
    add_command_config_option,
    ended_by_signals,
    read_text,
)
from minikafka.cli.shared.profiles import ProfileParser
from minikafka.errors import ConfigError, MinikafkaError

if TYPE_CHECKING:
    from minikafka.loadgen.report import Result
    from minikafka.loadgen.workload import Workload

PROG = "minikafka bench"
USAGE_ERROR = 2
EXTRAS = {
    "confluent_kafka": "confluent-kafka",
    "hdrh": "hdrhistogram",
    "plotly": "plotly",
    "yaml": "pyyaml",
}
"""Modules of the extra ``bench``, and the packages they come from."""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka bench``."""
    from minikafka.cli.bench import options as bench_options
    from minikafka.loadgen.suites import SUITES

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
            from minikafka.cli.bench import compare as bench_compare

            return bench_compare.compare(arguments)
        case "start":
            from minikafka.cli.bench import compare as bench_compare

            return bench_compare.start(arguments)
        case _:
            return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from minikafka.cli.bench.options import target_security
    from minikafka.cli.bench.view import check_reports, show, write_reports
    from minikafka.loadgen import recipes, runner

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
