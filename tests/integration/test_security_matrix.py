"""Every stock client over every protocol with every mechanism, with what is right, wrong and expired: on one
broker, and on three that speak SASL_SSL among themselves, of which the leader is killed.

The cells and each client's way are in `support/security_matrix.py`; here is where they are tried, and what
has to come of it.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.integration.conftest import CLIENTS
from tests.integration.support import confluent
from tests.integration.support.cluster import ProcessCluster, SqliteEngine
from tests.integration.support.load import Load
from tests.integration.support.security_matrix import (
    CLOSED_TOPIC,
    CREDENTIALS,
    MECHANISMS,
    NO_TOKEN,
    OPEN_TOPIC,
    PASSWORDS,
    PROTOCOLS,
    SCRAM,
    Cell,
    Keys,
    Outcome,
    all_cells,
    cannot,
    try_all,
)
from tests.support.ports import free_port

pytestmark = pytest.mark.minikafka_only

DEADLINE_S = 30
LOADED_TOPIC = "orders"
PRINCIPALS = ("User:ANONYMOUS", "User:CN=alice", "User:alice")
SESSION_MS = 5_000
"""So that clients and brokers authenticate again while the tests run."""

BY_THE_BROKER = {
    "SSL wrong": "unknown.ca|unable to find valid certification path|unknown_ca",
    "SSL expired": "certificate.expired|certificate_expired",
    "PLAIN wrong": "Authentication failed: Invalid username or password",
    **{
        f"{mechanism} {credential}": "Authentication failed during authentication due to invalid credentials "
        f"with SASL mechanism {mechanism}"
        for mechanism in SCRAM
        for credential in ("wrong", "expired")
    },
    "OAUTHBEARER wrong": r'\{"status":"invalid_token"\}',
    "OAUTHBEARER expired": r'\{"status":"invalid_token"\}',
}
"""What a broker says, and librdkafka and Java repeat. SCRAM's words are the same for a user that is not
there: no client learns whether a user is."""

UNSPECIFIC = "Unable to bootstrap"
"""Of aiokafka and kafka-python, which keep the broker's words to their logs."""


class Site(NamedTuple):
    cluster: ProcessCluster
    keys: Keys

    def bootstrap(self, protocol: str) -> str:
        """Of all brokers."""
        return ",".join(f"localhost:{each.port_of(protocol)}" for each in self.cluster.brokers.values())

    def librdkafka(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "ssl.ca.location": str(self.keys.authority),
        }

    def outcomes(self, client: str, cells: list[Cell], request: pytest.FixtureRequest) -> dict[Cell, Outcome]:
        class_path = request.getfixturevalue("java_class_path") if client == "java" else None
        bootstraps = {protocol: self.bootstrap(protocol) for protocol in PROTOCOLS}
        return try_all(client, cells, bootstraps, self.keys, class_path)


