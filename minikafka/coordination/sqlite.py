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
  watches at once. Expired sessions of others are ended by the first client that notices.

With ``background=False`` neither happens: the owner of the clock calls ``renew`` and ``poll`` (tests do).

Not as in ZooKeeper: the session of a client that is cut off ends for it as soon as the client itself can tell
(its lease has run out), even before another client has ended it.

``SqliteClient`` is synchronous, and one thread's property.

Tables: ``nodes`` (keyed by parent and name, so that children are one range), ``sessions`` (leases),
``changes`` (what was created, set or deleted by which write, for the watches of other clients; kept until
every living session has seen it), ``meta`` (the last zxid, the last session id).

Invariants, held by doing all of it in one transaction:
- every write raises ``meta.zxid`` by one and leaves a row in ``changes`` for each node that it touched;
- ``num_children``, ``cversion`` and ``children_created`` of a parent agree with its rows;
- a node with an ``ephemeral_owner`` has no children and its owner is in ``sessions``;
- a write by a client whose lease has run out does not commit.

**Leases** compare ``clock.monotonic_ms``, which all processes of the machine must share and which must run on
while the machine sleeps: CLOCK_BOOTTIME. The wall clock would do neither: set forward it would expire every
session at once, set back it would keep the dead alive. That clock restarts at boot, so a lease is believed
only if it ends within its timeout from now; what an earlier boot left behind is thereby expired.

**Durability.** ``synchronous=FULL``: each write is fsynced before its caller returns (0.4 to 2 ms).
Leader epochs, the controller epoch and producer id blocks must not come again after a power cut, when logs
and clients remember the later ones. What is about sessions only is NORMAL: atomic too, but a power cut may
undo the last of it, and then all sessions are over anyway.

**Tampering** (``StoreFile``). SQLite does not look at its files: it keeps writing to one that was removed
or replaced, and from its cache it answers what one that was truncated or overwritten no longer has. All of
that would be acknowledged and gone with the next start; a file that was replaced would split the cluster in
two. A look is two ``stat`` (10 us). The database itself changes only when a write-ahead log is copied into
it, by any process, every thousand pages; whenever it has changed it is opened once more and checked as at a
start (0.4 ms with 100 nodes, 20 ms with 10,000, on the SQL thread). The files are never opened here by other
means: closing a descriptor would drop the locks that SQLite has on them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, assert_never

from minikafka.clock import Clock
from minikafka.coordination.sql_thread import SqlThread
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
    StoreUnusableError,
    Watch,
    WatchEvent,
    WatchTable,
    parent_of,
    validate_op,
    validate_path,
)
from minikafka.named_tuple import NamedTuple

logger = logging.getLogger(__name__)

T = TypeVar("T")
_log = logging.getLogger(__name__)

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

SESSION_TIMEOUT_MS = 18_000
"""Kafka's ``zookeeper.session.timeout.ms``."""
POLL_INTERVAL_MS = 50
"""How late a watch may learn of another broker's write. 20 polls a second cost up to 0.4 % of a core, nearly
all of it for waking up."""
BUSY_TIMEOUT_MS = 5_000
"""How long a call waits for another process's transaction; those take milliseconds."""
MEMORY = ":memory:"
"""SQLite's name for a database that is not in a file."""


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
        if path != ":memory:":
            _keep_private(path)
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
        """Raises SessionExpiredError, also before any client has noticed."""
        row = self._connection.execute(
            "SELECT timeout_ms, expires_ms FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        if row is None or not _alive(self._clock.monotonic_ms(), *row):
            raise SessionExpiredError(f"session {session_id} has expired")

    def renew_session(self, session_id: int, *, seen_zxid: int) -> None:
        """Extend the lease, and forget the changes that all sessions have seen. The session must be alive."""
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


def _keep_private(path: str) -> None:
    """What is in the file, credentials among it, is for its owner: others may not read it, nor its log.

    A file that is not there is made, with the mode 0600, which SQLite gives to its log as well. One that is
    there is not opened (see ``StoreFile``), but what its mode allows others is taken away; its group keeps
    what it may do where it may write: then brokers of several users share the file. Errors are SQLite's to
    find.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:  # mostly: it is there
        pass
    for name in (path, f"{path}-wal", f"{path}-shm"):
        try:
            mode = stat.S_IMODE(os.stat(name).st_mode)
            kept = mode & (0o770 if mode & stat.S_IWGRP else 0o700)
            if kept != mode:
                os.chmod(name, kept)
                logger.info("others could read %s: its mode was %#o and is %#o now", name, mode, kept)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning(
                "others may read %s, and its mode cannot be changed: %s. Let its owner do it: chmod 600 %s",
                name,
                error.strerror,
                name,
            )


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
        """Delete the session with its ephemeral nodes, without firing our own watches."""
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
            self._end_own_session(tree)
            raise

    def write(self, body: Callable[[SqliteTree], T], *, durable: bool = True) -> T:
        """``body`` happens altogether or, when it raises, not at all."""
        tree = self._opened()
        try:
            with tree.transaction(write=True, durable=durable) as changes:
                self._catch_up(tree)
                result = body(tree)
        except SessionExpiredError:
            self._end_own_session(tree)
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
        """The store, checked again. Raises StoreUnusableError, ConnectionLossError."""
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

    def _end_own_session(self, tree: SqliteTree) -> None:
        self.watches.clear()
        try:
            with tree.transaction(write=True, durable=False):
                tree.end_session(self.session_id)
        except StoreError:
            pass  # another client ends it when its lease is over
