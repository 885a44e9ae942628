"""The timing wheel on an event loop: one timer handle for the next bucket, however many tasks wait.

Kafka's reaper thread (``DelayedOperationPurgatory.ExpiredOperationReaper``) polls every 200 ms; here the
loop wakes exactly when the next bucket is due, and not at all when nothing waits.
"""

from __future__ import annotations

import asyncio
import logging

from minikafka.clock import Clock
from minikafka.purgatory.purgatory import DelayedOperation, fail
from minikafka.purgatory.timing_wheel import Timer, TimerTask

logger = logging.getLogger(__name__)


class LoopTimer(Timer):
    """A ``Timer`` that runs its expired tasks by itself, on the running loop."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._clock_of_loop = clock
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._wake_ms = 0

    def add(self, task: TimerTask) -> bool:
        added = super().add(task)
        if added:
            self._arm()
        return added

    def _arm(self) -> None:
        next_ms = self.next_expiration_ms()
        if next_ms is None:
            return
        if self._handle is not None:
            if self._wake_ms <= next_ms:
                return
            self._handle.cancel()
        self._wake_ms = next_ms
        delay_ms = max(0, next_ms - self._clock_of_loop.monotonic_ms())
        self._handle = self._loop.call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._handle = None
        for task in self.advance(self._clock_of_loop.monotonic_ms()):
            if task.cancelled:
                continue
            try:
                task.run()
            except Exception as error:
                # One operation's bug must not take the others' deadlines with it.
                logger.exception("a delayed operation failed", extra={"operation": repr(task)})
                if isinstance(task, DelayedOperation):
                    fail(task, error)
        self._arm()

    def close(self) -> None:
        """Wake no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
