"""Where data lie: log directories, the local file system or any that pyarrow.fs reaches (S3, HDFS, GCS, …),
and what jobs write to: file systems of Hadoop's, S3, Iceberg's catalogs, and tables by delta-rs. What goes
wrong there is said in one line.

**Log directories.** A location is a string: a path, or a URI that ``pyarrow.fs.FileSystem.from_uri`` knows.
``Location.open`` opens it; both storages answer the same few questions, and only ever read. A store's
settings are the URI's query, or of S3 in the environment; credentials are in the environment of the driver
and of each worker: what is in a URI gets into reports and tables. All paths are absolute, or inside the
store; joined with "/". Sizes and positions are bytes.

They raise everywhere: FileNotFoundError; another OSError, as the operating system says it; UnusableLocation,
which names the file and what its store says, for what no other try will mend.

**Stores.** ``HadoopFiles`` works through Spark's JVM. ``s3a://`` and others need a connector on Spark's class
path, and their settings are Spark's (``spark.hadoop.fs.s3a.endpoint``). Hadoop: ``FileSystem``,
``FutureDataOutputStreamBuilder``.

For all other libraries S3 is as the environment describes it. Amazon's tools and others read the same
variables: ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL`` for a store that is not Amazon's, ``AWS_REGION`` or
``AWS_DEFAULT_REGION``. Of the libraries here pyarrow and pyiceberg read no endpoint, and delta-rs talks to
none by http unless it is told to. Keys are no business of this module: each library finds them itself, in the
environment (``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``), in a profile or as a
machine's role. Without an endpoint the libraries do as they do: each asks Amazon for the region of a bucket.

A catalog of Iceberg's is one that pyiceberg is configured for, by its name, or a URI, before which a name may
stand: the tables of an SQL database belong to a catalog's name. Where pyiceberg is not configured otherwise,
S3 is that of the environment. delta-rs draws the causes of an error below each other, and gives answers of S3
as XML.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.fs

from minikafka.errors import MinikafkaError
from minikafka.spark.runtime.session import JobError, explain
from minikafka.types import Buffer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Hadoop 3.4.2 (HADOOP-19256): the store itself refuses a second file of the name, with If-None-Match."""

_FORCES_TO_DISK = "hsync"
"""StreamCapabilities.HSYNC: HDFS has it; on S3 a file is durable when it is closed, and only then there."""

_CONNECTORS = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
"""Scheme → the package of Hadoop's that brings it."""

ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Amazon's order: that of the service counts more."""
REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEFAULT_REGION: Final = "us-east-1"
"""Of stores that have no regions, which all take this one."""
SCHEMES: Final = ("s3://", "s3a://", "s3n://")

_NAMED: Final = re.compile(r"(?:(?P<name>[\w-]+)=)?(?P<uri>[A-Za-z][A-Za-z0-9+.-]*://.*)", re.DOTALL)
_PASSWORD: Final = re.compile(r"//[^/@]*@")
_DEFAULT_NAME: Final = "default"
_IN_MEMORY: Final = ":memory:"

_CAUSE: Final = re.compile(r"^\s*(?:\x1b\[\d+m)?↳(?:\x1b\[\d+m)?\s*(?P<words>.+)$", re.MULTILINE)
_ANSWER: Final = re.compile(r"<Code>(?P<code>\w+)</Code>\s*<Message>(?P<words>[^<]*)</Message>")


_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+://)(?P<user>[^/?#@]*@)?(?P<path>[^?#]*)(?P<settings>.*)", re.DOTALL
)
_AWS = re.compile(r"AWS Error (?P<code>\w+) during \w+ operation: (?P<words>.*)")
_AWS_TAIL = re.compile(r" \(Request ID: [^)]*\)")

LOCAL_SCAN_BYTES = 4 * 1024
"""A page: a positioned read costs about a microsecond, so a walk over headers reads little at a time."""
REMOTE_SCAN_BYTES = 4 * 1024 * 1024
"""A request to a store costs milliseconds, whatever its size."""


# ---- file systems of Hadoop's


