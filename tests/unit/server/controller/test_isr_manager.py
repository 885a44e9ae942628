"""ISR changes on their way into the store: written, refused, found written, read again, and announced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.coordination import paths
from minikafka.coordination.store import ConnectionLossError, Op, OpResult
from minikafka.replication.partition_replicas import IsrChange, IsrOutcome, IsrRefused, IsrReread, IsrWritten
from minikafka.server.controller.alter_partition import DELAY_MS_MAX, LINGER_MS, IsrManager
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, TopicPartition
from tests.unit.server.virtual_store import open_store
from tests.unit.server.virtual_time import LoopClock, in_virtual_time, passing

LEADER, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCH = LeaderEpoch(5)
CONTROLLER_EPOCH = 4
MIN_ISR = 2
AT = TopicPartition("t", 0)


class FlakyStore:
    """Loses connections when it is told to."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_away = False
        self.loses_an_answer = False
        self.multis: list[int] = []
        """How many operations each had."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        if self.is_away:
            raise ConnectionLossError("no answer")
        self.multis.append(len(ops))
        results: list[OpResult] = await self._store.multi(ops)
        if self.loses_an_answer:
            self.loses_an_answer = False
            raise ConnectionLossError("no answer")
        return results

    async def create(self, path: str, data: bytes = b"", **options: Any) -> Any:
        if self.is_away:
            raise ConnectionLossError("no answer")
        return await self._store.create(path, data, **options)


class Writing:
    """An IsrManager at work on a store, and what it told the leader."""

    def __init__(self, store: FlakyStore) -> None:
        self.store = store
        self.manager = IsrManager(store, node_id=LEADER, clock=LoopClock())
        self.outcomes: dict[TopicPartition, IsrOutcome] = {}

    async def write(self, *changes: IsrChange) -> list[IsrOutcome]:
        for change in changes:
            self.submit(change)
        await passing(10)
        return [self.outcomes.pop(change.topic_partition) for change in changes]

    def submit(self, change: IsrChange) -> None:
        self.manager.submit(change, lambda outcome: self.outcomes.update({change.topic_partition: outcome}))

    async def put_state(
        self,
        isr: tuple[BrokerId, ...],
        *,
        at: TopicPartition = AT,
        leader: BrokerId = LEADER,
        leader_epoch: int = EPOCH,
    ) -> int:
        """Returns the version."""
        state = PartitionState(leader, LeaderEpoch(leader_epoch), isr, CONTROLLER_EPOCH)
        path, data = paths.partition_state_path(*at), paths.encode_partition_state(state)
        await self.store.ensure_path(path)
        return (await self.store.set(path, data)).version  # type: ignore[no-any-return]

    async def state(self, at: TopicPartition = AT) -> tuple[PartitionState, int]:
        node = await self.store.get(paths.partition_state_path(*at))
        return paths.decode_partition_state(*at, node.data), node.stat.version

    async def announced(self) -> list[list[TopicPartition]]:
        top = paths.ISR_CHANGE_NOTIFICATION
        nodes = [await self.store.get(f"{top}/{name}") for name in await self.store.children(top)]
        return [paths.decode_partitions(node.data, top) for node in nodes]


@asynccontextmanager
async def writing(directory: Path) -> AsyncIterator[Writing]:
    store = await open_store(directory, poll_interval_ms=10_000, session_timeout_ms=60_000)
    for path in paths.PERSISTENT_PATHS:
        await store.ensure_path(path)
    work = Writing(FlakyStore(store))
    tasks = [
        asyncio.create_task(work.manager.write_changes()),
        asyncio.create_task(work.manager.announce_changes()),
    ]
    yield work
    for task in tasks:
        assert not task.done()
        task.cancel()
    await store.close()


def change(
    *isr: BrokerId, version: int, at: TopicPartition = AT, broker_epochs: tuple[int, ...] = ()
) -> IsrChange:
    return IsrChange(at, UUID(int=1), EPOCH, isr, version, CONTROLLER_EPOCH, MIN_ISR, broker_epochs)


@in_virtual_time
async def test_a_change_is_written_over_the_version_that_the_leader_knows(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        version = await work.put_state((LEADER, TWO))
        assert await work.write(change(LEADER, version=version)) == [
            IsrWritten(version + 1, (LEADER,), (TWO,))
        ]
        assert await work.state() == (
            PartitionState(LEADER, EPOCH, (LEADER,), CONTROLLER_EPOCH, eligible=(TWO,)),
            version + 1,
        )
        assert await work.write(change(LEADER, TWO, version=version + 1)) == [
            IsrWritten(version + 2, (LEADER, TWO))
        ]


@in_virtual_time
async def test_a_write_whose_answer_was_lost_is_found_written(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        version = await work.put_state((LEADER,))
        work.store.loses_an_answer = True
        work.submit(change(LEADER, TWO, version=version))
        await passing(100)
        assert work.outcomes == {}  # it is not known yet: the high watermark has to wait for broker 2
        await passing(200)
        assert work.outcomes == {AT: IsrWritten(version + 1, (LEADER, TWO))}
        assert (await work.state())[1] == version + 1


@in_virtual_time
async def test_a_deposed_leader_is_refused(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        version = await work.put_state((LEADER, TWO))
        newer = await work.put_state((TWO,), leader=TWO, leader_epoch=EPOCH + 1)
        (outcome,) = await work.write(change(LEADER, version=version))
        assert isinstance(outcome, IsrRefused) and "broker 2" in outcome.reason
        assert (await work.state())[1] == newer
        ours_again = await work.put_state((LEADER, TWO), leader_epoch=EPOCH + 2)
        (outcome,) = await work.write(change(LEADER, version=version))
        assert isinstance(outcome, IsrRefused)
        assert (await work.state())[1] == ours_again


@in_virtual_time
async def test_a_partition_that_is_gone_or_damaged_is_refused(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        (outcome,) = await work.write(change(LEADER, version=3))
        assert isinstance(outcome, IsrRefused) and "t-0" in outcome.reason
        version = await work.put_state((LEADER,))
        await work.store.set(paths.partition_state_path(*AT), b"no json")
        (outcome,) = await work.write(change(LEADER, TWO, version=version))
        assert isinstance(outcome, IsrRefused) and paths.partition_state_path(*AT) in outcome.reason


@in_virtual_time
async def test_another_isr_of_the_same_leadership_is_what_the_leader_goes_on_from(tmp_path: Path) -> None:
    """The controller took a dead broker out in the meantime, for instance."""
    async with writing(tmp_path) as work:
        version = await work.put_state((LEADER, TWO))
        newer = await work.put_state((LEADER,))
        (outcome,) = await work.write(change(LEADER, TWO, THREE, version=version))
        assert outcome == IsrReread((LEADER,), newer)
        assert (await work.state())[0].isr == (LEADER,)


@in_virtual_time
async def test_a_member_that_has_restarted_since_it_fetched_is_not_admitted(tmp_path: Path) -> None:
    """KIP-903: it may have come back empty."""
    async with writing(tmp_path) as work:
        version = await work.put_state((LEADER,))
        for node_id in (LEADER, TWO):
            await work.store.create(paths.broker_path(node_id))
        now = (await work.store.exists(paths.broker_path(TWO))).czxid
        stale = change(LEADER, TWO, version=version, broker_epochs=(-1, now - 1))
        assert await work.write(stale) == [IsrReread((LEADER,), version)]
        gone = change(LEADER, THREE, version=version, broker_epochs=(-1, 1))
        assert await work.write(gone) == [IsrReread((LEADER,), version)]
        assert (await work.state())[1] == version
        unknown = change(LEADER, THREE, version=version, broker_epochs=(-1, -1))
        assert await work.write(unknown) == [IsrWritten(version + 1, (LEADER, THREE))]
        current = change(LEADER, TWO, version=version + 1, broker_epochs=(-1, now))
        assert await work.write(current) == [IsrWritten(version + 2, (LEADER, TWO))]


@in_virtual_time
async def test_changes_that_come_together_are_one_write_and_a_refused_one_stops_no_other(
    tmp_path: Path,
) -> None:
    async with writing(tmp_path) as work:
        many = [TopicPartition("t", number) for number in range(4)]
        versions = [await work.put_state((LEADER, TWO), at=each) for each in many]
        assert await work.write(
            *(change(LEADER, version=version, at=each) for each, version in zip(many, versions, strict=True))
        ) == [IsrWritten(version + 1, (LEADER,), (TWO,)) for version in versions]
        assert work.store.multis == [5], "the changes and the guard"
        await work.put_state((TWO,), at=many[1], leader=TWO, leader_epoch=EPOCH + 1)
        back = [
            change(LEADER, TWO, version=version + 1, at=each)
            for each, version in zip(many, versions, strict=True)
        ]
        first, refused, *others = await work.write(*back)
        assert isinstance(refused, IsrRefused)
        assert [first, *others] == [IsrWritten(versions[number] + 2, (LEADER, TWO)) for number in (0, 2, 3)]
        assert work.store.multis == [5, 5, 4]


@in_virtual_time
async def test_changes_wait_for_a_store_that_is_away(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        version = await work.put_state((LEADER, TWO))
        work.store.is_away = True
        work.submit(change(LEADER, version=version))
        await passing(60_000)
        assert work.outcomes == {}
        work.store.is_away = False
        await passing(300)
        assert work.outcomes == {AT: IsrWritten(version + 1, (LEADER,), (TWO,))}


# Announcements


@in_virtual_time
async def test_changes_are_announced_together_when_they_have_come_to_rest(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        other = TopicPartition("u", 1)
        version, other_version = await work.put_state((LEADER, TWO)), await work.put_state((TWO,), at=other)
        await work.write(change(LEADER, version=version))
        await passing(3000)
        await work.write(change(LEADER, version=other_version, at=other))
        await passing(LINGER_MS - 100)
        assert await work.announced() == []
        await passing(2600)
        assert await work.announced() == [[AT, other]]
        await passing(3 * DELAY_MS_MAX)
        assert len(await work.announced()) == 1  # once


@in_virtual_time
async def test_changes_that_never_end_are_announced_once_a_minute(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        version = await work.put_state((LEADER, TWO))
        for number in range(40):
            isr = (LEADER,) if number % 2 == 0 else (LEADER, TWO)
            await work.write(change(*isr, version=version + number))
            await passing(2990)
            elapsed_ms = (number + 1) * 3000
            assert len(await work.announced()) == (elapsed_ms > DELAY_MS_MAX), elapsed_ms


@in_virtual_time
async def test_what_was_not_written_is_not_announced(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        await work.put_state((TWO,), leader=TWO, leader_epoch=EPOCH + 1)
        await work.write(change(LEADER, version=0))
        await passing(2 * DELAY_MS_MAX)
        assert await work.announced() == []


@in_virtual_time
async def test_an_announcement_that_could_not_be_left_is_left_later(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        version = await work.put_state((LEADER, TWO))
        await work.write(change(LEADER, version=version))
        work.store.is_away = True
        await passing(4 * LINGER_MS)
        work.store.is_away = False
        assert await work.announced() == []
        await passing(2 * LINGER_MS)
        assert await work.announced() == [[AT]]


@in_virtual_time
async def test_a_leader_that_fails_to_hear_costs_no_other_partition_its_change(tmp_path: Path) -> None:
    """What the outcome wakes there raises. The task is started again, as the supervisor does."""
    store = await open_store(tmp_path, poll_interval_ms=10_000, session_timeout_ms=60_000)
    for path in paths.PERSISTENT_PATHS:
        await store.ensure_path(path)
    work = Writing(FlakyStore(store))
    many = [TopicPartition("t", number) for number in range(3)]
    versions = [await work.put_state((LEADER, TWO), at=each) for each in many]

    def fails(outcome: IsrOutcome) -> None:
        raise ValueError("a bug in what waits for the high watermark")

    work.manager.submit(change(LEADER, version=versions[0], at=many[0]), fails)
    for at, version in zip(many[1:], versions[1:], strict=True):
        work.submit(change(LEADER, version=version, at=at))
    with pytest.raises(ValueError, match="a bug"):
        await work.manager.write_changes()
    task = asyncio.create_task(work.manager.write_changes())
    await passing(1000)
    assert work.outcomes == {
        at: IsrWritten(version + 1, (LEADER,), (TWO,))
        for at, version in zip(many[1:], versions[1:], strict=True)
    }
    task.cancel()
    await store.close()
