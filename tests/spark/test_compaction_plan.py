"""How far a log may be compacted, and what goes on where a group of its segments begins: from files alone."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.log.segment.indexes import AbortedTransaction
from minikafka.log.staged_compaction import LastRecord, SourceSegment
from minikafka.spark.compact.plan import (
    PRODUCER_ID_EXPIRATION_MS,
    ProducerInSegment,
    StoredLog,
    copy_tasks,
    last_records,
    make_plan,
    open_producers,
)
from minikafka.types import TopicPartition
from tests.unit.log.cleaner_helpers import compacted_config
from tests.unit.log.log_helpers import NOW_MS

BASES = (0, 10, 20, 30)


def log_of(**changes: Any) -> StoredLog:
    values: dict[str, Any] = {
        "topic_partition": TopicPartition("t", 0),
        "directory": "/data/t-0",
        "segments": tuple(SourceSegment(base, 300, 8, 12, base == 30) for base in BASES),
        "modified_ms": dict.fromkeys(BASES, NOW_MS),
        "log_start_offset": 0,
        "high_watermark": 40,
        "first_dirty_offset": 0,
    }
    return StoredLog(**(values | changes))


def seen(base_offset: int, producer_id: int = -1, **changes: int) -> ProducerInSegment:
    values = {
        "max_timestamp": NOW_MS,
        "producer_epoch": 0,
        "data_epoch": 0,
        "last_data_offset": base_offset,
        "transactional_data": -1,
        "marker": -1,
    }
    return ProducerInSegment(base_offset, producer_id, **(values | changes))


def bound(
    log: StoredLog, *rows: ProducerInSegment, first_open: int | None = None, lag_ms: int = 0
) -> int | str:
    config = compacted_config(min_compaction_lag_ms=lag_ms)
    plan = make_plan(log, rows, first_open_offset=first_open, config=config, now_ms=NOW_MS)
    assert bool(plan.reason) == (not plan.groups)
    return plan.reason or plan.end_offset


def test_never_past_high_watermark_last_stable_offset_or_the_active_segment() -> None:
    assert bound(log_of()) == 30
    assert bound(log_of(high_watermark=29)) == 20
    assert bound(log_of(high_watermark=30)) == 30
    assert bound(log_of(), first_open=12) == 10
    assert bound(log_of(), first_open=3) == (
        "a transaction that began at offset 3, in the first segment, has no end"
    )
    assert bound(log_of(high_watermark=9)) == "the high watermark, 9, is in the first segment"
    assert "is not known" in str(bound(log_of(high_watermark=None)))
    assert bound(log_of(segments=log_of().segments[:1])) == "it has only its active segment"


def test_nothing_younger_than_the_lag_but_what_was_compacted_before() -> None:
    old = [seen(base, max_timestamp=NOW_MS - 5000) for base in (0, 10)]
    assert bound(log_of(), *old, seen(20), lag_ms=1000) == 20
    assert "younger than 9000 ms" in str(bound(log_of(), *old, seen(20), lag_ms=9000))
    assert bound(log_of(first_dirty_offset=20), *old, seen(20), lag_ms=9000) == 20
    without_timestamps = [seen(base, max_timestamp=-1) for base in BASES]
    assert "younger" in str(bound(log_of(), *without_timestamps, lag_ms=1000))
    aged = log_of(modified_ms=dict.fromkeys(BASES, NOW_MS - 5000))
    assert bound(aged, *without_timestamps, lag_ms=1000) == 30


def test_a_transaction_continues_until_its_marker() -> None:
    rows = [
        seen(0, 1, transactional_data=5),
        seen(0, 2, transactional_data=6, marker=8),
        seen(10, 1, marker=15),
        seen(10, 3, transactional_data=17, marker=12),
        seen(20, 1, transactional_data=25),
    ]
    assert open_producers(rows) == {1: 15, 3: 12}
    plan = make_plan(
        log_of(), rows, first_open_offset=None, config=compacted_config(segment_bytes=300), now_ms=NOW_MS
    )
    assert plan.seen == ((), (1,), (3,))
    aborted = [AbortedTransaction(1, 5, 15, 16), AbortedTransaction(3, 17, 35, 36)]
    tasks = copy_tasks(plan, aborted, first_group=4, staging=None, codec=None)
    assert [(task.group, task.end_offset, [each.producer_id for each in task.aborted]) for task in tasks] == [
        (4, 10, [1]),
        (5, 20, [1, 3]),
        (6, 30, [3]),
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([seen(0, 7, last_data_offset=5), seen(10, 7, last_data_offset=12)], {7: LastRecord(0, 12)}),
        (
            [seen(0, 7), seen(10, 7, producer_epoch=1, data_epoch=-1, last_data_offset=-1)],
            {7: LastRecord(1, -1)},
        ),
        ([seen(0, 7, max_timestamp=NOW_MS - PRODUCER_ID_EXPIRATION_MS)], {}),
        ([seen(0)], {}),
    ],
    ids=["the last one", "a newer epoch that has only a marker", "silent for a day", "no producer"],
)
def test_last_records_are_those_of_the_producer_state(
    rows: list[ProducerInSegment], expected: dict[int, LastRecord]
) -> None:
    assert last_records(rows, now_ms=NOW_MS) == expected
