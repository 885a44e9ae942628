"""``minikafka export``: log directories to Parquet, and how each record gets there once.

Each partition is read from where the last run stopped to a fixed end. The end is settled before anything is
read, so a run is one range of offsets a partition, and its commit says exactly that. By default it is the
high watermark (and the last stable offset): what lies above may still be truncated and replaced, and no
consumer sees it. Schema files are read here, too: a format of the command line becomes the decoder that a
transform takes.

**The output** is a directory: Parquet files that are never changed, and beside them which offsets they hold.

    topic=orders/date=2026-11-22/part-….parquet     the data, as any reader of Hive partitions finds it
    _minikafka/commits/00000000000000000003.json    the commits; the last one says where to continue
    _minikafka/staging/<id>/topic=…                 what a run is writing; readers skip names with "_"

A record lies in the partition columns of its topic and its timestamp, in UTC.

A run writes into a staging directory, then creates its commit, which names every file and the next offset of
every partition, and then moves the files into place. Creating the commit is the one step that counts:

| crash                      | what the next run finds      | what it does                            |
|----------------------------|------------------------------|-----------------------------------------|
| while writing              | staging without a commit     | removes it and reads from the old offsets |
| after the commit           | files of it still in staging | moves them                              |
| after the files were moved | an empty staging directory   | removes it                              |

So each offset is in exactly one file, and a file that a reader has seen never changes or goes.

Where no lock keeps others out, a staging directory may be that of a run that still writes. Before it is
removed an empty commit takes the number that such a run would take, so that it cannot commit what is gone.

An export lies in a local directory, or in any store that Spark's Hadoop knows (``hdfs://``, ``s3a://``). A
store (``OutputStore``) has few operations, so that it can be said of each what a crash in the middle of it
leaves: nothing, or all. Paths are relative to the output's root, joined with "/". Locally, files are durable
before the commit that names them, and a lock keeps a second export out. Elsewhere the store's own promises
count, and of two exports at once the second to commit finds the commit's name taken.

What the user asked for, the output and the data in it, has the modes that the user's umask (or the store)
gives. ``_minikafka``, where an export works, is its owner's alone, so no unfinished file can be read.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from minikafka.errors import UNDECODABLE
from minikafka.files import OsFiles, make_private_directory
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
from minikafka.spark.export.record_schemas import avro_decoder, json_type, protobuf_decoder
from minikafka.spark.runtime.job import Job, JobCounters, remove_attempts
from minikafka.spark.runtime.session import JobError
from minikafka.spark.runtime.storage import HadoopFiles, Location, join, location
from minikafka.spark.source.datasource import FORMAT
from minikafka.spark.source.decode import ERROR
from minikafka.spark.source.log_files import PartitionLog
from minikafka.spark.source.options import OnCorrupt, ReadOptions, parse_options
from minikafka.spark.source.planning import latest_offset, selected_logs

BY_DATE, BY_HOUR = "date", "hour"
PARTITION_COLUMNS = {BY_DATE: ["topic", "date"], BY_HOUR: ["topic", "date", "hour"]}

METADATA = "_minikafka"
COMMITS = f"{METADATA}/commits"
STAGING = f"{METADATA}/staging"
LOCK = f"{METADATA}/lock"

VERSION = 1
NO_STAGING = "none"
"""The staging directory of a commit without files."""

Offsets = dict[str, dict[int, int]]
"""topic → partition → the next offset to export."""

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


# ---- the layout


def lay_out(frame: DataFrame, by: str) -> DataFrame:
    """With ``date`` (and ``hour``), each task's rows in the order of its files, inside them by offset."""
    frame = frame.withColumn("date", F.date_format("timestamp", "yyyy-MM-dd"))
    if by == BY_HOUR:
        frame = frame.withColumn("hour", F.date_format("timestamp", "HH"))
    return frame.sortWithinPartitions(*PARTITION_COLUMNS[by], "partition", "offset")


# ---- stores


