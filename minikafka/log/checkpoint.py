"""The small files of a log directory: checkpoints, two kinds of properties, shutdown marker, lock.

Kafka's classes: ``CheckpointFile``, ``OffsetCheckpointFile``, ``LeaderEpochCheckpointFile``,
``PartitionMetadataFile``, ``CleanShutdownFileHandler``, ``LogManager.lockLogDirs``, ``MetaProperties``,
``MetaPropertiesEnsemble``.

A checkpoint is text: a line with the version (0), a line with the number of entries, a line an entry:
``topic partition offset`` or ``epoch startOffset``. A missing or empty file has no entries, as in Kafka,
which creates its checkpoints empty. Every line ends with a newline: a file whose last line has none is torn,
because a number that lost its last digits is a number too.

Every write of a checkpoint is atomic and durable (``Files.write_atomically``), so it blocks; what the shell
wants to write from its disk thread it gets as a ``CheckpointWrite``.

Different from Kafka: a partition listed twice and leader epochs that do not increase are damage, where Kafka
lets the last line win; and a torn last line is damage, which Kafka reads.

``meta.properties`` says which cluster and which broker a log directory belongs to. Kafka's classes:
``MetaProperties``, ``MetaPropertiesEnsemble`` (KIP-631, KIP-858). Version 0 is what brokers with ZooKeeper
wrote (``broker.id``; any field may be missing), version 1 what Kafka 4.x writes (``node.id``, ``cluster.id``,
and a ``directory.id`` of each directory's own). Both are read. New files have version 1, and on ZooKeeper
version 0, the only one that Apache Kafka's brokers start with there; with a ``directory.id`` too, which these
do not mind.

Different from Kafka: the keys are sorted and there is no comment with a date, so equal content is equal
bytes.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec

from minikafka.config.properties import parse_properties
from minikafka.errors import ConfigError, MinikafkaError, StartError
from minikafka.files import DirectoryLock, Files
from minikafka.named_tuple import NamedTuple
from minikafka.types import TopicPartition

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

CHECKPOINT_VERSION = 0

_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_MAX_INT32 = (1 << 31) - 1
_MAX_INT64 = (1 << 63) - 1

META_PROPERTIES = "meta.properties"


class CorruptCheckpoint(MinikafkaError):
    """A checkpoint file that cannot be read; names the file and the line. The loader continues without it."""


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class CheckpointWrite(msgspec.Struct, frozen=True):
    """Offsets to write: taken on the loop; encoded and written on the disk thread, where thousands of
    partitions may take tens of milliseconds."""

    files: Files
    path: str
    offsets: Mapping[TopicPartition, int]

    @property
    def log_directory(self) -> str:
        return os.path.dirname(self.path)

    def run(self) -> None:
        """Write them, durably. Blocks. Raises OSError."""
        self.files.write_atomically(self.path, encode_offsets(self.offsets))


# Offset checkpoints
def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of an offset checkpoint, partitions in order."""
    by_topic: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for (topic, partition), offset in offsets.items():
        by_topic[topic].append((partition, offset))
    return _encode_lines(
        f"{topic} {partition} {offset}"
        for topic, found in sorted(by_topic.items())
        for partition, offset in sorted(found)
    )


