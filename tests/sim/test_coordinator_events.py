"""Each event of the coordinators that no request of a client is, from its cause to what clients then see.

Their own tests hand them these events. Each story is told again with its event lost on the way to the shard,
when clients must not see it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from minikafka.coordinator.group.messages import OperationKind
from minikafka.coordinator.group.shard import GroupShard
from minikafka.coordinator.transaction.messages import OperationKind as TransactionOperationKind
from minikafka.coordinator.transaction.shard import TransactionShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.coordinator.group_service import GroupService
from minikafka.testing.simulation.client import SimulatedClient, check, make_batch
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.simulation import Simulation
from minikafka.types import TopicPartition

CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.retention.check.interval.ms": 1_000,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 1_000,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
}
AT_LEAST_TWO = {"min.insync.replicas": "2"}
RETRY_COMPLETE = TransactionOperationKind.RETRY_COMPLETE
TOPIC, GROUP, ID = "t", "g", "x"
SESSION_MS, REBALANCE_MS = 30_000, 10_000
SOON_S, LATE_S = 3.0, 60.0
COMMITTED, NOTHING = 7, -1


class Lost(NamedTuple):
    """A method of a shard, which is its event; and what waits, for what has an operation."""

    shard: type[GroupShard] | type[TransactionShard]
    name: str
    kind: OperationKind | TransactionOperationKind | None = None


class World:
    """A broker that coordinates everything, and a topic of two partitions."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.client = SimulatedClient([("broker-1", 9092)])

    async def start(self, **config: int) -> None:
        settings = CONFIG | {name.replace("_", "."): value for name, value in config.items()}
        self.broker = await self.simulation.start_broker(1, settings)
        await self.client.create_topic(TOPIC, assignment=[[1], [1]])
        await self.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [GROUP]})

    async def ask(self, key: ApiKey, body: dict[str, Any], **options: Any) -> Any:
        return await self.client.request(self.broker.address, key, body, **options)

    async def ask_until_loaded(self, key: ApiKey, body: dict[str, Any]) -> Any:
        """The first answer of a coordinator that is there."""
        while True:
            answer = await self.ask(key, body)
            if getattr(answer, "error_code", 0) not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            ):
                return answer
            await asyncio.sleep(0.1)

    # Groups

    async def join(self, member_id: str = "") -> Any:
        body = {
            "group_id": GROUP,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"subscribed"}],
        }
        return await self.ask_until_loaded(ApiKey.JOIN_GROUP, body)

    async def joined(self) -> Any:
        """The answer to a join whose member was given its id before."""
        return await self.join((await self.join()).member_id)

    async def member(self) -> None:
        """Of a stable group."""
        joined = await self.joined()
        body = {
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": joined.member_id, "assignment": b"all of it"}],
        }
        check((await self.ask(ApiKey.SYNC_GROUP, body)).error_code)

    async def has_no_members(self) -> bool:
        body = {"groups": [GROUP], "include_authorized_operations": False}
        (found,) = (await self.ask(ApiKey.DESCRIBE_GROUPS, body)).groups
        return found.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and not found.members

    async def heartbeat(self, member_id: str, epoch: int) -> Any:
        """Of the newer protocol, of a member that says nothing of what it owns but when it joins."""
        body: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member_id,
            "member_epoch": epoch,
            "rebalance_timeout": REBALANCE_MS if epoch == 0 else -1,
            "subscribed_topic_names": [TOPIC] if epoch == 0 else None,
            "topic_partitions": [] if epoch == 0 else None,
        }
        return await self.ask_until_loaded(ApiKey.CONSUMER_GROUP_HEARTBEAT, body)

    async def streams_heartbeat(self, epoch: int) -> Any:
        """Of the only member of a streams group, which reads the topic."""
        is_new = epoch == 0
        subtopology = {
            "subtopology_id": "0",
            "source_topics": [TOPIC],
            "source_topic_regex": [],
            "state_changelog_topics": [],
            "repartition_sink_topics": [],
            "repartition_source_topics": [],
            "copartition_groups": [],
        }
        body: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": "member",
            "member_epoch": epoch,
            "endpoint_information_epoch": -1,
            "rebalance_timeout": REBALANCE_MS if is_new else -1,
            "process_id": "process" if is_new else None,
            "topology": {"epoch": 0, "subtopologies": [subtopology]} if is_new else None,
            "active_tasks": [] if is_new else None,
            "standby_tasks": [] if is_new else None,
            "warmup_tasks": [] if is_new else None,
        }
        return await self.ask_until_loaded(ApiKey.STREAMS_GROUP_HEARTBEAT, body)

    async def commit(self, topic_id: UUID | None = None) -> None:
        """For the topic of the name, or for the one with an id."""
        topic = {"name": TOPIC} if topic_id is None else {"topic_id": topic_id}
        body = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [topic | {"partitions": [offset()]}],
        }
        version = 9 if topic_id is None else 10
        (found,) = (await self.ask(ApiKey.OFFSET_COMMIT, body, version=version)).topics
        check(found.partitions[0].error_code)

    async def fetched(self) -> int:
        """The offset that the group has committed."""
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        group = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": topics}
        body = {"groups": [group], "require_stable": False}
        (found,) = (await self.ask(ApiKey.OFFSET_FETCH, body, version=9)).groups
        return NOTHING if found.error_code else int(found.topics[0].partitions[0].committed_offset)

    # Transactions

    async def producer(self, *, timeout_ms: int = 600_000) -> Any:
        await self.ask(ApiKey.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": [ID]})
        body = {
            "transactional_id": ID,
            "transaction_timeout": timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self.ask_until_loaded(ApiKey.INIT_PRODUCER_ID, body)
        check(answer.error_code)
        return answer

    async def write(self, producer: Any) -> None:
        batch = make_batch(
            [b"x"],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        await self.client.produce(TOPIC, 0, batch, transactional_id=ID)

    async def commit_in_transaction(self, producer: Any) -> None:
        body = {
            "transactional_id": ID,
            "group_id": GROUP,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [offset()]}],
        }
        (found,) = (await self.ask(ApiKey.TXN_OFFSET_COMMIT, body, version=5)).topics
        check(found.partitions[0].error_code)

    async def end(self, producer: Any) -> None:
        body = {
            "transactional_id": ID,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "committed": True,
        }
        check((await self.ask(ApiKey.END_TXN, body)).error_code)

    async def transaction(self) -> str:
        """Its state; empty when there is none."""
        body = {"transactional_ids": [ID]}
        (found,) = (await self.ask(ApiKey.DESCRIBE_TRANSACTIONS, body)).transaction_states
        return "" if found.error_code else str(found.transaction_state)

    async def is_in(self, state: str) -> bool:
        return await self.transaction() == state

    async def eventually(self, condition: Callable[[], Awaitable[bool]], *, within_s: float) -> None:
        """Raises TimeoutError."""
        loop = self.simulation.loop
        end = loop.time() + within_s
        while not await condition():
            if loop.time() > end:
                raise TimeoutError("clients see nothing of it")
            await asyncio.sleep(0.1)


def offset() -> dict[str, Any]:
    return {
        "partition_index": 0,
        "committed_offset": COMMITTED,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }


async def a_rebalance_has_waited_long_enough(world: World) -> None:
    await world.start(group_initial_rebalance_delay_ms=2_000)
    assert (await world.joined()).error_code == ErrorCode.NONE


async def a_member_does_not_sync(world: World) -> None:
    await world.start()
    check((await world.joined()).error_code)
    await world.eventually(world.has_no_members, within_s=REBALANCE_MS / 1000 + SOON_S)


async def a_member_with_a_new_id_does_not_join(world: World) -> None:
    await world.start(offsets_retention_check_interval_ms=600_000)  # at which empty groups go
    member_id = (await world.join()).member_id
    await asyncio.sleep(SESSION_MS / 1000 + SOON_S)
    if (await world.join(member_id)).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
        raise TimeoutError("the id is waited for")


async def a_member_is_silent(world: World) -> None:
    await world.start()
    await world.member()
    assert not await world.has_no_members()
    await world.eventually(world.has_no_members, within_s=SESSION_MS / 1000 + SOON_S)


async def a_member_gives_nothing_back(world: World) -> None:
    """Of a group of the newer protocol: it heartbeats, and keeps what another one is to have."""
    await world.start()
    first = await world.heartbeat("first", 0)
    check(first.error_code)
    second = await world.heartbeat("second", 0)
    check(second.error_code)

    async def has_everything() -> bool:
        nonlocal first, second
        if first.error_code == ErrorCode.NONE:
            first = await world.heartbeat("first", first.member_epoch)
        second = await world.heartbeat("second", second.member_epoch)
        check(second.error_code)
        return (
            second.assignment is not None
            and sum(len(topic.partitions) for topic in second.assignment.topic_partitions) == 2
        )

    await world.eventually(has_everything, within_s=REBALANCE_MS / 1000 + SOON_S)


async def members_of_a_streams_group_have_come(world: World) -> None:
    """The first ones wait for others before they get tasks."""
    await world.start(group_streams_initial_rebalance_delay_ms=1_000)
    answer = await world.streams_heartbeat(0)
    check(answer.error_code)

    async def has_tasks() -> bool:
        nonlocal answer
        answer = await world.streams_heartbeat(answer.member_epoch)
        check(answer.error_code)
        return bool(answer.active_tasks)

    await world.eventually(has_tasks, within_s=1 + SOON_S)


async def an_offset_is_not_used(world: World) -> None:
    await world.start(offsets_retention_minutes=1)
    await world.commit()
    assert await world.fetched() == COMMITTED

    async def is_gone() -> bool:
        return await world.fetched() == NOTHING

    await world.eventually(is_gone, within_s=60 + SOON_S)


async def a_topic_is_deleted(world: World) -> None:
    await world.start()
    await world.commit()
    body = {"topics": [{"name": TOPIC, "topic_id": None}], "timeout": 1_000}
    await world.ask(ApiKey.DELETE_TOPICS, body)

    async def is_gone() -> bool:
        return await world.fetched() == NOTHING

    await world.eventually(is_gone, within_s=SOON_S)


def test_a_commit_for_the_next_topic_of_a_name_outlives_the_news_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coordinator hears late of a topic that was deleted and made again at once. What was committed for
    the first one goes then, by its id, and what was committed for the second one stays."""
    heard: list[Mapping[str, UUID]] = []
    monkeypatch.setattr(GroupService, "topics_deleted", lambda service, topics: heard.append(topics))

    async def topic_id(world: World) -> UUID:
        (topic,) = (await world.client.metadata([TOPIC])).topics
        return UUID(bytes=topic.topic_id.bytes)

    async def story(world: World) -> None:
        await world.start()
        first = await topic_id(world)
        await world.commit(first)
        assert await world.fetched() == COMMITTED
        await world.ask(
            ApiKey.DELETE_TOPICS, {"topics": [{"name": TOPIC, "topic_id": None}], "timeout": 1_000}
        )
        await world.client.create_topic(TOPIC, assignment=[[1], [1]])
        second = await topic_id(world)
        assert first != second and {first} == {told[TOPIC] for told in heard}
        groups = world.broker.server.services.groups

        def hear_of(gone: UUID) -> None:
            for shard in groups.hosted_shards():
                shard.tell(lambda events, now_ms: events.topics_deleted({TOPIC: gone}, now_ms))

        await world.commit(second)
        hear_of(first)
        await asyncio.sleep(SOON_S)
        assert await world.fetched() == COMMITTED
        hear_of(second)
        await asyncio.sleep(SOON_S)
        assert await world.fetched() == NOTHING

    Simulation(7).run(lambda simulation: story(World(simulation)))


async def a_transaction_with_offsets_ends(world: World) -> None:
    await world.start()
    producer = await world.producer()
    await world.commit_in_transaction(producer)
    assert await world.fetched() == NOTHING
    await world.end(producer)

    async def is_committed() -> bool:
        return await world.fetched() == COMMITTED

    await world.eventually(is_committed, within_s=SOON_S)


async def a_silent_member_gets_another_coordinator(world: World) -> None:
    await world.start()
    await world.member()
    world.broker.kill()
    await world.broker.start()
    await world.eventually(world.has_no_members, within_s=SESSION_MS / 1000 + LATE_S)


async def markers_are_written(world: World) -> None:
    await world.start()
    producer = await world.producer()
    await world.write(producer)
    await world.end(producer)

    await world.eventually(lambda: world.is_in("CompleteCommit"), within_s=SOON_S)


async def a_transaction_takes_too_long(world: World) -> None:
    await world.start()
    await world.write(await world.producer(timeout_ms=5_000))
    assert await world.transaction() == "Ongoing"

    await world.eventually(lambda: world.is_in("CompleteAbort"), within_s=5 + SOON_S)


async def a_transactional_id_is_not_used(world: World) -> None:
    await world.start(transactional_id_expiration_ms=20_000)
    await world.producer()
    assert await world.transaction() == "Empty"

    await world.eventually(lambda: world.is_in(""), within_s=20 + SOON_S)


async def a_decided_transaction_gets_another_coordinator(world: World) -> None:
    """The one before it is killed when the commit is answered, while no marker can be written."""
    await world.start()
    producer = await world.producer()
    await world.write(producer)
    markers = world.broker.server.services.transactions.markers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markers, "write", lambda shard, wanted: None)
        await world.end(producer)
        assert await world.transaction() == "PrepareCommit"
    world.broker.kill()
    await world.broker.start()

    await world.eventually(lambda: world.is_in("CompleteCommit"), within_s=LATE_S)


async def the_end_of_a_transaction_has_too_few_replicas(world: World) -> None:
    """They are lost when the markers are written, and come back."""
    await world.start()
    other = await world.simulation.start_broker(2, CONFIG)
    await world.client.create_topic("__transaction_state", assignment=[[1, 2]], configs=AT_LEAST_TWO)
    producer = await world.producer()
    await world.write(producer)
    markers = world.broker.server.services.transactions.markers
    held: list[tuple[Any, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markers, "write", lambda *wanted: held.append(wanted))
        await world.end(producer)
    (wanted,) = held
    other.kill()
    replicas = world.broker.server.services.replica_manager.partitions
    hosted = replicas[TopicPartition("__transaction_state", 0)]
    await until(lambda: hosted.isr == (1,), "one replica is left")
    markers.write(*wanted)
    await asyncio.sleep(1)
    assert await world.transaction() == "PrepareCommit"
    await other.start()
    await world.eventually(lambda: world.is_in("CompleteCommit"), within_s=LATE_S)


Story = Callable[[World], Awaitable[None]]

STORIES: list[tuple[Lost, Story]] = [
    (Lost(GroupShard, "expired", OperationKind.JOIN), a_rebalance_has_waited_long_enough),
    (Lost(GroupShard, "expired", OperationKind.SYNC), a_member_does_not_sync),
    (Lost(GroupShard, "expired", OperationKind.NEW_MEMBER), a_member_with_a_new_id_does_not_join),
    (Lost(GroupShard, "expired", OperationKind.SESSION), a_member_is_silent),
    (Lost(GroupShard, "expired", OperationKind.REVOCATION), a_member_gives_nothing_back),
    (Lost(GroupShard, "expired", OperationKind.FIRST_ASSIGNMENT), members_of_a_streams_group_have_come),
    (Lost(GroupShard, "clean_up"), an_offset_is_not_used),
    (Lost(GroupShard, "topics_deleted"), a_topic_is_deleted),
    (Lost(GroupShard, "end_transaction"), a_transaction_with_offsets_ends),
    (Lost(GroupShard, "loaded"), a_silent_member_gets_another_coordinator),
    (Lost(TransactionShard, "expired", RETRY_COMPLETE), the_end_of_a_transaction_has_too_few_replicas),
    (Lost(TransactionShard, "markers_written"), markers_are_written),
    (Lost(TransactionShard, "abort_timed_out"), a_transaction_takes_too_long),
    (Lost(TransactionShard, "remove_expired"), a_transactional_id_is_not_used),
    (Lost(TransactionShard, "loaded"), a_decided_transaction_gets_another_coordinator),
]


def test_every_operation_that_waits_has_a_story() -> None:
    assert {lost.kind for lost, _ in STORIES} == {None, *OperationKind, *TransactionOperationKind}


def tell(monkeypatch: pytest.MonkeyPatch, story: Story, event: Lost, *, is_lost: bool) -> int:
    """Returns how often the event came."""
    count = 0
    happens = getattr(event.shard, event.name)

    def noted(shard: Any, *arguments: Any) -> Any:
        nonlocal count
        if event.kind is not None and arguments[0].kind is not event.kind:
            return happens(shard, *arguments)
        count += 1
        return [] if is_lost else happens(shard, *arguments)

    monkeypatch.setattr(event.shard, event.name, noted)
    Simulation(7).run(lambda simulation: story(World(simulation)))
    return count


@pytest.mark.parametrize(("event", "story"), STORIES)
def test_clients_see_what_comes_of_an_event(
    monkeypatch: pytest.MonkeyPatch, event: Lost, story: Story
) -> None:
    assert tell(monkeypatch, story, event, is_lost=False) > 0


@pytest.mark.parametrize(("event", "story"), STORIES)
def test_without_the_event_clients_see_nothing(
    monkeypatch: pytest.MonkeyPatch, event: Lost, story: Story
) -> None:
    with pytest.raises((TimeoutError, BrokerUnavailable, KafkaError)):
        tell(monkeypatch, story, event, is_lost=True)
