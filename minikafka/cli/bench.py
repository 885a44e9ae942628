"""``minikafka bench``: a load generator for any Kafka-compatible broker, driven by librdkafka.

Subcommands are workloads (``produce``, ``latency``, …), ``run`` for a workload file in OpenMessaging
Benchmark's shape, ``compare`` for two targets run by run, ``start`` for how soon a recipe's broker answers.
Which options a workload has, and what they come to, is at the end.

During a run, a terminal shows one line that is kept up to date; elsewhere there is a plain line every few
seconds. Both go to standard error, so that standard output is the report.

Exit status: 0 when all went well and the counts agree, 1 when the target could not be reached, died, or
the counts differ, 2 for bad usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from minikafka.cli.shared.commands import (
    DEFAULT_BOOTSTRAP,
    FAILURE,
    INTERRUPTED,
    OK,
    CommandError,
    ProfileParser,
    add_command_config_option,
    as_json,
    bootstrap_of,
    ended_by_signals,
    parse_bytes,
    read_text,
    write_text,
)
from minikafka.deferred import deferred
from minikafka.errors import ConfigError, MinikafkaError
from minikafka.loadgen import comparison
from minikafka.loadgen.comparison import SUITES, Entry, lines, spread
from minikafka.loadgen.report import Point, Result, page
from minikafka.loadgen.workload import (
    DURATION_S,
    Kind,
    Workload,
    checked,
    key_picker,
    parse_recording,
    parse_workload,
    value_maker,
)
from minikafka.units import format_rate

if TYPE_CHECKING:
    from minikafka.loadgen import runner, targets
else:
    targets = deferred("minikafka.loadgen.targets", at_start_or_never=True)
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

PURPOSES = {
    "produce": "records, as fast as the target takes them or at a rate",
    "consume": "reads what it has produced before, or a topic that is there",
    "latency": "end to end at a fixed rate; every latency counts from when the record was due",
    "fanout": "every record is consumed by many subscriptions",
    "connections": "opens many connections, and asks on all of them",
    "partitions": "creates many partitions, and produces to all of them",
    "groups": "forms consumer groups; their members join and commit",
    "requests": "one record a request",
    "replay": "a recorded rate: rows of seconds,records[,bytes], CSV or JSON",
    "soak": "a long run at a fixed rate, end to end",
}

_DEFAULTS: dict[str, dict[str, Any]] = {
    "produce": {"kind": Kind.PRODUCE, "linger_ms": 5.0},
    "consume": {"kind": Kind.CONSUME, "records": None, "linger_ms": 5.0},
    "latency": {"kind": Kind.STREAM, "rate": 1000.0, "warm_up": 2.0},
    "fanout": {"kind": Kind.STREAM, "rate": 100.0, "subscriptions": 10, "warm_up": 2.0},
    "connections": {"kind": Kind.CONNECTIONS, "consumers": 100, "rate": 100.0},
    "partitions": {"kind": Kind.PRODUCE, "partitions": 1000, "rate": 1000.0, "linger_ms": 5.0},
    "groups": {"kind": Kind.GROUPS, "groups": 1, "consumers": 10, "partitions": 10},
    "requests": {"kind": Kind.PRODUCE, "record_size": "100", "in_flight": 1000},
    "replay": {"kind": Kind.STREAM},
    "soak": {"kind": Kind.STREAM, "rate": 1000.0, "duration": "1h", "warm_up": 10.0},
}
"""What differs from ``_GENERAL`` for a subcommand."""

_GENERAL: dict[str, Any] = {
    "topics": 1, "partitions": 1, "replication_factor": 1, "producers": 1, "subscriptions": 1, "consumers": 1,
    "groups": 1, "processes": 0, "record_size": "1024", "keys": "none", "compressibility": "0", "seed": 1,
    "rate": 0.0, "duration": "0", "records": 0, "warm_up": 0.0, "in_flight": 50_000, "acks": "1",
    "linger_ms": 0.0, "compression": "none", "give_up_after": 5.0,
}  # fmt: skip

CONSUMED_RECORDS = 1_000_000
"""What ``consume`` produces before, unless a topic is named."""
ONE_RECORD = {"batch.num.messages": "1"}
_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

_PRODUCING = tuple(name for name in PURPOSES if name not in ("connections", "groups"))
_STREAMING = ("latency", "fanout", "replay", "soak")
_CONSUMING = ("consume", "groups", *_STREAMING)
_RATES = {"connections": "requests of all connections together, a second; 0: only open them",
          "groups": "commits of all members together, a second; 0: each about one"}  # fmt: skip


# The command


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka bench``."""
    options = ProfileParser(
        prog=PROG,
        description="Benchmark of any Kafka-compatible broker.",
        epilog="Latencies count from when a record was due: a stall of the target shows in all of them.",
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="WORKLOAD")
    for name, purpose in PURPOSES.items():
        each = actions.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
        add_target_options(each)
        add_workload_options(each, name)
    file = actions.add_parser(
        "run", help="a workload file like OpenMessaging Benchmark's", allow_abbrev=False
    )
    add_target_options(file)
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
    add_report_options(compare)
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

    workload = _workload(arguments)
    check_reports(json=arguments.json, html=arguments.html)
    if arguments.brokers < 1:
        raise ConfigError(f"--brokers {arguments.brokers}: must be from 1")
    security = target_security(arguments)
    recipe = targets.parse_target(arguments.target, pids=tuple(arguments.pid), security=security)
    targets.prepare(recipe)
    with (
        targets.running(recipe, arguments.target, brokers=arguments.brokers) as (target, _),
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
    if arguments.action != "run":
        return workload_of(arguments.action, arguments)
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


# Compare and start


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
        comparison.Contestant(text, targets.parse_target(text, security=security))
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
    recipe = targets.parse_target(arguments.target)
    if isinstance(recipe, targets.Address):
        raise ConfigError(f"target {arguments.target}: only a recipe can be started")
    if arguments.runs < 1:
        raise ConfigError(f"--runs {arguments.runs}: must be from 1")
    targets.prepare(recipe)
    seconds = []
    for _ in range(arguments.runs):
        with targets.running(recipe, arguments.target) as (_, start_s):
            seconds.append(start_s)
            print(f"{arguments.target}: first answer after {start_s:.3f} s")
    summary = spread(seconds)
    assert summary is not None
    print(f"median {summary.text()} s")
    return OK


# Progress and reports


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


# The options of workloads


def add_target_options(options: argparse.ArgumentParser) -> None:
    """Where the target is, and what to do with the report."""
    options.add_argument(
        "--target", "-t", "--bootstrap-server", "-b", default=DEFAULT_BOOTSTRAP, metavar="TARGET",
        help="HOST:PORT, or a recipe: minikafka, minikafka:COMMAND, mock, kafka:DIR, kafka:maven:VERSION "
        f"(bootstrap.servers of --command-config; without that file {DEFAULT_BOOTSTRAP})",
    )  # fmt: skip
    add_command_config_option(options)
    options.add_argument("--brokers", type=int, default=1, metavar="N", help="how many a recipe starts (1)")
    options.add_argument(
        "--pid", type=int, action="append", default=[], metavar="PID",
        help="a process of the target, for its CPU and memory; may be repeated (a recipe's are known)",
    )  # fmt: skip
    options.add_argument(
        "--timeout", type=float, default=10.0, metavar="S", help="how long to wait for the first answer (10)"
    )
    add_report_options(options)


def target_security(arguments: argparse.Namespace) -> dict[str, str]:
    """librdkafka's properties of ``--command-config``. Completes ``arguments.target``, where there is one.

    Raises:
        ConfigError: the file's, or that neither the command line nor the file names a target.
    """
    if not arguments.command_config:
        return {}
    from minikafka.cli.shared.client_properties import librdkafka_options, read_client_properties

    properties = read_client_properties(arguments.command_config)
    if "target" in arguments:
        try:
            arguments.target = bootstrap_of(
                arguments.target, arguments.command_config, properties, option="--target"
            )
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return librdkafka_options(properties)


def add_report_options(options: argparse.ArgumentParser) -> None:
    """``--json`` and ``--html``."""
    options.add_argument("--json", metavar="FILE", help="write the report as JSON; - for standard output")
    options.add_argument("--html", metavar="FILE", help="write a page with plots, which needs nothing else")


def add_workload_options(options: argparse.ArgumentParser, name: str) -> None:
    """The options of one subcommand, with its defaults."""
    defaults = _GENERAL | _DEFAULTS[name]

    def add(option: str, help: str, kind: Callable[[str], Any] = int, metavar: str = "N") -> None:
        default = defaults[option.removeprefix("--").replace("-", "_")]
        shown = f"{default:g}" if isinstance(default, float) else default
        options.add_argument(option, type=kind, default=default, metavar=metavar, help=f"{help} ({shown})")

    if name != "replay":  # which goes by its recording
        options.add_argument(
            "--duration", default=defaults["duration"], metavar="TIME",
            help=f"how long, after the warm-up: 30, 500ms, 5min, 2h ({_shown_duration(name)})",
        )  # fmt: skip
    add("--warm-up", "seconds before, sent but not measured", float, "S")
    if name not in ("replay", "consume"):
        general = "of all clients together, a second; 0: as fast as it goes"
        add("--rate", _RATES.get(name, general), float, "R")
    add("--processes", "worker processes of each kind; 0: as many as cores")
    add("--give-up-after", "end when no broker could be reached for so long", float, "S")
    if name != "connections":
        options.add_argument(
            "--topic", metavar="NAME", help="use this topic, instead of one made for the run"
        )
        options.add_argument("--keep-topics", action="store_true", help="do not delete the topics made")
        add("--topics", "how many topics")
        add("--partitions", "of each topic")
        add("--replication-factor", "of topics that are made")
        options.add_argument(
            "--topic-config",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="of topics that are made",
        )
    if name in _PRODUCING:
        _add_record_options(options, add, name)
    if name in ("consume", *_STREAMING):
        add("--subscriptions", "how many times every record is consumed")
        add("--consumers", "consumers of each subscription, which share its partitions")
    if name == "connections":
        options.add_argument(
            "--connections", dest="consumers", type=int, default=defaults["consumers"], metavar="N",
            help=f"how many ({defaults['consumers']})",
        )  # fmt: skip
    if name == "groups":
        add("--groups", "how many groups")
        add("--consumers", "members of each group")
    for side, users in (("producer", [*_PRODUCING, "connections"]), ("consumer", _CONSUMING)):
        if name not in users:
            continue
        options.add_argument(
            f"--{side}-property", action="append", default=[], metavar="NAME=VALUE",
            help=f"a property of librdkafka's {side}s; may be repeated",
        )  # fmt: skip
    if name == "replay":
        options.add_argument("recording", metavar="FILE", help="CSV or JSON")
        options.add_argument("--speed", type=float, default=1.0, metavar="F", help="2: in half the time (1)")


def _shown_duration(name: str) -> str:
    """What it is unless it is given."""
    if name == "consume":
        return "each record once; else from the beginning again and again"
    given = _DEFAULTS[name].get("duration", f"{DURATION_S:g}")
    return f"{given}, or what --records takes" if name in _PRODUCING else given


def _add_record_options(options: argparse.ArgumentParser, add: Callable[..., None], name: str) -> None:
    if name == "consume":
        options.add_argument(
            "--records", type=int, metavar="N",
            help=f"how many to produce before ({CONSUMED_RECORDS}; 0 with --topic, which is read as it is)",
        )  # fmt: skip
    elif name != "replay":
        add("--records", "how many; 0: as many as the duration takes")
    sizes = "1024, 10KB, uniform:LOW-HIGH, normal:MEAN,DEVIATION, lognormal:MEDIAN,SIGMA"
    add("--record-size", sizes, str, "SIZE")
    add("--keys", "none, sequential:COUNT, uniform:COUNT, zipf:COUNT,EXPONENT", str, "KEYS")
    add("--compressibility", "share of repeated bytes, 0 to 1, or a distribution", str, "SHARE")
    options.add_argument("--payload-file", metavar="FILE", help="every record's value")
    add("--seed", "of sizes, keys and payloads: the same again")
    add("--producers", "how many")
    if name != "replay":
        add("--in-flight", "records under way for each producer without a rate")
    add("--acks", "0, 1 or all", str, "ACKS")
    add("--linger-ms", "how long a producer collects a batch", float, "MS")
    add("--compression", "none, gzip, snappy, lz4, zstd", str, "CODEC")


def workload_of(name: str, arguments: argparse.Namespace) -> Workload:
    """What the command line says. Raises ConfigError: names the option."""
    given = argparse.Namespace(**(_GENERAL | _DEFAULTS[name] | {"topic": None, "keep_topics": False}))
    given.topic_config, given.payload_file = [], None
    given.producer_property, given.consumer_property = [], []
    for option, value in vars(arguments).items():
        setattr(given, option, value)
    if given.records is None:
        given.records = CONSUMED_RECORDS if given.topic is None else 0
    producer = {
        "acks": given.acks,
        "linger.ms": f"{given.linger_ms:g}",
        "compression.type": given.compression,
    }
    if name == "requests":
        producer |= ONE_RECORD
    workload = Workload(
        name=name,
        kind=given.kind,
        topic=given.topic,
        topics=given.topics,
        partitions=given.partitions,
        replication_factor=given.replication_factor,
        topic_config=_properties("--topic-config", given.topic_config),
        keeps_topics=given.keep_topics,
        producers=given.producers,
        subscriptions=given.subscriptions,
        consumers=given.consumers,
        groups=given.groups,
        processes=given.processes,
        record_size=_size(given.record_size),
        keys=given.keys,
        compressibility=given.compressibility,
        payload=read_bytes("--payload-file", given.payload_file) if given.payload_file else None,
        seed=given.seed,
        rate=given.rate,
        recording=_recording(given) if name == "replay" else [],
        duration_s=parse_duration("--duration", given.duration),
        records=given.records,
        warmup_s=given.warm_up,
        in_flight_max=given.in_flight,
        producer_config=producer | _properties("--producer-property", given.producer_property),
        consumer_config=_properties("--consumer-property", given.consumer_property),
        give_up_s=given.give_up_after,
    )
    # Said here, in one line, rather than by a worker process.
    value_maker(workload.record_size, workload.compressibility, random.Random(0))
    key_picker("--keys", workload.keys, random.Random(0))
    return checked(workload)


def parse_duration(option: str, text: str) -> float:
    """``30``, ``500ms``, ``5min``, ``2h`` in seconds. Raises ConfigError."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(number) * _UNITS[text[len(number) :]]
    except (KeyError, ValueError):
        raise ConfigError(f"{option} {text}: must be seconds, or like 500ms, 5min, 2h") from None


def read_bytes(option: str, path: str) -> bytes:
    """Raises ConfigError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from None


def _recording(given: argparse.Namespace) -> Any:
    if not given.speed > 0:
        raise ConfigError(f"--speed {given.speed:g}: must be above 0")
    text = read_bytes("FILE", given.recording).decode(errors="replace")
    return parse_recording(text, name=given.recording, speed=given.speed)


def _size(text: str) -> str:
    """Bytes with a unit as a plain number; distributions as they are."""
    if ":" in text:
        return text
    try:
        return str(parse_bytes(text))
    except ValueError as error:
        raise ConfigError(f"--record-size {error}, or a distribution like uniform:100-2000") from None


def _properties(option: str, settings: list[str]) -> dict[str, str]:
    properties = {}
    for setting in settings:
        name, found, value = setting.partition("=")
        if not found or not name:
            raise ConfigError(f"{option} {setting}: must be NAME=VALUE")
        properties[name] = value
    return properties
