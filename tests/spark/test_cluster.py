"""The jobs on a Spark standalone cluster: what they find and write is what they do on one machine, also when
an executor is killed in the middle or a task runs twice; and what they write to S3 and to HDFS.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq

from minikafka.cli.main import main
from minikafka.protocol.records.records import Record, build_batch
from minikafka.spark.runtime import session
from minikafka.types import TopicPartition
from tests.integration.support.process import java_is_there
from tests.spark.cluster import SparkCluster, Stall, pack_environment
from tests.spark.export_support import data_files, make_job, options, rows
from tests.spark.hadoop import MiniHdfs, hadoop_version, jars
from tests.spark.logs import NOW_MS, LogDir
from tests.spark.object_store import CREDENTIALS, ObjectStore
from tests.spark.one_session import OneSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "orders"
SEGMENT_BATCHES, BATCH_RECORDS, KEYS = 40, 80, 500
SEGMENT_RECORDS = SEGMENT_BATCHES * BATCH_RECORDS
PARTITION_RECORDS = 2 * SEGMENT_RECORDS + BATCH_RECORDS
MINUTE_MS = 60_000

SPECULATION = {
    "spark_speculation": "true",
    "spark_speculation_interval": "100ms",
    "spark_speculation_quantile": "0.5",
    "spark_speculation_minTaskRuntime": "100ms",
    "spark_speculation_task_duration_threshold": "1s",
}
"""A task that is slower than the others, or takes a second where there are no others, runs twice."""

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    made = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What spark-submit is given."""
    directory = tmp_path_factory.mktemp("package")
    assert session.main([str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions, each of two closed segments of 3 MB and a small one, over some days."""
    logs = LogDir(tmp_path_factory.mktemp("written") / "logs")
    for partition in (0, 1):
        for first in (0, SEGMENT_RECORDS):
            batches = [_batch(first + at * BATCH_RECORDS) for at in range(SEGMENT_BATCHES)]
            logs.segment(TOPIC, batches, partition=partition)
        logs.segment(TOPIC, [_batch(2 * SEGMENT_RECORDS)], partition=partition)
    logs.high_watermarks({TopicPartition(TOPIC, partition): PARTITION_RECORDS for partition in (0, 1)})
    return logs.path


def _batch(first: int) -> bytes:
    records = [
        Record(
            offset, NOW_MS + offset * MINUTE_MS, b"k%d" % (offset % KEYS), (b"%d " % offset).ljust(1000, b".")
        )
        for offset in range(first, first + BATCH_RECORDS)
    ]
    return build_batch(records, base_offset=first)


@pytest.fixture(scope="module")
def exported(spark: SparkSession, written: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What an export on one machine has."""
    from minikafka.spark.export.job import export

    output = tmp_path_factory.mktemp("local") / "lake"
    export(make_job(spark), options(written, output))
    found = rows(output, TOPIC)
    assert len(found) == 2 * PARTITION_RECORDS
    return found


@pytest.fixture
def logs(written: Path, tmp_path: Path) -> Path:
    """A directory of the test's own."""
    return Path(shutil.copytree(written, tmp_path / "logs"))


def segments(log_dir: Path) -> dict[str, bytes]:
    """Every file of the partitions."""
    found = (path for each in log_dir.glob(f"{TOPIC}-*") for path in each.rglob("*"))
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in found if path.is_file()}


def compacted_on_one_machine(shared_session: SparkSession, logs: Path) -> dict[str, bytes]:
    copy = logs.with_name("local")
    shutil.copytree(logs, copy)
    assert main(["compact", str(copy), "--topic", TOPIC]) == 0
    return segments(copy)


def test_an_export_whose_executor_is_killed_in_the_middle_has_each_record_once(
    cluster: SparkCluster, written: Path, exported: list[Any], tmp_path: Path
) -> None:
    stall = Stall(cluster, "read_splits", after_reads=2)
    job = cluster.minikafka("export", str(written), "-o", str(tmp_path / "lake"))
    os.kill(cluster.executor_of(stall.pid(job)), signal.SIGKILL)
    stall.end()
    assert f"{2 * PARTITION_RECORDS:,} records in" in job.finish()
    assert rows(tmp_path / "lake", TOPIC) == exported


def test_an_export_by_spark_submit_with_a_task_that_runs_twice_has_each_record_once(
    cluster: SparkCluster, written: Path, exported: list[Any], package: Path, tmp_path: Path
) -> None:
    stall = Stall(cluster, "read_splits", after_reads=2)
    arguments = ("export", str(written), "-o", str(tmp_path / "lake"))
    job = cluster.spark_submit(package, *arguments, conf=cluster.conf(**SPECULATION))
    try:
        said = job.finish()
        assert stall.has_come, "the first attempt still waits, so it is a second one that has written"
    finally:
        stall.end()
    assert f"{2 * PARTITION_RECORDS:,} records in" in said
    assert rows(tmp_path / "lake", TOPIC) == exported


def test_a_compaction_with_a_task_that_runs_twice_leaves_the_segments_of_one(
    cluster: SparkCluster, shared_session: SparkSession, logs: Path
) -> None:
    expected = compacted_on_one_machine(shared_session, logs)
    stall = Stall(cluster, "copy_segments", after_reads=2)
    job = cluster.minikafka("compact", str(logs), "--topic", TOPIC, conf=cluster.conf(**SPECULATION))
    try:
        job.finish()
        assert stall.has_come
        assert segments(logs) == expected
    finally:
        stall.end()
    assert segments(logs) == expected, "the attempt that waited has written nothing since"


def test_a_compaction_by_spark_submit_whose_executor_is_killed_while_it_copies_is_complete(
    cluster: SparkCluster, shared_session: SparkSession, logs: Path, package: Path
) -> None:
    expected = compacted_on_one_machine(shared_session, logs)
    stall = Stall(cluster, "copy_segments", after_reads=2)
    job = cluster.spark_submit(package, "compact", str(logs), "--topic", TOPIC, conf=cluster.conf())
    executor = cluster.executor_of(stall.pid(job))
    assert [*logs.glob(f"{TOPIC}-*/compaction/attempt-*/*.cleaned")], "something of it is written"
    os.kill(executor, signal.SIGKILL)
    stall.end()
    job.finish()
    assert segments(logs) == expected


def test_an_analysis_by_spark_submit_with_a_packed_environment_finds_what_one_machine_does(
    cluster: SparkCluster, shared_session: SparkSession, written: Path, package: Path, tmp_path: Path
) -> None:
    assert main(["analyze", str(written), "--json", str(tmp_path / "local.json")]) == 0
    archive = pack_environment(tmp_path)
    (package / "environment").symlink_to(sys.prefix)  # the driver's, under the name that executors have
    conf = cluster.conf(spark_pyspark_python="./environment/bin/python")
    job = cluster.spark_submit(
        package,
        *("analyze", str(written), "--json", str(tmp_path / "cluster.json")),
        conf=[*conf, "--archives", f"{archive}#environment"],
    )
    job.finish()
    expected, found = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("local", "cluster"))
    assert found["topics"] == expected["topics"]
    assert [each["records"] for each in found["topics"]] == [2 * PARTITION_RECORDS]


