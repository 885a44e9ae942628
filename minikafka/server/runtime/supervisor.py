"""The owner of every long-lived task of a broker.

A task is started with a name and a restart policy, and ends with the supervisor. A task that fails is never
forgotten: it is logged with its traceback and then, by its policy, started again after a pause or reported as
the reason why the broker must stop.

Invariants: no task outlives ``stop``; an exception of a task is logged exactly once; cancellation is never
taken for a failure.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

RESTART_PAUSE_MS = 1000
"""The pause before a failed task runs again: long enough not to spin on a fault that lasts."""


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
