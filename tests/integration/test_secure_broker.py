"""`minikafka-broker --secure` and `minikafka cluster --secure`: every client gets in by the very files that
they write, and nobody else does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess, SecureProcess
from tests.support.ports import free_port
from tests.support.transports import connections_closed

pytestmark = pytest.mark.minikafka_only

DEADLINE_S = 60.0
OLD_LIBRDKAFKA = (2, 6, 1)
"""Before it librdkafka sends a nonce of its own in SCRAM's last message, which a broker that checks it (as of
CVE-2024-56128) refuses."""


StartSecure = Callable[..., SecureProcess]


@pytest.fixture(scope="module")
def started() -> Iterator[list[BrokerProcess]]:
    processes: list[BrokerProcess] = []
    yield processes
    for process in processes:
        process.close()


@pytest.fixture(scope="module")
def secure(started: list[BrokerProcess], tmp_path_factory: pytest.TempPathFactory) -> SecureProcess:
    """One for the tests that leave it as it is, but for topics, users and ACLs of their own."""
    process = SecureProcess(tmp_path_factory.mktemp("secure") / "data")
    started.append(process)
    process.start()
    return process


@pytest.fixture
def start_secure(started: list[BrokerProcess], tmp_path: Path) -> StartSecure:
    def start(*more: str) -> SecureProcess:
        process = SecureProcess(tmp_path / "data", more=more)
        started.append(process)
        process.start()
        return process

    return start


def python_settings(files: Path, name: str) -> dict[str, Any]:
    """What the written module gives, read as a user's program does."""
    module: dict[str, Any] = {"__file__": str(files / "kafka_clients.py")}
    exec(compile((files / "kafka_clients.py").read_text(), "kafka_clients.py", "exec"), module)
    return dict(module[name]())


def librdkafka_settings(files: Path) -> dict[str, Any]:
    lines = (files / "librdkafka.conf").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def confluent_round_trip(settings: dict[str, Any], topic: str) -> bytes | None:
    producer = confluent_kafka.Producer(settings)
    failures: list[KafkaError] = []
    producer.produce(topic, b"hello", on_delivery=lambda error, _: failures.extend(filter(None, [error])))
    assert producer.flush(DEADLINE_S) == 0
    producer.close()  # an error's traceback has it, so that it would go on
    if failures:
        raise KafkaException(failures[0])
    return confluent_read(settings, topic)


