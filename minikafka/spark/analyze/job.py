"""``minikafka analyze``: reads log directories once for headers and once for records, and says what is there.

The order: directories and settings are checked without Spark (``prepare``); then batch headers with their
CRCs are read and kept, since everything but keys and sizes is in them; the replicas are compared; the record
pass reads the columns it needs of one replica of each partition, the one that reaches furthest; a sample of
batches is compressed in every codec.

From the rows of the passes to ``Analysis`` it is plain arithmetic, no Spark. ``assemble_partition`` and
``assemble_topic`` take what the passes found of one; a partition without a batch has zeros.

When retention will cut a partition is by Kafka's rules (``UnifiedLog.deleteOldSegments``), applied to the
segments that are there. By time the oldest segment goes when its greatest timestamp is more than
retention.ms ago, and the next one after it; by size, as long as what remains is at least retention.bytes.
Nothing at or above the high watermark goes, and only where cleanup.policy has delete. A log directory does
not hold the configuration of its topics, so the values are given, each with its source. Where a segment has
no timestamp Kafka takes the time of the file, which is not known here: what is behind it is unknown.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.config.definition import format_value
from minikafka.config.resolution import topic_config
from minikafka.config.topic import TOPIC_CONFIG_KEYS
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark import register
from minikafka.spark.analyze.analysis import (
    FORMAT,
    Analysis,
    Approximation,
    BatchFill,
    Bucket,
    CodecTrial,
    CodecUse,
    Damage,
    Directory,
    Duplicate,
    Duplicates,
    Epoch,
    Gap,
    Gaps,
    KeyCount,
    Keys,
    LogId,
    OpenTransaction,
    Partition,
    ProducerUse,
    RecordSizes,
    Retention,
    Setting,
    SizeCount,
    Timestamps,
    Topic,
    TopKey,
    Transactions,
)
from minikafka.spark.analyze.batch_statistics import (
    LOG,
    check_replicas,
    count_if,
    healthy,
    is_damaged,
    limits_of,
)
from minikafka.spark.analyze.findings import find
from minikafka.spark.analyze.inputs import (
    InputError,
    LogDirectory,
    NamedDirectory,
    find_directories,
    is_replicated,
)
from minikafka.spark.analyze.passes import (
    COMMIT_COLUMNS,
    QUANTILES,
    SHOWN_MAX,
    HeaderFigures,
    RecordFigures,
    read_batches,
    read_committed,
    read_headers,
    read_records,
    sampled,
    small_frame,
    try_codecs,
)
from minikafka.spark.source.datasource import KafkaLogSumsDataSource
from minikafka.spark.source.split_reader import OPEN_BYTES
from minikafka.types import TopicPartition

SHOWN = ("cleanup.policy", "retention.ms", "retention.bytes")
DEFAULT = "Kafka's default"

KEY_CHARACTERS_MAX = 120
"""Of a key in the report."""

_PLACE = re.compile(r".*/(?P<segment>\d{20}\.log), position (?P<position>\d+): ")
"""How an error of the sources begins."""

APPROXIMATIONS = (
    Approximation(
        figure="record sizes: quantiles, least, greatest",
        how="counted in buckets that grow by 2^(1/32)",
        error="1.1 %; none below 45 bytes",
    ),
    Approximation(
        figure="keys of a topic with several partitions",
        how="HyperLogLog over the exact keys of its partitions",
        error="1 % (standard deviation)",
    ),
    Approximation(
        figure="batch fill: medians and 99th percentiles",
        how="percentile_approx",
        error="the rank, by 1 in 10,000",
    ),
    Approximation(
        figure="compression ratio, what another codec saves",
        how="a sample of batches of each partition, compressed again",
        error="that of the sample; none where it has all batches",
    ),
    Approximation(
        figure="bytes that compaction saves",
        how="the superseded share of keys and values, of the stored bytes",
        error="as far as superseded records compress differently; aborted records count as records",
    ),
    Approximation(
        figure="timestamps: first and late ones, throughput",
        how="from batch headers: the first record's and the latest timestamp of each batch",
        error="what is out of order inside a batch does not show",
    ),
    Approximation(
        figure="when a disk is full",
        how="each log grows as in its last 7 days, until retention holds it; other files stay as they are",
        error="compacted logs are taken to grow on; what retention has taken from those days is not counted",
    ),
)

BATCH_SIZE = 16_384
"""The producers' batch.size unless they set it (``ProducerConfig``)."""

