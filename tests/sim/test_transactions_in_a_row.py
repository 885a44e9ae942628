"""Three brokers, none of which fails: every transaction of a producer that begins the next one as soon as the
last one is decided, while its markers are still on their way, is committed."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.testing.simulation.client import SimulatedClient
from minikafka.testing.simulation.invariants import InvariantChecker
from minikafka.testing.simulation.simulation import Simulation
from tests.sim.cluster_run import CONFIG, TOPIC
from tests.sim.random_transactions import TransactionalProducer

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
