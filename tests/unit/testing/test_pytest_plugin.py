"""The fixtures, as a project that has minikafka installed meets them: in a pytest run of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = """
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

ports = []

def topics(broker):
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=60).topics)

def write(broker):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("letters", b"x")
    assert producer.flush(60) == 0

@pytest.mark.parametrize("time", [1, 2])
def test_each_test_has_a_fresh_broker(minikafka_broker, time):
    assert topics(minikafka_broker) == set()
    write(minikafka_broker)
    ports.append(minikafka_broker.port)

def test_a_session_broker_is_one_for_all(minikafka_session_broker):
    write(minikafka_session_broker)
    ports.append(minikafka_session_broker.port)

def test_a_session_broker_is_the_same(minikafka_session_broker):
    assert topics(minikafka_session_broker) == {"letters"}
    assert minikafka_session_broker.port == ports[-1]

def partitions(broker):
    write(broker)
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return len(client.list_topics(timeout=60).topics["letters"].partitions)

def test_the_ini_file_configures(minikafka_broker):
    assert partitions(minikafka_broker) == 3

@pytest.mark.minikafka_config({"num.partitions": 5})
class TestMarked:
    def test_a_marker_wins(self, minikafka_broker):
        assert partitions(minikafka_broker) == 5

    @pytest.mark.minikafka_config({"num.partitions": 7})
    def test_the_nearest_marker_wins(self, minikafka_broker):
        assert partitions(minikafka_broker) == 7
"""


def run_pytest(directory: Path, *, test: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers\n{ini}")
    (directory / "test_project.py").write_text(test)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::DeprecationWarning",
    ]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240)


def test_fixtures_markers_and_ini(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, test=PROJECT, ini="minikafka_config =\n    num.partitions=3\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


@pytest.mark.parametrize(
    ("test", "ini", "complaint"),
    [
        ("def test_it(minikafka_broker): pass", "minikafka_config = num.partitions\n", "name=value"),
        ("def test_it(minikafka_broker): pass", "minikafka_config = num.partitions=0\n", "num.partitions"),
        (
            "import pytest\n@pytest.mark.minikafka_config(partitions=3)\ndef test_it(minikafka_broker): pass",
            "",
            "takes one dict",
        ),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, test: str, ini: str, complaint: str) -> None:
    done = run_pytest(tmp_path, test=test, ini=ini)
    assert done.returncode == 1
    assert complaint in done.stdout


def test_a_run_without_brokers_does_not_import_the_server(tmp_path: Path) -> None:
    test = (
        "import sys\ndef test_it(): assert not [m for m in sys.modules if m.startswith('minikafka.server')]"
    )
    assert run_pytest(tmp_path, test=test).returncode == 0
