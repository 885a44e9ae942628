"""The transforms of ``minikafka analyze`` against plain Python: many logs of every shape at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikafka.types import TopicPartition
from tests.spark import analysis_model as model
from tests.spark.analysis_model import BATCH_COLUMNS, BATCHES, Log, Record, Row

pytest.importorskip("pyspark")

import pyarrow as pa

from minikafka.spark.analyze import batch_statistics as batch
from minikafka.spark.analyze import passes
from minikafka.spark.source.datasource import SUMS_SCHEMA, summed
from tests.spark.record_batches import record_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

few_examples = settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
"""The simplest and a drawn one: each is many logs in one DataFrame, and a dozen queries."""

TIMES = st.integers(-1, 5_000)


def batch_row(**given: Any) -> Row:
    """A batch of one record, but for what is ``given``."""
    row: Row = {
        "topic": "t", "partition": 0, "log_dir": "/logs", "segment": "00000000000000000000.log",
        "position": 0, "size": 100, "base_offset": 0, "last_offset": 0, "leader_epoch": 0, "crc": 1,
        "crc_ok": True, "codec": "none", "records": 1, "timestamp_type": 0, "base_timestamp": 0,
        "max_timestamp": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1,
        "is_transactional": False, "is_control": False, "control_type": None, "delete_horizon": None,
        "error": None,
    }  # fmt: skip
    assert given.keys() <= row.keys()
    return row | given


@st.composite
def logs(draw: st.DrawFn, topic: str) -> list[Row]:
    """One partition: ascending offsets with and without gaps, a few producers, markers, several epochs."""
    rows: list[Row] = []
    offset, position, epoch = draw(st.integers(0, 1 << 40)), 0, 0
    for _ in range(draw(st.integers(1, 14))):
        offset += draw(st.sampled_from([0, 0, 0, 0, 1, 7]))
        epoch += draw(st.sampled_from([0, 0, 0, 1, 2]))
        producer_id = draw(st.sampled_from([-1, 5, 5, 6]))
        is_control = producer_id >= 0 and draw(st.integers(0, 3)) == 0
        span = 1 if is_control else draw(st.integers(1, 4))
        records = span if is_control else draw(st.integers(0, span))
        first, latest = sorted((draw(TIMES), draw(TIMES)))
        row = batch_row(
            topic=topic,
            partition=3,
            position=position,
            segment=f"{offset // 64:020d}.log",
            size=draw(st.integers(61, 300)),
            base_offset=offset,
            last_offset=offset + span - 1,
            leader_epoch=epoch,
            codec=draw(st.sampled_from(["none", "zstd"])),
            records=records,
            timestamp_type=draw(st.integers(0, 1)),
            base_timestamp=first,
            max_timestamp=latest,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else draw(st.integers(0, 1)),
            base_sequence=-1 if producer_id < 0 or is_control else draw(st.integers(0, 2)),
            is_transactional=producer_id == 5 or is_control,
            is_control=is_control,
            control_type=draw(st.sampled_from(["COMMIT", "ABORT"])) if is_control else None,
            delete_horizon=draw(st.sampled_from([None, None, first])),
        )
        rows.append(row)
        offset, position = row["last_offset"] + 1, position + row["size"]
    return rows


many_logs = st.integers(12, 24).flatmap(
    lambda count: st.tuples(*(logs(f"topic-{number}") for number in range(count)))
)


def frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in BATCH_COLUMNS) for row in rows], BATCHES)


def found(frame: DataFrame) -> dict[Log, list[Row]]:
    grouped: dict[Log, list[Row]] = {}
    for row in frame.collect():
        values = row.asDict()
        grouped.setdefault((values.pop("topic"), values.pop("partition")), []).append(values)
    return grouped


def same(frame: DataFrame, expected: dict[Log, list[Row]]) -> None:
    """Both have the same rows of each partition, in whatever order; ``frame`` may have more columns."""
    actual = found(frame)
    assert actual.keys() == {log for log, rows in expected.items() if rows}
    for log, rows in actual.items():
        names = expected[log][0].keys()
        assert sorted([{name: row[name] for name in names} for row in rows], key=repr) == sorted(
            expected[log], key=repr
        ), log


@few_examples
@given(many_logs)
def test_headers_tell_what_the_model_finds(spark: SparkSession, generated: tuple[list[Row], ...]) -> None:
    rows = [row for log in generated for row in log]
    by_log = model.by_log(rows)
    batches = frame(spark, rows).persist()

    def each(function: Callable[[list[Row]], list[Row]]) -> dict[Log, list[Row]]:
        return {log: function(members) for log, members in by_log.items()}

    totals = batch.partition_totals(batches, model.BATCH_SIZE)
    same(totals, each(lambda members: [model.totals(members)]))
    for log, (row,) in found(totals).items():
        members = model.data(by_log[log])
        if members:
            for share, records, size in zip(
                batch.BATCH_QUANTILES, row["records_quantiles"], row["size_quantiles"], strict=True
            ):
                assert records == model.nth((member["records"] for member in members), share)
                assert size == model.nth((member["size"] for member in members), share)
    same(batch.gaps(batches), each(model.gaps))
    same(
        batch.order_totals(batches),
        each(lambda members: [model.gap_totals(members) | model.disorder(members)]),
    )
    same(batch.duplicates(batches), each(model.duplicates))
    same(batch.transactions(batches), each(model.transactions))
    breakdowns = batch.breakdowns(batches, widths(spark, *((topic, 1_000) for topic, _ in by_log))).collect()
    for name, control in (("codec", False), ("leader_epoch", True), ("segment", True)):
        for log, members in by_log.items():
            expected = model.grouped(members, name, control=control)
            actual = {row[name]: row.asDict() for row in breakdowns if (log_of(row), row.of) == (log, name)}
            assert actual.keys() == expected.keys()
            for value, wanted in expected.items():
                names = wanted.keys() if control else ("batches", "records", "bytes")
                assert {key: actual[value][key] for key in names} == {key: wanted[key] for key in names}
    for log, members in by_log.items():
        assert placed(breakdowns, log) == model.throughput(members, 1_000)
    batches.unpersist()


def test_a_topic_in_buckets_of_time(spark: SparkSession) -> None:
    rows = [
        batch_row(base_offset=number, last_offset=number, max_timestamp=time, records=number + 1, size=70)
        for number, time in enumerate([5, 999, 1000, 4321, -1, 1999])
    ]
    breakdowns = batch.breakdowns(frame(spark, rows), widths(spark, ("t", 1000), ("other", 1))).collect()
    assert placed(breakdowns, ("t", 0)) == model.throughput(rows, 1000)


def test_a_topic_without_timestamps_has_no_buckets_of_time(spark: SparkSession) -> None:
    breakdowns = batch.breakdowns(frame(spark, [batch_row(max_timestamp=-1)]), widths(spark)).collect()
    assert sorted(row.of for row in breakdowns) == ["codec", "leader_epoch", "segment"]


def widths(spark: SparkSession, *of_topics: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(list(of_topics), "topic string, bucket_ms long")


def log_of(row: Any) -> Log:
    return row.topic, row.partition


def placed(breakdowns: list[Any], log: Log) -> dict[int, tuple[int, int]]:
    """Records and bytes by time."""
    rows = [row for row in breakdowns if (log_of(row), row.of) == (log, "start_ms")]
    return {row.start_ms: (row.records, row.bytes) for row in rows}


def test_what_is_damaged_is_named_and_counts_nowhere_else(spark: SparkSession) -> None:
    rows = [
        batch_row(),
        batch_row(base_offset=1, last_offset=1, position=100, crc_ok=False),
        batch_row(base_offset=None, last_offset=None, position=200, crc_ok=None, error="magic 7"),
    ]
    batches = frame(spark, rows)
    (log,) = found(batch.damaged(batches)).values()
    assert [(row["position"], row["base_offset"], row["error"]) for row in log] == [
        (100, 1, "its CRC-32C is wrong"),
        (200, None, "magic 7"),
    ]
    ((row,),) = found(batch.partition_totals(batch.healthy(batches), model.BATCH_SIZE)).values()
    assert (row["batches"], row["bytes"], row["last_offset"]) == (1, 100, 0)


def test_overlapping_offsets_are_no_gap(spark: SparkSession) -> None:
    rows = [
        batch_row(last_offset=9, records=10),
        batch_row(base_offset=5, last_offset=7, position=100),
        batch_row(base_offset=12, last_offset=12, position=200),
    ]
    ((row,),) = found(batch.order_totals(frame(spark, rows))).values()
    assert (row["gaps"], row["missing"], row["overlaps"]) == (1, 2, 1)


KEYS = st.sampled_from([None, b"", b"a", b"bb", b"\xff\x00", b"a key of some length", b"z"])
VALUES = st.one_of(st.none(), st.binary(max_size=12), st.integers(0, 3000).map(bytes))


@few_examples
@given(
    st.lists(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=25), min_size=8, max_size=16),
    st.integers(1, 4),
)
def test_records_tell_what_the_model_finds(
    spark: SparkSession, generated: list[list[tuple[bytes | None, bytes | None]]], count: int
) -> None:
    expected: dict[Log, list[Record]] = {}
    for number, members in enumerate(generated):
        log = f"topic-{number // 2}", number % 2
        expected[log] = [Record(*log, offset, *member) for offset, member in enumerate(members)]
    rows = [record for members in expected.values() for record in members]
    rows.append(Record("topic-0", 0, None, None, None, "position 7: no batch"))
    summary = passes.summarised(sums(spark, rows[::-1])).persist()
    keys = passes.by_key(summary)
    others = found(passes.without_keys(summary, errors_max=20))
    assert [(log, row["error"]) for log, members in others.items() for row in members if row["error"]] == [
        (("topic-0", 0), "position 7: no batch")
    ]

    frequencies = passes.key_frequencies(keys).collect()
    keyed = {log: [each for each in members if each.key is not None] for log, members in expected.items()}
    top_least = {}
    for log, members in keyed.items():
        of_log = [row for row in frequencies if log_of(row) == log]
        if members:
            assert passes.key_totals(of_log)._asdict() == model.keys(members)
        top_least[log] = passes.top_keys_least(of_log, count=count)
    top = found(passes.top_keys(keys, least(spark, top_least), count=count))
    for log, members in expected.items():
        ranked = sorted(top.get(log, []), key=lambda row: row["place"])
        assert [(bytes(row["key"]), row["records"], row["bytes"]) for row in ranked] == model.top_keys(
            members, count
        )

    quantiles = (0.5, 0.9, 1.0)
    for log, members in expected.items():
        of_log = [SimpleNamespace(**row) for row in others[log]]
        nulls = sum(row.records for row in of_log if row.bucket is None and row.error is None)
        assert nulls == len(members) - len(keyed[log])
        figures = passes.size_totals([row for row in of_log if row.bucket is not None], quantiles)
        assert figures.records == len(members)
        assert figures.bytes == sum(each.size for each in members)
        assert figures.tombstones == sum(each.value is None for each in members)
        exact = [model.nth((each.size for each in members), share) for share in quantiles]
        for near, true in zip(figures.quantiles, exact, strict=True):
            assert true is not None
            assert near == true if true < 45 else abs(near - true) <= 0.011 * true + 1
    for row in passes.topic_keys(keys).collect():
        topic = {each.key for (name, _), members in keyed.items() if name == row.topic for each in members}
        assert abs(row["keys"] - len(topic)) <= 0.05 * len(topic)
    summary.unpersist()


def sums(spark: SparkSession, rows: Iterable[Record]) -> DataFrame:
    """The records as the source hands them on: each log's added up, in two parts."""
    by_log: dict[Log, list[Record]] = {}
    for row in rows:
        by_log.setdefault((row.topic, row.partition), []).append(row)
    tables = []
    for log, members in by_log.items():
        middle = len(members) // 2
        for piece in (members[:middle], members[middle:]):
            tables += summed([record_batch(piece)], TopicPartition(*log))
    return spark.createDataFrame(pa.Table.from_batches(tables), SUMS_SCHEMA)


