"""The producer snapshot file: what a partition knew of its producers at one offset.

Kafka's class: ``ProducerStateManager`` (``readSnapshot``, ``writeSnapshot``). The file is named
``<20-digit offset>.snapshot``; that offset is the first one that is *not* reflected in it. Layout,
big-endian:

    version int16 (1) · crc uint32 · count int32 · count × 46-byte entries

    entry: producer id int64 · epoch int16 · last sequence int32 · last offset int64 · offset delta int32 ·
           timestamp int64 · coordinator epoch int32 · first offset of the open transaction int64 (-1: none)

The CRC-32C covers everything behind it. Only the last batch of each producer is kept, so after a restart
only that one can be recognised as a duplicate; Kafka behaves so too.

A reader never trusts the file: every way to be damaged ends in ``CorruptSnapshot``. Unlike Kafka, bytes
behind the last entry, a producer listed twice and a negative producer id are damage too.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable

from minikafka.deferred import crc32c
from minikafka.errors import MinikafkaError
from minikafka.files import Files
from minikafka.log.files import SNAPSHOT_SUFFIX, file_name
from minikafka.log.producers.append import BatchMetadata, ProducerStateEntry
from minikafka.named_tuple import NamedTuple

SNAPSHOT_VERSION = 1

_VERSION_AND_CRC = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_ENTRIES_START = _VERSION_AND_CRC.size + _COUNT.size


class CorruptSnapshot(MinikafkaError):
    """A producer snapshot that cannot be read; an older one, or the log itself, has to serve."""


class SnapshotEntry(NamedTuple):
    """One producer in a snapshot file. ``last_offset`` is -1 when no batch of it is known."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def saved_entry(entry: ProducerStateEntry) -> SnapshotEntry:
    """What a snapshot keeps of a producer."""
    return SnapshotEntry(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_data_offset,
        entry.last_offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
    )


def loaded_entry(saved: SnapshotEntry) -> ProducerStateEntry:
    """A producer as a snapshot knows it."""
    batches: tuple[BatchMetadata, ...] = ()
    if saved.last_offset >= 0:
        batches = (
            BatchMetadata(saved.last_sequence, saved.last_offset, saved.offset_delta, saved.timestamp),
        )
    txn = saved.current_txn_first_offset
    return ProducerStateEntry(
        saved.producer_id,
        saved.producer_epoch,
        saved.coordinator_epoch,
        saved.timestamp,
        None if txn < 0 else txn,
        batches,
    )


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """The whole file for ``entries``."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = b"".join((_COUNT.pack(len(packed)), *packed))
    return _VERSION_AND_CRC.pack(SNAPSHOT_VERSION, crc32c.crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """The producers in a snapshot file's bytes.

    Raises:
        CorruptSnapshot: for whatever is wrong with them.
    """
    if len(data) < _ENTRIES_START:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, stored_crc = _VERSION_AND_CRC.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"unknown producer snapshot version {version}")
    computed_crc = crc32c.crc32c(memoryview(data)[_VERSION_AND_CRC.size :])
    if computed_crc != stored_crc:
        raise CorruptSnapshot(
            f"producer snapshot CRC is {stored_crc:#010x}, the content has {computed_crc:#010x}"
        )
    (count,) = _COUNT.unpack_from(data, _VERSION_AND_CRC.size)
    if len(data) - _ENTRIES_START != count * _ENTRY.size:
        raise CorruptSnapshot(f"producer snapshot claims {count} entries in {len(data)} bytes")
    entries = [
        SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_ENTRIES_START:])
    ]
    seen: set[int] = set()
    for entry in entries:
        if entry.producer_id < 0 or entry.producer_id in seen:
            raise CorruptSnapshot(f"producer id {entry.producer_id} is negative or listed twice")
        seen.add(entry.producer_id)
        if entry.last_offset >= 0 and not 0 <= entry.offset_delta <= entry.last_offset:
            raise CorruptSnapshot(f"producer id {entry.producer_id}: offset delta {entry.offset_delta}")
    return entries


def snapshot_offset(name: str) -> int | None:
    """The offset in a snapshot's file name; None when ``name`` is not one."""
    stem = name.removesuffix(SNAPSHOT_SUFFIX)
    if stem == name or not (stem.isascii() and stem.isdigit()):
        return None
    offset = int(stem)
    return offset if offset < 1 << 63 else None


class SnapshotFiles:
    """The snapshot files in one partition's directory. None of its calls fsyncs."""

    def __init__(self, directory: str, files: Files) -> None:
        self.directory = directory
        self._files = files
        self.offsets: list[int] = []
        """Of the files there are, ascending."""
        self.reload()

    def path(self, offset: int) -> str:
        return os.path.join(self.directory, file_name(offset, SNAPSHOT_SUFFIX))

    def reload(self) -> None:
        """Look what is in the directory."""
        names = self._files.list(self.directory) if self._files.is_directory(self.directory) else []
        offsets = {name: snapshot_offset(name) for name in names}
        # "7.snapshot" is not a name that anything here would find again.
        self.offsets = sorted(
            o for name, o in offsets.items() if o is not None and name == file_name(o, SNAPSHOT_SUFFIX)
        )

    def write(self, offset: int, entries: Iterable[SnapshotEntry]) -> str:
        """Write the snapshot at ``offset``; returns its path."""
        path = self.path(offset)
        file = self._files.open(path, create=True)
        try:
            file.truncate(0)
            file.write([encode_snapshot(entries)], 0)
        except OSError:
            self._files.remove(path)  # a full disk: better none than half of one
            raise
        finally:
            file.close()
        if offset not in self.offsets:
            insort(self.offsets, offset)
        return path

    def read(self, offset: int) -> list[SnapshotEntry]:
        """Raises CorruptSnapshot, FileNotFoundError."""
        return decode_snapshot(self._files.read_bytes(self.path(offset)))

    def delete(self, offset: int) -> None:
        self.offsets.remove(offset)
        self._files.remove(self.path(offset))

    def delete_before(self, offset: int) -> None:
        for snapshot in self.offsets[: bisect_left(self.offsets, offset)]:
            self.delete(snapshot)

    def mark_for_deletion(self, offset: int) -> str | None:
        """Rename to ``*.deleted``; returns the new path, None when there is no such snapshot."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        path = self.path(offset)
        try:
            self._files.rename(path, f"{path}.deleted")
        except FileNotFoundError:
            return None
        return f"{path}.deleted"

    def remove_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Delete the snapshots that belong to no segment, but for the newest one beyond all segments."""
        self.reload()
        bases = set(segment_base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and strays[-1] > max(bases, default=-1):
            strays.pop()
        for offset in strays:
            self.delete(offset)

    def remove_damaged(self, from_offset: int) -> None:
        """Delete those at ``from_offset`` and above that cannot be read: a power cut may have emptied them.
        Raises OSError."""
        for offset in self.offsets[bisect_left(self.offsets, from_offset) :]:
            try:
                self.read(offset)
            except CorruptSnapshot:
                self.delete(offset)
