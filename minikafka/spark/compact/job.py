"""``minikafka compact``: keeps the newest record of each key, by Spark. Kafka: ``Cleaner``.

    find the logs ─> headers of all batches: bounds, producers, transactions ─> plan
        │
    keys and offsets below the bounds ─> the newest of each key ─> by group of segments, in order
        │
    each group is copied without the others, as .cleaned files in the log's directory ``compaction``
        │
    verify: has the newest record of any key changed? ─> a manifest ─> the swap

The logs, as their directory has them, are the driver's, which reaches the directory by a path: new segments
take the place of old ones by renames, so they must lie on the same file system.

The swap is the broker's where one holds the directory, and is refused when the log has changed meanwhile;
without a broker the job takes the directory's lock, from beginning to end, and swaps by itself. A dry run
measures, and writes nothing.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager as ContextManager
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession

from minikafka.config.topic import TopicConfig
from minikafka.errors import StartError
from minikafka.files import DirectoryLock, Files, make_private_directory
from minikafka.log.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    CorruptCheckpoint,
    encode_uuid,
    lock_directory,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
)
from minikafka.log.cleaner import read_aborted
from minikafka.log.files import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, file_name
from minikafka.log.staged_compaction import (
    CompactionManifest,
    CompactionResult,
    SourceSegment,
    StagedSource,
    epochs_below,
    finish_interrupted,
    staging_directory,
    swap_offline,
    write_manifest,
)
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark import register
from minikafka.spark.compact.plan import (
    OUTCOME_SCHEMA,
    CopyOutcome,
    CopyTask,
    Plan,
    ProducerInSegment,
    StoredLog,
    changed_keys,
    copy_group,
    copy_tasks,
    first_open_offsets,
    make_plan,
    newest_of_keys,
    offsets_by_group,
    open_producers,
    producers_by_segment,
)
from minikafka.spark.runtime.job import remove_attempts
from minikafka.spark.runtime.session import JobError
from minikafka.spark.runtime.storage import LocalStorage, location
from minikafka.spark.source.log_files import PartitionLog, find_logs
from minikafka.types import TopicPartition

VIEW = "view"
"""In a staging directory: the new segments under the names that segments have, to be read like a log."""

CHANGED_KEYS_MAX = 20
"""Named in an error; there must be none."""

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_BYTES_A_SHUFFLE_TASK = 128 * 1024 * 1024
"""Of log; keys and offsets are a tenth of it, or less."""

Phase = Callable[[str], ContextManager[None]]
"""Shows progress while its body runs: ``JobProgress.phase``."""

PutIn = Callable[[TopicPartition, str], None]
"""Has the broker that holds the directory put in what is prepared for a partition, with the manifest of this
id. Raises KafkaError."""


def find_stored_logs(
    files: Files, log_directory: str, wanted: Sequence[tuple[str, int | None]]
) -> list[StoredLog]:
    """The logs of ``wanted``: topics, each with a partition or (None) with all that are there.

    Raises:
        MinikafkaError: it is no log directory that can be listed, or has none of a topic or partition; a
            directory has the name of a segment's file.
        OSError: the disk's.
    """
    logs = find_logs(location(log_directory), LocalStorage(), log_directory)
    for topic, partition in wanted:
        if not any(_is_of(log.topic_partition, topic, partition) for log in logs):
            what = f"topic {topic}" if partition is None else f"partition {topic}-{partition}"
            raise JobError(f"{log_directory} has no {what}{_others(logs)}")
    first_dirty = _first_dirty(files, log_directory)
    return [
        _stored(files, log, first_dirty.get(log.topic_partition, 0))
        for log in logs
        if any(_is_of(log.topic_partition, *each) for each in wanted)
    ]


def _is_of(found: TopicPartition, topic: str, partition: int | None) -> bool:
    return found.topic == topic and partition in (None, found.partition)


def _others(logs: Iterable[PartitionLog]) -> str:
    topics = sorted({log.topic_partition.topic for log in logs})
    return f"; it has {', '.join(topics[:10])}{', …' if len(topics) > 10 else ''}" if topics else ""


def _stored(files: Files, log: PartitionLog, first_dirty_offset: int) -> StoredLog:
    segments = tuple(
        SourceSegment(
            each.base_offset,
            each.size,
            each.offset_index_bytes or 0,
            each.time_index_bytes or 0,
            bool(each.txn_index_bytes),
        )
        for each in log.segments
    )
    paths = {each.base_offset: os.path.join(log.path, each.name) for each in log.segments}
    for base_offset in paths:
        for suffix in SEGMENT_SUFFIXES:
            path = os.path.join(log.path, file_name(base_offset, suffix))
            if files.is_directory(path):
                raise JobError(f"{path} is a directory where a file should be: move it away")
    topic_id = read_partition_metadata(files, log.path)
    return StoredLog(
        topic_partition=log.topic_partition,
        directory=log.path,
        segments=segments,
        modified_ms={base_offset: files.modified_ms(path) for base_offset, path in paths.items()},
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        first_dirty_offset=first_dirty_offset,
        topic_id=None if topic_id is None else encode_uuid(topic_id),
        leader_epochs=tuple(read_leader_epochs(files, os.path.join(log.path, LEADER_EPOCH_CHECKPOINT))),
    )


def _first_dirty(files: Files, log_directory: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(files, os.path.join(log_directory, CLEANER_OFFSET_CHECKPOINT))
    except CorruptCheckpoint:
        return {}  # then all counts as dirty, as in a broker


def locked(files: Files, log_directory: str) -> DirectoryLock:
    """No broker takes the directory meanwhile. Raises JobError: one has it; OSError: it cannot be written."""
    try:
        return lock_directory(files, log_directory)
    except StartError:
        raise JobError(
            f"{log_directory} is held by a broker, to be named with --bootstrap-server HOST:PORT, or by "
            "another minikafka compact"
        ) from None


@contextmanager
def staging_of(files: Files, directories: Sequence[str]) -> Iterator[None]:
    """An empty staging directory in each log's directory, ours alone; gone at the end, whatever comes.

    Raises:
        JobError: another job works there.
        OSError: the disk's.
    """
    with ExitStack() as stack:
        for directory in directories:
            staging = staging_directory(directory)
            files.make_directory(staging)
            try:
                lock = files.lock(os.path.join(staging, LOCK_FILE))
            except BlockingIOError:
                raise JobError(f"{staging} is locked: another minikafka compact is at work there") from None
            stack.callback(_clear, files, directory)
            stack.callback(lock.release)
            for name in files.list(staging):
                if name != LOCK_FILE:
                    remove_attempts(files, os.path.join(staging, name))
                    files.remove(os.path.join(staging, name))
        yield


def _clear(files: Files, directory: str) -> None:
    if files.is_directory(directory):  # the topic may have been deleted
        remove_attempts(files, staging_directory(directory))


def collect_attempts(files: Files, directory: str, outcomes: Sequence[CopyOutcome]) -> CompactionResult:
    """Bring the files of the attempts that count together. Returns what was done, but for ``end_offset``.

    Raises OSError.
    """
    staging = staging_directory(directory)
    for outcome in outcomes:
        attempt = os.path.join(staging, outcome.attempt)
        for name in files.list(attempt):
            files.rename(os.path.join(attempt, name), os.path.join(staging, name))
    for name in files.list(staging):
        if name.startswith("attempt-"):
            remove_attempts(files, os.path.join(staging, name))
    return CompactionResult(
        segments=tuple(new for outcome in outcomes for new in outcome.segments),
        end_offset=0,
        records_kept=sum(outcome.records_kept for outcome in outcomes),
        records_dropped=sum(outcome.records_dropped for outcome in outcomes),
        map_entries=0,
    )


@contextmanager
def view_of(directory: str, result: CompactionResult) -> Iterator[str]:
    """The new segments as a log directory of their own, for a while: hard links with the names of
    segments."""
    staging = staging_directory(directory)
    view = os.path.join(staging, VIEW)
    log = os.path.join(view, os.path.basename(directory))
    make_private_directory(log)
    links = []
    try:
        for new in result.segments:
            for suffix in SEGMENT_SUFFIXES:
                name = file_name(new.base_offset, suffix)
                source = os.path.join(staging, name + CLEANED_SUFFIX)
                if suffix == LOG_SUFFIX or os.path.exists(source):
                    os.link(source, os.path.join(log, name))
                    links.append(os.path.join(log, name))
        yield view
    finally:
        for link in links:
            os.unlink(link)
        os.rmdir(log)
        os.rmdir(view)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for."""

    log_directory: str
    """An absolute path, the same on every machine that works on it."""
    wanted: tuple[tuple[str, int | None], ...]
    """Topics, each with one partition or (None) with all."""
    config: Callable[[str], TopicConfig]
    """The configuration of a topic."""
    codec: CompressionType | None = None
    """Of all batches afterwards; None: each keeps its own."""
    dry_run: bool = False
    verify: bool = True
    put_in: PutIn | None = None
    """None: no broker holds the directory."""


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """What came of one log."""

    topic: str
    partition: int
    skipped: str = ""
    """Why nothing of it could be compacted."""
    end_offset: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    batches: int = 0
    """Of the segments before."""
    records_kept: int = 0
    records_dropped: int = 0


