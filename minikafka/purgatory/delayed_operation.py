"""An operation that completes when something happens or when its time is up, exactly once.

Kafka: ``kafka.server.DelayedOperation``.

    WAITING --try_complete found the condition met--> COMPLETED (on_complete)
    WAITING --the timer won-------------------------> COMPLETED (on_complete, then on_expiration)
    WAITING --try_complete raised-------------------> COMPLETED (on_failure)

An operation that raises fails alone. Its caller, the purgatory or the timer, logs that, lets it fail and goes
on: the event that woke it, a produce say, has no part in it.

``force_complete`` is the only door between the two states. Completing takes the operation out of its timer;
the purgatory that watches it is told before ``on_complete`` runs, so ``on_complete`` may use the purgatory.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from minikafka.purgatory.timing_wheel import TimerTask


class Observer(Protocol):
    """Whom an operation tells about its end: the purgatory that watches it."""

    def operation_completed(self, operation: Any) -> None: ...


class DelayedOperation(TimerTask):
    """Subclasses override ``try_complete``, ``on_complete`` and, if they care, ``on_expiration``.

    Declare ``__slots__`` in subclasses: with a million operations waiting, a ``__dict__`` each doubles the
    garbage collector's work. Operations are compared and hashed by identity.
    """

    __slots__ = ("_completed", "_observer", "_watch_keys")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._completed = False
        self._observer: Observer | None = None
        self._watch_keys: tuple[Hashable, ...] = ()

    def __repr__(self) -> str:
        state = "COMPLETED" if self._completed else "WAITING"
        return f"{type(self).__name__}({state}, delay_ms={self.delay_ms}, watch_keys={self._watch_keys!r})"

    @property
    def is_completed(self) -> bool:
        return self._completed

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
