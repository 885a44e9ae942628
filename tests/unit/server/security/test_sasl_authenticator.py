"""A SASL listener, from outside: who gets in, who is thrown out, and what a session is."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.clock import ManualClock
from minikafka.config.client_quotas import QuotaEntity, QuotaType
from minikafka.config.resource import Alteration, AlterOperation, ConfigResource, ConfigResourceType
from minikafka.errors import ConfigError, ErrorCode, KafkaError, PeerProtocolError, StartError
from minikafka.metrics.broker_stats import AuthenticationMetrics
from minikafka.network.connection import Connection
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import decode_response, encode_request
from minikafka.security.acl import ANONYMOUS, KafkaPrincipal
from minikafka.security.jaas import sasl_client
from minikafka.security.sasl import PlainServer, PlainUsers
from minikafka.security.scram import credential_of, make_credential, salted_password
from minikafka.server.broker import Broker
from minikafka.server.config_store import ConfigStore, alter_scram_credentials
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.server.security import sasl_authenticator
from minikafka.server.security.authentication import UNSECURED_VALIDATOR, Authentication
from minikafka.server.security.sasl_authenticator import (
    LOGINS_A_TURN,
    LoginState,
    LoginThreads,
    LoginTurns,
    SaslListener,
    SaslLogin,
    SaslSettings,
)
from tests.unit.network.support import Wire
from tests.unit.server.running import make_broker, running

MODULES = "org.apache.kafka.common.security"
NO_USERS = f"{MODULES}.plain.PlainLoginModule required;"
USERS = f'{MODULES}.plain.PlainLoginModule required user_alice="a-secret" user_bob="b-secret";'
DEADLINE_S = 60
ILLEGAL_STATE, UNSUPPORTED_MECHANISM, FAILED = 34, 33, 58


class Peer:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._count = 0

    def send(self, frame: bytes) -> None:
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def receive(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))

    async def ask(self, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        self._count += 1
        self.writer.write(
            encode_request(
                api_key=key, api_version=version, correlation_id=self._count, client_id="peer", body=body
            )
        )
        return decode_response(api_key=key, api_version=version, frame=await self.receive())[1]

    async def handshake(self, mechanism: str, version: int = 1) -> Any:
        return await self.ask(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})

    async def log_in(self, username: str, password: str, mechanism: str = "PLAIN", version: int = 2) -> Any:
        """The last answer to a SaslAuthenticate."""
        assert (await self.handshake(mechanism)).error_code == 0
        options = {"username": username, "password": password}
        client = sasl_client(mechanism, options, nonce=lambda: "clients-nonce")
        message: bytes | None = client.first()
        while message is not None:
            answer = await self.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": message})
            if answer.error_code:
                return answer
            message = client.next(bytes(answer.auth_bytes))
        return answer

    async def metadata(self) -> Any:
        body = {"topics": [], "allow_auto_topic_creation": False}
        return await self.ask(ApiKey.METADATA, 4, body)

    async def is_closed(self) -> bool:
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read(1) == b""
        return True


class Fixture:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.peers: list[Peer] = []

    @property
    def authentication(self) -> Authentication:
        assert self.broker.services.authentication is not None
        return self.broker.services.authentication

    @property
    def listener(self) -> SaslListener:
        return self.authentication.listeners["SAFE"]

    @property
    def connection(self) -> Connection:
        """Of the last peer."""
        return list(self.listener._logins)[-1]

    async def connect(self, listener: str = "SAFE") -> Peer:
        port = next(each.port for each in self.broker.bound if each.name == listener)
        self.peers.append(Peer(*await asyncio.open_connection("127.0.0.1", port)))
        return self.peers[-1]


def properties(**changed: object) -> dict[str, object]:
    return {
        "listeners": "SAFE://127.0.0.1:0,OPEN://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "inter.broker.listener.name": "OPEN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.safe.plain.sasl.jaas.config": USERS,
        "connection.failed.authentication.delay.ms": 1,
    } | {name.replace("_", "."): value for name, value in changed.items()}


@contextlib.asynccontextmanager
async def secured(path: Path, **changed: object) -> AsyncIterator[Fixture]:
    async with running(path, **properties(**changed)) as broker:
        fixture = Fixture(broker)
        try:
            yield fixture
        finally:
            for peer in fixture.peers:
                peer.writer.close()


async def test_nobody_is_heard_before_the_login(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        for key in [*range(-1, 100), 32767]:
            if key in (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS):
                continue
            peer = await broker.connect()
            peer.send(struct.pack(">hhi", key, 0, 7) + b"\xff\xff" + bytes(20))
            assert await peer.is_closed(), f"api key {key}"
        assert broker.listener.counts.successful == 0


async def test_a_login_with_api_versions_before_and_requests_after(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        peer = await broker.connect()
        unknown = struct.pack(">hhi", ApiKey.API_VERSIONS, 99, 1) + b"\xff\xff"
        peer.send(unknown)
        assert (await peer.receive())[4:6] == struct.pack(">h", 35)
        versions = await peer.ask(ApiKey.API_VERSIONS, 0, {})
        keys = {each.api_key for each in versions.api_keys}
        assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= keys
        assert broker.connection.principal == ANONYMOUS
        answer = await peer.log_in("alice", "a-secret")
        assert (answer.error_code, answer.session_lifetime) == (0, 0)
        assert broker.connection.principal == KafkaPrincipal("User", "alice")
        assert len((await peer.metadata()).brokers) == 1
        assert (await peer.handshake("PLAIN")).error_code == ILLEGAL_STATE  # this session has no end
        assert (await peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b""})).error_code == ILLEGAL_STATE
        assert (await peer.metadata()).brokers


async def test_api_versions_are_asked_for_once(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        peer = await broker.connect()
        await peer.ask(ApiKey.API_VERSIONS, 0, {})
        peer.send(struct.pack(">hhi", ApiKey.API_VERSIONS, 0, 2) + b"\xff\xff")
        assert await peer.is_closed()


async def test_messages_without_requests_around_them(tmp_path: Path) -> None:
    """After SaslHandshake 0 (KIP-43)."""
    async with secured(tmp_path) as broker:
        peer = await broker.connect()
        assert (await peer.handshake("PLAIN", version=0)).error_code == 0
        peer.send(b"\0alice\0a-secret")
        assert await peer.receive() == b""
        assert (await peer.metadata()).brokers
        wrong = await broker.connect()
        await wrong.handshake("PLAIN", version=0)
        wrong.send(b"\0alice\0wrong")
        assert await wrong.is_closed()


async def test_an_unknown_mechanism_is_answered_with_those_there_are(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        peer = await broker.connect()
        answer = await peer.handshake("GSSAPI")
        assert answer.error_code == UNSUPPORTED_MECHANISM
        assert list(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
        assert await peer.is_closed()
        assert broker.listener.counts.failed == 1


async def test_a_failed_login_is_answered_and_closed(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        told = []
        for username, mechanism in (("alice", "PLAIN"), ("bob", "SCRAM-SHA-256")):
            peer = await broker.connect()
            answer = await peer.log_in(username, "wrong", mechanism)
            assert answer.error_code == FAILED
            told.append(answer.error_message)
            assert await peer.is_closed()
        assert told == [
            "Authentication failed: Invalid username or password",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            "SCRAM-SHA-256",
        ]
        assert broker.listener.counts.failed == 2


async def test_cve_2022_34917_a_request_that_is_too_large_closes(tmp_path: Path) -> None:
    """CVE-2022-34917: what is not known to be somebody gets no memory."""
    async with secured(tmp_path, sasl_server_max_receive_size=1000) as broker:
        peer = await broker.connect()
        peer.writer.write(struct.pack(">i", 1001))
        assert await peer.is_closed()
        known = await broker.connect()
        await known.log_in("alice", "a-secret")
        body = {"topics": [{"name": "x" * 2000}], "allow_auto_topic_creation": False}
        assert (await known.ask(ApiKey.METADATA, 4, body)).topics


async def test_a_login_that_takes_too_long_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_authenticator, "LOGIN_SECONDS_MAX", 0.05)
    async with secured(tmp_path) as broker:
        silent, halfway = await broker.connect(), await broker.connect()
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await halfway.handshake("PLAIN")
        assert await silent.is_closed()
        assert await halfway.is_closed()


async def test_a_session_ends_and_begins_again(tmp_path: Path) -> None:
    async with secured(tmp_path, connections_max_reauth_ms=60_000) as broker:
        peer = await broker.connect()
        assert (await peer.log_in("alice", "a-secret")).session_lifetime == 60_000
        counts = broker.listener.counts
        assert (await peer.log_in("alice", "a-secret")).error_code == 0
        assert counts.successful_reauthentication == 1
        assert (await peer.handshake("PLAIN")).error_code == ILLEGAL_STATE  # a second has not passed
        assert (await peer.metadata()).brokers

        login = broker.listener.login_of(broker.connection)
        assert login is not None
        login._began_ms = 0
        login._session_ended()
        assert (await peer.log_in("alice", "a-secret")).error_code == 0
        login._session_ended()
        peer.send(struct.pack(">hhi", ApiKey.METADATA, 4, 9) + bytes(20))
        assert await peer.is_closed()
        assert (counts.expired_killed, counts.successful) == (1, 1)


async def test_a_client_of_before_sessions_is_counted(tmp_path: Path) -> None:
    async with secured(tmp_path, connections_max_reauth_ms=60_000) as broker:
        await (await broker.connect()).log_in("alice", "a-secret", version=0)
        await (await broker.connect()).log_in("alice", "a-secret", version=1)
        counts = broker.listener.counts
        assert (counts.successful, counts.no_reauth) == (2, 1)


@pytest.mark.parametrize(
    ("username", "password", "mechanism", "reason"),
    [
        ("bob", "b-secret", "PLAIN", "Cannot change principals during re-authentication from User.alice"),
        ("alice", "a-secret", "SCRAM-SHA-256", "is not supported for re-authentication of mechanism 'PLAIN'"),
        ("alice", "wrong", "PLAIN", "Invalid username or password"),
    ],
)
async def test_nobody_becomes_somebody_else(
    tmp_path: Path, username: str, password: str, mechanism: str, reason: str
) -> None:
    async with secured(tmp_path, connections_max_reauth_ms=60_000) as broker:
        peer = await broker.connect()
        await peer.log_in("alice", "a-secret")
        answer = await peer.log_in(username, password, mechanism)
        assert answer.error_code == FAILED
        assert reason in answer.error_message
        assert await peer.is_closed()
        assert broker.listener.counts.failed_reauthentication == 1


@pytest.mark.parametrize("is_again", [False, True])
async def test_other_requests_during_an_authentication_fail_it(tmp_path: Path, is_again: bool) -> None:
    """``IllegalSaslStateException``: answered in the schema of what was asked; what cannot be read, or must
    not be answered, closes at once."""
    async with secured(tmp_path, connections_max_reauth_ms=60_000) as broker:

        async def begun() -> Peer:
            peer = await broker.connect()
            if is_again:
                await peer.log_in("alice", "a-secret")
            assert (await peer.handshake("PLAIN")).error_code == 0
            return peer

        for ask in (
            lambda peer: peer.handshake("PLAIN"),
            lambda peer: peer.ask(ApiKey.API_VERSIONS, 0, {}),
            lambda peer: peer.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": []}),
        ):
            peer = await begun()
            assert (await ask(peer)).error_code == ILLEGAL_STATE
            assert await peer.is_closed()
        counts = broker.listener.counts
        assert (counts.failed_reauthentication if is_again else counts.failed) == 3
        for frame in (
            METADATA[4:],
            struct.pack(">hhih", ApiKey.LIST_GROUPS, 4, 9, -1) + b"\0",
            struct.pack(">hhih", ApiKey.METADATA, 99, 9, -1),
            struct.pack(">hhih", ApiKey.CONTROLLED_SHUTDOWN, 0, 9, -1) + bytes(20),
            struct.pack(">hhih", 999, 0, 9, -1),
        ):
            peer = await begun()
            peer.send(frame)
            assert await peer.is_closed()
        assert counts.successful == (8 if is_again else 0)


async def test_a_listener_without_sasl_needs_no_login(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        peer = await broker.connect("OPEN")
        assert (await peer.metadata()).brokers
        assert (await peer.handshake("PLAIN")).error_code == ILLEGAL_STATE
        answer = await peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0a-secret"})
        assert answer.error_code == ILLEGAL_STATE
        assert broker.authentication.login_of(broker.broker._socket_server.connections.popitem()[0]) is None  # type: ignore[union-attr]


# SCRAM credentials


async def test_credentials_and_quotas_live_in_one_node(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        configs = broker.broker.services.configs
        credential = make_credential("SCRAM-SHA-256", "c-secret", salt=b"some salt", iterations=4096)
        await alter_scram_credentials(  # as a tool does it, without this broker
            ConfigStore(broker.broker.services.store), "carol", {"SCRAM-SHA-256": credential}
        )
        await configs.client_quotas.alter(QuotaEntity("carol"), {QuotaType.PRODUCE: 1e6}, validate_only=False)
        await configs.reload("users/carol")
        assert (await (await broker.connect()).log_in("carol", "c-secret", "SCRAM-SHA-256")).error_code == 0
        await configs.scram.alter("carol", {"SCRAM-SHA-256": None})
        await configs.reload("users/carol")
        assert configs.client_quotas._quotas == {QuotaEntity("carol"): {QuotaType.PRODUCE: 1e6}}
        late = await (await broker.connect()).log_in("carol", "c-secret", "SCRAM-SHA-256")
        assert late.error_code == FAILED


async def test_credentials_are_altered_all_or_not_at_all(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        peer = await broker.connect("OPEN")

        def upsertion(name: str, mechanism: int = 1, iterations: int = 4096, size: int = 32) -> Any:
            return {
                "name": name,
                "mechanism": mechanism,
                "iterations": iterations,
                "salt": b"some salt",
                "salted_password": bytes(size),
            }

        body = {
            "deletions": [
                {"name": "missing", "mechanism": 1},
                {"name": "missing and twice", "mechanism": 2},
                {"name": "missing and few", "mechanism": 2},
                {"name": "unknown and many", "mechanism": 3},
            ],
            "upsertions": [
                upsertion("good"),
                upsertion("good", 2, 16384, 64),
                upsertion(""),
                upsertion("few", iterations=4095),
                upsertion("many", iterations=16385),
                upsertion("unknown", mechanism=3),
                upsertion("short", size=31),
                upsertion("missing and twice", 2, size=64),
                upsertion("missing and few", iterations=4095),
                upsertion("unknown and many", iterations=16385),
                upsertion("twice and unknown"),
                upsertion("twice and unknown"),
                upsertion("twice and unknown", mechanism=3),
                upsertion("few and twice", iterations=4095),
                upsertion("few and twice"),
                upsertion("few and twice"),
            ],
        }
        answer = await peer.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, body)
        assert {each.user: each.error_code for each in answer.results} == {
            "missing": 91, "good": 0, "": 93, "few": 93, "many": 93, "unknown": 33, "short": 93,
            "missing and twice": 91, "missing and few": 91, "unknown and many": 33, "twice and unknown": 92,
            "few and twice": 93,
        }  # fmt: skip
        wanted = {"users": [{"name": name} for name in ("good", "few", "good2", "good2", "")]}
        described = await peer.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, wanted)
        assert {each.user: each.error_code for each in described.results} == {
            "good": 0, "few": 91, "good2": 92, "": 91
        }  # fmt: skip
        everybody = await peer.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
        (good,) = everybody.results
        infos = [(each.mechanism, each.iterations) for each in good.credential_infos]
        assert infos == [(1, 4096), (2, 16384)]


def test_what_a_client_sends_is_what_its_password_makes() -> None:
    salted = salted_password("SCRAM-SHA-256", "pencil", b"some salt", 4096)
    assert len(salted) == hashlib.sha256().digest_size
    made = make_credential("SCRAM-SHA-256", "pencil", salt=b"some salt", iterations=4096)
    assert credential_of("SCRAM-SHA-256", salted, b"some salt", 4096) == made


# Configuration


JAAS = "listener.name.safe.plain.sasl.jaas.config"
HANDLER = "sasl.server.callback.handler.class"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({JAAS: f"{MODULES}.plain.PlainLoginModule required a=b;"}, JAAS),
        ({JAAS: "a-secret"}, r"sasl\.jaas\.config"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI.*Kerberos is not there"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, r"sasl\.oauthbearer\.jwks\.endpoint\.url"),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "ftp://issuer",
            },
            "file: or an https: URL",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "file:/keys",
                "sasl.oauthbearer.expected.issuer": "issuer",
            },
            r"needs sasl\.oauthbearer\.expected\.audience: set it, or "
            r"sasl\.oauthbearer\.allow\.unverified\.audience=true",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "file:/keys",
                "sasl.oauthbearer.allow.unverified.audience": "true",
            },
            r"needs sasl\.oauthbearer\.expected\.issuer",
        ),
        ({f"listener.name.safe.plain.{HANDLER}": "com.example.Mine"}, "no Java class"),
    ],
)
async def test_what_cannot_work_does_not_start(
    tmp_path: Path, changed: dict[str, object], reason: str
) -> None:
    with pytest.raises((ConfigError, StartError), match=reason) as caught:
        await make_broker(tmp_path, **(properties() | changed)).start()
    assert "a-secret" not in str(caught.value)


async def test_the_unsecured_mechanism_must_be_named(tmp_path: Path) -> None:
    changed = {"sasl.enabled.mechanisms": "OAUTHBEARER", HANDLER: UNSECURED_VALIDATOR}
    async with running(tmp_path, **(properties() | changed)) as broker:
        assert broker.services.authentication is not None


async def test_users_change_while_the_broker_runs(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        changed = properties() | {
            "listener.name.safe.plain.sasl.jaas.config": USERS.replace("a-secret", "new-secret"),
            "log.dirs": str(tmp_path),
        }
        from minikafka.config.broker import broker_config

        broker.authentication.reconfigure(broker_config({name: str(text) for name, text in changed.items()}))
        assert (await (await broker.connect()).log_in("alice", "a-secret")).error_code == FAILED
        assert (await (await broker.connect()).log_in("alice", "new-secret")).error_code == 0


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"listener.name.safe.plain.sasl.jaas.config": "rubbish"},
            r"listener\.name\.safe\.plain\.sasl\.jaas",
        ),
        ({"listener.name.safe.plain.sasl.jaas.config": NO_USERS}, r"set listener\.name\.safe\.plain\.sasl"),
        ({"listener.name.safe.sasl.enabled.mechanisms": "GSSAPI"}, r"listener\.name\.safe\.sasl\.enabled"),
        ({"listener.name.safe.sasl.enabled.mechanisms": ""}, r"listener\.name\.safe\.sasl\.enabled"),
        ({"listener.name.safe.connections.max.reauth.ms": "soon"}, r"connections\.max\.reauth\.ms"),
        ({"connections.max.reauth.ms": "1"}, r"Cannot update .* dynamically: Set\(connections\.max\.reauth"),
    ],
)
async def test_logins_that_cannot_work_are_not_set_while_the_broker_runs(
    tmp_path: Path, changed: dict[str, str], reason: str
) -> None:
    """INVALID_REQUEST, as Kafka's for every value of a broker that cannot be used (KAFKA-13609)."""
    extra = {"password.encoder.secret": "s3cret"}
    async with running(tmp_path, **(properties() | extra)) as broker:
        configs = broker.services.configs
        resource = ConfigResource(ConfigResourceType.BROKER, str(broker.services.config.node_id))
        by_name = [Alteration(name, AlterOperation.SET, value) for name, value in changed.items()]
        for alter in (
            lambda: configs.alter(resource, changed),
            lambda: configs.alter_incrementally(resource, by_name, validate_only=True),
        ):
            with pytest.raises(KafkaError, match=reason) as refused:
                await alter()
            assert refused.value.code == ErrorCode.INVALID_REQUEST
        assert broker.services.authentication is not None
        assert list(broker.services.authentication.listeners["SAFE"].settings.mechanisms) == [
            "PLAIN",
            "SCRAM-SHA-256",
        ]


