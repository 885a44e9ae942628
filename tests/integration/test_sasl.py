"""What comes after a login: re-authentication, delegation tokens, and where credentials are. Who gets in with
what is in `test_security_matrix.py`."""

from __future__ import annotations

import base64
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import decode_response, encode_request
from minikafka.security.jaas import PLAIN_LOGIN_MODULE, sasl_client
from minikafka.security.sasl import SaslClient
from tests.integration.conftest import StartBroker
from tests.integration.support.process import BrokerProcess
from tests.support.ports import free_port

pytestmark = pytest.mark.minikafka_only

SESSION_MS = 10_000
"""A client has a tenth of it to authenticate again: a busy machine needs more than 0.2 s."""
DEADLINE_S = 20.0
EVERYTHING: dict[str, Any] = {"topics": None, "allow_auto_topic_creation": False}


class SaslBroker:
    """A broker process with a listener for all, one for those who log in, one where sessions end, and one
    whose logins change."""

    def __init__(self, process: BrokerProcess, ports: dict[str, int]) -> None:
        self.process = process
        self.ports = ports

    def bootstrap(self, listener: str = "SASL_PLAINTEXT") -> str:
        return f"127.0.0.1:{self.ports[listener]}"


@pytest.fixture(scope="module")
def broker(make_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    directory = tmp_path_factory.mktemp("sasl")
    ports = {name: free_port() for name in ("PLAINTEXT", "SASL_PLAINTEXT", "SHORT", "CHANGED")}
    properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SHORT:SASL_PLAINTEXT,CHANGED:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.short.connections.max.reauth.ms": SESSION_MS,
        "delegation.token.secret.key": "token-secret",
        "password.encoder.secret": "encoder-secret",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "http.port": 0,
    }
    process = make_broker(directory / "broker", port=ports["PLAINTEXT"], properties=properties)
    process.start()
    try:
        running = SaslBroker(process, ports)
        admin = AdminClient({"bootstrap.servers": running.bootstrap("PLAINTEXT")})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            made = admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("bob", ScramCredentialInfo(mechanism, 4096), b"bob-secret")]
            )
            made["bob"].result(DEADLINE_S)
        yield running
        log = process.log_text()
        for secret in ("bob-secret", "token-secret", "carol-secret", "encoder-secret", "Traceback"):
            assert secret not in log
    finally:
        process.close()


def test_a_client_authenticates_again_and_goes_on(broker: SaslBroker) -> None:
    """librdkafka does so at nine tenths of the session's time (KIP-368)."""
    failed: list[object] = []
    delivered: list[object] = []

    def reported(error: object, message: object) -> None:
        (failed if error else delivered).append(error or message)

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap("SHORT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "bob",
            "sasl.password": "bob-secret",
            "error_cb": failed.append,
            "linger.ms": 0,
        }
    )
    ends = time.monotonic() + 1.2 * SESSION_MS / 1000
    while time.monotonic() < ends:
        producer.produce("sessions", b"x", on_delivery=reported)
        producer.poll(0.05)
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []
    assert len(delivered) > 10


