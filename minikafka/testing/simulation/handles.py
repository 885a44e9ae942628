"""What the loop runs: callbacks and tasks, each with the process that it belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.testing.simulation.process import CURRENT_PROCESS, Process

if TYPE_CHECKING:
    from minikafka.testing.simulation.loop import VirtualTimeLoop

T = TypeVar("T")

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


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
