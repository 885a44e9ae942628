"""Three brokers that speak SASL_SSL among themselves, and the tools that ask them with --command-config."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support import confluent
from tests.integration.support.cluster import ProcessCluster, SqliteEngine
from tests.integration.support.load import Load
from tests.integration.support.process import BrokerProcess
from tests.support.certificates import CertificateAuthority
from tests.support.ports import free_port

pytestmark = pytest.mark.minikafka_only

MINIKAFKA = [sys.executable, "-m", "minikafka.cli.main"]
DEADLINE_S = 120
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRETS = {"broker": "the brokers' own", "alice": "alice has one"}
TOPIC = "orders"


class SecuredBroker(BrokerProcess):
    """Its plain listener is for the test's own questions; all else is by ``secure_port``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.secure_port = free_port()

    def arguments(self) -> list[str]:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},SECURE://localhost:{self.secure_port}"
        given = [each for each in super().arguments() if not each.startswith("--port=")]
        return [*given, f"--set=listeners={listeners}"]


class SecuredCluster(ProcessCluster):
    def make_broker(self, node_id: int, name: str | None = None, **properties: object) -> BrokerProcess:
        return SecuredBroker(
            self.directory / (name or f"broker-{node_id}"),
            properties=self._common | {"node.id": node_id} | properties,
        )

    @property
    def secure_bootstrap(self) -> str:
        ports = [each.secure_port for each in self.brokers.values() if isinstance(each, SecuredBroker)]
        return ",".join(f"localhost:{port}" for port in ports)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    authority = CertificateAuthority()
    authority.write_pem(tmp_path / "ca.pem")
    authority.issue("broker").write_pem(tmp_path / "broker.pem")
    return authority


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, authority: CertificateAuthority
) -> Iterator[SecuredCluster]:
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
        "ssl.keystore.location": tmp_path / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": tmp_path / "ca.pem",
        "listener.name.secure.ssl.client.auth": "requested",
    }
    cluster = SecuredCluster(tmp_path, SqliteEngine(tmp_path), properties=properties)
    request.node.brokers = list(cluster.brokers.values())
    try:
        yield cluster.start()  # type: ignore[misc]
    finally:
        cluster.close()


def client_properties(tmp_path: Path, user: str = "alice", *, password: str | None = None) -> Path:
    path = tmp_path / f"{user}-{len(password or '')}.properties"
    path.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} required username="{user}" password="{password or SECRETS[user]}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={tmp_path / 'ca.pem'}\n"
    )
    return path


def run(
    cluster: SecuredCluster, config: Path, *arguments: str, lines: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*MINIKAFKA, *arguments, "-b", cluster.secure_bootstrap, "--command-config", str(config)],
        input=lines,
        capture_output=True,
        timeout=DEADLINE_S,
    )


def librdkafka(tmp_path: Path) -> Mapping[str, str]:
    return {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": SECRETS["alice"],
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }


@pytest.mark.timeout(400)
def test_a_leader_is_killed_and_nothing_that_was_acknowledged_is_lost(
    cluster: SecuredCluster, tmp_path: Path
) -> None:
    cluster.make_topic(TOPIC)
    with Load(cluster.secure_bootstrap, [TOPIC], **librdkafka(tmp_path)) as load:
        for _ in range(2):
            leader = cluster.leader(TOPIC)
            cluster.brokers[leader].kill()
            confluent.wait_until(
                lambda leader=leader: cluster.store.state(TOPIC).leader not in (leader, -1),  # type: ignore[misc,union-attr]
                "another leader",
            )
            cluster.brokers[leader].start()
            cluster.wait_until_whole(TOPIC)
    assert load.failures == []
    done = run(
        cluster,
        client_properties(tmp_path),
        "consume",
        TOPIC,
        "--from-beginning",
        "-e",
        "--print",
        "offset,key",
    )
    assert done.returncode == 0, done.stderr
    read = {int(line.split(b"\t")[0].removeprefix(b"Offset:")) for line in done.stdout.splitlines()}
    assert set(load.acked[TOPIC].values()) - {-1} <= read
    for broker in cluster.brokers.values():
        assert "authentication failed" not in broker.log_text()
        assert "cannot be renewed" not in broker.log_text()
        assert SECRETS["broker"] not in broker.log_text()


@pytest.mark.timeout(400)
def test_every_tool_takes_the_same_file(cluster: SecuredCluster, tmp_path: Path) -> None:
    config = client_properties(tmp_path)

    def said(*arguments: str, lines: bytes = b"") -> bytes:
        done = run(cluster, config, *arguments, lines=lines)
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
    report = run(
        cluster,
        config,
        "bench",
        "produce",
        "--records",
        "500",
        "--partitions",
        "2",
        "--json",
        str(tmp_path / "r"),
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
    cluster: SecuredCluster, tmp_path: Path, arguments: list[str], prog: str
) -> None:
    done = run(cluster, client_properties(tmp_path, password="guessed"), *arguments)
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"{prog}: broker localhost:")
    assert (
        "authentication failed: Authentication failed: Invalid username or password" in done.stderr.decode()
    )
    assert b"guessed" not in done.stderr and done.stderr.count(b"\n") == 1


def test_an_authority_that_is_not_trusted_is_told_at_once(cluster: SecuredCluster, tmp_path: Path) -> None:
    config = client_properties(tmp_path)
    CertificateAuthority("another").write_pem(tmp_path / "ca.pem")
    done = run(cluster, config, "topics", "list")
    assert done.returncode == 1
    assert "certificate" in done.stderr.decode() and "ssl.truststore.location" in done.stderr.decode()


def test_a_file_that_is_wrong_is_bad_usage(cluster: SecuredCluster, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
    done = run(cluster, config, "topics", "list")
    assert done.returncode == 2
    assert "sasl.jaas.config is not set" in done.stderr.decode()
    assert run(cluster, tmp_path / "missing", "groups", "list").returncode == 2
