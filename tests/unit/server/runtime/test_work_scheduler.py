"""Long work on the loop: what is soon done is done at once, the others in slices, one piece after the
other."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from minikafka.clock import ManualClock
from minikafka.errors import InvariantError
from minikafka.network.connection import PendingResponse
from minikafka.network.responses import PendingState, UnfinishedRequest
from minikafka.server.runtime.work_scheduler import FIRST_SLICE_MS, SLICE_MS, TimeSlice, WorkScheduler
from minikafka.steps import Steps, each, finish

STEPS_A_MS = 4


class FineClock(ManualClock):
    """It can stand between two milliseconds."""

    fraction_ns = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.fraction_ns

    def advance_ns(self, duration_ns: int) -> None:
        whole_ms, self.fraction_ns = divmod(self.fraction_ns + duration_ns, 1_000_000)
        self.advance(whole_ms)


class World:
    """Work whose steps take a quarter of a millisecond each, on a clock that nothing else moves."""

    def __init__(self) -> None:
        self.clock = FineClock()
        self.scheduler = WorkScheduler(self.clock)
        self.clock.advance(SLICE_MS)
        self.done: list[str] = []
        """Whose millisecond it was."""

    def work(self, name: str, duration_ms: int) -> Steps[str]:
        for _ in range(duration_ms):
            for _ in range(STEPS_A_MS):
                yield
                self.clock.advance_ns(1_000_000 // STEPS_A_MS)
            self.done.append(name)
        return f"{name} is done"

    def importing(self, name: str, duration_ms: int) -> Steps[str]:
        """The first request of its API: one long step, and two that are nothing."""
        yield
        self.clock.advance(duration_ms)
        yield
        yield
        return f"{name} is done"

    async def ms_until(self, piece: str | UnfinishedRequest) -> int:
        """How many milliseconds go by until it is done."""
        began_ms = self.clock.monotonic_ms()
        if isinstance(piece, UnfinishedRequest) and not piece.has_ended:
            ended = asyncio.Event()
            piece.on_end = ended.set
            await ended.wait()
        return self.clock.monotonic_ms() - began_ms


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.scheduler.close()


async def some_turns() -> None:
    """Of the loop; more than any work here needs."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_what_is_soon_done_is_done_at_once(world: World) -> None:
    assert world.scheduler.run(world.work("a", FIRST_SLICE_MS - 1)) == "a is done"


async def test_longer_work_gets_a_slice_in_each_turn_of_the_loop(world: World) -> None:
    steps = FIRST_SLICE_MS + 3 * SLICE_MS
    unfinished = world.scheduler.run(world.work("a", steps))
    assert isinstance(unfinished, UnfinishedRequest)
    seen = []
    while not unfinished.has_ended:
        seen.append(len(world.done))
        await asyncio.sleep(0)
    assert seen[0] == FIRST_SLICE_MS and len(seen) >= 3
    assert all(0 < later - before <= SLICE_MS for before, later in pairwise(seen))
    assert unfinished.result() == "a is done"


async def test_one_piece_after_the_other(world: World) -> None:
    """However many there are, a turn of the loop has one slice."""
    pieces = [world.scheduler.run(world.work(name, 40)) for name in "abc"]
    began = len(world.done)
    await asyncio.sleep(0)
    assert len(world.done) == began + SLICE_MS
    await some_turns()
    assert all(isinstance(piece, UnfinishedRequest) and piece.has_ended for piece in pieces)
    begins, ends = ([world.done.index(name) for name in "abc"], "".join(world.done)[-84:])
    assert begins == sorted(begins) and max(begins) < 20, "all have begun"
    assert re.fullmatch("(a+b+c+|a+c+b+|b+a+c+|b+c+a+|c+a+b+|c+b+a+)", ends), ends


async def test_first_slices_have_no_more_of_a_turn_than_a_slice(world: World) -> None:
    """Hundreds of connections ask for much at the same moment."""
    pieces = [world.scheduler.run(world.work(str(number), 5)) for number in range(100)]
    most = SLICE_MS + FIRST_SLICE_MS  # the last one begins where there is a little time left
    assert len(world.done) <= most
    await asyncio.sleep(0)
    while not all(isinstance(piece, UnfinishedRequest) and piece.has_ended for piece in pieces):
        before_ms = world.clock.monotonic_ms()
        assert world.scheduler.run(world.work("short", 0)) == "short is done", "it need not wait behind them"
        await asyncio.sleep(0)
        assert world.clock.monotonic_ms() - before_ms <= 2 * most
    assert len(world.done) == 500


async def test_work_that_waits_for_a_thread_lets_the_others_go_on(world: World) -> None:
    release = threading.Event()

    def outside() -> str:
        release.wait(60)
        return threading.current_thread().name

    waiting = asyncio.create_task(world.scheduler.finished(world.scheduler.apart(outside)))
    await asyncio.sleep(0)
    assert await world.scheduler.finished(world.work("b", 20)) == "b is done"
    assert not waiting.done()
    release.set()
    assert (await waiting).startswith("minikafka-long-work")


ASKERS = 1_000
SOON_MS = 5 * SLICE_MS


