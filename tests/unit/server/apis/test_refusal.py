"""What Kafka's broker listener has and this broker has not is answered, and the connection stays open."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import REFUSED, SUPPORTED, ApiKey
from minikafka.protocol.wire.schema import EntitySchema, FieldSchema, message_schema
from minikafka.server.requests import error_codes

REFUSALS = [
    (key, version) for key, versions in REFUSED.items() for version in range(versions.min, versions.max + 1)
]
ACLS = [ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS]


def body_of(schema: EntitySchema) -> dict[str, Any]:
    """With one element in each array."""
    return {each.name: value_of(each) for each in schema.fields}


def value_of(field: FieldSchema) -> Any:
    empty: dict[str, Any] = {"bool": False, "string": "x", "bytes": b"", "records": b"", "uuid": None}
    value = body_of(field.entity) if field.entity else empty.get(field.kafka_type or "", 1)
    return [value] if field.is_array else value


async def ask(broker: Any, key: ApiKey, version: int) -> Any:
    return await broker.ask(key, version, body_of(message_schema(key, version, "request").body))


@pytest.mark.parametrize(("key", "version"), REFUSALS)
async def test_an_api_that_is_not_here_is_an_unsupported_version(
    admin_broker: Any, key: ApiKey, version: int
) -> None:
    answer = await ask(admin_broker, key, version)
    assert list(error_codes(answer)) == [ErrorCode.UNSUPPORTED_VERSION], "one, where the API has room for it"


async def test_an_error_stands_with_each_thing_that_was_asked_about(admin_broker: Any) -> None:
    change = {"mechanism": 1, "iterations": 4096, "salt": b"", "salted_password": b""}
    changes = {
        "deletions": [{"name": "ann", "mechanism": 1}],
        "upsertions": [{"name": name} | change for name in ("bob", "ann")],
    }
    answer = await admin_broker.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, changes)
    assert [each.user for each in answer.results] == ["ann", "bob"]


@pytest.mark.parametrize("key", ACLS)
@pytest.mark.parametrize("version", range(1, SUPPORTED[ACLS[0]].max + 1))
async def test_access_control_lists_need_an_authorizer(admin_broker: Any, key: ApiKey, version: int) -> None:
    answer = await ask(admin_broker, key, version)
    assert list(error_codes(answer)) == [ErrorCode.SECURITY_DISABLED]
    assert "No Authorizer is configured" in str(answer)
