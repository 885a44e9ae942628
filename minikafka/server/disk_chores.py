"""What the request road leaves for the disk: noted here by whoever caused it, carried out by ``maintenance``.

A rolled segment wants its flush, a created or deleted log its directory synced. Noting costs nothing and
never waits; the same log noted twice is flushed once.
"""

from __future__ import annotations

import asyncio

from minikafka.log.unified_log import UnifiedLog
from minikafka.types import TopicPartition


class DiskChores:
    """A set of logs to flush, and whether the log manager has work. Belongs to the loop."""

    def __init__(self) -> None:
        self._flushes: dict[TopicPartition, UnifiedLog] = {}
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"DiskChores(flushes={[str(tp) for tp in self._flushes]}, waiting={self._wake.is_set()})"

    def flush(self, log: UnifiedLog) -> None:
        """Flush ``log`` soon."""
        self._flushes[log.topic_partition] = log
        self._wake.set()

    def logs_changed(self) -> None:
        """Logs were created or deleted: the log manager has disk work."""
        self._wake.set()

    async def wait(self) -> list[UnifiedLog]:
        """Wait until there is something to do; returns the logs to flush."""
        await self._wake.wait()
        self._wake.clear()
        logs = list(self._flushes.values())
        self._flushes.clear()
        return logs
