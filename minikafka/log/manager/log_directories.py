"""The log directories of a broker: made, locked, and known to belong to this broker and cluster.

Kafka: ``LogManager.createAndValidateLogDirs`` and ``lockLogDirs``, ``MetaPropertiesEnsemble.verify``.

A directory that cannot be used (unreadable, unwritable, a damaged ``meta.properties``) is offline alone and
the others stay online; only with none left does the start fail. What shows a mistake of the operator fails
the start at once: a directory given twice, one that another broker has locked, another cluster's or another
broker's.

What becomes of the ``-future`` directories that a start finds: half-moved replicas (KIP-113). Pure.

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
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol
from uuid import UUID

from minikafka.errors import StartError
from minikafka.files import DirectoryLock, Files
from minikafka.log.files.checkpoint import CorruptCheckpoint, encode_uuid, lock_directory
from minikafka.log.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from minikafka.log.files.names import parse_directory_name
from minikafka.types import TopicPartition


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


_log = logging.getLogger(__name__)


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
        self, log_directories: Sequence[str], *, files: Files, rng: RandomBits, cluster_id: str, node_id: int
    ) -> None:
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
            self._open(rng, MetaProperties(1, cluster_id, node_id))
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
                self._identify(directory, meta or MetaProperties(1), expected, rng)
            except OSError as error:
                _log.error("log directory %s is offline: %s", directory, error)
                self.take_offline(directory, str(error))
        if not self.live:
            reasons = "; ".join(f"{directory}: {reason}" for directory, reason in self.offline.items())
            raise StartError(f"no log directory can be used ({reasons})")

    def _identify(
        self, directory: str, meta: MetaProperties, expected: MetaProperties, rng: RandomBits
    ) -> None:
        """Note the directory's id; complete ``meta.properties`` where something is missing."""
        if not meta.is_complete:
            meta = MetaProperties(
                meta.version,
                expected.cluster_id,
                expected.node_id,
                meta.directory_id or (random_uuid(rng) if meta.version else None),
            )
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
