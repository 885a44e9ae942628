"""The controller's effects on a real store: what it reads, what it writes, and what it must not write."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.controller.effects import TopicRecord, VersionedState
from minikafka.controller.events import (
    BrokersChanged,
    Event,
    IsrChangesAnnounced,
    LogDirEventsAnnounced,
    PartitionsChanged,
    TopicDeletionsChanged,
    TopicsChanged,
)
from minikafka.coordination import notifications, paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.protocol.control.messages import ListenerEndpoint, LiveBroker
from minikafka.server import controller_store
from minikafka.server.controller_election import elect
from minikafka.server.controller_store import ControllerMoved, ControllerStore
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, ReplicaAssignment, TopicPartition
from tests.unit.server.virtual_store import open_store, tree
from tests.unit.server.virtual_time import LoopClock, in_virtual_time, passing

ONE, TWO = BrokerId(1), BrokerId(2)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
ID = UUID(int=7)


def state(leader_epoch: int = 0, *isr: BrokerId) -> PartitionState:
    return PartitionState(ONE, LeaderEpoch(leader_epoch), isr or (ONE,), 1)


class Reign:
    """A controller's store, the client that it uses, and one that somebody else uses."""

    def __init__(self, ours: SqliteStore, theirs: SqliteStore, epoch_version: int) -> None:
        self.events: list[Event] = []
        self.ours = ours
        self.theirs = theirs
        self.store = ControllerStore(
            ours, epoch_version=epoch_version, rng=random.Random(1), notify=self.events.append
        )

    async def put_topic(self, name: str, *, partitions: int = 2, topic_id: UUID | None = ID) -> None:
        assignment = {number: ReplicaAssignment((ONE, TWO)) for number in range(partitions)}
        data = paths.encode_topic(paths.TopicAssignment(topic_id, assignment))
        path = paths.topic_path(name)
        if await self.theirs.exists(path) is None:
            await self.theirs.create(path, data)
        else:
            await self.theirs.set(path, data)

    async def put_state(self, at: TopicPartition, data: bytes | None = None) -> int:
        path = paths.partition_state_path(*at)
        await self.theirs.ensure_path(path)
        return (await self.theirs.set(path, data or paths.encode_partition_state(state()))).version

    async def register(self, node_id: BrokerId, data: bytes | None = None) -> None:
        endpoint = paths.Endpoint("PLAINTEXT", "localhost", 9090 + node_id)
        entry = paths.BrokerRegistration(endpoints=(endpoint,), timestamp_ms=0, rack="r")
        await self.theirs.create(
            paths.broker_path(node_id), data or paths.encode_broker(entry), ephemeral=True
        )

    async def heard(self) -> list[Event]:
        """What the watches have told since the last time."""
        await passing(500)
        heard, self.events[:] = list(self.events), []
        return heard


@asynccontextmanager
async def reigning(directory: Path) -> AsyncIterator[Reign]:
    ours, theirs = [await open_store(directory) for _ in range(2)]
    for path in paths.PERSISTENT_PATHS:
        await ours.ensure_path(path)
    won = await elect(ours, node_id=ONE, clock=LoopClock())
    yield Reign(ours, theirs, won.epoch_version)
    for store in (ours, theirs):
        await store.close()


# Reading, and what the watches tell afterwards


