"""Bringing a log's bytes to the disk, in two halves. Kafka: ``UnifiedLog.flush``, ``LocalLog.flush``.

The loop begins a flush and completes it; in between ``Flush.run`` fsyncs on the disk thread, through
descriptors of its own. A failed fsync is final: the kernel may have dropped the pages, so it is never
retried.
"""

from __future__ import annotations

import os

from minikafka.files import Files


def fsync_file(files: Files, path: str) -> bool:
    """fsync a file through a descriptor of its own. Blocks. False when there is no such file."""
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return False
    try:
        file.fsync()
    finally:
        file.close()
    return True


class Flush:
    """The fsyncs that make everything below ``up_to`` durable."""

    __slots__ = ("_directory", "_files", "_has_new_files", "_paths", "generation", "missing_paths", "up_to")

    def __init__(
        self,
        files: Files,
        *,
        paths: list[str],
        directory: str,
        has_new_files: bool,
        up_to: int,
        generation: int,
    ) -> None:
        self._files = files
        self._paths = paths
        self._directory = directory
        self._has_new_files = has_new_files
        self.up_to = up_to
        self.generation = generation
        self.missing_paths: list[str] = []

    def __repr__(self) -> str:
        return f"Flush(up_to={self.up_to}, files={len(self._paths)})"

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it makes durable."""
        return tuple(self._paths)

    @property
    def log_directory(self) -> str:
        """The log directory that goes offline when ``run`` fails (``DiskWork``)."""
        return os.path.dirname(self._directory)

    def run(self) -> None:
        """fsync the files, then the directory when it has new ones. Blocks; touches nothing of the log.

        A file that was deleted meanwhile (retention, truncation) is noted, not an error.

        Raises:
            OSError: what the log holds above its recovery point may be lost; the directory must go offline.
        """
        for path in self._paths:
            if not fsync_file(self._files, path):
                self.missing_paths.append(path)
        if self._has_new_files:
            try:
                self._files.sync_directory(self._directory)
            except FileNotFoundError:
                self.missing_paths.append(self._directory)
