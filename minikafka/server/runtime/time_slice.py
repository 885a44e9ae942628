"""Time slices of the event loop: long work in the loop's own state lets others in between.

What belongs to the loop (logs, partitions, metadata) cannot go to a thread; so the work on a thousand of them
is done in slices. Kafka's broker has threads for this, which the operating system slices.
"""

from __future__ import annotations

import asyncio

SLICE_MS = 5
"""How long one piece of work keeps the loop. A produce request takes 0.02 ms: this is what others
notice."""


class TimeSlice:
    """Made where the work begins; ``give_way`` after each small step of it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    async def give_way(self) -> None:
        """Let all other tasks have a turn, if this one has lasted long enough."""
        if self._loop.time() - self._began >= SLICE_MS / 1000:
            await asyncio.sleep(0)
            self._began = self._loop.time()
