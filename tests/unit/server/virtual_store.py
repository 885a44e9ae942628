"""The embedded store on a ``VirtualTimeLoop``: several clients of one file, sessions that last virtual time.

What the store's thread does elsewhere happens at once here, so nothing ever waits for a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import CoordinationStore
from tests.unit.server.virtual_time import LoopClock, passing

SESSION_TIMEOUT_MS = 2_000
POLL_INTERVAL_MS = 100


class _InlineThread:
    """Stands for ``SqlThread``: a call runs when it is submitted, the idle call on the loop's timer."""

    def __init__(
        self, name: str, *, idle_call: Callable[[], object], idle_interval: Callable[[], float | None]
    ) -> None:
        self._idle_call = idle_call
        self._idle_interval = idle_interval
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def submit(self, call: Callable[[], object]) -> None:
        call()
        self._arm()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        interval_s = self._idle_interval()
        if self._timer is None and interval_s is not None and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(interval_s, self._idle)

    def _idle(self) -> None:
        self._timer = None
        self._idle_call()
        self._arm()


async def open_store(directory: Path, **options: Any) -> SqliteStore:
    """Another client of the store in ``directory``."""
    options = {
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "poll_interval_ms": POLL_INTERVAL_MS,
        "durable": False,
        **options,
    }
    with patch("minikafka.coordination.sqlite.SqlThread", _InlineThread):
        return await SqliteStore.open(str(directory / "store.sqlite"), clock=LoopClock(), **options)


@asynccontextmanager
async def stores(directory: Path, count: int = 1) -> AsyncIterator[Any]:
    """One client, or a list of ``count`` clients of one store; closed at the end."""
    opened = [await open_store(directory) for _ in range(count)]
    try:
        yield opened[0] if count == 1 else opened
    finally:
        for store in opened:
            await store.close()


async def freeze(store: SqliteStore) -> None:
    """From now on as a process that was stopped: its session is not renewed."""
    await store._end_renewal()


async def expire(store: SqliteStore) -> None:
    """The session of ``store`` ends, and the store knows it."""
    await freeze(store)
    await passing(SESSION_TIMEOUT_MS + POLL_INTERVAL_MS)


async def tree(store: CoordinationStore, top: str = "/") -> dict[str, bytes]:
    """All nodes and their data."""
    found = {top: (await store.get(top)).data}
    for name in await store.children(top):
        found |= await tree(store, f"{top.rstrip('/')}/{name}")
    return found
