"""Followers with several fetchers (``num.replica.fetchers``), through the real requests."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.server.replica.replication_quotas import CatchUpChunk, CatchUpLag, CatchUpPace
from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.simulation import Simulation

FETCHERS = 2
PARTITIONS = 8


def test_the_leader_keeps_the_fetchers_of_a_follower_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has partitions of its own, and is paced by how it stands in these."""
    asked: dict[Any, int] = {}
    chunk = CatchUpPace.chunk

    def noted(pace: CatchUpPace, fetcher: object, lag: CatchUpLag) -> CatchUpChunk:
        asked[fetcher] = asked.get(fetcher, 0) + 1
        return chunk(pace, fetcher, lag)

    monkeypatch.setattr(CatchUpPace, "chunk", noted)

    async def scenario(simulation: Simulation) -> None:
        for node_id in (1, 2):
            await simulation.start_broker(node_id, {"num.replica.fetchers": FETCHERS})
        client = SimulatedClient([(f"broker-{node_id}", 9092) for node_id in (1, 2)])
        await client.create_topic("t", assignment=[[1, 2]] * PARTITIONS)

        def is_whole() -> bool:
            led = [each for each in hosted_partitions(simulation.brokers[1]) if each.is_leader]
            return len(led) == PARTITIONS and all(len(each.isr) == 2 for each in led)

        await until(is_whole, "both have everything")
        await simulation.brokers[2].stop()
        for partition in range(PARTITIONS):
            await client.deliver("t", partition, make_batch([b"v"]), acks=1)
        asked.clear()
        await simulation.brokers[2].start()
        await until(is_whole, "the follower has caught up")
        assert len(asked) == FETCHERS and None not in asked

    Simulation(41).run(scenario)
