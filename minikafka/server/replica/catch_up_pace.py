"""How fast followers catch up: in small chunks, and with pauses between them while producers wait.

A follower that has much to fetch asks again as soon as it has appended what it got. So it keeps two brokers
busy without a break, and what acks=all waits for stands in the same queues. While producers wait a chunk is
smaller, and after it the follower is paused for as long as the chunk was under way, from its answer to the
next fetch: the busier the brokers are, the longer that takes. So catching up has about half of their time.
Partitions in which the follower is in the ISR, or about to be, are answered during the pause too, because
producers wait for it there.

There is no pause when no producer waits, nor for a follower that would not catch up then: it has to advance
at least twice as fast as producers write.

Kafka's fetchers have threads, and leave the sharing to the operating system.

What it brings, while a follower fetches 1 GB and a producer sends 460 records a second with acks=all, median
of three pairs: their 99th percentile is 4.7 ms, and 6.3 without it; in sync after 2.5 s, and 1.7 without it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from minikafka.clock import Clock
from minikafka.server.runtime.fast_paths import SWITCHED_OFF, FastPath

CATCH_UP_BYTES_MAX = 1 << 18
"""A chunk. While 20 followers moved under load, at 220 to 240 MB/s in each case, the p99 of produce was about
16 ms with it, 28 ms with four times as much, and over 100 ms with the 10 MiB of
``replica.fetch.response.max.bytes``."""

CATCH_UP_BYTES_MAX_UNDER_LOAD = 1 << 17
"""A chunk while producers with acks=all wait. Not always, because a throttled follower pauses after each
answer, whatever came, and so would take a tenth longer.

With it and the pauses 20 followers moved at 126 to 211 MB/s instead of 200 to 310. The p99 of produce was
1.9 to 2.9 times that of quiet for librdkafka and 2.1 to 3.8 times for Kafka's producer, instead of 2.5 to 4.2
and 3.0 to 3.6.
"""

PAUSE_MS_MAX = 100
"""Also after a chunk whose follower fetched again much later, because it was in sync or away meanwhile."""

_NS_IN_MS = 1_000_000


class CatchUpLag(NamedTuple):
    """How a fetcher stands in all of its partitions together that it has to catch up with."""

    fetched: int
    """The sum of the offsets up to which it has them."""
    end: int
    """The sum of their ends."""


class CatchUpChunk(NamedTuple):
    """What a fetcher may have now, for all partitions together that it has to catch up with."""

    size_bytes: int
    """0: nothing."""
    pause_ms: int
    """Until it may have more; 0 when it may have some now."""


class CatchUpPace:
    """A leader's, for all fetchers of all followers.

    A follower has ``num.replica.fetchers`` of them, each with partitions, answers and pauses of its own.
    They are told apart by the connection that each has; what is known of one goes with it.
    """

    def __init__(self, clock: Clock, do_producers_wait: Callable[[], bool]) -> None:
        self._clock = clock
        self._do_producers_wait = do_producers_wait
        self._is_on = FastPath.CATCH_UP not in SWITCHED_OFF
        self._sent: WeakKeyDictionary[object, tuple[int, CatchUpLag]] = WeakKeyDictionary()
        """When a fetcher's last chunk was sent, in ns, and its lag then; until it fetches again."""
        self._due_ms: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        """When a paused fetcher may have the next chunk."""

    def __repr__(self) -> str:
        return f"CatchUpPace({len(self._due_ms)} fetchers paused)"

    def chunk(self, fetcher: object, lag: CatchUpLag) -> CatchUpChunk:
        """``fetcher`` asks, or its pause may be over."""
        if not self._is_on:
            return CatchUpChunk(sys.maxsize, 0)
        now_ms = self._clock.monotonic_ms()
        size_bytes = CATCH_UP_BYTES_MAX
        if self._do_producers_wait():
            sent = self._sent.pop(fetcher, None)
            if sent is None or _catches_up(sent[1], lag):
                size_bytes = CATCH_UP_BYTES_MAX_UNDER_LOAD
                if sent is not None:
                    under_way_ns = self._clock.monotonic_ns() - sent[0]
                    pause_ms = math.ceil(under_way_ns / _NS_IN_MS)
                    self._due_ms[fetcher] = now_ms + min(pause_ms, PAUSE_MS_MAX)
        pause_ms = self._due_ms.get(fetcher, now_ms) - now_ms
        if pause_ms > 0:
            return CatchUpChunk(0, pause_ms)
        self._due_ms.pop(fetcher, None)
        return CatchUpChunk(size_bytes, 0)

    def sent(self, fetcher: object, lag: CatchUpLag) -> None:
        """A chunk is on its way."""
        self._sent[fetcher] = self._clock.monotonic_ns(), lag


def _catches_up(before: CatchUpLag, after: CatchUpLag) -> bool:
    """Whether a follower would, if it took twice as long, and in all that time as much was written as from
    ``before`` to ``after``."""
    return after.fetched - before.fetched >= 2 * 2 * (after.end - before.end)
