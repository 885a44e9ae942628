"""What requests leave to be done on the disk: added here by those that caused it, done by ``maintenance``.

A rolled segment wants its flush, a created or deleted log its directory synced, a failed directory to be
taken offline; a replica that is to be moved to another log directory wants to be copied, which
``alter_log_dirs`` does. Adding costs nothing and never waits; a log that is added twice is flushed once.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from minikafka.files import is_disk_failure
from minikafka.named_tuple import NamedTuple
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import UnifiedLog


class DiskWorkBatch(NamedTuple):
    """What was added since the last ``wait``."""

    flushes: list[UnifiedLog]
    """Up to their ends."""
    closed: list[UnifiedLog]
    """As far as they will not change any more."""
    failures: dict[str, Exception]
    """Log directories that failed, and why."""
    waiting: dict[asyncio.Future[None], str]
    """To be resolved when the flushes in that log directory are over, whatever came of them."""


class PendingDiskWork:
    """Logs to flush, directories that failed, and whether the log manager has work. Belongs to the loop."""

    def __init__(self) -> None:
        self._flushes: dict[TopicPartition, UnifiedLog] = {}
        self._closed: dict[TopicPartition, UnifiedLog] = {}
        self._failures: dict[str, Exception] = {}
        self._waiting: dict[asyncio.Future[None], TopicPartition] = {}
        self._wake = asyncio.Event()
        self.moves = asyncio.Event()
        """Set when there may be a replica to move between log directories."""

    def __repr__(self) -> str:
        return (
            f"PendingDiskWork(flushes={[str(tp) for tp in self._flushes]}, "
            f"closed={[str(tp) for tp in self._closed]}, failures={self._failures}, "
            f"waiting={self._wake.is_set()})"
        )

    def flush_closed(self, log: UnifiedLog) -> None:
        """Flush soon what a roll or a new leader epoch has left: closed segments and small files. Not the
        active segment: while its pages are written, appends to it wait, and the loop with them."""
        self._closed[log.topic_partition] = log
        self._wake.set()

    def flush(self, log: UnifiedLog) -> None:
        """Flush ``log`` soon, up to its end."""
        self._flushes[log.topic_partition] = log
        self._wake.set()

    def flushed(self, log: UnifiedLog) -> asyncio.Future[None]:
        """Flush ``log`` soon, all that it holds now; resolved when that was tried.

        A log whose flush failed is no longer hosted then: its directory is offline.
        """
        self.flush(log)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[done] = log.topic_partition
        return done

    def logs_changed(self) -> None:
        """Logs were created or deleted: the log manager has disk work."""
        self._wake.set()

    def directory_failed(self, directory: str, error: Exception) -> None:
        """Take a log directory offline soon, if ``error`` is its disk's; the first one that is counts."""
        known = self._failures.get(directory)
        if known is None or not is_disk_failure(known):
            self._failures[directory] = error
        self._wake.set()

    async def wait(self) -> DiskWorkBatch:
        """Wait until there is something to do."""
        await self._wake.wait()
        self._wake.clear()
        # Where a replica has moved since, the flush is of the log that has its place, in another directory.
        waiting = {done: os.path.dirname(self._flushes[at].directory) for done, at in self._waiting.items()}
        batch = DiskWorkBatch(
            list(self._flushes.values()), list(self._closed.values()), self._failures, waiting
        )
        self._flushes.clear()
        self._closed.clear()
        self._failures = {}
        self._waiting = {}
        return batch
