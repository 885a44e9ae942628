"""Long work of requests, one piece at a time and in slices, so that the loop stays free for the others.

Kafka has threads for this, which the operating system slices. Here code that decodes, answers or encodes what
may be large does it in steps (``minikafka.steps``). Work that fits into its first slice is done at once, as
if there were no steps. What remains waits in line: at most one slice in a turn of the loop, however many such
requests there are, and of the long ones one or two in memory as values.

Hundreds may ask for much at the same moment. Others are served meanwhile:
- The loop's other work (new connections, other requests) gets as much time as these slices, if it needs it.
- Requests whose answers may be large, which are those that cost their clients nothing, have a line of their
  own. It and that of the others (a Produce, a commit) take turns.
- In a line, those that have had little come first: in rounds that double in length. What took ``LONG_MS`` is
  long: of those one is worked off after the other, as Kafka's threads do, and short and long ones take turns.
- The longest step of a piece of work does not count. In it the process was interrupted, or it imported what
  the first request of an API needs (50 ms for a Produce), which is no sign of more to come.

**Time slices** (``TimeSlice``). What belongs to the loop (logs, partitions, metadata) cannot go to a thread;
so the work on a thousand of them lets others in between.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from typing import TypeVar
from weakref import WeakKeyDictionary

from minikafka.clock import Clock
from minikafka.network.responses import PendingResponse, UnfinishedRequest
from minikafka.steps import Steps
from minikafka.types import Buffer

SLICE_MS = 5
"""How long one piece of work keeps the loop. A produce request takes 0.02 ms: this is what others
notice."""

_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, _SharedSlices] = WeakKeyDictionary()

T = TypeVar("T")

FIRST_SLICE_MS = 2
"""How long a piece of work may last where it arrives. Metadata of 200 topics take as long."""

LONG_MS = 5
"""Work that has had so much stands in the line of the long ones."""

BUSY_SLICE_NS = 250_000
"""The first slice where other work waits in line: a request of one topic is answered in less."""

IDLE_TURN_NS = 100_000
"""In a turn of the loop that was shorter there was nothing else to do."""

UNCOUNTED_NS = 200_000
"""A first slice that took less does not count for its turn: most requests do, and cost no timer."""

FULL_COLLECTIONS_HELD = 1 << 30
"""As a threshold of the garbage collector: never. A full collection goes through all that a large request is
made of, 0.3 s in one go, to find that it is still used."""


class _SharedSlices:
    """Of one loop: who waits for a slice, first come first served."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ends_at = loop.time()
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self, loop: asyncio.AbstractEventLoop) -> None:
        turn = loop.create_future()
        self.waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._turn, loop)
        await turn
        self.ends_at = loop.time() + SLICE_MS / 1000

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():  # it may have been cancelled
                turn.set_result(None)
                break
        self._is_scheduled = bool(self.waiting)
        if self.waiting:
            loop.call_soon(self._turn, loop)


