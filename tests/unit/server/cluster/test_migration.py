"""A cluster that migrates to KRaft is no place for a broker of this project."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from minikafka.coordination import paths
from minikafka.coordination.paths import ControllerRegistration
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import CreateOp, DeleteOp, SetOp
from minikafka.server.cluster.registration import MigratesToKRaftError, elect, refuse_migration
from minikafka.types import BrokerId
from tests.unit.server.virtual_store import stores
from tests.unit.server.virtual_time import LoopClock, in_virtual_time, passing

KRAFT = paths.encode_controller(ControllerRegistration(BrokerId(3000), 5, kraft_controller_epoch=7))


def migration(controller: int, epoch: int, offset: int, metadata_epoch: int) -> bytes:
    """As Kafka 3.9.1 writes it (``MigrationZNode.encode``)."""
    return (
        b'{"version":0,"kraft_controller_id":%d,"kraft_controller_epoch":%d,"kraft_metadata_offset":%d,'
        b'"kraft_metadata_epoch":%d}' % (controller, epoch, offset, metadata_epoch)
    )


async def take_over(store: SqliteStore) -> None:
    """As ``KafkaZkClient.registerKRaftControllerAsZkController``: another epoch, and a node that stays."""
    epoch = await store.get(paths.CONTROLLER_EPOCH)
    await store.multi(
        [
            SetOp(paths.CONTROLLER_EPOCH, paths.encode_controller_epoch(8), epoch.stat.version),
            DeleteOp(paths.CONTROLLER, (await store.get(paths.CONTROLLER)).stat.version),
            CreateOp(paths.CONTROLLER, KRAFT),
        ]
    )


@in_virtual_time
async def test_a_cluster_on_zookeeper_has_none_of_it(tmp_path: Path) -> None:
    async with stores(tmp_path) as store:
        await refuse_migration(store)
        await elect(store, node_id=BrokerId(1), clock=LoopClock())
        await refuse_migration(store)
        await store.create(paths.MIGRATION, migration(-1, -1, -1, -1))  # KRaft controllers look on
        await refuse_migration(store)


@in_virtual_time
async def test_one_that_has_begun_is_refused_at_the_start(tmp_path: Path) -> None:
    async with stores(tmp_path) as store:
        await store.create(paths.CONTROLLER, KRAFT)
        with pytest.raises(MigratesToKRaftError, match="/controller is held by the KRaft controller 3000 of"):
            await refuse_migration(store)
        await store.delete(paths.CONTROLLER)
        await store.create(paths.MIGRATION, migration(3000, 7, 1234, 7))
        with pytest.raises(
            MigratesToKRaftError, match=r"/migration names the KRaft controller 3000.*offset 1234"
        ):
            await refuse_migration(store)


@in_virtual_time
async def test_candidates_end_when_a_kraft_controller_takes_over(tmp_path: Path) -> None:
    async with stores(tmp_path, 2) as (one, two):
        await elect(one, node_id=BrokerId(1), clock=LoopClock())
        waiting = asyncio.create_task(elect(two, node_id=BrokerId(2), clock=LoopClock()))
        await passing(1000)
        await take_over(one)
        await passing(1000)
        assert isinstance(waiting.exception(), MigratesToKRaftError)
        with pytest.raises(MigratesToKRaftError):  # and who was the controller does not become it again
            await elect(one, node_id=BrokerId(1), clock=LoopClock())


@in_virtual_time
async def test_a_node_that_stays_and_is_a_brokers_is_waited_for(tmp_path: Path) -> None:
    """An operator has written it."""
    async with stores(tmp_path) as store:
        by_hand = paths.encode_controller(ControllerRegistration(BrokerId(9), 5))
        await store.create(paths.CONTROLLER, by_hand)
        waiting = asyncio.create_task(elect(store, node_id=BrokerId(1), clock=LoopClock()))
        await passing(5000)
        assert not waiting.done()
        await store.delete(paths.CONTROLLER)
        assert (await waiting).controller_epoch == 1
