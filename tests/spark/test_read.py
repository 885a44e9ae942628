"""The data sources in Spark: what stock clients wrote through a broker is what the DataFrame holds; filters,
schemas, errors as a user meets them; streams that stop and go on.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import ControlRecordType
from minikafka.spark import register
from minikafka.types import TopicPartition
from tests.integration.support.clients import Aiokafka, Client, Confluent, KafkaPython, Kcat
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import CODECS
from tests.integration.test_every_client_and_codec import records_for
from tests.spark.logs import NOW_MS, LogDir, batch, marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    """The session, with the data sources."""
    register(spark)
    return spark


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("read") / "data", properties={"num.partitions": "1"})
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture
def logs(tmp_path: Path) -> LogDir:
    return LogDir(tmp_path / "logs")


def read(source: SparkSession, path: Path, *columns: str, **options: str) -> DataFrame:
    reader = source.read.format("kafka-log").options(**options)
    if columns:
        reader = reader.option("columns", ",".join(columns))
    return reader.load(str(path))


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.05)


# What clients wrote


def test_a_dataframe_holds_what_a_consumer_sees(source: SparkSession, broker: BrokerProcess) -> None:
    """Every client with every codec and every shape of key, value, headers and timestamp; read while the
    broker runs."""
    clients: list[Client] = [Confluent(), Aiokafka(), KafkaPython()]
    if shutil.which("kcat"):
        clients.append(Kcat())
    counts = {}
    for client in clients:
        records = records_for(client)
        writes = {f"{client.name}-{codec}": (codec, records) for codec in client.codecs}
        client.write_all(broker.bootstrap, writes)
        counts |= dict.fromkeys(writes, len(records))
    assert len(counts) >= 3 * len(CODECS)
    consumed = Confluent().read_all(broker.bootstrap, counts)
    rows = read(
        source, broker.data_dir, includeHeaders="true", subscribe=",".join(counts), latest="logEnd"
    ).collect()
    found: dict[str, list[Any]] = {topic: [] for topic in counts}
    for row in rows:
        found[row.topic].append(row)
    for topic, seen in consumed.items():
        its_rows = sorted(found[topic], key=lambda row: row.offset)
        assert [_content(row) for row in its_rows] == [
            (each.offset, each.key, each.value, each.headers, each.timestamp_ms) for each in seen
        ]
        # Some clients leave a batch alone that would not become smaller.
        assert topic.rsplit("-", 1)[1] in (codecs := {row.codec for row in its_rows})
        assert codecs <= {topic.rsplit("-", 1)[1], "none"}
    assert {row.timestampType for row in rows} == {0}
    assert {row.partition for row in rows} == {0}


def _content(row: Any) -> tuple[Any, ...]:
    key = None if row.key is None else bytes(row.key)
    value = None if row.value is None else bytes(row.value)
    headers = tuple((name, None if each is None else bytes(each)) for name, each in row.headers or ())
    milliseconds = round(row.timestamp.timestamp() * 1000)
    return row.offset, key, value, headers, milliseconds


def test_a_stopped_brokers_directory_has_it_all(source: SparkSession, tmp_path: Path) -> None:
    """Its checkpoints are complete then, so the default reads to the high watermark, and that is the end."""
    process = BrokerProcess(tmp_path / "data", properties={"num.partitions": "1"})
    try:
        process.start()
        records = records_for(Confluent())
        Confluent().write_all(process.bootstrap, {"orders": ("none", records)})
        process.stop()
    finally:
        process.close()
    for latest in ("auto", "highWatermark"):
        assert read(source, tmp_path / "data", "offset", latest=latest).count() == len(records)


# Columns and filters


def test_columns_are_chosen_by_schema_or_option(source: SparkSession, logs: LogDir) -> None:
    logs.segment("t", [batch(0, 3, codec=CompressionType.LZ4)])
    assert read(source, logs.path).columns[:7] == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    by_schema = source.read.format("kafka-log").schema("offset long, value binary").load(str(logs.path))
    assert [(row.offset, bytes(row.value)) for row in by_schema.collect()] == [
        (each, b"value %d" % each) for each in range(3)
    ]
    assert read(source, logs.path, "codec", "timestamp").first().codec == "lz4"
    assert "headers" in read(source, logs.path, includeHeaders="true").columns
    assert "error" in read(source, logs.path, onCorrupt="column").columns


def test_filters_skip_what_cannot_match(source: SparkSession, logs: LogDir) -> None:
    """Segments that a filter rules out are garbage here: reading them fails."""
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        for base in (0, 100, 200):
            path = logs.segment(topic, [batch(base, 100)], partition=partition)
            if (topic, partition, base) != ("t", 1, 100):
                path.write_bytes(b"x" * path.stat().st_size)
    frame = read(source, logs.path)
    one = frame.where("topic = 't' and partition = 1 and offset >= 100 and offset < 150")
    assert one.count() == 50
    assert one.where(F.col("offset").isin(120, 130)).count() == 2
    with pytest.raises(PySparkException, match=r"t-0/0{20}\.log, position 0: no batch"):
        frame.where("topic = 't'").count()


def test_timestamps_skip_segments_too(source: SparkSession, logs: LogDir) -> None:
    for base in (0, 100, 200):
        path = logs.segment("t", [batch(base, 100)])
        if base == 0:
            path.write_bytes(b"x" * path.stat().st_size)
    since = F.timestamp_millis(F.lit(NOW_MS + 150))
    frame = read(source, logs.path, "offset", "timestamp").where(F.col("timestamp") >= since)
    assert sorted(row.offset for row in frame.collect()) == list(range(150, 300))


def test_filters_are_left_to_spark_where_the_session_says_so(source: SparkSession, logs: LogDir) -> None:
    logs.segment("t", [batch(0, 10)])
    setting = "spark.sql.python.filterPushdown.enabled"
    source.conf.set(setting, "false")
    try:
        register(source)
        assert read(source, logs.path).where("offset > 4").count() == 5
    finally:
        source.conf.set(setting, "true")
        register(source)


def test_counting_needs_headers_only(source: SparkSession, logs: LogDir) -> None:
    """The records are garbage with the right header: they are not read."""
    path = logs.segment("t", [batch(0, 50), batch(50, 50)])
    data = bytearray(path.read_bytes())
    data[100:150] = bytes(50)
    path.write_bytes(data)
    assert read(source, logs.path, "partition").count() == 100
    assert read(source, logs.path, "offset").agg(F.max("offset")).first()[0] == 99
    with pytest.raises(PySparkException, match="its CRC is not that of its bytes"):
        read(source, logs.path, "value").count()


def test_one_large_segment_uses_every_core(source: SparkSession, logs: LogDir) -> None:
    logs.segment("t", [batch(base, 100, size=100) for base in range(0, 5000, 100)])
    frame = read(source, logs.path, "offset", "value", splitBytes="1200000")
    assert frame.rdd.getNumPartitions() == 1
    small = read(source, logs.path, "offset", "value", splitBytes="100000")
    assert small.rdd.getNumPartitions() > 4
    assert sorted(row.offset for row in small.select("offset").collect()) == list(range(5000))


def test_read_committed_in_a_dataframe(source: SparkSession, logs: LogDir) -> None:
    logs.segment(
        "t",
        [
            batch(0, 2, producer_id=1, transactional=True),
            batch(2, 2, producer_id=2, transactional=True),
            marker(4, 1, ControlRecordType.ABORT),
            marker(5, 2, ControlRecordType.COMMIT),
            batch(6, 2),
            batch(8, 1, producer_id=3, transactional=True),
            batch(9, 1),
        ],
    )
    committed = read(source, logs.path, "offset", isolation="read_committed")
    assert [row.offset for row in committed.collect()] == [2, 3, 6, 7]
    assert read(source, logs.path, "offset").count() == 8


def test_batches_are_rows(source: SparkSession, logs: LogDir) -> None:
    logs.segment("t", [batch(0, 3, codec=CompressionType.ZSTD), batch(3, 2)])
    frame = source.read.format("kafka-log-batches").load(str(logs.path))
    assert "crc_ok" not in frame.columns
    assert frame.agg(F.sum("records")).first()[0] == 5
    checked = source.read.format("kafka-log-batches").option("columns", "base_offset,codec,crc_ok")
    assert [tuple(row) for row in checked.load(str(logs.path)).collect()] == [
        (0, "zstd", True),
        (3, "none", True),
    ]


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "bills"}, "UnknownTopic: bills: not in "),
        ({"unknown": "1"}, "BadOption: there is no option 'unknown'"),
        ({"columns": "ofset"}, "UnknownColumn: there is no column 'ofset'"),
        ({"startingOffsets": '{"x":{"0":1}}'}, "BadOffsets: startingOffsets names x-0, which is not read"),
    ],
)
def test_errors_say_what_is_wrong(
    source: SparkSession, logs: LogDir, options: dict[str, str], message: str
) -> None:
    logs.segment("t", [batch(0, 3)])
    with pytest.raises(PySparkException, match=message):
        read(source, logs.path, **options).count()


def test_a_directory_that_is_none_and_a_type_that_cannot_be(
    source: SparkSession, logs: LogDir, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(PySparkException, match="other is not a log directory"):
        read(source, tmp_path / "other").count()
    logs.segment("t", [batch(0, 3)])
    reader = source.read.format("kafka-log").schema("offset string")
    with pytest.raises(PySparkException, match="column 'offset' is bigint, it cannot be read as string"):
        reader.load(str(logs.path)).count()


def test_a_topic_without_data_has_no_rows(source: SparkSession, logs: LogDir) -> None:
    logs.partition("t")
    logs.partition("u").joinpath(f"{0:020d}.log").write_bytes(b"")
    frame = read(source, logs.path)
    assert frame.count() == 0
    assert frame.columns[0] == "key"


def test_damage_can_be_a_column(source: SparkSession, logs: LogDir) -> None:
    path = logs.segment("t", [batch(0, 3), batch(3, 3), batch(6, 3)])
    data = bytearray(path.read_bytes())
    data[len(batch(0, 3)) + 70] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException, match=r"CorruptLog: .*t-0/0{20}\.log, position \d+: its CRC"):
        read(source, logs.path).collect()
    frame = read(source, logs.path, onCorrupt="column")
    assert [row.offset for row in frame.where("error is null").collect()] == [0, 1, 2, 6, 7, 8]
    (damage,) = frame.where("error is not null").collect()
    assert (damage.topic, damage.batch_offset, damage.offset) == ("t", 3, None)


# Streams


WORKER_IS_SLOW = "Python worker failed to connect back"
"""Spark gives a data source's process 10 s to start, however busy the machine is; the query goes on then."""
TRIES_MAX = 4


