"""Configurations that say who may lead, changed while it matters: from the request to the state node.

KIP-966 and a ``min.insync.replicas`` that changes: nothing acknowledged is lost to an eligible replica.
Brokers 1 and 2 have a partition with ``min.insync.replicas=2``. 2 stops cleanly, so it is eligible: nothing
is committed without it. Then the minimum is lowered for a while, and 1 commits alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from minikafka.config.resource import ConfigResourceType
from minikafka.coordination import paths
from minikafka.coordination.store import CreateOp
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.invariants import InvariantChecker
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.simulation import STORE, Simulation
from minikafka.types import BrokerId, PartitionState

TOPIC = "t"
SET = 0
NO_SESSION = 0
SETTLED_MS = 30_000
"""Longer than a session without its broker lasts."""

MinIsr = Callable[[int], Awaitable[None]]


class Story:
    """Three brokers, of which the third is the controller."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.checker = InvariantChecker(simulation)
        self.client = SimulatedClient([(f"broker-{node_id}", 9092) for node_id in (1, 2, 3)])

    async def start(self, *, own: dict[int, int] | None = None, check: bool = True) -> None:
        """``own`` is ``min.insync.replicas`` of single brokers in the store, where Kafka 3 may have put it;
        all others have 2. ``check`` the invariants; they hold neither for two topics of one name, nor with
        unclean elections."""
        for node_id in (3, 1, 2):
            value = (own or {}).get(node_id)
            if value is not None:
                data = paths.encode_config({"min.insync.replicas": str(value)})
                node = CreateOp(paths.broker_config_path(BrokerId(node_id)), data)
                self.simulation.store.tree.write([node], session_id=NO_SESSION)
            await self.simulation.start_broker(node_id, {"min.insync.replicas": 2})
        if check:
            self.checker.start()
        await self.client.create_topic(TOPIC, assignment=[[1, 2]])
        await until(lambda: self.state().isr == (1, 2), "both are in sync")

    def state(self) -> PartitionState:
        """What the state node says."""
        data = self.simulation.store.tree.get(paths.partition_state_path(TOPIC, 0)).data
        return paths.decode_partition_state(TOPIC, 0, data)

    async def stop(self, node_id: int) -> None:
        await self.simulation.brokers[node_id].stop()

    async def produce(self, value: bytes) -> int:
        """With acks=all, until it is acknowledged."""
        return await self.client.deliver(TOPIC, 0, make_batch([value]))

    async def set_topic_min_isr(self, value: int) -> None:
        await self.alter(1, ConfigResourceType.TOPIC, TOPIC, "min.insync.replicas", value)

    async def set_default_min_isr(self, value: int) -> None:
        await self.alter(3, ConfigResourceType.BROKER, "", "min.insync.replicas", value)

    async def alter(self, at: int, kind: ConfigResourceType, name: str, key: str, value: object) -> None:
        """IncrementalAlterConfigs at a broker."""
        alteration = {"name": key, "config_operation": SET, "value": str(value)}
        body = {
            "resources": [{"resource_type": kind, "resource_name": name, "configs": [alteration]}],
            "validate_only": False,
        }
        answer = await self.client.request(
            (f"broker-{at}", 9092), ApiKey.INCREMENTAL_ALTER_CONFIGS, body, version=1
        )
        assert answer.responses[0].error_code == ErrorCode.NONE, answer

    async def check_that_it_waits_for(self, node_id: int, value: bytes) -> None:
        """1 is gone, 2 is back: no broker may lead before 1, who has ``value``, is there again."""
        await until(lambda: self.state().leader == -1, "1 leads no more")
        await asyncio.sleep(SETTLED_MS / 1000)
        assert self.state().leader == -1
        await self.simulation.brokers[node_id].start()
        found = await self.client.read_all(TOPIC)
        assert value in [each for _, each in found], f"{value!r} was acknowledged, and there is {found}"


async def alone_in_the_isr(story: Story) -> None:
    await story.stop(2)
    await until(lambda: story.state().isr == (1,), "2 is out of the ISR")
    assert story.state().eligible == (2,)


@pytest.mark.parametrize("scope", ["topic", "default"])
@pytest.mark.parametrize("controller", ["stays", "fails over"])
def test_r13_what_was_acked_under_a_lower_minimum_survives_a_higher_one(scope: str, controller: str) -> None:
    async def scenario(simulation: Simulation) -> None:
        story = Story(simulation)
        await story.start()
        set_min_isr: MinIsr = story.set_topic_min_isr if scope == "topic" else story.set_default_min_isr
        await alone_in_the_isr(story)
        await set_min_isr(1)
        await story.produce(b"acked by 1 alone")
        assert story.state().eligible == (), "2 lacks what was acknowledged"
        if controller == "fails over":
            await simulation.brokers[3].restart()
        await set_min_isr(2)
        await story.stop(1)
        await simulation.brokers[2].start()
        await story.check_that_it_waits_for(1, b"acked by 1 alone")

    Simulation(7).run(scenario)


