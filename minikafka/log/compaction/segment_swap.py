"""Compacted segments take the place of old ones, by renames. Kafka: ``LocalLog.replaceSegments``.

1. The ``.cleaned`` files become ``.swap``, those of the last segment first. The last of these renames decides
   the swap: a start before it finds a ``.cleaned`` file below every ``.swap`` and drops the new segments, a
   start after it drops the old ones (``finish_swaps``).
2. The old files become ``.deleted``.
3. The ``.swap`` files get their names; the records first: without them a start would take the live indexes,
   which are the new ones already, for those of the old segments.

The content is durable before step 1. The file system keeps the order of renames in one directory, so one
fsync of the directory at the end is enough; it is the caller's, on the disk thread.

Several new segments may be swapped in at once, all or none of them, when they are neighbours: a start takes
everything between the first and the last of them for replaced.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from minikafka.files import Files
from minikafka.log.compaction.job import CompactedSegment
from minikafka.log.files.names import (
    CLEANED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from minikafka.log.segment.retention import DeletedFiles, rename_deleted


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
