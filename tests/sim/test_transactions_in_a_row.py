"""Every transaction of a producer that begins the next one as soon as the last one is decided, while its
markers are still on their way, is committed; also when its coordinator was replaced and does not know it."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.errors import KafkaError
from minikafka.testing.simulation.client import SimulatedClient
from minikafka.testing.simulation.invariants import InvariantChecker
from minikafka.testing.simulation.scenarios.cluster_run import CONFIG, SESSION_TIMEOUT_MS
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.scenarios.plan import TOPIC
from minikafka.testing.simulation.scenarios.transactions import TransactionalProducer
from minikafka.testing.simulation.simulation import Simulation

BROKERS = (1, 2, 3)
TRANSACTIONS = 60


@pytest.mark.parametrize(("seed", "partitions"), [(0, 1), (1, 1), (2, 1), (0, 12)])
def test_none_of_many_transactions_in_a_row_fails(seed: int, partitions: int) -> None:
    async def scenario(simulation: Simulation) -> None:
        for node_id in BROKERS:
            await simulation.start_broker(node_id, CONFIG)
        checker = InvariantChecker(simulation)
        checker.start()
        addresses = [(f"broker-{node_id}", 9092) for node_id in BROKERS]
        client = SimulatedClient(addresses)
        await client.create_topic(TOPIC, partitions=partitions, replication_factor=len(BROKERS))
        producer = TransactionalProducer(client, "t", partitions=partitions)
        await producer.begin()
        for number in range(TRANSACTIONS):
            value = b"%d" % number
            await asyncio.gather(*(producer.send(partition, value) for partition in range(partitions)))
            await producer.end(commit=True)
        await asyncio.sleep(2)
        checker.look()
        checker.check_replicas()
        for partition in range(partitions):
            values = [value for _, value in await client.read_all(TOPIC, partition)]
            assert values == [b"%d" % number for number in range(TRANSACTIONS)]

    Simulation(seed).run(scenario)


def test_a_coordinator_that_was_replaced_unawares_ends_no_producer() -> None:
    """It has lost the store and not its clients. What it remembers is that no transaction is under way, when
    the producer, which has not looked for the new coordinator, wants its transaction committed."""

    async def scenario(simulation: Simulation) -> None:
        for node_id in BROKERS:
            await simulation.start_broker(node_id, CONFIG)
        client = SimulatedClient([(f"broker-{node_id}", 9092) for node_id in BROKERS])
        await client.create_topic(TOPIC, partitions=1, replication_factor=len(BROKERS))
        producer = TransactionalProducer(client, "t", partitions=1)
        await producer.begin()
        await producer.send(0, b"0")
        await producer.end(commit=True)
        (old,) = coordinators(simulation)
        simulation.cut_store(old)
        await until(lambda: len(coordinators(simulation)) == 2, "another coordinator is loaded")
        await producer.send(0, b"1")
        committing = asyncio.create_task(producer.end(commit=True))
        await asyncio.sleep(0.5)
        simulation.heal_store(old)
        await committing
        await asyncio.sleep(2)
        assert [value for _, value in await client.read_all(TOPIC, 0)] == [b"0", b"1"]

    Simulation(3, session_timeout_ms=SESSION_TIMEOUT_MS).run(scenario)


def coordinators(simulation: Simulation) -> set[int]:
    """Who believes to be the coordinator of the transactional id "t"."""
    found = set()
    for node_id, broker in simulation.brokers.items():
        try:
            broker.server.services.transactions.shard_of("t")
        except KafkaError:
            continue
        found.add(node_id)
    return found
