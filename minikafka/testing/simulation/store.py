"""``SimulatedStore``: one broker's client of the simulated ensemble, a ``CoordinationStore``.

ZooKeeper: ``ClientCnxn``. It pings every third of the session's timeout; when nothing has come for two thirds
it gives the connection up, which fails whatever is asked at that moment, and tries for a new one. The outcome
of a write that failed so is unknown: it may have happened, or may still happen until the new one stands.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from minikafka.clock import Clock
from minikafka.coordination.store import (
    ANY_VERSION,
    ConnectionLossError,
    Created,
    CreateOp,
    DeleteOp,
    EventType,
    Node,
    NodeStat,
    Op,
    OpResult,
    SessionEvent,
    SessionExpiredError,
    SessionListener,
    SessionState,
    SetOp,
    StoreError,
    Watch,
    WatchEvent,
    validate_path,
)
from minikafka.testing.simulation.ensemble import (
    Bye,
    Call,
    Children,
    Disconnected,
    EnsurePath,
    Exists,
    Expired,
    Get,
    Hello,
    Ping,
    Reply,
    Request,
    SimulatedEnsemble,
    Told,
    WatchKind,
    Welcome,
    Wire,
    Wiring,
    Write,
    validate_op,
)

_log = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 18_000
"""Kafka's ``zookeeper.session.timeout.ms``."""
RETRY_PAUSE_MS_MAX = 1_000
"""ZooKeeper's client waits up to a second before it tries again."""

_KINDS = {
    EventType.NODE_CREATED: (WatchKind.DATA, WatchKind.MISSING),
    EventType.NODE_DATA_CHANGED: (WatchKind.DATA, WatchKind.MISSING),
    EventType.NODE_DELETED: (WatchKind.DATA, WatchKind.MISSING, WatchKind.CHILDREN),
    EventType.NODE_CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}
"""Which watches of a path an event is for."""


