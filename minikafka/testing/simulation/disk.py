"""``SimulatedDisk``: a file system in memory that can lose power, fill up and fail.

A process uses it through a ``Mount``, which is a ``minikafka.files.Files``. When the process is killed the
mount goes dead: whatever of the old process still touches it gets ``ProcessKilled``, and changes nothing.
What was written is kept, since the kernel has it. When the machine loses power, what was not fsynced may be
lost, by dice.

A file has its content (what every process of the machine sees: the page cache) and the pages that have
reached the disk. A directory likewise has its entries and those that are durable, and between the two the
changes that are not synced. ``after_power_loss`` picks, by dice, one of the states that a real disk may be
found in:

- of a file: nothing since its last fsync; everything; a prefix of what was appended; or any subset of the
  pages, with zeros where the size arrived before the data (XFS, ext4's delayed allocation).
- of a directory: any number of the changes since its last fsync, in their order. Directories do not wait for
  each other, and fsyncing a file says nothing of its name: POSIX promises no more, though some file systems
  do.

Faults are functions that are asked about each operation and answer with the errno it fails with. Operations
are ``open``, ``create``, ``read``, ``write``, ``truncate``, ``fsync`` (files and directories), ``rename``,
``remove``, ``make_directory``, ``list``, ``lock`` and ``statvfs``. A fault may also end the process that
asks, to find out what a crash at exactly this point leaves.

Not modelled: permissions, links and special files (the real adapter refuses to open those), and renames from
one directory into another (EXDEV, as between two mounts).
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeVar

from minikafka.deferred import crc32c
from minikafka.files import SECTOR_BYTES, Volume
from minikafka.testing.simulation.loop import ProcessKilled
from minikafka.types import Buffer

PAGE_BYTES = 4096
_ZEROS = bytes(PAGE_BYTES)

Fault = Callable[[str, str], int | None]
"""Operation and path → the errno that it fails with, if it does."""

WRITING = frozenset({"create", "write", "truncate", "rename", "remove", "make_directory", "lock"})

SIZE_BYTES = 1 << 40
"""It fills up only when a fault says so."""

Note = Callable[[str, object], None]


# Files and directories


class Survival(Enum):
    """What a power loss leaves of what was written to a file and not synced."""

    NOTHING = "NOTHING"
    EVERYTHING = "EVERYTHING"
    PREFIX = "PREFIX"
    SOME_PAGES = "SOME_PAGES"


class FileNode:
    """A file: bytes, and which of them are durable. Knows no path: it may have several over time, or none."""

    __slots__ = (
        "_dirty",
        "_durable",
        "_durable_size",
        "data",
        "has_views",
        "is_cold",
        "is_mapped",
        "modified_ms",
    )

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = modified_ms
        self.is_cold = False
        """Whether no page is in memory: after a power loss, until a read."""
        self.is_mapped = False
        """Whether it was mapped, so that it may change without a write."""
        self.has_views = False
        """Whether it was mapped, be it only to read, by a process that may have the map still."""
        self._dirty: set[int] = set()
        self._durable: dict[int, bytes] = {}
        self._durable_size = 0

    def __repr__(self) -> str:
        return f"FileNode({len(self.data)} bytes, {self._durable_size} durable)"

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Put ``buffers`` at ``position``; a gap before it reads as zeros. Returns the bytes written."""
        data = self.data
        start = position
        if position > len(data):
            self.truncate(position)
        for buffer in buffers:
            data[position : position + len(buffer)] = buffer
            position += len(buffer)
        if position > start:
            self._dirty.update(range(start // PAGE_BYTES, (position - 1) // PAGE_BYTES + 1))
        return position - start

    def truncate(self, size: int) -> None:
        """Cut, or grow with zeros."""
        old = len(self.data)
        if size < old:
            del self.data[size:]
        else:
            self.data.extend(bytes(size - old))
        if size != old:
            first, last = min(size, old) // PAGE_BYTES, max(size, old) // PAGE_BYTES
            self._dirty.update(range(first, last + 1))

    def map(self, size: int) -> memoryview:
        """A writable view of the first ``size`` bytes."""
        if len(self.data) < size:
            self.truncate(size)
        self.is_mapped = True
        return self.view(size)

    def view(self, size: int) -> memoryview:
        """The same of a file that is large enough, and does not change by it."""
        self.has_views = True
        return memoryview(self.data)[:size]

    def rot(self, position: int, bits: int) -> None:
        """The disk has turned ``bits`` of one byte around, and what was read of it before is forgotten."""
        self.data[position] ^= bits
        page, within = divmod(position, PAGE_BYTES)
        durable = self._durable.get(page)
        if durable is not None and within < len(durable):
            turned = bytes([durable[within] ^ bits])
            self._durable[page] = durable[:within] + turned + durable[within + 1 :]

    def unmap(self) -> None:
        """The process that has a map, be it only to read, is dead: it must not see, or hinder, what happens
        from here on."""
        if self.has_views:
            self.data = bytearray(self.data)
            self.has_views = False

    def sync(self) -> None:
        """Everything is durable."""
        for page in self._changed_pages():
            content = bytes(self.data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])
            if content.strip(b"\0"):
                self._durable[page] = content
            else:
                self._durable.pop(page, None)
        self._dirty.clear()
        self._durable_size = len(self.data)

    def sync_failed(self) -> None:
        """As Linux does: the pages count as clean, though they never reached the disk."""
        self._dirty.clear()

    def after_power_loss(self, rng: random.Random, survival: Survival | None = None) -> Survival:
        """Become what the disk holds: ``survival``, by default one by dice. Returns which."""
        if survival is None:
            survival = rng.choice(list(Survival))
        changed = self._changed_pages()
        size = len(self.data)
        match survival:
            case Survival.NOTHING:
                changed, size = [], self._durable_size
            case Survival.PREFIX if size > self._durable_size:
                size = rng.randint(self._durable_size, size)
            case Survival.PREFIX:
                changed = changed[: rng.randint(0, len(changed))]
            case Survival.SOME_PAGES:
                changed = [page for page in changed if rng.random() < 0.5]
        self.data = self._content(changed, size)
        self.sync()
        self.is_mapped = False
        self.is_cold = True
        return survival

    def _changed_pages(self) -> list[int]:
        """In order. A mapped file is compared page by page."""
        if not self.is_mapped:
            return sorted(self._dirty)
        view = memoryview(self.data)
        pages = -(-max(len(view), self._durable_size) // PAGE_BYTES)
        return [
            page
            for page in range(pages)
            if page in self._dirty
            or view[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
            != self._durable.get(page, _ZEROS)[: max(0, len(view) - page * PAGE_BYTES)]
        ]

    def _content(self, changed: Sequence[int], size: int) -> bytearray:
        """The durable pages with ``changed`` ones over them, ``size`` bytes long."""
        content = bytearray(max(size, self._durable_size, len(self.data)) + PAGE_BYTES)
        for page, durable in self._durable.items():
            content[page * PAGE_BYTES : page * PAGE_BYTES + len(durable)] = durable
        for page in changed:
            start = page * PAGE_BYTES
            current = self.data[start : start + PAGE_BYTES]
            content[start : start + PAGE_BYTES] = current + bytes(PAGE_BYTES - len(current))
        del content[size:]
        return content


class DirectoryNode:
    """A directory: names, and which of them are durable."""

    __slots__ = ("_durable", "_unsynced", "entries", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.entries: dict[str, Node] = {}
        self.modified_ms = modified_ms
        self._durable: dict[str, Node] = {}
        self._unsynced: list[tuple[tuple[str, Node | None], ...]] = []

    def __repr__(self) -> str:
        return f"DirectoryNode({sorted(self.entries)}, {len(self._unsynced)} changes not synced)"

    def change(self, *changes: tuple[str, Node | None]) -> None:
        """Names and what they stand for from here on (None: nothing); all of it or none is durable later."""
        _apply(changes, self.entries)
        self._unsynced.append(changes)

    def sync(self) -> None:
        """Every name is durable, though not what it names."""
        self._unsynced.clear()
        self._durable = dict(self.entries)

    def after_power_loss(self, rng: random.Random, survival: Survival | None = None) -> int:
        """Become what the disk holds, with everything below. Returns how many changes were lost."""
        match survival:
            case Survival.NOTHING:
                kept = 0
            case Survival.EVERYTHING:
                kept = len(self._unsynced)
            case _:
                kept = rng.randint(0, len(self._unsynced))
        lost = len(self._unsynced) - kept
        for changes in self._unsynced[:kept]:
            _apply(changes, self._durable)
        self.entries = dict(self._durable)
        self._unsynced.clear()
        for _, node in sorted(self.entries.items()):
            node.after_power_loss(rng, survival)
        return lost


Node = FileNode | DirectoryNode


def _apply(changes: Sequence[tuple[str, Node | None]], entries: dict[str, Node]) -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def directories_below(directory: DirectoryNode) -> list[DirectoryNode]:
    """``directory`` and all below it."""
    found = [directory]
    for _, node in sorted(directory.entries.items()):
        if isinstance(node, DirectoryNode):
            found += directories_below(node)
    return found


def files_below(directory: DirectoryNode) -> list[FileNode]:
    """All files below ``directory``."""
    return [
        node
        for below in directories_below(directory)
        for _, node in sorted(below.entries.items())
        if isinstance(node, FileNode)
    ]


# Faults


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


N = TypeVar("N", FileNode, DirectoryNode)


# The disk


class SimulatedDisk:
    """The disk of one machine.

    Args:
        rng: what survives a power loss.
        now_ms: for modification times.
        note: told of every write, fsync, rename and removal: what, and the details.
    """

    def __init__(
        self, *, rng: random.Random, now_ms: Callable[[], int] = lambda: 0, note: Note | None = None
    ) -> None:
        self.fault: Fault | None = None
        """Asked before each operation; None for a disk in good health."""
        self.now_ms = now_ms
        self.note: Note = note or (lambda event, detail: None)
        self.root = DirectoryNode(0)
        self.locks: dict[str, Mount] = {}
        self._rng = rng
        self._mounts: list[Mount] = []

    def __repr__(self) -> str:
        return f"SimulatedDisk({sorted(self.root.entries)})"

    def mount(self) -> Mount:
        """For a new process."""
        mount = Mount(self)
        self._mounts.append(mount)
        return mount

    def process_killed(self) -> None:
        """The process that had it mounted is gone; what it wrote is not."""
        for mount in self._mounts:
            mount.is_dead = True
        self._mounts.clear()
        self.locks.clear()
        for node in files_below(self.root):
            node.unmap()

    def power_lost(self, survival: Survival | None = None) -> None:
        """The machine is gone, and with it some of what was not synced: by dice, or as ``survival``
        says."""
        self.process_killed()
        lost = self.root.after_power_loss(self._rng, survival)
        self.note("lost power", f"{lost} unsynced names in /")

    def sync_all(self) -> None:
        """Like sync(1): all that there is becomes durable."""
        for directory in directories_below(self.root):
            directory.sync()
        for node in files_below(self.root):
            node.sync()

    def drop_caches(self) -> None:
        """Like /proc/sys/vm/drop_caches: what is read next waits for the disk."""
        for node in files_below(self.root):
            node.is_cold = True


class Mount:
    """``Files`` for one process."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.is_dead = False

    def __repr__(self) -> str:
        return f"Mount({self.disk!r}{', dead' if self.is_dead else ''})"

    def check(self, operation: str, path: str) -> None:
        """Raises OSError when the disk has a fault, ProcessKilled when the process is dead."""
        if self.is_dead:
            raise ProcessKilled
        if self.disk.fault is not None:
            code = self.disk.fault(operation, path)
            if self.is_dead:  # the fault was to die here
                raise ProcessKilled
            if code is not None:
                raise _error(code, path)

    # Files

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None and create:
            self.check("create", path)
            node = FileNode(self.disk.now_ms())
            directory.change((name, node))
            directory.modified_ms = self.disk.now_ms()
        else:
            self.check("open", path)
        return SimulatedFile(self, path, _expect(node, FileNode, path), read_only=read_only)

    def read_bytes(self, path: str) -> bytes:
        self.check("read", path)
        node = self._find(path, FileNode)
        node.is_cold = False
        return bytes(node.data)

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = self._write_temporary(path, data)
        temporary.fsync()
        self.rename(temporary.path, path)
        self.sync_directory(os.path.dirname(path))

    def replace(self, path: str, data: bytes) -> None:
        self.rename(self._write_temporary(path, data).path, path)

    def overwrite(self, path: str, data: bytes) -> None:
        if len(data) <= SECTOR_BYTES and self.exists(path) and self.size(path) <= len(data):
            self.open(path).write([data], 0)
        else:
            self.replace(path, data)

    def _write_temporary(self, path: str, data: bytes) -> SimulatedFile:
        file = self.open(f"{path}.tmp", create=True)
        file.truncate(0)
        file.write([data], 0)
        return file

    def list(self, path: str) -> list[str]:
        self.check("list", path)
        return sorted(self._find(path, DirectoryNode).entries)

    def exists(self, path: str) -> bool:
        self._alive()
        return self._lookup(path) is not None

    def is_directory(self, path: str) -> bool:
        self._alive()
        return isinstance(self._lookup(path), DirectoryNode)

    def size(self, path: str) -> int:
        self._alive()
        return len(self._find(path, FileNode).data)

    def modified_ms(self, path: str) -> int:
        self._alive()
        node = self._lookup(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node.modified_ms

    def make_directory(self, path: str) -> None:
        directory = self.disk.root
        parts = _parts(path)
        for depth, name in enumerate(parts, start=1):
            node = directory.entries.get(name)
            if node is None:
                made = "/" + "/".join(parts[:depth])
                self.check("make_directory", made)
                node = DirectoryNode(self.disk.now_ms())
                directory.change((name, node))
                self.disk.note("made directory", made)
            directory = _expect(node, DirectoryNode, path)
        self._alive()

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        directory, old_name = self._parent(source)
        target_directory, new_name = self._parent(target)
        node = directory.entries.get(old_name)
        if node is None:
            raise _error(errno.ENOENT, source)
        if directory is not target_directory:
            raise _error(errno.EXDEV, source)
        replaced = directory.entries.get(new_name)
        if isinstance(replaced, DirectoryNode) and (isinstance(node, FileNode) or replaced.entries):
            raise _error(errno.ENOTEMPTY if isinstance(node, DirectoryNode) else errno.EISDIR, target)
        if old_name != new_name:
            directory.change((old_name, None), (new_name, node))
        self.disk.note("renamed", (source, target))

    def remove(self, path: str) -> None:
        self.check("remove", path)
        if self._lookup(path) is None:
            return
        directory, name = self._parent(path)
        _expect(directory.entries.get(name), FileNode, path)
        directory.change((name, None))
        self.disk.note("removed", path)

    def remove_tree(self, path: str) -> None:
        self._alive()
        node = self._lookup(path)
        if node is None:
            return
        for name in sorted(_expect(node, DirectoryNode, path).entries):
            below = f"{path}/{name}"
            if self.is_directory(below):
                self.remove_tree(below)
            else:
                self.remove(below)
        self.check("remove", path)
        directory, name = self._parent(path)
        directory.change((name, None))
        self.disk.note("removed", path)

    def sync_directory(self, path: str) -> None:
        self.check("fsync", path)
        self._find(path, DirectoryNode).sync()
        self.disk.note("synced", path)

    def volume(self, path: str) -> Volume:
        self.check("statvfs", path)
        if self._lookup(path) is None:
            raise _error(errno.ENOENT, path)
        used_bytes = sum(len(node.data) for node in files_below(self.disk.root))
        return Volume(SIZE_BYTES, SIZE_BYTES - used_bytes)

    def lock(self, path: str) -> SimulatedLock:
        self.check("lock", path)
        self.open(path, create=True).close()
        if path in self.disk.locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.disk.locks[path] = self
        return SimulatedLock(self, path)

    # Finding nodes

    def _alive(self) -> None:
        if self.is_dead:
            raise ProcessKilled

    def _lookup(self, path: str) -> Node | None:
        node: Node | None = self.disk.root
        for name in _parts(path):
            if not isinstance(node, DirectoryNode):
                return None
            node = node.entries.get(name)
        return node

    def _find(self, path: str, kind: type[N]) -> N:
        return _expect(self._lookup(path), kind, path)

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        return _expect(self._lookup("/".join(parts[:-1])), DirectoryNode, path), parts[-1]


class SimulatedFile:
    """An open file: ``minikafka.files.File``."""

    __slots__ = ("_is_open", "_mount", "_node", "_path", "_read_only")

    def __init__(self, mount: Mount, path: str, node: FileNode, *, read_only: bool) -> None:
        self._mount = mount
        self._path = path
        self._node = node
        self._read_only = read_only
        self._is_open = True

    def __repr__(self) -> str:
        return f"SimulatedFile({self._path!r}, {self._node!r}{'' if self._is_open else ', closed'})"

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        self._check_open()
        return len(self._node.data)

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        self._check_writable()
        node, disk = self._node, self._mount.disk
        try:
            self._mount.check("write", self._path)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # there was room for a part
                whole = b"".join(buffers)
                node.write([whole[: len(whole) // 2]], position)
            raise
        written = node.write(buffers, position)
        node.modified_ms = disk.now_ms()
        checksum = 0
        for buffer in buffers:
            checksum = crc32c.crc32c(buffer, checksum)
        disk.note("wrote", (self._path, position, written, checksum))
        return written

    def read(self, size: int, position: int) -> bytes:
        self._check_open()
        self._mount.check("read", self._path)
        self._node.is_cold = False
        return bytes(self._node.data[position : position + size])

    def read_cached(self, size: int, position: int) -> bytearray | None:
        self._check_open()
        self._mount.check("read", self._path)
        return None if self._node.is_cold else self._node.data[position : position + size]

    def skip_hole(self, position: int) -> int:
        return position

    def map(self, size: int) -> memoryview:
        self._check_open()
        if self._read_only:
            if size > len(self._node.data):
                raise ValueError("mmap length is greater than file size")
            return self._node.view(size).toreadonly()
        return self._node.map(size)

    def truncate(self, size: int) -> None:
        self._check_writable()
        self._mount.check("truncate", self._path)
        self._node.truncate(size)
        self._mount.disk.note("truncated", (self._path, size))

    def fsync(self) -> None:
        self._check_open()
        try:
            self._mount.check("fsync", self._path)
        except OSError:
            self._node.sync_failed()
            raise
        self._node.sync()
        self._mount.disk.note("synced", self._path)

    def close(self) -> None:
        self._is_open = False

    def _check_open(self) -> None:
        if self._mount.is_dead:
            raise ProcessKilled
        if not self._is_open:
            raise _error(errno.EBADF, self._path)

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise _error(errno.EBADF, self._path)


class SimulatedLock:
    """``minikafka.files.DirectoryLock``."""

    def __init__(self, mount: Mount, path: str) -> None:
        self._mount = mount
        self._path = path

    def release(self) -> None:
        if self._mount.disk.locks.get(self._path) is self._mount:
            del self._mount.disk.locks[self._path]


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _expect(node: Node | None, kind: type[N], path: str) -> N:
    if isinstance(node, kind):
        return node
    if node is None:
        raise _error(errno.ENOENT, path)
    raise _error(errno.ENOTDIR if kind is DirectoryNode else errno.EISDIR, path)


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
