"""Hierarchical timing wheel: start and stop a timer in constant time, whatever the number of timers.

Kafka: ``server/util/timer/{TimingWheel,TimerTaskList,TimerTaskEntry}``.

A wheel of ``wheel_size`` buckets covers ``interval = tick * wheel_size`` from its current time. A deadline
beyond that goes to the overflow wheel, whose tick is this wheel's interval and which is made when it is first
needed. A bucket is queued (in a heap, by the time its range begins) when its expiration changes: once per
turn of the wheel, not once per task. When a coarse bucket comes due its tasks move to finer wheels.

    tick 1, size 20:   1 ms x 20 | 20 ms x 20 | 400 ms x 20 | 8 s x 20 | 160 s x 20 | ...

Invariants:
- a task is linked in at most one bucket; an unlinked task has no neighbours (the attributes are not set), so
  dropping it frees it at once: only linked tasks form reference cycles;
- every non-empty bucket is in the heap with its expiration, which is a multiple of its wheel's tick and
  not after any deadline in it; later by a tick and more is only a deadline that was postponed there, whose
  task is filed again when the bucket comes due;
- the wheel's clock never passes the expiration of a non-empty bucket that has not been flushed.

Different from Kafka: the task is its own list entry (one object per timer instead of two: the cyclic garbage
collector's work is proportional to objects), and counts are kept per bucket and summed when asked. Linking
and unlinking are written out where they happen often: a call costs as much as all of the pointer work.

**The timer** (``Timer``) is for very many tasks, most of which are cancelled before they are due.
Kafka: ``server/util/timer/SystemTimer``. No thread and no event loop: the timer's owner wakes at
``next_expiration_ms``, calls ``advance`` and runs what comes back. The same code runs under virtual time.

Different from Kafka:
- Expired tasks are returned, not run, so that a task may add and cancel others without surprises.
- The wheel's clock follows the real one at every add, as far as the first bucket that waits to be flushed;
  Kafka's stands still until a bucket expires. So a long idle time does not push short delays into coarse
  buckets, and a task that is due when it is added is refused instead of waiting for the reaper.
- Buckets that cancellations have emptied leave the queue unseen instead of waking the owner.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from minikafka.clock import Clock
from minikafka.errors import InvariantError
from minikafka.named_tuple import NamedTuple

TICK_MS = 1
"""Kafka's SystemTimer default."""
WHEEL_SIZE = 20
"""Kafka's SystemTimer default."""

BucketQueue = list[tuple[int, int, "TimerTaskList"]]
"""A heap of (expiration, bucket number, bucket). The number only makes the order total."""

NOT_QUEUED = -1


class Timer:
    """Holds tasks until their deadline. Times are ``clock.monotonic_ms``."""

    def __init__(self, clock: Clock, *, tick_ms: int = TICK_MS, wheel_size: int = WHEEL_SIZE) -> None:
        self._clock = clock
        self._queue: BucketQueue = []
        self._wheel = TimingWheel(
            tick_ms=tick_ms, wheel_size=wheel_size, start_ms=clock.monotonic_ms(), queue=self._queue
        )

    def __repr__(self) -> str:
        return f"Timer(size={self.size}, next_expiration_ms={self.next_expiration_ms()}, {self._wheel!r})"

    @property
    def size(self) -> int:
        """Tasks that are neither cancelled nor expired. Reads every bucket."""
        return self._wheel.count()

    def add(self, task: TimerTask) -> bool:
        """Schedule ``task`` for ``delay_ms`` from now.

        Returns:
            False when the task is cancelled or already due: then the caller runs it, unless cancelled.
        """
        now_ms = self._clock.monotonic_ms()
        task.expiration_ms = now_ms + task.delay_ms
        wheel, queue = self._wheel, self._queue
        if now_ms >= wheel.next_tick_ms and (not queue or queue[0][0] > now_ms):
            wheel.advance_clock(now_ms)
        return wheel.add(task)

    def postpone(self, task: TimerTask, delay_ms: int) -> bool:
        """Reschedule ``task`` for ``delay_ms`` from now and not for sooner than it is: for timers that
        begin again and again and hardly ever end. Kafka cancels the task and adds another.

        Returns:
            False when it is not scheduled, or for later than that: then nothing has changed.
        """
        return task.postpone(self._clock.monotonic_ms() + delay_ms)

    def advance(self, now_ms: int) -> list[TimerTask]:
        """Take out all tasks due at ``now_ms``, by deadline (to the tick). The caller runs each that is not
        cancelled by then: running one may cancel others of the same list."""
        expired: list[TimerTask] = []
        wheel, queue = self._wheel, self._queue
        while queue and queue[0][0] <= now_ms:
            expiration_ms, _, bucket = heapq.heappop(queue)
            wheel.advance_clock(expiration_ms)
            for task in bucket.take_all():
                if not wheel.add(task):  # else it moved to a finer wheel
                    expired.append(task)
        wheel.advance_clock(now_ms)
        return expired

    def next_expiration_ms(self) -> int | None:
        """When to call ``advance`` next; None when nothing is scheduled.

        Not after the earliest deadline, and often before it: coarse buckets come due at their beginning.
        """
        queue = self._queue
        while queue and not queue[0][2].count:
            heapq.heappop(queue)[2].expiration_ms = NOT_QUEUED
        return queue[0][0] if queue else None

    def levels(self) -> list[WheelLevel]:
        """The wheel as it is, the finest level first. Reads every bucket."""
        levels = []
        wheel: TimingWheel | None = self._wheel
        while wheel is not None:
            levels.append(wheel.level())
            wheel = wheel.overflow_wheel
        return levels

    def validate(self) -> None:
        """Check the invariants. For tests. Raises InvariantError."""
        self._wheel.validate()


