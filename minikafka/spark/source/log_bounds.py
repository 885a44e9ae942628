"""From where to where a log is read: its end, its high watermark, its last stable offset, and the offset that
belongs to a timestamp. Kafka: ``UnifiedLog``, ``ListOffsets``.

All offsets are absolute; an end is exclusive.
"""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.errors import KafkaError
from minikafka.protocol.records.batch import HEADER_SIZE
from minikafka.protocol.records.records import iterate_records
from minikafka.spark.source.log_files import PartitionLog, SegmentFiles
from minikafka.spark.source.log_index import largest_timestamp, read_offset_index, read_time_index
from minikafka.spark.source.options import Latest
from minikafka.spark.source.segment_scan import Block, DamagedSegment, scan
from minikafka.spark.source.split_reader import CorruptLog
from minikafka.spark.source.splits import OPEN_END, batch_at
from minikafka.spark.source.storage import LogFile


def high_watermark_bound(log: PartitionLog, latest: Latest) -> int | None:
    """The high watermark that bounds what "latest" reads; None: the end of the log does."""
    if latest is Latest.LOG_END or log.checkpoint_ms is None or not log.segments:
        return None
    if latest is Latest.HIGH_WATERMARK:
        known = log.high_watermark if log.high_watermark is not None else log.log_start_offset
        return max(known, log.log_start_offset)
    is_at_rest = log.segments[-1].modified_ms <= log.checkpoint_ms
    if log.high_watermark is None or not is_at_rest:
        return None
    return max(log.high_watermark, log.log_start_offset)


def log_end_offset(log: PartitionLog) -> int:
    """The offset behind the last whole batch; damage in the last segment ends the log there."""
    if not log.segments:
        return log.log_start_offset
    segment = log.segments[-1]
    end = segment.base_offset
    try:
        for block in _blocks(log, segment, from_offset=OPEN_END):
            last = block.headers[-1]
            end = int(last["base_offset"]) + int(last["last_offset_delta"]) + 1
    except DamagedSegment:
        pass  # whoever reads the records says so, or goes past it
    return max(end, log.log_start_offset)


def offset_of_timestamp(log: PartitionLog, timestamp_ms: int, decompressed_bytes_max: int) -> int | None:
    """The first record that is as young as ``timestamp_ms``; None where none is.

    Raises:
        CorruptLog: a batch on the way to it is damaged.
    """
    for place, segment in enumerate(log.segments):
        is_last = place + 1 == len(log.segments)
        largest = None if is_last else largest_timestamp(log, segment)
        if largest is not None and largest < timestamp_ms:
            continue
        entries = read_time_index(log, segment)
        start = segment.base_offset
        if entries is not None:
            start = entries.offset_before(timestamp_ms, start)
        found = _first_as_young(log, segment, start, timestamp_ms, decompressed_bytes_max, is_last=is_last)
        if found is not None:
            return found
    return None


def _first_as_young(
    log: PartitionLog,
    segment: SegmentFiles,
    start: int,
    timestamp_ms: int,
    decompressed_bytes_max: int,
    *,
    is_last: bool,
) -> int | None:
    shown = log.shown(segment.base_offset)
    position = 0
    try:
        for block in _blocks(log, segment, from_offset=start):
            for index in (block.headers["max_timestamp"] >= timestamp_ms).nonzero()[0].tolist():
                position = block.file_position + int(block.positions[index])
                size = int(block.headers["batch_length"][index]) + 12
                batch = _read(log, segment, position, size)
                for record in iterate_records(batch, decompressed_bytes_max=decompressed_bytes_max):
                    if record.timestamp >= timestamp_ms and record.offset >= log.log_start_offset:
                        return record.offset
    except DamagedSegment as damage:
        if not (is_last and damage.is_tail):
            raise CorruptLog(f"{shown}, position {damage.position}: {damage.reason}") from None
    except KafkaError as error:
        raise CorruptLog(f"{shown}, position {position}: {error.message}") from None
    return None


def _read(log: PartitionLog, segment: SegmentFiles, position: int, size: int) -> bytes:
    file = log.storage.open(log.file(segment.base_offset))
    try:
        return bytes(file.read(position, size))
    finally:
        file.close()


def _blocks(log: PartitionLog, segment: SegmentFiles, *, from_offset: int) -> Iterator[Block]:
    """The headers of a segment from the batch with ``from_offset`` on, or one before it; an offset behind the
    segment means from its last index entry on."""
    file = log.storage.open(log.file(segment.base_offset))
    try:
        yield from scan(
            file,
            position=checked_position(file, read_offset_index(log, segment).position_of(from_offset)),
            end=segment.size,
            base_offset=segment.base_offset,
            read_bytes=log.storage.scan_bytes,
            whole_batches=False,
        )
    finally:
        file.close()


def checked_position(file: LogFile, position: int) -> int:
    """``position`` if a batch starts there, else 0: an index may be wrong."""
    return position if position and batch_at(file.read(position, HEADER_SIZE)) is not None else 0
