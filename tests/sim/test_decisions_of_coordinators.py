"""What coordinators decide counts when their logs have it on enough replicas, and not before; and what one
says late, that has a successor, does not count."""

from __future__ import annotations

import asyncio
from typing import Any

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from minikafka.server.replica.partition import Partition
from minikafka.testing.simulation.client import (
    OF_TRANSACTIONS,
    OFFSETS_VERSION,
    SimulatedClient,
    check,
    make_batch,
    positions_body,
)
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.scenarios.transactions import FENCED
from minikafka.testing.simulation.simulation import Simulation
from minikafka.types import PartitionState, TopicPartition

TOPIC, GROUP, ID = "t", "g", "x"
BROKERS = (1, 2, 3, 4)
"""The first three coordinate; the last one has the topic, and is the controller."""
LAST = BROKERS[-1]
CONFIG = {
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
LONG_S = 3.0
"""Less than a request or a replica may take, and long enough for whatever would be wrong."""
SILENCE_S = 15.0
"""After which a broker takes the store for away, and asks it nothing more."""
AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
OLD_PRODUCE_VERSION, OLD_ADD_PARTITIONS_VERSION, OLD_END_VERSION = 11, 3, 4
"""The last ones of clients that say themselves which partitions are in a transaction."""
INIT = {"transactional_id": ID, "transaction_timeout": 600_000, "producer_id": -1, "producer_epoch": -1}


class World:
    """Each log of a coordinator is on brokers 1, 2 and 3, in this order."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.client = SimulatedClient([(f"broker-{node_id}", 9092) for node_id in BROKERS])
        self.producer_id = self.epoch = -1

    async def start(self) -> None:
        for node_id in (LAST, *BROKERS[:-1]):
            await self.simulation.start_broker(node_id, CONFIG)
        for topic in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
            await self.client.create_topic(topic, assignment=[[1, 2, 3]])
            await until(lambda topic=topic: set(self.state(topic).isr) == {1, 2, 3}, "all are in sync")
        await self.client.create_topic(TOPIC, assignment=[[LAST]], configs={"min.insync.replicas": "1"})

    def state(self, topic: str) -> PartitionState:
        data = self.simulation.store.tree.get(paths.partition_state_path(topic, 0)).data
        return paths.decode_partition_state(topic, 0, data)

    def partition(self, node_id: int, topic: str) -> Partition:
        services = self.simulation.brokers[node_id].server.services
        return services.replica_manager.partitions[TopicPartition(topic, 0)]

    @property
    def stable(self) -> int:
        """Up to where the topic's transactions are ended."""
        return int(self.partition(LAST, TOPIC).log.last_stable_offset)

    def hold(self, *followers: int, leader: int) -> None:
        """What they fetch next does not come to the leader's ears."""
        for each in followers:
            self.simulation.network.cut(f"broker-{each}", f"broker-{leader}")

    def let_go(self, *followers: int, leader: int) -> None:
        for each in followers:
            self.simulation.network.heal(f"broker-{each}", f"broker-{leader}")

    def kill(self, node_id: int) -> None:
        """Noticed by all at once."""
        store = self.simulation.store
        (session,) = [
            each for each in store.sessions.values() if each.connection.client == f"broker-{node_id}"
        ]
        self.simulation.brokers[node_id].kill()
        store.expire_session(session.id)

    async def depose_unheard(self) -> None:
        """2 coordinates in the place of 1, which clients still reach and nothing else does."""
        store, network = self.simulation.store, self.simulation.network
        for other in ("store", *(f"broker-{node_id}" for node_id in BROKERS[1:])):
            network.cut("broker-1", other)
            network.cut(other, "broker-1")
        (session,) = [each for each in store.sessions.values() if each.connection.client == "broker-1"]
        store.expire_session(session.id)
        await until(lambda: self.state(TRANSACTION_STATE_TOPIC).leader == 2, "2 coordinates")
        await asyncio.sleep(SILENCE_S)

    async def ask_first(self, key: ApiKey, body: dict[str, Any], **options: Any) -> ErrorCode:
        """What 1 says, whether it coordinates or not."""
        answer = await self.client.request(("broker-1", 9092), key, body, **options)
        return ErrorCode(answer.error_code)

    async def ask(self, key: ApiKey, body: dict[str, Any], **options: Any) -> Any:
        """The coordinator of the transactional id, until it has loaded."""
        while True:
            try:
                address = await self.client.find_coordinator(ID, OF_TRANSACTIONS)
                answer = await self.client.request(address, key, body, **options)
                check(answer.error_code)
                return answer
            except (KafkaError, BrokerUnavailable) as error:
                if isinstance(error, KafkaError) and error.code not in AGAIN:
                    raise
                await asyncio.sleep(0.1)

    async def begin(self) -> None:
        self.take(await self.ask(ApiKey.INIT_PRODUCER_ID, INIT))

    def take(self, answer: Any) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def batch(self, *, sequence: int = 0) -> bytes:
        return make_batch(
            [b"m"], producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence,
            transactional=True,
        )  # fmt: skip

    async def write(self) -> None:
        """Brokers add the partition to the transaction."""
        while True:
            try:
                await self.client.produce(TOPIC, 0, self.batch(), transactional_id=ID)
                return
            except KafkaError as error:
                if error.code not in AGAIN:
                    raise
                await asyncio.sleep(0.1)

    def end_body(self, *, commit: bool = True) -> dict[str, Any]:
        return {
            "transactional_id": ID, "producer_id": self.producer_id, "producer_epoch": self.epoch,
            "committed": commit,
        }  # fmt: skip

    async def end(self, *, commit: bool = True) -> None:
        self.take(await self.ask(ApiKey.END_TXN, self.end_body(commit=commit)))

    async def add_as_old_clients(self, coordinator: int) -> ErrorCode:
        """The producer adds the partition to the transaction itself; its epoch stays."""
        added = {
            "v3_and_below_transactional_id": ID, "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        }  # fmt: skip
        key, version = ApiKey.ADD_PARTITIONS_TO_TXN, OLD_ADD_PARTITIONS_VERSION
        address = self.simulation.brokers[coordinator].address
        answer = await self.client.request(address, key, added, version=version)
        topic = answer.results_by_topic_v3_and_below[0]
        return ErrorCode(topic.results_by_partition[0].partition_error_code)

    async def write_as_old_clients(self, coordinator: int, *, sequence: int) -> None:
        check(await self.add_as_old_clients(coordinator))
        produced = {
            "transactional_id": ID, "acks": -1, "timeout": 5_000, "topic_data": [
                {"name": TOPIC, "partition_data": [{"index": 0, "records": self.batch(sequence=sequence)}]}
            ],
        }  # fmt: skip
        address = self.simulation.brokers[LAST].address
        answer = await self.client.request(address, ApiKey.PRODUCE, produced, version=OLD_PRODUCE_VERSION)
        check(answer.responses[0].partition_responses[0].error_code)


def test_a_decision_is_carried_out_when_it_is_on_enough_replicas() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        await world.begin()
        await world.write()
        world.hold(2, 3, leader=1)
        ending = asyncio.create_task(world.end())
        await asyncio.sleep(LONG_S)
        assert not ending.done(), "the commit is answered, and on one broker"
        assert world.stable == 0, "the commit is carried out, and on one broker"
        world.let_go(2, 3, leader=1)
        await ending
        await until(lambda: world.stable == 2, "the marker is there")

    Simulation(31).run(scenario)


def test_a_new_coordinator_acts_when_what_it_has_read_is_on_enough_replicas() -> None:
    """2 has a decision of 1, and does not know whether 3 has it. As long as 3 may be elected without it,
    nothing follows from the decision."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        await world.begin()
        await world.write()
        world.hold(3, leader=1)
        world.hold(3, leader=2)
        ending = asyncio.create_task(world.end())
        decided = world.partition(1, TRANSACTION_STATE_TOPIC).log.log_end_offset
        await until(
            lambda: world.partition(2, TRANSACTION_STATE_TOPIC).log.log_end_offset > decided, "2 has it"
        )
        world.kill(1)
        await until(lambda: world.state(TRANSACTION_STATE_TOPIC).leader == 2, "2 coordinates")
        await asyncio.sleep(LONG_S)
        assert world.stable == 0, "2 has carried out what may yet be lost"
        world.let_go(3, leader=2)
        await until(lambda: world.stable == 2, "the marker is there")
        await ending

    Simulation(32).run(scenario)


def test_a_marker_of_a_coordinator_that_has_a_successor_ends_nothing() -> None:
    """R19. It was under way while another coordinator committed what it is about, and a transaction more was
    begun."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        await world.begin()
        world.kill(1)
        await until(lambda: world.state(TRANSACTION_STATE_TOPIC).leader == 2, "2 coordinates")
        await world.write()
        await world.end()
        await until(lambda: world.stable == 2, "the marker is there")
        await world.write()
        late = {
            "producer_id": world.producer_id, "producer_epoch": world.epoch, "transaction_result": False,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}], "coordinator_epoch": 0,
        }  # fmt: skip
        address = simulation.brokers[LAST].address
        answer = await world.client.request(address, ApiKey.WRITE_TXN_MARKERS, {"markers": [late]})
        (found,) = answer.markers[0].topics[0].partitions
        assert found.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        await world.end()
        await until(lambda: world.stable == 4, "the marker is there")
        committed = await world.client.read_all(TOPIC, read_committed=True)
        assert [offset for offset, _ in committed] == [0, 2]

    Simulation(33).run(scenario)


