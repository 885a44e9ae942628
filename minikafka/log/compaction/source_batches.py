"""The batches of a closed segment, each checked before it is believed. What a compaction reads."""

from __future__ import annotations

import os
from collections.abc import Iterator

from minikafka.errors import KafkaError
from minikafka.files import Files
from minikafka.log.compaction.job import SourceSegment
from minikafka.log.files.names import LOG_SUFFIX, file_name
from minikafka.log.segment.index_file import RELATIVE_OFFSET_MAX
from minikafka.log.segment.segment import CorruptSegment
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, read_header


def source_batches(
    directory: str, segment: SourceSegment, *, files: Files, read_bytes: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch of a segment with its header, in order: CRC, size, place and offsets are right.

    Args:
        read_bytes: how much to read at a time.

    Raises:
        CorruptSegment: at the first that is not what it should be.
        OSError: the disk's.
    """
    path = os.path.join(directory, file_name(segment.base_offset, LOG_SUFFIX))
    file = files.open(path, read_only=True)
    position, chunk_bytes = 0, read_bytes
    next_offset, last_offset_max = segment.base_offset, segment.base_offset + RELATIVE_OFFSET_MAX
    try:
        while position < segment.size:
            chunk = memoryview(file.read(min(chunk_bytes, segment.size - position), position))
            at = 0
            while len(chunk) - at >= HEADER_SIZE:
                header = _header(chunk, at, path, position + at)
                if at + header.size > len(chunk):
                    break
                if (
                    header.base_offset < next_offset
                    or header.last_offset_delta < 0
                    or header.last_offset > last_offset_max
                    or not crc_is_valid(chunk, at, header)
                ):
                    raise CorruptSegment(path, position + at)
                next_offset = header.next_offset
                yield header, chunk[at : at + header.size]
                at += header.size
            chunk_bytes = read_bytes
            if at == 0:  # a batch that is larger than what was read, or none
                if len(chunk) < HEADER_SIZE:
                    raise CorruptSegment(path, position)
                chunk_bytes = _header(chunk, 0, path, position).size
                if chunk_bytes > segment.size - position or chunk_bytes <= len(chunk):
                    raise CorruptSegment(path, position)
            position += at
    finally:
        file.close()


def _header(chunk: memoryview, at: int, path: str, position: int) -> BatchHeader:
    try:
        return read_header(chunk, at)
    except KafkaError:
        raise CorruptSegment(path, position) from None
