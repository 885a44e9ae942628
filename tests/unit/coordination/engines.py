"""The engines that the contract tests run against. A new engine is a new ``World``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from minikafka.clock import ManualClock
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import CoordinationStore

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


ENGINES: dict[str, Callable[[Path], World]] = {"sqlite": SqliteWorld, "sqlite-memory": SqliteMemoryWorld}
