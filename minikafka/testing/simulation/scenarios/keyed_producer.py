"""``KeyedProducer``: larger and larger numbers under a few keys, and what compaction must keep.

Checked (I15): each key's newest acknowledged value is there, at its offset, or one that was sent after it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.records import Record, build_batch
from minikafka.testing.broker import Property
from minikafka.testing.simulation.client import SimulatedClient, pause_or_raise
from minikafka.testing.simulation.scenarios.plan import COMPACTED

if TYPE_CHECKING:
    from minikafka.testing.simulation.scenarios.swarm import SwarmRun

PAUSE_MS = 120
CONFIG: dict[str, Property] = {"log.cleaner.backoff.ms": 500}
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1500",
    "segment.jitter.ms": "0",
    "file.delete.delay.ms": "1000",
}
"""Compaction has something to do every other second."""


class KeyedProducer:
    """One record after the other, each until it is there."""

    def __init__(self, run: SwarmRun) -> None:
        self._run = run
        self._client = SimulatedClient(run.addresses, client_id="keyed-producer")
        self._acked: dict[bytes, tuple[int, int]] = {}
        """By key: the offset and the number of the newest one that was acknowledged."""

    async def work(self) -> None:
        """Until the run stops."""
        run, rng, number = self._run, self._run.simulation.rng("keyed-producer"), 0
        while not run.is_stopping:
            key = b"k%d" % rng.randrange(run.plan.keys)
            record = Record(0, time.time_ns() // 1_000_000, key, b"%d" % number, ())
            offset = await self._send(build_batch([record]))
            self._acked[key] = (offset, number)
            number += 1
            await run.rest(rng, PAUSE_MS)

    async def _send(self, batch: bytes) -> int:
        deadline = self._run.simulation.loop.time() + 600
        while True:
            try:
                return await self._client.produce(COMPACTED, 0, batch)
            except (KafkaError, BrokerUnavailable) as error:
                self._client.forget_leader(COMPACTED, 0)
                await pause_or_raise(error, deadline)

    async def check(self) -> None:
        """When it has stopped. Raises AssertionError."""
        newest: dict[bytes, tuple[int, int]] = {}
        for record in await self._read():
            newest[record.key or b""] = (record.offset, int(record.value or b"-1"))
        for key, (offset, number) in self._acked.items():
            found = newest.get(key, (-1, -1))
            # The same record once more, after an answer that was lost, is at a later offset.
            assert found == (offset, number) or (found[0] > offset and found[1] >= number), (
                f"I15: {number} of {key!r} was acked at {offset}; the newest is {found[1]} at {found[0]}"
            )

    async def _read(self) -> list[Record]:
        deadline = self._run.simulation.loop.time() + 60
        records: list[Record] = []
        offset = 0
        while True:
            try:
                fetched = await self._client.fetch(COMPACTED, 0, offset)
            except (KafkaError, BrokerUnavailable) as error:
                self._client.forget_leader(COMPACTED, 0)
                await pause_or_raise(error, deadline)
                continue
            records += fetched.records
            if fetched.next_offset == offset:
                return records
            offset = fetched.next_offset
