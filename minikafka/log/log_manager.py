"""All logs of a broker, in all its log directories: loaded, created, moved, deleted, kept, closed.

Kafka's class: ``LogManager``; ``ReplicaManager.checkpointHighWatermarks``; KIP-112, KIP-113.

A partition has one *current* log, and while its replica is moved to another log directory also a *future*
one there. A new log goes to the directory that was asked for, else to the one with the fewest.

Moving. ``start_move`` makes the future log; its mover copies the records into it
(``server/storage/alter_log_dirs``). When it has all of them and is on the disk, it takes the current one's
place:

1. ``begin_replacement``: the current directory becomes ``T-P.<digits>-delete``, and the future log the
   current one, at once; its directory is still called ``T-P.<digits>-future``, with the same digits;
2. the disk thread makes the first rename durable (``DirectorySync``);
3. ``rename_replacement``: the directory gets its name, ``T-P``;
4. the disk thread makes that durable (``NewLogSync``);
5. ``end_replacement``: the old directory may be removed.

Whenever the process or the machine dies, one good log is found: before step 1 the current one, after it the
future one, known by its digits until it has its name (``log_directories``). There are never two directories
called ``T-P``. Kafka renames the future directory first, and after a crash in between it does not start.

Blocking: the constructor, ``load`` and ``shutdown`` wait for the disk; they run before the loop serves and
after it has stopped. Everything else only renames and writes into the page cache. What has to wait for the
disk comes back as ``DiskWork``, to be run on the disk thread in the order in which it came:
``take_disk_work`` after logs were created or deleted, the ``prepare_…_checkpoints`` in their intervals.

Invariants
- The clean-shutdown marker is gone before the first log is loaded and back only after everything was flushed.
- A checkpoint never says more than was true when it was prepared: recovery points only rise after an fsync.
- After a deletion, move or truncation the directory's checkpoints are rewritten: a new topic of the same name
  does not start from the old one's offsets, and what replaces truncated records is recovered. After a
  deletion that may wait until there is a log of that name again (``take_disk_work``).
- A directory fails alone: ``take_offline`` drops and names its logs. The first sign of failure is an OSError
  from here, from a log or from a piece of disk work; ``directory_of`` says whose it is.
- A future log is in another log directory than a current one of its partition that is here. When the
  directory of a current log fails, its future log is kept, unused: the move continues after a start that
  finds both.

Different from Kafka
- A partition's new directory is made durable by the disk thread right after it was made, not at a flush.
- A directory that waits for its removal is not loaded before it is removed.
- Hidden directories are passed over; others that are no partition fail the start, as there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.topic import DAY_MS, TopicConfig
from minikafka.errors import ErrorCode, InvariantError, KafkaError, StartError
from minikafka.files import Files, is_disk_failure
from minikafka.log.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CheckpointWrite,
    encode_partition_metadata,
    write_clean_shutdown_marker,
)
from minikafka.log.files import (
    NAME_LENGTH_MAX,
    OpenFiles,
    delete_directory_name,
    future_directory_name,
    parse_directory_name,
)
from minikafka.log.log_directories import (
    DirectoryRemoval,
    DiskWork,
    Fate,
    FoundLog,
    IsStray,
    LogDirectories,
    LogDirectoryLoader,
    NewLogSync,
    RandomBits,
    decide_fates,
    discard,
    log_stray,
    random_uuid,
)
from minikafka.named_tuple import NamedTuple
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.log.segment.log_segments import DeletedFiles
    from minikafka.log.unified_log import UnifiedLog

_log = logging.getLogger(__name__)

PREFERRED_DIRECTORIES_MAX = 10_000
"""Wishes for replicas that are not here (yet); the oldest are forgotten. Kafka keeps all."""

_UNIQUE = "0" * 32

Offsets = dict[TopicPartition, int]


class Replacement(NamedTuple):
    """A future log that has become the current one; its directory has still to get its name."""

    log: UnifiedLog
    removed: str
    """The directory that it was before, a ``-delete`` one: removed when the new name is durable."""

    @property
    def source(self) -> str:
        """The log directory that the replica has left."""
        return os.path.dirname(self.removed)


class Cleanup(NamedTuple):
    """What retention did: files to remove later, and the directories that failed."""

    deleted: list[DeletedFiles]
    failed: dict[str, OSError | KafkaError]


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
        verifies_transactions: bool = False,
        open_files: OpenFiles | None = None,
        meta_version: int = 1,
    ) -> None:
        self.default_config = default_config
        self.directories = LogDirectories(
            log_dirs,
            files=files,
            rng=rng,
            cluster_id=cluster_id,
            node_id=broker_id,
            meta_version=meta_version,
        )
        self._loader = LogDirectoryLoader(
            files=files,
            clock=clock,
            rng=rng,
            topic_config=topic_config,
            producer_id_expiration_ms=producer_id_expiration_ms,
            verifies_transactions=verifies_transactions,
            open_files=open_files,
        )
        self._files = files
        self._clock = clock
        self._rng = rng
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._future_logs: dict[TopicPartition, UnifiedLog] = {}
        self._replacements: list[Replacement] = []
        self._preferred: dict[TopicPartition, str] = {}
        """Where to make the log of a partition that is not here yet."""
        self._offline_partitions: set[TopicPartition] = set()
        self._removals: list[DirectoryRemoval] = []
        self._new_logs: list[UnifiedLog] = []
        self._log_counts = dict.fromkeys(self.directories.configured, 0)
        self._stale_checkpoints: set[str] = set()
        self._urgent_checkpoints: set[str] = set()  # those of them that do not wait
        self._put_away_since: set[TopicPartition] = set()  # and are named in a stale checkpoint
        self._loaded: set[str] = set()  # directories whose logs are all here
        self._failing: dict[str, OSError] = {}

    def __repr__(self) -> str:
        return f"LogManager(logs={len(self._logs)}, moving={len(self._future_logs)}, {self.directories})"

    # ---- looking

    @property
    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """A live, read-only view of all current logs."""
        return MappingProxyType(self._logs)

    @property
    def future_logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """A live, read-only view of the copies of replicas that are being moved."""
        return MappingProxyType(self._future_logs)

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

    @property
    def offline_partitions(self) -> frozenset[TopicPartition]:
        """Those whose log was in a directory that failed."""
        return frozenset(self._offline_partitions)

    def directory_of(self, log: UnifiedLog) -> str:
        return os.path.dirname(log.directory)

    def all_logs(self) -> Iterator[UnifiedLog]:
        """Current and future ones."""
        yield from self._logs.values()
        yield from self._future_logs.values()

    def logs_in(self, log_directory: str) -> Iterator[UnifiedLog]:
        """Current and future ones. A partition has at most one of them there."""
        return (log for log in self.all_logs() if self.directory_of(log) == log_directory)

    # ---- loading

    def load(self, *, is_stray: IsStray = lambda topic_partition, topic_id: False) -> None:
        """Load every log there is, recovering where the last shutdown was not clean; settle what became of
        replicas that were being moved. Blocks.

        Raises:
            StartError: a partition is in two directories, something in a log directory is no partition's, or
                no directory could be loaded.
        """
        try:
            for directory in self.live_directories:
                self._guarded(directory, partial(self._load_directory, directory, is_stray))
            self._load_futures()
            if not self.live_directories:
                raise StartError(f"no log directory could be loaded ({dict(self.offline_directories)})")
        except BaseException:
            for log in self.all_logs():
                _close_failed(log, "the broker did not start")
            self.directories.release()
            raise

    def _guarded(self, log_directory: str, load: Callable[[], None]) -> None:
        try:
            load()
        except OSError as error:
            self.take_offline(log_directory, f"cannot load: {error}")

    def _load_directory(self, directory: str, is_stray: IsStray) -> None:
        for log in self._loader.load(directory, is_stray):
            other = self._logs.get(log.topic_partition)
            if other is not None:
                _close_failed(log, "the broker does not start")
                raise StartError(
                    f"{log.topic_partition} is in {other.directory} and in {log.directory}: a disk "
                    f"failed while the replica was moved; delete the one on the disk that failed"
                )
            self._add(log)
        if gone := self._loader.take_gone():  # deleted, and then the broker was killed
            self._stale_checkpoints.add(directory)
            self._put_away_since |= gone
        unopened = self._loader.take_unopened()
        self._offline_partitions.update(unopened)
        if not unopened:
            self._loaded.add(directory)

    def _load_futures(self) -> None:
        live = self.live_directories
        deleted = [path for path in self._loader.take_deleted() if os.path.dirname(path) in live]
        fates = decide_fates(
            [found for found in self._loader.take_futures() if os.path.dirname(found.directory) in live],
            current=self._logs.keys(),
            waiting_for_removal=deleted,
            all_are_live=not self.offline_directories,
        )
        for found, fate in fates:
            self._guarded(os.path.dirname(found.directory), partial(self._settle_if_possible, found, fate))
        for path in deleted:
            self._remove_later(path)

    def _settle_if_possible(self, found: FoundLog, fate: Fate) -> None:
        """Leave it as it is until the next start where the disk has not failed and it cannot be opened."""
        try:
            self._settle(found, fate)
        except OSError as error:
            if is_disk_failure(error):
                raise
            _log.error("%s cannot be opened, and waits for the next start: %s", found.directory, error)
            if fate is Fate.BECOME_CURRENT:
                self._offline_partitions.add(found.topic_partition)
                self._loaded.discard(os.path.dirname(found.directory))

    def _settle(self, found: FoundLog, fate: Fate) -> None:
        at, log_directory = found.topic_partition, os.path.dirname(found.directory)
        match fate:
            case Fate.CONTINUE if found.was_clean:
                self._add_future(self._loader.open_found(found))
                _log.info("continuing the move of %s to %s", at, log_directory)
            case Fate.CONTINUE:
                # Of what was not flushed anything may be there: zeros, an empty segment before one with
                # records. And the recovery point may be that of a replica that was here before.
                self._begin_copy_again(at, found.directory)
            case Fate.BECOME_CURRENT:
                path = os.path.join(log_directory, str(at))
                self._files.rename(found.directory, path)
                self._files.sync_directory(log_directory)
                self._add(self._loader.open_found(found, directory=path))
                _log.info("the move of %s to %s is finished", at, log_directory)
            case Fate.LEAVE:
                _log.warning("%s is left alone: its replica may be in an offline directory", found.directory)
            case Fate.SET_ASIDE:
                self._loader.set_aside(
                    found.directory, at, "is half of a moved replica whose other directory is gone"
                )
            case Fate.REMOVE:
                path = os.path.join(log_directory, delete_directory_name(at, found.unique))
                self._files.rename(found.directory, path)
                self._remove_later(path)

    # ---- creating

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
        self._update_config(topic_partition)
        return log

    def _update_config(self, topic_partition: TopicPartition) -> None:
        """Who changes a topic's configuration tells its partitions, and before a log is asked for it has
        none."""
        config = self._loader.topic_config(topic_partition.topic)
        for logs in (self._logs, self._future_logs):
            if topic_partition in logs:
                logs[topic_partition].update_config(config)

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
        if topic_partition in self._put_away_since:  # or it may start from the earlier one's offsets
            self._urgent_checkpoints |= self._stale_checkpoints
        _log.info("created log %s", directory)
        return log

    def _write_topic_id(self, directory: str, topic_id: UUID) -> None:
        self._files.replace(os.path.join(directory, PARTITION_METADATA), encode_partition_metadata(topic_id))

    def _fewest_logs_first(self) -> list[str]:
        return sorted(self.live_directories, key=self._log_counts.__getitem__)

    def _add(self, log: UnifiedLog) -> None:
        self._logs[log.topic_partition] = log
        self._log_counts[self.directory_of(log)] += 1
        self._offline_partitions.discard(log.topic_partition)

    def _add_future(self, log: UnifiedLog) -> None:
        self._future_logs[log.topic_partition] = log
        self._log_counts[self.directory_of(log)] += 1

    # ---- moving

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
        if not self._begin_copy(topic_partition, log_directory, name):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_directory} cannot take {topic_partition}")

    def _begin_copy(self, topic_partition: TopicPartition, log_directory: str, name: str) -> bool:
        """Make an empty future log of a replica that is here. False: the directory fails
        (``take_failures``)."""
        log = self._make(log_directory, name, topic_partition, self._logs[topic_partition].topic_id)
        if log is None:
            return False
        self._add_future(log)
        return True

    def _begin_copy_again(self, topic_partition: TopicPartition, directory: str) -> None:
        """In the same directory, which stands for the move. Raises OSError."""
        for name in self._files.list(directory):
            self._files.remove(os.path.join(directory, name))
        log_directory, name = os.path.split(directory)
        try:
            if self._begin_copy(topic_partition, log_directory, name):
                reason = "the shutdown was not clean"
                _log.info("the move of %s to %s begins again: %s", topic_partition, log_directory, reason)
        except KafkaError as error:
            _log.error("the move of %s to %s is over: %s", topic_partition, log_directory, error.message)

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
        _log.info("the move of %s to %s is cancelled", topic_partition, os.path.dirname(path))

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
        if future.topic_id is None:  # its file was not synced when the power went
            future.topic_id = current.topic_id
        removed = self._put_away_for_removal(current, _unique_of(future), reason="the replica was moved")
        del self._future_logs[topic_partition]
        self._logs[topic_partition] = future
        self._stale_checkpoints.add(self.directory_of(future))
        self._urgent_checkpoints.add(self.directory_of(future))
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
        if log.topic_id is not None:  # once more: a power cut during the move may have emptied the file
            self._write_topic_id(log.directory, log.topic_id)
        return self._sync_of(log)

    def end_replacement(self, replacement: Replacement) -> None:
        """The new name is durable, or the log is gone: the old directory may be removed."""
        if replacement in self._replacements:
            self._replacements.remove(replacement)
            self._remove_later(replacement.removed)

    # ---- deleting, setting aside

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
        _log.info("deleted log %s; its files are removed later (%s)", path, target)
        return self._remove_later(target)

    def set_aside(self, topic_partition: TopicPartition, reason: str) -> None:
        """Close a partition's logs and rename their directories to ``…-stray``, which are never removed.

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

    def _put_away_for_removal(
        self, log: UnifiedLog, unique: str, *, reason: str = "the partition is being deleted"
    ) -> str:
        name = delete_directory_name(log.topic_partition, unique)
        return self._put_away(log, os.path.join(self.directory_of(log), name), reason=reason)

    def _put_away(self, log: UnifiedLog, target: str, *, reason: str) -> str:
        log_directory = self.directory_of(log)
        self._log_counts[log_directory] -= 1
        self._stale_checkpoints.add(log_directory)
        self._put_away_since.add(log.topic_partition)
        log.put_away(target, reason=reason)
        return target

    def _remove_later(self, path: str) -> DirectoryRemoval:
        due_ms = self._clock.now_ms() + self.default_config.file_delete_delay_ms
        removal = DirectoryRemoval(self._files, path, due_ms)
        self._removals.append(removal)
        return removal

    # ---- failing

    def take_offline(self, log_directory: str, reason: str = "disk failure") -> list[TopicPartition]:
        """Stop using a directory: its logs are closed and dropped, its lock is released. Idempotent. Returns
        the partitions whose current log was in it. When no ``live_directories`` are left, the broker cannot
        continue."""
        logs = list(self.logs_in(log_directory))
        lost = [log.topic_partition for log in logs if self._logs.get(log.topic_partition) is log]
        for log in logs:
            owner = self._logs if self._logs.get(log.topic_partition) is log else self._future_logs
            _close_failed(owner.pop(log.topic_partition), reason)
        self._offline_partitions.update(lost)
        self._replacements = [each for each in self._replacements if each.log not in logs]
        self._removals = [removal for removal in self._removals if removal.log_directory != log_directory]
        self._new_logs = [log for log in self._new_logs if self.directory_of(log) != log_directory]
        self._log_counts[log_directory] = 0
        self._stale_checkpoints.discard(log_directory)
        self._urgent_checkpoints.discard(log_directory)
        self._loaded.discard(log_directory)
        self.directories.take_offline(log_directory, reason)
        if lost:
            _log.error("%d partitions are offline with %s: %s", len(lost), log_directory, reason)
        return lost

    def take_failures(self) -> dict[str, OSError]:
        """The directories that failed in ``get_or_create`` since the last call; ``take_offline`` them."""
        failing, self._failing = self._failing, {}
        return failing

    # ---- chores

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

    def note_truncation(self, log: UnifiedLog) -> None:
        """``log`` lost records that the checkpoints may count on."""
        self._stale_checkpoints.add(self.directory_of(log))
        self._urgent_checkpoints.add(self.directory_of(log))

    @property
    def has_stale_checkpoints(self) -> bool:
        """Whether there are checkpoints to be corrected."""
        return bool(self._stale_checkpoints)

    def take_disk_work(self, *, new_logs_max: int | None = None, urgent_only: bool = False) -> list[DiskWork]:
        """Syncs of new directories (at most ``new_logs_max`` now), and checkpoints to be corrected.

        Args:
            urgent_only: not those checkpoints that only name partitions which are gone: nothing reads that
                but the log of a later partition of that name, and then they are urgent.
        """
        waiting = [log for log in self._new_logs if log.is_open]  # the others are deleted again
        count = len(waiting) if new_logs_max is None else new_logs_max
        self._new_logs = waiting[count:]
        work: list[DiskWork] = [self._sync_of(log) for log in waiting[:count]]
        for directory in self.live_directories:
            if directory in (self._urgent_checkpoints if urgent_only else self._stale_checkpoints):
                work += self._all_checkpoints(directory)
        self._stale_checkpoints -= self._urgent_checkpoints if urgent_only else set(self._stale_checkpoints)
        self._urgent_checkpoints.clear()
        if not self._stale_checkpoints:
            self._put_away_since.clear()
        return work

    def _sync_of(self, log: UnifiedLog) -> NewLogSync:
        return NewLogSync(self._files, log.directory, tuple(log.take_unsynced_paths()))

    def prepare_recovery_point_checkpoints(self, directory: str | None = None) -> list[DiskWork]:
        """The recovery points of a live directory (all) as they are now."""
        return self._checkpoints(RECOVERY_POINT_CHECKPOINT, directory)

    def prepare_log_start_offset_checkpoints(self, directory: str | None = None) -> list[DiskWork]:
        """The log starts of a live directory (all), where records were deleted inside of a segment."""
        return self._checkpoints(LOG_START_OFFSET_CHECKPOINT, directory)

    def prepare_high_watermark_checkpoints(self, directory: str | None = None) -> list[DiskWork]:
        """The high watermarks of a live directory (all) as they are now."""
        return self._checkpoints(REPLICATION_OFFSET_CHECKPOINT, directory)

    def prepare_cleaner_offset_checkpoint(self, log: UnifiedLog) -> DiskWork:
        """``log`` was compacted: how far each log of its directory is."""
        return self._checkpoint(CLEANER_OFFSET_CHECKPOINT, self.directory_of(log))

    def _checkpoints(self, name: str, wanted: str | None) -> list[DiskWork]:
        return [
            self._checkpoint(name, directory)
            for directory in self.live_directories
            if wanted in (None, directory)
        ]

    def _all_checkpoints(self, directory: str) -> list[DiskWork]:
        return [self._checkpoint(name, directory) for name in _CHECKPOINTS]

    def _checkpoint(self, name: str, directory: str) -> CheckpointWrite:
        offsets = _CHECKPOINTS[name](self.logs_in(directory))
        return CheckpointWrite(self._files, os.path.join(directory, name), offsets)

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

    # ---- stopping

    def shutdown(self) -> None:
        """Flush and close all logs, write the checkpoints, and the clean-shutdown markers last. Blocks.

        No disk work may be under way. A directory that fails gets no marker, so the next start recovers it.
        """
        try:
            for directory in self.live_directories:
                _shut_down(
                    directory,
                    list(self.logs_in(directory)),
                    [self._sync_of(log) for log in self._new_logs if self.directory_of(log) == directory],
                    partial(self._all_checkpoints, directory),
                    files=self._files,
                    is_complete=directory in self._loaded,
                )
        finally:
            self._logs.clear()
            self._future_logs.clear()
            self.directories.release()


