"""Where an import goes, a topic's directories in a log directory that no broker uses, and how it gets there.

    orders-0.<digits>-delete/     what an import works in: a broker that finds it after a kill removes it, and
                                  so does the next import
    minikafka-import.unfinished/  the same, from the commit on: what is left to do is in commit.json

An import is committed by one rename. From there on segments only get their places, which takes
milliseconds. Killed in between, the next import, of whatever topic, finishes it; until then no broker starts
on the directory, neither ours nor Apache Kafka's, because no directory of theirs has such a name, and says
so. Before the rename there is nothing of the import.

| killed                    | what there is                     | what the next import does      |
|---------------------------|-----------------------------------|--------------------------------|
| while encoding            | a ``-delete`` directory           | removes it                     |
| after the commit          | ``minikafka-import.unfinished``   | moves the rest, checkpoints    |
| after all has its place   | the same, nothing to be moved     | checkpoints, and removes it    |

A new topic gets directories of its own, with ``partition.metadata`` and leader epoch 0; a broker with an
empty store adopts them. The records of a topic that is there continue at its log end, as segments of their
own, with its leader epoch; no file with a record is touched. The log must have been closed cleanly, because
an import does not recover logs. A producer snapshot at the new end, with the producers of the old one, saves
a broker the look through all that was imported. What is durable already need not be recovered: the recovery
point and the high watermark are the new log end.

The lock is that of brokers: ``flock`` as ours take it, and a POSIX lock as Java takes it; the two do not see
each other on Linux.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from minikafka.config.topic import TopicConfig
from minikafka.errors import UNDECODABLE, StartError
from minikafka.files import Files, make_private_directory, open_regular
from minikafka.log.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpoint,
    EpochEntry,
    encode_leader_epochs,
    encode_offsets,
    encode_partition_metadata,
    lock_directory,
    read_leader_epochs,
    read_offsets,
    write_clean_shutdown_marker,
)
from minikafka.log.files import (
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    UNFINISHED_IMPORT,
    DirectoryKind,
    delete_directory_name,
    file_name,
    parse_directory_name,
    parse_file_name,
)
from minikafka.log.producers.snapshot import encode_snapshot
from minikafka.log.segment.segment import CorruptSegment, LogSegment
from minikafka.log.staged_compaction import is_interrupted
from minikafka.spark.load.segments import SEGMENT_FILES, MadeSegment
from minikafka.spark.runtime.session import JobError
from minikafka.types import TopicPartition

COMMIT = "commit.json"
RUNS, LOGS = "runs", "logs"
COMMIT_VERSION: Final = 1
REMOVALS_MAX, REMOVAL_PAUSE_S = 50, 0.1
"""How often what a killed import has left is removed, while something is still written into it."""
_OURS: Final = b"minikafka in".hex()
"""How the 32 digits of a staging directory begin: no broker draws them, so an import knows its own again."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
INTERNAL_TOPICS: Final = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
)


class TargetPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as it is before the import."""

    partition: int
    exists: bool
    end_offset: int = 0
    """Where its log ends, and the import begins."""
    leader_epoch: int = 0
    has_epoch: bool = False
    """Whether its leader epochs say so already."""
    snapshot: bytes = b""
    """Of the producers at the end; empty: there is none."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What the records become part of."""

    log_directory: str
    topic: str
    partitions: tuple[TargetPartition, ...]
    is_new: bool
    """The topic is not there yet."""
    is_fresh: bool
    """Neither is any other: no broker has had the directory yet."""


class ImportedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """What is added to one partition."""

    partition: int
    is_new: bool
    files: tuple[str, ...]
    """That are moved into a directory which is there, in this order; a new directory moves as a whole."""
    end_offset: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """What an import has to put in place."""

    version: int = COMMIT_VERSION
    topic: str
    partitions: tuple[ImportedPartition, ...]
    is_fresh: bool


