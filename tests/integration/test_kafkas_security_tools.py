"""Kafka's own command line tools against a `minikafka-broker --secure`: users, ACLs, delegation tokens, key
stores and groups, over SASL_SSL with the client settings that the broker has written."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from cryptography import x509

from tests.integration.support import java
from tests.integration.support.process import SecureProcess

pytestmark = [pytest.mark.java, pytest.mark.minikafka_only]

DEADLINE_S = 60.0
ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
STORE_PASSWORD = "of the key store"


class Operator:
    """Works with Kafka's tools, as the administrator or as another user."""

    def __init__(self, broker: SecureProcess, class_path: str, directory: Path) -> None:
        self.broker = broker
        self._class_path = class_path
        self._directory = directory
        self.admin = broker.admin / "client.properties"

    def login(self, name: str, password: str, *options: str) -> Path:
        """The administrator's settings with another login: of a name that comes twice the last counts."""
        words = (f'username="{name}"', f'password="{password}"', *options)
        path = self._directory / f"{name}.properties"
        path.write_text(
            f"{self.admin.read_text()}\nsasl.jaas.config={SCRAM_MODULE} required {' '.join(words)};\n"
        )
        return path

    def make_user(self, name: str) -> Path:
        password = f"password of {name}"
        self.run(CONFIGS, *_user(name), "--alter", "--add-config", f"SCRAM-SHA-512=[password={password}]")
        return self.login(name, password)

    def run(self, tool: str, *arguments: str, settings: Path | None = None) -> str:
        status, printed = self.ask(tool, *arguments, settings=settings)
        assert status == 0, printed
        return printed

    def ask(self, tool: str, *arguments: str, settings: Path | None = None) -> tuple[int, str]:
        """The exit status too: it may be refused."""
        option = "--consumer.config" if tool == CONSOLE_CONSUMER else "--command-config"
        at = ("--bootstrap-server", self.broker.bootstrap, option, str(settings or self.admin))
        ended = java.ask_tool(self._class_path, tool, *at, *arguments)
        return ended.status, ended.out + ended.err

    def write(self, topic: str, *values: str) -> None:
        lines = (self.broker.admin / "librdkafka.conf").read_text().splitlines()
        config = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        producer = confluent_kafka.Producer(config)
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(DEADLINE_S) == 0

    def serial_number(self) -> int:
        """Of the certificate that the broker shows now."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.broker.security / "ca.pem")
        with (
            socket.create_connection(("127.0.0.1", self.broker.port), timeout=DEADLINE_S) as connection,
            context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
        ):
            certificate = secured.getpeercert(binary_form=True)
        assert certificate is not None
        return x509.load_der_x509_certificate(certificate).serial_number


def _user(name: str) -> tuple[str, ...]:
    return "--entity-type", "users", "--entity-name", name


@pytest.fixture(scope="module")
def operator(java_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One broker for all tests; each has users and resources of its own."""
    directory = tmp_path_factory.mktemp("tools")
    secrets = {"delegation.token.secret.key": "for tokens", "password.encoder.secret": "for passwords"}
    broker = SecureProcess(directory / "data", properties=secrets)
    try:
        broker.start()
        yield Operator(broker, java_class_path, directory)
    finally:
        broker.close()


def test_users_are_made_seen_and_removed(operator: Operator) -> None:
    added = "SCRAM-SHA-256=[iterations=8192,password=p],SCRAM-SHA-512=[password=p]"
    about = _user("ulla")
    operator.run(CONFIGS, *about, "--alter", "--add-config", added)
    assert "are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096" in operator.run(
        CONFIGS, *about, "--describe"
    )
    ulla = operator.login("ulla", "p")
    status, printed = operator.ask(CONFIGS, *about, "--describe", settings=ulla)
    assert status == 1 and "ClusterAuthorizationException" in printed, "she is in, and may not see users"
    operator.run(CONFIGS, *about, "--alter", "--delete-config", "SCRAM-SHA-512")
    status, printed = operator.ask(CONFIGS, *about, "--describe", settings=ulla)
    assert status == 1 and "SaslAuthenticationException" in printed
    assert "are SCRAM-SHA-256=iterations=8192\n" in operator.run(CONFIGS, *about, "--describe")


def test_acls_are_added_listed_and_removed(operator: Operator) -> None:
    anna = operator.make_user("anna")
    prefixed = ("--topic", "acl-", "--resource-pattern-type", "prefixed")
    whose = ("--allow-principal", "User:anna")
    operator.run(ACLS, "--add", *whose, "--operation", "Describe", "--operation", "Read", *prefixed)
    operator.run(ACLS, "--add", "--deny-principal", "User:anna", "--operation", "Read", "--topic", "acl-1")
    listed = operator.run(ACLS, "--list", "--principal", "User:anna")
    for line in (
        "ACLs for principal `User:anna`",
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-, patternType=PREFIXED)`:",
        "(principal=User:anna, host=*, operation=DESCRIBE, permissionType=ALLOW)",
        "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)",
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-1, patternType=LITERAL)`:",
        "(principal=User:anna, host=*, operation=READ, permissionType=DENY)",
    ):
        assert line in listed
    status, printed = operator.ask(ACLS, "--list", settings=anna)
    assert status == 1 and "ClusterAuthorizationException" in printed
    operator.run(ACLS, "--remove", "--force", *whose, "--operation", "Read", *prefixed)
    left = operator.run(ACLS, "--list", *prefixed)
    assert "operation=DESCRIBE" in left and "operation=READ" not in left
    operator.run(ACLS, "--remove", "--force", "--topic", "acl-1", "--resource-pattern-type", "match")
    assert "acl-" not in operator.run(ACLS, "--list")


