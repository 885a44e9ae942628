"""What of a log may be compacted, found out from its files alone. Kafka:
``LogCleanerManager.cleanableOffsets``.

The same bounds as in the broker (``log.manager.cleanable_log``): nothing at or above the last stable offset,
which is at most the high watermark; not the active segment; nothing from the first segment on that holds
a record younger than ``min.compaction.lag.ms``. The high watermark is the checkpoint's, which a running
broker writes every few seconds, and the last stable offset is where the first transaction without a
marker begins: both can only rise later.

Pure: the files' names and sizes, and what the batches say (``transforms.compaction``), are arguments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from minikafka.config.topic import TopicConfig
from minikafka.log.compaction.staged_compaction import (
    CompactionJob,
    LastRecord,
    SourceSegment,
    group_segments,
)
from minikafka.log.files.checkpoint import REPLICATION_OFFSET_CHECKPOINT, EpochEntry
from minikafka.log.segment.txn_index import AbortedTransaction
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark.compact.copy import CopyTask
from minikafka.types import TopicPartition

READ_BYTES = 1024 * 1024
PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of producer.id.expiration.ms: one that was silent for so long is no active producer."""


class ProducerInSegment(NamedTuple):
    """A row of ``producers_by_segment``; -1 for null."""

    base_offset: int
    """Of the segment."""
    producer_id: int
    max_timestamp: int
    producer_epoch: int
    data_epoch: int
    last_data_offset: int
    transactional_data: int
    marker: int
    batches: int = 0
    """How many of them the segment has."""


class StoredLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log as its directory shows it."""

    topic_partition: TopicPartition
    directory: str
    segments: tuple[SourceSegment, ...]
    """All of them, the active one last."""
    modified_ms: Mapping[int, int]
    """When each record file was written last, by base offset."""
    log_start_offset: int
    high_watermark: int | None
    """None: the checkpoint does not name the log."""
    first_dirty_offset: int
    """As the checkpoint has it; 0 where it does not."""
    topic_id: str | None = None
    leader_epochs: tuple[EpochEntry, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A log and what of it is compacted; ``groups`` is empty where nothing can be, and ``reason`` says
    why."""

    log: StoredLog
    job: CompactionJob | None = None
    groups: tuple[tuple[SourceSegment, ...], ...] = ()
    seen: tuple[tuple[int, ...], ...] = ()
    """Of each group the producers with a transaction that began below it and continues in it."""
    reason: str = ""
    batches: int = 0
    """Of the groups."""

    @property
    def end_offset(self) -> int:
        return 0 if self.job is None else self.job.first_uncleanable_offset

    def ends(self) -> list[tuple[int, int]]:
        """Each group's first offset, and where the next one begins."""
        starts = [group[0].base_offset for group in self.groups]
        return list(zip(starts, [*starts[1:], self.end_offset], strict=True))


def open_producers(rows: Iterable[ProducerInSegment]) -> dict[int, int]:
    """The producers whose last transaction has no marker, each with the offset of its last marker (-1:
    none)."""
    markers: dict[int, int] = {}
    data: dict[int, int] = {}
    for row in rows:
        markers[row.producer_id] = max(markers.get(row.producer_id, -1), row.marker)
        data[row.producer_id] = max(data.get(row.producer_id, -1), row.transactional_data)
    return {each: markers[each] for each, last in data.items() if last > markers[each]}


def make_plan(
    log: StoredLog,
    rows: Sequence[ProducerInSegment],
    *,
    first_open_offset: int | None,
    config: TopicConfig,
    now_ms: int,
) -> Plan:
    """Decide what is compacted.

    Args:
        first_open_offset: where the first transaction without a marker begins; None: there is none.
    """
    bases = [segment.base_offset for segment in log.segments]
    last_stable_offset = 0 if log.high_watermark is None else log.high_watermark
    if first_open_offset is not None:
        last_stable_offset = min(last_stable_offset, first_open_offset)
    count = max(0, min(bisect_right(bases, last_stable_offset) - 1, len(bases) - 1))
    if not count:
        return Plan(log=log, reason=_why_nothing(log, last_stable_offset))
    count = _without_young(log, rows, count, lag_ms=config.min_compaction_lag_ms, now_ms=now_ms)
    if not count:
        lag_ms = config.min_compaction_lag_ms
        return Plan(log=log, reason=f"the first segment has records younger than {lag_ms} ms")
    below = log.segments[:count]
    job = CompactionJob(
        directory=log.directory,
        config=config,
        segments=below,
        later_txn_indexes=tuple(each.base_offset for each in log.segments[count:] if each.has_txn_index),
        first_dirty_offset=log.log_start_offset,
        first_uncleanable_offset=bases[count],
        last_records=last_records(rows, now_ms=now_ms),
        now_ms=now_ms,
        map_bytes=0,
        map_load_factor=0,
        read_bytes=READ_BYTES,
    )
    groups = group_segments(job, job.first_uncleanable_offset)
    grouped = {segment.base_offset for group in groups for segment in group}
    return Plan(
        log=log,
        job=job,
        groups=tuple(map(tuple, groups)),
        seen=_seen_before(rows, [group[0].base_offset for group in groups]),
        batches=sum(row.batches for row in rows if row.base_offset in grouped),
    )


