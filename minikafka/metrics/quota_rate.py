"""The rate of byte quotas: Kafka's, but what was too much is not forgotten with its sample. Pure.

Kafka: ``Rate`` with ``WindowedSum``, as ``ClientQuotaManager`` uses them. Samples and the time that is
divided by are those of ``windows`` and ``stats.Rate``, and so is the throttle time that comes of them, until
the first sample is old enough to be forgotten. There Kafka forgets two things, and a client that takes all it
can get lives on that (bound 50 kB/s; what it got over what is allowed, in any 30 s after the first window):

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
- *Debts are written off.* Ten producers who share a quota have each had a request appended before any of them
  hears of a throttle time. Where that is more than eleven seconds' worth, the samples are gone before the
  throttle times are over.

So here a sample *ends* when its values are paid for at the bound, if that is later than its last value; it is
forgotten when its end is as old as all windows together, and the samples that are left begin there. What a
client had since it came is then never more than the bound allows for that time, but for the first ten
seconds' worth and one request of each who shares. The lower figures above are of the time in which the first
burst is paid for; then each 30 s have what is allowed, within one request.

What is allowed and not taken is forgotten as in Kafka, eleven to twelve seconds later. A debt is remembered
for ``DEBT_WINDOWS`` times all windows at most: a request of a gigabyte must not hold up for days those who
share its quota.

Times are readings of one clock, in milliseconds; rates are per second.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from minikafka.metrics.windows import WindowConfig

DEBT_WINDOWS: Final = 10
"""For ten clients who share, and requests of what all windows allow: each may have one under way."""


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
    """See the module header. ``bound``: set it anew and what came before is paid for as it was."""

    __slots__ = ("_samples", "bound", "config")

    def __init__(self, config: WindowConfig, *, bound: float) -> None:
        self.config = config
        self.bound = bound
        self._samples: deque[_Sample] = deque()

    def __repr__(self) -> str:
        return f"QuotaRate({list(self._samples)}, bound={self.bound:g})"

    def record(self, value: float, now_ms: int) -> None:
        """Into the latest sample, or into a new one when that is a window old. A negative value takes back
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
