"""Files: ours read by Apache Kafka's own tools, Kafka's read by us, and both compared byte for byte."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent, java, wire
from tests.integration.support.clients import Confluent
from tests.integration.support.process import BrokerProcess, KafkaProcess
from tests.integration.support.records import CODECS, EPOCH_MS, Consumed, Record, every_shape, numbered

pytestmark = [pytest.mark.java, pytest.mark.minikafka_only]

SMALL_SEGMENTS = {"segment.bytes": 1 << 20, "index.interval.bytes": 2_000, "segment.jitter.ms": 0}
TROUBLE = re.compile("mismatch|invalid|isvalid: false|error|exception|not found|misses", re.IGNORECASE)


def written_records() -> list[Record]:
    return every_shape() + [numbered(i, size=500) for i in range(3_000)]


def write_with_every_codec(broker: BrokerProcess) -> dict[str, list[Record]]:
    """Topic → records, in segments small enough for several of them."""
    records = written_records()
    topics = {f"{codec}-compressed": records for codec in CODECS}
    for codec, topic in zip(CODECS, topics, strict=True):
        confluent.make_topic(broker.bootstrap, topic, config=SMALL_SEGMENTS)
        confluent.write(
            broker.bootstrap,
            topic,
            records,
            compression_type=codec,
            enable_idempotence=True,
            batch_num_messages=20,
        )
    return topics


def dump(class_path: str, files: list[Path], *options: str) -> str:
    names = ",".join(map(str, files))
    return java.tool(class_path, "kafka.tools.DumpLogSegments", *options, "--files", names, deadline_s=120)


def test_kafkas_tool_reads_our_files(start_broker: StartBroker, java_class_path: str) -> None:
    broker = start_broker()
    topics = write_with_every_codec(broker)
    broker.stop()
    for topic, records in topics.items():
        logs = broker.files(topic, ".log")
        assert len(logs) >= 1
        text = dump(java_class_path, logs, "--deep-iteration", "--print-data-log")
        assert text.count("isvalid: true") > len(records) // 25
        assert "isvalid: false" not in text
        offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)]
        assert offsets == list(range(len(records)))
        times = [
            int(found) for found in re.findall(r"^\| offset: \d+ CreateTime: (\d+) ", text, re.MULTILINE)
        ]
        assert times == [record.timestamp_ms for record in records]
        sizes = [int(found) for found in re.findall(r"valueSize: (-?\d+) ", text)]
        assert sizes == [-1 if record.value is None else len(record.value) for record in records]
    indexes = [path for topic in topics for path in broker.files(topic, "index")]
    assert sum(path.stat().st_size for path in indexes) > 3_000
    for option in ("--index-sanity-check", "--verify-index-only"):
        text = dump(java_class_path, indexes, option)
        assert not TROUBLE.search(text), text[-5_000:]
    # Without an option the tool looks each entry up in the log.
    text = dump(java_class_path, indexes)
    assert not TROUBLE.search(text), text[-5_000:]
    snapshots = [path for topic in topics for path in broker.files(topic, ".snapshot")]
    text = dump(java_class_path, snapshots)
    assert text.count("producerId: ") >= len(topics)
    assert not TROUBLE.search(text), text[-5_000:]


@pytest.fixture
def kafka(tmp_path: Path, java_class_path: str) -> Iterator[KafkaProcess]:
    broker = KafkaProcess(tmp_path / "kafka", classpath=java_class_path)
    confluent.is_patient = True
    broker.start()
    yield broker
    confluent.is_patient = False
    broker.close()


def settle_in(broker: BrokerProcess, topic: str, source: Path) -> None:
    """Give a stopped broker's partition 0 another broker's files. The topic's id stays ours."""
    directory = broker.partition_dir(topic)
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copy2(path, directory)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_we_read_what_kafka_wrote(start_broker: StartBroker, kafka: KafkaProcess, how: str) -> None:
    topics = write_with_every_codec(kafka)
    kafka.kill() if how == "kill" else kafka.stop()
    ours = start_broker()
    for topic in topics:
        confluent.is_patient = False
        confluent.make_topic(ours.bootstrap, topic, config=SMALL_SEGMENTS)
    ours.kill() if how == "kill" else ours.stop()
    for topic in topics:
        settle_in(ours, topic, kafka.partition_dir(topic))
    ours.start()
    found = Confluent().read_all(ours.bootstrap, {topic: len(records) for topic, records in topics.items()})
    for topic, records in topics.items():
        assert found[topic] == [Consumed(i, *record) for i, record in enumerate(records)]  # type: ignore[arg-type]
        assert confluent.write(ours.bootstrap, topic, [numbered(0)]) == [len(records)]
    files = [str(path) for topic in topics for path in kafka.partition_dir(topic).iterdir()]
    checked = [name for name in files if name.endswith((".log", ".snapshot", "checkpoint"))]
    checked += [name for name in files if name.endswith("index") and how == "stop"]
    command = [sys.executable, "-m", "minikafka.cli.main", "dump-log", "--verify", *checked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr


def raw_batches() -> list[bytes]:
    """Batches of every size, with and without producers, time going to and fro: the same for both brokers."""
    dice = random.Random(11)
    sequences = {7: 0, 8: 0}
    batches = []
    for i in range(1_500):
        values = [dice.randbytes(dice.choice((0, 10, 100, 900))) for _ in range(dice.randrange(1, 6))]
        time_ms = EPOCH_MS + 50 * i + dice.randrange(-2_000, 2_000)
        producer_id = dice.choice((-1, 7, 8))
        if producer_id < 0:
            batches.append(wire.batch(values, base_timestamp=time_ms))
            continue
        sequence = sequences[producer_id]
        sequences[producer_id] += len(values)
        batches.append(
            wire.batch(
                values,
                base_timestamp=time_ms,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
        )
    return batches


def partition_files(broker: BrokerProcess, topic: str) -> dict[str, bytes]:
    files = {
        path.name: path.read_bytes()
        for path in sorted(broker.partition_dir(topic).iterdir())
        if path.name != "partition.metadata"  # has the topic's id, which is random
    }
    for name, content in files.items():
        if name.endswith(".snapshot"):
            # Producers come in the order of a Java hash map. Behind version and checksum: 46 bytes each.
            entries = sorted(content[i : i + 46] for i in range(10, len(content), 46))
            files[name] = content[:2] + content[6:10] + b"".join(entries)
    return files


def test_the_same_requests_make_the_same_files(
    start_broker: StartBroker, kafka: KafkaProcess, topic: str
) -> None:
    """The strongest of all: Apache Kafka and we, given the same batches, leave the same bytes in all files.

    Segments, offset and time index, producer snapshots, leader epochs: after a clean stop, and after a kill,
    where both recover the log and make its indexes again.
    """
    ours = start_broker()
    batches = raw_batches()
    middle = len(batches) // 2

    def write(broker: BrokerProcess, part: list[bytes]) -> None:
        with wire.RawClient(broker.port) as client:
            for batch in part:
                assert client.produce(topic, 0, batch).error == 0

    def wait_for_the_leader(broker: BrokerProcess) -> None:
        confluent.is_patient = broker is kafka
        confluent.latest(broker.bootstrap, topic)

    for broker in (ours, kafka):
        confluent.is_patient = broker is kafka
        confluent.make_topic(broker.bootstrap, topic, config=SMALL_SEGMENTS | {"segment.ms": 8_000})
        write(broker, batches[:middle])
        broker.stop()
    compare(partition_files(ours, topic), partition_files(kafka, topic))
    for broker in (ours, kafka):
        broker.start()
        wait_for_the_leader(broker)
        write(broker, batches[middle:])
        broker.kill()
        broker.start()
        wait_for_the_leader(broker)
        broker.stop()
    compare(without_epochs(partition_files(ours, topic)), without_epochs(partition_files(kafka, topic)))


def without_epochs(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leader epochs count elections, and every restart of Kafka makes some: leave them out of each batch."""
    files = {name: content for name, content in files.items() if name != "leader-epoch-checkpoint"}
    for name, content in files.items():
        if name.endswith(".log"):
            data, position = bytearray(content), 0
            while position < len(data):
                data[position + 12 : position + 16] = bytes(4)
                position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            files[name] = bytes(data)
    return files


def compare(ours: dict[str, bytes], kafkas: dict[str, bytes]) -> None:
    assert sorted(ours) == sorted(kafkas)
    assert len([name for name in ours if name.endswith(".log")]) > 2
    different = [name for name in ours if ours[name] != kafkas[name]]
    assert not different, {name: (len(ours[name]), len(kafkas[name])) for name in different}