class OutputStore(Protocol):
    """Raises OSError, or JobError with a line that says what to do."""

    @property
    def is_exclusive(self) -> bool:
        """Whether ``locked`` keeps others out."""
        ...

    def uri(self, path: str) -> str:
        """What Spark calls it."""
        ...

    def local_path(self, path: str) -> Path | None:
        """Where this machine has it on a disk of its own; None: it is in a store that all machines reach."""
        ...

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises JobError: another export is at it."""
        ...

    def names(self, directory: str) -> list[str]:
        """Sorted; none of a directory that is not there."""
        ...

    def files_under(self, directory: str) -> list[tuple[str, int]]:
        """Files at any depth, relative to ``directory``, with their sizes; sorted."""
        ...

    def read(self, path: str) -> bytes: ...

    def create(self, path: str, data: bytes) -> None:
        """A file that is there with all its bytes, or not at all. Raises FileExistsError."""
        ...

    def move(self, source: str, target: str) -> None:
        """Give a file another name; directories are made."""
        ...

    def make_durable(self, directory: str, files: Sequence[str]) -> None:
        """Files in ``directory`` survive a power cut from here on."""
        ...

    def remove_tree(self, directory: str) -> None:
        """One that is not there is fine."""
        ...


def open_store(text: str, lock_name: str, spark: SparkSession) -> OutputStore:
    """The store for what the user wrote; the directory is made. Raises JobError: it cannot be."""
    place = location(text)
    if place.is_uri:
        return HadoopStore(place, lock_name, spark)
    return LocalStore(Path(place.text), lock_name)


class LocalStore:
    """``OutputStore`` in a directory of this machine."""

    is_exclusive = True

    def __init__(self, root: Path, lock_name: str) -> None:
        self._root = root
        self._files = OsFiles()
        self._lock_path = root / lock_name
        try:
            root.mkdir(parents=True, exist_ok=True)
            make_private_directory(str(self._lock_path.parent))
        except OSError as error:
            raise JobError(f"the output {root} cannot be written: {error.strerror}") from error

    def __repr__(self) -> str:
        return f"LocalStore({str(self._root)!r})"

    def uri(self, path: str) -> str:
        return f"file://{self._root / path}"  # nothing is escaped: Hadoop's Path would not read it back

    def local_path(self, path: str) -> Path | None:
        return self._root / path

    @contextmanager
    def locked(self) -> Iterator[None]:
        try:
            lock = self._files.lock(str(self._lock_path))
        except BlockingIOError:
            raise JobError(f"another export is writing to {self._root}") from None
        except OSError as error:
            raise JobError(f"the output {self._root} cannot be written: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / directory))
        except FileNotFoundError:
            return []

    def files_under(self, directory: str) -> list[tuple[str, int]]:
        base = self._root / directory
        found = (path for path in base.rglob("*") if path.is_file())
        return sorted((path.relative_to(base).as_posix(), path.stat().st_size) for path in found)

    def read(self, path: str) -> bytes:
        return self._files.read_bytes(str(self._root / path))

    def create(self, path: str, data: bytes) -> None:
        target = self._root / path
        if target.exists():  # no other run can make it: we hold the lock
            raise FileExistsError(str(target))
        make_private_directory(str(target.parent))
        self._files.write_atomically(str(target), data)

    def move(self, source: str, target: str) -> None:
        end = self._root / target
        end.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._root / source, end)

    def make_durable(self, directory: str, files: Sequence[str]) -> None:
        base = self._root / directory
        directories = {base}
        for name in files:
            path = base / name
            directories.update(parent for parent in path.parents if base in parent.parents)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        for each in sorted(directories):
            self._files.sync_directory(str(each))

    def remove_tree(self, directory: str) -> None:
        remove_attempts(self._files, str(self._root / directory))


class HadoopStore:
    """``OutputStore`` in a file system of Hadoop's, through Spark's JVM."""

    is_exclusive = False

    def __init__(self, place: Location, lock_name: str, spark: SparkSession) -> None:
        self._files = HadoopFiles(place.text, spark)
        self._files.make_private(lock_name.rpartition("/")[0])

    def __repr__(self) -> str:
        return f"HadoopStore({self._files.root!r})"

    def uri(self, path: str) -> str:
        return self._files.uri(path)

    def local_path(self, path: str) -> Path | None:
        found = self._files.local_path(path)
        return None if found is None else Path(found)

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield  # ``create`` tells of two

    def names(self, directory: str) -> list[str]:
        return self._files.names(directory)

    def files_under(self, directory: str) -> list[tuple[str, int]]:
        return self._files.files_under(directory)

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def create(self, path: str, data: bytes) -> None:
        self._files.create(path, data)

    def move(self, source: str, target: str) -> None:
        self._files.rename(source, target)

    def make_durable(self, directory: str, files: Sequence[str]) -> None:
        """Closed files of such stores are."""

    def remove_tree(self, directory: str) -> None:
        self._files.remove_tree(directory)


def _is_hidden(name: str) -> bool:
    """As readers of Parquet directories see it."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))


# ---- commits


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """What one run added, and where the next one continues."""

    version: int = VERSION
    number: int
    by: str
    """How the data is partitioned: date or hour."""
    staging: str
    """The id of the run's staging directory."""
    files: list[str]
    """That the run added, relative to the output."""
    records: int
    offsets: Offsets
    """Of every partition that was ever exported."""
    topic_ids: dict[str, str]
    """Of the topics among them, where the log says it."""
    written_ms: int
    """Milliseconds since 1970."""


