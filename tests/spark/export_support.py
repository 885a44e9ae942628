"""Exports as tests run them: in the shared session, and read back with pyarrow."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from minikafka.files import OsFiles
from minikafka.log.checkpoint import REPLICATION_OFFSET_CHECKPOINT, read_offsets
from minikafka.spark.export.decoding import Format, Kind, TopicFormat
from minikafka.spark.runtime.job import Job, JobCounters, JobProgress
from minikafka.types import TopicPartition
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Consumed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES = TopicFormat(Format(Kind.BYTES), Format(Kind.BYTES))


def make_job(spark: SparkSession) -> Job:
    counters = JobCounters("export")
    return Job(spark, counters, JobProgress(spark, counters, io.StringIO()))


def options(log_dir: Path, output: Path | str, **changed: Any) -> Any:
    """``ExportOptions`` with the command line's defaults."""
    from minikafka.spark.export.decoding import OnError
    from minikafka.spark.export.job import ExportOptions

    defaults: dict[str, Any] = {
        "paths": [str(log_dir)],
        "output": str(output),
        "selection": {},
        "by": "date",
        "isolation": "read_committed",
        "latest": "highWatermark",
        "on_corrupt": "fail",
        "on_error": OnError.FAIL,
        "format_of": lambda topic: BYTES,
        "confluent": False,
        "compression": "zstd",
    }
    return ExportOptions(**(defaults | changed))


def wait_for_checkpoint(broker: BrokerProcess, topic: str, offset: int, *, partition: int = 0) -> None:
    """Until the broker has written that so much of the partition is committed."""
    path = str(broker.data_dir / REPLICATION_OFFSET_CHECKPOINT)
    topic_partition = TopicPartition(topic, partition)
    confluent.wait_until(
        lambda: read_offsets(OsFiles(), path).get(topic_partition) == offset, f"{topic_partition} at {offset}"
    )


def data_files(output: Path) -> list[Path]:
    """What a reader of the output sees."""
    return sorted(
        path
        for path in output.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(output).parts)
    )


def rows(output: Path, topic: str) -> list[dict[str, Any]]:
    """Every record of a topic, by partition and offset."""
    found: list[dict[str, Any]] = []
    for path in data_files(output / f"topic={topic}"):
        found += pq.ParquetFile(path).read().to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def consumed(row: dict[str, Any]) -> Consumed:
    """A row as a consumer's record."""
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    timestamp_ms = round(row["timestamp"].timestamp() * 1000)
    return Consumed(row["offset"], row["key"], row["value"], headers, timestamp_ms)


def offsets(output: Path, topic: str) -> list[int]:
    return [row["offset"] for row in rows(output, topic)]
