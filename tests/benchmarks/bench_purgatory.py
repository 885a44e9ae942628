"""What one delayed operation costs, with few and with very many others outstanding.

An insertion and a completion per round, oldest first, with N operations outstanding all the time, timeouts of
30 s and a clock that moves 1 ms every 50 rounds (50,000 requests a second): ``ns_per_op``. And a burst, from
none to N and back to none: ``burst_ns_per_op`` for one insertion and one completion. The cyclic garbage
collector is on, as in a broker; the ``gc_share`` columns say which part of the time it took. CPU time of the
thread: the best of several repetitions, because neighbours on the machine slow some of them down, plus the
collector's time on average, because its work does not fall on every repetition. Ratios compare with the
smallest N of the same name.

Run as a script: JSON lines. ``run`` is for a harness.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from minikafka.clock import ManualClock
from minikafka.purgatory import DelayedOperation, DelayedOperationPurgatory, Timer, TimerTask

OUTSTANDING = (10_000, 100_000, 1_000_000)
TIMEOUT_MS = 30_000
ROUNDS_PER_MS = 50
STEADY_SAMPLES = 8
BURST_SAMPLES = 2


class GcTime:
    """Nanoseconds spent in the cyclic garbage collector."""

    def __init__(self) -> None:
        self.total_ns = 0
        self._started_ns = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started_ns = time.thread_time_ns()
        else:
            self.total_ns += time.thread_time_ns() - self._started_ns


class Parked(DelayedOperation):
    """Completes when told that it may."""

    __slots__ = ("key", "ready")

    def __init__(self, key: int) -> None:
        super().__init__(TIMEOUT_MS)
        self.key = key
        self.ready = False

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        pass


class Subject(NamedTuple):
    """One way to hold operations: put one in; complete the oldest; let a millisecond pass."""

    insert: Callable[[], None]
    complete: Callable[[], None]
    tick: Callable[[], None]


def timing_wheel() -> Subject:
    clock = ManualClock()
    timer = Timer(clock)
    waiting: deque[TimerTask] = deque()

    def insert() -> None:
        task = TimerTask(TIMEOUT_MS)
        timer.add(task)
        waiting.append(task)

    def complete() -> None:
        waiting.popleft().cancel()

    return Subject(insert, complete, partial(_tick, clock, timer))


def purgatory_own_keys() -> Subject:
    """Every operation waits for an event of its own; the event completes it."""
    clock = ManualClock()
    timer = Timer(clock)
    purgatory: DelayedOperationPurgatory[Parked] = DelayedOperationPurgatory("bench", timer)
    waiting: deque[Parked] = deque()
    keys = count()

    def insert() -> None:
        operation = Parked(next(keys))
        purgatory.try_complete_else_watch(operation, (operation.key,))
        waiting.append(operation)

    def complete() -> None:
        oldest = waiting.popleft()
        oldest.ready = True
        purgatory.check_and_complete(oldest.key)

    return Subject(insert, complete, partial(_tick, clock, timer))


def purgatory_hot_keys() -> Subject:
    """All operations wait for the same two events; each is completed from outside and purged later."""
    clock = ManualClock()
    timer = Timer(clock)
    purgatory: DelayedOperationPurgatory[Parked] = DelayedOperationPurgatory("bench", timer)
    waiting: deque[Parked] = deque()

    def insert() -> None:
        operation = Parked(0)
        purgatory.try_complete_else_watch(operation, ("a", "b"))
        waiting.append(operation)

    def complete() -> None:
        waiting.popleft().force_complete()

    return Subject(insert, complete, partial(_tick, clock, timer))


def call_later() -> Subject:
    """What the running loop's own timers cost."""
    loop = asyncio.get_running_loop()
    waiting: deque[asyncio.TimerHandle] = deque()

    def nothing() -> None:
        pass

    def insert() -> None:
        waiting.append(loop.call_later(TIMEOUT_MS / 1000, nothing))

    def complete() -> None:
        waiting.popleft().cancel()

    return Subject(insert, complete, nothing)


def _tick(clock: ManualClock, timer: Timer) -> None:
    clock.advance(1)
    next_expiration_ms = timer.next_expiration_ms()
    if next_expiration_ms is not None and next_expiration_ms <= clock.monotonic_ms():
        for task in timer.advance(clock.monotonic_ms()):
            task.run()


