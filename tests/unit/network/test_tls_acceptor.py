"""TLS on real sockets, on both event loops: handshakes that go well, fail and stall, and the bytes after."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.config.listeners import Listener
from minikafka.network import tls_acceptor
from minikafka.network.connection import Connection, Handler, Result
from minikafka.network.socket_server import Gate, SocketServer
from minikafka.network.tls_acceptor import HEADER_BYTES, PIECE_BYTES, Handshakes, _Unread
from minikafka.security.acl import ANONYMOUS, KafkaPrincipal
from minikafka.security.certificate_principal import SslPrincipalMapper
from minikafka.security.tls import client_context, server_context
from minikafka.security.tls_settings import TlsSettings, client_tls_settings
from minikafka.types import Buffer
from tests.support.certificates import EXPIRED, NOT_YET_VALID, CertificateAuthority, Credential
from tests.unit.network.support import DEADLINE_SECONDS, MemoryTransport, echo, framed, until


def settings_of(
    authority: CertificateAuthority, credential: Credential | None = None, **properties: str
) -> TlsSettings:
    """With stores as texts; ``ssl_x_y="…"`` sets ``ssl.x.y``."""
    texts = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem()}
    if credential is not None:
        texts |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": credential.key_pem(),
            "ssl.keystore.certificate.chain": credential.chain_pem(),
        }
    return client_tls_settings(texts | {name.replace("_", "."): text for name, text in properties.items()})


@dataclass
class Tls:
    """What a listener has; its context can be exchanged."""

    current: ssl.SSLContext
    mapper: SslPrincipalMapper = field(default_factory=lambda: SslPrincipalMapper("DEFAULT"))

    def context(self) -> ssl.SSLContext:
        return self.current

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        return self.mapper.principal(certificate)


class Served:
    """A server that echoes, and says who asks when asked ``who``."""

    def __init__(self, tls: Tls, server: SocketServer) -> None:
        self.tls = tls
        self.server = server

    @property
    def handshakes(self) -> Handshakes:
        assert self.server.handshakes is not None
        return self.server.handshakes

    async def connect(
        self, context: ssl.SSLContext | None, host: str = "localhost"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = self.server.bound_port("SSL")
        return await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=host if context else None
        )

    async def asks(self, context: ssl.SSLContext, question: bytes = b"who", host: str = "localhost") -> bytes:
        """The answer to one frame. Raises what the connection does."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            reader, writer = await self.connect(context, host)
            try:
                return await exchange(reader, writer, question)
            finally:
                writer.close()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, content: bytes) -> bytes:
    async with asyncio.timeout(DEADLINE_SECONDS):
        writer.write(framed(content))
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)


def who(connection: Connection, frame: Buffer) -> Result:
    if bytes(frame) == b"who":
        return (framed(str(connection.principal).encode()),)
    return echo(connection, frame)


@contextlib.asynccontextmanager
async def serving(
    tls: Tls, gates: Mapping[str, Gate] | None = None, *, handler: Handler = who, **limits: Any
) -> AsyncIterator[Served]:
    server = SocketServer([Listener("SSL", "127.0.0.1", 0, "SSL")], handler, tls={"SSL": tls}, gates=gates)
    await server.start()
    if limits:
        server.handshakes = Handshakes(asyncio.get_running_loop(), **limits)
        server.stop_accepting()
        server._ports.clear()
        for listener in server._listeners:
            await server._bind(asyncio.get_running_loop(), listener)
    try:
        yield Served(tls, server)
    finally:
        await server.close()


ALERT, FATAL, HANDSHAKE_FAILURE, PROTOCOL_VERSION = 21, 2, 40, 70
"""Of TLS: a record's type, an alert's level, and two reasons."""
AUTHORITY = CertificateAuthority()
BROKER = AUTHORITY.issue("broker")
ALICE = AUTHORITY.issue("alice")


