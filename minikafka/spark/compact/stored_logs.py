"""The logs that ``minikafka compact`` is asked for, as their directory has them, and where it works on them.

Everything here is the driver's, on a directory that it reaches by a path: new segments take the place of
old ones by renames, so they must lie on the same file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from minikafka.errors import StartError
from minikafka.files import DirectoryLock, Files
from minikafka.log.compaction.job import CompactionResult, SourceSegment
from minikafka.log.compaction.staged_compaction import staging_directory
from minikafka.log.files.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    CorruptCheckpoint,
    encode_uuid,
    lock_directory,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
)
from minikafka.log.files.names import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, file_name
from minikafka.spark.compact.copy import CopyOutcome
from minikafka.spark.compact.plan import StoredLog
from minikafka.spark.runtime.failures import JobError
from minikafka.spark.source.log_files import PartitionLog, find_logs
from minikafka.spark.source.storage import LocalStorage, location
from minikafka.types import TopicPartition

VIEW = "view"
"""In a staging directory: the new segments under the names that segments have, to be read like a log."""


def find_stored_logs(
    files: Files, log_directory: str, wanted: Sequence[tuple[str, int | None]]
) -> list[StoredLog]:
    """The logs of ``wanted``: topics, each with a partition or (None) with all that are there.

    Raises:
        MinikafkaError: it is no log directory that can be listed, or has none of a topic or partition; a
            directory has the name of a segment's file.
        OSError: the disk's.
    """
    logs = find_logs(location(log_directory), LocalStorage(), log_directory)
    for topic, partition in wanted:
        if not any(_is_of(log.topic_partition, topic, partition) for log in logs):
            what = f"topic {topic}" if partition is None else f"partition {topic}-{partition}"
            raise JobError(f"{log_directory} has no {what}{_others(logs)}")
    first_dirty = _first_dirty(files, log_directory)
    return [
        _stored(files, log, first_dirty.get(log.topic_partition, 0))
        for log in logs
        if any(_is_of(log.topic_partition, *each) for each in wanted)
    ]


def _is_of(found: TopicPartition, topic: str, partition: int | None) -> bool:
    return found.topic == topic and partition in (None, found.partition)


def _others(logs: Iterable[PartitionLog]) -> str:
    topics = sorted({log.topic_partition.topic for log in logs})
    return f"; it has {', '.join(topics[:10])}{', …' if len(topics) > 10 else ''}" if topics else ""


def _stored(files: Files, log: PartitionLog, first_dirty_offset: int) -> StoredLog:
    segments = tuple(
        SourceSegment(
            each.base_offset,
            each.size,
            each.offset_index_bytes or 0,
            each.time_index_bytes or 0,
            bool(each.txn_index_bytes),
        )
        for each in log.segments
    )
    paths = {each.base_offset: os.path.join(log.path, each.name) for each in log.segments}
    for base_offset in paths:
        for suffix in SEGMENT_SUFFIXES:
            path = os.path.join(log.path, file_name(base_offset, suffix))
            if files.is_directory(path):
                raise JobError(f"{path} is a directory in the place of a file: move it away")
    topic_id = read_partition_metadata(files, log.path)
    return StoredLog(
        topic_partition=log.topic_partition,
        directory=log.path,
        segments=segments,
        modified_ms={base_offset: files.modified_ms(path) for base_offset, path in paths.items()},
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        first_dirty_offset=first_dirty_offset,
        topic_id=None if topic_id is None else encode_uuid(topic_id),
        leader_epochs=tuple(read_leader_epochs(files, os.path.join(log.path, LEADER_EPOCH_CHECKPOINT))),
    )


def _first_dirty(files: Files, log_directory: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(files, os.path.join(log_directory, CLEANER_OFFSET_CHECKPOINT))
    except CorruptCheckpoint:
        return {}  # then all counts as dirty, as in a broker


def locked(files: Files, log_directory: str) -> DirectoryLock:
    """No broker takes the directory meanwhile. Raises JobError: one has it; OSError: it cannot be written."""
    try:
        return lock_directory(files, log_directory)
    except StartError:
        raise JobError(
            f"{log_directory} is held by a broker, to be named with --bootstrap-server HOST:PORT, or by "
            "another minikafka compact"
        ) from None


@contextmanager
def staging_of(files: Files, directories: Sequence[str]) -> Iterator[None]:
    """An empty staging directory in each log's directory, ours alone; gone at the end, whatever comes.

    Raises:
        JobError: another job works there.
        OSError: the disk's.
    """
    with ExitStack() as stack:
        for directory in directories:
            staging = staging_directory(directory)
            files.make_directory(staging)
            try:
                lock = files.lock(os.path.join(staging, LOCK_FILE))
            except BlockingIOError:
                raise JobError(f"{staging} is locked: another minikafka compact is at work there") from None
            stack.callback(_clear, files, directory)
            stack.callback(lock.release)
            for name in files.list(staging):
                if name != LOCK_FILE:
                    files.remove_tree(os.path.join(staging, name))
                    files.remove(os.path.join(staging, name))
        yield


def _clear(files: Files, directory: str) -> None:
    if files.is_directory(directory):  # the topic may have been deleted
        files.remove_tree(staging_directory(directory))


def collect_attempts(files: Files, directory: str, outcomes: Sequence[CopyOutcome]) -> CompactionResult:
    """Bring the files of the attempts that count together. Returns what was done, but for ``end_offset``.

    Raises OSError.
    """
    staging = staging_directory(directory)
    for outcome in outcomes:
        attempt = os.path.join(staging, outcome.attempt)
        for name in files.list(attempt):
            files.rename(os.path.join(attempt, name), os.path.join(staging, name))
    for name in files.list(staging):
        if name.startswith("attempt-"):
            files.remove_tree(os.path.join(staging, name))
    return CompactionResult(
        segments=tuple(new for outcome in outcomes for new in outcome.segments),
        end_offset=0,
        records_kept=sum(outcome.records_kept for outcome in outcomes),
        records_dropped=sum(outcome.records_dropped for outcome in outcomes),
        map_entries=0,
    )


@contextmanager
def view_of(directory: str, result: CompactionResult) -> Iterator[str]:
    """The new segments as a log directory of their own, for a while: hard links with the names of
    segments."""
    staging = staging_directory(directory)
    view = os.path.join(staging, VIEW)
    log = os.path.join(view, os.path.basename(directory))
    os.makedirs(log)
    links = []
    try:
        for new in result.segments:
            for suffix in SEGMENT_SUFFIXES:
                name = file_name(new.base_offset, suffix)
                source = os.path.join(staging, name + CLEANED_SUFFIX)
                if suffix == LOG_SUFFIX or os.path.exists(source):
                    os.link(source, os.path.join(log, name))
                    links.append(os.path.join(log, name))
        yield view
    finally:
        for link in links:
            os.unlink(link)
        os.rmdir(log)
        os.rmdir(view)
