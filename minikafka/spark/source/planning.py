"""From options and filters to splits: which logs, which offsets of each, which chunks of which segments.

Runs once for a query, on the driver; a stream plans each micro-batch. What is looked at are directories,
indexes, the headers behind the last index entry of a log, and, for read_committed, the headers behind its
newest producer snapshot. Kafka: ``UnifiedLog``, ``ListOffsets``, ``LogLoader``.

From where to where a log is read are its end, its high watermark, its last stable offset, and the offset that
belongs to a timestamp. All offsets are absolute; an end is exclusive.

read_committed needs to know up to where all transactions are decided, and which of them were aborted (Kafka:
``UnifiedLog.lastStableOffset``, ``collectAbortedTransactions``). The newest producer snapshot says which
transactions were open at its offset; the batch headers behind it, and the markers among them, say what became
of these and which began since. Transactions aborted before the snapshot stand in the transaction indexes. A
segment without an offset index has lost its indexes: Kafka rebuilds them from the segment, and here the walk
begins early enough to see its markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from minikafka.errors import KafkaError, MinikafkaError
from minikafka.log.files import SNAPSHOT_SUFFIX, TXN_INDEX_SUFFIX
from minikafka.log.producers.snapshot import CorruptSnapshot, decode_snapshot
from minikafka.log.producers.state import read_marker
from minikafka.log.segment.indexes import AbortedTransaction, decode_aborted
from minikafka.protocol.records.batch import CONTROL_MASK, HEADER_SIZE, TRANSACTIONAL_MASK, BatchHeader
from minikafka.protocol.records.records import iterate_records
from minikafka.spark.runtime.storage import LogFile
from minikafka.spark.source.decode import OffsetRange
from minikafka.spark.source.log_files import (
    Block,
    DamagedSegment,
    PartitionLog,
    SegmentFiles,
    find_logs,
    largest_timestamp,
    read_offset_index,
    read_time_index,
    scan,
)
from minikafka.spark.source.options import (
    EARLIEST,
    LATEST,
    Isolation,
    Latest,
    OffsetLimit,
    OnCorrupt,
    ReadOptions,
    Replicas,
    Search,
)
from minikafka.spark.source.split_reader import OPEN_END, CorruptLog, DataLoss, Split, batch_at, cut
from minikafka.types import TopicPartition

_UNDECIDED: Final = -1


# ---- bounds of a log


def high_watermark_bound(log: PartitionLog, latest: Latest) -> int | None:
    """The high watermark that bounds what "latest" reads; None: the end of the log does."""
    if latest is Latest.LOG_END or log.checkpoint_ms is None or not log.segments:
        return None
    if latest is Latest.HIGH_WATERMARK:
        known = log.high_watermark if log.high_watermark is not None else log.log_start_offset
        return max(known, log.log_start_offset)
    is_at_rest = log.segments[-1].modified_ms <= log.checkpoint_ms
    if log.high_watermark is None or not is_at_rest:
        return None
    return max(log.high_watermark, log.log_start_offset)


def log_end_offset(log: PartitionLog) -> int:
    """The offset behind the last whole batch; damage in the last segment ends the log there."""
    if not log.segments:
        return log.log_start_offset
    segment = log.segments[-1]
    end = segment.base_offset
    try:
        for block in _blocks(log, segment, from_offset=OPEN_END):
            last = block.headers[-1]
            end = int(last["base_offset"]) + int(last["last_offset_delta"]) + 1
    except DamagedSegment:
        pass  # the reader of the records says so, or skips it
    return max(end, log.log_start_offset)


def offset_of_timestamp(log: PartitionLog, timestamp_ms: int, decompressed_bytes_max: int) -> int | None:
    """The first record that is as young as ``timestamp_ms``; None where none is.

    Raises:
        CorruptLog: a batch on the way to it is damaged.
    """
    for place, segment in enumerate(log.segments):
        is_last = place + 1 == len(log.segments)
        largest = None if is_last else largest_timestamp(log, segment)
        if largest is not None and largest < timestamp_ms:
            continue
        entries = read_time_index(log, segment)
        start = segment.base_offset
        if entries is not None:
            start = entries.offset_before(timestamp_ms, start)
        found = _first_as_young(log, segment, start, timestamp_ms, decompressed_bytes_max, is_last=is_last)
        if found is not None:
            return found
    return None


def _first_as_young(
    log: PartitionLog,
    segment: SegmentFiles,
    start: int,
    timestamp_ms: int,
    decompressed_bytes_max: int,
    *,
    is_last: bool,
) -> int | None:
    shown = log.shown(segment.base_offset)
    position = 0
    try:
        for block in _blocks(log, segment, from_offset=start):
            for index in (block.headers["max_timestamp"] >= timestamp_ms).nonzero()[0].tolist():
                position = block.file_position + int(block.positions[index])
                size = int(block.headers["batch_length"][index]) + 12
                batch = _read(log, segment, position, size)
                for record in iterate_records(batch, decompressed_bytes_max=decompressed_bytes_max):
                    if record.timestamp >= timestamp_ms and record.offset >= log.log_start_offset:
                        return record.offset
    except DamagedSegment as damage:
        if not (is_last and damage.is_tail):
            raise CorruptLog(f"{shown}, position {damage.position}: {damage.reason}") from None
    except KafkaError as error:
        raise CorruptLog(f"{shown}, position {position}: {error.message}") from None
    return None


def _read(log: PartitionLog, segment: SegmentFiles, position: int, size: int) -> bytes:
    file = log.storage.open(log.file(segment.base_offset))
    try:
        return bytes(file.read(position, size))
    finally:
        file.close()


def _blocks(log: PartitionLog, segment: SegmentFiles, *, from_offset: int) -> Iterator[Block]:
    """The headers of a segment from the batch with ``from_offset`` on, or one before it; an offset behind the
    segment means from its last index entry on."""
    file = log.storage.open(log.file(segment.base_offset))
    try:
        yield from scan(
            file,
            position=checked_position(file, read_offset_index(log, segment).position_of(from_offset)),
            end=segment.size,
            base_offset=segment.base_offset,
            read_bytes=log.storage.scan_bytes,
            whole_batches=False,
        )
    finally:
        file.close()


def checked_position(file: LogFile, position: int) -> int:
    """``position`` if a batch starts there, else 0: an index may be wrong."""
    return position if position and batch_at(file.read(position, HEADER_SIZE)) is not None else 0


# ---- transactions


@dataclass(slots=True)
class Transactions:
    """The transactions of a log below some bound."""

    end: int
    """The end of what was looked at."""
    open: dict[int, int] = field(default_factory=dict)
    """Producer ids with the first offset of their open transaction."""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    """By their last offsets. Every one that reaches into what was asked about is there."""

    @property
    def last_stable_offset(self) -> int:
        return min([self.end, *self.open.values()])


def read_transactions(
    log: PartitionLog, *, first: int, bound: int, goes_past_damage: bool = False
) -> Transactions:
    """The transactions that matter to a reader of the offsets from ``first`` to ``bound``, where no more than
    the log has is looked at.

    Going past damage, what a damaged chunk said is not known: a transaction whose marker was there counts as
    open until the next marker of its producer, which then seems to be its own.

    Raises:
        DamagedSegment: a segment that has to be walked through is damaged, and may not be gone past.
        CorruptTransactionIndex, OSError: a file that has to be read cannot be.
    """
    stripped = [
        segment.base_offset
        for segment, following in _with_next(log.segments)
        if segment.offset_index_bytes is None and (following is None or following > first)
    ]
    start, transactions = _snapshot(log, min([bound, *stripped]))
    for segment, following in _with_next(log.segments):
        if following is not None and following <= first:
            continue
        if segment.base_offset < min(start, bound) and segment.txn_index_bytes:
            path = log.file(segment.base_offset, TXN_INDEX_SUFFIX)
            shown = log.shown(segment.base_offset, TXN_INDEX_SUFFIX)
            found = decode_aborted(log.storage.read_bytes(path), shown)
            transactions.aborted += [each for each in found if first <= each.last_offset < start]
    for segment, following in _with_next(log.segments):
        if (following is None or following > start) and segment.base_offset < bound:
            walk = _Walk(log, segment, following is None, start, bound, goes_past_damage)
            walk.follow(transactions)
    return transactions


def _with_next(segments: tuple[SegmentFiles, ...]) -> list[tuple[SegmentFiles, int | None]]:
    """Each segment with the base offset of the next."""
    following = [*(segment.base_offset for segment in segments[1:]), None]
    return list(zip(segments, following, strict=True)) if segments else []


def _snapshot(log: PartitionLog, offset_max: int) -> tuple[int, Transactions]:
    """The newest snapshot at or below ``offset_max`` that can be read: its offset and what it says."""
    for offset in reversed(log.snapshots):
        if log.log_start_offset <= offset <= offset_max:
            try:
                entries = decode_snapshot(log.storage.read_bytes(log.file(offset, SNAPSHOT_SUFFIX)))
            except (CorruptSnapshot, FileNotFoundError):  # being written, or removed since: an older one does
                continue
            still_open = {
                entry.producer_id: entry.current_txn_first_offset
                for entry in entries
                if entry.current_txn_first_offset >= 0
            }
            return offset, Transactions(offset, still_open)
    start = log.segments[0].base_offset if log.segments else 0
    return start, Transactions(start)


@dataclass(frozen=True, slots=True)
class _Walk:
    """A way through one segment, from the offset ``start`` to ``bound``."""

    log: PartitionLog
    segment: SegmentFiles
    is_last: bool
    start: int
    bound: int
    goes_past_damage: bool

    def follow(self, into: Transactions) -> None:
        """Follow the transactions."""
        index = read_offset_index(self.log, self.segment)
        file = self.log.storage.open(self.log.file(self.segment.base_offset))
        position: int | None = index.position_of(self.start)
        try:
            while position is not None:
                try:
                    self._follow_from(position, file, into)
                    return
                except DamagedSegment as damage:
                    if damage.is_tail and self.is_last:
                        return
                    if not self.goes_past_damage:
                        shown = self.log.shown(self.segment.base_offset)
                        raise DamagedSegment(damage.position, f"{shown}: {damage.reason}") from None
                    position = index.next_position(damage.position)
        finally:
            file.close()

    def _follow_from(self, position: int, file: LogFile, into: Transactions) -> None:
        blocks = scan(
            file,
            position=position,
            end=self.segment.size,
            base_offset=self.segment.base_offset,
            read_bytes=self.log.storage.scan_bytes,
            whole_batches=False,
            stop_offset=self.bound,
        )
        for block in blocks:
            last = block.headers[-1]
            transactional = (block.headers["attributes"] & (TRANSACTIONAL_MASK | CONTROL_MASK)) != 0
            for index in transactional.nonzero()[0].tolist():
                header = BatchHeader(*block.headers[index].item())
                if header.base_offset < self.start:
                    continue
                try:
                    _follow(file, header, block.file_position + int(block.positions[index]), into)
                except DamagedSegment:  # one marker
                    if not self.goes_past_damage:
                        raise
            into.end = max(into.end, int(last["base_offset"]) + int(last["last_offset_delta"]) + 1)


def _follow(file: LogFile, header: BatchHeader, position: int, into: Transactions) -> None:
    if not header.is_control:
        into.open.setdefault(header.producer_id, header.base_offset)
        return
    try:
        marker = read_marker(header, file.read(position, header.size))
    except KafkaError as error:
        raise DamagedSegment(position, f"a marker that cannot be read: {error.message}") from None
    if marker is None:
        return
    first = into.open.pop(header.producer_id, None)
    if marker.is_abort and first is not None:
        into.aborted.append(AbortedTransaction(header.producer_id, first, header.last_offset, _UNDECIDED))


# ---- planning


class UnknownTopic(MinikafkaError):
    """A topic or partition that was named and is in none of the directories."""


class BadOffsets(MinikafkaError):
    """Offsets or timestamps that were asked for and cannot be: names the option and the partition."""


def selected_logs(options: ReadOptions) -> list[PartitionLog]:
    """The logs that the options select, by topic and partition.

    Raises:
        NotALogDirectory, UnusableLocation, UnfinishedSwap, CorruptCheckpoint: a directory cannot be used.
        UnknownTopic: something that was named is not there.
        BadOffsets: a partition is in two directories, and ``replicas`` does not say what to do.
    """
    found: list[PartitionLog] = []
    for path in options.paths:
        storage, directory = path.open()
        found += find_logs(path, storage, directory)
    logs = sorted(
        (log for log in found if options.selection.includes(log.topic_partition)),
        key=lambda log: (log.topic_partition, log.log_dir),
    )
    _check_selection(options, logs, found)
    if options.replicas is Replicas.FAIL:
        for one, other in pairwise(logs):
            if one.topic_partition == other.topic_partition:
                where = f"in {one.log_dir.shown()} and in {other.log_dir.shown()}"
                raise BadOffsets(
                    f"{one.topic_partition} is {where}: replicas of one partition; name one of the "
                    "directories, or read all of them with replicas=all"
                )
    return logs


def _check_selection(options: ReadOptions, logs: list[PartitionLog], found: list[PartitionLog]) -> None:
    there = {log.topic_partition for log in logs}
    topics = {topic_partition.topic for topic_partition in there}
    named: list[str] = []
    if options.selection.topics is not None:
        named = [topic for topic in options.selection.topics if topic not in topics]
    elif options.selection.partitions is not None:
        named = [str(each) for each in options.selection.partitions if each not in there]
    if named:
        others = sorted({log.topic_partition.topic for log in found})
        where = ", ".join(path.shown() for path in options.paths)
        raise UnknownTopic(
            f"{', '.join(named)}: not in {where}; there are {', '.join(others) or 'no topics'}"
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of one log."""

    log: PartitionLog
    offsets: OffsetRange
    transactions: Transactions | None = None
    """With read_committed."""


