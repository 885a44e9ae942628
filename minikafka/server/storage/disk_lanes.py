"""The chores that the request road left, done in each log directory without waiting for another one.

A lane is a log directory's queue with one task. A disk that hangs holds up its own lane; what comes for it
meanwhile waits there, the same log once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from minikafka.log.manager.disk_work import DiskWork
from minikafka.server.replica.disk_chores import Noted
from minikafka.server.runtime.supervisor import Restart, Supervisor
from minikafka.server.storage.disk_writer import DiskWriter
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import UnifiedLog


class DiskLane:
    """What waits for one log directory. ``run`` is its task."""

    def __init__(self, disk: DiskWriter) -> None:
        self._disk = disk
        self._work: list[DiskWork] = []
        self._closed: dict[TopicPartition, UnifiedLog] = {}
        self._flushes: dict[TopicPartition, UnifiedLog] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"DiskLane({len(self._work)} pieces of work, {len(self._closed) + len(self._flushes)} flushes)"

    def add_work(self, work: DiskWork) -> None:
        """Run ``work`` before the flushes that are added from now on."""
        self._work.append(work)
        self._wake.set()

    def add_flush(self, log: UnifiedLog, *, closed_only: bool) -> None:
        """See ``DiskWriter.flush``."""
        (self._closed if closed_only else self._flushes)[log.topic_partition] = log
        self._wake.set()

    def add_waiting(self, done: asyncio.Future[None]) -> None:
        """Resolve ``done`` when the flushes that were added before are over."""
        self._waiting.append(done)
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            work, self._work = self._work, []
            closed, self._closed = self._closed, {}
            flushes, self._flushes = self._flushes, {}
            waiting, self._waiting = self._waiting, []
            await self._disk.run(work)
            await self._disk.flush(list(closed.values()), closed_only=True)
            await self._disk.flush(list(flushes.values()))
            for done in waiting:
                if not done.done():  # nobody waits any more
                    done.set_result(None)


class DiskLanes:
    """The lanes of a broker's log directories, each started when there is something for it."""

    def __init__(self, disk: DiskWriter, supervisor: Supervisor) -> None:
        self._disk = disk
        self._supervisor = supervisor
        self._lanes: dict[str, DiskLane] = {}

    def __repr__(self) -> str:
        return f"DiskLanes({self._lanes})"

    def add_work(self, work: Iterable[DiskWork]) -> None:
        """See ``DiskLane.add_work``."""
        for piece in work:
            self._lane(piece.log_directory).add_work(piece)

    def add(self, noted: Noted) -> None:
        """Flush what is noted."""
        for logs, closed_only in ((noted.closed, True), (noted.flushes, False)):
            for log in logs:
                self._lane(os.path.dirname(log.directory)).add_flush(log, closed_only=closed_only)
        for done, log_directory in noted.waiting.items():
            self._lane(log_directory).add_waiting(done)

    def _lane(self, log_directory: str) -> DiskLane:
        lane = self._lanes.get(log_directory)
        if lane is None:
            lane = self._lanes[log_directory] = DiskLane(self._disk)
            self._supervisor.start(f"disk-chores {log_directory}", lane.run, restart=Restart.STOP_BROKER)
        return lane
