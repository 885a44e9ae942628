"""What can be set for one group, within the bounds of its broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from minikafka.config.group import GROUP_CONFIG_KEYS, GroupConfig, check_group_overrides, group_config
from minikafka.errors import ErrorCode, KafkaError

BOUNDS = SimpleNamespace(
    group_consumer_session_timeout_ms=30_000,
    group_consumer_min_session_timeout_ms=20_000,
    group_consumer_max_session_timeout_ms=60_000,
    group_consumer_heartbeat_interval_ms=4_000,
    group_consumer_min_heartbeat_interval_ms=1_000,
    group_consumer_max_heartbeat_interval_ms=30_000,
    group_consumer_assignment_interval_ms=500,
    group_consumer_min_assignment_interval_ms=100,
    group_consumer_max_assignment_interval_ms=15_000,
)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


def test_what_is_not_set_is_the_brokers() -> None:
    assert group_config(BOUNDS, {SESSION: "50000"}) == GroupConfig(
        consumer_session_timeout_ms=50_000,
        consumer_heartbeat_interval_ms=4_000,
        consumer_assignment_interval_ms=500,
    )
    assert group_config(BOUNDS, {}).consumer_session_timeout_ms == 30_000
    assert list(GROUP_CONFIG_KEYS) == [ASSIGNMENT, "consumer.assignor.offload.enable", HEARTBEAT, SESSION]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"share.session.timeout.ms": "1"}, "Unknown group config name: share.session.timeout.ms"),
        ({SESSION: "soon"}, "Not a number of type INT"),
        ({SESSION: "0"}, "must be at least 1"),
        ({SESSION: "19999"}, "greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, "less than or equal to group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "999"}, "greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "30001"}, "less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ({ASSIGNMENT: "99"}, "greater than or equal to group.consumer.min.assignment.interval.ms"),
        ({HEARTBEAT: "30000"}, f"{SESSION} must be greater than {HEARTBEAT}"),
        ({SESSION: "20000", HEARTBEAT: "20000"}, f"{SESSION} must be greater than {HEARTBEAT}"),
    ],
)
def test_what_is_not_allowed_is_refused_with_kafkas_words(overrides: dict[str, str], says: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_group_overrides(BOUNDS, overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert says in str(caught.value.message)


def test_both_ends_of_a_range_are_allowed() -> None:
    check_group_overrides(BOUNDS, {SESSION: "60000", HEARTBEAT: "1000"})
    check_group_overrides(BOUNDS, {SESSION: "20000"})
