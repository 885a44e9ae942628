"""``minikafka analyze``: reads log directories once for headers and once for records, and says what is there.

The order: directories and settings are checked without Spark (``prepare``); then batch headers with their
CRCs are read and kept, since everything but keys and sizes is in them; the replicas are compared; the record
pass reads the columns it needs of one replica of each partition, the one that reaches furthest; a sample of
batches is compressed in every codec.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.spark import register
from minikafka.spark.analyze.analysis import FORMAT, Analysis, Directory, LogId, Partition
from minikafka.spark.analyze.assembly import (
    APPROXIMATIONS,
    Figures,
    PartitionSource,
    TopicSettings,
    assemble_partition,
    assemble_topic,
    topic_settings,
)
from minikafka.spark.analyze.batch_statistics import LOG, count_if, healthy, is_damaged
from minikafka.spark.analyze.codec_trials import read_batches, sampled
from minikafka.spark.analyze.inputs import (
    InputError,
    LogDirectory,
    NamedDirectory,
    find_directories,
    is_replicated,
)
from minikafka.spark.analyze.passes import read_headers, read_records, small_frame, try_codecs
from minikafka.spark.analyze.replica_check import check_replicas, limits_of
from minikafka.spark.source.record_sums import KafkaLogSumsDataSource
from minikafka.spark.source.split_reader import OPEN_BYTES
from minikafka.types import TopicPartition

BATCH_SIZE = 16_384
"""The producers' batch.size unless they set it (``ProducerConfig``)."""

TOP_KEYS = 10

HEADER_COLUMNS = (
    *("topic", "partition", "log_dir", "segment", "position", "size", "base_offset", "last_offset"),
    *("leader_epoch", "crc", "crc_ok", "codec", "records", "timestamp_type", "base_timestamp"),
    *("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "is_transactional", "is_control"),
    *("control_type", "delete_horizon", "error"),
)


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


SHUFFLE_BYTES = 128 << 20
"""Of the log for each task behind a shuffle: what a key is known by takes less than its records."""

SPLIT_BYTES_MIN, SPLIT_BYTES_MAX = 64 << 20, 1 << 30
"""Below, starting a task counts; above, one that fails costs minutes."""

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

Phase = Callable[[str], AbstractContextManager[None]]
"""Shows progress while its body runs: ``JobProgress.phase``."""


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
    return Analysis(
        format=FORMAT,
        created_ms=now_ms,
        directories=[
            Directory(
                path=each.path, broker=each.broker, cluster_id=each.cluster_id, partitions=len(each.logs)
            )
            for each in directories
        ],
        topics=[assemble_topic(name, members, figures) for name, members in by_topic.items()],
        replicas=replicas,
        approximations=list(APPROXIMATIONS),
    )


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


_Ends = dict[tuple[str, LogId], Row]

_TO_THE_END = -1
"""Spark's Kafka source: an ending offset that stands for the latest."""


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
