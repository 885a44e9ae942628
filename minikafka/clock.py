"""Time as an argument. The core reads no clock of its own; the shell hands it one of these.

``now_ms`` is wall-clock time (record timestamps, retention); ``monotonic_ms`` only moves forward (timers,
sessions), and so does ``monotonic_ns`` (how long a request took). All are integers.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Where the core gets its time from."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the Unix epoch."""
        ...

    def monotonic_ms(self) -> int:
        """A clock that never goes back, milliseconds since some fixed moment."""
        ...

    def monotonic_ns(self) -> int:
        """A clock that never goes back, nanoseconds since some fixed moment, maybe another one."""
        ...


def has_passed(duration_ms: int, since_ms: int, now_ms: int) -> bool:
    """Whether ``duration_ms`` of wall-clock time have passed ``since_ms``. They have when the clock was set
    back meanwhile: what waits for them would wait for as long as it was set back."""
    return not 0 <= now_ms - since_ms < duration_ms


class ManualClock:
    """A clock that moves when told to. For tests and simulation."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ms * 1_000_000

    def advance(self, duration_ms: int) -> None:
        """Move both clocks forward by ``duration_ms``."""
        if duration_ms < 0:
            raise ValueError(f"time does not go back: {duration_ms} ms")
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms
