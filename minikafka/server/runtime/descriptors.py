"""File descriptors: how many this process may have, and what they are for.

Kafka keeps every segment's files open and asks for a limit of 100,000. Here the limit bounds connections and
how many files stay open, not how many partitions there can be (``log/files/open_files``).
"""

from __future__ import annotations

import resource
from typing import NamedTuple

WANTED = 100_000
"""What Kafka's documentation recommends for a broker."""

RESERVE_MIN = 56
"""An idle broker has 23 (store, locks, listeners, event loop); disk threads, checkpoints and new partitions
open up to 10 for a moment; the others are for connections that are refused, which have one until they are
closed."""

RESERVE_SHARE = 10
"""One in so many is kept back: for connections to other brokers, the HTTP port, a compaction's pipes."""

OPEN_FILES_MIN = 8

LISTEN_BACKLOG_SHARE = 8
"""The backlog is at most one in so many: that is how many connections a single turn of the loop accepts
before the first of them can be refused."""

HTTP_SHARE = 32
"""One in so many at most is for connections to the HTTP port."""


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
        """Half of what is not kept back is for files, half for connections."""
        reserve = max(RESERVE_MIN, limit // RESERVE_SHARE)
        share = max(OPEN_FILES_MIN, (limit - reserve) // 2)
        return cls(
            limit,
            open_files=share,
            connections=share,
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