def latest_offset(log: PartitionLog, options: ReadOptions) -> int:
    """What "latest" is for this log: a number, which the caller may remember."""
    bound = high_watermark_bound(log, options.latest)
    end = min(log_end_offset(log), OPEN_END if bound is None else bound)
    if options.isolation is Isolation.READ_COMMITTED:
        end = min(end, _transactions(log, end, end, options).last_stable_offset)
    return end


def wanted_of(log: PartitionLog, options: ReadOptions) -> Wanted:
    """What a batch read wants of a log.

    Raises:
        BadOffsets, DataLoss, CorruptLog: it cannot be had.
    """
    start = offset_at(log, options.starting, options)
    end = offset_at(log, options.ending, options)
    if start < log.log_start_offset:
        _lose(options, log, f"offsets {start} to {log.log_start_offset - 1} are no longer there")
        start = log.log_start_offset
    if options.ending.offsets is not None and end != OPEN_END and end > (actual := log_end_offset(log)):
        _lose(options, log, f"{options.ending.option} is {end}, but the log ends at {actual}")
    transactions = transactions_of(log, options, start)
    if transactions is not None:
        end = min(end, transactions.last_stable_offset)
    return Wanted(log, OffsetRange(start, max(start, end)), transactions)


def transactions_of(log: PartitionLog, options: ReadOptions, first: int) -> Transactions | None:
    """The transactions from ``first`` on; None with read_uncommitted. The marker of one that was aborted may
    lie behind the last stable offset, so the log is followed to where it counts as written."""
    if options.isolation is Isolation.READ_UNCOMMITTED:
        return None
    bound = high_watermark_bound(log, options.latest)
    return _transactions(log, first, OPEN_END if bound is None else bound, options)