def security(keys: Keys) -> dict[str, object]:
    """What all brokers of a site share."""
    users = " ".join(f'user_{name}="{PASSWORDS[name]}"' for name in ("alice", "admin"))
    plain = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="admin" password="{PASSWORDS["admin"]}" {users};'
    )
    properties: dict[str, object] = {
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connections.max.reauth.ms": SESSION_MS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keys.broker,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": keys.authority,
        "listener.name.ssl.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        oauth = f"listener.name.{listener}.oauthbearer.sasl.oauthbearer"
        properties |= {
            f"listener.name.{listener}.plain.sasl.jaas.config": plain,
            f"{oauth}.jwks.endpoint.url": keys.jwks.as_uri(),
            f"{oauth}.expected.audience": "kafka",
            f"{oauth}.allow.unverified.issuer": "true",
        }
    return properties


@contextmanager
def secured_site(directory: Path, brokers: int) -> Iterator[Site]:
    keys = Keys(directory)
    own: dict[int, dict[str, object]] = {}
    for node_id in range(1, brokers + 1):
        listeners = ",".join(f"{protocol}://localhost:{free_port()}" for protocol in PROTOCOLS)
        own[node_id] = {"listeners": listeners}
    cluster = ProcessCluster(
        directory,
        SqliteEngine(directory),
        brokers=brokers,
        properties=security(keys)
        | {"default.replication.factor": brokers, "min.insync.replicas": min(brokers, 2)},
        own_properties=own,
    )
    try:
        site = Site(cluster.start(), keys)
        furnish(site)
        yield site
        for broker in cluster.brokers.values():
            log = broker.log_text()
            for text in (*PASSWORDS.values(), "guessed", "Traceback", "cannot be renewed"):
                assert text not in log
    finally:
        cluster.close()


def can_log_in(settings: Mapping[str, str]) -> bool:
    logger = logging.getLogger("tests.logins")
    logger.setLevel(logging.CRITICAL)  # to be refused is what is waited out
    try:
        return bool(AdminClient(dict(settings), logger=logger).list_topics(timeout=DEADLINE_S).brokers)
    except KafkaException:
        return False


def furnish(site: Site) -> None:
    """Topics, ACLs and users."""
    admin = AdminClient({"bootstrap.servers": site.bootstrap("SASL_SSL")} | site.librdkafka("admin"))
    topics = (OPEN_TOPIC, CLOSED_TOPIC, LOADED_TOPIC)
    replicas = len(site.cluster.brokers)
    for created in admin.create_topics([NewTopic(topic, 1, replicas) for topic in topics]).values():
        created.result(DEADLINE_S)
    acls = [
        AclBinding(
            *(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, principal, "*"),
            *(operation, AclPermissionType.ALLOW),
        )
        for topic in (OPEN_TOPIC, LOADED_TOPIC)
        for principal in PRINCIPALS
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    acls += [
        AclBinding(
            *(ResourceType.GROUP, "*", ResourcePatternType.LITERAL, principal, "*"),
            *(AclOperation.READ, AclPermissionType.ALLOW),
        )
        for principal in PRINCIPALS
    ]
    for created in admin.create_acls(acls).values():
        created.result(DEADLINE_S)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = ScramCredentialInfo(mechanism, 4096)
        made = [
            UserScramCredentialUpsertion(user, credential, PASSWORDS[user].encode())
            for user in ("alice", "gone")
        ]
        for altered in admin.alter_user_scram_credentials(made).values():
            altered.result(DEADLINE_S)
        removed = admin.alter_user_scram_credentials([UserScramCredentialDeletion("gone", mechanism)])
        removed["gone"].result(DEADLINE_S)
    for broker in site.cluster.brokers.values():  # the others learn of it a moment later
        for mechanism_name in SCRAM:
            settings = {
                "bootstrap.servers": f"localhost:{broker.port_of('SASL_SSL')}",
                **site.librdkafka("alice"),
                "sasl.mechanism": mechanism_name,
            }
            confluent.wait_until(
                lambda settings=settings: can_log_in(settings),  # type: ignore[misc]
                f"alice logs in at {broker} by {mechanism_name}",
            )
    for topic in (OPEN_TOPIC, LOADED_TOPIC):
        site.cluster.wait_until_led(topic)
    site.cluster.wait_until_whole(*topics)


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with secured_site(tmp_path_factory.mktemp("one"), 1) as site:
        yield site


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with secured_site(tmp_path_factory.mktemp("three"), 3) as site:
        yield site


@pytest.fixture(scope="module")
def survivors(three_brokers: Site) -> Site:
    """Two of the three: the leader of two topics is killed while a client writes."""
    cluster = three_brokers.cluster
    settings = three_brokers.librdkafka("alice")
    with Load(three_brokers.bootstrap("SASL_SSL"), [LOADED_TOPIC], **settings) as load:
        leader = cluster.leader(LOADED_TOPIC)
        cluster.brokers[leader].kill()
        for topic in (LOADED_TOPIC, OPEN_TOPIC, CLOSED_TOPIC):
            confluent.wait_until(
                lambda topic=topic: cluster.leader(topic) != leader,  # type: ignore[misc]
                f"another leader of {topic}",
            )
    assert load.failures == []
    offsets = {offset for offset in load.acked[LOADED_TOPIC].values() if offset >= 0}
    assert offsets and offsets <= offsets_of(three_brokers, max(offsets))
    return three_brokers


def offsets_of(site: Site, until: int) -> set[int]:
    """Offsets of the records that alice reads, up to one that is there."""
    config = {"bootstrap.servers": site.bootstrap("SASL_SSL"), "group.id": "g"} | site.librdkafka("alice")
    consumer = Consumer(config)
    consumer.assign([TopicPartition(LOADED_TOPIC, 0, 0)])
    found: set[int] = set()
    try:
        deadline = time.monotonic() + DEADLINE_S
        while until not in found:
            assert time.monotonic() < deadline, f"no record at {until}"
            messages = consumer.consume(1_000, timeout=0.2)
            found |= {message.offset() or 0 for message in messages if message.error() is None}
    finally:
        consumer.close()
    return found


def words_that_are_due(client: str, cell: Cell) -> str:
    """A pattern of the client's words for a refusal; empty: it writes and reads a record."""
    if cannot(client, cell.mechanism):
        return BY_THE_BROKER[f"{cell.mechanism} wrong"]
    if cell.credential == "not allowed":
        return "(?i)not authorized|Topic ?authorization ?failed"
    if not cell.is_refused_login:
        return ""
    if client in ("aiokafka", "kafka-python"):
        return UNSPECIFIC
    return BY_THE_BROKER[f"{cell.mechanism or cell.protocol} {cell.credential}"]


def cells_of(client: str, *credentials: str) -> list[Cell]:
    """Without those in which the client has nothing to show."""
    return [
        cell
        for cell in all_cells()
        if cell.credential in (credentials or CREDENTIALS) and cannot(client, cell.mechanism) != NO_TOKEN
    ]


def check(outcomes: Mapping[Cell, Outcome], client: str) -> None:
    wrong = {}
    for cell, (what, words) in outcomes.items():
        due = words_that_are_due(client, cell)
        is_right = re.search(due, words) if due and what == "refused" else (what, words) == ("read", "")
        if not is_right:
            wrong[str(cell)] = (what, words)
    assert wrong == {}, client
    assert len(outcomes) == len({*outcomes}) > 0


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not there")
    return name


def test_one_broker_lets_in_who_should_be_and_nobody_else(
    one_broker: Site, client: str, request: pytest.FixtureRequest
) -> None:
    check(one_broker.outcomes(client, cells_of(client), request), client)


def test_three_brokers_let_in_who_should_be(
    three_brokers: Site, client: str, request: pytest.FixtureRequest
) -> None:
    check(three_brokers.outcomes(client, cells_of(client, "right"), request), client)


def test_two_that_are_left_do_the_same_and_have_lost_nothing(
    survivors: Site, client: str, request: pytest.FixtureRequest
) -> None:
    check(survivors.outcomes(client, cells_of(client), request), client)
