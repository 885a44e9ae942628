"""The transforms of ``minikafka analyze`` against plain Python: many logs of every shape at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spark import analysis_model as model
from tests.spark.analysis_model import BATCH_COLUMNS, BATCHES, RECORDS, Log, Record, Row

pytest.importorskip("pyspark")

from minikafka.spark.transforms import batch_statistics as batch
from minikafka.spark.transforms import offset_order, producer_statistics, record_statistics

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

    totals = batch.partition_totals(batches)
    same(totals, each(lambda members: [model.totals(members)]))
    for log, (row,) in found(totals).items():
        members = model.data(by_log[log])
        if members:
            for share, records, size in zip(
                batch.BATCH_QUANTILES, row["records_quantiles"], row["size_quantiles"], strict=True
            ):
                assert records == model.nth((member["records"] for member in members), share)
                assert size == model.nth((member["size"] for member in members), share)
    gaps = offset_order.gaps(batches)
    same(gaps, each(model.gaps))
    same(
        offset_order.disorder(batches),
        each(lambda members: [model.disorder(members)] if model.data(members) else []),
    )
    same(producer_statistics.duplicates(batches), each(model.duplicates))
    same(producer_statistics.transactions(batches), each(model.transactions))
    for made, name, control in (
        (batch.codecs(batches), "codec", False),
        (batch.leader_epochs(batches), "leader_epoch", True),
        (batch.segments(batches), "segment", True),
    ):
        for log, actual in found(made).items():
            expected = model.grouped(by_log[log], name, control=control)
            assert {row.pop(name): row for row in actual}.keys() == expected.keys()
            for row in made.where(made.topic == log[0]).collect()[:1]:
                values = row.asDict()
                wanted = expected[values[name]]
                assert {key: values[key] for key in wanted if key in values} == {
                    key: wanted[key] for key in wanted if key in values
                }
    batches.unpersist()


def test_a_topic_in_pieces_of_time(spark: SparkSession) -> None:
    rows = [
        batch_row(base_offset=number, last_offset=number, max_timestamp=time, records=number + 1, size=70)
        for number, time in enumerate([5, 999, 1000, 4321, -1, 1999])
    ]
    widths = spark.createDataFrame([("t", 1000), ("other", 1)], "topic string, bucket_ms long")
    actual = found(batch.throughput(frame(spark, rows), widths))["t", 0]
    expected = model.throughput(rows, 1000)
    assert {row["start_ms"]: (row["records"], row["bytes"]) for row in actual} == expected


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
    ((row,),) = found(batch.partition_totals(batch.healthy(batches))).values()
    assert (row["batches"], row["bytes"], row["last_offset"]) == (1, 100, 0)


def test_overlapping_offsets_are_no_gap(spark: SparkSession) -> None:
    rows = [
        batch_row(last_offset=9, records=10),
        batch_row(base_offset=5, last_offset=7, position=100),
        batch_row(base_offset=12, last_offset=12, position=200),
    ]
    ((row,),) = found(offset_order.gap_totals(offset_order.gaps(frame(spark, rows)))).values()
    assert row == {"gaps": 1, "missing": 2, "overlaps": 1}


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
    summary = record_statistics.summarised(
        spark.createDataFrame([row.row for row in rows[::-1]], RECORDS)
    ).persist()
    keys, sizes = record_statistics.by_key(summary), record_statistics.by_size(summary)
    assert found(record_statistics.undecodable(summary)) == {
        ("topic-0", 0): [{"error": "position 7: no batch"}]
    }

    frequencies = record_statistics.key_frequencies(keys).persist()
    keyed = {log: [each for each in members if each.key is not None] for log, members in expected.items()}
    same(
        record_statistics.key_totals(frequencies),
        {log: [model.keys(members)] if members else [] for log, members in keyed.items()},
    )
    top = found(record_statistics.top_keys(keys, frequencies, count=count))
    for log, members in expected.items():
        ranked = sorted(top.get(log, []), key=lambda row: row["place"])
        assert [(bytes(row["key"]), row["records"], row["bytes"]) for row in ranked] == model.top_keys(
            members, count
        )

    quantiles = (0.5, 0.9, 1.0)
    for log, (row,) in found(record_statistics.size_totals(sizes, quantiles)).items():
        members = expected[log]
        assert row["records"] == len(members)
        assert row["bytes"] == sum(each.size for each in members)
        assert row["tombstones"] == sum(each.value is None for each in members)
        exact = [model.nth((each.size for each in members), share) for share in quantiles]
        for near, true in zip(row["quantiles"], exact, strict=True):
            assert true is not None
            assert near == true if true < 45 else abs(near - true) <= 0.011 * true + 1
    for row in record_statistics.topic_keys(keys).collect():
        topic = {each.key for (name, _), members in keyed.items() if name == row.topic for each in members}
        assert abs(row["keys"] - len(topic)) <= 0.05 * len(topic)
    frequencies.unpersist()
    summary.unpersist()


def test_histograms_of_a_topic_are_over_all_its_partitions(spark: SparkSession) -> None:
    rows = [
        Record("t", number % 2, number, key, bytes(size))
        for number, (key, size) in enumerate([(b"k", 0), (b"k", 2), (b"k", 0), (b"k", 62), (b"x", 900)])
    ]
    summary = record_statistics.summarised(spark.createDataFrame([row.row for row in rows], RECORDS))
    sizes = record_statistics.size_histogram(record_statistics.by_size(summary)).orderBy("size_min")
    assert [(row.size_min, row.records, row.bytes) for row in sizes.collect()] == [
        (1, 2, 2), (2, 1, 3), (32, 1, 63), (512, 1, 901),
    ]  # fmt: skip
    frequencies = record_statistics.key_frequencies(record_statistics.by_key(summary))
    histogram = record_statistics.key_histogram(frequencies).orderBy("records_min")
    assert [(row.records_min, row["keys"], row.records) for row in histogram.collect()] == [
        (1, 1, 1), (2, 2, 4),
    ]  # fmt: skip


def test_a_key_among_thousands_of_equals_is_no_top_key(spark: SparkSession) -> None:
    counts = {b"often": 5, b"a": 2, b"b": 2, b"c": 2, b"once": 1}
    names = [key for key, count in counts.items() for _ in range(count)]
    rows = [Record("t", 0, offset, key, b"").row for offset, key in enumerate(names)]
    keys = record_statistics.by_key(
        record_statistics.summarised(spark.createDataFrame(rows, RECORDS))
    ).persist()
    frequencies = record_statistics.key_frequencies(keys)
    for ties_max, expected in ((3, [b"often", b"a"]), (2, [b"often"])):
        top = record_statistics.top_keys(keys, frequencies, count=2, ties_max=ties_max).orderBy("place")
        assert [bytes(row.key) for row in top.collect()] == expected
    keys.unpersist()
