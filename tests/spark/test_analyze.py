"""``minikafka analyze`` on directories: what stock clients wrote, what is made here, damage, replicas.

One broker's directory is analysed once, and every figure of it compared with plain Python that reads the same
files; the same analysis is then shown by a browser.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet

from minikafka.cli.analyze import print_summary
from minikafka.cli.main import main
from minikafka.log.checkpoint import REPLICATION_OFFSET_CHECKPOINT
from minikafka.log.segment.indexes import AbortedTransaction
from minikafka.protocol.internal.group_record_codec import encode_record
from minikafka.protocol.internal.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from minikafka.protocol.records.batch import LOG_OVERHEAD, BatchHeader, iterate_headers, read_header
from minikafka.protocol.records.compression import CompressionType, compress, decompress
from minikafka.protocol.records.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_batch,
    iterate_records,
)
from minikafka.spark.analyze import report
from minikafka.spark.analyze.analysis import Analysis, Partition, Topic, encode
from minikafka.spark.analyze.findings import where
from minikafka.spark.analyze.inputs import NamedDirectory
from minikafka.spark.analyze.job import Request, analyze, prepare
from minikafka.spark.analyze.report import write_tables
from tests.integration.support import confluent
from tests.integration.support.chromium import distinct_lines, show
from tests.integration.support.cluster import ProcessCluster, SqliteEngine
from tests.integration.support.confluent import wait_until
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import CODECS, every_shape
from tests.integration.support.records import Record as Sent
from tests.spark import analysis_model as model
from tests.spark.analysis_model import Row
from tests.spark.conftest import CONF, MASTER
from tests.spark.logs import NOW_MS, LogDir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTILE = '<img src=x onerror="document.title=1">&amp;'
DAY_MS = 86_400_000


def analysed(spark: SparkSession, *directories: Path, topics: tuple[str, ...] = ()) -> Analysis:
    named = tuple(NamedDirectory(str(each)) for each in directories)
    overrides = {"*": {"retention.ms": str(DAY_MS)}, "built": {"cleanup.policy": "compact"}}
    prepared = prepare(Request(named, topics=topics, topic_overrides=overrides if not topics else {}))
    return analyze(spark, prepared, now_ms=NOW_MS + DAY_MS + 5, phase=lambda _: nullcontext())


def made(
    offset: int,
    count: int,
    *,
    commits: bool | None = None,
    codec: int = 0,
    time_ms: int = NOW_MS,
    **header: Any,
) -> bytes:
    """A batch with a key and a value for each offset; with ``commits`` a marker."""
    records = [Record(at, time_ms + at, b"k%d" % (at % 4), b"v" * at) for at in range(offset, offset + count)]
    if commits is not None:
        end = EndTransactionMarker(ControlRecordType(commits), 0)
        records = [Record(offset, time_ms + offset, end.key(), end.value())]
    if "producer_id" in header:
        header = {"producer_epoch": 0, "base_sequence": -1 if commits is not None else offset} | header
    return build_batch(
        records, base_offset=offset, compression=CompressionType(codec), control=commits is not None, **header
    )


def built_batches() -> list[bytes]:
    """A log with everything in it that a clean one has not; some offsets are missing."""
    return [
        made(0, 5, leader_epoch=1),
        made(5, 3, producer_id=7, leader_epoch=1),
        made(8, 3, producer_id=7, base_sequence=5, leader_epoch=1),  # the one before once more
        made(11, 2, producer_id=9, transactional=True, leader_epoch=1),
        made(13, 1, commits=True, producer_id=9, transactional=True, leader_epoch=1),
        made(14, 4, producer_id=9, transactional=True, leader_epoch=3, codec=CompressionType.ZSTD),
        made(18, 1, commits=False, producer_id=9, transactional=True, leader_epoch=3),
        made(25, 2, producer_id=11, transactional=True, leader_epoch=3),  # open; 19 to 24 are missing
        made(27, 10, time_ms=NOW_MS - 60_000, leader_epoch=4),  # a minute late
    ]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three topics that clients wrote, one in every codec, and one that is made here, with damage."""
    data = tmp_path_factory.mktemp("analysed") / "data"
    broker = BrokerProcess(data).start()
    try:
        confluent.make_topic(broker.bootstrap, "shapes", partitions=2)
        confluent.write(broker.bootstrap, "shapes", every_shape(), partition=0, compression_type="zstd")
        confluent.make_topic(broker.bootstrap, "codecs")
        for codec in CODECS:
            values = [f"{codec} {number} ".encode() * 40 for number in range(50)]
            records = [Sent(b"k%d" % (number % 9), value) for number, value in enumerate(values)]
            confluent.write(broker.bootstrap, "codecs", records, compression_type=codec, linger_ms=50)
        confluent.make_topic(broker.bootstrap, "hostile")
        hostile = [Sent(HOSTILE.encode(), b"v")] * 3 + [Sent(b"\xff\x00", None)] * 2
        confluent.write_one_batch_each(broker.bootstrap, "hostile", hostile, enable_idempotence=True)
    finally:
        broker.close()
    meta = (data / "meta.properties").read_bytes()
    logs = LogDir(data)
    logs.segment("built", [*built_batches()])
    damaged = bytearray(made(37, 2, leader_epoch=4))
    damaged[-3] ^= 0xFF
    logs.segment("built", [bytes(damaged), made(39, 1, leader_epoch=4)], base_offset=37)
    (data / "meta.properties").write_bytes(meta)
    return data


