"""Hosts and the processes on them: to whom a callback belongs.

A host is a name, an address and a machine that is up or not. What runs on it is a ``Process``, one life from
start to kill; a restarted broker is a new process on the same host. The process is carried by a context
variable, which tasks, timers and callbacks inherit, so that unchanged code never has to name its host.

Invariants:
- A callback of a dead process never runs, and neither do its ``finally`` blocks while the run lasts: all that
  belongs to it is kept (``held``, ``tasks``, ``kept``) until the run is over.
- A callback of a paused process runs when the process goes on, in the order in which it became due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.testing.simulation.errors import HostDiedError, ProcessKilled, SimulationError

if TYPE_CHECKING:
    from minikafka.testing.simulation.handles import SimulatedHandle
    from minikafka.testing.simulation.loop import VirtualTimeLoop

T = TypeVar("T")

DISK_DELAY_MS = (0.05, 2.0)
"""How long a call in an executor takes: between a cached read and an fsync of an SSD."""


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
