"""What came in the last seconds: values in samples that expire. Pure.

Kafka: ``SampledStat`` with ``WindowedSum``, ``Avg`` and ``Max``, and the part of
``MetricConfig`` that is about windows, in ``org.apache.kafka.common.metrics``.

Time is cut into samples. A sample begins with the first value that comes after the one before it is complete,
so samples are at least a window long, and longer when nothing comes. There is one more of them than the
configured number: the oldest reaches back over the edge of the time that counts. A sample is forgotten when
its last value is as old as all windows together.

Invariants: a value counts for all the windows, and for less than one window more; ``measure`` forgets what
has expired, ``record`` does not.

Differs from Kafka: a sample is complete by its age only, not by the number of its values; nothing there sets
that number either.

Times are readings of one clock, in milliseconds; they never go back.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol


class Measurable(Protocol):
    """Something that has a value (``Measurable``)."""

    def measure(self, now_ms: int) -> float: ...


class Stat(Protocol):
    """Something that takes values in (``Stat``)."""

    def record(self, value: float, now_ms: int) -> None: ...


class MeasurableStat(Stat, Measurable, Protocol):
    """Both (``MeasurableStat``)."""


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
        """The oldest sample begins anew."""
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
