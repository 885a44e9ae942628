"""Below which value nine of ten lie: a histogram over sliding windows. Pure.

Kafka: ``Percentiles``, ``Histogram`` and its ``BinScheme`` in ``org.apache.kafka.common.metrics.stats``.
Values are counted in buckets, so a percentile is as exact as its bucket is wide, and costs the same memory
however many values come. Linear buckets grow wider with the value, which suits times and sizes.

Invariants: a percentile is the lower bound of a bucket that a value was counted in; values below and above
the bounds are counted in the first and the last bucket.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from minikafka.metrics.windows import Sample, SampledStat, WindowConfig


def constant_buckets(count: int, *, smallest: float, largest: float) -> list[float]:
    """The lower bounds of buckets that are equally wide (``ConstantBinScheme``)."""
    width = (largest - smallest) / count
    return [smallest + index * width for index in range(count)]


def linear_buckets(count: int, *, largest: float) -> list[float]:
    """The lower bounds of buckets of which each is wider than the one before by the same, from 0 on
    (``LinearBinScheme``)."""
    unit = largest / (count * (count - 1) / 2)
    return [unit * index * (index + 1) / 2 for index in range(count)]


class _HistogramSample(Sample):
    """Its values, counted by bucket."""

    __slots__ = ("counts",)

    def __init__(self, now_ms: int, buckets: int) -> None:
        self.counts = [0] * buckets
        super().__init__(now_ms, 0.0)

    def reset(self, now_ms: int, value: float) -> None:
        super().reset(now_ms, value)
        self.counts = [0] * len(self.counts)


class Percentiles(SampledStat):
    """See the module header. Its measurements are ``at(0.99)`` and the like."""

    __slots__ = ("_lower_bounds",)

    def __init__(self, config: WindowConfig, lower_bounds: Sequence[float]) -> None:
        """``lower_bounds``: of the buckets, ascending."""
        super().__init__(config)
        self._lower_bounds = list(lower_bounds)

    def _new_sample(self, now_ms: int) -> Sample:
        return _HistogramSample(now_ms, len(self._lower_bounds))

    def _update(self, sample: Sample, value: float) -> None:
        assert isinstance(sample, _HistogramSample)
        sample.counts[max(0, bisect_right(self._lower_bounds, value) - 1)] += 1

    def at(self, quantile: float) -> Percentile:
        """What can be measured: the value below which this part of all values lies."""
        return Percentile(self, quantile)

    def value(self, quantile: float, now_ms: int) -> float:
        """Not a number when there is no value within the windows."""
        samples = [each for each in self.samples(now_ms) if isinstance(each, _HistogramSample)]
        total = sum(sample.count for sample in samples)
        seen = 0
        for index, lower_bound in enumerate(self._lower_bounds):
            seen += sum(sample.counts[index] for sample in samples)
            if seen and seen >= quantile * total:
                return lower_bound
        return math.nan


class Percentile:
    """One measurement of ``Percentiles``."""

    __slots__ = ("_of", "quantile")

    def __init__(self, of: Percentiles, quantile: float) -> None:
        self._of = of
        self.quantile = quantile

    def __repr__(self) -> str:
        return f"Percentile({self.quantile:g} of {self._of!r})"

    def measure(self, now_ms: int) -> float:
        return self._of.value(self.quantile, now_ms)
