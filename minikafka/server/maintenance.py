"""The chores of the logs: retention, flushing, checkpoints, expired producers, removal of deleted files; and
followers that lag behind.

Kafka's ``LogManager`` and ``ReplicaManager`` schedule; each is a supervised task of its own. The part that
decides runs on the loop, where the logs live; the part that waits for the disk runs on the disk thread; and
only after that has succeeded is the outcome noted on the loop (the recovery point rises).

What failed on the disk is in ``disk_writer``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from minikafka.files import Files
from minikafka.server.disk_chores import DiskChores
from minikafka.server.disk_writer import PIECES_PER_HOP, DiskWriter
from minikafka.server.services import Services
from minikafka.server.supervisor import Restart
from minikafka.server.turns import Turns

if TYPE_CHECKING:
    from minikafka.log.retention import DeletedFiles


SLEEP_MS_MAX = 24 * 60 * 60 * 1000
"""An interval of "never" (2^63-1 ms, Kafka's default of the flush scheduler) is slept in days."""

REMOVAL_INTERVAL_MS = 1000
"""How often files whose delay has passed are looked for; the delay itself is ``file.delete.delay.ms``."""


class Maintenance:
    """Owns the chores. ``start`` hands them to the supervisor, which also ends them."""

    def __init__(self, services: Services, chores: DiskChores) -> None:
        self._services = services
        self._chores = chores
        self._disk = DiskWriter(services)
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

    def remove_later(self, deleted: Iterable[DeletedFiles], *, delay_ms: int) -> None:
        """Remove these files when ``delay_ms`` have passed."""
        due_ms = self._services.clock.monotonic_ms() + delay_ms
        self._deleted += [(due_ms, each) for each in deleted]

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
            for directory, failure in noted.failures.items():
                self._disk.directory_failed(directory, failure)
            # Before the flushes: it includes a new log's first epoch, which then is none of theirs.
            while work := self._services.log_manager.take_disk_work(new_logs_max=PIECES_PER_HOP):
                await self._disk.run(work)
            await self._disk.flush(noted.closed, closed_only=True)
            await self._disk.flush(noted.flushes)
            for done in noted.waiting:
                if not done.done():  # nobody waits any more
                    done.set_result(None)
            for directory, error in self._services.log_manager.take_failures().items():
                self._disk.directory_failed(directory, error)

    # What the clock brings

    async def _clean_up(self) -> None:
        log_manager = self._services.log_manager
        turns = Turns()
        for log in list(log_manager.all_logs()):
            cleanup = log_manager.cleanup([log])
            for directory, error in cleanup.failed.items():
                self._disk.directory_failed(directory, error)
            self.remove_later(cleanup.deleted, delay_ms=log.config.file_delete_delay_ms)
            await turns.give_way()

    async def _remove_files(self) -> None:
        now_ms = self._services.clock.monotonic_ms()
        due = [deleted for due_ms, deleted in self._deleted if due_ms <= now_ms]
        self._deleted = [(due_ms, deleted) for due_ms, deleted in self._deleted if due_ms > now_ms]
        if due:
            await self._services.log_io.run(partial(_remove, due, self._services.files))
        await self._disk.run(self._services.log_manager.take_removals())

    async def _flush_due(self) -> None:
        await self._disk.flush(self._services.log_manager.logs_to_flush())

    async def _checkpoint_recovery_points(self) -> None:
        await self._disk.run(self._services.log_manager.prepare_recovery_point_checkpoints())

    async def _checkpoint_log_start_offsets(self) -> None:
        await self._disk.run(self._services.log_manager.prepare_log_start_offset_checkpoints())

    async def _checkpoint_high_watermarks(self) -> None:
        await self._disk.run(self._services.log_manager.prepare_high_watermark_checkpoints())

    async def _expire_producers(self) -> None:
        turns = Turns()
        for log in list(self._services.log_manager.logs.values()):
            log.remove_expired_producers()
            await turns.give_way()


def _remove(deleted: Iterable[DeletedFiles], files: Files) -> None:
    for segment in deleted:
        segment.remove(files)
