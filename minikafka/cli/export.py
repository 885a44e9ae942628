"""``minikafka export``: records of log directories to Parquet, Iceberg or Delta, each exactly once.

Reads the files of a broker, ours or Apache Kafka's, never the broker. Run it again and it continues where it
stopped; killed at any moment, the next run puts things right. In the output, ``_minikafka/commits`` says
which offsets are there; in a table, the property ``minikafka.commit`` of its snapshots. Options of the same
names mean what they mean for ``spark.read.format("kafka-log")``.

Exit status: 0 all is exported, also when there was nothing new; 1 something could not be; 2 bad usage.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from minikafka.cli.shared.commands import ended_by_signals, parse_bytes
from minikafka.cli.shared.tables import (
    DELTA,
    ICEBERG,
    add_catalog_options,
    add_output_option,
    misplaced,
    open_tables,
)
from minikafka.errors import MinikafkaError
from minikafka.metrics.series import DAMAGED_BATCHES, LAST_SUCCESS, LOST_RECORDS
from minikafka.spark.runtime.job import FAILURE, OK, Job, JobError, add_job_options, run_job
from minikafka.spark.runtime.session import check_pyspark

if TYPE_CHECKING:
    from minikafka.spark.export.decoding import Format
    from minikafka.spark.export.job import ExportOptions
    from minikafka.spark.tables.table import Tables

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
PARQUET = "parquet"
FORMATS = (PARQUET, ICEBERG, DELTA)
RECORD_FORMATS = ("bytes", "string", "json", "avro", "protobuf")
TARGET_FILE_SIZE = "128MiB"
"""As Spark's ``maxPartitionBytes``: what a task of a query reads. Iceberg's default of 512 MiB is for tables
that are written once a day."""
MERGE_ON_READ = "merge-on-read"
MERGE_MODES = (MERGE_ON_READ, "copy-on-write")
INTERVAL = "10s"

_TIME = re.compile(r"(?P<count>\d+)\s*(?P<unit>ms|s|m|min|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

_OF_TABLES = ("catalog", "namespace", "partition_by", "upsert", "merge_mode", "expire_snapshots_older_than")


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka export``."""
    options = argparse.ArgumentParser(
        prog="minikafka export",
        description="Export the records of log directories to Parquet files, or to Apache Iceberg or Delta "
        "tables, each exactly once.",
        allow_abbrev=False,
    )
    options.add_argument("paths", nargs="+", metavar="DIR", help="log directories of one broker: paths, URIs")
    add_output_option(options)
    options.add_argument("--format", choices=FORMATS, default=PARQUET, help="of the output (parquet)")
    which = options.add_mutually_exclusive_group()
    which.add_argument("--topics", metavar="A,B", help="only these (all but Kafka's own)")
    which.add_argument("--topics-pattern", metavar="REGEX", help="only those whose whole name matches")
    options.add_argument(
        "--by", choices=("date", "hour"), help="Parquet: directories by day or hour, UTC (date)"
    )
    _add_format_options(options)
    options.add_argument(
        "--confluent",
        action="store_true",
        help="keys and values that have a schema begin with a schema registry's id",
    )
    options.add_argument(
        "--on-error",
        choices=("fail", "null", "column", "table"),
        help="a record that does not decode: fail; null in its place; null and why in a column (Parquet); "
        "or, of a table, into another one, TABLE_errors (Parquet: fail; tables: table)",
    )
    options.add_argument(
        "--on-corrupt", choices=("fail", "skip"), default="fail", help="a damaged batch (fail)"
    )
    options.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="leave out what a transaction aborted, and stop at open ones (read_committed)",
    )
    options.add_argument(
        "--latest",
        choices=("highWatermark", "auto", "logEnd"),
        default="highWatermark",
        help="up to where: the checkpointed high watermark, which brokers write every 5 s; the end of a log "
        "that was written to since (auto); or of any (logEnd). Above it records may still be replaced",
    )
    options.add_argument(
        "--compression", choices=COMPRESSIONS, default="zstd", help="of the Parquet files (zstd)"
    )
    options.add_argument("--continuous", action="store_true", help="run again and again, until a signal")
    options.add_argument(
        "--interval",
        type=parse_time_ms,
        default=parse_time_ms(INTERVAL),
        metavar="TIME",
        help=f"between the starts of two runs, such as 500ms, 10s, 5m ({INTERVAL})",
    )
    _add_table_options(options)
    add_job_options(options)
    return options


