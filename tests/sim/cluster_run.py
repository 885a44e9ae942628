"""A simulated cluster under load: what is written, what is acknowledged, what must be there at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.testing.broker import Property
from minikafka.testing.simulation.client import SimulatedClient, SimulatedProducer
from minikafka.testing.simulation.invariants import InvariantChecker, hosted_partitions
from minikafka.testing.simulation.simulation import Simulation

TOPIC = "t"
PARTITIONS = 2
REPLICAS = 3

CONFIG: dict[str, Property] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 4000,
    "controlled.shutdown.retry.backoff.ms": 500,
    "log.roll.ms": 5000,
}
"""Segments that roll; a short lag, so that the ISR moves."""

PRODUCE_PAUSE_MS = 40
HEAL_WITHIN_MS = 30_000
"""I16."""


async def until(condition: Callable[[], bool], what: str, *, within_ms: int = HEAL_WITHIN_MS) -> None:
    """Look every 50 ms of virtual time. Raises TimeoutError."""
    for _ in range(within_ms // 50):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"not within {within_ms} ms: {what}")


class ClusterRun:
    """Some brokers, a topic of two partitions with three replicas, and a producer for each partition."""

    def __init__(
        self, simulation: Simulation, *, brokers: int = 3, config: Mapping[str, Property] | None = None
    ) -> None:
        self.simulation = simulation
        self.brokers = tuple(range(1, brokers + 1))
        self.addresses = [(f"broker-{node_id}", 9092) for node_id in self.brokers]
        self.config = {**CONFIG, **(config or {})}
        self.checker = InvariantChecker(simulation)
        self.client = SimulatedClient(self.addresses)
        self.acked: list[tuple[int, int, bytes]] = []
        """Partition, offset and value, as acknowledged with acks=all."""
        self._stopping = False
        self._producers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for node_id in self.brokers:
            await self.simulation.start_broker(node_id, self.config)
        self.checker.start()
        await self.client.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=REPLICAS)

    def produce(self) -> None:
        """Begin to produce with acks=all, one record after the other in each partition."""
        for partition in range(PARTITIONS):
            self._producers.append(asyncio.create_task(self._produce(partition)))

    async def _produce(self, partition: int) -> None:
        client = SimulatedClient(self.addresses, client_id=f"producer-{partition}")
        producer = SimulatedProducer(client)
        number = 0
        while not self._stopping:
            value = b"%d-%d" % (partition, number)
            try:
                offset = await producer.send(TOPIC, partition, [value])
            except (KafkaError, BrokerUnavailable):
                continue  # the same record again, with the same sequence number
            if offset >= 0:
                self.acked.append((partition, offset, value))
            number += 1
            await asyncio.sleep(PRODUCE_PAUSE_MS / 1000)

    async def until_whole(self) -> None:
        """Until every partition has a leader whose ISR are all replicas, and nothing is left to fetch.

        Raises TimeoutError after ``HEAL_WITHIN_MS``, I16.
        """
        await until(self._is_whole, "every ISR is whole")

    def _is_whole(self) -> bool:
        led = [
            partition
            for broker in self.simulation.brokers.values()
            for partition in hosted_partitions(broker)
            if partition.is_leader and set(partition.isr) == set(partition.replicas)
        ]
        return len({partition.topic_partition for partition in led}) == PARTITIONS

    async def finish(self) -> None:
        """Heal over, everything is running: it must become whole, go on, and have kept what was acked."""
        await self.until_whole()
        before = len(self.acked)
        await until(lambda: self._has_acked(before + 4), "records are acked again")
        self._stopping = True
        await asyncio.gather(*self._producers)
        await asyncio.sleep(2)
        self.checker.look()
        self.checker.check_replicas()
        await self.check_records()

    def _has_acked(self, count: int) -> bool:
        for producer in self._producers:
            if producer.done():
                producer.result()  # which is what went wrong
        return len(self.acked) >= count

    async def check_records(self) -> None:
        """I1: what was acked is where it was acked, once."""
        for partition in range(PARTITIONS):
            read = await self.client.read_all(TOPIC, partition)
            by_offset = dict(read)
            for acked_partition, offset, value in self.acked:
                if acked_partition == partition:
                    assert by_offset.get(offset) == value, (
                        f"I1: {value!r} was acked at {offset} of partition {partition}, where there is "
                        f"{by_offset.get(offset)!r}"
                    )
            assert len(set(by_offset.values())) == len(read), (
                f"I11: a record is twice in partition {partition}"
            )
