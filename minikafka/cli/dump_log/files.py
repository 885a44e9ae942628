"""What a path is, what is in a file, and ``dump-log --verify``: one item for each thing, one finding for each
damage.

What a file is says its name. What kind of directory a path is a name alone does not tell: the data directory
``broker-1`` of a cluster is named as partition 1 of a topic ``broker`` would be. What is in it decides.

An item is a flat dict with a ``type``; ``command`` documents them. Segments and indexes are streamed, the
other files are small.

``--verify`` reads everything, compares everything, names each finding. Units are a segment with its indexes,
a partition's directory, a log directory. Files are opened read-only. A broker may be writing meanwhile: what
it has begun and not finished looks like a tail that was cut short, so verify the directory of a stopped
broker to be sure. After a kill, what the next start removes or builds by itself is no damage; after a clean
stop it is.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from minikafka.cli.dump_log.segment import (
    NOT_WRITTEN_SO,
    REBUILD,
    Finding,
    IndexCheck,
    IndexReader,
    OffsetIndexCheck,
    ScannedBatch,
    SegmentEnd,
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
    CLUSTER_METADATA,
    DELETED_SUFFIX,
    FINISH_IMPORT,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    NOT_PARTITIONS,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    UNFINISHED_IMPORT,
    DirectoryKind,
    file_name,
    parse_directory_name,
    parse_file_name,
)
from minikafka.log.producers.snapshot import CorruptSnapshot, decode_snapshot, snapshot_offset
from minikafka.log.staged_compaction import STAGING
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

_CHECKS: tuple[type[IndexCheck], ...] = (OffsetIndexCheck, TimeIndexCheck, TxnIndexCheck)
_REMOVED_AT_START = "nothing: the broker removes it when it starts"
_NO_INDEX = "nothing: the broker builds it when it starts"
_REPLACED = "nothing: the broker replaces it when it writes the checkpoint again"
_DONE_AT_START = frozenset({_REMOVED_AT_START, _NO_INDEX, _REPLACED})
_RESTORE = "restore the segments of these offsets from a copy while the broker is stopped; they are lost here"
_REBUILD_EPOCHS = "stop the broker and delete the file: the epochs are read from the batches again"
_DELETE_CHECKPOINT = "stop the broker and delete the file: the logs are recovered from their start"


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


_BESIDE_PARTITIONS = frozenset({FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN})
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


class LogBounds(NamedTuple):
    """What a verified partition holds."""

    start_offset: int
    end_offset: int


class Verifier:
    """Verifies files and directories; counts what it has read."""

    def __init__(self, files: Files) -> None:
        self.batches = 0
        self.records = 0
        self.files_read = 0
        self._files = files

    def file(self, known: KnownFile) -> Iterator[Finding]:
        """One file; a segment together with its indexes, an index together with its segment."""
        directory, name = os.path.split(known.path)
        if known.kind not in (
            FileKind.SEGMENT,
            FileKind.OFFSET_INDEX,
            FileKind.TIME_INDEX,
            FileKind.TXN_INDEX,
        ):
            self.files_read += 1
            yield from (found for found in small_file_items(known, self._files) if isinstance(found, Finding))
            return
        base = known.base_offset
        if base is None or parse_file_name(name) is None:  # renamed, or waiting for its removal
            yield from self._segment_file(known.path, base)
            return
        bases = self._base_offsets(directory)
        if base not in bases:
            yield Finding(known.path, None, "it belongs to no segment", _REMOVED_AT_START)
            return
        log = _Log(base)
        for finding in self._segment(directory, base, log, is_active=base == bases[-1]):
            if known.kind is FileKind.SEGMENT or finding.file == known.path:
                yield finding

    def partition(self, directory: str) -> Iterator[Finding]:
        """A partition's directory: every file in it, and how they agree."""
        log_directory = os.path.dirname(os.path.abspath(directory))
        state = log_directory_state(log_directory, self._files)
        yield from self._partition(directory, _Log(0), state)

    def log_directory(self, directory: str) -> Iterator[Finding]:
        """A log directory: its partitions, and the checkpoints over them; or a directory of log
        directories."""
        bounds: dict[TopicPartition, LogBounds] = {}
        state = log_directory_state(directory, self._files)
        for name in self._files.list(directory):
            path = os.path.join(directory, name)
            if not self._files.is_directory(path):
                known = identify(path)
                if known is not None and known.kind in _BESIDE_PARTITIONS:
                    yield from self.file(known)
                continue
            if name == UNFINISHED_IMPORT:
                yield Finding(path, None, "half of an import is in place", FINISH_IMPORT)
                continue
            if path_kind(path, self._files) is PathKind.LOG_DIRECTORY:
                yield from self.log_directory(path)
                continue
            parsed = parse_directory_name(name)
            if parsed is None:
                if state is not None and not name.startswith(".") and name not in NOT_PARTITIONS:
                    yield Finding(path, None, "no partition's directory is named so", "move it away")
            elif parsed.kind is DirectoryKind.CURRENT:
                log = _Log(0)
                yield from self._partition(path, log, state)
                if log.is_whole:
                    bounds[parsed.topic_partition] = LogBounds(log.start_offset, log.next_offset)
        for name in self._files.list(directory):
            known = identify(os.path.join(directory, name))
            if known is not None and known.kind is FileKind.OFFSETS:
                yield from self._offset_checkpoint(known, name, bounds)

    def _offset_checkpoint(
        self, known: KnownFile, name: str, bounds: dict[TopicPartition, LogBounds]
    ) -> Iterator[Finding]:
        self.files_read += 1
        compared = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
        for item in small_file_items(known, self._files):
            if isinstance(item, Finding):
                yield item
                continue
            topic_partition = TopicPartition(item["topic"], item["partition"])
            log = bounds.get(topic_partition)
            if name in compared and log is not None and item["offset"] > log.end_offset:
                what = f"{topic_partition} has offset {item['offset']}, but its log ends at {log.end_offset}"
                yield Finding(known.path, None, what, _DELETE_CHECKPOINT)

    # A partition

    def _partition(self, directory: str, log: _Log, state: LogDirectoryState | None) -> Iterator[Finding]:
        was_killed = state is not None and not state.was_stopped_cleanly
        for finding in self._partition_findings(directory, log, state):
            if not (was_killed and finding.advice in _DONE_AT_START):
                yield finding

    def _partition_findings(
        self, directory: str, log: _Log, state: LogDirectoryState | None
    ) -> Iterator[Finding]:
        names = self._files.list(directory)
        bases = self._base_offsets(directory)
        yield from self._names(directory, names, bases)
        for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
            if name in names:
                known = identify(os.path.join(directory, name))
                assert known is not None
                self.files_read += 1
                items = small_file_items(known, self._files)
                yield from (item for item in items if isinstance(item, Finding))
                if name == LEADER_EPOCH_CHECKPOINT and not any(isinstance(item, Finding) for item in items):
                    log.epochs = {
                        item["epoch"]: item["start_offset"] for item in items if not isinstance(item, Finding)
                    }
        if bases:
            log.start_offset = log.next_offset = bases[0]
            log.epochs_start_offset = self._epochs_start_offset(directory, log, state)
        log_start_offset = 0
        if state is not None and (
            parsed := parse_directory_name(os.path.basename(os.path.abspath(directory)))
        ):
            is_in_a_swap = any(name.endswith(SWAP_SUFFIX) for name in names)
            log.has_all_offsets = parsed.topic_partition not in state.compacted and not is_in_a_swap
            log_start_offset = state.log_starts.get(parsed.topic_partition, 0)
        if bases and log.epochs and state is not None and state.was_stopped_cleanly:
            first = max(min(log.epochs.values()), log_start_offset)
            if first < bases[0]:
                what = f"offsets {first} to {bases[0] - 1} are missing: the first epoch begins at {first}"
                yield Finding(directory, None, what, _RESTORE)
        for base in bases:
            yield from self._segment(directory, base, log, is_active=base == bases[-1])
        if log.is_whole:
            yield from self._epochs_above_end(directory, log)
        if log.has_epochs and LEADER_EPOCH_CHECKPOINT not in names:
            yield Finding(directory, None, f"there is no {LEADER_EPOCH_CHECKPOINT}", _NO_INDEX)
        yield from self._snapshots(directory, names, bases)

    def _epochs_start_offset(self, directory: str, log: _Log, state: LogDirectoryState | None) -> int:
        """Below it the leader epoch checkpoint has no entries: there DeleteRecords has moved the log start.

        The checkpoint of log starts has it after a clean stop; after a kill it may be too old, and by itself
        a partition's directory does not say.
        """
        parsed = parse_directory_name(os.path.basename(os.path.abspath(directory)))
        start_offset = log.start_offset
        if parsed is not None and state is not None:
            start_offset = max(start_offset, state.log_starts.get(parsed.topic_partition, 0))
        if state is not None and state.was_stopped_cleanly:
            return start_offset
        return max(start_offset, min(log.epochs.values())) if log.epochs else start_offset

    def _names(self, directory: str, names: list[str], bases: list[int]) -> Iterator[Finding]:
        """Files that belong to nothing."""
        parsed_directory = parse_directory_name(os.path.basename(os.path.abspath(directory)))
        is_krafts = parsed_directory is not None and parsed_directory.topic_partition == CLUSTER_METADATA
        for name in names:
            path = os.path.join(directory, name)
            parsed = parse_file_name(name)
            if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
                yield Finding(path, None, "it is left over from an interrupted compaction", _REMOVED_AT_START)
            elif name.endswith(DELETED_SUFFIX):
                continue  # waits for file.delete.delay.ms
            elif name.endswith(".tmp") and identify(path.removesuffix(".tmp")) is not None:
                what = "no file of a log is named so: a checkpoint that was being written"
                yield Finding(path, None, what, _REPLACED)
            elif parsed is None:
                is_staging = name == STAGING and self._files.is_directory(path)
                if not is_staging and not is_krafts and (identify(path) is None or name.endswith(LOG_SUFFIX)):
                    yield Finding(path, None, "no file of a log is named so", "move it away")
            elif parsed[0] not in bases and snapshot_offset(name) is None:
                yield Finding(path, None, "it belongs to no segment", _REMOVED_AT_START)

    def _snapshots(self, directory: str, names: list[str], bases: list[int]) -> Iterator[Finding]:
        for name in names:
            offset = snapshot_offset(name)
            if offset is None:
                continue
            known = KnownFile(os.path.join(directory, name), FileKind.SNAPSHOT, offset)
            self.files_read += 1
            if offset not in bases and bases and offset < bases[-1]:
                yield Finding(known.path, None, "it belongs to no segment", _REMOVED_AT_START)
            for item in small_file_items(known, self._files):
                if isinstance(item, Finding):
                    yield item
                elif item["last_offset"] >= offset:
                    what = (
                        f"producer {item['producer_id']} has offset {item['last_offset']}, not below {offset}"
                    )
                    yield Finding(known.path, None, what, "stop the broker and delete the file")

    def _epochs_above_end(self, directory: str, log: _Log) -> Iterator[Finding]:
        for epoch, start_offset in (log.epochs or {}).items():
            if start_offset > log.next_offset:
                what = f"epoch {epoch} begins at {start_offset}, but the log ends at {log.next_offset}"
                yield Finding(os.path.join(directory, LEADER_EPOCH_CHECKPOINT), None, what, _REBUILD_EPOCHS)

    # A segment

    def _segment(self, directory: str, base: int, log: _Log, *, is_active: bool) -> Iterator[Finding]:
        path = os.path.join(directory, file_name(base, LOG_SUFFIX))
        if base < log.next_offset:
            what = f"it begins below {log.next_offset}, where the segment before it ended"
            yield Finding(path, None, what, NOT_WRITTEN_SO)
        if base > log.next_offset and log.has_all_offsets:
            what = f"offsets {log.next_offset} to {base - 1} are missing: the segment before ends there"
            yield Finding(path, None, what, _RESTORE)
        checks = [
            check
            for kind in _CHECKS
            if (check := kind.open(directory, base, self._files, is_active=is_active)) is not None
        ]
        present = {check.SUFFIX for check in checks}
        for kind in (OffsetIndexCheck, TimeIndexCheck):
            if kind.SUFFIX not in present:
                yield Finding(path, None, f"the segment has no {kind.SUFFIX} file", _NO_INDEX)
        self.files_read += 1 + len(checks)
        file = self._files.open(path, read_only=True)
        try:
            scanner = SegmentScanner(
                file,
                path=path,
                base_offset=base,
                decode=True,
                next_offset=max(base, log.next_offset),
                leader_epoch=log.leader_epoch,
            )
            for scanned in scanner.scan():
                if isinstance(scanned, Finding):
                    yield scanned
                    continue
                self._count(scanned)
                yield from log.check_epoch(scanned, directory)
                for check in checks:
                    yield from check.batch(scanned)
            end = SegmentEnd(
                scanner.is_whole, scanner.end_position, scanner.next_offset - 1, scanner.max_timestamp
            )
            for check in checks:
                yield from check.finish(end)
        finally:
            file.close()
            for check in checks:
                check.close()
        log.next_offset, log.leader_epoch = scanner.next_offset, scanner.leader_epoch
        log.is_whole = log.is_whole and scanner.is_whole

    def _segment_file(self, path: str, base: int | None) -> Iterator[Finding]:
        """A segment by itself."""
        if not path.endswith(LOG_SUFFIX) and f"{LOG_SUFFIX}." not in os.path.basename(path):
            yield Finding(path, None, "an index by itself cannot be compared with a segment", REBUILD)
            return
        self.files_read += 1
        file = self._files.open(path, read_only=True)
        try:
            scanner = SegmentScanner(file, path=path, base_offset=base, decode=True, next_offset=base or 0)
            for scanned in scanner.scan():
                if isinstance(scanned, Finding):
                    yield scanned
                else:
                    self._count(scanned)
        finally:
            file.close()

    def _count(self, batch: ScannedBatch) -> None:
        self.batches += 1
        self.records += len(batch.records or ())

    def _base_offsets(self, directory: str) -> list[int]:
        parsed = (parse_file_name(name) for name in self._files.list(directory))
        return sorted(found[0] for found in parsed if found is not None and found[1] == LOG_SUFFIX)


