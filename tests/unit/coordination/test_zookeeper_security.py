"""ZooKeeper with TLS, a login by SASL/DIGEST-MD5, and nodes that only brokers may change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minikafka.cli import users
from minikafka.clock import ManualClock
from minikafka.config.broker import broker_config
from minikafka.coordination import paths
from minikafka.coordination.store import (
    CoordinationStore,
    CreateOp,
    StoreError,
    StoreUnusableError,
)
from minikafka.coordination.zookeeper import ZooKeeperStore
from minikafka.errors import ConfigError
from minikafka.server.cluster.coordination_store import create_top_level_paths, open_store
from tests.support.certificates import CertificateAuthority
from tests.support.zookeeper import PASSWORD, USER, ZooKeeperServer, secured_server, skip_if_missing

LOGIN = (
    f'org.apache.zookeeper.server.auth.DigestLoginModule required username="{USER}" password="{PASSWORD}";'
)
TIMEOUT_MS = 20_000


class Secured:
    """A server, and what a broker needs to reach it."""

    def __init__(self, server: ZooKeeperServer, directory: Path, authority: CertificateAuthority) -> None:
        self.server = server
        self.directory = directory
        self.authority = authority

    def properties(self, *, chroot: str = "", **changed: str | None) -> dict[str, str]:
        known = {
            "zookeeper.connect": f"localhost:{self.server.secure_port}{chroot}",
            "zookeeper.session.timeout.ms": str(TIMEOUT_MS),
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self.directory / "ca.p12"),
            "zookeeper.ssl.truststore.password": PASSWORD,
            "zookeeper.sasl.jaas.config": LOGIN,
            "zookeeper.set.acl": "true",
        }
        given = {name.replace("__", "."): value for name, value in changed.items()}
        return {name: value for name, value in (known | given).items() if value is not None}

    @asynccontextmanager
    async def store(self, **options: Any) -> AsyncIterator[CoordinationStore]:
        store = await open_store(broker_config(self.properties(**options)), clock=ManualClock())
        try:
            yield store
        finally:
            await store.close()

    async def acl(self, path: str) -> dict[tuple[str, str], list[str]]:
        """Who may do what with a node, as the server has it."""
        async with self.store() as store:
            assert isinstance(store, ZooKeeperStore) and store._session is not None
            acls, _ = await store._session.call(
                lambda kazoo: kazoo.get_acls_async(path), lambda answer: answer, path
            )
        return {(each.id.scheme, each.id.id): each.acl_list for each in acls}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    skip_if_missing()
    directory = tmp_path_factory.mktemp("zookeeper")
    authority = CertificateAuthority()
    authority.write_pkcs12(directory / "ca.p12", PASSWORD)
    authority.issue("zookeeper").write_pkcs12(directory / "server.p12", PASSWORD)
    server = secured_server(directory, client_auth="want")
    try:
        yield Secured(server.start(), directory, authority)
    finally:
        server.kill()


async def test_a_broker_uses_it_as_any_other(secured: Secured) -> None:
    told = asyncio.Event()
    async with secured.store(chroot="/one") as store, secured.store(chroot="/one") as other:
        await create_top_level_paths(store)
        await store.children("/brokers/ids", watch=lambda event: told.set())
        await other.multi(
            [CreateOp("/brokers/ids/1", b"x" * 200_000, ephemeral=True), CreateOp("/controller")]
        )
        async with asyncio.timeout(60):
            await told.wait()
        assert (await store.get("/brokers/ids/1")).data == b"x" * 200_000
        # Answers that come together are not left in OpenSSL's buffer until the next one.
        nodes = await asyncio.gather(*(store.get("/brokers/ids/1") for _ in range(50)))
        assert {len(node.data) for node in nodes} == {200_000}


async def test_nodes_are_the_brokers_and_secrets_are_for_nobody_else_to_read(secured: Secured) -> None:
    async with secured.store(chroot="/two") as store:
        await create_top_level_paths(store)
        await store.multi([CreateOp("/config/users/alice", b"{}")])
        await store.create("/brokers/topics/t")
    mine = {("sasl", USER): ["ALL"]}
    for_all_to_read = mine | {("world", "anyone"): ["READ"]}
    assert await secured.acl("/two/config/users/alice") == mine
    assert await secured.acl("/two/config/brokers") == mine
    assert await secured.acl("/two/brokers/topics/t") == for_all_to_read
    assert await secured.acl("/two") == for_all_to_read
    assert await secured.acl("/two/consumers") == {("world", "anyone"): ["ALL"]}, "as in Kafka"


async def test_a_certificate_is_a_name_too(secured: Secured, tmp_path: Path) -> None:
    store = secured.authority.issue("broker-1").write_pkcs12(tmp_path / "broker.p12", PASSWORD)
    shown = {"zookeeper__ssl__keystore__location": str(store), "zookeeper__ssl__keystore__password": PASSWORD}
    async with secured.store(chroot="/three", **shown) as opened:
        await opened.create("/cluster")
    assert set(await secured.acl("/three/cluster")) == {
        ("x509", "CN=broker-1"),
        ("sasl", USER),
        ("world", "anyone"),
    }


def users_tool(secured: Secured, directory: Path, *arguments: str, **changed: str | None) -> int:
    """Exit status of `minikafka users` on that store, without a broker."""
    properties = secured.properties(**changed)
    connect = properties.pop("zookeeper.connect")
    settings = directory / "zookeeper.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    at = ("--coordination", f"zookeeper://{connect}/users", "--command-config", str(settings))
    return users.main([*arguments, *at])


def test_the_first_users_are_made_there_too(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a broker's properties; who logs in keeps what it makes, as with Kafka's tools."""
    monkeypatch.setenv("MINIKAFKA_PASSWORD", "of alice")
    assert users_tool(secured, tmp_path, "create", "alice", zookeeper__set__acl=None) == 0
    assert users_tool(secured, tmp_path, "create", "bob", zookeeper__set__acl="false") == 0
    assert asyncio.run(secured.acl("/users/config/users/alice")) == {("sasl", USER): ["ALL"]}
    assert asyncio.run(secured.acl("/users/config/users/bob")) == {("world", "anyone"): ["ALL"]}
    capsys.readouterr()
    assert users_tool(secured, tmp_path, "list") == 0
    assert capsys.readouterr().out.split()[3:] == [
        "alice",
        "SCRAM-SHA-512",
        "4096",
        "bob",
        "SCRAM-SHA-512",
        "4096",
    ]

    wrong = LOGIN.replace(PASSWORD, "guessed")
    assert users_tool(secured, tmp_path, "list", zookeeper__sasl__jaas__config=wrong) == 1
    refused = capsys.readouterr().err
    assert "does not accept the login" in refused
    assert users_tool(secured, tmp_path, "list", zookeeper__session__timeout__ms="soon") == 1
    named = capsys.readouterr().err
    assert "--command-config: " in named and "zookeeper.session.timeout.ms" in named
    assert "guessed" not in refused + named and PASSWORD not in refused + named


