"""The new segment that a compaction writes: ``.cleaned`` files, which become live by a swap. Kafka:
``UnifiedLog.createNewCleanedSegment``.
"""

from __future__ import annotations

import os

from minikafka.config.topic import TopicConfig
from minikafka.files import Files
from minikafka.log.files.flush import fsync_file
from minikafka.log.files.names import CLEANED_SUFFIX, TXN_INDEX_SUFFIX, file_name
from minikafka.log.segment.segment import LogSegment
from minikafka.log.segment.txn_index import TransactionIndex


class CleanedSegment(LogSegment):
    """A segment that nobody reads yet."""

    __slots__ = ()

    def __init__(self, directory: str, base_offset: int, *, config: TopicConfig, files: Files) -> None:
        """Begin it; what an earlier compaction has left under its names is gone."""
        super().__init__(directory, base_offset, config=config, files=files, size=0, created_ms=0)
        for file in (self, self.offset_index, self.time_index):
            file.path += CLEANED_SUFFIX
        txn_index_path = os.path.join(directory, file_name(base_offset, TXN_INDEX_SUFFIX)) + CLEANED_SUFFIX
        files.remove(txn_index_path)
        self._txn_index = TransactionIndex(txn_index_path, files)
        self._is_active = True
        self._file = files.open(self.path, create=True)
        self._file.truncate(0)
        self.offset_index.reset()
        self.time_index.reset()

    def finish(self) -> None:
        """Close it and make its content durable, but not its names. Blocks. Raises OSError."""
        self.become_inactive()
        for path in (self.path, self.offset_index.path, self.time_index.path, self.txn_index.path):
            fsync_file(self._files, path)
