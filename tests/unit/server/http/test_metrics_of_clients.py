"""A scrape shows what each client moved, which quotas count for it, and how long it was held back."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from minikafka.config.client_quotas import DEFAULT, QuotaEntity, QuotaType
from minikafka.testing import Broker
from tests.unit.server.http_client import ask

USER = "ANONYMOUS"
LABELS = ("type", "user", "client_id", "request")
WRITER = QuotaEntity(None, "writer")


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(config={"http.port": 0}) as made:
        yield made


async def scrape(broker: Broker, name: str) -> dict[tuple[str, ...], float]:
    """The values of one name, by the values of their labels: type, user and client id, or request."""
    address = broker.server.http_address
    assert address is not None
    text = (await ask(address, "/metrics")).body.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        tuple(sample.labels[label] for label in LABELS if label in sample.labels): sample.value
        for sample in samples
        if sample.name == name
    }


async def produce(broker: Broker, *, client_id: str, size: int, count: int = 1) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id=client_id) as producer:
        for _ in range(count):
            await producer.send_and_wait("orders", bytes(size))


async def test_a_client_without_a_quota_has_its_counters_and_nothing_else(broker: Broker) -> None:
    await produce(broker, client_id="writer", size=1000)
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, client_id="reader", auto_offset_reset="earliest"
    ) as consumer:
        await consumer.getone()
    written = await scrape(broker, "minikafka_client_produced_bytes_total")
    read = await scrape(broker, "minikafka_client_fetched_bytes_total")
    assert written[USER, "writer"] > read[USER, "reader"] > 1000
    assert written[USER, "reader"] == read[USER, "writer"] == 0
    assert await scrape(broker, "minikafka_client_quota_bound") == {}
    assert await scrape(broker, "kafka_server_produce_byte_rate") == {}


async def test_a_quota_has_its_rate_its_bound_and_its_throttle_time(broker: Broker) -> None:
    quotas = broker.server.services.client_quotas
    quotas.update(WRITER, {QuotaType.PRODUCE: 1_000_000, QuotaType.CONTROLLER_MUTATION: 5})
    quotas.update(QuotaEntity(None, DEFAULT), {QuotaType.FETCH: 2_000_000})
    await produce(broker, client_id="writer", size=1000)
    rate = await scrape(broker, "kafka_server_produce_byte_rate")
    assert list(rate) == [("", "writer")] and rate["", "writer"] > 0
    bounds = await scrape(broker, "minikafka_client_quota_bound")
    assert bounds == {("Produce", "", "writer"): 1_000_000, ("Fetch", "", "writer"): 2_000_000}
    assert math.isnan((await scrape(broker, "kafka_server_produce_throttle_time"))["", "writer"])
    assert (await scrape(broker, "kafka_server_controllermutation_tokens"))["", "writer"] > 0
    quotas.update(WRITER, {})
    assert await scrape(broker, "kafka_server_produce_byte_rate") == {}


async def test_a_throttled_request_counts_for_its_api(broker: Broker) -> None:
    quotas = broker.server.services.client_quotas
    throttled = "kafka_network_requestmetrics_throttletimems_count"
    quotas.update(WRITER, {QuotaType.PRODUCE: 100_000})
    await produce(broker, client_id="writer", size=100)
    assert (await scrape(broker, throttled))[("Produce",)] == 0
    await produce(broker, client_id="writer", size=500_000, count=3)
    assert (await scrape(broker, throttled))[("Produce",)] > 0
    assert (await scrape(broker, "kafka_server_produce_throttle_time"))["", "writer"] > 0