def copy_tasks(
    plan: Plan,
    aborted: Sequence[AbortedTransaction],
    *,
    first_group: int,
    staging: str | None,
    codec: CompressionType | None,
) -> list[CopyTask]:
    """The tasks of a plan, numbered from ``first_group`` on."""
    assert plan.job is not None
    return [
        CopyTask(
            group=first_group + index,
            job=msgspec.structs.replace(plan.job, segments=()),
            sources=group,
            end_offset=end,
            aborted=tuple(each for each in aborted if each.first_offset < end and each.last_offset >= start),
            seen=seen,
            staging=staging,
            codec=codec,
        )
        for index, (group, seen, (start, end)) in enumerate(
            zip(plan.groups, plan.seen, plan.ends(), strict=True)
        )
    ]


def last_records(rows: Iterable[ProducerInSegment], *, now_ms: int) -> dict[int, LastRecord]:
    """Where the active producers have written last, as the broker's producer state has it: of the newest
    epoch."""
    newest: dict[int, tuple[int, int, int]] = {}
    for row in rows:
        if row.producer_id >= 0:
            epoch, offset, timestamp = newest.get(row.producer_id, (-1, -1, -1))
            if row.producer_epoch > epoch:
                epoch, offset = row.producer_epoch, -1
            if row.data_epoch == epoch:
                offset = max(offset, row.last_data_offset)
            newest[row.producer_id] = epoch, offset, max(timestamp, row.max_timestamp)
    return {
        producer_id: LastRecord(epoch, offset)
        for producer_id, (epoch, offset, timestamp) in newest.items()
        if now_ms - timestamp < PRODUCER_ID_EXPIRATION_MS
    }


def _without_young(
    log: StoredLog, rows: Iterable[ProducerInSegment], count: int, *, lag_ms: int, now_ms: int
) -> int:
    """How many of the first ``count`` segments are old enough. What was compacted before is."""
    if lag_ms <= 0:
        return count
    newest: dict[int, int] = {}
    for row in rows:
        newest[row.base_offset] = max(newest.get(row.base_offset, -1), row.max_timestamp)
    bases = [segment.base_offset for segment in log.segments]
    first_dirty = max(log.first_dirty_offset, log.log_start_offset)
    for index in range(count):
        timestamp = newest.get(bases[index], -1)
        if timestamp < 0:
            timestamp = log.modified_ms[bases[index]]
        if bases[index + 1] > first_dirty and timestamp > now_ms - lag_ms:
            return index
    return count


def _seen_before(rows: Iterable[ProducerInSegment], starts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Of each offset of ``starts``, ascending, the producers with a transaction that continues there."""
    in_order = deque(sorted(rows))
    seen: set[int] = set()
    found = []
    for start in starts:
        while in_order and in_order[0].base_offset < start:
            row = in_order.popleft()
            if row.transactional_data > row.marker:
                seen.add(row.producer_id)
            elif row.marker >= 0:
                seen.discard(row.producer_id)
        found.append(tuple(sorted(seen)))
    return tuple(found)


def _why_nothing(log: StoredLog, last_stable_offset: int) -> str:
    if len(log.segments) < 2:
        return "it has only its active segment"
    if log.high_watermark is None:
        return f"its high watermark is not known: {REPLICATION_OFFSET_CHECKPOINT} does not name it"
    if log.high_watermark < log.segments[1].base_offset:
        return f"the high watermark, {log.high_watermark}, is in the first segment"
    return f"a transaction that began at offset {last_stable_offset}, in the first segment, has no end"
