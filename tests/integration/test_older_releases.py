"""Stock clients with a broker that looks like an older Kafka.

How it looks is held equal to recorded brokers in ``tests/unit/protocol/wire/test_releases``.
"""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ADVERTISED, OLDER, ApiKey
from minikafka.testing.broker import Broker
from minikafka.testing.cluster import Cluster
from tests.integration.support import java

RELEASES = ("3.9", "4.1", "4.4")
pytestmark = pytest.mark.minikafka_only


@pytest.mark.parametrize("release", RELEASES)
async def test_clients_produce_and_consume_in_transactions_and_groups(release: str) -> None:
    async with Broker(api_versions=release, config={"group.initial.rebalance.delay.ms": 0}) as broker:
        await asyncio.to_thread(_librdkafka, broker.bootstrap_servers)
        await asyncio.to_thread(_kafka_python, broker.bootstrap_servers)
        await _aiokafka(broker.bootstrap_servers)


def _librdkafka(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "compression.type": "lz4"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"librdkafka")
    producer.commit_transaction(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(60)
        assert message is not None and message.value() == b"librdkafka"
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def _kafka_python(bootstrap: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    producer.send("orders", b"kafka-python").get(60)
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="h",
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    found: list[bytes] = []
    for record in consumer:
        found.append(record.value)
        if b"kafka-python" in found:
            break
    consumer.close()
    assert found == [b"librdkafka", b"kafka-python"]


async def _aiokafka(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        await producer.send_and_wait("orders", b"aiokafka")
    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=bootstrap, group_id="i", auto_offset_reset="earliest"
    )
    async with consumer, asyncio.timeout(60):
        while (await consumer.getone()).value != b"aiokafka":
            pass


async def test_librdkafka_keeps_to_itself_that_a_release_is_too_old_for_the_consumer_protocol() -> None:
    """3.9 has ConsumerGroupHeartbeat in version 0 alone, and librdkafka makes member ids itself, for which it
    needs version 1 (KIP-1082): it sends none, looks for another coordinator for ever, and its caller gets
    neither a record nor an error. Only its log says why. Apache Kafka 3.9.1 leaves it waiting likewise."""
    async with Broker(api_versions="3.9") as broker:
        lines = await asyncio.to_thread(_consumer_protocol, broker.bootstrap_servers)
        asked = broker.server.services.request_metrics.of(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        assert asked.count == 0, "it is not this broker that leaves it without an answer"
    assert any("ConsumerGroupHeartbeatRequest not supported by broker" in line for line in lines)


def _consumer_protocol(bootstrap: str) -> list[str]:
    """What librdkafka logs of the group until it has given up for the first time."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(Lines())
    settings = {"bootstrap.servers": bootstrap, "group.id": "new", "group.protocol": "consumer"}
    consumer = Consumer(settings | {"debug": "cgrp"}, logger=logger)
    try:
        consumer.subscribe(["orders"])
        for _ in range(300):
            message = consumer.poll(0.1)
            assert message is None
            if any("not supported by broker" in line for line in lines):
                break
    finally:
        consumer.close()
    return lines


async def test_brokers_of_one_cluster_speak_all_versions_with_each_other() -> None:
    config = {"api.versions": "3.9", "min.insync.replicas": 2, "default.replication.factor": 2}
    async with Cluster(2, config=config) as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        async with producer:
            await producer.send_and_wait("orders", b"on both")
        host, _, port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
        async with asyncio.timeout(60):
            ours = await BrokerClient.connect(host, int(port), client_id=None, deadline_ms=30_000)
        assert (
            ours.api_versions[ApiKey.FETCH]
            == ADVERTISED[ApiKey.FETCH]
            != OLDER["3.9"].advertised[ApiKey.FETCH]
        )
        await ours.close()


@pytest.mark.java
@pytest.mark.parametrize(("release", "client"), [("3.9", java.KAFKA_VERSION), ("4.1", "4.4.0")])
async def test_a_newer_java_client_takes_the_older_versions(release: str, client: str) -> None:
    classpath = java.class_path(client)
    async with Broker(api_versions=release) as broker:
        failed = await asyncio.to_thread(
            java.failed_transactions, classpath, broker.bootstrap_servers, "orders", partitions=1, count=3
        )
    assert failed == []
