"""How often something was done and how long it took, and how often of late. Pure.

Kafka: ``KafkaTimer``, which is Yammer's ``Timer``, and the one-minute rate of Yammer's ``Meter``.

Differs from Kafka: quantiles are those of the latest 1,024 durations (``Reservoir``), not of a sample in
which older ones fade away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from minikafka.metrics.request_metrics import Reservoir

TICK_MS: Final = 5_000
"""Yammer's: what was counted in between becomes one value of the average."""

_ALPHA: Final = 1 - math.exp(-TICK_MS / 60_000)
_NS_PER_MS: Final = 1_000_000


class KafkaTimer:
    """A count, and the latest durations."""

    __slots__ = ("_durations_ms", "count")

    def __init__(self) -> None:
        self.count = 0
        self._durations_ms = Reservoir()

    def __repr__(self) -> str:
        return f"KafkaTimer({self.count})"

    def update(self, duration_ns: int) -> None:
        """It was done once more."""
        self.count += 1
        self._durations_ms.add(duration_ns / _NS_PER_MS)

    def quantiles_ms(self, shares: Sequence[float]) -> list[float]:
        """See ``request_metrics.quantiles``."""
        return self._durations_ms.quantiles(shares)


class OneMinuteRate:
    """How often a second something happened, as an average in which a minute ago weighs 1/e of now.

    Every ``TICK_MS`` what was counted since becomes a rate; the first one is the average, each later one
    moves it. ``mark`` reads the clock, so it is for what happens some times a second.
    """

    __slots__ = ("_counted", "_now_ms", "_per_second", "_ticked_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ticked_ms = now_ms()
        self._counted = 0
        self._per_second: float | None = None

    def __repr__(self) -> str:
        return f"OneMinuteRate({self._per_second} a second, {self._counted} since)"

    def mark(self) -> None:
        """It happened once."""
        self._tick()
        self._counted += 1

    def per_second(self) -> float:
        """0 until the first ``TICK_MS`` have passed."""
        self._tick()
        return self._per_second or 0.0

    def _tick(self) -> None:
        ticks = (self._now_ms() - self._ticked_ms) // TICK_MS
        if ticks <= 0:
            return
        self._ticked_ms += ticks * TICK_MS
        rate, self._counted = self._counted * 1_000 / TICK_MS, 0
        if self._per_second is None:
            self._per_second = rate
        else:
            self._per_second += _ALPHA * (rate - self._per_second)
        self._per_second *= (1 - _ALPHA) ** (ticks - 1)  # nothing happened in the others