def _add_format_options(options: argparse.ArgumentParser) -> None:
    for side in ("key", "value"):
        options.add_argument(
            f"--{side}-format",
            action="append",
            default=[],
            metavar="[TOPIC=]FORMAT",
            help=f"what a {side} is: {', '.join(RECORD_FORMATS)} (bytes); again for single topics",
        )
        options.add_argument(
            f"--{side}-schema",
            action="append",
            default=[],
            metavar="[TOPIC=]FILE",
            help="json: a JSON Schema, or columns as 'id bigint, name string'; avro: .avsc; "
            "protobuf: .desc or .proto, with #MESSAGE where it has several; or a URL of a schema registry, "
            "such as http://registry:8081/subjects/orders-value",
        )


def _add_table_options(options: argparse.ArgumentParser) -> None:
    group = options.add_argument_group("Tables")
    add_catalog_options(group)
    group.add_argument(
        "--partition-by",
        metavar="TRANSFORMS",
        help="of new tables, such as 'day(timestamp), bucket(16, key)': year, month, day, hour, bucket, or a "
        "column",
    )
    group.add_argument(
        "--upsert",
        action="store_true",
        help="a table is the newest record of each key; a null value removes it",
    )
    group.add_argument(
        "--merge-mode",
        choices=MERGE_MODES,
        help="of --upsert into new Iceberg tables: leave files with older rows as they are and write "
        "position deletes (merge-on-read, the default), or write these files again (copy-on-write)",
    )
    group.add_argument(
        "--target-file-size",
        type=_bytes,
        default=parse_bytes(TARGET_FILE_SIZE),
        metavar="SIZE",
        help=f"of data files; many that are smaller are merged ({TARGET_FILE_SIZE})",
    )
    group.add_argument(
        "--expire-snapshots-older-than",
        type=parse_time_ms,
        metavar="TIME",
        help="such as 7d: forget older snapshots, and remove the files that only they need",
    )


def parse_time_ms(text: str) -> int:
    """``500ms``, ``10s``, ``5m``, ``12h``, ``7d``. Raises ArgumentTypeError."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 500ms, 10s, 5m, 12h or 7d")
    return int(match["count"]) * _UNIT_MS[match["unit"]]


def _bytes(text: str) -> int:
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least a byte")
    return size


def _check_options(options: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Ends the process where options contradict each other; fills in defaults that depend on the format."""
    if given.format == PARQUET:
        for name in _OF_TABLES:
            if getattr(given, name):
                options.error(f"--{name.replace('_', '-')} is for --format {ICEBERG} or {DELTA}")
        if given.on_error == "table":
            options.error(f"--on-error table is for --format {ICEBERG} or {DELTA}")
    else:
        if given.by is not None:
            options.error("--by is for Parquet; tables take --partition-by 'day(timestamp)'")
        if given.merge_mode is not None and not given.upsert:
            options.error("--merge-mode is for --upsert")
        if given.merge_mode == MERGE_ON_READ and given.format == DELTA:
            options.error(
                f"--merge-mode {MERGE_ON_READ} is for --format {ICEBERG}: delta-rs writes no deletion vectors"
            )
        if given.on_error == "column":
            options.error("--on-error column is for Parquet; of a table such records are in TABLE_errors")
    wrong = misplaced(given)
    if wrong is not None:
        options.error(wrong)
    given.by = given.by or "date"
    given.on_error = given.on_error or ("fail" if given.format == PARQUET else "table")