def decode_offsets(data: bytes, *, path: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint's bytes; ``path`` is for the error.

    Raises:
        CorruptCheckpoint: for whatever is wrong with them.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, line in _decode_lines(data, path):
        match line.split():
            case [topic, partition, offset]:
                topic_partition = TopicPartition(topic, _integer(partition, path, number, _MAX_INT32))
                if topic_partition in offsets:
                    raise CorruptCheckpoint(f"{path}: line {number}: {topic_partition} is listed twice")
                offsets[topic_partition] = _integer(offset, path, number, _MAX_INT64)
            case _:
                raise CorruptCheckpoint(
                    f"{path}: line {number} is not 'topic partition offset': {line[:80]!r}"
                )
    return offsets


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty when there is none. Raises CorruptCheckpoint, OSError."""
    return decode_offsets(_read(files, path), path=path)


# Leader epochs
def encode_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """The bytes of a leader-epoch checkpoint."""
    return _encode_lines(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def decode_leader_epochs(data: bytes, *, path: str) -> list[EpochEntry]:
    """The epochs in a checkpoint's bytes; ``path`` is for the error.

    Raises:
        CorruptCheckpoint: for whatever is wrong with them, also when they do not increase.
    """
    entries: list[EpochEntry] = []
    for number, line in _decode_lines(data, path):
        match line.split():
            case [epoch, start_offset]:
                entry = EpochEntry(
                    _integer(epoch, path, number, _MAX_INT32),
                    _integer(start_offset, path, number, _MAX_INT64),
                )
            case _:
                raise CorruptCheckpoint(f"{path}: line {number} is not 'epoch startOffset': {line[:80]!r}")
        if entries and not (
            entries[-1].epoch < entry.epoch and entries[-1].start_offset < entry.start_offset
        ):
            raise CorruptCheckpoint(f"{path}: line {number}: epoch {entry} does not follow {entries[-1]}")
        entries.append(entry)
    return entries


def read_leader_epochs(files: Files, path: str) -> list[EpochEntry]:
    """A leader-epoch checkpoint; empty when there is none. Raises CorruptCheckpoint, OSError."""
    return decode_leader_epochs(_read(files, path), path=path)


# partition.metadata
def encode_uuid(uuid: UUID) -> str:
    """As Kafka prints a Uuid: base64url without padding."""
    return base64.urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode("ascii")


def decode_uuid(text: str) -> UUID:
    """Raises ValueError."""
    if len(text) > 24:
        raise ValueError(f"{text[:40]!r} is longer than a UUID")
    try:
        data = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not base64: {error}") from None
    if len(data) != 16:
        raise ValueError(f"{text!r} has {len(data)} bytes, a UUID has 16")
    return UUID(bytes=data)


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """The bytes of ``partition.metadata``; Kafka ends it without a newline."""
    return f"version: {CHECKPOINT_VERSION}\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes, *, path: str) -> UUID:
    """The topic id in ``partition.metadata``'s bytes; ``path`` is for the error.

    Raises:
        CorruptCheckpoint: for whatever is wrong with them.
    """
    lines = _text(data, path).splitlines()
    if len(lines) != 2:
        raise CorruptCheckpoint(f"{path}: {len(lines)} lines, expected 'version: 0' and 'topic_id: …'")
    version, topic_id = (line.partition(":") for line in lines)
    if version[0].strip() != "version" or version[2].strip() != str(CHECKPOINT_VERSION):
        raise CorruptCheckpoint(f"{path}: line 1 is not 'version: 0': {lines[0][:80]!r}")
    if topic_id[0].strip() != "topic_id":
        raise CorruptCheckpoint(f"{path}: line 2 is not 'topic_id: …': {lines[1][:80]!r}")
    try:
        uuid = decode_uuid(topic_id[2].strip())
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: line 2: {error}") from None
    if uuid.int == 0:
        raise CorruptCheckpoint(f"{path}: the topic id is zero")
    return uuid


def read_partition_metadata(files: Files, directory: str) -> UUID | None:
    """The partition's topic id; None without a file. Raises CorruptCheckpoint, OSError."""
    path = os.path.join(directory, PARTITION_METADATA)
    return decode_partition_metadata(files.read_bytes(path), path=path) if files.exists(path) else None


# Clean shutdown, lock
def write_clean_shutdown_marker(files: Files, log_directory: str, *, broker_epoch: int = -1) -> None:
    """The last thing written at a clean shutdown: the next start need not recover."""
    content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    files.write_atomically(os.path.join(log_directory, CLEAN_SHUTDOWN_MARKER), content.encode())


def take_clean_shutdown_marker(files: Files, log_directory: str) -> bool:
    """Whether the last shutdown was clean. The marker is gone afterwards: a crash while loading is a crash.

    The content does not matter; brokers before KIP-966 left the file empty.
    """
    path = os.path.join(log_directory, CLEAN_SHUTDOWN_MARKER)
    if not files.exists(path):
        return False
    files.remove(path)
    files.sync_directory(log_directory)
    return True


def lock_directory(files: Files, log_directory: str) -> DirectoryLock:
    """Take the log directory for this process.

    Raises:
        StartError: another process has it.
        OSError: it cannot be written.
    """
    try:
        return files.lock(os.path.join(log_directory, LOCK_FILE))
    except BlockingIOError:
        raise StartError(f"log directory {log_directory} is locked: another broker is using it") from None


# Text
def _encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join((str(CHECKPOINT_VERSION), str(len(entries)), *entries, "")).encode()


def _decode_lines(data: bytes, path: str) -> list[tuple[int, str]]:
    """The entry lines with their line numbers, once version and count have been checked."""
    if not data:
        return []
    lines = _text(data, path).split("\n")
    if (torn := lines.pop()) != "":
        raise CorruptCheckpoint(f"{path}: line {len(lines) + 1} has no end, the file is torn: {torn[:80]!r}")
    version = _integer(lines[0].rstrip("\r"), path, 1, _MAX_INT32)
    if version != CHECKPOINT_VERSION:
        raise CorruptCheckpoint(f"{path}: unknown version {version}, expected {CHECKPOINT_VERSION}")
    if len(lines) < 2:
        raise CorruptCheckpoint(f"{path}: the file ends before the number of entries, it is torn")
    count = _integer(lines[1].rstrip("\r"), path, 2, _MAX_INT32)
    entries = list(enumerate(lines[2:], start=3))
    if count != len(entries):
        raise CorruptCheckpoint(f"{path}: line 2 announces {count} entries, there are {len(entries)}")
    return entries


def _integer(text: str, path: str, line: int, maximum: int) -> int:
    if not _INTEGER.fullmatch(text) or not 0 <= (value := int(text)) <= maximum:
        raise CorruptCheckpoint(f"{path}: line {line}: {text[:80]!r} is not a number from 0 to {maximum}")
    return value


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path}: not text: byte {error.start} is no UTF-8") from None


