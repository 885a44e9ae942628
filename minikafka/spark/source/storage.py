"""Where log directories lie: the local file system, or any that pyarrow.fs reaches (S3, HDFS, GCS, …).

A location is a string: a path, or a URI that ``pyarrow.fs.FileSystem.from_uri`` knows. ``Location.open``
opens it; both storages answer the same few questions, and only ever read. A store's settings are the URI's
query, or of S3 in the environment (``runtime/stores``); credentials are in the environment of the driver and
of each worker: what is in a URI gets into reports and tables.

All paths are absolute, or inside the store; joined with "/". Sizes and positions are bytes.

Raises everywhere: FileNotFoundError; another OSError, as the operating system says it; UnusableLocation,
which names the file and what its store says, for what no other try will mend.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.fs

from minikafka.errors import MinikafkaError
from minikafka.spark.runtime.stores import open_uri
from minikafka.types import Buffer

_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+://)(?P<user>[^/?#@]*@)?(?P<path>[^?#]*)(?P<settings>.*)", re.DOTALL
)
_AWS = re.compile(r"AWS Error (?P<code>\w+) during \w+ operation: (?P<words>.*)")
_AWS_TAIL = re.compile(r" \(Request ID: [^)]*\)")

LOCAL_SCAN_BYTES = 4 * 1024
"""A page: a positioned read costs about a microsecond, so a walk over headers reads little at a time."""
REMOTE_SCAN_BYTES = 4 * 1024 * 1024
"""A request to a store costs milliseconds, whatever its size."""


class UnusableLocation(MinikafkaError):
    """A path or URI that names no store, or one that may not be read."""


class Entry(NamedTuple):
    """What a directory holds."""

    name: str
    is_directory: bool
    size: int
    """Of a file; 0 of a directory."""
    modified_ms: int
    """Last modification, milliseconds since the Unix epoch; 0 where the store does not say."""


class LogFile(Protocol):
    """An open file."""

    @property
    def identity(self) -> int:
        """Tells the file from another that took its name; 0 where the store has no such number."""
        ...

    def size(self) -> int:
        """As it is now."""
        ...

    def read(self, position: int, size: int) -> Buffer:
        """Up to ``size`` bytes; fewer at the end of the file."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


class LogStorage(Protocol):
    """A store of directories and files."""

    @property
    def scan_bytes(self) -> int:
        """How much to read at once where only headers are wanted."""
        ...

    def list(self, path: str) -> list[Entry]:
        """Sorted by name."""
        ...

    def open(self, path: str) -> LogFile: ...

    def read_bytes(self, path: str) -> bytes:
        """A whole, small file."""
        ...


