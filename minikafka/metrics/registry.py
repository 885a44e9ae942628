"""All metrics of a broker, by name, the sensors that feed them, and bounds of what is measured. Pure.

Kafka: ``Metrics``, ``MetricName``, ``KafkaMetric``, ``Sensor``. A reporter reads ``metrics`` and measures;
nothing is pushed. A sensor is where values come in: one ``record`` for all the statistics of one thing.
Kafka's sensors have parents, recording levels and a life, too, which nothing here needs.

Invariants: names are unique; a metric belongs to one sensor at most, and is in the registry until the sensor
is removed; after ``record`` has raised, the value counts all the same. Everything belongs to one thread.

**Bounds**: ``Quota``, and the error when one is crossed (``QuotaViolationException``, ``QuotaUtils``). The
formulas (KAFKA-2084, KIP-599):

- a rate is brought back to its bound by waiting ``(observed − bound) / bound × window``;
- an overspent token bucket is filled again after ``−tokens / rate``.

A ``Throttle`` says why a client was throttled, as the broker remembers it and ``minikafka quotas why`` shows
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from minikafka.config.client_quotas import QuotaType
from minikafka.errors import InvariantError
from minikafka.metrics.stats import Measurable, Stat
from minikafka.named_tuple import NamedTuple

INT_MAX = 2**31 - 1
"""A throttle time is an INT32 on the wire."""


class Quota(NamedTuple):
    """A bound, from above unless it is one from below."""

    bound: float
    is_upper: bool = True

    def acceptable(self, value: float) -> bool:
        """Whether a measurement keeps to it; at the bound it does."""
        return value <= self.bound if self.is_upper else value >= self.bound


class QuotaViolationError(Exception):
    """A measurement has crossed its bound. Expected: the caller of ``record`` decides what follows."""

    def __init__(self, metric: KafkaMetric, value: float, bound: float) -> None:
        super().__init__(f"{metric.name} violated its quota: {value:g}, the bound is {bound:g}")
        self.metric = metric
        self.value = value
        self.bound = bound


def rate_throttle_time_ms(*, observed: float, bound: float, window_ms: int) -> int:
    """How long to wait until a rate is back at its bound; ``window_ms`` is what the rate was divided by."""
    return _rounded((observed - bound) / bound * window_ms)


def tokens_throttle_time_ms(*, tokens: float, tokens_per_s: float) -> int:
    """How long to wait until overspent ``tokens``, which are negative, have come."""
    return _rounded(-tokens / tokens_per_s * 1000)


def _rounded(time_ms: float) -> int:
    """Half a millisecond goes up, as in Java."""
    return min(INT_MAX, max(0, int(time_ms + 0.5)))


class Sensor:
    """Made by ``Metrics.sensor``."""

    __slots__ = (
        "_metrics",
        "_registry",
        "_stats",
        "last_record_ms",
        "name",
    )

    def __init__(self, registry: Metrics, name: str, *, now_ms: int) -> None:
        self._registry = registry
        self._stats: list[Stat] = []
        self._metrics: list[KafkaMetric] = []
        self.name = name
        self.last_record_ms = now_ms

    def __repr__(self) -> str:
        return f"Sensor({self.name}, {len(self._metrics)} metrics)"

    @property
    def metrics(self) -> tuple[KafkaMetric, ...]:
        return tuple(self._metrics)

    def add(self, name: MetricName, stat: Stat, quota: Quota | None = None) -> KafkaMetric:
        """One statistic that is one metric. Raises InvariantError: there is a metric of that name."""
        metric = self._registry.add_metric(name, stat, quota)
        self._metrics.append(metric)
        self._stats.append(stat)
        return metric

    def record(self, value: float, now_ms: int, *, check_quotas: bool = True) -> None:
        """Give ``value`` to every statistic here.

        Raises:
            QuotaViolationError: with ``check_quotas``, a metric is beyond its bound now.
        """
        self.last_record_ms = now_ms
        for stat in self._stats:
            stat.record(value, now_ms)
        if check_quotas:
            self.check_quotas(now_ms)

    def check_quotas(self, now_ms: int) -> None:
        """Raises QuotaViolationError: a metric is beyond its bound."""
        for metric in self._metrics:
            quota = metric.quota
            if quota is not None:
                value = metric.measure(now_ms)
                if not quota.acceptable(value):
                    raise QuotaViolationError(metric, value, quota.bound)


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
    """See the module header."""

    def __init__(self) -> None:
        self._sensors: dict[str, Sensor] = {}
        self._metrics: dict[MetricName, KafkaMetric] = {}

    def __repr__(self) -> str:
        return f"Metrics({len(self._sensors)} sensors, {len(self._metrics)} metrics)"

    @property
    def metrics(self) -> Mapping[MetricName, KafkaMetric]:
        """Every metric there is; not a copy."""
        return MappingProxyType(self._metrics)

    def sensor(self, name: str, *, now_ms: int) -> Sensor:
        """The sensor of that name; it is made, without metrics, when there is none."""
        known = self._sensors.get(name)
        if known is not None:
            return known
        made = self._sensors[name] = Sensor(self, name, now_ms=now_ms)
        return made

    def add_metric(self, name: MetricName, measurable: Measurable, quota: Quota | None = None) -> KafkaMetric:
        """A metric without a sensor: measured when it is read.

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
        """With its metrics. Harmless when there is none."""
        sensor = self._sensors.pop(name, None)
        if sensor is not None:
            for metric in sensor.metrics:
                self._metrics.pop(metric.name, None)


class Throttle(NamedTuple):
    """Why a client was throttled, once. ``observed`` is a rate, or the tokens, which are below zero."""

    quota: QuotaType
    user: str
    client_id: str
    """Whose request it was, with ``user``; others may share the quota."""
    observed: float
    bound: float
    window_ms: int
    """What the rate was divided by; 0 for tokens."""
    throttle_time_ms: int
    at_ms: int
    """Wall-clock time."""

    @property
    def formula(self) -> str:
        """How the throttle time comes about, with the numbers."""
        if self.quota is QuotaType.CONTROLLER_MUTATION:
            return f"{number_text(-self.observed)} tokens overspent / {number_text(self.bound)} a second"
        observed, bound = number_text(self.observed), number_text(self.bound)
        text = f"({observed} - {bound}) / {bound} x {self.window_ms} ms"
        return f"{text}, one window at most" if self.quota is QuotaType.REQUEST else text


def number_text(value: float) -> str:
    """For people: whole when large, else four digits."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
