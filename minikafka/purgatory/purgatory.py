"""Delayed operations, and where they wait, each under the keys of the events that may complete it.

Kafka: ``DelayedOperation``, ``DelayedOperationPurgatory``; KAFKA-1989 (why it is built on a timing wheel).

An operation completes when something happens or when its time is up, exactly once:

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
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from minikafka.errors import InvariantError
from minikafka.purgatory.timing_wheel import Timer, TimerTask

logger = logging.getLogger(__name__)

PURGE_INTERVAL = 1000
"""Kafka's ``{fetch,producer}.purgatory.purge.interval.requests``."""


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
        self._watched = 0
        self._stale: list[T] = []
        self._checking: T | None = None

    def __repr__(self) -> str:
        return (
            f"DelayedOperationPurgatory({self.name!r}, watched={self._watched}, delayed={self._delayed}, "
            f"keys={len(self._watchers)}, stale={len(self._stale)})"
        )

    @property
    def watched(self) -> int:
        """Entries in all watch lists; an operation counts once per key, completed ones until the purge."""
        return self._watched

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
        before = self._watched
        stale, self._stale = self._stale, []
        self._estimated_total = self._delayed
        for operation in stale:
            for key in operation._watch_keys:
                self._unwatch(key, operation)
        return before - self._watched

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
        if entries != self._watched or not all(lists):
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
            self._watched += 1

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
        self._watched -= 1


def fail(operation: DelayedOperation, error: Exception) -> None:
    """``operation`` has raised ``error``, which is logged: it is over."""
    try:
        operation.fail(error)
    except Exception:
        logger.exception("%r could not tell who waits for it", operation)


def _snapshot(watchers: _Watchers[T]) -> tuple[T, ...]:
    return tuple(watchers) if isinstance(watchers, dict) else (watchers,)
