"""The stores of listeners while a broker runs: set by clients, changed as files, broken, put right."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.errors import ConfigError, InvariantError, StartError
from minikafka.security.acl import ANONYMOUS
from minikafka.server.security import transport as transport_module
from minikafka.server.security.transport import ListenerTransport, TransportSecurity
from minikafka.system_clock import SystemClock
from tests.support.certificates import EXPIRED, CertificateAuthority, Credential, Validity

AUTHORITY = CertificateAuthority()
BROKER = AUTHORITY.issue("broker")
DEADLINE_SECONDS = 60


class Stores:
    """A broker's files, its configuration, and what it makes of them."""

    def __init__(self, directory: Path, **properties: str) -> None:
        self.directory = directory
        self.key_store = BROKER.write_pem(directory / "broker.pem")
        self.trust_store = AUTHORITY.write_pem(directory / "authority.pem")
        self.config = self.configured(**properties)
        self.transport = TransportSecurity(self.config, clock=SystemClock())

    def configured(self, **properties: str) -> BrokerConfig:
        """``keystore_location`` is ``listener.name.out.ssl.keystore.location``."""
        texts = {
            "listeners": "OUT://localhost:0,IN://localhost:0,LOGIN://localhost:0",
            "listener.security.protocol.map": "OUT:SSL,IN:SSL,LOGIN:SASL_SSL",
            "inter.broker.listener.name": "IN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust_store),
            "ssl.client.auth": "required",
        }
        own = {f"listener.name.out.ssl.{name.replace('_', '.')}": text for name, text in properties.items()}
        return broker_config(texts | own)

    @property
    def out(self) -> ListenerTransport:
        return self.transport.listeners["OUT"]

    def write(self, credential: Credential, name: str) -> str:
        return str(credential.write_pem(self.directory / name))

    async def until(self, lines: pytest.LogCaptureFixture, text: str) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while text not in lines.text:  # noqa: ASYNC110 - a thread reads files
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def watching(stores: Stores) -> AsyncIterator[None]:
    task = asyncio.ensure_future(stores.transport.watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Stores:
    monkeypatch.setattr(transport_module, "WATCH_SECONDS", 0.01)
    caplog.set_level(logging.INFO, transport_module.__name__)
    made = Stores(tmp_path)
    await made.transport.load()
    return made


async def test_each_listener_has_what_it_needs(stores: Stores) -> None:
    assert list(stores.transport.listeners) == ["OUT", "IN", "LOGIN"]
    assert stores.transport.client_context("IN").check_hostname
    with pytest.raises(InvariantError, match="do not use the listener OUT"):
        stores.transport.client_context("OUT")
    alice = AUTHORITY.issue("alice").certificate.public_bytes(_der())
    assert str(stores.out.principal(alice)) == "User:CN=alice"
    assert stores.transport.listeners["LOGIN"].principal(alice) is ANONYMOUS, "SASL says who it is"


def _der() -> object:
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.DER


async def test_what_a_client_sets_is_checked_and_then_used(stores: Stores) -> None:
    old = stores.out.context()
    others = [each.context() for each in stores.transport.listeners.values() if each is not stores.out]
    new = stores.configured(keystore_location=stores.write(AUTHORITY.issue("broker"), "new.pem"))
    await stores.transport.check(new)
    assert stores.out.context() is old, "it is not stored yet"
    stores.transport.apply(new)
    assert stores.out.context() is not old
    assert others == [
        each.context() for each in stores.transport.listeners.values() if each is not stores.out
    ]


async def test_what_cannot_be_used_is_refused_and_nothing_changes(stores: Stores) -> None:
    old = stores.out.context()
    for properties, why in (
        ({"keystore_location": "/nowhere"}, r"listener OUT: cannot read /nowhere \(listener\.name\.out\.ssl"),
        ({"keystore_location": stores.write(AUTHORITY.issue("x"), "x.pem")}, "DistinguishedName"),
        ({"keystore_type": "PKCS12"}, "key store password is not specified"),
    ):
        with pytest.raises(ConfigError, match=why):
            await stores.transport.check(stores.configured(**properties))
    stores.transport.apply(stores.config)
    assert stores.out.context() is old


async def test_what_was_only_validated_is_not_used(stores: Stores) -> None:
    old = stores.out.context()
    await stores.transport.check(
        stores.configured(keystore_location=stores.write(AUTHORITY.issue("broker"), "new.pem"))
    )
    stores.transport.apply(stores.config)
    assert stores.out.context() is old


async def test_a_change_that_was_not_checked_here_is_read_soon(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    """Another broker has written it."""
    old = stores.out.context()
    async with watching(stores):
        stores.transport.apply(
            stores.configured(keystore_location=stores.write(AUTHORITY.issue("broker"), "new.pem"))
        )
        await stores.until(caplog, "listener OUT has new stores")
    assert stores.out.context() is not old


async def test_brokers_must_trust_each_other(stores: Stores) -> None:
    another = CertificateAuthority("another").write_pem(stores.directory / "another.pem")
    texts = stores.config.originals | {"listener.name.in.ssl.truststore.location": str(another)}
    with pytest.raises(ConfigError, match="listener IN: brokers would not connect to each other"):
        await stores.transport.check(broker_config(texts))


async def test_a_changed_file_is_read_and_a_broken_one_told_once(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    first = stores.out.context()
    async with watching(stores):
        stores.write(AUTHORITY.issue("broker"), "broker.pem")
        await stores.until(caplog, "listener LOGIN has new stores")
        second = stores.out.context()
        assert second is not first
        stores.key_store.write_text("rubbish")
        await stores.until(caplog, "listener LOGIN: ")
        stores.write(AUTHORITY.issue("broker"), "right.pem")
        caplog.clear()
        os.replace(stores.directory / "right.pem", stores.key_store)
        await stores.until(caplog, "listener LOGIN has new stores")
        assert stores.out.context() is not second
        assert "not used" not in caplog.text
        stores.key_store.unlink()
        await stores.until(caplog, "listener LOGIN: cannot read")
        assert caplog.text.count("listener OUT: cannot read") == 1


async def test_an_end_that_is_near_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Stores(tmp_path)
    made.write(AUTHORITY.issue("broker", valid=Validity(-1, 3)), "broker.pem")
    await made.transport.load()
    assert "the certificate of listener OUT (KeyStore(CN=broker)) expires in 3.0 days" in caplog.text
    caplog.clear()
    late = made.write(AUTHORITY.issue("broker", valid=EXPIRED), "late.pem")
    changed = made.configured(keystore_location=late)
    await made.transport.check(changed)
    made.transport.apply(changed)
    assert "the certificate of listener OUT (KeyStore(CN=broker)) has expired" in caplog.text


async def test_at_the_start_it_says_what_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="RE2"):
        Stores(tmp_path, principal_mapping_rules="RULE:(?=x)/x/")
    made = Stores(tmp_path, keystore_location="/nowhere")
    with pytest.raises(StartError, match="listener OUT: cannot read /nowhere"):
        await made.transport.load()


async def test_certificates_of_any_authority_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Stores(tmp_path, truststore_location="")
    await made.transport.load()
    assert "set listener.name.out.ssl.truststore.location" in caplog.text
