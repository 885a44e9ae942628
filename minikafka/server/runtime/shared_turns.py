"""Long work of requests, one piece at a time and in slices, so that the loop stays free for the others.

Kafka has threads for this, which the operating system slices. Here whoever decodes, answers or encodes what
may be large does it in steps (``minikafka.steps``). Work that fits into its first slice is done at once, as
if there were no steps. The rest waits in one line for all connections: one slice each turn of the loop,
however many such requests there are, and one of them in memory as values.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from minikafka.clock import Clock
from minikafka.network.responses import PendingResponse, UnfinishedRequest
from minikafka.server.runtime.turns import SLICE_MS
from minikafka.steps import Steps
from minikafka.types import Buffer

T = TypeVar("T")

FIRST_SLICE_MS = 2
"""How long a piece of work may last where it arrives. Metadata of 200 topics take as long; a hundred
connections that send more at the same moment keep the loop for 0.2 s."""


FULL_COLLECTIONS_HELD = 1 << 30
"""As a threshold of the garbage collector: never. A full collection goes through all that a large request is
made of, 0.3 s in one go, to find that it is still used."""


class SharedTurns:
    """``run`` begins a piece of work, and finishes it where that is soon done."""

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.monotonic_ns
        self._waiting: deque[UnfinishedRequest] = deque()
        self._thresholds = gc.get_threshold()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minikafka-long-work")

    def __repr__(self) -> str:
        return f"SharedTurns({len(self._waiting)} waiting)"

    def close(self) -> None:
        """Begin nothing more in the thread; what it is at is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def run(self, steps: Steps[T]) -> T | UnfinishedRequest:
        """What comes of ``steps``, or the promise of it. What the first slice raises is raised here."""
        deadline_ns = self._now_ns() + FIRST_SLICE_MS * 1_000_000
        try:
            waits_for = next(steps)
            while waits_for is None and self._now_ns() < deadline_ns:
                waits_for = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        unfinished = UnfinishedRequest(steps)
        unfinished.waits_for = waits_for
        self._queue(unfinished)
        return unfinished

    def apart(self, work: Callable[[], T]) -> Steps[T]:
        """Steps of one piece of work that uses nothing of the loop's: it is done in a thread, one after the
        other."""
        done = asyncio.get_running_loop().run_in_executor(self._thread, work)
        yield done
        try:
            return done.result()
        finally:
            del done  # else an error keeps itself, and all that ``work`` had, until somebody collects garbage

    async def finished(self, steps: Steps[T]) -> T:
        """The same for those who can await."""
        result = self.run(steps)
        if not isinstance(result, UnfinishedRequest):
            return result
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def ended() -> None:
            if done.done():
                return
            try:
                done.set_result(result.result())
            except Exception as error:  # noqa: BLE001  # raised where it is awaited
                done.set_exception(error)

        result.on_end = ended
        try:
            return await done
        finally:
            result.cancel()

    def answer(self, pending: PendingResponse, steps: Steps[Sequence[Buffer] | None]) -> None:
        """Complete ``pending`` with what comes of ``steps``, now or later; with None it waits on. When they
        raise it is abandoned."""

        def complete(result: Callable[[], Sequence[Buffer] | None]) -> None:
            try:
                answer = result()
            except BaseException:
                if pending.is_waiting:
                    pending.abandon()
                raise
            if answer is not None and pending.is_waiting:
                pending.complete(answer)

        try:
            result = self.run(steps)
        except BaseException:
            if pending.is_waiting:
                pending.abandon()
            raise
        if isinstance(result, UnfinishedRequest):
            result.on_end = lambda: complete(result.result)
        else:
            complete(lambda: result)

    def _turn(self) -> None:
        unfinished = self._waiting[0]
        gc.set_threshold(*self._thresholds[:2], FULL_COLLECTIONS_HELD)
        deadline_ns = self._now_ns() + SLICE_MS * 1_000_000
        try:
            while unfinished.step() and self._now_ns() < deadline_ns:
                pass
        finally:
            if unfinished.has_ended or unfinished.waits_for is not None:
                self._waiting.popleft()
                gc.set_threshold(*self._thresholds)
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._turn)
            if unfinished.waits_for is not None:
                self._queue(unfinished)

    def _queue(self, unfinished: UnfinishedRequest) -> None:
        """Give it turns as soon as it can use them."""
        waits_for = unfinished.waits_for
        if waits_for is not None:
            unfinished.waits_for = None
            waits_for.add_done_callback(lambda _: self._queue(unfinished))
            return
        self._waiting.append(unfinished)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)