class Stream:
    """A query whose micro-batches are kept, as (topic, partition, offset). A query that is stopped may do its
    last one again, and must find the same in it."""

    def __init__(self, source: SparkSession, logs: Path, checkpoint: Path) -> None:
        self._source, self._logs, self._checkpoint = source, logs, checkpoint
        self._batches: dict[int, list[tuple[str, int, int]]] = {}

    @property
    def batches(self) -> list[list[tuple[str, int, int]]]:
        return [rows for _, rows in sorted(self._batches.items())]

    @property
    def offsets(self) -> list[int]:
        return [row[2] for rows in self.batches for row in rows]

    def run_to_the_end(self, **options: str) -> list[tuple[str, int, int]]:
        """What is there now, in this run."""
        before = len(self.batches)
        for tries_left in reversed(range(TRIES_MAX)):
            query = self.start(trigger={"availableNow": True}, **options)
            try:
                assert query.awaitTermination(DEADLINE_S)
                break
            except PySparkException as error:
                if WORKER_IS_SLOW not in str(error) or not tries_left:
                    raise
        return sorted(row for rows in self.batches[before:] for row in rows)

    def start(self, trigger: dict[str, Any], **options: str) -> Any:
        reader = self._source.readStream.format("kafka-log").schema(
            "topic string, partition int, offset long"
        )
        reader = reader.options(**{"startingOffsets": "earliest", **options})
        writer = reader.load(str(self._logs)).writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = [(row.topic, row.partition, row.offset) for row in frame.collect()]
        assert self._batches.setdefault(number, rows) == rows


