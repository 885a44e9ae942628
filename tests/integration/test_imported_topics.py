"""Apache Kafka opens what ``minikafka import`` has written: its own tools, and its broker."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minikafka.log.files import UNFINISHED_IMPORT
from minikafka.spark.runtime.session import SparkMissing, check_java
from tests.integration.support import confluent, java
from tests.integration.support.clients import Confluent
from tests.integration.support.process import KafkaProcess
from tests.integration.support.records import Consumed, Record, every_shape, numbered

pytestmark = [pytest.mark.java, pytest.mark.minikafka_only]

TOPIC = "imported"
TROUBLE = re.compile("mismatch|invalid|isvalid: false|error|exception|not found|misses", re.IGNORECASE)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NEWEST = java.CLIENT_VERSIONS[-1]
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    try:
        check_java()
    except SparkMissing as error:
        pytest.skip(str(error))
    records = [*every_shape(), *(numbered(i, size=500) for i in range(3_000))]
    rows = [
        {
            "key": each.key,
            "value": each.value,
            "timestamp": datetime.fromtimestamp((each.timestamp_ms or 0) / 1000, UTC),
            "headers": [{"key": name, "value": value} for name, value in each.headers],
        }
        for each in records
    ]
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, row_group_size=500)
    return path, records


def import_table(table: Path, data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "minikafka.cli.main", "import", str(table), "--data-dir", str(data)]
    command += ["--topic", TOPIC, "--master", "local[2]", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_kafkas_tool_finds_nothing_wrong(
    java_class_path: str, table: tuple[Path, list[Record]], tmp_path: Path
) -> None:
    path, records = table
    logs: list[Path] = []
    indexes: list[Path] = []
    for codec in CODECS:
        options = ("--compression", codec, "--batch-size", "20kB", "--config", "segment.bytes=1048576")
        done = import_table(path, tmp_path / codec, *options)
        assert done.returncode == 0, done.stderr
        directory = tmp_path / codec / f"{TOPIC}-0"
        assert len(list(directory.glob("*.log"))) > 1 or codec != "none"
        logs += sorted(directory.glob("*.log"))
        for kind in ("index", "timeindex", "snapshot"):
            files = sorted(directory.glob(f"*.{kind}"))
            assert files
            indexes += files
    dump = ("kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files")
    text = java.tool(java_class_path, *dump, ",".join(map(str, logs)))
    assert "isvalid: false" not in text
    found = re.findall(r"^\| offset: (\d+) CreateTime: (\d+) ", text, re.MULTILINE)
    expected = [(str(offset), str(each.timestamp_ms)) for offset, each in enumerate(records)]
    assert found == expected * len(CODECS)
    text = java.tool(java_class_path, "kafka.tools.DumpLogSegments", "--files", ",".join(map(str, indexes)))
    assert text.count("Dumping ") == len(indexes)
    assert not TROUBLE.search(text), text[-3_000:]


@pytest.fixture(params=[java.KAFKA_VERSION, NEWEST])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaProcess]:
    broker = KafkaProcess(tmp_path / "kafka", classpath=java.class_path(request.param))
    confluent.is_patient = True
    broker.start()
    yield broker
    confluent.is_patient = False
    broker.close()


def test_apache_kafka_serves_an_imported_topic_and_goes_on_with_it(
    kafka: KafkaProcess, table: tuple[Path, list[Record]]
) -> None:
    path, records = table
    confluent.make_topic(kafka.bootstrap, TOPIC, partitions=2)
    before = [numbered(i) for i in range(20)]
    confluent.write(kafka.bootstrap, TOPIC, before)
    busy = import_table(path, kafka.data_dir)
    assert busy.returncode == 1 and "is in use: stop the broker that has it" in busy.stderr, busy.stderr
    kafka.stop()
    done = import_table(path, kafka.data_dir, "--compression", "lz4")
    assert done.returncode == 0, done.stderr
    left = kafka.data_dir / f"{TOPIC}-0.{b'minikafka in'.hex()}{0:08d}-delete"  # as an import that was killed
    (left / "runs").mkdir(parents=True)
    (left / "runs" / "000000.batches").write_bytes(b"half a bat")
    kafka.start()
    ends = [confluent.latest(kafka.bootstrap, TOPIC, partition=partition) for partition in (0, 1)]
    assert sum(ends) == len(before) + len(records) and min(ends) > 500
    (first, *_), found = before, Confluent().read_all(kafka.bootstrap, {TOPIC: ends[0]})[TOPIC]
    assert [each.offset for each in found] == list(range(ends[0])) and found[0].key == first.key
    contents = [(each.key, each.value, each.headers, each.timestamp_ms) for each in found[len(before) :]]
    there = set(contents)
    in_order = [tuple(each) for each in records if tuple(each) in there]
    assert contents == in_order, "as the table has them"
    assert confluent.write(kafka.bootstrap, TOPIC, [numbered(1)]) == [ends[0]]
    log = kafka.log_text()
    assert "Found directory" not in log and "recover" not in log.lower().replace("recovery point", "")
    last = Consumed(ends[0], *numbered(1))  # type: ignore[arg-type]
    assert Confluent().read_all(kafka.bootstrap, {TOPIC: ends[0] + 1})[TOPIC][-1] == last


def test_apache_kafka_does_not_start_on_an_import_that_is_half_in_place(kafka: KafkaProcess) -> None:
    kafka.stop()
    unfinished = kafka.data_dir / UNFINISHED_IMPORT
    unfinished.mkdir()
    with pytest.raises(AssertionError, match="the broker ended with code 1"):
        kafka.start()
    unfinished.rmdir()
    kafka.start()
