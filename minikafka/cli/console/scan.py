"""Through fetched batches in search of messages, within bounds: pure, and run in a thread.

A batch is decompressed up to ``BATCH_BYTES_MAX`` and read record by record, never as a whole list: a few
kilobytes can hold millions of records. What is found keeps ``KEPT_BYTES_MAX`` of a key or a value, which is
enough to decode most; the rest is only counted. A batch that cannot be read is skipped, and told.

Aborted transactions are left out for read_committed as consumers do it (KIP-98,
``Fetcher.CompletedFetch``); markers are never shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from minikafka.protocol.records import record_codec
from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import (
    ControlRecordType,
    iterate_records,
    parse_records,
    plain_batch,
    read_end_transaction_marker,
)
from minikafka.types import Buffer

BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one batch, decompressed. Producers send a megabyte (batch.size, max.request.size) unless told
otherwise."""
KEPT_BYTES_MAX: Final = 256 * 1024
HEADERS_MAX: Final = 100
HEADER_BYTES_MAX: Final = 4 * 1024
_CLOCK_EACH: Final = 256
"""Records between two looks at the clock: a fraction of a millisecond."""


class Filter(NamedTuple):
    """What a message must have; None: anything."""

    key: bytes | None = None
    """The whole key."""
    header: str | None = None
    header_value: bytes | None = None
    contains: bytes | None = None
    """Somewhere in its key or value, as bytes."""

    def takes(
        self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> bool:
        if self.key is not None and key != self.key:
            return False
        if self.header is not None and not any(
            name == self.header and self.header_value in (None, found) for name, found in headers
        ):
            return False
        wanted = self.contains
        return (
            wanted is None or (key is not None and wanted in key) or (value is not None and wanted in value)
        )


class Cut(NamedTuple):
    """Bytes, of which there may have been more."""

    data: bytes
    size: int


class Found(NamedTuple):
    """A message."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: Cut | None
    value: Cut | None
    headers: list[tuple[str, Cut | None]]
    size: int
    """Bytes of key, value and headers."""

    @property
    def kept_bytes(self) -> int:
        parts = (self.key, self.value, *(value for _, value in self.headers))
        return sum(len(each.data) for each in parts if each is not None)


class Skipped(NamedTuple):
    """Records that could not be read, by their first and last offset."""

    partition: int
    offset: int
    last_offset: int
    why: str


class Bounds(NamedTuple):
    """Of one look into one partition."""

    messages: int
    """To find."""
    records: int
    """To look at."""
    bytes: int
    """Of keys, values and headers, to look at."""
    kept_bytes: int
    """To keep; one message may go beyond it."""
    is_over: Callable[[], bool]
    """The time is."""


class Scanned(NamedTuple):
    """What came of it."""

    found: list[Found]
    skipped: list[Skipped]
    next_offset: int
    records: int
    bytes: int


def scan(
    data: Buffer,
    *,
    partition: int,
    position: int,
    end: int,
    filter: Filter,
    bounds: Bounds,
    aborted: Sequence[tuple[int, int]] = (),
) -> Scanned:
    """The messages from offset ``position`` to before ``end`` in the batches of a fetch response, until a
    bound is met. ``aborted``: producer id and first offset of transactions that a read_committed consumer
    does not see; empty: all are seen."""
    work = _Scan(partition, position, end, filter, bounds)
    try:
        work.run(memoryview(data), deque(sorted(aborted, key=lambda each: each[1])))
    except CorruptBatch as error:  # of a header: where the next one begins is not known
        work.skip(work.position, end - 1, str(error))
        work.position = end
    return Scanned(work.found, work.skipped, work.position, work.records, work.bytes)


class _Scan:
    def __init__(self, partition: int, position: int, end: int, filter: Filter, bounds: Bounds) -> None:
        self._partition = partition
        self.position = position
        self._end = end
        self._filter = filter
        self._bounds = bounds
        self.found: list[Found] = []
        self.skipped: list[Skipped] = []
        self.records = self.bytes = self._kept_bytes = 0

    def skip(self, offset: int, last_offset: int, why: str) -> None:
        self.skipped.append(Skipped(self._partition, offset, last_offset, why))

    def run(self, view: memoryview, aborted: deque[tuple[int, int]]) -> None:
        """Raises CorruptBatch: a header is none."""
        unseen: set[int] = set()
        """Producers whose records belong to a transaction that was aborted."""
        for at, header in iterate_headers(view):
            if header.base_offset >= self._end or self._is_over():
                return
            while aborted and aborted[0][1] <= header.last_offset:
                unseen.add(aborted.popleft()[0])
            batch = view[at : at + header.size]
            if header.is_control:
                if _is_abort(batch):
                    unseen.discard(header.producer_id)
            elif header.last_offset < self.position or (
                header.is_transactional and header.producer_id in unseen
            ):
                pass  # not looked at
            elif not self._read(batch, header):
                return
            self.position = max(self.position, header.next_offset)

    def _read(self, batch: memoryview, header: BatchHeader) -> bool:
        """Whether all of it was looked at."""
        try:
            plain = plain_batch(batch, header, BATCH_BYTES_MAX)
            for record in _records(plain, header):
                if record.offset < self.position:
                    continue
                if record.offset >= self._end or self._is_over():
                    return False
                self._take(record, header)
                self.position = record.offset + 1
        except CorruptBatch as error:
            self.skip(max(self.position, header.base_offset), header.last_offset, str(error))
        return True

    def _take(self, record: Any, header: BatchHeader) -> None:
        key, value, headers = record.key, record.value, record.headers
        size = len(key or b"") + len(value or b"")
        for name, data in headers:
            size += len(name) + len(data or b"")
        self.records += 1
        self.bytes += size
        if self._filter.takes(key, value, headers):
            timestamp = record.timestamp
            found = Found(
                self._partition,
                record.offset,
                -1 if timestamp is None else timestamp,
                header.timestamp_type.name,
                _cut(key, KEPT_BYTES_MAX),
                _cut(value, KEPT_BYTES_MAX),
                [
                    (name[:HEADER_BYTES_MAX], _cut(data, HEADER_BYTES_MAX))
                    for name, data in headers[:HEADERS_MAX]
                ],
                size,
            )
            self._kept_bytes += found.kept_bytes
            self.found.append(found)

    def _is_over(self) -> bool:
        bounds = self._bounds
        return (
            len(self.found) >= bounds.messages
            or self.records >= bounds.records
            or self.bytes >= bounds.bytes
            or self._kept_bytes >= bounds.kept_bytes
            or (self.records % _CLOCK_EACH == 0 and bounds.is_over())
        )


def _records(plain: memoryview, header: BatchHeader) -> Iterator[Any]:
    """One after the other, none of them kept. Raises CorruptBatch."""
    codec = record_codec.load()
    last = -1
    try:
        for record in codec.Batch(plain):
            last = record.offset
            yield record
        return
    except codec.refusals:
        pass  # what the compiled codec refuses, ours may read, or say what is wrong
    for each in parse_records(plain, header):
        if each.offset > last:
            yield each


def _is_abort(batch: memoryview) -> bool:
    try:
        (record,) = iterate_records(batch)
    except (CorruptBatch, ValueError):
        return False
    marker = read_end_transaction_marker(record.key, record.value)
    return marker is not None and marker.type is ControlRecordType.ABORT


def _cut(data: bytes | None, bytes_max: int) -> Cut | None:
    return None if data is None else Cut(bytes(data[:bytes_max]), len(data))
