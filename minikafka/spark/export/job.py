"""``minikafka export``: log directories to Parquet. How each record gets there once: ``output``.

Each partition is read from where the last run stopped to a fixed end. The end is settled before anything is
read, so a run is one range of offsets a partition, and its commit says exactly that. By default it is the
high watermark (and the last stable offset): what lies above may still be truncated and replaced, and no
consumer sees it. Schema files are read here, too: a format of the command line becomes the decoder that a
transform takes.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from minikafka.log.checkpoint import PARTITION_METADATA, decode_partition_metadata, encode_uuid
from minikafka.metrics.series import (
    BYTES,
    DAMAGED_BATCHES,
    LOST_RECORDS,
    OUTPUT_BYTES,
    PARTITIONS,
    RECORDS,
    UNDECODED_RECORDS,
)
from minikafka.spark import register
from minikafka.spark.export.decoding import (
    KEY,
    VALUE,
    BytesDecoder,
    ConfluentDecoder,
    Decoder,
    Format,
    JsonDecoder,
    Kind,
    OnError,
    StringDecoder,
    TopicFormat,
    decode,
)
from minikafka.spark.export.output import (
    LOCK,
    PARTITION_COLUMNS,
    Commit,
    ExportOutput,
    Offsets,
    OutputStore,
    lay_out,
    open_store,
)
from minikafka.spark.export.record_schemas import avro_decoder, json_type, protobuf_decoder
from minikafka.spark.runtime.counters import JobCounters
from minikafka.spark.runtime.job import Job
from minikafka.spark.runtime.session import JobError
from minikafka.spark.source.datasource import FORMAT
from minikafka.spark.source.log_files import PartitionLog
from minikafka.spark.source.options import OnCorrupt, ReadOptions, parse_options
from minikafka.spark.source.planning import latest_offset, selected_logs
from minikafka.spark.source.schemas import ERROR
from minikafka.spark.source.storage import join

RECORD_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
ERROR_COLUMNS = [f"{KEY}_error", f"{VALUE}_error"]

_SIZE = "__size"
_COUNTED = {
    "records": RECORDS,
    "bytes": BYTES,
    "undecoded": UNDECODED_RECORDS,
    "damaged": DAMAGED_BATCHES,
}
COUNTED_TOPICS_MAX = 20
"""Topics that are counted one by one: each costs four comparisons a record."""

OpenStore = Callable[[str, str, SparkSession], OutputStore]


# ---- what is read


class ExportRange(NamedTuple):
    """What a run reads of one partition."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    """Not read itself."""
    lost: int
    """Offsets that the log dropped before any run came to them."""


def plan(
    logs: Sequence[PartitionLog], exported: Mapping[str, Mapping[int, int]], options: ReadOptions
) -> list[ExportRange]:
    """The ranges with something new. ``exported``: the next offset of each partition.

    Raises:
        MinikafkaError: a log cannot be read.
    """
    ranges = []
    for log in logs:
        topic, partition = log.topic_partition
        start = log.log_start_offset
        known = exported.get(topic, {}).get(partition)
        first = start if known is None else max(known, start)
        end = latest_offset(log, options)
        if first < end:
            lost = 0 if known is None else max(0, start - known)
            ranges.append(ExportRange(topic, partition, first, end, lost))
    return ranges


def topic_ids(logs: Sequence[PartitionLog]) -> dict[str, str]:
    """Topic → id, of those whose directories say it."""
    ids: dict[str, str] = {}
    for log in logs:
        path = join(log.path, PARTITION_METADATA)
        if log.topic_partition.topic not in ids:
            try:
                data = log.storage.read_bytes(path)
            except FileNotFoundError:
                continue
            topic_id = decode_partition_metadata(data, path=path)
            ids[log.topic_partition.topic] = encode_uuid(topic_id)
    return ids


def check_topic_ids(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises JobError: a topic was deleted and created again, so its offsets mean other records."""
    for topic, topic_id in now.items():
        if before.get(topic, topic_id) != topic_id:
            raise JobError(
                f"topic {topic} was deleted and created again since the last export, so its offsets begin "
                "again: export it into another directory"
            )


def source_options(ranges: Sequence[ExportRange]) -> dict[str, str]:
    """``assign``, ``startingOffsets`` and ``endingOffsets`` of the data source."""
    assign: dict[str, list[int]] = {}
    first: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for each in ranges:
        assign.setdefault(each.topic, []).append(each.partition)
        first.setdefault(each.topic, {})[str(each.partition)] = each.first_offset
        end.setdefault(each.topic, {})[str(each.partition)] = each.end_offset
    return {
        "assign": json.dumps(assign),
        "startingOffsets": json.dumps(first),
        "endingOffsets": json.dumps(end),
    }


