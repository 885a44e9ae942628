"""Share groups under kills and power cuts of whoever leads the partition or coordinates its state (KIP-932).

Members fetch, and accept, release and reject what they get. What they are promised:
- nothing is delivered to two members within a lock, while one broker leads in one epoch;
- nothing that was acknowledged, and answered, comes again;
- each record is settled in the end: accepted, rejected, or delivered as often as the limit says;
- no delivery count is over the limit.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.broker import Property
from minikafka.testing.simulation.client import PASSING, SimulatedClient, check, make_batch
from minikafka.testing.simulation.disk import Survival
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.simulation import Simulation
from minikafka.types import PartitionState

TOPIC, GROUP, STATES = "t", "g", "__share_group_state"
BROKERS = (1, 2, 3)
MEMBERS = ("a", "b", "c")
BATCHES, BATCH_RECORDS = 20, 5
FAULTS = 3
DELIVERIES_MAX, LOCK_S = 5, 30.0
OF_SHARES = 2
ACCEPT, RELEASE, REJECT = 1, 2, 3
OF_MEMBERS = {
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
"""What a member is told whose broker is back and knows little yet, or whose lock was over."""
CONFIG: dict[str, Property] = {
    "auto.leader.rebalance.enable": False,
    "min.insync.replicas": 2,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
}


class Term(NamedTuple):
    """A leader in one epoch: its locks are in its memory."""

    leader: int
    epoch: int


class Held(NamedTuple):
    member_id: str
    term: Term
    lock_until: float
    """At the earliest."""


class Promises:
    """What members were given and told, and whether it agrees."""

    def __init__(self) -> None:
        self.held: dict[int, Held] = {}
        self.settled: dict[int, float] = {}
        """When the answer to an acknowledgement was there."""
        self.uncertain: set[int] = set()
        """Accepted or rejected, and no answer says whether that counts."""
        self.counts: dict[int, int] = {}

    def delivered(self, offset: int, count: int, held: Held | None, asked_at: float, now: float) -> None:
        """``held``: by whom now; None where the leader may have changed meanwhile."""
        assert 1 <= count <= DELIVERIES_MAX, f"offset {offset} is delivered for the {count}th time"
        assert self.settled.get(offset, now) >= asked_at, f"offset {offset} was acknowledged and came again"
        self.uncertain.discard(offset)  # it did not count
        before = self.held.pop(offset, None)
        if held is not None:
            is_locked = before is not None and before.term == held.term and now < before.lock_until
            assert not is_locked, f"offset {offset} is locked for {before}, and given to {held}"
            self.held[offset] = held
        self.counts[offset] = max(count, self.counts.get(offset, 0))

    def let_go(self, member_id: str) -> None:
        """Its connection is closed."""
        self.held = {offset: each for offset, each in self.held.items() if each.member_id != member_id}

    def check_nothing_is_lost(self, count: int) -> None:
        lost = [
            offset
            for offset in range(count)
            if offset not in self.settled
            and offset not in self.uncertain
            and self.counts.get(offset, 0) < DELIVERIES_MAX
        ]
        assert not lost, f"offsets {lost} are settled, and no member did that"


class World:
    """Three brokers, and a topic that a group shares from its start."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.client = SimulatedClient(addresses())
        self.promises = Promises()
        self.is_over = False

    async def start(self) -> None:
        for node_id in BROKERS:
            await self.simulation.start_broker(node_id, CONFIG)
        await self.client.create_topic(TOPIC, assignment=[[1, 2, 3]])
        topic_id: UUID | None = None
        while True:
            topic_id = (await self.client.metadata([TOPIC])).topics[0].topic_id
            if topic_id is not None:
                break
            await asyncio.sleep(0.1)  # that broker has not heard of the topic
        self.topic_id = topic_id
        partition = {"partition": 0, "state_epoch": 0, "start_offset": 0}
        await self.ask_coordinator(ApiKey.INITIALIZE_SHARE_GROUP_STATE, partition)

    async def ask_coordinator(self, api_key: ApiKey, partition: Mapping[str, Any]) -> Any:
        """The share coordinator, until it answers."""
        topics = [{"topic_id": self.topic_id, "partitions": [partition]}]
        while True:
            try:
                address = await self.client.find_coordinator(f"{GROUP}:{self.key}:0", OF_SHARES)
                answer = await self.client.request(address, api_key, {"group_id": GROUP, "topics": topics})
                (found,) = answer.results[0].partitions
                check(found.error_code, found.error_message)
            except BrokerUnavailable:
                await asyncio.sleep(0.2)
            except KafkaError as error:
                if error.code not in PASSING:
                    raise
                await asyncio.sleep(0.2)
            else:
                return found

    @property
    def key(self) -> str:
        return paths.uuid_to_text(self.topic_id)

    def state(self, topic: str) -> PartitionState:
        data = self.simulation.store.tree.get(paths.partition_state_path(topic, 0)).data
        return paths.decode_partition_state(topic, 0, data)

    def term(self) -> Term:
        state = self.state(TOPIC)
        return Term(int(state.leader), state.leader_epoch)

    def is_whole(self, topic: str) -> bool:
        return set(self.state(topic).isr) == set(BROKERS)

    async def produce(self) -> int:
        """Batches, in order and with pauses. Returns where the log ends."""
        for number in range(BATCHES):
            values = [b"%d-%d" % (number, each) for each in range(BATCH_RECORDS)]
            await self.client.deliver(TOPIC, 0, make_batch(values))
            await asyncio.sleep(1)
        return len(await self.client.read_all(TOPIC))

    async def fail(self, rng: random.Random) -> None:
        """The leader or the share coordinator falls, and returns."""
        for _ in range(FAULTS):
            await asyncio.sleep(rng.uniform(0.5, 5))
            victim = self.simulation.brokers[int(self.state(rng.choice((TOPIC, STATES))).leader)]
            if rng.random() < 0.5:
                victim.kill()
            else:
                victim.power_off(Survival.NOTHING)
            await asyncio.sleep(rng.uniform(1, 15))
            await victim.start()
            await until(lambda: self.is_whole(TOPIC) and self.is_whole(STATES), "all are in sync")

    async def is_settled(self, end_offset: int) -> bool:
        """By what is persisted; its start offset is that before the last write, whose records it counts."""
        summary = await self.ask_coordinator(
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, {"partition": 0, "leader_epoch": -1}
        )
        return bool(summary.start_offset + summary.delivery_complete_count == end_offset)


