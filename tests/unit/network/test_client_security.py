"""A client that logs in, with TLS and without, and what it says when it is not let in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from minikafka.errors import ConfigError
from minikafka.network import client_security as client_security_module
from minikafka.network.broker_client import (
    AuthenticationFailed,
    BrokerClient,
    BrokerTimeout,
    BrokerUnavailable,
)
from minikafka.network.client_security import ClientSecurity, client_security
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.sasl import PlainServer, SaslServer
from minikafka.security.tls import server_context
from minikafka.security.tls_settings import client_tls_settings
from tests.support.certificates import EXPIRED, CertificateAuthority
from tests.unit.network.secured_broker import ALICE, PASSWORD, SCRAM, SecuredBroker, plain_server
from tests.unit.network.support import DEADLINE_SECONDS, until

DEADLINE_MS = int(DEADLINE_SECONDS * 1000)
MODULES = {"PLAIN": "plain.PlainLoginModule", SCRAM: "scram.ScramLoginModule"}
METADATA = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def login(
    mechanism: str = "PLAIN", password: str = PASSWORD, *, protocol: str = "SASL_PLAINTEXT"
) -> dict[str, str]:
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{ALICE}" password="{password}";',
    }


@asynccontextmanager
async def connected(
    broker: SecuredBroker, properties: dict[str, str], host: str = "127.0.0.1"
) -> AsyncIterator[BrokerClient]:
    client = await BrokerClient.connect(
        host,
        broker.port,
        client_id="test",
        deadline_ms=DEADLINE_MS,
        security=client_security(properties),
    )
    try:
        yield client
    finally:
        await client.close()


async def cluster_id(client: BrokerClient) -> str:
    answer = await client.request(ApiKey.METADATA, METADATA, deadline_ms=DEADLINE_MS)
    return str(answer.cluster_id)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def trusting(authority: CertificateAuthority) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem()}


def context_of(
    authority: CertificateAuthority, *, client_auth: str = "none", **options: Any
) -> ssl.SSLContext:
    credential = authority.issue("broker", **options)
    settings = client_tls_settings(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": credential.key_pem(),
            "ssl.keystore.certificate.chain": credential.chain_pem(),
            "ssl.client.auth": client_auth,
            **trusting(authority),
        }
    )
    return server_context(settings)


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
async def test_a_client_says_who_it_is_before_anything_else(mechanism: str) -> None:
    async with SecuredBroker(mechanism).running() as broker, connected(broker, login(mechanism)) as client:
        assert await cluster_id(client) == "secured"
    proofs = {"PLAIN": 1, SCRAM: 2}[mechanism]
    assert broker.asked == [["API_VERSIONS", "SASL_HANDSHAKE", *["SASL_AUTHENTICATE"] * proofs, "METADATA"]]


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
async def test_a_wrong_password_is_an_error_of_its_own_with_the_brokers_words(mechanism: str) -> None:
    async with SecuredBroker(mechanism).running() as broker:
        with pytest.raises(
            AuthenticationFailed, match="authentication failed: Authentication failed"
        ) as failure:
            async with connected(broker, login(mechanism, "guessed")):
                pass
    assert "guessed" not in str(failure.value)


async def test_a_mechanism_that_the_broker_does_not_have() -> None:
    async with SecuredBroker(SCRAM).running() as broker:
        with pytest.raises(AuthenticationFailed, match=f"does not accept PLAIN here; it accepts {SCRAM}"):
            async with connected(broker, login("PLAIN")):
                pass


async def test_a_broker_that_cannot_prove_that_it_knows_the_password_is_refused() -> None:
    class Impostor(PlainServer):
        """Plays SCRAM with a signature that it has made up."""

        def evaluate(self, response: bytes) -> bytes:
            if response.startswith(b"n,,"):
                nonce = response.rpartition(b"r=")[2]
                return b"r=" + nonce + b"more,s=c2FsdA==,i=4096"
            self.is_complete = True
            return b"v=" + b"A" * 86 + b"=="

    def impostor() -> SaslServer:
        return Impostor(lambda user, password: True)

    async with SecuredBroker(SCRAM, make_server=impostor).running() as broker:
        with pytest.raises(AuthenticationFailed, match="failed to prove itself"):
            async with connected(broker, login(SCRAM)):
                pass


# Sessions that end


async def test_a_session_is_renewed_between_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_security_module, "reauthenticate_after_ms", lambda lifetime_ms: 0.0)
    broker = SecuredBroker(lifetime_ms=60_000)
    async with broker.running(), connected(broker, login()) as client:
        await until(lambda: client._is_login_due)
        assert broker.asked[0][1:] == ["SASL_HANDSHAKE", "SASL_AUTHENTICATE"], "an idle client does nothing"
        monkeypatch.undo()
        answers = await asyncio.gather(*(cluster_id(client) for _ in range(3)))
    assert answers == ["secured"] * 3
    assert broker.asked == [["API_VERSIONS", *["SASL_HANDSHAKE", "SASL_AUTHENTICATE"] * 2, *["METADATA"] * 3]]


async def test_a_login_that_is_revoked_ends_the_connection_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_security_module, "reauthenticate_after_ms", lambda lifetime_ms: 0.0)
    users = [plain_server(), PlainServer(lambda user, password: False)]
    broker = SecuredBroker(lifetime_ms=60_000, make_server=lambda: users.pop(0))
    async with broker.running(), connected(broker, login()) as client:
        await until(lambda: client._is_login_due)
        requests = [asyncio.create_task(cluster_id(client)) for _ in range(2)]
        done = await asyncio.gather(*requests, return_exceptions=True)
        assert all(isinstance(each, AuthenticationFailed) for each in done), done
        assert "cannot be renewed" in str(done[0])
        assert not client.is_connected
    assert "METADATA" not in broker.asked[0]


def test_the_next_login_is_due_at_85_to_95_percent_of_a_session() -> None:
    moments = {client_security_module.reauthenticate_after_ms(1000) for _ in range(200)}
    assert 850 <= min(moments) < 880 < 920 < max(moments) <= 950


# TLS


async def test_tls_and_a_login(authority: CertificateAuthority) -> None:
    broker = SecuredBroker(SCRAM, context=context_of(authority))
    properties = login(SCRAM, protocol="SASL_SSL") | trusting(authority)
    async with broker.running():
        for host in ("127.0.0.1", "localhost"):
            async with connected(broker, properties, host) as client:
                assert await cluster_id(client) == "secured"


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({"hosts": ("elsewhere.example",)}, "IP address mismatch"),
        ({"valid": EXPIRED}, "expired"),
    ],
)
async def test_a_certificate_that_does_not_hold(
    authority: CertificateAuthority, server: dict[str, Any], why: str
) -> None:
    broker = SecuredBroker(None, context=context_of(authority, **server))
    async with broker.running():
        with pytest.raises(AuthenticationFailed, match=why):
            async with connected(broker, {"security.protocol": "SSL"} | trusting(authority)):
                pass
    assert broker.asked == [], "no request reaches a broker that is not who it should be"


async def test_a_host_name_that_is_not_checked_when_told_so(authority: CertificateAuthority) -> None:
    broker = SecuredBroker(None, context=context_of(authority, hosts=("elsewhere.example",)))
    properties = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    async with broker.running(), connected(broker, properties | trusting(authority)) as client:
        assert await cluster_id(client) == "secured"


async def test_an_authority_that_is_not_trusted(authority: CertificateAuthority) -> None:
    broker = SecuredBroker(None, context=context_of(CertificateAuthority("another")))
    async with broker.running():
        with pytest.raises(AuthenticationFailed, match=r"ssl\.truststore\.location says whom to trust"):
            async with connected(broker, {"security.protocol": "SSL"} | trusting(authority)):
                pass


async def test_a_client_shows_its_certificate_where_it_must(authority: CertificateAuthority) -> None:
    broker = SecuredBroker(None, context=context_of(authority, client_auth="required"))
    properties = {"security.protocol": "SSL"} | trusting(authority)
    alice = authority.issue("alice")
    shown = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": alice.key_pem("key password"),
        "ssl.key.password": "key password",
        "ssl.keystore.certificate.chain": alice.chain_pem(),
    }
    async with broker.running():
        with pytest.raises(BrokerUnavailable):
            async with connected(broker, properties) as client:
                await cluster_id(client)
        async with connected(broker, properties | shown) as client:
            assert await cluster_id(client) == "secured"


async def test_a_listener_without_tls(authority: CertificateAuthority) -> None:
    async with SecuredBroker(None).running() as broker:
        with pytest.raises(BrokerUnavailable, match="TLS"):
            async with connected(broker, {"security.protocol": "SSL"} | trusting(authority)):
                pass


async def test_the_stores_are_read_once(authority: CertificateAuthority, tmp_path: Path) -> None:
    store = authority.write_pem(tmp_path / "ca.pem")
    security = client_security(
        {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(store)}
    )
    assert security.tls_context is not None
    first = await security.tls_context()
    store.unlink()
    assert await security.tls_context() is first


# Properties


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: must be one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "set sasl.mechanism to one of PLAIN"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}, "Kerberos is not supported"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is not set"),
        (login() | {"sasl.jaas.config": "x.ScramLoginModule required;"}, "the login module must be"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "needs a token"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "http://issuer.example/token",
            },
            "must be https: or file:",
        ),
    ],
)
def test_a_property_that_is_wrong_is_named(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as failure:
        client_security(properties)
    assert complaint in str(failure.value)
    assert PASSWORD not in str(failure.value)


def test_no_secret_is_shown() -> None:
    security = client_security(login())
    assert PASSWORD not in f"{security!r} {security.login!r}"


# Tokens


def of_oauth(**properties: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{module} required clientId="kafka client" clientSecret="a:b" scope="read";',
    } | {name.replace("_", "."): value for name, value in properties.items()}


async def token_of(properties: dict[str, str]) -> str:
    security = client_security(properties)
    assert security.login is not None and security.login.token is not None
    return await security.login.token()


async def test_a_token_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    path = tmp_path / "the token"
    path.write_text("first.token.\n")
    security = client_security(of_oauth(sasl_oauthbearer_token_endpoint_url=path.as_uri()))
    assert security.login is not None and security.login.token is not None
    assert await security.login.token() == "first.token."
    path.write_text("second.token.\n")
    assert await security.login.token() == "second.token."
    path.unlink()
    with pytest.raises(client_security_module.LoginRefused, match=r"cannot read the token in .*No such file"):
        await security.login.token()


class _Issuer(BaseHTTPRequestHandler):
    answers: list[tuple[int, dict[str, Any]]]
    asked: list[tuple[str | None, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], body))
        status, answer = self.answers.pop(0)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...


class _Server(HTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A handshake that the client gives up is no matter of the test's output."""


