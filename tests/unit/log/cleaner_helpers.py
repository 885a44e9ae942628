"""What the tests of compaction share: one round, as the broker does it, and what a reader finds."""

from __future__ import annotations

import os
from typing import Any

from minikafka.clock import ManualClock
from minikafka.files import Files, OsFiles
from minikafka.log.checkpoint import encode_uuid
from minikafka.log.cleanable_log import CleanableLog
from minikafka.log.cleaner import Compaction
from minikafka.log.files import CLEANED_SUFFIX
from minikafka.log.staged_compaction import (
    CompactionJob,
    CompactionManifest,
    CompactionResult,
    StagedSource,
    staging_directory,
    write_manifest,
)
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import BatchHeader, CompressionType, crc_is_valid, read_header
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from tests.unit.log.log_helpers import NOW_MS, append, small_config

COMPACT: dict[str, Any] = {"cleanup_policy": ("compact",), "segment_bytes": 400, "delete_retention_ms": 1000}
ROOMY = 1 << 20


def compacted_config(**changes: Any) -> Any:
    return small_config(**(COMPACT | changes))


def job_of(cleanable: CleanableLog, *, now_ms: int = NOW_MS, map_bytes: int = ROOMY) -> CompactionJob:
    return cleanable.job(now_ms=now_ms, map_bytes=map_bytes, map_load_factor=1.0, read_bytes=300)


def work_off(job: CompactionJob, files: Files) -> CompactionResult:
    compaction = Compaction(job, files)
    for _ in compaction.steps():
        pass
    assert compaction.result is not None
    return compaction.result


def compact(
    log: UnifiedLog, *, clock: ManualClock | None = None, files: Files | None = None, map_bytes: int = ROOMY
) -> CompactionResult:
    """One round, whatever the dirty ratio."""
    now_ms = clock.now_ms() if clock else NOW_MS
    files = files or OsFiles()
    cleanable = CleanableLog(log, now_ms=now_ms)
    result = work_off(job_of(cleanable, now_ms=now_ms, map_bytes=map_bytes), files)
    assert cleanable.is_current
    for new in result.segments:
        for deleted in cleanable.swap_in(new):
            deleted.remove(files)
        assert cleanable.is_current
    log.first_dirty_offset = result.end_offset
    files.sync_directory(log.directory)
    log.validate()
    return result


def prepare(log: UnifiedLog, *, now_ms: int = NOW_MS) -> CompactionManifest:
    """What a job does: new files into the staging directory, and a manifest."""
    files, directory = OsFiles(), log.directory
    cleanable = CleanableLog(log, now_ms=now_ms)
    result = work_off(job_of(cleanable, now_ms=now_ms), files)
    os.makedirs(staging_directory(directory), exist_ok=True)
    for name in files.list(directory):
        if name.endswith(CLEANED_SUFFIX):
            os.rename(os.path.join(directory, name), os.path.join(staging_directory(directory), name))
    manifest = CompactionManifest(
        id="7",
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        topic_id=None if log.topic_id is None else encode_uuid(log.topic_id),
        sources=tuple(
            StagedSource(each.base_offset, each.size, files.modified_ms(each.path))
            for each in cleanable.segments
        ),
        leader_epochs=tuple(log.leader_epochs),
        result=result,
    )
    write_manifest(files, directory, manifest)
    return manifest


def keyed(*records: tuple[bytes | None, bytes | None], timestamp: int = NOW_MS, **options: Any) -> bytes:
    """A batch of (key, value) records."""
    return build_batch(
        [Record(index, timestamp, key, value) for index, (key, value) in enumerate(records)], **options
    )


def write(log: UnifiedLog, *records: tuple[bytes | None, bytes | None], **options: Any) -> None:
    append(log, keyed(*records, **options))


def batches(log: UnifiedLog) -> list[tuple[BatchHeader, list[Record]]]:
    """Every batch with its records, the CRCs checked."""
    found = []
    for segment in log.segments:
        for place in segment.batches():
            batch = segment.read_bytes(place.size, place.position, cached_only=False)
            header = read_header(batch)
            assert crc_is_valid(batch, 0, header), place
            found.append((header, list(iterate_records(batch)) if header.record_count else []))
    return found


def contents(log: UnifiedLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every data record."""
    return [
        (record.offset, record.key, record.value)
        for header, records in batches(log)
        if not header.is_control
        for record in records
    ]


def codec_of(header: BatchHeader) -> CompressionType:
    return CompressionType(header.compression)
