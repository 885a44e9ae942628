"""``minikafka analyze``: what is in log directories, and whether replicas are the same. Uses Spark.

Reads Kafka's files straight from storage, ours or Apache Kafka's; a broker may be running on them. Nothing
is changed in them, and nothing is written but what ``--output``, ``--html``, ``--json`` and ``--parquet``
name; the terminal is told at the end what was found, with a table of topics.
``minikafka.spark.analyze.analysis`` says what the figures are.

Exit status: 0 done; 1 it cannot be done, in one line; 2 bad usage.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from minikafka.cli.shared.commands import CommandError, ended_by_signals, write_text
from minikafka.config.broker import broker_config
from minikafka.config.loader import load
from minikafka.errors import MinikafkaError
from minikafka.files import make_private_directory
from minikafka.metrics.series import BATCHES, BYTES, DAMAGED_BATCHES, PARTITIONS, RECORDS
from minikafka.spark.analyze.analysis import Analysis, Topic
from minikafka.spark.analyze.findings import where
from minikafka.spark.runtime.job import FAILURE, INTERRUPTED, OK, Job, add_job_options, run_job
from minikafka.spark.runtime.session import check_pyspark
from minikafka.units import format_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from minikafka.spark.analyze.job import Prepared
    from minikafka.spark.runtime.job import JobCounters


WIDTH = 160
"""Columns of a table that goes to a file."""

TOPICS_MAX = 30
"""Rows, the largest topics; the report has all."""

FINDINGS_MAX = 30
"""The gravest; the report has all, and what to do."""

STYLES = {"error": "red", "warning": "yellow", "notice": "default"}

EVERY_TOPIC = "*"


# What is said at the end


def print_summary(analysis: Analysis, written: Sequence[str], console: Console | None = None) -> None:
    """The findings, a table, and where the rest is."""
    out = console or (Console() if sys.stdout.isatty() else Console(width=WIDTH))
    for each in analysis.findings[:FINDINGS_MAX]:
        line = f"{each.severity}: {where(each)}: {each.seen}"
        out.print(f"[{STYLES[each.severity]}]{escape(line)}[/]", soft_wrap=True)
    if len(analysis.findings) > FINDINGS_MAX:
        out.print(f"and {len(analysis.findings) - FINDINGS_MAX:,} more findings, in the report")
    table = Table()
    for column in ("topic", "partitions", "records", "bytes", "batches", "fill", "ratio", "keys", "top keys",
                   "tombstones", "compaction saves"):  # fmt: skip
        table.add_column(column, justify="left" if column == "topic" else "right")
    largest = sorted(analysis.topics, key=lambda topic: -topic.bytes)
    for topic in largest[:TOPICS_MAX]:
        table.add_row(*_row(topic))
    out.print(table)
    if len(largest) > TOPICS_MAX:
        out.print(f"and {len(largest) - TOPICS_MAX} smaller topics")
    if analysis.replicas is not None and not any(each.differences for each in analysis.replicas):
        batches = sum(each.batches for each in analysis.replicas)
        out.print(f"replicas: {batches:,} batches of {len(analysis.replicas):,} partitions are the same")
    for path in written:
        out.print(f"written: {escape(path)}", soft_wrap=True)


def _mean_fill(topic: Topic) -> float:
    """Over the topic's batches; each partition counts by how many it has."""
    filled = sum(each.fill.fill * each.batches for each in topic.partitions if each.fill is not None)
    return filled / topic.batches


def _row(topic: Topic) -> tuple[str, ...]:
    trials = [each.trial for each in topic.partitions if each.trial is not None and each.trial.stored_bytes]
    shares = [each.keys.top_share for each in topic.partitions if each.keys is not None and each.keys.top]
    stored, plain = sum(each.stored_bytes for each in trials), sum(each.plain_bytes for each in trials)
    return (
        escape(topic.name),
        f"{len(topic.partitions):,}",
        f"{topic.records:,}",
        format_bytes(topic.bytes),
        f"{topic.batches:,}",
        f"{_mean_fill(topic):.0%}" if topic.batches else "",
        f"{plain / stored:.2f}" if stored else "",
        "" if topic.keys is None else f"{topic.keys:,}",
        f"{max(shares):.0%}" if shares else "",
        f"{topic.tombstones:,}",
        format_bytes(topic.compaction_saves_bytes),
    )


