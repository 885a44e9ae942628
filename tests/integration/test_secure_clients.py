"""Three brokers that speak SASL_SSL among themselves, and the tools that ask them with --command-config."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.support.cluster import ProcessCluster, SqliteEngine
from tests.support.certificates import CertificateAuthority
from tests.support.ports import free_port

pytestmark = pytest.mark.minikafka_only

MINIKAFKA = [sys.executable, "-m", "minikafka.cli.main"]
DEADLINE_S = 120
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRETS = {"broker": "the brokers' own", "alice": "alice has one"}
TOPIC = "orders"


class Secured(NamedTuple):
    """A cluster whose plain listeners are for the test's own questions; all else is by ``bootstrap``."""

    cluster: ProcessCluster
    bootstrap: str
    authority: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = CertificateAuthority()
    authority.write_pem(directory / "ca.pem")
    authority.issue("broker").write_pem(directory / "broker.pem")
    users = " ".join(f'user_{name}="{secret}"' for name, secret in SECRETS.items())
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "inter.broker.listener.name": "SECURE",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{MODULE} required username="broker" password="{SECRETS["broker"]}" {users};'
        ),
        "connections.max.reauth.ms": 4_000,  # so that brokers log in again while the test runs
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": directory / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": directory / "ca.pem",
        "listener.name.secure.ssl.client.auth": "requested",
    }
    own = {
        node_id: {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SECURE://localhost:{free_port()}"}
        for node_id in (1, 2, 3)
    }
    cluster = ProcessCluster(directory, SqliteEngine(directory), properties=properties, own_properties=own)
    try:
        ports = (broker.port_of("SECURE") for broker in cluster.brokers.values())
        bootstrap = ",".join(f"localhost:{port}" for port in ports)
        yield Secured(cluster.start(), bootstrap, directory / "ca.pem")
        for broker in cluster.brokers.values():
            assert SECRETS["broker"] not in broker.log_text()
            assert "cannot be renewed" not in broker.log_text()
    finally:
        cluster.close()


def client_properties(directory: Path, authority: Path, *, password: str = SECRETS["alice"]) -> Path:
    path = directory / "alice.properties"
    path.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} required username="alice" password="{password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority}\n"
    )
    return path


def run(
    secured: Secured, config: Path, *arguments: str, lines: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*MINIKAFKA, *arguments, "-b", secured.bootstrap, "--command-config", str(config)],
        input=lines,
        capture_output=True,
        timeout=DEADLINE_S,
    )


def test_every_tool_takes_the_same_file(secured: Secured, tmp_path: Path) -> None:
    config = client_properties(tmp_path, secured.authority)

    def said(*arguments: str, lines: bytes = b"") -> bytes:
        done = run(secured, config, *arguments, lines=lines)
        assert done.returncode == 0, done.stderr
        assert done.stderr == b""
        return done.stdout

    assert b"Created topic" in said("topics", "create", TOPIC, "--replication-factor", "3")
    assert said("topics", "list").split() == [TOPIC.encode()]
    said("produce", TOPIC, "-K", ":", lines=b"a:1\nb:2\n")
    assert said("consume", TOPIC, "--from-beginning", "-e") == b"1\n2\n"
    assert said("consume", TOPIC, "--from-beginning", "-g", "g", "-c", "2") == b"1\n2\n"
    assert b"g" in said("groups", "list")
    assert json.loads(said("cluster", "describe", "--json"))
    said("transactions", "list")
    said("quotas", "describe")
    assert b"authorizer.class.name" in said("why-denied", "ann", "Read", f"topic:{TOPIC}")
    said("elect-leaders", "--election-type", "preferred", "--all-topic-partitions")
    with config.open("a") as file:
        file.write(f"bootstrap.servers={secured.bootstrap}\n")
    kept = tmp_path / "r"
    alone = ["bench", "produce", "--records", "500", "--partitions", "2", "--json", str(kept)]
    report = subprocess.run(
        [*MINIKAFKA, *alone, "--command-config", str(config)], capture_output=True, timeout=DEADLINE_S
    )
    assert report.returncode == 0, report.stderr
    assert SECRETS["alice"] not in (tmp_path / "r").read_text()


@pytest.mark.parametrize(
    ("arguments", "prog"),
    [
        (["topics", "list"], "minikafka topics"),
        (["groups", "list"], "minikafka groups"),
        (["reassign", "list"], "minikafka reassign"),
        (["produce", TOPIC], "minikafka produce"),
        (["consume", TOPIC], "minikafka consume"),
    ],
)
def test_a_wrong_password_is_told_at_once(
    secured: Secured, tmp_path: Path, arguments: list[str], prog: str
) -> None:
    done = run(secured, client_properties(tmp_path, secured.authority, password="guessed"), *arguments)
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"{prog}: broker localhost:")
    assert (
        "authentication failed: Authentication failed: Invalid username or password" in done.stderr.decode()
    )
    assert b"guessed" not in done.stderr and done.stderr.count(b"\n") == 1


def test_a_wrong_password_ends_a_benchmark_before_its_time_to_wait(secured: Secured, tmp_path: Path) -> None:
    config = client_properties(tmp_path, secured.authority, password="guessed")
    done = run(secured, config, "bench", "produce", "--timeout", "100000", "--records", "1")
    assert done.returncode == 1 and b"guessed" not in done.stderr
    assert done.stderr.decode() == (
        f"minikafka bench: {secured.bootstrap}: authentication failed: Invalid username or password\n"
    )


def test_an_authority_that_is_not_trusted_is_told_at_once(secured: Secured, tmp_path: Path) -> None:
    stranger = CertificateAuthority("another").write_pem(tmp_path / "ca.pem")
    config = client_properties(tmp_path, stranger)
    done = run(secured, config, "topics", "list")
    assert done.returncode == 1
    assert "certificate" in done.stderr.decode() and "ssl.truststore.location" in done.stderr.decode()


def test_a_file_that_is_wrong_is_bad_usage(secured: Secured, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
    done = run(secured, config, "topics", "list")
    assert done.returncode == 2
    assert "sasl.jaas.config is not set" in done.stderr.decode()
    assert run(secured, tmp_path / "missing", "groups", "list").returncode == 2