def ask(world: World, count: int) -> None:
    """Each for what takes 40 ms to answer."""
    for number in range(count):
        world.scheduler.run(world.work(f"asker {number}", 40), answer_may_be_large=True)


async def test_who_asks_for_little_does_not_wait_behind_hundreds_who_ask_for_much(world: World) -> None:
    """They ask at the same moment, so that most of them have not had their first slice."""
    ask(world, ASKERS)
    produce = world.scheduler.run(world.work("produce", 3))
    assert await world.ms_until(produce) <= SOON_MS
    metadata = world.scheduler.run(world.work("metadata", 1), answer_may_be_large=True)
    assert await world.ms_until(metadata) <= ASKERS, "here it is one of them, and they get a millisecond each"


async def test_the_first_request_of_an_api_does_not_count_as_long(world: World) -> None:
    """It imports its handler for 50 ms. The first record would wait until all askers have their answers."""
    ask(world, ASKERS)
    for answer_may_be_large in (False, True):
        first = world.scheduler.run(world.importing("first", 50), answer_may_be_large=answer_may_be_large)
        assert await world.ms_until(first) <= 50 + (ASKERS if answer_may_be_large else SOON_MS)


async def test_other_work_of_the_loop_gets_as_much_time_as_the_slices(world: World) -> None:
    """libuv accepts one connection in a turn of the loop: a slice in each would be 5 ms for each of them."""
    ask(world, ASKERS)
    await some_turns()
    began_ms, turns, half_a_ms_in_ns = world.clock.monotonic_ms(), 200, 500_000
    for _ in range(turns):
        world.clock.advance_ns(half_a_ms_in_ns)
        await asyncio.sleep(0)
    others_ms = turns // 2
    slices_ms = world.clock.monotonic_ms() - began_ms - others_ms
    assert others_ms - SLICE_MS <= slices_ms <= others_ms + SLICE_MS


async def test_what_has_waited_for_a_thread_does_not_wait_in_line_too(world: World) -> None:
    """A produce whose batches were checked in a thread, and hundreds of long answers."""
    long = [world.scheduler.run(world.work(name, 1_000)) for name in "abc"]
    assert await world.scheduler.finished(world.scheduler.apart(lambda: "checked")) == "checked"
    assert not any(isinstance(piece, UnfinishedRequest) and piece.has_ended for piece in long)


async def test_what_a_thread_raises_is_raised_where_it_is_waited_for(world: World) -> None:
    with pytest.raises(ZeroDivisionError):
        await world.scheduler.finished(world.scheduler.apart(lambda: 1 // 0))


async def test_a_promise_is_completed_or_abandoned(world: World) -> None:
    def answer(steps: int) -> Steps[tuple[bytes]]:
        yield from world.work("a", steps)
        return (b"answer",)

    def broken(steps: int) -> Steps[tuple[bytes]]:
        yield from world.work("a", steps)
        raise ZeroDivisionError

    def not_yet(pending: PendingResponse) -> Steps[PendingResponse]:
        yield
        return pending

    for steps in (0, 20):
        pending, waits = PendingResponse(), PendingResponse()
        world.scheduler.answer(pending, answer(steps))
        world.scheduler.answer(waits, not_yet(waits))
        await some_turns()
        assert pending.buffers == (b"answer",)
        assert waits.is_waiting
    at_once = PendingResponse()
    with pytest.raises(ZeroDivisionError):
        world.scheduler.answer(at_once, broken(0))
    assert at_once.state is PendingState.ABANDONED
    later = PendingResponse()
    failures: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    world.scheduler.answer(later, broken(20))
    await some_turns()
    assert later.state is PendingState.ABANDONED
    assert isinstance(failures[0]["exception"], ZeroDivisionError)
    assert await world.scheduler.finished(world.work("b", 20)) == "b is done", "the others go on"


async def test_who_stops_waiting_stops_the_work(world: World) -> None:
    waiting = asyncio.create_task(world.scheduler.finished(world.work("a", 1000)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    done = len(world.done)
    await some_turns()
    assert len(world.done) == done < 1000


def test_all_steps_at_once() -> None:
    assert finish(each(str, range(3))) == ["0", "1", "2"]

    def waits() -> Steps[None]:
        yield object()

    with pytest.raises(InvariantError, match="waits for a thread"):
        finish(waits())


async def test_a_turn_has_one_slice_for_all_who_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred clients have topics created; one of them goes away."""
    loop = asyncio.get_running_loop()
    now_s, step_s, count = loop.time(), 0.0001, 100
    monkeypatch.setattr(loop, "time", lambda: now_s)
    ended = []

    async def work(name: int) -> None:
        nonlocal now_s
        time_slice = TimeSlice()
        for _ in range(200):
            now_s += step_s
            await time_slice.give_way()
        ended.append(name)

    tasks = [asyncio.create_task(work(number)) for number in range(count)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    longest_s = 0.0
    while len(ended) < count - 1:
        before_s = now_s
        await asyncio.sleep(0)
        longest_s = max(longest_s, now_s - before_s)
    assert longest_s <= 2 * SLICE_MS / 1000
    assert ended == [0, *range(2, count)], "first come, first served"
    await asyncio.gather(*tasks, return_exceptions=True)
