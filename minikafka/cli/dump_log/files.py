"""What a path is, and what is in a file: one item for each thing, one finding for each damage.

What a file is says its name. What kind of directory a path is a name alone does not tell: the data directory
``broker-1`` of a cluster is named as partition 1 of a topic ``broker`` would be. What is in it decides.

An item is a flat dict with a ``type``; ``command`` documents them. Segments and indexes are streamed, the
other files are small.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from minikafka.cli.dump_log.segment import (
    NOT_WRITTEN_SO,
    Finding,
    IndexReader,
    OffsetIndexCheck,
    ScannedBatch,
    SegmentScanner,
    TimeIndexCheck,
    TxnIndexCheck,
)
from minikafka.errors import KafkaError
from minikafka.files import Files
from minikafka.log.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpoint,
    decode_leader_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_uuid,
    read_offsets,
)
from minikafka.log.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_directory_name,
    parse_file_name,
)
from minikafka.log.producers.snapshot import CorruptSnapshot, decode_snapshot
from minikafka.protocol.internal.group_record_codec import UnreadableRecord
from minikafka.protocol.internal.share_record_codec import UnreadableShareRecord
from minikafka.protocol.internal.transaction_record_codec import UnreadableTransactionRecord
from minikafka.protocol.records.batch import BatchHeader, CompressionType, TimestampType
from minikafka.protocol.records.records import Record, read_end_transaction_marker
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

Item = dict[str, Any]

SMALL_FILE_BYTES_MAX = 256 << 20
"""A checkpoint or snapshot beyond this is not read; a million producers take 46 MB."""

Decoder = Callable[[bytes | None, bytes | None], dict[str, Any]]
"""Key and value as objects. Raises UnreadableRecord, UnreadableShareRecord, UnreadableTransactionRecord."""


# Paths


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


# Files


class FileKind(Enum):
    """The files that can be dumped."""

    SEGMENT = LOG_SUFFIX
    OFFSET_INDEX = INDEX_SUFFIX
    TIME_INDEX = TIME_INDEX_SUFFIX
    TXN_INDEX = TXN_INDEX_SUFFIX
    SNAPSHOT = SNAPSHOT_SUFFIX
    LEADER_EPOCHS = LEADER_EPOCH_CHECKPOINT
    OFFSETS = "-offset-checkpoint"
    PARTITION_METADATA = PARTITION_METADATA
    META_PROPERTIES = META_PROPERTIES
    CLEAN_SHUTDOWN = CLEAN_SHUTDOWN_MARKER


_STREAMED = (FileKind.SEGMENT, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)

_ADVICE = {
    FileKind.SNAPSHOT: "stop the broker and delete the file: the producers are read from the log again",
    FileKind.LEADER_EPOCHS: "stop the broker and delete the file: the epochs are read from the batches again",
    FileKind.OFFSETS: "stop the broker and delete the file: the logs are recovered from their start",
    FileKind.PARTITION_METADATA: (
        "stop the broker and delete the file: it is written again when the partition is assigned"
    ),
    FileKind.META_PROPERTIES: (
        "restore it; cluster.id and node.id are the same in all log directories of a broker"
    ),
    FileKind.CLEAN_SHUTDOWN: "delete the file: the logs are recovered when the broker starts",
}


class KnownFile(NamedTuple):
    """A file that can be dumped."""

    path: str
    kind: FileKind
    base_offset: int | None
    """From the name of a segment's file; None for a segment that was renamed."""


class Selection(NamedTuple):
    """What is to be shown."""

    first_offset: int = 0
    last_offset: int = (1 << 63) - 1
    with_records: bool = False
    records_max: int | None = None
    decoder: Decoder | None = None
    """Makes objects of the records of an internal topic."""

    def includes(self, offset: int) -> bool:
        return self.first_offset <= offset <= self.last_offset