def server_tls(credential: Credential = BROKER, *, rules: str = "DEFAULT", **properties: str) -> Tls:
    context = server_context(settings_of(AUTHORITY, credential, **properties))
    return Tls(context, SslPrincipalMapper(rules))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_large_and_many_small_frames_come_and_go(version: str) -> None:
    async with serving(server_tls()) as served:
        context = client_context(settings_of(AUTHORITY, ssl_enabled_protocols=version))
        reader, writer = await served.connect(context)
        assert writer.get_extra_info("ssl_object").version() == version
        large = random.Random(1).randbytes(3 << 20)
        assert await exchange(reader, writer, large) == large
        writer.write(b"".join(framed(b"%d" % index) for index in range(2000)))
        for index in range(2000):
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert await reader.readexactly(size) == b"%d" % index
        (connection,) = served.server.connections
        assert connection.principal is ANONYMOUS
        writer.close()
        await until(lambda: not served.server.connections)


async def test_records_of_one_byte_give_the_loop_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of them fit into what is read at once."""
    monkeypatch.setattr(tls_acceptor, "RECORDS_PER_TURN", 100)
    chunks: list[int] = []
    received = Connection.data_received

    def counted(self: Connection, data: bytes) -> None:
        chunks.append(len(data))
        received(self, data)

    monkeypatch.setattr(Connection, "data_received", counted)
    async with serving(server_tls()) as served:
        reader, writer = await served.connect(client_context(settings_of(AUTHORITY)))
        content = random.Random(3).randbytes(5_000)
        for byte in framed(content):
            writer.write(bytes((byte,)))
        size = int.from_bytes(await reader.readexactly(4), "big")
        assert await reader.readexactly(size) == content
        assert max(chunks) <= 100 and sum(chunks) == 5_004
        assert await exchange(reader, writer, b"and on") == b"and on"
        writer.close()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_client_is_who_its_certificate_says(version: str) -> None:
    rules = "RULE:^CN=(a.*)$/$1/U,DEFAULT"
    tls = server_tls(rules=rules, ssl_client_auth="requested", ssl_enabled_protocols=version)
    async with serving(tls) as served:
        assert await served.asks(client_context(settings_of(AUTHORITY, ALICE))) == b"User:ALICE"
        other = AUTHORITY.issue("bob")
        assert await served.asks(client_context(settings_of(AUTHORITY, other))) == b"User:CN=bob"
        assert await served.asks(client_context(settings_of(AUTHORITY))) == b"User:ANONYMOUS"


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    ("who", "reason"),
    [
        ("nobody", "shows no certificate"),
        ("expired", "certificate has expired"),
        ("not yet valid", "certificate is not yet valid"),
        ("foreign", "unable to get local issuer certificate"),
        ("revoked", "certificate revoked"),
        ("not for clients", "unsuitable certificate purpose"),
        ("no rule", "no rule of ssl.principal.mapping.rules applies to CN=carol"),
    ],
)
async def test_who_does_not_belong_is_told_so_and_is_gone(
    version: str, who: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    revoked = AUTHORITY.issue("mallory")
    credentials: Mapping[str, Credential | None] = {
        "nobody": None,
        "expired": AUTHORITY.issue("alice", valid=EXPIRED),
        "not yet valid": AUTHORITY.issue("alice", valid=NOT_YET_VALID),
        "foreign": CertificateAuthority("another").issue("alice"),
        "revoked": revoked,
        "not for clients": AUTHORITY.issue("alice", usages=[ssl_server_usage()]),
        "no rule": AUTHORITY.issue("carol"),
    }
    lists = tmp_path / "revoked.pem"
    lists.write_text(AUTHORITY.revocation_list(revoked))
    tls = server_tls(
        rules="RULE:^CN=alice$/alice/",
        ssl_client_auth="required",
        ssl_enabled_protocols=version,
        ssl_crl_location=str(lists),
    )
    context = client_context(settings_of(AUTHORITY, credentials[who]))
    with caplog.at_level(logging.INFO, tls_acceptor.__name__):
        async with serving(tls) as served:
            # No rule: the handshake itself went well, so TLS has no alert for it.
            told = (OSError, asyncio.IncompleteReadError) if who == "no rule" else ssl.SSLError
            with pytest.raises(told):
                await served.asks(context)
            await until(lambda: not served.server.connections)
            assert await served.asks(client_context(settings_of(AUTHORITY, ALICE))) == b"User:alice"
            assert served.handshakes.failed == {"SSL": 1}
            assert served.handshakes.done == {"SSL": 1}
    (line,) = [record.getMessage() for record in caplog.records]
    assert reason in line
    assert "127.0.0.1:" in line


def ssl_server_usage() -> Any:
    from cryptography.x509.oid import ExtendedKeyUsageOID

    return ExtendedKeyUsageOID.SERVER_AUTH


@pytest.mark.parametrize(
    ("server", "host", "trusted", "why"),
    [
        (AUTHORITY.issue(hosts=["elsewhere"]), "localhost", AUTHORITY, "Hostname mismatch"),
        (AUTHORITY.issue(valid=EXPIRED), "localhost", AUTHORITY, "has expired"),
        (BROKER, "localhost", CertificateAuthority("another"), "unable to get local issuer"),
    ],
)
async def test_a_client_refuses_a_wrong_server(
    server: Credential,
    host: str,
    trusted: CertificateAuthority,
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, tls_acceptor.__name__):
        async with serving(server_tls(server)) as served:
            with pytest.raises(ssl.SSLCertVerificationError, match=why):
                await served.asks(client_context(settings_of(trusted)), host=host)
            await until(lambda: not served.server.connections)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "the peer refuses" in line or "ended its handshake" in line


async def test_host_names_are_not_looked_at_when_that_is_switched_off() -> None:
    async with serving(server_tls(AUTHORITY.issue(hosts=["elsewhere"]))) as served:
        settings = settings_of(AUTHORITY, ssl_endpoint_identification_algorithm="")
        assert await served.asks(client_context(settings)) == b"User:ANONYMOUS"


@pytest.mark.parametrize(
    ("first_bytes", "reason"),
    [
        (framed(b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00"), "does not speak TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP"),
        (bytes(range(7, 60)), "does not speak TLS"),
    ],
)
async def test_another_protocol_on_the_port_is_named(
    first_bytes: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, tls_acceptor.__name__):
        async with serving(server_tls()) as served:
            reader, writer = await served.connect(None)
            writer.write(first_bytes)
            async with asyncio.timeout(DEADLINE_SECONDS):
                await reader.read()
            writer.close()
            await until(lambda: not served.server.connections)
    (line,) = [record.getMessage() for record in caplog.records]
    assert reason in line


async def test_tls_on_a_plaintext_port_is_named(caplog: pytest.LogCaptureFixture) -> None:
    server = SocketServer([Listener("PLAINTEXT", "127.0.0.1", 0)], echo)
    await server.start()
    with caplog.at_level(logging.WARNING), pytest.raises((ssl.SSLError, OSError)):
        await asyncio.open_connection(
            "127.0.0.1",
            server.bound_port("PLAINTEXT"),
            ssl=client_context(settings_of(AUTHORITY)),
            server_hostname="localhost",
        )
    await server.close()
    assert "the peer speaks TLS, this listener does not" in caplog.text


@pytest.mark.parametrize("minor", [0, 1, 2], ids=["SSLv3", "TLSv1.0", "TLSv1.1"])
async def test_a_downgrade_is_refused_with_an_alert(minor: int) -> None:
    """By hand: no OpenSSL of today says hello in such a version."""
    suites = bytes.fromhex("c009c00ac013c014002f0035")
    hello = bytes((3, minor)) + bytes(32) + b"\0" + len(suites).to_bytes(2) + suites + b"\1\0"
    handshake = b"\1" + len(hello).to_bytes(3) + hello
    async with serving(server_tls()) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.bound_port("SSL"))
        writer.write(bytes((22, 3, minor)) + len(handshake).to_bytes(2) + handshake)
        async with asyncio.timeout(DEADLINE_SECONDS):
            answer = await reader.readexactly(7)
        assert answer[0] == ALERT
        assert answer[-2] == FATAL and answer[-1] in (HANDSHAKE_FAILURE, PROTOCOL_VERSION)
        assert served.handshakes.failed == {"SSL": 1}
        writer.close()


class CountingGate:
    """Says what it was told of, and lets everything through."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def opened(self, connection: Connection) -> None:
        self.told.append(("opened", str(connection.principal)))

    def closed(self, connection: Connection) -> None:
        self.told.append(("closed", str(connection.principal)))


