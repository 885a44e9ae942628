"""Brokers as processes: ours, and Apache Kafka's as the reference for the tests themselves."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.integration.support import java
from tests.integration.support.wire import RawClient
from tests.support.ports import free_port

START_DEADLINE_S = 90.0
STOP_DEADLINE_S = 60.0

DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",  # as in the tests of Kafka; those of groups say what they need
    "log.retention.ms": "-1",  # the tests' timestamps are years old
    "log.segment.bytes": str(64 * 1024 * 1024),
    "offsets.topic.num.partitions": "5",  # 50 are most of what a short life with a group costs
    "transaction.state.log.num.partitions": "5",
}


BANNER = "\nlistening on"


class StartFailed(AssertionError):
    """The process ended, or did not answer in time; carries its log."""


class BrokerProcess:
    """A minikafka broker as a process of its own. Keeps its directory and its port over restarts.

    Another process can take the port between the look for a free one and its use; a first start then tries
    another.
    """

    is_reference = False

    def __init__(
        self,
        data_dir: Path,
        *,
        more_dirs: Sequence[Path] = (),
        properties: Mapping[str, object] | None = None,
        port: int | None = None,
        command: list[str] | None = None,
        descriptors_max: int | None = None,
    ) -> None:
        """``descriptors_max`` is the process's RLIMIT_NOFILE; the machine's own unless given. Among
        ``properties`` with ``listeners`` the port is that of the listener PLAINTEXT."""
        self.data_dir = data_dir
        self.log_dirs = ",".join(map(str, (data_dir, *more_dirs)))
        self.properties = DEFAULTS | {name: str(value) for name, value in (properties or {}).items()}
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.command = command or [sys.executable, "-m", "minikafka.cli.broker"]
        self.descriptors_max = descriptors_max
        self.process: subprocess.Popen[bytes] | None = None
        self._log_before = 0
        if port is None and "PLAINTEXT://" in self.properties.get("listeners", ""):
            port = self.port_of("PLAINTEXT")
        self._port_is_fixed = port is not None
        self.port = port or free_port()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.bootstrap} {self.data_dir}>"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def port_of(self, listener: str) -> int:
        """Of one of those in the property ``listeners``."""
        found = re.search(rf"\b{listener}://[^,]*:(\d+)", self.properties["listeners"])
        assert found is not None, f"there is no listener {listener}"
        return int(found[1])

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def arguments(self) -> list[str]:
        settings = [f"--set={name}={value}" for name, value in self.properties.items()]
        if "listeners" not in self.properties:  # which must have one with this port then
            settings.append(f"--port={self.port}")
        return [*self.command, f"--data-dir={self.log_dirs}", *settings]

    def _limits(self) -> list[str]:
        """util-linux's prlimit in front of the command: the limit holds from the first instruction on."""
        if self.descriptors_max is None:
            return []
        return ["prlimit", f"--nofile={self.descriptors_max}:{self.descriptors_max}"]

    def environment(self) -> dict[str, str]:
        """A user's: his Python keeps its byte code, so that it is not compiled at every start."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return kept | {"PYTHONUNBUFFERED": "1"}

    def start(self, *, deadline_s: float = START_DEADLINE_S) -> BrokerProcess:
        """Start and wait for the first answer to ApiVersions. Raises StartFailed with the log."""
        for attempts_left in (2, 1, 0):
            try:
                self._start_once(deadline_s)
            except StartFailed as error:
                port_was_lost = "in use" in str(error) and not self._port_is_fixed and attempts_left
                if not port_was_lost:
                    raise
                self.port = free_port()
            else:
                self._port_is_fixed = True
                break
        return self

    def _start_once(self, deadline_s: float) -> None:
        assert not self.is_running(), "already running"
        self._log_before = len(self.log_text())
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self._limits(), *self.arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
            )
        deadline = time.monotonic() + deadline_s
        while not self._is_up():
            # Waiting for the process to end is what paces the attempts: it must not end.
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(timeout=0.02)
                raise StartFailed(f"the broker ended with code {code}\n{self.log_text()}")
            if time.monotonic() > deadline:
                self.kill()
                raise StartFailed(f"no answer to ApiVersions within {deadline_s} s\n{self.log_text()}")

    def _is_up(self) -> bool:
        """It listens a moment before it knows its topics; the banner comes when it does."""
        return BANNER in self.log_text()[self._log_before :] and self._answers()

    def _answers(self) -> bool:
        try:
            with RawClient(self.port, timeout_s=2.0) as client:
                return bool(client.api_versions())
        except OSError:
            return False

    def kill(self) -> None:
        """SIGKILL, as a power cut would have it but for the page cache."""
        self._end(signal.SIGKILL, STOP_DEADLINE_S)

    def stop(self, *, deadline_s: float = STOP_DEADLINE_S) -> int:
        """SIGTERM; returns the exit code. Raises TimeoutExpired when it takes too long."""
        return self._end(signal.SIGTERM, deadline_s)

    def _end(self, with_signal: signal.Signals, deadline_s: float) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        return self.process.wait(timeout=deadline_s)

    def close(self) -> None:
        """End it in whatever way works: a test is over."""
        if self.is_running():
            self.kill()

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        return self.data_dir / f"{topic}-{partition}"

    def files(self, topic: str, suffix: str, partition: int = 0) -> list[Path]:
        return sorted(self.partition_dir(topic, partition).glob(f"*{suffix}"))

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


class SecureProcess(BrokerProcess):
    """A `minikafka-broker --secure`; ``more``: further arguments; ``properties`` go on top of its own."""

    def __init__(
        self, data_dir: Path, *, more: tuple[str, ...] = (), properties: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(data_dir)
        self.more = (*more, *(f"--set={name}={value}" for name, value in (properties or {}).items()))
        self._has_listeners = bool(more)

    @property
    def security(self) -> Path:
        return self.data_dir.with_name(self.data_dir.name + "-security")

    @property
    def admin(self) -> Path:
        return self.security / "users" / "admin"

    def arguments(self) -> list[str]:
        listen = () if self._has_listeners else (f"--listen=127.0.0.1:{self.port}",)
        return [
            *self.command,
            "--secure",
            *listen,
            f"--data-dir={self.data_dir}",
            "--http-port=off",
            *self.more,
        ]

    def _answers(self) -> bool:
        return True  # the banner says so; who does not log in gets no answer


def bytes_of(paths: Iterable[Path]) -> int:
    """Of the files of a running broker: one that has been renamed or deleted since counts nothing."""
    sizes = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sum(sizes)


class KafkaProcess(BrokerProcess):
    """Apache Kafka itself, one KRaft node, from Maven's jars; starts in about three seconds."""

    is_reference = True
    CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"

    def __init__(
        self,
        data_dir: Path,
        *,
        classpath: str,
        more_dirs: Sequence[Path] = (),
        properties: Mapping[str, object] | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(data_dir, more_dirs=more_dirs, properties=properties, port=port)
        self._class_path = classpath

    def arguments(self) -> list[str]:
        controller = free_port()
        config = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.log_dirs,
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        } | self.properties
        path = self.data_dir.with_name(self.data_dir.name + ".properties")
        path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        if not (self.data_dir / "meta.properties").exists():
            tool = ("kafka.tools.StorageTool", "format", "-t", self.CLUSTER_ID, "-c", str(path))
            java.tool(self._class_path, *tool)
        return [*java.command(self._class_path), "-Xmx512m", "kafka.Kafka", str(path)]

    def _is_up(self) -> bool:
        return self._answers()