async def _drive(subject: Subject, *, insertions: int, completions: int) -> None:
    """Interleaved when both are asked for. The loop gets its turn once per tick."""
    insert, complete, tick = subject
    for number in range(max(insertions, completions)):
        if insertions:
            insert()
        if completions:
            complete()
        if number % ROUNDS_PER_MS == 0:
            tick()
            await asyncio.sleep(0)


class Cost(NamedTuple):
    """Nanoseconds of CPU: the collector's, and everybody else's."""

    own_ns: int
    gc_ns: int

    @property
    def total_ns(self) -> int:
        return self.own_ns + self.gc_ns

    @classmethod
    def of(cls, samples: list[Cost]) -> Cost:
        return cls(min(cost.own_ns for cost in samples), sum(cost.gc_ns for cost in samples) // len(samples))


async def _timed(subject: Subject, *, insertions: int, completions: int) -> Cost:
    gc_time = GcTime()
    gc.callbacks.append(gc_time)
    try:
        started_ns = time.thread_time_ns()
        await _drive(subject, insertions=insertions, completions=completions)
        return Cost(time.thread_time_ns() - started_ns - gc_time.total_ns, gc_time.total_ns)
    finally:
        gc.callbacks.remove(gc_time)


async def _burst(subject: Subject, outstanding: int, times: int) -> Cost:
    """From none to ``outstanding`` and back, ``times`` over."""
    fills, drains = [], []
    for _ in range(times):
        gc.collect()
        fills.append(await _timed(subject, insertions=outstanding, completions=0))
        drains.append(await _timed(subject, insertions=0, completions=outstanding))
    return Cost(sum(cost.own_ns for cost in fills + drains), sum(cost.gc_ns for cost in fills + drains))


async def _measure(name: str, make: Callable[[], Subject], outstanding: int, rounds: int) -> dict[str, Any]:
    subject = make()
    times = max(1, rounds // outstanding)
    burst = Cost.of([await _burst(subject, outstanding, times) for _ in range(BURST_SAMPLES)])
    await _drive(subject, insertions=outstanding, completions=0)
    gc.collect()
    steady = Cost.of(
        [await _timed(subject, insertions=rounds, completions=rounds) for _ in range(STEADY_SAMPLES)]
    )
    return {
        "name": name,
        "outstanding": outstanding,
        "ns_per_op": round(steady.total_ns / rounds),
        "ratio": 1.0,
        "gc_share": round(steady.gc_ns / steady.total_ns, 3),
        "burst_ns_per_op": round(burst.total_ns / (times * outstanding)),
        "burst_ratio": 1.0,
        "burst_gc_share": round(burst.gc_ns / burst.total_ns, 3),
    }


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, outstanding, ns_per_op, ratio and the rest of the columns explained above.

    ``quick`` leaves out the largest N and does a tenth of the rounds.
    """
    import uvloop

    rounds = 10_000 if quick else 100_000
    subjects: list[tuple[str, Callable[[], Subject], Callable[[], asyncio.AbstractEventLoop]]] = [
        ("timing wheel", timing_wheel, asyncio.new_event_loop),
        ("purgatory, own keys", purgatory_own_keys, asyncio.new_event_loop),
        ("purgatory, hot keys", purgatory_hot_keys, asyncio.new_event_loop),
        ("asyncio call_later", call_later, asyncio.SelectorEventLoop),
        ("uvloop call_later", call_later, uvloop.new_event_loop),
    ]
    rows: list[dict[str, Any]] = []
    for name, make, loop_factory in subjects:
        base: dict[str, Any] | None = None
        for outstanding in OUTSTANDING[:2] if quick else OUTSTANDING:
            with asyncio.Runner(loop_factory=loop_factory) as runner:  # closing it drops its timers
                row = runner.run(_measure(name, make, outstanding, rounds))
            base = base or row
            row["ratio"] = round(row["ns_per_op"] / base["ns_per_op"], 2)
            row["burst_ratio"] = round(row["burst_ns_per_op"] / base["burst_ns_per_op"], 2)
            rows.append(row)
    return rows


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv):
        print(json.dumps(row))
