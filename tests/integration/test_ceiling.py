"""The idle broker of ``bin/bench ceiling``: stock clients take it for a broker, and its offsets are right."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.benchmarks import idle_broker
from tests.integration.support import confluent

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60
TOPIC = "counted"

pytestmark = pytest.mark.minikafka_only


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with idle_broker.running() as address:
        yield address.bootstrap


def produced(bootstrap: str, values: list[bytes], *, partition: int) -> list[int]:
    """The offsets that a stock producer is told of."""
    producer = confluent.make_producer(bootstrap, linger_ms=5)
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        assert error is None and offset is not None
        offsets.append(offset)

    for value in values:
        producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    return offsets


def read_to_end(bootstrap: str, *, partition: int, offset: int, **config: object) -> list[Message]:
    settings = {"group.id": "reader", "enable.partition.eof": True} | config
    consumer = Consumer({"bootstrap.servers": bootstrap} | settings)
    consumer.assign([TopicPartition(TOPIC, partition, offset)])
    messages: list[Message] = []
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"nothing came after {len(messages)} records"
        error = message.error()
        if error is None:
            messages.append(message)
            continue
        assert error.code() == KafkaError._PARTITION_EOF, error
        consumer.close()
        return messages


def test_what_was_produced_is_counted_and_so_much_can_be_consumed(bootstrap: str) -> None:
    confluent.make_topic(bootstrap, TOPIC, partitions=2)
    first = produced(bootstrap, [b"v" * 700] * 5_000, partition=1)
    second = produced(bootstrap, [b"v" * 700] * 3, partition=1)
    assert first + second == list(range(5_003))
    ends = [confluent.latest(bootstrap, TOPIC, partition=partition) for partition in (0, 1)]
    assert ends == [0, 5_003]

    messages = read_to_end(bootstrap, partition=1, offset=0, **{"check.crcs": True})
    assert [message.offset() for message in messages] == list(range(5_003))
    assert {len(message.value() or b"") for message in messages} == {700}
    few = read_to_end(bootstrap, partition=1, offset=4_000, **{"max.partition.fetch.bytes": 10_000})
    assert [message.offset() for message in few] == list(range(4_000, 5_003))
    assert read_to_end(bootstrap, partition=0, offset=0) == []


def test_batches_that_are_read_from_files_are_the_same() -> None:
    with idle_broker.running(idle_broker.READS) as address:
        confluent.make_topic(address.bootstrap, TOPIC)
        produced(address.bootstrap, [b"v" * 700] * 2_000, partition=0)
        messages = read_to_end(address.bootstrap, partition=0, offset=10, **{"check.crcs": True})
        assert [message.offset() for message in messages] == list(range(10, 2_000))
        assert {len(message.value() or b"") for message in messages} == {700}


def test_a_topic_that_was_deleted_is_gone_and_begins_again(bootstrap: str) -> None:
    confluent.make_topic(bootstrap, TOPIC)
    assert produced(bootstrap, [b"a", b"b"], partition=0) == [0, 1]
    admin = confluent.admin(bootstrap)
    admin.delete_topics([TOPIC])[TOPIC].result(DEADLINE_S)
    assert TOPIC not in admin.list_topics(timeout=DEADLINE_S).topics
    with pytest.raises(KafkaException) as caught:
        admin.delete_topics([TOPIC])[TOPIC].result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    confluent.make_topic(bootstrap, TOPIC)
    assert produced(bootstrap, [b"c"], partition=0) == [0]


@pytest.mark.parametrize("arguments", [("produce",), ("consume", "--topics", "3", "--partitions", "2")])
def test_the_load_generator_finds_its_counts_right(bootstrap: str, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "minikafka.cli.main", "bench", *arguments, "-t", bootstrap]
    command += ["--records", "20000", "--json", "-"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert checks and all(check["seen"] == check["expected"] >= 20_000 for check in checks)
