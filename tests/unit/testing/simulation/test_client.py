"""The simulated client does what stock clients do: it reads where it is sent."""

from __future__ import annotations

import asyncio

from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.simulation import CLIENT, Simulation

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def test_a_client_with_a_rack_reads_from_the_replica_there_and_else_from_the_leader() -> None:
    async def scenario(sim: Simulation) -> None:
        for node_id in (1, 2):
            rack = {"broker.rack": f"rack-{node_id}", "replica.selector.class": RACK_AWARE}
            await sim.start_broker(node_id, rack)
        client = SimulatedClient(
            [("broker-1", 9092), ("broker-2", 9092)], rack="rack-2", request_timeout_ms=1_000
        )
        await client.create_topic("t", assignment=[[1, 2]])
        await client.deliver("t", 0, make_batch([b"v"]))
        await asyncio.sleep(1)  # the follower knows the high watermark
        assert (await client.fetch("t", 0, 0)).records == [], "it is sent elsewhere"
        sim.network.cut(CLIENT, "broker-1")
        (found,) = (await client.fetch("t", 0, 0)).records
        assert found.value == b"v"
        sim.network.heal(CLIENT, "broker-1")
        sim.brokers[2].kill()
        assert (await client.fetch("t", 0, 0)).next_offset in (0, 1), "the leader answers"

    Simulation(1).run(scenario)
