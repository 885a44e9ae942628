"""The file system of a broker that a test may kill: from one moment on nothing that it does reaches the disk.

What was written before stays, as after a SIGKILL: the page cache outlives a process. What the broker still
writes while its remains are put away (its checkpoints, the mark of a clean shutdown) goes nowhere, and
answers as if it had succeeded.

Memory maps are the exception: the indexes are written through them. Appends have ended, but a time index gets
its last entry when it is closed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from minikafka.files import OsFile, OsFiles, open_regular
from minikafka.types import Buffer


class MortalFile(OsFile):
    """An open file of a ``MortalFiles``."""

    __slots__ = ("_owner",)

    def __init__(self, owner: MortalFiles, path: str, fd: int, *, read_only: bool) -> None:
        super().__init__(path, fd, read_only=read_only)
        self._owner = owner

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        if self._owner.is_dead:
            return sum(map(len, buffers))
        return super().write(buffers, position)

    def truncate(self, size: int) -> None:
        if not self._owner.is_dead:
            super().truncate(size)

    def fsync(self) -> None:
        if not self._owner.is_dead:
            super().fsync()


class MortalFiles(OsFiles):
    """``OsFiles`` until ``is_dead`` is set."""

    def __init__(self) -> None:
        self.is_dead = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MortalFile:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        nowhere = create and self.is_dead
        fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) if nowhere else open_regular(path, flags)
        return MortalFile(self, path, fd, read_only=read_only)

    def write_atomically(self, path: str, data: bytes) -> None:
        if not self.is_dead:
            super().write_atomically(path, data)

    def replace(self, path: str, data: bytes) -> None:
        if not self.is_dead:
            super().replace(path, data)

    def make_directory(self, path: str) -> None:
        if not self.is_dead:
            super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        if not self.is_dead:
            super().rename(source, target)

    def remove(self, path: str) -> None:
        if not self.is_dead:
            super().remove(path)

    def remove_tree(self, path: str) -> None:
        if not self.is_dead:
            super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        if not self.is_dead:
            super().sync_directory(path)
