"""Each event of the controller, from what causes it to what comes of it, in a simulated cluster.

Tests of the controller by itself hand it its events; whether anything brings them about is seen here only. So
each story is told twice: as it is, and once more with its event lost on the way to the controller, when what
it is there for must not happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, get_args

import msgspec
import pytest

from minikafka.config.resource import ConfigResourceType
from minikafka.controller import events
from minikafka.controller.events import Event
from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.controller.loop import EventQueue
from minikafka.testing.broker import Property
from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.disk import failing
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.simulation import Simulation
from minikafka.types import BrokerId, PartitionState, TopicPartition

CONTROLLER, ONE, TWO, FOUR = 3, 1, 2, 4
"""The controller has no partition, so its brokers may come and go."""
CONFIG: dict[str, Property] = {
    "auto.leader.rebalance.enable": False,
    "log.dirs": "/data,/more",
    "min.insync.replicas": 1,
    "replica.lag.time.max.ms": 4_000,
    "unclean.leader.election.enable": False,
}
TOPIC = "t"
AT = TopicPartition(TOPIC, 0)
SET, PREFERRED = 0, 0
SOON_MS = 4_000
"""Before anything else would bring about the same: a session ends after 18 s, ISR changes are announced after
5 s."""
LATE_MS = 30_000


class World:
    """Three brokers, and an event that may be lost from ``cause`` on."""

    def __init__(self, simulation: Simulation, lost: type[Event] | None) -> None:
        self.simulation = simulation
        self.brokers = simulation.brokers
        self.client = SimulatedClient([(f"broker-{node_id}", 9092) for node_id in (CONTROLLER, ONE, TWO)])
        self.seen: set[type[Event]] = set()
        """What has come to a controller since ``cause``."""
        self.never: set[type[Event]] = set()
        """What brings about the same, and does not come in this story."""
        self._lost = lost
        self._has_begun = False

    async def start(self, **config: Property) -> None:
        settings = CONFIG | {name.replace("_", "."): value for name, value in config.items()}
        for node_id in (CONTROLLER, ONE, TWO):
            await self.simulation.start_broker(node_id, settings)

    async def start_with(self, *assignment: list[int], **config: Property) -> None:
        """With a topic, of which its replicas' brokers have heard."""
        await self.start(**config)
        await self.client.create_topic(TOPIC, assignment=assignment)
        for number, replicas in enumerate(assignment):
            await until(lambda n=number, r=replicas: set(self.state(n).isr) == set(r), "all are in sync")  # type: ignore[misc]
            for node_id in replicas:
                await until(lambda n=number, b=node_id: self.hosts(b, n), f"broker {node_id} has heard")  # type: ignore[misc]

    def hosts(self, node_id: int, partition: int) -> bool:
        manager = self.brokers[BrokerId(node_id)].server.services.replica_manager
        return TopicPartition(TOPIC, partition) in manager.partitions

    def cause(self) -> None:
        """What the story is about begins."""
        self._has_begun = True

    def is_lost(self, event: Event) -> bool:
        """Note an event on its way to a controller."""
        if self._has_begun:
            self.seen.add(type(event))
        return self._has_begun and (type(event) is self._lost or type(event) in self.never)

    def has_node(self, path: str) -> bool:
        return path in self.simulation.store.tree.nodes

    def state(self, partition: int = 0) -> PartitionState:
        """What the state node says."""
        data = self.simulation.store.tree.get(paths.partition_state_path(TOPIC, partition)).data
        return paths.decode_partition_state(TOPIC, partition, data)

    def told_isr(self) -> tuple[int, ...]:
        """What clients hear from the third broker."""
        topic = self.brokers[CONTROLLER].server.services.metadata.topic(TOPIC)
        return () if topic is None else topic.partitions[0].isr

    def replicas(self, partition: int = 0) -> tuple[int, ...]:
        """What the topic's node says; the whole target and the replicas that have to go, during a
        reassignment."""
        data = self.simulation.store.tree.get(paths.topic_path(TOPIC)).data
        return tuple(paths.decode_topic(TOPIC, data).partitions[partition].replicas)

    async def until_led_by(self, node_id: int, *, within_ms: int = SOON_MS) -> None:
        await until(lambda: self.state().leader == node_id, f"{node_id} leads", within_ms=within_ms)

    async def ask(self, at: int, key: ApiKey, body: dict[str, Any], **options: Any) -> Any:
        return await self.client.request(self.brokers[at].address, key, body, **options)

    async def write(self, path: str, data: bytes) -> None:
        """As a tool does that asks by way of the store."""
        await self.brokers[CONTROLLER].server.services.store.create(path, data)

    async def lose_preferred_leader(self) -> None:
        """1 is preferred, and 2 leads."""
        await self.brokers[ONE].restart()
        await until(lambda: self.state().isr in ((1, 2), (2, 1)), "both are in sync")
        assert self.state().leader == TWO

    def cut(self, one: int, other: int) -> None:
        self.simulation.network.cut(f"broker-{one}", f"broker-{other}")
        self.simulation.network.cut(f"broker-{other}", f"broker-{one}")


