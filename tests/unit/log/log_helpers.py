"""What the tests of the log share: a log in a directory, batches, a disk that fails when told to."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from minikafka.clock import ManualClock
from minikafka.config.topic import TopicConfig
from minikafka.files import File, Files, OsFiles
from minikafka.log.producers.append import AppendOrigin
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.log.unified_log import AppendInfo, UnifiedLog
from minikafka.protocol.records.batch import CompressionType, iterate_headers
from minikafka.protocol.records.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_batch,
    iterate_records,
)
from minikafka.types import Buffer, LeaderEpoch, TopicPartition

NOW_MS = 1_700_000_000_000
TP = TopicPartition("t", 0)
LOG_END, HIGH_WATERMARK, COMMITTED = (
    FetchIsolation.LOG_END,
    FetchIsolation.HIGH_WATERMARK,
    FetchIsolation.TXN_COMMITTED,
)


def small_config(**changes: Any) -> TopicConfig:
    """Small segments and a dense index, so that a few batches show what takes gigabytes otherwise."""
    values: dict[str, Any] = {"segment_bytes": 2048, "index_interval_bytes": 200, "segment_index_bytes": 4096}
    return TopicConfig(**(values | changes))


def batch(
    values: Iterable[bytes] = (b"v",),
    *,
    timestamps: Sequence[int] | None = None,
    keys: Sequence[bytes | None] | None = None,
    **options: Any,
) -> bytes:
    """A producer's batch; all records at NOW_MS unless told otherwise."""
    values = list(values)
    return build_batch(
        [
            Record(
                options.get("base_offset", 0) + index,
                timestamps[index] if timestamps else NOW_MS,
                keys[index] if keys else None,
                value,
            )
            for index, value in enumerate(values)
        ],
        **options,
    )


def idempotent(
    sequence: int, *, epoch: int = 0, producer_id: int = 7, count: int = 1, **options: Any
) -> bytes:
    return batch(
        [b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options
    )


def marker(kind: ControlRecordType, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    end = EndTransactionMarker(kind, 0)
    record = Record(0, NOW_MS, end.key(), end.value(), ())
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True
    )


def open_log(
    directory: Path | str,
    *,
    config: TopicConfig | None = None,
    clean: bool = False,
    clock: ManualClock | None = None,
    files: Files | None = None,
    **options: Any,
) -> UnifiedLog:
    return UnifiedLog.load(
        str(directory),
        TP,
        config=config or small_config(),
        files=files or OsFiles(),
        clock=clock or ManualClock(NOW_MS),
        clean_shutdown=clean,
        **options,
    )


def append(log: UnifiedLog, records: Buffer, *, epoch: int = 0, **options: Any) -> AppendInfo:
    """Append as a leader whose only replica it is: the high watermark follows."""
    info = log.append_as_leader(records, leader_epoch=LeaderEpoch(epoch), **options)
    log.update_high_watermark(log.log_end_offset)
    return info


def append_marker(log: UnifiedLog, kind: ControlRecordType, **options: Any) -> AppendInfo:
    return append(log, marker(kind, **options), origin=AppendOrigin.COORDINATOR)


def read_all(
    log: UnifiedLog, start: int | None = None, *, isolation: FetchIsolation = LOG_END, max_bytes: int = 700
) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every data record from ``start`` on, fetched piece by piece as a consumer does."""
    offset = log.log_start_offset if start is None else start
    found: list[tuple[int, bytes | None]] = []
    while True:
        data = log.read(
            offset, max_bytes=max_bytes, min_one_message=True, isolation=isolation, cached_only=False
        )
        next_offset = offset
        for position, header in iterate_headers(data.records):
            if not header.is_control:
                records = iterate_records(memoryview(data.records)[position : position + header.size])
                found += [(r.offset, r.value) for r in records if r.offset >= offset]
            next_offset = header.next_offset
        if next_offset == offset:
            return found
        offset = next_offset


class FailingFile:
    """A file whose writes fail, after a part, once its disk is full."""

    def __init__(self, file: File, disk: FailingFiles) -> None:
        self._file = file
        self._disk = disk

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        if self._disk.fails(self.path):
            whole = b"".join(bytes(b) for b in buffers)
            self._file.write([whole[: len(whole) // 2]], position)
            raise OSError(errno.ENOSPC, "no space left on device", self.path)
        return self._file.write(buffers, position)

    def read(self, size: int, position: int) -> bytes:
        self._disk.reads.append((self.path, size, position))
        return self._file.read(size, position)

    def read_cached(self, size: int, position: int) -> bytearray | None:
        if self._disk.is_cold:
            return None
        self._disk.reads.append((self.path, size, position))
        return self._file.read_cached(size, position)

    def skip_hole(self, position: int) -> int:
        return self._file.skip_hole(position)

    def map(self, size: int) -> mmap.mmap | memoryview:
        return self._file.map(size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def fsync(self) -> None:
        self._disk.fsynced.append(self.path)
        self._file.fsync()

    def close(self) -> None:
        self._file.close()


class FailingFiles(OsFiles):
    """A disk that is told when to fail, notes its reads and fsyncs, and may have nothing in memory."""

    def __init__(self) -> None:
        self.failing_suffix: str | None = None
        self.is_cold = False
        self.reads: list[tuple[str, int, int]] = []
        self.fsynced: list[str] = []

    def fails(self, path: str) -> bool:
        return self.failing_suffix is not None and path.endswith(self.failing_suffix)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        return FailingFile(super().open(path, create=create, read_only=read_only), self)


NONE, ZSTD = CompressionType.NONE, CompressionType.ZSTD
