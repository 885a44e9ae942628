"""The files of logs: how they are named, which of them are open, and how they are flushed.

**Names** of a partition's directory and of the files in it, and what a name says. Kafka: ``LogFileUtils``;
``UnifiedLog.parseTopicPartitionName``, ``logDeleteDirName`` and their kin.

A segment's files carry its base offset, zero-padded to 20 digits so that names sort as offsets do; a producer
snapshot the first offset that is not reflected in it.

``<topic>-<partition>`` holds a log; with ``.<32 hex digits>-delete`` behind it one that waits for its
removal, with ``-future`` one that is being moved to this log directory (KIP-113), with ``-stray`` one that
belongs to no topic (KIP-858). A file name has at most 255 characters, so the topic's name is cut for
``-delete`` and ``-stray``; what such a directory is called no longer says to which topic it belonged.

A current directory that its ``-future`` one has replaced takes that one's digits with it when it becomes
``-delete``: so a start can tell that the replacement had begun (``log_directories``).

**Open files** (``OpenFiles``): segment files and indexes, in a bounded cache of descriptors. The cache is
shared by all logs of a broker. Kafka keeps every segment's files open, so the limit on descriptors is a limit
on its partitions. Here a file is opened when it is used and stays open while there is room; the number of
partitions is not limited by it.

Invariants: at most ``files_max`` members are open. A member closes only while another one is being opened,
so no caller may keep an open file over a call that can open one. Only the thread that uses the logs comes
here; disk threads open files of their own.

**Flushes**: a log's bytes are brought to the disk in two halves. Kafka: ``UnifiedLog.flush``,
``LocalLog.flush``. The loop begins a flush and completes it; in between ``Flush.run`` fsyncs on the disk
thread, through descriptors of its own. A failed fsync is final: the kernel may have dropped the pages, so it
is never retried.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeVar

from minikafka.files import Files, lacks_descriptors
from minikafka.named_tuple import NamedTuple
from minikafka.types import TopicPartition

# Files

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
OFFSET_MAX = 2**63 - 1
_FILE_NAME = re.compile(
    r"(?P<offset>\d{20})(?P<suffix>\.(?:log|index|timeindex|txnindex|snapshot))", re.ASCII
)

# Directories

NAME_LENGTH_MAX = 255

NOT_PARTITIONS = ("lost+found", "remote-log-index-cache")
"""Directories with another purpose that a log directory may hold."""
UNFINISHED_IMPORT = "minikafka-import.unfinished"
"""What an import has committed and not yet put in place (``spark.load.target``); no broker starts there."""
FINISH_IMPORT = "an import was interrupted: the next minikafka import into this directory finishes it"
_DIRECTORY_NAME = re.compile(
    r"(?P<topic>\S+)-(?P<partition>[0-9]{1,10})(?:\.(?P<unique>\S*)-(?P<kind>delete|future|stray))?"
)

CLUSTER_METADATA = TopicPartition("__cluster_metadata", 0)
"""KRaft's own log, with snapshots and a quorum state beside its segments; none of this broker's topics."""

T = TypeVar("T")

OPEN_FILES_MAX = 768
"""For those that say nothing: below the usual soft limit of 1,024."""

_SHARE_TO_CLOSE = 8
"""When the process has no descriptor left, one in so many of the open files is closed."""


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """(base offset, suffix) of a live file of a log; None for every other name."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    offset = int(match["offset"])
    return (offset, match["suffix"]) if offset <= OFFSET_MAX else None


class DirectoryKind(Enum):
    """What a partition's directory is for."""

    CURRENT = "current"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class ParsedName(NamedTuple):
    """What a directory's name says."""

    topic_partition: TopicPartition
    kind: DirectoryKind
    unique: str = ""
    """What tells it from other directories of this kind; empty for a current one."""


def parse_directory_name(name: str) -> ParsedName | None:
    """What ``name`` says; None when it is no partition's directory."""
    match = _DIRECTORY_NAME.fullmatch(name)
    if match is None or int(match["partition"]) >= 1 << 31:
        return None
    kind = DirectoryKind(match["kind"] or "current")
    return ParsedName(TopicPartition(match["topic"], int(match["partition"])), kind, match["unique"] or "")


