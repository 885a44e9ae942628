"""Imports as tests run them: in the shared session, and what is in a log directory afterwards."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minikafka.config.topic import TopicConfig
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, iterate_records
from minikafka.spark.export.decoding import Kind
from minikafka.spark.runtime.job import Job, JobCounters, JobProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from minikafka.spark.load.job import Imported

RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""What an export writes of a record itself."""


def make_job(spark: SparkSession) -> Job:
    counters = JobCounters("import")
    return Job(spark, counters, JobProgress(spark, counters, io.StringIO()))


def options(source: Path | str, log_directory: Path, topic: str, **changed: Any) -> Any:
    """``ImportOptions`` with the command line's defaults. ``key`` and ``value`` are fields of ``Side``."""
    from minikafka.spark.load.job import ImportOptions
    from minikafka.spark.load.rows import Side

    sides = {
        side: Side(**({"what": side, "column": None, "kind": Kind.BYTES} | changed.pop(side, {})))
        for side in ("key", "value")
    }
    defaults: dict[str, Any] = {
        "source": str(source),
        "kind": None,
        "catalog": None,
        "source_topic": topic,
        "log_directory": str(log_directory),
        "topic": topic,
        "partitions": None,
        "timestamp": None,
        "headers": None,
        "partition": None,
        "order_by": None,
        "codec": CompressionType.NONE,
        "level": None,
        "batch_bytes": 1 << 20,
        "config": TopicConfig(),
        "dry_run": False,
    }
    return ImportOptions(**(defaults | sides | changed))


def run(spark: SparkSession, source: Path | str, log_directory: Path, topic: str, **changed: Any) -> Imported:
    from minikafka.spark.load.job import load

    return load(make_job(spark), options(source, log_directory, topic, **changed))


def records_of(log_directory: Path, topic: str, partition: int = 0) -> list[Record]:
    """Every record of a partition, with its offset, read batch by batch."""
    found: list[Record] = []
    for path in sorted((log_directory / f"{topic}-{partition}").glob("*.log")):
        data = path.read_bytes()
        if data:
            assert int(path.stem) == next(iterate_headers(data))[1].base_offset
        for position, header in iterate_headers(data):
            found += iterate_records(data[position : position + header.size])
    return found


def contents(records: list[Record]) -> list[tuple[bytes | None, bytes | None, int, tuple[Any, ...]]]:
    return [(each.key, each.value, each.timestamp, each.headers) for each in records]


def files_below(path: Path) -> dict[str, bytes]:
    """Everything that is there, but for the lock."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file() and each.name != ".lock"
    }
