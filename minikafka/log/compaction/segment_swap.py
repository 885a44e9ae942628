"""Compacted segments take the place of old ones, by renames. Kafka: ``LocalLog.replaceSegments``; and what a
start makes of a swap that was interrupted: the first passes of ``LogLoader.load``.

1. The ``.cleaned`` files become ``.swap``, those of the last segment first. The last of these renames decides
   the swap: a start before it finds a ``.cleaned`` file below every ``.swap`` and drops the new segments, a
   start after it drops the old ones.
2. The old files become ``.deleted``.
3. The ``.swap`` files get their names; the records first: without them a start would take the live indexes,
   which are the new ones already, for those of the old segments.

The content is durable before step 1. The file system keeps the order of renames in one directory, so one
fsync of the directory at the end is enough; it is the caller's, on the disk thread.

Several new segments may be swapped in at once, all or none of them, when they are neighbours: a start takes
everything between the first and the last of them for replaced.

So a start (``finish_swaps``) finds ``.deleted`` files, of a deletion too, and ``.cleaned`` ones: both go. A
``.swap`` at or above the smallest ``.cleaned`` belongs to a swap that never got complete and goes too; every
other ``.swap`` is complete: the live segments in its range go, and it takes their place. At any moment of a
crash this leaves all of the old or all of the new segments.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from minikafka.config.topic import TopicConfig
from minikafka.files import Files
from minikafka.log.compaction.job import CompactedSegment
from minikafka.log.files.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    parse_file_name,
)
from minikafka.log.segment.retention import DeletedFiles, rename_deleted
from minikafka.log.segment.segment import CorruptSegment, LogSegment

_log = logging.getLogger(__name__)

_CHECKPOINT_DELETED_SUFFIX = ".checkpoint" + DELETED_SUFFIX  # KRaft's, not ours to remove


def swap_files(directory: str, segments: Sequence[CompactedSegment], *, files: Files) -> list[DeletedFiles]:
    """Make compacted segments, neighbours in their order, live. Returns the renamed files of the old ones.

    Raises:
        OSError: the next start finishes the swap, or undoes it.
    """
    live = [
        os.path.join(directory, file_name(new.base_offset, suffix))
        for new in segments
        for suffix in SEGMENT_SUFFIXES
        if suffix != TXN_INDEX_SUFFIX or new.has_txn_index
    ]
    for path in reversed(live):
        files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    deleted = [
        rename_deleted(directory, base_offset, files) for new in segments for base_offset in new.replaced
    ]
    for path in live:
        files.rename(path + SWAP_SUFFIX, path)
    return deleted


def remove_cleaned(directory: str, *, files: Files) -> None:
    """Remove what a compaction that was given up has written. Raises OSError."""
    if files.is_directory(directory):
        for name in files.list(directory):
            if name.endswith(CLEANED_SUFFIX):
                files.remove(os.path.join(directory, name))


# ---- what a swap has left


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
