"""When retention cuts a log, told from its segments as Kafka's UnifiedLog decides it."""

from __future__ import annotations

import pytest

from minikafka.config.broker import broker_config
from minikafka.errors import ConfigError
from minikafka.spark.analyze.analysis import Retention
from minikafka.spark.analyze.job import SegmentFigures, TopicSettings, forecast, topic_settings

NOW_MS = 1_000_000


def settings(**given: str) -> TopicSettings:
    own = {name.replace("_", "."): value for name, value in given.items()}
    return topic_settings("t", {"t": own}, broker_config({}), broker_source="a file")


def segments(*timestamps: int | None, size: int = 100) -> list[SegmentFigures]:
    """Ten records each, the oldest first, with these greatest timestamps."""
    return [
        SegmentFigures(10 * number, 10 * number + 9, 10, size, timestamp)
        for number, timestamp in enumerate(timestamps)
    ]


def cut(
    *timestamps: int | None, high_watermark: int | None = None, size: int = 100, **given: str
) -> Retention:
    return forecast(
        segments(*timestamps, size=size), settings(**given), high_watermark=high_watermark, now_ms=NOW_MS
    )


def test_time_takes_the_oldest_segments_one_after_the_other() -> None:
    found = cut(100, 200, NOW_MS - 5, NOW_MS, retention_ms="1000")
    assert (found.due_segments, found.due_records, found.due_bytes) == (2, 20, 200)
    assert found.next_ms == NOW_MS - 5 + 1000 + 1
    assert found.last_ms == NOW_MS + 1000 + 1


def test_a_segment_waits_for_those_in_front_of_it() -> None:
    found = cut(NOW_MS + 500, 100, retention_ms="1000")
    assert found.due_segments == 0
    assert found.next_ms == found.last_ms == NOW_MS + 1501


def test_exactly_as_old_as_it_may_be_stays() -> None:
    assert cut(NOW_MS - 1000, retention_ms="1000").due_segments == 0
    assert cut(NOW_MS - 1001, retention_ms="1000").due_segments == 1


def test_size_takes_what_leaves_at_least_the_limit() -> None:
    found = cut(*[NOW_MS] * 5, retention_bytes="250")
    assert (found.due_segments, found.due_bytes) == (2, 200)  # 300 remain; another would leave 200
    assert found.bytes_left == 50
    assert cut(*[NOW_MS] * 5, retention_bytes="300").bytes_left == 100
    assert cut(*[NOW_MS] * 5).bytes_left is None


def test_nothing_at_the_high_watermark_goes() -> None:
    assert cut(1, 2, 3, retention_ms="10", high_watermark=20).due_segments == 2
    assert cut(1, 2, 3, retention_ms="10", high_watermark=19).due_segments == 1
    assert cut(1, 2, 3, retention_ms="10", high_watermark=19).last_ms is None


def test_a_segment_without_timestamps_ends_what_is_known() -> None:
    found = cut(1, None, 3, retention_ms="10")
    assert (found.due_segments, found.next_ms, found.last_ms) == (1, None, None)


def test_a_compacted_topic_is_not_cut() -> None:
    found = cut(1, 2, cleanup_policy="compact", retention_ms="10", retention_bytes="1")
    assert (found.applies, found.due_segments, found.next_ms, found.bytes_left) == (False, 0, None, None)
    assert cut(1, 2, cleanup_policy="compact,delete", retention_ms="10").due_segments == 2


def test_no_limit_is_no_limit() -> None:
    found = cut(1, 2, retention_ms="-1")
    assert (found.applies, found.due_segments, found.next_ms) == (True, 0, None)


def test_every_value_says_where_it_is_from() -> None:
    broker = broker_config({"log.retention.hours": "1"})
    found = topic_settings(
        "t",
        {"*": {"retention.bytes": "7"}, "t": {"cleanup.policy": "delete"}},
        broker,
        broker_source="a file",
    )
    assert {name: (each.value, each.source) for name, each in found.shown.items()} == {
        "cleanup.policy": ("delete", "given for t"),
        "retention.ms": ("3600000", "a file"),
        "retention.bytes": ("7", "given for all topics"),
    }
    assert settings().shown["retention.ms"].source == "Kafka's default"


def test_a_setting_that_is_none() -> None:
    with pytest.raises(ConfigError, match="retention"):
        settings(retention_ms="soon")
