"""Random traffic of two clients against a dict: what the tree holds, and exactly which watches fire."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    SetOp,
    StoreError,
    WatchEvent,
)
from tests.support.zookeeper import ZooKeeperServer
from tests.unit.coordination.engines import SimulatedWorld, SqliteWorld, World, ZooKeeperWorld

PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/deep"])
VERSIONS = st.sampled_from([-1, -1, 0, 1])
OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(CreateOp, PATHS, st.binary(max_size=2), st.booleans()),
    st.builds(SetOp, PATHS, st.binary(max_size=2), VERSIONS),
    st.builds(DeleteOp, PATHS, VERSIONS),
)


class Write(NamedTuple):
    """A multi, or a single call when ``ops`` is one."""

    client: int
    ops: list[Op]


class WatchIt(NamedTuple):
    client: int
    kind: str
    path: str


class Cut(NamedTuple):
    """The client loses its connection and makes another, which changes nothing."""

    client: int


Step = Write | WatchIt | Cut

WRITES = st.builds(Write, st.integers(0, 1), st.lists(OPS, min_size=1, max_size=3))
WATCHES = st.builds(WatchIt, st.integers(0, 1), st.sampled_from(["get", "exists", "children"]), PATHS)
CUTS = st.builds(Cut, st.integers(0, 1))


class Entry(NamedTuple):
    data: bytes
    version: int
    ephemeral: bool


class Model:
    """A tree as a plain dict, and watches as a plain list."""

    def __init__(self) -> None:
        self.nodes = {"/": Entry(b"", 0, False)}
        self.watches: list[WatchIt] = []
        self.told: list[tuple[int, str, WatchEvent]] = []

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(
            p[len(prefix) :]
            for p in self.nodes
            if p != "/" and p.startswith(prefix) and "/" not in p[len(prefix) :]
        )

    def apply(self, ops: list[Op]) -> type[StoreError] | None:
        before = dict(self.nodes)
        changes: list[tuple[EventType, str]] = []
        for op in ops:
            error = self._apply(op, changes)
            if error is not None:
                self.nodes = before
                return error
        for type, path in changes:
            self._fire(type, path)
        return None

    def _apply(self, op: Op, changes: list[tuple[EventType, str]]) -> type[StoreError] | None:
        parent = op.path.rpartition("/")[0] or "/"
        node = self.nodes.get(op.path)
        match op:
            case CreateOp():
                if parent not in self.nodes:
                    return NoNodeError
                if self.nodes[parent].ephemeral:
                    return NoChildrenForEphemeralsError
                if node is not None:
                    return NodeExistsError
                self.nodes[op.path] = Entry(op.data, 0, op.ephemeral)
                changes.append((EventType.NODE_CREATED, op.path))
            case SetOp() | DeleteOp():
                if node is None:
                    return NoNodeError
                if op.version not in (-1, node.version):
                    return BadVersionError
                if isinstance(op, SetOp):
                    self.nodes[op.path] = node._replace(data=op.data, version=node.version + 1)
                    changes.append((EventType.NODE_DATA_CHANGED, op.path))
                elif self.children(op.path):
                    return NotEmptyError
                else:
                    del self.nodes[op.path]
                    changes.append((EventType.NODE_DELETED, op.path))
        return None

    def watch(self, watch: WatchIt) -> None:
        if (watch.kind == "exists" or watch.path in self.nodes) and watch not in self.watches:
            self.watches.append(watch)

    def _fire(self, type: EventType, path: str) -> None:
        parent = path.rpartition("/")[0] or "/"
        kept = []
        for watch in self.watches:
            kinds = ("get", "exists", "children") if type is EventType.NODE_DELETED else ("get", "exists")
            if watch.path == path and watch.kind in kinds:
                self.told.append((watch.client, watch.kind, WatchEvent(type, path)))
            elif (
                watch.path == parent and watch.kind == "children" and type is not EventType.NODE_DATA_CHANGED
            ):
                event = WatchEvent(EventType.NODE_CHILDREN_CHANGED, parent)
                self.told.append((watch.client, watch.kind, event))
            else:
                kept.append(watch)
        self.watches = kept


async def set_watch(store: CoordinationStore, watch: WatchIt, told: Told) -> None:
    callback = told.callbacks[watch.client, watch.kind]
    try:
        if watch.kind == "get":
            await store.get(watch.path, watch=callback)
        elif watch.kind == "exists":
            await store.exists(watch.path, watch=callback)
        else:
            await store.children(watch.path, watch=callback)
    except NoNodeError:
        pass


class Told:
    """One callback per client and kind, so that the model's "same watch" is the store's."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str, WatchEvent]] = []
        self.callbacks = {
            (client, kind): (lambda event, who=(client, kind): self.events.append((*who, event)))
            for client in (0, 1)
            for kind in ("get", "exists", "children")
        }


async def write(store: CoordinationStore, ops: list[Op]) -> type[StoreError] | None:
    try:
        match ops:
            case [CreateOp(path, data, ephemeral)]:
                await store.create(path, data, ephemeral=ephemeral)
            case [SetOp(path, data, version)]:
                await store.set(path, data, version)
            case [DeleteOp(path, version)]:
                await store.delete(path, version)
            case _:
                await store.multi(ops)
    except StoreError as error:
        return type(error)
    return None


async def run(steps: list[Step], world: World) -> None:
    clients = [await world.client(), await world.client()]
    model, told = Model(), Told()
    try:
        for step in steps:
            match step:
                case Write(client, ops):
                    assert await write(clients[client], ops) == model.apply(ops), step
                case WatchIt():
                    model.watch(step)
                    await set_watch(clients[step.client], step, told)
                case Cut(client):
                    assert isinstance(world, ZooKeeperWorld)
                    await world.cut(clients[client])
            await world.settle()
            assert sorted(told.events, key=repr) == sorted(model.told, key=repr), step
        for path, entry in model.nodes.items():
            node = await clients[0].get(path)
            assert (node.data, node.stat.version) == (entry.data, entry.version)
            assert (node.stat.ephemeral_owner != 0) == entry.ephemeral
            assert await clients[1].children(path) == model.children(path)
            assert node.stat.num_children == len(model.children(path))
    finally:
        await world.close()


@pytest.mark.parametrize("engine", [SqliteWorld, SimulatedWorld])
@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.one_of(WRITES, WATCHES), max_size=25))
def test_the_store_does_what_a_dict_would(engine: Callable[[Path], World], steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_run(engine, steps, directory))


async def _run(engine: Callable[[Path], World], steps: list[Step], directory: str) -> None:
    await run(steps, engine(Path(directory)))


@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.one_of(WRITES, WATCHES, WRITES, WATCHES, CUTS), max_size=25))
def test_zookeeper_does_what_a_dict_would(zookeeper_server: ZooKeeperServer, steps: list[Step]) -> None:
    asyncio.run(run(steps, ZooKeeperWorld(zookeeper_server)))
