"""Maintenance of the logs: retention, flushing, checkpoints, expired producers, removal of deleted files; and
followers that lag behind.

Kafka's ``LogManager`` and ``ReplicaManager`` schedule; each is a supervised task of its own, and those that
wait for a disk are one for each log directory, so that a disk that hangs holds up no other one. The part that
decides runs on the loop, where the logs live; the part that waits for the disk runs on the thread of the log
directory; and only after that has succeeded is the outcome noted on the loop (the recovery point rises).

**What waits for a disk** (``DiskWriter``) is done on the thread of its log directory; what follows when the
disk fails, here. Log directories do not wait for each other. A caller that hands a ``DiskWriter`` work for
several waits for all of them, so the maintenance hands in that of one. What requests left goes into
``DiskLanes``: a lane is a log directory's queue with one task. A disk that hangs holds up its own lane; what
comes for it meanwhile waits there, the same log once.

A failed fsync or checkpoint is never tried again, because nothing is known of the disk's state from then
on: its log directory goes offline, and the broker stops when no directory is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from minikafka.errors import KafkaError, StartError
from minikafka.files import is_disk_failure
from minikafka.log.files import Flush
from minikafka.log.log_directories import DiskWork, FileRemoval, run_all
from minikafka.server.replica.pending_disk_work import DiskWorkBatch, PendingDiskWork
from minikafka.server.runtime.event_loop import Restart, Supervisor
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.log.segment.log_segments import DeletedFiles
    from minikafka.log.unified_log import UnifiedLog

logger = logging.getLogger(__name__)

T = TypeVar("T")

ITEMS_PER_HOP = 32
"""Pieces of work that go to a disk thread together: at 4 ms for a piece of two fsyncs, others wait for
their turn an eighth of a second, and the hops cost next to nothing."""

SLEEP_MS_MAX = 24 * 60 * 60 * 1000
"""An interval of "never" (2^63-1 ms, Kafka's default of the flush scheduler) is slept in days."""

REMOVAL_INTERVAL_MS = 1000
"""How often files whose delay has passed are looked for; the delay itself is ``file.delete.delay.ms``."""

CORRECTION_PAUSE_US = 500
"""For each log of the broker, between two corrections of checkpoints that only name partitions which are
gone. To encode all four takes 5 us for each log, so that is a hundredth of the loop. Without a pause they
were encoded after every few deletions, and those of 20,000 partitions took 47 CPU s."""


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


class Maintenance:
    """Owns the tasks. ``start`` hands them to the supervisor, which also ends them."""

    def __init__(self, services: Services, disk_work: PendingDiskWork) -> None:
        self._services = services
        self._disk_work = disk_work
        self._disk = DiskWriter(services)
        self._lanes = DiskLanes(self._disk, services.supervisor)
        self._deleted: list[tuple[int, DeletedFiles]] = []
        self._correction_due_ms = 0
        self._correction: asyncio.TimerHandle | None = None

    def start(self) -> None:
        config = self._services.config
        every = self._every
        every("log-retention", config.log_retention_check_interval_ms, self._clean_up)
        for name, interval_ms, task in (
            ("log-flusher", config.log_flush_scheduler_interval_ms, self._flush_due),
            (
                "checkpoints",
                config.log_flush_offset_checkpoint_interval_ms,
                self._checkpoint_recovery_points,
            ),
            (
                "log-start-checkpoints",
                config.log_flush_start_offset_checkpoint_interval_ms,
                self._checkpoint_log_start_offsets,
            ),
            (
                "high-watermark-checkpoints",
                config.replica_high_watermark_checkpoint_interval_ms,
                self._checkpoint_high_watermarks,
            ),
            ("file-removal", REMOVAL_INTERVAL_MS, self._remove_files),
        ):
            for directory in self._services.log_manager.live_directories:
                every(f"{name} {directory}", interval_ms, partial(task, directory))
        shrink_isrs = self._services.replica_manager.shrink_isrs
        every("isr-expiration", max(config.replica_lag_time_max_ms // 2, 1), shrink_isrs)
        every("producer-expiration", config.producer_id_expiration_check_interval_ms, self._expire_producers)
        self._services.supervisor.start("disk-work", self._do_disk_work, restart=Restart.STOP_BROKER)

    def remove_later(self, deleted: Iterable[DeletedFiles], *, delay_ms: int) -> None:
        """Remove these files when ``delay_ms`` have passed."""
        due_ms = self._services.clock.monotonic_ms() + delay_ms
        self._deleted += [(due_ms, each) for each in deleted if each.paths]

    def _every(self, name: str, interval_ms: int, task: Callable[[], Awaitable[None]]) -> None:
        async def work() -> None:
            await asyncio.sleep(min(self._services.config.log_initial_task_delay_ms, interval_ms) / 1000)
            while True:
                await task()
                await asyncio.sleep(min(interval_ms, SLEEP_MS_MAX) / 1000)

        self._services.supervisor.start(name, work, restart=Restart.ALWAYS)

    # What requests left

    async def _do_disk_work(self) -> None:
        while True:
            batch = await self._disk_work.wait()
            for directory, failure in batch.failures.items():
                self._disk.directory_failed(directory, failure)
            # Before the flushes: it includes a new log's first epoch, which then is none of theirs.
            time_slice = TimeSlice()
            while work := self._take_disk_work():
                self._lanes.add_work(work)
                await time_slice.give_way()
            self._correct_later()
            self._lanes.add(batch)
            for directory, error in self._services.log_manager.take_failures().items():
                self._disk.directory_failed(directory, error)

    def _take_disk_work(self) -> list[DiskWork]:
        """Checkpoints that name partitions which are gone are corrected from time to time."""
        log_manager, now_ms = self._services.log_manager, self._services.clock.monotonic_ms()
        is_due = now_ms >= self._correction_due_ms
        if is_due and log_manager.has_stale_checkpoints:
            pause_ms = len(log_manager.logs) * CORRECTION_PAUSE_US // 1000
            self._correction_due_ms = now_ms + pause_ms
        return log_manager.take_disk_work(new_logs_max=ITEMS_PER_HOP, urgent_only=not is_due)

    def _correct_later(self) -> None:
        """What was not due yet."""
        if self._correction is not None:
            self._correction.cancel()
            self._correction = None
        if self._services.log_manager.has_stale_checkpoints:
            wait_ms = self._correction_due_ms - self._services.clock.monotonic_ms()
            self._correction = asyncio.get_running_loop().call_later(
                max(wait_ms, 1) / 1000, self._disk_work.logs_changed
            )

    # What the clock brings

    async def _clean_up(self) -> None:
        log_manager = self._services.log_manager
        time_slice = TimeSlice()
        for log in list(log_manager.all_logs()):
            cleanup = log_manager.cleanup([log])
            for directory, error in cleanup.failed.items():
                self._disk.directory_failed(directory, error)
            self.remove_later(cleanup.deleted, delay_ms=log.config.file_delete_delay_ms)
            await time_slice.give_way()

    async def _remove_files(self, directory: str) -> None:
        now_ms = self._services.clock.monotonic_ms()
        removals: list[DiskWork] = []
        left: list[tuple[int, DeletedFiles]] = []
        for due_ms, deleted in self._deleted:
            if due_ms <= now_ms and deleted.log_directory == directory:
                removals.append(FileRemoval(self._services.files, directory, deleted.paths))
            else:
                left.append((due_ms, deleted))
        self._deleted = left
        await self._disk.run([*removals, *self._services.log_manager.take_removals(directory)])

    async def _flush_due(self, directory: str) -> None:
        log_manager = self._services.log_manager
        due = log_manager.logs_to_flush()
        await self._disk.flush([log for log in due if log_manager.directory_of(log) == directory])

    async def _checkpoint_recovery_points(self, directory: str) -> None:
        await self._disk.run(self._services.log_manager.prepare_recovery_point_checkpoints(directory))

    async def _checkpoint_log_start_offsets(self, directory: str) -> None:
        await self._disk.run(self._services.log_manager.prepare_log_start_offset_checkpoints(directory))

    async def _checkpoint_high_watermarks(self, directory: str) -> None:
        await self._disk.run(self._services.log_manager.prepare_high_watermark_checkpoints(directory))

    async def _expire_producers(self) -> None:
        time_slice = TimeSlice()
        for log in list(self._services.log_manager.logs.values()):
            log.remove_expired_producers()
            await time_slice.give_way()
