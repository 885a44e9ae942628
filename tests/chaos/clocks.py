"""The wall clocks of the brokers, which libfaketime turns: each broker has one of its own.

Monotonic clocks, timers and the times of files stay as they are, as they do when an operator sets a machine's
clock. Where libfaketime is missing, no clock is turned, and the run says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

LIBRARIES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")
"""Debian's and Fedora's."""
SHARED_MEMORY = Path("/dev/shm")
LOOKS_EVERY_S = 1
"""A clock that is turned is so for its broker within this."""


def library() -> Path | None:
    """Where libfaketime is, if it is installed."""
    return next((path for each in LIBRARIES for path in sorted(Path("/").glob(each[1:]))), None)


class Clock:
    """Of one broker. ``command`` is what its process is started with."""

    def __init__(self, library: Path, path: Path) -> None:
        self._path = path
        self.turn(0)
        settings = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": path,
            "FAKETIME_CACHE_DURATION": LOOKS_EVERY_S,
            "FAKETIME_DONT_FAKE_MONOTONIC": 1,
            "FAKETIME_FORCE_MONOTONIC_FIX": 0,  # which lets a thread wake up 50 ms late
            "NO_FAKE_STAT": 1,
        }
        self.command = [
            "env",
            *(f"{name}={value}" for name, value in settings.items()),
            *(sys.executable, "-m", "tests.chaos.broker"),
        ]

    def turn(self, offset_s: float) -> None:
        """Let it differ by so much from the machine's."""
        whole = self._path.with_suffix(".new")
        whole.write_text(f"{offset_s:+.3f}\n")
        whole.replace(self._path)


def clocks(directory: Path, node_ids: Iterable[int]) -> dict[int, Clock]:
    """One for each broker; none at all without libfaketime."""
    found = library()
    if found is None:
        print("no clock is turned: libfaketime is missing")
        return {}
    return {node_id: Clock(found, directory / f"clock-{node_id}") for node_id in node_ids}


def tidy() -> None:
    """Remove what libfaketime leaves behind of processes that are killed: they are no more."""
    for path in (*SHARED_MEMORY.glob("faketime_shm_*"), *SHARED_MEMORY.glob("sem.faketime_sem_*")):
        if not Path("/proc", path.name.rpartition("_")[2]).exists():
            path.unlink(missing_ok=True)