@pytest.fixture(scope="module")
def analysis(spark: SparkSession, directory: Path) -> Analysis:
    return analysed(spark, directory)


def read_batches(
    directory: Path, topic: str, partition: int = 0
) -> tuple[list[Row], list[model.Record], list[bytes]]:
    """A partition's whole batches as the model wants them, its records, and the batches' bytes."""
    rows, records, batches = [], [], []
    for path in sorted((directory / f"{topic}-{partition}").glob("*.log")):
        data = path.read_bytes()
        for position, header in iterate_headers(data):
            whole = data[position : position + header.size]
            if path.name == "00000000000000000037.log" and position == 0:
                continue  # the damaged one
            batches.append(whole)
            found = list(iterate_records(whole))
            rows.append(row_of(topic, partition, path.name, position, header, whole))
            if not header.is_control:
                records += [
                    model.Record(topic, partition, each.offset, each.key, each.value) for each in found
                ]
    return rows, records, batches


def row_of(topic: str, partition: int, segment: str, position: int, header: BatchHeader, whole: bytes) -> Row:
    control_type = None
    if header.is_control:
        (record,) = iterate_records(whole)
        assert record.key is not None
        control_type = "COMMIT" if record.key[3] == 1 else "ABORT"
    return {
        "topic": topic,
        "partition": partition,
        "segment": segment,
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "leader_epoch": header.partition_leader_epoch,
        "codec": CompressionType(header.compression).name.lower(),
        "records": header.record_count,
        "timestamp_type": int(header.timestamp_type),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "control_type": control_type,
        "delete_horizon": header.delete_horizon_ms,
    }


def topic_of(analysis: Analysis, name: str) -> Topic:
    (topic,) = (each for each in analysis.topics if each.name == name)
    return topic


@pytest.mark.parametrize("topic", ["shapes", "codecs", "hostile", "built"])
def test_every_figure_is_that_of_plain_python(analysis: Analysis, directory: Path, topic: str) -> None:
    found = topic_of(analysis, topic).partitions[0]
    rows, records, batches = read_batches(directory, topic)
    check_headers(found, rows)
    check_records(found, records)
    trial = found.trial
    assert trial is not None
    data = [each for each in batches if not read_header(each).is_control]
    assert trial.batches == len(data)  # few enough for the sample to have all
    plain = [
        decompress(memoryview(each)[61:], read_header(each).compression, bytes_max=1 << 30) for each in data
    ]
    assert trial.stored_bytes == sum(map(len, data))
    assert trial.plain_bytes == sum(61 + len(each) for each in plain)
    for codec in CompressionType:
        expected = sum(61 + len(compress(each, codec)) for each in plain)
        assert trial.bytes_by_codec[codec.name.lower()] == expected
        assert trial.saved_by_codec[codec.name.lower()] == trial.stored_bytes - expected


