"""Compaction in a simulated world: kills and power cuts at any moment lose no key's newest value."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.records import Record, build_batch
from minikafka.testing.simulation import SimulatedBroker, SimulatedClient, Simulation
from minikafka.types import TopicPartition
from tests.unit.log.cleaner_helpers import contents

AT = TopicPartition("c", 0)
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "300",
    "segment.jitter.ms": "0",
    "file.delete.delay.ms": "500",
    "flush.messages": "1",
}
BROKER = {"log.cleaner.backoff.ms": 50, "log.initial.task.delay.ms": 0}
KEYS = 5


def log_of(broker: SimulatedBroker) -> UnifiedLog:
    return broker.server.services.replica_manager.partition(AT).log


async def write_for_ever(sim: Simulation, client: SimulatedClient, acked: dict[bytes, int]) -> None:
    """Ever larger numbers under a few keys; ``acked`` has the last one of each that was acknowledged."""
    number = 0
    while True:
        key = b"key %d" % (number % KEYS)
        now_ms = 1_800_000_000_000 + int(asyncio.get_running_loop().time() * 1000)
        await client.deliver("c", 0, build_batch([Record(0, now_ms, key, b"%d" % number)]))
        acked[key] = number
        number += 1
        await asyncio.sleep(sim.rng("writer").uniform(0.005, 0.05))


@pytest.mark.parametrize("seed", range(8))
def test_the_newest_value_of_each_key_outlives_crashes(seed: int) -> None:
    compacted = 0

    async def scenario(sim: Simulation) -> None:
        nonlocal compacted
        properties = {**BROKER, "log.message.timestamp.after.max.ms": 1 << 60}
        broker = await sim.start_broker(1, properties)
        client = SimulatedClient([broker.address])
        await client.create_topic("c", configs=COMPACT)
        acked: dict[bytes, int] = {}
        writer = asyncio.create_task(write_for_ever(sim, client, acked))
        for crash in range(4):
            await asyncio.sleep(sim.rng("life").uniform(1, 4))
            compacted += log_of(broker).first_dirty_offset or 0
            known = dict(acked)
            (broker.kill if crash % 2 else broker.power_off)()
            await asyncio.sleep(sim.rng("death").uniform(0.2, 30))
            await broker.start()
            log = log_of(broker)
            log.validate()
            found = {key: int(value or b"-1") for _, key, value in contents(log) if key is not None}
            for key, number in known.items():
                assert found[key] >= number, (crash, key)
        writer.cancel()
        await asyncio.sleep(2)
        assert len(contents(log_of(broker))) < sum(1 for _ in range(max(acked.values())))

    Simulation(seed).run(scenario)
    assert compacted > 0
