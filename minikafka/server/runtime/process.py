"""The process: how long its start took, and what it has a limited amount of.

**Start.** ``StartPhases`` says how long each part of a broker's start took. Kafka has it in the times of its
log lines.

**File descriptors**: how many this process may have, and what they are for. Kafka keeps every segment's files
open and asks for a limit of 100,000. Here the limit bounds connections and how many files stay open, not how
many partitions there can be (``log/files``).

**Time for garbage.** A full collection goes through everything while all threads stand still: 15 ms for each
1,000 partitions, to find next to nothing, since partitions stay. What has lived through one is therefore set
aside (``gc.freeze``), and the next goes through what has come since. So full collections are short, however
much the broker keeps. After ``EVERYTHING_AFTER_MS`` one goes through everything again, so that cycles of
objects that were set aside and are not used any more do not stay for good.

**Memory** that was freed stays with the process, up to a bound, and is handed out again. The buffers of fetch
answers come and go, a few megabytes at a time. glibc by default gives memory at the top of its heap back to
the kernel from 128 KiB on, and each next answer then takes new pages, one fault and 4 KiB of zeros at a time:
on a virtual machine that was 0.6 core-seconds a GB, twice what reading and sending took.
"""

from __future__ import annotations

import gc
import resource
from collections import deque
from typing import Final

from minikafka.clock import Clock
from minikafka.named_tuple import NamedTuple

WANTED = 100_000
"""What Kafka's documentation recommends for a broker."""

RESERVE_MIN = 56
"""An idle broker has 23 (store, locks, listeners, event loop); disk threads, checkpoints and new partitions
open up to 10 for a moment; the others are for connections that are refused, which have one until they are
closed."""

RESERVE_SHARE = 10
"""One in so many is kept back: for connections to other brokers, the HTTP port, a compaction's pipes."""

OPEN_FILES_MIN = 36
"""The active segments of a dozen partitions, with two indexes each."""

LISTEN_BACKLOG_SHARE = 8
"""The backlog is at most one in so many: that is how many connections a single turn of the loop accepts
before the first of them can be refused."""

HTTP_SHARE = 32
"""One in so many at most is for connections to the HTTP port."""

KEPT_BYTES_MAX = 32 << 20
"""Free memory above it goes back. A few answers of ``apis.fetch.CONSUMER_ANSWER_BYTES_MAX`` are in it."""

EVERYTHING_AFTER_MS = 600_000

_OLDEST_GENERATION = 2

full_collections: Final[deque[LongCollection]] = deque(maxlen=16)
"""The last ones of this process."""


class StartPhase(NamedTuple):
    name: str
    duration_ms: int


class StartPhases:
    """One start, from the moment at which this is made. Each part is told of when it is done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began_ms = self._last_ms = clock.monotonic_ms()
        """On the monotonic clock."""
        self.phases: list[StartPhase] = []

    def __repr__(self) -> str:
        return f"StartPhases({', '.join(f'{name} {ms} ms' for name, ms in self.phases)})"

    def done(self, name: str) -> None:
        """Everything since the phase before."""
        now_ms = self._clock.monotonic_ms()
        self.phases.append(StartPhase(name, now_ms - self._last_ms))
        self._last_ms = now_ms

    @property
    def total_ms(self) -> int:
        """Of those that are done."""
        return self._last_ms - self.began_ms


class DescriptorBudget(NamedTuple):
    """What a limit allows."""

    limit: int
    open_files: int
    """Segment files and indexes that stay open."""
    connections: int
    backlog: int
    """Connections that may wait to be accepted."""
    http_connections: int
    """To the HTTP port, which has a bound of its own too."""

    @classmethod
    def of_limit(cls, limit: int) -> DescriptorBudget:
        """A third of what is not kept back is for files: one that was closed is opened again, while a client
        that is refused has an error."""
        shared = limit - max(RESERVE_MIN, limit // RESERVE_SHARE)
        open_files = max(OPEN_FILES_MIN, shared // 3)
        return cls(
            limit,
            open_files=open_files,
            connections=max(1, shared - open_files),
            backlog=max(1, limit // LISTEN_BACKLOG_SHARE),
            http_connections=max(1, limit // HTTP_SHARE),
        )

    @classmethod
    def of_process(cls) -> DescriptorBudget:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls.of_limit(WANTED if soft == resource.RLIM_INFINITY else min(soft, WANTED))

    def __str__(self) -> str:
        return (
            f"the limit of {self.limit} file descriptors allows {self.connections} connections and keeps "
            f"{self.open_files} segment files and indexes open"
        )


def raise_limit() -> int:
    """Raise the soft limit as far as the hard one allows, up to ``WANTED``. Returns what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS knows a further limit that it does not tell
        return soft
    return wanted


def keep_freed_memory() -> None:
    """For the whole process. Harmless where the allocator is not glibc's.

    A block that is large enough for a mapping of its own and is freed moves glibc's thresholds: to its size
    for mappings, to twice that for what is given back (mallopt(3), M_MMAP_THRESHOLD). ``bytes`` asks for
    zeros and does not write them, so the block is not touched and it costs nothing; ``bytearray`` writes
    them, 16 MiB in 14 ms.
    """
    bytes(KEPT_BYTES_MAX // 2)


class LongCollection(NamedTuple):
    """A full collection of garbage; everything else waits for it."""

    at_ms: int
    """On the monotonic clock."""
    duration_ms: float


class FullCollections:
    """For the whole process, from ``begin`` to ``end``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._everything_at_ms = clock.monotonic_ms()
        self._began_ns = 0

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
            now_ns = self._clock.monotonic_ns()
            duration_ms = (now_ns - self._began_ns) / 1_000_000
            full_collections.append(LongCollection(now_ns // 1_000_000, duration_ms))
            return
        self._began_ns = self._clock.monotonic_ns()
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._everything_at_ms >= EVERYTHING_AFTER_MS:
            self._everything_at_ms = now_ms
            gc.unfreeze()