# Attacks


async def test_random_frames_let_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_authenticator, "LOGINS_A_TURN", 1 << 30)
    users = PlainUsers({"user_alice": "a-secret"})
    threads = LoginThreads()
    listener = SaslListener(
        "SAFE",
        SaslSettings({"PLAIN": lambda: PlainServer(users.check)}, {"PLAIN": 1}, 1 << 16, 0),
        clock=ManualClock(),
        scheduler=WorkScheduler(ManualClock()),
        turns=LoginTurns(),
        threads=threads,
        handler=lambda connection, frame: (b"",),
        request_bytes_max=1 << 20,
        counts=AuthenticationMetrics(),
    )
    handshake = encode_request(
        api_key=17, api_version=1, correlation_id=1, client_id=None, body={"mechanism": "PLAIN"}
    )[4:]
    raw = encode_request(
        api_key=17, api_version=0, correlation_id=1, client_id=None, body={"mechanism": "PLAIN"}
    )[4:]
    keys = st.sampled_from([17, 36, 18, 3])
    requests = st.builds(
        lambda key, version, rest: struct.pack(">hhi", key, version, 1) + rest,
        keys,
        st.integers(0, 3),
        st.binary(max_size=60),
    )
    frames = st.lists(st.binary(max_size=60) | requests | st.sampled_from([handshake, raw]), max_size=5)

    @given(frames)
    @settings(deadline=None, max_examples=300)
    def check(contents: list[bytes]) -> None:
        wire = Wire(lambda connection, frame: None)
        listener.opened(wire.connection)
        login = listener.login_of(wire.connection)
        assert isinstance(login, SaslLogin)
        for content in contents:
            try:
                login(wire.connection, content)
            except PeerProtocolError:
                break
        assert login.state is not LoginState.DONE
        assert wire.connection.principal == ANONYMOUS
        listener.closed(wire.connection)

    check()
    threads.close()
    assert listener.counts.successful == 0