def _read(files: Files, path: str) -> bytes:
    return files.read_bytes(path) if files.exists(path) else b""


class MetaProperties(NamedTuple):
    """One directory's identity; None where the file does not say."""

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing that a file of this version has."""
        named = self.cluster_id is not None and self.node_id is not None
        return named and (self.version == 0 or self.directory_id is not None)


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """The bytes of the file, as Kafka's tools read them."""
    properties = {"version": str(meta.version)}
    if meta.cluster_id is not None:
        properties["cluster.id"] = meta.cluster_id
    if meta.node_id is not None:
        properties["broker.id" if meta.version == 0 else "node.id"] = str(meta.node_id)
    if meta.directory_id is not None:
        properties["directory.id"] = encode_uuid(meta.directory_id)
    return "".join(f"{name}={_escape(value)}\n" for name, value in sorted(properties.items())).encode()


def decode_meta_properties(data: bytes, *, path: str) -> MetaProperties:
    """The identity in a file's bytes; ``path`` is for the error.

    Raises:
        CorruptCheckpoint: no properties file, an unknown version, a number or id that is none, or version 1
            without ``cluster.id`` or ``node.id``.
    """
    try:
        properties = {name: value for name, value, _ in parse_properties(data, source=path)}
    except ConfigError as error:
        raise CorruptCheckpoint(str(error)) from None
    version = _number(properties.get("version", "0"), path, "version")
    if version not in (0, 1):
        raise CorruptCheckpoint(f"{path}: unknown version {version}")
    node_name = "broker.id" if version == 0 else "node.id"
    node_id = _number(properties[node_name], path, node_name) if node_name in properties else None
    directory_id = None
    if "directory.id" in properties:
        try:
            directory_id = decode_uuid(properties["directory.id"].strip())
        except ValueError as error:
            raise CorruptCheckpoint(f"{path}: directory.id: {error}") from None
    meta = MetaProperties(version, properties.get("cluster.id"), node_id, directory_id)
    if version == 1 and (meta.cluster_id is None or meta.node_id is None):
        missing = "cluster.id" if meta.cluster_id is None else "node.id"
        raise CorruptCheckpoint(f"{path}: {missing} is missing")
    return meta


def read_meta_properties(files: Files, log_directory: str) -> MetaProperties | None:
    """The identity of a log directory; None when it has none yet. Raises CorruptCheckpoint, OSError."""
    path = os.path.join(log_directory, META_PROPERTIES)
    return decode_meta_properties(files.read_bytes(path), path=path) if files.exists(path) else None


def write_meta_properties(files: Files, log_directory: str, meta: MetaProperties) -> None:
    """Durable on return."""
    files.write_atomically(os.path.join(log_directory, META_PROPERTIES), encode_meta_properties(meta))


def _number(text: str, path: str, name: str) -> int:
    stripped = text.strip()
    if not (
        stripped.isascii() and stripped.isdigit() and len(stripped) <= 10 and int(stripped) <= _MAX_INT32
    ):
        raise CorruptCheckpoint(f"{path}: {name} is not a number from 0 to {_MAX_INT32}: {text[:80]!r}")
    return int(stripped)


def _escape(value: str) -> str:
    # The only characters of a value that a properties file takes amiss.
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{escaped}" if escaped.startswith((" ", "\f")) else escaped
