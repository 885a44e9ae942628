"""DescribeCluster in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.coordination import paths
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey

KEY = ApiKey.DESCRIBE_CLUSTER


@pytest.mark.parametrize("version", range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1))
async def test_the_cluster_is_described(admin_broker: Any, version: int) -> None:
    body = {"include_cluster_authorized_operations": True, "include_fenced_brokers": False}
    answer = await admin_broker.ask(KEY, version, body, listener="INSIDE")
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (
        ErrorCode.NONE,
        admin_broker.services.cluster_id,
        1,
    )
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "10.0.0.1", 9093, "rack-a")
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000
    if version >= 2:
        assert broker.is_fenced is False
    quiet = await admin_broker.ask(
        KEY, version, {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
    )
    assert quiet.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_there_are_no_controllers_listeners(
    admin_broker: Any, version: int, endpoint_type: int, code: ErrorCode
) -> None:
    body = {
        "include_cluster_authorized_operations": False,
        "include_fenced_brokers": False,
        "endpoint_type": endpoint_type,
    }
    answer = await admin_broker.ask(KEY, version, body)
    assert (answer.error_code, answer.brokers) == (code, ())
    assert answer.error_message


async def test_who_is_gone_is_fenced_until_it_is_unregistered(admin_broker: Any) -> None:
    services = admin_broker.services
    endpoint = paths.Endpoint("INSIDE", "10.0.0.7", 9093, "PLAINTEXT")
    registration = paths.BrokerRegistration(endpoints=(endpoint,), timestamp_ms=1, rack="rack-b")
    await services.store.create(paths.known_broker_path(7), paths.encode_broker(registration))
    await services.store.create(paths.known_broker_path(8), b"damaged")

    async def brokers(*, fenced: bool) -> list[tuple[int, str, bool]]:
        body = {"include_cluster_authorized_operations": False, "include_fenced_brokers": fenced}
        answer = await admin_broker.ask(KEY, 2, body, listener="INSIDE")
        return [(each.broker_id, each.host, each.is_fenced) for each in answer.brokers]

    async def unregister(node_id: int) -> tuple[int, str | None]:
        answer = await admin_broker.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": node_id})
        return answer.error_code, answer.error_message

    live = (1, "10.0.0.1", False)
    assert await brokers(fenced=False) == [live]
    assert await brokers(fenced=True) == [live, (7, "10.0.0.7", True)]
    assert await unregister(7) == (ErrorCode.NONE, None)
    assert await brokers(fenced=True) == [live]
    not_registered = (ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 7 is not currently registered")
    assert await unregister(7) == not_registered
    code, message = await unregister(1)
    assert code == ErrorCode.INVALID_REQUEST and "alive" in (message or "")
