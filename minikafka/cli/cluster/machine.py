"""What this machine gives a cluster that takes all of it: cores, memory, a rack.

One broker uses one core (``docs/decisions/015``), so ``minikafka cluster --brokers auto`` runs one for each
core that this process may use: those of its affinity, and no more than its control group's quota pays for.
Brokers of one machine share its memory, which Kafka's defaults, meant for one broker a machine, do not know.
"""

from __future__ import annotations

import math
import os
import socket
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMORY_SHARE = 0.5
"""Of the memory for brokers; the page cache, in which the newest records are read, has the rest."""
BROKER_BYTES = 64 * 1024 * 1024
"""What a broker takes beside the budgets below."""
BUDGETS = {
    "queued.max.request.bytes": 256 * 1024 * 1024,
    "group.max.memory.bytes": 256 * 1024 * 1024,
    "log.cleaner.dedupe.buffer.size": 128 * 1024 * 1024,
}
"""Properties that bound memory, and their defaults."""
BUDGET_MIN = 16 * 1024 * 1024


def usable_cores(cgroups: Path = CGROUPS) -> int:
    """Cores that this process may use, at least 1; a quota of a part of one counts as one."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota_cores(cgroups)
    return max(affinity if quota is None else min(affinity, math.ceil(quota)), 1)


def _quota_cores(cgroups: Path) -> float | None:
    """Of the control group, of both versions; None: it has no quota."""
    unified = _words(cgroups / "cpu.max")
    if len(unified) == 2:
        return None if unified[0] == "max" else int(unified[0]) / int(unified[1])
    quota, period = _words(cgroups / "cpu/cpu.cfs_quota_us"), _words(cgroups / "cpu/cpu.cfs_period_us")
    if not quota or not period or int(quota[0]) <= 0:
        return None
    return int(quota[0]) / int(period[0])


def usable_memory(cgroups: Path = CGROUPS) -> int:
    """Bytes of memory of the machine, or of its control group where that has less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (_words(cgroups / name) for name in ("memory.max", "memory/memory.limit_in_bytes"))
    return min([physical, *(int(words[0]) for words in limits if words and words[0] != "max")])


def memory_properties(brokers: int, memory_bytes: int) -> dict[str, str]:
    """What each of ``brokers`` is to be configured with, so that all of them stay within their share of
    ``memory_bytes``; nothing where the defaults do."""
    budget = memory_bytes * MEMORY_SHARE / brokers - BROKER_BYTES
    wanted = sum(BUDGETS.values())
    if budget >= wanted:
        return {}
    return {name: str(max(int(size * budget / wanted), BUDGET_MIN)) for name, size in BUDGETS.items()}


def machine_name() -> str:
    """The rack of its brokers: replicas of a partition are spread over machines first, then."""
    return socket.gethostname()


def _words(path: Path) -> list[str]:
    """Of a small file; none when it is not there, as outside of Linux."""
    try:
        return path.read_text().split()
    except OSError:
        return []
