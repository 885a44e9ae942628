"""``minikafka compact`` beside a running broker: a stock client writes and reads on, and misses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from pyspark.sql import SparkSession

from minikafka.cli import compact as compact_command
from minikafka.cli.compact import BrokerOfDirectory
from minikafka.cli.shared.commands import CommandError
from minikafka.errors import KafkaError
from minikafka.files import OsFiles
from minikafka.log.staged_compaction import read_manifest, write_manifest
from minikafka.spark.compact.job import Compacted, Request, compact
from minikafka.types import TopicPartition as At
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record
from tests.integration.support.verified import assert_undamaged
from tests.spark.compaction_logs import no_phase
from tests.spark.conftest import CONF, MASTER

TOPIC = "changelog"
KEYS, ROUNDS = 40, 120
PROPERTIES = {
    "log.cleaner.enable": "false",
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "log.segment.delete.delay.ms": 0,
}
CONFIG = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.compaction.lag.ms": 0}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """With a compacted topic of several segments: every key again and again, some deleted at last."""
    started = BrokerProcess(tmp_path / "broker", properties=PROPERTIES)
    try:
        started.start()
        confluent.make_topic(started.bootstrap, TOPIC, config=CONFIG)
        confluent.write(started.bootstrap, TOPIC, written(), linger_ms=20)
        until_the_high_watermark_is_noted(started)
        yield started
        assert "Traceback" not in started.log_text()
    finally:
        started.close()
    assert_undamaged(started.data_dir)


def written() -> list[Record]:
    records = [
        Record(b"key %d" % key, b"%d of round %d " % (key, number) + bytes(500))
        for number in range(ROUNDS)
        for key in range(KEYS)
    ]
    records += [Record(b"key %d" % key, None) for key in range(0, KEYS, 7)]
    return [*records, Record(b"filler", bytes(900_000)), Record(b"filler", bytes(900_000))]


def until_the_high_watermark_is_noted(broker: BrokerProcess) -> None:
    end = confluent.latest(broker.bootstrap, TOPIC)
    checkpoint = broker.data_dir / "replication-offset-checkpoint"
    confluent.wait_until(
        lambda: checkpoint.exists() and f"{TOPIC} 0 {end}\n" in checkpoint.read_text(), "the checkpoint"
    )


def newest(broker: BrokerProcess) -> tuple[dict[bytes, bytes | None], int]:
    """What a consumer has at the end of the topic, by key; and how many records it took."""
    consumer = confluent.make_consumer(broker.bootstrap)
    end = confluent.latest(broker.bootstrap, TOPIC)
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: dict[bytes, bytes | None] = {}
    count = 0
    while True:
        message = consumer.poll(30)
        assert message is not None and message.error() is None, message
        found[message.key()] = message.value()
        count += 1
        if message.offset() == end - 1:
            consumer.close()
            return found, count


class Traffic:
    """A producer that goes on writing, and a consumer that reads everything again and again."""

    def __init__(self, broker: BrokerProcess, expected: dict[bytes, bytes | None]) -> None:
        self._broker = broker
        self._expected = expected
        self._stop = threading.Event()
        self._trouble: list[BaseException] = []
        self.reads = self.writes = 0
        self._threads = [
            threading.Thread(target=self._run, args=(each,)) for each in (self._read, self._write)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self._trouble, self._trouble

    def _run(self, work: Any) -> None:
        try:
            while not self._stop.is_set():
                work()
        except BaseException as error:
            self._trouble.append(error)
            raise

    def _read(self) -> None:
        found, _ = newest(self._broker)
        assert {key: value for key, value in found.items() if not key.startswith(b"live")} == self._expected
        self.reads += 1

    def _write(self) -> None:
        confluent.write(self._broker.bootstrap, TOPIC, [Record(b"live", b"%d" % self.writes)] * 20)
        self.writes += 1
        self._stop.wait(0.05)  # so that a quiet machine does not roll segment after segment


def run(spark: SparkSession, broker: BrokerProcess, **changes: Any) -> Compacted:
    holder = holder_of(broker)
    configs = holder.topic_configs([TOPIC])
    values: dict[str, Any] = {
        "log_directory": str(broker.data_dir),
        "wanted": ((TOPIC, None),),
        "config": configs.__getitem__,
        "put_in": holder.put_in,
    }
    now_ms = 2_000_000_000_000
    (done,) = compact(spark, Request(**(values | changes)), files=OsFiles(), now_ms=now_ms, phase=no_phase)
    return done


def holder_of(broker: BrokerProcess) -> BrokerOfDirectory:
    address = ("127.0.0.1", broker.port)
    return BrokerOfDirectory([address], str(broker.data_dir), timeout_ms=30_000)


def sizes(broker: BrokerProcess) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in broker.files(TOPIC, ".log")[:-1]}


def test_a_broker_serves_on_while_its_segments_are_compacted_and_swapped(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    expected, before_count = newest(broker)
    before = sizes(broker)
    assert len(before) > 2
    with Traffic(broker, expected) as traffic:
        reads, writes = traffic.reads, traffic.writes
        done = run(spark, broker)
        confluent.wait_until(lambda: traffic.reads > reads + 1, "two more reads after the swap")
        assert traffic.writes > writes
    compacted = [size for name, size in sizes(broker).items() if int(name[:20]) < done.end_offset]
    assert sum(compacted) == done.bytes_after < done.bytes_before / 3
    assert done.records_dropped > (ROUNDS - 2) * KEYS
    found, count = newest(broker)
    assert {key: value for key, value in found.items() if key != b"live"} == expected
    assert count - traffic.writes * 20 < before_count / 2
    checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
    assert checkpoint.read_text() == f"0\n1\n{TOPIC} 0 {done.end_offset}\n"
    assert not (broker.partition_dir(TOPIC) / "compaction").exists()
    broker.kill()
    broker.start()
    assert newest(broker)[0] == found


def test_the_broker_refuses_what_does_not_fit_its_log(spark: SparkSession, broker: BrokerProcess) -> None:
    holder, files = holder_of(broker), OsFiles()
    directory, at = str(broker.partition_dir(TOPIC)), At(TOPIC, 0)
    messages = []

    def spoilt(_: At, manifest_id: str) -> None:
        """Asks for the swap of one that was spoilt, in several ways; none may be carried out."""
        manifest = read_manifest(files, directory)
        result = manifest.result
        ways = {
            "are not those any more": {
                "sources": tuple(
                    msgspec.structs.replace(each, size=each.size + 1) for each in manifest.sources
                )
            },
            "has changed since": {
                "sources": tuple(msgspec.structs.replace(each, modified_ms=1) for each in manifest.sources)
            },
            "was truncated": {"leader_epochs": ()},
            "was deleted and created again": {"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"},
            "has what job": {"id": "another"},
            "may changelog-0 be compacted": {
                "result": msgspec.structs.replace(result, end_offset=result.end_offset + 1_000_000)
            },
            "is for other-0": {"topic": "other"},
        }
        for words, changes in ways.items():
            write_manifest(files, directory, msgspec.structs.replace(manifest, **changes))
            with pytest.raises(KafkaError, match=words) as caught:
                holder.put_in(at, manifest_id)
            messages.append(caught.value.message)
        with pytest.raises(KafkaError, match="this broker has no log of nowhere-0"):
            holder.put_in(At("nowhere", 0), manifest_id)
        raise CommandError("enough")

    before = sizes(broker)
    with pytest.raises(CommandError, match="enough"):
        run(spark, broker, put_in=spoilt)
    assert len(messages) == 7 and all("run the compaction again" in (each or "") for each in messages)
    assert sizes(broker) == before
    names = {path.name for path in broker.partition_dir(TOPIC).iterdir()}
    assert "compaction" not in names and not any(name.endswith(".cleaned") for name in names)


def test_a_topic_that_is_not_compacted_is_refused(broker: BrokerProcess) -> None:
    confluent.make_topic(broker.bootstrap, "events")
    with pytest.raises(CommandError, match=r"cleanup\.policy of topic events is delete"):
        holder_of(broker).topic_configs(["events"])
    with pytest.raises(KafkaError, match=r"cleanup\.policy of events does not have compact"):
        holder_of(broker).put_in(At("events", 0), "x")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "minikafka.cli.main", "compact", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )


def test_a_directory_that_does_not_say_whose_it_is_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = tmp_path / "meta.properties"
    meta.mkdir()
    assert compact_command.main([str(tmp_path), "--topic", "t", "-b", "localhost:1"]) == 1
    assert capsys.readouterr().err == f"minikafka compact: {meta}: Is a directory\n"


def test_the_command(java: None, broker: BrokerProcess) -> None:
    """First what it refuses before it starts Spark, then the whole job."""
    directory = str(broker.data_dir)
    gone = command(directory + "/nowhere", "--topic", TOPIC)
    assert gone.returncode == 1
    assert gone.stderr == f"minikafka compact: {directory}/nowhere does not exist\n"
    address = broker.bootstrap
    settings = [f"--conf={name}={value}" for name, value in CONF.items()]
    done = command(directory, "--topic", TOPIC, "-b", address, "--master", MASTER, "--json", *settings)
    assert done.returncode == 0, done.stderr
    (compacted,) = json.loads(done.stdout)
    assert compacted["bytes_after"] < compacted["bytes_before"] / 3
    assert len(newest(broker)[0]) == KEYS + 1
