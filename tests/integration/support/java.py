"""Apache Kafka from Maven: built once into the repository's cache, then a class path for every test.

`java` and `mvn` decide: where either is missing the tests that are marked `java` are skipped; where both are
there a build that fails is a failure. ``python -m tests.integration.support.java`` builds all of them
beforehand, with nothing but the standard library.
"""

from __future__ import annotations

import atexit
import base64
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.integration.support.records import Consumed, Headers, Record

SOURCES = Path(__file__).resolve().parent.parent / "java"
CACHE = Path(__file__).resolve().parents[3] / ".cache" / "integration-java"
JVM = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
MAVEN_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A build is over before the second compiler of the JVM pays: 4 s of CPU instead of 9."""
BUILD_DEADLINE_S = 600

CLIENT_JAR, LOADED_CLASSES = "client.jar", "classes.jsa"
"""Our own classes; and Kafka's as a JVM has them once they are loaded, which is half of what a tool does."""


KAFKA_VERSION = "4.1.0"
"""Of the tools that most tests run, and the reference broker."""
CLIENT_VERSIONS = ("4.1.1", "4.4.0")
LAST_WITH_ZOOKEEPER = "3.9.1"
NEWEST_DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
"""The class of the last of ``CLIENT_VERSIONS``: by then what was in ``kafka.tools`` and ``kafka.admin`` is
there."""


def class_path(version: str = KAFKA_VERSION) -> str:
    """Compile the sources and fetch Kafka's jars of a version, unless done before. Raises AssertionError with
    Maven's log."""
    digest = hashlib.sha256(Path(__file__).read_bytes() + version.encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file():
            digest.update(path.read_bytes())
    target = CACHE / digest.hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "done").exists():
            _build(target, version)
    return f"{target}/{CLIENT_JAR}:{target}/dependency/*"


def command(class_path: str) -> list[str]:
    """What a main class and its arguments are put behind. A JVM that cannot use the archive says nothing."""
    archive = Path(class_path.partition(":")[0]).with_name(LOADED_CLASSES)
    return [*JVM, "-Xlog:disable", f"-XX:SharedArchiveFile={archive}", "-cp", class_path]


