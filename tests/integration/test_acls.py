"""ACLs through stock tools: confluent-kafka's admin client, Kafka's own kafka-acls, and a second broker."""

from __future__ import annotations

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

from tests.integration.conftest import StartBroker, StartCluster
from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess

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
        return java.run(java_class_path, ACL_COMMAND, *server, *arguments)

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