LOGGING_OF_KAFKA = {
    "log4j.rootLogger": "ERROR, stdout",
    "log4j.appender.stdout": "org.apache.log4j.ConsoleAppender",
    "log4j.appender.stdout.layout": "org.apache.log4j.PatternLayout",
    "log4j.appender.stdout.layout.ConversionPattern": "%d{ISO8601} %p %c: %m%n",
}


class KafkaOnZooKeeper(KafkaProcess):
    """Apache Kafka 3.9, the last with ZooKeeper; ``java_options`` are its JVM's. Its log has errors only:
    they say why it ended."""

    VERSION = java.LAST_WITH_ZOOKEEPER

    def __init__(
        self,
        data_dir: Path,
        *,
        properties: Mapping[str, object],
        port: int | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """Without ``listeners`` among the properties there is one, PLAINTEXT."""
        classpath = java.class_path(self.VERSION)
        super().__init__(data_dir, classpath=classpath, properties=properties, port=port)
        self._java = [*java.command(classpath), *java_options]

    def start(self, *, deadline_s: float = START_DEADLINE_S) -> BrokerProcess:
        """Once more when it ended because its session expired meanwhile: a machine with much else to do does
        that to it."""
        try:
            return super().start(deadline_s=deadline_s)
        except StartFailed:
            if "SessionExpiredException" not in self.log_text()[self._log_before :]:
                raise
            return super().start(deadline_s=deadline_s)

    def _answers(self) -> bool:
        """It answers before the controller has told it of the cluster; librdkafka, which then hears of no
        controller, asks again after a minute."""
        try:
            with RawClient(self.port, timeout_s=2.0) as client:
                return client.controller() >= 0
        except OSError:
            return False

    def arguments(self) -> list[str]:
        config = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": self.log_dirs,
            "offsets.topic.replication.factor": "1",
        } | self.properties
        path = self._write(".properties", config)
        logging = self._write(".log4j.properties", LOGGING_OF_KAFKA)
        return [*self._java, f"-Dlog4j.configuration=file:{logging}", "kafka.Kafka", str(path)]

    def _write(self, suffix: str, properties: Mapping[str, str]) -> Path:
        path = self.data_dir.with_name(self.data_dir.name + suffix)
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return path


def java_is_there() -> bool:
    return all(shutil.which(program) for program in ("java", "mvn"))
