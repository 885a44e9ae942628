"""What Spark writes to besides a directory: Hadoop's connector for S3, and a small HDFS, both from Maven.

The jars are fetched once into the repository's cache, of the release that PySpark has.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.integration.support.java import BUILD_DEADLINE_S, JVM, MAVEN_JVM

SOURCES = Path(__file__).resolve().parent / "java"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "spark-java"
PYSPARK = Path(pyspark.__file__).parent
REPOSITORY = Path.home() / ".m2" / "repository"
DEADLINE_S = 300.0


def hadoop_version() -> str:
    """Of PySpark's own jars: a connector must be of the same release."""
    (jar,) = (PYSPARK / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def jars(profile: str) -> list[Path]:
    """The jars of a profile of ``java/pom.xml``, fetched unless they are there. Raises AssertionError with
    Maven's log."""
    version = hadoop_version()
    digest = hashlib.sha256((SOURCES / "pom.xml").read_bytes() + f"{profile} {version}".encode())
    target = CACHE / digest.hexdigest()[:16]
    with _locked():
        if not (target / "done").exists():
            shutil.rmtree(target, ignore_errors=True)
            _maven(
                *("-P", profile, f"-Dhadoop.version={version}", f"-Doutput.directory={target}"),
                "dependency:copy-dependencies",
            )
            (target / "done").touch()
    return sorted((target / "dependency").glob("*.jar"))


def artifact(group: str, name: str, version: str, end: str) -> Path:
    """One file, ``NAME-VERSION-END``, in Maven's own cache: without what it depends on, and without the POMs
    that it is built by. Raises AssertionError with Maven's log."""
    found = REPOSITORY / group.replace(".", "/") / name / version / f"{name}-{version}-{end}"
    classifier, _, kind = end.partition(".")
    with _locked():
        if not found.exists():
            _maven(
                *(f"-Dmaven.repo.local={REPOSITORY}", "-Dtransitive=false"),
                f"-Dartifact={group}:{name}:{version}:{kind}:{classifier}",
                # Later ones read the POM and its parents, which a registry may lack.
                "org.apache.maven.plugins:maven-dependency-plugin:2.10:get",
            )
    return found


@contextmanager
def _locked() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _maven(*arguments: str) -> None:
    done = subprocess.run(
        ["mvn", "-q", "-B", *arguments],
        cwd=SOURCES,
        env={"MAVEN_OPTS": MAVEN_JVM} | os.environ,
        capture_output=True,
        text=True,
        timeout=BUILD_DEADLINE_S,
    )
    assert done.returncode == 0, f"Maven cannot fetch {' '.join(arguments)}:\n{done.stdout}{done.stderr}"


class MiniHdfs:
    """A name node and a data node in one JVM: Hadoop's ``MiniDFSCluster``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        details, self._log = directory / "details.json", directory / "hdfs.log"
        with open(self._log, "ab") as output:
            self._process = subprocess.Popen(
                [
                    *JVM,
                    f"-Dtest.build.data={directory}",
                    *("-cp", ":".join(map(str, jars("hdfs")))),
                    *("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"),
                    *("-writeDetails", str(details)),
                ],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + DEADLINE_S
        while not (details.exists() and details.read_text().endswith("}")):
            assert self._process.poll() is None, self._log.read_text()[-8000:]
            assert time.monotonic() < deadline, self._log.read_text()[-8000:]
            time.sleep(0.1)
        self._port = int(details.read_text().rpartition(":")[2].rstrip("} \n"))

    def __repr__(self) -> str:
        return f"<MiniHdfs {self.uri('')}>"

    def uri(self, path: str) -> str:
        return f"hdfs://127.0.0.1:{self._port}/{path}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