def check_topic(topic: str) -> None:
    """Raises JobError: no topic has such a name, or only brokers write it."""
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise JobError(f"{topic!r} is no topic's name: 1 to 249 of a-z A-Z 0-9 . _ -")
    if topic in INTERNAL_TOPICS:
        raise JobError(f"{topic} is Kafka's own: only brokers write it")


# ---- the directory


@contextmanager
def locked(files: Files, log_directory: str) -> Iterator[None]:
    """No broker takes the directory meanwhile, ours or Apache Kafka's, and no other import.

    Raises:
        JobError: one has it.
        OSError: it cannot be written.
    """
    make_private_directory(log_directory)
    try:
        lock = lock_directory(files, log_directory)
    except StartError:
        raise _held(log_directory) from None
    try:
        descriptor = open_regular(os.path.join(log_directory, LOCK_FILE), os.O_RDWR)
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise _held(log_directory) from None
            yield
        finally:
            os.close(descriptor)
    finally:
        lock.release()


def _held(log_directory: str) -> JobError:
    return JobError(
        f"{log_directory} is in use: stop the broker that has it, or wait for the other import or compaction"
    )


def find_target(
    files: Files, log_directory: str, topic: str, partitions: int | None, config: TopicConfig
) -> Target:
    """What there is of the topic.

    Args:
        partitions: of a new topic (None: 1); of one that is there the number that it has.

    Raises:
        JobError: it cannot be added to; the directory is not a stopped broker's.
        CorruptCheckpoint, OSError.
    """
    there: dict[int, str] = {}
    any_log = False
    for name in files.list(log_directory) if files.is_directory(log_directory) else []:
        path = os.path.join(log_directory, name)
        parsed = parse_directory_name(name)
        if parsed is None or not files.is_directory(path) or parsed.kind is not DirectoryKind.CURRENT:
            continue
        any_log = True
        if parsed.topic_partition.topic == topic:
            there[parsed.topic_partition.partition] = path
    if any_log and not files.exists(os.path.join(log_directory, CLEAN_SHUTDOWN_MARKER)):
        raise JobError(
            f"{log_directory} was not closed cleanly: start its broker and stop it, which recovers its logs"
        )
    if not there:
        if files.exists(os.path.join(log_directory, META_PROPERTIES)):
            raise JobError(
                f"{log_directory} has no topic {topic}, and its broker would set new directories aside: "
                "create the topic, stop the broker, and import then"
            )
        count = 1 if partitions is None else partitions
        found = tuple(TargetPartition(partition=each, exists=False) for each in range(count))
        return Target(
            log_directory=log_directory, topic=topic, partitions=found, is_new=True, is_fresh=not any_log
        )
    if sorted(there) != list(range(len(there))):
        names = ", ".join(map(str, sorted(there)))
        raise JobError(
            f"{log_directory} has of {topic} only the partitions {names}; an import needs all of them"
        )
    if partitions not in (None, len(there)):
        raise JobError(f"topic {topic} is there with {len(there)} partitions, not {partitions}")
    existing = tuple(_existing(files, path, each, config) for each, path in sorted(there.items()))
    return Target(log_directory=log_directory, topic=topic, partitions=existing, is_new=False, is_fresh=False)


def _existing(files: Files, directory: str, partition: int, config: TopicConfig) -> TargetPartition:
    if is_interrupted(files, directory):
        raise JobError(
            f"{directory} has an interrupted compaction: start its broker and stop it, which settles it"
        )
    names = [parsed for name in files.list(directory) if (parsed := parse_file_name(name)) is not None]
    bases = sorted(offset for offset, suffix in names if suffix == LOG_SUFFIX)
    end_offset = 0
    if bases:
        path = os.path.join(directory, file_name(bases[-1], LOG_SUFFIX))
        segment = LogSegment(
            directory, bases[-1], config=config, files=files, size=files.size(path), created_ms=0
        )
        try:
            end_offset = bases[-1]
            for batch in segment.batches():
                end_offset = batch.next_offset
        except CorruptSegment as error:
            raise JobError(f"{error}: see minikafka dump-log --verify {directory}") from error
        finally:
            segment.release()
    epochs = read_leader_epochs(files, os.path.join(directory, LEADER_EPOCH_CHECKPOINT))
    snapshot = os.path.join(directory, file_name(end_offset, SNAPSHOT_SUFFIX))
    return TargetPartition(
        partition=partition,
        exists=True,
        end_offset=end_offset,
        leader_epoch=epochs[-1].epoch if epochs else 0,
        has_epoch=bool(epochs),
        snapshot=files.read_bytes(snapshot) if files.exists(snapshot) else b"",
    )


