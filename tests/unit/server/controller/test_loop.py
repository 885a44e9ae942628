"""The controller's loop: it leads while it is elected, and however that ends, another one can follow."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from minikafka.config.broker import broker_config
from minikafka.controller.events import (
    BrokersChanged,
    LeaderRebalanceDue,
    ReassignmentIsrChanged,
    TopicsChanged,
)
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import ConnectionLossError, CreateOp, DeleteOp, SetOp
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.control import (
    ControlledShutdownRequest,
    ControlRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveBroker,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.cluster.registration import SessionKeeper, current_controller
from minikafka.server.config_service import ConfigService
from minikafka.server.controller.alter_partition import CurrentState, ProposedIsr
from minikafka.server.controller.loop import ControllerLoop, EventQueue
from minikafka.server.controller.store import PartitionStates
from minikafka.server.runtime.event_loop import Restart, Supervisor
from minikafka.types import BrokerId, ElectionType, ReplicaAssignment, TopicPartition
from tests.unit.server.virtual_store import SESSION_TIMEOUT_MS, freeze, open_store
from tests.unit.server.virtual_time import LoopClock, in_virtual_time, passing

ONE, TWO = BrokerId(1), BrokerId(2)
A0 = TopicPartition("a", 0)


class Member:
    """One broker's part in being the controller; what it sends as controller goes nowhere else."""

    def __init__(self, store: SqliteStore, node_id: int, **properties: str) -> None:
        """Properties with underscores for dots."""
        self.node_id = BrokerId(node_id)
        self.store = store
        self.sessions = SessionKeeper(store)
        self.supervisor = Supervisor()
        self.sent: list[tuple[BrokerId, ControlRequest]] = []
        self.loop = ControllerLoop(
            node_id=self.node_id,
            store=store,
            sessions=self.sessions,
            configs=ConfigService(
                node_id=self.node_id,
                static_config=broker_config(
                    {"node.id": str(node_id), "log.dirs": "nowhere"}
                    | {name.replace("_", "."): value for name, value in properties.items()}
                ),
                store=store,
                metadata=MetadataCache(),
            ),
            clock=LoopClock(),
            rng=random.Random(node_id),
            supervisor=self.supervisor,
            open_sender=self.open_sender,
        )

    def open_sender(self, broker: LiveBroker, controller_epoch: int) -> Any:
        async def send(request: ControlRequest) -> Any:
            assert not isinstance(request, ControlledShutdownRequest)
            assert request.controller_epoch == controller_epoch
            self.sent.append((broker.node_id, request))
            match request:
                case LeaderAndIsrRequest():
                    return LeaderAndIsrResponse(0)
                case StopReplicaRequest():
                    return StopReplicaResponse(0)
                case _:
                    return UpdateMetadataResponse(0)

        return send

    async def register(self) -> None:
        endpoint = paths.Endpoint("PLAINTEXT", "localhost", 9090 + self.node_id)
        entry = paths.BrokerRegistration(endpoints=(endpoint,), timestamp_ms=0)
        path = paths.broker_path(self.node_id)
        await self.store.create(path, paths.encode_broker(entry), ephemeral=True)

    async def start(self) -> Member:
        await self.register()
        self.sessions.on_new_session(self.register)
        await self.sessions.established()
        self.supervisor.start("session", self.sessions.run, restart=Restart.ALWAYS)
        self.supervisor.start("controller", self.loop.run, restart=Restart.ALWAYS)
        await passing(100)
        return self

    async def stop(self) -> None:
        await self.supervisor.stop()
        await self.store.close()

    async def asks_to_stop(self, broker: Member) -> Any:
        stat = await self.store.exists(paths.broker_path(broker.node_id))
        assert stat is not None
        request = ControlledShutdownRequest(broker.node_id, stat.czxid)
        return await self.loop.controlled_shutdown(request)

    @property
    def led(self) -> list[tuple[BrokerId, BrokerId]]:
        """Whom it told, and who was said to lead the partition."""
        return [
            (to, each.leader)
            for to, request in self.sent
            if isinstance(request, LeaderAndIsrRequest)
            for each in request.partitions
        ]


@asynccontextmanager
async def members(directory: Path, count: int = 2, **properties: str) -> AsyncIterator[list[Member]]:
    """The first one is the controller."""
    stores = [await open_store(directory) for _ in range(count)]
    for path in paths.PERSISTENT_PATHS:
        await stores[0].ensure_path(path)
    started = [await Member(store, number, **properties).start() for number, store in enumerate(stores, 1)]
    yield started
    for member in started:
        await member.stop()


