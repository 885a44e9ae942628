"""``minikafka-broker`` as a process: how it comes up, how it goes, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.cli.broker import _stop_on_signals

STOP_S = 60
"""A clean stop takes a fraction of a second; this is for a machine that is busy with other things."""


class Process:
    """A broker process; ``with`` waits until it listens, and ends it."""

    def __init__(self, *options: str, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-P", "-m", "minikafka.cli.broker", *options]
        if not any("listeners" in option or option == "--port" for option in options):
            command += ["--port", "0"]
        self.popen = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | (env or {})
        )
        assert self.popen.stdout is not None
        self.banner: list[str] = []

    def __enter__(self) -> Process:
        assert self.popen.stdout is not None
        watchdog = threading.Timer(90, self.popen.kill)
        watchdog.start()
        for line in self.popen.stdout:
            self.banner.append(line.rstrip("\n"))
            if line.startswith("stop it"):
                watchdog.cancel()
                return self
        raise AssertionError(f"the broker did not come up: {self.popen.communicate()[1]}")

    def __exit__(self, *error: object) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()

    def said(self, label: str) -> str:
        return next(line.removeprefix(label).strip() for line in self.banner if line.startswith(label))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit status, and what it wrote to standard error."""
        self.popen.send_signal(number)
        _, errors = self.popen.communicate(timeout=STOP_S)
        return self.popen.returncode, errors


def refused(*options: str) -> str:
    """What a broker that cannot start says, in its one line besides the log."""
    popen = Process(*options, "--log-level", "error").popen
    try:
        out, errors = popen.communicate(timeout=90)
    finally:
        popen.kill()
    assert (popen.returncode, out) == (1, ""), errors
    (line,) = errors.splitlines()
    assert line.startswith("minikafka-broker: ")
    return line.removeprefix("minikafka-broker: ")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker") / "data"


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Process]:
    with Process("--data-dir", str(data), "--set", "cluster.id=mine") as process:
        yield process


def test_the_banner_says_where_it_listens_and_where_its_data_is(broker: Process, data: Path) -> None:
    address = broker.said("listening on")
    assert re.fullmatch(r"localhost:[1-9][0-9]+", address)
    assert broker.said("data in") == str(data)
    assert broker.said("try it") == f"echo hello | kcat -b {address} -t greetings -P"


OPEN = "accepts connections from other machines without authentication"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_a_broker_that_other_machines_reach_says_so(tmp_path: Path, host: str) -> None:
    advertised = "advertised.listeners=PLAINTEXT://localhost:9"
    listeners = f"listeners=PLAINTEXT://{host}:0"
    with Process("--data-dir", str(tmp_path / "d"), "--set", listeners, "--set", advertised) as process:
        listening = process.said("listening on")
        port = re.fullmatch(rf"{re.escape(host or '*')}:([1-9][0-9]+) \(all interfaces\)", listening)
        assert port is not None, listening
        assert process.said("advertised as") == "localhost:9"
        assert listening in process.said("warning")
        warning = next(line for line in process.stop()[1].splitlines() if OPEN in line)
        assert "WARNING" in warning and f"listener PLAINTEXT://{host}:{port[1]} " in warning
        assert f"listeners=PLAINTEXT://localhost:{port[1]}" in warning, "what to do"


def test_a_broker_with_an_authorizer_has_nothing_to_warn_of(tmp_path: Path) -> None:
    """Neither in the log nor in the banner: who is anonymous may do what an ACL allows."""
    settings = (
        "listeners=PLAINTEXT://0.0.0.0:0",
        "advertised.listeners=PLAINTEXT://localhost:9",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:admin",
    )
    options = [option for setting in settings for option in ("--set", setting)]
    with Process("--data-dir", str(tmp_path / "d"), *options) as process:
        assert process.said("advertised as") == "localhost:9"
        assert not any(line.startswith("warning") for line in process.banner)
        assert OPEN not in process.stop()[1]


def test_a_broker_that_only_this_machine_reaches_has_nothing_to_warn_of(broker: Process) -> None:
    assert broker.said("advertised as") == broker.said("listening on")
    assert not any(line.startswith("warning") for line in broker.banner)


def test_a_port_that_is_taken(broker: Process, tmp_path: Path) -> None:
    port = broker.said("listening on").rpartition(":")[2]
    line = refused("--port", port, "--data-dir", str(tmp_path))
    assert port in line and "in use" in line


def test_a_directory_that_another_broker_uses(broker: Process, data: Path) -> None:
    assert str(data) in refused("--data-dir", str(data))


def test_a_directory_of_another_cluster(tmp_path: Path) -> None:
    options = ("--data-dir", str(tmp_path), "--set")
    with Process(*options, "cluster.id=first") as process:
        assert process.stop()[0] == 0
    line = refused(*options, "cluster.id=second")
    assert "first" in line and "second" in line


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused("--data-dir", str(tmp_path / "file" / "data"))


def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    line = refused("--data-dir", str(tmp_path), "--set", "listeners=PLAINTEXT://192.0.2.1:9092")
    assert "192.0.2.1" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with Process("--data-dir", str(tmp_path)) as process:
        status, _ = process.stop(number)
    assert status == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_in_memory_leaves_nothing_behind() -> None:
    with Process("--in-memory") as process:
        directory = Path(process.said("data in").removesuffix(" (temporary: gone when the broker stops)"))
        assert directory.is_dir()
        assert process.stop()[0] == 0
    assert not directory.exists()


def test_the_log_is_json_when_asked_for_and_names_what_a_file_has_too_much(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.io.threads=8\nlog.format=json\n")
    options = ("--config", str(tmp_path / "server.properties"), "--data-dir", str(tmp_path / "data"))
    with Process(*options, env={"MINIKAFKA_NUM_PARTITIONS": "3"}) as process:
        status, errors = process.stop()
    assert status == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    (told,) = [line["message"] for line in lines if "without effect here" in line["message"]]
    assert told.endswith(": num.io.threads")
    assert any(line["message"] == "stopping" and line["signal"] == "SIGTERM" for line in lines)


async def test_a_second_signal_ends_the_process_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    handlers: dict[int, tuple[Any, Any]] = {}
    monkeypatch.setattr(os, "_exit", ended.append)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(
        loop, "add_signal_handler", lambda number, handle, *given: handlers.update({number: (handle, given)})
    )
    (tmp_path / "memory").mkdir()
    stopped = _stop_on_signals(str(tmp_path / "memory"))
    handle, given = handlers[signal.SIGTERM]
    handle(*given)
    assert stopped.done() and not ended
    handle(*given)
    assert ended == [128 + signal.SIGTERM]
    assert not (tmp_path / "memory").exists()


def test_an_installed_command_imports_without_looking_for_garbage() -> None:
    """It is off when the first module is asked for, in whichever way the broker is started."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, function = project["project"]["scripts"]["minikafka-broker"].partition(":")
    watched = """
import gc, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "minikafka.config.broker":
            print("collects" if gc.isenabled() else "does not collect")

sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["--version"]
"""
    starts = [
        f"from {module} import {function} as main\nsys.exit(main())",
        "import runpy\nrunpy.run_module('minikafka.cli.broker', run_name='__main__')",
    ]
    for start in starts:
        done = subprocess.run(
            [sys.executable, "-c", watched + start], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[0] == "does not collect", done.stderr
