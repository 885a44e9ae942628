"""Tables become topics: the same records, in their order, all of them or none."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiokafka.partitioner import murmur2

from minikafka.cli.dump_log.command import main as dump_log
from minikafka.config.topic import TopicConfig
from minikafka.errors import MinikafkaError
from minikafka.files import OsFiles
from minikafka.log.checkpoint import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    EpochEntry,
    lock_directory,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
)
from minikafka.metrics.series import OUTPUT_BYTES, PARTITIONS, RECORDS
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark.export.decoding import Kind
from minikafka.spark.runtime.session import explain
from minikafka.types import TopicPartition
from tests.integration.support import confluent
from tests.integration.support.clients import Confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Consumed, Record, every_shape, numbered
from tests.spark import export_support
from tests.spark.import_support import RECORDS as SCHEMA
from tests.spark.import_support import contents, files_below, make_job, options, records_of, run
from tests.spark.killed import sigkill_when

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "orders"
START_MS = 1_700_000_000_000


def write_table(path: Path, records: Sequence[Record], *, rows_a_group: int = 100) -> Path:
    """Records as an export has them, in row groups of so many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "key": each.key,
            "value": each.value,
            "timestamp": None
            if each.timestamp_ms is None
            else datetime.fromtimestamp(each.timestamp_ms / 1000, UTC),
            "headers": [{"key": name, "value": value} for name, value in each.headers] or None,
        }
        for each in records
    ]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, row_group_size=rows_a_group)
    return path


def expected(records: Sequence[Record]) -> list[Any]:
    return [(each.key, each.value, each.timestamp_ms, each.headers) for each in records]


