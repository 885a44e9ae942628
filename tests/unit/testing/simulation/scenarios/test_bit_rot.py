"""A bit that rots is on the disk, in a closed segment, and no client takes its batch for sound."""

from __future__ import annotations

import asyncio
import random

import pytest

from minikafka.errors import ErrorCode, KafkaError
from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.disk import PAGE_BYTES, FileNode, Survival
from minikafka.testing.simulation.scenarios.faults import rot
from minikafka.testing.simulation.simulation import Simulation


def test_a_power_cut_does_not_bring_the_bit_back() -> None:
    file = FileNode(0)
    file.write([bytes(PAGE_BYTES), b"\x01\x02"], 0)
    file.sync()
    file.rot(PAGE_BYTES + 1, 0x80)
    file.after_power_loss(random.Random(1), Survival.NOTHING)
    assert file.data[PAGE_BYTES:] == b"\x01\x82"


def test_clients_are_told_that_the_batch_is_corrupt_and_read_the_others() -> None:
    async def scenario(sim: Simulation) -> None:
        broker = await sim.start_broker(1)
        client = SimulatedClient([broker.address])
        await client.create_topic("t", configs={"segment.ms": "500", "segment.jitter.ms": "0"})
        for value in (b"0", b"1", b"2"):
            await client.deliver("t", 0, make_batch([value]))
        assert rot(broker, sim.rng("bit rot")) is None, "there is no closed segment yet"
        await asyncio.sleep(1)
        await client.deliver("t", 0, make_batch([b"3"]))
        rotten = rot(broker, sim.rng("bit rot"))
        assert rotten is not None
        assert rotten.base_offset < 3
        with pytest.raises(KafkaError) as told:
            await client.fetch("t", 0, rotten.base_offset)
        assert told.value.code is ErrorCode.CORRUPT_MESSAGE
        (behind,) = (await client.fetch("t", 0, 3)).records
        assert behind.value == b"3"

    Simulation(1).run(scenario)