def test_a_batch_that_comes_after_the_end_of_its_transaction_opens_none() -> None:
    """KIP-890. The coordinator knows of no transaction, so nothing would ever end the one that it opens."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        await world.begin()
        body = {
            "transactional_id": ID, "acks": -1, "timeout": 5_000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": world.batch()}]}],
        }  # fmt: skip
        address = simulation.brokers[LAST].address
        answer = await world.client.request(address, ApiKey.PRODUCE, body, version=OLD_PRODUCE_VERSION)
        (found,) = answer.responses[0].partition_responses
        assert found.error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert world.stable == world.partition(LAST, TOPIC).log.log_end_offset

    Simulation(34).run(scenario)


def test_a_producer_that_has_a_successor_writes_nothing_more() -> None:
    """KIP-98. Its record would be in a transaction of its successor, or in one that nothing ends."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        await world.begin()
        await world.write()
        zombie = world.batch(sequence=1)
        await world.begin()
        await until(lambda: world.stable == 2, "the transaction of the one before is aborted")
        try:
            await world.client.produce(TOPIC, 0, zombie, transactional_id=ID)
        except KafkaError as error:
            assert error.code in FENCED
        await world.write()
        await world.end()
        await until(lambda: world.stable == 4, "the marker is there")
        committed = await world.client.read_all(TOPIC, read_committed=True)
        assert [offset for offset, _ in committed] == [2]

    Simulation(36).run(scenario)


