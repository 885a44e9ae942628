"""From options and filters to splits: which logs, which offsets of each, which pieces of which segments.

Runs once for a query, on the driver; a stream plans each micro-batch. What is looked at are directories,
indexes, the headers behind the last index entry of a log, and, for read_committed, the headers behind its
newest producer snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from minikafka.errors import MinikafkaError
from minikafka.log.segment.txn_index import AbortedTransaction
from minikafka.protocol.records.batch import HEADER_SIZE
from minikafka.spark.source.decoding.decode import OffsetRange
from minikafka.spark.source.filters import Search
from minikafka.spark.source.log_bounds import high_watermark_bound, log_end_offset, offset_of_timestamp
from minikafka.spark.source.log_files import PartitionLog, find_logs
from minikafka.spark.source.log_index import largest_timestamp, read_offset_index
from minikafka.spark.source.options import (
    EARLIEST,
    LATEST,
    Isolation,
    OffsetLimit,
    OnCorrupt,
    ReadOptions,
    Replicas,
)
from minikafka.spark.source.segment_scan import DamagedSegment
from minikafka.spark.source.split_reader import CorruptLog, DataLoss
from minikafka.spark.source.splits import OPEN_END, Split, cut
from minikafka.spark.source.transactions import Transactions, read_transactions
from minikafka.types import TopicPartition


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
    """What "latest" is for this log: a number, for whoever has to remember it."""
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
        raise DataLoss(f"{log.name}: {what}; failOnDataLoss=false goes on without them")


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
    """The pieces of a log that hold what is wanted and may match the search."""
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
        identity, pieces, end_position = -1, None, segment.size
    else:
        try:
            identity = file.identity
            pieces, end_position = cut(
                read_offset_index(log, segment),
                segment_size=segment.size,
                first_offset=offsets.first,
                end_offset=offsets.end,
                split_bytes=options.split_bytes,
                header_at=lambda position: file.read(position, HEADER_SIZE),
            )
        finally:
            file.close()
    starts = [(0, offsets.first)] if pieces is None else [(piece.position, piece.offset) for piece in pieces]
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
