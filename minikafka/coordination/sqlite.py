"""The embedded store: one SQLite file, one machine, any number of brokers. Also in memory, for one broker.

``SqliteStore`` is the ``CoordinationStore``, on the event loop. All SQL runs on one thread of the store's own
(``SqlThread``), where ``SqliteClient`` has the session and the watches, in the order of the calls. Each call
is one transaction: check the lease, see what others have changed, read or write, set the watch. What its
watches are to be told reaches the event loop before the call's result. Before every call the file is looked
at, and again after what was written is committed (``StoreFile``): a write that the next start would not find
is not acknowledged.

What happens by itself, until ``close``:
- The session is renewed every third of its timeout, by a task on the loop and not by the SQL thread: a broker
  whose loop hangs must lose its session like one that has died.
- While watches exist, the SQL thread polls ``PRAGMA data_version`` when it is idle. Own writes fire own
  watches at once. Sessions of others that run out are ended by whoever notices first.

With ``background=False`` neither happens: whoever owns the time calls ``renew`` and ``poll`` (tests do).

Not as in ZooKeeper: the session of a client that is cut off ends for it as soon as the client itself can tell
(its lease has run out), even when nobody else has ended it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, assert_never

from minikafka.clock import Clock
from minikafka.coordination.sqlite_tree import Change, SqliteTree, StoreFile
from minikafka.coordination.store import (
    ANY_VERSION,
    NO_OWNER,
    CheckOp,
    ConnectionLossError,
    Created,
    CreateOp,
    DeleteOp,
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
    StoreUnusableError,
    Watch,
    WatchEvent,
    WatchTable,
    validate_op,
    validate_path,
)

SESSION_TIMEOUT_MS = 18_000
"""Kafka's ``zookeeper.session.timeout.ms``."""
POLL_INTERVAL_MS = 50
"""How late a watch may learn of another broker's write. 20 polls a second cost up to 0.4 % of a core, nearly
all of it for waking up."""
BUSY_TIMEOUT_MS = 5_000
"""How long a call waits for another process's transaction; those take milliseconds."""
MEMORY = ":memory:"
"""SQLite's name for a database that is not in a file."""

Call = Callable[[], object]

T = TypeVar("T")
_log = logging.getLogger(__name__)


