"""A broker's client of the SQLite store, behind a gate: a test says whether the broker reaches the store.

    OPEN    everything goes through
    HELD    calls wait, for a broker that stands still
    SHUT    calls fail at once with ConnectionLossError, for a broker that is cut off or dead

While the gate is not open the session is not renewed and no watch fires, so the session runs out and the
others end it. The broker learns of that when the gate is open again. (A real cut-off broker would see by its
own clock that its lease has run out; one that finds out late is the harder case for the others.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from minikafka.clock import Clock
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import ConnectionLossError

T = TypeVar("T")


class GateState(Enum):
    OPEN = "open"
    HELD = "held"
    SHUT = "shut"


class StoreGate:
    """Belongs to one broker."""

    def __init__(self) -> None:
        self.state = GateState.OPEN
        self._moved = asyncio.Event()
        self._moved.set()

    def __repr__(self) -> str:
        return f"StoreGate({self.state.value})"

    def move(self, state: GateState) -> None:
        self.state = state
        if state is GateState.HELD:
            self._moved.clear()
        else:
            self._moved.set()

    async def pass_through(self) -> None:
        """Raises ConnectionLossError: the gate is shut."""
        await self._moved.wait()
        if self.state is GateState.SHUT:
            raise ConnectionLossError("the store is out of reach")


class GatedSqliteStore(SqliteStore):
    """A ``SqliteStore`` whose calls go through ``gate``; ``open`` takes it as an option."""

    def __init__(self, path: str, *, gate: StoreGate, clock: Clock, session_timeout_ms: int) -> None:
        self._gate = gate  # before the SQL thread starts, which looks at it
        super().__init__(path, clock=clock, session_timeout_ms=session_timeout_ms)

    async def _submit(self, call: Callable[[], T], *, closing: bool = False) -> T:
        if not (closing and call == self._client.close):  # the file is closed in any case
            await self._gate.pass_through()
        return await super()._submit(call, closing=closing)

    def _idle_interval(self) -> float | None:
        return super()._idle_interval() if self._gate.state is GateState.OPEN else None
