"""Topics as Iceberg and Delta tables: each offset once, whatever happens on the way, for every reader."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.fs
import pytest

from minikafka.log.checkpoint import PARTITION_METADATA
from minikafka.metrics.series import LAG, RECORDS
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark.runtime.session import JobError
from minikafka.spark.tables.files import DATA, REMOVED, RunDirectory, Store, new_run, unfinished_runs
from minikafka.spark.tables.table import Conflict
from tests.spark.export_support import make_job
from tests.spark.killed import sigkill_when
from tests.spark.logs import NOW_MS, LogDir, batch
from tests.spark.tables_support import (
    KINDS,
    arrow,
    export,
    files_below,
    lake,
    lose_to_another_export,
    offsets,
    open_table,
    progress,
    rows,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

every_kind = pytest.mark.parametrize("kind", KINDS)


def topic_id(logs: LogDir, topic: str, text: str) -> None:
    (logs.partition(topic) / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {text}\n")


@every_kind
def test_a_table_has_every_offset_once_also_when_more_comes(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("orders.v1", [batch(0, 20), batch(20, 10, codec=CompressionType.ZSTD)])
    logs.segment("orders.v1", [batch(5, 5)], partition=1)
    tables = lake(kind, tmp_path / "lake")
    job = make_job(spark)
    (commit,) = export(spark, logs.path, tables, job=job)
    assert commit.progress.records == 35 and commit.progress.number == 1
    assert commit.progress.ranges == {0: (0, 30), 1: (5, 10)}
    assert job.counters.value(RECORDS, topic="orders.v1") == 35
    assert job.counters.value(LAG, topic="orders.v1") == 0
    assert export(spark, logs.path, tables) == [], "nothing is new"
    logs.segment("orders.v1", [batch(30, 7)], base_offset=30)
    (commit,) = export(spark, logs.path, tables)
    assert commit.progress.ranges == {0: (30, 37)}
    assert progress(tables, "orders.v1").offsets == {0: 37, 1: 10}

    found = rows(tables, "orders.v1")
    assert [(row["partition"], row["offset"]) for row in found] == [
        *((0, offset) for offset in range(37)),
        *((1, offset) for offset in range(5, 10)),
    ]
    first = found[0]
    assert (first["key"], first["value"]) == (b"k0", b"value 0")
    assert round(first["timestamp"].timestamp() * 1000) == NOW_MS

    table = arrow(tables, "orders.v1")  # noqa: F841 DuckDB reads it by its name
    by_duckdb = duckdb.sql('select "partition", "offset", value from "table" order by all').fetchall()
    assert by_duckdb == [(row["partition"], row["offset"], row["value"]) for row in found]
    paths = [each.path.removeprefix("file://") for each in open_table(tables, "orders.v1").live_files()]
    by_spark = spark.read.parquet(*paths)
    assert sorted(map(tuple, by_spark.select("partition", "offset", "value").collect())) == by_duckdb
    # pyiceberg 0.12 shows a list that is null as an empty one; the files say what the log does.
    assert by_spark.where("headers is not null").count() == 0


@every_kind
def test_what_a_commit_holds_is_said_where_the_format_says_such_things(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 3)])
    tables = lake(kind, tmp_path / "lake")
    export(spark, logs.path, tables)
    table: Any = open_table(tables, "t")
    if kind == "iceberg":
        said = json.loads(table._table.current_snapshot().summary["minikafka.commit"])
    else:
        said = table._table.history(1)[0]["minikafka.commit"]
        assert table._table.transaction_version("minikafka/0") == 3
    assert said["ranges"] == {"0": [0, 3]} and said["offsets"] == {"0": 3} and said["topic"] == "t"


@every_kind
def test_where_commits_are_forgotten_the_table_still_says_where_to_continue(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 3)])
    tables = lake(kind, tmp_path / "lake")
    export(spark, logs.path, tables)
    table: Any = open_table(tables, "t")
    if kind == "iceberg":  # another program rewrites the table, and expires what it was
        table._table.overwrite(table._table.scan().to_arrow())
        table.load()
        table.expire(1 << 50)
        assert table._table.current_snapshot().summary["minikafka.commit"] is None
    else:
        monkeypatch.setattr("minikafka.spark.tables.delta.HISTORY", (1,))
        table._table.alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
    logs.segment("t", [batch(3, 2)], base_offset=3)
    (commit,) = export(spark, logs.path, tables)
    assert commit.progress.ranges == {0: (3, 5)} and commit.progress.number == 2
    assert offsets(tables, "t") == [*range(5)]


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


@every_kind
@pytest.mark.parametrize("moment", ["before the commit", "before the errors", "before the end"])
def test_killed_at_any_moment_the_next_run_has_each_offset_once_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, kind: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minikafka.spark.export.decoding import Format, Kind, TopicFormat

    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [written(0, (b"a", b"fine"), (b"b", b"\xff"), (b"c", b"fine, too"))])
    tables = lake(kind, tmp_path / "lake")
    texts = TopicFormat(Format(Kind.BYTES), Format(Kind.STRING))
    table_type = type(tables.table("t"))
    commit, calls = table_type.commit, []

    def mortal(self: Any, change: Any) -> None:
        calls.append(change)
        if len(calls) == (1 if moment == "before the commit" else 2) and moment != "before the end":
            raise Killed
        commit(self, change)

    with monkeypatch.context() as patch:
        patch.setattr(table_type, "commit", mortal)
        if moment == "before the end":
            patch.setattr(RunDirectory, "end", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            export(spark, logs.path, tables, format_of=lambda topic: texts)
    is_committed = moment != "before the commit"
    assert offsets(tables, "t") == ([0, 2] if is_committed else [])
    left = files_below(tmp_path / "lake")
    assert any(path.name == "_running" for path in left)

    done = export(spark, logs.path, tables, format_of=lambda topic: texts)
    assert bool(done) != is_committed
    assert offsets(tables, "t") == [0, 2]
    (error,) = rows(tables, "t", errors=True)
    assert (error["offset"], error["reason"], error["value"]) == (1, "the value is not UTF-8", b"\xff")
    files = files_below(tmp_path / "lake")
    assert len(files) == 2 and all(path.suffix == ".parquet" for path in files)


def test_sigkill_while_tasks_write(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(index * 100, 100, size=200) for index in range(20)])
    (tmp_path / "lake").mkdir()
    catalog = f"sqlite:///{tmp_path}/lake/catalog.db"
    arguments = ["export", str(logs.path), "--latest", "logEnd"]
    arguments += ["--format", "iceberg", "--catalog", catalog, "-o", str(tmp_path / "lake")]
    # Files of a few records, so that there are some long before the end.
    arguments += ["--target-file-size", "300"]
    data = tmp_path / "lake" / "kafka" / "t" / "data"
    sigkill_when(lambda: [*data.glob("*/*.parquet")], arguments, "tasks write")
    tables = lake("iceberg", tmp_path / "lake")
    assert [*data.glob("*/*.parquet")] and offsets(tables, "t") == []
    (commit,) = export(spark, logs.path, tables)
    assert commit.progress.records == 2000 and offsets(tables, "t") == [*range(2000)]
    assert "which was killed" in capsys.readouterr().err
    known = {data.parent / name for name in open_table(tables, "t").known_files()}
    assert files_below(tmp_path / "lake") == known, "of the run that was killed there is none"


@every_kind
def test_of_two_exports_at_once_one_loses(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    tables = lake(kind, tmp_path / "lake")
    lose_to_another_export(spark, logs, tables, monkeypatch)
    assert offsets(tables, "t") == [*range(10)]
    assert len(files_below(tmp_path / "lake")) == 1, "the loser's files are gone"


@every_kind
def test_another_programs_commit_meanwhile_does_not_stop_an_export(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    tables = lake(kind, tmp_path / "lake")
    export(spark, logs.path, tables)
    logs.segment("t", [batch(10, 10)], base_offset=10)
    table_type = type(tables.table("t"))
    commit = table_type.commit

    def late(self: Any, change: Any) -> None:
        monkeypatch.setattr(table_type, "commit", commit)
        other: Any = open_table(tables, "t")
        if kind == "iceberg":
            other._table.delete("offset < 5")
        else:
            other._table.delete("offset < 5")
        commit(self, change)

    monkeypatch.setattr(table_type, "commit", late)
    export(spark, logs.path, tables)
    assert offsets(tables, "t") == [*range(5, 20)]


@every_kind
@pytest.mark.parametrize("failure", ["a conflict", "something else"])
def test_a_commit_that_arrived_although_it_failed_is_neither_repeated_nor_undone(
    spark: SparkSession, tmp_path: Path, kind: str, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    tables = lake(kind, tmp_path / "lake")
    table_type = type(tables.table("t"))
    commit = table_type.commit

    def failing(self: Any, change: Any) -> None:
        commit(self, change)
        raise Conflict if failure == "a conflict" else RuntimeError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(table_type, "commit", failing)
        if failure == "a conflict":
            assert len(export(spark, logs.path, tables)) == 1
        else:
            with pytest.raises(RuntimeError):
                export(spark, logs.path, tables)
    assert offsets(tables, "t") == [*range(10)]
    assert export(spark, logs.path, tables) == []
    assert offsets(tables, "t") == [*range(10)]


@every_kind
def test_a_topic_that_was_created_again_and_tables_of_others_are_refused(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("a.b", [batch(0, 3)])
    topic_id(logs, "a.b", "AAAAAAAAAAAAAAAAAAAAAQ")
    tables = lake(kind, tmp_path / "lake")
    export(spark, logs.path, tables)
    topic_id(logs, "a.b", "AAAAAAAAAAAAAAAAAAAAAg")
    with pytest.raises(JobError, match=r"topic a\.b was deleted and created again"):
        export(spark, logs.path, tables)
    others = LogDir(tmp_path / "others")
    others.segment("a_b", [batch(0, 3)])
    with pytest.raises(JobError, match=r"holds the topic a\.b, not a_b"):
        export(spark, others.path, tables)
    others.segment("a.b", [batch(0, 3)])
    with pytest.raises(JobError, match=r"the topics a\.b and a_b would both have the table"):
        export(spark, others.path, tables)

    from pyspark.sql.types import LongType, StructField, StructType

    tables.table("c").create(StructType([StructField("offset", LongType())]), (), {})
    third = LogDir(tmp_path / "third")
    third.segment("c", [batch(0, 3)])
    with pytest.raises(JobError, match="was not made by an export: choose another"):
        export(spark, third.path, tables)
    with pytest.raises(JobError, match="holds every record: run without --upsert"):
        export(spark, logs.path, tables, upsert=True)
    with pytest.raises(JobError, match="is partitioned by nothing: leave --partition-by away"):
        export(spark, logs.path, tables, partition_by="day(timestamp)")
    assert offsets(tables, "a.b") == [0, 1, 2]


def test_a_task_that_outlives_its_driver_makes_no_file_while_others_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python workers of a killed Spark write on until they notice; each file that goes is their chance."""
    run = new_run()
    directory = RunDirectory(Store(str(tmp_path)), run)
    directory.begin()
    written = tmp_path / DATA / run
    (written / "00000-0-a.parquet").write_bytes(b"PAR1")

    class Local(pyarrow.fs.LocalFileSystem):
        def delete_dir(self, path: str) -> None:
            self.delete_dir_contents(path)
            with contextlib.suppress(FileNotFoundError):
                (written / "00000-1-b.parquet").write_bytes(b"PAR1")  # by the task
            os.rmdir(path)

    monkeypatch.setattr(directory, "_system", Local())
    directory.end(())
    assert [*(tmp_path / DATA).iterdir()] == [], "nothing is left that no later run would know of"


def test_a_removal_that_was_killed_is_finished_by_the_next_run(tmp_path: Path) -> None:
    store, run = Store(str(tmp_path)), new_run()
    directory = RunDirectory(store, run)
    directory.begin()
    (tmp_path / DATA / run / "00000-0-a.parquet").write_bytes(b"PAR1")
    directory.release()
    (tmp_path / DATA / run).rename(tmp_path / DATA / (run + REMOVED))
    (left,) = unfinished_runs(store)
    again = RunDirectory(store, left)
    assert again.is_dead(0)
    again.end(())
    assert [*(tmp_path / DATA).iterdir()] == []
