"""Loading a log from its directory, whatever state that is in. Kafka: ``LogLoader``, ``LogSegment.recover``.

After a clean stop the files are taken as they are; sizes and last entries of indexes are looked at, and a
damaged or missing index is rebuilt from its segment. After an unclean one, everything from the recovery
point on is read and checked (``_recover_segment``); at the first bad batch the log ends, and all later
segments go. Then all leader epochs are held against the batches (``_find_contradiction``). Last, offsets that
the log must have and does not are named (``_find_lost_offsets``).

Afterwards: there is an active segment; indexes, producer state and leader epochs agree with the batches; the
recovery point is at most the log end; the log start is at most the log end.

Differs from Kafka
- Removed files are gone at once, not after file.delete.delay.ms; after a clean stop a damaged tail of the
  last segment is cut off instead of failing the directory.
- A batch whose offsets go back, or reach into the next segment, is damage too (base offset and leader epoch
  lie outside of the CRC); so is an offset beyond the reach of the index, where Kafka splits the segment
  (written only before KAFKA-6264).
- Kafka fsyncs each epoch before use and then trusts its file. Here the file may be torn after a power cut, or
  older than the log (``leader_epoch_cache``), and a wrong entry makes replicas truncate below the high
  watermark.
- Of offsets that are gone Kafka says nothing, and its consumers continue behind the gap.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from struct import Struct

from minikafka.clock import Clock
from minikafka.config.topic import TopicConfig
from minikafka.deferred import crc32c
from minikafka.errors import KafkaError
from minikafka.files import File, Files
from minikafka.log.checkpoint import EpochEntry
from minikafka.log.files import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TXN_INDEX_SUFFIX,
    OpenFiles,
    file_name,
    fsync_file,
    parse_file_name,
)
from minikafka.log.leader_epoch_cache import CorruptCheckpoint, LeaderEpochCache
from minikafka.log.producers.state import ProducerStateManager, rebuild_producer_state, replay
from minikafka.log.segment.indexes import RELATIVE_OFFSET_MAX, CorruptTransactionIndex
from minikafka.log.segment.log_segments import LogSegments
from minikafka.log.segment.segment import BatchPlace, CorruptSegment, LogSegment
from minikafka.log.staged_compaction import finish_swaps
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, read_header
from minikafka.types import NO_EPOCH, Buffer

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 1024 * 1024
_CRC_STARTS_AT = 21
_LENGTH = Struct(">i")
_LENGTH_AT, _LENGTH_ENDS_AT = 8, 12

ReadBatch = Callable[[], Buffer]


class LoadedLog(NamedTuple):
    """What a directory held."""

    segments: LogSegments
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    written_snapshots: list[str]
    """Of producers, which recovery has written or found: their fsync is due with the next flush. After a
    clean stop there are none."""


class LogLoader:
    """Loads one log; used once, when the broker starts or a partition is created. Blocks."""

    def __init__(
        self,
        directory: str,
        *,
        config: TopicConfig,
        files: Files,
        clock: Clock,
        producers: ProducerStateManager,
        log_start_offset: int,
        recovery_point: int,
        clean_shutdown: bool,
        first_dirty_offset: int | None,
        open_files: OpenFiles | None = None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._files = files
        self._now_ms = clock.now_ms()
        self._producers = producers
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._clean_shutdown = clean_shutdown
        self._first_dirty_offset = first_dirty_offset
        self._was_compacted = first_dirty_offset is not None or "compact" in config.cleanup_policy
        self._segments = LogSegments(open_files)
        self._epochs_damaged = False
        self._epochs = self._load_epochs()

    def load(self) -> LoadedLog:
        """Read the directory, repair what is damaged.

        Raises:
            OSError: the disk's.
        """
        names = finish_swaps(self._directory, config=self._config, files=self._files)
        damaged = self._open_segments(names)
        if self._clean_shutdown:
            self._repair(damaged)
        else:
            self._repair([s for s in damaged if s.base_offset < self._first_unflushed_base()])
            self._cut_overlaps()
            self._recover_from(self._recovery_point)
        log_end_offset = self._find_log_end()
        if log_end_offset < self._log_start_offset:
            log_end_offset = self._start_over(log_end_offset)
        log_start_offset = max(self._log_start_offset, self._segments[0].base_offset)
        self._name_lost_offsets(log_end_offset)
        self._settle_epochs(log_start_offset, log_end_offset)
        self._segments.active.activate()
        self._producers.remove_stray_snapshots(self._segments.base_offsets)
        # From here on snapshots may be older than their last fsync; recovery writes those of the last
        # segments.
        unsynced_from = min(self._recovery_point, *self._segments.base_offsets[-2:])
        if not self._clean_shutdown:
            self._producers.remove_damaged_snapshots(unsynced_from)
        rebuild_producer_state(
            self._producers,
            self._segments,
            log_start_offset=log_start_offset,
            up_to=log_end_offset,
            after_clean_stop=self._clean_shutdown,
        )
        recovery_point = log_end_offset if self._clean_shutdown else min(self._recovery_point, log_end_offset)
        return LoadedLog(
            self._segments,
            self._epochs,
            log_start_offset,
            log_end_offset,
            max(recovery_point, log_start_offset),
            [] if self._clean_shutdown else self._producers.snapshot_paths_from(unsynced_from),
        )

    def _name_lost_offsets(self, log_end_offset: int) -> None:
        # The first epoch begins at the log start. After a power cut the file may be older than retention.
        first = self._epochs.earliest_entry if self._clean_shutdown else None
        lost = _find_lost_offsets(
            self._segments,
            was_compacted=self._was_compacted,
            start_offset=self._segments[0].base_offset
            if first is None
            else max(first.start_offset, self._log_start_offset),
            end_offset=self._recovery_point,
            log_end_offset=log_end_offset,
        )
        if lost:
            _log.error(
                "%s: offsets %s are lost, a segment was emptied or removed while the broker was stopped: "
                "stop it and put the missing .log files back into %s, or consumers skip them",
                self._producers.topic_partition,
                ", ".join(f"{first} to {last}" for first, last in lost),
                self._directory,
            )

    # ---- epochs

    def _load_epochs(self) -> LeaderEpochCache:
        try:
            return LeaderEpochCache(self._directory, self._files)
        except CorruptCheckpoint as error:
            _log.warning("%s; the epochs are read from the batches", error)
            LeaderEpochCache.reset(self._directory, self._files)
            self._epochs_damaged = True
            return LeaderEpochCache(self._directory, self._files)

    def _settle_epochs(self, log_start_offset: int, log_end_offset: int) -> None:
        """Bring the epochs within the log, and read them from all batches where the file cannot be trusted.

        Once the segments are sound, and not before: a batch that recovery cuts off has no say.
        """
        self._epochs.begin_before(log_end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        if not self._epochs_damaged and (not self._clean_shutdown or not self._epochs):
            contradiction = _find_contradiction(
                self._epochs.entries(),
                self._segments,
                log_start_offset=log_start_offset,
                log_end_offset=log_end_offset,
            )
            if contradiction is not None:
                _log.warning(
                    "%s: the leader epochs on the disk are not those of the log: %s; they are read from the "
                    "batches",
                    self._directory,
                    contradiction,
                )
                self._epochs_damaged = True
        if self._epochs_damaged:
            self._epochs.replace(_read_epochs(self._segments))
            self._epochs.truncate_from_end(log_end_offset)
            self._epochs.truncate_from_start(log_start_offset)

    # ---- segments

    def _open_segments(self, names: list[str]) -> list[LogSegment]:
        """Take over the segment files; returns the segments whose indexes are damaged or missing."""
        parsed = [(name, *found) for name in names if (found := parse_file_name(name)) is not None]
        bases = sorted(offset for _, offset, suffix in parsed if suffix == LOG_SUFFIX)
        with_txn_index = {offset for _, offset, suffix in parsed if suffix == TXN_INDEX_SUFFIX}
        known = set(bases)
        for name, offset, suffix in parsed:
            if suffix in INDEX_SUFFIXES and offset not in known:
                _log.warning("%s: %s belongs to no segment and is removed", self._directory, name)
                self._files.remove(os.path.join(self._directory, name))
        damaged = []
        for base_offset in bases:
            size = self._files.size(os.path.join(self._directory, file_name(base_offset, LOG_SUFFIX)))
            segment = LogSegment(
                self._directory,
                base_offset,
                config=self._config,
                files=self._files,
                size=size,
                created_ms=self._now_ms,
                open_files=self._segments.open_files,
            )
            is_sound = segment.load_indexes()
            if base_offset in with_txn_index:
                is_sound = self._check_txn_index(segment) and is_sound
            if not is_sound:
                damaged.append(segment)
            self._segments.add(segment)
        for segment in self._suspects(bases):
            if segment not in damaged and not self._indexes_are_plausible(segment):
                damaged.append(segment)
            segment.release()
        return damaged

    def _suspects(self, bases: list[int]) -> list[LogSegment]:
        """The active segment; and after an unclean stop the one that ends at the recovery point. Its records
        may have been flushed before it was rolled, which trims its indexes and gives the time index its last
        entry: those had their fsync later, or not."""
        if self._clean_shutdown or self._recovery_point not in bases[1:]:
            return [self._segments.active] if bases else []
        return [self._segments[bases.index(self._recovery_point) - 1], self._segments.active]

    def _check_txn_index(self, segment: LogSegment) -> bool:
        try:
            segment.txn_index.sanity_check()
        except CorruptTransactionIndex as error:
            _log.warning("%s", error)
            return False
        finally:
            segment.txn_index.close()
        segment.has_aborted_transactions = segment.txn_index.entry_count > 0
        return True

    @staticmethod
    def _indexes_are_plausible(segment: LogSegment) -> bool:
        return segment.offset_index.is_plausible(segment.size) and segment.time_index.is_plausible()

    def _repair(self, damaged: list[LogSegment]) -> None:
        """Rebuild the indexes of flushed segments; their batches are kept as they are."""
        for segment in damaged:
            _log.warning("%s: an index is missing or corrupt, rebuilding it", segment.path)
            segment.rebuild_indexes()
            if segment.has_aborted_transactions or not segment.txn_index.exists:
                continue
            segment.txn_index.reset()
            self._rebuild_txn_index(segment)

    def _rebuild_txn_index(self, segment: LogSegment) -> None:
        """A damaged transaction index needs the producers as they were at the segment's start: read it all
        again."""
        self._recover(segment)

    def _first_unflushed_base(self) -> int:
        unflushed = self._segments.from_offset(self._recovery_point)
        return unflushed[0].base_offset if unflushed else 0

    def _cut_overlaps(self) -> None:
        """Cut off what reaches into the next segment, in all segments that recovery does not read as a whole.

        A segment is made where its log ends. So the one before it was truncated to there, and that had not
        reached the disk when the power failed (Kafka does not fsync it either, and then has two batches with
        one offset).
        """
        for segment, following in pairwise(self._segments):
            if following.base_offset > self._first_unflushed_base():
                return
            try:
                overlap = segment.find_batch(following.base_offset)
            except CorruptSegment:
                segment.release()
                continue  # its readers get the error
            if overlap is None:
                segment.release()
                continue
            _log.warning(
                "%s: batch %d reaches into the next segment, which was made when the log had been truncated "
                "to %d: it is cut off",
                segment.path,
                overlap.base_offset,
                following.base_offset,
            )
            segment.truncate_to(following.base_offset, now_ms=self._now_ms)
            segment.become_inactive()
            fsync_file(self._files, segment.path)

    def _recover_from(self, offset: int) -> None:
        unflushed = self._segments.from_offset(offset)
        for index, segment in enumerate(unflushed):
            _log.info("%s: checking, the broker did not stop cleanly", segment.path)
            following = unflushed[index + 1 :]
            if self._recover(segment) or (following and self._ends_early(segment, following[0])):
                self._drop(following)
                return

    def _ends_early(self, segment: LogSegment, following: LogSegment) -> bool:
        """Whether the end of a segment, which has just been checked, had not reached the disk when the power
        failed, and the next segment had. Kafka goes on behind the gap then."""
        end_offset = self._producers.map_end_offset
        if end_offset >= following.base_offset or self._may_be_compacted(segment, end_offset):
            return False
        _log.warning(
            "%s: it ends at offset %d, and the next segment begins at %d: what was between them had not "
            "reached the disk",
            segment.path,
            end_offset,
            following.base_offset,
        )
        return True

    def _may_be_compacted(self, segment: LogSegment, end_offset: int) -> bool:
        """Whether batches may be missing behind those of ``segment`` because it was compacted. Segments that
        this broker has compacted end where those did that they replace. Apache Kafka's may end before that:
        below its cleaner's checkpoint, or, where it was killed before it wrote that, in a segment that other
        batches are missing from, too."""
        if not self._was_compacted:
            return False
        if end_offset < (self._first_dirty_offset or 0):
            return True
        expected = segment.base_offset
        for batch in segment.batches():
            if batch.base_offset != expected:
                return True
            expected = batch.next_offset
        return False

    def _recover(self, segment: LogSegment) -> int:
        """Check one segment; returns the bytes that were cut off."""
        producers = self._producers
        if producers.map_end_offset != segment.base_offset or producers.is_empty:
            below = LogSegments()
            for other in self._segments:
                if other.base_offset < segment.base_offset:
                    below.add(other)
            rebuild_producer_state(
                producers,
                below,
                log_start_offset=min(self._log_start_offset, segment.base_offset),
                up_to=segment.base_offset,
                after_clean_stop=False,
            )
        following = self._segments.floor_index(segment.base_offset) + 1
        next_base_offset = self._segments[following].base_offset if following < len(self._segments) else None
        cut = _recover_segment(
            segment, next_base_offset=next_base_offset, producers=producers, epochs=self._epochs
        )
        producers.take_snapshot()
        return cut

    def _drop(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            _log.warning("%s: removed, it lies behind damage or below the log start", segment.path)
            self._segments.remove(segment)
            for suffix in SEGMENT_SUFFIXES:
                self._files.remove(os.path.join(self._directory, file_name(segment.base_offset, suffix)))

    def _find_log_end(self) -> int:
        """The offset after the last batch; a first segment is made when there is none."""
        if not len(self._segments):
            self._create_first()
            return self._log_start_offset
        active = self._segments.active
        try:
            return active.read_next_offset()
        except CorruptSegment as error:
            _log.warning("%s", error)
        self._recover(active)
        return active.read_next_offset()

    def _start_over(self, log_end_offset: int) -> int:
        _log.warning(
            "%s: the log ends at %d, below its start %d: every segment is removed",
            self._directory,
            log_end_offset,
            self._log_start_offset,
        )
        self._drop(list(self._segments))
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(self._log_start_offset)
        self._create_first()
        return self._log_start_offset

    def _create_first(self) -> None:
        segment = LogSegment.create(
            self._directory,
            self._log_start_offset,
            config=self._config,
            files=self._files,
            created_ms=self._now_ms,
            open_files=self._segments.open_files,
        )
        self._segments.add(segment)


# ---- a segment that may be damaged


def _recover_segment(
    segment: LogSegment,
    *,
    next_base_offset: int | None,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
) -> int:
    """Check every batch of a closed segment and cut off the first bad one with all behind it.

    The indexes, the transaction index, the producer state and the leader epochs are rebuilt on the way.
    Memory stays bounded whatever the headers claim.

    Args:
        next_base_offset: of the following segment, if there is one.
        producers: as they were at the segment's base offset; as they are at its end afterwards.

    Returns the number of bytes cut off; the segment is closed, with trimmed indexes.

    Raises:
        OSError: the disk's.
    """
    end = segment.file().size()
    segment.forget_batches()
    segment.txn_index.reset()
    segment.has_aborted_transactions = False
    last_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
    if next_base_offset is not None:
        last_offset_max = min(last_offset_max, next_base_offset - 1)
    next_offset = segment.base_offset
    for header, read_batch in _in_order(_valid_batches(segment.file(), end), next_offset, last_offset_max):
        segment.index_batch(header.last_offset, header.max_timestamp, header.size)
        next_offset = header.last_offset + 1
        epoch = header.partition_leader_epoch
        if epoch >= 0 and (epochs.latest_epoch is None or epoch > epochs.latest_epoch):
            epochs.assign(epoch, header.base_offset)
        if header.producer_id >= 0:
            replay(producers, header, read_batch, segment=segment)
        producers.map_end_offset = next_offset
    valid_bytes = segment.size
    segment.become_inactive()
    if valid_bytes < end:
        _log.warning(
            "%s: no valid batch at position %d: %d bytes are cut off, the log continues at offset %d",
            segment.path,
            valid_bytes,
            end - valid_bytes,
            next_offset,
        )
        segment.cut(valid_bytes)
    return end - valid_bytes


def _in_order(
    batches: Iterator[tuple[BatchHeader, ReadBatch]], next_offset: int, last_offset_max: int
) -> Iterator[tuple[BatchHeader, ReadBatch]]:
    """The batches up to the first whose offsets or epoch cannot be.

    A batch that leaves a gap or begins an epoch is right only if the next one continues from there; so it
    is held back until that one is seen.
    """
    epoch: int = NO_EPOCH
    held: tuple[BatchHeader, ReadBatch] | None = None
    for item in batches:
        header = item[0]
        if held is not None:
            before, held = held, None
            goes_back = header.base_offset < before[0].next_offset or (
                NO_EPOCH < header.partition_leader_epoch < before[0].partition_leader_epoch
            )
            fits_without = header.base_offset >= next_offset and header.partition_leader_epoch >= epoch
            if goes_back and fits_without:
                return
            yield before
            next_offset = before[0].next_offset
            epoch = max(epoch, before[0].partition_leader_epoch)
        if (
            header.base_offset < next_offset
            or header.last_offset > last_offset_max
            or header.partition_leader_epoch < NO_EPOCH
            or NO_EPOCH < header.partition_leader_epoch < epoch
        ):
            return
        if header.base_offset > next_offset or header.partition_leader_epoch > epoch:
            held = item
            continue
        yield item
        next_offset = header.next_offset
    if held is not None:
        yield held


def _valid_batches(file: File, end: int) -> Iterator[tuple[BatchHeader, ReadBatch]]:
    """The batches from the start of the file that are whole and have the right CRC, up to the first that is
    not."""
    position = 0
    while end - position >= HEADER_SIZE:
        chunk = memoryview(file.read(min(_CHUNK_BYTES, end - position), position))
        at = 0
        while len(chunk) - at >= HEADER_SIZE:
            size = _LENGTH.unpack_from(chunk, at + _LENGTH_AT)[0] + _LENGTH_ENDS_AT
            if size < HEADER_SIZE or position + at + size > end:
                return
            is_whole = at + size <= len(chunk)
            if not is_whole and at > 0:
                break  # the next chunk starts with it
            header = _check(chunk, at) if is_whole else _check_large(file, position, chunk, size)
            if header is None:
                return

            def read_batch(
                size: int = size,
                start: int = at,
                whole: bool = is_whole,
                chunk: memoryview = chunk,
                position: int = position,
            ) -> Buffer:
                return chunk[start : start + size] if whole else file.read(size, position)

            yield header, read_batch
            at += size
        if at == 0:
            return  # the file became shorter than it was
        position += at


def _check(chunk: memoryview, at: int) -> BatchHeader | None:
    try:
        header = read_header(chunk, at)
        return header if header.last_offset_delta >= 0 and crc_is_valid(chunk, at, header) else None
    except KafkaError:
        return None


def _check_large(file: File, position: int, chunk: memoryview, size: int) -> BatchHeader | None:
    """Check a batch that is larger than a chunk without holding it in memory."""
    try:
        header = read_header(chunk, 0)
    except KafkaError:
        return None
    crc = crc32c.crc32c(chunk[_CRC_STARTS_AT:])
    done = len(chunk)
    while done < size:
        part = file.read(min(_CHUNK_BYTES, size - done), position + done)
        if not part:
            return None
        crc = crc32c.crc32c(part, crc)
        done += len(part)
    return header if header.last_offset_delta >= 0 and crc == header.crc else None


# ---- what the epochs say, and what the headers say


def _find_contradiction(
    entries: Sequence[EpochEntry], segments: LogSegments, *, log_start_offset: int, log_end_offset: int
) -> str | None:
    """Where epochs, all of which begin within the log, disagree with its batches; None when they agree.

    Epochs never fall within a log, so an epoch's first and last batch speak for all between them: two
    look-ups an entry, by the offset index, and no scan. Compaction may leave an epoch without a batch;
    nothing contradicts such an entry.

    Raises:
        OSError: the disk's.
    """
    spans = [*entries, EpochEntry(NO_EPOCH, log_end_offset)]
    if spans[0].start_offset > log_start_offset:
        spans.insert(0, EpochEntry(NO_EPOCH, log_start_offset))
    try:
        for (epoch, start_offset), (_, end_offset) in pairwise(spans):
            first = _first_batch_from(segments, start_offset)
            if first is None or first.base_offset >= end_offset:
                continue  # compacted away, or an empty log
            if first.base_offset < start_offset and start_offset > log_start_offset:
                return f"epoch {epoch} cannot begin at {start_offset}, inside of batch {first.base_offset}"
            last = _last_batch_below(segments, end_offset)
            for batch in (first, last):
                if batch is not None and batch.leader_epoch not in (epoch, NO_EPOCH):
                    said = f"epoch {epoch} begins at {start_offset}" if epoch >= 0 else "no epoch has begun"
                    return f"{said}, but batch {batch.base_offset} is of epoch {batch.leader_epoch}"
    except CorruptSegment as error:
        return str(error)
    finally:
        segments.release()
    return None


def _read_epochs(segments: LogSegments) -> list[EpochEntry]:
    """The epochs in the headers of all batches, of each segment up to its first damage. Raises OSError."""
    entries: list[EpochEntry] = []
    for segment in segments:
        for batch in segment.batches_until_damage():
            if batch.leader_epoch > (entries[-1].epoch if entries else NO_EPOCH):
                entries.append(EpochEntry(batch.leader_epoch, batch.base_offset))
        segment.release()
    return entries


def _first_batch_from(segments: LogSegments, offset: int) -> BatchPlace | None:
    """The first batch that reaches ``offset``."""
    for segment in segments.from_offset(offset):
        found = segment.find_batch(offset)
        if found is not None:
            return found
    return None


def _last_batch_below(segments: LogSegments, offset: int) -> BatchPlace | None:
    """The last batch that begins below ``offset``."""
    for index in range(segments.floor_index(offset - 1), -1, -1):
        found = segments[index].find_last_batch_below(offset)
        if found is not None:
            return found
    return None


# ---- offsets that are gone


def _find_lost_offsets(
    segments: LogSegments, *, was_compacted: bool, start_offset: int, end_offset: int, log_end_offset: int
) -> list[tuple[int, int]]:
    """First and last offset of each range that is missing: a segment was emptied or removed while no broker
    was looking.

    Compaction leaves gaps between segments as well (Kafka's; the segments of ours reach as far as those that
    they replace), so in a log that was ever compacted only its two ends can be told.

    Args:
        start_offset, end_offset: where the log began and how far it was flushed when it was last open.

    Raises:
        OSError: the disk's.
    """
    lost = [(start_offset, segments[0].base_offset - 1)] if start_offset < segments[0].base_offset else []
    if not was_compacted:
        lost += _between(segments)
    if log_end_offset < end_offset:
        lost.append((log_end_offset, end_offset - 1))
    return lost


def _between(segments: LogSegments) -> Iterator[tuple[int, int]]:
    """A look-up for each closed segment: does it reach the next one?"""
    for segment, following in pairwise(segments):
        last_offset = following.base_offset - 1
        try:
            if segment.find_batch(last_offset) is None:
                last = segment.find_last_batch_below(following.base_offset)
                yield (segment.base_offset if last is None else last.next_offset), last_offset
        except CorruptSegment:
            pass  # it has bytes there that are no batch: their readers get the error, they are not missing
        finally:
            segment.release()
