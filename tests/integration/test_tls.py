"""TLS with stock clients: who gets in, who does not and is told why, and stores that change meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer as PythonConsumer
from kafka import KafkaProducer as PythonProducer
from kafka.errors import KafkaError as PythonError

from minikafka.errors import ConfigError, StartError
from minikafka.testing import ThreadedBroker
from tests.integration.support.process import java_is_there
from tests.support.certificates import (
    EXPIRED,
    NOT_YET_VALID,
    CertificateAuthority,
    Credential,
    rsa_key,
)
from tests.support.ports import free_port
from tests.support.transports import connections_closed

pytestmark = pytest.mark.minikafka_only

WAIT_S = 60
PASSWORD = "store-password"


class ClientFiles(NamedTuple):
    """What a client is given: paths of PEM files."""

    authority: Path
    key_store: Path | None = None
    """Key and certificate."""


class Held:
    """A connection that stays: ApiVersions is asked and answered over it."""

    REQUEST = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("localhost", port), timeout=WAIT_S)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")

    def works(self) -> bool:
        self.socket.sendall(self.REQUEST)
        size = int.from_bytes(self._read(4), "big")
        return self._read(size)[:6] == b"\0\0\0\1\0\0"

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the connection was closed"
            data += more
        return data

    def certificate(self) -> bytes:
        shown = self.socket.getpeercert(binary_form=True)
        assert shown is not None
        return shown


class Secured:
    """A broker with a plaintext listener and one with TLS, its authority, and what its clients need."""

    def __init__(
        self, directory: Path, properties: Mapping[str, str], broker: Credential | None = None
    ) -> None:
        self.directory = directory
        self.authority = CertificateAuthority()
        self.key_store = directory / "broker.pem"
        self.trust_store = self.authority.write_pem(directory / "authority.pem")
        (broker or self.authority.issue("broker")).write_pem(self.key_store)
        self.plain_port, self.port = free_port(), free_port()
        self.config = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.plain_port},SSL://localhost:{self.port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust_store),
            "password.encoder.secret": "for passwords that are set while it runs",
            **properties,
        }
        self.broker = ThreadedBroker(config=self.config)
        self.held: list[Held] = []

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.port}"

    def client(
        self, credential: Credential | None = None, *, trusts: CertificateAuthority | None = None
    ) -> ClientFiles:
        """Files for a client with this certificate, which trusts our authority, or another one."""
        authority = trusts or self.authority
        number = len(list(self.directory.iterdir()))
        trust = authority.write_pem(self.directory / f"trust-{number}.pem")
        if credential is None:
            return ClientFiles(trust)
        return ClientFiles(trust, credential.write_pem(self.directory / f"client-{number}.pem"))

    def hold(self, files: ClientFiles) -> Held:
        """A connection that stays until the test ends."""
        held = Held(self.port, context(files, None))
        self.held.append(held)
        return held

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": f"127.0.0.1:{self.plain_port}"})

    def alter(self, **properties: str) -> None:
        """Set the listener's properties; ``keystore_location`` is ``ssl.keystore.location``."""
        entries = [
            ConfigEntry(
                f"listener.name.ssl.ssl.{name.replace('_', '.')}",
                value,
                incremental_operation=AlterConfigOpType.SET,
            )
            for name, value in properties.items()
        ]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        admin = self.admin()  # which ends what it has begun when it goes
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


StartSecured = Callable[..., Secured]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[StartSecured]:
    started: list[Secured] = []
    with contextlib.ExitStack() as stack:

        def start(*, broker: Credential | None = None, **properties: str) -> Secured:
            directory = tmp_path / f"stores-{len(list(tmp_path.iterdir()))}"
            directory.mkdir()
            made = Secured(
                directory,
                {f"ssl.{name.replace('_', '.')}": text for name, text in properties.items()},
                broker,
            )
            stack.enter_context(made.broker)
            started.append(made)
            return made

        yield start
        for made in started:
            for held in made.held:
                held.socket.close()


def confluent_config(bootstrap: str, files: ClientFiles, version: str | None) -> dict[str, object]:
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.authority),
        "log_level": 0,
    }
    if files.key_store is not None:
        config |= {"ssl.key.location": str(files.key_store), "ssl.certificate.location": str(files.key_store)}
    if version == "TLSv1.2":
        config["ssl.cipher.suites"] = "ECDHE-ECDSA-AES256-GCM-SHA384"
    return config


