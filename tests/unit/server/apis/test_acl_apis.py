"""CreateAcls, DescribeAcls and DeleteAcls in every version: what is kept, found, refused, and who may."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.config.resource import Alteration, AlterOperation, ConfigResource, ConfigResourceType
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.errors import ConfigError, ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.security.acl import (
    AUDIT_LOGGER,
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    KafkaPrincipal,
    PatternType,
    ResourceType,
)
from minikafka.server.security.authorizer import Asker
from tests.unit.server.conftest import AdminBroker
from tests.unit.server.running import eventually

CREATE, DESCRIBE, DELETE = ApiKey.CREATE_ACLS, ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS
ROOT, ALICE = KafkaPrincipal("User", "root"), KafkaPrincipal("User", "alice")
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
SECURE = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:root;User:ANONYMOUS",
}

every_version = pytest.mark.parametrize("version", range(SUPPORTED[CREATE].min, SUPPORTED[CREATE].max + 1))


@pytest.fixture
async def secure_broker(store: SqliteStore, tmp_path: Path) -> AsyncIterator[AdminBroker]:
    broker = await AdminBroker(store, tmp_path / "logs", SECURE).start()
    yield broker
    await broker.stop()


def creation(name: str = "orders", **different: Any) -> dict[str, Any]:
    return {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermissionType.ALLOW,
    } | different


def wanted(**different: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
    } | different


Outcome = tuple[ErrorCode, str | None]


async def create(
    broker: AdminBroker, *creations: dict[str, Any], version: int = 3, principal: KafkaPrincipal = ROOT
) -> list[Outcome]:
    answer = await broker.ask(CREATE, version, {"creations": list(creations)}, principal=principal)
    return [(ErrorCode(each.error_code), each.error_message) for each in answer.results]


async def describe(
    broker: AdminBroker, *, version: int = 3, **different: Any
) -> dict[tuple[int, str, int], list[tuple[str, int]]]:
    answer = await broker.ask(DESCRIBE, version, wanted(**different), principal=ROOT)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return {
        (each.resource_type, each.resource_name, each.pattern_type): sorted(
            (acl.principal, acl.operation) for acl in each.acls
        )
        for each in answer.resources
    }


async def delete(
    broker: AdminBroker, *filters: dict[str, Any], version: int = 3, principal: KafkaPrincipal = ROOT
) -> list[tuple[Outcome, list[str]]]:
    answer = await broker.ask(DELETE, version, {"filters": list(filters)}, principal=principal)
    return [
        (
            (ErrorCode(each.error_code), each.error_message),
            sorted(f"{acl.resource_name} {acl.principal}" for acl in each.matching_acls),
        )
        for each in answer.filter_results
    ]


OK: Outcome = (ErrorCode.NONE, None)


def may_read(broker: AdminBroker, name: str = "orders", principal: KafkaPrincipal = ALICE) -> bool:
    authorizer = broker.services.authorizer
    assert authorizer is not None
    asker = Asker(principal, "10.0.0.9", "PLAINTEXT", int(ApiKey.FETCH))
    return authorizer.is_allowed(asker, AclOperation.READ, TOPIC, name)


@every_version
async def test_acls_are_created_described_and_deleted(secure_broker: AdminBroker, version: int) -> None:
    broker = secure_broker
    prefix = creation("log-", resource_pattern_type=PatternType.PREFIXED, operation=AclOperation.ALL)
    assert await create(broker, creation(), creation(), prefix, version=version) == [OK, OK, OK]
    assert may_read(broker) and may_read(broker, "log-1") and not may_read(broker, "other")
    assert await describe(broker, version=version) == {
        (TOPIC, "orders", PatternType.LITERAL): [("User:alice", AclOperation.READ)],
        (TOPIC, "log-", PatternType.PREFIXED): [("User:alice", AclOperation.ALL)],
    }
    match = {"resource_type_filter": TOPIC, "pattern_type_filter": PatternType.MATCH}
    assert list(await describe(broker, version=version, resource_name_filter="log-1", **match)) == [
        (TOPIC, "log-", PatternType.PREFIXED)
    ]
    results = await delete(broker, wanted(resource_name_filter="orders"), wanted(), wanted(), version=version)
    assert results == [(OK, ["orders User:alice"]), (OK, ["log- User:alice"]), (OK, [])]
    assert await describe(broker, version=version) == {}
    assert not may_read(broker)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": AclOperation.ANY}, "Invalid operation ANY"),
        ({"permission_type": 0}, "Invalid permissionType UNKNOWN"),
        ({"resource_type": CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_name": "a/b"}, "ACL binding contains invalid resource name: a/b"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type "
            "from the principal name)",
        ),
        ({"host": ""}, "Invalid empty host"),
    ],
)
async def test_what_no_acl_can_be_is_refused_and_the_others_are_created(
    secure_broker: AdminBroker, bad: dict[str, Any], message: str
) -> None:
    results = await create(secure_broker, creation("a"), creation(**bad), creation("b"))
    assert results == [OK, (ErrorCode.INVALID_REQUEST, message), OK]
    assert sorted(name for _, name, _ in await describe(secure_broker)) == ["a", "b"]


@pytest.mark.parametrize("name", [".", "..", "a\x00b"])
async def test_names_that_the_store_cannot_have_are_refused(secure_broker: AdminBroker, name: str) -> None:
    first, second = await create(secure_broker, creation(name), creation("b"))
    assert first[0] is ErrorCode.INVALID_REQUEST
    assert second == OK
    assert await delete(secure_broker, wanted(resource_type_filter=TOPIC, resource_name_filter=name)) == [
        (OK, [])
    ]


async def test_filters_with_unknown_numbers_are_refused(secure_broker: AdminBroker) -> None:
    await create(secure_broker, creation())
    answer = await secure_broker.ask(DESCRIBE, 3, wanted(resource_type_filter=77), principal=ROOT)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    results = await delete(secure_broker, wanted(operation=77), wanted())
    assert results == [
        ((ErrorCode.INVALID_REQUEST, "Unknown entryFilter."), []),
        (OK, ["orders User:alice"]),
    ]


async def test_it_needs_alter_or_describe_on_the_cluster(secure_broker: AdminBroker) -> None:
    broker, denied = secure_broker, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [code for code, _ in await create(broker, creation(), principal=ALICE)] == [denied]
    assert [code for (code, _), _ in await delete(broker, wanted(), principal=ALICE)] == [denied]
    answer = await broker.ask(DESCRIBE, 3, wanted(), principal=ALICE)
    assert (answer.error_code, answer.resources) == (denied, ())
    on_cluster = {"resource_type": CLUSTER, "resource_name": "kafka-cluster"}
    await create(broker, creation(operation=AclOperation.ALTER, **on_cluster))
    assert await create(broker, creation("x"), principal=ALICE) == [OK]
    answer = await broker.ask(DESCRIBE, 3, wanted(), principal=ALICE)  # which ALTER implies
    assert answer.error_code == ErrorCode.NONE and len(answer.resources) == 2


@every_version
async def test_without_an_authorizer_security_is_disabled(admin_broker: AdminBroker, version: int) -> None:
    disabled = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    assert await create(admin_broker, creation(), version=version) == [disabled]
    assert await delete(admin_broker, wanted(), version=version) == [(disabled, [])]
    answer = await admin_broker.ask(DESCRIBE, version, wanted())
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
    )
    assert admin_broker.services.authorizer is None


async def test_acls_outlive_the_broker(secure_broker: AdminBroker) -> None:
    await create(secure_broker, creation())
    await secure_broker.stop()
    again = await secure_broker.restarted(**SECURE)
    try:
        assert may_read(again)
    finally:
        await again.stop()


async def test_a_new_session_of_the_store_reads_all_acls_again(
    secure_broker: AdminBroker, store: SqliteStore
) -> None:
    """What is told to a broker whose session expired: here by hand, and the node came without a word."""
    entry = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
    await store.create("/kafka-acl/Topic/orders", paths.encode_acls([entry]))
    assert not may_read(secure_broker)
    membership: Any = secure_broker.broker._membership
    for renew in membership._sessions._renewals:
        await renew()

    async def is_read() -> bool:
        return may_read(secure_broker)

    await eventually(is_read, "the ACLs are read again")


async def test_what_another_client_of_the_store_announces_holds_here(
    secure_broker: AdminBroker, store: SqliteStore
) -> None:
    await create(secure_broker, creation())
    epoch = secure_broker.services.fast_paths.epoch
    await store.delete("/kafka-acl/Topic/orders")
    await store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:orders", sequential=True)

    async def is_gone() -> bool:
        return not may_read(secure_broker)

    await eventually(is_gone, "the ACL is gone here, too")
    assert secure_broker.services.fast_paths.epoch > epoch


async def test_every_change_drops_the_fast_paths_and_a_repetition_does_not(
    secure_broker: AdminBroker,
) -> None:
    epochs = [secure_broker.services.fast_paths.epoch]
    for change in (create(secure_broker, creation()), create(secure_broker, creation())):
        await change
        epochs.append(secure_broker.services.fast_paths.epoch)
    await delete(secure_broker, wanted())
    epochs.append(secure_broker.services.fast_paths.epoch)
    assert epochs[0] < epochs[1] == epochs[2] < epochs[3]


async def test_decisions_are_logged_with_kafkas_fields(
    secure_broker: AdminBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, AUDIT_LOGGER)
    await create(secure_broker, creation())
    caplog.clear()
    assert may_read(secure_broker) and not may_read(secure_broker, "secret\nPrincipal = User:alice")
    lines = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == AUDIT_LOGGER]
    assert lines == [
        (
            "DEBUG",
            "Principal = User:alice is Allowed operation = READ from host = 10.0.0.9 on resource = "
            "Topic:LITERAL:orders for request = Fetch with resourceRefCount = 1 based on rule "
            "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=orders, patternType=LITERAL, "
            "principal=User:alice, host=*, operation=READ, permissionType=ALLOW))",
        ),
        (
            "INFO",
            "Principal = User:alice is Denied operation = READ from host = 10.0.0.9 on resource = "
            "Topic:LITERAL:secret\\nPrincipal = User:alice for request = Fetch with resourceRefCount = 1 "
            "based on rule DefaultDeny",
        ),
    ]


async def test_what_only_lists_operations_is_not_logged_but_counted(
    secure_broker: AdminBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, AUDIT_LOGGER)
    authorizer: Any = secure_broker.services.authorizer
    counts = secure_broker.services.security_metrics.authorizer
    before = counts.requests
    asker = Asker(ALICE, "10.0.0.9", "PLAINTEXT", int(ApiKey.METADATA))
    quiet = {"logs_allowed": False, "logs_denied": False}
    assert not authorizer.is_allowed(asker, AclOperation.READ, TOPIC, "x", **quiet)
    assert authorizer.is_allowed(asker._replace(principal=ROOT), AclOperation.READ, TOPIC, "x", **quiet)
    assert not caplog.records
    assert (counts.requests, counts.denied) == (before + 2, 1)
    assert not authorizer.is_allowed_on_any(asker, AclOperation.WRITE, TOPIC)
    assert caplog.messages == [
        "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.9 on resource = "
        "Topic:UNKNOWN:NONE for request = Metadata with resourceRefCount = 0"
    ]


async def test_the_log_of_decisions_can_be_turned_up_and_back(secure_broker: AdminBroker) -> None:
    """KIP-412."""
    configs = secure_broker.services.configs
    resource = ConfigResource(ConfigResourceType.BROKER_LOGGER, "1")
    audit_logger = logging.getLogger(AUDIT_LOGGER)
    try:
        await configs.alter_incrementally(resource, [Alteration(AUDIT_LOGGER, AlterOperation.SET, "DEBUG")])
        assert audit_logger.level == logging.DEBUG
        await configs.alter_incrementally(resource, [Alteration(AUDIT_LOGGER, AlterOperation.DELETE, None)])
        assert audit_logger.level == logging.getLogger("minikafka").level
    finally:
        audit_logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"authorizer.class.name": "com.example.Mine"},
            "authorizer.class.name=com.example.Mine: must be kafka.security.authorizer.AclAuthorizer or "
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer, or empty for none",
        ),
        (
            SECURE | {"super.users": "root"},
            "super.users=root: expected a string in format principalType:principalName but got root",
        ),
    ],
)
async def test_a_broker_with_another_authorizer_does_not_start(
    store: SqliteStore, tmp_path: Path, properties: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await AdminBroker(store, tmp_path / "logs", properties).start()
    assert str(caught.value) == message