def identify(path: str) -> KnownFile | None:
    """What ``path`` is by its name; None when it is nothing that can be dumped."""
    name = os.path.basename(path)
    for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX):
        name = name.removesuffix(suffix)
    parsed = parse_file_name(name)
    if parsed is not None:
        return KnownFile(path, FileKind(parsed[1]), parsed[0])
    if name.endswith(LOG_SUFFIX):
        return KnownFile(path, FileKind.SEGMENT, None)
    if name.endswith(FileKind.OFFSETS.value):
        return KnownFile(path, FileKind.OFFSETS, None)
    for kind in FileKind:
        if kind not in _STREAMED and name == kind.value:
            return KnownFile(path, kind, None)
    return None


def items_of(known: KnownFile, files: Files, selection: Selection) -> Iterator[Item | Finding]:
    """What is in the file. Raises OSError."""
    yield {
        "type": "file",
        "file": known.path,
        "kind": known.kind.name.lower(),
        "size": files.size(known.path),
    }
    if known.kind is FileKind.SEGMENT:
        yield from _segment_items(known, files, selection)
    elif known.kind in _STREAMED:
        yield from _index_items(known, files, selection)
    else:
        yield from small_file_items(known, files)


def small_file_items(known: KnownFile, files: Files) -> list[Item | Finding]:
    """What is in a file that is not streamed. Raises OSError."""
    size = files.size(known.path)
    if size > SMALL_FILE_BYTES_MAX:
        return [Finding(known.path, None, f"{size} bytes: no such file is that large", _ADVICE[known.kind])]
    data = files.read_bytes(known.path)
    try:
        return list(_SMALL[known.kind](data, known.path))
    except (CorruptCheckpoint, CorruptSnapshot) as error:
        what = str(error).removeprefix(f"{known.path}: ").removeprefix(f"{known.path}:")
        return [Finding(known.path, None, what, _ADVICE[known.kind])]


# Segments


def _segment_items(known: KnownFile, files: Files, selection: Selection) -> Iterator[Item | Finding]:
    file = files.open(known.path, read_only=True)
    left = selection.records_max
    try:
        scanner = SegmentScanner(
            file,
            path=known.path,
            base_offset=known.base_offset,
            decode=selection.with_records,
            next_offset=known.base_offset or 0,
        )
        for scanned in scanner.scan():
            if isinstance(scanned, Finding):
                yield scanned
                continue
            header = scanned.header
            if header.base_offset > selection.last_offset or left == 0:
                return
            if header.last_offset < selection.first_offset:
                continue
            yield batch_item(known.path, scanned)
            for record in scanned.records or ():
                if not selection.includes(record.offset):
                    continue
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                item = record_item(record, header)
                if selection.decoder is not None and not header.is_control:
                    try:
                        _decode(item, record, selection.decoder)
                    except (UnreadableRecord, UnreadableShareRecord, UnreadableTransactionRecord) as error:
                        what = f"offset {record.offset} cannot be decoded: {error}"
                        yield Finding(known.path, scanned.position, what, NOT_WRITTEN_SO)
                yield item
    finally:
        file.close()


def batch_item(path: str, batch: ScannedBatch) -> Item:
    """A batch's header."""
    header = batch.header
    log_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return {
        "type": "batch",
        "file": path,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "partition_leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "position": batch.position,
        "timestamp_type": "LogAppendTime" if log_append_time else "CreateTime",
        "max_timestamp": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compression": _compression_name(header.compression),
        "crc": header.crc,
        "is_valid": batch.crc_is_valid,
    }


def record_item(record: Record, header: BatchHeader) -> Item:
    """A record, or the marker that it is."""
    item: Item = {
        "type": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "sequence": -1,
    }
    if header.base_sequence >= 0:
        item["sequence"] = (header.base_sequence + record.offset - header.base_offset) & 0x7FFF_FFFF
    if header.is_control:
        try:
            marker = read_end_transaction_marker(record.key, record.value)
        except KafkaError:
            marker = None
        if marker is not None:
            item["end_txn_marker"] = marker.type.name
            item["coordinator_epoch"] = marker.coordinator_epoch
            return item
    item["headers"] = [{"key": key, **_bytes_item("value", value)} for key, value in record.headers]
    item.update(_bytes_item("key", record.key))
    item.update(_bytes_item("value", record.value))
    return item


