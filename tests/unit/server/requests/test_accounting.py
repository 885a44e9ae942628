"""Errors are found wherever a response has them; APIs have Kafka's names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode
from minikafka.flight_recorder import Event, SlowRequest
from minikafka.metrics.request_metrics import RequestMetrics, RequestTiming, SlowRequests
from minikafka.network.connection import Connection, PendingResponse
from minikafka.protocol.control import LeaderAndIsrResponse, PartitionError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import RequestHeader, encode_response
from minikafka.server.requests import (
    ClientRequestTiming,
    RequestContext,
    api_name,
    encode_answer,
    error_codes,
    fetch_metrics,
    fields_without_errors,
    request_channel_metrics,
    timed,
)
from minikafka.steps import BYTES_A_STEP, ELEMENTS_A_STEP, Steps, finish


def test_apis_have_kafkas_spelling() -> None:
    assert api_name(ApiKey.LIST_OFFSETS) == "ListOffsets"
    assert api_name(ApiKey.LEADER_AND_ISR) == "LeaderAndIsr"
    assert api_name(ApiKey.FETCH) == "Fetch"


def test_error_codes_are_found_at_every_depth_and_none_is_no_error() -> None:
    body = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "topics": [
            {"name": "a", "error_code": 3, "partitions": [{"error_code": 6}, {"error_code": 0}]},
            {"name": "b", "error_code": 0, "partitions": ({"error_code": 6},)},
        ],
        "names": ["error_code"],
    }
    assert sorted(error_codes(body)) == [3, 6, 6]


def test_where_no_version_of_an_api_has_an_error_code_none_is_looked_for() -> None:
    skipped = fields_without_errors(ApiKey.DESCRIBE_ACLS)
    unread = [SimpleNamespace(), {"error_code": 3}]
    assert list(error_codes({"error_code": 6, "resources": unread}, skipped)) == [6]
    for key in (ApiKey.METADATA, ApiKey.DELETE_ACLS, ApiKey.FETCH, ApiKey.LEADER_AND_ISR):
        names = {"topics", "partitions", "filter_results", "matching_acls", "responses", "partition_errors"}
        assert not names & fields_without_errors(key)


def test_error_codes_of_messages_between_brokers_are_found_too() -> None:
    answer = LeaderAndIsrResponse(ErrorCode.NONE, (PartitionError("a", 0, ErrorCode.STALE_CONTROLLER_EPOCH),))
    assert list(error_codes(answer)) == [ErrorCode.STALE_CONTROLLER_EPOCH]


def test_elements_with_many_parts_are_gone_through_in_small_steps() -> None:
    """Fewer topics than would be a step on their own."""
    topics = [{"name": "a", "partitions": [{"error_code": 3}] * 10}] * (ELEMENTS_A_STEP - 1)
    between = "".join("." if code is None else "x" for code in error_codes({"topics": topics})).split(".")
    assert sum(map(len, between)) == 10 * len(topics)
    assert max(map(len, between)) <= ELEMENTS_A_STEP


def test_an_answer_is_encoded_in_small_steps() -> None:
    config = {
        "name": "cleanup.policy", "value": "delete", "read_only": False, "config_source": 5,
        "is_sensitive": False, "synonyms": [],
    }  # fmt: skip
    resource = {
        "error_code": ErrorCode.NONE, "error_message": None, "resource_type": 2, "resource_name": "a",
        "configs": [config] * (ELEMENTS_A_STEP - 1),
    }  # fmt: skip
    body = {"throttle_time": 0, "results": [resource] * (ELEMENTS_A_STEP - 1)}

    def encode() -> Steps[bytes]:
        return encode_response(api_key=ApiKey.DESCRIBE_CONFIGS, api_version=1, correlation_id=1, body=body)

    steps = sum(1 for _ in encode())
    assert steps >= len(finish(encode())) / (2 * BYTES_A_STEP)


def test_a_throttled_answer_counts_for_its_api() -> None:
    metrics = request_channel_metrics()
    header = RequestHeader(int(ApiKey.LIST_GROUPS), 4, 1, "client", 0)
    context = RequestContext(cast(Connection, None), header)
    for throttle_time_ms in (0, 25):
        body = {"throttle_time": throttle_time_ms, "error_code": ErrorCode.NONE, "groups": ()}
        assert finish(encode_answer(metrics, context, body))
    assert metrics.of(ApiKey.LIST_GROUPS).throttled == 1


def test_a_fetch_is_a_followers_when_it_names_a_replica() -> None:
    metrics = request_channel_metrics()
    assert fetch_metrics(metrics, SimpleNamespace(replica_id=2)) is metrics.fetch_follower
    assert fetch_metrics(metrics, SimpleNamespace(replica_id=-1)) is metrics.fetch_consumer
    assert fetch_metrics(metrics, SimpleNamespace(replica_state=(2, 7))) is metrics.fetch_follower
    assert fetch_metrics(metrics, SimpleNamespace(replica_state=(-1, -1))) is metrics.fetch_consumer


def test_an_answer_that_is_there_at_once_becomes_one_that_is_watched() -> None:
    timing = RequestTiming(RequestMetrics("Metadata"), lambda: 0, arrived_ns=0, size_bytes=100)
    answer = timed(timing, (b"answer",))
    assert isinstance(answer, PendingResponse)
    assert (answer.buffers, answer.observer) == ((b"answer",), timing)
    assert timed(timing, None) is None


@pytest.mark.parametrize(
    ("key", "local_ms", "remote_ms", "is_slow"),
    [
        (ApiKey.CREATE_TOPICS, 0, 1000, True),
        (ApiKey.CREATE_TOPICS, 0, 999, False),
        (ApiKey.FETCH, 0, 30_000, False),
        (ApiKey.FETCH, 1000, 30_000, True),
    ],
)
def test_a_slow_request_is_recorded_but_not_for_waiting_as_it_was_asked(
    key: ApiKey, local_ms: int, remote_ms: int, *, is_slow: bool
) -> None:
    clock, recorded = ManualClock(), list[Event]()
    slow = SlowRequests()
    slow.record = recorded.append
    connection = cast(Connection, SimpleNamespace(received_ns=0, peer="10.0.0.9:5000"))
    context = RequestContext(connection, RequestHeader(int(key), 0, 1, "c" * 900, 0))
    clock.advance(1)
    timing = ClientRequestTiming(RequestMetrics(api_name(key)), clock.monotonic_ns, context, slow)
    clock.advance(local_ms)
    timing.handled()
    clock.advance(remote_ms)
    timing.completed()
    timing.left()
    timing.sent()
    assert len(recorded) == is_slow
    if is_slow:
        (event,) = recorded
        assert isinstance(event, SlowRequest)
        assert (event.local_ms, event.remote_ms, event.connection) == (local_ms, remote_ms, "10.0.0.9:5000")
        assert len(event.client_id) == 200
