"""What a simulated disk consists of: files and directories, each with what is durable of it.

A file has its content (what every process of the machine sees: the page cache) and the pages that have
reached the disk. A directory likewise has its entries and those that are durable, and between the two the
changes that are not synced. ``after_power_loss`` picks, by dice, one of the states that a real disk may be
found in:

- of a file: nothing since its last fsync; everything; a prefix of what was appended; or any subset of the
  pages, with zeros where the size arrived before the data (XFS, ext4's delayed allocation).
- of a directory: any number of the changes since its last fsync, in their order. Directories do not wait for
  each other, and fsyncing a file says nothing of its name: POSIX promises no more, though some file systems
  do.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum

from minikafka.types import Buffer

PAGE_BYTES = 4096
_ZEROS = bytes(PAGE_BYTES)


class Survival(Enum):
    """What a power loss leaves of what was written to a file and not synced."""

    NOTHING = "NOTHING"
    EVERYTHING = "EVERYTHING"
    PREFIX = "PREFIX"
    SOME_PAGES = "SOME_PAGES"


class FileNode:
    """A file: bytes, and which of them are durable. Knows no path: it may have several over time, or none."""

    __slots__ = ("_dirty", "_durable", "_durable_size", "data", "is_cold", "is_mapped", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = modified_ms
        self.is_cold = False
        """Whether no page is in memory: after a power loss, until a read."""
        self.is_mapped = False
        """Whether it was mapped, so that it may change without a write."""
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
        self.data = bytearray(self.data)

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
