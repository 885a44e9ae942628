"""An event loop whose clock jumps to the next timer when there is nothing else to do.

A wait of a second takes no time and is still a wait of a second. Where nothing could ever happen any more it
says so instead of hanging, and so it does where a task is busy for ever. For code that waits for timers,
futures and transports in memory only.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


TURNS_AT_ONCE_MAX = 5_000
"""Turns of the loop at one moment in time. More are a loop without end."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual_s = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._virtual_s

    def jump(self, seconds: float) -> None:
        self._virtual_s += seconds


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop
        self._turns_at_once = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("all tasks wait and nothing will happen")
            self._loop.jump(max(timeout, 0))
        self._turns_at_once = 0 if timeout else self._turns_at_once + 1
        if self._turns_at_once > TURNS_AT_ONCE_MAX:
            raise RuntimeError("a task is busy without end, and no time passes")
        return ready


class LoopClock:
    """``minikafka.clock.Clock`` on the running loop's time."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def monotonic_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * 1_000_000_000)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a ``VirtualTimeLoop``."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def passing(duration_ms: int) -> None:
    """Let all tasks do what there is to do in that time."""
    await asyncio.sleep(duration_ms / 1000)
