"""The files of one log: its segments, how they roll, go away and get to the disk. Kafka: ``LocalLog``.

The lowest of three layers of one object: ``LocalLog`` has the files, ``ReadableLog`` what may be read of
them, ``UnifiedLog`` what changes them.

A log whose disk failed is fenced: every later append answers KAFKA_STORAGE_ERROR, for what is on the disk
behind the log end is not known (KAFKA-10778). The next start's recovery cuts it off.

Invariants: base offsets ascend and the last segment is the active one; recovery point <= log end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NoReturn
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.files import Files
from minikafka.log.compaction.job import CompactedSegment
from minikafka.log.compaction.segment_swap import swap_files
from minikafka.log.files.flush import Flush
from minikafka.log.leader_epoch_cache import LeaderEpochCache
from minikafka.log.log_reader import LogReader
from minikafka.log.producers.state import ProducerStateManager
from minikafka.log.recovery import LoadedLog
from minikafka.log.segment.files import DELETED_SUFFIX
from minikafka.log.segment.log_segments import LogSegments
from minikafka.log.segment.retention import DeletedFiles, rename_deleted, total_bytes
from minikafka.log.segment.segment import LogSegment
from minikafka.types import Offset, TopicPartition


class LocalLog:
    """Segments, log end and recovery point."""

    __slots__ = (
        "_clock",
        "_closed_by",
        "_closed_reason",
        "_deleted_files",
        "_epochs",
        "_files",
        "_generation",
        "_last_flush_ms",
        "_producers",
        "_reader",
        "_segment_ms",
        "_segments",
        "_small_files_to_sync",
        "config",
        "directory",
        "first_dirty_offset",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        loaded: LoadedLog,
        *,
        config: TopicConfig,
        files: Files,
        clock: Clock,
        producers: ProducerStateManager,
        topic_id: UUID | None,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self._segment_ms = config.max_segment_ms
        self.log_start_offset = Offset(loaded.log_start_offset)
        self.log_end_offset = Offset(loaded.log_end_offset)
        self.recovery_point = Offset(loaded.recovery_point)
        self._files = files
        self._clock = clock
        self._producers = producers
        self._epochs: LeaderEpochCache = loaded.epochs
        self._segments: LogSegments = loaded.segments
        self._reader = LogReader(loaded.segments)
        self._closed_reason: str | None = None
        self._closed_by: OSError | None = None
        self._deleted_files: list[DeletedFiles] = []
        self._small_files_to_sync: list[str] = []
        self._generation = 0
        self._last_flush_ms = clock.monotonic_ms()
        self.first_dirty_offset: int | None = None
        """Up to here the log is compacted (``cleaner-offset-checkpoint``); None: it never was."""

    @property
    def generation(self) -> int:
        """Changes when the log is truncated or renamed, or its segments are replaced: what was begun with its
        files before is void."""
        return self._generation

    @property
    def segments(self) -> LogSegments:
        return self._segments

    @property
    def size_bytes(self) -> int:
        return total_bytes(self._segments)

    @property
    def is_open(self) -> bool:
        return self._closed_reason is None

    @property
    def is_future(self) -> bool:
        """Whether it is a copy that will take the current log's place (KIP-113)."""
        return self.directory.endswith("-future")

    def update_config(self, config: TopicConfig) -> None:
        """Takes effect with the next append; index sizes and intervals with the next segment."""
        self.config = config
        self._segment_ms = config.max_segment_ms

    def _refuse(self) -> NoReturn:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {self._closed_reason}"
        ) from self._closed_by

    def _fence(self, reason: str, error: OSError | None = None) -> NoReturn:
        """No more appends: what is on the disk behind the log end is not known."""
        self._closed_reason, self._closed_by = reason, error
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {reason}") from error

    # ---- segments

    def roll(self) -> None:
        """Close the active segment and begin a new one at the log end. Raises KafkaError
        (KAFKA_STORAGE_ERROR)."""
        if self._closed_reason is not None:
            self._refuse()
        try:
            self._roll(self.log_end_offset)
        except OSError as error:
            self._fence(f"a roll failed: {error}", error)

    def _roll(self, base_offset: int) -> LogSegment:
        old = self._segments.active
        base_offset = max(base_offset, self.log_end_offset)
        if old.base_offset == base_offset:
            if old.size:
                raise InvariantError(f"{self!r} cannot roll to {base_offset}, where {old!r} begins")
            self._delete_segment(old)  # its index is full though it is empty (KAFKA-6388): begin it again
        else:
            old.become_inactive()
            # Its records may be flushed, or about to be, so that no flush comes by again; but the indexes
            # were trimmed just now, and the time index has got its last entry.
            self._small_files_to_sync += [old.offset_index.path, old.time_index.path]
        segment = LogSegment.create(
            self.directory,
            base_offset,
            config=self.config,
            files=self._files,
            created_ms=self._clock.now_ms(),
            open_files=self._segments.open_files,
        )
        self._segments.add(segment)
        self._producers.map_end_offset = base_offset
        snapshot = self._producers.take_snapshot()
        if snapshot is not None:
            self._small_files_to_sync.append(snapshot)
        return segment

    def _delete_segment(self, segment: LogSegment) -> None:
        self._segments.remove(segment)
        renamed = rename_deleted(self.directory, segment.base_offset, self._files)
        snapshot = self._producers.mark_snapshot_for_deletion(segment.base_offset)
        self._deleted_files.append(renamed if snapshot is None else DeletedFiles((*renamed.paths, snapshot)))
        self._reader.forget_positions()

    def replace_segments(self, old: Sequence[LogSegment], new: CompactedSegment) -> list[DeletedFiles]:
        """Put a compacted segment, which lies there as ``.cleaned`` files, into the place of ``old``
        (``replaceSegments``). Returns the old ones' files, to be removed after ``file.delete.delay.ms``.

        The caller makes the directory durable before they are. A crash at any moment leaves all of the old
        segments or the new one.

        Raises:
            InvariantError: the old ones are no closed neighbours in this log any more; nothing has changed.
            KafkaError: KAFKA_STORAGE_ERROR; the log is fenced.
        """
        if self._closed_reason is not None:
            self._refuse()
        index = self._segments.floor_index(old[0].base_offset)
        if list(self._segments)[index : index + len(old)] != list(old) or old[-1].is_active:
            raise InvariantError(f"{self!r} no longer has {old!r}")
        for segment in old:
            segment.release()
        try:
            deleted = swap_files(self.directory, [new], files=self._files)
            for segment in old[1:]:
                snapshot = self._producers.mark_snapshot_for_deletion(segment.base_offset)
                if snapshot is not None:
                    deleted.append(DeletedFiles((snapshot,)))
            segment = LogSegment(
                self.directory,
                new.base_offset,
                config=self.config,
                files=self._files,
                size=new.size,
                created_ms=old[0].created_ms,
                open_files=self._segments.open_files,
            )
            segment.load_indexes()
        except OSError as error:
            self._fence(f"a swap of segments failed: {error}", error)
        segment.has_aborted_transactions = new.has_txn_index
        self._segments.replace(old, segment)
        self._reader.forget_positions()
        self._generation += 1  # a flush under way may have looked for a file between two renames
        return deleted

    def take_deleted_files(self) -> list[DeletedFiles]:
        """Files that retention, truncation or a roll have renamed and nobody has taken for removal yet."""
        deleted, self._deleted_files = self._deleted_files, []
        return deleted

    # ---- flush and close

    @property
    def flush_is_due(self) -> bool:
        """Whether flush.messages or flush.ms asks for a flush now."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages
            or self._clock.monotonic_ms() - self._last_flush_ms >= self.config.flush_ms
        )

    def begin_flush(self, up_to: int | None = None) -> Flush | None:
        """The fsyncs that make the log durable up to ``up_to`` (the log end); None when it is.

        ``run`` it on the disk thread, then call ``complete_flush``. After a roll, ``up_to`` the active
        segment's base offset is what Kafka flushes.
        """
        if up_to is None:
            up_to = self.log_end_offset
        paths = self.take_unsynced_paths()
        if up_to <= self.recovery_point and not paths:
            return None
        has_new_files = bool(paths)
        unflushed = self._segments.from_offset(self.recovery_point) if up_to > self.recovery_point else ()
        for segment in unflushed:
            if segment.base_offset >= up_to and segment.base_offset > self.recovery_point:
                break
            paths += [segment.path, segment.offset_index.path, segment.time_index.path]
            if segment.has_aborted_transactions:
                paths.append(segment.txn_index.path)
            has_new_files = has_new_files or segment.base_offset >= self.recovery_point
        return Flush(
            self._files,
            paths=list(dict.fromkeys(paths)),
            directory=self.directory,
            has_new_files=has_new_files,
            up_to=up_to,
            generation=self._generation,
        )

    def take_unsynced_paths(self) -> list[str]:
        """Small files that wait for their fsync; the caller sees to that and to the directory's. The recovery
        point may rise above what they say only after that, or not at all when it failed."""
        paths, self._small_files_to_sync = self._small_files_to_sync, []
        epochs = self._epochs.take_unsynced()
        return paths if epochs is None else [*paths, epochs]

    def complete_flush(self, flush: Flush) -> None:
        """The flush has run: raise the recovery point, unless the log was truncated or renamed meanwhile.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: a file of the log is not where it was; the log is fenced.
        """
        if self._closed_reason is not None or flush.generation != self._generation:
            return
        live = {segment.path for segment in self._segments}
        if any(path in live for path in flush.missing_paths):
            gone = ", ".join(sorted(live.intersection(flush.missing_paths)))
            self._fence(f"files are gone: {gone}", FileNotFoundError(errno.ENOENT, "files are gone", gone))
        self._last_flush_ms = self._clock.monotonic_ms()
        if flush.up_to > self.recovery_point:
            self.recovery_point = Offset(min(flush.up_to, self.log_end_offset))

    def give_up_flush(self, flush: Flush) -> None:
        """The flush could not be run, or not to its end: the next one has its files too."""
        self._small_files_to_sync += flush.paths

    def fence(self, reason: str) -> None:
        """The disk failed elsewhere (a flush, another log of the directory): accept no more appends."""
        if self._closed_reason is None:
            self._closed_reason = reason

    def close(self) -> None:
        """Write the producer snapshot, trim the indexes, make all durable, close every file. Blocks;
        idempotent.

        A fenced log only closes its files. Raises OSError.
        """
        if self._closed_reason is not None:
            self._segments.release()
            return
        self._producers.map_end_offset = self.log_end_offset
        snapshot = self._producers.take_snapshot()
        if snapshot is not None:
            self._small_files_to_sync.append(snapshot)
        self._segments.active.become_inactive()
        flush = self.begin_flush()
        if flush is not None:
            flush.run()
            self.complete_flush(flush)
        self._segments.release()
        self._closed_reason = "the log is closed"

    def put_away(self, directory: str, *, reason: str) -> None:
        """Rename the log's directory; nothing can be read or appended afterwards. Raises OSError."""
        self._segments.release()
        self._closed_reason = reason
        self._files.rename(self.directory, directory)
        self.directory = directory

    def rename(self, directory: str) -> None:
        """Rename the log's directory (``renameDir``); reads and appends go on as if nothing had happened.

        A flush that is under way may not have found its files, so it does not count, and the small ones are
        fsynced once more. Raises OSError.
        """
        self._files.rename(self.directory, directory)
        self.directory = directory
        self._segments.update_directory(directory)
        self._epochs.update_directory(directory)
        self._producers.update_directory(directory)
        self._generation += 1
        indexes = [
            path
            for each in list(self._segments)[:-1]
            for path in (each.offset_index.path, each.time_index.path)
        ]
        snapshots = [self._producers.snapshot_path(offset) for offset in self._producers.snapshot_offsets]
        self._small_files_to_sync = indexes + snapshots
        names = [name for name in self._files.list(directory) if name.endswith(DELETED_SUFFIX)]
        paths = tuple(os.path.join(directory, name) for name in names)
        self._deleted_files = [DeletedFiles(paths)] if paths else []
