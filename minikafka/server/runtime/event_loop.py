"""The event loop: its timers, and how busy it is.

**Timers** (``LoopTimer``): the timing wheel on an event loop, one timer handle for the next bucket, however
many tasks wait. Kafka's reaper thread (``DelayedOperationPurgatory.ExpiredOperationReaper``) polls every 200
ms; here the loop wakes exactly when the next bucket is due, and not at all when nothing waits.

**Lag**: how late its timers fire, and how much CPU its thread uses. A broker is one thread, so both say what
Kafka's idle ratios of network and request handler threads say.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from minikafka.clock import Clock
from minikafka.metrics.request_metrics import Reservoir
from minikafka.purgatory import DelayedOperation, Timer, TimerTask, fail
from minikafka.system_clock import thread_cpu_ns

logger = logging.getLogger(__name__)

PROBE_INTERVAL_MS = 500
PROBES_OF_SHARE = 20
"""The CPU's share is that of the last ten seconds."""

PROBES_OF_LAG = 120
"""The quantiles are those of the last minute."""


class LoopTimer(Timer):
    """A ``Timer`` that runs its expired tasks by itself, on the running loop."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._clock_of_loop = clock
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._wake_ms = 0

    def add(self, task: TimerTask) -> bool:
        added = super().add(task)
        if added:
            self._arm()
        return added

    def _arm(self) -> None:
        next_ms = self.next_expiration_ms()
        if next_ms is None:
            return
        if self._handle is not None:
            if self._wake_ms <= next_ms:
                return
            self._handle.cancel()
        self._wake_ms = next_ms
        delay_ms = max(0, next_ms - self._clock_of_loop.monotonic_ms())
        self._handle = self._loop.call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._handle = None
        for task in self.advance(self._clock_of_loop.monotonic_ms()):
            if task.cancelled:
                continue
            try:
                task.run()
            except Exception as error:
                # One operation's bug must not take the others' deadlines with it.
                logger.exception("a delayed operation failed", extra={"operation": repr(task)})
                if isinstance(task, DelayedOperation):
                    fail(task, error)
        self._arm()

    def close(self) -> None:
        """Wake no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


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
