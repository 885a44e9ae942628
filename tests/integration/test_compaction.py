"""Compacted topics on a running broker: what consumers find, also after a kill in the middle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent, java
from tests.integration.support.clients import Client
from tests.integration.support.process import BrokerProcess, bytes_of
from tests.integration.support.records import CODECS, EPOCH_MS, Consumed, Record

BUSY_CLEANER = {"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 100}
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": 1 << 20,
    "min.cleanable.dirty.ratio": 0.01,
    "file.delete.delay.ms": 100,
}
KEYS, ROUNDS = 50, 200


def keyed_records(*, keys: int = KEYS, rounds: int = ROUNDS, size: int = 200) -> list[Record]:
    """Every key again and again; every seventh key is deleted at the end."""
    records = [
        Record(b"key %d" % key, b"%d %d " % (key, number) + bytes(size), (("r", b"%d" % number),), EPOCH_MS)
        for number in range(rounds)
        for key in range(keys)
    ]
    return records + [Record(b"key %d" % key, None, (), EPOCH_MS) for key in range(0, keys, 7)]


def closed_bytes(broker: BrokerProcess, topic: str) -> int:
    """Of the record files, but for the last, which takes the appends."""
    return bytes_of(broker.files(topic, ".log")[:-1])


def fill_the_active_segment(broker: BrokerProcess, topic: str) -> None:
    """So that all that was written before lies in closed segments."""
    confluent.write(broker.bootstrap, topic, [Record(b"filler", bytes(900_000), (), EPOCH_MS)] * 2)


def alter(broker: BrokerProcess, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = confluent.admin(broker.bootstrap)
    client.incremental_alter_configs([resource])[resource].result(90)


def until_compacted(broker: BrokerProcess, topic: str, *, bytes_max: int) -> None:
    confluent.wait_until(
        lambda: closed_bytes(broker, topic) < bytes_max, f"{topic} is compacted", deadline_s=60
    )


def read_to_end(broker: BrokerProcess, topic: str) -> list[Consumed]:
    """Every record there is: up to the filler, which is the last."""
    consumer = confluent.make_consumer(broker.bootstrap, enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Consumed] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} records, then nothing"
        error = message.error()
        if error is None:
            found.append(confluent.consumed(message))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return found


def check(found: list[Consumed], written: list[Record]) -> None:
    """Each record is what was written at its offset, and the newest of each key is there."""
    for record in found:
        if record.key != b"filler":
            assert record.content == written[record.offset][:3], record.offset
    offsets = {record.offset for record in found}
    newest = {record.key: offset for offset, record in enumerate(written)}
    assert offsets >= set(newest.values())


@pytest.mark.parametrize("codec", CODECS)
def test_the_newest_record_of_each_key_stays(start_broker: StartBroker, topic: str, codec: str) -> None:
    broker = start_broker(properties=BUSY_CLEANER)
    confluent.make_topic(broker.bootstrap, topic, config=TOPIC)
    written = keyed_records(size=200 if codec == "none" else 2_000)
    confluent.write(broker.bootstrap, topic, written, compression_type=codec, linger_ms=20)
    fill_the_active_segment(broker, topic)
    confluent.wait_until(lambda: len(read_to_end(broker, topic)) < 2 * KEYS + 10, "compacted", deadline_s=60)
    found = read_to_end(broker, topic)
    check(found, written)
    assert confluent.latest(broker.bootstrap, topic) == len(written) + 2
    checkpoint = Path(broker.partition_dir(topic)).parent / "cleaner-offset-checkpoint"
    confluent.wait_until(
        lambda: checkpoint.exists() and f"{topic} 0 " in checkpoint.read_text(), "the checkpoint"
    )
    broker.stop()
    broker.start()
    assert read_to_end(broker, topic) == found


@pytest.mark.minikafka_only  # Kafka keeps no empty batch in such a segment
def test_every_client_reads_past_segments_of_which_nothing_is_left(
    start_broker: StartBroker, topic: str, clients: dict[str, Client]
) -> None:
    """The first segments hold a batch without records each: an answer with nothing but that one leads on."""
    broker = start_broker(properties=BUSY_CLEANER)
    confluent.make_topic(broker.bootstrap, topic, config=TOPIC | {"cleanup.policy": "delete"})
    written = [record for record in keyed_records() if record.value is not None]
    confluent.write(broker.bootstrap, topic, written, linger_ms=20)
    fill_the_active_segment(broker, topic)
    alter(broker, topic, "cleanup.policy", "compact")
    until_compacted(broker, topic, bytes_max=1 << 20)
    assert broker.files(topic, ".log")[0].stat().st_size == 61
    expected = [*range(len(written) - KEYS, len(written) + 2)]
    for client in clients.values():
        found = client.read_all(broker.bootstrap, {topic: len(expected)})[topic]
        assert [record.offset for record in found] == expected, client.name


@pytest.mark.java
@pytest.mark.minikafka_only
def test_kafkas_tool_reads_what_was_compacted(start_broker: StartBroker, java_class_path: str) -> None:
    """Batches that were rebuilt, with every codec, and tombstones with their delete horizon."""
    broker = start_broker(properties=BUSY_CLEANER)
    written = [
        record._replace(timestamp_ms=EPOCH_MS + index)
        for index, record in enumerate(keyed_records(size=2_000, rounds=60))
    ]
    for codec in CODECS:
        confluent.make_topic(broker.bootstrap, codec, config=TOPIC)
        confluent.write(broker.bootstrap, codec, written, compression_type=codec, enable_idempotence=True)
        fill_the_active_segment(broker, codec)
    for codec in CODECS:
        confluent.wait_until(lambda codec=codec: len(read_to_end(broker, codec)) < 2 * KEYS, codec)
    broker.stop()
    for codec in CODECS:
        logs = broker.files(codec, ".log")
        text = _dump(java_class_path, logs, "--deep-iteration", "--print-data-log")
        assert "isvalid: false" not in text and "deleteHorizonMs: OptionalLong[" in text
        found = re.findall(r"^\| offset: (\d+) CreateTime: (\d+) .*valueSize: (-?\d+) ", text, re.MULTILINE)
        assert KEYS <= len(found) < 2 * KEYS
        for offset, timestamp, size in (map(int, each) for each in found):
            if offset < len(written):
                value = written[offset].value
                assert timestamp == EPOCH_MS + offset
                assert size == (-1 if value is None else len(value))
        for suffix in (".index", ".timeindex"):
            text = _dump(java_class_path, broker.files(codec, suffix), "--verify-index-only")
            assert not re.search("mismatch|invalid|exception|not found", text, re.IGNORECASE), text


def _dump(class_path: str, files: list[Path], *options: str) -> str:
    names = ",".join(map(str, files))
    return java.tool(class_path, "kafka.tools.DumpLogSegments", *options, "--files", names, deadline_s=120)


def test_a_broker_that_is_killed_while_it_compacts_loses_nothing(
    start_broker: StartBroker, topic: str
) -> None:
    slow = BUSY_CLEANER | {"log.cleaner.io.max.bytes.per.second": 1e6}  # 6 s: reading takes less
    broker = start_broker(properties=slow)
    confluent.make_topic(broker.bootstrap, topic, config=TOPIC)
    written = keyed_records()
    confluent.write(broker.bootstrap, topic, written, linger_ms=20)
    fill_the_active_segment(broker, topic)
    for _ in range(3):
        confluent.wait_until(lambda: broker.files(topic, ".log.cleaned"), "a compaction is under way")
        broker.kill()
        broker.start()
        check(read_to_end(broker, topic), written)
    until_compacted(broker, topic, bytes_max=1 << 20)
    check(read_to_end(broker, topic), written)


def test_a_topic_with_both_policies_is_compacted_and_shortened(start_broker: StartBroker, topic: str) -> None:
    often = BUSY_CLEANER | {"log.retention.check.interval.ms": 200}
    broker = start_broker(properties=often)
    confluent.make_topic(broker.bootstrap, topic, config=TOPIC | {"cleanup.policy": "compact,delete"})
    written = keyed_records()
    confluent.write(broker.bootstrap, topic, written, linger_ms=20)
    fill_the_active_segment(broker, topic)
    until_compacted(broker, topic, bytes_max=1 << 20)
    check(read_to_end(broker, topic), written)
    alter(broker, topic, "retention.ms", "1000")
    confluent.wait_until(
        lambda: confluent.earliest(broker.bootstrap, topic) >= len(written), "old segments are deleted"
    )
