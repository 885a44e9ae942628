"""All brokers of a cluster fall, and the one with the newest tail is the last to return (KIP-966).

One leads a topic and ``__consumer_offsets``. It is killed, which loses nothing; the two others lose power in
the same moment, and with it what they had not fsynced. They return first, and would elect each other.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.broker import Property
from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.disk import Survival
from minikafka.testing.simulation.invariants import InvariantChecker
from minikafka.testing.simulation.scenarios.cluster_run import until
from minikafka.testing.simulation.simulation import Simulation
from minikafka.types import PartitionState

TOPIC, GROUP, OFFSETS = "t", "g", "__consumer_offsets"
COMMITTED = 1
BROKERS = (1, 2, 3)
CONFIG: dict[str, Property] = {
    "auto.leader.rebalance.enable": False,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
}
SETTLED_MS = 30_000
"""Longer than a session without its broker lasts."""


class World:
    """Three brokers; ``newest`` leads, and the others follow."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.brokers = simulation.brokers
        self.client = SimulatedClient([(f"broker-{node_id}", 9092) for node_id in BROKERS])
        self.checker = InvariantChecker(simulation)
        self.newest = 0

    async def start(self) -> None:
        """And write a record and an offset."""
        for node_id in BROKERS:
            await self.simulation.start_broker(node_id, CONFIG)
        self.checker.start()
        await self.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [GROUP]})
        await until(lambda: self.is_whole(OFFSETS), "the offsets topic is there")
        self.newest = int(self.state(OFFSETS).leader)
        await self.client.create_topic(TOPIC, assignment=[[self.newest, *self.others]])
        await until(lambda: self.is_whole(TOPIC), "all are in sync")
        await self.client.deliver(TOPIC, 0, make_batch([b"acknowledged"]))
        await self.commit()

    @property
    def others(self) -> list[int]:
        return [each for each in BROKERS if each != self.newest]

    def state(self, topic: str) -> PartitionState:
        data = self.simulation.store.tree.get(paths.partition_state_path(topic, 0)).data
        return paths.decode_partition_state(topic, 0, data)

    def is_whole(self, topic: str) -> bool:
        path = paths.partition_state_path(topic, 0)
        return path in self.simulation.store.tree.nodes and set(self.state(topic).isr) == set(BROKERS)

    async def ask(self, api_key: ApiKey, body: dict[str, Any], **options: Any) -> Any:
        """The broker that had the newest tail; it coordinates the group. Until it runs."""
        while True:
            try:
                node_id = self.newest or 1
                return await self.client.request((f"broker-{node_id}", 9092), api_key, body, **options)
            except (BrokerUnavailable, KafkaError):
                await asyncio.sleep(0.2)

    async def commit(self) -> None:
        partition = {
            "partition_index": 0,
            "committed_offset": COMMITTED,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        body = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [partition]}],
        }
        while True:
            (found,) = (await self.ask(ApiKey.OFFSET_COMMIT, body, version=9)).topics
            if found.partitions[0].error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(0.2)

    async def committed(self) -> int:
        """The offset of the group, -1: there is none."""
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        group = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": topics}
        body = {"groups": [group], "require_stable": False}
        while True:
            (found,) = (await self.ask(ApiKey.OFFSET_FETCH, body, version=9)).groups
            if not found.error_code:
                return int(found.topics[0].partitions[0].committed_offset)
            await asyncio.sleep(0.2)

    async def shown_by(self, node_id: int) -> tuple[int, tuple[int, ...]]:
        """The topic's leader and last known ones, as a broker tells clients (KIP-966)."""
        body = {"topics": [{"name": TOPIC}], "response_partition_limit": 1, "cursor": None}
        address = f"broker-{node_id}", 9092
        client = SimulatedClient([address])
        answer = await client.request(address, ApiKey.DESCRIBE_TOPIC_PARTITIONS, body)
        (found,) = answer.topics[0].partitions
        return found.leader_id, tuple(found.last_known_elr)

    def fall(self) -> None:
        self.brokers[self.newest].kill()
        for each in self.others:
            self.brokers[each].power_off(Survival.NOTHING)

    async def check_that_nothing_is_lost(self) -> None:
        await until(lambda: self.is_whole(TOPIC) and self.is_whole(OFFSETS), "all are in sync again")
        assert [value for _, value in await self.client.read_all(TOPIC)] == [b"acknowledged"]
        assert await self.committed() == COMMITTED
        self.checker.look()
        self.checker.check_replicas()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("away_ms", [0, SETTLED_MS])
def test_the_last_known_leader_is_waited_for(first: int, away_ms: int) -> None:
    """Either the first that returns finds the sessions of the others alive, and takes them for brokers that
    lead and follow until these end; or it is alone, and all replicas are in the ISR as if they had not
    fallen."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        world.fall()
        await asyncio.sleep(away_ms / 1000)
        for each in (world.others[first], world.others[1 - first]):
            await world.brokers[each].start()
            await asyncio.sleep(SETTLED_MS / 1000)
            assert world.state(TOPIC).leader == world.state(OFFSETS).leader == -1
            assert await world.shown_by(each) == (-1, (world.newest,))
        await world.brokers[world.newest].start()
        await world.check_that_nothing_is_lost()

    Simulation(21).run(scenario)


def test_only_one_machine_has_lost_power_and_its_broker_returns_first() -> None:
    """The two others were killed. One is back and holds everything, but no broker can know that of itself:
    the last one is waited for too."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        dark, killed = world.others
        world.brokers[dark].power_off(Survival.NOTHING)
        world.brokers[world.newest].kill()
        world.brokers[killed].kill()
        await asyncio.sleep(SETTLED_MS / 1000)
        for each in (dark, killed, world.newest):
            await world.brokers[each].start()
            await asyncio.sleep(SETTLED_MS / 1000)
        await world.check_that_nothing_is_lost()

    Simulation(23).run(scenario)


def test_all_return_before_a_controller_has_seen_them_fall() -> None:
    """Two of them have lost their ends. Each was in the ISR, and must be in sync again before it may lead."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        world.fall()
        for each in world.others:
            simulation.network.cut(f"broker-{each}", f"broker-{world.newest}")
        await asyncio.gather(*(world.brokers[each].start() for each in (*world.others, world.newest)))
        await until(lambda: world.state(TOPIC).isr == (world.newest,), "the others are out of the ISR")
        world.brokers[world.newest].kill()
        await asyncio.sleep(SETTLED_MS / 1000)
        assert world.state(TOPIC).leader == world.state(OFFSETS).leader == -1
        for each in world.others:
            simulation.network.heal(f"broker-{each}", f"broker-{world.newest}")
        await world.brokers[world.newest].start()
        await world.check_that_nothing_is_lost()

    Simulation(24).run(scenario)
