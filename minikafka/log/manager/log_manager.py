"""All logs of a broker, in all its log directories: retention, flushes, checkpoints, shutdown.

Kafka's class: ``LogManager``. Which logs there are is in ``log_registry``, how they come and go in
``log_placement``; here is what time brings.

Blocking: the constructor, ``load`` and ``shutdown`` wait for the disk; they run before the loop serves and
after it has stopped. Everything else only renames and writes into the page cache. What has to wait for the
disk comes back as ``DiskWork``, to be run on the disk thread in the order in which it came:
``take_disk_work`` after logs were created or deleted, the ``prepare_…_checkpoints`` in their intervals.

Invariants
- The clean-shutdown marker is gone before the first log is loaded and back only after everything was flushed.
- A checkpoint never says more than was true when it was prepared: recovery points only rise after an fsync.
- After a deletion, move or truncation the directory's checkpoints are rewritten: a new topic of the same name
  does not start from the old one's offsets, and what replaces truncated records is recovered.
- A directory fails alone: ``take_offline`` drops and names its logs. The first sign of failure is an OSError
  from here, from a log or from a piece of disk work; ``directory_of`` says whose it is.

Different from Kafka
- A partition's new directory is made durable by the disk thread right after it was made, not at a flush.
- A directory that waits for its removal is not loaded before it is removed.
- Hidden directories are passed over; others that are no partition fail the start, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from minikafka.config.topic import TopicConfig
from minikafka.errors import KafkaError
from minikafka.files import Files
from minikafka.log.files.checkpoint import CheckpointWrite
from minikafka.log.manager.disk_work import DirectoryRemoval, DiskWork
from minikafka.log.manager.log_placement import LogPlacement
from minikafka.log.manager.log_shutdown import (
    cleaner_offset_checkpoint,
    high_watermark_checkpoint,
    log_start_offset_checkpoint,
    recovery_point_checkpoint,
    shut_down,
)

if TYPE_CHECKING:
    from minikafka.log.segment.retention import DeletedFiles
    from minikafka.log.unified_log import UnifiedLog


class Cleanup(NamedTuple):
    """What retention did: files to remove later, and the directories that failed."""

    deleted: list[DeletedFiles]
    failed: dict[str, OSError | KafkaError]


class LogManager(LogPlacement):
    """The logs of one broker, and their chores."""

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
                for checkpoint in (
                    recovery_point_checkpoint,
                    log_start_offset_checkpoint,
                    high_watermark_checkpoint,  # or a new partition of a deleted one's name has the old one's
                    cleaner_offset_checkpoint,
                ):
                    work.append(checkpoint(directory, logs, self._files))
        self._stale_checkpoints.clear()
        return work

    def prepare_recovery_point_checkpoints(self, directory: str | None = None) -> list[DiskWork]:
        """The recovery points of a live directory (all) as they are now."""
        return self._checkpoints(recovery_point_checkpoint, directory)

    def prepare_log_start_offset_checkpoints(self, directory: str | None = None) -> list[DiskWork]:
        """The log starts of a live directory (all), where records were deleted inside of a segment."""
        return self._checkpoints(log_start_offset_checkpoint, directory)

    def prepare_high_watermark_checkpoints(self, directory: str | None = None) -> list[DiskWork]:
        """The high watermarks of a live directory (all) as they are now."""
        return self._checkpoints(high_watermark_checkpoint, directory)

    def prepare_cleaner_offset_checkpoint(self, log: UnifiedLog) -> DiskWork:
        """``log`` was compacted: how far each log of its directory is."""
        directory = self.directory_of(log)
        return cleaner_offset_checkpoint(directory, list(self.logs_in(directory)), self._files)

    def take_removals(self, directory: str | None = None) -> list[DirectoryRemoval]:
        """The deleted logs of a log directory (all) whose ``file.delete.delay.ms`` has passed."""
        now_ms = self._clock.now_ms()
        due: list[DirectoryRemoval] = []
        left: list[DirectoryRemoval] = []
        for removal in self._removals:
            is_due = removal.due_ms <= now_ms and directory in (None, removal.log_directory)
            (due if is_due else left).append(removal)
        self._removals = left
        return due

    def take_failures(self) -> dict[str, OSError]:
        """The directories that failed in ``get_or_create`` since the last call; ``take_offline`` them."""
        failing, self._failing = self._failing, {}
        return failing

    def cleanup(self, logs: Iterable[UnifiedLog] | None = None) -> Cleanup:
        """Retention: let each of ``logs`` (all) drop its old segments. A compacted one only those below its
        log start, unless its policy is both."""
        deleted: list[DeletedFiles] = []
        failed: dict[str, OSError | KafkaError] = {}
        for log in list(self.all_logs() if logs is None else logs):
            directory = self.directory_of(log)
            owner = self._future_logs if log.is_future else self._logs
            if directory in failed or owner.get(log.topic_partition) is not log:
                continue
            try:
                deleted += log.delete_old_segments()
            except OSError as error:
                failed[directory] = error
            except KafkaError as error:  # the log is fenced: its disk failed, now or before
                failed[directory] = error
        return Cleanup(deleted, failed)

    def logs_to_flush(self) -> list[UnifiedLog]:
        """The logs of which ``flush.ms`` or ``flush.messages`` wants a flush; begin one of each."""
        return [log for log in self._logs.values() if log.is_open and log.flush_is_due]

    def reconfigure(
        self,
        *,
        default_config: TopicConfig,
        producer_id_expiration_ms: int,
        verifies_transactions: bool = False,
    ) -> None:
        """The broker's configuration changed; the configurations of topics go to their logs directly."""
        self.default_config = default_config
        self._loader.producer_id_expiration_ms = producer_id_expiration_ms
        self._loader.verifies_transactions = verifies_transactions
        for log in self.all_logs():
            log.producers.producer_id_expiration_ms = producer_id_expiration_ms
            log.producers.verifies_transactions = verifies_transactions

    # Stopping

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
            self._future_logs.clear()
            self.directories.release()

    def _checkpoints(
        self,
        checkpoint: Callable[[str, Sequence[UnifiedLog], Files], CheckpointWrite],
        wanted: str | None,
    ) -> list[DiskWork]:
        return [
            checkpoint(directory, list(self.logs_in(directory)), self._files)
            for directory in self.live_directories
            if wanted in (None, directory)
        ]
