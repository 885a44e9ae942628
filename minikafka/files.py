"""The file system as an argument: what the log asks of a disk, and the real disk that answers.

Everything that the log reads or writes goes through ``Files`` and ``File``, so that a simulation can put a
disk underneath that loses unsynced bytes, returns EIO or fills up. This module is the only place that opens
files for the core. All paths are ``str``; all sizes and positions are bytes. Calls raise ``OSError``.

Only regular files are opened: a symbolic link would have its target truncated, which may be another log's or
no log's at all, and a FIFO or a device blocks the thread that opens it. Kafka follows links. Directories may
be links.

What is made here is its owner's alone: files have the mode 0600, directories 0700. A directory with the
set-group-ID bit is one that a group shares: what is made in it its group may read, too (0640, 2750). What is
there already is left as it is. Each file and directory gets its mode where it is made, and not by a umask of
the process: a broker runs inside of other programs too, whose umask is theirs, and a umask would take the
group's right as well.

Only ``fsync`` and ``sync_directory`` (about 2 ms) and ``read`` of a cold page may block for long; the shell
calls those on its disk thread. ``read_cached`` never waits for the disk.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from minikafka.deferred import deferred, shutil
from minikafka.named_tuple import NamedTuple
from minikafka.types import Buffer

if TYPE_CHECKING:
    from minikafka import exchange
else:
    exchange = deferred("minikafka.exchange")

_NO_DISK_FAILURES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG, errno.ENOENT})

SECTOR_BYTES = 512
"""What disks write at once, or not at all."""

_MAX_IOV = 1024
"""Linux's IOV_MAX: buffers in one pwritev."""

_NOWAIT = getattr(os, "RWF_NOWAIT", None)


def is_disk_failure(error: BaseException) -> bool:
    """Whether an OSError, or an error raised from one, shows that a disk has failed, so that its log
    directory must go offline.

    No failed disk are: no descriptor left in this process or on this machine, a name that is too long, and a
    file that is not there. They concern one file, and all others can be used.
    """
    cause = error if isinstance(error, OSError) else error.__cause__
    return not (isinstance(cause, OSError) and cause.errno in _NO_DISK_FAILURES)


def lacks_descriptors(error: OSError) -> bool:
    """Whether a file could not be opened only because too many others are open."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def read_linked(path: str, bytes_max: int) -> bytes:
    """A regular file that links may lead to, as secrets are mounted in containers. A FIFO or a device is not
    waited for. Raises OSError, also for a larger one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_regular(os.fstat(descriptor), path)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes", path)
    return data


class File(Protocol):
    """An open file."""

    @property
    def path(self) -> str:
        """Where it was opened; a rename does not change it."""
        ...

    def size(self) -> int: ...

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all of ``buffers``, one after the other, at ``position``. Returns the bytes written.

        Raises:
            OSError: ``ENOSPC`` too when the disk took only a part; the caller truncates what it left.
        """
        ...

    def read(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes from ``position``; fewer at the end of the file. May wait for the disk."""
        ...

    def read_cached(self, size: int, position: int) -> bytearray | None:
        """Like ``read``, but only from memory: None when any part would have to come from the disk."""
        ...

    def skip_hole(self, position: int) -> int:
        """The first position from ``position`` on that need not be zero: what was never written is passed
        over without being read. The end of the file, or beyond, when there is no such position."""
        ...

    def map(self, size: int) -> mmap.mmap | memoryview:
        """A shared, writable map of the first ``size`` bytes; the file is grown to ``size`` when shorter.

        The caller owns it: ``close``/``release`` it before the file is truncated below ``size``.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None: ...

    def close(self) -> None:
        """Idempotent."""
        ...


class DirectoryLock(Protocol):
    """Held while a process uses a log directory."""

    def release(self) -> None: ...


class Volume(NamedTuple):
    """What a directory lies on: its size, and what this process may still fill of it."""

    total_bytes: int
    usable_bytes: int


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Raises FileNotFoundError unless ``create``; OSError for what is no regular file. An existing file
        keeps its content."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Durable replacement: ``path.tmp``, fsync, rename, fsync the directory. Blocks."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Replacement without waiting for the disk: ``path.tmp``, rename. A reader finds the old bytes
        or the new ones; after a power cut there may be old, new, or none at all, until file and directory are
        fsynced."""
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """As ``replace``, but in the same file where it is not longer than ``data``, and ``data`` not longer
        than a disk's sector: a tenth of the cost. After a power cut there may also be a part of each."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Raises OSError for what is no regular file."""
        ...

    def modified_ms(self, path: str) -> int:
        """Last modification, milliseconds since the Unix epoch."""
        ...

    def make_directory(self, path: str) -> None:
        """With parents; an existing one is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces ``target`` when that is a file."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it; a missing one is fine."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def volume(self, path: str) -> Volume:
        """May wait for the disk."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Take the exclusive lock file ``path``. Raises BlockingIOError when another process holds it."""
        ...