def test_a_producer_that_has_a_successor_is_told_of_no_end_by_a_coordinator_that_has_one() -> None:
    """KIP-890. 1 has fenced the producer, and takes its abort for a retry of what it did itself then."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        await world.begin()
        await world.write()
        abort = world.end_body(commit=False)
        assert await world.ask_first(ApiKey.INIT_PRODUCER_ID, INIT) is ErrorCode.CONCURRENT_TRANSACTIONS
        await until(lambda: world.stable == 2, "the transaction of the one before is aborted")
        await asyncio.sleep(LONG_S)
        await world.depose_unheard()
        await world.begin()
        assert await world.ask_first(ApiKey.END_TXN, abort) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            await world.ask(ApiKey.END_TXN, abort)
        except KafkaError as error:
            assert error.code in FENCED
        else:
            raise AssertionError("the one before has ended something")
        await world.write()
        await world.end()
        await until(lambda: world.stable == 4, "the marker is there")

    Simulation(37).run(scenario)


def test_a_commit_is_not_told_by_a_coordinator_that_knows_the_transaction_before() -> None:
    """In the first version of the protocol both have the same epoch, so what 1 remembers looks like a retry.
    The transaction is open where 2 coordinates: it would be lost when its time is over."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        await world.begin()
        await world.write_as_old_clients(1, sequence=0)
        commit = world.end_body()
        assert await world.ask_first(ApiKey.END_TXN, commit, version=OLD_END_VERSION) is ErrorCode.NONE
        await until(lambda: world.stable == 2, "the marker is there")
        await asyncio.sleep(LONG_S)
        await world.depose_unheard()
        await world.write_as_old_clients(2, sequence=1)
        said = await world.ask_first(ApiKey.END_TXN, commit, version=OLD_END_VERSION)
        assert said is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await world.ask(ApiKey.END_TXN, commit, version=OLD_END_VERSION)
        await until(lambda: world.stable == 4, "the marker is there")
        committed = await world.client.read_all(TOPIC, read_committed=True)
        assert [offset for offset, _ in committed] == [0, 2]

    Simulation(38).run(scenario)


def test_a_partition_is_not_told_added_by_a_coordinator_that_knows_the_transaction_before() -> None:
    """It was in that one, in which the epoch was the same; in the new one it is not, and its records would be
    refused."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        await world.begin()
        await world.write_as_old_clients(1, sequence=0)
        await world.depose_unheard()
        await world.ask(ApiKey.END_TXN, world.end_body(), version=OLD_END_VERSION)
        await until(lambda: world.stable == 2, "the marker is there")
        assert await world.add_as_old_clients(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await world.write_as_old_clients(2, sequence=1)
        assert await world.add_as_old_clients(2) is ErrorCode.NONE, "a retry"
        await world.ask(ApiKey.END_TXN, world.end_body(), version=OLD_END_VERSION)
        await until(lambda: world.stable == 4, "the marker is there")

    Simulation(39).run(scenario)


def test_a_position_is_told_when_it_is_on_enough_replicas() -> None:
    """What is told and then lost makes a group read on from an older place than it was at."""

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        world.hold(2, 3, leader=1)
        committing = asyncio.create_task(commit(world, 7))
        await asyncio.sleep(1)
        address = await world.client.find_coordinator(GROUP)
        reader = SimulatedClient([address])
        asking = asyncio.create_task(reader.fetch_positions(address, GROUP, TOPIC, [0]))
        await asyncio.sleep(1)
        assert not committing.done()
        assert not asking.done() or asking.exception() or asking.result() == {0: -1}, "it is on one broker"
        world.let_go(2, 3, leader=1)
        await committing
        assert await reader.fetch_positions(address, GROUP, TOPIC, [0]) == {0: 7}

    Simulation(35).run(scenario)


async def commit(world: World, offset: int) -> None:
    body = {
        "group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "topics": [{"name": TOPIC, "partitions": positions_body({0: offset})}],
    }  # fmt: skip
    address = await world.client.find_coordinator(GROUP)
    answer = await world.client.request(address, ApiKey.OFFSET_COMMIT, body, version=OFFSETS_VERSION)
    check(answer.topics[0].partitions[0].error_code)
