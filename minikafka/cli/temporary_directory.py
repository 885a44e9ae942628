"""The directory behind ``--in-memory``: it goes with the process.

It lies in ``/dev/shm``, which is memory, where there is one with room to spare (containers often have 64
MiB of it, which a broker fills in a second), and in the usual place for temporary files otherwise. A process
that is killed with SIGKILL cannot remove it; the next broker does, because nobody holds the lock any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from types import TracebackType

from minikafka.errors import StartError

SHARED_MEMORY = "/dev/shm"
ROOM_BYTES = 1024 * 1024 * 1024
"""Free memory file system that makes it worth using: one segment of Kafka's default size."""

_PREFIX = "minikafka-"
_LOCK = ".in-memory"


class TemporaryDirectory:
    """A context manager that makes a directory and removes it. ``path`` is where it is."""

    def __init__(self, parent: str | None = None) -> None:
        """``parent`` overrides where it is made."""
        self._parent = parent or _parent()
        self._lock = -1
        self.path = ""

    def __enter__(self) -> TemporaryDirectory:
        """Raises StartError when there is no place for it."""
        try:
            remove_abandoned(self._parent)
            self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent)
            self._lock = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise StartError(
                f"cannot make a temporary directory in {self._parent}: {error.strerror}"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(parent: str) -> None:
    """Remove the directories of brokers that died without doing so."""
    for name in sorted(os.listdir(parent)):
        lock_path = os.path.join(parent, name, _LOCK)
        if not name.startswith(_PREFIX) or not os.path.isfile(lock_path):
            continue
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # somebody else's, or just gone
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
        except BlockingIOError:  # its broker lives
            pass
        finally:
            os.close(lock)


def _parent() -> str:
    try:
        room = os.statvfs(SHARED_MEMORY)
    except OSError:
        return tempfile.gettempdir()
    if room.f_bavail * room.f_frsize >= ROOM_BYTES and os.access(SHARED_MEMORY, os.W_OK):
        return SHARED_MEMORY
    return tempfile.gettempdir()