def test_a_stream_continues_where_it_stopped(source: SparkSession, logs: LogDir, tmp_path: Path) -> None:
    """Records, partitions and topics are added between its runs; each row is seen once."""
    path = logs.segment("t", [batch(0, 10)])
    stream = Stream(source, logs.path, tmp_path / "checkpoint")
    assert stream.run_to_the_end() == [("t", 0, each) for each in range(10)]
    assert stream.run_to_the_end() == []
    with path.open("ab") as file:
        file.write(batch(10, 5))
    logs.segment("t", [batch(0, 2)], partition=1)
    logs.segment("u", [batch(0, 1)])
    assert stream.run_to_the_end() == [
        *(("t", 0, each) for each in range(10, 15)),
        ("t", 1, 0),
        ("t", 1, 1),
        ("u", 0, 0),
    ]
    offsets = max((tmp_path / "checkpoint/offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    assert '{"t":{"0":15,"1":2},"u":{"0":1}}' in offsets.read_text().replace(" ", "")


def test_a_stream_takes_no_more_than_it_is_told(source: SparkSession, logs: LogDir, tmp_path: Path) -> None:
    logs.segment("t", [batch(base, 10) for base in range(0, 100, 10)])
    stream = Stream(source, logs.path, tmp_path / "checkpoint")
    rows = stream.run_to_the_end(maxOffsetsPerTrigger="40")
    assert rows == [("t", 0, each) for each in range(100)]
    assert [len(each) for each in stream.batches] == [40, 40, 20]


def test_a_stream_ends_at_what_is_committed(source: SparkSession, logs: LogDir, tmp_path: Path) -> None:
    logs.segment("t", [batch(0, 5), batch(5, 2, producer_id=1, transactional=True), batch(7, 3)])
    stream = Stream(source, logs.path, tmp_path / "checkpoint")
    more = {"isolation": "read_committed"}
    logs.high_watermarks({TopicPartition("t", 0): 3})
    assert [row[2] for row in stream.run_to_the_end(**more)] == [0, 1, 2]
    logs.high_watermarks({TopicPartition("t", 0): 10})
    assert [row[2] for row in stream.run_to_the_end(**more)] == [3, 4]
    with (logs.partition("t") / f"{0:020d}.log").open("ab") as file:
        file.write(marker(10, 1, ControlRecordType.ABORT))
    logs.high_watermarks({TopicPartition("t", 0): 11})
    assert [row[2] for row in stream.run_to_the_end(**more)] == [7, 8, 9]


def test_a_stream_notices_that_data_is_lost(source: SparkSession, logs: LogDir, tmp_path: Path) -> None:
    logs.segment("t", [batch(0, 10)])
    stream = Stream(source, logs.path, tmp_path / "checkpoint")
    stream.run_to_the_end()
    shutil.rmtree(logs.partition("t"))
    logs.segment("t", [batch(20, 10)])
    with pytest.raises(PySparkException, match="offsets 10 to 19 are no longer there"):
        stream.run_to_the_end()
    assert [row[2] for row in stream.run_to_the_end(failOnDataLoss="false")] == list(range(20, 30))
    shutil.rmtree(logs.partition("t"))
    logs.segment("t", [batch(0, 5)])
    with pytest.raises(PySparkException, match="it ended at 30 or later, now it ends at 5"):
        stream.run_to_the_end()


def test_a_stream_follows_a_running_broker(
    source: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Records arrive while the query runs, over a restart of the query."""
    records = records_for(Confluent())[:20]
    Confluent().write_all(broker.bootstrap, {"live": ("none", records)})
    stream = Stream(source, broker.data_dir, tmp_path / "checkpoint")
    for expected in (20, 40):
        query = stream.start(
            trigger={"processingTime": "100 milliseconds"}, subscribe="live", latest="logEnd"
        )
        try:
            wait_until(lambda expected=expected: len(stream.offsets) >= expected, f"{expected} records")
            Confluent().write_all(broker.bootstrap, {"live": ("zstd", records)})
            wait_until(
                lambda expected=expected: len(stream.offsets) >= expected + 20, f"{expected} + 20 records"
            )
        finally:
            query.stop()
    assert stream.offsets == list(range(60))
