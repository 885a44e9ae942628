"""Sensors: all metrics of a broker, by name, what feeds them, and the statistics over time behind them. Pure.

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

**Rates as Kafka has them.** Kafka: ``Rate``, ``SimpleRate`` and ``TokenBucket`` in
``org.apache.kafka.common.metrics.stats``.

A rate divides the sum of all samples by the time since the oldest of them began, and the two kinds differ in
how they stretch that time while there is little of it:

=============  =====================================  ==================================================
rate           the time is at least                   used for
=============  =====================================  ==================================================
``Rate``       all windows but one, and what of the   client quotas: a burst counts as if it were spread
               current one is over; 1 ms              over ten seconds
``SimpleRate`` one window                             replication quotas, where a second must do
=============  =====================================  ==================================================

**The rate of byte quotas** is Kafka's, but what was too much is not forgotten with its sample. Kafka:
``Rate`` with ``WindowedSum``, as ``ClientQuotaManager`` uses them. Samples and the time that is divided by
are those of ``SampledStat`` and ``Rate``, and so is the throttle time that comes of them, until the first
sample is old enough to be forgotten. There Kafka forgets two things, and a client that takes all it can get
lives on that (bound 50 kB/s; what it got over what is allowed, in any 30 s after the first window):

=======================================  ===========  ==========
greedy clients                           Kafka        here
=======================================  ===========  ==========
one producer, 1 kB a request             0.74 - 1.10  0.99 - 1.00
one producer, 50 kB a request            0.90 - 1.20  0.87 - 1.00
ten producers that share, 10 kB          1.05 - 1.31  0.83 - 1.00
ten producers that share, 50 kB          1.43 - 1.60  0.67 - 1.00
one consumer, or ten, 10 kB              0.72 - 1.08  1.00
=======================================  ===========  ==========

- *The burst comes back.* A client may have ten seconds' worth at once, and pays with silence. After eleven
  seconds the burst is forgotten, the silence counts as ten seconds in which the client had nothing, and it
  may have the same again.
- *Debts are written off.* Ten producers sharing a quota have each had a request appended before any of them
  hears of a throttle time. Where that is more than eleven seconds' worth, the samples are gone before the
  throttle times are over.

So here a sample *ends* when its values are paid for at the bound, if that is later than its last value; it is
forgotten when its end is as old as all windows together, and the samples that are left begin there. What a
client had since it came is then never more than the bound allows for that time, but for the first ten
seconds' worth and one request of each that shares. The lower figures above are of the time in which the first
burst is paid for; then each 30 s have what is allowed, within one request.

What is allowed and not taken is forgotten as in Kafka, eleven to twelve seconds later. A debt is remembered
for ``DEBT_WINDOWS`` times all windows at most: a request of a gigabyte must not hold up for days those who
share its quota.

**Samples**: what came in the last seconds, in values that expire. Kafka: ``SampledStat`` with
``WindowedSum``, ``Avg`` and ``Max``, and the part of ``MetricConfig`` that is about windows, in
``org.apache.kafka.common.metrics``.

Time is cut into samples. A sample begins with the first value that comes after the one before it is complete,
so samples are at least a window long, and longer when nothing comes. There is one more of them than the
configured number: the oldest reaches back over the edge of the time that counts. A sample is forgotten when
its last value is as old as all windows together.

Invariants: a value counts for all the windows, and for less than one window more; ``measure`` forgets what
has expired, ``record`` does not.

Differs from Kafka: a sample is complete by its age only, not by the number of its values; nothing there sets
that number either.

Times are readings of one clock, in milliseconds, and never go back; rates are per second.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from minikafka.config.client_quotas import QuotaType
from minikafka.errors import InvariantError
from minikafka.named_tuple import NamedTuple

DEBT_WINDOWS: Final = 10
"""For ten clients that share, and requests of what all windows allow: each may have one under way."""
INT_MAX = 2**31 - 1
"""A throttle time is an INT32 on the wire."""


class Measurable(Protocol):
    """Something that has a value (``Measurable``)."""

    def measure(self, now_ms: int) -> float: ...


class Stat(Measurable, Protocol):
    """Something that takes values in, and has one (``MeasurableStat``)."""

    def record(self, value: float, now_ms: int) -> None: ...


class WindowConfig(NamedTuple):
    """Kafka's ``MetricConfig``, as far as windows go; its defaults too."""

    samples: int = 2
    window_ms: int = 30_000

    @property
    def all_ms(self) -> int:
        """The length of all windows together."""
        return self.samples * self.window_ms