def context(files: ClientFiles, version: str | None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=files.authority)
    if files.key_store is not None:
        made.load_cert_chain(files.key_store)
    if version == "TLSv1.2":
        made.maximum_version = ssl.TLSVersion.TLSv1_2
    return made


def through_confluent(bootstrap: str, files: ClientFiles, version: str | None) -> bytes:
    config = confluent_config(bootstrap, files, version)
    errors: list[KafkaError] = []
    producer = Producer({**config, "error_cb": errors.append})
    producer.produce("confluent", b"hello")
    deadline = time.monotonic() + WAIT_S
    while producer.flush(0.1):
        if any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in errors):
            producer.purge()
            raise PermissionError(str(errors))
        assert time.monotonic() < deadline, errors
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("confluent", 0, 0)])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None
    value = message.value()
    assert isinstance(value, bytes)
    return value


def through_aiokafka(bootstrap: str, files: ClientFiles, version: str | None) -> bytes:
    async def exchange() -> bytes:
        security = {"security_protocol": "SSL", "ssl_context": context(files, version)}
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **security)
        consumer = AIOKafkaConsumer(
            "aiokafka", bootstrap_servers=bootstrap, auto_offset_reset="earliest", **security
        )
        try:
            try:
                await producer.start()
            except KafkaConnectionError as error:
                raise PermissionError(str(error)) from None
            await producer.send_and_wait("aiokafka", b"hello")
            await consumer.start()
            value = (await asyncio.wait_for(consumer.getone(), WAIT_S)).value
            assert isinstance(value, bytes)
            return value
        finally:
            await producer.stop()
            await consumer.stop()
            await connections_closed()

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return asyncio.run(exchange())


def through_kafka_python(bootstrap: str, files: ClientFiles, version: str | None) -> bytes:
    security = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_context": context(files, version),
        "bootstrap_timeout_ms": 3000,
    }
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    try:
        producer = PythonProducer(**security)
    except PythonError as error:
        raise PermissionError(str(error)) from None
    producer.send("python", b"hello").get(WAIT_S)
    producer.close()
    consumer = PythonConsumer("python", auto_offset_reset="earliest", **security)
    value: bytes = next(consumer).value
    consumer.close()
    return value


def through_kcat(bootstrap: str, files: ClientFiles, version: str | None) -> bytes:
    settings = [f"-X{name}={value}" for name, value in confluent_config(bootstrap, files, version).items()]
    producing = ["kcat", "-P", "-t", "kcat", *settings, "-Xmessage.timeout.ms=3000"]
    ran = subprocess.run(producing, input=b"hello\n", capture_output=True, timeout=WAIT_S, check=False)
    if ran.returncode:
        raise PermissionError(ran.stderr.decode())
    consuming = ["kcat", "-C", "-e", "-q", "-t", "kcat", *settings]
    return subprocess.run(consuming, capture_output=True, timeout=WAIT_S, check=True).stdout.strip()


EXCHANGES = [through_confluent, through_aiokafka, through_kafka_python, through_kcat]


@pytest.fixture(scope="module")
def of_version_1_2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("old"), {"ssl.enabled.protocols": "TLSv1.2"})
    with made.broker:
        yield made


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_clients_of_version_1_2(
    of_version_1_2: Secured, exchange: Callable[[str, ClientFiles, str | None], bytes]
) -> None:
    """1.3 is in `test_security_matrix.py`, as are foreign and expired certificates of every client."""
    served = of_version_1_2
    assert exchange(served.bootstrap, served.client(), "TLSv1.2") == b"hello"