def test_a_listener_gets_another_key_store(operator: Operator) -> None:
    """In PKCS #12, for this listener alone, while the broker runs; its password is shown by nothing."""
    copy = operator.broker.security.with_name("renewed")
    shutil.copytree(operator.broker.security, copy)
    password_file = copy / "password"
    password_file.touch(0o600)
    password_file.write_text(STORE_PASSWORD)
    renew = [sys.executable, "-m", "minikafka.cli.main", "certs", "renew", "broker-1", f"--dir={copy}"]
    subprocess.run(
        [*renew, f"--pkcs12-password-file={password_file}"],
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    prefix = "listener.name.sasl_ssl.ssl.keystore"
    store = f"{prefix}.type=PKCS12,{prefix}.location={copy}/brokers/broker-1/keystore.p12"
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    before = operator.serial_number()

    status, printed = operator.ask(
        CONFIGS, *broker, "--alter", "--add-config", f"{store},{prefix}.password=guessed"
    )
    assert status == 1 and "InvalidRequestException" in printed, printed
    assert operator.serial_number() == before

    operator.run(CONFIGS, *broker, "--alter", "--add-config", f"{store},{prefix}.password={STORE_PASSWORD}")
    assert operator.serial_number() != before
    described = operator.run(CONFIGS, *broker, "--describe")
    assert f"{prefix}.type=PKCS12 sensitive=false" in described
    assert f"{prefix}.password=null sensitive=true" in described
    assert STORE_PASSWORD not in described + operator.broker.log_text()

    names = ",".join(f"{prefix}.{each}" for each in ("type", "location", "password"))
    operator.run(CONFIGS, *broker, "--alter", "--delete-config", names)
    assert operator.serial_number() == before


def test_a_client_logs_in_with_a_delegation_token(operator: Operator) -> None:
    tina = operator.make_user("tina")
    for resource in ("--topic", "--group"):
        allow = ("--add", "--allow-principal", "User:tina", "--operation", "Read")
        operator.run(ACLS, *allow, resource, "token-", "--resource-pattern-type", "prefixed")
    operator.write("token-orders", "hello")
    made = operator.run(
        TOKENS,
        *("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:tina"),
        settings=tina,
    )
    token_id = re.findall(r"Created delegation token with tokenId : (\S+)", made)[0]
    row = next(line for line in made.splitlines() if line.startswith(token_id)).split()
    hmac = row[1]
    assert row[2:5] == ["User:tina", "User:tina", "[User:tina]"]
    described = operator.run(TOKENS, "--describe", "--owner-principal", "User:tina", settings=tina)
    assert "Total number of tokens : 1" in described and token_id in described
    renewed = operator.run(TOKENS, "--renew", "--renew-time-period", "60000", "--hmac", hmac, settings=tina)
    assert "Completed renew operation. New expiry date :" in renewed

    read = ("--topic", "token-orders", "--group", "token-readers", "--from-beginning", "--max-messages", "1")
    with_token = operator.login(token_id, hmac, 'tokenauth="true"')
    assert "hello\n" in operator.run(CONSOLE_CONSUMER, *read, settings=with_token)
    status, printed = operator.ask(TOKENS, "--create", "--max-life-time-period", "-1", settings=with_token)
    assert status == 1 and "Delegation Token requests are not allowed" in printed, "it makes no other"

    operator.run(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac, settings=tina)
    assert "Total number of tokens : 0" in operator.run(TOKENS, "--describe", settings=tina)
    _, printed = operator.ask(GROUPS, "--list", settings=with_token)
    assert "SaslAuthenticationException" in printed


def test_groups_are_seen_and_changed_by_who_may(operator: Operator) -> None:
    greta = operator.make_user("greta")
    operator.write("grouped", "first", "second")
    read = ("--topic", "grouped", "--group", "g", "--from-beginning", "--max-messages", "2")
    assert "first\nsecond\n" in operator.run(CONSOLE_CONSUMER, *read)
    row = ["g", "grouped", "0", "2", "2", "0"]
    assert row in [
        line.split()[:6] for line in operator.run(GROUPS, "--describe", "--group", "g").splitlines()
    ]
    _, printed = operator.ask(GROUPS, "--describe", "--group", "g", settings=greta)
    assert "GroupAuthorizationException" in printed
    assert operator.run(GROUPS, "--list", settings=greta).split() == []
    reset = ("--reset-offsets", "--group", "g", "--topic", "grouped", "--to-earliest", "--execute")
    assert ["g", "grouped", "0", "0"] in [line.split() for line in operator.run(GROUPS, *reset).splitlines()]
    operator.run(GROUPS, "--delete", "--group", "g")
    assert "g" not in operator.run(GROUPS, "--list").split()