@contextlib.contextmanager
def serving_tokens(context: ssl.SSLContext | None = None) -> Iterator[tuple[str, type[_Issuer]]]:
    handler = type("Issuer", (_Issuer,), {"answers": [], "asked": []})
    with _Server(("127.0.0.1", 0), handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            scheme = "http" if context is None else "https"
            yield f"{scheme}://127.0.0.1:{server.server_port}/token", handler
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def issuer() -> Iterator[tuple[str, type[_Issuer]]]:
    with serving_tokens() as serving:
        yield serving


async def test_a_token_of_an_endpoint_is_kept_while_it_is_good(issuer: tuple[str, type[_Issuer]]) -> None:
    url, handler = issuer
    handler.answers.append((200, {"access_token": "a.b.c", "expires_in": 3600}))
    security = client_security(of_oauth(sasl_oauthbearer_token_endpoint_url=url))
    assert security.login is not None and security.login.token is not None
    tokens = await asyncio.gather(*(security.login.token() for _ in range(3)))
    assert tokens == ["a.b.c"] * 3
    # RFC 6749, 2.3.1: the secret is form-encoded before it becomes part of the header.
    assert handler.asked == [
        ("Basic a2Fma2ElMjBjbGllbnQ6YSUzQWI=", "grant_type=client_credentials&scope=read")
    ]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ((401, {"error": "invalid_client"}), "answers 401"),
        ((302, {}), "answers 302"),
        ((200, {"token": "x"}), "without an access_token"),
    ],
)
async def test_an_endpoint_that_gives_no_token(
    issuer: tuple[str, type[_Issuer]], answer: tuple[int, dict[str, Any]], complaint: str
) -> None:
    url, handler = issuer
    handler.answers.append(answer)
    with pytest.raises(client_security_module.LoginRefused, match=complaint):
        await token_of(of_oauth(sasl_oauthbearer_token_endpoint_url=url))