async def test_a_login_begins_when_the_handshake_is_done() -> None:
    """So a slow handshake, which has a deadline of its own, takes no time of the login's deadline."""
    gate = CountingGate()
    tls = server_tls(ssl_client_auth="required")
    async with serving(tls, gates={"SSL": gate}) as served:
        _, writer = await served.connect(None)
        await until(lambda: len(served.handshakes) == 1)
        assert gate.told == []
        writer.close()
        await until(lambda: not served.server.connections)
        assert gate.told == [("closed", "User:ANONYMOUS")]
        gate.told.clear()
        assert await served.asks(client_context(settings_of(AUTHORITY, ALICE))) == b"User:CN=alice"
        await until(lambda: not served.server.connections)
        assert gate.told == [("opened", "User:CN=alice"), ("closed", "User:CN=alice")]


async def test_a_new_context_holds_from_the_next_connection_on() -> None:
    async with serving(server_tls()) as served:
        old, new = AUTHORITY, CertificateAuthority("new")
        reader, writer = await served.connect(client_context(settings_of(old)))
        assert await exchange(reader, writer, b"before") == b"before"
        served.tls.current = server_context(settings_of(new, new.issue("broker")))
        assert await exchange(reader, writer, b"still here") == b"still here"
        with pytest.raises(ssl.SSLCertVerificationError):
            await served.asks(client_context(settings_of(old)))
        assert await served.asks(client_context(settings_of(new)), b"x") == b"x"
        assert await exchange(reader, writer, b"to the end") == b"to the end"
        writer.close()


