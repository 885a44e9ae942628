"""The command lines of ``minikafka bench``'s workloads, and the workload that each stands for."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minikafka.cli.shared.commands import (
    DEFAULT_BOOTSTRAP,
    add_command_config_option,
    bootstrap_of,
    parse_bytes,
)
from minikafka.errors import ConfigError
from minikafka.loadgen.payloads import key_picker, value_maker
from minikafka.loadgen.workload import DURATION_S, Kind, Workload, checked, parse_recording

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
