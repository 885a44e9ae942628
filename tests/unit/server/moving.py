"""Replicas of a broker with several log directories, and its mover; the disk thread answers at once.

With a ``SimulatedDisk`` the process may be killed, or the machine lose power, at every operation of the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from minikafka.config.broker import broker_config
from minikafka.config.topic import TopicConfig
from minikafka.files import Files
from minikafka.log.segment.fetch_data import ColdRead, FetchIsolation
from minikafka.log.unified_log import UnifiedLog
from minikafka.metrics.request_metrics import KafkaTimer
from minikafka.metrics.sensors import WindowConfig
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.server.services import Services
from minikafka.server.storage.alter_log_dirs import ReplicaAlterLogDirs
from minikafka.server.storage.maintenance import DiskWriter
from minikafka.types import TopicPartition
from tests.unit.server.replicas import TP, Replicas

T = TypeVar("T")

PIECE_BYTES = 1000
"""``replica.fetch.max.bytes`` of these tests: a few batches."""

STEPS_MAX = 100_000


class DirectLogIo:
    """The disk threads, as fast as thought."""

    def __init__(self) -> None:
        self.warmed_ranges: list[ColdRead] = []

    async def run(self, work: Callable[[], T], *, log_directory: str | None = None) -> T:
        return work()

    async def warmed(self, range_: ColdRead) -> ColdRead:
        range_.fetch()
        self.warmed_ranges.append(range_)
        return range_


WINDOWS = WindowConfig(11, 1000)


class Moving:
    """Broker 1, alone, with the log directories A, B and C."""

    def __init__(
        self,
        root: Path | str,
        *,
        files: Files | None = None,
        config: TopicConfig | None = None,
        quota: ReplicationQuotaManager | None = None,
    ) -> None:
        self.root = str(root)
        first, *others = (Path(self.path(name)) for name in "abc")
        self.replicas = Replicas(
            first,
            config or TopicConfig(segment_bytes=4000, segment_index_bytes=400),
            others=others,
            files=files,
        )
        self.manager = self.replicas.manager
        self.log_manager = self.replicas.log_manager
        self.log_io = DirectLogIo()
        self.failed: list[str] = []
        self.services = cast(
            Services,
            SimpleNamespace(
                config=broker_config(
                    {"log.dirs": self.path("a"), "replica.fetch.max.bytes": str(PIECE_BYTES)}
                ),
                clock=self.replicas.clock,
                files=self.log_manager._files,
                log_manager=self.log_manager,
                log_io=self.log_io,
                replica_manager=self.manager,
                log_directory_failed=lambda: None,
                log_flushes=KafkaTimer(),
                supervisor=SimpleNamespace(fail=self.failed.append),
            ),
        )
        self.disk_writer = DiskWriter(self.services)
        self.mover = ReplicaAlterLogDirs(
            self.services, self.replicas.disk_work, quota=quota or ReplicationQuotaManager(WINDOWS)
        )

    def close(self) -> None:
        for log in self.log_manager.future_logs.values():
            log.validate()
        self.replicas.close()

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    # The replica

    def lead(self, at: TopicPartition = TP, *, directory: str = "a", **fields: Any) -> UnifiedLog:
        """Made in this directory, if it is new."""
        if at not in self.log_manager.logs:
            self.log_manager.prefer_directory(at, self.path(directory))
        return self.replicas.lead(at, isr=(1,), replicas=(1,), **fields).log

    def log(self, at: TopicPartition = TP) -> UnifiedLog:
        return self.replicas.partition(at).log

    def place(self, at: TopicPartition = TP) -> str:
        """The name of the log directory that the current log is in."""
        return self.log_manager.directory_of(self.log(at)).rpartition("/")[2]

    def move(self, to: str, at: TopicPartition = TP) -> None:
        self.manager.alter_log_dir(at, self.path(to))

    def flush(self, at: TopicPartition = TP) -> None:
        flush = self.log(at).begin_flush()
        if flush is not None:
            flush.run()
            self.log(at).complete_flush(flush)

    # What happens

    def run(self, *, each_step: Callable[[], object] = lambda: None, with_disk_work: bool = False) -> None:
        """Let the mover work until it waits; ``each_step`` is called whenever it gives way, and the
        pending disk work is done."""
        disk_work = self.replicas.disk_work
        disk_work.moves = asyncio.Event()  # each run is a loop of its own
        disk_work._wake, was_set = asyncio.Event(), disk_work._wake.is_set()
        if was_set:
            disk_work.logs_changed()
        asyncio.run(self._run(each_step, with_disk_work))

    async def _run(self, each_step: Callable[[], object], with_disk_work: bool) -> None:
        task = asyncio.create_task(self.mover.run())
        try:
            for _ in range(STEPS_MAX):
                await asyncio.sleep(0)
                if task.done():
                    await task
                if self.is_idle:
                    return
                each_step()
                if with_disk_work:
                    await self._disk_work()
            raise AssertionError(f"the mover does not end: {self.log_manager}")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def is_idle(self) -> bool:
        return self.mover._next() is None and not self.log_manager.replacements

    def do_disk_work(self) -> None:
        """What ``Maintenance`` does after a request."""
        asyncio.run(self._disk_work())

    async def _disk_work(self) -> None:
        disk_work = self.replicas.disk_work
        if disk_work._wake.is_set():  # nothing is waited for
            batch = await disk_work.wait()
            for directory, reason in batch.failures.items():
                self.disk_writer.directory_failed(directory, reason)
            await self.disk_writer.run(self.log_manager.take_disk_work())
            await self.disk_writer.flush(batch.closed, closed_only=True)
            await self.disk_writer.flush(batch.flushes)


def records_of(log: UnifiedLog) -> bytes:
    """All batches from the log start on."""
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(
            offset, max_bytes=1, min_one_message=True, isolation=FetchIsolation.LOG_END, cached_only=False
        )
        if not data.records:
            break
        found += bytes(data.records)
        base = int.from_bytes(bytes(data.records[:8]), "big")
        offset = type(offset)(base + int.from_bytes(bytes(data.records[23:27]), "big") + 1)
    return found