class HadoopFiles:
    """A place in a file system of Hadoop's. Paths are relative to it, joined with "/".

    Raises Py4JJavaError for what the store refuses, unless a method says otherwise.
    """

    def __init__(self, root: str, spark: SparkSession) -> None:
        """The directory is made. ``root``: its URI.

        Raises:
            JobError: Spark has no such file system, or it cannot be reached or written.
        """
        from py4j.protocol import Py4JError

        self.root = root
        place, mark, _ = root.partition("?")
        if mark:
            raise JobError(
                f"the output {place} cannot have settings behind ?: they are Spark's, such as "
                "--conf spark.hadoop.fs.s3a.endpoint=http://minio:9000"
            )
        context = spark.sparkContext
        self._jvm: Any = context._jvm
        try:
            self._files = self._path("").getFileSystem(context._jsc.hadoopConfiguration())
            self._files.mkdirs(self._path(""))
        except Py4JError as error:
            raise JobError(f"the output {self.root} cannot be written: {self._why(error)}") from error

    def __repr__(self) -> str:
        return f"HadoopFiles({self.root!r})"

    def local_path(self, path: str) -> str | None:
        """Where the operating system has it, if that is a disk of this machine."""
        return str(self._path(path).toUri().getPath()) if self._files.getScheme() == "file" else None

    def uri(self, path: str) -> str:
        """What Spark calls it."""
        return f"{self.root.rstrip('/')}/{path}"

    def make_private(self, directory: str) -> None:
        """For its owner alone, where the store knows owners. Raises JobError."""
        from py4j.protocol import Py4JError

        try:
            if not self._files.exists(self._path(directory)):
                permission = self._jvm.org.apache.hadoop.fs.permission.FsPermission("700")
                self._files.mkdirs(self._path(directory), permission)
        except Py4JError as error:
            raise JobError(f"the output {self.root} cannot be written: {self._why(error)}") from error

    def names(self, directory: str) -> list[str]:
        """Sorted; none of a directory that is not there."""
        path = self._path(directory)
        if not self._files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(path))

    def files_under(self, directory: str) -> list[tuple[str, int]]:
        """Files at any depth, relative to ``directory``, with their sizes in bytes; sorted."""
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

    def write(self, path: str, data: bytes) -> None:
        """A file with these bytes; one of the name is replaced. Raises JobError."""
        from py4j.protocol import Py4JError

        try:
            self._write(self._files.create(self._path(path), True), data)
        except Py4JError as error:
            raise JobError(f"cannot write {self.uri(path)}: {self._why(error)}") from error

    def create(self, path: str, data: bytes) -> None:
        """A file that is there with all its bytes, or not at all.

        Where the store has a conditional write, that decides between two; else a rename does, which HDFS
        refuses where the name is taken. Raises FileExistsError.
        """
        target = self._path(path)
        if self._files.hasPathCapability(target, _CONDITIONAL):
            self._create_at_close(path, target, data)
            return
        temporary = self._path(f"{path}.tmp")
        self._write(self._files.create(temporary, True), data)
        if self._files.exists(target) or not self._files.rename(temporary, target):
            raise FileExistsError(self.uri(path))

    def rename(self, source: str, target: str) -> None:
        """Directories are made. Raises JobError: the store does not.

        On S3 it is a copy, which is there as a whole or not at all, and a deletion; between the two a process
        may have been killed, so where both are there with the same size the deletion is what is left to do.
        """
        start, end = self._path(source), self._path(target)
        if self._files.exists(end) and (
            self._files.getFileStatus(end).getLen() == self._files.getFileStatus(start).getLen()
        ):
            self._files.delete(start, False)
            return
        self._files.mkdirs(end.getParent())
        if not self._files.rename(start, end):
            raise JobError(f"{self.uri(source)} cannot be renamed to {self.uri(target)}")

    def remove_tree(self, directory: str) -> None:
        """One that is not there is fine."""
        self._files.delete(self._path(directory), True)

    def _create_at_close(self, path: str, target: Any, data: bytes) -> None:
        """What the store answers to a request that its connector sent again may be about the first of the
        two, so a name that is taken is looked at: these bytes are ours."""
        from py4j.protocol import Py4JJavaError

        try:
            builder = self._files.createFile(target).overwrite(False).must(_CONDITIONAL, True)
            self._write(builder.build(), data)
        except Py4JJavaError as error:
            if not self._files.exists(target):
                raise
            if self.read(path) != data:
                raise FileExistsError(self.uri(path)) from error

    def _write(self, stream: Any, data: bytes) -> None:
        try:
            stream.write(bytearray(data))
            if stream.hasCapability(_FORCES_TO_DISK):
                stream.hsync()
        finally:
            stream.close()

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.uri(path))

    def _why(self, error: Exception) -> str:
        """The store's reason; and what to do where Spark lacks the connector."""
        java = getattr(error, "java_exception", None)
        reason = explain(error) if java is None else str(java.getMessage() or java.toString())
        reason = " ".join(reason.split())
        scheme = self.root.partition("://")[0]
        if "No FileSystem for scheme" in reason or "ClassNotFoundException" in reason:
            if scheme == "s3":
                return f"{reason}; what Spark writes to S3 is named s3a://"
            package = _CONNECTORS.get(scheme)
            if package is not None:
                version = self._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
                return (
                    f"{reason}; Spark needs its connector: "
                    f"--conf spark.jars.packages=org.apache.hadoop:{package}:{version}"
                )
        return reason


# ---- S3 by the environment


class Endpoint(NamedTuple):
    """A store that is not Amazon's, or a private way to it."""

    url: str
    """``http://minio:9000``."""
    region: str

    @property
    def is_plain(self) -> bool:
        return self.url.startswith("http://")


def is_s3(place: str) -> bool:
    """Whether a path or URI is in S3."""
    return place.lower().startswith(SCHEMES)


