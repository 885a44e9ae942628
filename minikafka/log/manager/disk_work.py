"""What the log manager wants done on the disk thread: made on the loop, run there, in the order it was made.

Every piece names the log directory that it writes to: when ``run`` raises OSError, that directory goes
offline. Many small pieces go to the disk thread together (``run_all``): a hop there and back costs more than
many a piece.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Protocol

import msgspec

from minikafka.files import Files, is_disk_failure
from minikafka.log.files.checkpoint import PARTITION_METADATA
from minikafka.log.files.open_files import fsync_file

_log = logging.getLogger(__name__)


class DiskWork(Protocol):
    """A piece of work for the disk thread."""

    @property
    def log_directory(self) -> str: ...

    def run(self) -> None:
        """Blocks. Raises OSError."""
        ...


class NewLogSync(msgspec.Struct, frozen=True):
    """Makes a new partition's directory durable: its ``partition.metadata`` and ``paths`` (its first leader
    epoch), its entries, its own name."""

    files: Files
    directory: str
    paths: tuple[str, ...] = ()

    @property
    def log_directory(self) -> str:
        return os.path.dirname(self.directory)

    def run(self) -> None:
        try:
            for path in (os.path.join(self.directory, PARTITION_METADATA), *self.paths):
                fsync_file(self.files, path)
            self.files.sync_directory(self.directory)
        except FileNotFoundError:
            return  # deleted again meanwhile
        self.files.sync_directory(self.log_directory)


class SwapSync(msgspec.Struct, frozen=True):
    """Makes the names of swapped segments in a partition's directory durable."""

    files: Files
    directory: str

    @property
    def log_directory(self) -> str:
        return os.path.dirname(self.directory)

    def run(self) -> None:
        try:
            self.files.sync_directory(self.directory)
        except FileNotFoundError:
            return  # deleted meanwhile


class DirectorySync(msgspec.Struct, frozen=True):
    """Makes the renames in a log directory durable."""

    files: Files
    log_directory: str

    def run(self) -> None:
        self.files.sync_directory(self.log_directory)


class DirectoryRemoval(msgspec.Struct, frozen=True):
    """Removes the directory of a deleted partition, from ``due_ms`` on."""

    files: Files
    directory: str
    due_ms: int

    @property
    def log_directory(self) -> str:
        return os.path.dirname(self.directory)

    def run(self) -> None:
        self.files.remove_tree(self.directory)


class FileRemoval(msgspec.Struct, frozen=True):
    """Removes files of segments whose delay has passed. One that cannot be removed keeps no other; the log
    directory goes offline for it all the same (``LocalLog.deleteSegmentFiles``)."""

    files: Files
    log_directory: str
    paths: tuple[str, ...]

    def run(self) -> None:
        failure: OSError | None = None
        for path in self.paths:
            try:
                self.files.remove(path)
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def run_all(work: Iterable[DiskWork]) -> dict[str, OSError]:
    """Run the pieces in order. Blocks. Returns the log directories where one failed; when it was the disk
    that did, no more is done there."""
    failed: dict[str, OSError] = {}
    for piece in work:
        log_directory = piece.log_directory
        if log_directory in failed and is_disk_failure(failed[log_directory]):
            continue
        try:
            piece.run()
        except OSError as error:
            failed[log_directory] = error
    return failed


def discard(files: Files, directory: str) -> None:
    """Remove what a failed creation has left, as far as the disk still lets us: a second log of the partition
    would keep the next start from succeeding."""
    try:
        files.remove_tree(directory)
    except OSError as error:
        _log.warning("cannot remove %s: %s", directory, error)
