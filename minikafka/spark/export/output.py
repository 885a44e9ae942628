"""An export's directory: Parquet files that are never changed, and beside them which offsets they hold.

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

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from minikafka.errors import UNDECODABLE
from minikafka.files import OsFiles, make_private_directory
from minikafka.spark.runtime.job import remove_attempts
from minikafka.spark.runtime.session import JobError
from minikafka.spark.runtime.stores import HadoopFiles
from minikafka.spark.source.storage import Location, location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