def _shared_bits(directory: str, bits: int) -> int:
    """``bits``, when the directory is shared with a group, else none; also when it cannot be asked: then
    nothing can be made in it."""
    try:
        is_shared = os.stat(directory or ".").st_mode & stat.S_ISGID
    except OSError:
        return 0
    return bits if is_shared else 0


def make_private_directory(path: str) -> None:
    """Make a directory, with parents; an existing one is fine. See the module's header for the modes."""
    missing: list[str] = []
    directory = path.rstrip("/") or path
    while directory and not os.path.lexists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory).rstrip("/")
    for made in reversed(missing):
        try:
            os.mkdir(made, 0o700 | _shared_bits(os.path.dirname(made), 0o050))
        except FileExistsError:  # by another process, meanwhile
            if not os.path.isdir(made):
                raise
    if not os.path.isdir(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def open_regular(path: str, flags: int) -> int:
    """A descriptor of a regular file. See the module's header for the mode of a new one.

    Raises:
        OSError: also for a symbolic link, whatever it leads to, a FIFO, a socket or a device.
    """
    try:
        mode = 0o600
        if flags & os.O_CREAT:
            mode |= _shared_bits(os.path.dirname(path), 0o040)
        # O_NONBLOCK: a FIFO would wait for its other end; regular files know no difference.
        fd = os.open(path, flags & ~os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_regular(path, "a symbolic link") from None
        raise
    try:
        _check_regular(os.fstat(fd), path)
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise _not_regular(path, "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a special file")


def _not_regular(path: str, what: str) -> OSError:
    reason = f"{what}; only regular files are used here, put the file itself in its place"
    return OSError(errno.ELOOP if "link" in what else errno.EINVAL, reason, path)


class OsFile:
    """``File`` on the operating system's file system."""

    __slots__ = ("_fd", "_path", "_read_only")

    def __init__(self, path: str, fd: int, *, read_only: bool) -> None:
        self._path = path
        self._fd = fd
        self._read_only = read_only

    def __repr__(self) -> str:
        return f"OsFile({self._path!r}, {'closed' if self._fd < 0 else f'fd={self._fd}'})"

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        total = sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers, position) if len(buffers) <= _MAX_IOV else 0
        if written < total:  # rare: a signal, a nearly full disk, or very many buffers
            rest = memoryview(b"".join(buffers))
            while written < total:
                count = os.pwrite(self._fd, rest[written:], position + written)
                if count == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
                written += count
        return total

    def read(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing > 0 and (data := os.pread(self._fd, missing, position + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_cached(self, size: int, position: int) -> bytearray | None:
        if _NOWAIT is None:  # macOS: no way to ask; a short wait is the lesser evil
            return bytearray(self.read(size, position))
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], position, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # a file system without the flag (tmpfs before Linux 6.x)
                raise
            return bytearray(self.read(size, position))
        if count == size:
            return buffer
        if position + count >= self.size():
            del buffer[count:]
            return buffer
        return None

    def skip_hole(self, position: int) -> int:
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            # ENXIO: there is only a hole from here on. Otherwise a file system that does not tell.
            return max(position, self.size()) if error.errno == errno.ENXIO else position

    def map(self, size: int) -> mmap.mmap | memoryview:
        if self._read_only:
            return mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
        if self.size() < size:
            os.ftruncate(self._fd, size)
        return mmap.mmap(self._fd, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def fsync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class OsDirectoryLock:
    """An exclusive ``flock``; the kernel releases it when the process dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class OsFiles:
    """``Files`` on the operating system's file system."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        return OsFile(path, open_regular(path, flags), read_only=read_only)

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb", opener=open_regular) as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        with open(temporary, "wb", opener=open_regular) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path) or ".")

    def replace(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        with open(temporary, "wb", opener=open_regular) as file:
            file.write(data)
        if os.path.exists(path) and exchange.exchange(temporary, path):
            os.unlink(temporary)
        else:
            os.replace(temporary, path)

    def overwrite(self, path: str, data: bytes) -> None:
        if not self._overwritten(path, data):
            self.replace(path, data)

    def _overwritten(self, path: str, data: bytes) -> bool:
        if len(data) > SECTOR_BYTES:
            return False
        try:
            fd = open_regular(path, os.O_WRONLY)
        except FileNotFoundError:
            return False
        try:
            return os.fstat(fd).st_size <= len(data) and os.pwrite(fd, data, 0) == len(data)
        finally:
            os.close(fd)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        status = os.stat(path, follow_symlinks=False)
        _check_regular(status, path)
        return status.st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        make_private_directory(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        if os.path.lexists(path):
            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def volume(self, path: str) -> Volume:
        found = os.statvfs(path)
        return Volume(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> OsDirectoryLock:
        import fcntl

        fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return OsDirectoryLock(fd)
