"""All logs of a broker, in all its log directories: loading, creating, deleting, checkpoints, shutdown.

Kafka's class: ``LogManager``. New logs go to the directory with the fewest; nothing is moved later.

Blocking: the constructor, ``load`` and ``shutdown`` wait for the disk; they run before the loop serves and
after it has stopped. Everything else only renames and writes into the page cache. What has to wait for the
disk comes back as ``DiskWork``, to be run on the disk thread in the order in which it came:
``take_disk_work`` after logs were created or deleted, the ``prepare_…_checkpoints`` in their intervals.

Invariants
- The clean-shutdown marker is gone before the first log is loaded and back only after everything was flushed.
- A checkpoint never says more than was true when it was prepared: recovery points only rise after an fsync.
- After a deletion or truncation the directory's checkpoints are rewritten: a new topic of the same name does
  not start from the old one's offsets, and what replaces truncated records is recovered.
- A directory fails alone: ``take_offline`` drops and names its logs. The first sign of failure is an OSError
  from here, from a log or from a piece of disk work; ``directory_of`` says whose it is.

Different from Kafka
- A partition's new directory is made durable by the disk thread right after it was made, not at a flush.
- A directory that waits for its removal is not loaded before it is removed.
- ``-future`` directories (KIP-113) are left alone, hidden ones passed over; others that are no partition fail
  the start, as there.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.topic import DAY_MS, TopicConfig
from minikafka.errors import ErrorCode, KafkaError, StartError
from minikafka.files import Files
from minikafka.log.checkpoint import PARTITION_METADATA, CheckpointWrite, encode_partition_metadata
from minikafka.log.directory_names import delete_directory_name
from minikafka.log.disk_work import DirectoryRemoval, DiskWork, NewLogSync, discard
from minikafka.log.log_directories import LogDirectories, RandomBits, random_uuid
from minikafka.log.log_directory_loader import IsStray, LogDirectoryLoader
from minikafka.log.log_segments import OpenSegments
from minikafka.log.log_shutdown import (
    close_failed,
    high_watermark_checkpoint,
    log_start_offset_checkpoint,
    recovery_point_checkpoint,
    shut_down,
)
from minikafka.log.retention import DeletedFiles
from minikafka.log.unified_log import UnifiedLog
from minikafka.types import TopicPartition

_log = logging.getLogger(__name__)


class Cleanup(NamedTuple):
    """What retention did: files to remove later, and the directories that failed."""

    deleted: list[DeletedFiles]
    failed: dict[str, OSError]


class LogManager:
    """The logs of one broker. Single-threaded, like the logs.

    Raises:
        StartError: from the constructor, see ``LogDirectories``; from ``load``, see there.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        *,
        default_config: TopicConfig,
        topic_config: Callable[[str], TopicConfig],
        files: Files,
        clock: Clock,
        rng: RandomBits,
        cluster_id: str,
        broker_id: int,
        producer_id_expiration_ms: int = DAY_MS,
        open_segments: OpenSegments | None = None,
    ) -> None:
        self.default_config = default_config
        self.directories = LogDirectories(
            log_dirs, files=files, rng=rng, cluster_id=cluster_id, node_id=broker_id
        )
        self._loader = LogDirectoryLoader(
            files=files,
            clock=clock,
            rng=rng,
            topic_config=topic_config,
            producer_id_expiration_ms=producer_id_expiration_ms,
            open_segments=open_segments,
        )
        self._files = files
        self._clock = clock
        self._rng = rng
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._offline_partitions: set[TopicPartition] = set()
        self._removals: list[DirectoryRemoval] = []
        self._new_logs: list[UnifiedLog] = []
        self._log_counts = dict.fromkeys(self.directories.configured, 0)
        self._stale_checkpoints: set[str] = set()
        self._loaded: set[str] = set()  # directories whose logs are all here
        self._failing: dict[str, OSError] = {}

    def __repr__(self) -> str:
        return f"LogManager(logs={len(self._logs)}, {self.directories})"

    # Looking

    @property
    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """A live, read-only view of all logs."""
        return MappingProxyType(self._logs)

    @property
    def live_directories(self) -> tuple[str, ...]:
        return self.directories.live

    @property
    def offline_directories(self) -> Mapping[str, str]:
        """Why a directory is offline, by directory."""
        return self.directories.offline

    @property
    def was_clean(self) -> bool:
        """Whether every directory was left by a clean stop; an empty or an offline one was not."""
        return self._loader.all_clean and not self.offline_directories

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        return self._logs.get(topic_partition)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether its log was in a directory that has failed since."""
        return topic_partition in self._offline_partitions

    def directory_of(self, log: UnifiedLog) -> str:
        return os.path.dirname(log.directory)

    def logs_in(self, log_directory: str) -> Iterator[UnifiedLog]:
        return (log for log in self._logs.values() if self.directory_of(log) == log_directory)

    # Loading

    def load(self, *, is_stray: IsStray = lambda topic_partition, topic_id: False) -> None:
        """Load every log there is, recovering where the last shutdown was not clean. Blocks.

        Raises:
            StartError: a partition is in two directories, something in a log directory is no partition's, or
                no directory could be loaded.
        """
        try:
            for directory in self.live_directories:
                self._load_directory(directory, is_stray)
            if not self.live_directories:
                raise StartError(f"no log directory could be loaded ({dict(self.offline_directories)})")
        except BaseException:
            for log in self._logs.values():
                close_failed(log, "the broker did not start")
            self.directories.release()
            raise

    def _load_directory(self, directory: str, is_stray: IsStray) -> None:
        try:
            for log in self._loader.load(directory, is_stray):
                other = self._logs.get(log.topic_partition)
                if other is not None:
                    close_failed(log, "the broker does not start")
                    raise StartError(
                        f"{log.topic_partition} is in {other.directory} and in {log.directory}: a disk "
                        f"failed while the replica was moved; delete the one on the disk that failed"
                    )
                self._add(log)
        except OSError as error:
            self.take_offline(directory, f"cannot load: {error}")
            self._loader.take_deleted()
        else:
            self._loaded.add(directory)
            for path in self._loader.take_deleted():
                self._remove_later(path)

    # Creating and deleting

    def get_or_create(
        self, topic_partition: TopicPartition, *, topic_id: UUID | None = None, is_new: bool = False
    ) -> UnifiedLog:
        """The partition's log; made when there is none, in the directory with the fewest.

        Args:
            is_new: the partition was just created, so its log cannot be in an offline directory.

        Raises:
            KafkaError: INCONSISTENT_TOPIC_ID: the log is that of an earlier topic of this name.
                KAFKA_STORAGE_ERROR: no directory could take it, or its log may be in an offline directory.
                Directories that failed on the way are named by ``take_failures``.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            return self._create(topic_partition, topic_id, is_new=is_new)
        if topic_id is not None and log.topic_id != topic_id:
            if log.topic_id is not None:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{log.directory} has topic id {log.topic_id}, not {topic_id}",
                )
            self._write_topic_id(log.directory, topic_id)
            log.topic_id = topic_id
        return log

    def _create(self, topic_partition: TopicPartition, topic_id: UUID | None, *, is_new: bool) -> UnifiedLog:
        if not is_new and self.offline_directories:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic_partition} may be in an offline log directory ({list(self.offline_directories)})",
            )
        for log_directory in self._fewest_logs_first():
            directory = os.path.join(log_directory, str(topic_partition))
            try:
                self._files.make_directory(directory)
                if topic_id is not None:
                    self._write_topic_id(directory, topic_id)
                log = self._loader.open(directory, topic_partition, topic_id=topic_id, clean_shutdown=True)
            except OSError as error:
                _log.error("cannot create %s: %s", directory, error)
                self._failing[log_directory] = error
                discard(self._files, directory)
                continue
            self._add(log)
            self._new_logs.append(log)
            _log.info("created log %s", directory)
            return log
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory can take {topic_partition}")

    def delete(self, topic_partition: TopicPartition) -> DirectoryRemoval | None:
        """Close the log, if there is one, and rename its directory to ``…-delete``; ``take_removals`` hands
        it out later.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: there is no log here, but it may be in an offline directory.
            OSError: the directory could not be renamed; the log is closed and gone from here.
        """
        log = self._logs.pop(topic_partition, None)
        if log is None:
            if topic_partition in self._offline_partitions:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is in an offline log directory"
                )
            return None
        log_directory = self.directory_of(log)
        self._log_counts[log_directory] -= 1
        path = log.directory
        name = delete_directory_name(topic_partition, random_uuid(self._rng).hex)
        target = os.path.join(log_directory, name)
        log.rename_for_deletion(target)
        self._stale_checkpoints.add(log_directory)
        _log.info("deleted log %s; its files go later (%s)", path, target)
        return self._remove_later(target)

    # Chores

    def note_truncation(self, log: UnifiedLog) -> None:
        """``log`` lost records that the checkpoints may count on."""
        self._stale_checkpoints.add(self.directory_of(log))

    def take_disk_work(self, *, new_logs_max: int | None = None) -> list[DiskWork]:
        """Syncs of new directories (at most ``new_logs_max`` now), and checkpoints to be corrected."""
        waiting = [log for log in self._new_logs if log.is_open]  # the others are deleted again
        count = len(waiting) if new_logs_max is None else new_logs_max
        self._new_logs = waiting[count:]
        work: list[DiskWork] = [self._sync_of(log) for log in waiting[:count]]
        for directory in self.live_directories:
            if directory in self._stale_checkpoints:
                logs = list(self.logs_in(directory))
                for checkpoint in (recovery_point_checkpoint, log_start_offset_checkpoint):
                    work.append(checkpoint(directory, logs, self._files))
        self._stale_checkpoints.clear()
        return work

    def prepare_recovery_point_checkpoints(self) -> list[DiskWork]:
        """The recovery points of all live directories as they are now."""
        return self._checkpoints(recovery_point_checkpoint)

    def prepare_log_start_offset_checkpoints(self) -> list[DiskWork]:
        """The log starts of all live directories, where records were deleted inside of a segment."""
        return self._checkpoints(log_start_offset_checkpoint)

    def prepare_high_watermark_checkpoints(self) -> list[DiskWork]:
        """The high watermarks of all live directories as they are now."""
        return self._checkpoints(high_watermark_checkpoint)

    def take_removals(self) -> list[DirectoryRemoval]:
        """The deleted logs whose ``file.delete.delay.ms`` has passed."""
        now_ms = self._clock.now_ms()
        due = [removal for removal in self._removals if removal.due_ms <= now_ms]
        self._removals = [removal for removal in self._removals if removal.due_ms > now_ms]
        return due

    def take_failures(self) -> dict[str, OSError]:
        """The directories that failed in ``get_or_create`` since the last call; ``take_offline`` them."""
        failing, self._failing = self._failing, {}
        return failing

    def cleanup(self, logs: Iterable[UnifiedLog] | None = None) -> Cleanup:
        """Retention: let each of ``logs`` (all) that is not compacted drop its old segments."""
        deleted: list[DeletedFiles] = []
        failed: dict[str, OSError] = {}
        for log in list(self._logs.values() if logs is None else logs):
            directory = self.directory_of(log)
            if log.config.compact or directory in failed or self._logs.get(log.topic_partition) is not log:
                continue
            try:
                deleted += log.delete_old_segments()
            except OSError as error:
                failed[directory] = error
            except KafkaError as error:  # the log is fenced: its disk failed, now or before
                failed[directory] = OSError(errno.EIO, str(error), log.directory)
        return Cleanup(deleted, failed)

    def logs_to_flush(self) -> list[UnifiedLog]:
        """The logs of which ``flush.ms`` or ``flush.messages`` wants a flush; begin one of each."""
        return [log for log in self._logs.values() if log.is_open and log.flush_is_due]

    def reconfigure(self, *, default_config: TopicConfig, producer_id_expiration_ms: int) -> None:
        """The broker's configuration changed; the configurations of topics go to their logs directly."""
        self.default_config = default_config
        self._loader.producer_id_expiration_ms = producer_id_expiration_ms
        for log in self._logs.values():
            log.producers.producer_id_expiration_ms = producer_id_expiration_ms

    # Failing and stopping

    def take_offline(self, log_directory: str, reason: str = "disk failure") -> list[TopicPartition]:
        """Stop using a directory: its logs are closed and dropped, its lock is let go. Idempotent. Returns
        the partitions that were in it. When no ``live_directories`` are left, the broker cannot go on."""
        lost = [log.topic_partition for log in self.logs_in(log_directory)]
        for topic_partition in lost:
            close_failed(self._logs.pop(topic_partition), reason)
        self._offline_partitions.update(lost)
        self._removals = [removal for removal in self._removals if removal.log_directory != log_directory]
        self._new_logs = [log for log in self._new_logs if self.directory_of(log) != log_directory]
        self._log_counts[log_directory] = 0
        self._stale_checkpoints.discard(log_directory)
        self._loaded.discard(log_directory)
        self.directories.take_offline(log_directory, reason)
        if lost:
            _log.error("%d partitions are offline with %s: %s", len(lost), log_directory, reason)
        return lost

    def shutdown(self) -> None:
        """Flush and close all logs, write the checkpoints, and the clean-shutdown markers last. Blocks.

        No disk work may be under way. A directory that fails gets no marker, so the next start recovers it.
        """
        try:
            for directory in self.live_directories:
                shut_down(
                    directory,
                    list(self.logs_in(directory)),
                    [self._sync_of(log) for log in self._new_logs if self.directory_of(log) == directory],
                    files=self._files,
                    is_complete=directory in self._loaded,
                )
        finally:
            self._logs.clear()
            self.directories.release()

    # Inside

    def _add(self, log: UnifiedLog) -> None:
        self._logs[log.topic_partition] = log
        self._log_counts[self.directory_of(log)] += 1
        self._offline_partitions.discard(log.topic_partition)

    def _checkpoints(
        self, checkpoint: Callable[[str, Sequence[UnifiedLog], Files], CheckpointWrite]
    ) -> list[DiskWork]:
        return [
            checkpoint(directory, list(self.logs_in(directory)), self._files)
            for directory in self.live_directories
        ]

    def _remove_later(self, path: str) -> DirectoryRemoval:
        due_ms = self._clock.now_ms() + self.default_config.file_delete_delay_ms
        removal = DirectoryRemoval(self._files, path, due_ms)
        self._removals.append(removal)
        return removal

    def _fewest_logs_first(self) -> list[str]:
        return sorted(self.live_directories, key=self._log_counts.__getitem__)

    def _sync_of(self, log: UnifiedLog) -> NewLogSync:
        return NewLogSync(self._files, log.directory, tuple(log.take_unsynced_paths()))

    def _write_topic_id(self, directory: str, topic_id: UUID) -> None:
        self._files.replace(os.path.join(directory, PARTITION_METADATA), encode_partition_metadata(topic_id))
