"""What records are as rows of a table: schemas that grow, what does not fit, partitions, keys, file sizes."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from minikafka.spark.export.decoding import Format, Kind, TopicFormat
from minikafka.spark.runtime.session import JobError
from minikafka.spark.tables.table import (
    PartitionField,
    bucket_of,
    delta_value,
    parse_partitions,
)
from tests.spark.logs import NOW_MS, LogDir, batch
from tests.spark.tables_support import (
    KINDS,
    export,
    files_below,
    lake,
    offsets,
    open_table,
    progress,
    rows,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

every_kind = pytest.mark.parametrize("kind", KINDS)


def json_format(directory: Path, columns: str) -> dict[str, Any]:
    """Options for values that are JSON with these columns."""
    path = directory / "schema.ddl"
    path.write_text(columns)
    found = TopicFormat(Format(Kind.STRING), Format(Kind.JSON, str(path)))
    return {"format_of": lambda topic: found}


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@every_kind
def test_columns_are_added_and_widened_and_what_does_not_fit_goes_to_the_errors(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    logs = LogDir(tmp_path / "logs")
    tables = lake(kind, tmp_path / "lake")
    first_value = line(id=1, name="x", inner={"n": 1}, lines=[{"a": 1}])
    logs.segment("t", [written(0, (b"a", first_value), (b"b", b"no json"))])
    columns = "id int, name string, inner struct<n: int>, lines array<struct<a: int>>"
    export(spark, logs.path, tables, **json_format(tmp_path, columns))
    grown = (
        "id bigint, name int, inner struct<n: bigint, more: string>, lines array<struct<a: int, b: float>>"
    )
    value = line(id=2**40, inner={"n": 2**41, "more": "y"}, lines=[{"a": 2, "b": 0.5}], extra=0.5)
    misfit = line(id=4, name=5)
    logs.segment("t", [written(2, (b"c", value), (b"d", misfit))], base_offset=2)
    export(spark, logs.path, tables, **json_format(tmp_path, f"{grown}, extra double"))
    first, second = (row["value"] for row in rows(tables, "t"))
    assert first["inner"] == {"n": 1, "more": None} and first["lines"] == [{"a": 1, "b": None}]
    assert (first["id"], first["name"], first["extra"]) == (1, "x", None)
    assert second["inner"] == {"n": 2**41, "more": "y"} and second["lines"] == [{"a": 2, "b": 0.5}]
    assert (second["id"], second["name"], second["extra"]) == (2**40, None, 0.5)
    number = "int" if kind == "iceberg" else "bigint"
    errors = [(row["offset"], row["reason"], row["value"]) for row in rows(tables, "t", errors=True)]
    assert errors == [
        (1, "the value is not JSON of the schema", b"no json"),
        (3, f"value.name is {number}, and the column of the table is string", misfit),
    ]
    # A schema with less, and with narrower columns, writes what the table has.
    logs.segment("t", [written(4, (b"e", line(id=7)), (b"f", line(id=1.5)))], base_offset=4)
    assert export(spark, logs.path, tables, **json_format(tmp_path, "id smallint"))[0].errors == 1
    assert [row["value"]["id"] for row in rows(tables, "t")] == [1, 2**40, 7]
    logs.segment("t", [batch(6, 1)], base_offset=6)
    with pytest.raises(JobError, match=r"key is binary, and the column of the table is string; choose"):
        export(spark, logs.path, tables)


@every_kind
def test_a_schema_that_does_not_decode_can_still_fail_the_run(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    from pyspark.errors import PySparkException

    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [written(0, (b"a", b"no json"))])
    tables = lake(kind, tmp_path / "lake")
    with pytest.raises(PySparkException, match="offset 0: the value is not JSON"):
        export(spark, logs.path, tables, keeps_errors=False, **json_format(tmp_path, "id int"))
    assert offsets(tables, "t") == [] and files_below(tmp_path / "lake") == set()


def avro(
    directory: Path, name: str, fields: list[dict[str, Any]], *records: dict[str, Any]
) -> tuple[Any, Any]:
    """A format of this schema, and records of it."""
    import io

    schema = {"type": "record", "name": "Order", "fields": fields}
    path = directory / name
    path.write_text(json.dumps(schema))
    found = TopicFormat(Format(Kind.BYTES), Format(Kind.AVRO, str(path)))
    data = []
    for record in records:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
        data.append((b"k", out.getvalue()))
    return (lambda topic: found), data


def test_an_avro_field_with_an_alias_keeps_its_column(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogDir(tmp_path / "logs")
    tables = lake("iceberg", tmp_path / "lake")
    before, data = avro(tmp_path, "1.avsc", [{"name": "id", "type": "int"}], {"id": 1})
    logs.segment("t", [written(0, *data)])
    export(spark, logs.path, tables, format_of=before)
    renamed = [{"name": "number", "type": "long", "aliases": ["id"]}]
    after, data = avro(tmp_path, "2.avsc", renamed, {"number": 2**40})
    logs.segment("t", [written(1, *data)], base_offset=1)
    export(spark, logs.path, tables, format_of=after)
    assert [row["value"] for row in rows(tables, "t")] == [{"number": 1}, {"number": 2**40}]
    # Files from before the new name are read by field ids, also when they are merged.
    monkeypatch.setattr("minikafka.spark.tables.job.SMALL_FILES_MIN", 2)
    assert export(spark, logs.path, tables, format_of=after) == []
    assert len(open_table(tables, "t").live_files()) == 1
    assert [row["value"] for row in rows(tables, "t")] == [{"number": 1}, {"number": 2**40}]


def test_a_protobuf_field_with_the_same_number_keeps_its_column(spark: SparkSession, tmp_path: Path) -> None:
    logs = LogDir(tmp_path / "logs")
    tables = lake("iceberg", tmp_path / "lake")
    text = 'syntax = "proto3"; message A { %s = 1; repeated B b = 2; } message B { int32 %s = 1; }'
    (tmp_path / "1.proto").write_text(text % ("int32 id", "x"))
    (tmp_path / "2.proto").write_text(text % ("int64 nr", "y"))
    data = b"\x08\x07\x12\x02\x08\x09"  # 1: 7, 2: { 1: 9 }
    for number in (1, 2):
        wanted = TopicFormat(Format(Kind.BYTES), Format(Kind.PROTOBUF, f"{tmp_path}/{number}.proto#A"))
        logs.segment("t", [written(number, (b"k", data))], base_offset=number)
        export(spark, logs.path, tables, format_of=lambda topic, wanted=wanted: wanted)
    assert [row["value"] for row in rows(tables, "t")] == [{"nr": 7, "b": [{"y": 9}]}] * 2


@every_kind
def test_partitions_by_day_and_bucket(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    logs = LogDir(tmp_path / "logs")
    day_ms = 24 * 60 * 60 * 1000
    from minikafka.protocol.records.records import Record, build_batch

    records = [Record(i, NOW_MS + i % 2 * day_ms, b"k%d" % i, b"v") for i in range(12)]
    logs.segment("t", [build_batch(records, base_offset=0)])
    tables = lake(kind, tmp_path / "lake")
    export(spark, logs.path, tables, partition_by="day(timestamp), bucket(3, key)")
    table: Any = open_table(tables, "t")
    assert [str(each) for each in table.partitions] == ["day(timestamp)", "bucket(3, key)"]
    assert offsets(tables, "t") == [*range(12)]
    live = table.live_files()
    days = {NOW_MS // day_ms, NOW_MS // day_ms + 1}
    buckets = {bucket_of(3)(record.key) for record in records if record.key is not None}
    if kind == "iceberg":
        from pyiceberg.expressions import EqualTo

        assert {each.partition[0] for each in live} == days
        assert {each.partition[1] for each in live} == buckets
        tasks = table._table.scan(row_filter=EqualTo("key", b"k1")).plan_files()
        assert 0 < len([*tasks]) < len(live), "readers pass over the other buckets"
    else:
        assert {each.partition[1] for each in live} == {str(each) for each in buckets}
        first = datetime.datetime.fromtimestamp(NOW_MS / 1000, datetime.UTC).date()
        found = table._table.to_pyarrow_table(filters=[("timestamp_day", "=", first)])
        assert sorted(found["offset"].to_pylist()) == [*range(0, 12, 2)]
    logs.segment("t", [batch(12, 3)], base_offset=12)
    export(spark, logs.path, tables)  # as the table is
    assert offsets(tables, "t") == [*range(15)]


@every_kind
def test_with_upsert_a_table_is_the_newest_value_of_each_key(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    logs = LogDir(tmp_path / "logs")
    tables = lake(kind, tmp_path / "lake")
    logs.segment("t", [written(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"d", None))])
    logs.segment("t", [written(0, (b"p", b"1"), (None, b"lost?"))], partition=1)
    export(spark, logs.path, tables, upsert=True, partition_by="bucket(2, key)")

    def state() -> dict[bytes, bytes]:
        return {row["key"]: row["value"] for row in rows(tables, "t")}

    assert state() == {b"a": b"2", b"b": b"1", b"c": b"1", b"p": b"1"}
    (error,) = rows(tables, "t", errors=True)
    assert (error["partition"], error["offset"]) == (1, 1)
    assert (error["reason"], error["value"]) == ("has no key", b"lost?")
    logs.segment("t", [written(5, (b"b", b"2"), (b"c", None), (b"e", b"1"), (b"e", b"2"))], base_offset=5)
    export(spark, logs.path, tables, upsert=True)
    assert state() == {b"a": b"2", b"b": b"2", b"e": b"2", b"p": b"1"}
    assert len(rows(tables, "t")) == 4
    logs.segment("t", [written(9, *((key, None) for key in (b"a", b"b", b"e")))], base_offset=9)
    export(spark, logs.path, tables, upsert=True)
    assert state() == {b"p": b"1"}
    assert progress(tables, "t").offsets == {0: 12, 1: 2}


@every_kind
def test_many_small_files_become_one_and_what_expires_is_removed(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minikafka.spark.tables.job.SMALL_FILES_MIN", 3)
    logs = LogDir(tmp_path / "logs")
    tables = lake(kind, tmp_path / "lake")
    for first in (0, 5, 10):
        logs.segment("t", [batch(first, 5)], base_offset=first)
        export(spark, logs.path, tables)
    assert len(open_table(tables, "t").live_files()) == 1
    assert len(files_below(tmp_path / "lake")) == 4, "older snapshots need theirs"
    assert offsets(tables, "t") == [*range(15)]
    assert progress(tables, "t").number == 3
    assert export(spark, logs.path, tables, expire_after_ms=0) == []
    assert len(files_below(tmp_path / "lake")) == 1
    assert offsets(tables, "t") == [*range(15)]


@every_kind
def test_files_are_about_as_large_as_asked(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 400, size=1000)])
    tables = lake(kind, tmp_path / "lake")
    export(spark, logs.path, tables, target_bytes=100_000, compression="none")
    sizes = sorted(each.size for each in open_table(tables, "t").live_files())
    assert len(sizes) > 2 and sizes[1] > 90_000 and sizes[-1] < 250_000
    assert offsets(tables, "t") == [*range(400)]


def test_transforms_are_icebergs() -> None:
    # Iceberg's specification, appendix B: 32-bit hash requirements.
    hashes = {34: 2017239379, "iceberg": 1210000089, b"\x00\x01\x02\x03": -188683207}
    for value, hashed in hashes.items():
        assert bucket_of(1000)(value) == (hashed & 0x7FFFFFFF) % 1000
    assert parse_partitions("day( timestamp ),bucket(16,value.id), partition") == (
        PartitionField("day", "timestamp"),
        PartitionField("bucket", "value.id", 16),
        PartitionField("identity", "partition"),
    )
    values = {
        "year": (56, "2026"),
        "month": (671, "2025-12"),
        "day": (0, "1970-01-01"),
        "hour": (25, "1970-01-02-01"),
    }
    for transform, (value, text) in values.items():
        assert delta_value(PartitionField(transform, "timestamp"), value) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no column"),
        ("day(timestamp", r"cannot read 'day\(timestamp'"),
        ("week(timestamp)", "there is no transform week; there are bucket, year, month, day, hour"),
        ("bucket(key)", r"bucket needs a number, bucket\(16, key\), and no other does"),
        ("day(3, timestamp)", "bucket needs a number"),
        ("bucket(0, key)", "there may be 1 to 100,000 buckets"),
        ("partition, partition", "has the same twice"),
    ],
)
def test_partitions_that_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(JobError, match=says):
        parse_partitions(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("day(key)", r"--partition-by day\(key\): the column is binary"),
        ("day(time)", "there is no column time; there are key, value, partition"),
        ("key", "--partition-by key: the column is binary"),
    ],
)
def test_partitions_that_no_column_has(spark: SparkSession, tmp_path: Path, text: str, says: str) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 1)])
    with pytest.raises(JobError, match=says):
        export(spark, logs.path, lake("delta", tmp_path / "lake"), partition_by=text)
