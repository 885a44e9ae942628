"""What reading a log takes and gives back. Kafka: ``FetchIsolation``, ``FetchDataInfo``,
``LogOffsetMetadata``, ``FileRecords.TimestampAndOffset``.

``ColdRead`` is ours: Kafka reads segment files on request threads that may wait for the disk; here the loop
must not wait, so a read of pages that are not in memory is handed back to the shell as a value. Records that
a disk thread has read are handed over (``ColdRecords``) rather than read again.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from minikafka.errors import MinikafkaError
from minikafka.files import Files
from minikafka.named_tuple import NamedTuple
from minikafka.types import Buffer, Offset, ProducerId

UNKNOWN_POSITION = -1


class FetchIsolation(Enum):
    """How far a reader may see (KIP-98): a follower to the end, a consumer to the HW, read_committed to the
    LSO."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


class LogOffsetMetadata(NamedTuple):
    """An offset and where it lies: in which segment, at which byte. Position -1 when that is not known."""

    message_offset: Offset
    segment_base_offset: Offset = Offset(-1)
    position: int = UNKNOWN_POSITION

    @property
    def message_offset_only(self) -> bool:
        return self.position < 0

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether this lies in an earlier segment than ``other``; both positions must be known."""
        return self.segment_base_offset < other.segment_base_offset

    def bytes_until(self, later: LogOffsetMetadata) -> int:
        """Bytes from here to ``later`` in the same segment (``LogOffsetMetadata.positionDiff``)."""
        return later.position - self.position


class FetchedAbortedTransaction(NamedTuple):
    """What a read_committed consumer needs to skip an aborted transaction."""

    producer_id: ProducerId
    first_offset: Offset


class FetchData(NamedTuple):
    """The answer to one read.

    ``records`` starts with the batch that holds the fetch offset and may end in the middle of a batch, as
    Kafka's do; the caller owns the buffer. ``first_entry_incomplete`` says that the first batch is larger
    than the caller allowed and was left out. The three offsets are those of the moment when the read began.
    """

    fetch_offset_metadata: LogOffsetMetadata
    records: Buffer
    first_entry_incomplete: bool
    aborted_transactions: list[FetchedAbortedTransaction] | None
    log_start_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp, milliseconds since the Unix epoch."""

    timestamp: int
    offset: Offset


class RangeReader(Protocol):
    """What the disk thread needs of a file: to read a range of it. Every ``File`` is one."""

    def read(self, size: int, position: int) -> bytes: ...


class ColdFile:
    """Reads a range of a file through a descriptor of its own, so that the loop may close its descriptor
    meanwhile."""

    __slots__ = ("_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def __repr__(self) -> str:
        return f"ColdFile({self._path!r})"

    def read(self, size: int, position: int) -> bytes:
        """Read the range; nothing when the file is gone, for then the next read of the log will say so."""
        try:
            file = self._files.open(self._path, read_only=True)
        except FileNotFoundError:
            return b""
        try:
            return file.read(size, position)
        finally:
            file.close()


class ColdRead(MinikafkaError):
    """The wanted bytes are not in memory: call ``fetch`` where waiting is allowed, read again."""

    def __init__(self, file: RangeReader, position: int, size: int) -> None:
        super().__init__(f"{size} bytes at {position} of {file!r} are not in memory")
        self.file = file
        self.position = position
        self.size = size

    def fetch(self) -> None:
        """Read the range, on a disk thread. Raises OSError."""
        self.file.read(self.size, self.position)


class ColdRecords(ColdRead):
    """Records that are not in memory. After ``fetch`` they are here, and the read that is repeated is given
    this, so that the loop reads nothing of the file: even where all has come into memory, the kernel begins
    to read ahead in the call of who comes next, and 8 MiB of that take up to 20 ms."""

    def __init__(
        self,
        file: RangeReader,
        position: int,
        size: int,
        *,
        segment: object,
        generation: int,
        index: ColdRead | None,
    ) -> None:
        """``generation``: of the log's positions; where there is a later one, these are no longer its
        records. ``index``: what is wanted besides, to find out where the next read begins."""
        super().__init__(file, position, size)
        self._index = index
        self._segment = segment
        self._generation = generation
        self.records: Buffer = b""

    def fetch(self) -> None:
        if self._index is not None:
            self._index.fetch()
        self.records = self.file.read(self.size, self.position)

    def is_at(self, segment: object, position: int, generation: int) -> bool:
        """Whether they are what ``segment`` has there."""
        return segment is self._segment and position == self.position and generation == self._generation
