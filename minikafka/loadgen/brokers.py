"""Processes of a recipe's brokers: free ports, the first answer, the end.

Our own modules as processes: the same interpreter, and the same package wherever it was imported from.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from minikafka.errors import MinikafkaError

PACKAGE_PARENT = Path(__file__).resolve().parents[2]


def module_command(module: str) -> list[str]:
    """What runs a module of ours; with ``module_environment``."""
    return [sys.executable, "-P", "-m", module]


def module_environment() -> dict[str, str]:
    """Ours, and a checkout that is not installed is found from any directory."""
    paths = [str(PACKAGE_PARENT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""ApiVersions version 0, correlation id 1, without a client id: every broker answers it first."""
ANSWER_TIMEOUT_S = 5.0
POLL_S = 0.005
"""How exactly the time of the first answer is known."""
STOP_S = 30.0
LOG_TAIL_LINES = 5

_given_out: set[int] = set()


class RecipeError(MinikafkaError):
    """A recipe cannot start its brokers; the message says why, with the end of their log."""


def free_ports(count: int) -> list[int]:
    """Ports without a listener, that were not given out before."""
    ports: list[int] = []
    with contextlib.ExitStack() as probes:
        while len(ports) < count:
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            if port not in _given_out:
                _given_out.add(port)
                ports.append(port)
    return ports


def answers(port: int) -> bool:
    """Whether a broker answers ApiVersions there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S) as connection:
            connection.sendall(API_VERSIONS)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


def ended(command: Sequence[str], deadline_s: float) -> subprocess.CompletedProcess[str]:
    """Run a helper of a recipe to its end. Raises RecipeError: it does not come to one."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        raise RecipeError(f"{command[0]} has not ended after {deadline_s:g} s") from None


class BrokerProcess:
    """One broker: a command, the port it will listen on, its log in a directory."""

    def __init__(self, command: Sequence[str], port: int, log: Path, *, holds_input: bool = False) -> None:
        """``holds_input``: it ends when its standard input does. Raises RecipeError: it cannot be run."""
        self.port = port
        self._log = log
        self.started_s = time.perf_counter()
        with log.open("wb") as output:
            try:
                self.process = subprocess.Popen(
                    command,
                    env=module_environment(),
                    stdin=subprocess.PIPE if holds_input else subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C is for the generator, which stops its brokers
                )
            except OSError as error:
                raise RecipeError(f"cannot run {command[0]}: {error.strerror}") from None

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_up(self, deadline_s: float) -> float:
        """Seconds from its start to its first answer. Raises RecipeError: it ended, or takes too long."""
        while not answers(self.port):
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.process.wait(timeout=POLL_S)
                raise RecipeError(f"a broker ended with {status} while starting: {self.log_tail()}")
            if time.perf_counter() - self.started_s > deadline_s:
                raise RecipeError(f"a broker does not answer after {deadline_s:g} s: {self.log_tail()}")
        return time.perf_counter() - self.started_s

    def log_tail(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return " | ".join(lines[-LOG_TAIL_LINES:]) or "it said nothing"

    def stop(self) -> None:
        """SIGTERM (or the end of its input), SIGKILL when that does not help."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        elif self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class RunningBrokers:
    """Brokers that a recipe has started; a context manager that stops them and removes their directory."""

    def __init__(self, directory: tempfile.TemporaryDirectory[str]) -> None:
        self._directory = directory
        self.path = Path(directory.name)
        self.processes: list[BrokerProcess] = []
        self.bootstrap = ""
        self.start_s = 0.0
        """From the first process's start until every broker had answered."""

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(each.pid for each in self.processes)

    def __enter__(self) -> RunningBrokers:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.processes:
            each.stop()
        self._directory.cleanup()

    def wait_until_up(self, deadline_s: float) -> None:
        """Raises RecipeError."""
        self.start_s = max(each.wait_until_up(deadline_s) for each in self.processes)
