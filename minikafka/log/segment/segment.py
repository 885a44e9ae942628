"""One segment of a log: a file of record batches with its indexes. Kafka: ``LogSegment``, ``FileRecords``.

The active segment takes appends; the others only give. Its file and its indexes are opened when they are
used, the active one's too, and close when ``OpenFiles`` wants their descriptors, or with ``release``.

Only headers of batches are read here, and nothing in a file is believed: a length, magic or offset that
cannot be is CORRUPT_MESSAGE, never an endless loop or a large allocation.

Invariants: ``size`` is the end of the last batch; last offsets are at least the base offset and ascend; a
batch gets an index entry when more than ``index.interval.bytes`` were appended since the last entry was
added.

Differs from Kafka: an index entry that leads to something else than it promises makes the segment rebuild its
indexes, at any time and not only on load; ``segment.jitter.ms`` is spread by a hash of the path, not
drawn at random.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator, Sequence
from struct import Struct

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import File, Files
from minikafka.log.files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    OpenFiles,
    file_name,
)
from minikafka.log.segment.fetch_data import ColdFile, ColdRead
from minikafka.log.segment.indexes import (
    RELATIVE_OFFSET_MAX,
    AbortedTransaction,
    OffsetIndex,
    TimeIndex,
    TimestampOffset,
    TransactionIndex,
)
from minikafka.named_tuple import NamedTuple
from minikafka.types import NO_TIMESTAMP, Buffer

_log = logging.getLogger(__name__)

_BATCH_FIELDS = Struct(">qiib6xi8xqq")
"""Of a batch header: base offset, length, leader epoch, magic, last offset delta, max timestamp, producer
id."""

_FIELDS_BYTES = _BATCH_FIELDS.size
_unpack_fields = _BATCH_FIELDS.unpack_from
_BATCH_RANGE = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_unpack_range = _BATCH_RANGE.unpack_from
_BATCH_LENGTH_MIN = 49  # a header without its first two fields, which the length does not count
_LENGTH_ENDS_AT = 12
_MAGIC = 2

_SHORT_SCAN_BYTES_MIN = 4096  # a search that starts at an index entry
_LONG_SCAN_BYTES = 256 * 1024  # a walk through the file
_CUT_BATCH_LOOKS_MAX = 256
"""At 0.4 µs each 0.1 ms. From an entry of the index on there are few, unless its interval is large."""

BatchSpan = tuple[int, int, int]
"""What the indexes need of an appended batch: last offset, largest timestamp, bytes."""


class CorruptSegment(KafkaError):
    """A segment file has no batch where one should be."""

    def __init__(self, path: str, position: int) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{path} holds no valid batch at position {position}")
        self.position = position


class BatchPlace(NamedTuple):
    """A batch in a segment file."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    producer_id: int
    leader_epoch: int

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


class CutBatch(NamedTuple):
    """Where a read that ends in the middle of a batch goes on."""

    offset: int
    position: int
    size: int
    """0: not known, for too little of it was read."""


