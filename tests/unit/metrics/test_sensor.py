"""A sensor feeds its metrics, says when a quota is violated, and takes its metrics with it."""

from __future__ import annotations

import pytest

from minikafka.errors import InvariantError
from minikafka.metrics.sensors import (
    Max,
    MetricName,
    Metrics,
    Quota,
    QuotaViolationError,
    Rate,
    WindowConfig,
    WindowedSum,
)

WINDOWS = WindowConfig(11, 1000)
RATE, TOTAL, LARGEST = (MetricName(name, "test") for name in ("rate", "total", "largest"))


def test_one_value_goes_to_every_metric() -> None:
    metrics = Metrics()
    sensor = metrics.sensor("both", now_ms=0)
    sensor.add(TOTAL, WindowedSum(WINDOWS))
    sensor.add(LARGEST, Max(WINDOWS))
    sensor.record(3, 0)
    sensor.record(4, 0)
    assert {str(name): metric.measure(0) for name, metric in metrics.metrics.items()} == {
        "test:total": 7,
        "test:largest": 4,
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


def test_a_sensor_goes_with_its_metrics() -> None:
    metrics = Metrics()
    metrics.sensor("goes", now_ms=0).add(RATE, Rate(WINDOWS))
    metrics.sensor("stays", now_ms=0).add(LARGEST, Max(WINDOWS))
    metrics.remove_sensor("goes")
    metrics.remove_sensor("goes")
    assert list(metrics.metrics) == [LARGEST]
    assert repr(metrics) == "Metrics(1 sensors, 1 metrics)"
    metrics.sensor("goes", now_ms=2000).add(RATE, Rate(WINDOWS))


def test_a_sensor_is_made_once_and_a_name_is_taken_once() -> None:
    metrics = Metrics()
    assert metrics.sensor("one", now_ms=0) is metrics.sensor("one", now_ms=5)
    metrics.add_metric(RATE, Rate(WINDOWS))
    with pytest.raises(InvariantError, match="two metrics test:rate"):
        metrics.sensor("one", now_ms=0).add(RATE, Rate(WINDOWS))
    metrics.remove_metric(RATE)
    metrics.sensor("one", now_ms=0).add(RATE, Rate(WINDOWS))
