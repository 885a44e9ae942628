"""The transforms of a compaction on rows made by hand."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from minikafka.spark.compact.plan import BEGINS_A_GROUP, changed_keys, newest_of_keys, offsets_by_group

RECORDS = "topic string, partition int, key binary, offset long, value binary, timestamp timestamp"
GROUPS = "topic string, partition int, group int, first_offset long, end_offset long"
THEN = datetime(2025, 1, 1, tzinfo=UTC)

Rows = list[tuple[str, int, bytes | None, int, bytes | None]]

BEFORE: Rows = [
    ("t", 0, b"a", 0, b"old"),
    ("t", 0, b"a", 1, b"new"),
    ("t", 0, b"gone", 2, None),
    ("t", 0, None, 3, b"no key"),
    ("t", 1, b"a", 1, b"of another partition"),
    ("t", 0, b"b", 12, b"b"),
]


def frame(spark: SparkSession, rows: Rows) -> DataFrame:
    return spark.createDataFrame([(*row, THEN) for row in rows], RECORDS)


def test_each_group_gets_its_offsets_in_order_also_when_there_are_none(spark: SparkSession) -> None:
    newest = newest_of_keys(frame(spark, BEFORE))
    groups = [("t", 0, 0, 0, 10), ("t", 0, 1, 10, 20), ("t", 0, 2, 20, 30), ("t", 1, 3, 0, 5)]
    by_group = offsets_by_group(newest, spark.createDataFrame(groups, GROUPS), group_count=4)
    partitions = by_group.rdd.map(tuple).glom().collect()
    start = BEGINS_A_GROUP
    assert partitions == [
        [(0, start), (0, 1), (0, 2)],
        [(1, start), (1, 12)],
        [(2, start)],
        [(3, start), (3, 1)],
    ]


def test_what_a_compaction_must_not_change_is_named(spark: SparkSession) -> None:
    """An expired tombstone may go; a value, an offset or a key may not, and nothing may come back."""
    before = frame(spark, BEFORE)
    newest = newest_of_keys(before)

    def changes(after: Rows) -> set[tuple[int, bytes, int | None, int | None]]:
        found = changed_keys(before, frame(spark, after), newest).collect()
        return {(row.partition, bytes(row.key), row.offset_before, row.offset_after) for row in found}

    right = [BEFORE[1], BEFORE[4], BEFORE[5]]
    assert changes([*right, BEFORE[2]]) == set()
    assert changes(right) == set()
    assert changes([BEFORE[0], *right[1:]]) == {(0, b"a", 1, 0)}
    assert changes([("t", 0, b"a", 1, b"other"), *right[1:]]) == {(0, b"a", 1, 1)}
    assert changes(right[1:]) == {(0, b"a", 1, None)}
    assert changes([*right, ("t", 0, b"back", 7, b"?")]) == {(0, b"back", None, 7)}
