"""Which store a broker gets, and what is in it."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import pytest

from minikafka.clock import ManualClock
from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import ConnectionLossError, CoordinationStore, StoreUnusableError
from minikafka.coordination.zookeeper import ZooKeeperStore
from minikafka.errors import StartError
from minikafka.server.cluster.coordination_store import create_top_level_paths, open_store, store_name
from minikafka.testing import Broker
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

_numbers = itertools.count()


@pytest.fixture
def connect(zookeeper_server: ZooKeeperServer) -> str:
    return f"{zookeeper_server.address}/test_coordination_engine/{next(_numbers)}"


def config(tmp_path: Path, **properties: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return broker_config({"log.dirs": str(tmp_path), **named})


async def test_without_zookeeper_it_is_a_file(tmp_path: Path) -> None:
    settings = config(tmp_path, zookeeper_session_timeout_ms="7000")
    store = await open_store(settings, clock=ManualClock())
    assert isinstance(store, SqliteStore)
    assert store.session_timeout_ms == 7000
    assert store_name(settings) == store.path == f"{tmp_path}/coordination.sqlite"
    await store.close()


async def test_with_zookeeper_connect_it_is_zookeeper(tmp_path: Path, connect: str) -> None:
    settings = config(tmp_path, zookeeper_connect=connect, zookeeper_session_timeout_ms="7000")
    store = await open_store(settings, clock=ManualClock())
    assert isinstance(store, ZooKeeperStore)
    assert store.session_timeout_ms == 7000
    assert store_name(settings) == f"zookeeper {connect}"
    await store.close()
    assert os.listdir(tmp_path) == [], "and no file"


@pytest.mark.parametrize("engine", ["sqlite", "zookeeper"])
async def test_kafkas_persistent_nodes_are_there(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    properties = {"zookeeper_connect": request.getfixturevalue("connect")} if engine == "zookeeper" else {}
    settings = config(tmp_path, **properties)
    store = await open_store(settings, clock=ManualClock())
    await create_top_level_paths(store)
    before = await state_of(store)
    assert all(before[path] == 0 for path in paths.PERSISTENT_PATHS)
    await store.delete(paths.CONSUMERS)
    await store.set(paths.PRODUCER_ID_BLOCK, b"kept")
    await create_top_level_paths(store)
    assert await state_of(store) == before | {paths.PRODUCER_ID_BLOCK: 1}
    await store.close()


async def state_of(store: CoordinationStore) -> dict[str, int]:
    return {path: (await store.get(path)).stat.version for path in paths.PERSISTENT_PATHS}


async def test_brokers_that_start_together_do_not_get_in_each_others_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one creates everything after this one has looked."""
    store = await SqliteStore.open(f"{tmp_path}/c.sqlite", clock=ManualClock(), background=False)
    multi = store.multi

    async def too_late(ops: object) -> object:
        monkeypatch.setattr(store, "multi", multi)
        await create_top_level_paths(store)
        return await multi(ops)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "multi", too_late)
    await create_top_level_paths(store)
    assert await store.exists(paths.CONSUMERS) is not None
    await store.close()


async def test_zookeeper_that_is_down_is_named_in_one_line(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}/kafka"
    broker = Broker(config={"zookeeper.connect": address, "zookeeper.connection.timeout.ms": 200})
    with pytest.raises(StartError) as raised:
        await broker.start()
    assert str(raised.value) == (
        f"the coordination store zookeeper {address}: ZooKeeper does not answer within 200 ms "
        "(Connection dropped: socket connection error: Connection refused)"
    )
    with pytest.raises(ConnectionLossError):
        settings = config(tmp_path, zookeeper_connect=address, zookeeper_session_timeout_ms="200")
        await open_store(settings, clock=ManualClock())


async def test_an_address_that_is_none_is_named_in_one_line() -> None:
    with pytest.raises(StartError, match=r"store zookeeper zoo1:x: 'zoo1:x' is not host:port"):
        await Broker(config={"zookeeper.connect": "zoo1:x"}).start()


async def test_a_missing_kazoo_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("minikafka.coordination.zookeeper")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(StoreUnusableError, match=r"pip install 'minikafka\[zookeeper\]'"):
        await open_store(config(tmp_path, zookeeper_connect="zoo1:2181"), clock=ManualClock())


class TestABrokerOnZooKeeper:
    async def test_its_entry_is_there_as_long_as_it_runs(self, connect: str) -> None:
        store = await ZooKeeperStore.open(connect)
        for _ in range(2):
            async with Broker(config={"zookeeper.connect": connect, "node.id": 5}):
                assert await store.children(paths.BROKER_IDS) == ["5"]
            assert await store.children(paths.BROKER_IDS) == [], "gone at once"
        await store.close()

    async def test_damage_in_the_store_is_named_and_does_not_stop_the_broker(
        self, tmp_path: Path, connect: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = await ZooKeeperStore.open(connect)
        await store.ensure_path(paths.topic_path("orders"))
        await store.set(paths.topic_path("orders"), b"{")
        await store.close()
        async with Broker(config={"zookeeper.connect": connect}, data_dir=tmp_path):
            pass
        assert "/brokers/topics/orders: " in caplog.text and "the node holds b'{'" in caplog.text
