"""A simulated cluster under load: what is written, what is acknowledged, what must be there at the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from minikafka.errors import InvariantError, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.testing.broker import Property
from minikafka.testing.history import check
from minikafka.testing.history_recorder import Recorder
from minikafka.testing.simulation.client import SimulatedClient, SimulatedProducer
from minikafka.testing.simulation.invariants import InvariantChecker, hosted_partitions
from minikafka.testing.simulation.scenarios.faults import carry_out, until
from minikafka.testing.simulation.scenarios.plan import COMPACTED, TOPIC, Consumer, Plan, Producer
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
POLL_PAUSE_MS = 250
"""Of a consumer, between two rounds through all partitions."""
LULL_SHARE = 0.06
"""After how many of its records a producer says nothing for a while."""
LULL_MS = (200, 2_500)


class ClusterRun:
    """Some brokers, a topic, and producers for its partitions."""

    topic = TOPIC

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.brokers = tuple(range(1, plan.brokers + 1))
        self.addresses = [(f"broker-{node_id}", 9092) for node_id in self.brokers]
        self.checker = InvariantChecker(simulation, compacted={COMPACTED})
        if all(each.acks == -1 for each in plan.producers):
            self.checker.durable_topics = frozenset({self.topic})
        self.client = SimulatedClient(self.addresses)
        self.recorder = Recorder(lambda: simulation.loop.time() * 1000)
        """Of all that clients did and were told."""
        self.faults_done: Counter[str] = Counter()
        self.at_broker = {node_id: asyncio.Lock() for node_id in self.brokers}
        """Held while a fault is at a broker."""
        self.bit_rot_found = 0
        """How often a client was told that a batch is not what it was."""
        self._stopping = False
        self._producers: list[asyncio.Task[None]] = []
        self._consumers: list[asyncio.Task[None]] = []

    async def play(self) -> None:
        """From the start to the last check. Raises what is wrong."""
        await self.start()
        self.produce()
        self.consume()
        await carry_out(self, self.plan.steps)
        await self.finish()

    async def start(self) -> None:
        for node_id in self.brokers:
            await self.simulation.start_broker(node_id, {**self.plan.config, **self.properties_of(node_id)})
        self.checker.start()
        await self.client.create_topic(
            self.topic, partitions=self.plan.partitions, replication_factor=self.plan.replicas
        )

    def properties_of(self, node_id: int) -> dict[str, Property]:
        """What differs from broker to broker."""
        return {"broker.rack": f"rack-{node_id % self.plan.racks}"} if self.plan.racks else {}

    def produce(self) -> None:
        """Begin to produce with acks=all."""
        for number, producer in enumerate(self.plan.producers):
            self._producers.append(asyncio.create_task(self._produce(number, producer)))

    async def _produce(self, number: int, plan: Producer) -> None:
        """One record after the other."""
        name = f"producer-{number}"
        rng = self.simulation.rng(name)
        producer = self.recorder.producer(name, SimulatedProducer(self.client_of(name, plan)))
        count = 0
        while not self._stopping:
            try:
                await producer.send(self.topic, plan.partition, [b"%d-%d" % (number, count)])
            except (KafkaError, BrokerUnavailable):
                continue  # the same record again, with the same sequence number
            count += 1
            await self.rest(rng, plan.pause_ms, lulls=plan.rests)

    def consume(self) -> None:
        """Begin to read."""
        self._consumers += [
            asyncio.create_task(self._consume(number, plan))
            for number, plan in enumerate(self.plan.consumers)
        ]

    async def _consume(self, number: int, plan: Consumer) -> None:
        """Reads every partition from its start, and from there on."""
        name = f"consumer-{number}"
        rng = self.simulation.rng(name)
        client = SimulatedClient(self.addresses, client_id=name, rack=plan.rack)
        readers = [
            self.recorder.reader(name, client, self.topic, partition, read_committed=plan.read_committed)
            for partition in range(self.plan.partitions)
        ]
        while not self._stopping:
            for reader in readers:
                try:
                    await reader.poll()
                except (KafkaError, BrokerUnavailable) as error:
                    await reader.recover(error)
            await self.rest(rng, POLL_PAUSE_MS)

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

    async def until_ready_for_faults(self) -> None:
        """Until it is whole, so that the next faults are one story. Raises TimeoutError."""
        await self.until_whole()

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
        before = self.acked
        await until(lambda: self._has_acked(before + self.acked_at_the_end), "records are acked again")
        self._stopping = True
        await asyncio.gather(*self._producers, *self._consumers)
        await asyncio.sleep(2)
        self.checker.look()
        await until(self.checker.are_led, "each partition has a leader")
        self.checker.check_replicas()
        await self.check_history()

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    @property
    def acked(self) -> int:
        """How many records, or transactions, were acknowledged with acks=all."""
        return self.recorder.acknowledged

    @property
    def written_partitions(self) -> list[tuple[str, int]]:
        """Those that recorded producers write to."""
        return [(self.topic, number) for number in range(self.plan.partitions)]

    @property
    def acked_at_the_end(self) -> int:
        """How many more show that it goes on."""
        return 4 if any(each.acks == -1 for each in self.plan.producers) else 0

    def _has_acked(self, count: int) -> bool:
        self.raise_what_failed()
        return self.acked >= count

    def raise_what_failed(self) -> None:
        """What has ended a producer or a consumer before its time, if anything has."""
        for client in (*self._producers, *self._consumers):
            if client.done():
                client.result()

    async def check_history(self) -> None:
        """What clients did and saw, and what is there at the end, is what a log can do (I1, I10, I11, I13).

        Raises InvariantError.
        """
        await self.read_to_end()
        report = check(self.recorder.history())
        if not report.is_valid:
            raise InvariantError(f"clients saw: {report}")

    async def read_to_end(self) -> None:
        """What is there at the end goes into the history."""
        partitions = self.written_partitions
        await self.recorder.read_to_end("final", self.client, partitions)
        await self.recorder.read_to_end("final-committed", self.client, partitions, read_committed=True)
