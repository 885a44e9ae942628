"""Fixtures of the store tests: a world per engine, clients in it, and a notebook for events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from minikafka.coordination.store import CoordinationStore
from minikafka.coordination.zookeeper import ZooKeeperStore
from tests.unit.coordination.engines import FILE_ENGINES, World, ZooKeeperWorld

OpenZooKeeper = Callable[..., Awaitable[ZooKeeperStore]]


@pytest.fixture(params=[*FILE_ENGINES, "zookeeper"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    world: World
    if request.param == "zookeeper":
        world = ZooKeeperWorld(request.getfixturevalue("zookeeper_server"))
    else:
        world = FILE_ENGINES[request.param](tmp_path)
    yield world
    await world.close()


@pytest.fixture
async def store(world: World) -> CoordinationStore:
    return await world.client()


@pytest.fixture
async def other(world: World, store: CoordinationStore) -> CoordinationStore:
    if world.clients_max < 2:
        pytest.skip("an engine for one client")
    return await world.client()


@pytest.fixture
async def open_zookeeper() -> AsyncIterator[OpenZooKeeper]:
    """``ZooKeeperStore.open``; what it opens is closed with the test."""
    opened: list[ZooKeeperStore] = []

    async def open_one(connect: str, **options: object) -> ZooKeeperStore:
        opened.append(await ZooKeeperStore.open(connect, **options))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()