async def test_the_endpoint_must_show_a_certificate_that_the_login_module_trusts(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    store = authority.write_pem(tmp_path / "ca.pem")
    options = 'clientId="c" clientSecret="s" ssl.truststore.type="PEM" ssl.truststore.location="{}"'
    with serving_tokens(context_of(authority)) as (url, handler):
        handler.answers.append((200, {"access_token": "a.b.c"}))
        properties = of_oauth(sasl_oauthbearer_token_endpoint_url=url)
        module = properties["sasl.jaas.config"].partition(" ")[0]
        properties["sasl.jaas.config"] = f"{module} required {options.format(store)};"
        assert await token_of(properties) == "a.b.c"
        other = CertificateAuthority("another").write_pem(tmp_path / "other.pem")
        properties["sasl.jaas.config"] = f"{module} required {options.format(other)};"
        with pytest.raises(client_security_module.LoginRefused, match="certificate verify failed"):
            await token_of(properties)
    assert len(handler.asked) == 1, "the secret is not sent to anybody else"


# Brokers that stall


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_a_broker_that_says_nothing_is_waited_for_until_the_deadline(
    authority: CertificateAuthority, protocol: str
) -> None:
    accepted, gone = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass
        writer.close()
        gone.set()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    security = client_security(login(protocol=protocol) | trusting(authority))
    deadline_ms = 50
    while not accepted.is_set():  # a busy machine may not even get as far as connecting in 50 ms
        with pytest.raises(BrokerTimeout):
            await BrokerClient.connect(
                "127.0.0.1",
                server.sockets[0].getsockname()[1],
                client_id="test",
                deadline_ms=deadline_ms,
                security=security,
            )
        deadline_ms *= 2
    async with asyncio.timeout(DEADLINE_SECONDS):
        await gone.wait()  # nothing is left of the connection
    server.close()


async def test_a_login_that_does_not_end_is_given_up() -> None:
    asked = asyncio.Event()

    class Endless:
        """A login of our own side that waits for something."""

        token = None
        mechanism = "PLAIN"

        async def __call__(self, ask: object) -> int:
            asked.set()
            await asyncio.Event().wait()
            return 0

    security = ClientSecurity("SASL_PLAINTEXT", login=Endless())  # type: ignore[arg-type]
    async with SecuredBroker().running() as broker:
        with pytest.raises(BrokerTimeout, match="the login did not end in time"):
            await BrokerClient.connect(
                "127.0.0.1", broker.port, client_id="test", deadline_ms=1_500, security=security
            )
    assert asked.is_set()
