"""The tree in a SQLite file: schema, opening, and what one transaction does.

Synchronous, and one thread's property; ``sqlite.py`` is the asynchronous store around it.

Tables: ``nodes`` (keyed by parent and name, so that children are one range), ``sessions`` (leases),
``changes`` (what was created, set or deleted by which write, for the watches of other clients; kept until
every living session has seen it), ``meta`` (the last zxid, the last session id).

Invariants, held by doing all of it in one transaction:
- every write raises ``meta.zxid`` by one and leaves a row in ``changes`` for each node that it touched;
- ``num_children``, ``cversion`` and ``children_created`` of a parent agree with its rows;
- a node with an ``ephemeral_owner`` has no children and its owner is in ``sessions``;
- a write by a client whose lease has run out does not commit.

**Leases** compare ``clock.monotonic_ms``, which all processes of the machine must share and which must go on
while the machine sleeps: CLOCK_BOOTTIME. The wall clock would do neither: set forward it would expire every
session at once, set back it would keep the dead alive. That clock restarts at boot, so a lease is believed
only if it ends within its timeout from now; what an earlier boot left behind is thereby expired.

**Durability.** ``synchronous=FULL``: each write is fsynced before its caller hears of it (0.4 to 2 ms).
Leader epochs, the controller epoch and producer id blocks must not come again after a power cut, when logs
and clients remember the later ones. What is about sessions only is NORMAL: atomic too, but a power cut may
undo the last of it, and then all sessions are over anyway.

**Tampering** (``StoreFile``). SQLite does not look at its files: it goes on writing to one that was removed
or replaced, and from its cache it answers what one that was truncated or overwritten no longer has. All of
that would be acknowledged and gone with the next start; a file that was replaced would split the cluster in
two. A look is two ``stat`` (10 us). The database itself changes only when a write-ahead log is copied into
it, by any process, every thousand pages; whenever it has changed it is opened once more and checked as at a
start (0.4 ms with 100 nodes, 20 ms with 10,000, on the SQL thread). The files are never opened here by other
means: closing a descriptor would drop the locks that SQLite has on them.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from minikafka.clock import Clock
from minikafka.coordination.store import (
    ANY_VERSION,
    NO_OWNER,
    BadVersionError,
    ConnectionLossError,
    Created,
    EventType,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    StoreError,
    StoreUnusableError,
    parent_of,
)

SWITCH_PAUSE_MS = 10
"""Between tries to switch a new file to the write-ahead log; only the SQL thread waits."""
APPLICATION_ID = 0x6D6B6166
"""In the file's header: this SQLite file is a minikafka store ("mkaf")."""
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE nodes (
    parent TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL,
    czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 0, cversion INTEGER NOT NULL DEFAULT 0,
    ephemeral_owner INTEGER NOT NULL, num_children INTEGER NOT NULL DEFAULT 0,
    children_created INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE INDEX ephemeral_nodes ON nodes (ephemeral_owner) WHERE ephemeral_owner <> 0;
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    timeout_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, seen_zxid INTEGER NOT NULL
);
CREATE TABLE changes (
    zxid INTEGER NOT NULL, number INTEGER NOT NULL, type TEXT NOT NULL, path TEXT NOT NULL,
    PRIMARY KEY (zxid, number)
) WITHOUT ROWID;
CREATE TABLE meta (zxid INTEGER NOT NULL, last_session_id INTEGER NOT NULL);
INSERT INTO meta VALUES (0, 0);
INSERT INTO nodes (parent, name, data, czxid, mzxid, pzxid, created_ms, modified_ms, ephemeral_owner)
    VALUES ('', '', x'', 0, 0, 0, 0, 0, 0);