def verified(log_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``minikafka dump-log --verify`` has nothing to say."""
    capsys.readouterr()
    assert dump_log(["--verify", str(log_directory)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("codec", CompressionType)
def test_every_shape_of_record_arrives_as_it_was(
    spark: SparkSession, tmp_path: Path, codec: CompressionType, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [*every_shape(), Record(b"huge", bytes(900_000), (), START_MS), *map(numbered, range(500))]
    table = write_table(tmp_path / "t.parquet", records)
    data = tmp_path / "data"
    done = run(spark, table, data, TOPIC, codec=codec, batch_bytes=64 * 1024)
    found = records_of(data, TOPIC)
    assert [each.offset for each in found] == list(range(len(records)))
    assert contents(found) == expected(records)
    assert done.records == len(records) and done.partitions[0].end_offset == len(records)
    directory = data / f"{TOPIC}-0"
    assert read_leader_epochs(OsFiles(), str(directory / "leader-epoch-checkpoint")) == [EpochEntry(0, 0)]
    assert read_partition_metadata(OsFiles(), str(directory)) is not None
    at = TopicPartition(TOPIC, 0)
    for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT):
        assert read_offsets(OsFiles(), str(data / name)) == {at: len(records)}
    assert not [each for each in data.iterdir() if "import" in each.name or "delete" in each.name]
    assert {each.stat().st_mode & 0o777 for each in data.rglob("*")} == {0o600, 0o700}
    verified(data, capsys)


def test_keys_go_where_kafkas_producers_send_them_and_stay_in_order(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [numbered(i, size=400) for i in range(3_000)]
    for number in range(3):  # files by their names, row groups in each
        write_table(tmp_path / "t" / f"{number}.parquet", records[1_000 * number : 1_000 * (number + 1)])
    config = TopicConfig(segment_bytes=64 * 1024)
    data = tmp_path / "data"
    done = run(spark, tmp_path / "t", data, TOPIC, partitions=5, config=config, batch_bytes=4_096)
    counts = []
    for partition in range(5):
        found = records_of(data, TOPIC, partition)
        counts.append(len(found))
        with_key = [each for each in found if each.key is not None]
        for each in with_key:
            assert each.key is not None and (murmur2(each.key) & 0x7FFF_FFFF) % 5 == partition
        wanted = [
            each
            for each in records
            if each.key is not None and (murmur2(each.key) & 0x7FFF_FFFF) % 5 == partition
        ]
        assert [each.value for each in with_key] == [each.value for each in wanted]
        assert [each.offset for each in found] == list(range(len(found)))
        assert len(found) > len(with_key) > 0, "records without a key are spread"
    assert sum(counts) == len(records) == done.records
    logs = sorted(data.glob(f"{TOPIC}-*/*.log"))
    assert len(logs) == sum(each.segments for each in done.partitions) > 5
    assert max(path.stat().st_size for path in logs) <= 64 * 1024
    verified(data, capsys)


def test_an_export_comes_back_as_it_was(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Two runs of an export, whose files have random names; times that go to and fro over midnight."""
    from minikafka.spark.export.job import export

    day = 86_400_000
    confluent.make_topic(broker.bootstrap, topic, partitions=2)
    wanted: dict[int, list[Consumed]] = {0: [], 1: []}
    for turn in range(2):
        for partition in (0, 1):
            records = [
                numbered(i)._replace(timestamp_ms=START_MS + (i % 3) * day)
                for i in range(300 * turn, 300 * turn + 300)
            ]
            confluent.write(broker.bootstrap, topic, records, partition=partition)
            wanted[partition] += [
                Consumed(300 * turn + i, *record)  # type: ignore[arg-type]
                for i, record in enumerate(records)
            ]
            export_support.wait_for_checkpoint(broker, topic, 300 * (turn + 1), partition=partition)
        selection = {"subscribe": topic}
        export(
            export_support.make_job(spark),
            export_support.options(broker.data_dir, tmp_path / "lake", selection=selection),
        )
    done = run(spark, tmp_path / "lake", tmp_path / "data", topic, partitions=2, partition="partition")
    assert done.sorted_by_spark, "dates put records of one range of offsets into several files"
    for partition, records_there in wanted.items():
        found = records_of(tmp_path / "data", topic, partition)
        assert [each.offset for each in found] == list(range(600))
        assert contents(found) == [
            (each.key, each.value, each.timestamp_ms, each.headers) for each in records_there
        ]


def test_statistics_say_where_no_sort_is_needed(spark: SparkSession, tmp_path: Path) -> None:
    """Files in the order of their names are not in the order of their offsets; inside they are shuffled."""
    source = tmp_path / "t"
    source.mkdir()
    dice = np.random.default_rng(5)
    for name, first in (("b", 0), ("a", 200), ("c", 100)):
        numbers = dice.permutation(np.arange(first, first + 100))
        pq.write_table(
            pa.table({"value": pa.array([b"%d" % n for n in numbers]), "n": pa.array(numbers)}),
            source / f"{name}.parquet",
        )
    done = run(spark, source, tmp_path / "data", TOPIC, order_by="n")
    assert not done.sorted_by_spark
    assert [each.value for each in records_of(tmp_path / "data", TOPIC)] == [b"%d" % n for n in range(300)]
    again = pa.table({"value": pa.array([b"again"]), "n": pa.array([50])})
    pq.write_table(again, source / "d.parquet")
    done = run(spark, source, tmp_path / "data2", TOPIC, order_by="n")
    assert done.sorted_by_spark
    values = [each.value for each in records_of(tmp_path / "data2", TOPIC)]
    assert set(values[50:52]) == {b"50", b"again"} and len(values) == 301


def test_a_stopped_brokers_topic_is_continued_and_a_stock_consumer_reads_all(
    spark: SparkSession, tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data)
    try:
        broker.start()
        confluent.make_topic(broker.bootstrap, topic)
        before = [*every_shape(), numbered(0)]
        Confluent().write_all(broker.bootstrap, {topic: ("lz4", before)})
        broker.stop()
        epochs = read_leader_epochs(OsFiles(), str(data / f"{topic}-0" / "leader-epoch-checkpoint"))
        old = files_below(data / f"{topic}-0")
        records = list(map(numbered, range(2_000)))
        table = write_table(tmp_path / "t.parquet", records)
        done = run(spark, table, data, topic, codec=CompressionType.ZSTD)
        assert (done.partitions[0].first_offset, done.partitions[0].end_offset) == (
            len(before),
            len(before) + 2_000,
        )
        assert not done.is_new_topic
        now = files_below(data / f"{topic}-0")
        assert {name: now[name] for name in old} == old, "no file that was there has changed"
        verified(data, capsys)
        broker.start()
        found = Confluent().read_all(broker.bootstrap, {topic: len(before) + 2_000})[topic]
        assert found == [Consumed(i, *each) for i, each in enumerate([*before, *records])]  # type: ignore[arg-type]
        assert confluent.write(broker.bootstrap, topic, [numbered(9)]) == [len(before) + 2_000]
        broker.stop()
        after = read_leader_epochs(OsFiles(), str(data / f"{topic}-0" / "leader-epoch-checkpoint"))
        assert after[: len(epochs)] == epochs
        log = broker.log_text()
        assert "recovering" not in log and "lost" not in log and "corrupt" not in log
    finally:
        broker.close()


def test_a_broker_with_an_empty_store_adopts_a_new_topic(
    spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    records = list(map(numbered, range(1_000)))
    table = write_table(tmp_path / "t.parquet", records)
    data = tmp_path / "data"
    run(spark, table, data, topic)
    again = run(spark, table, data, topic, codec=CompressionType.GZIP)  # and behind it, once more
    assert again.partitions[0].first_offset == 1_000
    broker = BrokerProcess(data)
    try:
        broker.start()
        found = Confluent().read_all(broker.bootstrap, {topic: 2_000})[topic]
        assert [each.content for each in found] == [
            (each.key, each.value, each.headers) for each in [*records, *records]
        ]
        command = ["kcat", "-b", broker.bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%o %T\n"]
        lines = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout.splitlines()
        times = [each.timestamp_ms for each in [*records, *records]]
        assert lines == [f"{offset} {time_ms}" for offset, time_ms in enumerate(times)]
    finally:
        broker.close()


# ---- columns


def test_columns_of_a_foreign_table(spark: SparkSession, tmp_path: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    table = pa.table(
        {
            "id": pa.array([1, 2, None], pa.int32()),
            "name": pa.array(["å", None, "c"]),
            "when": pa.array([1_714_521_600_000_000_000, None, 0], pa.timestamp("ns")),
            "tags": pa.array([[("t", "1")], None, []], pa.map_(pa.string(), pa.string())),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    columns = {"timestamp": "when", "headers": "tags"}
    key = {"column": "id", "kind": Kind.STRING}
    run(spark, tmp_path / "t.parquet", tmp_path / "a", TOPIC, key=key, value={"column": "name"}, **columns)
    found = records_of(tmp_path / "a", TOPIC)
    assert [(each.key, each.value, each.headers) for each in found] == [
        (b"1", "å".encode(), (("t", b"1"),)),
        (b"2", None, ()),
        (None, b"c", ()),
    ]
    times = [each.timestamp for each in found]
    assert times[0] == 1_714_521_600_000 and times[2] == 0
    assert before_ms <= times[1] <= time.time_ns() // 1_000_000
    run(spark, tmp_path / "t.parquet", tmp_path / "b", TOPIC, value={"kind": Kind.JSON, "schema_id": 7})
    (first, *_) = records_of(tmp_path / "b", TOPIC)
    assert first.value is not None and first.value[:5] == b"\0\0\0\0\7" and first.key is None
    assert json.loads(first.value[5:]) == {
        "id": 1, "name": "å", "when": "2024-05-01T00:00:00", "tags": [["t", "1"]]
    }  # fmt: skip


def test_avro_and_protobuf_come_back_through_the_decoders_of_an_export(
    spark: SparkSession, tmp_path: Path
) -> None:
    import fastavro
    from google.protobuf.message_factory import GetMessageClass

    from minikafka.spark.export.record_schemas import descriptor_pool
    from minikafka.spark.load.rows import read_schema

    (tmp_path / "o.avsc").write_text(
        '{"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, '
        '{"name": "name", "type": ["null", "string"]}]}'
    )
    (tmp_path / "o.proto").write_text(
        'syntax = "proto3"; package shop; message X {} '
        "message Order { int64 id = 1; optional string name = 2; bytes raw = 3; }"
    )
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    schema, _ = read_schema(Kind.AVRO, str(tmp_path / "o.avsc"))
    run(spark, tmp_path / "t.parquet", tmp_path / "a", TOPIC, value={"kind": Kind.AVRO, "schema": schema})
    import io

    parsed = fastavro.parse_schema(json.loads(schema))
    values = [each.value for each in records_of(tmp_path / "a", TOPIC)]
    assert [fastavro.schemaless_reader(io.BytesIO(each or b""), parsed, None) for each in values] == rows
    data, message = read_schema(Kind.PROTOBUF, f"{tmp_path}/o.proto#shop.Order")
    side = {"kind": Kind.PROTOBUF, "schema": data, "message": message, "schema_id": 300}
    rows = [{"id": 1, "name": "a", "raw": b"\xff"}, {"id": 2, "name": None, "raw": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    run(spark, tmp_path / "t.parquet", tmp_path / "p", TOPIC, value=side)
    message_class = GetMessageClass(descriptor_pool(data, "").FindMessageTypeByName(message))
    found = []
    for each in records_of(tmp_path / "p", TOPIC):
        assert each.value is not None and each.value[:7] == b"\0\0\0\x01\x2c\2\2", "the second message"
        made = message_class()
        made.ParseFromString(each.value[7:])
        found.append((made.id, made.HasField("name"), made.raw))
    assert found == [(1, True, b"\xff"), (2, False, b"")]


@pytest.mark.parametrize(
    ("columns", "changed", "says"),
    [
        ({"a": [1]}, {}, "has no column value: name one with --value-column"),
        ({"value": [b"v"]}, {"key": {"column": "id"}}, "has no column id (--key-column) in all of it; it"),
        ({"value": [1.5]}, {}, "is double, which bytes does not write: --value-format string"),
        ({"value": [[1]]}, {}, "which bytes does not write: --value-format json"),
        ({"value": [b"v"], "timestamp": ["x"]}, {}, "the column timestamp is string; a timestamp is"),
        ({"value": [b"v", b"w"], "timestamp": [5, -1]}, {}, "row 1: the timestamp in timestamp is before"),
        ({"value": [b"v"], "headers": [b"h"]}, {}, "the column headers is binary; headers are a list"),
        ({"value": [b"v"], "p": [9]}, {"partition": "p"}, "row 0: partition 9 in p: the topic has 1"),
        ({"value": [b"v"], "p": ["9"]}, {"partition": "p"}, "is string, partitions are whole numbers"),
        ({"value": [b"v"], "n": [None]}, {"order_by": "n"}, "orders the records, and is null here"),
        ({"value": [bytes(2_000_000)]}, {}, "a record takes a batch of 2000"),
        ({"value": [{"a": b"v"}]}, {"value": {"kind": Kind.STRING}}, "--value-format json writes it"),
    ],
)  # fmt: skip
def test_what_no_record_can_be_is_one_line_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, columns: Any, changed: Any, says: str
) -> None:
    from pyspark.errors import PySparkException

    if columns.get("n") == [None]:
        columns = {"value": pa.array([b"v"]), "n": pa.array([None], pa.int64())}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises((MinikafkaError, PySparkException)) as caught:
        run(spark, tmp_path / "t.parquet", tmp_path / "data", TOPIC, **changed)
    told = explain(caught.value)
    assert says in told and "\n" not in told
    if (tmp_path / "data").exists():
        assert [*files_below(tmp_path / "data")] == []


# ---- the directory


def stopped_broker(data: Path, topic: str, *, records: int = 10, partitions: int = 1) -> None:
    broker = BrokerProcess(data)
    try:
        broker.start()
        confluent.make_topic(broker.bootstrap, topic, partitions=partitions)
        if records:
            confluent.write(broker.bootstrap, topic, list(map(numbered, range(records))))
        broker.stop()
    finally:
        broker.close()


def test_a_directory_that_cannot_be_added_to_stays_as_it_is(
    spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    table = write_table(tmp_path / "t.parquet", [numbered(1)])
    data = tmp_path / "data"
    stopped_broker(data, topic, partitions=3)

    def refused(says: str, **changed: Any) -> None:
        before = files_below(data)
        with pytest.raises(MinikafkaError) as caught:
            run(spark, table, data, changed.pop("topic", topic), **changed)
        assert says in str(caught.value)
        assert files_below(data) == before

    refused("is there with 3 partitions, not 4", partitions=4)
    refused("no topic's name", topic="a/b")
    refused("has no topic other, and its broker would set new directories aside", topic="other")
    refused("only brokers write it", topic="__consumer_offsets")
    lock = lock_directory(OsFiles(), str(data))
    refused("is in use: stop the broker that has it")
    lock.release()
    (data / f"{topic}-1" / f"{0:020d}.log.swap").touch()
    refused("has an interrupted compaction")
    (data / f"{topic}-1" / f"{0:020d}.log.swap").unlink()
    shutil.move(data / f"{topic}-1", tmp_path / "away")
    refused("only the partitions 0, 2; an import needs all of them")
    shutil.move(tmp_path / "away", data / f"{topic}-1")
    log = data / f"{topic}-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + b"no batch at all, and long enough to be a header of one, which it is not")
    refused("holds no valid batch at position")
    log.write_bytes(whole)
    marker = data / ".kafka_cleanshutdown"
    marker.rename(tmp_path / "marker")
    refused("was not closed cleanly: start its broker and stop it")
    (tmp_path / "marker").rename(marker)
    assert run(spark, table, data, topic).records == 1


def test_a_running_broker_keeps_an_import_out(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    table = write_table(tmp_path / "t.parquet", [numbered(1)])
    with pytest.raises(MinikafkaError, match="is in use: stop the broker"):
        run(spark, table, broker.data_dir, "kept-out")
    assert not [*broker.data_dir.glob("kept-out*")]


def test_a_dry_run_writes_nothing(spark: SparkSession, tmp_path: Path, topic: str) -> None:
    table = write_table(tmp_path / "t.parquet", list(map(numbered, range(250))))
    done = run(spark, table, tmp_path / "new", TOPIC, dry_run=True, partitions=2)
    assert done.is_dry_run and done.is_new_topic and done.rows == 250 and len(done.partitions) == 2
    assert not (tmp_path / "new").exists()
    stopped_broker(tmp_path / "data", topic)
    before = files_below(tmp_path / "data")
    done = run(spark, table, tmp_path / "data", topic, dry_run=True)
    assert done.partitions[0].first_offset == 10 and not done.is_new_topic
    assert files_below(tmp_path / "data") == before


def test_an_empty_table_makes_no_topic(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(SCHEMA.empty_table(), tmp_path / "t.parquet")
    assert run(spark, tmp_path / "t.parquet", tmp_path / "data", TOPIC).records == 0
    assert files_below(tmp_path / "data") == {}


class Killed(BaseException):
    """The process ends here."""


class Dying(OsFiles):
    """A file system whose process is killed before a certain rename or checkpoint; it cleans nothing up."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def write_atomically(self, path: str, data: bytes) -> None:
        self._step()
        super().write_atomically(path, data)

    def remove_tree(self, path: str) -> None:
        if self._left > 0:
            super().remove_tree(path)

    def _step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            raise Killed


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a stopped broker with ten records of ``TOPIC``, which has two partitions."""
    path = tmp_path_factory.mktemp("stopped") / "data"
    stopped_broker(path, TOPIC, partitions=2)
    return path


@pytest.mark.parametrize("is_new", [False, True])
def test_killed_before_any_step_of_the_commit_all_of_it_comes_or_nothing(
    spark: SparkSession, tmp_path: Path, stopped: Path, is_new: bool
) -> None:
    """The next import finishes what was committed, and removes what was not; no broker starts in between."""
    from minikafka.log.files import UNFINISHED_IMPORT
    from minikafka.spark.load.job import load

    topic, there = ("invoices", 0) if is_new else (TOPIC, 10)
    table = write_table(tmp_path / "t.parquet", list(map(numbered, range(400))))
    again = write_table(tmp_path / "again.parquet", [Record(b"k", b"again", (), START_MS)])
    config = TopicConfig(segment_bytes=32 * 1024)
    outcomes = []
    for steps in range(1, 100):
        data = tmp_path / f"data-{steps}"
        if is_new:
            data.mkdir()
        else:
            shutil.copytree(stopped, data)
        before = set(files_below(data))
        wanted = options(table, data, topic, config=config, batch_bytes=4_096, partitions=2)
        try:
            load(make_job(spark), wanted, files=Dying(steps))
        except Killed:
            pass
        else:
            break
        is_committed = (data / UNFINISHED_IMPORT).exists()
        if not is_committed:
            assert {name for name in files_below(data) if "-delete/" not in name} == before
        done = run(spark, again, data, topic, partitions=2)
        assert done.finished == (topic if is_committed else None)
        found = [records_of(data, topic, partition) for partition in (0, 1)]
        assert sum(map(len, found)) == there + 1 + (400 if is_committed else 0)
        for records in found:
            assert [each.offset for each in records] == list(range(len(records)))
        assert not [path for path in data.iterdir() if "import" in path.name or "-delete" in path.name]
        ends = read_offsets(OsFiles(), str(data / REPLICATION_OFFSET_CHECKPOINT))
        assert [ends[TopicPartition(topic, partition)] for partition in (0, 1)] == [
            len(each) for each in found
        ]
        outcomes.append(is_committed)
    assert outcomes.count(False) >= 2 and outcomes.count(True) >= 4 and outcomes == sorted(outcomes)


def test_no_broker_starts_on_an_import_that_is_half_in_place(tmp_path: Path) -> None:
    from minikafka.log.files import UNFINISHED_IMPORT

    (tmp_path / "data" / UNFINISHED_IMPORT).mkdir(parents=True)
    broker = BrokerProcess(tmp_path / "data")
    try:
        with pytest.raises(AssertionError, match=f"{UNFINISHED_IMPORT}: an import was interrupted"):
            broker.start()
    finally:
        broker.close()


def test_killed_in_the_middle_nothing_is_there_and_the_next_run_clears_up(
    java: None, spark: SparkSession, tmp_path: Path
) -> None:
    """The whole command, with SIGKILL while Spark's workers write."""
    value = pa.array([os.urandom(1_000) for _ in range(1_000)] * 60)
    pq.write_table(
        pa.table({"value": value}), tmp_path / "t.parquet", row_group_size=2_000, use_dictionary=False
    )
    data = tmp_path / "data"
    arguments = ["import", str(tmp_path / "t.parquet"), "--data-dir", str(data)]
    arguments += ["--topic", TOPIC, "--compression", "gzip"]
    sigkill_when(
        lambda: any(path.stat().st_size for path in data.glob("*-delete/runs/*.batches")),
        arguments,
        "Spark's workers write",
    )
    assert [*data.glob("*-delete")] and not [*data.glob(f"{TOPIC}-0")]
    done = run(spark, tmp_path / "t.parquet", data, TOPIC)
    assert done.records == 60_000
    assert sorted(each.name for each in data.iterdir() if each.is_dir()) == [f"{TOPIC}-0"]


def test_what_a_worker_writes_after_the_kill_is_removed_too(tmp_path: Path) -> None:
    """A worker of Spark is in a process group of its own: it notices a moment later."""
    from minikafka.spark.load import target

    class WrittenTo(OsFiles):
        worker_writes = 1

        def remove_tree(self, path: str) -> None:
            if self.worker_writes:
                self.worker_writes -= 1
                shutil.rmtree(f"{path}/runs")
                raise OSError(errno.ENOTEMPTY, "Directory not empty", f"{path}/runs")
            super().remove_tree(path)

    left_over = tmp_path / f"{TOPIC}-0.{b'minikafka in'.hex()}07df0000-delete"
    (left_over / "runs").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "REMOVAL_PAUSE_S", 0)
        assert target.remove_left_over(WrittenTo(), str(tmp_path)) == [str(left_over)]
        assert not left_over.exists()
        (left_over / "runs").mkdir(parents=True)
        patch.setattr(target, "REMOVALS_MAX", 1)
        with pytest.raises(OSError, match="not empty"):
            target.remove_left_over(WrittenTo(), str(tmp_path))


def test_of_a_task_that_runs_twice_one_outcome_counts(spark: SparkSession, tmp_path: Path) -> None:
    """As with speculation: a second attempt has written its own files, and Spark has heard of the first."""
    from minikafka.spark.load import job as job_module
    from minikafka.spark.load import segments

    table = write_table(tmp_path / "t.parquet", list(map(numbered, range(300))))

    def twice(work: Any) -> Any:
        def run_twice(task: Any) -> Any:
            work(task)
            return work(task)

        return run_twice

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_module, "encode_task", twice(job_module.encode_task))
        patch.setattr(job_module, "make_segment", twice(segments.make_segment))
        done = run(spark, table, tmp_path / "data", TOPIC)
    assert done.records == 300 == len(records_of(tmp_path / "data", TOPIC))
    names = sorted(path.name for path in (tmp_path / "data" / f"{TOPIC}-0").iterdir())
    assert names == [
        f"{0:020d}.index", f"{0:020d}.log", f"{0:020d}.timeindex", f"{300:020d}.snapshot",
        "leader-epoch-checkpoint", "partition.metadata",
    ]  # fmt: skip


def test_series_of_the_job(spark: SparkSession, tmp_path: Path) -> None:
    from minikafka.spark.load.job import load

    table = write_table(tmp_path / "t.parquet", list(map(numbered, range(50))))
    job = make_job(spark)
    done = load(job, options(table, tmp_path / "data", TOPIC, partitions=2))
    assert job.counters.value(RECORDS, topic=TOPIC) == 50
    assert job.counters.value(PARTITIONS, topic=TOPIC) == 2
    assert job.counters.value(OUTPUT_BYTES, topic=TOPIC) == done.log_bytes > 0
