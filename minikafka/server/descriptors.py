"""File descriptors: how many this process may have, and how many of them closed segments may keep.

Kafka keeps every segment's files open and asks for a limit of 100,000. Here closed segments are opened when
they are read and stay open, so that reading them again costs no more than reading the active one, up to a
share of the limit.
"""

from __future__ import annotations

import resource

WANTED = 100_000
"""What Kafka's documentation recommends for a broker."""

SEGMENT_DESCRIPTORS = 3
"""A closed segment's log, offset index and time index."""

SEGMENTS_MIN = 64


def raise_limit() -> int:
    """Raise the soft limit as far as the hard one allows, up to ``WANTED``. Returns what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS knows a further limit that it does not tell
        return soft
    return wanted


def open_segments_max() -> int:
    """How many closed segments may stay open: half of the descriptors, the rest is for active segments and
    connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = WANTED if soft == resource.RLIM_INFINITY else min(soft, WANTED)
    return max(SEGMENTS_MIN, descriptors // 2 // SEGMENT_DESCRIPTORS)
