"""``minikafka export --format iceberg|delta``: each topic into a table of its own. How each offset gets there
once: ``table``.

A run reads what is new of a topic, decodes it, lets the table's columns grow, writes data files in tasks, and
commits them on the driver. What does not decode or does not fit is written in the same pass, and committed to
the errors table behind the records: the records' commit names those files, so a crash between the two loses
nothing.

With ``--upsert`` a table has the newest record of each key. A key is to be in one partition, as Kafka's
partitioner puts it; of several partitions in one run the youngest timestamp counts, and a later run replaces
what an earlier one wrote. A null value removes the key.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from minikafka.metrics.series import LAG, OUTPUT_BYTES
from minikafka.spark import register
from minikafka.spark.export.decoding import KEY, VALUE, Decoder, Kind, TopicFormat
from minikafka.spark.export.job import (
    ERROR_COLUMNS,
    RECORD_COLUMNS,
    ExportOptions,
    ExportRange,
    count_ranges,
    count_records,
    decoded_records,
    make_decoder,
    plan,
    topic_ids,
)
from minikafka.spark.export.record_schemas import former_names, protobuf_numbers
from minikafka.spark.runtime.job import Job
from minikafka.spark.runtime.session import JobError
from minikafka.spark.source.log_files import PartitionLog
from minikafka.spark.source.options import ReadOptions, parse_options
from minikafka.spark.source.planning import log_end_offset, selected_logs
from minikafka.spark.tables.columns import (
    ERRORS_SCHEMA,
    Misfit,
    Path,
    as_spark,
    merged,
    misfit_reason,
    renamed,
    renames,
    wanted_columns,
)
from minikafka.spark.tables.files import (
    DATA,
    DELETES_SCHEMA,
    PATH,
    POSITION,
    RAW_KEY,
    RAW_VALUE,
    READ_SCHEMA,
    REASON,
    WRITTEN_SCHEMA,
    FileSet,
    RunDirectory,
    WrittenDeletes,
    WrittenFile,
    new_run,
    reading,
    unfinished_runs,
    writing,
    writing_deletes,
    written,
)
from minikafka.spark.tables.table import (
    BUCKET,
    COPY_ON_WRITE,
    FIELDS,
    IDENTITY,
    MERGE_MODE,
    MERGE_ON_READ,
    TOPIC,
    TOPIC_ID,
    UPSERT,
    Change,
    CommitUnknown,
    Conflict,
    Evolution,
    LiveFile,
    PartitionField,
    Progress,
    Table,
    Tables,
    check_partitions,
    check_topic,
    decode_numbers,
    encode_numbers,
    partition_value,
)

COLUMNS = [name for name in RECORD_COLUMNS if name != "topic"]
COMMIT_TRIES = 5
"""On top of commits of others that leave the offsets alone."""
SMALL_PART = 4
"""A file of less than a fourth of the target is small, as by Iceberg's rewriteDataFiles with its 75 % turned
round: files between need no rewriting."""
SMALL_FILES_MIN = 16
"""In one partition, before they are written as one."""
DELETED_PART = 0.3
"""Of a file's rows, behind position deletes, before it is written again without them: the default of
Iceberg's rewriteDataFiles (``delete-ratio-threshold``)."""
DELETE_FILES_MAX = 16
"""Of one data file, before that: each is opened by every reader of it."""
UPSERT_TASK_OFFSETS = 500_000
"""The most for one task of an upsert: half a gigabyte with records of 1 KB."""
SMALL_TASK_OFFSETS = 50_000
"""So few are not worth another task."""
_PARTITION = "__partition_{}"
_RANK, _ALONE = "__rank", "__alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What the user asked for."""

    export: ExportOptions
    """``output`` and ``by`` do not matter."""
    partitions: tuple[PartitionField, ...] | None
    """None: as the table is, or not at all."""
    is_upsert: bool
    merge_mode: str | None
    """MERGE_ON_READ or COPY_ON_WRITE, of upserts into a new table; None: MERGE_ON_READ where the format has
    delete files. Later runs follow the table."""
    keeps_errors: bool
    """What does not decode or fit goes to the errors table; else ``export.on_error`` says."""
    target_bytes: int
    expire_after_ms: int | None
    """None: snapshots are kept."""