def set_for(broker: SaslBroker, listener: str, **changed: str | None) -> None:
    """By IncrementalAlterConfigs of librdkafka; None: removed."""
    entries = [
        ConfigEntry(
            f"listener.name.{listener.lower()}.{name}",
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in changed.items()
    ]
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap("PLAINTEXT")})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def topics_of(broker: SaslBroker, mechanism: str, username: str, password: str) -> set[str]:
    """With librdkafka, over the listener that changes."""
    settings = {
        "bootstrap.servers": broker.bootstrap("CHANGED"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": username,
        "sasl.password": password,
    }
    return set(AdminClient(settings).list_topics(timeout=DEADLINE_S).topics)


# Delegation tokens, by requests of our own: the Python clients have none.


class Peer:
    """A connection that logs in and asks, with the codec alone."""

    def __init__(self, bootstrap: str) -> None:
        import socket

        host, _, port = bootstrap.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self._file = self._socket.makefile("rb")
        self._count = 0

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        self._count += 1
        self._socket.sendall(
            encode_request(
                api_key=key, api_version=version, correlation_id=self._count, client_id="peer", body=body
            )
        )
        frame = self._file.read(int.from_bytes(self._file.read(4)))
        if not frame:
            raise ConnectionError("the broker has closed the connection")
        _, answer = decode_response(api_key=key, api_version=version, frame=frame)
        return answer

    def log_in(self, client: SaslClient) -> int:
        """Returns the error code."""
        handshake = self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": client.mechanism})
        assert handshake.error_code == 0
        answer: bytes | None = client.first()
        while answer is not None:
            response = self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": answer})
            if response.error_code:
                return int(response.error_code)
            answer = client.next(bytes(response.auth_bytes))
        return 0


@pytest.fixture
def connect(broker: SaslBroker) -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def make(listener: str = "SASL_PLAINTEXT", **options: str) -> Peer:
        peers.append(Peer(broker.bootstrap(listener)))
        if options:
            client = sasl_client("SCRAM-SHA-256", options, nonce=lambda: "n" * 20)
            assert peers[-1].log_in(client) == 0
        return peers[-1]

    yield make
    for peer in peers:
        peer.close()


CAROL = f'{PLAIN_LOGIN_MODULE} required user_carol="carol-secret";'


def test_what_is_set_for_a_listener_holds_for_the_next_login(
    broker: SaslBroker, connect: Callable[..., Peer]
) -> None:
    """KIP-226: mechanisms, users and the length of sessions; who is in stays in."""
    before = connect("CHANGED", username="bob", password="bob-secret")
    assert before.ask(ApiKey.METADATA, 4, EVERYTHING).brokers
    carol = "PLAIN", "carol", "carol-secret"
    with pytest.raises(KafkaException, match=r"set listener\.name\.changed\.plain\.sasl\.jaas\.config"):
        set_for(broker, "CHANGED", **{"sasl.enabled.mechanisms": "PLAIN"})
    set_for(
        broker,
        "CHANGED",
        **{"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": CAROL},
    )
    assert topics_of(broker, *carol) >= set()
    refused = connect("CHANGED").ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
    assert (refused.error_code, list(refused.mechanisms)) == (33, ["PLAIN"])
    assert before.ask(ApiKey.METADATA, 4, EVERYTHING).brokers

    renewed = CAROL.replace("carol-secret", "renewed-carol-secret")
    set_for(broker, "CHANGED", **{"plain.sasl.jaas.config": renewed, "connections.max.reauth.ms": "60000"})
    login = {"username": "carol", "password": "carol-secret"}
    assert connect("CHANGED").log_in(sasl_client("PLAIN", login, nonce=str)) == 58
    assert topics_of(broker, "PLAIN", "carol", "renewed-carol-secret") >= set()
    assert session_of(connect("CHANGED"), "carol", "renewed-carol-secret") == 60_000
    set_for(broker, "CHANGED", **{"plain.connections.max.reauth.ms": "1"})
    assert session_of(connect("CHANGED"), "carol", "renewed-carol-secret") == 1
    removed = ("plain.connections.max.reauth.ms", "connections.max.reauth.ms")
    set_for(broker, "CHANGED", **dict.fromkeys(removed))
    assert session_of(connect("CHANGED"), "carol", "renewed-carol-secret") == 0
    removed = ("sasl.enabled.mechanisms", "plain.sasl.jaas.config")
    set_for(broker, "CHANGED", **dict.fromkeys(removed))
    connect("CHANGED", username="bob", password="bob-secret")


def session_of(peer: Peer, username: str, password: str) -> int:
    """Of a login by PLAIN: how long it holds, in ms."""
    assert peer.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
    message = f"\0{username}\0{password}".encode()
    return int(peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message}).session_lifetime)