class SimulatedStore:
    """Use ``SimulatedStore.open``. Belongs to the process that opened it.

    Args:
        client: the host's name, for the trace.
        wiring: the way to the ensemble.
        background: whether it pings by itself; else the owner of the clock calls ``renew``.
    """

    def __init__(
        self,
        ensemble: SimulatedEnsemble,
        *,
        client: str,
        wiring: Wiring,
        clock: Clock,
        rng: random.Random,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        background: bool = True,
    ) -> None:
        self._background = background
        self._ensemble = ensemble
        self._client = client
        self._wiring = wiring
        self._clock = clock
        self._rng = rng
        self._session_timeout_ms = session_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._session_id = 0
        self._state: SessionState | None = None
        self._is_closed = False
        self._listeners: list[SessionListener] = []
        self._watches: dict[tuple[WatchKind, str], dict[Watch, None]] = {}
        self._pending: dict[int, tuple[Call, Watch | None, asyncio.Future[Any]]] = {}
        self._last_number = 0
        self._seen_zxid = 0
        self._wire: Wire | None = None
        self._connection = 0  # what comes on an earlier one is not for us any more
        self._welcome: asyncio.Future[None] | None = None
        self._heard_ms = 0
        self._tick_timer: asyncio.TimerHandle | None = None
        self._reconnecting: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, ensemble: SimulatedEnsemble, **options: Any) -> SimulatedStore:
        """Make a client and start a session. Raises ConnectionLossError."""
        store = cls(ensemble, **options)
        try:
            await store.start_session()
        except BaseException:
            await store.close()
            raise
        return store

    def __repr__(self) -> str:
        state = "CLOSED" if self._is_closed else self._state.value if self._state else "NEW"
        return f"SimulatedStore({self._client}, {state}, session_id={self._session_id})"

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._session_timeout_ms

    # Sessions

    async def start_session(self) -> int:
        if self._is_closed:
            raise StoreError("the store is closed")
        if self._state not in (SessionState.CONNECTED, SessionState.DISCONNECTED):
            await self._connect(Hello(0, self._session_timeout_ms, 0, ()))
            if self._background:
                self._tick()
        return self._session_id

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_ticking()
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        try:
            if self._state is SessionState.CONNECTED:
                async with asyncio.timeout(self._session_timeout_ms / 1000):
                    await self._ask(Bye())
        except (StoreError, TimeoutError):
            pass  # then it will expire
        self._hang_up(ConnectionLossError("the store is closed"))

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    async def renew(self) -> None:
        """Ping and wait for the answer; by itself the client does so every third of its timeout."""
        await self._call(Ping())

    # Nodes

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        validate_path(path)
        node: Node = await self._call(Get(path, watch is not None), watch)
        return node

    async def exists(self, path: str, *, watch: Watch | None = None) -> NodeStat | None:
        validate_path(path)
        stat: NodeStat | None = await self._call(Exists(path, watch is not None), watch)
        return stat

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        validate_path(path)
        names: list[str] = await self._call(Children(path, watch is not None), watch)
        return names

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        created: Created = await self._write(CreateOp(path, data, ephemeral, sequential))
        return created

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> NodeStat:
        stat: NodeStat = await self._write(SetOp(path, data, version))
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write(DeleteOp(path, version))

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        results = await self._call(Write(tuple(ops)))
        return [result.path if isinstance(result, Created) else result for result in results]

    async def ensure_path(self, path: str) -> None:
        validate_path(path)
        await self._call(EnsurePath(path))

    async def _write(self, op: Op) -> Any:
        validate_op(op)
        try:
            (result,) = await self._call(Write((op,)))
        except StoreError as error:
            error.operation_index = None
            raise
        return result

    # Asking

    async def _call(self, call: Call, watch: Watch | None = None) -> Any:
        if self._is_closed:
            raise StoreError("the store is closed")
        if self._state is SessionState.EXPIRED:
            raise SessionExpiredError(f"session {self._session_id} has expired")
        if self._state is not SessionState.CONNECTED:
            raise ConnectionLossError("the store cannot be reached")
        return await self._ask(call, watch)

    def _ask(self, call: Call, watch: Watch | None = None) -> asyncio.Future[Any]:
        assert self._wire is not None
        self._last_number += 1
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._pending[self._last_number] = (call, watch, answer)
        self._wire.send(Request(self._last_number, call))
        return answer

    def _receive(self, connection: int, message: Any) -> None:
        """Something has come from the servers. On the loop, in our process."""
        if connection != self._connection:
            return
        self._heard_ms = self._clock.monotonic_ms()
        match message:
            case Reply():
                self._answered(message)
            case Told(event, zxid):
                self._seen_zxid = max(self._seen_zxid, zxid)
                self._tell(event)
            case Welcome(session_id):
                self._session_id = session_id
                self._change_state(SessionState.CONNECTED)
                if self._welcome is not None and not self._welcome.done():
                    self._welcome.set_result(None)
            case Expired():
                self._expired()
            case Disconnected():
                self._lost("the server has closed the connection")

    def _answered(self, reply: Reply) -> None:
        self._seen_zxid = max(self._seen_zxid, reply.zxid)
        call, watch, answer = self._pending.pop(reply.number)
        if watch is not None:
            kind = _watch_kind(call, reply)
            if kind is not None:
                self._watches.setdefault((kind, call.path), {})[watch] = None  # type: ignore[union-attr]
        if answer.cancelled():
            return
        if reply.error is not None:
            answer.set_exception(reply.error)
        else:
            answer.set_result(reply.result)

    def _tell(self, event: WatchEvent) -> None:
        told: dict[Watch, None] = {}
        for kind in _KINDS[event.type]:
            told.update(self._watches.pop((kind, event.path), {}))
        for watch in told:
            self._loop.call_soon(watch, event)

    # The connection

    async def _connect(self, hello: Hello) -> None:
        """A new connection. Raises ConnectionLossError, SessionExpiredError."""
        self._connection += 1
        connection = self._connection
        self._welcome = self._loop.create_future()

        def arrived(message: object) -> None:
            self._loop.call_soon(self._receive, connection, message, context=self._context)

        self._wire = self._ensemble.connect(self._client, self._wiring, arrived)
        self._wire.send(hello)
        try:
            async with asyncio.timeout(self._session_timeout_ms / 3000):
                await self._welcome
        except TimeoutError:
            if self._state is SessionState.CONNECTED:
                return  # the welcome came at the same moment
            self._give_up()
            raise ConnectionLossError("the store cannot be reached") from None
        finally:
            self._welcome = None

    def _tick(self) -> None:
        """Ping; give a connection up that has been silent for too long."""
        self._stop_ticking()
        if self._state is SessionState.CONNECTED:
            if self._clock.monotonic_ms() - self._heard_ms >= self._session_timeout_ms * 2 // 3:
                self._lost(f"nothing heard for {self._clock.monotonic_ms() - self._heard_ms} ms")
            else:
                self._ask(Ping()).add_done_callback(_ignore_failure)
        self._tick_timer = self._loop.call_later(self._session_timeout_ms / 6000, self._tick)

    def _stop_ticking(self) -> None:
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None

    def _lost(self, reason: str) -> None:
        if self._state is not SessionState.CONNECTED or self._is_closed:
            return
        _log.warning("coordination session %d: %s", self._session_id, reason)
        self._change_state(SessionState.DISCONNECTED)
        self._give_up()
        self._reconnecting = self._loop.create_task(self._reconnect(), name="reconnect to the store")

    async def _reconnect(self) -> None:
        while self._state is SessionState.DISCONNECTED:
            await asyncio.sleep(self._rng.uniform(0, RETRY_PAUSE_MS_MAX) / 1000)
            watches = tuple(self._watches)
            hello = Hello(self._session_id, self._session_timeout_ms, self._seen_zxid, watches)
            try:
                await self._connect(hello)
            except StoreError:
                continue

    def _expired(self) -> None:
        error = SessionExpiredError(f"session {self._session_id} has expired")
        self._watches.clear()
        self._stop_ticking()
        self._change_state(SessionState.EXPIRED)
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(error)
        self._hang_up(error)

    def _give_up(self) -> None:
        """Leave the connection. TCP may still bring over what we have sent, once the way is free."""
        if self._rng.random() < 0.5:
            self._hang_up(ConnectionLossError("the connection to the store is lost"))
        else:
            self._forget(ConnectionLossError("the connection to the store is lost"))

    def _hang_up(self, error: StoreError) -> None:
        if self._wire is not None:
            self._wire.close()
        self._forget(error)

    def _forget(self, error: StoreError) -> None:
        self._wire = None
        self._connection += 1
        pending, self._pending = self._pending, {}
        for _, _, answer in pending.values():
            if not answer.done():
                answer.set_exception(error)

    def _change_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        _log.info("coordination session %d: %s", self._session_id, state.value)
        for listener in list(self._listeners):
            self._loop.call_soon(listener, SessionEvent(state, self._session_id))


def _watch_kind(call: Call, reply: Reply) -> WatchKind | None:
    """As the server sees it; None when it has set no watch."""
    if reply.error is not None:
        return None
    if isinstance(call, Children):
        return WatchKind.CHILDREN
    return WatchKind.MISSING if reply.result is None else WatchKind.DATA


def _ignore_failure(answer: asyncio.Future[Any]) -> None:
    """A ping that fails is noticed otherwise."""
    if not answer.cancelled():
        answer.exception()