class TopicCommit(NamedTuple):
    """What a run did for a topic."""

    table: str
    progress: Progress
    errors: int


def export_tables(job: Job, options: TableOptions, tables: Tables) -> list[TopicCommit]:
    """Export what is new, topic by topic. Returns their commits; a topic without anything new has none.

    Raises:
        MinikafkaError: something cannot be used, in one line. Topics before it are committed.
    """
    register(job.spark)
    with job.progress.phase("plan"):
        read = parse_options({**options.export.source(), **options.export.selection})
        logs = selected_logs(read)
        ids = topic_ids(logs)
    by_topic: dict[str, list[PartitionLog]] = {}
    for log in logs:
        by_topic.setdefault(log.topic_partition.topic, []).append(log)
    check_names(by_topic, tables)
    commits = []
    for topic, found in sorted(by_topic.items()):
        export = _TopicExport(job, options, tables, topic, ids.get(topic))
        commit = export.run(found, read)
        if commit is not None:
            commits.append(commit)
        job.counters.set(LAG, export.lag(found), topic=topic)
    return commits


def check_names(topics: Mapping[str, object], tables: Tables) -> None:
    """Raises JobError: two topics would have the same table."""
    seen: dict[str, str] = {}
    for topic in sorted(topics):
        for table in (tables.table(topic).name, tables.table(topic, errors=True).name):
            if table in seen:
                raise JobError(
                    f"the topics {seen[table]} and {topic} would both have the table {table}: export them "
                    "into different namespaces or directories, with --topics"
                )
            seen[table] = topic


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _TopicExport:
    """One topic's way into its table."""

    def __init__(
        self, job: Job, options: TableOptions, tables: Tables, topic: str, topic_id: str | None
    ) -> None:
        self._job = job
        self._options = options
        self._tables = tables
        self._topic = topic
        self._topic_id = topic_id
        self._table = tables.table(topic)
        self._errors = tables.table(topic, errors=True)
        self._before: Progress | None = None

    def run(self, logs: Sequence[PartitionLog], read: ReadOptions) -> TopicCommit | None:
        """Export what is new of the topic."""
        is_there = self._table.load()
        if is_there:
            self._check_table()
            self._before = self._table.progress()
            self._check_topic_id()
            self._recover()
        done = self._before.offsets if self._before else {}
        ranges = plan(logs, {self._topic: done}, read)
        count_ranges(ranges, self._job.counters)
        commit = self._export(ranges, is_there) if ranges else None
        if self._table.load():
            self._tidy()
        return commit

    def lag(self, logs: Sequence[PartitionLog]) -> int:
        """Offsets between the table and the ends of the logs."""
        done = self._before.offsets if self._before else {}
        ends = {log.topic_partition.partition: (log.log_start_offset, log_end_offset(log)) for log in logs}
        return sum(max(0, end - done.get(partition, start)) for partition, (start, end) in ends.items())

    # What is there

    def _check_table(self) -> None:
        check_topic(self._table, self._topic)
        is_upsert = self._table.properties.get(UPSERT) == "true"
        if is_upsert != self._options.is_upsert:
            has = "the newest record of each key" if is_upsert else "every record"
            how = "with" if is_upsert else "without"
            raise JobError(f"the table {self._table.name} holds {has}: run {how} --upsert")
        mode = MERGE_ON_READ if self._table.merges_on_read else COPY_ON_WRITE
        if self._options.merge_mode not in (None, mode):
            raise JobError(
                f"the table {self._table.name} is {mode}: leave --merge-mode away, or set its property "
                f"{MERGE_MODE} with a program that alters tables"
            )
        wanted = self._options.partitions
        if wanted is not None and wanted != self._table.partitions:
            has = ", ".join(map(str, self._table.partitions)) or "nothing"
            raise JobError(
                f"the table {self._table.name} is partitioned by {has}: leave --partition-by away, or choose "
                "another namespace or directory"
            )

    def _check_topic_id(self) -> None:
        before = self._before.topic_id if self._before else None
        before = before or self._table.properties.get(TOPIC_ID)
        if before is not None and self._topic_id is not None and before != self._topic_id:
            raise JobError(
                f"topic {self._topic} was deleted and created again since the last export, so its offsets "
                f"begin again: choose another namespace or directory than that of {self._table.name}"
            )

    def _recover(self) -> None:
        """Finish or undo what an earlier run left."""
        if self._before is not None and self._before.errors:
            self._commit_errors(self._before)
        tables = [self._table, *([self._errors] if self._errors.load() else [])]
        for table in tables:
            for run in unfinished_runs(table.store):
                directory = RunDirectory(table.store, run)
                if not directory.is_dead(_now_ms()):
                    print(
                        f"minikafka export: {table.store.root}: the run {run} goes on, or was killed: then "
                        "its files are removed by a later run",
                        file=sys.stderr,
                    )
                    continue
                if _discard(table, directory):
                    print(
                        f"minikafka export: {table.store.root}: removed what the run {run} left, which was "
                        "killed",
                        file=sys.stderr,
                    )

    # Write and commit

    def _export(self, ranges: Sequence[ExportRange], is_there: bool) -> TopicCommit:
        options = self._options
        wanted = options.export.format_of(self._topic)
        decoders: tuple[Decoder, Decoder] = (
            make_decoder(wanted.key, confluent=options.export.confluent),
            make_decoder(wanted.value, confluent=options.export.confluent),
        )
        frame, seen = decoded_records(
            self._job, options.export, decoders, ranges, raw_columns=(RAW_KEY, RAW_VALUE)
        )
        misfits = self._shape_table(frame, wanted, is_there)
        keeps = options.keeps_errors and (bool(misfits) or options.is_upsert or _can_fail(wanted))
        if keeps and not self._errors.load():
            self._errors.create(ERRORS_SCHEMA, (), {TOPIC: self._topic})
        frame = frame.withColumn(REASON, self._reason(misfits, keeps)).drop(*ERROR_COLUMNS)
        run = new_run()
        with self._job.progress.phase(f"write {self._topic}"), self._directories(run, keeps) as directories:
            files = self._file_set(self._table, run, self._table.partitions)
            errors = self._file_set(self._errors, run, ()) if keeps else None
            with self._upserted(frame, ranges) if options.is_upsert else _appended(frame) as rows:
                write = writing(files, errors)
                writes = [self._laid_out(part).mapInArrow(write, WRITTEN_SCHEMA) for part in rows.parts]
                found = reduce(DataFrame.union, writes).collect()
                deletes = self._write_deletes(rows, files)
            right, wrong = written(found)
            records = count_records(self._job, seen, ranges)
            progress = self._progress(ranges, run, records, wrong)
            self._commit(Change(right, rows.removed, deletes, progress), files)
            kept = [each.name for each in (*right, *wrong)] + [each.name for _, each in deletes]
            self._before = progress
            if wrong:
                self._commit_errors(progress)
            for each in directories:
                each.end(kept)
        self._job.counters.add(OUTPUT_BYTES, sum(each.size for each in (*right, *wrong)), topic=self._topic)
        return TopicCommit(self._table.name, progress, sum(each.records for each in wrong))

    def _shape_table(self, frame: DataFrame, wanted: TopicFormat, is_there: bool) -> list[Misfit]:
        """Make the table, or let its columns grow. Returns what of the frame it cannot hold."""
        columns = wanted_columns(frame.schema, COLUMNS, is_wide=not self._tables.widens)
        if self._options.is_upsert and _has_map(columns[KEY].dataType):
            raise JobError("--upsert: a key with a map in it cannot be compared with another")
        numbers = _numbers(wanted)
        if not is_there:
            partitions = self._options.partitions or ()
            check_partitions(partitions, columns)
            properties = {TOPIC: self._topic, UPSERT: str(self._options.is_upsert).lower()}
            if self._options.is_upsert and self._tables.has_delete_files:
                properties[MERGE_MODE] = self._options.merge_mode or MERGE_ON_READ
            if self._topic_id is not None:
                properties[TOPIC_ID] = self._topic_id
            if numbers:
                properties[FIELDS] = encode_numbers(numbers)
            self._table.create(columns, partitions, properties)
            return []
        have = self._table.columns
        stored = decode_numbers(self._table.properties.get(FIELDS, "[]"))
        changes = []
        if self._tables.renames:
            changes = renames(have, columns, _former_names(wanted, numbers, stored))
        grown, misfits = merged(renamed(have, changes), columns, widens=self._tables.widens)
        for each in misfits:
            if len(each.path) == 1:
                raise JobError(
                    f"the table {self._table.name}: {each.reason}; choose another namespace or directory"
                )
        if not self._options.keeps_errors and misfits:
            raise JobError(f"the table {self._table.name}: {misfits[0].reason}")
        is_numbered = self._tables.renames and {**stored, **numbers} != stored
        if changes or grown != have or is_numbered:
            try:
                self._table.evolve(Evolution(grown, changes, {**stored, **numbers}))
            except Conflict:
                raise self._lost() from None
        return misfits

    def _reason(self, misfits: Sequence[Misfit], keeps: bool) -> Column:
        has_no_key = F.col(RAW_KEY).isNull() & F.lit(self._options.is_upsert)
        if not keeps:
            where = F.concat(
                F.lit(f"{self._topic}-"), F.col("partition"), F.lit(", offset "), F.col("offset")
            )
            failing = F.raise_error(F.concat(where, F.lit(": has no key, which --upsert needs")))
            return F.when(has_no_key, failing).cast("string")
        reasons = [
            F.when(F.col(name).isNotNull(), F.concat(F.lit(f"the {side} "), F.col(name)))
            for side, name in zip((KEY, VALUE), ERROR_COLUMNS, strict=True)
        ]
        if misfits:
            reasons.append(misfit_reason(misfits))
        reasons.append(F.when(has_no_key, F.lit("has no key")))
        return F.coalesce(*reasons, F.lit(None).cast("string"))

    @contextmanager
    def _directories(self, run: str, keeps: bool) -> Iterator[list[RunDirectory]]:
        """Of the run: marked while it lasts; what it has written goes when it fails for certain."""
        tables = [self._table, *([self._errors] if keeps else [])]
        directories = [RunDirectory(each.store, run) for each in tables]
        try:
            for each in directories:
                each.begin()
            yield directories
        except CommitUnknown:
            raise
        except Exception:
            if self._before is None or self._before.run != run:  # else committed: the next run ends it
                for table, directory in zip(tables, directories, strict=True):
                    _discard(table, directory)
            raise
        finally:
            for each in directories:
                each.release()

    def _file_set(self, table: Table, run: str, partitions: Sequence[PartitionField]) -> FileSet:
        names = tuple(_PARTITION.format(index) for index in range(len(partitions)))
        compression = self._options.export.compression
        return FileSet(table.store, run, table.file_schema, names, self._options.target_bytes, compression)

    def _laid_out(self, frame: DataFrame) -> DataFrame:
        """With the columns that partition it, and each task's rows in the order of its files."""
        partitions = self._table.partitions
        names = [_PARTITION.format(index) for index in range(len(partitions))]
        for name, each in zip(names, partitions, strict=True):
            frame = frame.withColumn(name, partition_value(each, frame.schema))
        if any(each.transform in (BUCKET, IDENTITY) for each in partitions):
            frame = frame.repartition(*names)  # times lie together in a log, and these do not
        return frame.sortWithinPartitions(*names, "partition", "offset")

    def _progress(
        self, ranges: Sequence[ExportRange], run: str, records: int, errors: Sequence[WrittenFile]
    ) -> Progress:
        before = self._before
        return Progress(
            topic=self._topic,
            topic_id=self._topic_id or (before.topic_id if before else None),
            run=run,
            number=before.number + 1 if before else 1,
            records=records,
            ranges={each.partition: (each.first_offset, each.end_offset) for each in ranges},
            offsets={
                **(before.offsets if before else {}),
                **{each.partition: each.end_offset for each in ranges},
            },
            errors=list(errors),
        )

    def _commit(self, change: Change, files: FileSet) -> None:
        """Commit, also on top of others' commits that leave alone what this one builds on."""
        for _ in range(COMMIT_TRIES):
            try:
                self._table.commit(change)
                return
            except Conflict:
                is_as_before = self._is_as_before(files)
                now = self._before if is_as_before else self._table.progress()
                if now is not None and change.progress is not None and now.run == change.progress.run:
                    return  # it had arrived, although it was said to have failed
                if change.removed or change.deletes or not is_as_before:
                    break
        raise self._lost()

    def _is_as_before(self, files: FileSet) -> bool:
        """Whether what has changed since the run began are not the offsets, nor how files are written."""
        if not self._table.load():
            return False
        now = self._table.progress()
        names = tuple(_PARTITION.format(index) for index in range(len(self._table.partitions)))
        return (
            (now.number if now else 0) == (self._before.number if self._before else 0)
            and self._table.file_schema.equals(files.schema, check_metadata=True)
            and names == files.partition_columns
        )

    def _lost(self) -> JobError:
        return JobError(
            f"another export has written to the table {self._table.name} meanwhile, and this one has "
            "committed nothing: start again"
        )

    def _commit_errors(self, progress: Progress) -> None:
        """Put the files that a commit names into the errors table, unless they are there."""
        for _ in range(COMMIT_TRIES):
            if not self._errors.load():
                raise JobError(
                    f"the table {self._errors.name} is gone, and the last export has errors for it"
                )
            there = self._errors.progress()
            if there is not None and there.number >= progress.number:
                return
            own = Progress(
                topic=progress.topic,
                topic_id=progress.topic_id,
                run=progress.run,
                number=progress.number,
                records=sum(each.records for each in progress.errors),
                ranges=progress.ranges,
                offsets=progress.offsets,
                errors=[],
            )
            try:
                self._errors.commit(Change(progress.errors, progress=own))
                return
            except Conflict:
                continue
        raise JobError(f"the table {self._errors.name} is always changed by others: start again")

    # The newest record of each key

    @contextmanager
    def _upserted(self, frame: DataFrame, ranges: Sequence[ExportRange]) -> Iterator[_Rows]:
        """The newest rows, and what becomes of the files that hold one of their keys."""
        offsets = sum(each.end_offset - each.first_offset for each in ranges)
        tasks = upsert_tasks(offsets, self._job.spark.sparkContext.defaultParallelism)
        fresh = newest(frame, tasks).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            key_type = self._table.columns[KEY].dataType
            found = wanted_columns(fresh.schema, [KEY], is_wide=not self._tables.widens)[KEY].dataType
            if isinstance(key_type, StructType) and key_type != found:
                raise JobError(
                    f"the table {self._table.name}: --upsert, and the fields of the key have changed: choose "
                    "another namespace or directory"
                )
            keys = fresh.where(F.col(REASON).isNull()).select(F.col(KEY).cast(key_type).alias(KEY))
            touched = self._files_with(keys, fresh)
            masked, rewritten = [], touched
            if self._table.merges_on_read:  # but delete files have the partitioning of now
                masked = [each for each in touched if each.partition is not None]
                rewritten = [each for each in touched if each.partition is None]
            parts = [fresh.where(F.col(REASON).isNotNull() | F.col(RAW_VALUE).isNotNull())]
            if rewritten:
                old = self._read(rewritten)
                parts.append(old.join(keys, KEY, "left_anti").select(*COLUMNS))
            gone = self._read(masked, [KEY], with_place=True).join(keys, KEY, "left_semi") if masked else None
            yield _Rows(parts, rewritten, masked, gone)
        finally:
            fresh.unpersist()

    def _write_deletes(self, rows: _Rows, files: FileSet) -> list[tuple[LiveFile, WrittenDeletes]]:
        """Delete files of the rows that are gone, in the run's directory."""
        if rows.gone is None:
            return []
        write = writing_deletes(files.store, files.directory, files.compression)
        found = (
            rows.gone.select(PATH, POSITION)
            .repartition(PATH)
            .sortWithinPartitions(PATH, POSITION)
            .mapInArrow(write, DELETES_SCHEMA)
            .collect()
        )
        of = {each.path: each for each in rows.masked}
        return [(of[each.path], WrittenDeletes(*each)) for each in sorted(found)]

    def _files_with(self, keys: DataFrame, fresh: DataFrame) -> list[LiveFile]:
        """The table's files that have a row of one of the keys."""
        files = self._table.live_files()
        partitions = self._table.partitions
        if partitions and all(each.column.split(".")[0] == KEY for each in partitions):
            touched = {
                self._table.partition_key(tuple(row))
                for row in fresh.where(F.col(REASON).isNull())
                .select(*(partition_value(each, fresh.schema) for each in partitions))
                .distinct()
                .collect()
            }
            files = [each for each in files if each.partition is None or each.partition in touched]
        if not files:
            return []
        found = self._read(files, [KEY], with_place=True)
        paths = {row[PATH] for row in found.join(keys, KEY, "left_semi").select(PATH).distinct().collect()}
        return [each for each in files if each.path in paths]

    def _read(
        self, files: Sequence[LiveFile], names: Sequence[str] = COLUMNS, *, with_place: bool = False
    ) -> DataFrame:
        """The rows that readers see of data files, with the table's present columns."""
        spark = self._job.spark
        schema = self._table.file_schema
        asked = pa.schema([schema.field(name) for name in names])
        columns = as_spark(asked)
        if with_place:
            place = [StructField(PATH, StringType()), StructField(POSITION, LongType())]
            columns = StructType([*columns.fields, *place])
        listed = spark.createDataFrame([(each.path, list(each.deletes)) for each in files], READ_SCHEMA)
        tasks = min(len(files), max(1, spark.sparkContext.defaultParallelism * 4))
        return listed.repartition(tasks).mapInArrow(
            reading(self._table.store, asked, with_place=with_place), columns
        )

    # Files of a good size, and snapshots that are no longer wanted

    def _tidy(self) -> None:
        """Write small files as one where there are many, and files without their deleted rows where these are
        many; expire snapshots."""
        found = self._files_to_rewrite()
        if found:
            self._rewrite(found)
        if self._options.expire_after_ms is not None:
            for table in (self._table, self._errors):
                if table.load():
                    table.expire(_now_ms() - self._options.expire_after_ms)

    def _files_to_rewrite(self) -> list[LiveFile]:
        groups: dict[tuple[object, ...], list[LiveFile]] = {}
        found: list[LiveFile] = []
        for each in self._table.live_files():
            if each.deletes and _is_worn(each):
                found.append(each)
            elif each.partition is not None and each.size * SMALL_PART < self._options.target_bytes:
                groups.setdefault(each.partition, []).append(each)
        return found + [each for group in groups.values() if len(group) >= SMALL_FILES_MIN for each in group]

    def _rewrite(self, files_before: Sequence[LiveFile]) -> None:
        """The same rows in other files. Where another commit comes first, a later run does it."""
        run = new_run()
        directory = RunDirectory(self._table.store, run)
        files = self._file_set(self._table, run, self._table.partitions)
        with self._job.progress.phase(f"rewrite files of {self._topic}"):
            directory.begin()
            try:
                tasks = 1 + sum(each.size for each in files_before) // self._options.target_bytes
                rows = self._read(files_before).coalesce(int(tasks))
                found = self._laid_out(rows).mapInArrow(writing(files, None), WRITTEN_SCHEMA).collect()
                right, _ = written(found)
                self._table.commit(Change(right, files_before))
            except Conflict:
                _discard(self._table, directory)
                return
            except CommitUnknown:
                directory.release()
                raise
            except Exception:
                _discard(self._table, directory)
                raise
            directory.end(each.name for each in right)
        self._table.load()


