"""FindCoordinator in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.server.cluster.topic_validation import TRANSACTION_STATE_TOPIC

KEY = ApiKey.FIND_COORDINATOR
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)


async def find(broker: Any, version: int, key: str, key_type: int, listener: str = "PLAINTEXT") -> Any:
    if version >= 4:
        body: dict[str, Any] = {"key_type": key_type, "coordinator_keys": [key]}
    else:
        body = {"key": key} if version == 0 else {"key": key, "key_type": key_type}
    answer = await broker.ask(KEY, version, body, listener=listener)
    return answer.coordinators[0] if version >= 4 else answer


@pytest.mark.parametrize("version", VERSIONS)
async def test_this_broker_coordinates_every_group(admin_broker: Any, version: int) -> None:
    found = await find(admin_broker, version, "group", 0, listener="INSIDE")
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.NONE, 1, "10.0.0.1", 9093)


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_this_broker_coordinates_every_transactional_id(admin_broker: Any, version: int) -> None:
    assert admin_broker.metadata.topic(TRANSACTION_STATE_TOPIC) is None
    found = await find(admin_broker, version, "t", 1, listener="INSIDE")
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.NONE, 1, "10.0.0.1", 9093)
    assert admin_broker.metadata.topic(TRANSACTION_STATE_TOPIC) is not None


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_keys_of_another_type_have_no_coordinator(admin_broker: Any, version: int) -> None:
    for key_type in (2, 7):
        assert (await find(admin_broker, version, "k", key_type)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_listener_that_the_broker_does_not_advertise_finds_no_coordinator(admin_broker: Any) -> None:
    found = await find(admin_broker, 6, "group", 0, listener="OTHER")
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", VERSIONS[4:])
async def test_several_keys_get_an_answer_each(admin_broker: Any, version: int) -> None:
    body = {"key_type": 0, "coordinator_keys": ["a", "b"]}
    answer = await admin_broker.ask(KEY, version, body)
    assert [(each.key, each.node_id) for each in answer.coordinators] == [("a", 1), ("b", 1)]
