"""Where an export lies: a local directory, or any store that Spark's Hadoop knows (``hdfs://``, ``s3a://``).

Few operations, so that it can be said of each what a crash in the middle of it leaves: nothing, or all. Paths
are relative to the output's root, joined with "/". Locally, files are durable before the commit that names
them, and a lock keeps a second export out. Elsewhere the store's own promises count, and of two exports at
once the second to commit finds the commit's name taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.files import OsFiles
from minikafka.spark.runtime.failures import JobError
from minikafka.spark.source.storage import Location, location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OutputStore(Protocol):
    """Raises OSError, or JobError with a line that says what to do."""

    @property
    def is_exclusive(self) -> bool:
        """Whether ``locked`` keeps others out."""
        ...

    def uri(self, path: str) -> str:
        """What Spark calls it."""
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
    return HadoopStore(place, spark) if place.is_uri else LocalStore(Path(place.text), lock_name)


class LocalStore:
    """``OutputStore`` in a directory of this machine."""

    is_exclusive = True

    def __init__(self, root: Path, lock_name: str) -> None:
        self._root = root
        self._files = OsFiles()
        self._lock_path = root / lock_name
        try:
            self._lock_path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JobError(f"the output {root} cannot be written: {error.strerror}") from error

    def __repr__(self) -> str:
        return f"LocalStore({str(self._root)!r})"

    def uri(self, path: str) -> str:
        return f"file://{self._root / path}"  # nothing is escaped: Hadoop's Path would not read it back

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
        if target.exists():  # nobody else can make it: we hold the lock
            raise FileExistsError(str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
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
        self._files.remove_tree(str(self._root / directory))


class HadoopStore:
    """``OutputStore`` in a file system of Hadoop's, through Spark's JVM."""

    is_exclusive = False

    def __init__(self, place: Location, spark: SparkSession) -> None:
        from py4j.protocol import Py4JJavaError

        self._root = place.text
        context = spark.sparkContext
        self._jvm: Any = context._jvm
        configuration = context._jsc.hadoopConfiguration()
        try:
            self._files = self._path("").getFileSystem(configuration)
            self._files.mkdirs(self._path(""))
        except Py4JJavaError as error:
            reason = error.java_exception.getMessage()
            raise JobError(f"the output {self._root} cannot be written: {reason}") from error

    def __repr__(self) -> str:
        return f"HadoopStore({self._root!r})"

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.uri(path))

    def uri(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield  # ``create`` tells of two

    def names(self, directory: str) -> list[str]:
        path = self._path(directory)
        if not self._files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(path))

    def files_under(self, directory: str) -> list[tuple[str, int]]:
        base = self._path(directory)
        if not self._files.exists(base):
            return []
        found = []
        root = base.toUri()
        files = self._files.listFiles(base, True)
        while files.hasNext():
            status = files.next()
            path = self._files.makeQualified(status.getPath()).toUri().getPath()
            found.append((path.removeprefix(root.getPath().rstrip("/") + "/"), status.getLen()))
        return sorted(found)

    def read(self, path: str) -> bytes:
        stream = self._files.open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def create(self, path: str, data: bytes) -> None:
        target, temporary = self._path(path), self._path(f"{path}.tmp")
        stream = self._files.create(temporary, True)
        try:
            stream.write(bytearray(data))
            stream.hsync()
        finally:
            stream.close()
        if self._files.exists(target) or not self._files.rename(temporary, target):
            raise FileExistsError(self.uri(path))

    def move(self, source: str, target: str) -> None:
        end = self._path(target)
        self._files.mkdirs(end.getParent())
        if not self._files.rename(self._path(source), end):
            raise JobError(f"{self.uri(source)} cannot be renamed to {self.uri(target)}")

    def make_durable(self, directory: str, files: Sequence[str]) -> None:
        """Closed files of such stores are."""

    def remove_tree(self, directory: str) -> None:
        self._files.delete(self._path(directory), True)