def test_a_scrape_counts_logins_sessions_and_denials(
    broker: SaslBroker, connect: Callable[..., Peer]
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap("PLAINTEXT")})
    closed = AclBinding(
        *(ResourceType.TOPIC, "closed", ResourcePatternType.LITERAL, "User:bob", "*"),
        *(AclOperation.ALL, AclPermissionType.DENY),
    )
    admin.create_acls([closed])[closed].result(DEADLINE_S)
    set_for(broker, "CHANGED", **{"connections.max.reauth.ms": "1"})
    before = security_series(broker)
    login = {"username": "bob", "password": "bob-secret"}
    scram = "SCRAM-SHA-256"

    again = connect("CHANGED", **login)
    assert again.log_in(sasl_client(scram, login, nonce=lambda: "again" * 4)) == 0
    wrong = connect("CHANGED", **login)
    bad = login | {"password": "wrong"}
    assert wrong.log_in(sasl_client(scram, bad, nonce=lambda: "wrong" * 4)) == 58
    assert connect("CHANGED").log_in(sasl_client(scram, bad, nonce=lambda: "wrong" * 4)) == 58
    killed = connect("CHANGED", **login)
    with pytest.raises(ConnectionError):
        while True:  # until a millisecond has passed
            killed.ask(ApiKey.METADATA, 4, EVERYTHING)
    set_for(broker, "CHANGED", **{"connections.max.reauth.ms": None})
    denied = connect("CHANGED", **login).ask(
        ApiKey.METADATA, 4, {"topics": [{"name": "closed"}], "allow_auto_topic_creation": False}
    )
    assert denied.topics[0].error_code == 29

    after = security_series(broker)
    grown = {name: int(after[name] - before[name]) for name in after}
    assert grown == {
        "successful_authentication": 4,
        "failed_authentication": 1,
        "successful_reauthentication": 1,
        "failed_reauthentication": 1,
        "expired_connections_killed": 1,
        "of all listeners": 1,
        "denied": 1,
    }


def security_series(broker: SaslBroker) -> dict[str, float]:
    """Of the listener that changes, as a scrape of the broker has them."""
    (found,) = set(re.findall(r"metrics +(http://\S+/metrics)", broker.process.log_text()))
    with urllib.request.urlopen(found, timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    labels = r'\{listener="CHANGED",networkProcessor="\d+"\}'
    sought = {
        name: rf"kafka_server_socket_server_metrics_{name}_total{labels}"
        for name in (
            "successful_authentication",
            "failed_authentication",
            "successful_reauthentication",
            "failed_reauthentication",
        )
    } | {
        "expired_connections_killed": (
            rf"kafka_server_socket_server_metrics_expired_connections_killed_count{labels}"
        ),
        "of all listeners": "kafka_network_socketserver_expiredconnectionskilledcount",
        "denied": "kafka_server_plugins_authorization_denied_total",
    }
    values = {}
    for name, pattern in sought.items():
        (value,) = re.findall(rf"(?m)^{pattern} (\S+)$", text)
        values[name] = float(value)
    return values


def test_a_delegation_token_logs_in_until_it_is_removed(connect: Callable[..., Peer]) -> None:
    bob = connect(username="bob", password="bob-secret")
    wanted = {"owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime": -1}
    made = bob.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, wanted)
    assert (made.error_code, made.principal_name, len(bytes(made.hmac))) == (0, "bob", 64)
    login = {
        "username": made.token_id,
        "password": base64.b64encode(bytes(made.hmac)).decode(),
        "tokenauth": "true",
    }
    holder = connect(**login)
    assert holder.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, wanted).error_code == 64  # not by a token
    assert connect("PLAINTEXT").ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, wanted).error_code == 64

    described = bob.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})
    assert [each.token_id for each in described.tokens] == [made.token_id]
    renewed = bob.ask(ApiKey.RENEW_DELEGATION_TOKEN, 2, {"hmac": bytes(made.hmac), "renew_period": 3_600_000})
    assert (renewed.error_code, renewed.expiry_timestamp < made.expiry_timestamp) == (0, True)
    gone = bob.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, {"hmac": bytes(made.hmac), "expiry_time_period": -1})
    assert gone.error_code == 0
    again = {"hmac": bytes(made.hmac), "renew_period": 1}
    assert bob.ask(ApiKey.RENEW_DELEGATION_TOKEN, 2, again).error_code == 62  # not found
    late = connect()
    assert late.log_in(sasl_client("SCRAM-SHA-256", login, nonce=lambda: "m" * 20)) == 58


def test_the_credentials_of_users_are_described_without_their_keys(broker: SaslBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap("PLAINTEXT")})
    bob = admin.describe_user_scram_credentials(["bob"])["bob"].result(DEADLINE_S)
    assert [info.iterations for info in bob.scram_credential_infos] == [4096, 4096]


def test_a_store_has_no_password(broker: SaslBroker) -> None:
    files = [path for path in Path(broker.process.data_dir).iterdir() if path.is_file()]
    data = b"".join(path.read_bytes() for path in files)
    assert b"SCRAM-SHA-256" in data
    assert b"bob-secret" not in data