@pytest.fixture(scope="module")
def maven() -> None:
    if not java_is_there():
        if os.environ.get("CI") == "true":
            pytest.fail("java and mvn are not there")
        pytest.skip("java and mvn are not there")


@pytest.fixture(scope="module")
def store(maven: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        made = ObjectStore(tmp_path_factory.mktemp("store") / "store.log")
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def jobs(
    cluster: SparkCluster, store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OneSession]:
    """A session on the cluster that reaches the stores."""
    settings = store.s3a_settings() | {"spark.hadoop.dfs.replication": "1"}
    conf = cluster.conf(**settings, spark_jars=",".join(map(str, jars("s3a"))))
    log = tmp_path_factory.mktemp("jobs") / "session.log"
    made = OneSession(cluster.master, conf, log, CREDENTIALS)
    try:
        yield made
    finally:
        made.close()


def test_an_export_and_a_report_in_s3_are_those_on_a_disk(
    jobs: OneSession, store: ObjectStore, written: Path, exported: list[Any], tmp_path: Path
) -> None:
    said = jobs.run("export", str(written), "-o", "s3a://lake/out")
    assert (said.status, said.out.split(" records")[0]) == (0, f"{2 * PARTITION_RECORDS:,}"), said
    store.download("out", tmp_path / "lake")
    assert rows(tmp_path / "lake", TOPIC) == exported

    # Killed while it moved a file: S3 has a copy, and the original still.
    (commit,) = (tmp_path / "lake" / "_minikafka" / "commits").iterdir()
    name, staging = json.loads(commit.read_text())["files"][0], json.loads(commit.read_text())["staging"]
    (tmp_path / "again" / name).parent.mkdir(parents=True)
    shutil.copy(tmp_path / "lake" / name, tmp_path / "again" / name)
    store.upload(tmp_path / "again", f"out/_minikafka/staging/{staging}")
    said = jobs.run("export", str(written), "-o", "s3a://lake/out")
    assert (said.status, said.out.split(" below")[0]) == (0, "nothing new"), said
    store.download("out", tmp_path / "after")
    assert data_files(tmp_path / "after/_minikafka") == []
    assert rows(tmp_path / "after", TOPIC) == exported

    said = jobs.run("analyze", str(written), "--output", "s3a://lake/report", "--json", "s3a://lake/one.json")
    assert said.status == 0, said
    store.download("report", tmp_path / "report")
    assert "<html" in (tmp_path / "report" / "report.html").read_text()
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [each["records"] for each in found["topics"]] == [2 * PARTITION_RECORDS]
    assert pq.read_table(tmp_path / "report" / "partitions.parquet").num_rows == 2
    assert "written: s3a://lake/one.json" in said.out


def test_of_two_commits_of_one_number_s3_takes_the_first(jobs: OneSession) -> None:
    assert jobs.run("create", "s3a://lake/commits/1.json", "ours").status == 0
    assert jobs.run("create", "s3a://lake/commits/1.json", "ours").status == 0, "the request again"
    said = jobs.run("create", "s3a://lake/commits/1.json", "theirs")
    assert (said.status, said.out) == (1, "s3a://lake/commits/1.json\n")


def test_an_export_and_a_report_in_hdfs_are_those_on_a_disk(
    jobs: OneSession, spark: SparkSession, written: Path, exported: list[Any], tmp_path: Path
) -> None:
    hdfs = MiniHdfs(tmp_path / "hdfs")
    try:
        said = jobs.run("export", str(written), "-o", hdfs.uri("lake"))
        assert (said.status, said.out.split(" records")[0]) == (0, f"{2 * PARTITION_RECORDS:,}"), said
        frame = spark.read.parquet(hdfs.uri("lake"))
        found = frame.select("partition", "offset", "key", "value").orderBy("partition", "offset").collect()
        assert [tuple(row) for row in found] == [
            (row["partition"], row["offset"], row["key"], row["value"]) for row in exported
        ]
        assert jobs.run("export", str(written), "-o", hdfs.uri("lake")).out.startswith("nothing new")
        assert jobs.run("create", hdfs.uri("commits/1.json"), "ours").status == 0
        assert jobs.run("create", hdfs.uri("commits/1.json"), "theirs").status == 1
        said = jobs.run("analyze", str(written), "--output", hdfs.uri("report"))
        assert said.status == 0, said
        assert spark.read.parquet(hdfs.uri("report/partitions.parquet")).count() == 2
    finally:
        hdfs.close()


def test_what_cannot_be_written_is_named_before_the_work(
    jobs: OneSession, shared_session: SparkSession, written: Path, capsys: Capture
) -> None:
    for output, says in (
        ("s3a://pond/out", "the output s3a://pond/out cannot be written: "),
        ("s3a://lake/out?region=x", "the output s3a://lake/out cannot have settings behind ?"),
        ("s3://lake/out", "what Spark writes to S3 is named s3a://"),
    ):
        for command in (
            ("export", str(written), "-o", output),
            ("analyze", str(written), "--output", output),
        ):
            said = jobs.run(*command)
            assert said.status == 1 and says in said.err and len(said.err.splitlines()) == 1, said
    assert main(["export", str(written), "-o", "s3a://lake/out"]) == 1
    needs = f"--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()}"
    assert capsys.readouterr().err.strip().endswith(needs)