"""

_STAT = (
    "czxid, mzxid, pzxid, created_ms, modified_ms, version, cversion, ephemeral_owner,"
    " length(data), num_children"
)

Change = tuple[EventType, str]


class SqliteTree:
    """An open store file. Every method but ``open`` and ``close`` belongs inside ``transaction``."""

    def __init__(self, path: str, *, clock: Clock, durable: bool, busy_timeout_ms: int) -> None:
        """Open or create ``path`` (":memory:" for one that goes with this object).

        Raises:
            StoreUnusableError: cannot be opened, is damaged, or is something else.
            ConnectionLossError: another process has held it for longer than ``busy_timeout_ms``.
        """
        self.path = path
        self._clock = clock
        self._synchronous = "FULL" if durable else "OFF"
        self._lazily_synchronous = "NORMAL" if durable else "OFF"
        self._busy_timeout_ms = busy_timeout_ms
        self._pending: list[Change] | None = None
        self._fsyncs = True
        try:
            self._connection = sqlite3.connect(path, timeout=busy_timeout_ms / 1000, isolation_level=None)
        except sqlite3.Error as error:
            raise self.translated(error) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise self.translated(error) from error
        except StoreError:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def data_version(self) -> int:
        """Differs from the last answer when another connection has written. Costs 3 us."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def transaction(self, *, write: bool, durable: bool = True) -> Iterator[list[Change]]:
        """All or nothing. Yields the list of changes made, which is complete after the commit.

        Raises:
            ConnectionLossError, StoreUnusableError: from SQLite; nothing was written.
        """
        execute = self._connection.execute
        changes: list[Change] = []
        try:
            if write and durable is not self._fsyncs:
                execute(f"PRAGMA synchronous={self._synchronous if durable else self._lazily_synchronous}")
                self._fsyncs = durable
            execute("BEGIN IMMEDIATE" if write else "BEGIN")
            self._pending = changes
            yield changes
            if changes:
                zxid = self.zxid() + 1
                execute("UPDATE meta SET zxid = ?", (zxid,))
                self._connection.executemany(
                    "INSERT INTO changes VALUES (?, ?, ?, ?)",
                    [(zxid, number, type.value, path) for number, (type, path) in enumerate(changes)],
                )
            execute("COMMIT")
        except sqlite3.Error as error:
            raise self.translated(error) from error
        finally:
            self._pending = None
            if self._connection.in_transaction:
                execute("ROLLBACK")

    def zxid(self) -> int:
        """The last committed write."""
        return int(self._connection.execute("SELECT zxid FROM meta").fetchone()[0])

    def changes_after(self, zxid: int) -> list[Change]:
        rows = self._connection.execute(
            "SELECT type, path FROM changes WHERE zxid > ? ORDER BY zxid, number", (zxid,)
        )
        return [(EventType(type), path) for type, path in rows]

    # Nodes. Paths are valid.

    def get(self, path: str) -> Node:
        row = self._connection.execute(
            f"SELECT {_STAT}, data FROM nodes WHERE parent = ? AND name = ?", _key(path)
        ).fetchone()
        if row is None:
            raise NoNodeError(f"no node {path}")
        return Node(row[-1], NodeStat(*row[:-1]))

    def stat(self, path: str) -> NodeStat | None:
        row = self._connection.execute(
            f"SELECT {_STAT} FROM nodes WHERE parent = ? AND name = ?", _key(path)
        ).fetchone()
        return None if row is None else NodeStat(*row)

    def children(self, path: str) -> list[str]:
        rows = self._connection.execute("SELECT name FROM nodes WHERE parent = ? ORDER BY name", (path,))
        names = [name for (name,) in rows]
        if not names and self.stat(path) is None:
            raise NoNodeError(f"no node {path}")
        return names

    def create(self, path: str, data: bytes, *, owner: int, sequential: bool) -> Created:
        """``owner``: the session id of an ephemeral node, else NO_OWNER."""
        parent = parent_of(path)
        row = self._connection.execute(
            "SELECT ephemeral_owner, children_created FROM nodes WHERE parent = ? AND name = ?", _key(parent)
        ).fetchone()
        if row is None:
            raise NoNodeError(f"no node {parent} to create {path} in")
        if row[0] != NO_OWNER:
            raise NoChildrenForEphemeralsError(f"{parent} is ephemeral: cannot create {path}")
        if sequential:
            path = f"{path}{row[1]:010d}"
        zxid, now_ms = self.zxid() + 1, self._clock.now_ms()
        try:
            self._connection.execute(
                "INSERT INTO nodes (parent, name, data, czxid, mzxid, pzxid, created_ms, modified_ms,"
                " ephemeral_owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*_key(path), data, zxid, zxid, zxid, now_ms, now_ms, owner),
            )
        except sqlite3.IntegrityError as error:
            raise NodeExistsError(f"{path} exists") from error
        self._touch_parent(parent, zxid, added=1)
        self._changed(EventType.NODE_CREATED, path)
        stat = NodeStat(zxid, zxid, zxid, now_ms, now_ms, 0, 0, owner, len(data), 0)
        return Created(path, stat)

    def set(self, path: str, data: bytes, version: int) -> NodeStat:
        self.check(path, version)
        self._connection.execute(
            "UPDATE nodes SET data = ?, mzxid = ?, modified_ms = ?, version = version + 1"
            " WHERE parent = ? AND name = ?",
            (data, self.zxid() + 1, self._clock.now_ms(), *_key(path)),
        )
        self._changed(EventType.NODE_DATA_CHANGED, path)
        stat = self.stat(path)
        assert stat is not None
        return stat

    def delete(self, path: str, version: int) -> None:
        stat = self.check(path, version)
        if stat.num_children:
            raise NotEmptyError(f"{path} has {stat.num_children} children")
        self._connection.execute("DELETE FROM nodes WHERE parent = ? AND name = ?", _key(path))
        self._touch_parent(parent_of(path), self.zxid() + 1, added=-1)
        self._changed(EventType.NODE_DELETED, path)

    def check(self, path: str, version: int) -> NodeStat:
        """Raises NoNodeError, BadVersionError."""
        stat = self.stat(path)
        if stat is None:
            raise NoNodeError(f"no node {path}")
        if version not in (ANY_VERSION, stat.version):
            raise BadVersionError(f"{path} has version {stat.version}, not {version}")
        return stat

    # Sessions.

    def create_session(self, timeout_ms: int) -> int:
        (session_id,) = self._connection.execute(
            "UPDATE meta SET last_session_id = last_session_id + 1 RETURNING last_session_id"
        ).fetchone()
        self._connection.execute(
            "INSERT INTO sessions VALUES (?, ?, ?, ?)",
            (session_id, timeout_ms, self._clock.monotonic_ms() + timeout_ms, self.zxid()),
        )
        return int(session_id)

    def check_session(self, session_id: int) -> None:
        """Raises SessionExpiredError, also when nobody has noticed yet."""
        row = self._connection.execute(
            "SELECT timeout_ms, expires_ms FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        if row is None or not _alive(self._clock.monotonic_ms(), *row):
            raise SessionExpiredError(f"session {session_id} has expired")

    def renew_session(self, session_id: int, *, seen_zxid: int) -> None:
        """Extend the lease, and forget the changes that everybody has seen. The session must be alive."""
        execute = self._connection.execute
        execute(
            "UPDATE sessions SET expires_ms = ? + timeout_ms, seen_zxid = ? WHERE id = ?",
            (self._clock.monotonic_ms(), seen_zxid, session_id),
        )
        execute("DELETE FROM changes WHERE zxid <= (SELECT min(seen_zxid) FROM sessions)")

    def end_session(self, session_id: int) -> None:
        """Delete it and its ephemeral nodes."""
        self._connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
        rows = self._connection.execute(
            "SELECT parent, name FROM nodes WHERE ephemeral_owner = ? AND ephemeral_owner <> 0"
            " ORDER BY parent, name",
            (session_id,),
        ).fetchall()
        for parent, name in rows:
            self.delete(f"{'' if parent == '/' else parent}/{name}", ANY_VERSION)

    def expired_sessions(self) -> list[int]:
        now_ms = self._clock.monotonic_ms()
        rows = self._connection.execute("SELECT id, timeout_ms, expires_ms FROM sessions ORDER BY id")
        return [session_id for session_id, *lease in rows if not _alive(now_ms, *lease)]

    def next_expiry_ms(self) -> int | None:
        """When the first of the leases runs out if it is not renewed."""
        (expires_ms,) = self._connection.execute("SELECT min(expires_ms) FROM sessions").fetchone()
        return None if expires_ms is None else int(expires_ms)

    # Internal.

    def _changed(self, type: EventType, path: str) -> None:
        assert self._pending is not None, "a write belongs inside a transaction"
        self._pending.append((type, path))

    def _touch_parent(self, parent: str, zxid: int, *, added: int) -> None:
        self._connection.execute(
            "UPDATE nodes SET pzxid = ?, cversion = cversion + 1, num_children = num_children + ?,"
            " children_created = children_created + ? WHERE parent = ? AND name = ?",
            (zxid, added, max(0, added), *_key(parent)),
        )

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("BEGIN")  # one state of the file, though another broker may be creating it
        (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application_id,) = execute("PRAGMA application_id").fetchone()
        execute("COMMIT")
        if tables and application_id != APPLICATION_ID:
            raise StoreUnusableError(f"{self.path}: a SQLite database, but not a coordination store")
        mode = self._switch_to_write_ahead_log()
        if mode not in ("wal", "memory"):
            raise StoreUnusableError(
                f"{self.path}: no write-ahead log is possible on its file system (journal mode {mode});"
                " use a directory on a local disk"
            )
        execute(f"PRAGMA synchronous={self._synchronous}")
        execute("BEGIN IMMEDIATE")
        (version,) = execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _SCHEMA.split(";\n"):
                execute(statement)
            execute(f"PRAGMA application_id={APPLICATION_ID}")
            execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        execute("COMMIT")
        if version > SCHEMA_VERSION:
            raise StoreUnusableError(
                f"{self.path}: written by a newer minikafka (format {version}, known: {SCHEMA_VERSION})"
            )
        self._check(self._connection)

    def check_file(self) -> None:
        """Check what the next start would find, through a connection that has nothing in its cache.

        Raises:
            StoreUnusableError: it is damaged, or not this store.
            ConnectionLossError: it cannot be read now.
        """
        try:
            known_zxid = self.zxid()
            with contextlib.closing(
                sqlite3.connect(self.path, timeout=self._busy_timeout_ms / 1000, isolation_level=None)
            ) as connection:
                self._check(connection)
                (found_zxid,) = connection.execute("SELECT zxid FROM meta").fetchone()
        except sqlite3.Error as error:
            raise self.translated(error) from error
        if found_zxid < known_zxid:
            raise StoreUnusableError(self._damaged(f"it ends at write {found_zxid} of {known_zxid}"))

    def _check(self, connection: sqlite3.Connection) -> None:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreUnusableError(self._damaged(verdict))

    def _switch_to_write_ahead_log(self) -> str:
        """Returns the journal mode. SQLite does not wait here for another broker that writes to the new file,
        or switches it too: it fails at once."""
        deadline = time.monotonic() + self._busy_timeout_ms / 1000
        while True:
            try:
                (mode,) = self._connection.execute("PRAGMA journal_mode=WAL").fetchone()
                return str(mode)
            except sqlite3.OperationalError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(SWITCH_PAUSE_MS / 1000)

    def _damaged(self, reason: str) -> str:
        one_line = " ".join(reason.split())
        return (
            f"{self.path}: the coordination store is damaged ({one_line}). Stop every broker that uses it,"
            " move it and its -wal and -shm files away, and put a copy in its place, or none to begin with an"
            " empty cluster state; log directories are not touched"
        )

    def translated(self, error: sqlite3.Error) -> StoreError:
        """SQLite's errors as ours. Those of the file are final, those of the moment are a lost connection."""
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT", "SQLITE_IOERR_SHORT_READ")):
            return StoreUnusableError(self._damaged(str(error)))
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
            return StoreUnusableError(
                f"{self.path}: cannot open the coordination store ({error}); its directory must exist,"
                " and both must be writable"
            )
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return ConnectionLossError(
                f"{self.path}: locked by another process for over {self._busy_timeout_ms} ms"
            )
        return ConnectionLossError(f"{self.path}: {error} ({name or type(error).__name__})")


class _Look(NamedTuple):
    inode: tuple[int, int]
    size: int
    modified_ns: int


class StoreFile:
    """The database file of an open ``SqliteTree`` and its write-ahead log: whether they are still those that
    SQLite has open, and hold what it believes."""

    def __init__(self, tree: SqliteTree) -> None:
        """``tree`` was checked when it was opened, a moment ago."""
        self._tree = tree
        self._path = tree.path
        self._log_path = f"{tree.path}-wal"
        self._sound = self._look(self._path)
        self._log = self._look(self._log_path)

    def check(self) -> None:
        """Look at the files.

        Raises:
            StoreUnusableError: one was removed, replaced, truncated or overwritten.
            ConnectionLossError: they cannot be looked at now.
        """
        log, now = self._look(self._log_path), self._look(self._path)
        if log.inode != self._log.inode:
            raise self._tampered(self._log_path)
        if now.inode != self._sound.inode or not now.size:  # opening an empty one removes its log
            raise self._tampered(self._path)
        if now != self._sound or log.size < self._log.size:
            self._tree.check_file()
        self._sound, self._log = now, log

    def _look(self, path: str) -> _Look:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            raise self._tampered(path) from None
        except OSError as error:
            raise ConnectionLossError(f"{path}: {error.strerror}") from error
        return _Look((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)

    def _tampered(self, path: str) -> StoreUnusableError:
        return StoreUnusableError(
            f"{path}: the coordination store was removed or replaced, or truncated, while it was in use;"
            " nothing is written to it any more. Stop every broker that uses it, put"
            f" {self._path} back from a copy without its -wal and -shm files, start them again"
        )


def _key(path: str) -> tuple[str, str]:
    """The primary key of a path. The root's parent is the empty string."""
    if path == "/":
        return "", ""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def _alive(now_ms: int, timeout_ms: int, expires_ms: int) -> bool:
    return now_ms < expires_ms <= now_ms + timeout_ms