async def create_topic(member: Member, name: str = "a", *replicas: BrokerId) -> None:
    assignment = {0: ReplicaAssignment(replicas or (ONE, TWO))}
    data = paths.encode_topic(paths.TopicAssignment(UUID(int=hash(name) % 1000 + 1), assignment))
    await member.store.create(paths.topic_path(name), data)


async def leader_of(member: Member) -> tuple[BrokerId, int]:
    """Leader and controller epoch of partition a-0 in the store."""
    node = await member.store.get(paths.partition_state_path(*A0))
    found = paths.decode_partition_state(*A0, node.data)
    return found.leader, found.controller_epoch


@in_virtual_time
async def test_the_controller_alone_acts_upon_what_happens_in_the_store(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, two):
        assert (one.loop.is_controller, two.loop.is_controller) == (True, False)
        assert await current_controller(two.store) == ONE
        await create_topic(two)
        await passing(1000)
        assert await leader_of(two) == (ONE, 1)
        assert sorted(one.led) == [(ONE, ONE), (TWO, ONE)]
        assert two.sent == []


@in_virtual_time
async def test_all_brokers_stop_when_a_kraft_controller_takes_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A migration (KIP-866) begins with it: another controller epoch, and a node that stays."""
    async with members(tmp_path) as (one, two):
        assert not (one.supervisor.failure.done() or two.supervisor.failure.done())
        epoch = await two.store.get(paths.CONTROLLER_EPOCH)
        holder = await two.store.get(paths.CONTROLLER)
        kraft = paths.ControllerRegistration(BrokerId(3000), 5, kraft_controller_epoch=7)
        await two.store.multi(
            [
                SetOp(paths.CONTROLLER_EPOCH, paths.encode_controller_epoch(2), epoch.stat.version),
                DeleteOp(paths.CONTROLLER, holder.stat.version),
                CreateOp(paths.CONTROLLER, paths.encode_controller(kraft)),
            ]
        )
        await passing(1000)
        assert not one.loop.is_controller and not two.loop.is_controller
        for each in (one, two):
            assert "KRaft controller 3000 of epoch 7" in str(each.supervisor.failure.result())
    assert caplog.text.count("this broker stops: the cluster migrates to KRaft") == 2


@in_virtual_time
async def test_a_broker_that_is_not_the_controller_says_so(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, two):
        assert (await two.asks_to_stop(one)).error_code == ErrorCode.NOT_CONTROLLER
        two.loop.notify(BrokersChanged())  # nor does anything wait there for the day that it becomes one
        assert "0 events waiting" in repr(two.loop)


@in_virtual_time
async def test_a_broker_that_wants_to_stop_leads_no_more_and_one_without_partitions_may_go(
    tmp_path: Path,
) -> None:
    async with members(tmp_path, 3) as (one, two, three):
        await create_topic(one)
        await passing(1000)
        response = await one.asks_to_stop(one)
        assert (response.error_code, response.remaining_partitions) == (0, ())
        assert (await leader_of(one))[0] == TWO
        response = await one.asks_to_stop(three)
        assert (response.error_code, response.remaining_partitions) == (0, ())
        response = await one.asks_to_stop(two)
        assert response.remaining_partitions == (A0,)
        stale = ControlledShutdownRequest(TWO, 0)
        assert (await one.loop.controlled_shutdown(stale)).error_code == ErrorCode.STALE_BROKER_EPOCH


@in_virtual_time
async def test_a_controller_with_a_bug_resigns_and_the_next_one_goes_on_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with members(tmp_path) as (one, two):
        create_states, failures = PartitionStates.create, [ZeroDivisionError("a bug")]

        async def fail_once(store: PartitionStates, states: Any) -> Any:
            if failures:
                raise failures.pop()
            return await create_states(store, states)

        monkeypatch.setattr(PartitionStates, "create", fail_once)
        await create_topic(one)
        await passing(500)  # the broker of the first one is not a candidate again before a second is over
        assert any(record.exc_info and "a bug" in str(record.exc_info[1]) for record in caplog.records)
        assert (one.loop.is_controller, two.loop.is_controller) == (False, True)
        assert await leader_of(one) == (ONE, 2)
        await two.store.delete(paths.CONTROLLER)
        await passing(2000)
        assert [one.loop.is_controller, two.loop.is_controller].count(True) == 1


@in_virtual_time
async def test_a_caller_that_waits_for_a_step_that_fails_asks_the_next_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with members(tmp_path) as (one, two):
        await create_topic(one)
        await passing(1000)

        async def fail(*args: Any) -> Any:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(PartitionStates, "write", fail)
            first, second = await asyncio.gather(one.asks_to_stop(one), one.asks_to_stop(two))
        assert first.error_code == second.error_code == ErrorCode.NOT_CONTROLLER


@in_virtual_time
@pytest.mark.parametrize("how", ["deleted", "overwritten"])
async def test_a_controller_whose_node_is_changed_makes_room_for_another(tmp_path: Path, how: str) -> None:
    async with members(tmp_path) as (one, two):
        if how == "deleted":
            await two.store.delete(paths.CONTROLLER)
        else:
            await two.store.set(paths.CONTROLLER, (await two.store.get(paths.CONTROLLER)).data)
        await passing(1000)
        assert [one.loop.is_controller, two.loop.is_controller].count(True) == 1
        node = await one.store.get(paths.CONTROLLER_EPOCH)
        assert paths.decode_controller_epoch(node.data) == 2
        await create_topic(one)
        await passing(1000)
        assert await leader_of(one) == (ONE, 2)


@in_virtual_time
async def test_a_session_that_ends_in_the_middle_of_a_step_ends_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor finishes what the step began; afterwards the old one is a candidate again."""
    async with members(tmp_path) as (one, two):
        entered, ended = asyncio.Event(), asyncio.Event()

        async def wait_for_ever(*args: Any) -> Any:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        with monkeypatch.context() as patch:
            patch.setattr(PartitionStates, "create", wait_for_ever)
            await create_topic(one)
            await entered.wait()
        await freeze(one.store)
        assert not ended.is_set()
        await passing(3 * SESSION_TIMEOUT_MS)
        assert ended.is_set()
        assert (one.loop.is_controller, two.loop.is_controller) == (False, True)
        assert (await leader_of(two))[1] == 2
        assert await two.store.exists(paths.broker_path(ONE)) is not None  # it has registered again
        await two.store.delete(paths.CONTROLLER)
        await passing(1000)
        assert [one.loop.is_controller, two.loop.is_controller].count(True) == 1


