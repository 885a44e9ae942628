"""A broker's place in the store: whose cluster it is, and whose place it may take."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import CoordinationStore
from minikafka.errors import StartError
from minikafka.server.cluster.coordination_store import create_top_level_paths
from minikafka.server.cluster.registration import agree_on_cluster_id, register_broker
from minikafka.types import BrokerId
from tests.unit.server.virtual_store import SESSION_TIMEOUT_MS, freeze, open_store, stores, tree
from tests.unit.server.virtual_time import LoopClock, in_virtual_time

ONE, TWO = BrokerId(1), BrokerId(2)
OUR_DISK, OTHER_DISK = ("disk-a", "disk-b"), ("disk-c",)
PATIENCE_MS = 3 * SESSION_TIMEOUT_MS


def entry(*directory_ids: str, port: int = 9092) -> paths.BrokerRegistration:
    return paths.BrokerRegistration(
        endpoints=(paths.Endpoint("PLAINTEXT", "localhost", port),),
        timestamp_ms=0,
        rack="a",
        directory_ids=directory_ids,
    )


async def register(store: CoordinationStore, *directory_ids: str, port: int = 9092) -> int:
    return await register_broker(store, ONE, entry(*directory_ids, port=port), patience_ms=PATIENCE_MS)


async def lead(store: CoordinationStore, node_id: BrokerId) -> None:
    """Be the controller."""
    data = paths.encode_controller(paths.ControllerRegistration(node_id, 0))
    await store.create(paths.CONTROLLER, data, ephemeral=True)


async def registered_port(store: CoordinationStore) -> int:
    node = await store.get(paths.broker_path(ONE))
    return paths.decode_broker(ONE, node.data).endpoints[0].port


# The cluster


async def test_the_first_to_ask_names_the_cluster(store: SqliteStore) -> None:
    rng = random.Random(1)
    named = await agree_on_cluster_id(store, configured=None, stored="from-the-disk", rng=rng)
    assert named == "from-the-disk"
    assert await agree_on_cluster_id(store, configured=None, stored=None, rng=rng) == "from-the-disk"
    with pytest.raises(StartError, match=r"cluster\.id is other, but .* cluster from-the-disk"):
        await agree_on_cluster_id(store, configured="other", stored=None, rng=rng)


async def test_a_new_cluster_gets_an_id_as_kafka_prints_them(store: SqliteStore) -> None:
    made = await agree_on_cluster_id(store, configured=None, stored=None, rng=random.Random(1))
    assert len(made) == 22 and "=" not in made


@in_virtual_time
async def test_of_brokers_that_start_together_all_find_one_id_and_all_of_kafkas_nodes(tmp_path: Path) -> None:
    async with stores(tmp_path, 3) as three:
        await asyncio.gather(*(create_top_level_paths(store) for store in three))
        assert set(paths.PERSISTENT_PATHS) <= (await tree(three[0])).keys()
        rngs = [random.Random(seed) for seed in range(3)]
        ids = await asyncio.gather(
            *(
                agree_on_cluster_id(store, configured=None, stored=None, rng=rng)
                for store, rng in zip(three, rngs, strict=True)
            )
        )
        assert len(set(ids)) == 1


# The broker


@in_virtual_time
async def test_a_registration_goes_with_the_session_and_its_creation_is_the_broker_epoch(
    tmp_path: Path,
) -> None:
    async with stores(tmp_path, 2) as (ours, other):
        await create_top_level_paths(ours)
        epoch = await register(ours, *OUR_DISK)
        node = await other.get(paths.broker_path(ONE))
        assert (node.stat.czxid, node.stat.ephemeral_owner) == (epoch, ours.session_id)
        assert paths.decode_broker(ONE, node.data) == entry(*OUR_DISK)
        await ours.close()
        assert await other.exists(paths.broker_path(ONE)) is None


@in_virtual_time
async def test_registering_again_in_the_same_session_is_a_new_epoch(tmp_path: Path) -> None:
    async with stores(tmp_path) as ours:
        await create_top_level_paths(ours)
        first = await register(ours, port=9092)
        await lead(ours, ONE)
        second = await register(ours, port=9093)
        assert second > first
        assert await registered_port(ours) == 9093
        assert await ours.exists(paths.CONTROLLER) is not None  # ours: it is still true


@in_virtual_time
async def test_what_a_dead_process_of_the_same_directories_left_is_replaced_at_once(tmp_path: Path) -> None:
    """The session of the dead one lasts for a while; waiting for it would be a long start."""
    async with stores(tmp_path, 2) as (dead, ours):
        await create_top_level_paths(ours)
        old = await register(dead, *OUR_DISK)
        await lead(dead, ONE)
        await freeze(dead)
        before_ms = LoopClock().now_ms()
        epoch = await register(ours, "disk-b", "disk-new")
        assert LoopClock().now_ms() == before_ms
        assert epoch > old
        node = await ours.get(paths.broker_path(ONE))
        assert (node.stat.czxid, node.stat.ephemeral_owner) == (epoch, ours.session_id)
        assert await ours.exists(paths.CONTROLLER) is None  # the cluster need not wait for it either


@in_virtual_time
async def test_the_controller_of_another_broker_is_left_alone(tmp_path: Path) -> None:
    async with stores(tmp_path, 3) as (dead, ours, other):
        await create_top_level_paths(ours)
        await register(dead, *OUR_DISK)
        await lead(other, TWO)
        await register(ours, *OUR_DISK)
        stat = await ours.exists(paths.CONTROLLER)
        assert stat is not None and stat.ephemeral_owner == other.session_id


@in_virtual_time
@pytest.mark.parametrize("directories", [OTHER_DISK, ()])
async def test_a_live_brokers_place_is_not_taken(tmp_path: Path, directories: tuple[str, ...]) -> None:
    """A broker of Kafka's names no directories; it is not known to be dead."""
    async with stores(tmp_path, 2) as (other, ours):
        await create_top_level_paths(ours)
        await register(other, *directories, port=9999)
        before_ms = LoopClock().now_ms()
        with pytest.raises(StartError) as caught:
            await register(ours, *OUR_DISK)
        assert LoopClock().now_ms() - before_ms >= PATIENCE_MS
        text = str(caught.value)
        assert "broker id 1" in text and "PLAINTEXT://localhost:9999" in text and "node.id" in text
        assert await registered_port(ours) == 9999