async def elected(world: World) -> None:
    await world.start()
    world.cause()
    await world.brokers[CONTROLLER].stop()
    await world.client.create_topic(TOPIC, assignment=[[1, 2]], deadline_ms=LATE_MS)
    await world.until_led_by(ONE)


async def brokers_changed(world: World) -> None:
    await world.start_with([1, 2])
    world.cause()
    world.brokers[ONE].kill()
    await world.until_led_by(TWO, within_ms=LATE_MS)


async def topics_changed(world: World) -> None:
    await world.start()
    world.cause()
    await world.client.create_topic(TOPIC, assignment=[[1, 2]], deadline_ms=SOON_MS)
    await world.client.deliver(TOPIC, 0, make_batch([b"x"]), deadline_ms=SOON_MS)


async def partitions_changed(world: World) -> None:
    await world.start_with([1, 2])
    world.cause()
    topics = [{"name": TOPIC, "count": 2, "assignments": None}]
    body = {"topics": topics, "timeout": 1_000, "validate_only": False}
    await world.ask(CONTROLLER, ApiKey.CREATE_PARTITIONS, body)
    await world.client.deliver(TOPIC, 1, make_batch([b"x"]), deadline_ms=SOON_MS)


async def topic_deleted(world: World) -> None:
    await world.start_with([1, 2])
    world.cause()
    body = {"topics": [{"name": TOPIC, "topic_id": None}], "timeout": 1_000}
    await world.ask(CONTROLLER, ApiKey.DELETE_TOPICS, body)
    await until(lambda: not world.has_node(paths.topic_path(TOPIC)), "the topic is gone", within_ms=SOON_MS)


async def isrs_altered(world: World) -> None:
    await world.start_with([1, 2])
    world.cause()
    world.cut(ONE, TWO)
    await world.client.produce(TOPIC, 0, make_batch([b"x"]), acks=1)  # a follower that has all is in sync
    await until(lambda: world.state().isr == (1,), "2 is out of the ISR", within_ms=LATE_MS)
    await until(lambda: world.told_isr() == (1,), "clients of 3 hear of it", within_ms=SOON_MS)


async def isr_changes_announced(world: World) -> None:
    """A leader of 0.2.0 writes the state itself, and leaves a notification."""
    await world.start_with([1, 2])
    world.cause()
    path, tree = paths.partition_state_path(TOPIC, 0), world.simulation.store.tree
    before = world.state()
    after = msgspec.structs.replace(before, isr=(1,))
    store = world.brokers[ONE].server.services.store
    await store.set(path, paths.encode_partition_state(after), tree.get(path).stat.version)
    await store.create(paths.ISR_CHANGE_PREFIX, paths.encode_partitions([AT]), sequential=True)
    await until(lambda: world.told_isr() == (1,), "clients of 3 hear of it", within_ms=SOON_MS)


async def log_directory_lost(world: World) -> None:
    await world.start_with([1, 2])
    world.cause()
    hosted = world.brokers[ONE].server.services.replica_manager.partitions[AT]
    world.brokers[ONE].disk.fault = failing("write", hosted.log.directory)
    with pytest.raises(KafkaError):
        await world.client.produce(TOPIC, 0, make_batch([b"x"]), acks=1)
    await world.until_led_by(TWO)


async def controlled_shutdown_asked(world: World) -> None:
    await world.start_with([1, 2])
    world.cause()
    stopping = asyncio.create_task(world.brokers[ONE].stop())
    await world.until_led_by(TWO)
    assert world.has_node(paths.broker_path(ONE)), "it serves until it has heard so"
    await stopping


async def unclean_elections_of_a_topic(world: World) -> None:
    await unclean_elections(world, ConfigResourceType.TOPIC, TOPIC)


async def unclean_elections_of_all(world: World) -> None:
    await unclean_elections(world, ConfigResourceType.BROKER, "")


async def unclean_elections(world: World, kind: ConfigResourceType, name: str) -> None:
    await world.start_with([1, 2])
    world.brokers[TWO].kill()
    await until(lambda: world.state().isr == (1,), "2 is out of the ISR", within_ms=LATE_MS)
    world.brokers[ONE].kill()
    await until(lambda: world.state().leader == -1, "it has no leader", within_ms=LATE_MS)
    await world.brokers[TWO].start()
    await asyncio.sleep(SOON_MS / 1000)
    world.cause()
    change = {"name": "unclean.leader.election.enable", "config_operation": SET, "value": "true"}
    resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
    body = {"resources": [resource], "validate_only": False}
    answer = await world.ask(TWO, ApiKey.INCREMENTAL_ALTER_CONFIGS, body)  # not at the controller
    assert answer.responses[0].error_code == ErrorCode.NONE
    await world.until_led_by(TWO)


async def reassign(world: World, *targets: list[int]) -> None:
    partitions = [
        {"partition_index": number, "replicas": replicas} for number, replicas in enumerate(targets)
    ]
    body = {"timeout": 1_000, "topics": [{"name": TOPIC, "partitions": partitions}]}
    answer = await world.ask(CONTROLLER, ApiKey.ALTER_PARTITION_REASSIGNMENTS, body)
    assert not any(each.error_code for each in answer.responses[0].partitions)