def main(argv: Sequence[str] | None = None) -> int:
    """Export what is new. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    _check_options(options, arguments)
    try:
        check_pyspark()
    except MinikafkaError as error:
        print(f"minikafka export: {error}", file=sys.stderr)
        return FAILURE
    from minikafka.spark.export.decoding import parse_formats
    from minikafka.spark.export.record_schemas import fetched

    try:
        keys = parse_formats(arguments.key_format, arguments.key_schema, "key")
        values = parse_formats(arguments.value_format, arguments.value_schema, "value")
    except JobError as error:
        options.error(str(error))
    with ended_by_signals(), TemporaryDirectory(prefix="minikafka-export-") as directory:
        place = Path(directory)
        return run_job(
            "export",
            arguments,
            lambda job: _run(job, arguments, fetched(keys, place), fetched(values, place)),
        )


def _run(
    job: Job,
    arguments: argparse.Namespace,
    keys: Mapping[str | None, Format],
    values: Mapping[str | None, Format],
) -> int:
    from minikafka.spark.export.decoding import OnError, TopicFormat, format_of
    from minikafka.spark.export.job import ExportOptions

    selection = {"subscribe": arguments.topics, "subscribePattern": arguments.topics_pattern}
    is_table = arguments.on_error == "table"
    wanted = ExportOptions(
        paths=arguments.paths,
        output=arguments.output or "",
        selection={name: text for name, text in selection.items() if text is not None},
        by=arguments.by,
        isolation=arguments.isolation,
        latest=arguments.latest,
        on_corrupt=arguments.on_corrupt,
        on_error=OnError.COLUMN if is_table else OnError(arguments.on_error),
        format_of=lambda topic: TopicFormat(format_of(topic, keys, "key"), format_of(topic, values, "value")),
        confluent=arguments.confluent,
        compression=arguments.compression,
    )
    tables = None if arguments.format == PARQUET else open_tables(arguments)
    while True:
        began_s = time.monotonic()
        if tables is None:
            _export_files(job, wanted)
        else:
            _export_tables(job, arguments, wanted, tables)
        if not arguments.continuous:
            _tell_losses(job)
            return OK
        job.counters.set(LAST_SUCCESS, time.time())
        pause(max(0.0, arguments.interval / 1000 - (time.monotonic() - began_s)))


def pause(seconds: float) -> None:
    """Between two runs."""
    time.sleep(seconds)


def _tell_losses(job: Job) -> None:
    for topic, lost in job.counters.of_topics(LOST_RECORDS):
        if lost:
            print(f"minikafka export: {topic}: {lost:.0f} offsets were gone before this run", file=sys.stderr)
    for topic, damaged in job.counters.of_topics(DAMAGED_BATCHES):
        if damaged:
            print(
                f"minikafka export: {topic or 'all topics'}: {damaged:.0f} damaged batches were left out; "
                "minikafka dump-log --verify says which",
                file=sys.stderr,
            )


def _export_files(job: Job, wanted: ExportOptions) -> None:
    from minikafka.spark.export.job import export

    commit = export(job, wanted)
    if commit is None:
        print("nothing new" + _hint(wanted.latest), flush=True)
    else:
        print(f"{commit.records:,} records in {len(commit.files)} files, commit {commit.number}", flush=True)


def _export_tables(job: Job, arguments: argparse.Namespace, wanted: ExportOptions, tables: Tables) -> None:
    from minikafka.spark.tables.job import TableOptions, export_tables
    from minikafka.spark.tables.table import parse_partitions

    text = arguments.partition_by
    options = TableOptions(
        export=wanted,
        partitions=parse_partitions(text) if text is not None else None,
        is_upsert=arguments.upsert,
        merge_mode=arguments.merge_mode,
        keeps_errors=arguments.on_error == "table",
        target_bytes=arguments.target_file_size,
        expire_after_ms=arguments.expire_snapshots_older_than,
    )
    commits = export_tables(job, options, tables)
    for each in commits:
        errors = f", {each.errors:,} of them into its errors table" if each.errors else ""
        done = each.progress
        print(f"{each.table}: {done.records:,} records{errors}, commit {done.number}", flush=True)
    if not commits:
        print("nothing new" + _hint(wanted.latest), flush=True)


def _hint(latest: str) -> str:
    if latest != "highWatermark":
        return ""
    return " below the checkpointed high watermark (a broker writes it every 5 s; see --latest)"


if __name__ == "__main__":
    sys.exit(main())
