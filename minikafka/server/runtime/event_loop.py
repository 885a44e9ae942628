"""The event loop: its timers, how busy it is, and the long-lived tasks that it runs.

**Timers** (``LoopTimer``): the timing wheel on an event loop, one timer handle for the next bucket, however
many tasks wait. Kafka's reaper thread (``DelayedOperationPurgatory.ExpiredOperationReaper``) polls every 200
ms; here the loop wakes exactly when the next bucket is due, and not at all when nothing waits.

**Lag**: how late its timers fire, and how much CPU its thread uses. A broker is one thread, so both say what
Kafka's idle ratios of network and request handler threads say.

**Tasks** (``Supervisor``). A task is started with a name and a restart policy, and ends with the supervisor.
A task that fails is never forgotten: it is logged with its traceback and then, by its policy, started again
after a pause or reported as the reason why the broker must stop.

Invariants: no task outlives ``stop``; an exception of a task is logged exactly once; cancellation is never
taken for a failure.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

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

RESTART_PAUSE_MS = 1000
"""The pause before a failed task runs again: long enough not to spin on a fault that lasts."""


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


class Restart(enum.Enum):
    """What follows when a supervised task fails."""

    ALWAYS = enum.auto()
    """Run it again after a pause: periodic work that a passing fault must not end."""
    NEVER = enum.auto()
    """Log it and go on: one-off work, such as the answer to one request."""
    STOP_BROKER = enum.auto()
    """The broker cannot do without it: report the failure through ``failure``."""


class Supervisor:
    """Starts, names, restarts and finally cancels tasks."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order of their starts
        self._stopping = False
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Resolved with the exception of the first ``STOP_BROKER`` task that fails."""

    def __repr__(self) -> str:
        names = sorted(task.get_name() for task in self._tasks)
        return f"Supervisor({', '.join(names)}{', stopping' if self._stopping else ''})"

    def start(
        self, name: str, work: Callable[[], Coroutine[Any, Any, None]], *, restart: Restart = Restart.NEVER
    ) -> asyncio.Task[None]:
        """Run ``work()`` as a task of this supervisor. What is started after ``stop`` began ends at once."""
        task = asyncio.get_running_loop().create_task(self._run(name, work, restart), name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if self._stopping:
            task.cancel()
        return task

    async def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]], restart: Restart) -> None:
        while True:
            try:
                await work()
                return
            except asyncio.CancelledError:
                raise
            except Exception as error:
                logger.error("task failed", extra={"task": name, "restart": restart.name}, exc_info=error)
                if restart is Restart.STOP_BROKER:
                    self.fail(error)
                if restart is not Restart.ALWAYS:
                    return
            await asyncio.sleep(RESTART_PAUSE_MS / 1000)

    def fail(self, error: BaseException) -> None:
        """The broker cannot go on; the first reason counts."""
        if not self.failure.done():
            self.failure.set_result(error)

    async def stop(self) -> None:
        """Cancel every task and wait until the last one has ended."""
        self._stopping = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self.failure.done():
            self.failure.cancel()
