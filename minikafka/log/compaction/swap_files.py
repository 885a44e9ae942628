"""What an interrupted deletion, compaction or split left in a log's directory. Kafka: the first passes of
``LogLoader.load``.

A swap of segments goes ``.cleaned`` → ``.swap`` → live, and the old ones become ``.deleted``. So:
``.deleted`` and ``.cleaned`` files go; a ``.swap`` at or above the smallest ``.cleaned`` belongs to a swap
that never got complete and goes too; every other ``.swap`` is complete: the live segments in its range go,
and it takes their place. At any moment of a crash this leaves all of the old or all of the new segments.
"""

from __future__ import annotations

import logging
import os

from minikafka.config.topic import TopicConfig
from minikafka.files import Files
from minikafka.log.files.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    parse_file_name,
)
from minikafka.log.segment.segment import CorruptSegment, LogSegment

_log = logging.getLogger(__name__)

_CHECKPOINT_DELETED_SUFFIX = ".checkpoint" + DELETED_SUFFIX  # KRaft's, not ours to remove


def finish_swaps(directory: str, *, config: TopicConfig, files: Files) -> list[str]:
    """Clean the directory up; returns the names of the files that are in it afterwards, sorted.

    Raises:
        OSError: the disk's.
    """
    names = files.list(directory)
    temporary = [
        n for n in names if n.endswith(DELETED_SUFFIX) and not n.endswith(_CHECKPOINT_DELETED_SUFFIX)
    ]
    cleaned = {n: offset for n in names if (offset := _offset_before(n, CLEANED_SUFFIX)) is not None}
    swaps = {n: offset for n in names if (offset := _offset_before(n, SWAP_SUFFIX)) is not None}
    if not temporary and not cleaned and not swaps:
        return names
    smallest_cleaned = min(cleaned.values(), default=None)
    unfinished = [
        n for n, offset in swaps.items() if smallest_cleaned is not None and offset >= smallest_cleaned
    ]
    # In Kafka's order: were the .cleaned files gone first, a crash now would make the unfinished swaps look
    # finished.
    for name in temporary + unfinished + list(cleaned):
        _log.info("%s: removing %s, left over from before the restart", directory, name)
        files.remove(os.path.join(directory, name))
    finished = [n for n in swaps if n not in unfinished]
    if finished:
        _take_over(directory, finished, config=config, files=files)
    return files.list(directory)


def _take_over(directory: str, swaps: list[str], *, config: TopicConfig, files: Files) -> None:
    first, end = None, 0
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base_offset = int(name.partition(".")[0])
            first = base_offset if first is None else min(first, base_offset)
            end = max(
                end, _next_offset(os.path.join(directory, name), base_offset, config=config, files=files)
            )
    if first is not None:
        for name in files.list(directory):
            parsed = parse_file_name(name)
            if parsed is not None and first <= parsed[0] < end:
                _log.info("%s: removing %s, which was replaced before the restart", directory, name)
                files.remove(os.path.join(directory, name))
    for name in swaps:
        _log.info("%s: finishing the swap of %s", directory, name)
        path = os.path.join(directory, name)
        files.rename(path, path.removesuffix(SWAP_SUFFIX))
    files.sync_directory(directory)


def _next_offset(path: str, base_offset: int, *, config: TopicConfig, files: Files) -> int:
    """The offset after the last batch of a swapped-in record file."""
    size = files.size(path)
    segment = LogSegment(
        os.path.dirname(path), base_offset, config=config, files=files, size=size, created_ms=0
    )
    segment.path = path
    next_offset = base_offset
    try:
        for place in segment.batches():
            next_offset = place.last_offset + 1
    except CorruptSegment as error:
        _log.warning("%s: %s; what is before it is kept", path, error)
    finally:
        segment.release()
    return next_offset


def _offset_before(name: str, suffix: str) -> int | None:
    if not name.endswith(suffix):
        return None
    parsed = parse_file_name(name.removesuffix(suffix))
    return None if parsed is None else parsed[0]
