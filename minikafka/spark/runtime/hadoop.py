"""File systems of Hadoop's, through Spark's JVM: where a job's outputs lie when they are no directory here.

``s3a://`` and others need a connector on Spark's class path, and their settings are Spark's
(``spark.hadoop.fs.s3a.endpoint``). Hadoop: ``FileSystem``, ``FutureDataOutputStreamBuilder``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.spark.runtime.session import JobError, explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Hadoop 3.4.2 (HADOOP-19256): the store itself refuses a second file of the name, with If-None-Match."""

_FORCES_TO_DISK = "hsync"
"""StreamCapabilities.HSYNC: HDFS has it; on S3 a file is durable when it is closed, and only then there."""

_CONNECTORS = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
"""Scheme → the package of Hadoop's that brings it."""


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
