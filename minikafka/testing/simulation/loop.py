"""``VirtualTimeLoop``: an asyncio event loop whose time passes only while there is nothing to do; and the
hosts and processes whose callbacks it runs.

Callbacks take no time. When none is ready, the time jumps to the next timer; ten idle minutes cost what
their timers cost. Nothing here sleeps, starts a thread or opens a socket: names, servers and connections come
from a ``SimulatedNetwork``.

A host is a name, an address and a machine that is up or not. What runs on it is a ``Process``, one life from
start to kill; a restarted broker is a new process on the same host. The process is carried by a context
variable, which tasks, timers and callbacks inherit, so that unchanged code never has to name its host.

What is given to an executor runs on the loop, later and in order. A call takes effect at one moment and is
told at a later one, as with a thread: what the loop does between the call and its effect, or between its
effect and the news, may be hit by a crash. An executor with one worker runs its calls in their order; one
with several does not.

Invariants:
- Time is whole nanoseconds inside, so that adding delays loses nothing; timers of one moment run in the order
  in which they were set.
- Every callback belongs to the process of its context.
- A callback of a dead process never runs, and neither do its ``finally`` blocks while the run lasts: all that
  belongs to it is kept (``held``, ``tasks``, ``kept``) until the run is over.
- A callback of a paused process runs when the process is resumed, in the order in which it became due.
- What is not awaited must not fail: exceptions of callbacks and of tasks that were never awaited collect in
  ``failures``, and the first ends the run.
- Neither a world in which nothing can happen any more (``StalledError``) nor one in which time stands still
  hangs the test: the errors say what tasks wait for, in words.

Of asyncio's private parts it needs only ``BaseEventLoop._run_once``, which is what every loop has.
"""

from __future__ import annotations

import asyncio
import random
from asyncio.base_events import BaseEventLoop
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Protocol, TypeVar, TypeVarTuple

from minikafka.errors import MinikafkaError

T = TypeVar("T")

DISK_DELAY_MS = (0.05, 2.0)
"""How long a call in an executor takes: between a cached read and an fsync of an SSD."""

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

TASKS_MAX = 50
"""Tasks named in an error; a broker has some twenty."""

Ts = TypeVarTuple("Ts")

TURNS_MAX = 100_000
"""Rounds of callbacks at one moment. What a burst of requests needs is some hundreds."""

CANCELLED_TIMERS_MIN = 1_000
"""Cancelled timers are taken out when they are this many and half of all: mostly deadlines that were kept."""

CLOSINGS_MAX = 20
"""Awaits in ``finally`` blocks, one in the other, that are cut short when the run is over."""


# Errors


class SimulationError(MinikafkaError):
    """The run, or what it simulates, is not in order."""


class StalledError(SimulationError):
    """Tasks wait, and nothing will ever happen: nothing is ready and no timer is set."""


class NondeterminismError(SimulationError):
    """minikafka's own code asked the real world for the time, for dice, for a thread or for a socket."""


class HostDiedError(SimulationError):
    """What was awaited of a host cannot come any more: its process was killed or lost power."""


class OrphanError(SimulationError):
    """Callbacks or tasks that are not awaited raised; ``causes`` has the event loop's reports.

    ``__cause__`` is the first of the exceptions, with its traceback.
    """

    def __init__(self, causes: Sequence[dict[str, Any]]) -> None:
        self.causes = tuple(causes)
        lines = [f"{report.get('message')}: {report.get('exception')!r}" for report in causes]
        super().__init__("\n".join([f"{len(lines)} failures that were not awaited:", *lines]))


class ProcessKilled(BaseException):
    """Raised inside a process that has just been killed, when it touches its disk: it does nothing more.

    Not an ``Exception``, so that no handler of the simulated code takes it for a fault that it can treat.
    """


# Hosts and processes


