"""Cutting segments into pieces that tasks read: at batch boundaries, through the offset index.

Pure but for one look at the header where a piece is to begin: an index carries no checksum, so an entry that
leads to no batch is passed over, and the piece before it becomes longer.

A piece is a range of offsets, with the place in the file where they were when it was planned. So it still
means the same when the file was replaced by a compacted one since: ``split_reader`` finds the offsets again.
Every offset of the range that was asked for lies in exactly one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from minikafka.errors import KafkaError
from minikafka.log.segment.txn_index import AbortedTransaction
from minikafka.protocol.records.batch import BatchHeader, read_header
from minikafka.spark.source.log_index import IndexEntries
from minikafka.spark.source.storage import Location
from minikafka.types import Buffer, TopicPartition

OPEN_END: Final = 2**63 - 1
"""The end of a piece that reads whatever the segment held when it was planned."""


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of one segment, for one task."""

    topic_partition: TopicPartition
    log_dir: Location
    base_offset: int
    """Of the segment."""
    position: int
    """A batch starts here, at or before the first offset."""
    end_position: int
    segment_size: int
    """When it was planned; the last segment grows."""
    identity: int
    """Of the file, where its store knows one."""
    first_offset: int
    end_offset: int
    """Exclusive."""
    offset_bound: int
    """Where the batch behind ``end_position`` begins, or at most does: no batch of the piece may reach it."""
    is_last: bool
    """Whether the segment was the last one of its log: what is cut off at its end is no damage."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """Whose records are not wanted; those that reach into the piece."""

    @property
    def size(self) -> int:
        return self.end_position - self.position


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a split begins."""

    position: int
    offset: int
    """The least that a batch from here on may have."""


def cut(
    index: IndexEntries,
    *,
    segment_size: int,
    first_offset: int,
    end_offset: int,
    split_bytes: int,
    header_at: Callable[[int], Buffer],
) -> tuple[list[Piece], int]:
    """The pieces that hold the offsets from ``first_offset`` to below ``end_offset`` of a segment, and the
    position where the last one ends.

    Args:
        header_at: the 61 bytes at a position, or fewer at the end of the file.
    """
    position = index.position_of(first_offset)
    if (
        position
        and (batch := batch_at(header_at(position))) is not None
        and batch.base_offset <= first_offset
    ):
        pieces = [Piece(position, first_offset)]
    else:
        pieces = [Piece(0, first_offset)]
    end = min(index.position_behind(end_offset - 1, segment_size), segment_size)
    wanted = pieces[0].position + split_bytes
    while wanted < end:
        slot = int(np.searchsorted(index.positions, wanted, side="left"))
        if slot == index.positions.size or int(index.positions[slot]) >= end:
            break
        position, offset = int(index.positions[slot]), int(index.offsets[slot])
        batch = batch_at(header_at(position))
        # An entry has the last offset of its append: a batch that goes on behind it is not where it says.
        if (
            batch is not None
            and pieces[-1].offset < batch.base_offset < end_offset
            and batch.last_offset <= offset
        ):
            pieces.append(Piece(position, batch.base_offset))
            wanted = position + split_bytes
        else:
            wanted = position + 1
    return pieces, end


def batch_at(header: Buffer) -> BatchHeader | None:
    """What the header of a batch says; None where it is none."""
    try:
        read = read_header(header)
    except KafkaError:
        return None
    return read if read.last_offset_delta >= 0 else None


def pack(splits: Sequence[Split], task_bytes: int, open_bytes: int) -> list[tuple[Split, ...]]:
    """Splits in their order, put together so that a task has about ``task_bytes`` to do.

    Args:
        open_bytes: what opening a file is worth, in bytes that could be read meanwhile.
    """
    tasks: list[tuple[Split, ...]] = []
    current: list[Split] = []
    size = 0
    for split in splits:
        cost = split.size + open_bytes
        if current and size + cost > task_bytes:
            tasks.append(tuple(current))
            current, size = [], 0
        current.append(split)
        size += cost
    if current:
        tasks.append(tuple(current))
    return tasks
