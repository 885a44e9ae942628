"""Fixtures of the store tests: a world per engine, clients in it, and a notebook for events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from minikafka.coordination.store import CoordinationStore
from tests.unit.coordination.engines import ENGINES, World


@pytest.fixture(params=ENGINES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    world = ENGINES[request.param](tmp_path)
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