class Process:
    """One life of what runs on a host. Made by ``Host.boot``."""

    __slots__ = (
        "_context",
        "_loop",
        "died",
        "held",
        "host",
        "is_dead",
        "kept",
        "lanes",
        "number",
        "runs",
        "tasks",
    )

    def __init__(self, host: Host, number: int, loop: VirtualTimeLoop) -> None:
        self.host = host
        self.number = number
        """1 for the first life on its host."""
        self.runs = True
        """Whether callbacks run now: neither paused nor dead."""
        self.is_dead = False
        self.held: list[SimulatedHandle] = []
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.kept: list[object] = []
        """What must not be collected while the run lasts."""
        self.lanes: dict[object, list[int]] = {}
        """By executor: when each of its workers is free, in nanoseconds."""
        self.died: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._context = copy_context()
        self._context.run(CURRENT_PROCESS.set, self)

    def __repr__(self) -> str:
        state = "dead" if self.is_dead else "running" if self.runs else "paused"
        return f"Process({self.host.name}#{self.number}, {state}, {len(self.tasks)} tasks)"

    def context(self) -> Context:
        """A fresh context whose callbacks belong to this process."""
        return self._context.copy()

    def start(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run ``coroutine`` as a task of this process."""
        return self._loop.create_task(coroutine, name=name, context=self.context())

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` as a task of this process and wait for it, as another process may.

        Raises:
            HostDiedError: the process died before it was done.
        """
        task = self.start(coroutine)
        try:
            await asyncio.wait((task, self.died), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done() or (self.is_dead and isinstance(task.exception(), ProcessKilled)):
            raise HostDiedError(f"{self.host.name} died while {task.get_name()} was running")
        return task.result()

    def pause(self) -> None:
        """Like SIGSTOP."""
        if self.is_dead:
            raise SimulationError(f"{self!r} cannot be paused")
        self.runs = False

    def resume(self) -> None:
        """Like SIGCONT. What became due meanwhile runs now."""
        if self.is_dead:
            raise SimulationError(f"{self!r} cannot be resumed")
        self.runs = True
        held, self.held = self.held, []
        self._loop.run_held(held)

    def kill(self) -> None:
        """Like SIGKILL: nothing of it ever runs again. Idempotent."""
        if not self.is_dead:
            self.is_dead = True
            self.runs = False
            if not self.died.done():
                self.died.set_result(None)


class Host:
    """A machine. ``process`` is what runs on it at the moment."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.is_up = True
        """Whether the machine has power; a killed process leaves it up, and its kernel answers for it."""
        self.process: Process | None = None
        self.disk_delay_ms = DISK_DELAY_MS
        """Least and most virtual time that a call in an executor takes; raise it for a slow disk."""
        self.clock_skew_ms = 0
        """How far the wall clock of this machine is ahead."""
        self.lives = 0

    def __repr__(self) -> str:
        return f"Host({self.name}, {'up' if self.is_up else 'no power'}, {self.process})"

    def boot(self, loop: VirtualTimeLoop) -> Process:
        """Start a new process on it, which has nothing to do yet. The machine has power from here on."""
        if self.process is not None and not self.process.is_dead:
            raise SimulationError(f"{self.name} runs {self.process!r}")
        self.is_up = True
        self.lives += 1
        self.process = Process(self, self.lives, loop)
        return self.process


CURRENT_PROCESS: ContextVar[Process | None] = ContextVar("minikafka_simulated_process", default=None)
"""Whose code runs; None in the simulated hardware itself."""


def current_process() -> Process:
    """The process whose code is running. Raises SimulationError outside of any."""
    process = CURRENT_PROCESS.get()
    if process is None:
        raise SimulationError("this code runs on no simulated host")
    return process


# Callbacks and tasks


class SimulatedHandle(asyncio.TimerHandle):
    """A callback, and whose it is."""

    __slots__ = ("_owner", "_when_ns", "is_timer", "process")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualTimeLoop,
        context: Context,
        when_ns: int,
    ) -> None:
        # Not the base's: it would look for debug mode and tracebacks, once per callback.
        self._callback = callback
        self._args = args
        self._context = context
        self._owner = loop
        self._cancelled = False
        self._when_ns = when_ns
        self.is_timer = when_ns >= 0
        """Whether it waits in the loop's heap."""
        self.process = context.get(CURRENT_PROCESS)

    def __repr__(self) -> str:
        return f"<SimulatedHandle {self._callback!r} at {self._when_ns / NS_PER_S:.6f} s of {self.process!r}>"

    def __hash__(self) -> int:
        return self._when_ns

    def __eq__(self, other: object) -> bool:
        return self is other

    def when(self) -> float:
        return self._when_ns / NS_PER_S

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback, self._args = _nothing, ()  # a long timer keeps nothing alive
            if self.is_timer:
                self._owner.timer_cancelled()


class SimulatedTask(asyncio.Task[T]):
    """A task whose hash is its number: sets of tasks, asyncio's own too, have the same order in each run."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], *, number: int, process: Process | None, **options: Any
    ) -> None:
        self.number = number
        self.process = process
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number

    def forget(self) -> None:
        """Say nothing when it is collected before it is done."""
        self._log_destroy_pending = False


def _nothing() -> None:
    """What a cancelled handle would call."""


def describe_tasks(tasks: Iterable[SimulatedTask[Any]]) -> str:
    """A line per task: whose it is, its name, and the line that it waits in. Hosts with few come first: a
    broker has some fifty that always wait."""
    tasks = list(tasks)
    counts = Counter(map(_host, tasks))
    tasks.sort(key=lambda task: counts[_host(task)])
    lines = [f"  {_host(task)}: {task.get_name()}: {_place(task.get_coro())}" for task in tasks]
    more = len(lines) - TASKS_MAX
    if more > 0:
        lines[TASKS_MAX:] = [f"  and {more} more"]
    return "\n".join(lines) or "  none"


def _host(task: SimulatedTask[Any]) -> str:
    return "no host" if task.process is None else task.process.host.name


def _place(awaitable: Any) -> str:
    """The innermost line of our own code that is suspended: where asyncio's begins, the question ends."""
    place = "not started"
    while awaitable is not None:
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "ag_frame", None)
        if frame is None:
            break
        code = frame.f_code
        if place != "not started" and "/asyncio/" in code.co_filename:
            break
        place = f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "ag_await", None)
    return place


