"""Who is asked for which metrics, and what becomes of a push."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
import pytest

from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.records.compression import CompressionType, compress
from minikafka.server import client_metrics
from minikafka.server.client_metrics import ClientMetricsManager, Push, Subscribed
from tests.unit.protocol.wire.test_telemetry import metrics_data

MAX_BYTES = 1000
JAVA = {"client_id": "app-1", "client_software_name": "apache-kafka-java"}
CONFLUENT = {"client_id": "app-2", "client_software_name": "librdkafka"}


class Fixture:
    """A manager on a clock of its own; ``received`` is what its receiver was given."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.received: list[tuple[Mapping[str, str | None], Sequence[str]]] = []
        self.manager = self.another()

    def another(self) -> ClientMetricsManager:
        return ClientMetricsManager(
            clock=self.clock,
            rng=random.Random(7),
            telemetry_max_bytes=MAX_BYTES,
            receivers=[lambda attributes, names: self.received.append((attributes, names))],
        )

    def push(self, told: Subscribed, data: bytes = metrics_data("a", "b"), **changes: Any) -> ErrorCode:
        push = Push(
            client_instance_id=told.client_instance_id,
            subscription_id=told.subscription_id,
            terminating=False,
            compression_type=CompressionType.ZSTD,
            metrics=compress(data, CompressionType.ZSTD),
        )
        try:
            self.manager.push(msgspec.structs.replace(push, **changes), JAVA)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def throttled(self, client_instance_id: UUID) -> bool:
        try:
            self.manager.subscribe(client_instance_id, JAVA)
        except KafkaError as error:
            assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            return True
        return False


@pytest.fixture
def telemetry() -> Fixture:
    fixture = Fixture()
    fixture.manager.update_subscription("java", {"metrics": "b,a", "match": "client_software_name=apache-.*"})
    fixture.manager.update_subscription(
        "apps", {"metrics": "c", "interval.ms": "1000", "match": "client_id=app-1"}
    )
    return fixture


def test_without_a_subscription_a_client_has_five_minutes_of_quiet() -> None:
    told = Fixture().manager.subscribe(None, JAVA)
    assert (told.metrics, told.push_interval_ms) == ((), 300_000)
    assert told.client_instance_id.version == 4


def test_a_client_sends_what_all_subscriptions_that_match_it_want(telemetry: Fixture) -> None:
    told = telemetry.manager.subscribe(None, JAVA)
    assert (told.metrics, told.push_interval_ms) == (("a", "b", "c"), 1000)
    assert telemetry.manager.subscribe(None, CONFLUENT).metrics == ()
    telemetry.manager.update_subscription("all", {"metrics": "*,d"})
    assert telemetry.manager.subscribe(None, CONFLUENT).metrics == ("*",)
    telemetry.manager.update_subscription("all", {})
    assert telemetry.manager.subscribe(None, CONFLUENT).metrics == ()


def test_an_attribute_must_match_as_a_whole_and_be_known(telemetry: Fixture) -> None:
    assert telemetry.manager.subscribe(None, {"client_id": "app-10"}).metrics == ()
    assert telemetry.manager.subscribe(None, {"client_id": None}).metrics == ()


def test_a_push_reaches_the_receivers_with_the_client_and_the_names(telemetry: Fixture) -> None:
    told = telemetry.manager.subscribe(None, JAVA)
    for codec in CompressionType:
        changed = {"compression_type": codec, "metrics": compress(metrics_data("a", "b"), codec)}
        assert telemetry.push(told, **changed) is ErrorCode.NONE
        telemetry.clock.advance(1000)
    attributes, names = telemetry.received[0]
    assert (attributes["client_id"], names) == ("app-1", ["a", "b"])
    assert len(telemetry.received) == len(CompressionType)
    assert telemetry.push(told, metrics=b"") is ErrorCode.NONE
    assert len(telemetry.received) == len(CompressionType)


def test_who_comes_too_early_is_throttled_but_for_the_first_push(telemetry: Fixture) -> None:
    told = telemetry.manager.subscribe(None, JAVA)
    assert telemetry.throttled(told.client_instance_id)
    assert telemetry.push(told) is ErrorCode.NONE
    telemetry.clock.advance(999)
    assert telemetry.push(told) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert telemetry.throttled(told.client_instance_id)
    telemetry.clock.advance(1)
    assert telemetry.push(told) is ErrorCode.NONE
    assert telemetry.push(told, terminating=True) is ErrorCode.NONE, "the last one need not wait"
    telemetry.clock.advance(1000)
    assert telemetry.push(told) is ErrorCode.INVALID_REQUEST, "and is the last one"


def test_changed_subscriptions_are_asked_for_again_at_once(telemetry: Fixture) -> None:
    told = telemetry.manager.subscribe(None, JAVA)
    telemetry.manager.update_subscription("java", {"metrics": "z"})
    assert telemetry.push(told) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = telemetry.manager.subscribe(told.client_instance_id, JAVA)
    assert (again.client_instance_id, again.metrics) == (told.client_instance_id, ("c", "z"))
    telemetry.clock.advance(1000)
    assert telemetry.push(again) is ErrorCode.NONE


def test_another_broker_knows_what_the_client_was_told(telemetry: Fixture) -> None:
    told = telemetry.manager.subscribe(None, JAVA)
    telemetry.manager, first = telemetry.another(), telemetry.manager
    telemetry.manager.update_subscription("apps", {"metrics": "c", "interval.ms": "1000"})
    telemetry.manager.update_subscription("java", {"metrics": "a,b"})
    assert telemetry.manager is not first
    assert telemetry.push(told) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(MAX_BYTES + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": compress(bytes(MAX_BYTES + 1), CompressionType.ZSTD)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"not zstd"}, ErrorCode.INVALID_RECORD),
        ({"metrics": compress(b"\xff" * 20, CompressionType.ZSTD)}, ErrorCode.INVALID_RECORD),
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
    ],
)
def test_a_bad_push_has_kafkas_code_and_reaches_no_receiver(
    telemetry: Fixture, changes: dict[str, Any], code: ErrorCode
) -> None:
    told = telemetry.manager.subscribe(None, JAVA)
    assert telemetry.push(told, **changes) is code
    assert telemetry.received == []


def test_clients_are_forgotten_when_their_time_is_over_or_there_is_no_room(
    telemetry: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_metrics, "INSTANCES_MAX", 3)
    for _ in range(5):
        telemetry.manager.subscribe(None, JAVA)
    assert "3 clients" in repr(telemetry.manager)
    telemetry.clock.advance(client_metrics.INSTANCE_LIFE_MS_MIN)
    telemetry.manager.subscribe(None, JAVA)
    assert "1 clients" in repr(telemetry.manager)
