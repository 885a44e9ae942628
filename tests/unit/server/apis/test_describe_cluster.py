"""DescribeCluster in every version."""

from __future__ import annotations

from typing import Any

import pytest

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