@in_virtual_time
async def test_a_place_whose_holder_dies_is_waited_for(tmp_path: Path) -> None:
    async with stores(tmp_path, 2) as (other, ours):
        await create_top_level_paths(ours)
        await register(other, *OTHER_DISK, port=9999)
        await freeze(other)
        before_ms = LoopClock().now_ms()
        epoch = await register(ours, *OUR_DISK)
        assert SESSION_TIMEOUT_MS / 2 < LoopClock().now_ms() - before_ms < PATIENCE_MS
        stat = await ours.exists(paths.broker_path(ONE))
        assert stat is not None and (stat.czxid, stat.ephemeral_owner) == (epoch, ours.session_id)


@in_virtual_time
async def test_an_entry_that_cannot_be_read_is_another_brokers(tmp_path: Path) -> None:
    async with stores(tmp_path, 2) as (other, ours):
        await create_top_level_paths(ours)
        await other.create(paths.broker_path(ONE), b"no json", ephemeral=True)
        with pytest.raises(StartError, match="broker id 1"):
            await register(ours, *OUR_DISK)
        assert (await ours.get(paths.broker_path(ONE))).data == b"no json"


@in_virtual_time
async def test_of_two_that_start_with_one_id_one_gets_it(tmp_path: Path) -> None:
    async with stores(tmp_path, 2) as both:
        await create_top_level_paths(both[0])
        outcomes = await asyncio.gather(
            *(register(store, disk) for store, disk in zip(both, ("a", "b"), strict=True)),
            return_exceptions=True,
        )
        assert {type(each) for each in outcomes} == {int, StartError}


@in_virtual_time
async def test_after_its_session_expired_a_broker_registers_in_the_next_one(tmp_path: Path) -> None:
    """Also when the store has not noticed yet: the old entry names the same directories."""
    async with stores(tmp_path) as ours:
        await create_top_level_paths(ours)
        first = await register(ours, *OUR_DISK)
        await freeze(ours)
        next_life = await open_store(tmp_path)
        second = await register(next_life, *OUR_DISK)
        assert second > first
        await next_life.close()