def _transactions(log: PartitionLog, first: int, bound: int, options: ReadOptions) -> Transactions:
    goes_past = options.on_corrupt is not OnCorrupt.FAIL
    try:
        return read_transactions(log, first=first, bound=bound, goes_past_damage=goes_past)
    except DamagedSegment as damage:
        raise CorruptLog(f"{damage.reason} (position {damage.position})") from None


def _lose(options: ReadOptions, log: PartitionLog, what: str) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(f"{log.name}: {what}; failOnDataLoss=false continues without them")


def offset_at(log: PartitionLog, limit: OffsetLimit, options: ReadOptions) -> int:
    """The offset that a limit means for this log; OPEN_END for the latest of a log that nothing bounds.

    Raises:
        BadOffsets: the limit does not name the partition; nothing is as young as a timestamp.
    """
    topic_partition = log.topic_partition
    named: Mapping[TopicPartition, int] | None = limit.offsets or limit.timestamps_ms
    if named is not None and topic_partition not in named:
        raise BadOffsets(
            f"{limit.option} says nothing of {topic_partition}: name every partition that is read"
        )
    timestamp = limit.timestamp_ms if limit.timestamps_ms is None else limit.timestamps_ms[topic_partition]
    if timestamp is not None:
        found = offset_of_timestamp(log, timestamp, options.decompressed_bytes_max)
        if found is not None:
            return found
        if limit is options.starting and not options.latest_where_nothing_is_that_young:
            raise BadOffsets(
                f"{limit.option}: no record of {topic_partition} is as young as {timestamp}; "
                "startingOffsetsByTimestampStrategy=latest starts such partitions at their end"
            )
    offset = limit.everywhere if limit.offsets is None else limit.offsets[topic_partition]
    if offset == EARLIEST:
        return log.log_start_offset
    if offset is None or offset == LATEST:
        bound = high_watermark_bound(log, options.latest)
        return OPEN_END if bound is None else bound
    return offset


