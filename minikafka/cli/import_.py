"""``minikafka import``: rows of a table as records of a topic, written into a stopped broker's log directory.

Parquet (files, Hive partitions, an export of ``minikafka export``), Iceberg and Delta become segments with
indexes, in Kafka's format, without a broker's CPU. A topic that is there is continued at its log end; a new
one gets directories of its own. All of it is there at the end, or nothing; run it again after a kill.

Exit status: 0 all is imported; 1 it cannot be, in one line, and nothing was; 2 bad usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minikafka.cli.groups import table
from minikafka.cli.shared.commands import as_json, ended_by_signals, parse_bytes
from minikafka.config.broker import broker_config
from minikafka.config.resolution import topic_config
from minikafka.config.topic import TopicConfig
from minikafka.errors import MinikafkaError
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark.runtime.job import FAILURE, OK, Job, JobError, add_job_options, run_job
from minikafka.spark.runtime.session import check_pyspark
from minikafka.units import format_bytes, format_rate

if TYPE_CHECKING:
    from minikafka.spark.load.job import Imported, ImportOptions
    from minikafka.spark.load.rows import Side

PROG = "minikafka import"
TABLE_FORMATS = ("parquet", "iceberg", "delta")
VALUE_FORMATS = ("bytes", "string", "json", "avro", "protobuf")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

BATCH_BYTES = 1024 * 1024
"""The largest that a topic takes by default, but for twelve bytes: a batch costs a broker and its consumers
about the same, however large it is."""
BATCH_BYTES_MIN = 1024
PARTITIONS_MAX = 100_000
SCHEMA_ID_MAX = (1 << 31) - 1


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka import``."""
    options = argparse.ArgumentParser(
        prog=PROG,
        description="Write the rows of a table into a topic's segment files, beside no broker.",
        allow_abbrev=False,
    )
    options.add_argument(
        "source", metavar="TABLE", help="a Parquet file, a table's directory, a URI; in a --catalog its name"
    )
    options.add_argument(
        "--data-dir",
        required=True,
        metavar="DIR",
        help="a log directory that no broker is using, on this machine",
    )
    options.add_argument("--topic", required=True, help="where the records go; made if it is not there")
    options.add_argument("--partitions", type=_partitions, metavar="N", help="of a new topic (1)")
    _add_source_options(options)
    _add_column_options(options)
    options.add_argument("--compression", choices=CODECS, default="none", help="of the batches (none)")
    options.add_argument(
        "--batch-size",
        type=_bytes,
        metavar="BYTES",
        help="the records of a batch before compression, as a producer's batch.size (1 MiB)",
    )
    options.add_argument(
        "--config",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="how the topic is configured, where that is not Kafka's default: segment.bytes, "
        "index.interval.bytes, max.message.bytes, compression.zstd.level, …",
    )
    options.add_argument("--dry-run", action="store_true", help="only say what would be done; write nothing")
    options.add_argument("--json", action="store_true", help="print JSON")
    add_job_options(options)
    return options


def _add_source_options(options: argparse.ArgumentParser) -> None:
    group = options.add_argument_group("the table")
    group.add_argument("--format", choices=TABLE_FORMATS, help="what it is, where it does not look like it")
    group.add_argument(
        "--catalog",
        metavar="[NAME=]URI",
        help="Iceberg: a catalog's URI, or the name of one that pyiceberg is configured for",
    )
    group.add_argument(
        "--source-topic", metavar="TOPIC", help="which topic of an export (the one that is written)"
    )
    group.add_argument(
        "--order-by",
        metavar="COLUMN",
        help="each partition's records in the order of this column (of an export offset, else as the table "
        "has them; - for that)",
    )