class LogSegment:
    """The batches from ``base_offset`` on, up to the next segment."""

    __slots__ = (
        "_file",
        "_files",
        "_is_active",
        "_open_files",
        "_txn_index",
        "base_offset",
        "bytes_since_index_entry",
        "cold_from",
        "created_ms",
        "directory",
        "has_aborted_transactions",
        "index_interval_bytes",
        "indexes_are_full",
        "max_timestamp_so_far",
        "offset_index",
        "offset_of_max_timestamp_so_far",
        "path",
        "roll_jitter_ms",
        "rolling_timestamp",
        "size",
        "time_index",
        "was_used",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        *,
        config: TopicConfig,
        files: Files,
        size: int,
        created_ms: int,
        open_files: OpenFiles | None = None,
    ) -> None:
        """``open_files``: the cache that its files share with others; one of its own unless given."""
        open_files = OpenFiles() if open_files is None else open_files
        self._files = files
        self._open_files = open_files
        self._file: File | None = None
        self.was_used = False
        self.cold_from = -1
        """Where the disk thread stopped that last read for a reader who is not at the end; -1: none has, or
        its reader has come to the end."""
        self.directory = directory
        self.base_offset = base_offset
        self.path = os.path.join(directory, file_name(base_offset, LOG_SUFFIX))
        self.size = size
        self.index_interval_bytes = config.index_interval_bytes
        self._is_active = False
        self._txn_index: TransactionIndex | None = None
        index_path = os.path.join(directory, file_name(base_offset, INDEX_SUFFIX))
        time_path = os.path.join(directory, file_name(base_offset, TIME_INDEX_SUFFIX))
        bytes_max = config.segment_index_bytes
        self.offset_index = OffsetIndex(
            index_path, base_offset=base_offset, bytes_max=bytes_max, files=files, open_files=open_files
        )
        self.time_index = TimeIndex(
            time_path, base_offset=base_offset, bytes_max=bytes_max, files=files, open_files=open_files
        )
        self.created_ms = created_ms
        self.has_aborted_transactions = False
        self.indexes_are_full = False
        self.bytes_since_index_entry = 0
        self.rolling_timestamp: int | None = None  # of the first batch; None: not known
        self.max_timestamp_so_far: int | None = None if size else NO_TIMESTAMP  # None: not read yet
        self.offset_of_max_timestamp_so_far = base_offset
        jitter_ms = min(config.segment_jitter_ms, config.max_segment_ms)
        self.roll_jitter_ms = zlib.crc32(self.path.encode()) % jitter_ms if jitter_ms else 0

    @classmethod
    def create(
        cls,
        directory: str,
        base_offset: int,
        *,
        config: TopicConfig,
        files: Files,
        created_ms: int,
        open_files: OpenFiles | None = None,
    ) -> LogSegment:
        """A new, empty, active segment. Files of its name that lie about are emptied."""
        segment = cls(
            directory,
            base_offset,
            config=config,
            files=files,
            size=0,
            created_ms=created_ms,
            open_files=open_files,
        )
        segment._is_active = True
        file = files.open(segment.path, create=True)
        try:
            file.truncate(0)
            if config.preallocate:
                file.truncate(config.segment_bytes)
        finally:
            file.close()
        segment.offset_index.reset()
        segment.time_index.reset()
        segment.txn_index.reset()
        segment._note_full_indexes()
        return segment

    def __repr__(self) -> str:
        return f"LogSegment({self.path!r}, size={self.size}{', active' if self._is_active else ''})"

    @property
    def is_active(self) -> bool:
        """Whether it takes appends."""
        return self._is_active

    @property
    def is_open(self) -> bool:
        """Whether it holds descriptors."""
        return self._file is not None or self.offset_index.is_mapped or self.time_index.is_mapped

    @property
    def txn_index(self) -> TransactionIndex:
        if self._txn_index is None:
            path = os.path.join(self.directory, file_name(self.base_offset, TXN_INDEX_SUFFIX))
            self._txn_index = TransactionIndex(path, self._files, self._open_files)
        return self._txn_index

    # ---- append

    def should_roll(
        self,
        segment_bytes: int,
        segment_ms: int,
        batch_bytes: int,
        max_timestamp: int,
        last_offset: int,
        now_ms: int,
    ) -> bool:
        """Whether a batch like this one needs a new segment before it (``LogSegment.shouldRoll``)."""
        size = self.size
        return (
            size + batch_bytes > segment_bytes
            or self.indexes_are_full
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or (
                size > 0
                and self.time_waited_for_roll_ms(now_ms, max_timestamp) > segment_ms - self.roll_jitter_ms
            )
        )

    def time_waited_for_roll_ms(self, now_ms: int, max_timestamp: int) -> int:
        """Age by record time, from the first batch's to this one's; by the clock where there is none."""
        first_timestamp = self.rolling_timestamp
        if first_timestamp is None:
            header = self.file().read(_FIELDS_BYTES, 0) if self.size else b""
            first_timestamp = NO_TIMESTAMP
            if len(header) == _FIELDS_BYTES:
                first_timestamp = _BATCH_FIELDS.unpack(header)[5]
            self.rolling_timestamp = first_timestamp
        return max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - self.created_ms

    def append(self, buffers: Sequence[Buffer], spans: Sequence[BatchSpan]) -> None:
        """Write batches at the end; ``spans`` describes them in order.

        Raises:
            OSError: the file may hold a part of them beyond ``size``; the caller must not append again.
        """
        start = self.size
        (self._file or self.file()).write(buffers, start)
        self.was_used = True
        try:
            for last_offset, max_timestamp, size in spans:
                self.index_batch(last_offset, max_timestamp, size)
        except OSError:
            self.size = start
            raise

    def index_batch(self, last_offset: int, max_timestamp: int, size: int) -> None:
        """Take note of the batch that lies at the end of the segment, and move the end behind it."""
        position = self.size
        max_so_far = self.max_timestamp_so_far
        if max_so_far is None:
            max_so_far = self.max_timestamp().timestamp
        if max_timestamp > max_so_far:
            self.max_timestamp_so_far = max_timestamp
            self.offset_of_max_timestamp_so_far = last_offset
        if not position:
            self.rolling_timestamp = max_timestamp
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self._add_index_entries(last_offset, position)
            self.bytes_since_index_entry = size
        else:
            self.bytes_since_index_entry += size
        self.size = position + size

    def append_aborted(self, aborted: AbortedTransaction) -> None:
        """Note a transaction that a marker in this segment has aborted. Raises OSError."""
        self.txn_index.append(aborted)
        self.has_aborted_transactions = True

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        # Full or out of reach are only segments of another configuration: they roll, or are scanned for
        # longer.
        if self.offset_index.is_full or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return
        self.offset_index.append(last_offset, position)
        if not self.time_index.is_full:
            self.time_index.maybe_append(*self.max_timestamp())
        self._note_full_indexes()

    def _note_full_indexes(self) -> None:
        self.indexes_are_full = self.offset_index.is_full or self.time_index.is_full

    # ---- read

    def read_bytes(self, size: int, position: int, *, cached_only: bool) -> Buffer:
        """Bytes of the file. Raises ColdRead when they are not in memory and ``cached_only``."""
        if cached_only:
            data = self.read_cached(size, position)
            if data is None:
                raise ColdRead(self.cold_file(), position, size)
            return data
        file = self._file or self.file()
        self.was_used = True
        return file.read(size, position)

    def read_cached(self, size: int, position: int) -> Buffer | None:
        """Bytes of the file; None when they are not in memory."""
        file = self._file or self.file()
        self.was_used = True
        return file.read_cached(size, position)

    def is_cold(self, position: int, size: int) -> bool:
        """Whether a read goes on where a disk thread has stopped."""
        return position <= self.cold_from < position + size

    def cold_file(self) -> ColdFile:
        """The file, for a disk thread."""
        return ColdFile(self._files, self.path)

    def cold_index(self) -> ColdRead | None:
        """The offset index, for a disk thread; None when it is in memory, or has nothing."""
        index = self.offset_index
        if index.is_mapped or not index.entries:
            return None
        return ColdRead(ColdFile(self._files, index.path), 0, index.entries * index.ENTRY_BYTES)

    def find_batch(self, offset: int, *, cached_only: bool = False) -> BatchPlace | None:
        """The first batch whose last offset is at least ``offset``; None when the segment ends before.

        Raises:
            CorruptSegment: the way there is damaged.
            ColdRead: it is not in memory, and ``cached_only``.
        """
        if self.offset_index.entries and not self.offset_index.is_mapped:
            self._open_offset_index(cached_only)
        indexed_offset, position = self.offset_index.lookup(offset)
        try:
            return self._search(
                offset, position=position, indexed_offset=indexed_offset, cached_only=cached_only
            )
        except CorruptSegment as error:
            if error.position != position or not self.offset_index.entries:
                raise  # not the index is wrong, but the records
        _log.warning("%s is corrupt at offset %d, rebuilding it", self.offset_index.path, offset)
        self.rebuild_indexes()
        indexed_offset, position = self.offset_index.lookup(offset)
        return self._search(offset, position=position, indexed_offset=indexed_offset)

    def find_last_batch_below(self, offset: int) -> BatchPlace | None:
        """The last batch that begins below ``offset``; None when the first one does not.

        Raises:
            CorruptSegment: the way there is damaged.
        """
        found = self.find_batch(offset - 1)
        if found is not None and found.base_offset < offset:
            return found
        last = None  # compaction has left a gap there, or the segment ends before
        for place in self.batches(self.offset_index.lookup(offset - 1).position):
            if place.base_offset >= offset:
                break
            last = place
        return last

    def _open_offset_index(self, cached_only: bool) -> None:
        self.offset_index.open(cached_only=cached_only)
        if not self.offset_index.is_plausible(self.size):
            _log.warning("%s is corrupt, rebuilding it", self.offset_index.path)
            self.rebuild_indexes()

    def read_next_offset(self) -> int:
        """The offset after the last batch (``readNextOffset``).

        Raises:
            CorruptSegment: the last index entry, or what lies behind it, is damaged.
        """
        indexed_offset, position = self.offset_index.last_entry()
        if position:
            self._search(self.base_offset, position=position, indexed_offset=indexed_offset)
        next_offset = self.base_offset
        for place in self.batches(position):
            next_offset = place.last_offset + 1
        return next_offset

    # ---- the file, header by header

    def _search(
        self, offset: int, *, position: int, indexed_offset: int, cached_only: bool = False
    ) -> BatchPlace | None:
        """The first batch from ``position`` on whose last offset is at least ``offset``; None behind the
        last.

        Args:
            position: the start of a batch, as an index says; the batch there must begin at or below
                ``indexed_offset``, or else the index is wrong.

        Raises:
            CorruptSegment: the way there is damaged, or begins where no batch does.
        """
        end = self.size
        if position and not 0 < position < end:
            raise self._corrupt(position)
        check_entry = position > 0
        scan_bytes = max(self.index_interval_bytes, _SHORT_SCAN_BYTES_MIN)
        while position < end:
            data = self.read_bytes(min(scan_bytes, end - position), position, cached_only=cached_only)
            at, at_max = 0, len(data) - _FIELDS_BYTES
            if at_max < 0 or (check_entry and _unpack_range(data, 0)[0] > indexed_offset):
                raise self._corrupt(position)
            check_entry = False
            while at <= at_max:
                base_offset, length, magic, last_offset_delta = _unpack_range(data, at)
                if length < _BATCH_LENGTH_MIN or magic != _MAGIC:
                    raise self._corrupt(position + at)
                if base_offset + last_offset_delta >= offset:
                    return self._place(data, at, position)
                at += length + _LENGTH_ENDS_AT
            position += at
        if position > end:
            raise self._corrupt(end)
        return None

    def cut_batch(self, records: Buffer, position: int) -> CutBatch | None:
        """The batch of which ``records``, which begin with one and are the file's at ``position``, have only
        a part, or nothing yet. None when that cannot be said with a few looks at what is in memory."""
        if self.offset_index.entries and not self.offset_index.is_mapped:
            try:
                self._open_offset_index(cached_only=True)
            except ColdRead:
                return None
        last = len(records) - _BATCH_RANGE.size
        indexed_offset, at = self.offset_index.entry_at_or_before(position + last)
        at = max(at - position, 0)
        check_entry = at > 0
        next_offset = -1
        for _ in range(_CUT_BATCH_LOOKS_MAX):
            if at > last:
                return None if next_offset < 0 else CutBatch(next_offset, position + at, 0)
            base_offset, length, magic, last_offset_delta = _unpack_range(records, at)
            if (
                length < _BATCH_LENGTH_MIN
                or magic != _MAGIC
                or (check_entry and base_offset > indexed_offset)
            ):
                return None
            check_entry = False
            size = length + _LENGTH_ENDS_AT
            if at + size > len(records):
                return CutBatch(base_offset if next_offset < 0 else next_offset, position + at, size)
            next_offset = base_offset + last_offset_delta + 1
            at += size
        return None

    def _place(self, data: Buffer, at: int, position: int) -> BatchPlace:
        """The batch at ``at`` in ``data``, which is what the file holds at ``position``."""
        base_offset, length, epoch, _, last_offset_delta, max_timestamp, producer_id = _unpack_fields(
            data, at
        )
        size = length + _LENGTH_ENDS_AT
        position += at
        if (
            last_offset_delta < 0
            or not 0 <= base_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            or position + size > self.size
        ):
            raise self._corrupt(position)
        last_offset = base_offset + last_offset_delta
        return BatchPlace(position, size, base_offset, last_offset, max_timestamp, producer_id, epoch)

    def batches(
        self, position: int = 0, *, end: int | None = None, cached_only: bool = False
    ) -> Iterator[BatchPlace]:
        """Every batch from ``position`` to ``end`` (the end of the segment), in order.

        Raises:
            CorruptSegment: at the first that cannot be one; those before it have been yielded.
        """
        if end is None:
            end = self.size
        previous_last_offset = self.base_offset - 1
        base_offset_max = self.base_offset + RELATIVE_OFFSET_MAX
        while position < end:
            data = self.read_bytes(min(_LONG_SCAN_BYTES, end - position), position, cached_only=cached_only)
            at, at_max = 0, len(data) - _FIELDS_BYTES
            if at_max < 0:
                raise self._corrupt(position)
            while at <= at_max:
                base_offset, length, epoch, magic, last_offset_delta, max_timestamp, producer_id = (
                    _unpack_fields(data, at)
                )
                size = length + _LENGTH_ENDS_AT
                if (
                    length < _BATCH_LENGTH_MIN
                    or magic != _MAGIC
                    or last_offset_delta < 0
                    or not previous_last_offset < base_offset <= base_offset_max
                    or position + at + size > end
                ):
                    raise self._corrupt(position + at)
                previous_last_offset = base_offset + last_offset_delta
                yield BatchPlace(
                    position + at, size, base_offset, previous_last_offset, max_timestamp, producer_id, epoch
                )
                at += size
            position += at

    def batches_until_damage(self, position: int = 0, *, end: int | None = None) -> Iterator[BatchPlace]:
        """Like ``batches``, but damage is the end."""
        try:
            yield from self.batches(position, end=end)
        except CorruptSegment:
            return

    def _corrupt(self, position: int) -> CorruptSegment:
        return CorruptSegment(self.path, position)

    # ---- timestamps

    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp of the segment and the last offset of its batch; (-1, base offset) without
        any."""
        if self.max_timestamp_so_far is None:
            last = self.time_index.last_entry()
            if self.time_index.is_plausible() and self._has_timestamp(last):
                self.max_timestamp_so_far, self.offset_of_max_timestamp_so_far = last
            else:
                _log.warning("%s is corrupt, rebuilding it", self.time_index.path)
                self.rebuild_indexes()
        timestamp = self.max_timestamp_so_far
        return TimestampOffset(
            NO_TIMESTAMP if timestamp is None else timestamp, self.offset_of_max_timestamp_so_far
        )

    def _has_timestamp(self, entry: TimestampOffset) -> bool:
        """Whether the batch of a time index entry has the timestamp that the entry says."""
        if entry.timestamp < 0:
            return True
        place = self.find_batch(entry.offset)
        return (
            place is not None and place.base_offset <= entry.offset and place.max_timestamp == entry.timestamp
        )

    def largest_timestamp(self) -> int:
        """For retention and lookups: the largest record timestamp, or the file's age where records have
        none."""
        timestamp = self.max_timestamp().timestamp
        return timestamp if timestamp >= 0 else self._files.modified_ms(self.path)

    # ---- indexes

    def load_indexes(self) -> bool:
        """Take over the index files, unread. False when one is missing or cannot be right
        (``sanityCheck``)."""
        offset_index_is_whole = self.offset_index.load()
        return self.time_index.load() and offset_index_is_whole

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batch headers, up to the first damage."""
        size, was_active = self.size, self._is_active
        self.forget_batches()
        for place in self.batches_until_damage(end=size):
            self.index_batch(place.last_offset, place.max_timestamp, place.size)
        self.size = size
        if not was_active:
            self.become_inactive()

    def forget_batches(self) -> None:
        """Empty the indexes; ``index_batch`` then tells of the batches again, from the first one on."""
        self.offset_index.reset()
        self.time_index.reset()
        self.size = 0
        self.bytes_since_index_entry = 0
        self.max_timestamp_so_far = NO_TIMESTAMP
        self.offset_of_max_timestamp_so_far = self.base_offset
        self.rolling_timestamp = None

    # ---- life

    def file(self) -> File:
        """The open file, until another one is opened; for reading and writing when active, only for reading
        otherwise."""
        file = self._file
        if file is None:
            file = self._file = self._open_files.open(
                self, lambda: self._files.open(self.path, read_only=not self._is_active)
            )
        self.was_used = True
        return file

    def close_idle(self) -> None:
        """Close the file alone, for ``OpenFiles``."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def activate(self) -> None:
        """Take appends from now on."""
        if not self._is_active:
            self.release()
            self._is_active = True
        self.offset_index.activate()
        self.time_index.activate()
        self._note_full_indexes()

    def become_inactive(self) -> None:
        """Another segment takes the appends: add the last time entry, trim the files
        (``onBecomeInactiveSegment``)."""
        if self.max_timestamp_so_far is not None and self.max_timestamp_so_far >= 0:
            self.time_index.maybe_append(*self.max_timestamp(), use_last_slot=True)
        self.offset_index.trim()
        self.time_index.trim()
        if self._is_active and self._files.size(self.path) > self.size:
            self.file().truncate(self.size)  # what was preallocated
        self._is_active = False
        self.release()

    def release(self) -> None:
        """Close descriptors and maps; the next use opens them again."""
        if self._file is not None:
            self._open_files.forget(self)
            self.close_idle()
        self.offset_index.release()
        self.time_index.release()
        if self._txn_index is not None:
            self._txn_index.close()

    def update_directory(self, directory: str) -> None:
        """The log's directory was renamed; open files remain open."""
        self.directory = directory
        for file in (self, self.offset_index, self.time_index):
            file.path = os.path.join(directory, os.path.basename(file.path))
        if self._txn_index is not None:
            self._txn_index.update_directory(directory)

    def cut(self, position: int) -> None:
        """End the file here: what lies behind is no batch. The indexes know nothing of it."""
        self.release()
        file = self._files.open(self.path)
        try:
            file.truncate(position)
        finally:
            file.close()
        self.size = position

    def truncate_to(self, offset: int, *, now_ms: int) -> int:
        """Drop every batch that reaches ``offset``; the segment is active afterwards.

        Returns the offset after the last batch that is retained, or ``offset`` where no batch was dropped.
        """
        place = self.find_batch(offset)
        self.activate()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._note_full_indexes()
        if place is not None:
            self.file().truncate(place.position)
            self.size = place.position
        self.bytes_since_index_entry = 0
        if not self.size:
            self.created_ms = now_ms
            self.rolling_timestamp = None
        self._reread_max_timestamp()
        return offset if place is None else min(offset, place.base_offset)

    def _reread_max_timestamp(self) -> None:
        timestamp, offset = self.time_index.last_entry()
        # While the time index had room, no batch up to the offset index's last entry was later than its own.
        indexed = offset if self.time_index.is_full else self.offset_index.last_entry().offset
        first = self.find_batch(max(offset, indexed))
        if first is not None:
            for place in self.batches(first.position):
                if place.max_timestamp > timestamp:
                    timestamp, offset = place.max_timestamp, place.last_offset
        self.max_timestamp_so_far, self.offset_of_max_timestamp_so_far = timestamp, offset