# ---- where an import works


@contextmanager
def staging(files: Files, target: Target) -> Iterator[str]:
    """A directory for runs and segments, in the log directory; gone at the end unless it was committed.

    Raises OSError.
    """
    unique = (_OURS + uuid.uuid4().hex)[:32]
    name = delete_directory_name(TopicPartition(target.topic, 0), unique)
    path = os.path.join(target.log_directory, name)
    files.make_directory(path)
    try:
        files.make_directory(os.path.join(path, RUNS))
        for each in target.partitions:
            files.make_directory(log_path(path, target.topic, each.partition))
        yield path
    finally:
        files.remove_tree(path)


def log_path(staged: str, topic: str, partition: int) -> str:
    """Where the segments of a partition are made."""
    return os.path.join(staged, LOGS, f"{topic}-{partition}")


def remove_left_over(files: Files, log_directory: str) -> list[str]:
    """Remove what killed imports have left, and return it. The lock is the caller's. Raises OSError."""
    found = []
    for name in files.list(log_directory):
        parsed = parse_directory_name(name)
        is_waiting = parsed is not None and parsed.kind is DirectoryKind.DELETE
        if parsed is not None and is_waiting and parsed.unique.startswith(_OURS):
            found.append(os.path.join(log_directory, name))
            _remove_abandoned(files, found[-1])
    return found


def _remove_abandoned(files: Files, directory: str) -> None:
    """Workers of Spark are in process groups of their own: they outlive a killed command for a moment,
    and may still write. Raises OSError."""
    for tries_left in reversed(range(REMOVALS_MAX)):
        try:
            files.remove_tree(directory)
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not tries_left:
                raise
            time.sleep(REMOVAL_PAUSE_S)


# ---- the commit


def commit(
    files: Files,
    target: Target,
    staged: str,
    made: Sequence[MadeSegment],
    ends: dict[int, int],
) -> None:
    """Make the segments part of the topic, at once; durable on return.

    Args:
        staged: the staging directory, with the segments named.
        ends: the log end of each partition with new segments, and of each of a new topic.

    Raises:
        OSError: before the commit nothing has changed; afterwards the next import finishes it.
    """
    topic_id = uuid.uuid4()
    imported = []
    for each in target.partitions:
        directory = log_path(staged, target.topic, each.partition)
        end_offset = ends.get(each.partition, each.end_offset)
        if each.exists and end_offset == each.end_offset:
            continue
        names = _segment_names(made, each.partition)
        snapshot = file_name(end_offset, SNAPSHOT_SUFFIX)
        _write(files, os.path.join(directory, snapshot), each.snapshot or encode_snapshot(()))
        if not each.has_epoch:
            epochs = encode_leader_epochs([EpochEntry(each.leader_epoch, each.end_offset)])
            _write(files, os.path.join(directory, LEADER_EPOCH_CHECKPOINT), epochs)
            names = [LEADER_EPOCH_CHECKPOINT, *names]
        if not each.exists:
            _write(files, os.path.join(directory, PARTITION_METADATA), encode_partition_metadata(topic_id))
        files.sync_directory(directory)
        imported.append(
            ImportedPartition(
                partition=each.partition,
                is_new=not each.exists,
                files=() if not each.exists else (*names, snapshot),
                end_offset=end_offset,
            )
        )
    record = Commit(topic=target.topic, partitions=tuple(imported), is_fresh=target.is_fresh)
    _give_to_owner(target.log_directory, staged)
    files.remove_tree(os.path.join(staged, RUNS))
    files.write_atomically(os.path.join(staged, COMMIT), msgspec.json.encode(record))
    files.sync_directory(os.path.join(staged, LOGS))
    files.rename(staged, os.path.join(target.log_directory, UNFINISHED_IMPORT))
    files.sync_directory(target.log_directory)
    finish(files, target.log_directory)