TOP_KEYS = 10

GROUP_METADATA_TOPIC = "__consumer_offsets"

HEADER_COLUMNS = (
    *("topic", "partition", "log_dir", "segment", "position", "size", "base_offset", "last_offset"),
    *("leader_epoch", "crc", "crc_ok", "codec", "records", "timestamp_type", "base_timestamp"),
    *("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "is_transactional", "is_control"),
    *("control_type", "delete_horizon", "error"),
)

SHUFFLE_BYTES = 128 << 20
"""Of the log for each task behind a shuffle: what a key is known by takes less than its records."""

SPLIT_BYTES_MIN, SPLIT_BYTES_MAX = 64 << 20, 1 << 30
"""Below, starting a task counts; above, one that fails costs minutes."""

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

Phase = Callable[[str], AbstractContextManager[None]]
"""Shows progress while its body runs: ``JobProgress.phase``."""

_Ends = dict[tuple[str, LogId], Row]

_TO_THE_END = -1
"""Spark's Kafka source: an ending offset that stands for the latest."""


# ---- retention


class SegmentFigures(NamedTuple):
    """One segment, the oldest first."""

    first_offset: int
    last_offset: int
    records: int
    bytes: int
    max_timestamp: int | None


class TopicSettings(NamedTuple):
    """What retention goes by."""

    deletes: bool
    retention_ms: int
    """Below 0: no limit."""
    retention_bytes: int
    shown: dict[str, Setting]


def topic_settings(
    topic: str, overrides: Mapping[str, Mapping[str, str]], broker: BrokerConfig, *, broker_source: str
) -> TopicSettings:
    """The settings of ``topic``: ``overrides[topic]``, else ``overrides["*"]``, else those of ``broker``,
    whose own are Kafka's defaults.

    Raises:
        ConfigError: an unknown name, or a value that is not allowed.
    """
    own, everywhere = overrides.get(topic, {}), overrides.get("*", {})
    config = topic_config(broker, {**everywhere, **own})
    of_broker = broker.static_properties()
    shown = {}
    for name in SHOWN:
        key = TOPIC_CONFIG_KEYS[name]
        if name in own:
            source = f"given for {topic}"
        elif name in everywhere:
            source = "given for all topics"
        elif any(synonym.name in of_broker for synonym in key.synonyms):
            source = broker_source
        else:
            source = DEFAULT
        shown[name] = Setting(value=format_value(key, getattr(config, key.attribute)) or "", source=source)
    policy = shown["cleanup.policy"].value.split(",")
    return TopicSettings("delete" in policy, config.retention_ms, config.retention_bytes, shown)


def forecast(
    segments: Sequence[SegmentFigures], settings: TopicSettings, *, high_watermark: int | None, now_ms: int
) -> Retention:
    """What retention does to ``segments``; ``high_watermark`` None: not known, all of it is committed."""
    removable = [
        segment
        for segment in segments
        if settings.deletes and (high_watermark is None or segment.last_offset < high_watermark)
    ]
    cuts = _cuts_by_time(removable, settings.retention_ms)
    due = sum(1 for cut_ms in cuts if cut_ms <= now_ms)
    total = sum(segment.bytes for segment in segments)
    bytes_left = None
    ends = [segment.last_offset + 1 for segment in removable]
    if settings.deletes and settings.retention_bytes >= 0:
        remaining = total - sum(segment.bytes for segment in removable[:due])
        while due < len(removable) and remaining - settings.retention_bytes >= removable[due].bytes:
            remaining -= removable[due].bytes
            due += 1
        if due < len(segments):
            bytes_left = max(0, settings.retention_bytes + segments[due].bytes - remaining)
    return Retention(
        settings=settings.shown,
        applies=settings.deletes,
        due_segments=due,
        due_records=sum(segment.records for segment in removable[:due]),
        due_bytes=sum(segment.bytes for segment in removable[:due]),
        next_ms=cuts[due] if due < len(cuts) else None,
        last_ms=cuts[-1] if cuts and len(cuts) == len(segments) else None,
        due_offset=ends[due - 1] if due else None,
        next_offset=ends[due] if due < len(ends) else None,
        bytes_left=bytes_left,
    )


def _cuts_by_time(segments: Sequence[SegmentFigures], retention_ms: int) -> list[int]:
    """When time removes each of the segments, up to the first of which that is not known."""
    cuts: list[int] = []
    if retention_ms < 0:
        return cuts
    for segment in segments:
        if segment.max_timestamp is None:
            break
        cut_ms = segment.max_timestamp + retention_ms + 1
        cuts.append(max(cut_ms, cuts[-1]) if cuts else cut_ms)
    return cuts


# ---- figures of partitions and topics


@dataclass(frozen=True)
class PartitionSource:
    """Where a partition was read, and what else is known of it."""

    log: LogId
    log_dir: str
    broker: int | None
    segments: int
    high_watermark: int | None
    settings: TopicSettings


@dataclass(frozen=True)
class Figures:
    """All that the passes found."""

    headers: HeaderFigures
    records: RecordFigures
    trials: Mapping[LogId, Any]
    damage_counts: Mapping[LogId, int]
    """By headers and CRCs."""
    batch_size: int
    now_ms: int


def assemble_partition(source: PartitionSource, figures: Figures) -> Partition:
    """One partition."""
    headers, log = figures.headers, source.log
    totals = headers.totals.get(log)
    damage = _damage(source, figures)
    segments = [
        SegmentFigures(row.first_offset, row.last_offset, row.records, row.bytes, row.max_timestamp)
        for row in headers.segments.get(log, [])
    ]
    return Partition(
        topic=log.topic,
        partition=log.partition,
        log_dir=source.log_dir,
        broker=source.broker,
        records=totals.records if totals else 0,
        bytes=totals.bytes if totals else 0,
        batches=totals.batches if totals else 0,
        control_batches=totals.control_batches if totals else 0,
        segments=source.segments,
        first_offset=totals.first_offset if totals else None,
        log_end_offset=totals.last_offset + 1 if totals else None,
        high_watermark=source.high_watermark,
        fill=_fill(totals, figures.batch_size) if totals and totals.batches else None,
        codecs=[
            CodecUse(codec=row.codec, batches=row.batches, records=row.records, bytes=row.bytes)
            for row in headers.codecs.get(log, [])
        ],
        trial=_trial(figures.trials.get(log), totals.data_bytes if totals else 0),
        sizes=_sizes(figures.records.sizes.get(log)),
        keys=_keys(log, figures.records, totals.data_bytes if totals else 0),
        gaps=_gaps(log, headers),
        timestamps=_timestamps(totals, headers.order.get(log)),
        epochs=[
            Epoch(
                epoch=row.leader_epoch,
                first_offset=row.first_offset,
                last_offset=row.last_offset,
                batches=row.batches,
                records=row.records,
            )
            for row in headers.epochs.get(log, [])
        ],
        duplicates=_duplicates(log, headers),
        transactions=_transactions(log, headers),
        throughput=_buckets(headers.throughput.get(log, [])),
        damage=damage[:SHOWN_MAX],
        damage_left_out=max(0, _damage_count(log, figures, len(damage)) - SHOWN_MAX),
        retention=forecast(
            segments, source.settings, high_watermark=source.high_watermark, now_ms=figures.now_ms
        ),
    )


def assemble_topic(name: str, partitions: Sequence[Partition], figures: Figures) -> Topic:
    """A topic of its partitions."""
    keys = [each.keys for each in partitions if each.keys is not None]
    throughput: dict[int, Bucket] = {}
    for partition in partitions:
        for bucket in partition.throughput:
            so_far = throughput.get(bucket.start_ms, Bucket(start_ms=bucket.start_ms, records=0, bytes=0))
            throughput[bucket.start_ms] = Bucket(
                start_ms=bucket.start_ms,
                records=so_far.records + bucket.records,
                bytes=so_far.bytes + bucket.bytes,
            )
    estimate = figures.records.topic_keys.get(name, 0)
    producers = figures.headers.producers.get(name, [])
    return Topic(
        name=name,
        records=sum(each.records for each in partitions),
        bytes=sum(each.bytes for each in partitions),
        batches=sum(each.batches for each in partitions),
        tombstones=sum(each.tombstones for each in keys),
        null_key_records=sum(each.null_key_records for each in keys),
        keys=sum(each.keys for each in keys) if len(keys) <= 1 else estimate,
        superseded_records=sum(each.superseded_records for each in keys),
        compaction_saves_bytes=sum(each.compaction_saves_bytes for each in keys),
        bucket_ms=figures.headers.bucket_ms.get(name, 0),
        throughput=[throughput[start] for start in sorted(throughput)],
        size_histogram=[
            SizeCount(size_min=row.size_min, records=row.records, bytes=row.bytes)
            for row in figures.records.size_histogram.get(name, [])
        ],
        key_histogram=[
            KeyCount(records_min=row.records_min, keys=row.keys, records=row.records)
            for row in figures.records.key_histogram.get(name, [])
        ],
        partitions=list(partitions),
        producers=[_producer(row) for row in producers],
        producers_left_out=producers[0].known - len(producers) if producers else 0,
    )


def _producer(row: Any) -> ProducerUse:
    return ProducerUse(
        producer_id=row.producer_id if row.producer_id >= 0 else None,
        producer_epoch=row.producer_epoch,
        partitions=row.partitions,
        batches=row.batches,
        records=row.records,
        bytes=row.bytes,
        codecs=list(row.codecs),
        is_transactional=row.is_transactional,
        first_ms=row.first_timestamp,
        last_ms=row.last_timestamp,
    )


def shown_key(key: bytes) -> str:
    """A key for people: its text, else its bytes in hexadecimal; cut where it is long."""
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or (key and not text):
        text = f"0x{key.hex()}"
    return text if len(text) <= KEY_CHARACTERS_MAX else f"{text[:KEY_CHARACTERS_MAX]}…"


def _fill(totals: Any, batch_size: int) -> BatchFill:
    batches = totals.batches
    return BatchFill(
        records_mean=totals.records / batches,
        records_p50=totals.records_quantiles[0],
        records_p99=totals.records_quantiles[1],
        records_max=totals.records_max,
        bytes_mean=totals.data_bytes / batches,
        bytes_p50=totals.size_quantiles[0],
        bytes_p99=totals.size_quantiles[1],
        bytes_max=totals.size_max,
        single_record_batches=totals.single_record_batches,
        fill=totals.filled_bytes / batches / batch_size,
        batch_size=batch_size,
    )


def _trial(row: Any, data_bytes: int) -> CodecTrial | None:
    if row is None:
        return None
    sizes = {codec.name.lower(): row[f"{codec.name.lower()}_bytes"] for codec in CompressionType}
    stored = row.stored_bytes
    return CodecTrial(
        batches=row.batches,
        failed=row.failed,
        stored_bytes=stored,
        plain_bytes=sizes["none"],
        ratio=sizes["none"] / stored if stored else 1.0,
        bytes_by_codec=sizes,
        saved_by_codec={
            name: round(data_bytes * (1 - size / stored)) if stored else 0 for name, size in sizes.items()
        },
    )


def _sizes(row: Any) -> RecordSizes | None:
    if row is None or not row.records:
        return None
    return RecordSizes(
        records=row.records,
        bytes=row.bytes,
        mean=row.bytes / row.records,
        min=row.size_min,
        max=row.size_max,
        quantiles={f"p{100 * each:g}": size for each, size in zip(QUANTILES, row.quantiles, strict=True)},
    )


def _keys(log: LogId, records: RecordFigures, data_bytes: int) -> Keys | None:
    sizes = records.sizes.get(log)
    if sizes is None or not sizes.records:
        return None
    row = records.keys.get(log)
    null_key_records = records.null_key_records.get(log, 0)
    top = [
        TopKey(
            key=shown_key(bytes(each.key)),
            partition=log.partition,
            records=each.records,
            bytes=each.bytes,
            share=each.records / sizes.records,
        )
        for each in records.top_keys.get(log, [])
    ]
    with_key = sizes.records - null_key_records
    superseded_bytes = row.superseded_bytes if row else 0
    return Keys(
        keys=row.keys if row else 0,
        null_key_records=null_key_records,
        tombstones=sizes.tombstones,
        keys_once=row.keys_once if row else 0,
        records_max=row.records_max if row else 0,
        top_share=sum(each.records for each in top) / with_key if with_key else 0.0,
        superseded_records=row.superseded_records if row else 0,
        superseded_bytes=superseded_bytes,
        compaction_saves_bytes=round(data_bytes * superseded_bytes / sizes.bytes) if sizes.bytes else 0,
        newest_tombstones=row.newest_tombstones if row else 0,
        top=top,
    )


def _gaps(log: LogId, headers: HeaderFigures) -> Gaps:
    row, totals = headers.order.get(log), headers.totals.get(log)
    return Gaps(
        gaps=row.gaps if row else 0,
        missing=row.missing if row else 0,
        missing_inside=totals.missing_inside if totals else 0,
        overlaps=row.overlaps if row else 0,
        first=[
            Gap(after_offset=each.after_offset, before_offset=each.before_offset, missing=each.missing)
            for each in headers.gaps.get(log, [])
        ],
    )


def _timestamps(totals: Any, order: Any) -> Timestamps:
    return Timestamps(
        first_ms=totals.first_timestamp if totals else None,
        last_ms=totals.last_timestamp if totals else None,
        log_append_time_batches=totals.log_append_time_batches if totals else 0,
        late_batches=order.late_batches if order else 0,
        late_records=order.late_records if order else 0,
        late_max_ms=(order.late_max_ms or 0) if order else 0,
    )


def _duplicates(log: LogId, headers: HeaderFigures) -> Duplicates:
    row = headers.duplicate_totals.get(log)
    names = Duplicate.__struct_fields__
    return Duplicates(
        batches=row.batches if row else 0,
        records=row.records if row else 0,
        first=[Duplicate(**{name: each[name] for name in names}) for each in headers.duplicates.get(log, [])],
    )


def _transactions(log: LogId, headers: HeaderFigures) -> Transactions:
    row = headers.transaction_totals.get(log)
    names = [name for name in Transactions.__struct_fields__ if name != "first_open"]
    return Transactions(
        **{name: row[name] if row else 0 for name in names},
        first_open=[
            OpenTransaction(**{name: each[name] for name in OpenTransaction.__struct_fields__})
            for each in headers.open_transactions.get(log, [])
        ],
    )


def _buckets(rows: Sequence[Any]) -> list[Bucket]:
    return [Bucket(start_ms=row.start_ms, records=row.records, bytes=row.bytes) for row in rows]


def _damage_count(log: LogId, figures: Figures, shown: int) -> int:
    return max(shown, figures.damage_counts.get(log, 0))


def _damage(source: PartitionSource, figures: Figures) -> list[Damage]:
    """What headers and CRCs show, then what only decoding does."""
    found = [
        Damage(
            log_dir=row.log_dir,
            segment=row.segment,
            position=row.position,
            offset=row.base_offset,
            what=_without_place(row.error),
        )
        for row in figures.headers.damaged.get(source.log, [])
    ]
    seen = {(each.segment, each.position) for each in found}
    for row in figures.records.undecodable.get(source.log, []):
        place = _PLACE.match(row.error)
        segment, position = (place["segment"], int(place["position"])) if place else ("", None)
        if (segment, position) not in seen:
            found.append(
                Damage(
                    log_dir=source.log_dir,
                    segment=segment,
                    position=position,
                    offset=None,
                    what=_without_place(row.error),
                )
            )
    return found


def _without_place(error: str) -> str:
    return _PLACE.sub("", error, count=1)


# ---- the job


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    directories: tuple[NamedDirectory, ...]
    topics: tuple[str, ...] = ()
    """All of them unless any is named."""
    topic_overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Properties by topic; those of ``*`` are every topic's."""
    broker: BrokerConfig = field(default_factory=lambda: broker_config({}))
    """The defaults of topics."""
    broker_source: str = "the broker's configuration"
    batch_size: int = BATCH_SIZE
    top_keys: int = TOP_KEYS


class Prepared(NamedTuple):
    """A request that can be carried out."""

    request: Request
    directories: list[LogDirectory]
    settings: dict[str, TopicSettings]


def prepare(request: Request) -> Prepared:
    """Find what is to be read, without Spark.

    Raises:
        MinikafkaError: the directories or the settings cannot be used.
    """
    directories = find_directories(request.directories, request.topics)
    topics = sorted({each.topic for directory in directories for each in directory.logs})
    unknown = [topic for topic in request.topic_overrides if topic != "*" and topic not in topics]
    if unknown:
        raise InputError(f"--config {unknown[0]}:…: there is no such topic in what is analysed")
    settings = {
        topic: topic_settings(
            topic,
            request.topic_overrides,
            request.broker,
            broker_source=request.broker_source,
        )
        for topic in topics
    }
    return Prepared(request, directories, settings)


def analyze(spark: SparkSession, prepared: Prepared, *, now_ms: int, phase: Phase) -> Analysis:
    """Do it. Nothing is written."""
    register(spark)
    spark.dataSource.register(KafkaLogSumsDataSource)
    request, directories = prepared.request, prepared.directories
    _size_shuffles(spark, directories)
    everything = {directory.path: sorted(directory.logs) for directory in directories if directory.logs}
    headers = _read(spark, "kafka-log-batches", everything, columns=",".join(HEADER_COLUMNS)).persist()
    try:
        with phase("batch headers and CRCs"):
            ends = _ends(headers)
            chosen = _choose(ends, directories)
            damaged = {
                LogId(*each): ends[path, LogId(*each)].damaged
                for path, members in chosen.items()
                for each in members
                if (path, LogId(*each)) in ends
            }
        replicas = None
        if is_replicated(directories):
            with phase("replicas"):
                replicas = check_replicas(headers, directories, limits_of(directories))
        batches = headers if replicas is None else _of_chosen(headers, chosen)
        with phase("statistics of batches"):
            header_figures = read_headers(batches, damaged, batch_size=request.batch_size)
        with phase("records and keys"):
            split_bytes = _split_bytes(spark, directories)
            records = read_records(
                _read(spark, "kafka-log-sums", chosen, ends=ends, splitBytes=split_bytes),
                top_keys=request.top_keys,
            )
        with phase("a sample in every codec"):
            trials = try_codecs(read_batches(sampled(healthy(batches))))
        committed = []
        offsets = _only(chosen, GROUP_METADATA_TOPIC)
        if offsets:
            with phase("committed offsets"):
                columns = ",".join(COMMIT_COLUMNS)
                options = {"columns": columns, "isolation": "read_committed"}  # of transactions, too
                committed = read_committed(_read(spark, "kafka-log", offsets, ends=ends, **options))
    finally:
        headers.unpersist()
    figures = Figures(header_figures, records, trials, damaged, request.batch_size, now_ms)
    partitions = [
        assemble_partition(_source(directory, topic_partition, prepared.settings), figures)
        for directory in directories
        for topic_partition in chosen.get(directory.path, [])
    ]
    by_topic: dict[str, list[Partition]] = {}
    for partition in sorted(partitions, key=lambda each: (each.topic, each.partition)):
        by_topic.setdefault(partition.topic, []).append(partition)
    found = Analysis(
        format=FORMAT,
        created_ms=now_ms,
        directories=[
            Directory(
                path=each.path,
                broker=each.broker,
                cluster_id=each.cluster_id,
                partitions=len(each.logs),
                disk_free_bytes=_free_bytes(each.path),
            )
            for each in directories
        ],
        topics=[assemble_topic(name, members, figures) for name, members in by_topic.items()],
        replicas=replicas,
        approximations=list(APPROXIMATIONS),
        committed=[each for each in committed if each.topic in by_topic],
    )
    return msgspec.structs.replace(found, findings=find(found))


def _free_bytes(log_dir: str) -> int | None:
    """None of an object store."""
    return shutil.disk_usage(log_dir).free if os.path.isabs(log_dir) else None


def _size_shuffles(spark: SparkSession, directories: Sequence[LogDirectory]) -> None:
    """As many tasks as the data needs; Spark's 200 take longer to start than most logs to analyse. What the
    user says with --conf is kept."""
    if spark.sparkContext.getConf().contains(_SHUFFLE_PARTITIONS):
        return
    tasks = max(spark.sparkContext.defaultParallelism, -(-_size(directories) // SHUFFLE_BYTES))
    spark.conf.set(_SHUFFLE_PARTITIONS, str(tasks))


def _split_bytes(spark: SparkSession, directories: Sequence[LogDirectory]) -> int:
    """Of one task of the record pass: two for each core, within bounds. The more a task reads, the more
    records of a key it adds up before the shuffle."""
    files = sum(len(log.segments) for directory in directories for log in directory.logs.values())
    tasks = 2 * spark.sparkContext.defaultParallelism
    share = -(-(_size(directories) + files * OPEN_BYTES) // tasks)
    return min(max(share, SPLIT_BYTES_MIN), SPLIT_BYTES_MAX)


def _size(directories: Sequence[LogDirectory]) -> int:
    logs = [log for directory in directories for log in directory.logs.values()]
    return sum(segment.size for log in logs for segment in log.segments)


def _read(
    spark: SparkSession,
    source: str,
    partitions: Mapping[str, Sequence[TopicPartition]],
    *,
    ends: _Ends | None = None,
    **options: int | str,
) -> DataFrame:
    """The partitions, by log directory, up to where ``ends`` found them to end; a broker may keep writing.
    Damage comes as rows."""
    frames = []
    for path, members in partitions.items():
        assigned: dict[str, list[int]] = {}
        ending: dict[str, dict[str, int]] = {}
        for topic, partition in members:
            assigned.setdefault(topic, []).append(partition)
            end = None if ends is None else ends.get((path, LogId(topic, partition)))
            ending.setdefault(topic, {})[str(partition)] = _TO_THE_END if end is None else _end_offset(end)
        frames.append(
            spark.read.format(source)
            .option("path", json.dumps([path]))
            .option("assign", json.dumps(assigned))
            .option("endingOffsets", json.dumps(ending))
            .option("failOnDataLoss", "false")  # what retention removes meanwhile is not there any more
            .option("onCorrupt", "column")
            .options(**options)
            .option("latest", "logEnd")
            .load()
        )
    return reduce(DataFrame.unionByName, frames)


def _end_offset(end: Row) -> int:
    """Where the record pass stops. Behind damage a log is read to its end, as its headers were."""
    return _TO_THE_END if end.damaged or end.last_offset is None else int(end.last_offset) + 1


def _ends(headers: DataFrame) -> _Ends:
    """Of each log, by directory: last_offset, which may be null, and how many damaged batches it has."""
    found = headers.groupBy("log_dir", *LOG).agg(
        F.max("last_offset").alias("last_offset"), count_if(is_damaged()).alias("damaged")
    )
    return {(row.log_dir, LogId(row.topic, row.partition)): row for row in found.collect()}


def _choose(ends: _Ends, directories: Sequence[LogDirectory]) -> dict[str, list[TopicPartition]]:
    """For each partition the directory whose log reaches furthest, of equals the one named first."""

    def end(path: str, log: TopicPartition) -> int:
        row = ends.get((path, LogId(*log)))
        if row is None:
            return -2
        return -1 if row.last_offset is None else int(row.last_offset)

    chosen: dict[str, list[TopicPartition]] = {}
    for topic_partition in sorted({each for directory in directories for each in directory.logs}):
        holders = [directory.path for directory in directories if topic_partition in directory.logs]
        best = max(holders, key=lambda path: end(path, topic_partition))
        chosen.setdefault(best, []).append(topic_partition)
    return chosen


def _only(chosen: Mapping[str, Sequence[TopicPartition]], topic: str) -> dict[str, list[TopicPartition]]:
    found = {path: [each for each in members if each.topic == topic] for path, members in chosen.items()}
    return {path: members for path, members in found.items() if members}


def _of_chosen(headers: DataFrame, chosen: Mapping[str, Sequence[TopicPartition]]) -> DataFrame:
    rows = [(path, *each) for path, members in chosen.items() for each in members]
    columns = [("log_dir", pa.string()), ("topic", pa.string()), ("partition", pa.int32())]
    frame = small_frame(headers.sparkSession, rows, columns)
    return headers.join(F.broadcast(frame), ["log_dir", *LOG])


def _source(
    directory: LogDirectory, topic_partition: TopicPartition, settings: Mapping[str, TopicSettings]
) -> PartitionSource:
    log = directory.logs[topic_partition]
    return PartitionSource(
        log=LogId(*topic_partition),
        log_dir=directory.path,
        broker=directory.broker,
        segments=len(log.segments),
        high_watermark=log.high_watermark,
        settings=settings[topic_partition.topic],
    )
