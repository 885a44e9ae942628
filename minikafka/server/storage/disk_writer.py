"""What waits for a disk, done on the thread of its log directory, and what follows when the disk fails.

Log directories do not wait for each other. A caller that hands a ``DiskWriter`` work for several waits for
all of them, so the maintenance hands in that of one (``maintenance``). What requests left goes into
``DiskLanes``: a lane is a log directory's queue with one task. A disk that hangs holds up its own lane; what
comes for it meanwhile waits there, the same log once.

A failed fsync or checkpoint is never tried again, because nothing is known of the disk's state from then
on: its log directory goes offline, and the broker stops when no directory is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from minikafka.errors import KafkaError, StartError
from minikafka.files import is_disk_failure
from minikafka.log.files.open_files import Flush
from minikafka.log.manager.disk_work import DiskWork, run_all
from minikafka.server.replica.pending_disk_work import DiskWorkBatch
from minikafka.server.runtime.supervisor import Restart, Supervisor
from minikafka.server.services import Services
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import UnifiedLog

logger = logging.getLogger(__name__)


T = TypeVar("T")

ITEMS_PER_HOP = 32
"""Pieces of work that go to a disk thread together: at 4 ms for a piece of two fsyncs, others wait for
their turn an eighth of a second, and the hops cost next to nothing."""


class _TimedFlush:
    """A flush that notes how long it took: all of a log's segments together, where Kafka times each."""

    def __init__(self, flush: Flush, now_ns: Callable[[], int]) -> None:
        self._flush = flush
        self._now_ns = now_ns
        self.duration_ns: int | None = None
        """None: it has not run."""

    @property
    def log_directory(self) -> str:
        return self._flush.log_directory

    def run(self) -> None:
        began_ns = self._now_ns()
        try:
            self._flush.run()
        finally:
            self.duration_ns = self._now_ns() - began_ns


class DiskWriter:
    """Has no state of its own: several may be used side by side."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self, work: Sequence[DiskWork]) -> set[str]:
        """Run ``work``, in each log directory in its order and after the work of earlier calls. Returns the
        log directories that failed, which are offline then."""
        by_directory = _by_directory(work)
        if len(by_directory) == 1:
            return await self._run_in(*by_directory.popitem())
        failures: set[str] = set()
        for found in await asyncio.gather(
            *(self._run_in(*each) for each in by_directory.items()), return_exceptions=True
        ):
            if isinstance(found, BaseException):
                raise found
            failures |= found
        return failures

    async def _run_in(self, log_directory: str, work: Sequence[DiskWork]) -> set[str]:
        for chunk in _chunks(work):
            if log_directory not in self._services.log_manager.live_directories:
                break
            if failed := await self._run_chunk(log_directory, chunk):
                return failed
        return set()

    async def _run_chunk(self, log_directory: str, work: Sequence[DiskWork]) -> set[str]:
        """A caller that is cancelled here still learns what failed: the shutdown must not call it clean."""
        running = asyncio.get_running_loop().create_task(
            self._services.log_io.run(partial(run_all, work), log_directory=log_directory)
        )
        try:
            await asyncio.shield(running)
        finally:
            failed = await running
            for directory, error in failed.items():
                self.directory_failed(directory, error)
        return set(failed)

    async def flush(self, logs: Sequence[UnifiedLog], *, closed_only: bool = False) -> None:
        """Bring ``logs`` to the disk up to their ends, or without their active segments, then raise their
        recovery points. Where a replica has moved to another log directory meanwhile, the log there; and once
        more where files got other names meanwhile, which may not have been found then."""
        unfinished: list[UnifiedLog] = []
        for chunk in _chunks(logs):
            begun = [
                (log, flush)
                for log in chunk
                if log.is_open
                and (flush := log.begin_flush(log.segments.active.base_offset if closed_only else None))
                is not None
            ]
            failed = await self._run_flushes([flush for _, flush in begun])
            for log, flush in begun:
                if flush.log_directory in failed:
                    log.give_up_flush(flush)
                elif log.is_open:
                    self._complete(log, flush)
                    if flush.generation != log.generation:
                        unfinished.append(log)
        unfinished += [
            successor
            for log in logs
            if not log.is_open
            and (successor := self._services.log_manager.get(log.topic_partition)) is not None
            and successor is not log
        ]
        if unfinished:
            await self.flush(unfinished, closed_only=closed_only)

    async def _run_flushes(self, flushes: Sequence[Flush]) -> set[str]:
        services = self._services
        timed = [_TimedFlush(flush, services.clock.monotonic_ns) for flush in flushes]
        failed = await self.run(timed)
        for each in timed:
            if each.duration_ns is not None:
                services.log_flushes.update(each.duration_ns)
        return failed

    def _complete(self, log: UnifiedLog, flush: Flush) -> None:
        try:
            log.complete_flush(flush)
        except KafkaError as error:  # a file is not where it was
            self.directory_failed(flush.log_directory, error)

    def directory_failed(self, directory: str, error: Exception) -> None:
        """Take a log directory offline, unless ``error`` is none of its disk."""
        services, reason = self._services, str(error)
        if not is_disk_failure(error):
            logger.error("%s stays online, for this is no failure of its disk: %s", directory, reason)
            return
        services.replica_manager.take_directory_offline(directory, reason=reason)
        services.log_directory_failed()
        if not services.log_manager.live_directories:
            services.supervisor.fail(StartError(f"no log directory is left: {directory} failed: {reason}"))


def _by_directory(work: Iterable[DiskWork]) -> dict[str, list[DiskWork]]:
    found: dict[str, list[DiskWork]] = {}
    for piece in work:
        found.setdefault(piece.log_directory, []).append(piece)
    return found


def _chunks(pieces: Sequence[T]) -> Iterator[Sequence[T]]:
    return (pieces[start : start + ITEMS_PER_HOP] for start in range(0, len(pieces), ITEMS_PER_HOP))


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
                if not done.done():  # it is not waited for any more
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

    def add(self, batch: DiskWorkBatch) -> None:
        """Flush what is noted."""
        for logs, closed_only in ((batch.closed, True), (batch.flushes, False)):
            for log in logs:
                self._lane(os.path.dirname(log.directory)).add_flush(log, closed_only=closed_only)
        for done, log_directory in batch.waiting.items():
            self._lane(log_directory).add_waiting(done)

    def _lane(self, log_directory: str) -> DiskLane:
        lane = self._lanes.get(log_directory)
        if lane is None:
            lane = self._lanes[log_directory] = DiskLane(self._disk)
            self._supervisor.start(f"disk-work {log_directory}", lane.run, restart=Restart.STOP_BROKER)
        return lane