def _build(target: Path, version: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    build = subprocess.run(
        [
            *("mvn", "-q", "-B", f"-Dkafka.version={version}", f"-Doutput.directory={target}"),
            *("compile", "dependency:copy-dependencies"),
        ],
        cwd=SOURCES,
        env={"MAVEN_OPTS": MAVEN_JVM} | os.environ,
        capture_output=True,
        text=True,
        timeout=BUILD_DEADLINE_S,
    )
    assert build.returncode == 0, f"Maven could not build the Java client:\n{build.stdout}{build.stderr}"
    with zipfile.ZipFile(target / CLIENT_JAR, "w") as jar:  # an archive takes no directories
        for path in (target / "classes").rglob("*.class"):
            jar.write(path, path.relative_to(target / "classes"))
    _archive(target)
    (target / "done").touch()


def _archive(target: Path) -> None:
    """Let a tool that finds no broker load what tools load. Without the archive everything is slower only."""
    impatient = target / "impatient.properties"
    impatient.write_text("default.api.timeout.ms=500\nrequest.timeout.ms=400\n")
    asked = ["--bootstrap-server", "127.0.0.1:1", "--command-config", str(impatient)]
    subprocess.run(
        [
            *JVM,
            *("-XX:+IgnoreUnrecognizedVMOptions", f"-XX:ArchiveClassesAtExit={target / LOADED_CLASSES}"),
            *("-cp", f"{target}/{CLIENT_JAR}:{target}/dependency/*"),
            *("org.apache.kafka.tools.TopicCommand", *asked, "--list"),
        ],
        capture_output=True,
        check=False,
        timeout=BUILD_DEADLINE_S,
    )


def run(
    class_path: str, *arguments: str, options: Sequence[str] = (), stdin: str = "", deadline_s: float = 120
) -> str:
    """Run a main class, with ``options`` for the JVM; returns its standard output. Raises AssertionError with
    its standard error."""
    done = subprocess.run(
        [*command(class_path), *options, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=deadline_s,
    )
    assert done.returncode == 0, (
        f"java {arguments[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr}"
    )
    return done.stdout


END = "\0exit status "
"""What Tools.java prints when a tool has ended."""


class Ended(NamedTuple):
    status: int
    out: str
    err: str


class Tools:
    """A JVM that runs Kafka's command line tools one after another: each costs what it does, not a start."""

    def __init__(self, class_path: str) -> None:
        self._errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115 until it is closed
        self._jvm = subprocess.Popen(
            [*command(class_path), "Tools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def close(self) -> None:
        self._jvm.kill()
        self._jvm.communicate()
        self._errors.close()

    def run(self, main: str, *arguments: str, deadline_s: float = 120) -> Ended:
        """Run a main class. Raises AssertionError: the JVM has ended, or had to be ended at the deadline."""
        assert self._jvm.stdin is not None and self._jvm.stdout is not None
        assert not any(character in word for word in arguments for character in "\t\n")
        before = self._errors.seek(0, os.SEEK_END)
        self._jvm.stdin.write("\t".join((main, *arguments)) + "\n")
        self._jvm.stdin.flush()
        printed = ""
        deadline = threading.Timer(deadline_s, self._jvm.kill)
        deadline.start()
        try:
            for line in self._jvm.stdout:
                if END in line:  # not a NUL alone: records that are dumped may have one
                    rest, _, status = line.partition(END)
                    return Ended(int(status), printed + rest, self._errors_since(before))
                printed += line
        finally:
            deadline.cancel()
        raise AssertionError(
            f"java {main} did not end within {deadline_s} s, or ended the JVM:\n"
            f"{printed}{self._errors_since(before)}"
        )

    def _errors_since(self, position: int) -> str:
        self._errors.seek(position)
        return self._errors.read().decode(errors="replace")


_shared_tools: dict[str, Tools] = {}


def ask_tool(class_path: str, main: str, *arguments: str, deadline_s: float = 120) -> Ended:
    """Run one of Kafka's tools in the JVM that all tests share."""
    if class_path not in _shared_tools:
        _shared_tools[class_path] = tools = Tools(class_path)
        atexit.register(tools.close)
    try:
        return _shared_tools[class_path].run(main, *arguments, deadline_s=deadline_s)
    except AssertionError:
        del _shared_tools[class_path]
        raise


def tool(class_path: str, main: str, *arguments: str, deadline_s: float = 120) -> str:
    """The same; returns its standard output. Raises AssertionError, with all it printed, where it failed."""
    ended = ask_tool(class_path, main, *arguments, deadline_s=deadline_s)
    assert ended.status == 0, f"java {main} ended with {ended.status}:\n{ended.out[-4000:]}{ended.err}"
    return ended.out


def failed_transactions(
    class_path: str, bootstrap: str, topic: str, *, partitions: int, count: int, group: str = ""
) -> list[str]:
    """Commit ``count`` transactions in a row with Kafka's Java producer, a record for each partition in each,
    and an offset of ``group`` if there is one. Returns what became of those that failed."""
    arguments = (bootstrap, topic, str(partitions), str(count), *filter(None, [group]))
    return run(class_path, "Client", "transactions", *arguments, deadline_s=600).splitlines()


def _text(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)


def _headers(text: str) -> Headers:
    pairs = (header.split(":") for header in text.split(",") if header)
    return tuple(((_bytes(name) or b"").decode(), _bytes(value)) for name, value in pairs)


def produce(
    class_path: str, bootstrap: str, jobs: Iterable[tuple[str, str, int, Sequence[Record]]]
) -> list[int]:
    """Write (codec, topic, partition, records) jobs with Kafka's Java producer; returns their offsets."""
    lines = []
    for codec, topic, partition, records in jobs:
        for record in records:
            headers = ",".join(f"{_text(name.encode())}:{_text(value)}" for name, value in record.headers)
            timestamp = "-" if record.timestamp_ms is None else str(record.timestamp_ms)
            fields = [
                codec,
                topic,
                str(partition),
                timestamp,
                _text(record.key),
                _text(record.value),
                headers,
            ]
            lines.append("\t".join(fields))
    output = run(class_path, "Client", "produce", bootstrap, stdin="\n".join(lines) + "\n")
    return [int(line.split("\t")[2]) for line in output.splitlines()]


def consume(
    class_path: str, bootstrap: str, wanted: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], list[Consumed]]:
    """Read `wanted` (topic, partition) → count, from the start, with Kafka's Java consumer."""
    lines = "".join(f"{topic}\t{partition}\t0\t{count}\n" for (topic, partition), count in wanted.items())
    found: dict[tuple[str, int], list[Consumed]] = {at: [] for at in wanted}
    for line in run(class_path, "Client", "consume", bootstrap, stdin=lines).splitlines():
        topic, partition, offset, timestamp, key, value, headers = line.split("\t")
        consumed = Consumed(int(offset), _bytes(key), _bytes(value), _headers(headers), int(timestamp))
        found[topic, int(partition)].append(consumed)
    return found


if __name__ == "__main__":
    for each in (KAFKA_VERSION, *CLIENT_VERSIONS, LAST_WITH_ZOOKEEPER):
        class_path(each)
