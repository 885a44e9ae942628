"""``HostClock``: ``minikafka.clock.Clock`` of a simulated machine."""

from __future__ import annotations

from minikafka.testing.simulation.handles import NS_PER_MS
from minikafka.testing.simulation.loop import VirtualTimeLoop
from minikafka.testing.simulation.process import Host

START_MS = 1_700_000_000_000
"""The wall-clock time at which every simulation begins."""


class HostClock:
    """The loop's time, as the host sees it: its wall clock may be wrong, its monotonic one is not."""

    def __init__(self, loop: VirtualTimeLoop, host: Host) -> None:
        self._loop = loop
        self._host = host

    def now_ms(self) -> int:
        return START_MS + self._loop.now_ns // NS_PER_MS + self._host.clock_skew_ms

    def monotonic_ms(self) -> int:
        return self._loop.now_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        return self._loop.now_ns
