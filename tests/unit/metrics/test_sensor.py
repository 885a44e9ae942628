"""A sensor feeds its metrics and its parents, says when a quota is violated, and goes when it is idle."""

from __future__ import annotations

import pytest

from minikafka.errors import InvariantError
from minikafka.metrics.registry import MetricName, Metrics, Quota, QuotaViolationError, RecordingLevel
from minikafka.metrics.stats import CumulativeSum, Max, Rate, WindowConfig

WINDOWS = WindowConfig(11, 1000)
RATE, TOTAL, LARGEST = (MetricName(name, "test") for name in ("rate", "total", "largest"))


def test_one_value_goes_to_every_metric_and_to_the_parents() -> None:
    metrics = Metrics()
    everything = metrics.sensor("all", now_ms=0)
    everything.add(TOTAL, CumulativeSum())
    one, other = (metrics.sensor(name, now_ms=0, parents=(everything,)) for name in ("one", "other"))
    one.add(LARGEST, Max(WINDOWS))
    one.record(3, 0)
    other.record(4, 0)
    assert {str(name): metric.measure(0) for name, metric in metrics.metrics.items()} == {
        "test:total": 7,
        "test:largest": 3,
    }


def test_a_violated_quota_is_told_and_the_value_counts_all_the_same() -> None:
    sensor = Metrics().sensor("limited", now_ms=0)
    metric = sensor.add(RATE, Rate(WINDOWS), Quota(2))
    sensor.record(20, 0)
    with pytest.raises(
        QuotaViolationError, match=r"test:rate violated its quota: 2\.1, the bound is 2"
    ) as told:
        sensor.record(1, 0)
    assert (told.value.metric, told.value.value, told.value.bound) == (metric, 2.1, 2)
    sensor.record(-1, 0, check_quotas=False)
    sensor.check_quotas(0)
    metric.quota = Quota(1)
    with pytest.raises(QuotaViolationError):
        sensor.check_quotas(0)
    metric.quota = None
    sensor.record(1000, 0)


def test_a_sensor_that_is_too_detailed_records_nothing() -> None:
    metrics = Metrics(level=RecordingLevel.DEBUG)
    for level, counted in ((RecordingLevel.INFO, 1), (RecordingLevel.DEBUG, 1), (RecordingLevel.TRACE, 0)):
        sensor = metrics.sensor(level.name, now_ms=0, level=level)
        metric = sensor.add(MetricName(level.name, "test"), CumulativeSum())
        sensor.record(1, 0)
        assert metric.measure(0) == counted


def test_idle_sensors_go_with_their_metrics_and_children() -> None:
    metrics = Metrics()
    parent = metrics.sensor("parent", now_ms=0, life_ms=1000)
    parent.add(RATE, Rate(WINDOWS))
    metrics.sensor("child", now_ms=0, parents=(parent,)).add(TOTAL, CumulativeSum())
    metrics.sensor("stays", now_ms=0).add(LARGEST, Max(WINDOWS))
    parent.record(1, 500)
    metrics.remove_expired(1500)
    assert len(metrics.metrics) == 3
    metrics.remove_expired(1501)
    assert list(metrics.metrics) == [LARGEST]
    assert repr(metrics) == "Metrics(1 sensors, 1 metrics)"
    metrics.sensor("parent", now_ms=2000).add(RATE, Rate(WINDOWS))


def test_a_child_that_goes_first_is_not_missed_by_its_parent() -> None:
    metrics = Metrics()
    parent = metrics.sensor("parent", now_ms=0)
    metrics.sensor("child", now_ms=0, parents=(parent,))
    metrics.remove_sensor("child")
    metrics.remove_sensor("child")
    metrics.remove_sensor("parent")
    assert repr(metrics) == "Metrics(0 sensors, 0 metrics)"


def test_a_sensor_is_made_once_and_a_name_is_taken_once() -> None:
    metrics = Metrics()
    assert metrics.sensor("one", now_ms=0) is metrics.sensor("one", now_ms=5)
    metrics.add_metric(RATE, CumulativeSum())
    with pytest.raises(InvariantError, match="two metrics test:rate"):
        metrics.sensor("one", now_ms=0).add(RATE, Rate(WINDOWS))
    metrics.remove_metric(RATE)
    metrics.sensor("one", now_ms=0).add(RATE, Rate(WINDOWS))
