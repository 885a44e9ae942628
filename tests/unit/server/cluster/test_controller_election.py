"""One controller at a time, each with a higher epoch than the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import ConnectionLossError, Op, OpResult
from minikafka.server.cluster.registration import Election, current_controller, elect
from minikafka.types import BrokerId
from tests.unit.server.virtual_store import SESSION_TIMEOUT_MS, freeze, stores
from tests.unit.server.virtual_time import LoopClock, in_virtual_time, passing


def candidate(store: SqliteStore, node_id: int) -> asyncio.Task[Election]:
    return asyncio.create_task(elect(store, node_id=BrokerId(node_id), clock=LoopClock()))


@in_virtual_time
async def test_of_two_candidates_one_wins_and_the_other_waits(tmp_path: Path) -> None:
    async with stores(tmp_path, 2) as both:
        candidates = [candidate(store, node_id) for node_id, store in enumerate(both, 1)]
        await passing(10 * SESSION_TIMEOUT_MS)
        assert sum(each.done() for each in candidates) == 1
        winner = next(number for number, each in enumerate(candidates) if each.done())
        assert await current_controller(both[1 - winner]) == winner + 1
        stat = await both[0].exists(paths.CONTROLLER)
        assert stat is not None and stat.ephemeral_owner == both[winner].session_id
        won = candidates[winner].result()
        node = await both[0].get(paths.CONTROLLER_EPOCH)
        assert (won.controller_epoch, won.epoch_version) == (1, node.stat.version)
        assert paths.decode_controller_epoch(node.data) == 1
        candidates[1 - winner].cancel()


@in_virtual_time
@pytest.mark.parametrize("end", ["deleted by hand", "closed", "expired"])
async def test_when_the_controller_goes_the_next_one_has_a_higher_epoch(tmp_path: Path, end: str) -> None:
    async with stores(tmp_path, 3) as (one, two, other):
        first = await candidate(one, 1)
        waiting = candidate(two, 2)
        await passing(1000)
        assert not waiting.done()
        match end:
            case "deleted by hand":
                await other.delete(paths.CONTROLLER)
            case "closed":
                await one.close()
            case _:
                await freeze(one)
        second = await waiting
        assert second.controller_epoch == first.controller_epoch + 1
        assert second.epoch_version > first.epoch_version
        assert await current_controller(other) == 2


@in_virtual_time
async def test_epochs_rise_strictly_over_many_elections(tmp_path: Path) -> None:
    async with stores(tmp_path, 3) as three:
        epochs = []
        for number in range(9):
            won = await candidate(three[number % 3], number % 3 + 1)
            epochs.append(won.controller_epoch)
            await three[number * 2 % 3].delete(paths.CONTROLLER)
        assert epochs == list(range(1, 10))


@in_virtual_time
async def test_an_election_whose_answer_was_lost_does_not_leave_the_cluster_without_a_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is our own session's then: no broker would ever lead, and it would never go."""
    async with stores(tmp_path) as store:
        multi = store.multi

        async def lose_the_answer(ops: Sequence[Op]) -> list[OpResult]:
            await multi(ops)
            raise ConnectionLossError("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(store, "multi", lose_the_answer)
            with pytest.raises(ConnectionLossError):
                await candidate(store, 1)
        assert await current_controller(store) == 1
        won = await asyncio.wait_for(candidate(store, 1), 60)
        assert won.controller_epoch == 2
        assert await current_controller(store) == 1


@in_virtual_time
async def test_a_store_without_an_epoch_is_a_new_one_and_a_damaged_epoch_is_not_overwritten(
    tmp_path: Path,
) -> None:
    async with stores(tmp_path) as store:
        assert await current_controller(store) is None
        await store.create(paths.CONTROLLER_EPOCH, b"many")
        with pytest.raises(paths.DamagedNodeError, match="controller_epoch"):
            await candidate(store, 1)
        assert (await store.get(paths.CONTROLLER_EPOCH)).data == b"many"
        await store.set(paths.CONTROLLER_EPOCH, b"41")
        assert (await candidate(store, 1)).controller_epoch == 42
