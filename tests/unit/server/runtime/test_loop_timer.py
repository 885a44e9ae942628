"""One handle of the loop serves all tasks of the wheel; one task's bug costs no other its deadline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minikafka.clock import ManualClock
from minikafka.purgatory import TimerTask
from minikafka.server.runtime.event_loop import LoopTimer


class Task(TimerTask):
    def __init__(self, delay_ms: int, ran: list[int], error: Exception | None = None) -> None:
        super().__init__(delay_ms)
        self.ran = ran
        self.error = error

    def run(self) -> None:
        if self.error is not None:
            raise self.error
        self.ran.append(self.delay_ms)


class FakeLoop:
    """Keeps what was scheduled; ``fire`` plays the loop."""

    def __init__(self) -> None:
        self.scheduled: list[tuple[float, Any]] = []

    def call_later(self, delay: float, callback: Any) -> Any:
        entry = (delay, callback)
        self.scheduled.append(entry)
        scheduled = self.scheduled

        class Handle:
            def cancel(self) -> None:
                scheduled.remove(entry)

        return Handle()

    def fire(self) -> None:
        ((_, callback),) = self.scheduled
        self.scheduled.clear()
        callback()


@pytest.fixture
async def timer(monkeypatch: pytest.MonkeyPatch) -> tuple[LoopTimer, FakeLoop, ManualClock]:
    clock, loop = ManualClock(), FakeLoop()
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "get_running_loop", lambda: loop)
        return LoopTimer(clock), loop, clock


async def test_the_earliest_task_sets_the_one_alarm(
    timer: tuple[LoopTimer, FakeLoop, ManualClock],
) -> None:
    wheel, loop, clock = timer
    ran: list[int] = []
    for delay_ms in (15, 5, 9):
        assert wheel.add(Task(delay_ms, ran))
        assert len(loop.scheduled) == 1
    clock.advance(5)
    loop.fire()
    assert ran == [5]
    clock.advance(10)
    loop.fire()
    assert ran == [5, 9, 15]
    assert loop.scheduled == [], "nothing waits, so nothing wakes the loop"


async def test_a_failing_task_leaves_the_others_their_deadline(
    timer: tuple[LoopTimer, FakeLoop, ManualClock], caplog: pytest.LogCaptureFixture
) -> None:
    wheel, loop, clock = timer
    ran: list[int] = []
    wheel.add(Task(3, ran, ValueError("a bug")))
    wheel.add(Task(4, ran))
    clock.advance(4)
    loop.fire()
    assert ran == [4]
    assert "a delayed operation failed" in caplog.text


async def test_close_cancels_the_alarm(timer: tuple[LoopTimer, FakeLoop, ManualClock]) -> None:
    wheel, loop, _ = timer
    wheel.add(Task(100, []))
    wheel.close()
    assert loop.scheduled == []
