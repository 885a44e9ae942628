"""`minikafka why table`: tables that `minikafka export` made of a real broker's log directory, and what is
wrong with them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from minikafka.cli import export
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.why.command import main
from minikafka.errors import ErrorCode, KafkaError
from minikafka.spark.tables.table import TOPIC
from minikafka.system_clock import SystemClock
from minikafka.testing import ThreadedCluster
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record
from tests.spark import export_support, tables_support
from tests.spark.logs import LogDir, batch
from tests.spark.tables_support import KINDS, lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

every_kind = pytest.mark.parametrize("kind", KINDS)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


class Later(SystemClock):
    """As if it were asked so much later."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self.by_ms = by_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.by_ms


class Asked:
    """One topic, its table, and questions about it."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        kind: str,
        root: Path,
        capsys: pytest.CaptureFixture[str],
        broker: BrokerProcess | None = None,
    ) -> None:
        """``broker``: whose log directory is exported."""
        self.bootstrap = bootstrap
        self._broker = broker
        self.topic = topic
        self.kind = kind
        self.root = root
        self._capsys = capsys

    @property
    def place(self) -> list[str]:
        """The options that say where the table is."""
        catalog = ["--catalog", f"sqlite:///{self.root}/catalog.db"] if self.kind == "iceberg" else []
        return ["--format", self.kind, *catalog, "-o", str(self.root)]

    @property
    def table(self) -> Any:
        """As pyiceberg or delta-rs has it."""
        return tables_support.open_table(lake(self.kind, self.root), self.topic)

    def write(self, count: int, *, partition: int = 0, **more: Any) -> None:
        confluent.write(self.bootstrap, self.topic, records(count, **more), partition=partition)

    def write_large(self, count: int) -> None:
        """100,000 bytes each, in a batch each: where segments end does not depend on what comes together."""
        confluent.write_one_batch_each(self.bootstrap, self.topic, records(count, value=bytes(100_000)))

    def export(self, *options: str, partition: int = 0) -> None:
        """All that there is."""
        assert self._broker is not None
        end = confluent.latest(self.bootstrap, self.topic, partition=partition)
        export_support.wait_for_checkpoint(self._broker, self.topic, end, partition=partition)
        given = [str(self._broker.data_dir), "--topics", self.topic, *self.place, *options]
        assert export.main(given) == 0, self._capsys.readouterr().err

    def command(self, *options: str, later_ms: int = 0, topic: str | None = None) -> int:
        connection = ["-b", self.bootstrap, "--json", "--sample-ms", "0"]
        question = ["table", topic or self.topic, *self.place, *connection, *options]
        return main(question, clock=Later(later_ms))

    def why(self, *options: str, later_ms: int = 0) -> dict[str, Any]:
        """The answer, as --json has it."""
        self._capsys.readouterr()
        assert self.command(*options, later_ms=later_ms) == 0, self._capsys.readouterr().err
        found: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return found

    def refused(self, topic: str | None = None) -> str:
        """What it says where it has no answer."""
        self._capsys.readouterr()
        assert self.command(topic=topic) == 1
        (line,) = self._capsys.readouterr().err.splitlines()
        return line


def records(count: int, *, timestamp_ms: int | None = None, value: bytes = b"fine") -> list[Record]:
    return [Record(b"%d" % number, value, timestamp_ms=timestamp_ms) for number in range(count)]


def codes(answer: dict[str, Any]) -> list[str]:
    return [str(reason["code"]) for reason in answer["reasons"]]


@pytest.fixture
def kind() -> str:
    """Where a test is not about the format."""
    return "delta"


@pytest.fixture
def asked(
    shared_session: SparkSession,
    broker: BrokerProcess,
    topic: str,
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Asked:
    (tmp_path / "lake").mkdir()
    return Asked(broker.bootstrap, topic, kind, tmp_path / "lake", capsys, broker)


def make(asked: Asked, partitions: int = 1, **config: object) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    confluent.make_topic(asked.bootstrap, asked.topic, partitions=partitions, config=settings)


@every_kind
def test_a_table_is_in_step_then_behind_then_left_behind(asked: Asked) -> None:
    make(asked, partitions=2)
    asked.write(5)
    asked.write(2, partition=1)
    asked.export(partition=1)
    answer = asked.why()
    assert answer["reasons"] == [] and answer["unknown"] == []
    assert "is in step with topic" in answer["sentence"] and "commit, number 1, was" in answer["sentence"]

    asked.write(3)
    answer = asked.why()
    assert codes(answer) == ["table.behind.newest"]
    assert f"lacks 3 records of topic {asked.topic}, the oldest written" in answer["sentence"]
    assert "high watermark that brokers write down every 100 ms" in answer["sentence"], "as the broker is set"
    (row,) = answer["reasons"][0]["evidence"]["partitions"]
    assert row["partition"] == f"{asked.topic}-0"
    assert (row["table's next"], row["high watermark"], row["lacks"]) == (5, 8, 3)

    answer = asked.why(later_ms=HOUR_MS)
    assert codes(answer) == ["table.behind.stopped"]
    assert "the export has not committed for 1 h" in answer["sentence"]
    assert f"minikafka export LOG-DIR --topics {asked.topic} --format" in answer["reasons"][0]["remedy"]


@every_kind
def test_another_programs_commits_are_named_unless_they_keep_the_rows(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minikafka.spark.tables.job.SMALL_FILES_MIN", 3)
    make(asked)
    for _ in range(3):
        asked.write(1)
        asked.export()
    assert asked.why()["reasons"] == []
    table = asked.table
    assert any(each.progress is None for each in table.history(100)), "the merge is a commit, too"
    assert len(tables_support.offsets(lake(asked.kind, asked.root), asked.topic)) == 3
    if asked.kind == "delta":
        table._table.optimize.compact()
        table._table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        table._table.alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
        assert asked.why()["reasons"] == []
    table._table.delete("offset = 1")
    answer = asked.why()
    assert codes(answer) == ["table.written-by-others"]
    assert "another program has changed it by" in answer["sentence"]


def test_a_table_that_was_rolled_back(asked: Asked) -> None:
    make(asked)
    asked.kind = "iceberg"
    asked.write(1)
    asked.export()
    asked.write(1)
    asked.export()
    table = asked.table._table
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    answer = asked.why()
    assert codes(answer) == ["table.written-by-others", "table.behind.newest"]
    assert "by rollback" in answer["sentence"]


@every_kind
def test_records_that_did_not_decode(asked: Asked) -> None:
    make(asked)
    asked.write(2)
    asked.write(1, value=b"\xff")
    asked.export("--value-format", "string")
    answer = asked.why()
    assert codes(answer) == ["table.errors"]
    assert "did not get 1 of the 3 records of its last commit" in answer["sentence"]
    assert "_errors" in answer["sentence"]


# Records that are lost


def test_records_that_were_deleted_before_they_were_exported(asked: Asked) -> None:
    make(asked)
    asked.write(5)
    asked.export()
    asked.write(20)
    at = confluent_kafka.TopicPartition(asked.topic, 0, 15)
    client = confluent.admin(asked.bootstrap)  # its futures need it alive
    client.delete_records([at])[at].result(confluent.DEADLINE_S)
    answer = asked.why()
    assert codes(answer) == ["table.lost", "table.behind.newest"]
    assert "has lost 10 records for good" in answer["sentence"]
    assert f"{asked.topic}-0 begins at offset 15, and the table ends before 5" in answer["sentence"]
    asked.export()
    assert asked.why()["reasons"] == []


def test_records_that_retention_will_delete(asked: Asked) -> None:
    make(asked, retention_ms=7 * DAY_MS, message_timestamp_before_max_ms=30 * DAY_MS)
    asked.write(1)
    asked.export()
    asked.write(4, timestamp_ms=time.time_ns() // 1_000_000 - 6 * DAY_MS)
    answer = asked.why()
    assert codes(answer)[0] == "table.behind.running", "the segment has a younger record, and goes as a whole"
    answer = asked.why(later_ms=6 * DAY_MS - HOUR_MS // 2)
    assert codes(answer) == ["table.retention.soon", "table.behind.stopped"]
    assert "in about 1 d at the earliest by retention.ms (7 d)" in answer["sentence"]
    assert codes(asked.why(later_ms=8 * DAY_MS))[0] == "table.retention.due"


def test_records_that_retention_bytes_will_delete(asked: Asked) -> None:
    make(asked, retention_bytes=2_000_000, segment_bytes=1_048_576)
    asked.write(1)
    asked.export()
    asked.write_large(28)
    answer = asked.why()
    assert codes(answer)[0] == "table.retention.soon"
    assert "at the earliest by retention.bytes (2.00 MB)" in answer["sentence"]


def test_of_a_broker_that_has_no_diagnostics_the_earliest_time_is_told(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def as_apache_kafka_answers(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    make(asked, retention_bytes=4_000_000, segment_bytes=1_048_576)
    asked.write(1)
    asked.export()
    asked.write_large(25)
    assert codes(asked.why())[0] == "table.behind.newest", "a segment goes when those behind it are too large"
    monkeypatch.setattr(AdminClient, "diagnostics", as_apache_kafka_answers)
    answer = asked.why()
    assert codes(answer)[0] == "table.retention.soon", "the log's size is known by DescribeLogDirs"
    assert answer["unknown"] == []


# What an export does not see


def test_an_open_transaction_is_named(asked: Asked) -> None:
    make(asked)
    asked.write(2)
    asked.export()
    settings = {"bootstrap.servers": asked.bootstrap, "transactional.id": asked.topic[:50]}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(asked.topic, b"open", partition=0)
    assert producer.flush(confluent.DEADLINE_S) == 0
    asked.export()
    answer = asked.why(later_ms=HOUR_MS)
    assert codes(answer) == ["table.behind.transaction"]
    assert "is open from offset 2 on" in answer["sentence"]
    producer.commit_transaction()


def test_a_partition_that_was_added(asked: Asked) -> None:
    make(asked)
    asked.write(2)
    asked.export()
    wanted = [NewPartitions(asked.topic, 2)]
    client = confluent.admin(asked.bootstrap)
    client.create_partitions(wanted)[asked.topic].result(confluent.DEADLINE_S)
    assert asked.why()["reasons"] == [], "it is empty"
    asked.write(3, partition=1, timestamp_ms=time.time_ns() // 1_000_000 - HOUR_MS)
    answer = asked.why()
    assert codes(answer) == ["table.partitions-left-out"], "by their timestamps the commit came later"
    assert f"lacks 3 records of {asked.topic}-1" in answer["sentence"]
    asked.export(partition=1)
    assert asked.why()["reasons"] == []


# Rates


def test_an_export_is_compared_with_those_who_write(asked: Asked) -> None:
    make(asked)
    for _ in range(2):
        asked.write(1)
        asked.export()
    asked.write(5)
    answer = asked.why("--sample-ms", "100", later_ms=30_000)
    assert codes(answer) == ["table.behind.catching-up"]
    assert "it will have caught up in about" in answer["sentence"]
    with written_to(asked):
        answer = asked.why("--sample-ms", "500", later_ms=30_000)
    assert codes(answer) == ["table.behind.too-slow"], answer
    assert answer["reasons"][0]["evidence"]["written/s"] > 0


@contextmanager
def written_to(asked: Asked) -> Iterator[None]:
    """Meanwhile, about a hundred records a second."""
    producer = confluent.make_producer(asked.bootstrap, linger_ms=0)
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.01):
            producer.produce(asked.topic, b"more", partition=0)
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        assert producer.flush(confluent.DEADLINE_S) == 0
        producer.close()


# Topics that are others


def test_a_topic_that_was_deleted_and_one_of_the_same_name(asked: Asked) -> None:
    make(asked)
    asked.write(4)
    asked.export()
    client = confluent.admin(asked.bootstrap)
    client.delete_topics([asked.topic])[asked.topic].result(confluent.DEADLINE_S)
    confluent.wait_until(lambda: codes(asked.why()) == ["table.topic-gone"], "the topic is gone")
    make(asked)
    answer = asked.why()
    assert codes(answer) == ["table.topic-recreated"]
    evidence = answer["reasons"][0]["evidence"]
    assert evidence["topic id of the table"] != evidence["topic id of the brokers"]


def test_a_table_that_is_ahead_of_the_log(asked: Asked, spark: SparkSession, tmp_path: Path) -> None:
    make(asked)
    asked.write(4)
    others = LogDir(tmp_path / "others")
    others.segment(asked.topic, [batch(0, 9)])
    tables_support.export(spark, others.path, lake(asked.kind, asked.root))
    answer = asked.why()
    assert codes(answer) == ["table.ahead"]
    assert "up to 8, and its log ends at 4" in answer["sentence"]


def test_what_is_lacking_of_a_partition_without_a_leader_is_not_known(
    spark: SparkSession, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = LogDir(tmp_path / "logs")
    for partition in (0, 1):
        logs.segment(topic, [batch(0, 3)], partition=partition)
    (tmp_path / "lake").mkdir()
    tables_support.export(spark, logs.path, lake("delta", tmp_path / "lake"))
    with ThreadedCluster(config={"zookeeper.session.timeout.ms": 4_000}) as cluster:
        client = confluent.admin(cluster.bootstrap_servers)
        wanted = NewTopic(topic, 2, replica_assignment=[[1], [3]])
        client.create_topics([wanted])[topic].result(confluent.DEADLINE_S)
        for partition in (0, 1):
            confluent.write(cluster.bootstrap_servers, topic, records(3), partition=partition)
        asked = Asked(cluster.bootstrap_servers, topic, "delta", tmp_path / "lake", capsys)
        answer = asked.why()
        assert answer["reasons"] == [] and "it has every record" in answer["sentence"]
        cluster.kill(3)
        confluent.wait_until(lambda: asked.why()["unknown"], "its leader is gone")
        answer = asked.why()
        (unknown,) = answer["unknown"]
        assert unknown.startswith(f"what the table lacks of {topic}-1: its leader does not say")
        assert f"minikafka why partition {topic}:1 -b {cluster.bootstrap_servers}" in unknown
        assert answer["reasons"] == [] and "it has every known record" in answer["sentence"]


# Tables that are none


@every_kind
def test_a_table_that_is_not_there_is_named_and_nothing_is_made(asked: Asked) -> None:
    make(asked)
    asked.write(1)
    if asked.kind == "iceberg":
        said = asked.refused()
        assert said == (
            f"minikafka why: the catalog sqlite:///{asked.root}/catalog.db cannot be used: there is no file "
            f"{asked.root}/catalog.db"
        )
        assert [*asked.root.iterdir()] == []
        lake(asked.kind, asked.root)
        (asked.root / "catalog.db").rename(asked.root / "kept.db")
        (asked.root / "catalog.db").touch()
        assert "cannot be used" in asked.refused() and "no such table" in asked.refused()
        assert (asked.root / "catalog.db").stat().st_size == 0, "it is left as it was"
        (asked.root / "kept.db").rename(asked.root / "catalog.db")
    said = asked.refused()
    assert "there is no table" in said and asked.topic in said and "minikafka export makes it" in said
    assert [each.name for each in asked.root.iterdir()] == ["catalog.db"] * (asked.kind == "iceberg")


@every_kind
def test_a_namespace_is_not_made_by_who_only_looks(asked: Asked) -> None:
    make(asked)
    lake(asked.kind, asked.root)
    if asked.kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        assert asked.command("--namespace", "other") == 1
        catalog = load_catalog("default", uri=f"sqlite:///{asked.root}/catalog.db")
        assert catalog.list_namespaces() == [("kafka",)]


@every_kind
def test_tables_of_others(asked: Asked) -> None:
    make(asked)
    asked.write(1)
    from pyspark.sql.types import LongType, StructField, StructType

    columns = StructType([StructField("offset", LongType())])
    tables = lake(asked.kind, asked.root)
    tables.table(asked.topic).create(columns, (), {})
    assert "was not made by an export" in asked.refused()
    tables.table("a_b").create(columns, (), {TOPIC: "a.b"})
    assert "holds the topic a.b, not a_b" in asked.refused("a_b")
    tables.table("a.c").create(columns, (), {TOPIC: "a.c"})
    answered = asked.command(topic="a.c")
    assert answered == 0, "there is no such topic, which is an answer"


def test_a_table_without_a_commit(asked: Asked) -> None:
    make(asked)
    asked.write(3)
    from pyspark.sql.types import LongType, StructField, StructType

    columns = StructType([StructField("offset", LongType())])
    lake(asked.kind, asked.root).table(asked.topic).create(columns, (), {TOPIC: asked.topic})
    answer = asked.why()
    assert codes(answer) == ["table.no-commit"] and "has 3 records" in answer["sentence"]


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (["--format", "iceberg", "--catalog", "sqlite:///x"], "pyiceberg"),
        (["--format", "delta", "-o", "x"], "deltalake"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: Sequence[str],
    module: str,
) -> None:
    monkeypatch.setattr("minikafka.spark.tables.table.find_spec", lambda name: None)
    assert main(["table", "t", *arguments]) == 1
    hint = "is not installed: pip install 'minikafka[tables]'"
    assert capsys.readouterr().err == f"minikafka why: {module} {hint}\n"
    monkeypatch.setattr("minikafka.cli.shared.tables.find_spec", lambda name: None)
    assert main(["table", "t", *arguments]) == 1
    assert capsys.readouterr().err == f"minikafka why: pyspark {hint}\n"