def check_named(limit: OffsetLimit, logs: Iterable[PartitionLog]) -> None:
    """Whether a limit names only partitions that are read. Raises BadOffsets."""
    there = {log.topic_partition for log in logs}
    for topic_partition in limit.offsets or limit.timestamps_ms or ():
        if topic_partition not in there:
            raise BadOffsets(f"{limit.option} names {topic_partition}, which is not read")


def splits_of(wanted: Wanted, options: ReadOptions, search: Search) -> list[Split]:
    """The chunks of a log that hold what is wanted and may match the search."""
    log = wanted.log
    first, end = wanted.offsets
    first = max(first, search.first_offset if search.first_offset is not None else first)
    end = min(end, search.end_offset if search.end_offset is not None else end)
    splits: list[Split] = []
    if not search.includes(log.topic_partition):
        return splits
    for place, segment in enumerate(log.segments):
        is_last = place + 1 == len(log.segments)
        segment_end = OPEN_END if is_last else log.segments[place + 1].base_offset
        from_offset, to_offset = max(first, segment.base_offset), min(end, segment_end)
        if from_offset >= to_offset or not segment.size:
            continue
        if search.timestamp_ms_min is not None and not is_last:
            largest = largest_timestamp(log, segment)
            if largest is not None and largest < search.timestamp_ms_min:
                continue
        splits += _cut_segment(wanted, options, place, OffsetRange(from_offset, to_offset), segment_end)
    return splits


