"""Loads the logs of one log directory, and knows what else may be in there.

Kafka: ``LogManager.loadLogs`` and ``loadLog``. Directories that wait for their removal are only named, not
loaded; so are ``-future`` ones, for what they are is known when all log directories were seen
(``log_directories``); ``-stray`` ones are left alone. A damaged checkpoint costs a full recovery, nothing
more."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.deferred import deferred
from minikafka.errors import StartError
from minikafka.files import Files, is_disk_failure
from minikafka.log.files.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpoint,
    read_offsets,
    read_partition_metadata,
    take_clean_shutdown_marker,
)
from minikafka.log.files.names import (
    CLUSTER_METADATA,
    NOT_PARTITIONS,
    DirectoryKind,
    ParsedName,
    parse_directory_name,
    stray_directory_name,
)
from minikafka.log.files.open_files import OpenFiles
from minikafka.log.manager.log_directories import FoundLog, RandomBits, random_uuid
from minikafka.types import Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.log import unified_log
    from minikafka.log.unified_log import UnifiedLog
else:
    unified_log = deferred("minikafka.log.unified_log")

IsStray = Callable[[TopicPartition, UUID | None], bool]
"""Whether a log that was found does not belong to this broker (any more)."""


_log = logging.getLogger(__name__)


class LogDirectoryLoader:
    """Opens logs, with all that they need."""

    def __init__(
        self,
        *,
        files: Files,
        clock: Clock,
        rng: RandomBits,
        topic_config: Callable[[str], TopicConfig],
        producer_id_expiration_ms: int,
        verifies_transactions: bool,
        open_files: OpenFiles | None = None,
    ) -> None:
        self._files = files
        self._clock = clock
        self._rng = rng
        self._topic_config = topic_config
        self.producer_id_expiration_ms = producer_id_expiration_ms  # of logs that are opened from now on
        self.verifies_transactions = verifies_transactions
        self._deleted: list[str] = []
        self._futures: list[FoundLog] = []
        self._unopened: list[TopicPartition] = []
        self.all_clean = True
        """Whether each directory loaded so far had the marker of a clean stop."""
        # One limit on descriptors for all logs.
        self._open_files = OpenFiles() if open_files is None else open_files

    def open(
        self,
        directory: str,
        topic_partition: TopicPartition,
        *,
        topic_id: UUID | None,
        clean_shutdown: bool,
        was_compacted: bool = False,
        log_start_offset: int = 0,
        recovery_point: int = 0,
    ) -> UnifiedLog:
        """Open or create the log in ``directory``. Raises OSError."""
        log = unified_log.UnifiedLog.load(
            directory,
            topic_partition,
            config=self._topic_config(topic_partition.topic),
            files=self._files,
            clock=self._clock,
            log_start_offset=Offset(log_start_offset),
            recovery_point=Offset(recovery_point),
            clean_shutdown=clean_shutdown,
            was_compacted=was_compacted,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            topic_id=topic_id,
            open_files=self._open_files,
        )
        log.producers.verifies_transactions = self.verifies_transactions
        return log

    def load(self, log_directory: str, is_stray: IsStray) -> Iterator[UnifiedLog]:
        """The current logs in ``log_directory``, each loaded when asked for.

        Raises:
            StartError: something in it is no partition's.
            OSError: the disk's; the directory must go offline.
        """
        was_clean = take_clean_shutdown_marker(self._files, log_directory)
        self.all_clean = self.all_clean and was_clean
        recovery_points = self._read_checkpoint(log_directory, RECOVERY_POINT_CHECKPOINT)
        log_start_offsets = self._read_checkpoint(log_directory, LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = self._read_checkpoint(log_directory, REPLICATION_OFFSET_CHECKPOINT)
        first_dirty_offsets = self._read_checkpoint(log_directory, CLEANER_OFFSET_CHECKPOINT)
        started_ms = self._clock.monotonic_ms()
        count = 0
        for name in self._files.list(log_directory):
            path = os.path.join(log_directory, name)
            if name.startswith(".") or name in NOT_PARTITIONS or not self._files.is_directory(path):
                continue
            parsed = self._log_to_load(path, name)
            if parsed is None:
                continue
            topic_partition = parsed.topic_partition
            topic_id = self._read_topic_id(path)
            if is_stray(topic_partition, topic_id):
                self.set_aside(path, topic_partition, "does not belong to this broker")
                continue
            found = FoundLog(
                path,
                topic_partition,
                parsed.unique,
                topic_id,
                was_clean,
                log_start_offset=log_start_offsets.get(topic_partition, 0),
                recovery_point=recovery_points.get(topic_partition, 0),
                high_watermark=high_watermarks.get(topic_partition, 0),
                first_dirty_offset=first_dirty_offsets.get(topic_partition),
            )
            if parsed.kind is DirectoryKind.FUTURE:
                self._futures.append(found)
                continue
            try:
                log = self.open_found(found)
            except OSError as error:
                if is_disk_failure(error):
                    raise
                _log.error("%s cannot be opened, and is offline until the next start: %s", path, error)
                self._unopened.append(topic_partition)
                continue
            yield log
            count += 1
        duration_ms = self._clock.monotonic_ms() - started_ms
        note = "" if was_clean or not count else ", recovering: the last shutdown was not clean"
        _log.info("loaded %d logs from %s in %d ms%s", count, log_directory, duration_ms, note)

    def open_found(self, found: FoundLog, *, directory: str | None = None) -> UnifiedLog:
        """Load a log that was found; in ``directory`` if it was renamed since. Raises OSError."""
        log = self.open(
            directory or found.directory,
            found.topic_partition,
            topic_id=found.topic_id,
            clean_shutdown=found.was_clean,
            was_compacted=found.first_dirty_offset is not None,
            log_start_offset=found.log_start_offset,
            recovery_point=found.recovery_point,
        )
        high_watermark = max(found.high_watermark, log.log_start_offset)
        log.first_dirty_offset = found.first_dirty_offset
        log.update_high_watermark(Offset(min(high_watermark, log.log_end_offset)))
        return log

    def take_deleted(self) -> list[str]:
        """The directories that ``load`` found waiting for their removal."""
        deleted, self._deleted = self._deleted, []
        return deleted

    def take_unopened(self) -> list[TopicPartition]:
        """The partitions whose logs ``load`` could not open, in a directory whose disk has not failed."""
        unopened, self._unopened = self._unopened, []
        return unopened

    def take_futures(self) -> list[FoundLog]:
        """The half-moved replicas that ``load`` found."""
        futures, self._futures = self._futures, []
        return futures

    def set_aside(self, path: str, topic_partition: TopicPartition, reason: str) -> None:
        """Rename a directory to ``-stray``: it is kept and not used. Raises OSError."""
        target = self.stray_path(path, topic_partition)
        self._files.rename(path, target)
        log_stray(path, target, reason)

    def stray_path(self, path: str, topic_partition: TopicPartition) -> str:
        """What to call the directory ``path`` when it is set aside."""
        unique = random_uuid(self._rng).hex
        return os.path.join(os.path.dirname(path), stray_directory_name(topic_partition, unique))

    def _log_to_load(self, path: str, name: str) -> ParsedName | None:
        """What the name of a log's directory says; None for a directory with another purpose."""
        parsed = parse_directory_name(name)
        if parsed is None:
            raise StartError(
                f"{path} is not named as a partition's directory is (topic-partition): a log directory may "
                f"only hold Kafka's data; move it away or correct log.dirs"
            )
        if parsed.topic_partition.topic == CLUSTER_METADATA.topic:
            return None
        match parsed.kind:
            case DirectoryKind.CURRENT | DirectoryKind.FUTURE:
                return parsed
            case DirectoryKind.DELETE:
                self._deleted.append(path)
            case DirectoryKind.STRAY:
                _log.warning("%s belongs to no topic of this broker; remove it when you do not need it", path)
        return None

    def _read_checkpoint(self, log_directory: str, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._files, os.path.join(log_directory, name))
        except CorruptCheckpoint as error:
            _log.warning("%s; continuing without it", error)
            return {}

    def _read_topic_id(self, path: str) -> UUID | None:
        try:
            return read_partition_metadata(self._files, path)
        except CorruptCheckpoint as error:
            _log.warning("%s; the topic id is not known until the partition is assigned again", error)
            return None


def log_stray(path: str, target: str, reason: str) -> None:
    """Say that a directory was set aside, and what to do."""
    _log.warning(
        "%s %s and is renamed to %s; nothing of it is removed: when you do not need it, remove it yourself",
        path,
        reason,
        target,
    )