def endpoint() -> Endpoint | None:
    """Raises ValueError: the variable is no URL of a server."""
    for name in ENDPOINT_VARIABLES:
        text = os.environ.get(name, "").rstrip("/")
        if not text:
            continue
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query:
            raise ValueError(f"{name} must be a URL such as http://minio:9000")
        if "@" in parts.netloc:
            raise ValueError(f"{name} must have no login: keys are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY")
        regions = filter(None, map(os.environ.get, REGION_VARIABLES))
        return Endpoint(text, next(regions, DEFAULT_REGION))
    return None


def open_uri(uri: str, there: Endpoint | None = None) -> tuple[pyarrow.fs.FileSystem, str]:
    """pyarrow's file system of a URI, and the path in it.

    Args:
        uri: what stands behind a ``?`` counts more than the environment.
        there: the endpoint; None: the environment's.

    Raises:
        ValueError, OSError, pyarrow.ArrowException: there is no such store.
    """
    if not is_s3(uri):
        system, path = pyarrow.fs.FileSystem.from_uri(uri)
        return system, path
    place, _, settings = uri.partition("://")[2].partition("?")
    there = there or endpoint()
    if there is not None and "endpoint_override=" not in settings:
        parts = urlsplit(there.url)
        given = [settings, f"endpoint_override={quote(parts.netloc)}", f"scheme={parts.scheme}"]
        if "region=" not in settings:
            given.append(f"region={quote(there.region)}")
        settings = "&".join(filter(None, given))
    system, path = pyarrow.fs.FileSystem.from_uri(f"s3://{place}?{settings}".rstrip("?"))
    return system, path


def iceberg_properties() -> dict[str, str]:
    """For pyiceberg's file systems. Raises ValueError."""
    there = endpoint()
    return {} if there is None else {"s3.endpoint": there.url, "s3.region": there.region}


def delta_options(root: str) -> dict[str, str] | None:
    """delta-rs' storage options for a table there; None: it needs none. Raises ValueError."""
    there = endpoint() if is_s3(root) else None
    if there is None:
        return None
    options = {"aws_endpoint": there.url, "aws_region": there.region}
    return options | {"aws_allow_http": "true"} if there.is_plain else options


# ---- Iceberg's catalogs


def catalog_uri(text: str) -> str | None:
    """Of ``[NAME=]URI``; None: it is the name of a catalog that pyiceberg is configured for."""
    named = _NAMED.fullmatch(text)
    return None if named is None else named["uri"]


def open_catalog(text: str, **properties: str) -> Any:
    """The catalog. Raises what pyiceberg raises, see ``iceberg_errors``."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    named = _NAMED.fullmatch(text)
    name = text if named is None else named["name"] or _DEFAULT_NAME
    configured = Config().get_catalog_config(name) or {}
    by_environment = {key: text for key, text in iceberg_properties().items() if key not in configured}
    given = properties if named is None else {"uri": named["uri"], **properties}
    return load_catalog(name, **{**by_environment, **given})


def check_catalog_file(text: str) -> None:
    """For who only reads: SQLite makes a file that is missing. Raises FileNotFoundError; what pyiceberg and
    its database raise, see ``iceberg_errors``."""
    from pyiceberg.utils.config import Config

    uri = catalog_uri(text)
    if uri is None:
        uri = str((Config().get_catalog_config(text) or {}).get("uri", ""))
    if not uri.startswith("sqlite"):
        return
    from sqlalchemy.engine import make_url

    path = make_url(uri).database
    if path and path != _IN_MEMORY and not path.startswith("file:") and not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}")


def without_password(text: str) -> str:
    """A URI, or a line with one, as it may be shown."""
    return _PASSWORD.sub("//", text)


@contextmanager
def iceberg_errors(what: str) -> Iterator[None]:
    """What pyiceberg, its database, its HTTP or its Thrift client raise, as one line. Raises JobError."""
    from pyiceberg import exceptions

    found: list[type[Exception]] = [OSError, ValueError, NotImplementedError, ImportError]
    found += [each for each in vars(exceptions).values() if isinstance(each, type)]
    try:
        from sqlalchemy.exc import SQLAlchemyError

        found.append(SQLAlchemyError)
    except ImportError:  # a catalog that needs no database
        pass
    try:
        from thrift.Thrift import TException

        found.append(TException)
    except ImportError:  # a catalog that is not Hive's
        pass
    try:
        yield
    except tuple(found) as error:
        words = without_password(" ".join(str(error).split("\n")[0].split()))
        raise JobError(f"{what}: {words or type(error).__name__}") from error


# ---- delta-rs


@contextmanager
def delta_errors(what: str) -> Iterator[None]:
    """What delta-rs and its object stores raise, as one line behind ``what``. Raises JobError."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        raise JobError(f"{what}: {delta_words(error)}") from error


def delta_words(error: Exception) -> str:
    """The first line and the last cause, or in its place what the store has answered."""
    text = str(error)
    words = [" ".join(text.split("\n")[0].split()) or type(error).__name__]
    if answer := _ANSWER.search(text):
        words.append(f"{answer['words'].strip()} ({answer['code']})")
    elif causes := _CAUSE.findall(text):
        words.append(causes[-1].strip())
    return ": ".join(words)


# ---- log directories


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