@in_virtual_time
async def test_brokers_are_read_with_their_epochs_and_watched(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        await reign.register(ONE)
        czxid = (await reign.theirs.get(paths.broker_path(ONE))).stat.czxid
        endpoint = ListenerEndpoint("PLAINTEXT", "localhost", 9091)
        assert await reign.store.brokers() == {ONE: LiveBroker(ONE, czxid, (endpoint,), "r")}
        await reign.register(TWO)
        assert await reign.heard() == [BrokersChanged()]
        assert (await reign.store.brokers()).keys() == {ONE, TWO}
        await reign.theirs.delete(paths.broker_path(ONE))
        assert BrokersChanged() in await reign.heard()
        assert (await reign.store.brokers()).keys() == {TWO}
        await reign.theirs.set(paths.broker_path(TWO), (await reign.theirs.get(paths.broker_path(TWO))).data)
        assert await reign.heard() == [BrokersChanged()]  # written anew in its place


@in_virtual_time
async def test_topics_and_their_assignments_are_read_and_watched(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        assert await reign.store.topics() == []
        await reign.put_topic("a")
        assert await reign.heard() == [TopicsChanged()]
        assert await reign.store.topics() == ["a"]
        replicas = ReplicaAssignment((ONE, TWO))
        assert await reign.store.assignments(["a", "missing"]) == {
            "a": TopicRecord(ID, {0: replicas, 1: replicas})
        }
        await reign.put_topic("a", partitions=3)
        assert await reign.heard() == [PartitionsChanged("a")]
        await reign.put_topic("a", partitions=4)
        assert await reign.heard() == []  # a watch fires once; the read that follows it sets the next
        await reign.store.assignments(["a"])
        await reign.put_topic("a", partitions=5)
        assert await reign.heard() == [PartitionsChanged("a")]


@in_virtual_time
async def test_states_are_read_with_their_versions(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        await reign.put_topic("a")
        version = await reign.put_state(A0)
        node = await reign.theirs.get(paths.partition_state_path(*A0))
        found = await reign.store.partition_states([A0, A1, TopicPartition("missing", 0)])
        assert found == {A0: VersionedState(state(), version, node.stat.mzxid)}


@in_virtual_time
async def test_deletions_are_read_and_watched(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        assert await reign.store.topic_deletions() == []
        await reign.theirs.create(paths.delete_topic_path("a"))
        assert await reign.heard() == [TopicDeletionsChanged()]
        assert await reign.store.topic_deletions() == ["a"]


@in_virtual_time
async def test_announcements_are_taken_away_and_damaged_ones_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with reigning(tmp_path) as reign:
        assert await reign.store.take_isr_changes() == []
        assert await reign.store.take_log_dir_events() == []
        for data in (notifications.encode_partitions([A1]), b"{", notifications.encode_partitions([A1, A0])):
            await reign.theirs.create(paths.ISR_CHANGE_PREFIX, data, sequential=True)
        for data in (notifications.encode_log_dir_event(2), b"}", notifications.encode_log_dir_event(1)):
            await reign.theirs.create(paths.LOG_DIR_EVENT_PREFIX, data, sequential=True)
        assert set(await reign.heard()) == {IsrChangesAnnounced(), LogDirEventsAnnounced()}
        assert await reign.store.take_isr_changes() == [A0, A1]
        assert await reign.store.take_log_dir_events() == [ONE, TWO]
        assert "isr_change_0000000001" in caplog.text and "log_dir_event_0000000001" in caplog.text
        assert await reign.store.take_isr_changes() == [] == await reign.store.take_log_dir_events()


# Writing


@in_virtual_time
async def test_first_states_are_created_with_the_nodes_above_them(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        await reign.put_topic("a")
        wanted = {A0: state(), A1: state(), TopicPartition("deleted", 0): state()}
        assert await reign.store.create_states(wanted) == {A0: 0, A1: 0}
        assert (await reign.store.partition_states([A1]))[A1].state == state()
        assert await reign.theirs.exists(paths.topic_path("deleted")) is None


@in_virtual_time
async def test_a_state_that_is_there_is_not_replaced_and_half_a_creation_is_completed(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        await reign.put_topic("a", partitions=3)
        theirs = await reign.put_state(A0)
        await reign.theirs.create(paths.partition_path("a", 1))  # its controller died in between
        third = TopicPartition("a", 2)
        created = await reign.store.create_states({each: state(9) for each in (A0, A1, third)})
        assert created == {A1: 0, third: 0}
        found = await reign.store.partition_states([A0, A1, third])
        assert [each.state.leader_epoch for each in found.values()] == [0, 9, 9]
        assert found[A0].version == theirs


@in_virtual_time
async def test_many_states_are_cut_into_writes_of_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_store, "STATES_PER_MULTI", 3)
    async with reigning(tmp_path) as reign:
        await reign.put_topic("a", partitions=8)
        every = [TopicPartition("a", number) for number in range(8)]
        assert await reign.store.create_states({each: state() for each in every}) == dict.fromkeys(every, 0)
        news = {each: VersionedState(state(1), 0) for each in every}
        assert await reign.store.write_states(news) == dict.fromkeys(every, 1)
        await reign.store.delete_topic("a")
        assert await reign.theirs.children(paths.TOPICS) == []


@in_virtual_time
async def test_a_write_that_lost_its_race_stops_no_other(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        await reign.put_topic("a", partitions=3)
        every = [TopicPartition("a", number) for number in range(3)]
        await reign.store.create_states({each: state() for each in every})
        faster = await reign.put_state(A1)
        news = {each: VersionedState(state(1), 0) for each in every}
        missing = {TopicPartition("a", 9): VersionedState(state(1), 0)}
        assert await reign.store.write_states(news | missing) == {A0: 1, every[2]: 1}
        found = await reign.store.partition_states(every)
        assert [found[each].state.leader_epoch for each in every] == [1, 0, 1]
        assert found[A1].version == faster


@in_virtual_time
async def test_topics_from_before_topic_ids_get_one_and_keep_it(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        await reign.put_topic("old", topic_id=None)
        await reign.put_topic("new")
        await reign.store.assign_topic_ids(["old", "new", "missing"])
        records = await reign.store.assignments(["old", "new"])
        given = records["old"].topic_id
        assert given is not None and records["new"].topic_id == ID
        assert len(records["old"].partitions) == 2
        await reign.store.assign_topic_ids(["old"])
        assert (await reign.store.assignments(["old"]))["old"].topic_id == given


@in_virtual_time
async def test_a_deleted_topic_leaves_nothing_and_wishes_can_be_dropped(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        before = await tree(reign.theirs)
        await reign.put_topic("a")
        await reign.put_topic("b")
        await reign.store.create_states({A0: state(), A1: state()})
        await reign.theirs.create(paths.topic_config_path("a"), paths.encode_config({}))
        for name in ("a", "b", "missing"):
            await reign.theirs.create(paths.delete_topic_path(name))
        await reign.store.delete_topic("a")
        assert await reign.theirs.children(paths.TOPICS) == ["b"]
        assert await reign.theirs.children(paths.DELETE_TOPICS) == ["b", "missing"]
        await reign.store.drop_topic_deletions(["missing", "never there"])
        assert await reign.theirs.children(paths.DELETE_TOPICS) == ["b"]
        await reign.store.delete_topic("b")
        assert (await tree(reign.theirs)).keys() == before.keys()


# The guard (I14, R13)

WRITES: dict[str, Callable[[ControllerStore], Awaitable[Any]]] = {
    "create_states": lambda store: store.create_states({TopicPartition("fresh", 0): state()}),
    "create_states below a node that is there": lambda store: store.create_states({A1: state()}),
    "write_states": lambda store: store.write_states({A0: VersionedState(state(9), 1)}),
    "assign_topic_ids": lambda store: store.assign_topic_ids(["old"]),
    "delete_topic": lambda store: store.delete_topic("a"),
    "drop_topic_deletions": lambda store: store.drop_topic_deletions(["wish"]),
    "take_isr_changes": lambda store: store.take_isr_changes(),
    "take_log_dir_events": lambda store: store.take_log_dir_events(),
    "resign": lambda store: store.resign(),
}


@pytest.mark.parametrize("write", WRITES)
@in_virtual_time
async def test_a_controller_that_was_paused_past_its_successors_election_writes_nothing(
    tmp_path: Path, write: str
) -> None:
    async with reigning(tmp_path) as reign:
        await reign.put_topic("a")
        assert await reign.put_state(A0) == 1
        await reign.theirs.create(paths.partition_path("a", 1))
        await reign.put_topic("fresh", partitions=1)
        await reign.put_topic("old", topic_id=None)
        await reign.theirs.create(paths.delete_topic_path("wish"))
        for prefix, data in (
            (paths.ISR_CHANGE_PREFIX, notifications.encode_partitions([A0])),
            (paths.LOG_DIR_EVENT_PREFIX, notifications.encode_log_dir_event(1)),
        ):
            await reign.theirs.create(prefix, data, sequential=True)
        await reign.theirs.delete(paths.CONTROLLER)
        await elect(reign.theirs, node_id=TWO, clock=LoopClock())
        before = await tree(reign.theirs)
        with pytest.raises(ControllerMoved):
            await WRITES[write](reign.store)
        assert await tree(reign.theirs) == before


@in_virtual_time
async def test_without_the_node_of_the_epoch_nothing_is_written_either(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        await reign.put_topic("a")
        await reign.theirs.delete(paths.CONTROLLER_EPOCH)
        with pytest.raises(ControllerMoved):
            await reign.store.create_states({A0: state()})


@in_virtual_time
async def test_who_resigns_lets_another_be_elected(tmp_path: Path) -> None:
    async with reigning(tmp_path) as reign:
        await reign.store.resign()
        assert (await elect(reign.theirs, node_id=TWO, clock=LoopClock())).controller_epoch == 2


# Damage


@in_virtual_time
async def test_a_damaged_topic_is_left_out_named_once_and_comes_back_when_it_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with reigning(tmp_path) as reign:
        await reign.put_topic("a")
        await reign.put_topic("b")
        await reign.theirs.set(paths.topic_path("a"), b"no json")
        for _ in range(3):
            assert list(await reign.store.assignments(["a", "b"])) == ["b"]
        assert len([each for each in caplog.messages if paths.topic_path("a") in each]) == 1
        assert "repair" in caplog.text
        await reign.put_topic("a")
        assert TopicsChanged() in await reign.heard()  # to the controller it is a new topic
        assert list(await reign.store.assignments(["a", "b"])) == ["a", "b"]
        await reign.theirs.set(paths.topic_path("a"), b"again")
        assert await reign.heard() == [PartitionsChanged("a")]
        assert list(await reign.store.assignments(["a"])) == []
        assert len([each for each in caplog.messages if paths.topic_path("a") in each]) == 2


@in_virtual_time
async def test_a_damaged_state_is_left_out_and_named_once_each_time_it_breaks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with reigning(tmp_path) as reign:
        await reign.put_topic("a")
        await reign.put_state(A0)
        path = paths.partition_state_path(*A1)
        for broken in (1, 2):
            await reign.put_state(A1, b"no json")
            for _ in range(2):
                assert list(await reign.store.partition_states([A0, A1])) == [A0]
            assert len([each for each in caplog.messages if path in each]) == broken
            await reign.put_state(A1)
            assert list(await reign.store.partition_states([A0, A1])) == [A0, A1]


@in_virtual_time
async def test_a_damaged_broker_is_not_alive_until_its_entry_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with reigning(tmp_path) as reign:
        await reign.register(ONE, b"no json")
        await reign.register(TWO)
        for _ in range(2):
            assert (await reign.store.brokers()).keys() == {TWO}
        path = paths.broker_path(ONE)
        assert len([each for each in caplog.messages if path in each]) == 1
        good = paths.BrokerRegistration(
            endpoints=(paths.Endpoint("PLAINTEXT", "localhost", 9091),), timestamp_ms=0
        )
        await reign.theirs.set(path, paths.encode_broker(good))
        assert await reign.heard() == [BrokersChanged()]
        assert (await reign.store.brokers()).keys() == {ONE, TWO}
