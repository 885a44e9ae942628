"""For how long a connection stays muted (KIP-219). Kafka: ``ThrottledChannel`` and its reaper's queue.

Several quotas may throttle one connection at a time: of several ends the last one counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class MuteTimer:
    """Calls ``unmute`` when the time is over. Owned by one connection, on its loop."""

    __slots__ = ("_ends_at", "_loop", "_timer", "_unmute")

    def __init__(self, loop: asyncio.AbstractEventLoop, unmute: Callable[[], None]) -> None:
        self._loop = loop
        self._unmute = unmute
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0

    def start(self, duration_ms: int) -> None:
        """From now on for so long, or for what is left of an earlier time if that is longer."""
        ends_at = self._loop.time() + duration_ms / 1000
        if self._timer is None or ends_at > self._ends_at:
            self.cancel()
            self._ends_at = ends_at
            self._timer = self._loop.call_later(duration_ms / 1000, self._unmute)

    def cancel(self) -> None:
        """Harmless when it does not run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