class Sample:
    """One window's values, as far as the statistic keeps them."""

    __slots__ = ("count", "last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int, value: float) -> None:
        self.reset(now_ms, value)

    def __repr__(self) -> str:
        return f"{self.value:g} of {self.count} from {self.start_ms} to {self.last_event_ms}"

    def reset(self, now_ms: int, value: float) -> None:
        """Forget all; what follows begins now."""
        self.value = value
        self.count = 0
        self.start_ms = now_ms
        self.last_event_ms = now_ms


class SampledStat:
    """The samples (``SampledStat``); how values go into one and what all are together is the subclass's."""

    __slots__ = ("_current", "_samples", "config")

    _EMPTY = 0.0
    """The value of a sample that nothing has come into."""

    def __init__(self, config: WindowConfig) -> None:
        self.config = config
        self._samples: list[Sample] = []
        self._current = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._samples})"

    def record(self, value: float, now_ms: int) -> None:
        """Into the current sample, or into a new one when that is complete."""
        if not self._samples:
            self._samples.append(self._new_sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self.config.window_ms:
            sample = self._advance(now_ms)
        self._update(sample, value)
        sample.count += 1
        sample.last_event_ms = now_ms

    def _update(self, sample: Sample, value: float) -> None:
        raise NotImplementedError

    def _new_sample(self, now_ms: int) -> Sample:
        return Sample(now_ms, self._EMPTY)

    def _advance(self, now_ms: int) -> Sample:
        """Reuse the oldest sample."""
        samples = self._samples
        self._current = (self._current + 1) % (self.config.samples + 1)
        if self._current == len(samples):
            samples.append(self._new_sample(now_ms))
        else:
            samples[self._current].reset(now_ms, self._EMPTY)
        return samples[self._current]

    def samples(self, now_ms: int) -> list[Sample]:
        """All samples; those whose time is over were emptied, and begin now."""
        expire_age_ms = self.config.all_ms
        for sample in self._samples:
            if now_ms - sample.last_event_ms >= expire_age_ms:
                sample.reset(now_ms, self._EMPTY)
        return self._samples


class WindowedSum(SampledStat):
    """What was recorded within the windows, summed up."""

    __slots__ = ()

    def _update(self, sample: Sample, value: float) -> None:
        sample.value += value

    def measure(self, now_ms: int) -> float:
        return self.sum_and_start(now_ms)[0]

    def sum_and_start(self, now_ms: int) -> tuple[float, int]:
        """The sum, and when the oldest sample that it is of began (``now_ms`` when there is none)."""
        total = 0.0
        oldest_ms = now_ms
        for sample in self.samples(now_ms):
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        return total, oldest_ms


class Avg(SampledStat):
    """The mean of what was recorded within the windows; not a number when nothing was."""

    __slots__ = ()

    def _update(self, sample: Sample, value: float) -> None:
        sample.value += value

    def measure(self, now_ms: int) -> float:
        samples = self.samples(now_ms)
        count = sum(sample.count for sample in samples)
        return sum(sample.value for sample in samples) / count if count else math.nan


class Max(SampledStat):
    """The largest value within the windows; not a number when there is none."""

    __slots__ = ()

    _EMPTY = -math.inf

    def _update(self, sample: Sample, value: float) -> None:
        sample.value = max(sample.value, value)

    def measure(self, now_ms: int) -> float:
        filled = [sample.value for sample in self.samples(now_ms) if sample.count]
        return max(filled, default=math.nan)


class _Sample:
    """A window's values, and how long they take to pay for at the bound that held when they came."""

    __slots__ = ("last_event_ms", "payment_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.start_ms: float = now_ms
        self.last_event_ms = now_ms
        self.value = 0.0
        self.payment_ms = 0.0

    def __repr__(self) -> str:
        return f"{self.value:g} from {self.start_ms:.0f} to {self.last_event_ms}, {self.payment_ms:.0f} ms"


class QuotaRate:
    """See the module header. ``bound`` may be set: what was recorded before counts as it did."""

    __slots__ = ("_samples", "bound", "config")

    def __init__(self, config: WindowConfig, *, bound: float) -> None:
        self.config = config
        self.bound = bound
        self._samples: deque[_Sample] = deque()

    def __repr__(self) -> str:
        return f"QuotaRate({list(self._samples)}, bound={self.bound:g})"

    def record(self, value: float, now_ms: int) -> None:
        """Into the latest sample, or into a new one when that is a window old. A negative value undoes
        what was recorded just before."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self.config.window_ms:
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.value += value
        sample.payment_ms += value * 1000 / self.bound
        sample.last_event_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """Values per second."""
        window_ms = self.window_size_ms(now_ms)
        return sum(sample.value for sample in self._samples) * 1000 / window_ms

    def window_size_ms(self, now_ms: int) -> int:
        """The time that ``measure`` divides by: since the oldest sample began, and as in ``Rate`` at least
        all windows but one and what of the current one is over."""
        self._forget(now_ms)
        oldest_ms = self._samples[0].start_ms if self._samples else now_ms
        elapsed_ms = int(now_ms - oldest_ms)
        samples, window_ms = self.config
        missing_windows = max(0, samples - 1 - elapsed_ms // window_ms)
        return max(1, elapsed_ms + missing_windows * window_ms)

    def _forget(self, now_ms: int) -> None:
        samples, all_ms = self._samples, self.config.all_ms
        while samples and now_ms - (end_ms := self._end_ms(samples[0])) >= all_ms:
            samples.popleft()
            if samples and samples[0].start_ms - end_ms < all_ms:  # else the silence was long: as in Kafka
                latest_ms = min(samples[0].start_ms, now_ms - all_ms - self.config.window_ms)
                samples[0].start_ms = max(end_ms, latest_ms)

    def _end_ms(self, sample: _Sample) -> float:
        remembered_ms = sample.last_event_ms + DEBT_WINDOWS * self.config.all_ms
        return max(sample.last_event_ms, min(remembered_ms, sample.start_ms + sample.payment_ms))


class SimpleRate:
    """A rate per second since the oldest sample, which is taken to be a window long at least."""

    __slots__ = ("_sum", "_window_ms")

    def __init__(self, config: WindowConfig) -> None:
        self._sum = WindowedSum(config)
        self._window_ms = config.window_ms

    def __repr__(self) -> str:
        return f"SimpleRate({self._sum!r})"

    def record(self, value: float, now_ms: int) -> None:
        self._sum.record(value, now_ms)

    def measure(self, now_ms: int) -> float:
        """Values per second."""
        total, oldest_ms = self._sum.sum_and_start(now_ms)
        return total * 1000 / max(now_ms - oldest_ms, self._window_ms)


class Rate:
    """A rate per second since the oldest sample; where fewer windows than all but one are full, the missing
    ones count as full and empty."""

    __slots__ = ("_sum", "config")

    def __init__(self, config: WindowConfig) -> None:
        self.config = config
        self._sum = WindowedSum(config)

    def __repr__(self) -> str:
        return f"Rate({self._sum!r})"

    def record(self, value: float, now_ms: int) -> None:
        self._sum.record(value, now_ms)

    def measure(self, now_ms: int) -> float:
        """Values per second."""
        total, oldest_ms = self._sum.sum_and_start(now_ms)
        return total * 1000 / self._stretched_ms(now_ms - oldest_ms)

    def window_size_ms(self, now_ms: int) -> int:
        """The time that ``measure`` divides by."""
        _, oldest_ms = self._sum.sum_and_start(now_ms)
        return self._stretched_ms(now_ms - oldest_ms)

    def _stretched_ms(self, elapsed_ms: int) -> int:
        samples, window_ms = self.config
        missing_windows = max(0, samples - 1 - elapsed_ms // window_ms)
        return max(1, elapsed_ms + missing_windows * window_ms)


class TokenBucket:
    """Tokens that come at a rate and are spent by what is recorded; below zero is overspent.

    It is full at first, and never holds more than what comes in all windows. Without a rate there are tokens
    without end.
    """

    __slots__ = ("_tokens", "_updated_ms", "config", "tokens_per_s")

    def __init__(self, config: WindowConfig, tokens_per_s: float | None = None) -> None:
        self.config = config
        self.tokens_per_s = tokens_per_s
        """When it is set, the tokens that are there are kept, as far as there is room for them."""
        self._tokens = math.inf
        self._updated_ms = 0

    def __repr__(self) -> str:
        return f"TokenBucket({self._tokens:g} tokens, {self.tokens_per_s} a second)"

    def record(self, value: float, now_ms: int) -> None:
        """Spend ``value`` tokens; a negative one gives some back, as far as there is room."""
        if self.tokens_per_s is not None:
            self._refill(self.tokens_per_s, now_ms)
            self._tokens = min(self._burst(self.tokens_per_s), self._tokens - value)

    def measure(self, now_ms: int) -> float:
        """The tokens that are there."""
        if self.tokens_per_s is None:
            return math.inf
        self._refill(self.tokens_per_s, now_ms)
        return self._tokens

    def _refill(self, tokens_per_s: float, now_ms: int) -> None:
        come = tokens_per_s * (now_ms - self._updated_ms) / 1000
        self._tokens = min(self._burst(tokens_per_s), self._tokens + come)
        self._updated_ms = now_ms

    def _burst(self, tokens_per_s: float) -> float:
        return self.config.all_ms / 1000 * tokens_per_s


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
