"""``minikafka import``: the rows of a table as records of a topic, written into its log directory.

    units of the table ─> tasks: rows ─> records ─> batches, by partition ─> runs
        │
    how many records each task has for each partition ─> offsets, segments
        │
    tasks: batches ─> segments with indexes, stamped ─> one commit

No record is shuffled: a task takes units that follow each other, and the batches of a partition follow in the
order of tasks. So records lie in the order of the table. Where they are to lie in the order of a column
(``order_by``; of an export, its offsets), the statistics of the files often say that the table, or its units
sorted by them, is in that order; only where it is not Spark sorts the records, which costs a shuffle.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from minikafka.config.topic import TopicConfig
from minikafka.files import Files, OsFiles
from minikafka.metrics.series import BATCHES, BYTES, OUTPUT_BYTES, PARTITIONS, RECORDS
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark.export.decoding import Kind
from minikafka.spark.load.rows import PREPARED, PREPARED_DDL, RowMapping, RowPreparer, Side
from minikafka.spark.load.segments import (
    CHUNK_BYTES,
    CHUNK_BYTES_MAX,
    Assembly,
    EncodeSettings,
    MadeSegment,
    Piece,
    Run,
    RunWriter,
    SegmentTask,
    make_segment,
    name_segments,
    plan_segments,
    read_table,
)
from minikafka.spark.load.tables import Table, TableFormat, Unit, find_table
from minikafka.spark.load.target import (
    RUNS,
    Target,
    check_topic,
    commit,
    find_target,
    finish,
    locked,
    log_path,
    remove_left_over,
    staging,
)
from minikafka.spark.runtime.job import Job
from minikafka.spark.runtime.session import JobError

KEY, VALUE, TIMESTAMP, HEADERS, PARTITION, OFFSET = (
    "key",
    "value",
    "timestamp",
    "headers",
    "partition",
    "offset",
)
"""What an export calls its columns, and what is taken where no other is named."""
EXPORT_COLUMNS: Final = frozenset({"topic", PARTITION, OFFSET})

NO_COLUMN, WHOLE_ROW = "-", "*"
"""In place of a column's name."""

TASK_BYTES_MIN, TASK_BYTES_MAX = 32 * 1024 * 1024, 256 * 1024 * 1024
_TASKS_A_CORE: Final = 3
SORTED_UNIT_BYTES_MAX: Final = 512 * 1024 * 1024
"""A larger row group is not sorted in the memory of one task."""

_OUTCOME: Final = pa.schema([pa.field("outcome", pa.binary())])
_OUTCOME_DDL: Final = "outcome binary"

_Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the user asked for."""

    source: str
    kind: TableFormat | None
    catalog: str | None
    source_topic: str
    log_directory: str
    """An absolute path, the same on every machine that works on it."""
    topic: str
    partitions: int | None
    key: Side
    """A column of None is the default one, or ``NO_COLUMN`` or ``WHOLE_ROW``."""
    value: Side
    timestamp: str | None
    headers: str | None
    partition: str | None
    order_by: str | None
    codec: CompressionType
    level: int | None
    """None: what a broker takes that is told nothing."""
    batch_bytes: int
    config: TopicConfig
    dry_run: bool


class FilledPartition(msgspec.Struct, frozen=True, kw_only=True):
    """What one partition got."""

    partition: int
    first_offset: int
    end_offset: int
    segments: int
    bytes: int


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What an import has done, or would do."""

    topic: str
    is_new_topic: bool
    is_dry_run: bool
    rows: int
    """As the table says."""
    records: int
    record_bytes: int
    """Of keys and values."""
    log_bytes: int
    seconds: float
    sorted_by_spark: bool
    """Records had to be shuffled, to lie in the order that was asked for."""
    order_by: str | None
    value: str
    """The column of the values."""
    partitions: tuple[FilledPartition, ...]
    finished: str | None = None
    """The topic of an earlier import, which was interrupted and has been put in place before this one."""


class EncodeTask(msgspec.Struct, frozen=True, kw_only=True):
    """Units that follow each other, and where their run goes."""

    number: int
    units: tuple[Any, ...]
    mapping: RowMapping
    partitions: int
    settings: EncodeSettings
    directory: str


