"""Processes below a process (Linux)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2)."""


def adopt_orphans() -> None:
    """From now on a process below this one whose parent has ended becomes a child of this one, not of init:
    what it spends is still found below this one. When it ends it stays a zombie, since nothing waits for it.

    Raises OSError: the kernel does not do it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


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
