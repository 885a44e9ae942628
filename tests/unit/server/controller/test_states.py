"""The states of partitions, as the controller reads, watches and writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.controller.effects import VersionedState
from minikafka.controller.events import ReassignmentIsrChanged
from minikafka.coordination import paths
from minikafka.server.controller import store as controller_store
from minikafka.types import TopicPartition
from tests.unit.server.controller_term import A0, A1, controller_term, state
from tests.unit.server.virtual_time import in_virtual_time


@in_virtual_time
async def test_states_are_read_with_their_versions(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        version = await term.put_state(A0)
        node = await term.theirs.get(paths.partition_state_path(*A0))
        found = await term.store.states.read([A0, A1, TopicPartition("missing", 0)])
        assert found == {A0: VersionedState(state(), version, node.stat.mzxid)}


@in_virtual_time
async def test_first_states_are_created_with_the_nodes_above_them(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        wanted = {A0: state(), A1: state(), TopicPartition("deleted", 0): state()}
        assert await term.store.states.create(wanted) == {A0: 0, A1: 0}
        assert (await term.store.states.read([A1]))[A1].state == state()
        assert await term.theirs.exists(paths.topic_path("deleted")) is None


@in_virtual_time
async def test_a_state_that_is_there_is_not_replaced_and_half_a_creation_is_completed(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a", partitions=3)
        theirs = await term.put_state(A0)
        await term.theirs.create(paths.partition_path("a", 1))  # its controller died in between
        third = TopicPartition("a", 2)
        created = await term.store.states.create({each: state(9) for each in (A0, A1, third)})
        assert created == {A1: 0, third: 0}
        found = await term.store.states.read([A0, A1, third])
        assert [each.state.leader_epoch for each in found.values()] == [0, 9, 9]
        assert found[A0].version == theirs


@in_virtual_time
async def test_many_states_are_cut_into_writes_of_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_store, "STATES_PER_MULTI", 3)
    async with controller_term(tmp_path) as term:
        await term.put_topic("a", partitions=8)
        every = [TopicPartition("a", number) for number in range(8)]
        assert await term.store.states.create({each: state() for each in every}) == dict.fromkeys(every, 0)
        news = {each: VersionedState(state(1), 0) for each in every}
        assert await term.store.states.write(news) == dict.fromkeys(every, 1)
        await term.store.delete_topic("a")
        assert await term.theirs.children(paths.TOPICS) == []


@in_virtual_time
async def test_a_write_that_lost_its_race_stops_no_other(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a", partitions=3)
        every = [TopicPartition("a", number) for number in range(3)]
        await term.store.states.create({each: state() for each in every})
        faster = await term.put_state(A1)
        news = {each: VersionedState(state(1), 0) for each in every}
        missing = {TopicPartition("a", 9): VersionedState(state(1), 0)}
        assert await term.store.states.write(news | missing) == {A0: 1, every[2]: 1}
        found = await term.store.states.read(every)
        assert [found[each].state.leader_epoch for each in every] == [1, 0, 1]
        assert found[A1].version == faster


@in_virtual_time
async def test_a_damaged_state_is_left_out_and_named_once_each_time_it_breaks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        await term.put_state(A0)
        path = paths.partition_state_path(*A1)
        for broken in (1, 2):
            await term.put_state(A1, b"no json")
            for _ in range(2):
                assert list(await term.store.states.read([A0, A1])) == [A0]
            assert len([each for each in caplog.messages if path in each]) == broken
            await term.put_state(A1)
            assert list(await term.store.states.read([A0, A1])) == [A0, A1]


@in_virtual_time
async def test_the_next_write_of_a_watched_state_is_told_once(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        await term.put_state(A0)
        for _ in range(3):  # looked at again and again while nothing happens
            assert list(await term.store.states.read([A0], is_watched=True)) == [A0]
        await term.put_state(A0)
        assert await term.heard() == [ReassignmentIsrChanged(A0)]
        await term.put_state(A0)
        assert await term.heard() == []
        await term.store.states.read([A0], is_watched=True)
        await term.theirs.delete(paths.partition_state_path(*A0))
        assert await term.heard() == [ReassignmentIsrChanged(A0)]


@in_virtual_time
async def test_a_watched_state_that_is_not_there_yet_or_is_damaged_is_told_of_when_it_is_written(
    tmp_path: Path,
) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        await term.put_state(A1, b"no json")
        assert await term.store.states.read([A0, A1], is_watched=True) == {}
        await term.put_state(A0)
        assert set(await term.heard()) == {ReassignmentIsrChanged(A0)}
        await term.put_state(A1)
        assert await term.heard() == [ReassignmentIsrChanged(A1)]


@in_virtual_time
async def test_a_state_that_is_not_watched_is_read_in_silence(tmp_path: Path) -> None:
    async with controller_term(tmp_path) as term:
        await term.put_topic("a")
        await term.put_state(A0)
        await term.store.states.read([A0, A1])
        await term.put_state(A0)
        await term.put_state(A1)
        assert await term.heard() == []
