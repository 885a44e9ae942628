"""The controller's effects on a real store: what it reads, what it writes, and what it must not write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from minikafka.controller.effects import AssignmentChange, TopicRecord, VersionedState
from minikafka.controller.events import BrokersChanged, PartitionsChanged, TopicsChanged
from minikafka.coordination import paths
from minikafka.coordination.store import NodeStat
from minikafka.protocol.control import ListenerEndpoint, LiveBroker
from minikafka.server.cluster.registration import elect
from minikafka.server.controller.store import ControllerMoved, ControllerStore
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition
from tests.unit.server.controller_term import A0, A1, ID, ONE, TWO, controller_term, state
from tests.unit.server.virtual_store import tree
from tests.unit.server.virtual_time import LoopClock, in_virtual_time

OLD = ReplicaAssignment((ONE, TWO))
MOVED = OLD.reassign_to((BrokerId(3), ONE))


# Reading, and what the watches tell afterwards


@in_virtual_time
async def test_brokers_are_read_with_their_epochs_and_watched(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.register(ONE)
        czxid = (await term.theirs.get(paths.broker_path(ONE))).stat.czxid
        endpoint = ListenerEndpoint("PLAINTEXT", "localhost", 9091)
        assert await term.store.brokers() == {ONE: LiveBroker(ONE, czxid, (endpoint,), "r")}
        await term.register(TWO)
        assert await term.heard() == [BrokersChanged()]
        assert (await term.store.brokers()).keys() == {ONE, TWO}
        await term.theirs.delete(paths.broker_path(ONE))
        assert BrokersChanged() in await term.heard()
        assert (await term.store.brokers()).keys() == {TWO}
        await term.theirs.set(paths.broker_path(TWO), (await term.theirs.get(paths.broker_path(TWO))).data)
        assert await term.heard() == [BrokersChanged()]  # written again in its place


@in_virtual_time
async def test_where_a_brokers_pages_are_goes_along(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        entry = paths.BrokerRegistration((), 0, http=("host", 8081))
        await term.theirs.create(paths.broker_path(ONE), paths.encode_broker(entry), ephemeral=True)
        assert (await term.store.brokers())[ONE].http == ("host", 8081)


@in_virtual_time
async def test_topics_and_their_assignments_are_read_and_watched(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        assert await term.store.topics() == []
        await term.put_topic("a")
        assert await term.heard() == [TopicsChanged()]
        assert await term.store.topics() == ["a"]
        replicas = ReplicaAssignment((ONE, TWO))
        assert await term.store.assignments(["a", "missing"]) == {
            "a": TopicRecord(ID, {0: replicas, 1: replicas})
        }
        await term.put_topic("a", partitions=3)
        assert await term.heard() == [PartitionsChanged("a")]
        await term.put_topic("a", partitions=4)
        assert await term.heard() == []  # a watch fires once; the read that follows it sets the next
        await term.store.assignments(["a"])
        await term.put_topic("a", partitions=5)
        assert await term.heard() == [PartitionsChanged("a")]


# Writing


@in_virtual_time
async def test_topics_from_before_topic_ids_get_one_and_keep_it(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("old", topic_id=None)
        await term.put_topic("new")
        await term.store.assign_topic_ids(["old", "new", "missing"])
        records = await term.store.assignments(["old", "new"])
        given = records["old"].topic_id
        assert given is not None and records["new"].topic_id == ID
        assert len(records["old"].partitions) == 2
        await term.store.assign_topic_ids(["old"])
        assert (await term.store.assignments(["old"]))["old"].topic_id == given


@in_virtual_time
async def test_a_deleted_topic_leaves_nothing_and_requests_can_be_dropped(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        before = await tree(term.theirs)
        await term.put_topic("a")
        await term.put_topic("b")
        await term.store.states.create({A0: state(), A1: state()})
        await term.theirs.create(paths.topic_config_path("a"), paths.encode_config({}))
        for name in ("a", "b", "missing"):
            await term.theirs.create(paths.delete_topic_path(name))
        await term.store.delete_topic("a")
        assert await term.theirs.children(paths.TOPICS) == ["b"]
        assert await term.theirs.children(paths.DELETE_TOPICS) == ["b", "missing"]
        await term.store.notifications.drop_topic_deletions(["missing", "never there"])
        assert await term.theirs.children(paths.DELETE_TOPICS) == ["b"]
        await term.store.delete_topic("b")
        assert (await tree(term.theirs)).keys() == before.keys()


@in_virtual_time
async def test_assignments_are_written_over_what_was_expected_and_nothing_else_of_the_topic_changes(
    tmp_path: Path,
) -> None:
    async with controller_term(tmp_path) as term:
        for topic in ("a", "b"):
            await term.put_topic(topic)
        changes = {
            A0: AssignmentChange(OLD, MOVED),
            A1: AssignmentChange(MOVED, OLD),  # it is not on the way
            TopicPartition("a", 7): AssignmentChange(OLD, MOVED),
            TopicPartition("b", 1): AssignmentChange(OLD, MOVED),
            TopicPartition("missing", 0): AssignmentChange(OLD, MOVED),
        }
        written = await term.store.write_assignments(changes)
        # a-1 has what was to be written: an answer may have been lost
        assert sorted(written) == [A0, A1, TopicPartition("b", 1)]
        assert await term.store.assignments(["a", "b"]) == {
            "a": TopicRecord(ID, {0: MOVED, 1: OLD}),
            "b": TopicRecord(ID, {0: OLD, 1: MOVED}),
        }
        assert await term.store.write_assignments({A1: AssignmentChange(MOVED, MOVED)}) == []


@in_virtual_time
async def test_assignments_are_read_again_when_another_client_wrote_the_topic_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controller_term(tmp_path) as term:
        for topic in ("a", "b", "c"):
            await term.put_topic(topic)
        multi, others = term.ours.multi, ["grow a", "reassign b-0"]

        async def another_writer_is_faster(ops: Any) -> Any:
            if others:
                match others.pop(0):
                    case "grow a":
                        await term.put_topic("a", partitions=5)
                    case _:
                        faster = {0: OLD.reassign_to((TWO,)), 1: OLD}
                        data = paths.encode_topic(paths.TopicAssignment(ID, faster))
                        await term.theirs.set(paths.topic_path("b"), data)
            return await multi(ops)

        monkeypatch.setattr(term.ours, "multi", another_writer_is_faster)
        b0, c0 = TopicPartition("b", 0), TopicPartition("c", 0)
        written = await term.store.write_assignments(
            {each: AssignmentChange(OLD, MOVED) for each in (A0, b0, c0)}
        )
        assert (sorted(written), others) == ([A0, c0], [])
        stored = await term.store.assignments(["a", "b", "c"])
        assert (len(stored["a"].partitions), stored["a"].partitions[0]) == (5, MOVED)
        assert stored["b"].partitions[0] == OLD.reassign_to((TWO,))
        assert stored["c"].partitions[0] == MOVED


@in_virtual_time
async def test_the_assignments_of_many_topics_are_one_write(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        names = [f"t{number}" for number in range(20)]
        for topic in names:
            await term.put_topic(topic)
        every = {TopicPartition(topic, number) for topic in names for number in (0, 1)}
        changes = dict.fromkeys(sorted(every), AssignmentChange(OLD, MOVED))
        assert sorted(await term.store.write_assignments(changes)) == sorted(every)
        stats = [await term.theirs.exists(paths.topic_path(topic)) for topic in names]
        assert {(stat.version, stat.mzxid) for stat in stats if isinstance(stat, NodeStat)} == {
            (1, stats[0].mzxid if stats[0] else 0)
        }


@in_virtual_time
async def test_a_damaged_topics_assignments_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        await term.theirs.set(paths.topic_path("a"), b"no json")
        assert await term.store.write_assignments({A0: AssignmentChange(OLD, MOVED)}) == []
        assert paths.topic_path("a") in caplog.text
        assert (await term.theirs.get(paths.topic_path("a"))).data == b"no json"


# The guard (I14, R13)


async def leave_nothing(store: ControllerStore) -> None:
    await store.notifications.reassignments()
    await store.notifications.leave_reassignments({})


WRITES: dict[str, Callable[[ControllerStore], Awaitable[Any]]] = {
    "create_states": lambda store: store.states.create({TopicPartition("fresh", 0): state()}),
    "create_states below a node that is there": lambda store: store.states.create({A1: state()}),
    "write_states": lambda store: store.states.write({A0: VersionedState(state(9), 1)}),
    "assign_topic_ids": lambda store: store.assign_topic_ids(["old"]),
    "delete_topic": lambda store: store.delete_topic("a"),
    "drop_topic_deletions": lambda store: store.notifications.drop_topic_deletions(["request"]),
    "take_isr_changes": lambda store: store.notifications.take_isr_changes(),
    "take_log_dir_events": lambda store: store.notifications.take_log_dir_events(),
    "write_assignments": lambda store: store.write_assignments({A0: AssignmentChange(OLD, MOVED)}),
    "leave_reassignments": leave_nothing,
    "take_preferred_elections": lambda store: store.notifications.take_preferred_elections(),
    "resign": lambda store: store.resign(),
}


@pytest.mark.parametrize("write", WRITES)
@in_virtual_time
async def test_a_controller_that_was_paused_past_its_successors_election_writes_nothing(
    tmp_path: Path, write: str
) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        assert await term.put_state(A0) == 1
        await term.theirs.create(paths.partition_path("a", 1))
        await term.put_topic("fresh", partitions=1)
        await term.put_topic("old", topic_id=None)
        await term.theirs.create(paths.delete_topic_path("request"))
        for prefix, data in (
            (paths.ISR_CHANGE_PREFIX, paths.encode_partitions([A0])),
            (paths.LOG_DIR_EVENT_PREFIX, paths.encode_log_dir_event(1)),
        ):
            await term.theirs.create(prefix, data, sequential=True)
        for path, data in (
            (paths.REASSIGN_PARTITIONS, paths.encode_reassignment({A0: (TWO,)})),
            (paths.PREFERRED_REPLICA_ELECTION, paths.encode_partitions([A0])),
        ):
            await term.theirs.create(path, data)
        await term.theirs.delete(paths.CONTROLLER)
        await elect(term.theirs, node_id=TWO, clock=LoopClock())
        before = await tree(term.theirs)
        with pytest.raises(ControllerMoved):
            await WRITES[write](term.store)
        assert await tree(term.theirs) == before


@in_virtual_time
async def test_without_the_node_of_the_epoch_nothing_is_written_either(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        await term.theirs.delete(paths.CONTROLLER_EPOCH)
        with pytest.raises(ControllerMoved):
            await term.store.states.create({A0: state()})


@in_virtual_time
async def test_who_resigns_lets_another_be_elected(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.store.resign()
        assert (await elect(term.theirs, node_id=TWO, clock=LoopClock())).controller_epoch == 2


# Damage


@in_virtual_time
async def test_a_damaged_topic_is_left_out_named_once_and_comes_back_when_it_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        await term.put_topic("b")
        await term.theirs.set(paths.topic_path("a"), b"no json")
        for _ in range(3):
            assert list(await term.store.assignments(["a", "b"])) == ["b"]
        assert len([each for each in caplog.messages if paths.topic_path("a") in each]) == 1
        assert "repair" in caplog.text
        await term.put_topic("a")
        assert TopicsChanged() in await term.heard()  # to the controller it is a new topic
        assert list(await term.store.assignments(["a", "b"])) == ["a", "b"]
        await term.theirs.set(paths.topic_path("a"), b"again")
        assert await term.heard() == [PartitionsChanged("a")]
        assert list(await term.store.assignments(["a"])) == []
        assert len([each for each in caplog.messages if paths.topic_path("a") in each]) == 2


@in_virtual_time
async def test_a_damaged_broker_is_not_alive_until_its_entry_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controller_term(tmp_path) as term:
        await term.register(ONE, b"no json")
        await term.register(TWO)
        for _ in range(2):
            assert (await term.store.brokers()).keys() == {TWO}
        path = paths.broker_path(ONE)
        assert len([each for each in caplog.messages if path in each]) == 1
        good = paths.BrokerRegistration(
            endpoints=(paths.Endpoint("PLAINTEXT", "localhost", 9091),), timestamp_ms=0
        )
        await term.theirs.set(path, paths.encode_broker(good))
        assert await term.heard() == [BrokersChanged()]
        assert (await term.store.brokers()).keys() == {ONE, TWO}
