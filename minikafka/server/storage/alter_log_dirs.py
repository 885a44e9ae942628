"""Moves replicas between the log directories of this broker: copies what the current log has into the future
one, until that can take its place (KIP-113).

Kafka: ``ReplicaAlterLogDirsManager``, ``ReplicaAlterLogDirsThread``. One partition moves at a time, in the
order of their names, so that each is done as soon as it can be; Kafka has as many threads as log directories,
and each of them does so.

A turn of a move is one step of the loop: the future log is cut to what both have in common, a piece is copied
(at most ``replica.fetch.max.bytes``), high watermark and log start follow. So the current log may be
appended, truncated, or emptied between two turns, by clients, a leader or the retention, and none of them
need know of the move. What is cold is read by a disk thread first. After ``FLUSH_BYTES`` the copy waits for
the disk: more unwritten pages would make the kernel hold up every append of the broker.

When the future log has all, it is flushed, catches up once more, and takes the place of the current one
(``LogManager``); from then on it holds everything that the current log had, as durably.

=======================================  ====================================================
the copy cannot be written               the target directory goes offline; the move is over
the replica cannot be read               its directory goes offline, and the replica with it
damaged records, or any that the log     this move stops, and the future log stays until it is
does not take                            cancelled or asked for elsewhere; others go on
the quota is exceeded                    nothing is copied until it is not
the broker stops, or dies                the move continues after the start
=======================================  ====================================================
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.log_directories import DirectorySync
from minikafka.log.log_manager import Replacement
from minikafka.server.replica.pending_disk_work import PendingDiskWork
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.server.runtime.event_loop import Restart
from minikafka.server.services import Services
from minikafka.server.storage.maintenance import DiskWriter
from minikafka.types import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from minikafka.log.segment import fetch_data
    from minikafka.log.unified_log import UnifiedLog
    from minikafka.protocol.records import batch
    from minikafka.replication import fetch_state
    from minikafka.server.replica.partition import Partition
else:
    fetch_data = deferred("minikafka.log.segment.fetch_data")
    batch = deferred("minikafka.protocol.records.batch")
    fetch_state = deferred("minikafka.replication.fetch_state")

logger = logging.getLogger(__name__)

FLUSH_BYTES = 32 * 1024 * 1024
"""Copied between two flushes: a fifth of a second of a disk that writes 150 MB/s."""

QUOTA_PAUSE_MS = 100
"""How often an exceeded quota is looked at: its windows are a second long."""


class ReplicaAlterLogDirs:
    """The mover of a broker. ``start`` hands it to the supervisor, which also ends it."""

    def __init__(
        self, services: Services, disk_work: PendingDiskWork, *, quota: ReplicationQuotaManager
    ) -> None:
        self._services = services
        self._disk_work = disk_work
        self._quota = quota
        self._disk = DiskWriter(services)
        self._failed: dict[TopicPartition, UnifiedLog] = {}

    def __repr__(self) -> str:
        return f"ReplicaAlterLogDirs(failed={[str(at) for at in self._failed]})"

    def start(self) -> None:
        self._services.supervisor.start("alter-log-dirs", self.run, restart=Restart.ALWAYS)

    async def run(self) -> None:
        """Move whatever is to be moved, for ever. May be cancelled anywhere and run again."""
        log_manager = self._services.log_manager
        while True:
            self._disk_work.moves.clear()
            for replacement in log_manager.replacements:
                await self._finish(replacement)
            partition = self._next()
            if partition is None:
                await self._disk_work.moves.wait()
            else:
                await self._move(partition)

    def _next(self) -> Partition | None:
        """The first hosted partition with a future log that has not failed."""
        futures = self._services.log_manager.future_logs
        self._failed = {at: log for at, log in self._failed.items() if futures.get(at) is log}
        partitions = self._services.replica_manager.partitions
        waiting = [at for at in futures if at in partitions and at not in self._failed]
        return partitions[min(waiting)] if waiting else None

    async def _move(self, partition: Partition) -> None:
        """Copy one partition until its replica has moved, or the move is over."""
        at, current = partition.topic_partition, partition.log
        future = self._services.log_manager.future_logs[at]
        logger.info(
            "moving %s to %s: %d of %d offsets are there",
            at,
            self._services.log_manager.directory_of(future),
            future.log_end_offset - current.log_start_offset,
            current.log_end_offset - current.log_start_offset,
        )
        unflushed_bytes, is_flushed = 0, False
        brought: fetch_data.ColdRead | None = None
        while self._is_under_way(partition, future):
            if self._quota.is_quota_exceeded(self._now_ms()):
                await asyncio.sleep(QUOTA_PAUSE_MS / 1000)
                continue
            try:
                size_bytes = self._turn(partition, future, brought)
            except fetch_data.ColdRead as cold:
                brought = await self._services.log_io.warmed(cold)
                continue
            except KafkaError as error:
                self._failed[at] = future
                logger.error("the move of %s stops: %s", at, error)
                return
            brought = None
            if size_bytes:
                self._quota.record(size_bytes, self._now_ms())
            unflushed_bytes += size_bytes
            has_all = future.log_end_offset == partition.log.log_end_offset
            if has_all and is_flushed and future.recovery_point >= partition.log.recovery_point:
                await self._replace(partition)
                return
            if has_all or unflushed_bytes >= FLUSH_BYTES:
                await self._disk.flush([future])
                unflushed_bytes, is_flushed = 0, has_all
            else:
                await asyncio.sleep(0)

    def _is_under_way(self, partition: Partition, future: UnifiedLog) -> bool:
        services, at = self._services, partition.topic_partition
        return (
            services.replica_manager.partitions.get(at) is partition
            and services.log_manager.future_logs.get(at) is future
            and future.is_open
        )

    # One turn

    def _turn(
        self, partition: Partition, future: UnifiedLog, brought: fetch_data.ColdRead | None = None
    ) -> int:
        """One step, see the header. Returns how many bytes were copied.

        Raises:
            ColdRead: the piece is not in memory; once it is fetched it is ``brought``.
            KafkaError: what is wrong with it. When it is a disk, its directory is looked after.
        """
        current = partition.log
        recovery_point = future.recovery_point
        try:
            cut_to_common_prefix(future, current)
            if future.recovery_point < recovery_point:
                self._services.log_manager.note_truncation(future)
                self._disk_work.logs_changed()
        except KafkaError as error:
            self._note_failure(future, error)
            raise
        try:
            records = self._read(current, future, brought)
        except KafkaError as error:
            self._services.replica_manager.note_failure(partition, error)
            raise
        try:
            return copy(records, future, current)
        except KafkaError as error:
            self._note_failure(future, error)
            raise

    def _read(
        self, current: UnifiedLog, future: UnifiedLog, brought: fetch_data.ColdRead | None
    ) -> bytes | bytearray | memoryview:
        if future.log_end_offset >= current.log_end_offset:
            return b""
        config = self._services.config
        data = current.read(
            future.log_end_offset,
            max_bytes=min(
                config.replica_fetch_max_bytes,
                config.replica_fetch_response_max_bytes,
                future.config.segment_bytes,
            ),
            min_one_message=True,
            isolation=fetch_data.FetchIsolation.LOG_END,
            brought=brought,
        )
        return data.records

    def _note_failure(self, future: UnifiedLog, error: KafkaError) -> None:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._disk_work.directory_failed(self._services.log_manager.directory_of(future), error)

    def _now_ms(self) -> int:
        return self._services.clock.monotonic_ms()

    # The replacement

    async def _replace(self, partition: Partition) -> None:
        """In the same step of the loop as the last turn: nothing was appended since."""
        services, source = self._services, self._services.log_manager.directory_of(partition.log)
        future = services.log_manager.future_logs[partition.topic_partition]
        try:
            replacement = services.replica_manager.replace_with_future_log(partition)
        except KafkaError as error:
            self._note_failure(future, error)
        except OSError as error:
            self._disk.directory_failed(source, error)
        else:
            await self._finish(replacement)

    async def _finish(self, replacement: Replacement) -> None:
        """The steps behind ``begin_replacement``, in their order."""
        services, log_manager = self._services, self._services.log_manager
        await self._disk.run([DirectorySync(services.files, replacement.source)])
        try:
            work = log_manager.rename_replacement(replacement)
        except OSError as error:
            self._disk.directory_failed(log_manager.directory_of(replacement.log), error)
            return
        if work is not None and await self._disk.run([work]):
            return
        log_manager.end_replacement(replacement)


def cut_to_common_prefix(future: UnifiedLog, current: UnifiedLog) -> None:
    """Cut ``future`` so that it holds nothing but what ``current`` has (had) at the same offsets, and can go
    on from its end.

    Records at one offset with one leader epoch are the same (KIP-101); so this also finds what was truncated
    and written again since, or while a broker was down.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR: the future log's disk fails.
    """
    if future.log_end_offset >= current.log_start_offset:
        _cut_to_common_epochs(future, current)
        if future.log_end_offset > current.log_end_offset:
            future.truncate_to(current.log_end_offset)
    if not future.log_start_offset <= current.log_start_offset <= future.log_end_offset:
        # The current log has deleted what comes next, or was restarted below.
        future.truncate_fully_and_start_at(current.log_start_offset)


def _cut_to_common_epochs(future: UnifiedLog, current: UnifiedLog) -> None:
    while future.leader_epoch != NO_EPOCH:
        epoch, end_offset = current.end_offset_for_epoch(future.leader_epoch)
        if epoch == future.leader_epoch and end_offset >= future.log_end_offset:
            return
        cut = fetch_state.truncation_point(
            leader_epoch=epoch,
            leader_end_offset=end_offset,
            log_end_offset=future.log_end_offset,
            high_watermark=future.high_watermark,
            end_offset_for_epoch=future.end_offset_for_epoch,
        )
        future.truncate_to(cut.offset)
        if cut.is_complete:
            return


def copy(records: bytes | bytearray | memoryview, future: UnifiedLog, current: UnifiedLog) -> int:
    """Append what was read at the end of ``future``; its bounds follow. Returns the bytes appended.

    Raises:
        KafkaError: as ``UnifiedLog.append_as_follower``.
    """
    size_bytes = 0
    if records:
        first_offset = batch.read_header(records).base_offset
        if first_offset < future.log_end_offset == future.log_start_offset:
            # The current log starts inside of a batch: begin with the whole of it.
            future.truncate_fully_and_start_at(first_offset)
        info = future.append_as_follower(records)
        size_bytes = 0 if info is None else info.size_bytes
    elif future.log_end_offset < current.log_end_offset:
        future.skip_to(current.log_end_offset)
    future.update_high_watermark(current.high_watermark)
    future.increment_log_start_offset(min(current.log_start_offset, future.high_watermark))
    return size_bytes
