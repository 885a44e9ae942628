"""Log directories in an object store, over the S3 protocol: what they hold, and what a refusal says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from minikafka.cli.main import main
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark import register
from minikafka.spark.analyze.inputs import NamedDirectory, find_directories
from minikafka.spark.runtime.storage import Location, UnusableLocation, location
from minikafka.types import TopicPartition
from tests.spark.export_support import data_files
from tests.spark.logs import LogDir, batch
from tests.spark.object_store import CREDENTIALS, ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 240
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store(keys: None, tmp_path: Path) -> Iterator[ObjectStore]:
    made = ObjectStore(tmp_path / "store.log")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def logs(tmp_path: Path) -> LogDir:
    """Two partitions of "orders", the first of two segments, the second compressed."""
    made = LogDir(tmp_path / "logs")
    middle = RECORDS // 2
    for start in (0, middle):
        batches = [batch(offset, 10, size=700) for offset in range(start, start + middle, 10)]
        made.segment("orders", batches, index_interval_bytes=8192)
    zstd = [batch(offset, 10, codec=CompressionType.ZSTD) for offset in range(0, RECORDS, 10)]
    made.segment("orders", zstd, partition=1)
    made.high_watermarks({TopicPartition("orders", partition): RECORDS for partition in (0, 1)})
    return made


def read(spark: SparkSession, path: str, **options: str) -> list[Any]:
    frame = spark.read.format("kafka-log").options(**options).load(path).drop("log_dir")
    return sorted(map(tuple, frame.collect()), key=lambda row: row[2:5])


def test_what_is_in_s3_is_read_analysed_and_exported_as_from_a_disk(
    shared_session: SparkSession, store: ObjectStore, logs: LogDir, tmp_path: Path
) -> None:
    store.upload(logs.path, "kafka/broker 1")
    register(shared_session)
    uri, local = store.uri("kafka/broker%201"), str(logs.path)
    everything = read(shared_session, uri, splitBytes="32768")
    assert len(everything) == 2 * RECORDS
    assert everything == read(shared_session, local)
    some = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 137}}'}
    assert read(shared_session, uri, **some) == read(shared_session, local, **some)
    # A partition's own directory, too.
    assert len(read(shared_session, store.uri("kafka/broker%201/orders-1"))) == RECORDS

    assert main(["analyze", uri, "--json", str(tmp_path / "found.json")]) == 0
    (topic,) = json.loads((tmp_path / "found.json").read_text())["topics"]
    assert (topic["records"], topic["keys"]) == (2 * RECORDS, RECORDS)
    assert [part["trial"]["failed"] for part in topic["partitions"]] == [0, 0]
    assert [part["damage"] for part in topic["partitions"]] == [[], []]
    assert main(["export", uri, "-o", str(tmp_path / "lake")]) == 0
    rows = [row for path in data_files(tmp_path / "lake") for row in pq.ParquetFile(path).read().to_pylist()]
    found = {(row["partition"], row["offset"]): (row["key"], row["value"]) for row in rows}
    assert len(rows) == len(found)
    assert found == {(row[3], row[4]): (row[0], row[1]) for row in everything}


def refusal(uri: str) -> str:
    with pytest.raises(UnusableLocation) as caught:
        find_directories([NamedDirectory(uri)])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_the_store_refuses_is_one_line(store: ObjectStore, logs: LogDir, capsys: Capture) -> None:
    store.upload(logs.path, "kafka")
    assert refusal(store.uri("none")) == "s3://lake/none does not exist"
    elsewhere = store.uri("kafka").replace("lake", "pond")
    assert refusal(elsewhere).startswith(
        "s3://pond/kafka cannot be read: The specified bucket does not exist"
    )
    assert refusal(store.uri("kafka") + "&colour=red").startswith(
        "s3://lake/kafka: no store can be opened for it: Unexpected query parameter"
    )
    (directory,) = find_directories([NamedDirectory(store.uri("kafka"))])
    log = directory.logs[TopicPartition("orders", 0)]
    with pytest.raises(FileNotFoundError):  # as retention leaves it; readers go by this
        log.storage.open(log.file(5))
    file = log.storage.open(log.file(0))
    assert bytes(file.read(file.size() - 1, 10)) and not file.read(file.size() + 1, 10)

    store.revoke_keys()
    expected = "s3://lake/kafka cannot be read: The AWS Access Key Id you provided does not exist"
    assert refusal(store.uri("kafka")).startswith(expected)
    with pytest.raises(UnusableLocation, match=r"s3://lake/kafka/orders-0/0{20}\.log cannot be read: "):
        file.read(0, 100)  # in the middle of a job
    assert main(["analyze", store.uri("kafka")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"minikafka analyze: {expected}") and len(said.err.splitlines()) == 1


def test_places_in_a_store_are_named_without_its_settings_and_never_with_a_password() -> None:
    place = location("s3://lake/kafka/?scheme=http&endpoint_override=host:9000")
    assert place.text == "s3://lake/kafka?scheme=http&endpoint_override=host:9000"
    assert place.shown() == "s3://lake/kafka"
    assert place.shown("orders-0", "x.log") == "s3://lake/kafka/orders-0/x.log"
    assert place.parent() == Location("s3://lake?scheme=http&endpoint_override=host:9000")
    assert location("hdfs://me@namenode:8020/logs/").text == "hdfs://me@namenode:8020/logs"
    assert location("hdfs:///logs").shown("orders-0") == "hdfs:///logs/orders-0"
    with pytest.raises(UnusableLocation, match="put it into the environment") as caught:
        location("s3://key:sesame@lake/kafka")
    assert "sesame" not in str(caught.value)
