"""SCRAM users before the first broker starts, their sessions, and their delegation tokens, by our tools."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import RawClient
from tests.support.ports import free_port

pytestmark = pytest.mark.minikafka_only

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "correct horse, battery"


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(PASSWORD)
    path.chmod(0o600)
    return path


@pytest.fixture
def broker(tmp_path: Path, password_file: Path) -> Iterator[BrokerProcess]:
    """Its store has the user ann before it starts."""
    broker = BrokerProcess(
        tmp_path / "data",
        properties={
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SASL_PLAINTEXT://127.0.0.1:{free_port()}",
            "delegation.token.secret.key": "for tests",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        },
    )
    broker.data_dir.mkdir()
    store = f"sqlite:///{broker.data_dir}/coordination.sqlite"
    made = users("create", "ann", "--coordination", store, "--password-file", str(password_file))
    assert made == "Created the user ann (SCRAM-SHA-512).\n"
    try:
        yield broker.start()
    finally:
        broker.close()


def tool(*arguments: str) -> str:
    command = [sys.executable, "-m", "minikafka.cli.main", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert PASSWORD not in ran.stdout + ran.stderr
    return ran.stdout


def users(*arguments: str) -> str:
    return tool("users", *arguments)


def sasl_bootstrap(broker: BrokerProcess) -> str:
    """The other listener, PLAINTEXT, is for the test's own questions."""
    return f"127.0.0.1:{broker.port_of('SASL_PLAINTEXT')}"


def login_of(broker: BrokerProcess, user: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": sasl_bootstrap(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


def gets_in(broker: BrokerProcess, user: str, password: str = PASSWORD) -> bool:
    """Whether the login is taken, or refused: it has to be one of them."""
    errors: list[KafkaError] = []
    client = AdminClient(login_of(broker, user, password) | {"error_cb": errors.append})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            return bool(client.list_topics(timeout=0.5).brokers)
        except KafkaException:
            client.poll(0)  # which calls error_cb
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            return False
    raise AssertionError(f"neither let in nor refused: {errors}")


def test_a_user_from_before_the_start_logs_in_and_is_changed_and_removed(
    broker: BrokerProcess, password_file: Path
) -> None:
    at = ("-b", broker.bootstrap)
    assert gets_in(broker, "ann") and not gets_in(broker, "ann", "wrong")
    assert users("list", *at).split()[3:] == ["ann", "SCRAM-SHA-512", "4096"]
    password_file.write_text("another\n")
    users("change-password", "ann", "--password-file", str(password_file), *at)
    assert gets_in(broker, "ann", "another") and not gets_in(broker, "ann")
    users("delete", "ann", *at)
    assert users("list", *at) == "There are no users.\n"
    assert not gets_in(broker, "ann", "another")


def test_sessions_of_a_user_end_at_once_and_no_others(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"first")
    assert producer.flush(30) == 0
    consumer = Consumer(login_of(broker, "ann") | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    try:
        with RawClient(broker.port) as other:
            assert other.api_versions()
            assert next_value(consumer) == b"first", "so it waits for the next one on its connection"
            assert users("kill-sessions", "ann", "-b", broker.bootstrap) == (
                "All brokers have closed the connections of ann.\n"
            )
            assert "sessions of ann end" in broker.log_text()
            assert other.api_versions(), "it is not ann's"
        producer.produce("t", b"second")
        assert next_value(consumer) == b"second", "who still may logs in again"
    finally:
        consumer.close()


def next_value(consumer: Consumer) -> bytes | None:
    """Errors on the way are the connections that were closed."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            return message.value()
    return None


def test_delegation_tokens_are_made_renewed_and_expired(
    broker: BrokerProcess, tmp_path: Path, password_file: Path
) -> None:
    config = tmp_path / "client.properties"
    password_file.write_text(f"password={PASSWORD}")
    config.write_text(
        "config.providers=file\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={MODULE} required username="ann" password="${{file:{password_file}:password}}";\n'
    )
    at = ("-b", sasl_bootstrap(broker), "--command-config", str(config))
    made = tool(
        "delegation-tokens",
        "--create",
        "--max-life-time-period",
        "-1",
        "--renewer-principal",
        "User:bob",
        *at,
    )
    token_id = re.findall(r"Created delegation token with tokenId : (\S+)", made)[0]
    row = next(line for line in made.splitlines() if line.startswith(token_id)).split()
    assert row[2:5] == ["User:ann", "User:ann", "[User:bob]"]
    hmac = tmp_path / "hmac"
    hmac.write_text(row[1])
    hmac.chmod(0o600)
    assert token_id in tool("delegation-tokens", "--describe", *at)
    renewed = tool(
        "delegation-tokens", "--renew", "--hmac-file", str(hmac), "--renew-time-period", "60000", *at
    )
    assert "Completed renew operation. New expiry date : 20" in renewed and row[1] not in renewed
    tool("delegation-tokens", "--expire", "--hmac-file", str(hmac), *at)
    assert "Total number of tokens : 0" in tool("delegation-tokens", "--describe", *at)