def least(spark: SparkSession, by_log: dict[Log, int | None]) -> DataFrame:
    rows = [(*log, number) for log, number in by_log.items() if number is not None]
    return spark.createDataFrame(rows, "topic string, partition int, least long")


def test_histograms_of_a_topic_are_over_all_its_partitions(spark: SparkSession) -> None:
    rows = [
        Record("t", number % 2, number, key, bytes(size))
        for number, (key, size) in enumerate([(b"k", 0), (b"k", 2), (b"k", 0), (b"k", 62), (b"x", 900)])
    ]
    summary = passes.summarised(sums(spark, rows))
    others = passes.without_keys(summary, errors_max=1).collect()
    assert passes.size_histogram([row for row in others if row.bucket is not None]) == [
        (1, 2, 2), (2, 1, 3), (32, 1, 63), (512, 1, 901),
    ]  # fmt: skip
    frequencies = passes.key_frequencies(passes.by_key(summary)).collect()
    assert passes.key_histogram(frequencies) == [(1, 1, 1), (2, 2, 4)]


def test_a_key_among_thousands_of_equals_is_no_top_key(spark: SparkSession) -> None:
    counts = {b"often": 5, b"a": 2, b"b": 2, b"c": 2, b"once": 1}
    names = [key for key, count in counts.items() for _ in range(count)]
    rows = [Record("t", 0, offset, key, b"") for offset, key in enumerate(names)]
    keys = passes.by_key(passes.summarised(sums(spark, rows))).persist()
    frequencies = passes.key_frequencies(keys).collect()
    for ties_max, expected in ((3, [b"often", b"a"]), (2, [b"often"])):
        number = passes.top_keys_least(frequencies, count=2, ties_max=ties_max)
        top = passes.top_keys(keys, least(spark, {("t", 0): number}), count=2).orderBy("place")
        assert [bytes(row.key) for row in top.collect()] == expected
    keys.unpersist()
