"""The names of a log's files. Kafka: ``LogFileUtils``.

A segment's files carry its base offset, zero-padded to 20 digits so that names sort as offsets do.
"""

from __future__ import annotations

import re

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

OFFSET_MAX = 2**63 - 1

_NAME = re.compile(r"(?P<offset>\d{20})(?P<suffix>\.(?:log|index|timeindex|txnindex|snapshot))", re.ASCII)


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """(base offset, suffix) of a live file of a log; None for every other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    offset = int(match["offset"])
    return (offset, match["suffix"]) if offset <= OFFSET_MAX else None
