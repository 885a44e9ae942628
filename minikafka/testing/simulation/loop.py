"""``VirtualTimeLoop``: an asyncio event loop whose time passes only while nobody has anything to do.

Callbacks take no time. When none is ready, the time jumps to the next timer; ten idle minutes cost what
their timers cost. Nothing here sleeps, starts a thread or opens a socket: names, servers and connections come
from a ``SimulatedNetwork``, and what is given to an executor runs on the loop, later and in order.

Invariants:
- Time is whole nanoseconds inside, so that adding delays loses nothing; timers of one moment run in the order
  in which they were set.
- Every callback belongs to the process of its context (``process.py``).
- What nobody waits for must not fail: exceptions of callbacks and of tasks that were never awaited collect in
  ``failures``, and the first ends the run.
- Neither a world in which nothing can happen any more (``StalledError``) nor one in which time stands still
  hangs the test.

Of asyncio's private parts it needs only ``BaseEventLoop._run_once``, which is what every loop has.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from minikafka.testing.simulation.errors import OrphanError, ProcessKilled, SimulationError, StalledError
from minikafka.testing.simulation.executors import submit
from minikafka.testing.simulation.handles import NS_PER_S, SimulatedHandle, SimulatedTask
from minikafka.testing.simulation.process import CURRENT_PROCESS
from minikafka.testing.simulation.stalls import describe_tasks

if TYPE_CHECKING:
    from minikafka.testing.simulation.network import SimulatedNetwork

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TURNS_MAX = 100_000
"""Rounds of callbacks at one moment. What a burst of requests needs is some hundreds."""

CANCELLED_TIMERS_MIN = 1_000
"""Cancelled timers are taken out when they are this many and half of all: mostly deadlines that were kept."""


CLOSINGS_MAX = 20
"""Awaits in ``finally`` blocks, one in the other, that are cut short when the run is over."""


class VirtualTimeLoop(BaseEventLoop):
    """Runs until a future is done, a failure that nobody waits for, or a stall.

    Args:
        rng: how long calls in executors take.
        network: who answers ``create_server`` and its like; without one they raise.
    """

    def __init__(self, *, rng: random.Random, network: SimulatedNetwork | None = None) -> None:
        super().__init__()
        self.network = network
        self.failures: list[dict[str, Any]] = []
        """Reports of what failed without anybody waiting for it."""
        self.callbacks_run = 0
        """How many callbacks have run: what a run costs."""
        self.is_over = False
        """Set when the run is being taken down: failures do not count from here on."""
        self._rng = rng
        self._now_ns = 0
        self._queue: deque[SimulatedHandle] = deque()
        self._timers: list[tuple[int, int, SimulatedHandle]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        self._turns = 0
        self._tasks: dict[int, SimulatedTask[Any]] = {}
        self._tasks_made = 0
        self._failed_tasks: list[SimulatedTask[Any]] = []

    def __repr__(self) -> str:
        return (
            f"<VirtualTimeLoop at {self.time():.6f} s, {len(self._queue)} ready, {len(self._timers)} timers>"
        )

    # Time and callbacks

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_ns / NS_PER_S

    @property
    def now_ns(self) -> int:
        return self._now_ns

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        handle = SimulatedHandle(callback, args, self, copy_context() if context is None else context, -1)
        self._queue.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        return self.call_at_ns(self._now_ns + _whole_ns(delay), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        return self.call_at_ns(
            self._now_ns + _whole_ns(when - self._now_ns / NS_PER_S), callback, *args, context=context
        )

    def call_at_ns(
        self, when_ns: int, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        """Like ``call_at``, in nanoseconds. A moment that has passed is now."""
        when_ns = max(when_ns, self._now_ns)
        handle = SimulatedHandle(
            callback, args, self, copy_context() if context is None else context, when_ns
        )
        self._timers_set += 1
        heapq.heappush(self._timers, (when_ns, self._timers_set, handle))
        return handle

    def timer_cancelled(self) -> None:
        """A timer's handle says that it need not run."""
        self._timers_cancelled += 1
        if self._timers_cancelled > CANCELLED_TIMERS_MIN and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def run_held(self, handles: Iterable[SimulatedHandle]) -> None:
        """Put back what was held for a paused process."""
        self._queue.extend(handles)

    # Running

    def _run_once(self) -> None:
        queue = self._queue
        self._turns += 1
        if self._timers and self._timers[0][0] <= self._now_ns:
            self._take_due()
        if not queue:
            self._jump()
        elif self._turns > TURNS_MAX:
            waiting = describe_tasks(self._tasks.values())
            raise SimulationError(
                f"time stands still at {self.time():.6f} s: {TURNS_MAX} rounds of callbacks, next "
                f"{list(queue)[:3]}. Waiting:\n{waiting}"
            )
        count = len(queue)
        self.callbacks_run += count
        for _ in range(count):
            handle = queue.popleft()
            if handle._cancelled:
                continue
            process = handle.process
            if process is not None and not process.runs:
                process.held.append(handle)
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except ProcessKilled:
                pass
            except BaseException as error:  # noqa: BLE001 - as asyncio does: to the exception handler
                self.call_exception_handler(
                    {"message": f"Exception in callback {handle._callback!r}", "exception": error}
                )
        if self.failures and not self.is_over:
            raise OrphanError(self.failures) from self.failures[0].get("exception")

    def _jump(self) -> None:
        """Move the time to the next timer of a process that is not dead."""
        timers = self._timers
        while timers:
            when_ns, _, handle = timers[0]
            if handle._cancelled:
                heapq.heappop(timers)
                self._timers_cancelled -= 1
            elif handle.process is not None and handle.process.is_dead:
                handle.process.held.append(heapq.heappop(timers)[2])
            else:
                self._now_ns = when_ns
                self._turns = 0
                self._take_due()
                return
        if self.is_over:
            self._stopping = True
            return
        waiting = describe_tasks(task for task in self._tasks.values() if not _is_dead(task))
        raise StalledError(f"nothing will ever happen after {self.time():.6f} s. Waiting:\n{waiting}")

    def _take_due(self) -> None:
        timers, now_ns, queue = self._timers, self._now_ns, self._queue
        while timers and timers[0][0] <= now_ns:
            handle = heapq.heappop(timers)[2]
            if handle._cancelled:
                self._timers_cancelled -= 1
            else:
                handle.is_timer = False
                queue.append(handle)

    # Tasks

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        process = CURRENT_PROCESS.get() if context is None else context.get(CURRENT_PROCESS)
        self._tasks_made += 1
        task = SimulatedTask(
            coro,
            number=self._tasks_made,
            process=process,
            loop=self,
            name=name or f"task {self._tasks_made}",
            context=context,
            **options,
        )
        self._tasks[task.number] = task
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: Any) -> None:
        self._tasks.pop(task.number, None)
        if task._log_traceback:  # failed, and nobody has looked: whoever awaits it does so after this
            self._failed_tasks.append(task)
            error = task._exception
            if not isinstance(error, Exception | ProcessKilled):  # a test that timed out: nobody would end it
                self.failures.append({"message": f"{task.get_name()} was ended", "exception": error})

    def unfinished_tasks(self) -> list[SimulatedTask[Any]]:
        """All of all processes, the oldest first."""
        return list(self._tasks.values())

    def abandon(self, task: SimulatedTask[Any]) -> None:
        """Close a task's coroutine when the run is over, whatever its ``finally`` blocks want to wait for."""
        self._tasks.pop(task.number, None)
        task.forget()
        coroutine = task.get_coro()
        context = copy_context()
        context.run(CURRENT_PROCESS.set, task.process)
        for _ in range(CLOSINGS_MAX):
            try:
                context.run(coroutine.close)
                return
            except BaseException:  # noqa: BLE001 - nobody is left to tell
                continue

    def check_orphans(self) -> None:
        """Raises OrphanError when a task has failed and nobody has asked for its outcome."""
        orphans = [task for task in self._failed_tasks if task._log_traceback and not _is_dead(task)]
        self.failures += [
            {"message": f"the task {task.get_name()} failed", "exception": task.exception(), "task": task}
            for task in orphans
        ]
        if self.failures:
            raise OrphanError(self.failures) from self.failures[0].get("exception")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = CURRENT_PROCESS.get()
        if self.is_over or (process is not None and process.is_dead):
            return
        if isinstance(context.get("exception"), ProcessKilled):
            return
        if self.get_exception_handler() is not None:
            super().call_exception_handler(context)
        else:
            self.failures.append(context)

    # Executors

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run ``func`` on the loop, but later: when one of the executor's workers would be free."""
        return submit(self, self._rng, executor, func, args)

    # The network

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return self._the_network().resolve(host, port)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return self._the_network().listen(protocol_factory, host, port or 0)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, ssl: Any = None, **options: Any
    ) -> Any:
        if ssl:
            raise SimulationError("the simulated network has no TLS")
        return await self._the_network().connect(protocol_factory, host, port)

    def _the_network(self) -> SimulatedNetwork:
        if self.network is None:
            raise SimulationError("this loop has no network")
        return self.network


def _whole_ns(seconds: float) -> int:
    """A wait that is not nothing takes some time, however little of one rounding has left: whoever looks at
    the clock and waits for the rest would do so for ever."""
    return max(round(seconds * NS_PER_S), seconds > 0)


def _is_dead(task: SimulatedTask[Any]) -> bool:
    return task.process is not None and task.process.is_dead