def _segment_names(made: Sequence[MadeSegment], partition: int) -> list[str]:
    bases = sorted(segment.base_offset for segment in made if segment.partition == partition)
    return [file_name(base, suffix) for base in bases for suffix in SEGMENT_FILES]


def _write(files: Files, path: str, data: bytes) -> None:
    file = files.open(path, create=True)
    try:
        file.write([data], 0)
        file.fsync()
    finally:
        file.close()


def _give_to_owner(log_directory: str, staged: str) -> None:
    """Where root imports into another user's directory, the files become that user's."""
    status = os.stat(log_directory)
    if os.geteuid() != 0 or status.st_uid == 0:
        return
    os.chown(staged, status.st_uid, status.st_gid)
    for directory, directories, names in os.walk(staged):
        for name in (*directories, *names):
            os.chown(os.path.join(directory, name), status.st_uid, status.st_gid, follow_symlinks=False)


def finish(files: Files, log_directory: str) -> Commit | None:
    """Put a committed import in place, from wherever it stopped; durable on return. The lock is the caller's.

    Returns what it was; None: there was none.

    Raises:
        JobError: what it says cannot be read.
        OSError: the next call goes on.
    """
    unfinished = os.path.join(log_directory, UNFINISHED_IMPORT)
    if not files.is_directory(unfinished):
        return None
    path = os.path.join(unfinished, COMMIT)
    if files.exists(path):
        record = _read_commit(files, path)
        for each in record.partitions:
            _move(files, log_directory, unfinished, record.topic, each)
        files.sync_directory(log_directory)
        _advance_checkpoints(files, log_directory, record)
        if record.is_fresh:
            write_clean_shutdown_marker(files, log_directory)
        files.remove(path)
    else:
        record = Commit(topic="", partitions=(), is_fresh=False)  # all was done but its removal
    files.remove_tree(unfinished)
    files.sync_directory(log_directory)
    return record


def _read_commit(files: Files, path: str) -> Commit:
    try:
        record = msgspec.json.decode(files.read_bytes(path), type=Commit)
    except UNDECODABLE as error:
        raise JobError(
            f"{path} cannot be read ({error}): it says what an interrupted import has to move"
        ) from None
    if record.version != COMMIT_VERSION:
        raise JobError(
            f"{path} has version {record.version}, expected {COMMIT_VERSION}: use the same minikafka"
        )
    return record


def _move(files: Files, log_directory: str, unfinished: str, topic: str, each: ImportedPartition) -> None:
    source = log_path(unfinished, topic, each.partition)
    directory = os.path.join(log_directory, f"{topic}-{each.partition}")
    if each.is_new:
        if files.is_directory(source):
            files.rename(source, directory)
        return
    for name in each.files:
        if files.exists(os.path.join(source, name)):
            files.rename(os.path.join(source, name), os.path.join(directory, name))
    files.sync_directory(directory)


def _advance_checkpoints(files: Files, log_directory: str, record: Commit) -> None:
    for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT):
        path = os.path.join(log_directory, name)
        try:
            offsets = read_offsets(files, path)
        except CorruptCheckpoint:
            continue  # the broker goes on without it, and recovers more
        for each in record.partitions:
            offsets[TopicPartition(record.topic, each.partition)] = each.end_offset
        files.write_atomically(path, encode_offsets(offsets))
