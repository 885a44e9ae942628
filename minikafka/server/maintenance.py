"""The chores of the logs: retention, flushing, checkpoints, expired producers, removal of deleted files.

Kafka's ``LogManager`` schedules; each is a supervised task of its own. The part that decides runs on the
loop, where the logs live; the part that waits for the disk runs on the disk thread; and only after that has
succeeded is the outcome noted on the loop (the recovery point rises).

A failed fsync or checkpoint is never tried again, because nothing is known of the disk's state from then
on: its log directory goes offline, and the broker stops when no directory is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from minikafka.errors import StartError
from minikafka.files import Files
from minikafka.log.disk_work import DiskWork
from minikafka.log.retention import DeletedFiles
from minikafka.log.unified_log import UnifiedLog
from minikafka.server.disk_chores import DiskChores
from minikafka.server.services import Services
from minikafka.server.supervisor import Restart

logger = logging.getLogger(__name__)

SLEEP_MS_MAX = 24 * 60 * 60 * 1000
"""An interval of "never" (2^63-1 ms, Kafka's default of the flush scheduler) is slept in days."""

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
            for log in noted.flushes:
                await self._flush(log)
            await self._run(self._services.log_manager.take_disk_work())
            for directory, error in self._services.log_manager.take_failures().items():
                self._directory_failed(directory, str(error))

    async def _flush(self, log: UnifiedLog) -> None:
        """Bring ``log`` to the disk up to its active segment's start, then raise its recovery point."""
        flush = log.begin_flush() if log.is_open else None
        if flush is None:
            return
        try:
            await self._services.log_io.run(flush.run)
        except OSError as error:
            self._directory_failed(self._services.log_manager.directory_of(log), str(error))
        else:
            if log.is_open:
                log.complete_flush(flush)

    async def _run(self, work: Iterable[DiskWork]) -> None:
        for piece in work:
            if piece.log_directory not in self._services.log_manager.live_directories:
                continue
            try:
                await self._services.log_io.run(piece.run)
            except OSError as error:
                self._directory_failed(piece.log_directory, str(error))

    def _directory_failed(self, directory: str, reason: str) -> None:
        services = self._services
        lost = services.replica_manager.take_directory_offline(directory, reason=reason)
        services.topics.mark_offline(lost)
        if not services.log_manager.live_directories:
            services.supervisor.fail(StartError(f"no log directory is left: {directory} failed: {reason}"))

    # What the clock brings

    async def _clean_up(self) -> None:
        cleanup = self._services.log_manager.cleanup()
        for directory, error in cleanup.failed.items():
            self._directory_failed(directory, str(error))
        now_ms = self._services.clock.monotonic_ms()
        delay_ms = self._services.log_manager.default_config.file_delete_delay_ms
        self._deleted += [(now_ms + delay_ms, deleted) for deleted in cleanup.deleted]

    async def _remove_files(self) -> None:
        now_ms = self._services.clock.monotonic_ms()
        due = [deleted for due_ms, deleted in self._deleted if due_ms <= now_ms]
        self._deleted = [(due_ms, deleted) for due_ms, deleted in self._deleted if due_ms > now_ms]
        if due:
            await self._services.log_io.run(partial(_remove, due, self._services.files))
        await self._run(self._services.log_manager.take_removals())

    async def _flush_due(self) -> None:
        for log in self._services.log_manager.logs_to_flush():
            await self._flush(log)

    async def _checkpoint_recovery_points(self) -> None:
        await self._run(self._services.log_manager.prepare_recovery_point_checkpoints())

    async def _checkpoint_log_start_offsets(self) -> None:
        await self._run(self._services.log_manager.prepare_log_start_offset_checkpoints())

    async def _checkpoint_high_watermarks(self) -> None:
        await self._run(self._services.log_manager.prepare_high_watermark_checkpoints())

    async def _expire_producers(self) -> None:
        self._services.log_manager.remove_expired_producers()


def _remove(deleted: Iterable[DeletedFiles], files: Files) -> None:
    for segment in deleted:
        segment.remove(files)
