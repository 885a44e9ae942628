"""Client quotas with stock clients: their tools set and find them, producers and consumers keep to them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess

BYTES_PER_S = 200_000
VALUE = bytes(range(250)) * 4
"""1000 bytes that no client compresses."""
RECORDS = 1200


@pytest.fixture
def impatient(start_broker: StartBroker) -> BrokerProcess:
    """A broker that looks at the last seconds only, so that a burst is short and a test too."""
    return start_broker(properties={"quota.window.num": 3})


def kafka_python(broker: BrokerProcess) -> Iterator[Any]:
    """Sends requests. The library has them, and no calls for them yet."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        yield lambda request: admin._manager.run(admin._manager.send, request)
    finally:
        admin.close()


def alter(broker: BrokerProcess, entity: dict[str, str | None], **quotas: float | None) -> None:
    """Through kafka-python; None removes."""
    from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest as Request

    for send in kafka_python(broker):
        entry = Request.EntryData(
            entity=[
                Request.EntryData.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity.items()
            ],
            ops=[
                Request.EntryData.OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in quotas.items()
            ],
        )
        answer = send(Request(entries=[entry], validate_only=False))
        assert [each.error_code for each in answer.entries] == [0], answer


def described(broker: BrokerProcess) -> dict[str, dict[str, float]]:
    from kafka.protocol.admin.client_quotas import DescribeClientQuotasRequest

    for send in kafka_python(broker):
        answer = send(DescribeClientQuotasRequest(components=[], strict=False))
        return {
            ",".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in answer.entries
        }
    raise AssertionError("not reached")


def test_kafka_python_sets_finds_and_removes_quotas(broker: BrokerProcess) -> None:
    alter(broker, {"client-id": "ours"}, producer_byte_rate=1e9, request_percentage=99.5)
    alter(broker, {"user": "alice", "client-id": None}, consumer_byte_rate=1e9)
    found = described(broker)
    assert found["client-id=ours"] == {"producer_byte_rate": 1e9, "request_percentage": 99.5}
    assert found["client-id=None,user=alice"] == {"consumer_byte_rate": 1e9}
    alter(broker, {"client-id": "ours"}, producer_byte_rate=None, request_percentage=None)
    alter(broker, {"user": "alice", "client-id": None}, consumer_byte_rate=None)
    assert not found.keys() & described(broker).keys()


@pytest.mark.java
def test_kafkas_own_tool_sets_finds_and_removes_quotas(broker: BrokerProcess, java_class_path: str) -> None:
    def configs(*arguments: str) -> str:
        return java.tool(
            java_class_path, "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments
        )

    client = ("--entity-type", "clients", "--entity-name", "odd name/100%")
    configs("--alter", "--add-config", "producer_byte_rate=1048576,request_percentage=50", *client)
    text = configs("--describe", *client)
    assert "producer_byte_rate=1048576.0" in text and "request_percentage=50.0" in text
    both = ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default")
    configs("--alter", "--add-config", "consumer_byte_rate=2097152", *both)
    assert "consumer_byte_rate=2097152.0" in configs("--describe", *both)
    with pytest.raises(AssertionError, match="producer_byte_rate must be a finite value more than 0, not -1"):
        configs("--alter", "--add-config", "producer_byte_rate=-1", *client)
    configs("--alter", "--delete-config", "producer_byte_rate,request_percentage", *client)
    configs("--alter", "--delete-config", "consumer_byte_rate", *both)
    assert "byte_rate" not in configs("--describe", *client) + configs("--describe", *both)


def test_a_stock_producer_and_consumer_keep_to_their_quotas(impatient: BrokerProcess) -> None:
    """In real time: what is more than two seconds' worth takes its time; without a quota it does not. How
    long a client is held back at most is what it is told: a busy machine can take longer."""
    broker, throttled_ms = impatient, []
    confluent.make_topic(broker.bootstrap, "t")
    alter(broker, {"client-id": "limited"}, producer_byte_rate=BYTES_PER_S, consumer_byte_rate=BYTES_PER_S)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "limited",
            "batch.size": 20_000,
            "throttle_cb": lambda event: throttled_ms.append(event.throttle_time * 1000),
        }
    )
    began = time.monotonic()
    for _ in range(RECORDS):
        producer.produce("t", VALUE)
        producer.poll(0)
    assert producer.flush(60) == 0
    took_s = time.monotonic() - began
    beyond_the_burst_s = len(VALUE) * RECORDS / BYTES_PER_S - 2
    assert beyond_the_burst_s * 0.8 < took_s
    assert sum(throttled_ms) / 1000 < beyond_the_burst_s * 2.5
    assert max(throttled_ms) > 0, "the client was told"
    took_s, throttled_s = read_all(broker, "limited")
    assert beyond_the_burst_s * 0.8 < took_s and throttled_s < beyond_the_burst_s * 2.5
    _, throttled_s = read_all(broker, "free")
    assert throttled_s == 0 and "client 'free' is throttled" not in broker.log_text()
    assert re.search(r"client 'limited' is throttled for \d+ ms by producer_byte_rate: \(", broker.log_text())


def read_all(broker: BrokerProcess, client_id: str) -> tuple[float, float]:
    """How long a consumer takes for everything, and how much of it it was held back, in seconds."""
    throttled_s: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "group.id": f"reader {client_id}",
            "fetch.message.max.bytes": 50_000,
            "fetch.max.bytes": 100_000,
            "message.max.bytes": 50_000,
            "throttle_cb": lambda event: throttled_s.append(event.throttle_time),
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        began, count = time.monotonic(), 0
        while count < RECORDS:
            count += len(consumer.consume(500, timeout=0.2))
            assert time.monotonic() - began < 60, f"{count} of {RECORDS} after a minute"
        return time.monotonic() - began, sum(throttled_s)
    finally:
        consumer.close()
