"""The log directories of a broker: made, locked, known to belong to it, and what lies in them at a start.

Kafka: ``LogManager.createAndValidateLogDirs`` and ``lockLogDirs``, ``MetaPropertiesEnsemble.verify``.

A directory that cannot be used (unreadable, unwritable, a damaged ``meta.properties``) is offline alone and
the others stay online; only with none left does the start fail. What shows a mistake of the operator fails
the start at once: a directory given twice, one that another broker has locked, another cluster's or another
broker's.

**Half-moved replicas** (KIP-113): what becomes of the ``-future`` directories that a start finds. Pure.
Kafka: ``LogManager.loadLog`` and ``recoverAbandonedFutureLogs``.

=============================================  ==========================================================
the partition has a current log                the move continues
it has none, and a ``-delete`` directory with  the replacement had begun, and this is the replica: the
the same digits is there                       directory gets its name
it has none, and a log directory is offline    left alone: the current log may be there
it has none, all log directories are there     set aside as ``-stray``: the current log was removed by
                                               hand, and this may be all that is left of it
another of its copies is kept                   removed: the target of the move was changed
=============================================  ==========================================================

Differs from Kafka, which creates an empty current log in the fourth case and cuts the future one to it, and
asks its controller in the second; with ZooKeeper it finds two current logs there and does not start.

**Loading** the logs of one log directory (``LogDirectoryLoader``). Kafka: ``LogManager.loadLogs`` and
``loadLog``. Directories that wait for their removal are only named, not loaded; so are ``-future`` ones, for
what they are is known when all log directories were seen (``log_directories``); ``-stray`` ones are left
alone. A damaged checkpoint costs a full recovery, nothing more.

**Work on the disk** (``DiskWork``): what the log manager wants done on the disk thread: made on the loop, run
there, in the order it was made.

Every piece names the log directory that it writes to: when ``run`` raises OSError, that directory goes
offline. Many small pieces go to the disk thread together (``run_all``): a hop there and back costs more than
many a piece.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import msgspec

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.deferred import deferred
from minikafka.errors import StartError
from minikafka.files import DirectoryLock, Files, is_disk_failure
from minikafka.log.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpoint,
    MetaProperties,
    encode_uuid,
    lock_directory,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
    take_clean_shutdown_marker,
    write_meta_properties,
)
from minikafka.log.files import (
    CLUSTER_METADATA,
    FINISH_IMPORT,
    NOT_PARTITIONS,
    UNFINISHED_IMPORT,
    DirectoryKind,
    OpenFiles,
    ParsedName,
    fsync_file,
    parse_directory_name,
    stray_directory_name,
)
from minikafka.named_tuple import NamedTuple
from minikafka.types import Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.log import unified_log
    from minikafka.log.unified_log import UnifiedLog
else:
    unified_log = deferred("minikafka.log.unified_log")

_log = logging.getLogger(__name__)

IsStray = Callable[[TopicPartition, UUID | None], bool]
"""Whether a log that was found does not belong to this broker (any more)."""


class FoundLog(NamedTuple):
    """A directory with a log, and what the checkpoints of its log directory say about it."""

    directory: str
    topic_partition: TopicPartition
    unique: str
    """The digits in the name; empty for a current log."""
    topic_id: UUID | None
    was_clean: bool
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    first_dirty_offset: int | None = None


class Fate(Enum):
    """What to do with a future log that was found; see the table."""

    CONTINUE = auto()
    BECOME_CURRENT = auto()
    LEAVE = auto()
    SET_ASIDE = auto()
    REMOVE = auto()


def decide_fates(
    futures: Iterable[FoundLog],
    *,
    current: Collection[TopicPartition],
    waiting_for_removal: Iterable[str],
    all_are_live: bool,
) -> Sequence[tuple[FoundLog, Fate]]:
    """What to do with each of ``futures``, in this order.

    Args:
        current: the partitions that have a current log.
        waiting_for_removal: the ``-delete`` directories in the live log directories.
        all_are_live: no log directory is offline.
    """
    removed = [parse_directory_name(os.path.basename(path)) for path in waiting_for_removal]
    replaced = {(each.topic_partition, each.unique) for each in removed if each is not None}
    hosted = set(current)
    moving: set[TopicPartition] = set()
    fates: list[tuple[FoundLog, Fate]] = []
    rest: list[FoundLog] = []
    for found in futures:
        at = found.topic_partition
        if at not in hosted and (at, found.unique) in replaced:
            hosted.add(at)
            fates.append((found, Fate.BECOME_CURRENT))
        else:
            rest.append(found)
    for found in rest:
        at = found.topic_partition
        if at in moving:
            fate = Fate.REMOVE
        elif at in hosted:
            moving.add(at)
            fate = Fate.CONTINUE
        else:
            fate = Fate.SET_ASIDE if all_are_live else Fate.LEAVE
        fates.append((found, fate))
    return fates


class RandomBits(Protocol):
    """The part of ``random.Random`` that makes an id."""

    def getrandbits(self, k: int, /) -> int: ...


def random_uuid(rng: RandomBits) -> UUID:
    """An id as Kafka makes them: never printed with a leading ``-``, which tools would take for an option."""
    while True:
        uuid = UUID(int=rng.getrandbits(128), version=4)
        if not encode_uuid(uuid).startswith("-"):
            return uuid


def stored_cluster_id(files: Files, log_directories: Sequence[str]) -> str | None:
    """The cluster id that a directory names, for a broker that has not decided on one. Needs no lock."""
    for directory in log_directories:
        try:
            meta = read_meta_properties(files, directory)
        except (CorruptCheckpoint, OSError):
            continue  # LogDirectories says what is wrong with it
        if meta is not None and meta.cluster_id is not None:
            return meta.cluster_id
    return None


class LogDirectories:
    """The usable directories, in their configured order, and why others are not usable.

    Raises:
        StartError: from the constructor; see the header.
    """

    def __init__(
        self,
        log_directories: Sequence[str],
        *,
        files: Files,
        rng: RandomBits,
        cluster_id: str,
        node_id: int,
        meta_version: int = 1,
    ) -> None:
        """``meta_version``: of new ``meta.properties``."""
        self.configured = tuple(os.path.normpath(directory) for directory in log_directories)
        self.offline: dict[str, str] = {}
        """Why a directory is not used, by directory."""
        self.directory_ids: dict[str, UUID] = {}
        self._files = files
        self._locks: dict[str, DirectoryLock] = {}
        for directory in self.configured:
            if self.configured.count(directory) > 1:
                raise StartError(f"log directory {directory} is given twice")
        try:
            self._open(rng, MetaProperties(meta_version, cluster_id, node_id))
        except BaseException:
            self.release()
            raise

    def __repr__(self) -> str:
        return f"LogDirectories(live={list(self.live)}, offline={list(self.offline)})"

    @property
    def live(self) -> tuple[str, ...]:
        return tuple(directory for directory in self.configured if directory not in self.offline)

    def take_offline(self, directory: str, reason: str) -> None:
        """Stop using ``directory``; its lock is released so that an operator can repair it."""
        if directory not in self.configured:
            raise ValueError(f"{directory} is not one of the log directories {list(self.configured)}")
        self.offline.setdefault(directory, reason)
        if (lock := self._locks.pop(directory, None)) is not None:
            lock.release()

    def release(self) -> None:
        """Let go of all locks. Idempotent."""
        while self._locks:
            self._locks.popitem()[1].release()

    def _open(self, rng: RandomBits, expected: MetaProperties) -> None:
        found: dict[str, MetaProperties | None] = {}
        for directory in self.configured:
            try:
                if not self._files.is_directory(directory):
                    self._files.make_directory(directory)
                    self._files.sync_directory(os.path.dirname(directory) or ".")
                self._files.list(directory)
                self._locks[directory] = lock_directory(self._files, directory)
                found[directory] = read_meta_properties(self._files, directory)
            except (CorruptCheckpoint, OSError) as error:
                _log.error("log directory %s is offline: %s", directory, error)
                self.take_offline(directory, str(error))
        for directory, meta in found.items():
            if meta is not None:
                _check(directory, meta, expected)
        for directory, meta in found.items():
            try:
                self._identify(directory, meta, expected, rng)
            except OSError as error:
                _log.error("log directory %s is offline: %s", directory, error)
                self.take_offline(directory, str(error))
        if not self.live:
            reasons = "; ".join(f"{directory}: {reason}" for directory, reason in self.offline.items())
            raise StartError(f"no log directory can be used ({reasons})")

    def _identify(
        self, directory: str, meta: MetaProperties | None, expected: MetaProperties, rng: RandomBits
    ) -> None:
        """Note the directory's id; write ``meta.properties``, or complete it where something is missing."""
        if meta is None or not meta.is_complete:
            version = expected.version if meta is None else meta.version
            directory_id = None if meta is None else meta.directory_id
            if directory_id is None and (meta is None or version):
                directory_id = random_uuid(rng)
            meta = MetaProperties(version, expected.cluster_id, expected.node_id, directory_id)
            write_meta_properties(self._files, directory, meta)
        if meta.directory_id is None:
            return
        for other, directory_id in self.directory_ids.items():
            if directory_id == meta.directory_id:
                raise StartError(
                    f"log directories {other} and {directory} have one directory.id, "
                    f"{encode_uuid(directory_id)}: one is a copy of the other"
                )
        self.directory_ids[directory] = meta.directory_id


