"""The simulated store: ``SimulatedEnsemble``, its servers, as one machine that never fails; their tree, and
what clients and they tell each other, in the order of one connection each way; and ``SimulatedStore``, one
broker's client of them, a ``CoordinationStore``.

ZooKeeper: ``DataTree``, ``SessionTrackerImpl``, ``WatchManager``. Cut the links to it to make it unreachable.

- A request takes effect when it arrives; the answer is under way for some time. A session learns of changes
  that its watches wait for before it gets an answer that shows them.
- A session expires when it sent nothing for its timeout, up to ``late_expiry_ms`` later (ZooKeeper
  looks at ticks). Its ephemeral nodes go in one write.
- A session has one connection. What still arrives on an older one is thrown away once a newer one stands, and
  takes effect until then, though the client may have given it up (ZooKeeper's ``SessionMovedException``).

Invariants of the tree:
- Every committed write has the next zxid; a ``multi`` is one write and happens altogether or not at all.
- ``num_children``, ``cversion`` and ``children_created`` of a parent agree with its children.

The client (ZooKeeper: ``ClientCnxn``) pings every third of the session's timeout; when nothing has come for
two thirds it gives the connection up, which fails whatever is asked at that moment, and tries for a new one.
The outcome of a write that failed so is unknown: it may have happened, or may still happen until the new one
stands.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from enum import Enum
from typing import Any, NamedTuple, Protocol, assert_never

from minikafka.clock import Clock
from minikafka.coordination.store import (
    ANY_VERSION,
    NO_OWNER,
    BadVersionError,
    CheckOp,
    ConnectionLossError,
    Created,
    CreateOp,
    DeleteOp,
    EventType,
    InvalidNodeError,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
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
    parent_of,
    validate_data,
    validate_path,
)

Change = tuple[EventType, str]
Undo = Callable[[], None]

LATE_EXPIRY_MS = 2_000
"""ZooKeeper's tickTime: expiries are rounded up to it."""

Note = Callable[[str, str, object], None]


# What clients and servers say
class Wire(Protocol):
    """One direction of a connection: in order, and nothing is lost while it lasts."""

    def send(self, message: Any) -> None: ...

    def close(self) -> object:
        """Send nothing more; what is under way arrives."""
        ...


class WatchKind(Enum):
    DATA = "DATA"
    """On a node that existed when the watch was set."""
    MISSING = "MISSING"
    """On one that did not."""
    CHILDREN = "CHILDREN"


class Hello(NamedTuple):
    """Begins a session (id 0), or a connection of one; ``watches`` that the client still waits for."""

    session_id: int
    timeout_ms: int
    seen_zxid: int
    watches: Sequence[tuple[WatchKind, str]]


class Ping(NamedTuple):
    """The client lives."""


class Get(NamedTuple):
    path: str
    watch: bool


class Exists(NamedTuple):
    path: str
    watch: bool


class Children(NamedTuple):
    path: str
    watch: bool


class Write(NamedTuple):
    ops: Sequence[Op]


class EnsurePath(NamedTuple):
    path: str


class Bye(NamedTuple):
    """Ends the session."""


Call = Get | Exists | Children | Write | EnsurePath | Bye | Ping


class Request(NamedTuple):
    number: int
    call: Call


class Welcome(NamedTuple):
    session_id: int


class Expired(NamedTuple):
    """The session is over."""


class Disconnected(NamedTuple):
    """The server has closed this connection, not the session."""


class Reply(NamedTuple):
    number: int
    result: Any
    error: StoreError | None
    zxid: int


class Told(NamedTuple):
    """A watch fires."""

    event: WatchEvent
    zxid: int


# The tree
class TreeNode:
    """One node; ``stat`` makes its ``NodeStat``."""

    __slots__ = (
        "children", "children_created", "created_ms", "cversion", "czxid", "data", "modified_ms", "mzxid",
        "owner", "pzxid", "version",
    )  # fmt: skip

    def __init__(self, data: bytes, *, owner: int, zxid: int, now_ms: int) -> None:
        self.data = data
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.created_ms = self.modified_ms = now_ms
        self.version = self.cversion = self.children_created = 0
        self.children: dict[str, None] = {}

    def stat(self) -> NodeStat:
        return NodeStat(
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.created_ms,
            self.modified_ms,
            self.version,
            self.cversion,
            self.owner,
            len(self.data),
            len(self.children),
        )