class LocalFile:
    """``LogFile`` of the operating system."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.identity = os.fstat(self._fd).st_ino

    def __repr__(self) -> str:
        return f"LocalFile({self._path!r})"

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        while len(data) < size and (more := os.pread(self._fd, size - len(data), position + len(data))):
            data += more
        return data

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class LocalStorage:
    """``LogStorage`` of the operating system."""

    scan_bytes = LOCAL_SCAN_BYTES

    def __repr__(self) -> str:
        return "LocalStorage()"

    def list(self, path: str) -> list[Entry]:
        entries = []
        with os.scandir(path) as found:
            for entry in found:
                try:
                    stat = entry.stat()
                    is_directory = entry.is_dir()
                except FileNotFoundError:  # gone since it was listed: a live directory
                    continue
                size = 0 if is_directory else stat.st_size
                entries.append(Entry(entry.name, is_directory, size, stat.st_mtime_ns // 1_000_000))
        return sorted(entries)

    def open(self, path: str) -> LocalFile:
        """Raises UnusableLocation where there is no permission: no other try will do."""
        try:
            return LocalFile(path)
        except PermissionError as error:
            raise UnusableLocation(
                f"{path} cannot be read: {error.strerror}; run as a user who may, such as the "
                "broker's, or let this one read it"
            ) from error

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()


class ArrowFile:
    """``LogFile`` of a pyarrow file system."""

    identity = 0

    def __init__(self, file: pa.NativeFile, name: str) -> None:
        self._file = file
        self._name = name

    def __repr__(self) -> str:
        return f"ArrowFile({self._name!r})"

    def size(self) -> int:
        return int(self._file.size())

    def read(self, position: int, size: int) -> Buffer:
        with _named(self._name):
            if position >= self._file.size():  # S3's file refuses to
                return b""
            return memoryview(self._file.read_at(size, position))

    def close(self) -> None:
        self._file.close()


class ArrowStorage:
    """``LogStorage`` of a pyarrow file system."""

    scan_bytes = REMOTE_SCAN_BYTES

    def __init__(self, file_system: pyarrow.fs.FileSystem, prefix: str = "") -> None:
        """``prefix``: what makes a path the URI that a user knows."""
        self._file_system = file_system
        self._prefix = prefix

    def __repr__(self) -> str:
        return f"ArrowStorage({self._file_system!r})"

    def list(self, path: str) -> list[Entry]:
        with _named(self._prefix + path):
            found = self._file_system.get_file_info(pyarrow.fs.FileSelector(path))
        return sorted(
            Entry(
                info.base_name,
                info.type is pyarrow.fs.FileType.Directory,
                info.size or 0,
                (info.mtime_ns or 0) // 1_000_000,
            )
            for info in found
        )

    def open(self, path: str) -> ArrowFile:
        name = self._prefix + path
        with _named(name):
            return ArrowFile(self._file_system.open_input_file(path), name)

    def read_bytes(self, path: str) -> bytes:
        with _named(self._prefix + path), self._file_system.open_input_file(path) as file:
            return bytes(file.read())


@contextmanager
def _named(name: str) -> Iterator[None]:
    """A store's refusal as one line. Raises UnusableLocation, FileNotFoundError, NotADirectoryError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UnusableLocation(f"{name} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The store's own words: the SDK of Amazon's wraps them into what it was doing, three times over."""
    if found := _AWS.search(str(error)):
        return f"{_AWS_TAIL.sub('', found['words']).strip() or 'no reason given'} ({found['code']})"
    return str(error)


class Location(NamedTuple):
    """A place in a store: what a worker needs to find it again, and to say where something was."""

    text: str
    """A local path, or a URI; the column ``log_dir``."""

    @property
    def is_uri(self) -> bool:
        return _URI.match(self.text) is not None

    def shown(self, *names: str) -> str:
        """What is in it, or itself, for errors: a URI without the settings of its store."""
        uri = _URI.match(self.text)
        path = f"{uri['scheme']}{uri['user'] or ''}{uri['path']}" if uri else self.text
        for name in names:
            path = join(path, name)
        return path

    def parent(self) -> Location:
        """The directory that it is in."""
        uri = _URI.match(self.text)
        directory = os.path.dirname(self.shown())
        return Location(directory + (uri["settings"] if uri else ""))

    def open(self) -> tuple[LogStorage, str]:
        """The store and the path in it.

        Raises:
            UnusableLocation: pyarrow knows no such store, or cannot reach it.
        """
        if not self.is_uri:
            return LocalStorage(), self.text
        try:
            file_system, path = open_uri(self.text)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise UnusableLocation(
                f"{self.shown()}: no store can be opened for it: {_reason(error)}"
            ) from error
        prefix = self.shown().removesuffix(path)
        return ArrowStorage(file_system, prefix if prefix != self.shown() else ""), path


def location(text: str) -> Location:
    """The location that a user wrote; a relative path begins at the working directory.

    Raises:
        UnusableLocation: nothing is written there, or a password is.
    """
    text = text.strip()
    if not text:
        raise UnusableLocation("an empty path; name a log directory")
    if uri := _URI.match(text):
        return _uri(uri)
    return Location(os.path.abspath(os.path.expanduser(text)))


def _uri(parts: re.Match[str]) -> Location:
    scheme, user, path, settings = parts["scheme"], parts["user"] or "", parts["path"], parts["settings"]
    if ":" in user:
        raise UnusableLocation(
            f"{scheme}{path}: a password in a URI would get into reports and tables; put it into the "
            "environment (S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )
    return Location(f"{scheme}{user}{path.rstrip('/') or path}{settings}")


def join(directory: str, name: str) -> str:
    """The path of ``name`` in a directory."""
    return f"{directory.rstrip('/')}/{name}"