def check_headers(found: Partition, rows: list[Row]) -> None:
    totals = model.totals(rows)
    for name in ("records", "bytes", "batches", "control_batches", "first_offset"):
        assert getattr(found, name) == totals[name], name
    assert found.log_end_offset == totals["last_offset"] + 1
    data = model.data(rows)
    assert found.fill is not None
    assert found.fill.records_mean == totals["records"] / len(data)
    assert found.fill.bytes_mean == totals["data_bytes"] / len(data)
    assert found.fill.fill == totals["filled_bytes"] / len(data) / model.BATCH_SIZE
    assert found.fill.fill <= 1
    assert found.fill.records_p50 == model.nth((row["records"] for row in data), 0.5)
    assert found.fill.bytes_p99 == model.nth((row["size"] for row in data), 0.99)
    assert found.fill.single_record_batches == totals["single_record_batches"]
    assert {use.codec: (use.batches, use.records, use.bytes) for use in found.codecs} == {
        codec: (use["batches"], use["records"], use["bytes"])
        for codec, use in model.grouped(rows, "codec", control=False).items()
    }
    assert {each.epoch: msgspec.to_builtins(each) for each in found.epochs} == {
        epoch: {name: value for name, value in each.items() if name != "bytes"} | {"epoch": epoch}
        for epoch, each in model.grouped(rows, "leader_epoch", control=True).items()
    }
    assert [msgspec.to_builtins(each) for each in found.gaps.first] == model.gaps(rows)
    assert found.gaps.missing == sum(each["missing"] for each in model.gaps(rows))
    assert found.gaps.missing_inside == totals["missing_inside"]
    late = model.disorder(rows)
    times = found.timestamps
    assert (times.first_ms, times.last_ms) == (totals["first_timestamp"], totals["last_timestamp"])
    assert (times.late_batches, times.late_records) == (late["late_batches"], late["late_records"])
    assert times.late_max_ms == (late["late_max_ms"] or 0)
    assert [msgspec.to_builtins(each) for each in found.duplicates.first] == model.duplicates(rows)
    transactions = model.transactions(rows)
    for state in ("committed", "aborted", "open", "empty"):
        assert getattr(found.transactions, state) == sum(each["state"] == state for each in transactions)
    assert found.transactions.aborted_records == sum(
        each["records"] for each in transactions if each["state"] == "aborted"
    )
    assert sum(bucket.records for bucket in found.throughput) == totals["records"]


def check_records(found: Partition, records: list[model.Record]) -> None:
    assert found.sizes is not None and found.keys is not None
    assert found.sizes.records == len(records)
    assert found.sizes.bytes == sum(record.size for record in records)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)):
        exact = model.nth((record.size for record in records), share)
        assert exact is not None
        assert abs(found.sizes.quantiles[name] - exact) <= 0.011 * exact + 1
    keys, figures = found.keys, model.keys(records)
    for name in (
        "keys",
        "keys_once",
        "records_max",
        "superseded_records",
        "superseded_bytes",
        "newest_tombstones",
    ):
        assert getattr(keys, name) == figures[name], name
    assert keys.null_key_records == sum(record.key is None for record in records)
    assert keys.tombstones == sum(record.value is None for record in records)
    assert [(top.records, top.bytes) for top in keys.top] == [top[1:] for top in model.top_keys(records, 10)]


def test_what_is_wrong_with_a_log_is_found(analysis: Analysis, directory: Path) -> None:
    built = topic_of(analysis, "built").partitions[0]
    (duplicate,) = built.duplicates.first
    assert (duplicate.producer_id, duplicate.first_offset, duplicate.last_offset) == (7, 5, 8)
    assert [(each.producer_id, each.first_offset) for each in built.transactions.first_open] == [(11, 25)]
    gaps = [(gap.after_offset, gap.before_offset, gap.missing) for gap in built.gaps.first]
    assert gaps == [(18, 25, 6), (36, 39, 2)]
    assert built.timestamps.late_max_ms == 60_000 - 27 + 26
    (damage,) = built.damage
    assert (damage.segment, damage.position) == ("00000000000000000037.log", 0)
    assert damage.log_dir == str(directory)
    assert "CRC" in damage.what
    assert topic_of(analysis, "shapes").partitions[0].damage == []


