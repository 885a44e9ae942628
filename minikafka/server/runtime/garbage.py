"""Short full collections of garbage, however much the broker keeps.

A full collection goes through everything while all threads stand still: 15 ms for each 1,000 partitions, to
find next to nothing, since partitions stay. What has lived through one is therefore set aside
(``gc.freeze``), and the next goes through what has come since. After ``EVERYTHING_AFTER_MS`` one goes
through everything again, so that cycles of objects that were set aside and are not used any more do not stay
for good.

Memory that was freed stays with the process, up to a bound, and is handed out again.

The buffers of fetch answers come and go, a few megabytes at a time. glibc by default gives memory at the top
of its heap back to the kernel from 128 KiB on, and each next answer then takes new pages, one fault and 4 KiB
of zeros at a time: on a virtual machine that was 0.6 core-seconds a GB, twice what reading and sending took.
"""

from __future__ import annotations

import gc

from minikafka.clock import Clock

KEPT_BYTES_MAX = 32 << 20
"""Free memory above it goes back. A few answers of ``apis.fetch.CONSUMER_ANSWER_BYTES_MAX`` are in it."""


def keep_freed_memory() -> None:
    """For the whole process. Harmless where the allocator is not glibc's.

    A block that is large enough for a mapping of its own and is freed moves glibc's thresholds: to its size
    for mappings, to twice that for what is given back (mallopt(3), M_MMAP_THRESHOLD). ``bytes`` asks for
    zeros and does not write them, so the block is not touched and it costs nothing; ``bytearray`` writes
    them, 16 MiB in 14 ms.
    """
    bytes(KEPT_BYTES_MAX // 2)


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