# The command


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``spark/analyze/job`` with ``argv`` (by default the process's); returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    if not arguments.directories and not arguments.brokers:
        options.error("name a log directory")
    try:
        check_pyspark()
        _check_outputs(arguments)
        prepared = _prepare(arguments)
    except MinikafkaError as error:
        print(f"minikafka analyze: {error}", file=sys.stderr)
        return FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED
    with ended_by_signals():
        return run_job("analyze", arguments, lambda job: _analyze(job, prepared, arguments))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minikafka analyze",
        description="Analyze log directories: sizes, keys, codecs, order, transactions, damage, "
        "retention; given those of several brokers, also whether their replicas are the same.",
    )
    parser.add_argument("directories", nargs="*", metavar="DIR", help="a log directory, or a URI of one")
    parser.add_argument(
        "--brokers",
        type=_brokers,
        action="extend",
        default=[],
        metavar="ID=DIR,…",
        help="log directories with their brokers, where meta.properties does not say",
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="TOPIC", help="only this one; repeatable"
    )
    results = parser.add_argument_group("results, besides a table on the terminal")
    results.add_argument(
        "--output",
        metavar="DIR",
        help="report.html, report.json and the tables into this directory, or URI (s3a://)",
    )
    results.add_argument("--html", metavar="FILE", help="the report, one file that opens anywhere")
    results.add_argument("--json", metavar="FILE", help="every figure as JSON")
    results.add_argument("--parquet", metavar="DIR", help="the figures as tables")
    settings = parser.add_argument_group(
        "settings of the topics", "log directories do not hold them; Kafka's defaults unless given"
    )
    settings.add_argument("--retention-ms", metavar="MS", help="retention.ms of all topics")
    settings.add_argument("--retention-bytes", metavar="N", help="retention.bytes of all topics")
    settings.add_argument(
        "--config",
        action="append",
        type=_topic_setting,
        default=[],
        metavar="TOPIC:KEY=VALUE",
        help="a property of one topic, or of all (*:KEY=VALUE); repeatable",
    )
    settings.add_argument(
        "--broker-config", metavar="FILE", help="the broker's server.properties, for its defaults"
    )
    settings.add_argument(
        "--batch-size", type=_positive, metavar="N", help="the producers' batch.size, for batch fill (16384)"
    )
    parser.add_argument("--top-keys", type=_positive, metavar="N", help="keys to name of each partition (10)")
    add_job_options(parser)
    return parser


def _brokers(text: str) -> list[tuple[int, str]]:
    found = []
    for each in text.split(","):
        broker, separator, path = each.partition("=")
        if not (separator and broker.strip().isascii() and broker.strip().isdigit() and path.strip()):
            raise argparse.ArgumentTypeError(f"{each!r} is not ID=DIR, such as 1=/var/lib/kafka")
        found.append((int(broker), path.strip()))
    return found


