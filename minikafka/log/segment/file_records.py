"""The record file of a segment: where batches lie, found by their headers. Kafka: ``FileRecords``.

Only headers are read here, and nothing in a file is believed: a length, magic or offset that cannot be is
CORRUPT_MESSAGE, never an endless loop or a large allocation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import File, Files
from minikafka.log.files.open_files import OpenFiles
from minikafka.log.segment.fetch_data import ColdFile, ColdRead
from minikafka.log.segment.files import LOG_SUFFIX, file_name
from minikafka.types import Buffer

BATCH_FIELDS = Struct(">qiib6xi8xqq")
"""Of a batch header: base offset, length, leader epoch, magic, last offset delta, max timestamp, producer
id."""

_FIELDS_BYTES = BATCH_FIELDS.size
_unpack_fields = BATCH_FIELDS.unpack_from
_unpack_range = Struct(">qi4xb6xi").unpack_from  # base offset, length, magic, last offset delta
_BATCH_LENGTH_MIN = 49  # a header without its first two fields, which the length does not count
_LENGTH_ENDS_AT = 12
_MAGIC = 2
RELATIVE_OFFSET_MAX = 2**31 - 1
"""The index has four bytes for an offset, so a segment holds none that is further from its base offset."""

_SHORT_SCAN_BYTES_MIN = 4096  # a search that starts at an index entry
_LONG_SCAN_BYTES = 256 * 1024  # a walk through the file


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


class FileRecords:
    """The ``.log`` file of the segment at ``base_offset``, of which the first ``size`` bytes are batches."""

    __slots__ = (
        "_file",
        "_files",
        "_open_files",
        "base_offset",
        "directory",
        "index_interval_bytes",
        "path",
        "size",
        "was_used",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        *,
        files: Files,
        size: int,
        index_interval_bytes: int,
        open_files: OpenFiles,
    ) -> None:
        self._files = files
        self._open_files = open_files
        self._file: File | None = None
        self.was_used = False
        self.directory = directory
        self.base_offset = base_offset
        self.path = os.path.join(directory, file_name(base_offset, LOG_SUFFIX))
        self.size = size
        self.index_interval_bytes = index_interval_bytes

    @property
    def is_active(self) -> bool:
        """Whether it takes appends."""
        return False

    def file(self) -> File:
        """The open file, until another one is opened; for reading and writing when active, only for reading
        otherwise."""
        file = self._file
        if file is None:
            file = self._file = self._open_files.open(
                self, lambda: self._files.open(self.path, read_only=not self.is_active)
            )
        self.was_used = True
        return file

    def close_idle(self) -> None:
        """Close the file alone, for ``OpenFiles``."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def read_bytes(self, size: int, position: int, *, cached_only: bool) -> Buffer:
        """Bytes of the file. Raises ColdRead when they are not in memory and ``cached_only``."""
        file = self._file or self.file()
        self.was_used = True
        if not cached_only:
            return file.read(size, position)
        data = file.read_cached(size, position)
        if data is None:
            raise ColdRead(ColdFile(self._files, self.path), position, size)
        return data

    def search(
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
