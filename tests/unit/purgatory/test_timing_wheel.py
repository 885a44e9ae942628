"""The timing wheel's mechanics: levels, queueing, cancelling."""

from __future__ import annotations

import gc
import weakref

import pytest

from minikafka.purgatory import BucketQueue, TimerTask, TimingWheel


def task_due_at(expiration_ms: int) -> TimerTask:
    task = TimerTask(0)
    task.expiration_ms = expiration_ms
    return task


def make_wheel(
    *, tick_ms: int = 1, wheel_size: int = 3, start_ms: int = 0
) -> tuple[TimingWheel, BucketQueue]:
    queue: BucketQueue = []
    return TimingWheel(tick_ms=tick_ms, wheel_size=wheel_size, start_ms=start_ms, queue=queue), queue


def test_a_task_due_before_the_next_tick_is_refused() -> None:
    wheel, queue = make_wheel(tick_ms=10, start_ms=100)
    assert not wheel.add(task_due_at(109))
    assert not queue
    assert wheel.add(task_due_at(110))


def test_a_cancelled_task_is_refused() -> None:
    wheel, queue = make_wheel()
    task = task_due_at(2)
    task.cancel()
    assert not wheel.add(task)
    assert not queue


def test_overflow_wheels_are_made_when_needed_with_the_lower_interval_as_tick() -> None:
    wheel, _ = make_wheel()
    wheel.add(task_due_at(2))
    assert wheel.overflow_wheel is None
    wheel.add(task_due_at(3))
    overflow = wheel.overflow_wheel
    assert overflow is not None and overflow.tick_ms == 3 and overflow.interval_ms == 9
    assert overflow.overflow_wheel is None
    wheel.add(task_due_at(26))
    assert overflow.overflow_wheel is not None and overflow.overflow_wheel.tick_ms == 9
    assert wheel.count() == 3
    wheel.validate()


def test_a_bucket_is_queued_once_a_turn_however_many_tasks_it_gets() -> None:
    wheel, queue = make_wheel()
    for _ in range(5):
        wheel.add(task_due_at(2))
    assert [expiration_ms for expiration_ms, _, _ in queue] == [2]
    bucket = queue.pop()[2]
    assert bucket.count == 5
    wheel.advance_clock(2)
    assert len(bucket.take_all()) == 5
    wheel.add(task_due_at(4))
    wheel.add(task_due_at(2 + 3 - 1))
    assert [expiration_ms for expiration_ms, _, _ in queue] == [4]


def test_the_clock_rounds_down_to_each_wheels_own_tick() -> None:
    wheel, _ = make_wheel(tick_ms=2, start_ms=7)
    wheel.add(task_due_at(14))
    assert wheel.current_time_ms == 6
    wheel.advance_clock(13)
    assert wheel.current_time_ms == 12
    assert wheel.overflow_wheel is not None and wheel.overflow_wheel.current_time_ms == 12


def test_cancelling_unlinks_from_the_middle_of_a_bucket() -> None:
    wheel, queue = make_wheel()
    tasks = [task_due_at(1) for _ in range(3)]
    for task in tasks:
        wheel.add(task)
    bucket = queue[0][2]
    tasks[1].cancel()
    tasks[1].cancel()
    assert list(bucket) == [tasks[0], tasks[2]]
    assert bucket.count == 2
    assert tasks[1].cancelled and not tasks[1].scheduled


def test_a_cancelled_task_is_freed_without_the_cycle_collector() -> None:
    class Tracked(TimerTask):
        __slots__ = ("__weakref__",)

    wheel, _ = make_wheel()
    neighbours = [task_due_at(2), Tracked(0), task_due_at(2)]
    neighbours[1].expiration_ms = 2
    for task in neighbours:
        wheel.add(task)
    alive = weakref.ref(neighbours[1])
    gc.disable()
    try:
        neighbours.pop(1).cancel()
        del task
        assert alive() is None
    finally:
        gc.enable()


def test_a_cancelled_task_keeps_no_neighbour_alive() -> None:
    class Tracked(TimerTask):
        __slots__ = ("__weakref__",)

    wheel, _ = make_wheel()
    kept, neighbour = task_due_at(2), Tracked(0)
    neighbour.expiration_ms = 2
    for task in (kept, neighbour):
        wheel.add(task)
    alive = weakref.ref(neighbour)
    kept.cancel()
    neighbour.cancel()
    gc.disable()
    try:
        del task, neighbour
        assert alive() is None
    finally:
        gc.enable()


def test_senseless_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="tick_ms 0"):
        make_wheel(tick_ms=0)
    with pytest.raises(ValueError, match="wheel_size 1"):
        make_wheel(wheel_size=1)
