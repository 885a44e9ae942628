"""The watches of one ZooKeeper session, and what they missed while the connection was gone.

ZooKeeper's servers know watches by connection: after a new one is made its Java client sends them again, with
what it knew last (``SetWatches``), and is told of what has changed. kazoo forgets its watches instead. So
they are kept here, each path with the id of the write that was last known to it, and compared with what the
server says when the path is watched again. The rules are those of ZooKeeper's ``DataTree.setWatches``: one
event tells of all that happened; a node that was deleted and created again counts as changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.coordination.store import EventType, NodeStat, Watch, WatchEvent
from minikafka.coordination.watches import WatchTable


class SessionWatches:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._table = WatchTable()
        self._known_data: dict[str, int | None] = {}
        self._known_children: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"SessionWatches({self._table!r})"

    def watch_data(self, path: str, watch: Watch, stat: NodeStat | None) -> None:
        """``stat``: what the node was when the watch was set; None: missing."""
        self._table.watch_data(path, watch)
        self._known_data[path] = None if stat is None else stat.mzxid

    def watch_children(self, path: str, watch: Watch, stat: NodeStat) -> None:
        self._table.watch_children(path, watch)
        self._known_children[path] = stat.pzxid

    def clear(self) -> None:
        self._table.clear()
        self._known_data.clear()
        self._known_children.clear()

    def take(self, event: WatchEvent) -> Iterator[Watch]:
        """Whom to tell. They are forgotten."""
        if event.type is not EventType.NODE_CHILDREN_CHANGED:
            self._known_data.pop(event.path, None)
        if event.type in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
            self._known_children.pop(event.path, None)
        return self._table.take(event)

    # After a reconnection.

    def data_paths(self) -> list[str]:
        """The paths of nodes whose data or existence is watched."""
        return list(self._known_data)

    def children_paths(self) -> list[str]:
        return list(self._known_children)

    def missed_data(self, path: str, stat: NodeStat | None) -> WatchEvent | None:
        """What to tell the watches of ``path``, now that the node is ``stat``; None: nothing happened."""
        known = self._known_data.get(path)
        if path not in self._known_data or known == (None if stat is None else stat.mzxid):
            return None
        if stat is None:
            return WatchEvent(EventType.NODE_DELETED, path)
        return WatchEvent(EventType.NODE_CREATED if known is None else EventType.NODE_DATA_CHANGED, path)

    def missed_children(self, path: str, stat: NodeStat) -> WatchEvent | None:
        if self._known_children.get(path, stat.pzxid) == stat.pzxid:
            return None
        return WatchEvent(EventType.NODE_CHILDREN_CHANGED, path)
