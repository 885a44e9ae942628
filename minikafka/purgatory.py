"""Delayed operations, which wait under the keys of events that may complete them, and their timing wheel.

**Operations.** Kafka: ``DelayedOperation``, ``DelayedOperationPurgatory``; KAFKA-1989 (why it is built on a
timing wheel). An operation completes when something happens or when its time is up, exactly once:

    WAITING --try_complete found the condition met--> COMPLETED (on_complete)
    WAITING --the timer won-------------------------> COMPLETED (on_complete, then on_expiration)
    WAITING --try_complete raised-------------------> COMPLETED (on_failure)

An operation that raises fails alone. Its caller, the purgatory or the timer, logs that, lets it fail and goes
on: the event that woke it, a produce say, has no part in it. ``force_complete`` is the only door between the
two states. Completing takes the operation out of its timer; the purgatory that watches it is told before
``on_complete`` runs, so ``on_complete`` may use the purgatory.

Sequence: try to complete; watch all keys; try again, because an event may have come in between; start the
timer. A completed operation may stay in the watch lists of keys that did not complete it; these are purged
when more than ``purge_interval`` operations have completed since the last purge. So at most that many
completed operations are kept alive.

Single-threaded, but reentrant: ``on_complete`` may add, complete and cancel operations, here too.

Invariants:
- ``delayed`` counts the operations that were put here and have neither completed nor been cancelled;
- an operation that is completed and still in some watch list is in ``_stale``.

Different from Kafka, where one purge visits every watched operation: with a million outstanding, a purge per
thousand completions would cost a thousand visits each. Here watch lists are dicts in order of arrival and a
purge takes out exactly those that are known to have completed. There are no shards and no reaper: the one
thread purges when the threshold is crossed. The number waiting is counted here, not read from the timer, so
that purgatories can share one timer.

**The timer** (``Timer``) is for very many tasks, most of which are cancelled before they are due. Kafka:
``server/util/timer/SystemTimer``. No thread and no event loop: the timer's owner wakes at
``next_expiration_ms``, calls ``advance`` and runs what comes back. The same code runs under virtual time.

Different from Kafka:
- Expired tasks are returned, not run, so that a task may add and cancel others without surprises.
- The wheel's clock follows the real one at every add, as far as the first bucket that waits to be flushed;
  Kafka's stands still until a bucket expires. So a long idle time does not push short delays into coarse
  buckets, and a task that is due when it is added is refused instead of waiting for the reaper.
- Buckets that cancellations have emptied leave the queue unseen instead of waking the owner.

**The timing wheel** is hierarchical: a timer starts and stops in constant time, whatever the number of
timers. Kafka: ``server/util/timer/{TimingWheel,TimerTaskList,TimerTaskEntry}``. A wheel of ``wheel_size``
buckets covers ``interval = tick * wheel_size`` from its current time. A deadline beyond that goes to the
overflow wheel, whose tick is this wheel's interval and which is made when it is first needed. A bucket is
queued (in a heap, by the time its range begins) when its expiration changes: once per turn of the wheel, not
once per task. When a coarse bucket comes due its tasks move to finer wheels.

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
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from minikafka.clock import Clock
from minikafka.errors import InvariantError
from minikafka.named_tuple import NamedTuple

logger = logging.getLogger(__name__)

TICK_MS = 1
"""Kafka's SystemTimer default."""
WHEEL_SIZE = 20
"""Kafka's SystemTimer default."""

BucketQueue = list[tuple[int, int, "TimerTaskList"]]
"""A heap of (expiration, bucket number, bucket). The number only makes the order total."""

NOT_QUEUED = -1

PURGE_INTERVAL = 1000
"""Kafka's ``{fetch,producer}.purgatory.purge.interval.requests``."""


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


