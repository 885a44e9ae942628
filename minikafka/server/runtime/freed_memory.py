"""Memory that was freed stays with the process, up to a bound, and is handed out again.

The buffers of fetch answers come and go, a few megabytes at a time. glibc by default gives memory at the top
of its heap back to the kernel from 128 KiB on, and each next answer then takes new pages, one fault and 4 KiB
of zeros at a time: on a virtual machine that was 0.6 core-seconds a GB, twice what reading and sending took.
"""

from __future__ import annotations

KEPT_BYTES_MAX = 32 << 20
"""Free memory above it goes back. A few answers of ``apis.fetch.CONSUMER_ANSWER_BYTES_MAX`` are in it."""


def keep_freed_memory() -> None:
    """For the whole process. Harmless where the allocator is not glibc's.

    A block that is large enough for a mapping of its own and is freed moves glibc's thresholds: to its size
    for mappings, to twice that for what is given back (mallopt(3), M_MMAP_THRESHOLD). ``bytes`` asks for
    zeros and does not write them, so nobody touches the block and it costs nothing; ``bytearray`` writes
    them, 16 MiB in 14 ms.
    """
    bytes(KEPT_BYTES_MAX // 2)