# Executors


def submit(
    loop: VirtualTimeLoop, rng: random.Random, executor: Any, func: Callable[..., T], args: tuple[Any, ...]
) -> asyncio.Future[T]:
    """Run ``func(*args)`` when one of the workers of ``executor`` (None: of one with one) would be free.

    Raises:
        RuntimeError: the executor has been shut down.
    """
    if executor is not None and getattr(executor, "_shutdown", False):
        raise RuntimeError("cannot schedule new futures after shutdown")
    process = CURRENT_PROCESS.get()
    if process is None:
        raise SimulationError("an executor is used outside of any process")
    workers = process.lanes.get(executor)
    if workers is None:
        workers = process.lanes[executor] = [0] * getattr(executor, "_max_workers", 1)
    least_ms, most_ms = process.host.disk_delay_ms
    start_ns = max(workers[0], loop.now_ns) + round(rng.uniform(0, least_ms) * NS_PER_MS)
    end_ns = start_ns + round(rng.uniform(least_ms, most_ms) * NS_PER_MS)
    heapreplace(workers, end_ns)
    future: asyncio.Future[T] = loop.create_future()
    loop.call_at_ns(start_ns, _execute, loop, end_ns, future, func, args)
    return future


def _execute(
    loop: VirtualTimeLoop,
    end_ns: int,
    future: asyncio.Future[Any],
    func: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    """What a worker thread does."""
    if future.cancelled():
        return
    result: object = None
    failure: BaseException | None = None
    try:
        result = func(*args)
    except ProcessKilled:
        raise
    except BaseException as error:  # noqa: BLE001 - it is raised again where the call is awaited
        failure = error
    loop.call_at_ns(end_ns, _tell, future, result, failure)


def _tell(future: asyncio.Future[Any], result: object, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)


# The loop


class Network(Protocol):
    """What the loop asks of ``network.SimulatedNetwork``."""

    def resolve(self, name: Any, port: Any) -> list[tuple[Any, ...]]:
        """As ``getaddrinfo``. Raises socket.gaierror."""

    def listen(self, factory: Callable[[], Any], names: Any, port: int) -> asyncio.AbstractServer:
        """As ``create_server``. Raises OSError."""

    async def connect(
        self, factory: Callable[[], Any], name: Any, port: Any
    ) -> tuple[asyncio.Transport, Any]:
        """As ``create_connection``. Raises OSError."""


class VirtualTimeLoop(BaseEventLoop):
    """Runs until a future is done, a failure that is not awaited, or a stall.

    Args:
        rng: how long calls in executors take.
        network: answers ``create_server`` and its like; without one they raise.
    """

    def __init__(self, *, rng: random.Random, network: Network | None = None) -> None:
        super().__init__()
        self.network = network
        self.failures: list[dict[str, Any]] = []
        """Reports of what failed and was not awaited."""
        self.callbacks_run = 0
        """How many callbacks have run: what a run costs."""
        self.is_over = False
        """Set when the run is being taken down: failures do not count from here on."""
        self._rng = rng
        self.now_ns = 0
        """Virtual nanoseconds since the loop was made."""
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
        return self.now_ns / NS_PER_S

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
        when_ns = self.now_ns + _whole_ns(delay)
        return self.set_timer(when_ns, callback, args, copy_context() if context is None else context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        when_ns = self.now_ns + _whole_ns(when - self.now_ns / NS_PER_S)
        return self.set_timer(when_ns, callback, args, copy_context() if context is None else context)

    def call_at_ns(
        self, when_ns: int, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        """Like ``call_at``, in nanoseconds. A moment that has passed is now."""
        when_ns = max(when_ns, self.now_ns)
        return self.set_timer(when_ns, callback, args, copy_context() if context is None else context)

    def set_timer(
        self, when_ns: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> SimulatedHandle:
        """What all of these do; every message on every wire is one. ``when_ns`` has not passed."""
        handle = SimulatedHandle(callback, args, self, context, when_ns)
        self._timers_set += 1
        heappush(self._timers, (when_ns, self._timers_set, handle))
        return handle

    def timer_cancelled(self) -> None:
        """A timer's handle says that it need not run."""
        self._timers_cancelled += 1
        if self._timers_cancelled > CANCELLED_TIMERS_MIN and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapify(self._timers)
            self._timers_cancelled = 0

    def run_held(self, handles: Iterable[SimulatedHandle]) -> None:
        """Put back what was held for a paused process."""
        self._queue.extend(handles)

    # Running

    def _run_once(self) -> None:
        """Not once, as a loop of sockets would, but until this one is to stop: a turn has little to do."""
        queue = self._queue
        while True:
            self._turns += 1
            if self._timers and self._timers[0][0] <= self.now_ns:
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
            if self._stopping:
                return

    def _jump(self) -> None:
        """Move the time to the next timer of a process that is not dead."""
        timers = self._timers
        while timers:
            when_ns, _, handle = heappop(timers)
            process = handle.process
            if handle._cancelled:
                self._timers_cancelled -= 1
            elif process is not None and process.is_dead:
                process.held.append(handle)
            else:
                self.now_ns = when_ns
                self._turns = 0
                handle.is_timer = False
                self._queue.append(handle)
                if timers and timers[0][0] <= when_ns:
                    self._take_due()
                return
        if self.is_over:
            self._stopping = True
            return
        waiting = describe_tasks(task for task in self._tasks.values() if not _is_dead(task))
        raise StalledError(f"nothing will ever happen after {self.time():.6f} s. Waiting:\n{waiting}")

    def _take_due(self) -> None:
        timers, now_ns, queue = self._timers, self.now_ns, self._queue
        while timers and timers[0][0] <= now_ns:
            handle = heappop(timers)[2]
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
        if task._log_traceback:  # failed, and not read yet: a waiter reads it after this
            self._failed_tasks.append(task)
            error = task._exception
            if not isinstance(error, Exception | ProcessKilled):  # a test that timed out
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
            except BaseException:  # noqa: BLE001 - nothing is left to tell
                continue

    def check_orphans(self) -> None:
        """Raises OrphanError when a task has failed and its outcome was never read."""
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

    def _the_network(self) -> Network:
        if self.network is None:
            raise SimulationError("this loop has no network")
        return self.network


def _whole_ns(seconds: float) -> int:
    """A wait that is not nothing takes some time, however little of one rounding has left: a task that looks
    at the clock and waits for the rest would do so for ever."""
    return max(round(seconds * NS_PER_S), seconds > 0)


def _is_dead(task: SimulatedTask[Any]) -> bool:
    return task.process is not None and task.process.is_dead