def _cut_segment(
    wanted: Wanted, options: ReadOptions, place: int, offsets: OffsetRange, segment_end: int
) -> list[Split]:
    log = wanted.log
    segment = log.segments[place]
    try:
        file = log.storage.open(log.file(segment.base_offset))
    except FileNotFoundError:  # renamed since it was listed: the task looks the offsets up
        identity, chunks, end_position = -1, None, segment.size
    else:
        try:
            identity = file.identity
            chunks, end_position = cut(
                read_offset_index(log, segment),
                segment_size=segment.size,
                first_offset=offsets.first,
                end_offset=offsets.end,
                split_bytes=options.split_bytes,
                header_at=lambda position: file.read(position, HEADER_SIZE),
            )
        finally:
            file.close()
    starts = [(0, offsets.first)] if chunks is None else [(chunk.position, chunk.offset) for chunk in chunks]
    ends = [(start, offset, offset) for start, offset in starts[1:]]
    ends.append((end_position, offsets.end, segment_end))

    def aborted_in(first: int, end: int) -> tuple[AbortedTransaction, ...]:
        known = wanted.transactions.aborted if wanted.transactions is not None else []
        return tuple(each for each in known if each.first_offset < end and each.last_offset >= first)

    return [
        Split(
            topic_partition=log.topic_partition,
            log_dir=log.log_dir,
            base_offset=segment.base_offset,
            position=position,
            end_position=end,
            segment_size=segment.size,
            identity=identity,
            first_offset=first_offset,
            end_offset=end_offset,
            offset_bound=bound,
            is_last=place + 1 == len(log.segments),
            aborted=aborted_in(first_offset, end_offset),
        )
        for (position, first_offset), (end, end_offset, bound) in zip(starts, ends, strict=True)
    ]