async def test_a_stalled_handshake_ends_at_its_deadline(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, tls_acceptor.__name__):
        async with serving(server_tls(), seconds_max=0.2) as served:
            silent, writer = await served.connect(None)
            halfway, other_writer = await served.connect(None)
            other_writer.write(hello()[:50])
            async with asyncio.timeout(DEADLINE_SECONDS):
                for reader in (silent, halfway):
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
            writer.close()
            other_writer.close()
            await until(lambda: not served.server.connections)
            assert len(served.handshakes) == 0
    assert caplog.text.count("is not done: no end after 0.2 s") == 2


async def test_of_too_many_handshakes_the_oldest_goes() -> None:
    async with serving(server_tls(), count_max=2) as served:
        first, second, third = [await served.connect(None) for _ in range(3)]
        async with asyncio.timeout(DEADLINE_SECONDS):
            with contextlib.suppress(ConnectionError):
                assert await first[0].read() == b""
        await until(lambda: len(served.server.connections) == 2)
        assert await served.asks(client_context(settings_of(AUTHORITY))) == b"User:ANONYMOUS"
        for _, writer in (first, second, third):
            writer.close()


async def test_a_handshake_in_its_thread_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """While OpenSSL computes for one connection, another one is served."""
    async with serving(server_tls()) as served:
        reader, writer = await served.connect(client_context(settings_of(AUTHORITY)))
        assert await exchange(reader, writer, b"before") == b"before"
        entered, release = threading.Event(), threading.Event()
        original = Handshakes.step

        def slow(self: Handshakes, ssl_object: ssl.SSLObject) -> asyncio.Future[None]:
            class Slow:
                def do_handshake(self) -> None:
                    entered.set()
                    assert release.wait(DEADLINE_SECONDS)
                    ssl_object.do_handshake()

            return original(self, Slow())  # type: ignore[arg-type]

        monkeypatch.setattr(Handshakes, "step", slow)
        waiting = asyncio.ensure_future(served.asks(client_context(settings_of(AUTHORITY)), b"late"))
        await until(entered.is_set)
        assert await exchange(reader, writer, b"meanwhile") == b"meanwhile"
        assert not waiting.done()
        release.set()
        assert await waiting == b"late"
        writer.close()


