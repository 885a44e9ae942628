"""What a user installs: the wheel in a virtual environment of its own, and the containers' configuration.

Containers themselves are not built here. What a broker in one gets is the wheel, and the environment that
the Dockerfile and the compose files say, with the container's directories and host names put in place.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from minikafka.protocol.records.records import IS_COMPILED
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record
from tests.support.ports import free_port

pytestmark = pytest.mark.minikafka_only

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docs" / "docker"
IN_CONTAINER = "/var/lib/minikafka"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing but the wheel and what it needs; its ``bin``."""
    directory = tmp_path_factory.mktemp("installed")
    wheel = built_wheel(directory)
    venv.create(directory / "venv", with_pip=True)
    binaries = directory / "venv" / "bin"
    options = ("-q", "--disable-pip-version-check", "--no-compile")  # what is imported is compiled then
    run([binaries / "pip", "install", *options, f"{wheel}[zookeeper]", "pytest"])
    return binaries


def built_wheel(directory: Path, **environment: str) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", directory, ROOT]
    run(command, env={**os.environ, **environment})
    (wheel,) = directory.glob("minikafka-*.whl")
    return wheel


def run(command: list[Any], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Installed(BrokerProcess):
    """A broker that gets everything from its environment, as in a container."""

    def __init__(self, binaries: Path, directory: Path, environment: Mapping[str, str], port: int) -> None:
        super().__init__(directory, port=port, command=[str(binaries / "minikafka-broker")])
        self._environment = dict(environment)

    def arguments(self) -> list[str]:
        return self.command

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", **self._environment}


def test_the_wheel_has_the_commands_the_status_page_and_the_pytest_plugin(
    installed: Path, tmp_path: Path
) -> None:
    assert run([installed / "minikafka-broker", "--version"]).startswith("minikafka")
    assert "topics" in run([installed / "minikafka", "--help"])
    test = tmp_path / "test_with_a_broker.py"
    test.write_text(
        "import urllib.request\n"
        "from minikafka.testing import ThreadedBroker\n"
        "def test_there_is_a_broker(minikafka_broker):\n"
        "    host, port = minikafka_broker.bootstrap_servers.split(':')\n"
        "    assert int(port)\n"
        "def test_there_is_a_page():\n"
        "    with ThreadedBroker(config={'http.port': 0}) as broker:\n"
        "        assert broker.bootstrap_servers\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    run([installed / "python", "-m", "pytest", "-q", test], cwd=tmp_path, env=environment)


@pytest.mark.skipif(not IS_COMPILED, reason="bin/test says so: there was no C compiler")
def test_the_wheel_is_compiled_where_there_is_a_compiler_and_works_without_one(
    installed: Path, tmp_path: Path
) -> None:
    version = [installed / "minikafka-broker", "--version"]
    assert "checked by compiled code" in run(version)
    assert built_wheel(tmp_path / "asked", MINIKAFKA_PURE="1").name.endswith("-py3-none-any.whl")
    wheel = built_wheel(tmp_path / "forced", CC=str(tmp_path / "no-such-compiler"))
    assert wheel.name.endswith("-py3-none-any.whl")

    options = ("-q", "--disable-pip-version-check", "--no-deps", "--target", tmp_path / "pure")
    run([installed / "pip", "install", *options, wheel])
    pure = {"PYTHONPATH": str(tmp_path / "pure")}
    assert "checked in Python" in run(version, env=pure)
    port = free_port()
    listeners, directory = f"PLAINTEXT://127.0.0.1:{port}", tmp_path / "data"
    settings = {"MINIKAFKA_LISTENERS": listeners, "MINIKAFKA_LOG_DIRS": str(directory)}
    broker = Installed(installed, directory, pure | settings, port)
    broker.start()
    try:
        records = [Record(b"k%d" % number, b"v" * number) for number in range(500)]
        confluent.write_one_batch_each(broker.bootstrap, "greetings", records)
    finally:
        broker.stop()


def dockerfile_environment() -> dict[str, str]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^ENV (.+)$", text, re.MULTILINE)
    return dict(pair.split("=", 1) for pair in line.split())


def test_the_image_runs_as_a_user_of_its_own_and_knows_whether_it_is_healthy(
    installed: Path, tmp_path: Path
) -> None:
    """The Dockerfile's environment makes a broker that its HEALTHCHECK finds healthy, and finds gone."""
    text = (ROOT / "Dockerfile").read_text()
    assert text.index("\nUSER minikafka") < text.index("\nENTRYPOINT")
    kafka, http = free_port(), free_port()

    def here(value: str) -> str:
        placed = value.replace(IN_CONTAINER, str(tmp_path))
        return placed.replace(":9092", f":{kafka}").replace("9404", str(http))

    environment = {name: here(value) for name, value in dockerfile_environment().items()}
    broker = Installed(installed, tmp_path / "data", environment, kafka)
    (check,) = re.findall(r'CMD \["python", "-c", "(.+)"\]', text)
    command = [installed / "python", "-c", here(check)]
    broker.start()
    try:
        confluent.write_one_batch_each(broker.bootstrap, "greetings", [Record(b"k", b"hello")])
        run(command)
        assert (tmp_path / "data" / "greetings-0").is_dir()
    finally:
        broker.stop()
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode != 0


def test_the_compose_file_for_one_broker_publishes_to_this_machine_only() -> None:
    for name in ("compose.yml", "compose-cluster.yml"):
        services = yaml.safe_load((COMPOSE / name).read_text())["services"]
        ports = [port for service in services.values() for port in service["ports"]]
        assert ports and all(port.startswith("127.0.0.1:") for port in ports), name


def placed_environment(
    service: Mapping[str, Any], directory: Path, inside: Mapping[str, int], *, me: str, port: int
) -> dict[str, str]:
    """What a container of the compose file has in its environment, on this machine's loopback instead of a
    network of containers: ``inside`` has a port for each host name, ``port`` is the published one."""
    published = service["ports"][0].split(":")[1]
    places = {
        IN_CONTAINER: str(directory),
        f"localhost:{published}": f"localhost:{port}",
        "//:19092": f"//127.0.0.1:{inside[me]}",
        "//:9092": f"//127.0.0.1:{port}",
        **{f"{name}:19092": f"127.0.0.1:{number}" for name, number in inside.items()},
    }
    environment = dockerfile_environment() | service["environment"]
    for there, here in places.items():
        environment = {name: value.replace(there, here) for name, value in environment.items()}
    return environment | {"MINIKAFKA_HTTP_PORT": str(free_port())}


def test_the_three_brokers_of_the_compose_file_are_one_cluster(installed: Path, tmp_path: Path) -> None:
    services = yaml.safe_load((COMPOSE / "compose-cluster.yml").read_text())["services"]
    inside = {name: free_port() for name in services}
    brokers = []
    for name, service in services.items():
        port = free_port()
        environment = placed_environment(service, tmp_path, inside, me=name, port=port)
        brokers.append(Installed(installed, tmp_path / name, environment, port))
    try:
        for broker in brokers:
            broker.start()
        confluent.write_one_batch_each(brokers[0].bootstrap, "greetings", [Record(b"k", b"hello")])
        for broker in brokers:
            (read,) = confluent.read(broker.bootstrap, "greetings", 1)
            assert read.value == b"hello"
        replicas = sorted(path.parent.name for path in tmp_path.glob("broker-*/greetings-0"))
        assert replicas == ["broker-1", "broker-2", "broker-3"]
    finally:
        for broker in brokers:
            broker.kill()
