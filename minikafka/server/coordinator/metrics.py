"""How long it takes a coordinator to load a partition of its topic. Kafka: the sensors
``GroupPartitionLoadTime`` and ``TransactionsPartitionLoadTime``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minikafka.metrics.names_of_coordinators import LOAD_TIME_AVG, LOAD_TIME_MAX
from minikafka.metrics.registry import MetricName, Metrics
from minikafka.metrics.sensor import Sensor
from minikafka.metrics.series import Sample, Series
from minikafka.metrics.windows import Avg, Max, WindowConfig


def load_time_sensor(metrics: Metrics, group: str, *, now_ms: int) -> Sensor:
    """Of milliseconds, each load's from when its leadership was known here. ``group``: of the metrics."""
    sensor = metrics.sensor(f"{group}-PartitionLoadTime", now_ms=now_ms)
    windows = WindowConfig()
    sensor.add(MetricName(LOAD_TIME_MAX, group), Max(windows))
    sensor.add(MetricName(LOAD_TIME_AVG, group), Avg(windows))
    return sensor


def load_time_samples(
    metrics: Metrics, group: str, series: Mapping[str, Series], *, now_ms: int
) -> Iterator[Sample]:
    """Those two. ``series`` by the metric's name."""
    for name, shown in series.items():
        yield Sample(shown, metrics.metrics[MetricName(name, group)].measure(now_ms))
