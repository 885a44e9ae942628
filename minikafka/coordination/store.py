"""The cluster's shared state, as an interface: ZooKeeper's semantics without ZooKeeper's client.

Kafka: what ``KafkaZkClient`` and ``ZooKeeperClient`` ask of ZooKeeper. The engines are SQLite (one machine),
ZooKeeper itself (several) and a simulation; all pass ``tests/unit/coordination/test_store_contract.py``.

**Tree.** A node has a path, data and a ``NodeStat``; any node but an ephemeral one may have children. ``/``
always exists. Every committed write has an id (zxid), larger than those of all writes before it; the
operations of a ``multi`` share one. A write may name the data version that it expects and changes nothing if
that is not it: this is how Kafka guards leader epochs, the controller epoch and producer id blocks.

**Sessions.** A store object is one client with at most one session at a time. Ephemeral nodes belong to the
session and go when it is closed or expires. States, told to session listeners:

    (none) --start_session--> CONNECTED <--> DISCONNECTED
                                  |               |
                                  +--> EXPIRED <--+      EXPIRED --start_session--> CONNECTED (a new id)

While DISCONNECTED the store tries to come back by itself, operations raise ``ConnectionLossError``, and the
session may or may not still live. Once EXPIRED, ephemerals and watches are gone and operations raise
``SessionExpiredError`` until ``start_session`` is called, after the old session's roles were given up.
A process that slept past its session learns of it before any of its writes takes effect.

**Watches** fire once. ``get`` sets one only on a node that exists, ``exists`` also on one that does not.

    change            watches of the node itself                children watches of the parent
    created           NODE_CREATED to ``exists``                NODE_CHILDREN_CHANGED
    data set          NODE_DATA_CHANGED to ``get``/``exists``
    deleted           NODE_DELETED to all three                 NODE_CHILDREN_CHANGED

The same callback on the same node and kind counts once. A client is told of a change before any of its own
operations shows that change; so, when it is CONNECTED again, of what happened meanwhile. Watches and
listeners are called on the event loop, must not block, and can be a queue's ``put_nowait``. What they raise
goes to the loop's exception handler.

**Errors.** ``StoreError`` and below; an operation that raises has changed nothing, except for
``ConnectionLossError`` from a write, whose outcome is unknown. Cancelling the task that awaits a write
does not recall the write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from minikafka.errors import MinikafkaError, StartError
from minikafka.named_tuple import NamedTuple

ANY_VERSION = -1
"""ZooKeeper's and Kafka's ``MatchAnyVersion``: the write does not care."""

NO_OWNER = 0
"""``NodeStat.ephemeral_owner`` of a persistent node."""

DATA_BYTES_MAX = 1_000_000
"""The most that one node may hold: it must fit into a request of ZooKeeper's ``jute.maxbuffer`` (0xfffff)."""

MULTI_BYTES_MAX = 1_000_000
"""The ``op_bytes`` of a ``multi`` that every engine takes. SQLite takes larger ones, ZooKeeper does not."""

_BAD_CHARACTERS = "[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]"
"""What ZooKeeper's ``PathUtils.validatePath`` refuses in a path. Compiled for the first path that may have
one: it takes 1 ms."""


class StoreError(MinikafkaError):
    """What a store operation raises. ``operation_index`` says which operation of a ``multi`` it was."""

    operation_index: int | None = None


