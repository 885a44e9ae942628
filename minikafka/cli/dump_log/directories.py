"""What kind of directory a path is, and what a log directory's own files say of its partitions.

A name alone does not tell: the data directory ``broker-1`` of a cluster is named as partition 1 of a topic
``broker`` would be. What is in it decides.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import NamedTuple

from minikafka.files import Files
from minikafka.log.files.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpoint,
    read_offsets,
)
from minikafka.log.files.meta_properties import META_PROPERTIES
from minikafka.log.files.names import LOG_SUFFIX, parse_directory_name
from minikafka.types import TopicPartition

_OF_A_LOG_DIRECTORY = frozenset(
    {
        META_PROPERTIES,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        REPLICATION_OFFSET_CHECKPOINT,
        CLEANER_OFFSET_CHECKPOINT,
    }
)


class PathKind(Enum):
    """What a directory is."""

    PARTITION = "PARTITION"
    LOG_DIRECTORY = "LOG_DIRECTORY"
    OTHER = "OTHER"
    """It may hold log directories, as the data directory of ``minikafka cluster`` does."""


def path_kind(path: str, files: Files) -> PathKind:
    """What the directory ``path`` is. Raises OSError."""
    names = files.list(path)
    if not _OF_A_LOG_DIRECTORY.isdisjoint(names):
        return PathKind.LOG_DIRECTORY
    if any(name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA) or _is_segment(name) for name in names):
        return PathKind.PARTITION
    is_named_so = parse_directory_name(os.path.basename(os.path.abspath(path))) is not None
    has_directories = any(files.is_directory(os.path.join(path, name)) for name in names)
    return PathKind.PARTITION if is_named_so and not has_directories else PathKind.OTHER


def _is_segment(name: str) -> bool:
    return name.endswith(LOG_SUFFIX) and name.removesuffix(LOG_SUFFIX).isdigit()


class LogDirectoryState(NamedTuple):
    """What the files of a log directory say of all partitions in it."""

    was_stopped_cleanly: bool
    """If not, the next start removes and rebuilds what a kill leaves behind."""
    log_starts: dict[TopicPartition, int]
    compacted: frozenset[TopicPartition]
    """Those that were ever compacted, in which offsets may be missing."""


def log_directory_state(path: str, files: Files) -> LogDirectoryState | None:
    """The state of the log directory ``path``; None when it is none. Raises OSError."""
    if path_kind(path, files) is not PathKind.LOG_DIRECTORY:
        return None
    return LogDirectoryState(
        files.exists(os.path.join(path, CLEAN_SHUTDOWN_MARKER)),
        _read(os.path.join(path, LOG_START_OFFSET_CHECKPOINT), files),
        frozenset(_read(os.path.join(path, CLEANER_OFFSET_CHECKPOINT), files)),
    )


def _read(path: str, files: Files) -> dict[TopicPartition, int]:
    try:
        return read_offsets(files, path)
    except CorruptCheckpoint:  # a finding of its own when the log directory is verified
        return {}