def test_a_broker_says_why_a_certificate_does_not_hold(
    secured: StartSecured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "minikafka.network.tls_acceptor")
    served = secured(client_auth="required")
    issue = served.authority.issue
    for credential, why in (
        (None, "shows no certificate"),
        (issue("alice", valid=EXPIRED), "certificate has expired"),
        (issue("alice", valid=NOT_YET_VALID), "certificate is not yet valid"),
        (CertificateAuthority("foreign").issue("alice"), "unable to get local issuer certificate"),
    ):
        caplog.clear()
        with pytest.raises(PermissionError):
            through_aiokafka(served.bootstrap, served.client(credential), None)
        assert why in caplog.text
    assert through_aiokafka(served.bootstrap, served.client(issue("alice")), None) == b"hello"


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_clients_do_not_trust_a_wrong_broker(
    secured: StartSecured, exchange: Callable[[str, ClientFiles, str | None], bytes]
) -> None:
    served = secured()
    with pytest.raises(PermissionError):
        exchange(served.bootstrap, served.client(trusts=CertificateAuthority("foreign")), None)
    served.authority.issue("broker", hosts=["elsewhere.example"]).write_pem(served.directory / "other.pem")
    with pytest.raises(KafkaException, match="SubjectAltNames do not match"):
        served.alter(keystore_location=str(served.directory / "other.pem"))
    misnamed = secured(allow_san_changes="true")
    misnamed.authority.issue("broker", hosts=["elsewhere.example"]).write_pem(
        misnamed.directory / "other.pem"
    )
    misnamed.alter(keystore_location=str(misnamed.directory / "other.pem"))
    with pytest.raises(PermissionError):
        exchange(misnamed.bootstrap, misnamed.client(), None)


def test_metadata_answers_with_the_listener_that_was_asked(secured: StartSecured) -> None:
    served = secured()
    over_tls = AdminClient(confluent_config(served.bootstrap, served.client(), None))
    (broker,) = over_tls.list_topics(timeout=WAIT_S).brokers.values()
    assert (broker.host, broker.port) == ("localhost", served.port)
    (broker,) = served.admin().list_topics(timeout=WAIT_S).brokers.values()
    assert (broker.host, broker.port) == ("127.0.0.1", served.plain_port)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not there")
@pytest.mark.parametrize("enabled", ["TLSv1.2", "TLSv1.3"])
def test_only_enabled_versions_and_nothing_older(secured: StartSecured, enabled: str) -> None:
    served = secured(enabled_protocols=enabled)
    for option, version in (
        ("-tls1", "TLSv1"),
        ("-tls1_1", "TLSv1.1"),
        ("-tls1_2", "TLSv1.2"),
        ("-tls1_3", "TLSv1.3"),
    ):
        asking = [
            "openssl",
            "s_client",
            "-connect",
            served.bootstrap,
            option,
            "-CAfile",
            str(served.trust_store),
        ]
        ran = subprocess.run(asking, input=b"Q\n", capture_output=True, timeout=WAIT_S, check=False)
        assert (ran.returncode == 0) == (version == enabled), ran.stderr.decode()
    asking = ["openssl", "s_client", "-connect", served.bootstrap, "-CAfile", str(served.trust_store)]
    ran = subprocess.run(asking, input=b"R\n", capture_output=True, timeout=WAIT_S, check=False)
    if enabled == "TLSv1.2":
        assert b"no renegotiation" in ran.stderr


def test_cipher_suites_under_javas_names(secured: StartSecured, tmp_path: Path) -> None:
    served = secured(
        cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", enabled_protocols="TLSv1.2,TLSv1.3"
    )
    made = context(served.client(), None)
    plain = socket.create_connection(("localhost", served.port))
    with made.wrap_socket(plain, server_hostname="localhost") as secure:
        name, version, _ = secure.cipher() or ("", "", 0)
    assert (name, version) == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")


def test_a_pkcs12_store_with_an_rsa_key(tmp_path: Path, secured: StartSecured) -> None:
    authority = CertificateAuthority()
    store = authority.issue("broker", key=rsa_key()).write_pkcs12(tmp_path / "broker.p12", PASSWORD)
    port = free_port()
    config = {
        "listeners": f"EXTERNAL://localhost:{port}",
        "listener.security.protocol.map": "EXTERNAL:SSL",
        "inter.broker.listener.name": "EXTERNAL",
        "listener.name.external.ssl.keystore.type": "PKCS12",
        "listener.name.external.ssl.keystore.location": str(store),
        "listener.name.external.ssl.keystore.password": PASSWORD,
        "listener.name.external.ssl.truststore.type": "PKCS12",
        "listener.name.external.ssl.truststore.location": str(
            authority.write_pkcs12(tmp_path / "trust.p12", PASSWORD)
        ),
        "listener.name.external.ssl.truststore.password": PASSWORD,
    }
    files = ClientFiles(authority.write_pem(tmp_path / "authority.pem"))
    with ThreadedBroker(config=config):
        assert through_confluent(f"localhost:{port}", files, None) == b"hello"
        admin = AdminClient(confluent_config(f"localhost:{port}", files, None))
        resource = ConfigResource(ResourceType.BROKER, "1")
        entries = admin.describe_configs([resource])[resource].result(WAIT_S)
        location = entries["listener.name.external.ssl.keystore.location"]
        assert (location.value, location.is_sensitive, location.is_read_only) == (str(store), False, False)
        password = entries["listener.name.external.ssl.keystore.password"]
        assert (password.value, password.is_sensitive) == (None, True)
        assert PASSWORD not in repr(entries)


