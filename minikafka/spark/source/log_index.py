"""The index files of a segment, read as arrays. Kafka: ``OffsetIndex``, ``TimeIndex``.

An active segment's index has its full size, with zeros behind its entries: reading stops where the entries no
longer ascend. An index carries no checksum and may be wrong, or be gone; so nothing is believed because of
it alone: it says where to look, and who looks there checks what it finds.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from minikafka.log.files.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from minikafka.spark.source.log_files import PartitionLog, SegmentFiles
from minikafka.spark.source.segment_scan import Int64s

_OFFSET_ENTRY: Final = np.dtype([("key", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("key", ">i8"), ("offset", ">i4")])
_BLOCK_ENTRIES: Final = 8 * 1024
"""64 to 96 KiB at a time: an active segment's index is 10 MiB, of zeros mostly."""


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