def test_who_wrote_a_topic_is_known_by_the_ids_of_producers(analysis: Analysis, tmp_path: Path) -> None:
    topic = topic_of(analysis, "built")
    found = {
        each.producer_id: (each.records, each.batches, each.is_transactional) for each in topic.producers
    }
    assert found == {None: (16, 3, False), 7: (6, 2, False), 9: (6, 2, True), 11: (2, 1, True)}
    assert [each.codecs for each in topic.producers if each.producer_id == 9] == [["none", "zstd"]]
    assert topic.producers_left_out == 0
    write_tables(analysis, str(tmp_path))
    rows = pyarrow.parquet.read_table(tmp_path / "producers.parquet").to_pylist()
    assert {row["producer_id"]: row["records"] for row in rows if row["topic"] == "built"} == {
        each: figures[0] for each, figures in found.items()
    }


def test_settings_say_where_they_come_from(analysis: Analysis) -> None:
    built = topic_of(analysis, "built").partitions[0].retention
    assert not built.applies and built.due_segments == 0
    assert built.settings["cleanup.policy"].source == "given for built"
    shapes = topic_of(analysis, "shapes").partitions[0].retention
    assert shapes.settings["retention.ms"].source == "given for all topics"
    assert shapes.settings["retention.bytes"].source == "Kafka's default"


def test_partitions_without_records_are_there_with_zeros(analysis: Analysis) -> None:
    empty = topic_of(analysis, "shapes").partitions[1]
    assert (empty.records, empty.bytes, empty.log_end_offset, empty.keys, empty.trial) == (
        0,
        0,
        None,
        None,
        None,
    )


def test_json_and_tables_hold_the_same(analysis: Analysis, tmp_path: Path) -> None:
    assert msgspec.json.decode(encode(analysis), type=Analysis) == analysis
    write_tables(analysis, str(tmp_path))
    table = pyarrow.parquet.read_table(tmp_path / "partitions.parquet").to_pylist()
    partitions = [each for topic in analysis.topics for each in topic.partitions]
    assert [(row["topic"], row["partition"], row["records"]) for row in table] == [
        (each.topic, each.partition, each.records) for each in partitions
    ]
    assert [row["keys_superseded_records"] for row in table] == [
        each.keys and each.keys.superseded_records for each in partitions
    ]
    top = pyarrow.parquet.read_table(tmp_path / "top_keys.parquet").to_pylist()
    assert {row["key"] for row in top if row["topic"] == "hostile"} == {HOSTILE, "0xff00"}


