"""Virtual time: what comes when, what a stall is, and what must not be lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from minikafka.testing.simulation.loop import (
    Host,
    OrphanError,
    Process,
    SimulationError,
    StalledError,
    VirtualTimeLoop,
)

T = TypeVar("T")


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop(rng=random.Random(1))
    yield loop
    loop.is_over = True
    for task in loop.unfinished_tasks():
        loop.abandon(task)
    loop.close()


def run(loop: VirtualTimeLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    return loop.run_until_complete(coroutine)


def process_on(loop: VirtualTimeLoop, name: str = "host") -> Process:
    return Host(name, "10.0.0.9").boot(loop)


class TestTime:
    def test_a_day_is_slept_in_no_time(self, loop: VirtualTimeLoop) -> None:
        run(loop, asyncio.sleep(86_400))
        assert loop.time() == 86_400
        assert loop.callbacks_run < 10

    def test_timers_run_in_the_order_of_their_moments_and_then_of_their_setting(
        self, loop: VirtualTimeLoop
    ) -> None:
        seen: list[tuple[str, float]] = []

        async def main() -> None:
            for name, delay in (("c", 0.3), ("a", 0.1), ("b1", 0.2), ("b2", 0.2), ("now", 0.0)):
                loop.call_later(delay, lambda name=name: seen.append((name, loop.time())))
            loop.call_soon(lambda: seen.append(("soon", loop.time())))
            await asyncio.sleep(1)

        run(loop, main())
        assert seen == [("soon", 0), ("now", 0), ("a", 0.1), ("b1", 0.2), ("b2", 0.2), ("c", 0.3)]

    def test_time_does_not_pass_while_there_is_something_to_do(self, loop: VirtualTimeLoop) -> None:
        async def main() -> float:
            loop.call_later(0.001, lambda: None)
            for _ in range(1000):
                await asyncio.sleep(0)
            return loop.time()

        assert run(loop, main()) == 0

    def test_many_small_waits_add_up_exactly(self, loop: VirtualTimeLoop) -> None:
        async def main() -> None:
            for _ in range(10_000):
                await asyncio.sleep(0.001)

        run(loop, main())
        assert loop.now_ns == 10 * 10**9

    def test_a_cancelled_timer_does_not_hold_the_time_up(self, loop: VirtualTimeLoop) -> None:
        async def main() -> None:
            for _ in range(3_000):
                loop.call_later(3600, lambda: pytest.fail("cancelled")).cancel()
            await asyncio.sleep(1)

        run(loop, main())
        assert loop.time() == 1
        assert "timers" in repr(loop) and len(loop._timers) < 2_000, "and does not stay for ever"

    def test_a_rest_that_only_rounding_has_left_is_waited_for(self, loop: VirtualTimeLoop) -> None:
        async def main() -> None:
            deadline = loop.time() + 0.005
            # A client that looks at the clock itself, as aiokafka's producer does.
            while (rest := deadline - loop.time() + 1e-19) > 0 and loop.time() < 0.006:  # noqa: ASYNC110
                await asyncio.sleep(rest)

        run(loop, main())

    def test_timeouts_are_those_of_virtual_time(self, loop: VirtualTimeLoop) -> None:
        async def main() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(30):
                    await loop.create_future()

        run(loop, main())
        assert loop.time() == 30


class TestStalls:
    def test_who_waits_for_nothing_is_named_with_the_line(self, loop: VirtualTimeLoop) -> None:
        async def wait_for_godot() -> None:
            await asyncio.Event().wait()

        async def main() -> None:
            loop.create_task(wait_for_godot(), name="estragon")
            await asyncio.sleep(5)
            await loop.create_future()

        with pytest.raises(StalledError) as raised:
            run(loop, main())
        text = str(raised.value)
        assert "after 5.000000 s" in text
        assert "estragon" in text and "test_loop.py" in text and "wait_for_godot" in text

    def test_who_waits_where_few_do_is_named_before_a_crowd(self, loop: VirtualTimeLoop) -> None:
        crowd = process_on(loop)

        async def main() -> None:
            for _ in range(100):
                crowd.start(asyncio.Event().wait())
            await asyncio.sleep(1)
            loop.create_task(asyncio.Event().wait(), name="estragon")
            await loop.create_future()

        with pytest.raises(StalledError) as raised:
            run(loop, main())
        lines = str(raised.value).splitlines()
        assert "estragon" in "".join(lines[1:3]) and lines[-1].endswith("more")

    def test_callbacks_that_never_let_time_pass_end_the_run(self, loop: VirtualTimeLoop) -> None:
        async def main() -> None:
            while True:  # noqa: ASYNC110
                await asyncio.sleep(0)

        with pytest.raises(SimulationError, match="time stands still"):
            run(loop, main())

    def test_timers_of_no_delay_are_no_way_around_that(self, loop: VirtualTimeLoop) -> None:
        def again() -> None:
            loop.call_later(0, again)

        again()
        with pytest.raises(SimulationError, match="time stands still"):
            run(loop, asyncio.sleep(1))


class TestFailures:
    def test_a_callback_that_fails_ends_the_run(self, loop: VirtualTimeLoop) -> None:
        async def main() -> None:
            loop.call_later(1, lambda: 1 / 0)
            await asyncio.sleep(100)

        with pytest.raises(OrphanError, match="ZeroDivisionError") as raised:
            run(loop, main())
        assert loop.time() == 1
        assert isinstance(raised.value.__cause__, ZeroDivisionError)

    def test_a_task_that_fails_alone_is_found_though_it_is_referenced(self, loop: VirtualTimeLoop) -> None:
        held: list[asyncio.Task[None]] = []

        async def fail() -> None:
            raise ValueError("alone")

        async def main() -> None:
            held.append(loop.create_task(fail(), name="loner"))
            await asyncio.sleep(1)

        run(loop, main())
        with pytest.raises(OrphanError, match="loner failed: ValueError"):
            loop.check_orphans()

    def test_a_task_whose_failure_was_awaited_is_no_orphan(self, loop: VirtualTimeLoop) -> None:
        async def fail() -> None:
            raise ValueError("known")

        async def main() -> None:
            task = loop.create_task(fail())
            await asyncio.sleep(1)
            with pytest.raises(ValueError):
                await task

        run(loop, main())
        loop.check_orphans()


class TestOrder:
    def test_sets_of_tasks_have_the_order_of_their_making(self, loop: VirtualTimeLoop) -> None:
        """asyncio's own TaskGroup cancels from a set."""
        ended: list[str] = []

        async def work(name: str) -> None:
            try:
                await loop.create_future()
            finally:
                ended.append(name)

        async def main() -> None:
            with pytest.raises(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    for number in range(20):
                        group.create_task(work(f"{number:02}"))
                    await asyncio.sleep(1)
                    raise RuntimeError

        run(loop, main())
        assert ended == sorted(ended)


class TestExecutors:
    def test_a_writer_thread_does_one_thing_after_the_other_and_later(self, loop: VirtualTimeLoop) -> None:
        done: list[tuple[int, float]] = []
        writer = ThreadPoolExecutor(max_workers=1)

        async def main() -> None:
            for number in range(5):
                loop.run_in_executor(writer, lambda number=number: done.append((number, loop.time())))
            assert done == []
            assert await loop.run_in_executor(writer, lambda: "the last") == "the last"

        run_on(loop, main)
        assert [number for number, _ in done] == [0, 1, 2, 3, 4]
        assert sorted({moment for _, moment in done}) == [moment for _, moment in done]
        assert loop.time() > done[-1][1], "told after it happened"
        assert not writer._threads

    def test_readers_overtake_each_other(self, loop: VirtualTimeLoop) -> None:
        done: list[int] = []

        async def main() -> None:
            readers = ThreadPoolExecutor(max_workers=4)
            calls = [loop.run_in_executor(readers, done.append, number) for number in range(40)]
            await asyncio.gather(*calls)

        run_on(loop, main)
        assert sorted(done) == list(range(40)) != done

    def test_what_a_call_raises_is_raised_where_it_is_awaited(self, loop: VirtualTimeLoop) -> None:
        async def main() -> None:
            with pytest.raises(ZeroDivisionError):
                await loop.run_in_executor(None, lambda: 1 // 0)

        run_on(loop, main)

    def test_an_executor_that_was_shut_down_takes_nothing(self, loop: VirtualTimeLoop) -> None:
        async def main() -> None:
            executor = ThreadPoolExecutor(max_workers=1)
            executor.shutdown()
            with pytest.raises(RuntimeError, match="after shutdown"):
                loop.run_in_executor(executor, print)

        run_on(loop, main)


def run_on(loop: VirtualTimeLoop, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """As a process of a host."""
    return loop.run_until_complete(process_on(loop).start(main()))


class TestProcesses:
    def test_of_a_dead_process_nothing_runs_not_even_its_finally_blocks(self, loop: VirtualTimeLoop) -> None:
        process = process_on(loop)
        seen: list[str] = []

        async def live() -> None:
            loop.call_later(2, seen.append, "a timer")
            loop.create_task(child())
            try:
                await asyncio.sleep(2)
                seen.append("went on")
            finally:
                seen.append("cleaned up")

        async def child() -> None:
            await asyncio.sleep(0.5)
            seen.append("child")
            await asyncio.sleep(2)
            seen.append("child went on")

        async def main() -> None:
            process.start(live())
            await asyncio.sleep(1)
            process.kill()
            await asyncio.sleep(10)

        run(loop, main())
        assert seen == ["child"]
        loop.check_orphans()

    def test_the_timers_of_the_dead_are_no_future(self, loop: VirtualTimeLoop) -> None:
        process = process_on(loop)

        async def main() -> None:
            process.start(asyncio.sleep(1000))
            await asyncio.sleep(1)
            process.kill()
            await loop.create_future()

        with pytest.raises(StalledError, match=r"after 1\.000000 s"):
            run(loop, main())

    def test_a_future_that_another_process_resolves_does_not_wake_the_dead(
        self, loop: VirtualTimeLoop
    ) -> None:
        process = process_on(loop)
        seen: list[str] = []

        async def main() -> None:
            shared: asyncio.Future[str] = loop.create_future()

            async def wait() -> None:
                seen.append(await shared)

            process.start(wait())
            await asyncio.sleep(1)
            shared.set_result("news")
            process.kill()
            await asyncio.sleep(1)

        run(loop, main())
        assert seen == []

    def test_a_paused_process_does_everything_late_and_in_order(self, loop: VirtualTimeLoop) -> None:
        process = process_on(loop)
        seen: list[tuple[int, float]] = []

        async def tick() -> None:
            for number in range(1, 6):
                loop.call_later(number, lambda number=number: seen.append((number, loop.time())))

        async def main() -> None:
            process.start(tick())
            await asyncio.sleep(1.5)
            process.pause()
            await asyncio.sleep(3)
            process.resume()
            await asyncio.sleep(3)

        run(loop, main())
        assert seen == [(1, 1.0), (2, 4.5), (3, 4.5), (4, 4.5), (5, 5.0)]

    def test_who_waits_for_a_process_learns_of_its_death(self, loop: VirtualTimeLoop) -> None:
        process = process_on(loop)

        async def main() -> None:
            loop.call_later(1, process.kill)
            with pytest.raises(SimulationError, match="host died"):
                await process.run(asyncio.sleep(10))

        run(loop, main())
        assert loop.time() == 1
