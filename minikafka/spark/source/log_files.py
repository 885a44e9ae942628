"""The files of a log directory: which partitions and segments there are, by the names of its files; the index
files of a segment as arrays; and a walk through a segment, where its batches lie, and their headers as one
table.

Kafka: ``LogManager.loadLogs``, ``LogLoader``, ``OffsetIndex``, ``TimeIndex``, ``LogSegment``. A partition's
directory is ``<topic>-<partition>``; those that wait for removal (``-delete``), are copies in the making
(``-future``) or strays (``-stray``) are no logs. A segment is a ``<20 digits>.log``; ``.cleaned``, ``.swap``
and ``.deleted`` files are steps of a compaction or a removal, not part of the log. While a broker renames
``.swap`` files the old segments are gone and the new ones have no names yet, so a directory is listed again
until none is left; after a crash in that moment they are left until a broker starts, and the log is refused
rather than read with a hole.

A live directory changes while it is listed. What was there at that moment is the answer; the readers deal
with files that were removed since.

An active segment's index has its full size, with zeros behind its entries: reading stops where the entries no
longer ascend. An index carries no checksum and may be wrong, or be gone; so nothing is believed because of
it alone: it says where to look, and the reader checks what it finds.

The walk judges only what lies between two batches, as ``LogSegment`` does: a length, magic or offset that
cannot be ends it, with the position and the reason, after everything before it was yielded. What is inside a
batch, its CRC included, is for the reader of the records. Reads are positioned. A walk for headers alone
reads a page and jumps to the next header, so it moves through a segment of large batches without reading it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from minikafka.errors import MinikafkaError
from minikafka.log.checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    REPLICATION_OFFSET_CHECKPOINT,
    decode_offsets,
)
from minikafka.log.files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    DirectoryKind,
    file_name,
    parse_directory_name,
    parse_file_name,
)
from minikafka.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from minikafka.spark.runtime.storage import Entry, Location, LogFile, LogStorage, UnusableLocation, join
from minikafka.types import Buffer, TopicPartition

_OFFSET_ENTRY: Final = np.dtype([("key", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("key", ">i8"), ("offset", ">i4")])
_BLOCK_ENTRIES: Final = 8 * 1024
"""64 to 96 KiB at a time: an active segment's index is 10 MiB, of zeros mostly."""

_SWAP_TRIES = 20
_SWAP_WAIT_SECONDS = 0.05
"""A swap is a handful of renames: a second is long enough for one that is under way."""

HEADER_DTYPE: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""A batch header as it lies in the file; the names are those of ``protocol.records.batch.BatchHeader``."""

Int64s = npt.NDArray[np.int64]
Headers = npt.NDArray[Any]
"""An array of ``HEADER_DTYPE``."""

_fields = Struct(">qi4xb6xi").unpack_from  # base offset, length, magic, last offset delta
_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_HEADER_BYTES: Final = np.arange(HEADER_SIZE)
_HEADERS_MAX: Final = 4096
"""That are collected before they are handed on, where only headers are wanted."""


# ---- partitions and segments


class NotALogDirectory(MinikafkaError):
    """A path that is no log directory and no partition's directory; says what it is instead."""


class UnfinishedSwap(MinikafkaError):
    """A log between two states, which only a broker's start can finish."""