async def test_a_wrong_password_says_so_at_once(secured: Secured) -> None:
    wrong = LOGIN.replace(PASSWORD, "guessed")
    with pytest.raises(StoreUnusableError, match="does not accept the login") as failure:
        async with secured.store(zookeeper__sasl__jaas__config=wrong):
            pass
    assert "guessed" not in str(failure.value)


async def test_a_certificate_that_is_not_trusted(secured: Secured, tmp_path: Path) -> None:
    other = CertificateAuthority("another").write_pkcs12(tmp_path / "other.p12", PASSWORD)
    with pytest.raises(StoreError, match=r"does not answer within 2000 ms .*(?i:certificate verify failed)"):
        async with secured.store(
            zookeeper__ssl__truststore__location=str(other), zookeeper__connection__timeout__ms="2000"
        ):
            pass


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"zookeeper__ssl__truststore__location": "/nowhere.p12"}, "/nowhere.p12"),
        ({"zookeeper__ssl__protocol": "SSLv3"}, r"zookeeper\.ssl\.…: Invalid value SSLv3"),
        ({"zookeeper__sasl__jaas__config": "a.B required;"}, "must be one module, org.apache.zookeeper"),
        (
            {"zookeeper__sasl__jaas__config": LOGIN.replace("username", "user")},
            "the option username is missing",
        ),
    ],
)
async def test_a_property_that_is_wrong_is_named(
    secured: Secured, changed: dict[str, str], complaint: str
) -> None:
    with pytest.raises(StoreUnusableError, match=complaint) as failure:
        async with secured.store(**changed):
            pass
    assert PASSWORD not in str(failure.value)


def test_access_control_needs_somebody_who_has_access() -> None:
    with pytest.raises(ConfigError, match=r"set zookeeper\.sasl\.jaas\.config, or"):
        broker_config({"zookeeper.connect": "localhost", "zookeeper.set.acl": "true"})


@pytest.mark.parametrize(
    ("path", "is_sensitive"),
    [
        ("/config/users", True),
        ("/config/users/alice/clients/x", True),
        ("/config/brokers/<default>", True),
        ("/delegation_token/tokens/abc", True),
        ("/minikafka/login_secret", True),
        ("/config/topics/t", False),
        ("/kafka-acl/Topic/t", False),
    ],
)
def test_what_is_sensitive_is_what_kafka_says_and_a_secret_of_ours(path: str, is_sensitive: bool) -> None:
    assert paths.is_sensitive(path) is is_sensitive
