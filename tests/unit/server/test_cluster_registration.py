"""A broker's place in the store: whose cluster it is, that it lives, that it outlives its session."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from minikafka.clock import ManualClock
from minikafka.config.listeners import Listener
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import NoNodeError, SessionExpiredError
from minikafka.errors import StartError
from minikafka.server.cluster_registration import RegistrationKeeper, agree_on_cluster_id, register_broker
from minikafka.server.metadata_cache import BrokerEndpoints, Endpoint
from minikafka.types import BrokerId

ENTRY = BrokerEndpoints(node_id=BrokerId(1), endpoints={"PLAINTEXT": Endpoint("localhost", 9092)}, rack="a")
LISTENERS = (Listener("PLAINTEXT", "localhost", 9092),)


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


async def test_registering_again_replaces_the_earlier_entry(store: SqliteStore) -> None:
    for now_ms in (1, 2):
        await register_broker(store, ENTRY, listeners=LISTENERS, now_ms=now_ms)
    node = await store.get(paths.broker_path(1))
    assert node.stat.ephemeral_owner == store.session_id
    found = paths.decode_broker(1, node.data)
    assert (found.timestamp_ms, found.rack) == (2, "a")
    assert [str(endpoint) for endpoint in found.endpoints] == ["PLAINTEXT://localhost:9092"]


async def test_after_its_session_expired_the_broker_is_there_again(tmp_path: Path) -> None:
    clock = ManualClock()
    path = str(tmp_path / "store.sqlite")
    ours = await SqliteStore.open(path, clock=clock, background=False, durable=False)
    other = await SqliteStore.open(path, clock=clock, background=False, durable=False)
    registered = asyncio.Event()

    async def register() -> None:
        await register_broker(ours, ENTRY, listeners=LISTENERS, now_ms=clock.now_ms())
        registered.set()

    await register()
    keeper = RegistrationKeeper(ours, register)
    task = asyncio.create_task(keeper.run())
    for _ in range(2):
        registered.clear()
        clock.advance(ours.session_timeout_ms // 2)
        await other.renew()
        clock.advance(ours.session_timeout_ms // 2 + 1)
        await other.renew()
        await other.poll()
        with pytest.raises(NoNodeError):
            await other.get(paths.broker_path(1))
        with pytest.raises(SessionExpiredError):
            await ours.renew()
        async with asyncio.timeout(5):
            await registered.wait()
        node = await other.get(paths.broker_path(1))
        assert node.stat.ephemeral_owner == ours.session_id
    task.cancel()
    await ours.close()
    await other.close()