async def test_what_comes_during_a_step_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does not touch OpenSSL's object meanwhile, and no more is read."""
    loop = asyncio.get_running_loop()
    handshakes = Handshakes(loop)
    step: asyncio.Future[None] = loop.create_future()
    monkeypatch.setattr(Handshakes, "step", lambda self, ssl_object: step)
    above = AboveTls()
    transport = tls_acceptor.TlsTransport(above, listener_name="SSL", tls=server_tls(), handshakes=handshakes)
    below = MemoryTransport(transport)
    transport.connection_made(below)
    greeting = hello()
    transport.data_received(greeting[:-1])
    assert not below.reading
    transport.data_received(greeting[-1:])
    ssl_object = transport.get_extra_info("ssl_object")
    with pytest.raises(ssl.SSLWantReadError):
        ssl_object.do_handshake()
    assert ssl_object.cipher() is None, "it has seen all but the last byte"
    monkeypatch.undo()
    step.set_exception(ssl.SSLWantReadError())
    await until(lambda: bool(below.writes))
    assert below.take().startswith(b"\x16\x03\x03"), "a ServerHello"
    transport.abort()
    transport.connection_lost(None)
    assert above.is_lost and len(handshakes) == 0
    handshakes.close()


async def test_what_comes_ahead_of_a_handshakes_end_is_bounded_for_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """CVE-2022-34917: the peers have proved nothing, and steps wait for a thread."""
    caplog.set_level(logging.INFO)
    loop = asyncio.get_running_loop()
    handshakes = Handshakes(loop)
    monkeypatch.setattr(Handshakes, "step", lambda self, ssl_object: loop.create_future())
    monkeypatch.setattr(tls_acceptor, "HANDSHAKE_BYTES_MAX", 1 << 20)
    tls = server_tls()
    transports = []
    for _ in range(10):
        transport = tls_acceptor.TlsTransport(AboveTls(), listener_name="SSL", tls=tls, handshakes=handshakes)
        transport.connection_made(MemoryTransport(transport))
        transport.data_received(hello() + bytes(1 << 18))
        transports.append(transport)
    assert len(handshakes) == 4
    assert handshakes.unread_bytes <= 1 << 20
    assert "too much has come ahead" in caplog.text
    assert handshakes.failed == {"SSL": 6}
    small = tls_acceptor.TlsTransport(AboveTls(), listener_name="SSL", tls=tls, handshakes=handshakes)
    small.connection_made(MemoryTransport(small))
    small.data_received(hello())
    assert len(handshakes) == 5, "a handshake as all are is not refused"
    for transport in [*transports, small]:
        transport.connection_lost(None)
    handshakes.close()