class SqliteStore:
    """A client of the store in one file. Use ``SqliteStore.open``."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        poll_interval_ms: int = POLL_INTERVAL_MS,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        durable: bool = True,
        background: bool = True,
    ) -> None:
        """``durable=False`` leaves out fsync, for a store that does not outlive its process."""
        self.path = path
        self._session_timeout_ms = session_timeout_ms
        self._poll_interval_ms = poll_interval_ms
        self._background = background
        self._session_id = 0
        self._state: SessionState | None = None
        self._listeners: list[SessionListener] = []
        self._renewal: asyncio.Task[None] | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._client = SqliteClient(  # the SQL thread's own; only functions given to _submit touch it
            path, clock=clock, durable=durable, busy_timeout_ms=busy_timeout_ms
        )
        self._thread = SqlThread(
            "coordination-sqlite", idle_call=self._poll_when_idle, idle_interval=self._idle_interval
        )

    @classmethod
    async def open(cls, path: str, **options: Any) -> SqliteStore:
        """Open or create the store in ``path`` (":memory:" for a private one) and start a session.

        Raises:
            StoreUnusableError, ConnectionLossError.
        """
        store = cls(path, **options)
        try:
            await store.start_session()
        except BaseException:
            await store.close()
            raise
        return store

    def __repr__(self) -> str:
        state = "CLOSED" if self._closed else self._state.value if self._state else "NEW"
        return f"SqliteStore({self.path!r}, {state}, session_id={self._session_id})"

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._session_timeout_ms

    # Sessions.

    async def start_session(self) -> int:
        if self._state in (SessionState.CONNECTED, SessionState.DISCONNECTED):
            return self._session_id
        await self._end_renewal()
        session_id = await self._submit(lambda: self._client.start_session(self._session_timeout_ms))
        self._session_id = session_id
        self._change_state(SessionState.CONNECTED)
        if self._background:
            self._renewal = asyncio.create_task(self._renew_for_ever(), name=f"renew session {session_id}")
        return session_id

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._end_renewal()
        try:
            if self._state in (SessionState.CONNECTED, SessionState.DISCONNECTED):
                with contextlib.suppress(StoreError):  # then its lease will end it
                    await self._submit(self._client.end_session, closing=True)
            await self._submit(self._client.close, closing=True)
        finally:
            self._thread.submit(self._client.close)  # again, for a caller that was cancelled
            self._thread.stop()

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    async def renew(self) -> None:
        """Extend the lease. Raises SessionExpiredError, ConnectionLossError."""
        await self._submit(self._client.renew)

    async def poll(self) -> None:
        """Tell the watches what others have changed; end sessions of others that have run out."""
        await self._submit(self._client.poll)

    # Nodes.

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        validate_path(path)

        def read(tree: SqliteTree) -> Node:
            node = tree.get(path)
            if watch is not None:
                self._client.watches.watch_data(path, watch)
            return node

        return await self._submit(lambda: self._client.read(read))

    async def exists(self, path: str, *, watch: Watch | None = None) -> NodeStat | None:
        validate_path(path)

        def read(tree: SqliteTree) -> NodeStat | None:
            stat = tree.stat(path)
            if watch is not None:
                self._client.watches.watch_data(path, watch)
            return stat

        return await self._submit(lambda: self._client.read(read))

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        validate_path(path)

        def read(tree: SqliteTree) -> list[str]:
            names = tree.children(path)
            if watch is not None:
                self._client.watches.watch_children(path, watch)
            return names

        return await self._submit(lambda: self._client.read(read))

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        op = CreateOp(path, data, ephemeral, sequential)
        validate_op(op)
        return await self._submit(lambda: self._client.write(lambda tree: self._create(tree, op)))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> NodeStat:
        validate_op(SetOp(path, data, version))
        return await self._submit(lambda: self._client.write(lambda tree: tree.set(path, data, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        validate_op(DeleteOp(path, version))
        await self._submit(lambda: self._client.write(lambda tree: tree.delete(path, version)))

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        steps = list(ops)

        def write(tree: SqliteTree) -> list[OpResult]:
            results: list[OpResult] = []
            for index, op in enumerate(steps):
                try:
                    validate_op(op)
                    results.append(self._apply(tree, op))
                except StoreError as error:
                    error.operation_index = index
                    raise
            return results

        return await self._submit(lambda: self._client.write(write))

    async def ensure_path(self, path: str) -> None:
        validate_path(path)
        if await self.exists(path) is not None:
            return

        def write(tree: SqliteTree) -> None:
            parts = path[1:].split("/")
            for depth in range(1, len(parts) + 1):
                ancestor = "/" + "/".join(parts[:depth])
                if tree.stat(ancestor) is None:
                    tree.create(ancestor, b"", owner=NO_OWNER, sequential=False)

        await self._submit(lambda: self._client.write(write))

    # On the SQL thread.

    def _create(self, tree: SqliteTree, op: CreateOp) -> Created:
        owner = self._client.session_id if op.ephemeral else NO_OWNER
        return tree.create(op.path, op.data, owner=owner, sequential=op.sequential)

    def _apply(self, tree: SqliteTree, op: Op) -> OpResult:
        match op:
            case CreateOp():
                return self._create(tree, op).path
            case SetOp(path, data, version):
                return tree.set(path, data, version)
            case DeleteOp(path, version):
                tree.delete(path, version)
            case CheckOp(path, version):
                tree.check(path, version)
            case _:
                assert_never(op)
        return None

    def _work(self, call: Callable[[], object], future: asyncio.Future[Any] | None) -> None:
        result: object = None
        failure: BaseException | None = None
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 it is raised again where the call is awaited
            failure = error
        client = self._client
        events, client.events = client.events, []
        quiet = future is None and not events and failure is None
        if self._loop.is_closed() or (quiet and self._state is not SessionState.DISCONNECTED):
            return
        self._loop.call_soon_threadsafe(self._deliver, future, result, failure, events, client.session_id)

    def _idle_interval(self) -> float | None:
        watching = self._background and bool(self._client.watches)
        return self._poll_interval_ms / 1000 if watching else None

    def _poll_when_idle(self) -> None:
        self._work(self._client.poll, None)

    # On the loop.

    async def _submit(self, call: Callable[[], T], *, closing: bool = False) -> T:
        """Run ``call`` on the SQL thread. Not recalled when the caller is cancelled."""
        if self._closed and not closing:
            raise StoreError(f"{self.path}: the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._thread.submit(lambda: self._work(call, future))
        return await future

    def _deliver(
        self,
        future: asyncio.Future[Any] | None,
        result: object,
        failure: BaseException | None,
        events: list[tuple[Watch, WatchEvent]],
        session_id: int,
    ) -> None:
        for watch, event in events:
            self._loop.call_soon(watch, event)
        if session_id == self._session_id != 0 and not self._closed:
            match failure:
                case None if self._state is SessionState.DISCONNECTED:
                    self._change_state(SessionState.CONNECTED)
                case SessionExpiredError():
                    self._change_state(SessionState.EXPIRED)
                case ConnectionLossError() | StoreUnusableError():
                    if self._state is SessionState.CONNECTED:
                        level = logging.ERROR if isinstance(failure, StoreUnusableError) else logging.WARNING
                        _log.log(level, "coordination session %d: %s", session_id, failure)
                        self._change_state(SessionState.DISCONNECTED)
        if future is None:
            if failure is not None and not isinstance(failure, StoreError):
                raise failure  # our own bug: to the loop's exception handler
        elif not future.cancelled():
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)

    def _change_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        _log.info("coordination session %d: %s", self._session_id, state.value)
        for listener in self._listeners:
            self._loop.call_soon(listener, SessionEvent(state, self._session_id))

    async def _renew_for_ever(self) -> None:
        """A failed renewal is tried again when the next is due: there are two tries to a lease."""
        while self._state is not SessionState.EXPIRED:
            await asyncio.sleep(self._session_timeout_ms / 3000)
            with contextlib.suppress(StoreError):  # _deliver has told the listeners and the log
                await self.renew()

    async def _end_renewal(self) -> None:
        task, self._renewal = self._renewal, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class SqliteClient:
    """One client of the file: its session (``session_id`` 0: none was started) and its watches. Lives on the
    SQL thread.

    What the watches are to be told collects in ``events``; the store takes it from there after every call,
    also after one that failed: others' changes are true whatever became of ours.
    """

    def __init__(self, path: str, *, clock: Clock, durable: bool, busy_timeout_ms: int) -> None:
        self.path = path
        self.session_id = 0
        self.watches = WatchTable()
        self.events: list[tuple[Watch, WatchEvent]] = []
        self._clock = clock
        self._durable = durable
        self._busy_timeout_ms = busy_timeout_ms
        self._tree: SqliteTree | None = None
        self._file: StoreFile | None = None
        self._seen_zxid = 0
        self._data_version = -1
        self._next_expiry_ms: int | None = None

    def start_session(self, timeout_ms: int) -> int:
        """Open the file if need be, bury the dead, begin a session."""
        tree = self._opened()
        self._end_expired(tree)
        with tree.transaction(write=True, durable=False):
            self.session_id = tree.create_session(timeout_ms)
            self._seen_zxid = tree.zxid()
            self._next_expiry_ms = tree.next_expiry_ms()
        return self.session_id

    def end_session(self) -> None:
        """Delete the session with its ephemeral nodes, which nobody need notice from here on."""
        self.watches.clear()
        tree = self._opened()
        with tree.transaction(write=True, durable=False):
            tree.end_session(self.session_id)

    def close(self) -> None:
        if self._tree is not None:
            self._tree.close()
            self._tree = None

    def read(self, body: Callable[[SqliteTree], T]) -> T:
        """``body`` sees one state of the tree and may set watches on what it sees."""
        tree = self._opened()
        try:
            with tree.transaction(write=False):
                self._catch_up(tree)
                return body(tree)
        except SessionExpiredError:
            self._bury_myself(tree)
            raise

    def write(self, body: Callable[[SqliteTree], T], *, durable: bool = True) -> T:
        """``body`` happens altogether or, when it raises, not at all."""
        tree = self._opened()
        try:
            with tree.transaction(write=True, durable=durable) as changes:
                self._catch_up(tree)
                result = body(tree)
        except SessionExpiredError:
            self._bury_myself(tree)
            raise
        if self._file is not None:
            self._file.check()
        if changes:
            self._seen_zxid += 1
            self._fire(changes)
        return result

    def renew(self) -> None:
        def extend(tree: SqliteTree) -> None:
            tree.renew_session(self.session_id, seen_zxid=self._seen_zxid)
            self._next_expiry_ms = tree.next_expiry_ms()

        self.write(extend, durable=False)
        self._end_expired_if_due()

    def poll(self) -> None:
        data_version = self._opened().data_version()
        if data_version != self._data_version:
            self.read(lambda tree: None)
            self._data_version = data_version
        self._end_expired_if_due()

    def _opened(self) -> SqliteTree:
        """The store, looked at anew. Raises StoreUnusableError, ConnectionLossError."""
        if self._tree is None:
            self._tree = SqliteTree(
                self.path,
                clock=self._clock,
                durable=self._durable,
                busy_timeout_ms=self._busy_timeout_ms,
            )
            self._file = None if self.path == MEMORY else StoreFile(self._tree)
        elif self._file is not None:
            self._file.check()
        return self._tree

    def _catch_up(self, tree: SqliteTree) -> None:
        """Check the lease; tell the watches what others have done up to this transaction."""
        tree.check_session(self.session_id)
        zxid = tree.zxid()
        if zxid != self._seen_zxid:
            if self.watches:
                self._fire(tree.changes_after(self._seen_zxid))
            self._seen_zxid = zxid

    def _fire(self, changes: list[Change]) -> None:
        if self.watches:
            for type, path in changes:
                self.events.extend(self.watches.fire(type, path))

    def _end_expired_if_due(self) -> None:
        if self._next_expiry_ms is not None and self._clock.monotonic_ms() >= self._next_expiry_ms:
            self._end_expired(self._opened())

    def _end_expired(self, tree: SqliteTree) -> None:
        """End the sessions of others that have run out."""
        with tree.transaction(write=False):
            expired = [session_id for session_id in tree.expired_sessions() if session_id != self.session_id]
            self._next_expiry_ms = tree.next_expiry_ms()
        if not expired:
            return

        def end(tree: SqliteTree) -> None:
            for session_id in tree.expired_sessions():  # again: one may have renewed, or be buried
                if session_id != self.session_id:
                    tree.end_session(session_id)
            self._next_expiry_ms = tree.next_expiry_ms()

        if self.session_id and self.session_id not in expired:
            self.write(end, durable=False)
        else:  # between two sessions: nothing of ours to check or to tell
            with tree.transaction(write=True, durable=False):
                end(tree)

    def _bury_myself(self, tree: SqliteTree) -> None:
        self.watches.clear()
        try:
            with tree.transaction(write=True, durable=False):
                tree.end_session(self.session_id)
        except StoreError:
            pass  # whoever can will do it


class SqlThread:
    """Runs a store's calls one after the other, and something else now and then while there are none. Calls
    must not raise.

    Instead of ``ThreadPoolExecutor``: polling from here costs one wake-up, from the event loop it takes two
    and a hop back, which is what an idle broker's CPU time mostly consists of.
    """

    def __init__(self, name: str, *, idle_call: Call, idle_interval: Callable[[], float | None]) -> None:
        """``idle_call`` runs when nothing was asked for ``idle_interval`` seconds; None: never."""
        self._idle_call = idle_call
        self._idle_interval = idle_interval
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()  # bounded by those who await
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Call) -> None:
        self._calls.put(call)

    def stop(self) -> None:
        """After the calls submitted so far. Does not wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=self._idle_interval())
            except queue.Empty:
                call = self._idle_call
            if call is None:
                return
            call()