def future_directory_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name of a directory to which a replica is being moved. Never cut: the name must say whose it is, so
    it is longer than ``NAME_LENGTH_MAX`` for a topic that cannot be moved (KAFKA-4893)."""
    return f"{topic_partition}.{unique}-future"


def delete_directory_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name of a directory that waits for its removal; ``unique`` is 32 hex digits."""
    return _capped(topic_partition, f".{unique}-delete")


def stray_directory_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name of a directory whose partition does not belong to this broker."""
    return _capped(topic_partition, f".{unique}-stray")


def _capped(topic_partition: TopicPartition, suffix: str) -> str:
    ending = f"-{topic_partition.partition}{suffix}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(ending)] + ending


def fsync_file(files: Files, path: str) -> bool:
    """fsync a file through a descriptor of its own. Blocks. False when there is no such file."""
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return False
    try:
        file.fsync()
    finally:
        file.close()
    return True


class Flush:
    """The fsyncs that make everything below ``up_to`` durable."""

    __slots__ = ("_directory", "_files", "_has_new_files", "_paths", "generation", "missing_paths", "up_to")

    def __init__(
        self,
        files: Files,
        *,
        paths: list[str],
        directory: str,
        has_new_files: bool,
        up_to: int,
        generation: int,
    ) -> None:
        self._files = files
        self._paths = paths
        self._directory = directory
        self._has_new_files = has_new_files
        self.up_to = up_to
        self.generation = generation
        self.missing_paths: list[str] = []

    def __repr__(self) -> str:
        return f"Flush(up_to={self.up_to}, files={len(self._paths)})"

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it makes durable."""
        return tuple(self._paths)

    @property
    def log_directory(self) -> str:
        """The log directory that goes offline when ``run`` fails (``DiskWork``)."""
        return os.path.dirname(self._directory)

    def run(self) -> None:
        """fsync the files, then the directory when it has new ones. Blocks; touches nothing of the log.

        A file that was deleted meanwhile (retention, truncation) is noted, not an error.

        Raises:
            OSError: what the log holds above its recovery point may be lost; the directory must go offline.
        """
        for path in self._paths:
            if not fsync_file(self._files, path):
                self.missing_paths.append(path)
        if self._has_new_files:
            try:
                self._files.sync_directory(self._directory)
            except FileNotFoundError:
                self.missing_paths.append(self._directory)


class CachedFile(Protocol):
    """Holds at most one descriptor, and opens it again whenever it needs it."""

    was_used: bool
    """Since it was opened, or since the cache looked last; set by its owner, which costs less than a move in
    a list at every append."""

    def close_idle(self) -> None:
        """Let go of the descriptor."""
        ...


class OpenFiles:
    """Closes what has not been used for long, by the clock algorithm ("second chance")."""

    def __init__(self, files_max: int = OPEN_FILES_MAX) -> None:
        self.files_max = files_max
        self._members: OrderedDict[CachedFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"OpenFiles({len(self)} of {self.files_max})"

    def open(self, member: CachedFile, open_file: Callable[[], T]) -> T:
        """What ``open_file`` returns, which opens the file of ``member``; others may have to close for it.

        Raises:
            OSError: those of ``open_file``.
        """
        while len(self._members) >= self.files_max:
            self._close_one()
        try:
            opened = open_file()
        except OSError as error:
            if not self._members or not lacks_descriptors(error):
                raise
            for _ in range(-(-len(self._members) // _SHARE_TO_CLOSE)):
                self._close_one()
            opened = open_file()
        member.was_used = False
        self._members[member] = None
        return opened

    def forget(self, member: CachedFile) -> None:
        """It was closed by its owner."""
        self._members.pop(member, None)

    def _close_one(self) -> None:
        members = self._members
        while True:  # a member that was used goes to the end as unused, so the second round ends it
            member, _ = members.popitem(last=False)
            if not member.was_used:
                member.close_idle()
                return
            member.was_used = False
            members[member] = None