class _Log:
    """What the segments so far have shown."""

    def __init__(self, base: int) -> None:
        self.start_offset = base
        self.next_offset = base
        self.leader_epoch = -1
        self.compared_epoch = -1
        """The last one that was looked up in the checkpoint."""
        self.is_whole = True
        self.has_epochs = False
        self.has_all_offsets = False
        """Whether each segment must begin where the one before it ended: it was never compacted."""
        self.epochs: dict[int, int] | None = None
        """The checkpoint's epochs and their start offsets; None when there are none to compare with."""
        self.epochs_start_offset = base

    def check_epoch(self, batch: ScannedBatch, directory: str) -> Iterator[Finding]:
        """Compare the first batch of each epoch with the checkpoint."""
        header = batch.header
        epoch = header.partition_leader_epoch
        if epoch < 0 or epoch == self.compared_epoch:
            return
        self.has_epochs = True
        if self.epochs is None or header.last_offset < self.epochs_start_offset:
            return
        self.compared_epoch = epoch
        path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
        start_offset = self.epochs.get(epoch)
        if start_offset is None:
            what = f"epoch {epoch} of batch {header.base_offset} is not in it"
            yield Finding(path, None, what, _REBUILD_EPOCHS)
        elif start_offset > header.last_offset:
            what = f"epoch {epoch} begins at {start_offset}, but batch {header.base_offset} has it already"
            yield Finding(path, None, what, _REBUILD_EPOCHS)