def load(job: Job, options: ImportOptions, *, files: Files | None = None) -> Imported:
    """Import the table.

    Raises:
        MinikafkaError: the table, the topic or the directory cannot be used, in one line.
        PySparkException: a task failed; ``explain`` has the line.
        OSError: the disk's.
    """
    files = files or OsFiles()
    began_s = time.monotonic()
    check_topic(options.topic)
    with job.progress.phase("plan"):
        table = find_table(
            options.source,
            kind=options.kind,
            topic=options.source_topic,
            catalog=options.catalog,
        )
        mapping = choose_columns(table, options, now_ms=time.time_ns() // 1_000_000)
        units = units_in_order(table, mapping, lane=_lane(table, options))
    if options.dry_run:
        target = find_target(files, options.log_directory, options.topic, options.partitions, options.config)
        return _report(table, options, mapping, target, (), (), began_s, is_sorted=units is not None)
    with locked(files, options.log_directory):
        finished = finish(files, options.log_directory)
        remove_left_over(files, options.log_directory)
        target = find_target(files, options.log_directory, options.topic, options.partitions, options.config)
        with staging(files, target) as staged:
            runs = _encode(job, table, units, mapping, options, target, staged)
            made, ends = _assemble(job, runs, options, target, staged)
            if made:
                with job.progress.phase("commit"):
                    commit(files, target, staged, made, ends)
    done = _report(table, options, mapping, target, runs, made, began_s, is_sorted=units is not None)
    _count(job, done, made)
    return done if finished is None else msgspec.structs.replace(done, finished=finished.topic)


# ---- columns


def choose_columns(table: Table, options: ImportOptions, *, now_ms: int) -> RowMapping:
    """Which columns of the table become what.

    Raises:
        JobError: one that is named is not in every row of the table, or no column is the value.
    """
    timestamp = _column(table, options.timestamp, TIMESTAMP, "--timestamp-column")
    headers = _column(table, options.headers, HEADERS, "--headers-column")
    partition = _column(table, options.partition, None, "--partition-column")
    order = _column(table, options.order_by, None, "--order-by")
    if options.order_by is None and table.columns >= EXPORT_COLUMNS:
        order = OFFSET
    return RowMapping(
        key=_side(table, options.key),
        value=_side(table, options.value),
        timestamp=timestamp,
        headers=headers,
        partition=partition,
        order=order,
        now_ms=now_ms,
    )


def _column(table: Table, wanted: str | None, default: str | None, option: str) -> str | None:
    if wanted == NO_COLUMN:
        return None
    if wanted is None:
        return default if default in table.columns else None
    if wanted not in table.columns:
        raise JobError(f"{table.shown} has no column {wanted} ({option}) in all of it{_there(table)}")
    return wanted


def _there(table: Table) -> str:
    names = sorted(table.columns)
    return f"; it has {', '.join(names[:20])}{', …' if len(names) > 20 else ''}" if names else ""


def _side(table: Table, wanted: Side) -> Side | None:
    is_key = wanted.what == KEY
    if wanted.column == WHOLE_ROW:
        if not wanted.kind.has_schema:
            raise JobError(f"whole rows are json, avro or protobuf: give --{wanted.what}-format")
        return _with_column(wanted, None)
    column = _column(table, wanted.column, wanted.what, f"--{wanted.what}-column")
    if column is not None:
        return _with_column(wanted, column)
    if is_key or wanted.column == NO_COLUMN:
        return None
    if wanted.kind in (Kind.BYTES, Kind.STRING):
        raise JobError(
            f"{table.shown} has no column value: name one with --value-column, or make values of whole rows "
            f"with --value-format json{_there(table)}"
        )
    return _with_column(wanted, None)


def _with_column(side: Side, column: str | None) -> Side:
    return Side(
        what=side.what,
        column=column,
        kind=side.kind,
        schema=side.schema,
        message=side.message,
        schema_id=side.schema_id,
    )


def _lane(table: Table, options: ImportOptions) -> str | None:
    """The column within whose values records are to be in order. Of an export, the partition: records of one
    key are in one, whichever partition they go to now."""
    if options.partition not in (None, NO_COLUMN):
        return options.partition
    return PARTITION if options.order_by is None and table.columns >= EXPORT_COLUMNS else None


# ---- order


def units_in_order(table: Table, mapping: RowMapping, *, lane: str | None) -> list[Unit] | None:
    """The units as they follow each other in the order that is wanted; None: not as far as is known, so
    records must be sorted."""
    units = list(table.units)
    if mapping.order is None or len(units) == 0:
        return units
    keyed = []
    for unit in units:
        ranges = unit.ranges()
        found = ranges.get(mapping.order)
        lanes = ranges.get(lane) if lane is not None else None
        if found is None or unit.size > SORTED_UNIT_BYTES_MAX:
            return None
        if lane is not None and (lanes is None or lanes.least != lanes.greatest):
            return None
        keyed.append((lanes.least if lanes else 0, found.least, found.greatest, unit))
    keyed.sort(key=lambda each: each[:3])
    for before, after in itertools.pairwise(keyed):
        if before[0] == after[0] and after[1] < before[2]:
            return None
    return [each[3] for each in keyed]


def _in_order(prepared: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The records of a unit by their position."""
    batches = [batch for batch in prepared if batch.num_rows]
    if not batches:
        return
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    positions = whole.column("position").to_numpy()
    if (np.diff(positions) < 0).any():
        whole = whole.take(pa.array(np.argsort(positions, kind="stable")))
    yield whole


# ---- runs


def encode_task(task: EncodeTask) -> Run:
    """Read the units and write their run. Raises JobError, OSError."""
    preparer = RowPreparer(
        task.mapping, partitions=task.partitions, batch_bytes=task.settings.batch_bytes, task=task.number
    )
    writer = RunWriter(task.directory, task.number, task.settings)
    try:
        for unit in task.units:
            prepared = preparer.prepare(unit)
            for batch in prepared if task.mapping.order is None else _in_order(prepared):
                writer.add(batch)
        return writer.finish()
    finally:
        writer.close()


def plan_tasks(units: Sequence[Unit], *, parallelism: int) -> list[list[Unit]]:
    """Units that follow each other, for tasks of about the same size."""
    total = sum(unit.size for unit in units)
    wanted = min(TASK_BYTES_MAX, max(TASK_BYTES_MIN, total // max(1, parallelism * _TASKS_A_CORE)))
    tasks: list[list[Unit]] = []
    size = 0
    for unit in units:
        if not tasks or size + unit.size // 2 > wanted:
            tasks.append([])
            size = 0
        tasks[-1].append(unit)
        size += unit.size
    return tasks


def _encode(
    job: Job,
    table: Table,
    units: Sequence[Unit] | None,
    mapping: RowMapping,
    options: ImportOptions,
    target: Target,
    staged: str,
) -> list[Run]:
    count = len(target.partitions)
    settings = EncodeSettings(
        codec=options.codec,
        level=options.level,
        batch_bytes=options.batch_bytes,
        batch_bytes_max=min(options.config.max_message_bytes, options.config.segment_bytes),
        chunk_bytes=min(CHUNK_BYTES_MAX, max(CHUNK_BYTES, 4 * count * min(options.batch_bytes, 64 * 1024))),
    )
    parallelism = job.spark.sparkContext.defaultParallelism
    tasks = [
        EncodeTask(
            number=number,
            units=tuple(chosen),
            mapping=mapping,
            partitions=count,
            settings=settings,
            directory=f"{staged}/{RUNS}",
        )
        for number, chosen in enumerate(plan_tasks(units or table.units, parallelism=parallelism))
    ]
    if not tasks:
        return []
    with job.progress.phase("encode" if units is not None else "sort and encode"):
        numbers = job.spark.range(0, len(tasks), 1, len(tasks))
        if units is not None:
            outcomes = numbers.mapInArrow(
                _each(tasks, encode_task, options.log_directory), _OUTCOME_DDL
            ).collect()
        else:
            width = max(1, min(count, max(parallelism, len(tasks))))
            records = numbers.mapInArrow(_preparing(tasks), PREPARED_DDL)
            by_partition = records.repartition(width, "partition").sortWithinPartitions(
                "partition", "position"
            )
            outcomes = by_partition.mapInArrow(
                _encoding_sorted(tasks[0], options.log_directory), _OUTCOME_DDL
            ).collect()
    runs = [msgspec.json.decode(row.outcome, type=Run) for row in outcomes]
    return sorted(runs, key=lambda run: run.task)


def _each(tasks: Sequence[Any], work: Callable[[Any], Any], log_directory: str) -> _Work:
    """Do the tasks whose numbers come; give back what came of each."""

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                with _told(log_directory):
                    done = work(tasks[number])
                yield _outcome(done)

    return run


@contextmanager
def _told(log_directory: str) -> Iterator[None]:
    """A disk's error as one line: a write that fails names no file. Raises JobError."""
    try:
        yield
    except OSError as error:
        where = error.filename or log_directory
        raise JobError(f"{where}: {error.strerror or error}; nothing was imported") from error


def _outcome(value: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(value)], pa.binary())], schema=_OUTCOME)