def compact(
    spark: SparkSession, request: Request, *, files: Files, now_ms: int, phase: Phase
) -> list[Compacted]:
    """Do it, and say what was done to each log, in the order of topics and partitions.

    Raises:
        MinikafkaError: the directory cannot be used, a log is damaged, or the swap was refused; logs that are
            not named as done are as they were.
        PySparkException: a log cannot be read; ``failures.explain`` has the line.
        OSError: the disk's.
    """
    register(spark)
    logs = find_stored_logs(files, request.log_directory, request.wanted)
    with ExitStack() as stack:
        if not request.dry_run and request.put_in is None:
            stack.callback(locked(files, request.log_directory).release)
            for log in logs:
                finish_interrupted(files, log.directory, config=request.config(log.topic_partition.topic))
            logs = find_stored_logs(files, request.log_directory, request.wanted)
        _size_shuffles(spark, sum(segment.size for log in logs for segment in log.segments))
        with phase("batch headers"):
            plans = _plans(spark, request, logs, now_ms)
        chosen = [plan for plan in plans if plan.groups]
        if not request.dry_run:
            stack.enter_context(staging_of(files, [plan.log.directory for plan in chosen]))
        done = _compact(spark, request, chosen, files, phase) if chosen else {}
    return [
        done.get(plan.log.topic_partition)
        or Compacted(
            topic=plan.log.topic_partition.topic,
            partition=plan.log.topic_partition.partition,
            skipped=plan.reason,
        )
        for plan in plans
    ]


