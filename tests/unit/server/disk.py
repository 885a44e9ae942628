"""A disk for the tests of a broker: it fails where and when it is told to, and notes who waits for it.

Real files and real threads; ``minikafka.testing.simulation`` has a disk in memory with the same faults."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from minikafka.files import File, OsFiles
from minikafka.testing.simulation.disk import Fault
from minikafka.types import Buffer


class Disk(OsFiles):
    """The real file system, with faults."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.fsyncs: list[tuple[str, int]] = []
        """Path and thread of every fsync, of files and directories."""

    def check(self, operation: str, path: str) -> None:
        code = None if self.fault is None else self.fault(operation, path)
        if code is not None:
            raise OSError(code, os.strerror(code), path)

    def note_fsync(self, path: str) -> None:
        self.fsyncs.append((path, threading.get_ident()))
        self.check("fsync", path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        self.check("create" if create else "open", path)
        return DiskFile(super().open(path, create=create, read_only=read_only), self)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.check("write", path)
        self.note_fsync(path)
        super().write_atomically(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self.check("write", path)
        super().replace(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self.check("write", path)
        super().overwrite(path, data)

    def make_directory(self, path: str) -> None:
        self.check("make_directory", path)
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.note_fsync(path)
        super().sync_directory(path)


class DiskFile:
    """An open file on a ``Disk``."""

    def __init__(self, file: File, disk: Disk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        self._disk.check("write", self._file.path)
        return self._file.write(buffers, position)

    def fsync(self) -> None:
        self._disk.note_fsync(self._file.path)
        self._file.fsync()
