"""``minikafka export``: records of log directories to Parquet, by topic and date or hour, each exactly once.

Reads the files of a broker, ours or Apache Kafka's, never the broker. Run it again and it continues where it
stopped; killed at any moment, the next run puts things right. In the output, ``_minikafka/commits`` says
which offsets are there. Options of the same names mean what they mean for ``spark.read.format("kafka-log")``.

Exit status: 0 all is exported, also when there was nothing new; 1 something could not be; 2 bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from minikafka.cli.shared.commands import ended_by_signals
from minikafka.spark.export.decoding import Format, Kind, TopicFormat, format_of, parse_formats
from minikafka.spark.runtime.job import OK, Job, JobError, add_job_options, run_job

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka export``."""
    options = argparse.ArgumentParser(
        prog="minikafka export",
        description="Export the records of log directories to Parquet, each exactly once.",
        allow_abbrev=False,
    )
    options.add_argument("paths", nargs="+", metavar="DIR", help="log directories of one broker: paths, URIs")
    options.add_argument(
        "--output", "-o", required=True, metavar="DIR", help="a directory, or a URI (s3a://)"
    )
    which = options.add_mutually_exclusive_group()
    which.add_argument("--topics", metavar="A,B", help="only these (all but Kafka's own)")
    which.add_argument("--topics-pattern", metavar="REGEX", help="only those whose whole name matches")
    options.add_argument(
        "--by", choices=("date", "hour"), default="date", help="directories by day or hour, UTC"
    )
    for side in ("key", "value"):
        options.add_argument(
            f"--{side}-format",
            action="append",
            default=[],
            metavar="[TOPIC=]FORMAT",
            help=f"what a {side} is: {', '.join(Kind)} (bytes); again for single topics",
        )
        options.add_argument(
            f"--{side}-schema",
            action="append",
            default=[],
            metavar="[TOPIC=]FILE",
            help="json: a JSON Schema, or columns as 'id bigint, name string'; avro: .avsc; "
            "protobuf: .desc or .proto, with #MESSAGE where it has several",
        )
    options.add_argument(
        "--confluent",
        action="store_true",
        help="keys and values that have a schema begin with a schema registry's id",
    )
    options.add_argument(
        "--on-error",
        choices=("fail", "null", "column"),
        default="fail",
        help="a record that does not decode: fail; null in its place; or null and why in a column (fail)",
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
    add_job_options(options)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Export what is new. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        keys = parse_formats(arguments.key_format, arguments.key_schema, "key")
        values = parse_formats(arguments.value_format, arguments.value_schema, "value")
    except JobError as error:
        options.error(str(error))
    with ended_by_signals():
        return run_job("export", arguments, lambda job: _run(job, arguments, keys, values))


def _run(
    job: Job,
    arguments: argparse.Namespace,
    keys: Mapping[str | None, Format],
    values: Mapping[str | None, Format],
) -> int:
    from minikafka.metrics.series import DAMAGED_BATCHES, LOST_RECORDS
    from minikafka.spark.export.decoding import OnError
    from minikafka.spark.export.job import ExportOptions, export

    selection = {"subscribe": arguments.topics, "subscribePattern": arguments.topics_pattern}
    wanted = ExportOptions(
        paths=arguments.paths,
        output=arguments.output,
        selection={name: text for name, text in selection.items() if text is not None},
        by=arguments.by,
        isolation=arguments.isolation,
        latest=arguments.latest,
        on_corrupt=arguments.on_corrupt,
        on_error=OnError(arguments.on_error),
        format_of=lambda topic: TopicFormat(format_of(topic, keys, "key"), format_of(topic, values, "value")),
        confluent=arguments.confluent,
        compression=arguments.compression,
    )
    commit = export(job, wanted)
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
    if commit is None:
        print("nothing new" + _hint(arguments.latest))
    else:
        print(f"{commit.records:,} records in {len(commit.files)} files, commit {commit.number}")
    return OK


def _hint(latest: str) -> str:
    if latest != "highWatermark":
        return ""
    return " below the checkpointed high watermark (a broker writes it every 5 s; see --latest)"


if __name__ == "__main__":
    sys.exit(main())
