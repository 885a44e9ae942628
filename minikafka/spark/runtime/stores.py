"""Where a job's data lie when that is no directory here: file systems of Hadoop's, S3, Iceberg's catalogs,
and tables by delta-rs. What goes wrong there is said in one line.

``HadoopFiles`` works through Spark's JVM. ``s3a://`` and others need a connector on Spark's class path, and
their settings are Spark's (``spark.hadoop.fs.s3a.endpoint``). Hadoop: ``FileSystem``,
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import pyarrow.fs

from minikafka.spark.runtime.session import JobError, explain

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
