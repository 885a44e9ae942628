"""The coordination stores of a chaos run, and how they go away."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from minikafka.coordination.store import CoordinationStore
from tests.integration.support.cluster import VIEWER_SESSION_MS, Engine, SqliteEngine
from tests.support.zookeeper import ZooKeeperServer, ensemble


class Store(Protocol):
    """What the nemesis does to one."""

    @property
    def engine(self) -> Engine: ...

    def away(self, rng: random.Random) -> None:
        """It cannot be reached, or not by all, until ``heal``."""

    def heal(self) -> None: ...


class Sqlite:
    """One file, which another process may lock."""

    def __init__(self, engine: SqliteEngine) -> None:
        self.engine: Engine = engine

    def away(self, rng: random.Random) -> None:
        self.engine.pause()

    def heal(self) -> None:
        self.engine.resume()


class EnsembleEngine:
    """Three ZooKeeper servers, for a cluster that knows them all."""

    name = "zookeeper"

    def __init__(self, servers: Sequence[ZooKeeperServer]) -> None:
        self._connect = ",".join(server.address for server in servers) + "/chaos"

    def properties(self) -> dict[str, object]:
        return {"zookeeper.connect": self._connect}

    async def open(self) -> CoordinationStore:
        from minikafka.coordination.zookeeper import ZooKeeperStore

        return await ZooKeeperStore.open(self._connect, session_timeout_ms=VIEWER_SESSION_MS)

    def pause(self) -> None:
        """Nothing: what goes away are its servers."""

    def resume(self) -> None: ...


class ZooKeeper:
    """An ensemble, whose servers are killed and paused: one, or two, which leaves no majority."""

    def __init__(self, servers: Sequence[ZooKeeperServer]) -> None:
        self.engine: Engine = EnsembleEngine(servers)
        self._servers = servers
        self._killed: list[ZooKeeperServer] = []
        self._paused: list[ZooKeeperServer] = []

    def away(self, rng: random.Random) -> None:
        for server in rng.sample(list(self._servers), rng.choice((1, 1, 1, 2))):
            if rng.random() < 0.5:
                server.kill()
                self._killed.append(server)
            else:
                server.pause()
                self._paused.append(server)

    def heal(self) -> None:
        while self._paused:
            self._paused.pop().resume()
        while self._killed:
            self._killed.pop().start()


@contextlib.contextmanager
def opened(kind: str, directory: Path) -> Iterator[Store]:
    """``kind``: ``sqlite`` or ``zookeeper``."""
    if kind == "sqlite":
        yield Sqlite(SqliteEngine(directory))
        return
    with ensemble(directory / "zookeeper", 3) as servers:
        yield ZooKeeper(servers)
