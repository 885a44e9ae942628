"""A bound of a measurement, and the error when it is crossed. Pure.

Kafka: ``Quota``, ``QuotaViolationException`` and ``QuotaUtils``. The formulas (KAFKA-2084, KIP-599):

- a rate is brought back to its bound by waiting ``(observed − bound) / bound × window``;
- an overspent token bucket is filled again after ``−tokens / rate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from minikafka.metrics.registry import KafkaMetric

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
    """A measurement has crossed its bound. Expected: whoever records decides what follows."""

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
