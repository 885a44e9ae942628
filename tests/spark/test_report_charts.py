"""The charts of an analysis, without Spark: what a log may hold and no calendar has."""

from __future__ import annotations

from minikafka.spark.analyze.analysis import Bucket, SizeCount, Topic
from minikafka.spark.analyze.report import topic_charts

MICROSECONDS_TAKEN_FOR_MS = 1_700_000_000_000_000
"""The year 55840."""


def test_timestamps_beyond_the_calendar_leave_out_one_chart_and_not_the_report() -> None:
    topic = Topic(
        name="t", records=1, bytes=9, batches=1, tombstones=0, null_key_records=0, keys=1,
        superseded_records=0, compaction_saves_bytes=0, bucket_ms=1000,
        throughput=[Bucket(start_ms=MICROSECONDS_TAKEN_FOR_MS, records=1, bytes=9)],
        size_histogram=[SizeCount(size_min=8, records=1, bytes=9)], key_histogram=[], partitions=[],
    )  # fmt: skip
    assert [name for name, _ in topic_charts(topic, "p")] == ["p-sizes"]