def _discard(table: Table, directory: RunDirectory) -> bool:
    """Remove what a run has written and no snapshot knows; where the table does not say, a later run does.

    Returns whether it is removed.
    """
    try:
        if table.load():
            known = table.known_files()
            directory.end(name for name in known if name.startswith(f"{DATA}/{directory.run}/"))
            return True
    except (JobError, OSError) as error:
        print(
            f"minikafka export: {table.store.root}: files are left of {directory.run}: {error}",
            file=sys.stderr,
        )
    finally:
        directory.release()
    return False


def _can_fail(wanted: TopicFormat) -> bool:
    return any(each.kind is not Kind.BYTES for each in (wanted.key, wanted.value))


class _Rows(NamedTuple):
    """What a run does to a table's rows."""

    parts: list[DataFrame]
    """Rows of new data files."""
    removed: Sequence[LiveFile] = ()
    """Files that these replace."""
    masked: Sequence[LiveFile] = ()
    """Files that stay, with rows that are gone."""
    gone: DataFrame | None = None
    """Where those rows are."""


@contextmanager
def _appended(frame: DataFrame) -> Iterator[_Rows]:
    yield _Rows([frame])


def _is_worn(file: LiveFile) -> bool:
    """Whether reading a file's rows costs more than it should for those of them that are deleted."""
    return file.deleted >= DELETED_PART * file.records or len(file.deletes) >= DELETE_FILES_MAX


