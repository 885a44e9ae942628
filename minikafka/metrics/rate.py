"""How much came in the last seconds: sums over sliding windows, and the rate that they make. Pure.

Kafka: ``SampledStat``, ``WindowedSum``, ``SimpleRate``, ``MetricConfig`` in
``org.apache.kafka.common.metrics``.

Time is cut into samples. A sample begins with the first value that comes after the one before it is complete,
so samples are at least a window long, and longer when nothing comes. There is one more of them than the
configured number: the oldest reaches back over the edge of the time that counts. A sample is forgotten when
its last value is as old as all windows together.

A rate divides the sum of all samples by the time since the oldest of them began. ``SimpleRate`` takes that
time to be one window at least, so that the first values of all do not look like a flood.

Invariants: a value counts for all the windows, and for less than one window more; ``measure`` forgets what
has expired, ``record`` does not.

Times are readings of one clock, in milliseconds; they never go back.
"""

from __future__ import annotations

from typing import NamedTuple


class WindowConfig(NamedTuple):
    """Kafka's ``MetricConfig``, as far as windows go; its defaults too."""

    samples: int = 2
    window_ms: int = 30_000


class _Sample:
    """One window's values."""

    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def __repr__(self) -> str:
        return f"{self.value:g} from {self.start_ms} to {self.last_event_ms}"

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.start_ms = now_ms
        self.last_event_ms = now_ms


class WindowedSum:
    """What was recorded within the windows, summed up (``SampledStat``, ``WindowedSum``)."""

    __slots__ = ("_config", "_current", "_samples")

    def __init__(self, config: WindowConfig) -> None:
        self._config = config
        self._samples: list[_Sample] = []
        self._current = 0

    def __repr__(self) -> str:
        return f"WindowedSum({self._samples})"

    def record(self, value: float, now_ms: int) -> None:
        """Add ``value`` to the current sample, or to a new one when that is complete."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._config.window_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms

    def _advance(self, now_ms: int) -> _Sample:
        """The oldest sample begins anew."""
        samples = self._samples
        self._current = (self._current + 1) % (self._config.samples + 1)
        if self._current == len(samples):
            samples.append(_Sample(now_ms))
        else:
            samples[self._current].reset(now_ms)
        return samples[self._current]

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The sum, and when the oldest sample that it is of began (``now_ms`` when there is none)."""
        expire_age_ms = self._config.samples * self._config.window_ms
        total = 0.0
        oldest_ms = now_ms
        for sample in self._samples:
            if now_ms - sample.last_event_ms >= expire_age_ms:
                sample.reset(now_ms)
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        return total, oldest_ms


class SimpleRate:
    """A rate per second since the oldest sample, which is taken to be a window long at least
    (``SimpleRate``). Replication quotas are measured so."""

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
        total, oldest_ms = self._sum.measure(now_ms)
        return total * 1000 / max(now_ms - oldest_ms, self._window_ms)
