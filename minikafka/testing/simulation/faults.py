"""Faults of a disk: functions that are asked about each operation and answer with the errno it fails with.

Operations are ``open``, ``create``, ``read``, ``write``, ``truncate``, ``fsync`` (files and directories),
``rename``, ``remove``, ``make_directory``, ``list``, ``lock`` and ``statvfs``. A fault may also end the
process that asks, to find out what a crash at exactly this point leaves.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

Fault = Callable[[str, str], int | None]
"""Operation and path → the errno that it fails with, if it does."""

WRITING = frozenset({"create", "write", "truncate", "rename", "remove", "make_directory", "lock"})


def failing(operation: str, path_part: str = "", code: int = errno.EIO, *, after: int = 0) -> Fault:
    """The fault of one operation on every path that contains ``path_part``, once ``after`` have succeeded."""
    left = after

    def fault(asked: str, path: str) -> int | None:
        nonlocal left
        if asked != operation or path_part not in path:
            return None
        left -= 1
        return code if left < 0 else None

    return fault


def failing_once(operation: str, path_part: str = "", code: int = errno.EIO, *, after: int = 0) -> Fault:
    """Like ``failing``, but only the first one after those fails."""
    left = after

    def fault(asked: str, path: str) -> int | None:
        nonlocal left
        if asked != operation or path_part not in path:
            return None
        left -= 1
        return code if left == -1 else None

    return fault


def read_only(operation: str, path: str) -> int | None:
    """The fault of a file system that has been mounted again without writing."""
    return errno.EROFS if operation in WRITING else None
