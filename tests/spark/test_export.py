"""Records that stock clients wrote are exported, each once, whatever happens to the export on its way."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minikafka.metrics.series import BYTES, DAMAGED_BATCHES, LOST_RECORDS, OUTPUT_BYTES, PARTITIONS, RECORDS
from minikafka.spark.runtime.job import JobError
from tests.integration.support import confluent
from tests.integration.support.clients import Confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record, every_shape, numbered
from tests.spark.export_support import (
    consumed,
    data_files,
    make_job,
    offsets,
    options,
    rows,
    wait_for_checkpoint,
)
from tests.spark.killed import sigkill_when
from tests.spark.logs import LogDir, batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 24 * 60 * 60 * 1000
CLIENT = Confluent()


def write(broker: BrokerProcess, topic: str, records: list[Record], *, end: int, codec: str = "zstd") -> None:
    """Write, and wait until the directory says that ``end`` records are committed."""
    CLIENT.write_all(broker.bootstrap, {topic: (codec, records)})
    wait_for_checkpoint(broker, topic, end)


def run(spark: SparkSession, broker: BrokerProcess, output: Path | str, topic: str, **changed: Any) -> Any:
    """One run over this topic; returns its commit."""
    from minikafka.spark.export.job import export

    open_store = {"open_store": changed.pop("open_store")} if "open_store" in changed else {}
    wanted = options(broker.data_dir, output, selection={"subscribe": topic}, **changed)
    return export(make_job(spark), wanted, **open_store)


def test_what_a_consumer_saw_is_what_is_exported(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    from minikafka.spark.export.job import export

    records = every_shape()
    write(broker, topic, records, end=len(records))
    seen = CLIENT.read_all(broker.bootstrap, {topic: len(records)})[topic]
    job = make_job(spark)
    commit = export(
        job, options(broker.data_dir, tmp_path / "out", selection={"subscribe": topic}, by="hour")
    )
    assert [consumed(row) for row in rows(tmp_path / "out", topic)] == seen
    assert commit is not None and commit.records == len(records)
    assert commit.offsets == {topic: {0: len(records)}}
    directories = {
        path.parent.relative_to(tmp_path / "out").as_posix() for path in data_files(tmp_path / "out")
    }
    hours = {
        time.strftime(f"topic={topic}/date=%Y-%m-%d/hour=%H", time.gmtime(each.timestamp_ms // 1000))
        for each in seen
    }
    assert directories == hours
    values = {series: job.counters.value(series, topic=topic) for series in (RECORDS, PARTITIONS, BYTES)}
    sizes = sum(len(each.key or b"") + len(each.value or b"") for each in seen)
    assert values == {RECORDS: len(records), PARTITIONS: 1, BYTES: sizes}
    assert job.counters.value(OUTPUT_BYTES, topic=topic) == sum(
        path.stat().st_size for path in data_files(tmp_path / "out")
    )


def test_each_run_exports_what_is_new(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    write(broker, topic, [numbered(i) for i in range(100)], end=100)
    assert run(spark, broker, output, topic).records == 100
    first = data_files(output)
    assert run(spark, broker, output, topic) is None
    write(broker, topic, [numbered(i) for i in range(100, 150)], end=150)
    commit = run(spark, broker, output, topic)
    assert (commit.number, commit.records) == (1, 50)
    assert offsets(output, topic) == [*range(150)]
    assert {*first} < {*data_files(output)}, "files that were seen stay"
    with pytest.raises(JobError, match="partitioned by date"):
        run(spark, broker, output, topic, by="hour")


def test_records_that_retention_took_are_counted_and_a_new_topic_of_the_name_is_refused(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition

    from minikafka.spark.export.job import export

    output = tmp_path / "out"
    write(broker, topic, [numbered(i) for i in range(10)], end=10)
    run(spark, broker, output, topic)
    write(broker, topic, [numbered(i) for i in range(10, 30)], end=30)
    admin = confluent.admin(broker.bootstrap)
    admin.delete_records([TopicPartition(topic, 0, 15)])[TopicPartition(topic, 0)].result()
    confluent.wait_until(lambda: confluent.earliest(broker.bootstrap, topic) == 15, "records are deleted")
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir, copy)
    (copy / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} 0 15\n")
    job = make_job(spark)
    export(job, options(copy, output, selection={"subscribe": topic}))
    assert offsets(output, topic) == [*range(10), *range(15, 30)]
    assert job.counters.value(LOST_RECORDS, topic=topic) == 5
    admin.delete_topics([topic])[topic].result()
    confluent.wait_until(lambda: topic not in admin.list_topics().topics, "the topic is deleted")
    write(broker, topic, [numbered(1)], end=1)
    with pytest.raises(JobError, match="deleted and created again"):
        run(spark, broker, output, topic)


def test_damaged_batches_are_left_out_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    from minikafka.spark.export.job import export
    from minikafka.types import TopicPartition

    logs = LogDir(tmp_path / "logs")
    damaged = bytearray(batch(3, 3))
    damaged[-1] ^= 1
    logs.segment("t", [batch(0, 3), bytes(damaged), batch(6, 2)])
    logs.high_watermarks({TopicPartition("t", 0): 8})
    job = make_job(spark)
    commit = export(job, options(logs.path, tmp_path / "out", on_corrupt="skip"))
    assert commit is not None and (commit.records, commit.offsets) == (5, {"t": {0: 8}})
    assert offsets(tmp_path / "out", "t") == [0, 1, 2, 6, 7]
    assert "error" not in rows(tmp_path / "out", "t")[0]
    assert job.counters.value(RECORDS, topic="t") == 5
    assert job.counters.value(DAMAGED_BATCHES, topic="t") == 1


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


class MortalStore:
    """A store whose process dies before its ``last``-th change, and changes nothing any more then."""

    def __init__(self, inner: Any, last: int) -> None:
        self._inner = inner
        self.changes: list[str] = []
        self._last = last

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name not in ("create", "move", "remove_tree", "make_durable"):
            return attribute

        def change(*arguments: Any) -> Any:
            if len(self.changes) >= self._last:
                raise Killed(name)
            self.changes.append(name)
            return attribute(*arguments)

        return change

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._inner.locked():
            yield


@pytest.mark.parametrize("kind", ["local", "hadoop"])
def test_killed_before_any_step_nothing_is_twice_and_nothing_is_missing_after_the_next_run(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, kind: str
) -> None:
    from minikafka.spark.export.job import open_store

    topic = f"killed-{kind}"
    records = [numbered(i)._replace(timestamp_ms=1_700_000_000_000 + i % 3 * DAY_MS) for i in range(30)]
    write(broker, topic, records, end=30)
    changes = ["make_durable", "create", "move", "move", "move", "remove_tree"]
    for last in range(len(changes)):
        output = tmp_path / f"killed-before-{last}"
        stores = []

        def open_mortal(*arguments: Any, last: int = last, stores: list[MortalStore] = stores) -> Any:
            stores.append(MortalStore(open_store(*arguments), last))
            return stores[0]

        text = output.as_uri() if kind == "hadoop" else str(output)
        with pytest.raises(Killed, match=f"^{changes[last]}$"):
            run(spark, broker, text, topic, open_store=open_mortal)
        before = offsets(output, topic)
        assert len({*before}) == len(before) == 10 * changes[:last].count("move")
        commit = run(spark, broker, text, topic)
        assert (commit is None) == (last >= 2), "what is committed is not written again"
        assert offsets(output, topic) == [*range(30)]
        assert os.listdir(output / "_minikafka" / "staging") == []


@pytest.mark.parametrize("kind", ["local", "hadoop"])
def test_what_an_export_works_on_is_its_owners_alone_and_the_result_as_the_umask_says(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, kind: str
) -> None:
    topic = f"modes-{kind}"
    write(broker, topic, [numbered(0)], end=1)
    output = tmp_path / "out"
    run(spark, broker, output.as_uri() if kind == "hadoop" else output, topic)
    expected_file, expected_directory = tmp_path / "file", tmp_path / "directory"
    expected_file.touch()
    expected_directory.mkdir()
    assert stat.S_IMODE((output / "_minikafka").stat().st_mode) == 0o700
    (data,) = data_files(output)
    assert data.stat().st_mode == expected_file.stat().st_mode
    for directory in (output, data.parent, data.parent.parent):
        assert directory.stat().st_mode == expected_directory.stat().st_mode


def test_sigkill_while_spark_writes(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    write(broker, topic, [numbered(i) for i in range(2000)], end=2000)
    sigkill_when(
        lambda: [*output.glob("_minikafka/staging/*/_temporary/0")],
        ["export", str(broker.data_dir), "--output", str(output), "--topics", topic],
        "Spark writes",
    )
    assert offsets(output, topic) == []
    assert [*output.glob("_minikafka/staging/*")] and not [*output.glob("_minikafka/commits/*")]
    assert run(spark, broker, output, topic).records == 2000
    assert offsets(output, topic) == [*range(2000)]
    assert os.listdir(output / "_minikafka" / "staging") == []


def test_two_exports_at_once_do_not_mix(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    from minikafka.spark.export.job import LOCK, LocalStore, open_store

    write(broker, topic, [numbered(i) for i in range(10)], end=10)
    with (
        LocalStore(tmp_path / "out", LOCK).locked(),
        pytest.raises(JobError, match="another export is writing"),
    ):
        run(spark, broker, tmp_path / "out", topic)

    def open_late(*arguments: Any) -> Any:
        """Between this run's start and its commit another one runs to its end."""
        store = open_store(*arguments)
        durable = store.make_durable

        def make_durable(*given: Any) -> None:
            durable(*given)
            run(spark, broker, uri, topic)

        store.make_durable = make_durable  # type: ignore[method-assign]
        return store

    uri = (tmp_path / "out").as_uri()
    with pytest.raises(JobError, match="meanwhile"):
        run(spark, broker, uri, topic, open_store=open_late)
    assert offsets(tmp_path / "out", topic) == [*range(10)]


