"""Processes below a process (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def descendants(pid: int) -> Iterator[int]:
    """The process ids of the children of ``pid``, each followed by its own."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:  # it has just ended
            continue
        for child in children:
            yield child
            yield from descendants(child)


def arguments_of(pid: int) -> list[str]:
    """The command line; empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
