"""Reading a segment that nobody vouches for: every batch is checked, the rest is cut off. Kafka:
``LogSegment.recover``.

The indexes, the transaction index, the producer state and the leader epochs are built anew on the way. Memory
stays bounded whatever the headers claim.

Differs from Kafka: a batch whose offsets go back, or reach into the next segment, is damage too (base offset
and leader epoch lie outside of the CRC); so is an offset beyond the reach of the index, where Kafka splits
the segment (written only before KAFKA-6264).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from struct import Struct

from minikafka.deferred import crc32c
from minikafka.errors import KafkaError
from minikafka.files import File
from minikafka.log.leader_epoch_cache import LeaderEpochCache
from minikafka.log.producers.replay import replay
from minikafka.log.producers.state import ProducerStateManager
from minikafka.log.segment.file_records import RELATIVE_OFFSET_MAX
from minikafka.log.segment.segment import LogSegment
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, read_header
from minikafka.types import NO_EPOCH, Buffer

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 1024 * 1024
_CRC_STARTS_AT = 21
_LENGTH = Struct(">i")
_LENGTH_AT, _LENGTH_ENDS_AT = 8, 12

ReadBatch = Callable[[], Buffer]


def recover_segment(
    segment: LogSegment,
    *,
    next_base_offset: int | None,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
) -> int:
    """Check every batch of a closed segment and cut off the first bad one with all behind it.

    Args:
        next_base_offset: of the following segment, if there is one.
        producers: as they were at the segment's base offset; as they are at its end afterwards.

    Returns the number of bytes cut off; the segment is closed, with trimmed indexes.

    Raises:
        OSError: the disk's.
    """
    end = segment.file().size()
    segment.forget_batches()
    segment.txn_index.reset()
    segment.has_aborted_transactions = False
    last_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
    if next_base_offset is not None:
        last_offset_max = min(last_offset_max, next_base_offset - 1)
    next_offset = segment.base_offset
    for header, read_batch in _in_order(_valid_batches(segment.file(), end), next_offset, last_offset_max):
        segment.index_batch(header.last_offset, header.max_timestamp, header.size)
        next_offset = header.last_offset + 1
        epoch = header.partition_leader_epoch
        if epoch >= 0 and (epochs.latest_epoch is None or epoch > epochs.latest_epoch):
            epochs.assign(epoch, header.base_offset)
        if header.producer_id >= 0:
            replay(producers, header, read_batch, segment=segment)
        producers.map_end_offset = next_offset
    valid_bytes = segment.size
    segment.become_inactive()
    if valid_bytes < end:
        _log.warning(
            "%s: no valid batch at position %d: %d bytes are cut off, the log goes on at offset %d",
            segment.path,
            valid_bytes,
            end - valid_bytes,
            next_offset,
        )
        segment.cut(valid_bytes)
    return end - valid_bytes


def _in_order(
    batches: Iterator[tuple[BatchHeader, ReadBatch]], next_offset: int, last_offset_max: int
) -> Iterator[tuple[BatchHeader, ReadBatch]]:
    """The batches up to the first whose offsets or epoch cannot be.

    A batch that leaves a gap or begins an epoch is right only if the one behind it goes on from there; so it
    is held back until that one is seen.
    """
    epoch: int = NO_EPOCH
    held: tuple[BatchHeader, ReadBatch] | None = None
    for item in batches:
        header = item[0]
        if held is not None:
            before, held = held, None
            goes_back = header.base_offset < before[0].next_offset or (
                NO_EPOCH < header.partition_leader_epoch < before[0].partition_leader_epoch
            )
            fits_without = header.base_offset >= next_offset and header.partition_leader_epoch >= epoch
            if goes_back and fits_without:
                return
            yield before
            next_offset = before[0].next_offset
            epoch = max(epoch, before[0].partition_leader_epoch)
        if (
            header.base_offset < next_offset
            or header.last_offset > last_offset_max
            or header.partition_leader_epoch < NO_EPOCH
            or NO_EPOCH < header.partition_leader_epoch < epoch
        ):
            return
        if header.base_offset > next_offset or header.partition_leader_epoch > epoch:
            held = item
            continue
        yield item
        next_offset = header.next_offset
    if held is not None:
        yield held


def _valid_batches(file: File, end: int) -> Iterator[tuple[BatchHeader, ReadBatch]]:
    """The batches from the start of the file that are whole and have the right CRC, up to the first that is
    not."""
    position = 0
    while end - position >= HEADER_SIZE:
        chunk = memoryview(file.read(min(_CHUNK_BYTES, end - position), position))
        at = 0
        while len(chunk) - at >= HEADER_SIZE:
            size = _LENGTH.unpack_from(chunk, at + _LENGTH_AT)[0] + _LENGTH_ENDS_AT
            if size < HEADER_SIZE or position + at + size > end:
                return
            is_whole = at + size <= len(chunk)
            if not is_whole and at > 0:
                break  # the next chunk starts with it
            header = _check(chunk, at) if is_whole else _check_large(file, position, chunk, size)
            if header is None:
                return

            def read_batch(
                size: int = size,
                start: int = at,
                whole: bool = is_whole,
                chunk: memoryview = chunk,
                position: int = position,
            ) -> Buffer:
                return chunk[start : start + size] if whole else file.read(size, position)

            yield header, read_batch
            at += size
        if at == 0:
            return  # the file became shorter than it was
        position += at


def _check(chunk: memoryview, at: int) -> BatchHeader | None:
    try:
        header = read_header(chunk, at)
        return header if header.last_offset_delta >= 0 and crc_is_valid(chunk, at, header) else None
    except KafkaError:
        return None


def _check_large(file: File, position: int, chunk: memoryview, size: int) -> BatchHeader | None:
    """Check a batch that is larger than a chunk without holding it in memory."""
    try:
        header = read_header(chunk, 0)
    except KafkaError:
        return None
    crc = crc32c.crc32c(chunk[_CRC_STARTS_AT:])
    done = len(chunk)
    while done < size:
        part = file.read(min(_CHUNK_BYTES, size - done), position + done)
        if not part:
            return None
        crc = crc32c.crc32c(part, crc)
        done += len(part)
    return header if header.last_offset_delta >= 0 and crc == header.crc else None
