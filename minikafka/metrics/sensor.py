"""Where values come in: one ``record`` for all the statistics of one thing, and for its parents. Pure.

Kafka: ``Sensor``, ``Sensor.RecordingLevel``.

Invariants: every metric of a sensor is in its registry, until the sensor is removed; parents form no circle,
because they exist before their children; after ``record`` has raised, the value counts all the same.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from minikafka.metrics.quota import Quota, QuotaViolationError
from minikafka.metrics.windows import MeasurableStat, Stat

if TYPE_CHECKING:
    from minikafka.metrics.registry import KafkaMetric, MetricName, Metrics


class RecordingLevel(IntEnum):
    """How detailed a sensor is: it records when its registry asks for its level or a higher one."""

    INFO = 0
    DEBUG = 1
    TRACE = 2


class Sensor:
    """Made by ``Metrics.sensor``."""

    __slots__ = (
        "_is_recording",
        "_metrics",
        "_parents",
        "_registry",
        "_stats",
        "last_record_ms",
        "life_ms",
        "name",
    )

    def __init__(
        self,
        registry: Metrics,
        name: str,
        *,
        parents: tuple[Sensor, ...],
        level: RecordingLevel,
        life_ms: int | None,
        now_ms: int,
    ) -> None:
        self._registry = registry
        self._parents = parents
        self._is_recording = level <= registry.level
        self._stats: list[Stat] = []
        self._metrics: list[KafkaMetric] = []
        self.name = name
        self.life_ms = life_ms
        """How long it stays without a value; None: as long as its registry."""
        self.last_record_ms = now_ms

    def __repr__(self) -> str:
        return f"Sensor({self.name}, {len(self._metrics)} metrics)"

    @property
    def metrics(self) -> tuple[KafkaMetric, ...]:
        return tuple(self._metrics)

    @property
    def parents(self) -> tuple[Sensor, ...]:
        return self._parents

    def add(self, name: MetricName, stat: MeasurableStat, quota: Quota | None = None) -> KafkaMetric:
        """One statistic that is one metric. Raises InvariantError: there is a metric of that name."""
        metric = self._registry.add_metric(name, stat, quota)
        self._metrics.append(metric)
        self._stats.append(stat)
        return metric

    def record(self, value: float, now_ms: int, *, check_quotas: bool = True) -> None:
        """Give ``value`` to every statistic here, then to the parents.

        Raises:
            QuotaViolationError: with ``check_quotas``, a metric is beyond its bound now. The parents have
                not heard of the value then, as in Kafka.
        """
        if not self._is_recording:
            return
        self.last_record_ms = now_ms
        for stat in self._stats:
            stat.record(value, now_ms)
        if check_quotas:
            self.check_quotas(now_ms)
        for parent in self._parents:
            parent.record(value, now_ms, check_quotas=check_quotas)

    def check_quotas(self, now_ms: int) -> None:
        """Raises QuotaViolationError: a metric is beyond its bound."""
        for metric in self._metrics:
            quota = metric.quota
            if quota is not None:
                value = metric.measure(now_ms)
                if not quota.acceptable(value):
                    raise QuotaViolationError(metric, value, quota.bound)

    def has_expired(self, now_ms: int) -> bool:
        """Whether nothing was recorded for longer than it lives."""
        return self.life_ms is not None and now_ms - self.last_record_ms > self.life_ms
