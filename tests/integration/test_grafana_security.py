"""The security dashboard and its alerts beside a broker that has an authorizer, logins and TLS: every query
finds something, and a client that guesses passwords and asks for what is denied sets the alerts off."""

from __future__ import annotations

import shutil
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grafana.generator.dashboards import DASHBOARDS
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import decode_response, encode_request
from tests.integration.support import confluent
from tests.integration.support.dashboards import PanelQuery, panel_queries
from tests.integration.support.process import BrokerProcess
from tests.integration.support.prometheus import SCRAPE_INTERVAL_S, PrometheusServer
from tests.support.certificates import CertificateAuthority
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.minikafka_only,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not there"),
]

BOARD = "security"
ALERTS = {"MinikafkaFailedLogins", "MinikafkaDenials"}
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret"}
GUESSERS = 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    authority = CertificateAuthority()
    broker = BrokerProcess(
        tmp_path / "data",
        properties={
            "listeners": ",".join(
                f"{protocol}://localhost:{free_port()}" for protocol in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")
            ),
            "http.port": free_port(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.issue("broker").write_pem(tmp_path / "broker.pem"),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
            ),
            "connection.failed.authentication.delay.ms": 0,
            "listener.name.plaintext.max.connection.creation.rate": 1,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
        },
    )
    try:
        yield broker.start()
    finally:
        broker.close()


@pytest.fixture
def prometheus(broker: BrokerProcess, tmp_path: Path) -> Iterator[PrometheusServer]:
    server = PrometheusServer(tmp_path / "prometheus", [f"127.0.0.1:{broker.properties['http.port']}"])
    try:
        yield server.start()
    finally:
        server.close()


def ask(peer: socket.socket, key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
    """One request, and what is answered."""
    peer.sendall(
        encode_request(api_key=key, api_version=version, correlation_id=1, client_id="guesser", body=body)
    )
    with peer.makefile("rb", buffering=0) as answer:
        (size,) = struct.unpack(">i", exactly(answer, 4))
        frame = exactly(answer, size)
    return decode_response(api_key=key, api_version=version, frame=frame)[1]


def exactly(source: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.read(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data


@contextmanager
def logged_in(broker: BrokerProcess, user: str, password: str) -> Iterator[tuple[socket.socket, int]]:
    """The connection, and the error code of its login."""
    with socket.create_connection(("localhost", broker.port_of("SASL_PLAINTEXT")), timeout=30) as peer:
        assert ask(peer, ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
        message = f"\0{user}\0{password}".encode()
        yield peer, ask(peer, ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message}).error_code


@contextmanager
def guessers(broker: BrokerProcess) -> Iterator[None]:
    """Some who try passwords, ask as alice for a topic that she may not see, and connect more often than they
    may."""
    stop = threading.Event()

    def guess() -> None:
        while not stop.is_set():
            socket.create_connection(("localhost", broker.port_of("PLAINTEXT")), timeout=30).close()
            with logged_in(broker, "admin", "guessed") as (_, error):
                assert error != 0
            with logged_in(broker, "alice", PASSWORDS["alice"]) as (peer, error):
                assert error == 0
                for _ in range(5):
                    wanted = {"topics": [{"name": "closed"}], "allow_auto_topic_creation": False}
                    (topic,) = ask(peer, ApiKey.METADATA, 7, wanted).topics
                    assert topic.error_code != 0

    threads = [threading.Thread(target=guess) for _ in range(GUESSERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_queries_find_something_and_guessing_fires_the_alerts(
    broker: BrokerProcess, prometheus: PrometheusServer
) -> None:
    assert BOARD in {board.name for board in DASHBOARDS}
    with logged_in(broker, "admin", PASSWORDS["admin"]) as (peer, error):
        assert error == 0
        ask(peer, ApiKey.METADATA, 7, {"topics": None, "allow_auto_topic_creation": False})
    confluent.wait_until(
        lambda: prometheus.scrapes() >= 3, "the broker is scraped again and again", pause_s=0.2
    )
    found: dict[PanelQuery, int] = {}
    queries = panel_queries(prometheus, {BOARD})

    def all_have_data() -> bool:
        found.update({query: query.series(prometheus) for query in queries if not found.get(query)})
        return all(found.values())

    assert not prometheus.firing() & ALERTS, "one login is no reason to wake anybody"
    with guessers(broker):
        try:
            confluent.wait_until(
                all_have_data, "every query has data", deadline_s=180, pause_s=SCRAPE_INTERVAL_S
            )
        finally:
            print([query for query in queries if not found.get(query)])
        try:
            confluent.wait_until(
                lambda: prometheus.firing() >= ALERTS,
                "the alerts fire",
                deadline_s=120,
                pause_s=SCRAPE_INTERVAL_S,
            )
        finally:
            print(prometheus.firing())