def _decode(item: Item, record: Record, decoder: Decoder) -> None:
    """Replace the bytes of a record. Raises as the decoder does: they are kept."""
    try:
        decoded = decoder(record.key, record.value)
    except (UnreadableRecord, UnreadableShareRecord, UnreadableTransactionRecord) as error:
        if not error.is_of_unknown_type:
            raise
        item["undecoded"] = str(error)
        return
    for name in ("key", "value", "key_base64", "value_base64"):
        item.pop(name, None)
    item.update(decoded)


def _bytes_item(name: str, value: bytes | None) -> Item:
    """Text where it is UTF-8, else base64 under another name, so that nothing is lost."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}


def _compression_name(compression: int) -> str:
    try:
        return CompressionType(compression).name.lower()
    except ValueError:
        return str(compression)


# Indexes


def _index_items(known: KnownFile, files: Files, selection: Selection) -> Iterator[Item | Finding]:
    base_offset = known.base_offset or 0
    check = {
        FileKind.OFFSET_INDEX: OffsetIndexCheck,
        FileKind.TIME_INDEX: TimeIndexCheck,
        FileKind.TXN_INDEX: TxnIndexCheck,
    }[known.kind]
    file = files.open(known.path, read_only=True)
    try:
        reader = IndexReader(file, path=known.path, entry=check.ENTRY, is_active=True)
        for _, fields in reader.entries():
            if known.kind is FileKind.OFFSET_INDEX:
                offset = base_offset + fields[0]
                item: Item = {"type": "index_entry", "offset": offset, "position": fields[1]}
            elif known.kind is FileKind.TIME_INDEX:
                offset = base_offset + fields[1]
                item = {"type": "time_index_entry", "timestamp": fields[0], "offset": offset}
            else:
                names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
                item = {"type": "aborted_transaction", **dict(zip(names, fields, strict=True))}
                offset = fields[3]
            if selection.includes(offset):
                yield item
        yield from reader.findings
        if reader.reserved_entries:
            yield {"type": "reserved_space", "entries": reader.reserved_entries}
    finally:
        file.close()


# Small files


def _snapshot_items(data: bytes, path: str) -> Iterator[Item | Finding]:
    for entry in decode_snapshot(data):
        item: Item = {"type": "producer", **entry._asdict()}
        if entry.current_txn_first_offset < 0:
            item["current_txn_first_offset"] = None
        yield item


def _leader_epoch_items(data: bytes, path: str) -> Iterator[Item | Finding]:
    for entry in decode_leader_epochs(data, path=path):
        yield {"type": "leader_epoch", "epoch": entry.epoch, "start_offset": entry.start_offset}


def _offset_items(data: bytes, path: str) -> Iterator[Item | Finding]:
    for (topic, partition), offset in decode_offsets(data, path=path).items():
        yield {"type": "checkpoint_entry", "topic": topic, "partition": partition, "offset": offset}


def _partition_metadata_items(data: bytes, path: str) -> Iterator[Item | Finding]:
    topic_id = decode_partition_metadata(data, path=path)
    yield {"type": "partition_metadata", "version": 0, "topic_id": encode_uuid(topic_id)}


def _meta_properties_items(data: bytes, path: str) -> Iterator[Item | Finding]:
    meta = decode_meta_properties(data, path=path)
    yield {
        "type": "meta_properties",
        "version": meta.version,
        "cluster_id": meta.cluster_id,
        "node_id": meta.node_id,
        "directory_id": None if meta.directory_id is None else encode_uuid(meta.directory_id),
    }


def _clean_shutdown_items(data: bytes, path: str) -> Iterator[Item | Finding]:
    yield {"type": "clean_shutdown_marker", "content": data[:1000].decode("utf-8", "replace")}


_SMALL: dict[FileKind, Callable[[bytes, str], Iterator[Item | Finding]]] = {
    FileKind.SNAPSHOT: _snapshot_items,
    FileKind.LEADER_EPOCHS: _leader_epoch_items,
    FileKind.OFFSETS: _offset_items,
    FileKind.PARTITION_METADATA: _partition_metadata_items,
    FileKind.META_PROPERTIES: _meta_properties_items,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown_items,
}