@in_virtual_time
async def test_the_controller_waits_for_a_store_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with members(tmp_path) as (one, _):

        async def away(*args: Any) -> Any:
            raise ConnectionLossError("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(PartitionStates, "create", away)
            await create_topic(one)
            await passing(10_000)
            assert one.loop.is_controller
            assert one.led == []
        await passing(1000)
        assert await leader_of(one) == (ONE, 1)
        assert len([each for each in caplog.messages if "waits for the coordination store" in each]) == 1


@in_virtual_time
async def test_a_deposed_controller_that_does_not_know_it_writes_nothing_and_steps_down(
    tmp_path: Path,
) -> None:
    """R13: its session was thought dead, a successor raised the epoch."""
    async with members(tmp_path) as (one, two):
        epoch = await two.store.get(paths.CONTROLLER_EPOCH)
        await two.store.set(paths.CONTROLLER_EPOCH, paths.encode_controller_epoch(9), epoch.stat.version)
        await create_topic(one)
        await passing(2000)
        _, controller_epoch = await leader_of(one)
        assert controller_epoch == 10
        assert [one.loop.is_controller, two.loop.is_controller].count(True) == 1


@in_virtual_time
async def test_what_happens_while_a_controller_takes_office_waits_until_it_is_elected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watches of an earlier term, and brokers that want to stop, come at any time."""
    async with members(tmp_path, 1) as (one,):
        await create_topic(one, "a", ONE)
        await passing(1000)
        watch_controller = one.loop._watch_controller
        asking = []

        async def take_long(election: Any) -> None:
            one.loop.notify(BrokersChanged())
            asking.append(asyncio.create_task(one.asks_to_stop(one)))
            await passing(100)
            await watch_controller(election)

        monkeypatch.setattr(one.loop, "_watch_controller", take_long)
        await one.store.delete(paths.CONTROLLER)
        await passing(1000)
        assert one.loop.is_controller
        assert [(await each).error_code for each in asking] == [0]


async def away_and_back(member: Member, *, seen_by: Member) -> None:
    """Its session ends and it comes again, and is let into the ISR by the leader."""
    await freeze(member.store)
    await passing(3 * SESSION_TIMEOUT_MS)
    path = paths.partition_state_path(*A0)
    node = await seen_by.store.get(path)
    state = paths.decode_partition_state(*A0, node.data)
    grown = msgspec.structs.replace(state, isr=(*state.isr, member.node_id))
    await seen_by.store.set(path, paths.encode_partition_state(grown), node.stat.version)
    announcement = paths.encode_partitions([A0])
    await seen_by.store.create(paths.ISR_CHANGE_PREFIX, announcement, sequential=True)
    await passing(500)


@in_virtual_time
async def test_an_election_is_held_where_the_controller_is_and_refused_elsewhere(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, two):
        await create_topic(one, "a", TWO, ONE)
        await passing(1000)
        await away_and_back(two, seen_by=one)
        assert (await leader_of(one))[0] == ONE
        with pytest.raises(KafkaError) as caught:
            await two.loop.elect_leaders([A0], ElectionType.PREFERRED)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert await one.loop.elect_leaders([A0], ElectionType.PREFERRED) == {A0: None}
        assert (await leader_of(one))[0] == TWO
        again = await one.loop.elect_leaders([A0], ElectionType.PREFERRED)
        assert (error := again[A0]) is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED
        assert await one.loop.elect_leaders(None, ElectionType.PREFERRED) == {}


@in_virtual_time
async def test_an_election_whose_controller_is_deposed_meanwhile_is_asked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with members(tmp_path) as (one, _):
        asking = asyncio.create_task(one.loop.elect_leaders(None, ElectionType.UNCLEAN))
        one.loop._deposed = "another broker"
        with pytest.raises(KafkaError) as caught:
            await asking
        assert caught.value.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("properties", "leader"),
    [
        ({}, TWO),
        ({"auto_leader_rebalance_enable": "false"}, ONE),
        ({"leader_imbalance_per_broker_percentage": "100"}, ONE),
        ({"leader_imbalance_check_interval_seconds": "3600"}, ONE),
    ],
)
@in_virtual_time
async def test_leadership_goes_back_to_who_is_preferred_at_the_next_look(
    tmp_path: Path, properties: dict[str, str], leader: BrokerId
) -> None:
    async with members(tmp_path, **properties) as (one, two):
        await create_topic(one, "a", TWO, ONE)
        await passing(1000)
        await away_and_back(two, seen_by=one)
        await passing(290_000)
        assert (await leader_of(one))[0] == ONE  # the looks were after 5 s, when it was away, and 305
        await passing(10_000)
        assert (await leader_of(one))[0] == leader


@in_virtual_time
async def test_no_task_watches_for_a_controller_that_was_deposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with members(tmp_path) as (one, two):
        put, put_by = EventQueue.put, []

        def noted(queue: EventQueue, event: Any, answer: Any = None) -> None:
            if isinstance(event, LeaderRebalanceDue):
                put_by.append(queue)
            put(queue, event, answer)

        monkeypatch.setattr(EventQueue, "put", noted)
        for _ in range(2):  # from one to the other, and back or not
            await two.store.delete(paths.CONTROLLER)
            await passing(1000)
        await passing(310_000)
        assert len(put_by) == 2 and len(set(map(id, put_by))) == 1
        timers = [repr(member.supervisor).count("leader-rebalance") for member in (one, two)]
        assert sorted(timers) == [0, 1]


@in_virtual_time
async def test_what_a_watch_of_an_earlier_term_tells_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reassignment waits for broker 2 to catch up, over two terms of broker 1: each has watched."""
    async with members(tmp_path, 1) as (one,):
        ghost = Member(await open_store(tmp_path), TWO)
        await ghost.register()
        await create_topic(one, "a", ONE)
        await passing(1000)
        node = await one.store.get(paths.topic_path("a"))
        topic = paths.decode_topic("a", node.data)
        topic.partitions[0] = topic.partitions[0].reassign_to((ONE, TWO))
        await one.store.set(paths.topic_path("a"), paths.encode_topic(topic))
        await passing(1000)
        put, told = EventQueue.put, []

        def noted(queue: EventQueue, event: Any, answer: Any = None) -> None:
            told.append(event)
            put(queue, event, answer)

        monkeypatch.setattr(EventQueue, "put", noted)
        await one.store.delete(paths.CONTROLLER)
        await passing(1000)  # the second term writes the state before it watches it
        assert one.loop.is_controller and (await leader_of(one))[1] == 2
        assert ReassignmentIsrChanged(A0) not in told
        told.clear()
        path = paths.partition_state_path(*A0)
        await one.store.set(path, (await one.store.get(path)).data)
        await passing(1000)
        assert told == [ReassignmentIsrChanged(A0)]
        await ghost.stop()


@in_virtual_time
async def test_a_replica_in_sync_takes_over_a_second_later_while_others_are_behind(tmp_path: Path) -> None:
    """Of three partitions one has caught up. The next controller does not wait for what this one has."""
    async with members(tmp_path, 1) as (one,):
        ghost = Member(await open_store(tmp_path), TWO)
        await ghost.register()
        for name in ("a", "b", "c"):
            await create_topic(one, name, ONE)
        await passing(1000)
        for name in ("a", "b", "c"):
            node = await one.store.get(paths.topic_path(name))
            topic = paths.decode_topic(name, node.data)
            topic.partitions[0] = topic.partitions[0].reassign_to((TWO,))
            await one.store.set(paths.topic_path(name), paths.encode_topic(topic))
        await passing(1000)

        async def catches_up(name: str) -> None:
            path = paths.partition_state_path(name, 0)
            found = paths.decode_partition_state(name, 0, (await one.store.get(path)).data)
            in_sync = msgspec.structs.replace(found, isr=(ONE, TWO))
            await one.store.set(path, paths.encode_partition_state(in_sync))

        async def moving() -> list[str]:
            assert one.loop.context is not None
            return [each.topic for each in one.loop.context.being_reassigned]

        await catches_up("a")
        await passing(900)
        assert await moving() == ["a", "b", "c"]
        await passing(200)
        assert await moving() == ["b", "c"]
        await catches_up("b")
        await passing(500)
        assert await moving() == ["b", "c"]
        await one.store.delete(paths.CONTROLLER)
        await passing(300)
        assert one.loop.is_controller and await moving() == ["c"]
        await ghost.stop()


@in_virtual_time
async def test_equal_events_wait_once_and_questions_each_for_themselves() -> None:
    queue = EventQueue()
    loop = asyncio.get_running_loop()
    for event in (BrokersChanged(), TopicsChanged(), BrokersChanged()):
        queue.put(event)
    first, second = loop.create_future(), loop.create_future()
    queue.put(BrokersChanged(), first)
    queue.put(BrokersChanged(), second)
    assert len(queue) == 4
    assert await queue.get() == (BrokersChanged(), None)
    queue.put(BrokersChanged())  # the first of them is being handled: this one is news
    assert len(queue) == 4
    queue.clear()
    assert first.cancelled() and second.cancelled() and len(queue) == 0
    queue.put(TopicsChanged())
    assert await queue.get() == (TopicsChanged(), None)


@in_virtual_time
async def test_isrs_that_leaders_ask_for_are_told_to_all_brokers_at_once(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, two):
        await create_topic(two)
        await passing(1000)
        one.sent.clear()
        node = await one.store.get(paths.partition_state_path(*A0))
        state = paths.decode_partition_state(*A0, node.data)
        smaller = ProposedIsr(A0, state.leader_epoch, node.stat.version, (ONE,))
        (outcome,) = await one.loop.alter_partitions(ONE, [smaller])
        assert isinstance(outcome, CurrentState)
        await passing(100)
        told = {
            (to, each.isr)
            for to, request in one.sent
            if isinstance(request, UpdateMetadataRequest)
            for each in request.partitions
        }
        assert told == {(ONE, (ONE,)), (TWO, (ONE,))}


@in_virtual_time
async def test_what_a_leader_asked_for_in_an_earlier_term_is_not_written_in_a_later_one(
    tmp_path: Path,
) -> None:
    """It has long had an answer from the controller in between, and goes on from that."""
    async with members(tmp_path) as (one, two):
        await create_topic(two)
        await passing(1000)
        node = await one.store.get(paths.partition_state_path(*A0))
        state = paths.decode_partition_state(*A0, node.data)
        smaller = ProposedIsr(A0, state.leader_epoch, node.stat.version, (ONE,))
        async with one.loop._altering:  # as if an earlier request took so long
            asked = asyncio.create_task(one.loop.alter_partitions(ONE, [smaller]))
            for deposed, elected in ((one, two), (two, one)):
                await deposed.store.delete(paths.CONTROLLER)
                await passing(SESSION_TIMEOUT_MS)
                while not elected.loop.is_controller:
                    await elected.store.delete(paths.CONTROLLER)
                    await passing(SESSION_TIMEOUT_MS)
        with pytest.raises(KafkaError, match="another broker has become controller"):
            await asked
        assert await one.store.get(paths.partition_state_path(*A0)) == node
