"""What can be set for one group, within the bounds of its broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from minikafka.config.group import (
    GROUP_CONFIG_KEYS,
    GroupConfig,
    auto_offset_reset,
    check_group_overrides,
    group_config,
    within_bounds,
)
from minikafka.config.not_honoured import kafka_properties
from minikafka.config.resolution import BrokerProperties, describe_group
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
    group_consumer_assignor_offload_enable=True,
    group_share_assignor_offload_enable=False,
    group_streams_assignor_offload_enable=False,
    **{
        f"group_share_{which}{name}": value
        for name, values in {
            "session_timeout_ms": (46_000, 45_000, 60_000),
            "heartbeat_interval_ms": (6_000, 5_000, 15_000),
            "assignment_interval_ms": (900, 100, 15_000),
            "record_lock_duration_ms": (20_000, 15_000, 60_000),
            "delivery_count_limit": (6, 3, 10),
            "partition_max_record_locks": (1_000, 200, 4_000),
        }.items()
        for which, value in zip(("", "min_", "max_"), values, strict=True)
    },
    **{
        f"group_streams_{which}{name}": value
        for name, values in {
            "session_timeout_ms": (46_000, 45_000, 60_000),
            "heartbeat_interval_ms": (6_000, 5_000, 15_000),
            "assignment_interval_ms": (900, 100, 15_000),
        }.items()
        for which, value in zip(("", "min_", "max_"), values, strict=True)
    },
    group_streams_num_standby_replicas=1,
    group_streams_max_standby_replicas=2,
    group_streams_num_warmup_replicas=3,
    group_streams_max_warmup_replicas=20,
    group_streams_task_offset_interval_ms=50_000,
    group_streams_min_task_offset_interval_ms=15_000,
    group_streams_initial_rebalance_delay_ms=2_000,
    group_streams_rack_aware_assignment_tags=("zone",),
    group_streams_acceptable_recovery_lag=9_000,
)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


@pytest.mark.parametrize(
    ("name", "text", "held"),
    [
        (SESSION, "10000", 20_000),
        (SESSION, "90000", 60_000),
        (ASSIGNMENT, "1", 100),
        (SESSION, "25000", None),
    ],
)
def test_what_was_set_within_other_bounds_is_held_to_those_of_now(
    name: str, text: str, held: int | None
) -> None:
    overrides = {name: text}
    config, said = within_bounds(BOUNDS, group_config(BOUNDS, overrides), overrides)
    assert getattr(config, name.replace(".", "_")) == (int(text) if held is None else held)
    assert said == (
        [] if held is None else [f"{name} is {text}, of which this broker allows {held}: that is what holds"]
    )


def test_what_the_broker_says_itself_is_not_held_to_its_bounds() -> None:
    bounds = SimpleNamespace(**vars(BOUNDS) | {"group_consumer_session_timeout_ms": 5_000})
    config, said = within_bounds(bounds, group_config(bounds, {}), {})
    assert (config.consumer_session_timeout_ms, said) == (5_000, [])


def test_a_session_that_is_no_longer_than_the_heartbeat_interval_is_said() -> None:
    overrides = {HEARTBEAT: "30000"}
    _, said = within_bounds(BOUNDS, group_config(BOUNDS, overrides), overrides)
    assert said == [f"{SESSION} (30000) is not greater than {HEARTBEAT} (30000)"]


def test_what_is_not_set_is_the_brokers() -> None:
    assert group_config(BOUNDS, {SESSION: "50000"}) == GroupConfig(
        consumer_session_timeout_ms=50_000,
        consumer_heartbeat_interval_ms=4_000,
        consumer_assignment_interval_ms=500,
        share_session_timeout_ms=46_000,
        share_heartbeat_interval_ms=6_000,
        share_assignment_interval_ms=900,
        share_record_lock_duration_ms=20_000,
        share_delivery_count_limit=6,
        share_partition_max_record_locks=1_000,
        share_assignor_offload_enable=False,
        streams_assignor_offload_enable=False,
        streams_session_timeout_ms=46_000,
        streams_heartbeat_interval_ms=6_000,
        streams_assignment_interval_ms=900,
        streams_num_standby_replicas=1,
        streams_num_warmup_replicas=3,
        streams_task_offset_interval_ms=50_000,
        streams_initial_rebalance_delay_ms=2_000,
        streams_rack_aware_assignment_tags=("zone",),
        streams_acceptable_recovery_lag=9_000,
    )
    assert group_config(BOUNDS, {}).consumer_session_timeout_ms == 30_000
    assert [name for name in GROUP_CONFIG_KEYS if name.startswith("consumer.")] == [
        ASSIGNMENT,
        "consumer.assignor.offload.enable",
        HEARTBEAT,
        SESSION,
    ]


@pytest.mark.parametrize(
    ("text", "strategy", "duration_ms"),
    [
        ("latest", "latest", 0),
        ("earliest", "earliest", 0),
        ("by_duration:PT1H", "by_duration", 3_600_000),
        ("by_duration:P1DT2M3.5S", "by_duration", 86_523_500),
    ],
)
def test_where_a_share_group_begins(text: str, strategy: str, duration_ms: int) -> None:
    check_group_overrides(BOUNDS, {"share.auto.offset.reset": text})
    assert auto_offset_reset(text) == (strategy, duration_ms)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"streams.session.timeout": "1"}, "Unknown group config name: streams.session.timeout"),
        (
            {"streams.session.timeout.ms": "1"},
            "greater than or equal to group.streams.min.session.timeout.ms",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "must be less than or equal to group.streams.max.standby.replicas (2)",
        ),
        (
            {"streams.num.warmup.replicas": "21"},
            "less than or equal to group.streams.max.warmup.replicas (20)",
        ),
        (
            {"streams.task.offset.interval.ms": "14999"},
            "greater than or equal to group.streams.min.task.offset.interval.ms (15000)",
        ),
        (
            {"streams.assignor.name": "highly_available"},
            "streams.assignor.name 'highly_available' is not a registered task assignor. "
            "Registered assignors are: [sticky].",
        ),
        ({"share.session.timeout.ms": "1"}, "greater than or equal to group.share.min.session.timeout.ms"),
        (
            {"share.delivery.count.limit": "2"},
            "greater than or equal to group.share.min.delivery.count.limit",
        ),
        ({"share.record.lock.duration.ms": "60001"}, "group.share.max.record.lock.duration.ms (60000)"),
        ({"share.isolation.level": "none"}, "String must be one of: read_committed, read_uncommitted"),
        ({"share.auto.offset.reset": "by_duration:-PT1S"}, "must be either 'earliest', 'latest'"),
        ({"share.auto.offset.reset": "by_duration:PT"}, "must be either 'earliest', 'latest'"),
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


def test_the_default_of_every_property_is_described_with_the_brokers() -> None:
    properties = BrokerProperties()
    entries = {each.name: each for each in describe_group(properties, properties.effective(), {})}
    assert entries.keys() == kafka_properties().group.keys()
    assert entries["streams.assignor.name"].value == "sticky"
    assert [each.name for each in entries["streams.assignor.name"].synonyms] == ["group.streams.assignors"]
    assert [each.name for each in entries["share.session.timeout.ms"].synonyms] == [
        "group.share.session.timeout.ms"
    ]
    check_group_overrides(BOUNDS, {"streams.assignor.name": "sticky"})


def test_both_ends_of_a_range_are_allowed() -> None:
    check_group_overrides(BOUNDS, {SESSION: "60000", HEARTBEAT: "1000"})
    check_group_overrides(BOUNDS, {SESSION: "20000"})