class DelayedOperation(TimerTask):
    """Subclasses override ``try_complete``, ``on_complete`` and, if they care, ``on_expiration``.

    Declare ``__slots__`` in subclasses: with a million operations waiting, a ``__dict__`` each doubles the
    garbage collector's work. Operations are compared and hashed by identity.
    """

    __slots__ = ("_completed", "_observer", "_watch_keys")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._completed = False
        self._observer: DelayedOperationPurgatory[Any] | None = None
        """The purgatory that watches it."""
        self._watch_keys: tuple[Hashable, ...] = ()

    def __repr__(self) -> str:
        state = "COMPLETED" if self._completed else "WAITING"
        return f"{type(self).__name__}({state}, delay_ms={self.delay_ms}, watch_keys={self._watch_keys!r})"

    @property
    def is_completed(self) -> bool:
        return self._completed

    @property
    def watch_keys(self) -> tuple[Hashable, ...]:
        """The keys of the events that may complete it."""
        return self._watch_keys

    def waits_for(self) -> str:
        """What would complete it, for people. Costs little, whatever waits."""
        return ""

    def try_complete(self) -> bool:
        """If the condition is met now, ``return self.force_complete()``; else False.

        Called often and at any time before completion; side effects belong in ``on_complete``.
        """
        raise NotImplementedError

    def on_complete(self) -> None:
        """Do it: answer the request. Runs exactly once."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """After ``on_complete``, when it was the timer that completed the operation. For meters."""

    def on_failure(self, error: Exception) -> None:
        """``try_complete`` or ``on_complete`` raised ``error``. Tell its owner, if that was not told yet."""

    def fail(self, error: Exception) -> None:
        """It raised ``error``: it is over, in whatever state it is."""
        self._end()
        self.on_failure(error)

    def force_complete(self) -> bool:
        """Complete now, whatever the condition. True when this call did it, False when it was done before."""
        if not self._end():
            return False
        self.on_complete()
        return True

    def _end(self) -> bool:
        """Leave timer and purgatory. False when that was done before."""
        if self._completed:
            return False
        self._completed = True
        self.cancel()
        observer = self._observer
        if observer is not None:
            self._observer = None
            observer.operation_completed(self)
        return True

    def run(self) -> None:
        """The deadline has passed."""
        if self.force_complete():
            self.on_expiration()


T = TypeVar("T", bound=DelayedOperation)


_Watchers: TypeAlias = T | dict[T, None]
"""What watches a key: most keys have one operation, which needs no dict; the others a dict, never empty."""


class DelayedOperationPurgatory(Generic[T]):
    """Keeps operations until an event or their deadline. The timer's owner runs the expired ones."""

    def __init__(self, name: str, timer: Timer, purge_interval: int = PURGE_INTERVAL) -> None:
        self.name = name
        self.purge_interval = purge_interval
        self._timer = timer
        self._watchers: dict[Hashable, _Watchers[T]] = {}
        self._estimated_total = 0
        self._delayed = 0
        self.watched = 0
        """Entries in all watch lists; an operation counts once per key, completed ones until the purge. Read
        with every append."""
        self._stale: list[T] = []
        self._checking: T | None = None

    def __repr__(self) -> str:
        return (
            f"DelayedOperationPurgatory({self.name!r}, watched={self.watched}, delayed={self._delayed}, "
            f"keys={len(self._watchers)}, stale={len(self._stale)})"
        )

    @property
    def delayed(self) -> int:
        """Operations that wait."""
        return self._delayed

    @property
    def keys(self) -> int:
        """Keys under which anything is watched."""
        return len(self._watchers)

    @property
    def timer(self) -> Timer:
        return self._timer

    def waiting(self, entries_max: int | None = None) -> list[T]:
        """The operations that wait, each once, in the order in which their keys came to be watched; with
        ``entries_max`` those among the first so many entries of the watch lists."""
        entries = (
            operation
            for watchers in self._watchers.values()
            for operation in (watchers if isinstance(watchers, dict) else (watchers,))
        )
        found = dict.fromkeys(islice(entries, entries_max))
        return [operation for operation in found if not operation._completed]

    def try_complete_else_watch(self, operation: T, keys: Sequence[Hashable]) -> bool:
        """Complete ``operation`` now or leave it here until an event on one of ``keys`` or its deadline.

        Returns:
            Whether this call completed it (also False if another call has completed it).
        """
        if not keys:
            raise InvariantError(f"{self.name}: an operation without keys would only ever expire")
        if operation.try_complete():
            return True
        if operation._completed:
            return False
        self._watch(operation, keys)
        try:
            if operation.try_complete():
                return True
        except BaseException:
            if not operation._completed:  # it has no timer, so it would wait for ever
                self._withdraw(operation)
            raise
        if not operation._completed and not self._timer.add(operation) and not operation.cancelled:
            operation.run()
        return False

    def watch(self, operation: T, keys: Sequence[Hashable]) -> None:
        """Leave ``operation`` here, for a caller that has looked in this very turn of the loop: nothing can
        have happened since, so the two tries of ``try_complete_else_watch`` would find nothing."""
        if not keys:
            raise InvariantError(f"{self.name}: an operation without keys would only ever expire")
        self._watch(operation, keys)
        if not self._timer.add(operation) and not operation.cancelled:
            operation.run()

    def check_and_complete(self, key: Hashable) -> int:
        """An event has happened on ``key``: try what is watched there. What raises fails alone.

        Returns:
            How many operations this completed.
        """
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        try:
            for operation in _snapshot(watchers):  # completing one may watch, complete, cancel others
                self._checking = operation
                try:
                    if operation._observer is not None and operation.try_complete():
                        completed += 1
                except Exception as error:
                    logger.exception("%s: %r failed", self.name, operation)
                    fail(operation, error)
                if operation._completed:
                    self._unwatch(key, operation)
        finally:
            self._checking = None
        return completed

    def waiting_for(self, key: Hashable, limit: int) -> list[T]:
        """At most ``limit`` of the operations that wait for ``key``, those that came first."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return []
        operations = watchers if isinstance(watchers, dict) else (watchers,)
        return list(islice((each for each in operations if not each._completed), limit))

    def cancel_for_key(self, key: Hashable) -> list[T]:
        """Take out, without completing them, all operations that wait for ``key``.

        They leave the timer and the lists of their other keys too. The caller owns them now, and may still
        complete each by ``force_complete``.
        """
        watchers = self._watchers.get(key)
        if watchers is None:
            return []
        cancelled = [operation for operation in _snapshot(watchers) if not operation._completed]
        for operation in cancelled:
            self._withdraw(operation)
        return cancelled

    def postpone(self, operation: T, delay_ms: int) -> bool:
        """Restart the time of an operation that waits here, without taking it out. False when it
        does not wait any more, or would have less time than it has: see ``Timer.postpone``."""
        return self._timer.postpone(operation, delay_ms)

    def purge(self) -> int:
        """Drop completed operations from all watch lists. Returns how many entries that were."""
        before = self.watched
        stale, self._stale = self._stale, []
        self._estimated_total = self._delayed
        for operation in stale:
            for key in operation._watch_keys:
                self._unwatch(key, operation)
        return before - self.watched

    def operation_completed(self, operation: T) -> None:
        """For ``DelayedOperation`` only."""
        self._delayed -= 1
        if operation is not self._checking or len(operation._watch_keys) > 1:
            self._stale.append(operation)  # else: ``check_and_complete`` takes it out of its only list
        if self._estimated_total - self._delayed > self.purge_interval:
            self.purge()

    def validate(self) -> None:
        """Check the invariants. For tests. Raises InvariantError."""
        lists = [_snapshot(watchers) for watchers in self._watchers.values()]
        entries = sum(map(len, lists))
        if entries != self.watched or not all(lists):
            raise InvariantError(f"{self!r}: {entries} entries")
        operations = [operation for watchers in lists for operation in watchers]
        waiting = [operation for operation in dict.fromkeys(operations) if not operation._completed]
        if len(waiting) != self._delayed or not all(operation.scheduled for operation in waiting):
            raise InvariantError(f"{self!r}: {len(waiting)} operations wait")
        if any(operation._completed and operation not in self._stale for operation in operations):
            raise InvariantError(f"{self!r}: a completed operation would never be purged")
        if self._estimated_total - self._delayed > self.purge_interval:
            raise InvariantError(f"{self!r}: a purge was due")

    def _watch(self, operation: T, keys: Sequence[Hashable]) -> None:
        operation._observer = self
        operation._watch_keys = tuple(keys)
        self._estimated_total += 1
        self._delayed += 1
        for key in keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                self._watchers[key] = operation
            elif isinstance(watchers, dict):
                if operation in watchers:  # the same key twice
                    continue
                watchers[operation] = None
            elif watchers is operation:
                continue
            else:
                self._watchers[key] = {watchers: None, operation: None}
            self.watched += 1

    def _withdraw(self, operation: T) -> None:
        operation.cancel()
        operation._observer = None
        self._delayed -= 1
        self._estimated_total -= 1
        for key in operation._watch_keys:
            self._unwatch(key, operation)

    def _unwatch(self, key: Hashable, operation: T) -> None:
        watchers = self._watchers.get(key)
        if watchers is operation:
            del self._watchers[key]
        elif isinstance(watchers, dict) and operation in watchers:
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        else:
            return
        self.watched -= 1


def fail(operation: DelayedOperation, error: Exception) -> None:
    """``operation`` has raised ``error``, which is logged: it is over."""
    try:
        operation.fail(error)
    except Exception:
        logger.exception("%r could not tell who waits for it", operation)


def _snapshot(watchers: _Watchers[T]) -> tuple[T, ...]:
    return tuple(watchers) if isinstance(watchers, dict) else (watchers,)