def upsert_tasks(offsets: int, parallelism: int) -> int:
    """How many tasks sort the rows of an upsert by their keys. Each makes a data file at least, so few
    records are for few tasks; Spark does not join small ones where the result is persisted."""
    fewest = -(-offsets // UPSERT_TASK_OFFSETS)
    return max(fewest, min(parallelism, -(-offsets // SMALL_TASK_OFFSETS)), 1)


def newest(frame: DataFrame, tasks: int) -> DataFrame:
    """The newest row of each key: by offset in a partition, by timestamp among partitions. Rows with a reason
    are all kept."""
    alone = F.when(F.col(REASON).isNotNull(), F.struct("partition", "offset"))
    frame = frame.withColumn(_ALONE, alone).repartition(tasks, KEY, _ALONE)
    in_partition = Window.partitionBy(KEY, _ALONE, "partition").orderBy(F.col("offset").desc())
    among = Window.partitionBy(KEY, _ALONE).orderBy(F.col("timestamp").desc(), F.col("partition").desc())
    frame = frame.withColumn(_RANK, F.row_number().over(in_partition)).where(F.col(_RANK) == 1)
    frame = frame.withColumn(_RANK, F.row_number().over(among)).where(F.col(_RANK) == 1)
    return frame.drop(_RANK, _ALONE)


def _has_map(found: object) -> bool:
    if isinstance(found, StructType):
        return any(_has_map(each.dataType) for each in found.fields)
    return isinstance(found, MapType)


def _numbers(wanted: TopicFormat) -> dict[Path, int]:
    """The numbers of the fields of Protobuf messages."""
    found: dict[Path, int] = {}
    for name, each in ((KEY, wanted.key), (VALUE, wanted.value)):
        if each.kind is Kind.PROTOBUF and each.schema is not None:
            found |= {(name, *path): number for path, number in protobuf_numbers(each.schema).items()}
    return found


def _former_names(
    wanted: TopicFormat, numbers: Mapping[Path, int], stored: Mapping[Path, int]
) -> dict[Path, Sequence[str]]:
    """What fields were called before: aliases in Avro, the names of the same number in Protobuf."""
    found: dict[Path, Sequence[str]] = {}
    for name, each in ((KEY, wanted.key), (VALUE, wanted.value)):
        if each.kind is Kind.AVRO and each.schema is not None:
            found |= {(name, *path): names for path, names in former_names(each.schema).items()}
    for path, number in numbers.items():
        same = [old[-1] for old, was in stored.items() if was == number and old[:-1] == path[:-1]]
        found[path] = [*found.get(path, ()), *(name for name in same if name != path[-1])]
    return found
