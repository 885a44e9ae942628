"""ACLs through stock tools, confluent-kafka's and Kafka's own kafka-acls; an Apache Kafka 3.9 beside us."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from minikafka.coordination.zookeeper import ZooKeeperStore
from minikafka.security import acl as kafka_acl
from minikafka.security.authorizer_data import AuthorizerData
from minikafka.server.security.acl_authorizer import AclStore
from minikafka.steps import finish
from minikafka.system_clock import SystemClock
from tests.integration.conftest import StartBroker, StartCluster
from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess, KafkaOnZooKeeper
from tests.support.zookeeper import ZooKeeperServer

WAIT_S = 60
SECURE = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ACL_COMMAND = "org.apache.kafka.tools.AclCommand"


@pytest.fixture
def secure_broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(properties=SECURE)


def acl(
    name: str = "orders",
    *,
    who: str = "User:alice",
    kind: ResourcePatternType = ResourcePatternType.LITERAL,
    operation: AclOperation = AclOperation.READ,
    resource: ResourceType = ResourceType.TOPIC,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(resource, name, kind, who, "*", operation, permission)


def any_acl(
    resource: ResourceType = ResourceType.ANY,
    name: str | None = None,
    kind: ResourcePatternType = ResourcePatternType.ANY,
    who: str | None = None,
) -> AclBindingFilter:
    return AclBindingFilter(resource, name, kind, who, None, AclOperation.ANY, AclPermissionType.ANY)


def described(admin: AdminClient, wanted: AclBindingFilter | None = None) -> set[AclBinding]:
    return set(admin.describe_acls(wanted or any_acl()).result(WAIT_S))


def create(admin: AdminClient, *acls: AclBinding) -> None:
    for future in admin.create_acls(list(acls)).values():
        future.result(WAIT_S)


@pytest.mark.minikafka_only
def test_confluents_admin_client(secure_broker: BrokerProcess) -> None:
    admin = confluent.admin(secure_broker.bootstrap)
    acls = [
        acl(),
        acl("ord", kind=ResourcePatternType.PREFIXED, operation=AclOperation.ALL),
        acl("kafka-cluster", resource=ResourceType.BROKER, operation=AclOperation.CREATE),
        acl("billing", resource=ResourceType.GROUP, who="User:bob", permission=AclPermissionType.DENY),
    ]
    create(admin, *acls)
    create(admin, acls[0])  # again: no error
    assert described(admin) == set(acls)
    match = any_acl(ResourceType.TOPIC, "orders", ResourcePatternType.MATCH)
    assert described(admin, match) == set(acls[:2])
    (bad,) = admin.create_acls([acl("a/b")]).values()
    with pytest.raises(KafkaException, match="invalid resource name: a/b"):
        bad.result(WAIT_S)
    (deleted,) = admin.delete_acls([any_acl(who="User:bob")]).values()
    assert set(deleted.result(WAIT_S)) == {acls[3]}
    assert described(admin) == set(acls[:3])


@pytest.mark.minikafka_only
def test_a_broker_without_an_authorizer_says_so(start_broker: StartBroker) -> None:
    admin = confluent.admin(start_broker().bootstrap)
    with pytest.raises(KafkaException, match="No Authorizer is configured"):
        create(admin, acl())


@pytest.mark.minikafka_only
def test_acls_outlive_a_restart(secure_broker: BrokerProcess) -> None:
    create(confluent.admin(secure_broker.bootstrap), acl(), acl("b", who="User:*"))
    secure_broker.kill()
    secure_broker.start()
    assert described(confluent.admin(secure_broker.bootstrap)) == {acl(), acl("b", who="User:*")}


@pytest.mark.minikafka_only
def test_all_brokers_of_a_cluster_hear_of_a_change(start_cluster: StartCluster) -> None:
    cluster = start_cluster(properties=SECURE)
    admins = [confluent.admin(broker.bootstrap) for broker in cluster.brokers.values()]
    create(admins[0], *(acl(f"t{number}") for number in range(20)))
    for admin in admins:
        confluent.wait_until(lambda admin=admin: len(described(admin)) == 20, "the ACLs are everywhere")
    admins[1].delete_acls([any_acl(ResourceType.TOPIC, "t7", ResourcePatternType.LITERAL)])
    for admin in admins:
        confluent.wait_until(lambda admin=admin: len(described(admin)) == 19, "one is gone everywhere")


@pytest.mark.java
@pytest.mark.minikafka_only
def test_kafkas_own_command(secure_broker: BrokerProcess, java_class_path: str) -> None:
    def acls(*arguments: str) -> str:
        server = ("--bootstrap-server", secure_broker.bootstrap)
        return java.tool(java_class_path, ACL_COMMAND, *server, *arguments)

    producer = ("--producer", "--topic", "orders", "--transactional-id", "app-", "--idempotent")
    acls("--add", "--allow-principal", "User:alice", *producer)
    acls(
        *("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Read"),
        *("--topic", "ord", "--resource-pattern-type", "prefixed"),
    )
    listed = acls("--list")
    for line in (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`:",
        "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)",
        "(principal=User:alice, host=*, operation=IDEMPOTENT_WRITE, permissionType=ALLOW)",
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)`:",
        "(principal=User:bob, host=10.0.0.1, operation=READ, permissionType=DENY)",
    ):
        assert line in listed
    admin = confluent.admin(secure_broker.bootstrap)
    assert len(described(admin)) == 7
    acls("--remove", "--force", "--topic", "orders", "--resource-pattern-type", "match")
    assert {each.restype for each in described(admin)} == {
        ResourceType.BROKER,
        ResourceType.TRANSACTIONAL_ID,
    }


@pytest.fixture
def kafka_on_zookeeper(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> Iterator[KafkaOnZooKeeper]:
    connect = f"{zookeeper_server.address}/{tmp_path.name}"
    broker = KafkaOnZooKeeper(
        tmp_path / "kafka",
        properties={
            "zookeeper.connect": connect,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@pytest.mark.java
@pytest.mark.minikafka_only
async def test_an_apache_kafka_on_the_same_zookeeper_has_the_same_acls(
    kafka_on_zookeeper: KafkaOnZooKeeper,
) -> None:
    """What Kafka creates is read, what is created here Kafka decides by, and each hears of the other's
    changes."""
    store = await ZooKeeperStore.open(kafka_on_zookeeper.properties["zookeeper.connect"])
    await store.start_session()
    changed = asyncio.Event()
    data = AuthorizerData()
    acls = AclStore(store, data, clock=SystemClock())
    acls.follow(changed.set)
    admin = confluent.admin(kafka_on_zookeeper.bootstrap)

    async def until_known(count: int) -> list[kafka_acl.AclBinding]:
        async with asyncio.timeout(WAIT_S):
            while data.acl_count != count:
                changed.clear()
                await changed.wait()
        return sorted(finish(data.matching(kafka_acl.AclBindingFilter())))

    async def until_kafka_knows(count: int) -> set[AclBinding]:
        await asyncio.to_thread(
            confluent.wait_until, lambda: len(described(admin)) == count, "Kafka has heard of it"
        )
        return await asyncio.to_thread(described, admin)

    prefixed = acl("app-", kind=ResourcePatternType.PREFIXED, resource=ResourceType.TRANSACTIONAL_ID)
    await asyncio.to_thread(create, admin, acl(), prefixed)
    await acls.load()
    task = asyncio.create_task(acls.run())
    try:
        assert [str(each) for each in await until_known(2)] == [
            "(pattern=ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL), "
            "entry=(principal=User:alice, host=*, operation=READ, permissionType=ALLOW))",
            "(pattern=ResourcePattern(resourceType=TRANSACTIONAL_ID, name=app-, patternType=PREFIXED), "
            "entry=(principal=User:alice, host=*, operation=READ, permissionType=ALLOW))",
        ]
        await asyncio.to_thread(create, admin, acl(who="User:bob"))
        await until_known(3)
        entry = kafka_acl.AccessControlEntry(
            "User:carol", "*", kafka_acl.AclOperation.DESCRIBE_CONFIGS, kafka_acl.AclPermissionType.DENY
        )
        topics = kafka_acl.ResourcePattern(
            kafka_acl.ResourceType.TOPIC, "logs-", kafka_acl.PatternType.PREFIXED
        )
        orders = kafka_acl.ResourcePattern(kafka_acl.ResourceType.TOPIC, "orders")
        both = [kafka_acl.AclBinding(pattern, entry) for pattern in (topics, orders)]
        assert await acls.create(both) == [None, None]
        known_there = await until_kafka_knows(5)
        assert {each.name for each in known_there if each.principal == "User:carol"} == {"logs-", "orders"}
        await acls.delete([kafka_acl.AclBindingFilter()])
        assert await until_kafka_knows(0) == set()
        await asyncio.to_thread(create, admin, acl())
        await until_known(1)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()