def _preparing(tasks: Sequence[EncodeTask]) -> _Work:
    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                task = tasks[number]
                preparer = RowPreparer(
                    task.mapping,
                    partitions=task.partitions,
                    batch_bytes=task.settings.batch_bytes,
                    task=number,
                )
                for unit in task.units:
                    yield from preparer.prepare(unit)

    return run


def _encoding_sorted(task: EncodeTask, log_directory: str) -> _Work:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _told(log_directory):
            done = _encode_sorted(task, batches)
        yield _outcome(done)

    return run


def _encode_sorted(task: EncodeTask, batches: Iterator[pa.RecordBatch]) -> Run:
    from pyspark import TaskContext

    context = TaskContext.get()
    writer = RunWriter(task.directory, 0 if context is None else context.partitionId(), task.settings)
    try:
        for batch in batches:
            writer.add(batch.cast(PREPARED))
        return writer.finish()
    finally:
        writer.close()


# ---- segments


def _assemble(
    job: Job, runs: Sequence[Run], options: ImportOptions, target: Target, staged: str
) -> tuple[list[MadeSegment], dict[int, int]]:
    with job.progress.phase("segments"):
        assemblies = plan_assemblies(runs, options, target, staged)
        tasks: list[SegmentTask] = [task for each in assemblies.values() for task in each.tasks]
        if not tasks:
            return [], {}
        numbers = job.spark.range(0, len(tasks), 1, len(tasks))
        outcomes = numbers.mapInArrow(
            _each(tasks, make_segment, options.log_directory), _OUTCOME_DDL
        ).collect()
        made = [msgspec.json.decode(row.outcome, type=MadeSegment) for row in outcomes]
        name_segments(made)
    return made, {partition: each.end_offset for partition, each in assemblies.items()}


