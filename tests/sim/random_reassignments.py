"""An operator who cannot make up his mind, during faults: partitions move, move elsewhere, and move back.

Four brokers. Whatever becomes of each request, no acked record is lost, and when the faults are over every
move is finished, on exactly the brokers that the assignment names.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.simulation.client import SimulatedClient
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.simulation import Simulation
from minikafka.types import ElectionType, ReplicaAssignment
from tests.sim.cluster_run import PARTITIONS, TOPIC, ClusterRun, until
from tests.sim.random_faults import SESSION_TIMEOUT_MS, faults

BROKERS = 4
PAUSE_S = (0.2, 2.5)
"""Between two requests: some come while the one before is under way."""
REPLICA_COUNTS = (2, 3, 3, 4)

ANSWERS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # a broker that is away
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # asked of a broker that has only just come
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Operator:
    """Asks for moves, cancels them and has preferred leaders elected, of whichever broker."""

    def __init__(self, run: ClusterRun, rng: random.Random) -> None:
        self._run = run
        self._rng = rng
        self._client = SimulatedClient(run.addresses, client_id="operator")
        self.accepted = 0

    async def work(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))
            partition = self._rng.randrange(PARTITIONS)
            try:
                match self._rng.random():
                    case dice if dice < 0.65:
                        count = self._rng.choice(REPLICA_COUNTS)
                        await self._reassign(partition, self._rng.sample(self._run.brokers, count))
                    case dice if dice < 0.85:
                        await self._reassign(partition, None)
                    case _:
                        await self._elect(partition)
            except BrokerUnavailable:
                continue

    async def _reassign(self, partition: int, replicas: Sequence[int] | None) -> None:
        body = {
            "timeout": 5_000,
            "allow_replication_factor_change": True,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": partition, "replicas": replicas}]}],
        }
        address = self._rng.choice(self._run.addresses)
        answer = await self._client.request(address, ApiKey.ALTER_PARTITION_REASSIGNMENTS, body)
        code = answer.error_code or answer.responses[0].partitions[0].error_code
        if code not in ANSWERS:
            raise KafkaError(ErrorCode(code), f"reassigning {TOPIC}-{partition} to {replicas}")
        self.accepted += code == ErrorCode.NONE

    async def _elect(self, partition: int) -> None:
        body = {
            "election_type": ElectionType.PREFERRED,
            "topic_partitions": [{"topic": TOPIC, "partitions": [partition]}],
            "timeout": 5_000,
        }
        await self._client.request(self._rng.choice(self._run.addresses), ApiKey.ELECT_LEADERS, body)


async def random_reassignments(simulation: Simulation) -> int:
    """The scenario of one seed. Returns how many records were acked."""
    run = ClusterRun(simulation, brokers=BROKERS)
    await run.start()
    run.produce()
    operator = Operator(run, simulation.rng("operator"))
    working = asyncio.create_task(operator.work())
    await faults(run, simulation.rng("faults"))
    if not working.done():
        working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    if not working.cancelled():
        working.result()  # which is what went wrong
    await until(lambda: not _moving(simulation), "every move is finished")
    await run.finish()
    _check_hosts(run)
    assert operator.accepted, "no move was ever accepted: this seed has shown nothing"
    return len(run.acked)


def _assignments(simulation: Simulation) -> dict[int, ReplicaAssignment]:
    return paths.decode_topic(TOPIC, simulation.store.tree.get(paths.topic_path(TOPIC)).data).partitions


def _moving(simulation: Simulation) -> list[int]:
    return [number for number, each in _assignments(simulation).items() if each.is_being_reassigned]


def _check_hosts(run: ClusterRun) -> None:
    """A replica that was moved away is not kept, one that was moved here is."""
    wanted = {number: set(each.replicas) for number, each in _assignments(run.simulation).items()}
    hosts: dict[int, set[int]] = {number: set() for number in wanted}
    for node_id, broker in run.simulation.brokers.items():
        for partition in hosted_partitions(broker):
            hosts[partition.topic_partition.partition].add(node_id)
    assert hosts == wanted, f"replicas are on {hosts}, and should be on {wanted}"


def run_seed(seed: int) -> int:
    """Run one seed. Returns how many records were acked; raises what went wrong."""
    return Simulation(seed, session_timeout_ms=SESSION_TIMEOUT_MS).run(random_reassignments)