async def test_what_tls_has_read_ahead_counts_as_what_is_read_in_plain_does() -> None:
    """A chunk is handed up to its end also to a connection that is not read any more; no other is read."""
    seen: list[bytes] = []

    def once(connection: Connection, frame: Buffer) -> Result:
        seen.append(bytes(frame))
        connection.mute()
        return (framed(b"once"),)

    async with serving(server_tls(), handler=once) as served:
        reader, writer = await served.connect(client_context(settings_of(AUTHORITY)))
        writer.write(b"".join(framed(b"x" * 96) for _ in range(20_000)))
        await until(lambda: bool(seen))
        (connection,) = served.server.connections
        budget = served.server.budget
        await until(lambda: "muted" in repr(connection))
        ahead_bytes = connection.held_bytes
        assert 0 < ahead_bytes == budget.frame_bytes < 600_000 < 20_000 * 100
        assert await reader.readexactly(8) == framed(b"once")
        assert connection.held_bytes == ahead_bytes, "no more is read"
        connection.unmute()
        assert await reader.readexactly(8) == framed(b"once")
        writer.close()
        connection.abort()
        await until(lambda: not served.server.connections)
        assert budget.used_bytes == 0


class AboveTls(asyncio.Protocol):
    is_lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


async def test_closing_says_so_in_tls() -> None:
    """The server's close is no truncation: what it said before it is whole."""
    async with serving(server_tls()) as served:
        reader, writer = await served.connect(client_context(settings_of(AUTHORITY)))
        assert await exchange(reader, writer, b"x") == b"x"
        (connection,) = served.server.connections
        connection.close()
        assert connection.is_closing
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await reader.read() == b""
        writer.close()
        await until(lambda: not served.server.connections)


async def test_a_peer_that_does_not_read_stops_being_read() -> None:
    async with serving(server_tls()) as served:
        reader, writer = await served.connect(client_context(settings_of(AUTHORITY)))
        content = random.Random(2).randbytes(1 << 20)
        count = 60

        async def send() -> None:
            for _ in range(count):
                writer.write(framed(content))
                await writer.drain()

        sending = asyncio.ensure_future(send())
        await until(lambda: any("peer does not read" in repr(each) for each in served.server.connections))
        async with asyncio.timeout(DEADLINE_SECONDS):
            for _ in range(count):
                await reader.readexactly(4)
                assert await reader.readexactly(len(content)) == content
        await sending
        writer.close()


def hello() -> bytes:
    """A ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(settings_of(AUTHORITY)).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def a_record(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 4, 5, 100, 5_000, 16_401, 17_000, 60_000]), max_size=12),
    st.lists(st.integers(1, 40_000) | st.integers(1, 8), min_size=1, max_size=30),
    st.booleans(),
)
def test_openssl_gets_whole_records_however_they_come(
    sizes: list[int], cuts: list[int], eagerly: bool
) -> None:
    """``eagerly``: what there is is taken before more comes."""
    stream = b"".join(map(a_record, sizes))
    ends = set(itertools.accumulate(HEADER_BYTES + size for size in sizes))
    unread, given_bytes, position = _Unread(), b"", 0
    chunks = itertools.cycle(cuts)
    while position < len(stream) or len(unread):
        if position < len(stream) and (eagerly or not len(unread)):
            chunk = stream[position : position + next(chunks)]
            unread.add(chunk)
            position += len(chunk)
        while len(unread):
            there = given_bytes + bytes(unread._bytes)
            piece = bytes(unread.next_piece())
            assert 0 < len(piece) <= PIECE_BYTES
            begun, given_bytes = len(given_bytes), given_bytes + piece
            within = [end for end in ends if begun < end <= min(len(there), begun + PIECE_BYTES)]
            assert not within or len(given_bytes) == max(within)
            if not eagerly:
                break
    assert given_bytes == stream
    assert not unread.next_piece()


@given(st.binary(max_size=80_000), st.integers(1, 30_000))
def test_what_is_no_tls_is_given_to_openssl_all_the_same(data: bytes, cut: int) -> None:
    unread, given_bytes = _Unread(), b""
    for start in range(0, len(data), cut):
        unread.add(data[start : start + cut])
        given_bytes += bytes(unread.next_piece())
    while piece := unread.next_piece():
        assert len(piece) <= PIECE_BYTES
        given_bytes += bytes(piece)
    assert given_bytes == data