class SegmentFiles(NamedTuple):
    """The files of one segment and their sizes; None for one that is not there."""

    base_offset: int
    size: int
    """Of the ``.log`` file."""
    offset_index_bytes: int | None
    time_index_bytes: int | None
    txn_index_bytes: int | None
    modified_ms: int
    """Of the ``.log`` file; 0 where the store does not say."""

    @property
    def name(self) -> str:
        """Of the ``.log`` file: the column ``segment``."""
        return file_name(self.base_offset, LOG_SUFFIX)


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One partition's log in one log directory."""

    topic_partition: TopicPartition
    log_dir: Location
    """As the user named it; of a partition's own directory its parent."""
    storage: LogStorage = field(repr=False, compare=False)
    path: str
    """The partition's directory, in the store."""
    segments: tuple[SegmentFiles, ...] = ()
    """Ascending; empty for a directory that holds none yet."""
    snapshots: tuple[int, ...] = ()
    """The offsets of its producer snapshots, ascending."""
    high_watermark: int | None = None
    """As the checkpoint of the log directory says, which is written every few seconds; None where it does
    not name the partition."""
    checkpoint_ms: int | None = None
    """When that checkpoint was written; None: the log directory has none at all."""
    log_start_offset: int = 0
    """Records below were deleted (DeleteRecords) although their segment is there; at least the base offset of
    the first segment."""

    @property
    def name(self) -> str:
        """For errors: where it is, as the user would say it."""
        return self.log_dir.shown(str(self.topic_partition))

    def file(self, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
        """The path of one of its files, in the store."""
        return join(self.path, file_name(base_offset, suffix))

    def shown(self, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
        """The same for errors."""
        return join(self.name, file_name(base_offset, suffix))


def find_logs(log_dir: Location, storage: LogStorage, path: str) -> list[PartitionLog]:
    """Every partition in the log directory at ``path`` of ``storage``, by topic and partition; or the one
    whose own directory ``path`` is.

    Raises:
        NotALogDirectory: it is neither.
        UnusableLocation: it cannot be listed: missing, no permission.
        UnfinishedSwap: a compaction was interrupted at the one step that leaves a hole.
        CorruptCheckpoint: a checkpoint cannot be read.
    """
    entries = _list(log_dir, storage, path)
    own = parse_directory_name(path.rstrip("/").rpartition("/")[2])
    if own is not None and any(parse_file_name(entry.name) for entry in entries):
        if own.kind is not DirectoryKind.CURRENT:
            raise NotALogDirectory(
                f"{log_dir.shown()} is a {own.kind.value} directory, not a partition's log"
            )
        parent = log_dir.parent()
        parent_path = path.rstrip("/").rpartition("/")[0] or "/"
        log = partition_log(parent, storage, parent_path, own.topic_partition)
        return [log] if log is not None else []
    found: dict[TopicPartition, Entry] = {}
    for entry in entries:
        parsed = parse_directory_name(entry.name)
        if entry.is_directory and parsed is not None and parsed.kind is DirectoryKind.CURRENT:
            found[parsed.topic_partition] = entry
    if not found and not any(_belongs_to_a_log_directory(entry) for entry in entries):
        raise NotALogDirectory(
            f"{log_dir.shown()} is not a log directory: no {META_PROPERTIES}, no checkpoint and no directory "
            "<topic>-<partition> in it"
        )
    checkpoints = _Checkpoints.read(log_dir, storage, entries, path)
    logs = []
    for topic_partition, entry in sorted(found.items()):
        partition_path = join(path, entry.name)
        try:
            files = _files_of_partition(log_dir.shown(entry.name), storage, partition_path)
        except FileNotFoundError:  # its topic was deleted since
            continue
        logs.append(_log(topic_partition, log_dir, storage, partition_path, files, checkpoints))
    return logs


def partition_log(
    log_dir: Location, storage: LogStorage, directory: str, topic_partition: TopicPartition
) -> PartitionLog | None:
    """One partition of the log directory at ``directory``, as it is now; None when it is not there."""
    path = join(directory, str(topic_partition))
    try:
        files = _files_of_partition(log_dir.shown(str(topic_partition)), storage, path)
    except FileNotFoundError:
        return None
    checkpoints = _Checkpoints.read(log_dir, storage, _list(log_dir, storage, directory), directory)
    return _log(topic_partition, log_dir, storage, path, files, checkpoints)


def segments_of(entries: Sequence[Entry]) -> Iterator[SegmentFiles]:
    """The segments among a directory's entries, by base offset."""
    sizes: dict[tuple[int, str], int] = {}
    logs: list[tuple[int, Entry]] = []
    for entry in entries:
        parsed = parse_file_name(entry.name)
        if parsed is not None and not entry.is_directory:
            sizes[parsed] = entry.size
            if parsed[1] == LOG_SUFFIX:
                logs.append((parsed[0], entry))
    for base_offset, entry in sorted(logs):
        yield SegmentFiles(
            base_offset,
            entry.size,
            sizes.get((base_offset, INDEX_SUFFIX)),
            sizes.get((base_offset, TIME_INDEX_SUFFIX)),
            sizes.get((base_offset, TXN_INDEX_SUFFIX)),
            entry.modified_ms,
        )


def _files_of_partition(shown: str, storage: LogStorage, path: str) -> list[Entry]:
    """Its entries, at a moment when no swap is under way. Raises FileNotFoundError."""
    swaps: list[str] = []
    for _ in range(_SWAP_TRIES):
        try:
            entries = storage.list(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnusableLocation(f"{shown} cannot be listed: {error.strerror or error}") from error
        swaps = [entry.name for entry in entries if entry.name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if not swaps:
            return entries
        time.sleep(_SWAP_WAIT_SECONDS)
    raise UnfinishedSwap(
        f"{shown}: a compaction was interrupted while it put {', '.join(swaps)} in its place; start a broker "
        "on the directory, which finishes it"
    )


def _belongs_to_a_log_directory(entry: Entry) -> bool:
    return entry.name == META_PROPERTIES or entry.name.endswith("-checkpoint")


def _list(log_dir: Location, storage: LogStorage, path: str) -> list[Entry]:
    try:
        return storage.list(path)
    except FileNotFoundError:
        raise UnusableLocation(f"{log_dir.shown()} does not exist") from None
    except NotADirectoryError:
        raise NotALogDirectory(f"{log_dir.shown()} is a file, not a log directory") from None
    except OSError as error:
        raise UnusableLocation(f"{log_dir.shown()} cannot be listed: {error.strerror or error}") from error


class _Checkpoints(NamedTuple):
    """What the checkpoints of a log directory say of its partitions."""

    high_watermarks: Mapping[TopicPartition, int]
    written_ms: int | None
    """When the high watermarks were written; None: there is no such checkpoint."""
    log_starts: Mapping[TopicPartition, int]

    @classmethod
    def read(
        cls, log_dir: Location, storage: LogStorage, entries: Sequence[Entry], path: str
    ) -> _Checkpoints:
        """``entries`` are those of the log directory at ``path``."""
        written = {entry.name: entry.modified_ms for entry in entries}
        read = []
        for name in (REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            shown = log_dir.shown(name)
            try:
                data = storage.read_bytes(join(path, name)) if name in written else b""
            except OSError as error:
                raise UnusableLocation(f"{shown}: {error.strerror or error}") from error
            read.append(decode_offsets(data, path=shown))
        return cls(read[0], written.get(REPLICATION_OFFSET_CHECKPOINT), read[1])


def _log(
    topic_partition: TopicPartition,
    log_dir: Location,
    storage: LogStorage,
    path: str,
    files: Sequence[Entry],
    checkpoints: _Checkpoints,
) -> PartitionLog:
    parsed = [parse_file_name(entry.name) for entry in files]
    segments = tuple(segments_of(files))
    log_start = checkpoints.log_starts.get(topic_partition, 0)
    return PartitionLog(
        topic_partition,
        log_dir,
        storage,
        path,
        segments=segments,
        snapshots=tuple(sorted(each[0] for each in parsed if each and each[1] == SNAPSHOT_SUFFIX)),
        high_watermark=checkpoints.high_watermarks.get(topic_partition),
        checkpoint_ms=checkpoints.written_ms,
        log_start_offset=max(log_start, segments[0].base_offset if segments else 0),
    )


# ---- index files


class IndexEntries(NamedTuple):
    """The offset index of a segment, as far as it is plausible; both columns ascend."""

    offsets: Int64s
    """Of the last record of a batch, or of the append it came with."""
    positions: Int64s
    """Where that batch, or append, starts."""

    def position_of(self, offset: int) -> int:
        """Where to start looking for ``offset``: a batch that starts at or before it; 0 without an entry."""
        slot = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        return int(self.positions[slot]) if slot >= 0 else 0

    def position_behind(self, offset: int, end: int) -> int:
        """A position behind the batch that holds ``offset``; ``end`` without one."""
        slot = int(np.searchsorted(self.offsets, offset, side="left")) + 1
        return int(self.positions[slot]) if slot < self.positions.size else end

    def next_position(self, position: int) -> int | None:
        """The first position above ``position``."""
        slot = int(np.searchsorted(self.positions, position, side="right"))
        return int(self.positions[slot]) if slot < self.positions.size else None


class TimeEntries(NamedTuple):
    """The time index of a segment: the largest timestamp up to an offset; both columns ascend."""

    timestamps: Int64s
    offsets: Int64s

    def offset_before(self, timestamp_ms: int, default: int) -> int:
        """An offset up to which nothing is as young as ``timestamp_ms``; ``default`` without an entry."""
        slot = int(np.searchsorted(self.timestamps, timestamp_ms, side="left")) - 1
        return int(self.offsets[slot]) if slot >= 0 else default


NO_ENTRIES: Final = IndexEntries(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def read_offset_index(log: PartitionLog, segment: SegmentFiles) -> IndexEntries:
    """Empty where there is no index."""
    if not segment.offset_index_bytes:
        return NO_ENTRIES
    entries = _read(log, segment, INDEX_SUFFIX, _OFFSET_ENTRY)
    positions = entries["position"].astype(np.int64)
    good = _ascending(positions) if positions.size else 0
    good = min(good, int(np.searchsorted(positions[:good], segment.size)))
    return IndexEntries(entries["key"][:good].astype(np.int64) + segment.base_offset, positions[:good])


def read_time_index(log: PartitionLog, segment: SegmentFiles) -> TimeEntries | None:
    """None where there is no index."""
    if segment.time_index_bytes is None:
        return None
    entries = _read(log, segment, TIME_INDEX_SUFFIX, _TIME_ENTRY)
    return TimeEntries(
        entries["key"].astype(np.int64), entries["offset"].astype(np.int64) + segment.base_offset
    )


def largest_timestamp(log: PartitionLog, segment: SegmentFiles) -> int | None:
    """The largest of a closed segment: Kafka adds it to the index when the segment closes. None where the
    index does not say."""
    entries = read_time_index(log, segment)
    return int(entries.timestamps[-1]) if entries is not None and entries.timestamps.size else None


def _read(log: PartitionLog, segment: SegmentFiles, suffix: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The entries up to the first whose key does not ascend."""
    try:
        file = log.storage.open(log.file(segment.base_offset, suffix))
    except FileNotFoundError:  # removed since it was listed
        return np.empty(0, dtype=dtype)
    blocks: list[npt.NDArray[Any]] = []
    position = 0
    try:
        while True:
            data = file.read(position, _BLOCK_ENTRIES * dtype.itemsize)
            block = np.frombuffer(data, dtype=dtype, count=len(data) // dtype.itemsize)
            keys = block["key"].astype(np.int64)
            good = _ascending(keys)
            if good and blocks and keys[0] <= blocks[-1]["key"][-1]:
                good = 0
            if good:
                blocks.append(block[:good])
            if good < _BLOCK_ENTRIES:
                break
            position += len(data)
    finally:
        file.close()
    return np.concatenate(blocks) if blocks else np.empty(0, dtype=dtype)


def _ascending(keys: Int64s) -> int:
    """How many keys from the first on are above 0 and ascend."""
    if not keys.size or keys[0] <= 0:
        return 0
    falls = np.flatnonzero(keys[1:] <= keys[:-1])
    return int(falls[0]) + 1 if falls.size else keys.size


# ---- the walk through a segment


class DamagedSegment(MinikafkaError):
    """No batch where one should be."""

    def __init__(self, position: int, reason: str, *, is_tail: bool = False) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason
        self.is_tail = is_tail
        """Whether the last segment of a log may look like this: a batch that is not written to its end yet,
        or never was, or space that was reserved."""
        self.next_offset = -1
        """The offset behind the last whole batch before; set by the walk."""


class Block(NamedTuple):
    """Batches that lie one behind the other."""

    data: Buffer
    """Of the file from ``file_position`` on, with the whole batches; empty where only headers were asked
    for."""
    file_position: int
    positions: Int64s
    """Of the batches, in ``data``; in the file where only headers were asked for."""
    headers: Headers


def scan(
    file: LogFile,
    *,
    position: int,
    end: int,
    base_offset: int,
    read_bytes: int,
    whole_batches: bool,
    stop_offset: int | None = None,
    offset_bound: int | None = None,
) -> Iterator[Block]:
    """The batches from ``position``, where one must start, to ``end`` or the first at or above
    ``stop_offset``.

    Args:
        base_offset: no batch may begin below; at first the segment's.
        read_bytes: how much to read at once; more where one batch is larger and ``whole_batches``.
        offset_bound: no batch before ``end`` may reach it. A batch's checksum does not cover its base offset:
            only its neighbours can show that one is wrong.

    Raises:
        DamagedSegment: the way to ``end`` is damaged; what lies before was yielded.
        OSError: the store's.
    """
    if not whole_batches:
        walk = _Walk(position, end, base_offset, base_offset, stop_offset, offset_bound)
        yield from _scan_headers(file, walk, read_bytes)
        return
    least_offset = base_offset
    size_wanted = read_bytes
    while position < end:
        data = file.read(position, min(size_wanted, end - position))
        size_wanted = read_bytes
        walk = _Walk(position, end, base_offset, least_offset, stop_offset, offset_bound)
        places, behind = walk.batches_in(data, must_be_whole=True)
        least_offset = walk.least_offset
        if places:
            yield Block(data, position, np.array(places, dtype=np.int64), _headers(data, places))
        if walk.damage is not None:
            walk.damage.next_offset = walk.least_offset
            raise walk.damage
        if walk.is_done:
            return
        size_wanted = max(read_bytes, walk.size_wanted)
        position += behind


def _scan_headers(file: LogFile, walk: _Walk, read_bytes: int) -> Iterator[Block]:
    """The same for headers alone: they are collected from many reads."""
    found: list[Buffer] = []
    positions: list[int] = []
    while walk.position < walk.end and walk.damage is None and not walk.is_done:
        data = file.read(walk.position, min(read_bytes, walk.end - walk.position))
        start = walk.position
        places, behind = walk.batches_in(data, must_be_whole=False)
        for at in places:
            found.append(data[at : at + HEADER_SIZE])
            positions.append(start + at)
        walk.position = start + behind
        if len(found) >= _HEADERS_MAX:
            yield _header_block(found, positions)
            found, positions = [], []
    if found:
        yield _header_block(found, positions)
    if walk.damage is not None:
        walk.damage.next_offset = walk.least_offset
        raise walk.damage


class _Walk:
    """The chain of batches, followed through one buffer after the other."""

    def __init__(
        self,
        position: int,
        end: int,
        base_offset: int,
        least_offset: int,
        stop_offset: int | None,
        offset_bound: int | None,
    ) -> None:
        self.position = position
        self.least_offset = least_offset
        self.damage: DamagedSegment | None = None
        self.is_done = False
        self.size_wanted = 0
        """Of a batch that did not fit into the buffer as its first."""
        self.end = end
        self._offset_max = base_offset + _RELATIVE_OFFSET_MAX
        self._offset_bound = offset_bound
        self._stop_offset = stop_offset

    def batches_in(self, data: Buffer, *, must_be_whole: bool) -> tuple[list[int], int]:
        """Where batches start in ``data``, which is what the file has at ``position``; and where the next one
        does, which may be behind it. Stops at damage and where the walk is done."""
        at, places = 0, []
        last_start = len(data) - HEADER_SIZE
        while at <= last_start:
            first_offset, length, magic, last_offset_delta = _fields(data, at)
            if (
                length < _LENGTH_MIN
                or magic != MAGIC
                or last_offset_delta < 0
                or not self.least_offset <= first_offset <= self._offset_max
            ):
                self.damage = _what_is_wrong(data, at, self.position, self.least_offset)
                break
            last = first_offset + last_offset_delta
            if self._offset_bound is not None and last >= self._offset_bound:
                reason = (
                    f"a batch that ends at offset {last}, where {self._offset_bound} belongs to the next one"
                )
                self.damage = DamagedSegment(self.position + at, reason)
                break
            if self._stop_offset is not None and first_offset >= self._stop_offset:
                self.is_done = True
                break
            behind = at + LOG_OVERHEAD + length
            if self.position + behind > self.end:
                there = self.end - self.position - at
                reason = f"a batch of {LOG_OVERHEAD + length} bytes where the file has {there}"
                self.damage = DamagedSegment(self.position + at, reason, is_tail=True)
                break
            if must_be_whole and behind > len(data):
                self.size_wanted = behind - at
                break
            places.append(at)
            self.least_offset = last + 1
            at = behind
        if at == 0 and len(data) < HEADER_SIZE:
            reason = f"{len(data)} bytes are too few for the header of a batch"
            self.damage = DamagedSegment(self.position, reason, is_tail=True)
        return places, at


def _headers(data: Buffer, places: list[int]) -> Headers:
    octets = np.frombuffer(data, dtype=np.uint8)
    headers: Headers = octets[np.array(places)[:, None] + _HEADER_BYTES].view(HEADER_DTYPE)[:, 0]
    return headers


def _header_block(found: list[Buffer], positions: list[int]) -> Block:
    headers = np.frombuffer(b"".join(found), dtype=HEADER_DTYPE)
    return Block(b"", 0, np.array(positions, dtype=np.int64), headers)


def _what_is_wrong(data: Buffer, at: int, position: int, least_offset: int) -> DamagedSegment:
    first_offset, length, magic, last_offset_delta = _fields(data, at)
    if not any(data[at : at + HEADER_SIZE]):
        return DamagedSegment(position + at, "zeros where a batch should be", is_tail=True)
    if magic in (0, 1) and length > 0:
        reason = f"a message of format v{magic}; only v{MAGIC}, Kafka's since 0.11, can be read"
    elif magic != MAGIC:
        reason = f"no batch: its magic would be {magic}"
    elif length < _LENGTH_MIN:
        reason = f"no batch: its length would be {length}"
    elif last_offset_delta < 0:
        reason = f"no batch: its last offset would be {first_offset + last_offset_delta}"
    else:
        reason = (
            f"a batch that begins at offset {first_offset}, where {least_offset} is the least there can be"
        )
    return DamagedSegment(position + at, reason)
