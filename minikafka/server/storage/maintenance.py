"""Maintenance of the logs: retention, flushing, checkpoints, expired producers, removal of deleted files; and
followers that lag behind.

Kafka's ``LogManager`` and ``ReplicaManager`` schedule; each is a supervised task of its own, and those that
wait for a disk are one for each log directory, so that a disk that hangs holds up no other one. The part that
decides runs on the loop, where the logs live; the part that waits for the disk runs on the thread of the log
directory; and only after that has succeeded is the outcome noted on the loop (the recovery point rises).

What failed on the disk is in ``disk_writer``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from minikafka.log.manager.disk_work import DiskWork, FileRemoval
from minikafka.server.replica.pending_disk_work import PendingDiskWork
from minikafka.server.runtime.supervisor import Restart
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services
from minikafka.server.storage.disk_writer import ITEMS_PER_HOP, DiskLanes, DiskWriter

if TYPE_CHECKING:
    from minikafka.log.segment.retention import DeletedFiles


SLEEP_MS_MAX = 24 * 60 * 60 * 1000
"""An interval of "never" (2^63-1 ms, Kafka's default of the flush scheduler) is slept in days."""

REMOVAL_INTERVAL_MS = 1000
"""How often files whose delay has passed are looked for; the delay itself is ``file.delete.delay.ms``."""


class Maintenance:
    """Owns the tasks. ``start`` hands them to the supervisor, which also ends them."""

    def __init__(self, services: Services, disk_work: PendingDiskWork) -> None:
        self._services = services
        self._disk_work = disk_work
        self._disk = DiskWriter(services)
        self._lanes = DiskLanes(self._disk, services.supervisor)
        self._deleted: list[tuple[int, DeletedFiles]] = []

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
            while work := self._services.log_manager.take_disk_work(new_logs_max=ITEMS_PER_HOP):
                self._lanes.add_work(work)
                await time_slice.give_way()
            self._lanes.add(batch)
            for directory, error in self._services.log_manager.take_failures().items():
                self._disk.directory_failed(directory, error)

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