def sent(key: ApiKey, version: int, **body: object) -> bytes:
    """A request with its size."""
    return encode_request(api_key=key, api_version=version, correlation_id=1, client_id=None, body=body)


HANDSHAKE = sent(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
RIGHT, WRONG = (
    sent(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0" + password)
    for password in (b"a-secret", b"wrong")
)
METADATA = sent(ApiKey.METADATA, 4, topics=[], allow_auto_topic_creation=False)


async def test_requests_behind_the_last_message_are_the_users(tmp_path: Path) -> None:
    """They come in one piece with the login, and are asked by who has logged in."""
    async with secured(tmp_path) as broker:
        peer = await broker.connect()
        peer.writer.write(HANDSHAKE + RIGHT + METADATA + WRONG)
        for _ in range(2):
            await peer.receive()
        _, answer = decode_response(api_key=3, api_version=4, frame=await peer.receive())
        assert answer.brokers
        assert broker.connection.principal == KafkaPrincipal("User", "alice")
        _, late = decode_response(api_key=36, api_version=2, frame=await peer.receive())
        assert late.error_code == ILLEGAL_STATE  # one login is over, and no other has begun
        assert broker.listener.counts.failed == 0


@pytest.mark.parametrize("behind", [METADATA, RIGHT, HANDSHAKE + RIGHT])
async def test_requests_behind_a_login_that_fails_are_not_heard(tmp_path: Path, behind: bytes) -> None:
    async with secured(tmp_path) as broker:
        peer = await broker.connect()
        peer.writer.write(HANDSHAKE + WRONG + behind)
        await peer.receive()
        _, answer = decode_response(api_key=36, api_version=2, frame=await peer.receive())
        assert answer.error_code == FAILED
        assert await peer.is_closed()
        assert broker.listener.counts.successful == 0


async def test_a_large_request_behind_a_login_waits_for_its_end(tmp_path: Path) -> None:
    """What is too large for a login is refused until a client has logged in, and taken afterwards."""
    large = sent(ApiKey.METADATA, 4, topics=[{"name": "x" * 2000}], allow_auto_topic_creation=False)
    async with secured(tmp_path, sasl_server_max_receive_size=1000) as broker:
        early = await broker.connect()
        early.writer.write(HANDSHAKE + large + RIGHT)
        await early.receive()
        assert await early.is_closed()
        assert broker.listener.counts.successful == 0
        known = await broker.connect()
        known.writer.write(HANDSHAKE + RIGHT)
        for _ in range(2):
            await known.receive()
        known.writer.write(large)
        _, answer = decode_response(api_key=3, api_version=4, frame=await known.receive())
        assert answer.topics


async def test_a_revoked_user_is_gone_at_the_next_reauthentication(tmp_path: Path) -> None:
    """The open connection goes on until then, as with Kafka; ``kill_sessions`` ends it at once."""
    async with secured(tmp_path, connections_max_reauth_ms=60_000) as broker:
        admin = await broker.connect("OPEN")
        upsertion = {
            "name": "carol", "mechanism": 1, "iterations": 4096, "salt": b"some salt",
            "salted_password": salted_password("SCRAM-SHA-256", "c-secret", b"some salt", 4096),
        }  # fmt: skip
        made = await admin.ask(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": [upsertion]}
        )
        assert made.results[0].error_code == 0
        peer = await broker.connect()
        assert (await peer.log_in("carol", "c-secret", "SCRAM-SHA-256")).error_code == 0
        gone = {"deletions": [{"name": "carol", "mechanism": 1}], "upsertions": []}
        await admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, gone)
        assert (await peer.metadata()).brokers
        assert (await peer.log_in("carol", "c-secret", "SCRAM-SHA-256")).error_code == FAILED
        assert await peer.is_closed()


@pytest.mark.parametrize("moment", ["after the login", "during a re-authentication", "after the session"])
async def test_random_frames_later_on_change_nobody(tmp_path: Path, moment: str) -> None:
    """Whatever a user sends, it remains that user, and others are served."""
    rng = random.Random(moment)
    async with secured(tmp_path, connections_max_reauth_ms=60_000) as broker:
        for _ in range(40):
            peer = await broker.connect()
            assert (await peer.log_in("alice", "a-secret")).error_code == 0
            connection = broker.connection
            if moment == "during a re-authentication":
                assert (await peer.handshake("PLAIN")).error_code == 0
            elif moment == "after the session":
                login = broker.listener.login_of(connection)
                assert login is not None
                login._session_ended()
            key, version = (
                rng.choice([0, 1, 3, 10, 17, 18, 29, 36, 38, 50, rng.randrange(100)]),
                rng.randrange(5),
            )
            peer.send(struct.pack(">hhih", key, version, 1, -1) + rng.randbytes(rng.randrange(60)))
            peer.send(rng.randbytes(rng.randrange(1, 60)))
            peer.writer.write_eof()
            async with asyncio.timeout(DEADLINE_S):
                with contextlib.suppress(ConnectionError):
                    await peer.reader.read()
            assert connection.principal == KafkaPrincipal("User", "alice")
        known = await broker.connect()
        assert (await known.log_in("bob", "b-secret")).error_code == 0
        assert (await known.metadata()).brokers


async def test_a_turn_of_the_loop_has_few_steps_of_logins() -> None:
    turns, done, at = LoginTurns(), [], []
    turn = 0

    def take(number: int) -> None:
        done.append(number)
        at.append(turn)

    async def one(number: int) -> None:
        for waits_for in turns.wait():
            await waits_for
        take(number)

    tasks = [asyncio.create_task(one(number)) for number in range(100)]
    while len(done) < 100:
        await asyncio.sleep(0)
        turn += 1
    await asyncio.gather(*tasks)
    assert done == list(range(100))
    assert max(at.count(each) for each in set(at)) <= 2 * LOGINS_A_TURN
