"""One client of a SQLite store: its session and its watches. Synchronous; lives on the store's SQL thread.

Before every call the file is looked at, and again after what was written is committed (``sqlite_file``): a
write that the next start would not find is not acknowledged.

What the watches are to be told collects in ``events``; the asynchronous store takes it from there after every
call, also after one that failed: others' changes are true whatever became of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from minikafka.clock import Clock
from minikafka.coordination.sqlite_file import StoreFile
from minikafka.coordination.sqlite_tree import Change, SqliteTree
from minikafka.coordination.store import SessionExpiredError, StoreError, Watch, WatchEvent
from minikafka.coordination.watches import WatchTable

MEMORY = ":memory:"
"""SQLite's name for a database that is not in a file."""

T = TypeVar("T")


class SqliteClient:
    """``session_id`` 0 means that no session was started."""

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
