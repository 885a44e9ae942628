"""One-shot watches: who wants to be told about which node. Shared by the engines that keep their own.

ZooKeeper: ``ZKWatchManager``. Not thread-safe; the engine says which thread owns it.
"""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.coordination.store import EventType, Watch, WatchEvent, parent_of


class WatchTable:
    """Data and exists watches in one table (what fires one fires the other), children watches in another."""

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
