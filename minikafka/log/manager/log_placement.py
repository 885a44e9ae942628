"""In which log directory a log is: made there, moved to another, deleted, set aside.

Kafka: ``LogManager.getOrCreateLog``, ``replaceCurrentWithFutureLog``, ``asyncDelete``,
``maybeUpdatePreferredLogDir``; KIP-112, KIP-113. A new log goes to the directory that somebody has asked for,
else to the one with the fewest.

Moving. ``start_move`` makes the future log; somebody else copies the records into it
(``server/storage/alter_log_dirs``). When it has all of them and is on the disk, it takes the current one's
place:

1. ``begin_replacement``: the current directory becomes ``T-P.<digits>-delete``, and the future log the
   current one, at once; its directory is still called ``T-P.<digits>-future``, with the same digits;
2. somebody makes the first rename durable (``DirectorySync``);
3. ``rename_replacement``: the directory gets its name, ``T-P``;
4. somebody makes that durable (``NewLogSync``);
5. ``end_replacement``: the old directory may be removed.

Whenever the process or the machine dies, one good log is found: before step 1 the current one, after it the
future one, known by its digits until it has its name (``future_logs``). There are never two directories
called ``T-P``. Kafka renames the future directory first, and after a crash in between it does not start.

Everything here only renames and writes into the page cache; what has to wait for the disk is ``DiskWork``.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING
from uuid import UUID

from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.files import is_disk_failure
from minikafka.log.files.checkpoint import PARTITION_METADATA, encode_partition_metadata
from minikafka.log.files.directory_names import (
    NAME_LENGTH_MAX,
    delete_directory_name,
    future_directory_name,
    parse_directory_name,
)
from minikafka.log.manager.disk_work import DirectoryRemoval, NewLogSync, discard
from minikafka.log.manager.log_directories import random_uuid
from minikafka.log.manager.log_directory_loader import log_stray
from minikafka.log.manager.log_registry import LogRegistry, Replacement
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import UnifiedLog


PREFERRED_DIRECTORIES_MAX = 10_000
"""Wishes for replicas that are not here (yet); the oldest are forgotten. Kafka keeps all."""

_UNIQUE = "0" * 32

_log = logging.getLogger(__name__)


class LogPlacement(LogRegistry):
    """The logs, and how they come into directories and out of them."""

    # Creating

    def prefer_directory(self, topic_partition: TopicPartition, log_directory: str) -> None:
        """Make the log of a partition that is not here yet in this directory, when it comes."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = log_directory
        if len(self._preferred) > PREFERRED_DIRECTORIES_MAX:
            del self._preferred[next(iter(self._preferred))]

    def get_or_create(
        self, topic_partition: TopicPartition, *, topic_id: UUID | None = None, is_new: bool = False
    ) -> UnifiedLog:
        """The partition's log; made when there is none, see ``prefer_directory``, else in the directory with
        the fewest.

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
        if not is_new:
            self._check_all_live(topic_partition)
        self.cancel_move(topic_partition)  # of an earlier topic of this name
        preferred = self._preferred.get(topic_partition)
        candidates = self._fewest_logs_first() if preferred is None else [preferred]
        for log_directory in candidates:
            log = self._make(log_directory, str(topic_partition), topic_partition, topic_id)
            if log is not None:
                self._preferred.pop(topic_partition, None)
                self._add(log)
                return log
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory can take {topic_partition}")

    def _check_all_live(self, topic_partition: TopicPartition) -> None:
        if self.offline_directories:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic_partition} may be in an offline log directory ({list(self.offline_directories)})",
            )

    def _make(
        self, log_directory: str, name: str, topic_partition: TopicPartition, topic_id: UUID | None
    ) -> UnifiedLog | None:
        """A new log; None when the directory failed or is offline."""
        directory = os.path.join(log_directory, name)
        if log_directory not in self.live_directories:
            return None
        try:
            self._files.make_directory(directory)
            if topic_id is not None:
                self._write_topic_id(directory, topic_id)
            log = self._loader.open(directory, topic_partition, topic_id=topic_id, clean_shutdown=True)
        except OSError as error:
            _log.error("cannot create %s: %s", directory, error)
            discard(self._files, directory)
            if not is_disk_failure(error):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"cannot create {directory}: {error}"
                ) from error
            self._failing[log_directory] = error
            return None
        self._new_logs.append(log)
        _log.info("created log %s", directory)
        return log

    # Moving

    def check_move(self, topic_partition: TopicPartition, log_directory: str) -> None:
        """Whether a replica of this name could be moved to a directory of this name.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION: the name is too long for a future directory.
                LOG_DIR_NOT_FOUND: no such log directory is configured. KAFKA_STORAGE_ERROR: it is offline.
        """
        if len(future_directory_name(topic_partition, _UNIQUE)) > NAME_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic_partition}: the name is too long")
        if log_directory not in self.directories.configured:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{log_directory} is none of the log.dirs")
        if log_directory not in self.live_directories:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {log_directory} is offline")

    def start_move(self, topic_partition: TopicPartition, log_directory: str) -> None:
        """Begin to move a replica that is here; a move to elsewhere ends. To where it is: only that.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: the directory fails (``take_failures``), or another is offline
                and may hold a future log of the partition already.
        """
        current, future = self._logs[topic_partition], self._future_logs.get(topic_partition)
        if future is not None:
            if self.directory_of(future) == log_directory:
                return
            self.cancel_move(topic_partition)
        if self.directory_of(current) == log_directory:
            return
        self._check_all_live(topic_partition)
        name = future_directory_name(topic_partition, random_uuid(self._rng).hex)
        log = self._make(log_directory, name, topic_partition, current.topic_id)
        if log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_directory} cannot take {topic_partition}")
        self._add_future(log)

    def cancel_move(self, topic_partition: TopicPartition) -> None:
        """Drop the future log, if there is one. A directory that fails is named by ``take_failures``."""
        future = self._future_logs.pop(topic_partition, None)
        if future is None:
            return
        path = future.directory
        try:
            target = self._put_away_for_removal(future, _unique_of(future))
        except OSError as error:
            _log.error("cannot rename %s: %s", path, error)
            if is_disk_failure(error):
                self._failing[self.directory_of(future)] = error
            return
        self._remove_later(target)
        _log.info("the move of %s to %s is given up", topic_partition, os.path.dirname(path))

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """Those that have begun and not ended."""
        return tuple(self._replacements)

    def begin_replacement(self, topic_partition: TopicPartition) -> Replacement:
        """The future log takes the current one's place, see the header; the current one is closed.

        The caller makes the log directory of ``Replacement.removed`` durable, by work that it hands to the
        disk thread before anything else is.

        Raises:
            InvariantError: the future log has not all records.
            KafkaError: KAFKA_STORAGE_ERROR: the future log's directory fails; nothing has changed.
            OSError: the current log's directory fails, and must go offline.
        """
        current, future = self._logs[topic_partition], self._future_logs[topic_partition]
        source = self.directory_of(current)
        future.continue_for(current)
        removed = self._put_away_for_removal(current, _unique_of(future), reason="the replica was moved")
        del self._future_logs[topic_partition]
        self._logs[topic_partition] = future
        self._stale_checkpoints.add(self.directory_of(future))
        replacement = Replacement(future, removed)
        self._replacements.append(replacement)
        _log.info("%s was moved from %s to %s", topic_partition, source, self.directory_of(future))
        return replacement

    def rename_replacement(self, replacement: Replacement) -> NewLogSync | None:
        """The new current directory gets its name. Idempotent. Returns what makes that durable; None when
        the log is gone meanwhile.

        Raises:
            OSError: its log directory fails.
        """
        log = replacement.log
        if self._logs.get(log.topic_partition) is not log:
            return None
        if log.is_future:
            log.rename(os.path.join(self.directory_of(log), str(log.topic_partition)))
        return self._sync_of(log)

    def end_replacement(self, replacement: Replacement) -> None:
        """The new name is durable, or the log is gone: the old directory may be removed."""
        if replacement in self._replacements:
            self._replacements.remove(replacement)
            self._remove_later(replacement.removed)

    # Going

    def delete(self, topic_partition: TopicPartition) -> DirectoryRemoval | None:
        """Close the log, if there is one, and rename its directory to ``…-delete``; ``take_removals`` hands
        it out later. A move ends.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: there is no log here, but it may be in an offline directory.
            OSError: the directory could not be renamed; the log is closed and gone from here.
        """
        self.cancel_move(topic_partition)
        log = self._logs.pop(topic_partition, None)
        if log is None:
            if topic_partition in self._offline_partitions:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is in an offline log directory"
                )
            return None
        path = log.directory
        target = self._put_away_for_removal(log, random_uuid(self._rng).hex)
        _log.info("deleted log %s; its files go later (%s)", path, target)
        return self._remove_later(target)

    def set_aside(self, topic_partition: TopicPartition, reason: str) -> None:
        """Close a partition's logs and rename their directories to ``…-stray``, which nobody removes.

        Args:
            reason: for the log line, behind the path.

        Raises:
            OSError: a directory could not be renamed; its log is closed and gone from here.
        """
        for owner in (self._future_logs, self._logs):
            log = owner.pop(topic_partition, None)
            if log is not None:
                path = log.directory
                target = self._loader.stray_path(path, topic_partition)
                self._put_away(log, target, reason="the partition is not this broker's")
                log_stray(path, target, reason)

    # Inside

    def _put_away_for_removal(
        self, log: UnifiedLog, unique: str, *, reason: str = "the partition is being deleted"
    ) -> str:
        name = delete_directory_name(log.topic_partition, unique)
        return self._put_away(log, os.path.join(self.directory_of(log), name), reason=reason)

    def _put_away(self, log: UnifiedLog, target: str, *, reason: str) -> str:
        log_directory = self.directory_of(log)
        self._log_counts[log_directory] -= 1
        self._stale_checkpoints.add(log_directory)
        log.put_away(target, reason=reason)
        return target

    def _fewest_logs_first(self) -> list[str]:
        return sorted(self.live_directories, key=self._log_counts.__getitem__)

    def _sync_of(self, log: UnifiedLog) -> NewLogSync:
        return NewLogSync(self._files, log.directory, tuple(log.take_unsynced_paths()))

    def _write_topic_id(self, directory: str, topic_id: UUID) -> None:
        self._files.replace(os.path.join(directory, PARTITION_METADATA), encode_partition_metadata(topic_id))


def _unique_of(future: UnifiedLog) -> str:
    parsed = parse_directory_name(os.path.basename(future.directory))
    if parsed is None or not parsed.unique:
        raise InvariantError(f"{future!r} is no future log")
    return parsed.unique