def confluent_read(settings: dict[str, Any], topic: str) -> bytes | None:
    consumer = confluent_kafka.Consumer(
        settings | {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(DEADLINE_S)
        assert message is not None, "nothing came"
        if message.error():
            raise KafkaException(message.error())
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()


# The files


def test_all_that_is_made_is_the_owners_alone(secure: SecureProcess) -> None:
    for path in [secure.security, *secure.security.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_no_password_is_printed_or_in_the_process_list(secure: SecureProcess) -> None:
    passwords = [path.read_text().strip() for path in secure.security.glob("users/*/password")]
    assert len(passwords) == 2
    arguments = Path(f"/proc/{secure.pid}/cmdline").read_text()
    for password in passwords:
        assert password not in secure.log_text() and password not in arguments


def test_confluent_kafka(secure: SecureProcess) -> None:
    settings = python_settings(secure.admin, "for_confluent_kafka")
    assert confluent_round_trip(settings, "confluent") == b"hello"


def test_what_is_for_kcat_is_for_every_librdkafka(secure: SecureProcess) -> None:
    assert confluent_round_trip(librdkafka_settings(secure.admin), "librdkafka") == b"hello"


def test_kcat(secure: SecureProcess) -> None:
    told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", told)
    assert found is not None
    if tuple(map(int, found.groups())) < OLD_LIBRDKAFKA:
        pytest.skip(f"kcat's {found[0]} has a wrong nonce in SCRAM's last message (before 2.6.1)")
    kcat = ["kcat", "-F", str(secure.admin / "librdkafka.conf"), "-t", "kcat"]
    subprocess.run([*kcat, "-P"], input=b"hello\n", timeout=DEADLINE_S, check=True)
    read = subprocess.run([*kcat, "-C", "-e", "-q"], capture_output=True, timeout=DEADLINE_S, check=True)
    assert read.stdout == b"hello\n"


async def test_aiokafka(secure: SecureProcess) -> None:
    settings = python_settings(secure.admin, "for_aiokafka")
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("aiokafka", b"hello")
    async with AIOKafkaConsumer("aiokafka", **settings, auto_offset_reset="earliest") as consumer:
        assert (await asyncio.wait_for(consumer.getone(), DEADLINE_S)).value == b"hello"
    await connections_closed()


def test_kafka_python(secure: SecureProcess) -> None:
    settings = python_settings(secure.admin, "for_kafka_python")
    producer = KafkaProducer(**settings)
    producer.send("kafka-python", b"hello").get(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer("kafka-python", **settings, auto_offset_reset="earliest")
    assert next(consumer).value == b"hello"
    consumer.close()


@pytest.mark.java
def test_java_and_kafkas_own_tools(secure: SecureProcess, java_class_path: str) -> None:
    """The console clients are Kafka's Java clients with nothing around them."""
    properties = str(secure.admin / "client.properties")
    server = ("--bootstrap-server", secure.bootstrap)

    def run(tool: str, *arguments: str, stdin: str = "") -> str:
        return java.run(java_class_path, f"org.apache.kafka.tools.{tool}", *server, *arguments, stdin=stdin)

    run("TopicCommand", "--command-config", properties, "--create", "--topic", "java")
    topic = ("--topic", "java")
    run("ConsoleProducer", "--producer.config", properties, *topic, stdin="hello\n")
    options = ("--consumer.config", properties, *topic, "--from-beginning", "--max-messages", "1")
    assert run("consumer.ConsoleConsumer", *options) == "hello\n"


def test_our_own_tools_as_the_banner_has_them(secure: SecureProcess) -> None:
    lines = secure.log_text().splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("try it"))
    produce = lines[first].removeprefix("try it").strip().removeprefix("echo hello | minikafka ").split()
    consume = lines[first + 1].strip().removeprefix("minikafka ").split()
    ours = [sys.executable, "-m", "minikafka.cli.main"]
    subprocess.run([*ours, *produce], input=b"hello\n", timeout=DEADLINE_S, check=True)
    read = subprocess.run([*ours, *consume], capture_output=True, timeout=DEADLINE_S, check=True)
    assert read.stdout == b"hello\n"
    connection = consume[consume.index("--command-config") : consume.index("--from-beginning")]
    for command in (["acls", "list"], ["users", "list"], ["configs", "describe", "--broker", "1"]):
        subprocess.run([*ours, *command, *connection], capture_output=True, timeout=DEADLINE_S, check=True)
    why = [*ours, "why-denied", "bob", "Read", "topic:secrets", *connection]
    said = subprocess.run(why, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout
    assert said.splitlines()[1].endswith(" ".join(["--topic secrets", *connection]))


# Who does not get in


def test_plain_text_gets_no_answer(secure: SecureProcess) -> None:
    with socket.create_connection(("127.0.0.1", secure.port), timeout=DEADLINE_S) as peer:
        peer.sendall(bytes.fromhex("00000014 0012 0000 00000001 000a 61") + b"nonymous!")
        with contextlib.suppress(ConnectionResetError):
            assert b"\x00\x00\x00\x01\x00\x00" not in peer.recv(1024)


@pytest.mark.parametrize(
    "change",
    [
        {"security_protocol": "SSL"},
        {"sasl_plain_password": "wrong"},
        {"sasl_plain_username": "nobody"},
        {"sasl_mechanism": "PLAIN"},
        {"sasl_mechanism": "SCRAM-SHA-256"},
    ],
    ids=["no login", "wrong password", "unknown user", "other mechanism", "other hash"],
)
async def test_strangers_are_refused(secure: SecureProcess, change: dict[str, str]) -> None:
    producer = AIOKafkaProducer(**python_settings(secure.admin, "for_aiokafka") | change)
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    await producer.stop()
    await connections_closed()


def test_a_broker_of_another_authority_is_not_trusted(secure: SecureProcess, tmp_path: Path) -> None:
    from datetime import UTC, datetime

    from minikafka.security.directory import CertificateAuthority

    (tmp_path / "other.pem").write_bytes(CertificateAuthority.create(now=datetime.now(UTC)).certificate)
    settings = librdkafka_settings(secure.admin) | {"ssl.ca.location": str(tmp_path / "other.pem")}
    errors: list[KafkaError] = []
    client = AdminClient(settings | {"error_cb": errors.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)

    def is_refused() -> bool:
        client.poll(0)  # which calls error_cb
        return any("certificate verify failed" in str(error) for error in errors)

    confluent.wait_until(is_refused, "the certificate is not trusted")


def test_a_user_may_do_what_an_acl_allows_and_nothing_else(secure: SecureProcess) -> None:
    settings = librdkafka_settings(secure.admin)
    admin = AdminClient(settings)
    confluent_round_trip(settings, "orders")
    upsertion = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"alice's"
    )
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(DEADLINE_S)
    alice = settings | {"sasl.username": "alice", "sasl.password": "alice's"}
    with pytest.raises(KafkaException) as denied:
        confluent_round_trip(alice, "orders")
    assert denied.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    def allow(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
        literal, any_host = ResourcePatternType.LITERAL, "*"
        permission = AclPermissionType.ALLOW
        return AclBinding(kind, name, literal, "User:alice", any_host, operation, permission)

    acls = [
        allow(ResourceType.TOPIC, "orders", AclOperation.READ),
        allow(ResourceType.TOPIC, "orders", AclOperation.WRITE),
        allow(ResourceType.GROUP, "*", AclOperation.READ),
    ]
    for created in admin.create_acls(acls).values():
        created.result(DEADLINE_S)
    assert confluent_round_trip(alice, "orders") == b"hello"
    with pytest.raises(KafkaException) as denied:
        confluent_round_trip(alice, "letters")
    assert denied.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


# Starts


def test_a_second_start_uses_what_is_there(start_secure: StartSecure) -> None:
    process = start_secure()
    settings = librdkafka_settings(process.admin)
    assert confluent_round_trip(settings, "kept") == b"hello"
    before = {path: path.read_bytes() for path in process.security.rglob("*") if path.is_file()}
    assert process.stop() == 0
    process.start()
    assert {path: path.read_bytes() for path in process.security.rglob("*") if path.is_file()} == before
    assert confluent_read(settings, "kept") == b"hello"


def test_the_written_properties_are_the_same_broker(start_secure: StartSecure, tmp_path: Path) -> None:
    """Without `--secure`: it is a configuration like any other."""
    process = start_secure()
    settings = librdkafka_settings(process.admin)
    confluent_round_trip(settings, "kept")
    process.stop()
    process.arguments = lambda: [  # type: ignore[method-assign]
        *process.command,
        f"--config={process.security}/brokers/broker-1/broker.properties",
        f"--data-dir={process.data_dir}",
        "--http-port=off",
    ]
    process.start()
    assert confluent_read(settings, "kept") == b"hello"


def test_a_contradiction_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "minikafka.cli.broker", "--secure", f"--data-dir={tmp_path / 'data'}"),
            "--set=listeners=PLAINTEXT://127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "listeners=PLAINTEXT://127.0.0.1:0 contradicts --secure" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_lost_security_directory_is_told(start_secure: StartSecure) -> None:
    process = start_secure()
    process.stop()
    process.security.rename(process.security.with_name("elsewhere"))
    done = subprocess.run(process.arguments(), capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert "the user broker is in the store with another password" in done.stderr


# Certificates


def test_a_certificate_lets_its_client_in_until_it_is_revoked(start_secure: StartSecure) -> None:
    sasl_port, ssl_port = free_port(), free_port()
    process = start_secure(f"--set=listeners=SASL_SSL://127.0.0.1:{sasl_port},SSL://127.0.0.1:{ssl_port}")
    certs = [sys.executable, "-m", "minikafka.cli.main", "certs"]
    where = f"--dir={process.security}"

    def run(*arguments: str) -> None:
        subprocess.run([*certs, *arguments, where], check=True, timeout=DEADLINE_S, capture_output=True)

    for name in ("carol", "mallory"):
        run("client", name, f"--listener=127.0.0.1:{ssl_port}")
    files = {name: process.security / "clients" / name for name in ("carol", "mallory")}
    admin = AdminClient(librdkafka_settings(process.admin))
    acl = AclBinding(
        *(ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, "User:carol", "*"),
        *(AclOperation.ALL, AclPermissionType.ALLOW),
    )
    group = AclBinding(
        *(ResourceType.GROUP, "*", ResourcePatternType.LITERAL, "User:carol", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )
    for created in admin.create_acls([acl, group]).values():
        created.result(DEADLINE_S)
    carol = python_settings(files["carol"], "for_confluent_kafka")
    assert confluent_round_trip(carol, "letters") == b"hello"
    assert AdminClient(librdkafka_settings(files["mallory"])).list_topics(timeout=DEADLINE_S)
    with pytest.raises(KafkaException):  # by nobody's certificate
        AdminClient(
            {
                name: value
                for name, value in carol.items()
                if not name.endswith((".key.location", ".certificate.location"))
            }
        ).list_topics(timeout=3)

    run("revoke", "mallory")
    deadline = time.monotonic() + DEADLINE_S
    while is_let_in(librdkafka_settings(files["mallory"])):
        assert time.monotonic() < deadline, "the broker does not read what is revoked"
    assert confluent_read(carol, "letters") == b"hello"


def is_let_in(settings: dict[str, Any]) -> bool:
    try:
        AdminClient(settings).list_topics(timeout=3)
    except KafkaException:
        return False
    return True


# A cluster


class SecureCluster:
    """`minikafka cluster --secure`, three brokers."""

    def __init__(self, data_dir: Path, port: int) -> None:
        self.data_dir, self.log = data_dir, data_dir.with_name("cluster.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "minikafka.cli.main", "cluster", "--secure", f"--port={port}"),
                    *(f"--data-dir={data_dir}", "--http-port=off", "--set=min.insync.replicas=2"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.log.read_text():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
                raise AssertionError(f"the cluster has ended: {self.log.read_text()}")
            assert time.monotonic() < deadline, self.log.read_text()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE_S)


def three_free_ports() -> int:
    """The first of three in a row."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + 3):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def test_a_cluster_of_three_survives_a_broker(tmp_path: Path) -> None:
    port = three_free_ports()
    cluster = SecureCluster(tmp_path / "cluster", port)
    try:
        cluster.wait_for("3 of 3 alive")
        admin = tmp_path / "cluster" / "security" / "users" / "admin"
        settings = librdkafka_settings(admin)
        assert settings["bootstrap.servers"] == ",".join(f"localhost:{port + each}" for each in range(3))
        assert confluent_round_trip(settings, "orders") == b"hello"
        leader = AdminClient(settings).list_topics("orders").topics["orders"].partitions[0].leader
        kill = [sys.executable, "-m", "minikafka.cli.main", "cluster", "kill", str(leader)]
        subprocess.run([*kill, f"--data-dir={cluster.data_dir}"], check=True, timeout=DEADLINE_S)
        assert confluent_round_trip(settings | {"acks": "all"}, "orders") == b"hello"
        passwords = [path.read_text().strip() for path in cluster.data_dir.glob("security/users/*/password")]
        logs = "".join(path.read_text() for path in [cluster.log, *cluster.data_dir.glob("*.log")])
        assert passwords and not any(password in logs for password in passwords)
    finally:
        cluster.close()