class StoreTree:
    """All nodes by path. ``zxid`` is the last committed write's."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.zxid = 0
        self.nodes: dict[str, TreeNode] = {"/": TreeNode(b"", owner=NO_OWNER, zxid=0, now_ms=0)}
        self.on_write: Callable[[str, bytes | None], None] = lambda path, data: None
        """Told of each node that a committed write has changed: its new data, None when it is gone."""
        self._now_ms = now_ms
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._undo: list[Undo] = []
        self._changes: list[Change] = []

    def __repr__(self) -> str:
        return f"StoreTree({len(self.nodes)} nodes, zxid {self.zxid})"

    # Reading

    def find(self, path: str) -> TreeNode:
        """Raises NoNodeError."""
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(f"no node {path}")
        return node

    def get(self, path: str) -> Node:
        node = self.find(path)
        return Node(node.data, node.stat())

    def stat(self, path: str) -> NodeStat | None:
        node = self.nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> list[str]:
        return sorted(self.find(path).children)

    # Writing

    def write(
        self, ops: Sequence[Op], *, session_id: int
    ) -> tuple[list[Created | NodeStat | None], list[Change]]:
        """Do all of ``ops`` or none. Returns a result for each, and what changed.

        Raises:
            StoreError: with its ``operation_index``.
        """
        self._undo, self._changes = [], []
        results: list[Created | NodeStat | None] = []
        for index, op in enumerate(ops):
            try:
                validate_op(op)
                results.append(self._apply(op, session_id))
            except StoreError as error:
                for undo in reversed(self._undo):
                    undo()
                error.operation_index = index
                raise
        if self._changes:
            self.zxid += 1
            for _, path in self._changes:
                node = self.nodes.get(path)
                self.on_write(path, None if node is None else node.data)
        return results, self._changes

    def ensure_path(self, path: str) -> list[Change]:
        """Create what is missing, in one write."""
        parts = path[1:].split("/") if path != "/" else []
        ancestors = ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        missing = [CreateOp(ancestor) for ancestor in ancestors if ancestor not in self.nodes]
        return self.write(missing, session_id=NO_OWNER)[1]

    def end_session(self, session_id: int) -> list[Change]:
        """Delete its ephemeral nodes, in one write."""
        ops = [DeleteOp(path) for path in sorted(self._ephemerals.get(session_id, ()))]
        return self.write(ops, session_id=session_id)[1]

    def _apply(self, op: Op, session_id: int) -> Created | NodeStat | None:
        match op:
            case CreateOp():
                return self._create(op, session_id if op.ephemeral else NO_OWNER)
            case SetOp(path, data, version):
                return self._set(path, data, version)
            case DeleteOp(path, version):
                self._delete(path, version)
            case CheckOp(path, version):
                self._check(path, version)
            case _:
                assert_never(op)
        return None

    def _create(self, op: CreateOp, owner: int) -> Created:
        path, parent_path = op.path, parent_of(op.path)
        parent = self.nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(f"no node {parent_path} to create {path} in")
        if parent.owner != NO_OWNER:
            raise NoChildrenForEphemeralsError(f"{parent_path} is ephemeral: cannot create {path}")
        if op.sequential:
            path = f"{path}{parent.children_created:010d}"
        if path in self.nodes:
            raise NodeExistsError(f"{path} exists")
        node = TreeNode(bytes(op.data), owner=owner, zxid=self.zxid + 1, now_ms=self._now_ms())
        self._remember(parent)
        self._add(path, node)
        self._undo.append(lambda: self._take_away(path))
        parent.children_created += 1
        self._children_changed(parent)
        self._changes.append((EventType.NODE_CREATED, path))
        return Created(path, node.stat())

    def _set(self, path: str, data: bytes, version: int) -> NodeStat:
        node = self._check(path, version)
        self._remember(node)
        node.data = bytes(data)
        node.version += 1
        node.mzxid = self.zxid + 1
        node.modified_ms = self._now_ms()
        self._changes.append((EventType.NODE_DATA_CHANGED, path))
        return node.stat()

    def _delete(self, path: str, version: int) -> None:
        node = self._check(path, version)
        if node.children:
            raise NotEmptyError(f"{path} has {len(node.children)} children")
        parent = self.nodes[parent_of(path)]
        self._remember(parent)
        self._take_away(path)
        self._undo.append(lambda: self._add(path, node))
        self._children_changed(parent)
        self._changes.append((EventType.NODE_DELETED, path))

    def _check(self, path: str, version: int) -> TreeNode:
        node = self.find(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {version}")
        return node

    # The parts of a write

    def _children_changed(self, parent: TreeNode) -> None:
        parent.cversion += 1
        parent.pzxid = self.zxid + 1

    def _add(self, path: str, node: TreeNode) -> None:
        self.nodes[path] = node
        self.nodes[parent_of(path)].children[path.rpartition("/")[2]] = None
        if node.owner != NO_OWNER:
            self._ephemerals.setdefault(node.owner, {})[path] = None

    def _take_away(self, path: str) -> None:
        node = self.nodes.pop(path)
        del self.nodes[parent_of(path)].children[path.rpartition("/")[2]]
        if node.owner != NO_OWNER:
            owned = self._ephemerals[node.owner]
            del owned[path]
            if not owned:
                del self._ephemerals[node.owner]

    def _remember(self, node: TreeNode) -> None:
        """So that a ``multi`` that fails later can be undone."""
        names = [name for name in TreeNode.__slots__ if name != "children"]
        values = [getattr(node, name) for name in names]

        def undo() -> None:
            for name, value in zip(names, values, strict=True):
                setattr(node, name, value)

        self._undo.append(undo)


def validate_op(op: Op) -> None:
    """Raises InvalidNodeError."""
    validate_path(op.path, sequential=isinstance(op, CreateOp) and op.sequential)
    if isinstance(op, CreateOp | SetOp):
        validate_data(op.path, op.data)
    elif isinstance(op, DeleteOp) and op.path == "/":
        raise InvalidNodeError("the root / cannot be deleted")


# The servers
class Wiring(Protocol):
    """How clients reach the servers, and back."""

    def connect(
        self, to_server: Callable[[Any], None], to_client: Callable[[Any], None]
    ) -> tuple[Wire, Wire]:
        """A new connection: the client's and the server's end to send into, given who receives."""
        ...


class Session:
    """What the servers know of a client."""

    def __init__(self, session_id: int, timeout_ms: int, connection: Connection, *, now_ms: int) -> None:
        self.id = session_id
        self.timeout_ms = timeout_ms
        self.heard_ms = now_ms
        self.connection = connection
        self.watches: dict[tuple[WatchKind, str], None] = {}

    def __repr__(self) -> str:
        return f"Session({self.id} of {self.connection.client}, {len(self.watches)} watches)"


class Connection:
    """The server's end of a client's connection."""

    def __init__(self, ensemble: SimulatedEnsemble, client: str) -> None:
        self.client = client
        self.wire: Wire
        self.session: Session | None = None
        self.is_closed = False
        self._ensemble = ensemble

    def receive(self, message: Hello | Request) -> None:
        if not self.is_closed:
            self._ensemble.receive(self, message)

    def send(self, message: object) -> None:
        if not self.is_closed:
            self.wire.send(message)


class SimulatedEnsemble:
    """The store that all ``SimulatedStore`` objects of a simulation share.

    Args:
        clock: for leases and node times.
        note: told of sessions and writes: client, what, details.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        late_expiry_ms: int = LATE_EXPIRY_MS,
        note: Note | None = None,
        context: Context | None = None,
    ) -> None:
        self.tree = StoreTree(clock.now_ms)
        self.sessions: dict[int, Session] = {}
        self._clock = clock
        self._rng = rng
        self.late_expiry_ms = late_expiry_ms
        self._note: Note = note or (lambda client, event, detail: None)
        self._context = context or Context()
        self._last_session_id = 0
        self._loop = asyncio.get_running_loop

    def __repr__(self) -> str:
        return f"SimulatedEnsemble({self.tree!r}, {len(self.sessions)} sessions)"

    # What scenarios do

    def expire_session(self, session_id: int) -> None:
        """End a session now, whatever its lease says. An unknown one is fine."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self._note(session.connection.client, "session expired", session_id)
            self._fire(self.tree.end_session(session_id))
            session.connection.send(Expired())

    def disconnect(self, client: str) -> None:
        """Break the connections of a host's clients, which will come back. Requests under way may be lost, or
        their answers."""
        for session in list(self.sessions.values()):
            connection = session.connection
            if connection.client == client and not connection.is_closed:
                self._note(client, "store connection broken", session.id)
                connection.send(Disconnected())
                if self._rng.random() < 0.5:
                    connection.is_closed = True  # else what is under way still takes effect

    def expire_due(self) -> None:
        """End the sessions whose time is over."""
        now_ms = self._clock.monotonic_ms()
        for session in list(self.sessions.values()):
            if now_ms - session.heard_ms >= session.timeout_ms:
                self.expire_session(session.id)

    # Connections

    def connect(self, client: str, wiring: Wiring, to_client: Callable[[Any], None]) -> Wire:
        """A new connection of the client on that host. Returns what to send into."""
        connection = Connection(self, client)
        to_server, connection.wire = wiring.connect(connection.receive, to_client)
        return to_server

    def receive(self, connection: Connection, message: Hello | Request) -> None:
        """Something has arrived."""
        if isinstance(message, Hello):
            self._welcome(connection, message)
            return
        session = connection.session
        if session is None or session.id not in self.sessions:
            connection.send(Expired())
            return
        session.heard_ms = self._clock.monotonic_ms()
        result: object = None
        error: StoreError | None = None
        try:
            result = self._carry_out(session, message)
        except StoreError as failure:
            error = failure
        connection.send(Reply(message.number, result, error, self.tree.zxid))
        if isinstance(message.call, Bye):
            connection.is_closed = True

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        if hello.session_id == 0:
            self._last_session_id += 1
            session = Session(
                self._last_session_id, hello.timeout_ms, connection, now_ms=self._clock.monotonic_ms()
            )
            self.sessions[session.id] = session
            self._note(connection.client, "session began", session.id)
            self._watch_over(session)
        else:
            known = self.sessions.get(hello.session_id)
            if known is None:
                connection.send(Expired())
                return
            session = known
            session.connection.is_closed = True
            session.connection = connection
            session.heard_ms = self._clock.monotonic_ms()
            session.watches.clear()
            self._note(connection.client, "session resumed", session.id)
        connection.session = session
        connection.send(Welcome(session.id))
        for kind, path in hello.watches:
            self._catch_up(session, kind, path, hello.seen_zxid)

    def _watch_over(self, session: Session) -> None:
        """Look again when the lease has run out, if nothing is heard until then."""
        if self.sessions.get(session.id) is not session:
            return
        left_ms = session.heard_ms + session.timeout_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            self.expire_session(session.id)
            return
        late_ms = self._rng.uniform(0, self.late_expiry_ms)
        self._loop().call_later((left_ms + late_ms) / 1000, self._watch_over, session, context=self._context)

    # Requests

    def _carry_out(self, session: Session, request: Request) -> object:
        tree = self.tree
        match request.call:
            case Get(path, watch):
                node = tree.get(path)
                self._set_watch(session, watch, WatchKind.DATA, path)
                return node
            case Exists(path, watch):
                stat = tree.stat(path)
                self._set_watch(session, watch, WatchKind.MISSING if stat is None else WatchKind.DATA, path)
                return stat
            case Children(path, watch):
                names = tree.children(path)
                self._set_watch(session, watch, WatchKind.CHILDREN, path)
                return names
            case Write(ops):
                results, changes = tree.write(ops, session_id=session.id)
                self._note_write(session, ops, changes)
                self._fire(changes)
                return results
            case EnsurePath(path):
                self._fire(tree.ensure_path(path))
            case Bye():
                del self.sessions[session.id]
                self._note(session.connection.client, "session ended", session.id)
                self._fire(tree.end_session(session.id))
            case Ping():
                pass
            case _:
                assert_never(request.call)
        return None

    def _note_write(self, session: Session, ops: Sequence[object], changes: Sequence[Change]) -> None:
        data = [op.data for op in ops if isinstance(op, CreateOp | SetOp)]
        what = [(type.value, path) for type, path in changes]
        self._note(session.connection.client, f"wrote to the store {self.tree.zxid}", (what, data))

    # Watches

    def _set_watch(self, session: Session, wanted: bool, kind: WatchKind, path: str) -> None:
        if wanted:
            session.watches[kind, path] = None

    def _fire(self, changes: Sequence[Change]) -> None:
        for session in self.sessions.values():
            for type, path in changes:
                self._fire_one(session, type, path)

    def _fire_one(self, session: Session, type: EventType, path: str) -> None:
        watches = session.watches
        kinds = [WatchKind.DATA, WatchKind.MISSING]
        if type is EventType.NODE_DELETED:
            kinds.append(WatchKind.CHILDREN)
        fired = [kind for kind in kinds if (kind, path) in watches]
        for kind in fired:
            del watches[kind, path]
        if fired:
            session.connection.send(Told(WatchEvent(type, path), self.tree.zxid))
        if type is not EventType.NODE_DATA_CHANGED and path != "/":
            parent = parent_of(path)
            if (WatchKind.CHILDREN, parent) in watches:
                del watches[WatchKind.CHILDREN, parent]
                event = WatchEvent(EventType.NODE_CHILDREN_CHANGED, parent)
                session.connection.send(Told(event, self.tree.zxid))

    def _catch_up(self, session: Session, kind: WatchKind, path: str, seen_zxid: int) -> None:
        """A watch of before the client was away: it fires now, or is set again (``DataTree.setWatches``)."""
        node = self.tree.nodes.get(path)
        type: EventType | None = None
        if kind is WatchKind.MISSING:
            type = None if node is None else EventType.NODE_CREATED
        elif node is None:
            type = EventType.NODE_DELETED
        elif kind is WatchKind.DATA and node.mzxid > seen_zxid:
            type = EventType.NODE_DATA_CHANGED
        elif kind is WatchKind.CHILDREN and node.pzxid > seen_zxid:
            type = EventType.NODE_CHILDREN_CHANGED
        if type is None:
            session.watches[kind, path] = None
        else:
            session.connection.send(Told(WatchEvent(type, path), self.tree.zxid))


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
