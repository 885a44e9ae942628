"""Short full collections of garbage, however much the broker keeps.

A full collection goes through everything while all threads stand still: 15 ms for each 1,000 partitions, to
find next to nothing, since partitions stay. What has lived through one is therefore set aside
(``gc.freeze``), and the next goes through what has come since. After ``EVERYTHING_AFTER_MS`` one goes
through everything again, so that cycles of objects that were set aside and are not used any more do not stay
for good.
"""

from __future__ import annotations

import gc

from minikafka.clock import Clock

EVERYTHING_AFTER_MS = 600_000

_OLDEST_GENERATION = 2


class FullCollections:
    """For the whole process, from ``begin`` to ``end``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._everything_at_ms = clock.monotonic_ms()

    def begin(self) -> None:
        """Set aside what is there, without looking for garbage in it."""
        gc.freeze()
        gc.callbacks.append(self._on_collection)

    def end(self) -> None:
        gc.callbacks.remove(self._on_collection)
        gc.unfreeze()

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != _OLDEST_GENERATION:
            return
        if phase == "stop":
            gc.freeze()
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._everything_at_ms >= EVERYTHING_AFTER_MS:
            self._everything_at_ms = now_ms
            gc.unfreeze()