def _size_shuffles(spark: SparkSession, size_bytes: int) -> None:
    """As many tasks behind a shuffle as there is work for, where the user has not said how many: what is
    kept for the verification is not shuffled again by what Spark finds while it runs."""
    if not spark.sparkContext.getConf().contains(_SHUFFLE_PARTITIONS):
        count = max(spark.sparkContext.defaultParallelism, size_bytes // _BYTES_A_SHUFFLE_TASK)
        spark.conf.set(_SHUFFLE_PARTITIONS, count)


# Reading


def _reader(
    spark: SparkSession, source: str, path: Any, logs: Sequence[TopicPartition], **options: str
) -> DataFrame:
    assigned: dict[str, list[int]] = {}
    for topic, partition in logs:
        assigned.setdefault(topic, []).append(partition)
    reader = spark.read.format(source).option("path", json.dumps(path)).option("assign", json.dumps(assigned))
    return reader.options(**options).load()


def _plans(spark: SparkSession, request: Request, logs: Sequence[StoredLog], now_ms: int) -> list[Plan]:
    names = [log.topic_partition for log in logs]
    columns = (
        "topic,partition,segment,base_offset,last_offset,records,max_timestamp,producer_id,producer_epoch,"
        "is_transactional,is_control"
    )
    batches = _reader(
        spark,
        "kafka-log-batches",
        [request.log_directory],
        names,
        columns=columns,
        latest="logEnd",
        onCorrupt="fail",
    )
    rows: dict[TopicPartition, list[ProducerInSegment]] = {}
    for row in producers_by_segment(batches).collect():
        rows.setdefault(TopicPartition(row.topic, row.partition), []).append(_producer(row))
    markers = [
        (*at, producer_id, marker)
        for at, found in rows.items()
        for producer_id, marker in open_producers(found).items()
    ]
    first_open: dict[TopicPartition, int] = {}
    if markers:
        schema = "topic string, partition int, producer_id long, marker long"
        for row in first_open_offsets(batches, spark.createDataFrame(markers, schema)).collect():
            at = TopicPartition(row.topic, row.partition)
            first_open[at] = min(first_open.get(at, row.offset), row.offset)
    return [
        make_plan(
            log,
            rows.get(log.topic_partition, []),
            first_open_offset=first_open.get(log.topic_partition),
            config=request.config(log.topic_partition.topic),
            now_ms=now_ms,
        )
        for log in logs
    ]


def _producer(row: Row) -> ProducerInSegment:
    data = row.data_of_epoch
    return ProducerInSegment(
        base_offset=int(row.segment.partition(".")[0]),
        producer_id=row.producer_id,
        max_timestamp=row.max_timestamp,
        producer_epoch=row.producer_epoch,
        data_epoch=-1 if data is None else data.producer_epoch,
        last_data_offset=-1 if data is None else data.last_offset,
        transactional_data=-1 if row.transactional_data is None else row.transactional_data,
        marker=-1 if row.marker is None else row.marker,
        batches=row.batches,
    )


def _records(
    spark: SparkSession, request: Request, plans: Sequence[Plan], columns: str, **options: str
) -> DataFrame:
    """The committed records below the ends of the plans."""
    ends: dict[str, dict[str, int]] = {}
    for plan in plans:
        topic, partition = plan.log.topic_partition
        ends.setdefault(topic, {})[str(partition)] = plan.end_offset
    return _reader(
        spark,
        "kafka-log",
        [request.log_directory],
        [plan.log.topic_partition for plan in plans],
        columns=columns,
        isolation="read_committed",
        endingOffsets=json.dumps(ends),
        **options,
    )


# Compacting


def _compact(
    spark: SparkSession, request: Request, plans: Sequence[Plan], files: Files, phase: Phase
) -> dict[TopicPartition, Compacted]:
    tasks = _tasks(plans, request, files)
    newest = newest_of_keys(_records(spark, request, plans, "topic,partition,key,offset"))
    if request.verify and not request.dry_run:
        newest = newest.persist()
    try:
        with phase("compaction"):
            outcomes = _copy(spark, newest, list(chain.from_iterable(tasks)))
        done = {}
        prepared: list[tuple[Plan, CompactionResult]] = []
        for plan, of_plan in zip(plans, tasks, strict=True):
            found = [outcomes[task.group] for task in of_plan]
            done[plan.log.topic_partition] = _compacted(plan, found)
            if not request.dry_run:
                result = collect_attempts(files, plan.log.directory, found)
                prepared.append((plan, msgspec.structs.replace(result, end_offset=plan.end_offset)))
        if request.dry_run:
            return done
        if request.verify:
            with phase("verification"):
                _verify(spark, request, prepared, newest)
    finally:
        newest.unpersist()
    with phase("swap"):
        for plan, result in prepared:
            _swap(request, plan, result, files)
    return done


def _tasks(plans: Sequence[Plan], request: Request, files: Files) -> list[list[CopyTask]]:
    tasks: list[list[CopyTask]] = []
    first_group = 0
    for plan in plans:
        assert plan.job is not None
        tasks.append(
            copy_tasks(
                plan,
                read_aborted(plan.job, files),
                first_group=first_group,
                staging=None if request.dry_run else staging_directory(plan.log.directory),
                codec=request.codec,
            )
        )
        first_group += len(tasks[-1])
    return tasks


def _copy(spark: SparkSession, newest: DataFrame, tasks: Sequence[CopyTask]) -> dict[int, CopyOutcome]:
    """The outcomes by group. Raises JobError: what the first that failed says."""
    by_group = {task.group: task for task in tasks}
    rows = [_group(task) for task in tasks]
    schema = "topic string, partition int, group int, first_offset long, end_offset long"
    groups = spark.createDataFrame(rows, schema)
    retained = offsets_by_group(newest, groups, group_count=len(tasks))
    answers = retained.mapInArrow(copy_group(by_group), OUTCOME_SCHEMA).collect()
    outcomes = [msgspec.json.decode(answer.outcome, type=CopyOutcome) for answer in answers]
    for outcome in sorted(outcomes, key=lambda each: each.group):
        if outcome.error is not None:
            raise JobError(outcome.error)
    return {outcome.group: outcome for outcome in outcomes}


def _group(task: CopyTask) -> tuple[str, int, int, int, int]:
    topic, _, partition = task.job.directory.rpartition("/")[2].rpartition("-")
    return topic, int(partition), task.group, task.sources[0].base_offset, task.end_offset


def _compacted(plan: Plan, outcomes: Sequence[CopyOutcome]) -> Compacted:
    topic, partition = plan.log.topic_partition
    sources = list(chain.from_iterable(plan.groups))
    return Compacted(
        topic=topic,
        partition=partition,
        end_offset=plan.end_offset,
        segments_before=len(sources),
        segments_after=sum(len(outcome.segments) for outcome in outcomes),
        bytes_before=sum(source.size for source in sources),
        bytes_after=sum(outcome.size for outcome in outcomes),
        batches=plan.batches,
        records_kept=sum(outcome.records_kept for outcome in outcomes),
        records_dropped=sum(outcome.records_dropped for outcome in outcomes),
    )


def _verify(
    spark: SparkSession,
    request: Request,
    prepared: Sequence[tuple[Plan, CompactionResult]],
    newest: DataFrame,
) -> None:
    """Raises JobError: the newest record of some key is another one."""
    plans = [plan for plan, _ in prepared]
    columns = "topic,partition,key,offset,value,timestamp,headers"
    before = _records(spark, request, plans, columns, includeHeaders="true")
    with ExitStack() as stack:
        views = [stack.enter_context(view_of(plan.log.directory, result)) for plan, result in prepared]
        logs = [plan.log.topic_partition for plan in plans]
        after = _reader(
            spark, "kafka-log", views, logs, columns=columns, includeHeaders="true", latest="logEnd"
        )
        changed = changed_keys(before, after, newest).limit(CHANGED_KEYS_MAX).collect()
    if changed:
        raise JobError(
            "the newest record of a key would not be the same, so nothing was swapped in; this is a bug: "
            + "; ".join(map(_changed, changed))
        )


def _changed(row: Row) -> str:
    name = bytes(row.key).decode("utf-8", "backslashreplace")
    where = [
        "nowhere" if each is None else f"at offset {each}" for each in (row.offset_before, row.offset_after)
    ]
    return f"key {name!r} of {row.topic}-{row.partition} was {where[0]} and would be {where[1]}"


def _swap(request: Request, plan: Plan, result: CompactionResult, files: Files) -> None:
    """Raises MinikafkaError, OSError."""
    log = plan.log
    manifest = CompactionManifest(
        id=uuid.uuid4().hex,
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        topic_id=log.topic_id,
        sources=tuple(
            StagedSource(source.base_offset, source.size, log.modified_ms[source.base_offset])
            for source in chain.from_iterable(plan.groups)
        ),
        leader_epochs=epochs_below(log.leader_epochs, plan.end_offset),
        result=result,
    )
    write_manifest(files, log.directory, manifest)
    if request.put_in is None:
        swap_offline(files, log.directory, manifest)
    else:
        request.put_in(log.topic_partition, manifest.id)
