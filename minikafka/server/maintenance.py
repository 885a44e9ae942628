"""The chores of the logs: retention, flushing, checkpoints, expired producers, removal of deleted files; and
followers that lag behind.

Kafka's ``LogManager`` and ``ReplicaManager`` schedule; each is a supervised task of its own. The part that
decides runs on the loop, where the logs live; the part that waits for the disk runs on the disk thread; and
only after that has succeeded is the outcome noted on the loop (the recovery point rises).

A failed fsync or checkpoint is never tried again, because nothing is known of the disk's state from then
on: its log directory goes offline, and the broker stops when no directory is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from minikafka.errors import KafkaError, StartError
from minikafka.files import Files
from minikafka.log.disk_work import DiskWork, run_all
from minikafka.log.flush import Flush
from minikafka.log.retention import DeletedFiles
from minikafka.log.unified_log import UnifiedLog
from minikafka.server.disk_chores import DiskChores
from minikafka.server.services import Services
from minikafka.server.supervisor import Restart
from minikafka.server.turns import Turns

logger = logging.getLogger(__name__)

T = TypeVar("T")

SLEEP_MS_MAX = 24 * 60 * 60 * 1000
"""An interval of "never" (2^63-1 ms, Kafka's default of the flush scheduler) is slept in days."""

PIECES_PER_HOP = 32
"""Pieces of work that go to the disk thread together: at 4 ms for a piece of two fsyncs, others wait for
their turn an eighth of a second, and the hops cost next to nothing."""

REMOVAL_INTERVAL_MS = 1000
"""How often files whose delay has passed are looked for; the delay itself is ``file.delete.delay.ms``."""


class Maintenance:
    """Owns the chores. ``start`` hands them to the supervisor, which also ends them."""

    def __init__(self, services: Services, chores: DiskChores) -> None:
        self._services = services
        self._chores = chores
        self._deleted: list[tuple[int, DeletedFiles]] = []

    def start(self) -> None:
        config = self._services.config
        every = self._every
        every("log-retention", config.log_retention_check_interval_ms, self._clean_up)
        every("log-flusher", config.log_flush_scheduler_interval_ms, self._flush_due)
        every("checkpoints", config.log_flush_offset_checkpoint_interval_ms, self._checkpoint_recovery_points)
        every(
            "log-start-checkpoints",
            config.log_flush_start_offset_checkpoint_interval_ms,
            self._checkpoint_log_start_offsets,
        )
        every(
            "high-watermark-checkpoints",
            config.replica_high_watermark_checkpoint_interval_ms,
            self._checkpoint_high_watermarks,
        )
        shrink_isrs = self._services.replica_manager.shrink_isrs
        every("isr-expiration", max(config.replica_lag_time_max_ms // 2, 1), shrink_isrs)
        every("producer-expiration", config.producer_id_expiration_check_interval_ms, self._expire_producers)
        every("file-removal", REMOVAL_INTERVAL_MS, self._remove_files)
        self._services.supervisor.start("disk-chores", self._do_chores, restart=Restart.STOP_BROKER)

    def _every(self, name: str, interval_ms: int, chore: Callable[[], Awaitable[None]]) -> None:
        async def work() -> None:
            await asyncio.sleep(min(self._services.config.log_initial_task_delay_ms, interval_ms) / 1000)
            while True:
                await chore()
                await asyncio.sleep(min(interval_ms, SLEEP_MS_MAX) / 1000)

        self._services.supervisor.start(name, work, restart=Restart.ALWAYS)

    # What the request road left

    async def _do_chores(self) -> None:
        while True:
            noted = await self._chores.wait()
            for directory, reason in noted.failures.items():
                self._directory_failed(directory, reason)
            # Before the flushes: it includes a new log's first epoch, which then is none of theirs.
            while work := self._services.log_manager.take_disk_work(new_logs_max=PIECES_PER_HOP):
                await self._run(work)
            await self._flush(noted.flushes)
            for done in noted.waiting:
                if not done.done():  # nobody waits any more
                    done.set_result(None)
            for directory, error in self._services.log_manager.take_failures().items():
                self._directory_failed(directory, str(error))

    async def _flush(self, logs: Sequence[UnifiedLog]) -> None:
        """Bring ``logs`` to the disk up to their ends, then raise their recovery points."""
        for chunk in _chunks(logs):
            begun = [
                (log, flush) for log in chunk if log.is_open and (flush := log.begin_flush()) is not None
            ]
            failed = await self._run([flush for _, flush in begun])
            for log, flush in begun:
                if flush.log_directory not in failed and log.is_open:
                    self._complete(log, flush)

    def _complete(self, log: UnifiedLog, flush: Flush) -> None:
        try:
            log.complete_flush(flush)
        except KafkaError as error:  # a file is not where it was
            self._directory_failed(flush.log_directory, str(error))

    async def _run(self, work: Sequence[DiskWork]) -> set[str]:
        """Run ``work`` on the disk thread, in its order. Returns the log directories that failed."""
        failures: set[str] = set()
        for chunk in _chunks(work):
            live = self._services.log_manager.live_directories
            wanted = [piece for piece in chunk if piece.log_directory in live]
            if not wanted:
                continue
            failures |= await self._run_chunk(wanted)
        return failures

    async def _run_chunk(self, work: Sequence[DiskWork]) -> set[str]:
        """A chore that is cancelled here still learns what failed: the shutdown must not call it clean."""
        running = asyncio.ensure_future(self._services.log_io.run(partial(run_all, work)))
        try:
            await asyncio.shield(running)
        finally:
            failed = await running
            for directory, error in failed.items():
                self._directory_failed(directory, str(error))
        return set(failed)

    def _directory_failed(self, directory: str, reason: str) -> None:
        services = self._services
        services.replica_manager.take_directory_offline(directory, reason=reason)
        services.log_directory_failed()
        if not services.log_manager.live_directories:
            services.supervisor.fail(StartError(f"no log directory is left: {directory} failed: {reason}"))

    # What the clock brings

    async def _clean_up(self) -> None:
        log_manager = self._services.log_manager
        turns = Turns()
        for log in list(log_manager.logs.values()):
            cleanup = log_manager.cleanup([log])
            for directory, error in cleanup.failed.items():
                self._directory_failed(directory, str(error))
            due_ms = self._services.clock.monotonic_ms() + log.config.file_delete_delay_ms
            self._deleted += [(due_ms, deleted) for deleted in cleanup.deleted]
            await turns.give_way()

    async def _remove_files(self) -> None:
        now_ms = self._services.clock.monotonic_ms()
        due = [deleted for due_ms, deleted in self._deleted if due_ms <= now_ms]
        self._deleted = [(due_ms, deleted) for due_ms, deleted in self._deleted if due_ms > now_ms]
        if due:
            await self._services.log_io.run(partial(_remove, due, self._services.files))
        await self._run(self._services.log_manager.take_removals())

    async def _flush_due(self) -> None:
        await self._flush(self._services.log_manager.logs_to_flush())

    async def _checkpoint_recovery_points(self) -> None:
        await self._run(self._services.log_manager.prepare_recovery_point_checkpoints())

    async def _checkpoint_log_start_offsets(self) -> None:
        await self._run(self._services.log_manager.prepare_log_start_offset_checkpoints())

    async def _checkpoint_high_watermarks(self) -> None:
        await self._run(self._services.log_manager.prepare_high_watermark_checkpoints())

    async def _expire_producers(self) -> None:
        turns = Turns()
        for log in list(self._services.log_manager.logs.values()):
            log.remove_expired_producers()
            await turns.give_way()


def _chunks(pieces: Sequence[T]) -> Iterator[Sequence[T]]:
    return (pieces[start : start + PIECES_PER_HOP] for start in range(0, len(pieces), PIECES_PER_HOP))


def _remove(deleted: Iterable[DeletedFiles], files: Files) -> None:
    for segment in deleted:
        segment.remove(files)
