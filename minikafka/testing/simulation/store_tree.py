"""The tree of the simulated store: ZooKeeper's ``DataTree`` in memory, what one write does to it.

Invariants:
- Every committed write has the next zxid; a ``multi`` is one write and happens altogether or not at all.
- ``num_children``, ``cversion`` and ``children_created`` of a parent agree with its children.

What a simulated store's clients and servers tell each other, in the order of one connection each way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, assert_never

from minikafka.coordination.store import (
    ANY_VERSION,
    NO_OWNER,
    BadVersionError,
    CheckOp,
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
    SetOp,
    StoreError,
    WatchEvent,
    parent_of,
    validate_data,
    validate_path,
)


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


Change = tuple[EventType, str]
Undo = Callable[[], None]


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
