"""Two files exchange their names, at one moment (Linux: ``renameat2`` with ``RENAME_EXCHANGE``).

Why not ``os.replace``: a rename *over* a file makes ext4 write out the new file's bytes before it returns,
and so it waits for a large fsync of any process: up to 280 ms beside an fsync of 600 MB, where an exchange
took 1 to 6. Without other writers it is 0.5 ms against 0.9.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_Renameat2 = Callable[[int, bytes, int, bytes, int], int]


def exchange(one: str, other: str) -> bool:
    """Whether the two files have each other's name now. False, and nothing has changed: one of them is not
    there, or this system or file system cannot."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0


@functools.cache
def _renameat2() -> _Renameat2 | None:
    function: _Renameat2 | None = getattr(ctypes.CDLL(None), "renameat2", None)
    return function
