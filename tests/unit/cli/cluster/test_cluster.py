"""``minikafka cluster`` as a process: brokers of its own or in itself, what it shows, how it ends."""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Message, Producer

from minikafka.cli.cluster import command as cluster_command
from tests.support.ports import free_port

WAIT_S = 40.0
"""For a machine that is busy with other things; a start takes two seconds."""


class Process:
    """A cluster process with its output line by line; ``with`` ends it, and its brokers."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-P", "-m", "minikafka.cli.main", "cluster", f"--data-dir={directory}"]
        if not any(option.startswith("--port") for option in options):
            command.append("--port=0")
        self.popen = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def line(self, pattern: str) -> re.Match[str]:
        """Wait for a line that matches; earlier ones count too."""
        for line in self.lines:
            if match := re.search(pattern, line):
                return match
        while True:
            line = self._queue.get(timeout=WAIT_S)
            if line is None:
                raise AssertionError(f"it ended without {pattern!r}: {self.lines} {self.popen.stderr}")
            self.lines.append(line)
            if match := re.search(pattern, line):
                return match

    @property
    def bootstrap(self) -> str:
        return self.line(r"bootstrap servers +(\S+)")[1]

    def child(self, node_id: int) -> int:
        return int(self.line(rf"broker {node_id} .*process (\d+)")[1])

    def children_of(self, directory: Path, node_id: int) -> int:
        """The process of a broker that may have been started again: the one that has its directory open."""
        meta = f"--data-dir={directory}/broker-{node_id}".encode()
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdigit() and meta in (process / "cmdline").read_bytes():
                    return int(process.name)
        raise AssertionError(f"broker {node_id} does not run")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit status, and what it wrote to standard error."""
        self.popen.send_signal(number)
        status = self.popen.wait(timeout=WAIT_S)
        assert self.popen.stderr is not None
        return status, self.popen.stderr.read()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(timeout=WAIT_S)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        self._reader.join()
        for stream in (self.popen.stdout, self.popen.stderr):
            assert stream is not None
            stream.close()


def write(bootstrap: str, value: bytes) -> int:
    """Write one record, acknowledged by all; its offset."""
    offsets: list[int] = []

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset() or 0)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("orders", value, partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    return offsets[0]


def metrics_of(cluster: Process, node_id: int) -> str:
    """What is beside the status page that the command names."""
    page = cluster.line(rf"status page of {node_id} +(http://\S+/)")[1]
    with urllib.request.urlopen(f"{page}metrics", timeout=WAIT_S) as answer:
        text: str = answer.read().decode()
    return text


def status_of(page: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{page}status.json", timeout=WAIT_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_three_processes_that_end_together_and_go_on_later(tmp_path: Path) -> None:
    with Process(tmp_path, "--set=http.port=0") as cluster:
        assert len(cluster.bootstrap.split(",")) == 3
        for node_id in (1, 2, 3):
            assert f'minikafka_build_info{{node_id="{node_id}"' in metrics_of(cluster, node_id)
        assert write(cluster.bootstrap, b"one") == 0
        cluster.line(r"orders-0: led by \d, in sync 1, 2, 3")
        children = [cluster.child(node_id) for node_id in (1, 2, 3)]
        assert all(map(is_running, children))
        assert cluster.stop(signal.SIGINT) == (0, "")
        assert not any(map(is_running, children))
    clean = [tmp_path / f"broker-{node_id}" / ".kafka_cleanshutdown" for node_id in (1, 2, 3)]
    assert all(each.exists() for each in clean)
    with Process(tmp_path) as cluster:
        assert write(cluster.bootstrap, b"two") == 1
        assert not any(each.exists() for each in clean)
        assert cluster.stop(signal.SIGTERM) == (0, "")
    assert all(each.exists() for each in clean)


def test_a_broker_that_dies_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    with Process(tmp_path, "--set=zookeeper.session.timeout.ms=1500") as cluster:
        write(cluster.bootstrap, b"one")
        leader = int(cluster.line(r"orders-0: led by (\d), in sync 1, 2, 3")[1])
        os.kill(cluster.child(leader), signal.SIGKILL)
        said = cluster.line(rf"broker {leader} was ended by SIGKILL; its log: (.*)$")
        assert said[1] == str(tmp_path / f"broker-{leader}.log")
        assert Path(said[1]).read_text()
        others = ", ".join(str(each) for each in (1, 2, 3) if each != leader)
        cluster.line(rf"orders-0: led by [{others}], in sync {others}")
        assert write(cluster.bootstrap, b"two") == 1


def test_all_in_one_process(tmp_path: Path) -> None:
    with Process(tmp_path, "--in-process", "--brokers=2", "--set=http.port=0") as cluster:
        assert len(cluster.bootstrap.split(",")) == 2
        assert 'node_id="2"' in metrics_of(cluster, 2)
        assert write(cluster.bootstrap, b"one") == 0
        cluster.line(r"orders-0: led by \d, in sync 1, 2")
        assert cluster.stop()[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["broker-1", "broker-2"]


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cluster_command.main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.ExitStack() as stack:
        while True:
            port = free_port()  # of broker 1
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port + 1)))
                break
        said = error_of(capsys, f"--port={port}", f"--data-dir={tmp_path}")
    assert f"broker 2 cannot listen on port {port + 1}: Address already in use" in said