class ExportOutput:
    """The commits of an output and the files that they name."""

    def __init__(self, store: OutputStore, *, by: str) -> None:
        self._store = store
        self._by = by
        self.last: Commit | None = None
        """Known after ``recover``."""

    def __repr__(self) -> str:
        return f"<ExportOutput {self._store!r} last={self.last and self.last.number}>"

    def recover(self, *, now_ms: int) -> None:
        """Finish or undo what an earlier run left, and find the last commit.

        Raises:
            JobError: a commit that this version cannot read, data that is partitioned in another way, or
                another export that starts or commits at the same moment.
        """
        names = [name for name in self._store.names(COMMITS) if name.endswith(".json")]
        if names:
            self.last = self._read(f"{COMMITS}/{names[-1]}")
            if self.last.by != self._by:
                raise JobError(
                    f"the output is partitioned by {self.last.by}: "
                    f"export by {self._by} into another directory"
                )
            self._move(self.last)
        left = self._store.names(STAGING)
        if not self._store.is_exclusive and any(
            self.last is None or name != self.last.staging for name in left
        ):
            self._fence(now_ms)
        for name in left:
            self._store.remove_tree(f"{STAGING}/{name}")

    def staging_uri(self, staging: str) -> str:
        """Where Spark writes a run's files."""
        return self._store.uri(f"{STAGING}/{staging}")

    def staged(self, staging: str) -> list[tuple[str, int]]:
        """The data files that Spark has written, with their sizes.

        Not those below ``_temporary``: an attempt at a task that Spark has given up, because another was
        faster or its executor was taken for lost, may go on writing there after the others have ended.
        """
        found = self._store.files_under(f"{STAGING}/{staging}")
        return [(name, size) for name, size in found if name.endswith(".parquet") and not _is_hidden(name)]

    def check_rows(self, staging: str, files: Sequence[tuple[str, int]], records: int) -> None:
        """Whether the files hold what the executors have written.

        Raises:
            JobError: not on this machine: each executor has written to a disk of its own.
        """
        directory = self._store.local_path(f"{STAGING}/{staging}")
        if directory is None:
            return
        found = sum(pq.read_metadata(directory / name).num_rows for name, _ in files)
        if found != records:
            raise JobError(
                f"{records:,} records were written, and {found:,} of them are in {directory}: with executors "
                "on other machines the output must be in a file system that all of them share (NFS, hdfs://, "
                "s3a://); nothing was exported"
            )

    def commit(
        self,
        staging: str,
        *,
        files: Sequence[str],
        records: int,
        offsets: Offsets,
        topic_ids: Mapping[str, str],
        now_ms: int,
    ) -> Commit:
        """Make the staged ``files`` part of the export, at once, and move them into place.

        Raises:
            JobError: another export has committed since ``recover``.
        """
        commit = Commit(
            number=self._next_number,
            by=self._by,
            staging=staging,
            files=list(files),
            records=records,
            offsets=offsets,
            topic_ids=dict(topic_ids),
            written_ms=now_ms,
        )
        self._store.make_durable(f"{STAGING}/{staging}", files)
        self._create(commit)
        self._move(commit)
        self._store.remove_tree(f"{STAGING}/{staging}")
        return commit

    def discard(self, staging: str) -> None:
        """Forget a run that failed."""
        self._store.remove_tree(f"{STAGING}/{staging}")

    @property
    def _next_number(self) -> int:
        return 0 if self.last is None else self.last.number + 1

    def _fence(self, now_ms: int) -> None:
        """Commit nothing, so that earlier runs cannot commit any more."""
        commit = Commit(
            number=self._next_number,
            by=self._by,
            staging=NO_STAGING,
            files=[],
            records=0,
            offsets=self.last.offsets if self.last else {},
            topic_ids=self.last.topic_ids if self.last else {},
            written_ms=now_ms,
        )
        self._create(commit)

    def _create(self, commit: Commit) -> None:
        try:
            self._store.create(f"{COMMITS}/{commit.number:020}.json", msgspec.json.encode(commit))
        except FileExistsError:
            raise JobError("another export has written to the same output meanwhile: start again") from None
        self.last = commit

    def _move(self, commit: Commit) -> None:
        waiting = {name for name, _ in self.staged(commit.staging)}
        for name in commit.files:
            if name in waiting:
                self._store.move(f"{STAGING}/{commit.staging}/{name}", name)

    def _read(self, path: str) -> Commit:
        try:
            commit = msgspec.json.decode(self._store.read(path), type=Commit)
        except UNDECODABLE as error:
            raise JobError(f"{self._store.uri(path)} is not a commit of an export: {error}") from error
        if commit.version != VERSION:
            raise JobError(f"{self._store.uri(path)} was written by another version of minikafka")
        return commit


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