class WheelLevel(NamedTuple):
    """One level of the wheel, to be looked at."""

    tick_ms: int
    current_time_ms: int
    """Where the first bucket begins."""
    counts: list[int]
    """Tasks by bucket, from the current one on; each covers ``tick_ms``."""


class _Link:
    """A place in a circular doubly linked list. A list is closed by its head, which is the bucket itself."""

    __slots__ = ("_next", "_previous")

    _next: _Link
    _previous: _Link


class TimerTask(_Link):
    """Something to do at a deadline. Subclasses override ``run`` and declare ``__slots__``.

    A task is added to a timer once. ``cancel`` is final and may come at any time, also before the add.
    """

    __slots__ = ("_bucket", "_cancelled", "delay_ms", "expiration_ms")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.expiration_ms = 0
        self._bucket: TimerTaskList | None = None
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    @property
    def scheduled(self) -> bool:
        """Whether a timer holds it."""
        return self._bucket is not None

    def postpone(self, expiration_ms: int) -> bool:
        """Move the deadline of a task that a timer holds. It stays where it is filed, so this costs nothing.
        False when no timer holds it, or when it would be due sooner than it is: then nothing has changed."""
        if self._bucket is None or expiration_ms < self.expiration_ms:
            return False
        self.expiration_ms = expiration_ms
        return True

    def cancel(self) -> None:
        """Take it out of its timer, in constant time. Idempotent."""
        self._cancelled = True
        bucket = self._bucket
        if bucket is not None:
            before, after = self._previous, self._next
            before._next = after
            after._previous = before
            self._bucket = None
            del self._previous, self._next
            bucket.count -= 1

    def run(self) -> None:
        """Called by the timer's driver when the deadline has passed, unless cancelled."""
        raise NotImplementedError


