"""The real clock: the only place where minikafka reads the time."""

from __future__ import annotations

import time

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Runs on while the machine sleeps and is the same for all processes, as coordination leases need it.

macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC does both.
"""


class SystemClock:
    """``minikafka.clock.Clock`` on the operating system's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


def thread_cpu_ns() -> int:
    """What the CPU has done for the calling thread."""
    return time.thread_time_ns()


def wall_ns() -> int:
    """Wall-clock time, nanoseconds since the Unix epoch: what spans of OpenTelemetry are in."""
    return time.time_ns()
