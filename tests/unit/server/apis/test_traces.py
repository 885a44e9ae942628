"""Trace sessions over the Kafka port (``server.apis.diagnostics``)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minikafka.config.resource import DIAGNOSTICS, AlterOperation
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from tests.unit.server.apis.test_diagnostics import ask
from tests.unit.server.tracing.batches import ORDERS, TOPIC_ID, batch

ALL = '{"one_in": 1, "seconds": 60}'


async def alter(
    broker: Any,
    name: str,
    value: str | None,
    *,
    resource: str = "traces",
    operation: int = AlterOperation.SET,
    validate_only: bool = False,
) -> Any:
    config = {"name": name, "config_operation": operation, "value": value}
    wanted = {"resource_type": DIAGNOSTICS, "resource_name": resource, "configs": [config]}
    body = {"resources": [wanted], "validate_only": validate_only}
    (response,) = (await broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)).responses
    return response


async def names(broker: Any) -> list[str]:
    (config,) = (await ask(broker, "traces")).configs
    return [each["name"] for each in json.loads(config.value)["sessions"]]


async def test_a_session_is_set_described_and_deleted(admin_broker: Any) -> None:
    assert await names(admin_broker) == []
    checked = await alter(admin_broker, "mine", ALL, validate_only=True)
    assert checked.error_code == ErrorCode.NONE and await names(admin_broker) == []
    assert (await alter(admin_broker, "mine", ALL)).error_code == ErrorCode.NONE
    assert await names(admin_broker) == ["mine"]
    (config,) = (await ask(admin_broker, "traces", "session=mine")).configs
    found = json.loads(config.value)
    assert found["traces"] == [] and found["next"] is None and found["now_ns"] > 1_600_000_000 * 10**9
    deleted = await alter(admin_broker, "mine", None, operation=AlterOperation.DELETE)
    assert deleted.error_code == ErrorCode.NONE and await names(admin_broker) == []


@pytest.mark.parametrize(
    ("resource", "value", "operation", "code", "named"),
    [
        ("purgatories", ALL, AlterOperation.SET, ErrorCode.INVALID_REQUEST, "purgatories"),
        ("traces", "{}", AlterOperation.SET, ErrorCode.INVALID_CONFIG, "one_in"),
        ("traces", ALL, AlterOperation.APPEND, ErrorCode.INVALID_REQUEST, "set or deleted"),
    ],
)
async def test_what_cannot_be_is_refused(
    admin_broker: Any, resource: str, value: str, operation: int, code: ErrorCode, named: str
) -> None:
    response = await alter(admin_broker, "mine", value, resource=resource, operation=operation)
    assert response.error_code == code and named in response.error_message
    assert await names(admin_broker) == []


@pytest.mark.parametrize(("key", "named"), [("session=none", "no trace session none"), ("a=b", "'a'")])
async def test_a_question_about_what_is_not_there_is_refused(admin_broker: Any, key: str, named: str) -> None:
    result = await ask(admin_broker, "traces", key)
    assert result.error_code == ErrorCode.INVALID_REQUEST and named in result.error_message


async def test_many_traces_come_in_several_answers(admin_broker: Any) -> None:
    """A string of the protocol has 32,767 bytes."""
    assert (await alter(admin_broker, "mine", ALL)).error_code == ErrorCode.NONE
    tracer = admin_broker.services.replica_manager.tracer
    for offset in range(60):
        trace = tracer.begin(
            ORDERS, TOPIC_ID, batch(None), first_offset=offset, received_ns=0, client="\0" * 300, acks=1
        )
        for _ in range(offset):
            tracer.note(trace, "consumed", client="\0" * 300)
    offsets: list[int] = []
    following: int | None = 0
    answers = 0
    while following is not None:
        configs = (await ask(admin_broker, "traces", "session=mine", f"from={following}")).configs
        text = "".join(config.value for config in configs)
        assert len(text.encode()) <= 0x7FFF
        found = json.loads(text)
        offsets += [each["first_offset"] for each in found["traces"]]
        following = found["next"]
        answers += 1
    assert offsets == list(range(60)) and answers > 3
    refused = await ask(admin_broker, "traces", "session=mine", "from=-1")
    assert refused.error_code == ErrorCode.INVALID_REQUEST and "from='-1'" in refused.error_message
