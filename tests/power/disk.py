"""A disk whose power can be cut: a file system on a loop device, shut down without a flush.

``FS_IOC_SHUTDOWN`` stops all writing at once; what was not written by then is gone when the file system is
mounted again, and its journal is replayed as after a power cut. Pages that the kernel has written by itself
are there all the same, in whatever order it did: ``scatter`` has it write some.

Needs root, loop devices and ``mkfs``; a namespace of its own for mounts keeps them from everybody else.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SHUTDOWN: Final = 0x8004587D
"""``_IOR('X', 125, __u32)``, of ext4, XFS and f2fs."""

_WITH_JOURNAL, _WITHOUT_JOURNAL = 1, 2
"""``…_GOING_FLAGS_LOGFLUSH``: the journal, which has the metadata, is still written. ``…_NOLOGFLUSH``:
nothing is."""

_PAGE_BYTES: Final = 4096
_WRITE_AND_WAIT: Final = 7
"""``SYNC_FILE_RANGE_WAIT_BEFORE | …_WRITE | …_WAIT_AFTER``."""

_UNMOUNT_DEADLINE_S: Final = 20.0

MIB: Final = 1 << 20

_OPTIONS: Final = {
    "ext4": (
        "data=ordered",
        "data=ordered,noauto_da_alloc,commit=1",
        "data=writeback,noauto_da_alloc",
        "data=journal",
        "data=writeback,nodelalloc,noauto_da_alloc,commit=1",
    ),
    "xfs": ("defaults", "noatime,wsync"),
}
"""What may be in force on a machine. Without ``auto_da_alloc`` ext4 does not fsync what is renamed over a
file."""

_SIZE_BYTES: Final = {"ext4": 256 * MIB, "xfs": 320 * MIB}


class NoSuchDiskError(Exception):
    """This machine cannot have one; says why."""


class Disk:
    """One file system, mounted at ``path`` while it has power."""

    def __init__(self, directory: Path, kind: str, *, rng: random.Random) -> None:
        """Make and mount one, with its image in ``directory``. Raises NoSuchDiskError."""
        self.kind = kind
        self.options = rng.choice(_OPTIONS[kind])
        self.path = directory / "mounted"
        self._image = directory / f"{kind}.image"
        self._rng = rng
        make = shutil.which(f"mkfs.{kind}", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if os.geteuid() != 0 or make is None:
            raise NoSuchDiskError("not root" if make is not None else f"there is no mkfs.{kind}")
        self.path.mkdir(exist_ok=True)
        self._image.unlink(missing_ok=True)
        with self._image.open("wb") as file:
            file.truncate(_SIZE_BYTES[kind])
        quiet = ["-q", "-F"] if kind == "ext4" else ["-q", "-f"]
        _run([make, *quiet, str(self._image)])
        self.mount()

    def mount(self) -> None:
        """Give it power: the journal is replayed. Raises NoSuchDiskError."""
        _run(["mount", "-t", self.kind, "-o", f"loop,{self.options}", str(self._image), str(self.path)])

    def scatter(self) -> None:
        """Have the kernel write some dirty pages, as it does when it likes to."""
        for file in _files_below(self.path):
            if self._rng.random() < 0.5:
                continue
            try:
                descriptor = os.open(file, os.O_RDONLY)
            except OSError:
                continue
            try:
                pages = os.fstat(descriptor).st_size // _PAGE_BYTES + 1
                for _ in range(self._rng.randrange(4)):
                    page = self._rng.randrange(max(0, pages - 16), pages)
                    _LIBC.sync_file_range(
                        descriptor,
                        ctypes.c_int64(page * _PAGE_BYTES),
                        ctypes.c_int64(_PAGE_BYTES * self._rng.choice((1, 1, 3))),
                        ctypes.c_uint(_WRITE_AND_WAIT),
                    )
            finally:
                os.close(descriptor)

    def cut(self) -> None:
        """Cut the power: from here on every write and fsync fails with EIO."""
        flags = self._rng.choice((_WITHOUT_JOURNAL, _WITHOUT_JOURNAL, _WITH_JOURNAL))
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", flags))
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Once no process has a file of it open. Raises TimeoutError when one keeps on having one."""
        deadline = time.monotonic() + _UNMOUNT_DEADLINE_S
        while _LIBC.umount2(os.fsencode(self.path), 0) != 0:
            code = ctypes.get_errno()
            if code == errno.EINVAL:  # it is not mounted
                return
            if code != errno.EBUSY or time.monotonic() > deadline:
                raise TimeoutError(f"{self.path} cannot be unmounted: {os.strerror(code)}")
            time.sleep(0.01)  # a killed process lets go of its files when the kernel has come round to it


def _files_below(directory: Path) -> Iterator[str]:
    for parent, _, names in os.walk(directory):
        yield from (os.path.join(parent, name) for name in names)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoSuchDiskError(f"{command[0]}: {(done.stderr or done.stdout).strip()}")


_LIBC: Final = ctypes.CDLL(None, use_errno=True)
