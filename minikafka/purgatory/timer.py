"""A timer for very many tasks, most of which are cancelled before they are due.

Kafka: ``server/util/timer/SystemTimer``. No thread and no event loop: whoever owns the timer wakes at
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

from minikafka.clock import Clock
from minikafka.purgatory.timing_wheel import NOT_QUEUED, BucketQueue, TimerTask, TimingWheel

TICK_MS = 1
"""Kafka's SystemTimer default."""
WHEEL_SIZE = 20
"""Kafka's SystemTimer default."""


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
        """Schedule ``task`` anew, for ``delay_ms`` from now and not for sooner than it is: for timers that
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

    def validate(self) -> None:
        """Check the invariants. For tests. Raises InvariantError."""
        self._wheel.validate()