def _add_column_options(options: argparse.ArgumentParser) -> None:
    group = options.add_argument_group(
        "columns", "'-' in place of a column is none of them, '*' the whole row"
    )
    for side in ("key", "value"):
        group.add_argument(
            f"--{side}-column", metavar="COLUMN", help=f"the {side}s ({side}, where there is such a column)"
        )
        group.add_argument(
            f"--{side}-format",
            choices=VALUE_FORMATS,
            default="bytes",
            help="how they are written; bytes takes binary and text as they are (bytes)",
        )
        group.add_argument(
            f"--{side}-schema",
            metavar="FILE",
            help="avro: .avsc; protobuf: .desc or .proto, with #MESSAGE where it has several",
        )
        group.add_argument(
            f"--{side}-schema-id",
            type=_schema_id,
            metavar="ID",
            help="put a schema registry's prefix with this id before each",
        )
    group.add_argument(
        "--timestamp-column",
        metavar="COLUMN",
        help="create times: timestamps, dates or ms since 1970 (timestamp, else when the import begins)",
    )
    group.add_argument(
        "--headers-column",
        metavar="COLUMN",
        help="lists of struct<key: string, value: binary>, or maps (headers)",
    )
    group.add_argument(
        "--partition-column",
        metavar="COLUMN",
        help="which partition a record goes to (by the hash of its key, as Kafka's producers do)",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Import. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        check_pyspark()
        config = topic_config(broker_config({}), dict(arguments.config))
        _check_usage(arguments, config)
    except JobError as error:
        options.error(str(error))
    except MinikafkaError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return FAILURE
    with ended_by_signals():
        return run_job("import", arguments, lambda job: _import(job, arguments, config))


def _check_usage(arguments: argparse.Namespace, config: TopicConfig) -> None:
    """Raises JobError."""
    for side in ("key", "value"):
        kind = getattr(arguments, f"{side}_format")
        schema = getattr(arguments, f"{side}_schema")
        needs = kind in ("avro", "protobuf")
        if needs and schema is None:
            raise JobError(f"--{side}-format {kind} needs --{side}-schema FILE")
        if schema is not None and not needs:
            raise JobError(f"--{side}-schema {schema}: the format {kind} needs no schema")
    largest = min(config.max_message_bytes, config.segment_bytes)
    if arguments.batch_size is not None and not BATCH_BYTES_MIN <= arguments.batch_size <= largest:
        raise JobError(
            f"--batch-size {arguments.batch_size}: must be from {BATCH_BYTES_MIN} to {largest}, which is the "
            "topic's max.message.bytes (see --config)"
        )


def _import(job: Job, arguments: argparse.Namespace, config: TopicConfig) -> int:
    from minikafka.spark.load.job import load

    done = load(job, _options(arguments, config))
    if done.finished is not None:
        print(f"{PROG}: an interrupted import has been finished first: {done.finished}", file=sys.stderr)
    print(as_json(done) if arguments.json else _text(done))
    return OK


def _options(arguments: argparse.Namespace, config: TopicConfig) -> ImportOptions:
    """Raises JobError: a schema cannot be read."""
    from minikafka.spark.load.job import ImportOptions
    from minikafka.spark.load.tables import TableFormat

    codec = CompressionType.of_name(
        "uncompressed" if arguments.compression == "none" else arguments.compression
    )
    level = dict(arguments.config).get(f"compression.{arguments.compression}.level")
    return ImportOptions(
        source=arguments.source,
        kind=None if arguments.format is None else TableFormat(arguments.format),
        catalog=arguments.catalog,
        source_topic=arguments.source_topic or arguments.topic,
        log_directory=os.path.realpath(arguments.data_dir),
        topic=arguments.topic,
        partitions=arguments.partitions,
        key=_side(arguments, "key"),
        value=_side(arguments, "value"),
        timestamp=arguments.timestamp_column,
        headers=arguments.headers_column,
        partition=arguments.partition_column,
        order_by=arguments.order_by,
        codec=codec,
        level=None if level is None else int(level),
        batch_bytes=arguments.batch_size or min(BATCH_BYTES, config.max_message_bytes, config.segment_bytes),
        config=config,
        dry_run=arguments.dry_run,
    )


def _side(arguments: argparse.Namespace, what: str) -> Side:
    from minikafka.spark.export.decoding import Kind
    from minikafka.spark.load.rows import Side, read_schema

    kind = Kind(getattr(arguments, f"{what}_format"))
    schema, message = b"", ""
    if (name := getattr(arguments, f"{what}_schema")) is not None:
        schema, message = read_schema(kind, name)
    return Side(
        what=what,
        column=getattr(arguments, f"{what}_column"),
        kind=kind,
        schema=schema,
        message=message,
        schema_id=getattr(arguments, f"{what}_schema_id"),
    )


def _text(done: Imported) -> str:
    topic = f"{'the new topic' if done.is_new_topic else 'topic'} {done.topic}"
    order = "as the table has them" if done.order_by is None else f"by {done.order_by}"
    if done.sorted_by_spark:
        order += ", sorted by Spark, as the files do not say that they are in this order"
    if done.is_dry_run:
        lines = [
            f"{done.rows:,} rows would go to {topic}, {len(done.partitions)} partitions, from these offsets",
            f"value: {done.value}; order: {order}",
        ]
        heads = ("PARTITION", "FROM OFFSET")
        rows = [(f"{done.topic}-{each.partition}", str(each.first_offset)) for each in done.partitions]
        return "\n".join([*lines, *table(heads, rows)])
    if not done.records:
        return "no records: the table is empty, and nothing was written"
    rate = format_rate(done.log_bytes / max(done.seconds, 1e-3))
    segments = sum(each.segments for each in done.partitions)
    summary = (
        f"{done.records:,} records of {format_bytes(done.record_bytes)} in {format_bytes(done.log_bytes)} of "
        f"log, {segments} segments of {topic}, in {done.seconds:.1f} s ({rate}); order: {order}"
    )
    columns = ("PARTITION", "OFFSETS", "SEGMENTS", "BYTES")
    filled = [
        (
            f"{done.topic}-{each.partition}",
            f"{each.first_offset} to {each.end_offset}",
            str(each.segments),
            format_bytes(each.bytes),
        )
        for each in done.partitions
        if each.segments
    ]
    return "\n".join([*table(columns, filled), summary])


def _bytes(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _partitions(text: str) -> int:
    return _number(text, 1, PARTITIONS_MAX)


def _schema_id(text: str) -> int:
    return _number(text, 0, SCHEMA_ID_MAX)


def _number(text: str, least: int, greatest: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and least <= int(text) <= greatest):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {greatest}")
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value.strip()


if __name__ == "__main__":
    sys.exit(main())
