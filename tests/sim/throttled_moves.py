"""Simulated clusters whose partitions are moved by ``minikafka reassign``, under virtual time.

A partition of 200 MiB costs a simulation little: it is written in large batches of zeros, which a client
builds once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from minikafka.cli.reassign import command as reassign
from minikafka.cli.reassign.command import execute
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.server.replica.partition import Partition
from minikafka.testing.simulation import SimulatedClient, Simulation
from minikafka.testing.simulation.client import make_batch
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.simulation import PORT
from minikafka.types import TopicPartition
from tests.support.throttle_experiments import TOPIC, Experiment, Outcome

BROKERS = 4
SMALL_VALUE_BYTES = 127_000
"""Of the one record of each batch. A follower that catches up gets two such batches in an answer: that is
``CATCH_UP_BYTES_MAX``."""
LARGE_VALUE_BYTES = 1_000_000
"""One such batch is an answer, larger than that limit. So large are the answers of Kafka, whose followers ask
for ``replica.fetch.max.bytes`` (1 MiB)."""
TIMEOUT_MS = 30_000
SEED = 1


class Execution(NamedTuple):
    """One run of ``minikafka reassign execute``."""

    took_ms: float
    said: str


class MovingCluster:
    """Four brokers, and a topic whose partitions are large."""

    def __init__(self, simulation: Simulation, directory: Path) -> None:
        self.simulation = simulation
        self.addresses = [(f"broker-{node_id}", PORT) for node_id in range(1, BROKERS + 1)]
        self.client = SimulatedClient(self.addresses)
        self._plan = directory / "plan.json"

    async def start(self, *replicas: Sequence[int]) -> None:
        """Start the brokers, and make the topic with these replicas of each partition."""
        for node_id in range(1, BROKERS + 1):
            await self.simulation.start_broker(node_id)
        await self.client.create_topic(TOPIC, assignment=replicas)

    async def fill(
        self, size_bytes: int, *, partitions: int = 1, value_bytes: int = SMALL_VALUE_BYTES
    ) -> int:
        """Write so much into each partition, to within half a batch. Returns how much it is."""
        batch = make_batch([bytes(value_bytes)])
        count = round(size_bytes / len(batch))
        for partition in range(partitions):
            for _ in range(count):
                await self.client.deliver(TOPIC, partition, batch, acks=1)
        return count * len(batch)

    def replica(self, node_id: int, partition: int = 0) -> Partition | None:
        """None: the broker has none."""
        at = TopicPartition(TOPIC, partition)
        replicas = hosted_partitions(self.simulation.brokers[node_id])
        return next((each for each in replicas if each.topic_partition == at), None)

    def log_bytes(self, node_id: int) -> int:
        """The size of a replica of partition 0; 0: the broker has none."""
        replica = self.replica(node_id)
        return 0 if replica is None else replica.log.size_bytes

    async def until_isr(self, leader: int, *node_ids: int) -> None:
        """Until the leader of partition 0 has exactly these in sync."""

        def is_so() -> bool:
            replica = self.replica(leader)
            return replica is not None and replica.is_leader and set(replica.isr) == set(node_ids)

        await until(is_so, f"the ISR is {node_ids}")

    async def reassign(self, plan: str, *options: str) -> Execution:
        """``minikafka reassign execute``, which must end well."""
        self._plan.write_text(plan)
        arguments = reassign.parser().parse_args(
            [
                "execute",
                f"--bootstrap-server=broker-1:{PORT}",
                f"--reassignment-json-file={self._plan}",
                *options,
            ]
        )
        loop = asyncio.get_running_loop()
        before = loop.time()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            async with AdminClient(self.addresses, client_id="operator", timeout_ms=TIMEOUT_MS) as admin:
                status = await execute(admin, arguments)
        assert status == 0, said.getvalue()
        return Execution((loop.time() - before) * 1000, said.getvalue())


def run_experiment(
    experiment: Experiment, directory: Path, *, size_bytes: int, bytes_per_s: int, value_bytes: int
) -> Outcome:
    """Move partitions of ``size_bytes`` as ``experiment`` says, in a cluster of its own.

    Args:
        directory: for the plan.
        bytes_per_s: the throttle.
        value_bytes: of each batch.
    """

    async def story(simulation: Simulation) -> Outcome:
        cluster = MovingCluster(simulation, directory)
        await cluster.start(*([source] for source, _ in experiment.moves))
        count = len(experiment.moves)
        filled_bytes = await cluster.fill(size_bytes, partitions=count, value_bytes=value_bytes)
        execution = await cluster.reassign(experiment.plan(), f"--throttle={bytes_per_s}")
        for partition, (source, target) in enumerate(experiment.moves):
            moved = cluster.replica(target, partition)
            assert moved is not None and moved.is_leader and moved.log.size_bytes == filled_bytes
            assert cluster.replica(source, partition) is None
        estimate = experiment.estimate(filled_bytes)
        assert estimate.describe(bytes_per_s) in execution.said
        return Outcome(experiment, estimate, execution.took_ms)

    try:
        return Simulation(seed=SEED).run(story)
    finally:
        gc.collect()  # the simulated disks, several hundred megabytes in cycles
