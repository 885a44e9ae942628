"""The logs of a broker by partition, and the log directories that they are in: found, loaded, lost.

The lowest of three layers of one object, Kafka's ``LogManager``: ``LogRegistry`` knows which logs there are,
``LogPlacement`` makes, moves and deletes them, ``LogManager`` does what time brings.

A partition has one *current* log, and while its replica is moved to another log directory also a *future*
one there (KIP-113).

Invariants: a future log is in another log directory than a current one of its partition that is here; a
directory fails alone. When that of a current log fails, a future one stays, unused: the move goes on after a
start that finds both.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from minikafka.clock import Clock
from minikafka.config.topic import DAY_MS, TopicConfig
from minikafka.errors import StartError
from minikafka.files import Files
from minikafka.log.files.directory_names import delete_directory_name
from minikafka.log.files.open_files import OpenFiles
from minikafka.log.manager.disk_work import DirectoryRemoval
from minikafka.log.manager.future_logs import Fate, FoundLog, decide_fates
from minikafka.log.manager.log_directories import LogDirectories, RandomBits
from minikafka.log.manager.log_directory_loader import IsStray, LogDirectoryLoader
from minikafka.log.manager.log_shutdown import close_failed
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import UnifiedLog


_log = logging.getLogger(__name__)


class Replacement(NamedTuple):
    """A future log that has become the current one; its directory has still to get its name."""

    log: UnifiedLog
    removed: str
    """The directory that it was before, a ``-delete`` one: removed when the new name is durable."""

    @property
    def source(self) -> str:
        """The log directory that the replica has left."""
        return os.path.dirname(self.removed)


class LogRegistry:
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
        self._loaded: set[str] = set()  # directories whose logs are all here
        self._failing: dict[str, OSError] = {}

    def __repr__(self) -> str:
        return f"LogManager(logs={len(self._logs)}, moving={len(self._future_logs)}, {self.directories})"

    # Looking

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

    # Loading

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
                close_failed(log, "the broker did not start")
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
                close_failed(log, "the broker does not start")
                raise StartError(
                    f"{log.topic_partition} is in {other.directory} and in {log.directory}: a disk "
                    f"failed while the replica was moved; delete the one on the disk that failed"
                )
            self._add(log)
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
            self._guarded(os.path.dirname(found.directory), partial(self._settle, found, fate))
        for path in deleted:
            self._remove_later(path)

    def _settle(self, found: FoundLog, fate: Fate) -> None:
        at, log_directory = found.topic_partition, os.path.dirname(found.directory)
        match fate:
            case Fate.GO_ON:
                self._add_future(self._loader.open_found(found))
                _log.info("the move of %s to %s goes on", at, log_directory)
            case Fate.BECOME_CURRENT:
                path = os.path.join(log_directory, str(at))
                self._files.rename(found.directory, path)
                self._files.sync_directory(log_directory)
                self._add(self._loader.open_found(found, directory=path))
                _log.info("the move of %s to %s is finished: it was all but done", at, log_directory)
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

    # Failing

    def take_offline(self, log_directory: str, reason: str = "disk failure") -> list[TopicPartition]:
        """Stop using a directory: its logs are closed and dropped, its lock is let go. Idempotent. Returns
        the partitions whose current log was in it. When no ``live_directories`` are left, the broker cannot
        go on."""
        logs = list(self.logs_in(log_directory))
        lost = [log.topic_partition for log in logs if self._logs.get(log.topic_partition) is log]
        for log in logs:
            owner = self._logs if self._logs.get(log.topic_partition) is log else self._future_logs
            close_failed(owner.pop(log.topic_partition), reason)
        self._offline_partitions.update(lost)
        self._replacements = [each for each in self._replacements if each.log not in logs]
        self._removals = [removal for removal in self._removals if removal.log_directory != log_directory]
        self._new_logs = [log for log in self._new_logs if self.directory_of(log) != log_directory]
        self._log_counts[log_directory] = 0
        self._stale_checkpoints.discard(log_directory)
        self._loaded.discard(log_directory)
        self.directories.take_offline(log_directory, reason)
        if lost:
            _log.error("%d partitions are offline with %s: %s", len(lost), log_directory, reason)
        return lost

    # Inside

    def _add(self, log: UnifiedLog) -> None:
        self._logs[log.topic_partition] = log
        self._log_counts[self.directory_of(log)] += 1
        self._offline_partitions.discard(log.topic_partition)

    def _add_future(self, log: UnifiedLog) -> None:
        self._future_logs[log.topic_partition] = log
        self._log_counts[self.directory_of(log)] += 1

    def _remove_later(self, path: str) -> DirectoryRemoval:
        due_ms = self._clock.now_ms() + self.default_config.file_delete_delay_ms
        removal = DirectoryRemoval(self._files, path, due_ms)
        self._removals.append(removal)
        return removal