def test_an_export_cannot_commit_files_that_another_one_has_taken_for_left_behind(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    from minikafka.spark.export.job import LOCK, ExportOutput, open_store

    write(broker, topic, [numbered(i) for i in range(10)], end=10)
    uri = (tmp_path / "out").as_uri()

    def open_late(*arguments: Any) -> Any:
        """Between this run's writing and its commit another one starts, and has not committed yet."""
        store = open_store(*arguments)

        def make_durable(*_: Any) -> None:
            ExportOutput(open_store(uri, LOCK, spark), by="date").recover(now_ms=1)

        store.make_durable = make_durable  # type: ignore[method-assign]
        return store

    with pytest.raises(JobError, match="meanwhile"):
        run(spark, broker, uri, topic, open_store=open_late)
    assert run(spark, broker, uri, topic).records == 10
    assert offsets(tmp_path / "out", topic) == [*range(10)]


def test_an_output_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    from minikafka.spark.export.job import export

    logs = LogDir(tmp_path / "data")
    logs.segment("orders", [batch(0, 10)])
    output = tmp_path / "größer als 100%20 #1?"
    commit = export(make_job(spark), options(logs.path, output, latest="logEnd"))
    assert commit is not None and commit.records == 10
    assert offsets(output, "orders") == [*range(10)]
    assert {each.name for each in tmp_path.iterdir()} == {"data", output.name}
