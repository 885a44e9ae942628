"""The timer against a naive model (a sorted list), and the stories a random walk does not tell."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from minikafka.clock import ManualClock
from minikafka.purgatory import Timer, TimerTask

DELAYS = st.one_of(
    st.integers(0, 50),
    st.integers(0, 10_000),
    st.sampled_from([19, 20, 21, 399, 400, 401, 7_999, 8_000, 160_000]),
)
STEPS = st.one_of(st.integers(0, 30), st.integers(0, 2_000), st.integers(0, 400_000))


def is_filed_to_the_tick(timer: Timer, task: TimerTask) -> bool:
    """Whether the deadline is within the range of the bucket."""
    wheel, bucket = timer._wheel, task._bucket
    assert bucket is not None
    while bucket not in wheel._buckets:
        assert wheel.overflow_wheel is not None
        wheel = wheel.overflow_wheel
    return 0 <= task.expiration_ms - bucket.expiration_ms < wheel.tick_ms


class TimerAgainstSortedList(RuleBasedStateMachine):
    """Whatever is added, postponed, cancelled and waited for, the wheel and a list agree on what is due."""

    tasks: Bundle[TimerTask] = Bundle("tasks")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.model: list[tuple[int, int]] = []
        self.by_number: dict[int, TimerTask] = {}
        self.numbers: dict[TimerTask, int] = {}
        self.postponed: set[TimerTask] = set()

    @rule(target=tasks, delay_ms=DELAYS)
    def add(self, delay_ms: int) -> TimerTask:
        task = TimerTask(delay_ms)
        number = len(self.numbers)
        self.numbers[task] = number
        if self.timer.add(task):
            self.model.append((self.clock.monotonic_ms() + delay_ms, number))
        else:
            assert delay_ms == 0
        return task

    @rule(task=consumes(tasks))
    def cancel(self, task: TimerTask) -> None:
        task.cancel()
        self.model = [entry for entry in self.model if entry[1] != self.numbers[task]]

    @rule(task=tasks, delay_ms=DELAYS)
    def postpone(self, task: TimerTask, delay_ms: int) -> None:
        number = self.numbers[task]
        deadline_ms = self.clock.monotonic_ms() + delay_ms
        later = [
            (deadline_ms, n) if n == number and old <= deadline_ms else (old, n) for old, n in self.model
        ]
        assert self.timer.postpone(task, delay_ms) == ((deadline_ms, number) in later)
        self.model = later
        self.postponed.add(task)

    @rule(step_ms=STEPS)
    def advance(self, step_ms: int) -> None:
        self.clock.advance(step_ms)
        self.check_expired()

    @rule()
    def advance_to_the_next_bucket(self) -> None:
        next_expiration_ms = self.timer.next_expiration_ms()
        if next_expiration_ms is not None:
            self.clock.advance(max(0, next_expiration_ms - self.clock.monotonic_ms()))
            self.check_expired()

    @rule(step_ms=STEPS)
    def time_passes_before_anyone_looks(self, step_ms: int) -> None:
        self.clock.advance(step_ms)

    def check_expired(self) -> None:
        now_ms = self.clock.monotonic_ms()
        expired = self.timer.advance(now_ms)
        due = sorted(entry for entry in self.model if entry[0] <= now_ms)
        assert sorted((task.expiration_ms, self.numbers[task]) for task in expired) == due
        assert [task.expiration_ms for task in expired] == [deadline_ms for deadline_ms, _ in due]
        self.model = [entry for entry in self.model if entry[0] > now_ms]

    @invariant()
    def agrees(self) -> None:
        self.timer.validate()
        assert self.timer.size == len(self.model)
        for task in self.numbers.keys() - self.postponed:
            assert not task.scheduled or is_filed_to_the_tick(self.timer, task)
        next_expiration_ms = self.timer.next_expiration_ms()
        if self.model:
            assert next_expiration_ms is not None and next_expiration_ms <= min(self.model)[0]
        else:
            assert next_expiration_ms is None


TestTimerAgainstSortedList = TimerAgainstSortedList.TestCase
TestTimerAgainstSortedList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_task_that_is_due_at_once_is_for_the_caller_to_run() -> None:
    timer = Timer(ManualClock())
    assert not timer.add(TimerTask(0))
    assert timer.size == 0


def test_a_long_idle_time_does_not_make_short_delays_coarse() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    clock.advance(1_000_000)
    timer.add(TimerTask(7))
    assert timer.next_expiration_ms() == 1_000_007


def test_waking_at_each_next_expiration_meets_every_deadline_to_the_millisecond() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    delays = [1, 19, 20, 21, 399, 400, 401, 7_999, 8_000, 8_001, 30_000, 170_000]
    for delay_ms in delays:
        timer.add(TimerTask(delay_ms))
    met: list[int] = []
    wakes = 0
    while (next_ms := timer.next_expiration_ms()) is not None:
        clock.advance(next_ms - clock.monotonic_ms())
        met += [clock.monotonic_ms()] * len(timer.advance(next_ms))
        wakes += 1
    assert met == delays
    assert wakes < 4 * len(delays)


def test_a_deadline_that_is_postponed_again_and_again_wakes_the_owner_once_a_turn() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    session = TimerTask(45_000)
    timer.add(session)
    wakes = 0
    for _ in range(100):
        clock.advance(3_000)
        next_ms = timer.next_expiration_ms()
        if next_ms is not None and next_ms <= clock.monotonic_ms():
            assert timer.advance(clock.monotonic_ms()) == []
            wakes += 1
        assert timer.postpone(session, 45_000)
    assert wakes <= 300 // 40 + 1
    clock.advance(44_999)
    assert timer.advance(clock.monotonic_ms()) == []
    clock.advance(1)
    assert timer.advance(clock.monotonic_ms()) == [session]
    assert not timer.postpone(session, 45_000)


def test_emptied_buckets_do_not_wake_the_owner() -> None:
    timer = Timer(ManualClock())
    tasks = [TimerTask(delay_ms) for delay_ms in (5, 50, 500)]
    for task in tasks:
        timer.add(task)
    tasks[0].cancel()
    assert timer.next_expiration_ms() == 40  # where the bucket of 50 begins
    tasks[1].cancel()
    tasks[2].cancel()
    assert timer.next_expiration_ms() is None
    timer.add(TimerTask(5))  # the same bucket, queued again
    assert timer.next_expiration_ms() == 5


def test_the_levels_show_where_tasks_are_from_now_on() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    clock.advance(1005)
    for delay_ms in (3, 3, 17, 25, 500, 9_000):
        assert timer.add(TimerTask(delay_ms))
    fine, coarse, coarser, coarsest = timer.levels()
    assert (fine.tick_ms, fine.current_time_ms) == (1, 1005)
    assert {bucket: count for bucket, count in enumerate(fine.counts) if count} == {3: 2, 17: 1}
    assert (coarse.tick_ms, coarse.current_time_ms, coarse.counts[1]) == (20, 1000, 1), (
        "1030 is in 1020 to 1040"
    )
    assert (coarser.tick_ms, coarser.current_time_ms, coarser.counts[1]) == (400, 800, 1)
    assert (coarsest.tick_ms, sum(coarsest.counts)) == (8000, 1)
    assert sum(sum(level.counts) for level in timer.levels()) == timer.size == 6