def test_r13_a_minimum_that_no_controller_has_seen() -> None:
    """It is lowered and raised after the controller was killed, and before its session ends."""

    async def scenario(simulation: Simulation) -> None:
        story = Story(simulation)
        await story.start()
        await alone_in_the_isr(story)
        simulation.brokers[3].kill()
        await story.set_topic_min_isr(1)
        await story.produce(b"acked by 1 alone")
        await story.set_topic_min_isr(2)
        await story.stop(1)
        await simulation.brokers[2].start()
        await story.check_that_it_waits_for(1, b"acked by 1 alone")

    Simulation(8).run(scenario)


def test_r13_a_leader_whose_own_value_is_less_than_the_controllers() -> None:
    """Broker 1 has ``min.insync.replicas=1`` of its own, the controller 2: it finds 2 eligible, and 1 commits
    without it."""

    async def scenario(simulation: Simulation) -> None:
        story = Story(simulation)
        await story.start(own={1: 1})
        await story.stop(2)
        await until(lambda: story.state().isr == (1,), "2 is out of the ISR")
        await story.produce(b"acked by 1 alone")
        assert story.state().eligible == ()
        await story.stop(1)
        await simulation.brokers[2].start()
        await story.check_that_it_waits_for(1, b"acked by 1 alone")

    Simulation(9).run(scenario)


def test_r13_nothing_is_acked_under_a_lower_minimum_before_the_store_knows_who_is_not_eligible() -> None:
    """What 1 asks of the store is late. Were the record acknowledged before, and 1 gone, 2 would lead."""

    async def scenario(simulation: Simulation) -> None:
        story = Story(simulation)
        await story.start()
        await alone_in_the_isr(story)
        simulation.network.delay("broker-1", STORE, 500, 500)
        producing = asyncio.create_task(story.produce(b"acked by 1 alone"))
        await story.alter(3, ConfigResourceType.TOPIC, TOPIC, "min.insync.replicas", 1)
        await producing
        assert story.state().eligible == (), "2 lacks what was acknowledged"

    Simulation(13).run(scenario)


def test_r12_a_minimum_that_is_raised_while_a_replica_is_away() -> None:
    """2 left when 1 was enough, so it is not eligible; and now one is not enough to commit anything."""

    async def scenario(simulation: Simulation) -> None:
        story = Story(simulation)
        await story.start()
        await story.set_topic_min_isr(1)
        await story.stop(2)
        await until(lambda: story.state().isr == (1,), "2 is out of the ISR")
        assert story.state().eligible == ()
        await story.produce(b"acked by 1 alone")
        await story.set_topic_min_isr(2)
        await asyncio.sleep(1)
        await story.client.produce(TOPIC, 0, make_batch([b"of 1 alone"]), acks=1)
        await asyncio.sleep(1)
        assert [value for _, value in await story.client.read_all(TOPIC)] == [b"acked by 1 alone"]
        await simulation.brokers[2].start()
        await until(lambda: set(story.state().isr) == {1, 2}, "both are in sync")
        await asyncio.sleep(1)
        assert len(await story.client.read_all(TOPIC)) == 2

    Simulation(12).run(scenario)


def test_the_eligible_replica_leads_when_the_minimum_has_not_changed() -> None:
    async def scenario(simulation: Simulation) -> None:
        story = Story(simulation)
        await story.start()
        await story.produce(b"acked by both")
        await alone_in_the_isr(story)
        await story.stop(1)
        await simulation.brokers[2].start()
        await until(lambda: story.state().leader == 2, "2 leads")
        await simulation.brokers[1].start()
        await until(lambda: set(story.state().isr) == {1, 2}, "both are in sync")
        assert [value for _, value in await story.client.read_all(TOPIC)] == [b"acked by both"]

    Simulation(10).run(scenario)


def test_unclean_elections_that_are_allowed_for_a_topic_that_had_a_namesake() -> None:
    """The controller's broker has seen them allowed for another topic of the same name. It need not remember
    that: whenever they are allowed, it elects whom it can."""

    async def scenario(simulation: Simulation) -> None:
        story = Story(simulation)
        await story.start(check=False)
        await story.alter(3, ConfigResourceType.TOPIC, TOPIC, "unclean.leader.election.enable", "true")
        body = {"topics": [{"name": TOPIC, "topic_id": None}], "timeout": 10_000}
        await story.client.request(("broker-3", 9092), ApiKey.DELETE_TOPICS, body)
        topic_path = paths.topic_path(TOPIC)
        await until(lambda: topic_path not in simulation.store.tree.nodes, "the topic is gone")
        await story.client.create_topic(TOPIC, assignment=[[1, 2]], configs={"min.insync.replicas": "1"})
        await until(lambda: story.state().isr == (1, 2), "both are in sync")
        await story.stop(2)
        await until(lambda: story.state().isr == (1,), "2 is out of the ISR")
        await story.stop(1)
        await simulation.brokers[2].start()
        await asyncio.sleep(SETTLED_MS / 1000)
        assert story.state().leader == -1
        await story.alter(3, ConfigResourceType.TOPIC, TOPIC, "unclean.leader.election.enable", "true")
        await until(lambda: story.state().leader == 2, "2 leads, whatever is lost")

    Simulation(11).run(scenario)
