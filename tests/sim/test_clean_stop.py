"""A leader that stops cleanly: clients hear from it who leads now, and no request waits for it any more."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.cluster_run import CONFIG, ClusterRun
from minikafka.testing.simulation.scenarios.plan import TOPIC, Plan, Producer
from minikafka.testing.simulation.simulation import SimulatedBroker, Simulation
from minikafka.types import BrokerId

LOOK_MS = 5
PLAN = Plan(
    scenario="clean stop",
    seed=0,
    brokers=3,
    partitions=2,
    replicas=3,
    config=CONFIG,
    producers=tuple(Producer(partition=each, rests=False) for each in range(2)),
)
GAP_MS_MAX = 300
"""A refusal, the pause of a client (100 ms), the metadata, the record."""


class Stop:
    """A leader's way down, and what others see of it."""

    def __init__(self, run: ClusterRun, broker: SimulatedBroker) -> None:
        self.answers: list[tuple[ErrorCode, bool]] = []
        """To a record, from the old leader after partition 0 has moved; and whether it names the new one."""
        self.isrs: set[tuple[BrokerId, ...]] = set()
        """Of partition 0, after it has moved."""
        self.gap_ms = 0.0
        """The longest time in which no record was acknowledged."""
        self._run = run
        self._broker = broker
        self._client = SimulatedClient([broker.address])

    async def watch(self) -> None:
        """Until the broker is down, and for 2 s more."""
        clock = asyncio.get_running_loop().time
        stopping = asyncio.create_task(self._broker.stop())
        acked, since, end = self._run.acked, clock(), float("inf")
        while clock() < end:
            if stopping.done():
                end = min(end, clock() + 2)
            leader = self._leader()
            if leader is not None and leader.node_id != self._broker.node_id:
                self.isrs.add(self._isr(leader))
                await self._ask(leader.node_id)
            if self._run.acked != acked:
                acked, since = self._run.acked, clock()
            self.gap_ms = max(self.gap_ms, (clock() - since) * 1000)
            await asyncio.sleep(LOOK_MS / 1000)
        await stopping

    def _leader(self) -> SimulatedBroker | None:
        """Who believes to lead; of two the one with the later epoch."""
        found = [
            (hosted.leader_epoch, broker.node_id)
            for broker in self._run.simulation.brokers.values()
            for hosted in hosted_partitions(broker)
            if hosted.topic_partition == (TOPIC, 0) and hosted.is_leader
        ]
        return self._run.simulation.brokers[max(found)[1]] if found else None

    def _isr(self, leader: SimulatedBroker) -> tuple[BrokerId, ...]:
        (isr,) = (each.isr for each in hosted_partitions(leader) if each.topic_partition == (TOPIC, 0))
        return isr

    async def _ask(self, leader: int) -> None:
        records = make_batch([b"late"])
        body = {
            "transactional_id": None,
            "acks": -1,
            "timeout": 1000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}],
        }
        try:
            answer = await self._client.request(self._broker.address, ApiKey.PRODUCE, body, version=10)
        except BrokerUnavailable:
            return  # it is down
        told = answer.responses[0].partition_responses[0]
        self.answers.append((told.error_code, told.current_leader.leader_id == leader))


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_stops_says_who_leads_now_and_leaves_the_isr_for_good(seed: int) -> None:
    async def scenario(simulation: Simulation) -> None:
        run = ClusterRun(simulation, PLAN)
        await run.start()
        await run.until_whole()
        run.produce()
        old = await SimulatedClient(run.addresses).leader(TOPIC, 0)
        stop = Stop(run, simulation.brokers[old])
        await stop.watch()
        assert len(stop.answers) > 10
        assert set(stop.answers) == {(ErrorCode.NOT_LEADER_OR_FOLLOWER, True)}
        assert stop.isrs and all(old not in isr for isr in stop.isrs), stop.isrs
        assert stop.gap_ms < GAP_MS_MAX
        await simulation.brokers[old].start()
        await run.finish()

    Simulation(seed).run(scenario)