def test_what_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = f"--data-dir={tmp_path}/data"
    assert "num.partitions" in error_of(capsys, where, "--port=0", "--set=num.partitions=0")
    assert "node.id: the cluster chooses" in error_of(capsys, where, "--port=0", "--set=node.id=7")
    (tmp_path / "file").write_text("precious")
    assert "file" in error_of(capsys, f"--data-dir={tmp_path}/file", "--port=0")


def test_a_broker_that_cannot_start_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broker-2").write_text("not a directory")
    said = error_of(capsys, f"--data-dir={tmp_path}", "--port=0")
    assert said.startswith("minikafka cluster: broker 2: ") and "broker-2" in said


@pytest.mark.parametrize(
    "options", [["--brokers=0"], ["--port=65534"], ["--port=-1"], ["--first-id=-1"], ["--http-port=x"]]
)
def test_bad_usage(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cluster_command.main(options)
    assert ended.value.code == 2
    assert options[0].partition("=")[0] in capsys.readouterr().err


class Asked(NamedTuple):
    """What became of a command."""

    returncode: int
    stdout: str
    stderr: str


def ask(action: str, node_id: int, directory: Path) -> Asked:
    """``minikafka cluster start|stop|kill ID``, which knows of the cluster what its directory says."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = cluster_command.main([action, str(node_id), f"--data-dir={directory}"])
    return Asked(status, out.getvalue(), errors.getvalue())


def ask_as_process(action: str, node_id: int, directory: Path) -> Asked:
    """As in another terminal."""
    command = [sys.executable, "-P", "-m", "minikafka.cli.main", "cluster", action, str(node_id)]
    done = subprocess.run(
        [*command, f"--data-dir={directory}"], capture_output=True, text=True, timeout=2 * WAIT_S
    )
    return Asked(done.returncode, done.stdout, done.stderr)


def free_ports(count: int) -> int:
    """The first of ``count`` ports in a row that are free now."""
    while True:
        with contextlib.ExitStack() as held:
            first = free_port()
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return first


def test_brokers_are_stopped_killed_and_started_again_beside_the_running_command(tmp_path: Path) -> None:
    first = free_ports(3)
    options = ("--first-id=0", f"--http-port={first}", "--set=zookeeper.session.timeout.ms=1500")
    with Process(tmp_path, *options) as cluster:
        cluster.line(r"brokers: 3 of 3 alive \(0, 1, 2\)")
        bootstrap = cluster.bootstrap
        assert write(bootstrap, b"one") == 0
        cluster.line(r"orders-0: led by \d, in sync 0, 1, 2")
        assert 'minikafka_build_info{node_id="0"' in metrics_of(cluster, 0)
        pages = [cluster.line(rf"status page of {node_id} +(\S+)")[1] for node_id in (0, 1, 2)]
        assert pages == [f"http://127.0.0.1:{first + node_id}/" for node_id in (0, 1, 2)]

        for action, said in (("kill", "broker 0 was killed\n"), ("stop", "broker 0 was stopped\n")):
            child = cluster.children_of(tmp_path, 0)
            cluster.lines.clear()
            done = ask(action, 0, tmp_path)
            assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
            assert not is_running(child)
            cluster.line(r"brokers: 2 of 3 alive \(1, 2\), down: 0")
            brokers = status_of(pages[1])["brokers"]
            assert [(each["node_id"], each["is_alive"]) for each in brokers] == [
                (0, False),
                (1, True),
                (2, True),
            ]
            again = ask(action, 0, tmp_path)
            assert again.returncode == 1 and "broker 0 is not running" in again.stderr
            done = ask("start", 0, tmp_path)
            assert done.returncode == 0 and f"status page {pages[0]}" in done.stdout, done
            assert f" {bootstrap.split(',')[0]}, process " in done.stdout
            cluster.line(r"brokers: 3 of 3 alive \(0, 1, 2\)")
            cluster.line(r"orders-0: led by \d, in sync 0, 1, 2")
        assert write(bootstrap, b"two") == 1
        assert ask("start", 0, tmp_path).stderr == "minikafka cluster start: broker 0 is running\n"
        assert "the brokers of this cluster are 0, 1, 2" in ask("stop", 7, tmp_path).stderr
        assert cluster.stop() == (0, "")
    assert (tmp_path / "broker-0" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "control.sock").exists()


def test_a_broker_that_crashed_is_started_again_after_a_signal_from_outside(tmp_path: Path) -> None:
    with Process(tmp_path, "--brokers=1", "--set=http.port=0") as cluster:
        os.kill(cluster.child(1), signal.SIGSTOP)  # it cannot stop cleanly; a crash ends it all the same
        assert ask("kill", 1, tmp_path).returncode == 0
        cluster.line("brokers|stop it")  # the command goes on, although none of its brokers runs
        assert ask("start", 1, tmp_path).returncode == 0
        assert write(cluster.bootstrap, b"one") == 0


def test_in_one_process_brokers_are_stopped_and_started_but_not_killed(tmp_path: Path) -> None:
    with Process(tmp_path, "--in-process", "--brokers=2", "--first-id=0", "--http-port=off") as cluster:
        cluster.line(r"status page of 0 +nowhere \(--http-port off\)")
        write(cluster.bootstrap, b"one")
        cluster.line(r"orders-0: led by \d, in sync 0, 1")
        assert "--in-process" in ask("kill", 1, tmp_path).stderr
        assert ask("stop", 1, tmp_path).stdout == "broker 1 was stopped\n"
        assert ask("start", 1, tmp_path).returncode == 0
        assert write(cluster.bootstrap, b"two") == 1


def test_commands_find_only_a_cluster_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / ("a" * 120)  # longer than the address of a socket may be
    gone = ask("start", 1, directory)
    assert (gone.returncode, gone.stdout) == (1, "") and "no cluster runs on" in gone.stderr
    with Process(directory, "--brokers=1", "--http-port=off") as cluster:
        child = cluster.child(1)
        assert (directory / "control.sock").stat().st_mode & 0o777 == 0o600
        second = error_of(capsys, f"--data-dir={directory}", "--port=0", "--http-port=off")
        assert "a cluster runs on" in second
        cluster.popen.kill()  # leaves its socket and its broker behind
        cluster.popen.wait()
        assert "no cluster runs on" in ask("stop", 1, directory).stderr
        os.kill(child, signal.SIGKILL)
    with Process(directory, "--brokers=1", "--http-port=off") as cluster:
        cluster.child(1)
        assert ask("stop", 1, directory).returncode == 0


def test_two_clusters_side_by_side(tmp_path: Path) -> None:
    options = ("--brokers=1", "--http-port=0")
    with Process(tmp_path / "a", *options) as one, Process(tmp_path / "b", *options) as other:
        children = one.child(1), other.child(1)
        assert ask_as_process("stop", 1, tmp_path / "b").returncode == 0
        assert list(map(is_running, children)) == [True, False]
