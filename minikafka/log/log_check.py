"""The invariants of a log, checked against its files. Tests run it after every step; tools may.

Checked: the order of the bounds (I9); base offsets, batch offsets and leader epochs that ascend (I2); index
entries that ascend and lead to batches which begin where they say; epochs and producer state within the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.errors import InvariantError
from minikafka.log.segment.segment import LogSegment

if TYPE_CHECKING:
    from minikafka.log.local_log import LocalLog
    from minikafka.log.readable_log import ReadableLog


def check_log(log: ReadableLog) -> None:
    """Read every batch header and every index entry.

    Raises:
        InvariantError: says which does not hold.
        KafkaError: CORRUPT_MESSAGE.
    """
    bounds = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
    if list(bounds) != sorted(bounds):
        raise InvariantError(f"log start, stable offset, high watermark and log end do not ascend: {log!r}")
    if log.recovery_point > log.log_end_offset:
        raise InvariantError(f"recovery point {log.recovery_point} is above the log end: {log!r}")
    _check_segments(log)
    if log.leader_epoch >= 0 and log.epoch_for_offset(log.log_end_offset) != log.leader_epoch:
        raise InvariantError(f"epoch {log.leader_epoch} begins above the log end: {log!r}")


def _check_segments(log: LocalLog) -> None:
    next_offset, epoch = 0, -1
    last = len(log.segments) - 1
    for index, segment in enumerate(log.segments):
        if segment.is_active != (index == last and log.is_open):
            raise InvariantError(f"{segment!r} is the wrong one to be active")
        if segment.base_offset < next_offset:
            raise InvariantError(f"{segment!r} begins below {next_offset}, where the one before it ended")
        next_offset = segment.base_offset
        starts = {}
        for place in segment.batches():
            if place.base_offset < next_offset or -1 < place.leader_epoch < epoch:
                raise InvariantError(
                    f"{segment.path}: {place} behind offset {next_offset - 1} of epoch {epoch}"
                )
            next_offset, epoch = place.last_offset + 1, max(epoch, place.leader_epoch)
            starts[place.position] = place.last_offset
        _check_indexes(segment, starts)
    if next_offset > log.log_end_offset:
        raise InvariantError(f"the last batch ends at {next_offset - 1}, above the log end: {log!r}")


def _check_indexes(segment: LogSegment, starts: dict[int, int]) -> None:
    previous_offset, previous_position = segment.base_offset - 1, -1
    for slot in range(segment.offset_index.entries):
        offset, position = segment.offset_index.entry(slot)
        if offset <= previous_offset or position <= previous_position:
            raise InvariantError(f"{segment.offset_index.path}: entry {slot} does not ascend")
        if starts.get(position) != offset:
            raise InvariantError(
                f"{segment.offset_index.path}: entry {slot} says {offset} at {position}, "
                f"there is {starts.get(position)}"
            )
        previous_offset, previous_position = offset, position
    previous_timestamp = -1
    previous_offset = segment.base_offset - 1
    last_offsets = set(starts.values())
    for slot in range(segment.time_index.entries):
        timestamp, offset = segment.time_index.entry(slot)
        if timestamp <= previous_timestamp or offset < previous_offset or offset not in last_offsets:
            raise InvariantError(f"{segment.time_index.path}: entry {slot} is ({timestamp}, {offset})")
        previous_timestamp, previous_offset = timestamp, offset