class TimeSlice:
    """Made where the work begins; ``give_way`` after each small step of it. A turn of the loop has one slice
    for all of them together: hundreds of clients may have topics created at the same moment."""

    def __init__(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        shared = _SHARED.get(loop)
        if shared is None:
            shared = _SHARED[loop] = _SharedSlices(loop)
        self._shared = shared
        now = loop.time()
        if not shared.waiting and now >= shared.ends_at:
            shared.ends_at = now + SLICE_MS / 1000

    async def give_way(self) -> None:
        """Let all other tasks have a turn, if these have lasted long enough."""
        if self._loop.time() >= self._shared.ends_at:
            await self._shared.next(self._loop)


class _Line:
    """Work that can go on now."""

    __slots__ = ("_count", "is_turn_of_long", "long", "short")

    def __init__(self) -> None:
        self.short: list[tuple[int, int, UnfinishedRequest]] = []
        """A heap: those that have had the least time first, then in the order in which they came."""
        self.long: deque[UnfinishedRequest] = deque()
        self.is_turn_of_long = False
        self._count = 0

    def __repr__(self) -> str:
        return f"{len(self.short)} short, {len(self.long)} long"

    def __bool__(self) -> bool:
        return bool(self.short or self.long)

    def add(self, unfinished: UnfinishedRequest) -> None:
        if unfinished.spent_ns < LONG_MS * 1_000_000:
            self._count += 1
            heappush(self.short, (unfinished.spent_ns, self._count, unfinished))
        else:
            self.long.append(unfinished)


class WorkScheduler:
    """``run`` begins a piece of work, and finishes it where that is soon done."""

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.monotonic_ns
        self._line = _Line()
        self._line_of_large_answers = _Line()
        self._is_turn_of_large_answers = False
        self._is_scheduled = False
        self._turn_ended_ns = self._slice_ended_ns = self._now_ns()
        self._first_slices_ns = 0
        """Spent in this turn of the loop."""
        self._thresholds = gc.get_threshold()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minikafka-long-work")

    def __repr__(self) -> str:
        return f"WorkScheduler({self._line}; large answers: {self._line_of_large_answers})"

    def close(self) -> None:
        """Begin nothing more in the thread; what it is at is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def run(self, steps: Steps[T], *, answer_may_be_large: bool = False) -> T | UnfinishedRequest:
        """What comes of ``steps``, or the promise of it. What the first slice raises is raised here.
        ``answer_may_be_large``: far larger than the request; it has its own line."""
        if self._first_slices_ns >= SLICE_MS * 1_000_000:
            unfinished = UnfinishedRequest(steps, answer_may_be_large=answer_may_be_large)
            unfinished.spent_ns = BUSY_SLICE_NS  # behind those that have begun and need little more
            self._queue(unfinished)
            return unfinished
        began_ns = now_ns = self._now_ns()
        deadline_ns = began_ns + (BUSY_SLICE_NS if self._is_scheduled else FIRST_SLICE_MS * 1_000_000)
        longest_ns, waits_for = 0, None
        try:
            while waits_for is None and now_ns < deadline_ns:
                waits_for = next(steps)
                step_began_ns, now_ns = now_ns, self._now_ns()
                longest_ns = max(longest_ns, now_ns - step_began_ns)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            spent_ns = self._now_ns() - began_ns
            if spent_ns > UNCOUNTED_NS:
                if not self._first_slices_ns:
                    asyncio.get_running_loop().call_soon(self._end_turn)
                self._first_slices_ns += spent_ns
        unfinished = UnfinishedRequest(steps, answer_may_be_large=answer_may_be_large)
        unfinished.waits_for, unfinished.longest_step_ns = waits_for, longest_ns
        unfinished.spent_ns = spent_ns - longest_ns
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
            del done  # else an error keeps itself, and all that ``work`` had, until the garbage is collected

    async def finished(self, steps: Steps[T], *, answer_may_be_large: bool = False) -> T:
        """The same for those who can await."""
        result = self.run(steps, answer_may_be_large=answer_may_be_large)
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

    def answer(
        self,
        pending: PendingResponse,
        steps: Steps[Sequence[Buffer]] | Steps[Sequence[Buffer] | PendingResponse],
    ) -> None:
        """Complete ``pending`` with what comes of ``steps``, now or later; when that is ``pending`` itself it
        waits on. When they raise it is abandoned."""

        try:
            result = self.run(steps)
            if isinstance(result, UnfinishedRequest):
                result.on_end = partial(_complete, pending, result)
                return
        except BaseException:
            if pending.is_waiting:
                pending.abandon()
            raise
        if not isinstance(result, PendingResponse) and pending.is_waiting:
            pending.complete(result)

    def _end_turn(self) -> None:
        self._first_slices_ns = 0

    def _turn(self) -> None:
        self._is_scheduled = False
        now_ns = self._now_ns()
        others_were_busy = now_ns - self._turn_ended_ns > IDLE_TURN_NS
        if not others_were_busy or now_ns - self._slice_ended_ns >= SLICE_MS * 1_000_000:
            self._slice()
            now_ns = self._slice_ended_ns = self._now_ns()
        self._turn_ended_ns = now_ns
        if self._line or self._line_of_large_answers:
            self._schedule()

    def _slice(self) -> None:
        """Of the line whose turn it is, or of the other one if nothing is in that."""
        line, other = self._line, self._line_of_large_answers
        if (self._is_turn_of_large_answers and other) or not line:
            line = other
        self._is_turn_of_large_answers = line is self._line
        if line.long and (line.is_turn_of_long or not line.short):
            line.is_turn_of_long = False
            self._continue(line)
        else:
            line.is_turn_of_long = True
            self._begin(line.short)

    def _begin(self, short: list[tuple[int, int, UnfinishedRequest]]) -> None:
        """A slice of those that have had the least, each of which gets as much again."""
        now_ns = self._now_ns()
        deadline_ns = now_ns + SLICE_MS * 1_000_000
        while short and now_ns < deadline_ns:
            *_, unfinished = heappop(short)
            more_ns = max(unfinished.spent_ns, BUSY_SLICE_NS)
            now_ns = self._step(unfinished, now_ns, min(deadline_ns, now_ns + more_ns))
            if not unfinished.has_ended:
                self._queue(unfinished)

    def _continue(self, line: _Line) -> None:
        """A slice of the one at the head of the long ones."""
        gc.set_threshold(*self._thresholds[:2], FULL_COLLECTIONS_HELD)
        unfinished = line.long[0]
        now_ns = self._now_ns()
        try:
            self._step(unfinished, now_ns, now_ns + SLICE_MS * 1_000_000)
        finally:
            if unfinished.has_ended or unfinished.waits_for is not None:
                line.long.popleft()
                gc.set_threshold(*self._thresholds)
            if unfinished.waits_for is not None:
                self._queue(unfinished)

    def _step(self, unfinished: UnfinishedRequest, now_ns: int, deadline_ns: int) -> int:
        """Steps until the deadline; returns what time it is then."""
        can_go_on = True
        while can_go_on and now_ns < deadline_ns:
            can_go_on = unfinished.step()
            step_began_ns, now_ns = now_ns, self._now_ns()
            lesser_ns, unfinished.longest_step_ns = sorted(
                (now_ns - step_began_ns, unfinished.longest_step_ns)
            )
            unfinished.spent_ns += lesser_ns
        return now_ns

    def _queue(self, unfinished: UnfinishedRequest) -> None:
        """Schedule it as soon as it can make progress."""
        waits_for = unfinished.waits_for
        if waits_for is not None:
            unfinished.waits_for = None
            waits_for.add_done_callback(lambda _: self._queue(unfinished))
            return
        line = self._line_of_large_answers if unfinished.answer_may_be_large else self._line
        line.add(unfinished)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)


def _complete(pending: PendingResponse, unfinished: UnfinishedRequest) -> None:
    """With what its steps have come to, in which they may have raised."""
    try:
        answer = unfinished.result()
    except BaseException:
        if pending.is_waiting:
            pending.abandon()
        raise
    if not isinstance(answer, PendingResponse) and pending.is_waiting:
        pending.complete(answer)
