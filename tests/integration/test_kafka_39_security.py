"""An Apache Kafka 3.9, the last with ZooKeeper, and a minikafka share one ZooKeeper: users, ACLs, tokens,
passwords and quotas of the one hold at the other.

Both reach it with TLS and log in there by DIGEST-MD5; with ``zookeeper.set.acl`` only they may change what is
there, and read the secrets.

They share no partitions here (that is ``test_cluster_with_kafka_39``): clients ask the one broker that they
are given.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from minikafka.cli import users
from minikafka.cli.acls import create_acls, delete_acls
from minikafka.cli.shared.admin_client import AdminClient, broker_resource, raise_error
from minikafka.cli.shared.credentials import ScramMechanism, alter_users, describe_users, salted
from minikafka.network.broker_client import AuthenticationFailed
from minikafka.network.client_security import ClientSecurity, SaslLogin
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePattern,
    ResourceType,
)
from minikafka.security.password_encoder import PasswordEncoder
from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess, KafkaOnZooKeeper
from tests.support import zookeeper
from tests.support.certificates import CertificateAuthority
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.java, pytest.mark.minikafka_only]

DEADLINE_S = 60.0
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD_SECRET = "for the passwords"
SECURE = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "for the tokens",
    "password.encoder.secret": PASSWORD_SECRET,
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
}
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
CHROOT = "/kafka-39-security"
KAFKA_ID, OUR_ID = 1, 2
TRUST_PASSWORD = "listener.name.plaintext.ssl.truststore.password"


class OneBroker(AdminClient):
    """Asks the broker that it is given and never another, also where that is the controller."""

    async def ask_controller(self, api_key: ApiKey, body: Any) -> Any:
        answer = await self.ask_any(api_key, body)
        raise_error(answer)
        return answer


class Peer(NamedTuple):
    """One of the two."""

    node_id: int
    process: BrokerProcess
    sasl_port: int

    def as_operator(self) -> OneBroker:
        return self._client(self.process.port, None)

    def as_user(self, name: str, password: str, *, mechanism: str = MECHANISMS[0], **more: str) -> OneBroker:
        login = SaslLogin(mechanism, {"username": name, "password": password, **more})
        return self._client(self.sasl_port, ClientSecurity("SASL_PLAINTEXT", login=login))

    def _client(self, port: int, security: ClientSecurity | None) -> OneBroker:
        return OneBroker([("127.0.0.1", port)], client_id="test", timeout_ms=30_000, security=security)


class Peers(NamedTuple):
    kafka: Peer
    ours: Peer
    tree: KazooClient


@pytest.fixture(scope="module")
def secured_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    zookeeper.skip_if_missing()
    directory = tmp_path_factory.mktemp("zookeeper")
    authority = CertificateAuthority()
    authority.write_pkcs12(directory / "ca.p12", zookeeper.PASSWORD)
    authority.issue("zookeeper").write_pkcs12(directory / "server.p12", zookeeper.PASSWORD)
    server = zookeeper.secured_server(directory)
    try:
        yield server.start()
    finally:
        server.kill()


def make_first_user(directory: Path, properties: dict[str, str]) -> None:
    """By `minikafka users` in the store, before there is anything else."""
    settings, password = directory / "zookeeper.properties", directory / "password"
    known = {name: value for name, value in properties.items() if name != "zookeeper.connect"}
    settings.write_text("".join(f"{name}={value}\n" for name, value in known.items()))
    password.write_text("from the start")
    password.chmod(0o600)
    store = f"zookeeper://{properties['zookeeper.connect']}"
    at = ("--coordination", store, "--command-config", str(settings))
    made = users.main(
        ["create", "first", "--mechanism", MECHANISMS[0], "--password-file", str(password), *at]
    )
    assert made == 0


@pytest.fixture(scope="module")
def peers(secured_zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    """One JVM for all tests here; each has users and resources of its own."""
    directory = tmp_path_factory.mktemp("peers")
    login = f'{DIGEST_MODULE} required username="{zookeeper.USER}" password="{zookeeper.PASSWORD}";'
    jaas = directory / "jaas.conf"
    jaas.write_text(f"Client {{ {login} }};\n")
    to_zookeeper = {
        "zookeeper.connect": f"localhost:{secured_zookeeper.secure_port}{CHROOT}",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(secured_zookeeper.directory / "ca.p12"),
        "zookeeper.ssl.truststore.password": zookeeper.PASSWORD,
        "zookeeper.set.acl": "true",
    }
    made: dict[int, Peer] = {}
    tree = KazooClient(
        secured_zookeeper.address + CHROOT,
        sasl_options={
            "mechanism": "DIGEST-MD5",
            "username": zookeeper.USER,
            "password": zookeeper.PASSWORD,
        },
    )

    def start(node_id: int, data_dir: Path) -> Peer:
        port, sasl_port = free_port(), free_port()
        properties = SECURE | to_zookeeper
        properties["broker.id"] = str(node_id)
        properties["listeners"] = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}"
        for mechanism in MECHANISMS:
            name = f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"
            properties[name] = f"{SCRAM_MODULE} required;"
        if node_id == KAFKA_ID:
            properties["zookeeper.clientCnxnSocket"] = "org.apache.zookeeper.ClientCnxnSocketNetty"
            options = [f"-Djava.security.auth.login.config={jaas}"]
            process: BrokerProcess = KafkaOnZooKeeper(
                data_dir, properties=properties, port=port, java_options=options
            )
        else:
            properties["zookeeper.sasl.jaas.config"] = login
            process = BrokerProcess(data_dir, properties=properties, port=port)
        made[node_id] = Peer(node_id, process, sasl_port)
        process.start()
        return made[node_id]

    make_first_user(directory, to_zookeeper | {"zookeeper.sasl.jaas.config": login})
    try:
        kafka = start(KAFKA_ID, directory / "kafka")
        tree.start(timeout=DEADLINE_S)
        confluent.wait_until(lambda: tree.exists("/controller"), "Kafka is the controller")
        yield Peers(kafka, start(OUR_ID, directory / "ours"), tree)
    finally:
        tree.stop()
        tree.close()
        for each in made.values():
            each.process.close()


@pytest.fixture(params=["from Kafka", "from minikafka"])
def here_and_there(request: pytest.FixtureRequest, peers: Peers) -> tuple[Peer, Peer]:
    """Who makes something, and who is to know of it."""
    if request.param == "from Kafka":
        return peers.kafka, peers.ours
    return peers.ours, peers.kafka


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """The other hears of a change by a notification in ZooKeeper."""
    deadline = time.monotonic() + DEADLINE_S
    while not await holds():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"


async def gets_in(client: OneBroker) -> bool:
    async with client:
        try:
            await client.nodes()
        except AuthenticationFailed:
            return False
        return True


async def make_user(at: Peer, name: str, password: str, mechanism: str = MECHANISMS[0]) -> None:
    number = ScramMechanism[mechanism.replace("-", "_")]
    async with at.as_operator() as admin:
        await alter_users(admin, upsertions=[(name, salted(number, 4096, password))])


async def test_a_user_from_before_the_first_broker_logs_in_at_both(peers: Peers) -> None:
    for peer in (peers.kafka, peers.ours):
        assert await gets_in(peer.as_user("first", "from the start"))
        assert not await gets_in(peer.as_user("first", "wrong"))


async def test_a_user_of_kafkas_tool_logs_in_at_both(peers: Peers) -> None:
    added = "SCRAM-SHA-256=[iterations=8192,password=tool's],SCRAM-SHA-512=[password=tool's]"
    java.tool(
        java.class_path(KafkaOnZooKeeper.VERSION),
        *("kafka.admin.ConfigCommand", "--bootstrap-server", peers.kafka.process.bootstrap, "--alter"),
        *("--entity-type", "users", "--entity-name", "tove", "--add-config", added),
    )
    for peer in (peers.kafka, peers.ours):
        for mechanism in MECHANISMS:
            login = peer.as_user("tove", "tool's", mechanism=mechanism)
            await until(partial(gets_in, login), f"{mechanism} at {peer.node_id}")
            assert not await gets_in(peer.as_user("tove", "wrong", mechanism=mechanism))
    async with peers.ours.as_operator() as admin:
        assert (await describe_users(admin, ["tove"]))["tove"] == {
            ScramMechanism.SCRAM_SHA_256: 8192,
            ScramMechanism.SCRAM_SHA_512: 4096,
        }


async def test_a_user_is_made_changed_and_removed(here_and_there: tuple[Peer, Peer]) -> None:
    here, there = here_and_there
    name = f"user={here.node_id}, ~"  # of ASCII: SCRAM in Kafka takes no other characters
    await make_user(here, name, "first")
    await until(lambda: gets_in(there.as_user(name, "first")), "the user is known")
    await make_user(here, name, "second")
    await until(lambda: gets_in(there.as_user(name, "second")), "the password is known")
    assert not await gets_in(there.as_user(name, "first"))
    async with here.as_operator() as admin:
        await alter_users(admin, deletions=[(name, ScramMechanism.SCRAM_SHA_256)])

    async def is_gone() -> bool:
        return not await gets_in(there.as_user(name, "second"))

    await until(is_gone, "the user is gone")


async def test_an_acl_decides_at_the_other(here_and_there: tuple[Peer, Peer]) -> None:
    here, there = here_and_there
    name = f"acl{here.node_id}"
    await make_user(there, name, "p")
    await until(lambda: gets_in(there.as_user(name, "p")), "the user is known")
    cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")

    def acl(operation: AclOperation, permission: AclPermissionType) -> AclBinding:
        return AclBinding(cluster, AccessControlEntry(f"User:{name}", "*", operation, permission))

    async with there.as_user(name, "p") as user, here.as_operator() as admin:

        async def may() -> set[AclOperation]:
            body = {
                "include_cluster_authorized_operations": True,
                "endpoint_type": 1,
                "include_fenced_brokers": False,
            }
            bits = (await user.ask_any(ApiKey.DESCRIBE_CLUSTER, body)).cluster_authorized_operations
            return {each for each in AclOperation if bits > 0 and bits >> each & 1}

        async def until_may(*wanted: AclOperation) -> None:
            async def as_wanted() -> bool:
                return await may() == set(wanted)

            await until(as_wanted, f"{name} may {wanted}")

        assert await may() == set()
        await create_acls(admin, [acl(AclOperation.ALTER, AclPermissionType.ALLOW)])
        await until_may(AclOperation.ALTER, AclOperation.DESCRIBE)
        await create_acls(admin, [acl(AclOperation.ALTER, AclPermissionType.DENY)])
        await until_may(AclOperation.DESCRIBE)
        wanted = AclBindingFilter(entry=AccessControlEntryFilter(principal=f"User:{name}"))
        assert await delete_acls(admin, [wanted]) == 2
        await until_may()


async def test_a_token_logs_in_at_the_other(here_and_there: tuple[Peer, Peer]) -> None:
    here, there = here_and_there
    name = f"token{here.node_id}"
    await make_user(here, name, "p")
    await until(lambda: gets_in(here.as_user(name, "p")), "the user is known")
    body: dict[str, Any] = {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": [],
        "max_lifetime": -1,
    }
    async with here.as_user(name, "p") as user:
        token = await user.ask_controller(ApiKey.CREATE_DELEGATION_TOKEN, body)
        hmac = base64.b64encode(token.hmac).decode()

        def login(password: str) -> OneBroker:
            return there.as_user(token.token_id, password, mechanism="SCRAM-SHA-512", tokenauth="true")

        await until(lambda: gets_in(login(hmac)), "the token is known")
        assert not await gets_in(login("wrong"))
        await user.ask_controller(
            ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": token.hmac, "expiry_time_period": -1}
        )

    async def is_gone() -> bool:
        return not await gets_in(login(hmac))

    await until(is_gone, "the token is gone")


async def test_quotas_of_users_and_addresses(here_and_there: tuple[Peer, Peer]) -> None:
    here, there = here_and_there
    quotas = {
        ("user", f"quota {here.node_id}/ä"): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        ("ip", f"10.0.0.{here.node_id}"): {"connection_creation_rate": 7.0},
    }
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name}],
            "ops": [{"key": key, "value": value, "remove": False} for key, value in values.items()],
        }
        for (kind, name), values in quotas.items()
    ]
    async with here.as_operator() as admin, there.as_operator() as other:
        await admin.ask_any(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": entries, "validate_only": False})
        for (kind, name), values in quotas.items():
            component = {"entity_type": kind, "match_type": 0, "match": name}

            async def is_known(component: Any = component, values: Any = values) -> bool:
                body = {"components": [component], "strict": True}
                answer = await other.ask_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, body)
                raise_error(answer)
                found = [{each.key: each.value for each in entry.values} for entry in answer.entries or ()]
                return found == [values]

            await until(is_known, f"the quota of {name}")


def stored_password(tree: KazooClient, node_id: int) -> str:
    data, _ = tree.get(f"/config/brokers/{node_id}")
    return str(json.loads(data)["config"][TRUST_PASSWORD])


async def test_a_stored_password_is_read_by_the_other(peers: Peers) -> None:
    """A broker that changes anything of itself writes all its passwords again, encrypted again: those that it
    can read. So Kafka has read what ours has encrypted when that is another text of the same password."""
    encoder = PasswordEncoder(PASSWORD_SECRET, random_bytes=os.urandom)
    for peer, text in ((peers.kafka, "Kafka's"), (peers.ours, "our own")):
        async with peer.as_operator() as admin:
            change = {broker_resource(peer.node_id): {TRUST_PASSWORD: text}}
            await admin.alter_configs(change)
        assert encoder.decode(stored_password(peers.tree, peer.node_id)) == text
    data, _ = peers.tree.get("/config/brokers/2")
    ours = stored_password(peers.tree, 2)
    peers.tree.set("/config/brokers/1", data)
    async with peers.kafka.as_operator() as admin:
        await admin.alter_configs({broker_resource(1): {"log.cleaner.threads": "2"}})
    written_again = stored_password(peers.tree, 1)
    assert written_again != ours and encoder.decode(written_again) == "our own"


def nodes_below(tree: KazooClient, path: str) -> Iterator[str]:
    for name in tree.get_children(path):
        child = f"{path.rstrip('/')}/{name}"
        yield child
        yield from nodes_below(tree, child)


async def test_both_make_nodes_that_others_may_not_change(peers: Peers) -> None:
    """``ZkData.defaultAcls``: each node is the brokers' own; all may read it but secrets."""
    for peer in (peers.kafka, peers.ours):
        await make_user(peer, f"kept{peer.node_id}", "p")
        pattern = ResourcePattern(ResourceType.TOPIC, f"kept{peer.node_id}")
        entry = AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
        async with peer.as_operator() as admin:
            await create_acls(admin, [AclBinding(pattern, entry)])
            await admin.alter_configs({broker_resource(peer.node_id): {"message.max.bytes": "2000000"}})
    brokers = {("sasl", zookeeper.USER, CREATOR_ALL_ACL[0].perms)}
    readers = {("world", "anyone", READ_ACL_UNSAFE[0].perms)}
    everybody = {("world", "anyone", OPEN_ACL_UNSAFE[0].perms)}
    secrets = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/minikafka/login_secret")
    found = {}
    for path in nodes_below(peers.tree, "/"):
        acls, _ = peers.tree.get_acls(path)
        found[path] = {(each.id.scheme, each.id.id, each.perms) for each in acls}
        expected = everybody if path == "/consumers" else brokers
        if path != "/consumers" and not path.startswith(secrets):
            expected = brokers | readers
        assert found[path] == expected, path
    for peer in (peers.kafka, peers.ours):
        each = peer.node_id
        of_peer = {f"/brokers/ids/{each}", f"/config/brokers/{each}", f"/config/users/kept{each}"}
        assert of_peer | {f"/kafka-acl/Topic/kept{each}"} <= found.keys(), f"what {each} has made"