class NoNodeError(StoreError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExistsError(StoreError):
    """The node to create exists."""


class BadVersionError(StoreError):
    """The node's data version is not the expected one: another client was faster."""


class NotEmptyError(StoreError):
    """The node to delete has children."""


class NoChildrenForEphemeralsError(StoreError):
    """An ephemeral node cannot be a parent."""


class InvalidNodeError(StoreError):
    """A path that is not one, data or a ``multi`` that is too large, or deleting the root."""


class SessionExpiredError(StoreError):
    """The session is gone, and its ephemeral nodes with it."""


class ConnectionLossError(StoreError):
    """The store cannot be reached at the moment."""


class StoreUnusableError(StoreError, StartError):
    """The store cannot be opened or is damaged; the message names it and says what to do."""


class NodeStat(msgspec.Struct, frozen=True):
    """What ZooKeeper calls Stat. Ids are zxids; times are milliseconds since the Unix epoch."""

    czxid: int
    """The write that created the node. Kafka's broker epoch is that of its ``/brokers/ids`` node."""
    mzxid: int
    """The write that last set the data."""
    pzxid: int
    """The write that last created or deleted a child."""
    created_ms: int
    modified_ms: int
    version: int
    """How often the data was set: 0 after the creation. Kafka's "zk version"."""
    cversion: int
    """How often a child was created or deleted."""
    ephemeral_owner: int
    """The owner's session id, or ``NO_OWNER``."""
    data_length: int
    num_children: int


class Node(NamedTuple):
    data: bytes
    stat: NodeStat


class Created(NamedTuple):
    path: str
    """As created: with the sequence number, if it was asked for."""
    stat: NodeStat


class EventType(Enum):
    NODE_CREATED = "NODE_CREATED"
    NODE_DELETED = "NODE_DELETED"
    NODE_DATA_CHANGED = "NODE_DATA_CHANGED"
    NODE_CHILDREN_CHANGED = "NODE_CHILDREN_CHANGED"


class WatchEvent(NamedTuple):
    type: EventType
    path: str


class SessionState(Enum):
    CONNECTED = "CONNECTED"
    DISCONNECTED = "DISCONNECTED"
    EXPIRED = "EXPIRED"


class SessionEvent(NamedTuple):
    state: SessionState
    session_id: int


Watch = Callable[[WatchEvent], object]
SessionListener = Callable[[SessionEvent], object]


class CreateOp(msgspec.Struct, frozen=True, tag=True):
    """In a ``multi``; its result is the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetOp(msgspec.Struct, frozen=True, tag=True):
    """In a ``multi``; its result is the ``NodeStat``."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class DeleteOp(msgspec.Struct, frozen=True, tag=True):
    """In a ``multi``; its result is None."""

    path: str
    version: int = ANY_VERSION


class CheckOp(msgspec.Struct, frozen=True, tag=True):
    """In a ``multi``: fail all of it unless the node exists with that version. Its result is None.

    How a controller proves that it still is the one: it checks ``/controller_epoch`` in each of its writes.
    """

    path: str
    version: int


Op = CreateOp | SetOp | DeleteOp | CheckOp
OpResult = str | NodeStat | None


class CoordinationStore(Protocol):
    """A client of the shared tree. All calls are made on one event loop."""

    @property
    def session_id(self) -> int:
        """The id of the session, the last one's when it has expired; 0 before the first."""
        ...

    @property
    def session_timeout_ms(self) -> int: ...

    async def start_session(self) -> int:
        """Begin a session, when there is none or it has expired. Returns its id.

        Raises:
            ConnectionLossError: not now. StoreUnusableError: not before an operator has repaired it.
        """
        ...

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes, and release everything. Idempotent."""
        ...

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        """Tell ``listener`` of every change of the session's state from now on. Returns how to stop that."""
        ...

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        """Raises NoNodeError (and sets no watch then)."""
        ...

    async def exists(self, path: str, *, watch: Watch | None = None) -> NodeStat | None: ...

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        """Names, not paths, sorted. Raises NoNodeError (and sets no watch then)."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        """Create one node; its parent must exist.

        ``sequential`` appends ten digits: the number of children that the parent has ever had.

        Raises:
            NodeExistsError, NoNodeError (no parent), NoChildrenForEphemeralsError.
        """
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> NodeStat:
        """Replace the data, if its version is ``version``. Raises NoNodeError, BadVersionError."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Do all of ``ops``, in order, or none. Later ones see what earlier ones did.

        Raises:
            What the first op that fails raises alone, with its ``operation_index`` set; InvalidNodeError
            without one: too large for the engine. Up to ``MULTI_BYTES_MAX`` none is.
        """
        ...

    async def ensure_path(self, path: str) -> None:
        """Create the node and its missing ancestors, empty and persistent. Existing ones are kept."""
        ...


def validate_path(path: str, *, sequential: bool = False) -> None:
    """Raises InvalidNodeError. ``sequential``: the name of the node may still be empty."""
    if not path.startswith("/"):
        raise InvalidNodeError(f"path {path!r} must start with a slash")
    if path == "/" and not sequential:
        return
    parts = path[1:].split("/")
    if sequential:
        parts[-1] += "0"
    for part in parts:
        if not part:
            raise InvalidNodeError(f"path {path!r} has an empty part")
        if part in (".", ".."):
            raise InvalidNodeError(f"path {path!r} must not be relative")
    if not (path.isascii() and path.isprintable()) and re.search(_BAD_CHARACTERS, path):
        raise InvalidNodeError(f"path {path!r} has a character that is not allowed")


def validate_data(path: str, data: bytes) -> None:
    """Raises InvalidNodeError."""
    if len(data) > DATA_BYTES_MAX:
        raise InvalidNodeError(f"{len(data)} bytes for {path} are more than the {DATA_BYTES_MAX} allowed")


def validate_op(op: Op) -> None:
    """Raises InvalidNodeError, and NodeExistsError for creating the root."""
    validate_path(op.path, sequential=isinstance(op, CreateOp) and op.sequential)
    if isinstance(op, CreateOp | SetOp):
        validate_data(op.path, op.data)
    match op:
        case DeleteOp("/"):
            raise InvalidNodeError("the root / cannot be deleted")
        case CreateOp("/", sequential=False):
            raise NodeExistsError("/ exists")


def op_bytes(op: Op) -> int:
    """What an operation counts for ``MULTI_BYTES_MAX``: its path, its data, and what messages add to them."""
    data = op.data if isinstance(op, CreateOp | SetOp) else b""
    return 100 + len(op.path.encode()) + len(data)


def in_multis(ops: Iterable[Op]) -> Iterator[list[Op]]:
    """``ops`` in order, cut into multis that every engine takes: for what need not be all or nothing."""
    group: list[Op] = []
    size = 0
    for op in ops:
        if group and size + op_bytes(op) > MULTI_BYTES_MAX:
            yield group
            group, size = [], 0
        group.append(op)
        size += op_bytes(op)
    if group:
        yield group


def parent_of(path: str) -> str:
    """``/a/b`` → ``/a``, ``/a`` → ``/``."""
    return path.rpartition("/")[0] or "/"


class WatchTable:
    """The watches by node, for the engines that keep that themselves (``ZKWatchManager``):
    data and exists watches in one table (what fires one fires the other), children watches in another. The
    engine says which thread owns it."""

    __slots__ = ("_children", "_data")

    def __init__(self) -> None:
        self._data: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._data or self._children)

    def __repr__(self) -> str:
        return f"WatchTable(data={sorted(self._data)}, children={sorted(self._children)})"

    def watch_data(self, path: str, watch: Watch) -> None:
        self._data.setdefault(path, {})[watch] = None

    def watch_children(self, path: str, watch: Watch) -> None:
        self._children.setdefault(path, {})[watch] = None

    def clear(self) -> None:
        self._data.clear()
        self._children.clear()

    def fire(self, type: EventType, path: str) -> Iterator[tuple[Watch, WatchEvent]]:
        """A node was created, deleted or had its data set: whom to tell what. Forgets those told."""
        events = [WatchEvent(type, path)]
        if type is not EventType.NODE_DATA_CHANGED and path != "/":
            events.append(WatchEvent(EventType.NODE_CHILDREN_CHANGED, parent_of(path)))
        for event in events:
            for watch in self.take(event):
                yield watch, event

    def take(self, event: WatchEvent) -> Iterator[Watch]:
        """Whom to tell of ``event`` and of nothing else: a parent's is another one. Forgets those told."""
        if event.type is EventType.NODE_CHILDREN_CHANGED:
            yield from self._children.pop(event.path, ())
            return
        watches = self._data.pop(event.path, {})
        if event.type is EventType.NODE_DELETED:
            watches.update(self._children.pop(event.path, {}))
        yield from watches