# Stores that change.


class Lines(logging.Handler):
    """Waits for a line of the broker's log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._changed = threading.Condition()
        self._lines: list[str] = []
        logger = logging.getLogger("minikafka.server.security.transport")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self._lines.append(record.getMessage())
            self._changed.notify_all()

    def wait_for(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: any(text in line for line in self._lines), WAIT_S), (
                self._lines
            )


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    yield handler
    logging.getLogger("minikafka.server.security.transport").removeHandler(handler)


def test_a_store_set_by_a_client_holds_for_new_connections(secured: StartSecured) -> None:
    served = secured()
    files = served.client()
    held = served.hold(files)
    renewed = served.authority.issue("broker")
    renewed.write_pem(served.directory / "renewed.pem", password=PASSWORD)
    with pytest.raises(KafkaException, match=r"is encrypted; set listener\.name\.ssl\.ssl\.key\.password"):
        served.alter(keystore_location=str(served.directory / "renewed.pem"))
    with pytest.raises(KafkaException, match="cannot be decrypted"):
        served.alter(keystore_location=str(served.directory / "renewed.pem"), key_password="wrong")
    served.alter(keystore_location=str(served.directory / "renewed.pem"), key_password=PASSWORD)
    assert held.works()
    again = served.hold(files)
    assert again.works()
    assert again.certificate() != held.certificate()
    for broken, why in (
        (
            {"keystore_location": "/nowhere"},
            r"cannot read /nowhere \(listener\.name\.ssl\.ssl\.keystore\.location\)",
        ),
        ({"keystore_type": "PKCS12"}, "key store password is not specified"),
        ({"cipher_suites": "TLS_NULL"}, "no such cipher suite"),
    ):
        with pytest.raises(KafkaException, match=why) as raised:
            served.alter(**broken)
        assert raised.value.args[0].name() == "INVALID_REQUEST"
    assert served.hold(files).certificate() == again.certificate()


def test_a_store_for_all_listeners_is_not_changed_while_the_broker_runs(secured: StartSecured) -> None:
    served = secured()
    entry = ConfigEntry("ssl.keystore.location", "/x", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = served.admin()
    with pytest.raises(KafkaException, match="only per-listener using the listener prefix"):
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def test_a_file_that_changes_is_read_again_and_a_broken_one_is_not_used(
    secured: StartSecured, lines: Lines
) -> None:
    served = secured()
    files = served.client()
    held = served.hold(files)
    served.authority.issue("broker").write_pem(served.key_store)
    lines.wait_for("has new stores")
    assert held.works()
    renewed = served.hold(files)
    assert renewed.certificate() != held.certificate()
    served.key_store.write_text("rubbish")
    lines.wait_for("new stores are not used, connections get the old ones")
    assert served.hold(files).certificate() == renewed.certificate()
    temporary = served.authority.issue("somebody else").write_pem(served.directory / "new")
    os.replace(temporary, served.key_store)
    lines.wait_for("Keystore DistinguishedName does not match")
    assert served.hold(files).certificate() == renewed.certificate()
    assert held.works()


def test_a_revoked_certificate_is_refused_once_the_list_is_there(
    secured: StartSecured, tmp_path: Path, lines: Lines
) -> None:
    revoked = tmp_path / "revoked.pem"
    revoked.write_text(CertificateAuthority().revocation_list())
    served = secured(client_auth="required", crl_location=str(revoked))
    alice, bob = served.authority.issue("alice"), served.authority.issue("bob")
    revoked.write_text(served.authority.revocation_list())
    lines.wait_for("has new stores")
    held = served.hold(served.client(alice))
    assert held.works()
    revoked.write_text(served.authority.revocation_list(alice))
    with lines._changed:
        lines._lines.clear()
    lines.wait_for("has new stores")
    with pytest.raises((OSError, AssertionError)):
        served.hold(served.client(alice)).works()
    assert served.hold(served.client(bob)).works()
    assert held.works(), "it is gone when its connection ends"


def test_a_stalled_handshake_ends_and_delays_nobody(secured: StartSecured) -> None:
    served = secured()
    stalled = [socket.create_connection(("localhost", served.port), timeout=WAIT_S) for _ in range(50)]
    for each in stalled[::2]:
        each.sendall(b"\x16\x03\x01\x02\x00\x01")
    assert through_confluent(served.bootstrap, served.client(), None) == b"hello"
    for each in stalled:
        with contextlib.suppress(ConnectionError):
            assert each.recv(1) == b""
        each.close()


# What cannot work is said at the start.


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        (
            {"ssl.keystore.location": ""},
            "the listener SSL://localhost:.* has no key store: set ssl.keystore.location",
        ),
        ({"ssl.keystore.location": "/nowhere.pem"}, "listener SSL: cannot read /nowhere.pem"),
        ({"ssl.keystore.type": "JKS"}, "key store password is not specified"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "older versions of TLS are not safe"),
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "missing \\)"),
        (
            {"security.inter.broker.protocol": "SSL", "ssl.truststore.location": "OTHER"},
            "brokers would not connect to each other",
        ),
        (
            {"security.inter.broker.protocol": "SSL", "inter.broker.listener.name": "SSL"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol",
        ),
    ],
)
def test_a_broker_that_cannot_work_says_why(tmp_path: Path, properties: dict[str, str], why: str) -> None:
    made = Secured(tmp_path, {})
    other = CertificateAuthority("another").write_pem(tmp_path / "other.pem")
    texts = {name: str(other) if text == "OTHER" else text for name, text in properties.items()}
    with pytest.raises((StartError, ConfigError), match=why), ThreadedBroker(config=made.config | texts):
        pass


def test_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "broker.jks"
    making = f"keytool -genkeypair -alias b -keyalg RSA -dname CN=b -keystore {store} -storepass {PASSWORD}"
    if not java_is_there():
        store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    else:
        subprocess.run(
            [*making.split(), "-storetype", "JKS"], check=True, capture_output=True, timeout=WAIT_S
        )
    properties = {
        "ssl.keystore.type": "JKS",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": PASSWORD,
    }
    made = Secured(tmp_path, properties)
    with pytest.raises(StartError, match=f"keytool -importkeystore -srckeystore {store}") as raised:
        made.broker.start()
    assert PASSWORD not in str(raised.value)


def test_javas_own_pkcs12_store_is_read(tmp_path: Path) -> None:
    if not java_is_there():
        pytest.skip("keytool is not there")
    store = tmp_path / "broker.p12"
    making = f"keytool -genkeypair -alias b -keyalg EC -dname CN=b -ext SAN=dns:localhost -keystore {store}"
    subprocess.run([*making.split(), "-storepass", PASSWORD], check=True, capture_output=True, timeout=WAIT_S)
    properties = {
        "ssl.keystore.type": "JKS",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": PASSWORD,
    }
    made = Secured(tmp_path, properties)
    exporting = [
        "keytool",
        "-exportcert",
        "-rfc",
        "-alias",
        "b",
        "-keystore",
        str(store),
        "-storepass",
        PASSWORD,
    ]
    certificate = subprocess.run(exporting, check=True, capture_output=True, timeout=WAIT_S).stdout
    trust = tmp_path / "self.pem"
    trust.write_bytes(certificate)
    with made.broker:
        assert through_confluent(made.bootstrap, ClientFiles(trust), None) == b"hello"


def test_the_registration_and_the_brokers_of_a_cluster_know_every_listener(secured: StartSecured) -> None:
    served = secured()
    ran = subprocess.run(
        [
            "kcat",
            "-L",
            "-J",
            *[f"-X{n}={v}" for n, v in confluent_config(served.bootstrap, served.client(), None).items()],
        ],
        capture_output=True,
        timeout=WAIT_S,
        check=True,
    )
    assert json.loads(ran.stdout)["brokers"] == [{"id": 1, "name": f"localhost:{served.port}"}]