# ---- decoders


def make_decoder(wanted: Format, *, confluent: bool) -> Decoder:
    """``confluent``: what has a schema stands behind a schema registry's prefix. An Avro schema from a
    registry is then the reader's, and each record's own is fetched by its id.

    Raises:
        JobError: the schema's file is not there, or says nothing that can become a column.
    """
    if wanted.kind is Kind.BYTES:
        return BytesDecoder()
    if wanted.kind is Kind.STRING:
        return StringDecoder()
    assert wanted.schema is not None
    inner: Decoder
    has_writers = confluent and wanted.kind is Kind.AVRO and wanted.registry is not None
    if wanted.kind is Kind.PROTOBUF:
        inner = protobuf_decoder(wanted.schema, confluent=confluent)
    elif wanted.kind is Kind.AVRO:
        registry = wanted.registry if has_writers else None
        inner = avro_decoder(_text(wanted.schema), wanted.schema, registry)
    else:
        inner = JsonDecoder(json_type(_text(wanted.schema), wanted.schema))
    return ConfluentDecoder(inner, keeps_prefix=has_writers) if confluent else inner


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(
            f"cannot read the schema {name}: {getattr(error, 'strerror', None) or error}"
        ) from error


# ---- the job


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the user asked for."""

    paths: Sequence[str]
    output: str
    selection: Mapping[str, str]
    """``subscribe`` or ``subscribePattern`` of the data source, or nothing."""
    by: str
    isolation: str
    latest: str
    on_corrupt: str
    on_error: OnError
    format_of: Callable[[str], TopicFormat]
    """Of a topic. Raises JobError: it needs a schema and has none."""
    confluent: bool
    compression: str

    def source(self) -> dict[str, str]:
        """The options of the data source that do not change between runs."""
        return {
            "path": json.dumps(list(self.paths)),
            "isolation": self.isolation,
            "latest": self.latest,
            "onCorrupt": self.on_corrupt,
            "includeHeaders": "true",
        }


def export(job: Job, options: ExportOptions, *, open_store: OpenStore = open_store) -> Commit | None:
    """Export what is new. Returns its commit; None: there is nothing new.

    Raises:
        MinikafkaError: something cannot be used, in one line.
    """
    spark, counters = job.spark, job.counters
    register(spark)
    store = open_store(options.output, LOCK, spark)
    with store.locked():
        output = ExportOutput(store, by=options.by)
        output.recover(now_ms=_now_ms())
        done: Offsets = output.last.offsets if output.last else {}
        ids = output.last.topic_ids if output.last else {}
        with job.progress.phase("plan"):
            read = parse_options({**options.source(), **options.selection})
            logs = selected_logs(read)
            ids_now = topic_ids(logs)
            check_topic_ids(ids, ids_now)
            ranges = plan(logs, done, read)
        count_ranges(ranges, counters)
        if not ranges:
            return None
        decoders = _decoders(ranges, options)
        staging = str(uuid.uuid4())
        try:
            with job.progress.phase("write Parquet"):
                records = sum(
                    _write(job, options, decoding, chosen, output.staging_uri(staging))
                    for decoding, chosen in decoders
                )
            files = output.staged(staging)
            output.check_rows(staging, files, records)
            _count_files(files, counters)
        except Exception:
            output.discard(staging)
            raise
        return output.commit(
            staging,
            files=[name for name, _ in files],
            records=records,
            offsets=advanced(done, ranges),
            topic_ids={**ids, **ids_now},
            now_ms=_now_ms(),
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def advanced(offsets: Offsets, ranges: Sequence[ExportRange]) -> Offsets:
    """``offsets`` behind the ranges."""
    found = {topic: dict(partitions) for topic, partitions in offsets.items()}
    for each in ranges:
        found.setdefault(each.topic, {})[each.partition] = each.end_offset
    return found


def _decoders(
    ranges: Sequence[ExportRange], options: ExportOptions
) -> list[tuple[tuple[Decoder, Decoder], list[ExportRange]]]:
    """The ranges that are decoded alike, with what decodes them: one write each, as their columns differ."""
    groups: dict[TopicFormat, list[ExportRange]] = {}
    for each in ranges:
        groups.setdefault(options.format_of(each.topic), []).append(each)
    return [
        (
            (
                make_decoder(found.key, confluent=options.confluent),
                make_decoder(found.value, confluent=options.confluent),
            ),
            chosen,
        )
        for found, chosen in groups.items()
    ]


def _write(
    job: Job,
    options: ExportOptions,
    decoders: tuple[Decoder, Decoder],
    ranges: Sequence[ExportRange],
    uri: str,
) -> int:
    """Write what the ranges hold, and count it on the way. Returns the records."""
    frame, seen = decoded_records(job, options, decoders, ranges)
    frame = frame.drop(*([] if options.on_error is OnError.COLUMN else ERROR_COLUMNS))
    writer = lay_out(frame, options.by).write.mode("append").partitionBy(*PARTITION_COLUMNS[options.by])
    writer.option("compression", options.compression).parquet(uri)
    return count_records(job, seen, ranges)


def decoded_records(
    job: Job,
    options: ExportOptions,
    decoders: tuple[Decoder, Decoder],
    ranges: Sequence[ExportRange],
    *,
    raw_columns: Sequence[str] = (),
) -> tuple[DataFrame, Observation]:
    """What the ranges hold, ``RECORD_COLUMNS`` and ``ERROR_COLUMNS``, and what is counted when it is read.

    Args:
        raw_columns: names for the bytes of key and value as they are in the log, which then come behind.
    """
    reader = job.spark.read.format(FORMAT).options(**options.source(), **source_options(ranges))
    if options.on_corrupt == OnCorrupt.SKIP.value:  # as rows, so that they are counted before they go
        reader = reader.option("onCorrupt", OnCorrupt.COLUMN.value)
        frame = reader.option("columns", json.dumps([*RECORD_COLUMNS, ERROR])).load()
    else:
        frame = reader.option("columns", json.dumps(RECORD_COLUMNS)).load()
        frame = frame.withColumn(ERROR, F.lit(None).cast("string"))
    size = sum((F.coalesce(F.length(name), F.lit(0)) for name in (KEY, VALUE)), F.lit(0))
    for name, raw in zip((KEY, VALUE), raw_columns, strict=False):
        frame = frame.withColumn(raw, F.col(name))
    frame = decode(frame.withColumn(_SIZE, size), *decoders, options.on_error)
    topics = sorted({each.topic for each in ranges})
    seen = Observation()
    frame = frame.observe(seen, F.count_if(_is_record()).alias("records"), *_counts(topics))
    return frame.where(_is_record()).drop(_SIZE, ERROR), seen


def count_records(job: Job, seen: Observation, ranges: Sequence[ExportRange]) -> int:
    """Count what was seen while a frame of ``decoded_records`` was read. Returns the records."""
    counted = seen.get
    for index, topic in enumerate(_counted_apart(sorted({each.topic for each in ranges}))):
        for name, series in _COUNTED.items():
            job.counters.add(series, counted[f"{name} {index}"] or 0, topic=topic)
    return int(counted["records"])


def _counted_apart(topics: Sequence[str]) -> Sequence[str]:
    return topics if len(topics) <= COUNTED_TOPICS_MAX else [""]


def _counts(topics: Sequence[str]) -> Iterator[Column]:
    """What is counted while the records pass: for each topic, or for all together where they are many."""
    is_undecoded = F.lit(False)
    for name in ERROR_COLUMNS:
        is_undecoded = is_undecoded | F.col(name).isNotNull()
    for index, topic in enumerate(_counted_apart(topics)):
        belongs = F.col("topic") == topic if topic else F.lit(True)
        yield F.count_if(belongs & _is_record()).alias(f"records {index}")
        yield F.sum(F.when(belongs, F.col(_SIZE))).alias(f"bytes {index}")
        yield F.count_if(belongs & is_undecoded).alias(f"undecoded {index}")
        yield F.count_if(belongs & ~_is_record()).alias(f"damaged {index}")


def _is_record() -> Column:
    """Not a damaged piece of a log."""
    return F.col(ERROR).isNull()


def count_ranges(ranges: Sequence[ExportRange], counters: JobCounters) -> None:
    for each in ranges:
        counters.add(PARTITIONS, 1, topic=each.topic)
        counters.add(LOST_RECORDS, each.lost, topic=each.topic)


def _count_files(files: Sequence[tuple[str, int]], counters: JobCounters) -> None:
    for name, size in files:
        counters.add(OUTPUT_BYTES, size, topic=name.partition("/")[0].removeprefix("topic="))
