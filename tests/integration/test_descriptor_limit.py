"""A limit on file descriptors bounds connections and open files, not partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.support.process import BrokerProcess

LIMIT = 256
PARTITIONS = 300
TOPIC = "many"


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    return BrokerProcess(tmp_path / "data", descriptors_max=LIMIT)


def _produce(broker: BrokerProcess, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    refused: list[object] = []
    for partition in range(PARTITIONS):
        producer.produce(
            TOPIC,
            value,
            partition=partition,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not refused, refused[:3]


def _consume(broker: BrokerProcess) -> dict[int, list[bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, f"only {len(ended)} partitions could be read to their end"
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found[message.partition()].append(message.value())
    consumer.close()
    return found


def test_more_partitions_than_descriptors_are_written_read_and_loaded_again(broker: BrokerProcess) -> None:
    try:
        broker.start()
        assert "the limit of 256 file descriptors allows" in broker.log_text()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)], operation_timeout=60)[TOPIC].result(60)
        _produce(broker, b"1")
        assert broker.stop() == 0
        broker.start()
        _produce(broker, b"2")
        broker.kill()  # what was not flushed is recovered
        broker.start()
        assert _consume(broker) == {partition: [b"1", b"2"] for partition in range(PARTITIONS)}
        assert "offline" not in broker.log_text(), broker.log_text()[-5_000:]
    finally:
        broker.close()