def plan_assemblies(
    runs: Sequence[Run], options: ImportOptions, target: Target, staged: str
) -> dict[int, Assembly]:
    """The segments of each partition. Raises OSError."""
    pieces: dict[int, list[Piece]] = {}
    for run in runs:
        table = read_table(run)
        table = table[np.argsort(table["partition"], kind="stable")]
        edges = np.flatnonzero(np.diff(table["partition"])) + 1
        for part in np.split(table, edges) if table.size else ():
            pieces.setdefault(int(part["partition"][0]), []).append(Piece(run.path, part))
    return {
        each.partition: plan_segments(
            pieces.get(each.partition, ()),
            partition=each.partition,
            first_offset=each.end_offset,
            leader_epoch=each.leader_epoch,
            directory=log_path(staged, target.topic, each.partition),
            segment_bytes=options.config.segment_bytes,
            index_interval_bytes=options.config.index_interval_bytes,
        )
        for each in target.partitions
    }


# ---- what was done


def _report(
    table: Table,
    options: ImportOptions,
    mapping: RowMapping,
    target: Target,
    runs: Sequence[Run],
    made: Sequence[MadeSegment],
    began_s: float,
    *,
    is_sorted: bool,
) -> Imported:
    filled = []
    for each in target.partitions:
        mine = [segment for segment in made if segment.partition == each.partition]
        records = sum(segment.records for segment in mine)
        filled.append(
            FilledPartition(
                partition=each.partition,
                first_offset=each.end_offset,
                end_offset=each.end_offset + records,
                segments=len(mine),
                bytes=sum(segment.size for segment in mine),
            )
        )
    return Imported(
        topic=options.topic,
        is_new_topic=target.is_new,
        is_dry_run=options.dry_run,
        rows=sum(unit.rows for unit in table.units),
        records=sum(run.records for run in runs),
        record_bytes=sum(run.record_bytes for run in runs),
        log_bytes=sum(segment.size for segment in made),
        seconds=time.monotonic() - began_s,
        sorted_by_spark=not is_sorted,
        order_by=mapping.order,
        value="null" if mapping.value is None else mapping.value.column or "the whole row",
        partitions=tuple(filled),
    )


def _count(job: Job, done: Imported, made: Sequence[MadeSegment]) -> None:
    topic = done.topic
    job.counters.add(RECORDS, done.records, topic=topic)
    job.counters.add(BYTES, done.record_bytes, topic=topic)
    job.counters.add(BATCHES, sum(segment.batches for segment in made), topic=topic)
    job.counters.add(PARTITIONS, sum(each.segments > 0 for each in done.partitions), topic=topic)
    job.counters.add(OUTPUT_BYTES, done.log_bytes, topic=topic)