def test_the_command_shows_progress_a_table_and_what_it_wrote(
    shared_session: SparkSession, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, series = tmp_path / "out", tmp_path / "analyze.prom"
    options = ["--topic", "built", "--output", str(out), "--metrics-file", str(series)]
    assert main(["analyze", str(directory), *options]) == 0
    said = capsys.readouterr()
    assert re.search(r"^records and keys: \d+\.\d s$", said.err, re.MULTILINE)
    assert re.search(r"│ built +│ +1 │ +30 │", said.out)
    place = f"{directory}/built-0/00000000000000000037.log at 0"
    assert f"built-0: damaged: {place}: its CRC-32C is wrong" in said.out
    assert "built-0: 1 repeated batch" in said.out
    names = {"report.html", "report.json", "partitions.parquet", "top_keys.parquet"}
    assert names <= {path.name for path in out.iterdir()}
    assert 'minikafka_spark_records{spark_job="analyze",topic="built"} 30.0' in series.read_text()


def test_batches_above_the_producers_batch_size_are_full(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """librdkafka makes batches of up to 1 MB, Java of 16 KiB: there was "fill 5049%"."""
    log = LogDir(tmp_path / "log")
    large = build_batch([Record(0, NOW_MS, b"k", b"v" * 800_000)], base_offset=0)
    small = build_batch([Record(1, NOW_MS, b"k", b"v" * 100)], base_offset=1)
    log.segment("large", [large, small])
    analysis = analysed(spark, log.path, topics=("large",))
    fill = topic_of(analysis, "large").partitions[0].fill
    assert fill is not None
    assert fill.fill == (1 + len(small) / model.BATCH_SIZE) / 2
    print_summary(analysis, [])
    assert f"│ {fill.fill:.0%} │" in re.sub(" +", " ", capsys.readouterr().out)


def test_a_group_that_retention_overtakes_is_found_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Its newest commit counts, and not one of a transaction that was aborted."""
    log = LogDir(tmp_path / "log")
    log.segment("orders", [made(10, 5, time_ms=NOW_MS)], base_offset=10)
    log.segment("orders", [made(15, 5, time_ms=NOW_MS + DAY_MS)], base_offset=15)
    commits = [commit("packing", 2), commit("packing", 12), commit("reading", 3), commit("done", 20)]
    records = [Record(at, NOW_MS, *each) for at, each in enumerate(commits)]
    aborted = [Record(4, NOW_MS, *commit("packing", 20))]
    log.segment(
        "__consumer_offsets",
        [
            build_batch(records, base_offset=0),
            build_batch(aborted, base_offset=4, producer_id=9, producer_epoch=0, transactional=True),
            made(5, 1, commits=False, producer_id=9, transactional=True),
        ],
    )
    log.aborted("__consumer_offsets", 0, [AbortedTransaction(9, 4, 5, 5)])
    overrides = {"orders": {"retention.ms": str(DAY_MS)}}
    prepared = prepare(Request((NamedDirectory(str(log.path)),), topic_overrides=overrides))
    analysis = analyze(spark, prepared, now_ms=NOW_MS + DAY_MS, phase=lambda _: nullcontext())
    assert [(each.group_id, each.offset) for each in analysis.committed] == [
        ("done", 20),
        ("packing", 12),
        ("reading", 3),
    ]
    found = [(each.severity, each.code, where(each)) for each in analysis.findings]
    assert found == [
        ("error", "records-lost", "orders-0"),
        ("warning", "records-at-risk", "orders-0"),
    ]


def commit(group: str, offset: int) -> tuple[bytes, bytes | None]:
    value = OffsetCommitValue(offset=offset, leader_epoch=-1, metadata="", commit_timestamp_ms=NOW_MS)
    return encode_record(GroupRecord(OffsetCommitKey(group, "orders", 0), value))


def test_a_log_that_grows_meanwhile_is_analysed_up_to_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Else more records had a newer one of their key than there were records."""
    log = LogDir(tmp_path / "log")
    batches = [build_batch([Record(at, NOW_MS, b"k", b"v")], base_offset=at) for at in range(10)]
    segment = log.segment("growing", batches[:3], with_indexes=False)

    def phase(name: str) -> AbstractContextManager[None]:
        if name == "records and keys":
            segment.write_bytes(b"".join(batches))
        return nullcontext()

    prepared = prepare(Request((NamedDirectory(str(log.path)),)))
    analysis = analyze(spark, prepared, now_ms=NOW_MS, phase=phase)
    topic = topic_of(analysis, "growing")
    assert (topic.records, topic.superseded_records) == (3, 2)


@pytest.mark.parametrize("when", ["it starts", "it reads"])
def test_ctrl_c_ends_it_without_a_traceback(java: None, directory: Path, when: str) -> None:
    """Of the whole foreground process group, as a terminal does it; the status is a shell's for SIGINT."""
    conf = [f"--conf={name}={value}" for name, value in CONF.items()]
    # What a shell starts in the background ignores SIGINT, and so does all that comes of it.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "minikafka.cli.main", "analyze"]
    process = subprocess.Popen(
        [*command, str(directory), "--master", MASTER, *conf],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = ""
    if when == "it reads":
        said = process.stdout.readline()
        assert "batch headers" in said
    else:
        wait_until(lambda: "java" in children_of(process.pid), "the JVM runs")
    os.killpg(process.pid, signal.SIGINT)
    said += process.communicate(timeout=600)[0]
    assert "Traceback" not in said and "py4j" not in said.lower(), said
    assert process.returncode == 130


def children_of(pid: int) -> list[str]:
    """The names of the programs that a process has started. They and its threads may end meanwhile."""
    names = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in (task / "children").read_text().split():
                names.append(Path(f"/proc/{child}/comm").read_text().strip())
    return names


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not there")
async def test_a_browser_draws_the_report_without_a_network(analysis: Analysis, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(report.render(analysis), encoding="utf-8")
    shown = await show(page.as_uri(), tmp_path, virtual_ms=10_000)
    names = [topic.name for topic in analysis.topics]
    assert [row[0] for row in shown.tables["topics"]] == names
    assert shown.row("topics", "codecs")[2] == "250"
    number = names.index("hostile")
    assert [row[1] for row in shown.tables[f"topic-{number}-top-keys"]] == [HOSTILE, "0xff00"]
    assert "img" not in shown.tags
    html = page.read_text(encoding="utf-8")
    charts = len(re.findall(r'class="plotly-graph-div"', html))
    assert charts > len(names)
    assert shown.tags.count("svg") >= charts  # plotly has drawn each of them
    assert distinct_lines(tmp_path / "page.png") > 200
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", html.split("</script>")[-1])
    assert "default-src 'none'" in html


def test_replicas_are_the_same_until_a_byte_is_not(spark: SparkSession, tmp_path: Path) -> None:
    with cluster(tmp_path) as brokers:
        confluent.make_topic(brokers.bootstrap, "orders", partitions=2, replicas=3)
        for partition in (0, 1):
            confluent.write(
                brokers.bootstrap, "orders", every_shape(), partition=partition, batch_num_messages=20
            )
        directories = [broker.data_dir for broker in brokers.brokers.values()]
        confluent.wait_until(
            lambda: all(has_checkpoint(each, "orders", 2, len(every_shape())) for each in directories),
            "every broker has written that all of it is committed",
        )
    analysis = analysed(spark, *directories, topics=("orders",))
    assert analysis.replicas is not None
    assert [(each.partition, each.brokers, each.differences) for each in analysis.replicas] == [
        (0, [1, 2, 3], 0),
        (1, [1, 2, 3], 0),
    ]
    assert topic_of(analysis, "orders").records == 2 * len(every_shape())  # of one replica
    for compared in analysis.replicas:
        rows, _, _ = read_batches(directories[0], "orders", compared.partition)
        assert (compared.batches, compared.to_offset) == (len(rows), len(every_shape()))

    (path,) = (directories[1] / "orders-1").glob("*.log")
    data = bytearray(path.read_bytes())
    position, header = list(iterate_headers(data))[3]
    data[position + LOG_OVERHEAD + 80] ^= 1
    path.write_bytes(data)
    analysis = analysed(spark, *directories, topics=("orders",))
    assert analysis.replicas is not None
    same, other = analysis.replicas
    assert (same.differences, other.differences) == (0, 1)
    assert other.first is not None
    assert other.first.offset == header.base_offset
    assert "broker 2" in other.first.what
    crcs = {each.broker: (each.stored_crc, each.actual_crc) for each in other.first.batches}
    assert crcs[1] == crcs[3] == (header.crc, header.crc)
    assert crcs[2][0] == header.crc != crcs[2][1]
    named = {each.broker: (each.file, each.position) for each in other.first.batches}
    assert named[2] == (str(path), position)


def has_checkpoint(directory: Path, topic: str, partitions: int, high_watermark: int) -> bool:
    path = directory / REPLICATION_OFFSET_CHECKPOINT
    lines = path.read_text().splitlines() if path.exists() else []
    return {f"{topic} {each} {high_watermark}" for each in range(partitions)} <= set(lines)


@contextmanager
def cluster(directory: Path) -> Iterator[ProcessCluster]:
    """Three brokers; afterwards they have stopped cleanly."""
    brokers = ProcessCluster(
        directory,
        SqliteEngine(directory),
        properties={"replica.high.watermark.checkpoint.interval.ms": 200},
    ).start()
    try:
        yield brokers
        for broker in brokers.brokers.values():
            broker.stop()
    finally:
        brokers.close()
