"""The HTTP port with TLS: who speaks it is served, who does not harms nobody, a new certificate is taken."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from minikafka.errors import ConfigError
from minikafka.server.http import server as http_server
from minikafka.server.http.server import HttpRequest, HttpResponse, HttpTls
from minikafka.testing import Broker
from tests.support.certificates import CertificateAuthority
from tests.unit.server.http_client import ask

TOKEN = "sesame-of-prometheus"
BEARER = {"authorization": f"Bearer {TOKEN}"}
AUTHORITY = CertificateAuthority()


@asynccontextmanager
async def running(directory: Path, **config: str) -> AsyncIterator[Broker]:
    AUTHORITY.issue("broker").write_pem(directory / "http.pem")
    properties = {
        "http.port": "0",
        "http.ssl.keystore.type": "PEM",
        "http.ssl.keystore.location": str(directory / "http.pem"),
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    async with Broker(config=properties) as broker:
        yield broker


def address_of(broker: Broker) -> tuple[str, int]:
    address = broker.server.http_address
    assert address is not None
    return "localhost", address.port


def trusting(authority: CertificateAuthority = AUTHORITY) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem())


async def test_pages_are_read_over_tls_with_a_token_and_probes_without(tmp_path: Path) -> None:
    async with running(tmp_path, http_bearer_token=TOKEN, http_basic_auth_users="ops:s3cret") as broker:
        address = address_of(broker)
        assert (await ask(address, "/metrics", tls=trusting())).status == 401
        assert (await ask(address, "/metrics", tls=trusting(), headers=BEARER)).status == 200
        user = {"authorization": f"Basic {base64.b64encode(b'ops:s3cret').decode()}"}
        assert (await ask(address, "/status.json", tls=trusting(), headers=user)).status == 200
        assert (await ask(address, "/healthz", tls=trusting())).body == b"ok\n"
        broker.server.services.metadata_received.clear()
        assert (await ask(address, "/readyz", tls=trusting())).body == b"not ready\n"
        told = await ask(address, "/readyz", tls=trusting(), headers=BEARER)
        assert b"no controller has said" in told.body
        counts = broker.server.services.security_metrics.of("HTTP")
        assert (counts.successful, counts.failed) == (3, 0)


async def test_a_large_page_comes_whole_over_tls(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        answer = await ask(address_of(broker), "/metrics", tls=trusting())
        assert len(answer.body) > 10_000
        assert int(answer.headers["content-length"]) == len(answer.body)


async def test_who_speaks_no_tls_is_counted_and_others_are_served(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await ask(address_of(broker), "/metrics")
        page = (await ask(address_of(broker), "/metrics", tls=trusting())).body.decode()
        assert 'minikafka_tls_handshakes_failed_total{listener="HTTP"} 1.0' in page
        assert 'failed_authentication_total{listener="HTTP",networkProcessor="0"} 1.0' in page


async def test_who_does_not_trust_the_certificate_reads_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        with pytest.raises(ssl.SSLError):
            await ask(address_of(broker), "/metrics", tls=trusting(CertificateAuthority("another")))
        assert (await ask(address_of(broker), "/healthz", tls=trusting())).status == 200


async def test_handshakes_that_stall_are_bounded_and_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 4)
    async with running(tmp_path) as broker:
        stalled = [await asyncio.open_connection(*address_of(broker)) for _ in range(8)]
        assert (await ask(address_of(broker), "/healthz", tls=trusting())).status == 200
        for reader, _ in stalled[:4]:
            assert await reader.read() == b""
        for _, writer in stalled:
            writer.close()


async def test_a_broker_stops_though_a_reader_of_its_pages_keeps_silent(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        _, writer = await asyncio.open_connection(*address_of(broker), ssl=trusting())
    writer.transport.abort()


async def test_with_client_certificates_only_who_has_one_is_served(tmp_path: Path) -> None:
    client = AUTHORITY.issue("prometheus").write_pem(tmp_path / "client.pem")
    with_certificate = trusting()
    with_certificate.load_cert_chain(client)
    authorities = AUTHORITY.write_pem(tmp_path / "ca.pem")
    async with running(
        tmp_path,
        http_ssl_client_auth="required",
        http_ssl_truststore_type="PEM",
        http_ssl_truststore_location=str(authorities),
    ) as broker:
        assert (await ask(address_of(broker), "/metrics", tls=with_certificate)).status == 200
        server = broker.server._http
        assert server is not None

        async def who(request: HttpRequest) -> HttpResponse:
            return HttpResponse.text("known" if request.is_authenticated else "unknown")

        server.add_below("/test/", who)
        assert (await ask(address_of(broker), "/test/who", tls=with_certificate)).body == b"known\n"
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await ask(address_of(broker), "/healthz", tls=trusting())


async def test_a_renewed_certificate_is_used_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "http.pem"
    first, second = ssl.create_default_context(), ssl.create_default_context()
    contexts = {b"first": first, b"second": second}

    def load() -> ssl.SSLContext:
        text = path.read_bytes()
        if text not in contexts:
            raise ConfigError(f"{path}: no key store")
        return contexts[text]

    path.write_bytes(b"first")
    tls = HttpTls(load, [str(path)], name="HTTP")
    await tls.begin()
    assert tls.context() is first
    path.write_bytes(b"second")
    await tls.refresh()
    assert tls.context() is second
    path.write_bytes(b"sec")
    await tls.refresh()
    assert tls.context() is second
    assert "keeps its old certificate" in caplog.text
    path.unlink()
    await tls.refresh()
    assert tls.context() is second
    tls.close()


async def test_a_key_store_that_is_no_good_stops_the_start_and_is_named(tmp_path: Path) -> None:
    properties = {
        "http.port": "0",
        "http.ssl.keystore.type": "PEM",
        "http.ssl.keystore.location": str(tmp_path / "nowhere.pem"),
    }
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        async with Broker(config=properties):
            pass


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "answers other machines without authentication"),
        ({"http.bearer.token": TOKEN}, "takes tokens and passwords from other machines without TLS"),
    ],
    ids=["open", "in the clear"],
)
async def test_a_port_that_others_reach_is_warned_of(
    config: dict[str, str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(config={"http.port": "0", "http.host": "0.0.0.0", **config}):
        assert told in caplog.text
        assert TOKEN not in caplog.text


async def test_a_port_of_this_machine_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(config={"http.port": "0"}):
        assert "HTTP port" not in caplog.text