async def reassignments_asked(world: World) -> None:
    """The way before KIP-455."""
    await world.start_with([1])
    world.cause()
    await world.write(paths.REASSIGN_PARTITIONS, paths.encode_reassignment({AT: (BrokerId(TWO),)}))
    await until(lambda: world.replicas() == (TWO,), "it has moved", within_ms=SOON_MS)
    await until(
        lambda: not world.has_node(paths.REASSIGN_PARTITIONS), "the request is done", within_ms=SOON_MS
    )


async def reassignment_isr_changed(world: World) -> None:
    await world.start_with([1])
    world.cause()
    world.never.add(events.IsrsAltered)  # as when a leader of 0.2.0 writes the state itself
    await reassign(world, [2])
    await until(lambda: world.replicas() == (TWO,), "it has moved", within_ms=SOON_MS)


async def caught_up_reassignments_due(world: World) -> None:
    """One is finished while the other one waits for a broker that cannot fetch."""
    await world.start_with([1], [1])
    await world.simulation.start_broker(FOUR, CONFIG)
    world.cut(ONE, FOUR)
    world.cause()
    partitions = {AT: (BrokerId(TWO),), TopicPartition(TOPIC, 1): (BrokerId(FOUR),)}
    await world.write(paths.REASSIGN_PARTITIONS, paths.encode_reassignment(partitions))
    await until(lambda: world.replicas() == (TWO,), "one has moved", within_ms=SOON_MS)
    assert world.replicas(1) != (FOUR,)


async def preferred_elections_asked(world: World) -> None:
    """The way before KIP-460."""
    await world.start_with([1, 2])
    await world.lose_preferred_leader()
    world.cause()
    await world.write(paths.PREFERRED_REPLICA_ELECTION, paths.encode_partitions([AT]))
    await world.until_led_by(ONE)


async def leader_elections_asked(world: World) -> None:
    await world.start_with([1, 2])
    await world.lose_preferred_leader()
    world.cause()
    asked = [{"topic": TOPIC, "partitions": [0]}]
    body = {"election_type": PREFERRED, "topic_partitions": asked, "timeout": 1_000}
    answer = await world.ask(CONTROLLER, ApiKey.ELECT_LEADERS, body)
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE
    await world.until_led_by(ONE)


async def leader_rebalance_due(world: World) -> None:
    every = {"auto_leader_rebalance_enable": True, "leader_imbalance_check_interval_seconds": 20}
    await world.start_with([1, 2], **every)
    world.cause()
    await world.lose_preferred_leader()
    await world.until_led_by(ONE, within_ms=LATE_MS)


Story = Callable[[World], Awaitable[None]]

STORIES: list[tuple[type[Event], Story]] = [
    (events.Elected, elected),
    (events.BrokersChanged, brokers_changed),
    (events.TopicsChanged, topics_changed),
    (events.PartitionsChanged, partitions_changed),
    (events.TopicDeletionsChanged, topic_deleted),
    (events.StopReplicaAnswered, topic_deleted),
    (events.IsrChangesAnnounced, isr_changes_announced),
    (events.IsrsAltered, isrs_altered),
    (events.LogDirEventsAnnounced, log_directory_lost),
    (events.LeaderAndIsrAnswered, log_directory_lost),
    (events.ControlledShutdownAsked, controlled_shutdown_asked),
    (events.UncleanElectionEnabled, unclean_elections_of_a_topic),
    (events.UncleanElectionEnabled, unclean_elections_of_all),
    (events.ReassignmentsAsked, reassignments_asked),
    (events.ReassignmentIsrChanged, reassignment_isr_changed),
    (events.CaughtUpReassignmentsDue, caught_up_reassignments_due),
    (events.PreferredElectionsAsked, preferred_elections_asked),
    (events.LeaderElectionsAsked, leader_elections_asked),
    (events.LeaderRebalanceDue, leader_rebalance_due),
]


def test_every_event_has_a_story() -> None:
    assert {event for event, _ in STORIES} == set(get_args(Event))


def tell(monkeypatch: pytest.MonkeyPatch, story: Story, *, lost: type[Event] | None) -> World:
    simulation = Simulation(5)
    world = World(simulation, lost)
    put = EventQueue.put

    def noted(queue: EventQueue, event: Event, answer: asyncio.Future[Any] | None = None) -> None:
        if not world.is_lost(event):
            put(queue, event, answer)

    monkeypatch.setattr(EventQueue, "put", noted)
    simulation.run(lambda _: story(world))
    return world


@pytest.mark.parametrize(("event", "story"), STORIES)
def test_what_causes_an_event_has_its_effect(
    monkeypatch: pytest.MonkeyPatch, event: type[Event], story: Story
) -> None:
    assert event in tell(monkeypatch, story, lost=None).seen


@pytest.mark.parametrize(("event", "story"), STORIES)
def test_without_the_event_there_is_no_effect(
    monkeypatch: pytest.MonkeyPatch, event: type[Event], story: Story
) -> None:
    with pytest.raises((TimeoutError, BrokerUnavailable, KafkaError)):
        tell(monkeypatch, story, lost=event)
