"""Rates, totals and the token bucket. Pure.

Kafka: ``Rate``, ``SimpleRate``, ``CumulativeSum`` and ``TokenBucket`` in
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

Times are readings of one clock, in milliseconds; rates are per second.
"""

from __future__ import annotations

import math

from minikafka.metrics.windows import WindowConfig, WindowedSum


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


class CumulativeSum:
    """All that was ever recorded."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0.0

    def __repr__(self) -> str:
        return f"CumulativeSum({self.total:g})"

    def record(self, value: float, now_ms: int) -> None:
        self.total += value

    def measure(self, now_ms: int) -> float:
        return self.total


class TokenBucket:
    """Tokens that come at a rate and are spent by what is recorded; below zero is overspent.

    It is full at first, and never holds more than what comes in all windows. Without a rate there are tokens
    without end.
    """

    __slots__ = ("_tokens", "_updated_ms", "config", "tokens_per_s")

    def __init__(self, config: WindowConfig, tokens_per_s: float | None = None) -> None:
        self.config = config
        self.tokens_per_s = tokens_per_s
        """Set it anew and the tokens that are there stay, as far as there is room for them."""
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