def _topic_setting(text: str) -> tuple[str, str, str]:
    topic, colon, setting = text.partition(":")
    name, separator, value = setting.partition("=")
    if not (colon and topic.strip() and separator and name.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not TOPIC:KEY=VALUE, such as orders:retention.ms=1000")
    return topic.strip(), name.strip(), value.strip()


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _prepare(arguments: argparse.Namespace) -> Prepared:
    """Raises MinikafkaError."""
    from minikafka.spark.analyze.inputs import NamedDirectory
    from minikafka.spark.analyze.job import BATCH_SIZE, TOP_KEYS, Request, prepare

    overrides: dict[str, dict[str, str]] = {EVERY_TOPIC: {}}
    for name, value in (
        ("retention.ms", arguments.retention_ms),
        ("retention.bytes", arguments.retention_bytes),
    ):
        if value is not None:
            overrides[EVERY_TOPIC][name] = value
    for topic, name, value in arguments.config:
        overrides.setdefault(topic, {})[name] = value
    file = arguments.broker_config
    request = Request(
        directories=(
            *(NamedDirectory(path) for path in arguments.directories),
            *(NamedDirectory(path, broker) for broker, path in arguments.brokers),
        ),
        topics=tuple(dict.fromkeys(arguments.topic)),
        topic_overrides=overrides,
        broker=broker_config({}) if file is None else load(path=file).config,
        broker_source=file or "",
        batch_size=arguments.batch_size or BATCH_SIZE,
        top_keys=arguments.top_keys or TOP_KEYS,
    )
    return prepare(request)


def _analyze(job: Job, prepared: Prepared, arguments: argparse.Namespace) -> int:
    from minikafka.spark.analyze.job import analyze

    _open_stores(job.spark, arguments)
    analysis = analyze(job.spark, prepared, now_ms=time.time_ns() // 1_000_000, phase=job.progress.phase)
    _count(job.counters, analysis)
    print_summary(analysis, _write(job.spark, analysis, arguments))
    return OK


def _count(counters: JobCounters, analysis: Analysis) -> None:
    """For Prometheus."""
    for topic in analysis.topics:
        counters.add(RECORDS, topic.records, topic=topic.name)
        counters.add(BYTES, topic.bytes, topic=topic.name)
        counters.add(BATCHES, topic.batches, topic=topic.name)
        counters.add(PARTITIONS, len(topic.partitions), topic=topic.name)
        damaged = sum(len(each.damage) + each.damage_left_out for each in topic.partitions)
        counters.add(DAMAGED_BATCHES, damaged, topic=topic.name)


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Before the work, not after it. Raises CommandError, UnusableLocation."""
    for option in ("html", "json"):
        path = getattr(arguments, option)
        if path is None or _is_uri(path):
            continue
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise CommandError(f"--{option} {path}: there is no such directory")
    for option in ("output", "parquet"):
        path = getattr(arguments, option)
        if path is not None and not _is_uri(path) and os.path.exists(path) and not os.path.isdir(path):
            raise CommandError(f"--{option} {path}: is not a directory")


def _is_uri(path: str) -> bool:
    from minikafka.spark.runtime.storage import location

    return bool(path) and location(path).is_uri


def _open_stores(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Those of outputs that are URIs, also before the work. Raises JobError: one cannot be written."""
    from minikafka.spark.runtime.storage import HadoopFiles, location

    for option in ("output", "parquet", "html", "json"):
        path = getattr(arguments, option)
        if path is not None and _is_uri(path):
            place = location(path)
            HadoopFiles((place if option in ("output", "parquet") else place.parent()).text, spark)


def _write(spark: SparkSession, analysis: Analysis, arguments: argparse.Namespace) -> list[str]:
    """Write what was asked for; returns the paths. Raises CommandError, JobError."""
    from minikafka.spark.analyze.analysis import encode
    from minikafka.spark.analyze.report import render, write_tables

    html, json, parquet = (
        [path] if path else [] for path in (arguments.html, arguments.json, arguments.parquet)
    )
    try:
        if arguments.output is not None:
            if not _is_uri(arguments.output):
                make_private_directory(arguments.output)
            html.append(os.path.join(arguments.output, "report.html"))
            json.append(os.path.join(arguments.output, "report.json"))
            parquet.append(arguments.output)
        for path in html:
            _write_text(spark, path, render(analysis))
        for path in json:
            _write_text(spark, path, encode(analysis).decode())
        for path in parquet:
            if _is_uri(path):
                _upload_tables(spark, path, analysis)
            else:
                write_tables(analysis, path)
    except OSError as error:
        raise CommandError(f"cannot write {error.filename}: {error.strerror or error}") from None
    return [*html, *json, *parquet]


def _write_text(spark: SparkSession, path: str, text: str) -> None:
    """Raises CommandError, JobError."""
    from minikafka.spark.runtime.storage import HadoopFiles, location

    if _is_uri(path):
        HadoopFiles(location(path).parent().text, spark).write(os.path.basename(path), text.encode())
    else:
        write_text(path, text)


def _upload_tables(spark: SparkSession, path: str, analysis: Analysis) -> None:
    """Raises JobError."""
    from minikafka.spark.analyze.report import parquet_files
    from minikafka.spark.runtime.storage import HadoopFiles, location

    files = HadoopFiles(location(path).text, spark)
    for name, data in parquet_files(analysis).items():
        files.write(name, data.to_pybytes())


if __name__ == "__main__":
    sys.exit(main())
