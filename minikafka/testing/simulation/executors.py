"""What the simulated code gives to thread pools: no thread runs it, but its order and its lateness remain.

A call takes effect at one moment and is told at a later one, as with a thread: what the loop does between the
call and its effect, or between its effect and the news, may be hit by a crash. An executor with one worker
runs its calls in their order; one with several does not.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.testing.simulation.errors import ProcessKilled, SimulationError
from minikafka.testing.simulation.handles import NS_PER_MS
from minikafka.testing.simulation.process import CURRENT_PROCESS

if TYPE_CHECKING:
    from minikafka.testing.simulation.loop import VirtualTimeLoop

T = TypeVar("T")


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
    heapq.heapreplace(workers, end_ns)
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
