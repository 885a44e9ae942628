"""How busy the event loop is: how late its timers fire, and how much CPU its thread uses.

A broker is one thread, so both say what Kafka's idle ratios of network and request handler threads say.
"""

from __future__ import annotations

import asyncio
from collections import deque

from minikafka.clock import Clock
from minikafka.metrics.request_metrics import Reservoir
from minikafka.system_clock import thread_cpu_ns

PROBE_INTERVAL_MS = 500
PROBES_OF_SHARE = 20
"""The CPU's share is that of the last ten seconds."""

PROBES_OF_LAG = 120
"""The quantiles are those of the last minute."""


class LoopLag:
    """``run`` is a task of its own, on the loop that is watched."""

    def __init__(self, clock: Clock) -> None:
        self.seconds = Reservoir(PROBES_OF_LAG)
        self.count = 0
        self._clock = clock
        self._points: deque[tuple[int, int]] = deque(maxlen=PROBES_OF_SHARE + 1)

    def __repr__(self) -> str:
        return f"LoopLag({self.count} probes, idle {self.idle_share:.2f})"

    @property
    def idle_share(self) -> float:
        """From 0 to 1; 1 before there is anything to compare."""
        if len(self._points) < 2:
            return 1.0
        (began_ns, cpu_then_ns), (now_ns, cpu_now_ns) = self._points[0], self._points[-1]
        return min(1.0, max(0.0, 1 - (cpu_now_ns - cpu_then_ns) / max(now_ns - began_ns, 1)))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due_ns = self._clock.monotonic_ns() + PROBE_INTERVAL_MS * 1_000_000
            await asyncio.sleep(PROBE_INTERVAL_MS / 1000)
            now_ns = self._clock.monotonic_ns()
            self.seconds.add(max(0, now_ns - due_ns) / 1_000_000_000)
            self.count += 1
            self._points.append((now_ns, thread_cpu_ns()))
