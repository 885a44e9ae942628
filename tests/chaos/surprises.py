"""Errors of client libraries that are none of their own kinds, which a chaos run outlives and tells of.

A library may end with a ``ValueError`` or an ``AssertionError`` where a broker has just left. That says
nothing of the brokers, so it fails no run: the client goes on, perhaps with another instance of the
library's, and each one is a line of its standard error that begins with ``PREFIX``. The report of the run has
their number. A client that does nothing else but fail ends, which fails the run.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

PREFIX = "unexpected: "
"""``ChaosClient.java`` has the same."""
SURPRISES_MAX = 50
"""In the life of a process."""


class Surprises:
    """Those of one process."""

    def __init__(self, maximum: int = SURPRISES_MAX) -> None:
        self._left = maximum

    def note(self, where: str, error: Exception) -> None:
        """Tell of it, with its traceback. Raises ``error`` when there were too many."""
        print(f"{PREFIX}{where}: {error!r}", file=sys.stderr)
        traceback.print_exception(error)
        self._left -= 1
        if self._left < 0:
            raise error


def surprises_of(directory: Path) -> dict[str, int]:
    """How many each client of a run had that had any, by its name."""
    counts = {
        path.stem: sum(line.startswith(PREFIX) for line in path.read_text(errors="replace").splitlines())
        for path in sorted(directory.glob("*.err"))
    }
    return {name: count for name, count in counts.items() if count}