def _check(directory: str, meta: MetaProperties, expected: MetaProperties) -> None:
    path = os.path.join(directory, META_PROPERTIES)
    if meta.cluster_id is not None and meta.cluster_id != expected.cluster_id:
        raise StartError(
            f"log directory {directory} belongs to cluster {meta.cluster_id}, not to {expected.cluster_id} "
            f"(see {path})"
        )
    if meta.node_id is not None and meta.node_id != expected.node_id:
        raise StartError(
            f"log directory {directory} belongs to broker {meta.node_id}, not to {expected.node_id} "
            f"(see {path}); to start broker {meta.node_id}: --set node.id={meta.node_id}"
        )


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
        self.topic_config = topic_config
        self.producer_id_expiration_ms = producer_id_expiration_ms  # of logs that are opened from now on
        self.verifies_transactions = verifies_transactions
        self._deleted: list[str] = []
        self._futures: list[FoundLog] = []
        self._unopened: list[TopicPartition] = []
        self._gone: set[TopicPartition] = set()
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
        first_dirty_offset: int | None = None,
        log_start_offset: int = 0,
        recovery_point: int = 0,
    ) -> UnifiedLog:
        """Open or create the log in ``directory``. Raises OSError."""
        log = unified_log.UnifiedLog.load(
            directory,
            topic_partition,
            config=self.topic_config(topic_partition.topic),
            files=self._files,
            clock=self._clock,
            log_start_offset=Offset(log_start_offset),
            recovery_point=Offset(recovery_point),
            clean_shutdown=clean_shutdown,
            first_dirty_offset=first_dirty_offset,
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
        gone = recovery_points.keys() | log_start_offsets.keys() | high_watermarks.keys()
        gone |= first_dirty_offsets.keys()
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
            gone.discard(topic_partition)
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
        self._gone = gone
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
            first_dirty_offset=found.first_dirty_offset,
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

    def take_gone(self) -> set[TopicPartition]:
        """The partitions that a checkpoint of the directory named, and that ``load`` did not find there."""
        gone, self._gone = self._gone, set()
        return gone

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
        if name == UNFINISHED_IMPORT:
            raise StartError(f"{path}: {FINISH_IMPORT}")
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


class DiskWork(Protocol):
    """A piece of work for the disk thread."""

    @property
    def log_directory(self) -> str: ...

    def run(self) -> None:
        """Blocks. Raises OSError."""
        ...


class NewLogSync(msgspec.Struct, frozen=True):
    """Makes a new partition's directory durable: its ``partition.metadata`` and ``paths`` (its first leader
    epoch), its entries, its own name."""

    files: Files
    directory: str
    paths: tuple[str, ...] = ()

    @property
    def log_directory(self) -> str:
        return os.path.dirname(self.directory)

    def run(self) -> None:
        try:
            for path in (os.path.join(self.directory, PARTITION_METADATA), *self.paths):
                fsync_file(self.files, path)
            self.files.sync_directory(self.directory)
        except FileNotFoundError:
            return  # deleted again meanwhile
        self.files.sync_directory(self.log_directory)


class SwapSync(msgspec.Struct, frozen=True):
    """Makes the names of swapped segments in a partition's directory durable."""

    files: Files
    directory: str

    @property
    def log_directory(self) -> str:
        return os.path.dirname(self.directory)

    def run(self) -> None:
        try:
            self.files.sync_directory(self.directory)
        except FileNotFoundError:
            return  # deleted meanwhile


class DirectorySync(msgspec.Struct, frozen=True):
    """Makes the renames in a log directory durable."""

    files: Files
    log_directory: str

    def run(self) -> None:
        self.files.sync_directory(self.log_directory)


class DirectoryRemoval(msgspec.Struct, frozen=True):
    """Removes the directory of a deleted partition, from ``due_ms`` on."""

    files: Files
    directory: str
    due_ms: int

    @property
    def log_directory(self) -> str:
        return os.path.dirname(self.directory)

    def run(self) -> None:
        self.files.remove_tree(self.directory)


class FileRemoval(msgspec.Struct, frozen=True):
    """Removes files of segments whose delay has passed. One that cannot be removed keeps no other; the log
    directory goes offline for it all the same (``LocalLog.deleteSegmentFiles``)."""

    files: Files
    log_directory: str
    paths: tuple[str, ...]

    def run(self) -> None:
        failure: OSError | None = None
        for path in self.paths:
            try:
                self.files.remove(path)
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def run_all(work: Iterable[DiskWork]) -> dict[str, OSError]:
    """Run the pieces in order. Blocks. Returns the log directories where one failed; when it was the disk
    that did, no more is done there."""
    failed: dict[str, OSError] = {}
    for piece in work:
        log_directory = piece.log_directory
        if log_directory in failed and is_disk_failure(failed[log_directory]):
            continue
        try:
            piece.run()
        except OSError as error:
            failed[log_directory] = error
    return failed


def discard(files: Files, directory: str) -> None:
    """Remove what a failed creation has left, as far as the disk still lets us: a second log of the partition
    would keep the next start from succeeding."""
    try:
        files.remove_tree(directory)
    except OSError as error:
        _log.warning("cannot remove %s: %s", directory, error)
