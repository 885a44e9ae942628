"""What comes after a login: re-authentication, delegation tokens, and where credentials are. Who gets in with
what is in `test_security_matrix.py`."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import decode_response, encode_request
from minikafka.security.sasl.client import SaslClient, sasl_client
from tests.integration.conftest import StartBroker
from tests.integration.support.process import BrokerProcess
from tests.support.ports import free_port

pytestmark = pytest.mark.minikafka_only

SESSION_MS = 2_000
DEADLINE_S = 20.0


class SaslBroker:
    """A broker process with a listener for everybody, one for those who log in, and one where sessions
    end."""

    def __init__(self, process: BrokerProcess, ports: dict[str, int]) -> None:
        self.process = process
        self.ports = ports

    def bootstrap(self, listener: str = "SASL_PLAINTEXT") -> str:
        return f"127.0.0.1:{self.ports[listener]}"


@pytest.fixture(scope="module")
def broker(make_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    directory = tmp_path_factory.mktemp("sasl")
    ports = {name: free_port() for name in ("PLAINTEXT", "SASL_PLAINTEXT", "SHORT")}
    properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SHORT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.short.connections.max.reauth.ms": SESSION_MS,
        "delegation.token.secret.key": "token-secret",
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
        for secret in ("bob-secret", "token-secret", "Traceback"):
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
    ends = time.monotonic() + 2.5 * SESSION_MS / 1000
    while time.monotonic() < ends:
        producer.produce("sessions", b"x", on_delivery=reported)
        producer.poll(0.05)
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []
    assert len(delivered) > 10


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