class TimerTaskList(_Link):
    """One bucket: tasks in the order of their arrival, and the moment at which their range begins."""

    __slots__ = ("count", "expiration_ms", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.expiration_ms = NOT_QUEUED
        self._next = self
        self._previous = self

    def __repr__(self) -> str:
        return f"TimerTaskList(#{self.number}, expiration_ms={self.expiration_ms}, count={self.count})"

    def take_all(self) -> list[TimerTask]:
        """Empty the bucket and make it ready for its next turn."""
        tasks = list(self)
        for task in tasks:
            task._bucket = None
            del task._previous, task._next
        self._next = self._previous = self
        self.count = 0
        self.expiration_ms = NOT_QUEUED
        return tasks

    def __iter__(self) -> Iterator[TimerTask]:
        link = self._next
        while isinstance(link, TimerTask):
            yield link
            link = link._next


class TimingWheel:
    """One level, and through ``overflow_wheel`` all coarser ones. Driven by ``Timer``."""

    __slots__ = (
        "_buckets",
        "_first_number",
        "_queue",
        "current_time_ms",
        "end_ms",
        "interval_ms",
        "next_tick_ms",
        "overflow_wheel",
        "tick_ms",
        "wheel_size",
    )

    def __init__(
        self, *, tick_ms: int, wheel_size: int, start_ms: int, queue: BucketQueue, first_number: int = 0
    ) -> None:
        if tick_ms < 1 or wheel_size < 2:
            raise ValueError(f"tick_ms {tick_ms} must be at least 1, wheel_size {wheel_size} at least 2")
        self.tick_ms = tick_ms
        self.wheel_size = wheel_size
        self.interval_ms = tick_ms * wheel_size
        self._set_time(start_ms)
        self.overflow_wheel: TimingWheel | None = None
        self._queue = queue
        self._first_number = first_number
        self._buckets = [TimerTaskList(first_number + index) for index in range(wheel_size)]

    def __repr__(self) -> str:
        return (
            f"TimingWheel(tick_ms={self.tick_ms}, current_time_ms={self.current_time_ms}, "
            f"count={sum(bucket.count for bucket in self._buckets)}, overflow_wheel={self.overflow_wheel!r})"
        )

    def add(self, task: TimerTask) -> bool:
        """File ``task`` under its ``expiration_ms``. False when it is cancelled or already due."""
        expiration_ms = task.expiration_ms
        if expiration_ms < self.next_tick_ms or task._cancelled:
            return False
        wheel = self
        while expiration_ms >= wheel.end_ms:
            wheel = wheel.overflow_wheel or wheel._make_overflow_wheel()
        turn = expiration_ms // wheel.tick_ms
        bucket = wheel._buckets[turn % wheel.wheel_size]
        last = bucket._previous
        task._bucket = bucket
        task._previous = last
        task._next = bucket
        last._next = bucket._previous = task
        bucket.count += 1
        bucket_expiration_ms = turn * wheel.tick_ms
        if bucket.expiration_ms != bucket_expiration_ms:
            bucket.expiration_ms = bucket_expiration_ms
            heapq.heappush(self._queue, (bucket_expiration_ms, bucket.number, bucket))
        return True

    def advance_clock(self, time_ms: int) -> None:
        """Move to ``time_ms``. Every non-empty bucket that expires before it must have been flushed."""
        wheel: TimingWheel | None = self
        while wheel is not None and time_ms >= wheel.next_tick_ms:
            wheel._set_time(time_ms)
            wheel = wheel.overflow_wheel

    def count(self) -> int:
        """Tasks in this wheel and all coarser ones. Reads every bucket: for gauges, not for hot paths."""
        total = 0
        wheel: TimingWheel | None = self
        while wheel is not None:
            total += sum(bucket.count for bucket in wheel._buckets)
            wheel = wheel.overflow_wheel
        return total

    def level(self) -> WheelLevel:
        """This level alone. The bucket of the current tick is first; it comes round last."""
        first = self.current_time_ms // self.tick_ms % self.wheel_size
        buckets = self._buckets[first:] + self._buckets[:first]
        return WheelLevel(self.tick_ms, self.current_time_ms, [bucket.count for bucket in buckets])

    def validate(self) -> None:
        """Check the invariants. For tests.

        Raises:
            InvariantError: one does not hold.
        """
        queued = {number: expiration_ms for expiration_ms, number, _ in self._queue}
        for bucket in self._buckets:
            tasks = list(bucket)
            if len(tasks) != bucket.count:
                raise InvariantError(f"{bucket!r} holds {len(tasks)} tasks")
            if tasks and queued.get(bucket.number) != bucket.expiration_ms:
                raise InvariantError(f"{bucket!r} is not queued")
            for task in tasks:
                if task._bucket is not bucket or task._cancelled:
                    raise InvariantError(f"{bucket!r} holds a task that is not its own")
                if task.expiration_ms < bucket.expiration_ms:
                    raise InvariantError(f"{bucket!r} holds a deadline of {task.expiration_ms}")
            if tasks and bucket.expiration_ms < self.current_time_ms:
                raise InvariantError(f"{bucket!r} was passed over at {self.current_time_ms}")
        if self.overflow_wheel is not None:
            self.overflow_wheel.validate()

    def _set_time(self, time_ms: int) -> None:
        self.current_time_ms = time_ms - time_ms % self.tick_ms
        self.next_tick_ms = self.current_time_ms + self.tick_ms
        self.end_ms = self.current_time_ms + self.interval_ms

    def _make_overflow_wheel(self) -> TimingWheel:
        self.overflow_wheel = TimingWheel(
            tick_ms=self.interval_ms,
            wheel_size=self.wheel_size,
            start_ms=self.current_time_ms,
            queue=self._queue,
            first_number=self._first_number + self.wheel_size,
        )
        return self.overflow_wheel
