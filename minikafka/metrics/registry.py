"""All metrics of a broker, by name, and the sensors that feed them. Pure.

Kafka: ``Metrics``, ``MetricName``, ``KafkaMetric``. Who shows metrics to somebody reads ``metrics`` and
measures; nothing is pushed. Sensors of things that come and go have a life: ``remove_expired`` takes those
away that have not recorded for so long, with their metrics and their children.

Invariants: names are unique; a metric belongs to one sensor at most. Everything belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from minikafka.errors import InvariantError
from minikafka.metrics.quota import Quota
from minikafka.metrics.sensor import RecordingLevel, Sensor
from minikafka.metrics.windows import Measurable


class MetricName(NamedTuple):
    """What a metric is called. ``tags`` are pairs, so that a name can be a key; the description is not part
    of it."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        tags = "".join(f",{tag}={value}" for tag, value in self.tags)
        return f"{self.group}:{self.name}{tags}"


class KafkaMetric:
    """A name, what is measured, and the bound of it, if there is one."""

    __slots__ = ("measurable", "name", "quota")

    def __init__(self, name: MetricName, measurable: Measurable, quota: Quota | None) -> None:
        self.name = name
        self.measurable = measurable
        self.quota = quota

    def __repr__(self) -> str:
        return f"KafkaMetric({self.name}, {self.measurable!r}, quota={self.quota})"

    def measure(self, now_ms: int) -> float:
        """The value, now."""
        return self.measurable.measure(now_ms)


class Metrics:
    """See the module header. ``level``: sensors that are more detailed record nothing."""

    def __init__(self, *, level: RecordingLevel = RecordingLevel.INFO) -> None:
        self.level = level
        self._sensors: dict[str, Sensor] = {}
        self._metrics: dict[MetricName, KafkaMetric] = {}
        self._children: dict[str, list[Sensor]] = {}

    def __repr__(self) -> str:
        return f"Metrics({len(self._sensors)} sensors, {len(self._metrics)} metrics)"

    @property
    def metrics(self) -> Mapping[MetricName, KafkaMetric]:
        """Every metric there is; not a copy."""
        return MappingProxyType(self._metrics)

    def sensor(
        self,
        name: str,
        *,
        now_ms: int,
        parents: tuple[Sensor, ...] = (),
        level: RecordingLevel = RecordingLevel.INFO,
        life_ms: int | None = None,
    ) -> Sensor:
        """The sensor of that name; it is made, without metrics, when there is none."""
        known = self._sensors.get(name)
        if known is not None:
            return known
        made = Sensor(self, name, parents=parents, level=level, life_ms=life_ms, now_ms=now_ms)
        self._sensors[name] = made
        for parent in parents:
            self._children.setdefault(parent.name, []).append(made)
        return made

    def add_metric(self, name: MetricName, measurable: Measurable, quota: Quota | None = None) -> KafkaMetric:
        """A metric without a sensor: measured when somebody looks.

        Raises:
            InvariantError: there is one of that name.
        """
        if name in self._metrics:
            raise InvariantError(f"there are two metrics {name}")
        metric = self._metrics[name] = KafkaMetric(name, measurable, quota)
        return metric

    def remove_metric(self, name: MetricName) -> None:
        """Harmless when there is none."""
        self._metrics.pop(name, None)

    def remove_sensor(self, name: str) -> None:
        """With its metrics and its children. Harmless when there is none."""
        sensor = self._sensors.pop(name, None)
        if sensor is None:
            return
        for metric in sensor.metrics:
            self._metrics.pop(metric.name, None)
        for parent in sensor.parents:
            siblings = self._children.get(parent.name, [])
            if sensor in siblings:
                siblings.remove(sensor)
        for child in self._children.pop(name, []):
            self.remove_sensor(child.name)

    def remove_expired(self, now_ms: int) -> None:
        """The sensors that have not recorded for longer than they live (``ExpireSensorTask``)."""
        for sensor in [each for each in self._sensors.values() if each.has_expired(now_ms)]:
            self.remove_sensor(sensor.name)