class Member:
    """Works until all is over; after each error its connection and its session are new ones."""

    def __init__(self, world: World, member_id: str) -> None:
        self.world = world
        self.member_id = member_id
        self.rng = world.simulation.rng(f"member {member_id}")

    async def run(self) -> None:
        while not self.world.is_over:
            client = SimulatedClient(addresses(), request_timeout_ms=60_000)
            try:
                await self.work(client)
            except BrokerUnavailable:
                await asyncio.sleep(0.5)
            except KafkaError as error:
                if error.code not in PASSING | OF_MEMBERS:
                    raise
                await asyncio.sleep(0.5)
            finally:
                self.world.promises.let_go(self.member_id)
                await client.close()

    async def work(self, client: SimulatedClient) -> None:
        metadata = await client.metadata([TOPIC])
        brokers = {each.node_id: (each.host, each.port) for each in metadata.brokers}
        leader = metadata.topics[0].partitions[0].leader_id
        if leader not in brokers:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "there is no leader")
        epoch = 0
        while not self.world.is_over:
            offsets = await self.fetch(client, brokers[leader], leader, epoch)
            await asyncio.sleep(self.rng.uniform(0, 2))
            if offsets:
                epoch += 1
                await self.acknowledge(client, brokers[leader], epoch, offsets)
            epoch += 1

    async def fetch(
        self, client: SimulatedClient, address: tuple[str, int], leader: int, epoch: int
    ) -> list[int]:
        loop, world = asyncio.get_running_loop(), self.world
        asked_at, term = loop.time(), world.term()
        body = self.body(epoch, []) | {
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": self.rng.randint(1, 8),
            "batch_size": 4,
            "share_acquire_mode": 1,
            "forgotten_topics_data": [],
        }
        answer = await client.request(address, ApiKey.SHARE_FETCH, body)
        check(answer.error_code, answer.error_message)
        is_certain = world.term() == term and term.leader == leader
        held = Held(self.member_id, term, asked_at + LOCK_S) if is_certain else None
        offsets = []
        for topic in answer.responses:
            for partition in topic.partitions:
                check(partition.error_code, partition.error_message)
                for first, last, count in partition.acquired_records:
                    for offset in range(first, last + 1):
                        world.promises.delivered(offset, count, held, asked_at, loop.time())
                        offsets.append(offset)
        return offsets

    async def acknowledge(
        self, client: SimulatedClient, address: tuple[str, int], epoch: int, offsets: Sequence[int]
    ) -> None:
        promises = self.world.promises
        kinds = {each: self.rng.choice((ACCEPT, RELEASE, RELEASE, REJECT)) for each in sorted(offsets)}
        final = {each for each, kind in kinds.items() if kind != RELEASE}
        for each in kinds:
            promises.held.pop(each, None)
        promises.uncertain |= final - promises.settled.keys()
        batches = [
            {"first_offset": each, "last_offset": each, "acknowledge_types": [kind]}
            for each, kind in kinds.items()
        ]
        answer = await client.request(address, ApiKey.SHARE_ACKNOWLEDGE, self.body(epoch, batches))
        check(answer.error_code, answer.error_message)
        (found,) = answer.responses[0].partitions
        check(found.error_code, found.error_message)
        promises.uncertain -= final
        promises.settled |= dict.fromkeys(final, asyncio.get_running_loop().time())

    def body(self, epoch: int, batches: list[dict[str, Any]]) -> dict[str, Any]:
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return {
            "group_id": GROUP,
            "member_id": self.member_id,
            "share_session_epoch": epoch,
            "is_renew_ack": False,
            "topics": [{"topic_id": self.world.topic_id, "partitions": [partition]}],
        }


def addresses() -> list[tuple[str, int]]:
    return [(f"broker-{node_id}", 9092) for node_id in BROKERS]


async def scenario(simulation: Simulation) -> None:
    world = World(simulation)
    await world.start()
    async with asyncio.TaskGroup() as tasks:
        for member_id in MEMBERS:
            tasks.create_task(Member(world, member_id).run())
        faults = tasks.create_task(world.fail(simulation.rng("faults")))
        end_offset = await world.produce()
        await faults
        deadline = asyncio.get_running_loop().time() + 10 * LOCK_S
        while not await world.is_settled(end_offset):
            assert asyncio.get_running_loop().time() < deadline, f"never settled: {world.promises.counts}"
            await asyncio.sleep(1)
        world.is_over = True
    world.promises.check_nothing_is_lost(end_offset)
    assert world.promises.settled


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_nor_comes_again(seed: int) -> None:
    Simulation(seed).run(scenario)