def _unique_of(future: UnifiedLog) -> str:
    parsed = parse_directory_name(os.path.basename(future.directory))
    if parsed is None or not parsed.unique:
        raise InvariantError(f"{future!r} is no future log")
    return parsed.unique


def _recovery_points(logs: Iterable[UnifiedLog]) -> Offsets:
    """Up to where each log is known to be on the disk."""
    return {log.topic_partition: log.recovery_point for log in logs}


def _log_start_offsets(logs: Iterable[UnifiedLog]) -> Offsets:
    """Where each log starts, if that is not simply where its first segment does."""
    return {
        log.topic_partition: log.log_start_offset
        for log in logs
        if log.log_start_offset > log.segments[0].base_offset
    }


def _high_watermarks(logs: Iterable[UnifiedLog]) -> Offsets:
    return {log.topic_partition: log.high_watermark for log in logs}


def _first_dirty_offsets(logs: Iterable[UnifiedLog]) -> Offsets:
    """Up to where each log is compacted, where that has ever been done."""
    return {log.topic_partition: log.first_dirty_offset for log in logs if log.first_dirty_offset is not None}


_CHECKPOINTS = {
    RECOVERY_POINT_CHECKPOINT: _recovery_points,
    LOG_START_OFFSET_CHECKPOINT: _log_start_offsets,
    REPLICATION_OFFSET_CHECKPOINT: _high_watermarks,  # or a new partition of a deleted one's name has its
    CLEANER_OFFSET_CHECKPOINT: _first_dirty_offsets,
}
"""The file of each, in the order in which they are written."""


def _shut_down(
    directory: str,
    logs: Sequence[UnifiedLog],
    work: Iterable[DiskWork],
    checkpoints: Callable[[], Iterable[DiskWork]],
    *,
    files: Files,
    is_complete: bool,
) -> None:
    """Flush and close ``logs``, write the checkpoints of ``directory``, the clean-shutdown marker last.
    Blocks.

    Args:
        work: what is still to be done in this directory, first.
        is_complete: all its logs were loaded; without that it gets no marker.
    """
    all_open = all(log.is_open for log in logs)  # a fenced log has to be recovered
    try:
        for item in work:
            item.run()
        for log in logs:
            log.close()
        for checkpoint in checkpoints():
            checkpoint.run()
        if all_open and is_complete:
            write_clean_shutdown_marker(files, directory)
    except (OSError, KafkaError) as error:
        _log.error("%s is not shut down cleanly: %s", directory, error)
        for log in logs:
            _close_failed(log, str(error))


def _close_failed(log: UnifiedLog, reason: str) -> None:
    """Close a log whose disk is not to be trusted any more: nothing is written."""
    log.fence(reason)
    try:
        log.close()
    except OSError as error:
        _log.warning("cannot close %s: %s", log.directory, error)
