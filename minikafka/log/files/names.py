"""How a partition's directory and the files in it are named, and what a name says.

Kafka: ``LogFileUtils``; ``UnifiedLog.parseTopicPartitionName``, ``logDeleteDirName`` and their kin.

A segment's files carry its base offset, zero-padded to 20 digits so that names sort as offsets do; a producer
snapshot the first offset that is not reflected in it.

``<topic>-<partition>`` holds a log; with ``.<32 hex digits>-delete`` behind it one that waits for its
removal, with ``-future`` one that is being moved to this log directory (KIP-113), with ``-stray`` one that
belongs to no topic (KIP-858). A file name has at most 255 characters, so the topic's name is cut for
``-delete`` and ``-stray``; what such a directory is called no longer says to which topic it belonged.

A current directory that its ``-future`` one has replaced takes that one's digits with it when it becomes
``-delete``: so a start can tell that the replacement had begun (``log_directories``).
"""

from __future__ import annotations

import re
from enum import Enum

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
