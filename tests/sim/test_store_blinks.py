"""A store that is away for a second, at each moment of a topic's creation and of a broker's restart.

A moment is a request to the store: the connection of the broker that asks breaks just then, and there is no
other for a second. The request may have taken effect, or not.
"""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.testing.simulation.client import SimulatedClient
from minikafka.testing.simulation.invariants import InvariantChecker, hosted_partitions
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.simulation import STORE, Simulation
from minikafka.testing.simulation.store import Hello, Ping

BROKERS = (1, 2, 3)
REPLICAS = 2
AWAY_MS = 1_000
RETENTION_MS = 987_654
MOMENTS_MIN = {"creation": 10, "restart": 20}
"""A creation and a restart ask the store at least so often; fewer would mean that nothing was tried."""


class Blinks:
    """Breaks the store's connection to a broker when the n-th request from now on arrives."""

    def __init__(self, simulation: Simulation, *, takes_effect: bool) -> None:
        self.has_blinked = False
        self._simulation = simulation
        self._takes_effect = takes_effect
        self._left: int | None = None
        self._hosts: tuple[str, ...] = ()
        self._receive = simulation.store.receive
        simulation.store.receive = self._received  # type: ignore[method-assign]

    def at(self, number: int, *node_ids: int) -> None:
        """At the request of that number that one of these brokers makes."""
        self.has_blinked = False
        self._left = number
        self._hosts = tuple(f"broker-{node_id}" for node_id in node_ids)

    def _received(self, connection: Any, message: Any) -> None:
        counts = not isinstance(message, Hello) and not isinstance(message.call, Ping)
        if self._left is None or not counts or connection.client not in self._hosts:
            return self._receive(connection, message)
        self._left -= 1
        if self._left > 0:
            return self._receive(connection, message)
        self._left, self.has_blinked = None, True
        host, network = connection.client, self._simulation.network
        self._simulation.store.disconnect(host)
        network.cut(host, STORE)
        network.cut(STORE, host)
        if self._takes_effect:
            self._receive(connection, message)  # the answer does not get through
        self._simulation.loop.call_later(AWAY_MS / 1000, self._heal, host)
        return None

    def _heal(self, host: str) -> None:
        self._simulation.network.heal(host, STORE)
        self._simulation.network.heal(STORE, host)


def is_whole(simulation: Simulation, topic: str) -> bool:
    """Whether all replicas are in the ISR, and every broker knows the topic as it is configured."""
    brokers = [broker for broker in simulation.brokers.values() if broker.has_started]
    hosted = [
        partition
        for broker in brokers
        for partition in hosted_partitions(broker)
        if partition.topic_partition.topic == topic
    ]
    services = [broker.server.services for broker in brokers]
    return (
        len(hosted) == REPLICAS
        and all(partition.log.config.retention_ms == RETENTION_MS for partition in hosted)
        and any(len(partition.isr) == REPLICAS for partition in hosted if partition.is_leader)
        and len(services) == len(BROKERS)
        and all(each.metadata.topic(topic) is not None for each in services)
        and all(each.configs.topic_config(topic).retention_ms == RETENTION_MS for each in services)
    )


async def start(simulation: Simulation) -> SimulatedClient:
    for node_id in BROKERS:
        await simulation.start_broker(node_id, {"replica.lag.time.max.ms": 4000})
    InvariantChecker(simulation).start()
    return SimulatedClient([(f"broker-{node_id}", 9092) for node_id in BROKERS])


async def create(simulation: Simulation, client: SimulatedClient, topic: str) -> None:
    await client.create_topic(topic, replication_factor=REPLICAS, configs={"retention.ms": str(RETENTION_MS)})


@pytest.mark.parametrize("takes_effect", [True, False], ids=["answer lost", "request lost"])
def test_a_store_that_is_away_for_a_second_while_a_topic_is_created(takes_effect: bool) -> None:
    async def scenario(simulation: Simulation) -> None:
        client = await start(simulation)
        blinks = Blinks(simulation, takes_effect=takes_effect)
        moment, has_blinked = 0, True
        while has_blinked:
            moment += 1
            topic = f"t{moment}"
            blinks.at(moment, *BROKERS)
            await create(simulation, client, topic)
            await until(lambda topic=topic: is_whole(simulation, topic), f"{topic} is whole")  # type: ignore[misc]
            has_blinked = blinks.has_blinked
        assert moment > MOMENTS_MIN["creation"]

    Simulation(31).run(scenario)


@pytest.mark.parametrize("takes_effect", [True, False], ids=["answer lost", "request lost"])
@pytest.mark.parametrize("which", ["controller", "another"])
def test_a_store_that_is_away_for_a_second_while_a_broker_starts(which: str, takes_effect: bool) -> None:
    async def scenario(simulation: Simulation) -> None:
        client = await start(simulation)
        topics = ["a", "b"]
        for topic in topics:
            await create(simulation, client, topic)
        blinks = Blinks(simulation, takes_effect=takes_effect)
        moment, has_blinked = 0, True
        while has_blinked:
            moment += 1
            (controller,) = (
                broker
                for broker in simulation.brokers.values()
                if broker.server.services.controller.is_controller
            )
            node_id = controller.node_id if which == "controller" else controller.node_id % len(BROKERS) + 1
            broker = simulation.brokers[node_id]
            await broker.stop()
            blinks.at(moment, *BROKERS)
            await broker.start()
            for topic in topics:
                await until(lambda topic=topic: is_whole(simulation, topic), f"{topic} is whole")  # type: ignore[misc]
            has_blinked = blinks.has_blinked
        assert moment > MOMENTS_MIN["restart"]

    Simulation(32).run(scenario)
