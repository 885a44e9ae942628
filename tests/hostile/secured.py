"""A broker with a listener of each security protocol, and peers that log in on it by hand.

The bystander has an open listener of its own; what attackers do on the others must not reach it.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from typing import Any, Final

from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import Body, decode_response, encode_request
from minikafka.security.jaas import sasl_client
from minikafka.security.sasl import SaslClient
from minikafka.security.scram import salted_password
from tests.hostile.attack import Attack
from tests.integration.support.process import BrokerProcess
from tests.support.certificates import CertificateAuthority
from tests.support.ports import free_port

PORTS: Final = {name: free_port() for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
HTTP_PORT: Final = free_port()
HTTP_TOKEN: Final = "right-token"
MODULES: Final = "org.apache.kafka.common.security"
AUTHORITY: Final = CertificateAuthority()
BROKER: Final = AUTHORITY.issue("broker")
PATIENCE_S: Final = 60.0
USER, PASSWORD = "mallory", "mallorys-password"
"""Of the attacker, whom no ACL allows anything."""
ITERATIONS: Final = 4096
RECEIVE_BYTES_MAX: Final = 524_288
"""``sasl.server.max.receive.size``."""

PROPERTIES: Final = {
    "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in PORTS.items()),
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}";',
    "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}";',
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer."
    'OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs="1000";',
    "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer."
    'OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs="1000";',
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": BROKER.key_pem(),
    "ssl.keystore.certificate.chain": BROKER.chain_pem(),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
    "delegation.token.secret.key": "token-secret",
    "connections.max.reauth.ms": 60_000,
    "connection.failed.authentication.delay.ms": 100,
    "http.port": HTTP_PORT,
}


def secured(name: str, run: Any, *, prepare: Any = None, **properties: object) -> Attack:
    """An attack on such a broker; ``a_b=…`` sets the property ``a.b``."""
    changed = {key.replace("_", "."): value for key, value in properties.items()}
    return Attack(name, run, PROPERTIES | changed, prepare=prepare, port=PORTS["PLAINTEXT"])


def connect(listener: str, *, timeout_s: float = PATIENCE_S) -> socket.socket:
    return socket.create_connection(("127.0.0.1", PORTS[listener]), timeout=timeout_s)


def is_refused(peer: socket.socket) -> bool:
    """Read until the end: whether the broker has closed it within the socket's timeout."""
    try:
        while peer.recv(65_536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


class Peer:
    """A connection that asks with the codec alone. A context manager."""

    def __init__(self, listener: str) -> None:
        self._socket = connect(listener)
        if listener.endswith("SSL"):
            context = ssl.create_default_context(cadata=AUTHORITY.pem())
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")
        self._file = self._socket.makefile("rb")
        self._count = 0

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, key: ApiKey, version: int, body: Body) -> None:
        self._count += 1
        self._socket.sendall(
            encode_request(
                api_key=key, api_version=version, correlation_id=self._count, client_id="peer", body=body
            )
        )

    def send_bytes(self, frame: bytes) -> None:
        """A request of any bytes."""
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def is_answered(self) -> bool:
        """Whether something has come that is not read yet."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def is_closed(self) -> bool:
        """Read until the end, as ``is_refused``."""
        return is_refused(self._socket)

    def receive(self, key: ApiKey, version: int) -> Any:
        """Raises ConnectionError: the broker has closed it."""
        size = self._file.read(4)
        if len(size) < 4:
            raise ConnectionError("closed")
        frame = self._file.read(int.from_bytes(size))
        return decode_response(api_key=key, api_version=version, frame=frame)[1]

    def ask(self, key: ApiKey, version: int, body: Body) -> Any:
        self.send(key, version, body)
        return self.receive(key, version)

    def say(self, mechanism: str, message: bytes) -> Any:
        """The answer to a mechanism's first message."""
        assert self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism}).error_code == 0
        return self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})

    def log_in(self, mechanism: str, *, user: str = USER, password: str = PASSWORD) -> int:
        """Returns the error code."""
        options = {"username": user, "password": password}
        client: SaslClient = sasl_client(mechanism, options, nonce=lambda: "n" * 20)
        assert self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism}).error_code == 0
        message: bytes | None = client.first()
        while message is not None:
            answer = self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
            if answer.error_code:
                return int(answer.error_code)
            message = client.next(bytes(answer.auth_bytes))
        return 0


def make_scram_user(broker: BrokerProcess, short: bool) -> None:
    salt = b"some salt"
    upsertion = {
        "name": USER,
        "mechanism": 1,
        "iterations": ITERATIONS,
        "salt": salt,
        "salted_password": salted_password("SCRAM-SHA-256", PASSWORD, salt, ITERATIONS),
    }
    with Peer("PLAINTEXT") as peer:
        body = {"deletions": [], "upsertions": [upsertion]}
        (made,) = peer.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, body).results
    assert made.error_code == 0, made
