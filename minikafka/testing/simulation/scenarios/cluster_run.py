"""A simulated cluster under load: what is written, what is acknowledged, what must be there at the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.testing.broker import Property
from minikafka.testing.history.recorder import Recorder
from minikafka.testing.simulation.client import SimulatedClient, SimulatedProducer
from minikafka.testing.simulation.invariants import InvariantChecker, hosted_partitions
from minikafka.testing.simulation.scenarios.plan import TOPIC, Plan, Producer
from minikafka.testing.simulation.simulation import Simulation

CONFIG: dict[str, Property] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 4000,
    "controlled.shutdown.retry.backoff.ms": 500,
    "log.roll.ms": 5000,
}
"""Segments that roll; a short lag, so that the ISR moves."""

SESSION_TIMEOUT_MS = 6_000
HEAL_WITHIN_MS = 30_000
"""I16."""
LULL_SHARE = 0.06
"""After how many of its records a producer says nothing for a while."""
LULL_MS = (200, 2_500)


async def until(condition: Callable[[], bool], what: str, *, within_ms: int = HEAL_WITHIN_MS) -> None:
    """Look every 50 ms of virtual time. Raises TimeoutError."""
    for _ in range(within_ms // 50):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"not within {within_ms} ms: {what}")


class Call(NamedTuple):
    """What a client sent and got, in virtual milliseconds: all that it knows."""

    client: str
    operation: str
    began_ms: float
    ended_ms: float
    partition: int
    sent: bytes | int | str
    """A record's value, or the offset that was asked for."""
    got: object
    """An offset, records; or the name of an error, after which the outcome of a write is not known."""


class ClusterRun:
    """Some brokers, a topic, and producers for its partitions."""

    topic = TOPIC

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.brokers = tuple(range(1, plan.brokers + 1))
        self.addresses = [(f"broker-{node_id}", 9092) for node_id in self.brokers]
        self.checker = InvariantChecker(simulation)
        self.client = SimulatedClient(self.addresses)
        self.recorder = Recorder(lambda: simulation.loop.time() * 1000)
        self.acked: list[tuple[int, int, bytes]] = []
        """Partition, offset and value, as acknowledged with acks=all."""
        self.calls: list[Call] = []
        """All that clients sent and got, in the order of the answers."""
        self.faults_done: Counter[str] = Counter()
        self.at_broker = {node_id: asyncio.Lock() for node_id in self.brokers}
        """Held while a fault is at a broker."""
        self._stopping = False
        self._producers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for node_id in self.brokers:
            rack: dict[str, Property] = {}
            if self.plan.racks:
                rack["broker.rack"] = f"rack-{node_id % self.plan.racks}"
            await self.simulation.start_broker(node_id, {**self.plan.config, **rack})
        self.checker.start()
        await self.client.create_topic(
            self.topic, partitions=self.plan.partitions, replication_factor=self.plan.replicas
        )

    def note(
        self,
        client: str,
        operation: str,
        began_s: float,
        partition: int,
        sent: bytes | int | str,
        got: object,
    ) -> None:
        """Keep what a client sent and got."""
        now_ms = self.simulation.loop.time() * 1000
        self.calls.append(Call(client, operation, began_s * 1000, now_ms, partition, sent, got))

    def produce(self) -> None:
        """Begin to produce with acks=all."""
        for number, producer in enumerate(self.plan.producers):
            self._producers.append(asyncio.create_task(self._produce(number, producer)))

    async def _produce(self, number: int, plan: Producer) -> None:
        """One record after the other."""
        name = f"producer-{number}"
        rng = self.simulation.rng(name)
        producer = SimulatedProducer(self.client_of(name, plan))
        count = 0
        while not self._stopping:
            value = b"%d-%d" % (number, count)
            began_s = self.simulation.loop.time()
            try:
                offset = await producer.send(self.topic, plan.partition, [value])
            except (KafkaError, BrokerUnavailable) as error:
                self.note(name, "send", began_s, plan.partition, value, repr(error))
                continue  # the same record again, with the same sequence number
            self.note(name, "send", began_s, plan.partition, value, offset)
            if offset >= 0:
                self.acked.append((plan.partition, offset, value))
            count += 1
            await self.rest(rng, plan.pause_ms, lulls=plan.rests)

    def client_of(self, name: str, plan: Producer) -> SimulatedClient:
        """A connection to the cluster of its own."""
        return SimulatedClient(self.addresses, client_id=name, request_timeout_ms=plan.timeout_ms)

    async def rest(self, rng: random.Random, pause_ms: int, *, lulls: bool = True) -> None:
        """Between two records: mostly ``pause_ms``, sometimes long."""
        if lulls and rng.random() < LULL_SHARE:
            pause_ms = rng.randint(*LULL_MS)
        await asyncio.sleep(pause_ms / 1000)

    async def until_whole(self) -> None:
        """Until every partition has a leader whose ISR are all replicas, and nothing is left to fetch.

        Raises TimeoutError after ``HEAL_WITHIN_MS``, I16.
        """
        await until(self._is_whole, "every ISR is whole")

    def _is_whole(self) -> bool:
        whole = {
            partition.topic_partition.partition
            for broker in self.simulation.brokers.values()
            for partition in hosted_partitions(broker)
            if partition.is_leader
            and partition.topic_partition.topic == self.topic
            and set(partition.isr) == set(partition.replicas)
        }
        return len(whole) >= self.plan.partitions

    async def finish(self) -> None:
        """Heal over, everything is running: it must become whole, go on, and have kept what was acked."""
        await self.until_whole()
        before = len(self.acked)
        await until(lambda: self._has_acked(before + self.acked_at_the_end), "records are acked again")
        self._stopping = True
        await asyncio.gather(*self._producers)
        await asyncio.sleep(2)
        self.checker.look()
        self.checker.check_replicas()
        await self.check_records()

    @property
    def acked_at_the_end(self) -> int:
        """How many more show that it goes on."""
        return 4 if self.plan.transactions or any(each.acks == -1 for each in self.plan.producers) else 0

    def _has_acked(self, count: int) -> bool:
        for producer in self._producers:
            if producer.done():
                producer.result()  # which is what went wrong
        return len(self.acked) >= count

    async def check_records(self) -> None:
        """I1: what was acked is where it was acked. I11: once."""
        plain = {number for number, each in enumerate(self.plan.producers) if not each.idempotent}
        for partition in range(self.plan.partitions):
            read = await self.client.read_all(self.topic, partition)
            start = await self.client.log_start(self.topic, partition)
            by_offset = dict(read)
            for acked_partition, offset, value in self.acked:
                if acked_partition == partition and offset >= start:
                    assert by_offset.get(offset) == value, (
                        f"I1: {value!r} was acked at {offset} of partition {partition}, where there is "
                        f"{by_offset.get(offset)!r}"
                    )
            once = [value for value in by_offset.values() if int((value or b"").split(b"-")[0]) not in plain]
            assert len(set(once)) == len(once), f"I11: a record is twice in partition {partition}"
