"""Log directories written by the test itself: batches of its choice, in segments, with indexes.

The files are laid out as a broker lays them out; an index entry comes behind every ``index_interval_bytes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from struct import Struct

from minikafka.log.checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    REPLICATION_OFFSET_CHECKPOINT,
    encode_offsets,
)
from minikafka.log.files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from minikafka.log.producers.snapshot import SnapshotEntry, encode_snapshot
from minikafka.log.segment.indexes import AbortedTransaction
from minikafka.protocol.records.batch import TimestampType, iterate_headers, read_header
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import ControlRecordType, EndTransactionMarker, Record, build_batch
from minikafka.types import TopicPartition

NOW_MS = 1_700_000_000_000

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_ABORTED_ENTRY = Struct(">hqqqq")


class LogDir:
    """A log directory that a test fills."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        (path / META_PROPERTIES).write_text("version=1\nnode.id=0\ncluster.id=test\n")

    def partition(self, topic: str, partition: int = 0) -> Path:
        path = self.path / f"{topic}-{partition}"
        path.mkdir(exist_ok=True)
        return path

    def segment(
        self,
        topic: str,
        batches: Iterable[bytes],
        *,
        partition: int = 0,
        base_offset: int | None = None,
        index_interval_bytes: int = 4096,
        with_indexes: bool = True,
    ) -> Path:
        """A segment of these batches; returns the path of its ``.log``."""
        data = b"".join(batches)
        base = read_header(data).base_offset if base_offset is None else base_offset
        directory = self.partition(topic, partition)
        path = directory / file_name(base, LOG_SUFFIX)
        path.write_bytes(data)
        if with_indexes:
            offsets, times = _indexes(data, base, index_interval_bytes)
            (directory / file_name(base, INDEX_SUFFIX)).write_bytes(offsets)
            (directory / file_name(base, TIME_INDEX_SUFFIX)).write_bytes(times)
        return path

    def aborted(self, topic: str, base_offset: int, transactions: Sequence[AbortedTransaction]) -> None:
        data = b"".join(_ABORTED_ENTRY.pack(0, *each) for each in transactions)
        (self.partition(topic) / file_name(base_offset, TXN_INDEX_SUFFIX)).write_bytes(data)

    def snapshot(self, topic: str, offset: int, open_transactions: Mapping[int, int]) -> None:
        entries = [
            SnapshotEntry(producer_id, 0, -1, -1, 0, NOW_MS, 0, first)
            for producer_id, first in open_transactions.items()
        ]
        (self.partition(topic) / file_name(offset, SNAPSHOT_SUFFIX)).write_bytes(encode_snapshot(entries))

    def high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        (self.path / REPLICATION_OFFSET_CHECKPOINT).write_bytes(encode_offsets(offsets))

    def log_starts(self, offsets: Mapping[TopicPartition, int]) -> None:
        (self.path / LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offsets(offsets))


def batch(
    base_offset: int,
    count: int,
    *,
    prefix: str = "value",
    size: int = 0,
    codec: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    transactional: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    leader_epoch: int = 0,
) -> bytes:
    """A batch of ``count`` records, offset n at NOW_MS + n, with key ``k<n>`` and value ``<prefix> <n>``."""
    records = [
        Record(offset, NOW_MS + offset, b"k%d" % offset, f"{prefix} {offset}".encode().ljust(size, b"."))
        for offset in range(base_offset, base_offset + count)
    ]
    return build_batch(
        records,
        base_offset=base_offset,
        compression=codec,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_offset if producer_id >= 0 else -1,
        transactional=transactional,
        leader_epoch=leader_epoch,
    )


def marker(offset: int, producer_id: int, kind: ControlRecordType) -> bytes:
    """The batch that ends a transaction."""
    content = EndTransactionMarker(kind, 0)
    return build_batch(
        [Record(offset, NOW_MS + offset, content.key(), content.value())],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def _indexes(data: bytes, base: int, interval_bytes: int) -> tuple[bytes, bytes]:
    offsets, times = [], []
    since, latest = 0, -1
    written = -1
    last = base
    for position, header in iterate_headers(data):
        latest, last = max(latest, header.max_timestamp), header.last_offset
        if since > interval_bytes:
            offsets.append(_OFFSET_ENTRY.pack(header.last_offset - base, position))
            if latest > written:
                times.append(_TIME_ENTRY.pack(latest, header.last_offset - base))
                written = latest
            since = 0
        since += header.size
    if latest > written:
        times.append(_TIME_ENTRY.pack(latest, last - base))
    return b"".join(offsets), b"".join(times)
