"""The engines that the contract tests run against. A new engine is a new ``World``."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

from minikafka.clock import ManualClock
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import CoordinationStore, SessionState
from minikafka.coordination.zookeeper import ZooKeeperStore
from minikafka.testing.simulation.store import SimulatedEnsemble, SimulatedStore
from tests.support.zookeeper import ZooKeeperServer

TIMEOUT_MS = 9_000


class World(Protocol):
    """A store, its clients and their time."""

    clients_max: int

    async def client(self) -> CoordinationStore:
        """A new client with a session of ``TIMEOUT_MS``."""
        ...

    async def pass_time(self, duration_ms: int, *, asleep: CoordinationStore | None = None) -> None:
        """Let time go by in which all clients keep their sessions, but for the one that is asleep."""
        ...

    async def settle(self) -> None:
        """Until every client that is awake has been told what there is to tell."""
        ...

    async def close(self) -> None: ...


class SqliteWorld:
    """Several clients on one file, under manual time."""

    clients_max = 10

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "coordination.db")
        self.clock = ManualClock()
        self._clients: list[SqliteStore] = []
        self._asleep: list[CoordinationStore] = []

    async def client(self) -> SqliteStore:
        store = await SqliteStore.open(
            self.path, clock=self.clock, session_timeout_ms=TIMEOUT_MS, durable=False, background=False
        )
        self._clients.append(store)
        return store

    async def pass_time(self, duration_ms: int, *, asleep: CoordinationStore | None = None) -> None:
        if asleep is not None:
            self._asleep.append(asleep)
        while duration_ms > 0:
            step_ms = min(duration_ms, TIMEOUT_MS // 3)
            self.clock.advance(step_ms)
            duration_ms -= step_ms
            for store in self._awake():
                await store.renew()
        await self.settle()
        self._asleep.clear()

    async def settle(self) -> None:
        for store in self._awake():
            await store.poll()

    async def close(self) -> None:
        for store in self._clients:
            await store.close()

    def _awake(self) -> list[SqliteStore]:
        return [store for store in self._clients if store not in self._asleep and "CONNECTED" in repr(store)]


class SqliteMemoryWorld(SqliteWorld):
    """One client, nothing on the disk."""

    clients_max = 1

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.path = ":memory:"


class ZooKeeperWorld:
    """Several clients of a server that all tests share, each world under a chroot of its own.

    The server's time is real, so a session that is to expire is ended on the server by other means, and its
    client cut off: then it learns of it as one that has slept would.
    """

    clients_max = 10
    _numbers = itertools.count()

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._connect = f"{server.address}/test/{next(self._numbers)}"
        self._clients: list[ZooKeeperStore] = []
        self._slept_ms: dict[CoordinationStore, int] = {}

    async def client(self) -> ZooKeeperStore:
        store = await ZooKeeperStore.open(self._connect, session_timeout_ms=TIMEOUT_MS)
        self._clients.append(store)
        return store

    async def pass_time(self, duration_ms: int, *, asleep: CoordinationStore | None = None) -> None:
        self._slept_ms = {store: ms for store, ms in self._slept_ms.items() if store is asleep}
        if asleep is not None:
            self._slept_ms[asleep] = self._slept_ms.get(asleep, 0) + duration_ms
        for store in self._awake():
            if self._slept_ms.get(store, 0) >= TIMEOUT_MS:
                await self._expire(store)
        await self.settle()

    async def cut(self, store: CoordinationStore) -> None:
        """Cut its connection, and wait until it has another."""
        assert isinstance(store, ZooKeeperStore) and store._session is not None
        async with self._telling(store, SessionState.CONNECTED):
            store._session.drop_connection("the test says so")

    async def _expire(self, store: ZooKeeperStore) -> None:
        """End its session; it learns of it when it makes its next connection."""
        assert store._session is not None and store._session.credentials is not None
        async with self._telling(store, SessionState.EXPIRED):
            await asyncio.to_thread(self._server.end_session, *store._session.credentials)
            store._session.drop_connection("the test says that it has slept")

    @contextlib.asynccontextmanager
    async def _telling(self, store: ZooKeeperStore, state: SessionState) -> AsyncIterator[None]:
        """Do something, and wait until the store has told that it is in that state."""
        told = asyncio.Event()
        stop = store.add_session_listener(lambda event: told.set() if event.state is state else None)
        yield
        async with asyncio.timeout(60):
            await told.wait()
        stop()

    async def settle(self) -> None:
        """An answer comes after the events of what happened before."""
        for store in self._awake():
            await store.exists("/")

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self._clients))

    def _awake(self) -> list[ZooKeeperStore]:
        return [store for store in self._clients if "CONNECTED" in repr(store)]


class SimulatedWorld:
    """The simulation's store on a real loop: messages take one turn of it, and time is manual."""

    clients_max = 10

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.ensemble = SimulatedEnsemble(clock=self.clock, rng=random.Random(1), late_expiry_ms=0)
        self._clients: list[SimulatedStore] = []

    async def client(self) -> SimulatedStore:
        store = await SimulatedStore.open(
            self.ensemble,
            client=f"client {len(self._clients)}",
            wiring=_DirectWiring(),
            clock=self.clock,
            rng=random.Random(2),
            session_timeout_ms=TIMEOUT_MS,
            background=False,
        )
        self._clients.append(store)
        return store

    async def pass_time(self, duration_ms: int, *, asleep: CoordinationStore | None = None) -> None:
        while duration_ms > 0:
            step_ms = min(duration_ms, TIMEOUT_MS // 3)
            self.clock.advance(step_ms)
            duration_ms -= step_ms
            await self._renew(asleep)
            self.ensemble.expire_due()
        await self._renew(asleep)

    async def settle(self) -> None:
        await self._renew(None)

    async def _renew(self, asleep: CoordinationStore | None) -> None:
        for store in self._clients:
            if store is not asleep and "CONNECTED" in repr(store):
                await store.renew()

    async def close(self) -> None:
        for store in self._clients:
            await store.close()


class _DirectWiring:
    """Each way one callback of the loop, in order."""

    def connect(
        self, to_server: Callable[[Any], None], to_client: Callable[[Any], None]
    ) -> tuple[_DirectWire, _DirectWire]:
        return _DirectWire(to_server), _DirectWire(to_client)


class _DirectWire:
    def __init__(self, deliver: Callable[[Any], None]) -> None:
        self._deliver = deliver

    def send(self, message: Any) -> None:
        asyncio.get_running_loop().call_soon(self._deliver, message)

    def close(self) -> None:
        """What was sent is under way."""


FILE_ENGINES: dict[str, Callable[[Path], World]] = {
    "sqlite": SqliteWorld,
    "sqlite-memory": SqliteMemoryWorld,
    "simulated": SimulatedWorld,
}
"""Those that need nothing but a directory."""
