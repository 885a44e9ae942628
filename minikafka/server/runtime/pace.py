"""A limit on bytes a second for work that can pause between its steps. Kafka: ``Throttler``
(``log.cleaner.io.max.bytes.per.second``).
"""

from __future__ import annotations

from minikafka.clock import Clock


class Pace:
    """How long to pause. What was not used while the work rested is lost, so there are no bursts."""

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._due_ms = 0.0

    def pause_ms(self, size_bytes: int) -> int:
        """``size_bytes`` were moved just now: milliseconds until the next may be."""
        now_ms = self._clock.monotonic_ms()
        if self._bytes_per_second <= 0:
            return 0
        self._due_ms = max(self._due_ms, now_ms) + size_bytes * 1000 / self._bytes_per_second
        return int(self._due_ms - now_ms)
