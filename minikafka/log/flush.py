"""Bringing a log's bytes to the disk, in two halves. Kafka: ``UnifiedLog.flush``, ``LocalLog.flush``.

The loop begins a flush and completes it; in between ``Flush.run`` fsyncs on the disk thread, through
descriptors of its own. A failed fsync is final: the kernel may have dropped the pages, so it is never
retried.
"""

from __future__ import annotations

from minikafka.files import Files


class Flush:
    """The fsyncs that make everything below ``up_to`` durable."""

    __slots__ = ("_directory", "_files", "_paths", "missing_paths", "truncations", "up_to")

    def __init__(
        self, files: Files, *, paths: list[str], directory: str | None, up_to: int, truncations: int
    ) -> None:
        self._files = files
        self._paths = paths
        self._directory = directory
        self.up_to = up_to
        self.truncations = truncations
        self.missing_paths: list[str] = []

    def __repr__(self) -> str:
        return f"Flush(up_to={self.up_to}, files={len(self._paths)})"

    def run(self) -> None:
        """fsync the files, then the directory when it has new ones. Blocks; touches nothing of the log.

        A file that was deleted meanwhile (retention, truncation) is noted, not an error.

        Raises:
            OSError: what the log holds above its recovery point may be lost; the directory must go offline.
        """
        for path in self._paths:
            try:
                file = self._files.open(path, read_only=True)
            except FileNotFoundError:
                self.missing_paths.append(path)
                continue
            try:
                file.fsync()
            finally:
                file.close()
        if self._directory is not None:
            try:
                self._files.sync_directory(self._directory)
            except FileNotFoundError:
                self.missing_paths.append(self._directory)
