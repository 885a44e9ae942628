"""The SQLite engine itself: damaged files, locks, leases across reboots, two processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minikafka.clock import ManualClock
from minikafka.coordination.sqlite import SqliteStore, SqliteTree
from minikafka.coordination.store import (
    ConnectionLossError,
    Created,
    EventType,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    StoreUnusableError,
    WatchEvent,
)
from minikafka.errors import StartError
from minikafka.system_clock import SystemClock


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "coordination.db")


async def open_store(path: str, clock: ManualClock | None = None, **options: object) -> SqliteStore:
    defaults = {"background": False, "durable": False, "busy_timeout_ms": 50}
    return await SqliteStore.open(path, clock=clock or ManualClock(), **{**defaults, **options})


def _size(path: str) -> int:
    return os.path.getsize(path)


def _overwrite(path: str) -> None:
    with open(path, "r+b") as file:
        file.write(os.urandom(_size(path)))


def _replace(path: str) -> None:
    shutil.copy(path, path + ".copy")
    os.replace(path + ".copy", path)


DAMAGES: dict[str, Callable[[str], None]] = {
    "emptied": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, _size(path) // 2),
    "overwritten": _overwrite,
    "removed": os.remove,
    "replaced": _replace,
    "write-ahead log removed": lambda path: os.remove(path + "-wal"),
    "write-ahead log emptied": lambda path: os.truncate(path + "-wal", 0),
}


class TestOpening:
    async def test_what_was_written_is_there_after_reopening(self, path: str) -> None:
        async with contextlib.AsyncExitStack() as stack:
            store = await open_store(path, durable=True)
            stack.push_async_callback(store.close)
            await store.create("/a", b"1")
            await store.create("/e", ephemeral=True)
            first_session = store.session_id
        store = await open_store(path)
        assert (await store.get("/a")).data == b"1"
        assert await store.children("/") == ["a"]
        assert store.session_id > first_session
        await store.close()
        assert os.listdir(os.path.dirname(path)) == ["coordination.db"], "no -wal or -shm file is left behind"

    async def test_a_file_of_something_else_is_named(self, path: str) -> None:
        with open(path, "wb") as file:  # noqa: ASYNC230
            file.write(b"listeners=PLAINTEXT://localhost:9092\n" * 50)
        with pytest.raises(StoreUnusableError, match=r"coordination\.db: .*damaged.*move it") as raised:
            await open_store(path)
        assert isinstance(raised.value, StartError)
        assert "\n" not in str(raised.value)

    async def test_another_programs_database_is_left_alone(self, path: str) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE bookmarks (url TEXT)")
        with pytest.raises(StoreUnusableError, match="not a coordination store"):
            await open_store(path)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]

    async def test_a_newer_format_is_refused(self, path: str) -> None:
        await (await open_store(path)).close()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 2")
        with pytest.raises(StoreUnusableError, match="newer minikafka"):
            await open_store(path)

    @pytest.mark.parametrize("kind", ["page", "cut"])
    async def test_a_damaged_page_is_found_when_it_is_opened(self, path: str, kind: str) -> None:
        store = await open_store(path)
        for number in range(200):
            await store.create(f"/n{number}", b"x" * 100)
        await store.close()
        with open(path, "r+b") as file:  # noqa: ASYNC230
            if kind == "page":
                file.seek(4096 * 5)
                file.write(b"\xff" * 4096)
            else:
                file.truncate(4096 * 5)
        with pytest.raises(StoreUnusableError, match=r"coordination\.db: .*damaged"):
            await open_store(path)

    async def test_a_directory_that_is_missing_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnusableError, match=r"nowhere/c\.db: cannot open .* directory must exist"):
            await open_store(str(tmp_path / "nowhere" / "c.db"))

    async def test_many_may_create_it_at_once(self, path: str) -> None:
        stores = await asyncio.gather(*(open_store(path, busy_timeout_ms=5_000) for _ in range(8)))
        assert sorted(store.session_id for store in stores) == list(range(1, 9))
        await asyncio.gather(*(store.close() for store in stores))


class TestDurability:
    @pytest.mark.parametrize(("durable", "of_writes", "of_renewals"), [(True, 2, 1), (False, 0, 0)])
    async def test_writes_are_fsynced_and_renewals_are_not(
        self, path: str, durable: bool, of_writes: int, of_renewals: int
    ) -> None:
        """SQLite's own words: 0 is OFF, 1 NORMAL, 2 FULL."""
        store = await open_store(path, durable=durable)

        async def synchronous() -> int:
            client = store._client
            return await store._submit(
                lambda: client.read(lambda tree: tree._connection.execute("PRAGMA synchronous").fetchone()[0])
            )

        await store.create("/a")
        assert await synchronous() == of_writes
        await store.renew()
        assert await synchronous() == of_renewals
        await store.set("/a", b"")
        assert await synchronous() == of_writes
        await store.close()


class TestLosingTheFile:
    async def test_a_lock_held_too_long_is_a_lost_connection_that_comes_back(self, path: str) -> None:
        store = await open_store(path)
        states: list[SessionState] = []
        store.add_session_listener(lambda event: states.append(event.state))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            with pytest.raises(ConnectionLossError, match=r"coordination\.db: locked .* over 50 ms"):
                await store.create("/a")
            assert states == [SessionState.DISCONNECTED]
            blocker.execute("ROLLBACK")
        await store.create("/a")
        assert states == [SessionState.DISCONNECTED, SessionState.CONNECTED]
        await store.close()

    async def test_a_lock_that_outlasts_the_lease_costs_the_session(self, path: str) -> None:
        clock = ManualClock()
        store = await open_store(path, clock)
        states: list[SessionState] = []
        store.add_session_listener(lambda event: states.append(event.state))
        await store.create("/broker", ephemeral=True)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            for _ in range(4):
                with pytest.raises(ConnectionLossError):
                    await store.renew()
                clock.advance(store.session_timeout_ms // 3)
            blocker.execute("ROLLBACK")
        for call in (store.renew(), store.create("/ghost")):
            with pytest.raises(SessionExpiredError):
                await call
        assert states == [SessionState.DISCONNECTED, SessionState.EXPIRED]
        await store.start_session()
        assert await store.children("/") == []
        await store.close()

    async def test_its_own_tasks_wait_out_a_lock(self, path: str) -> None:
        """In real time: the store is not called, and it comes back by itself."""
        store = await SqliteStore.open(
            path, clock=SystemClock(), session_timeout_ms=3_000, busy_timeout_ms=20, durable=False
        )
        states: asyncio.Queue[SessionEvent] = asyncio.Queue()
        store.add_session_listener(states.put_nowait)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            async with asyncio.timeout(60):
                assert (await states.get()).state is SessionState.DISCONNECTED
            blocker.execute("ROLLBACK")
        async with asyncio.timeout(60):
            assert (await states.get()).state in (SessionState.CONNECTED, SessionState.EXPIRED)
        await store.close()

    async def test_a_file_that_is_locked_at_the_start_is_named(self, path: str) -> None:
        await (await open_store(path)).close()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            with pytest.raises(ConnectionLossError, match=r"coordination\.db: locked by another process"):
                await open_store(path)

    async def test_a_file_replaced_under_us_is_noticed(self, path: str) -> None:
        store = await open_store(path)
        for suffix in ("", "-wal", "-shm"):
            os.remove(path + suffix)
        with pytest.raises(StoreUnusableError, match="removed or replaced"):
            await store.renew()
        other = await open_store(path)
        with pytest.raises(StoreUnusableError, match="removed or replaced"):
            await store.renew()
        await other.close()
        await store.close()

    @pytest.mark.parametrize("many", [0, 400])
    @pytest.mark.parametrize("damage", sorted(DAMAGES))
    async def test_nothing_is_acknowledged_that_the_next_start_would_not_know(
        self, path: str, damage: str, many: int
    ) -> None:
        """``many`` nodes reach the file itself; without them all is in the write-ahead log."""
        store = await open_store(path)
        for number in range(many):
            await store.create(f"/{number}", b"x" * 4000)
        await store.create("/before")
        DAMAGES[damage](path)
        if damage in ("overwritten", "cut") and not many:  # nothing of it is lost
            await store.create("/after")
            for suffix in ("", "-wal"):  # as after a kill
                shutil.copy(path + suffix, path + "-killed" + suffix)
            restarted = await open_store(path + "-killed")
            assert await restarted.children("/") == ["after", "before"]
            await restarted.close()
            await store.close()
            return
        for _ in range(3):
            with pytest.raises(StoreUnusableError, match=r"coordination\.db.*Stop every broker"):
                await store.create("/after")
            with pytest.raises(StoreUnusableError):
                await store.renew()
            with pytest.raises(StoreUnusableError):
                await store.poll()
        await store.close()

    async def test_what_happens_to_the_file_during_a_write_is_noticed_before_the_answer(
        self, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await open_store(path)

        def create_and_lose(tree: SqliteTree, *arguments: Any, **options: Any) -> Created:
            created = create(tree, *arguments, **options)
            os.truncate(path, 0)
            return created

        create = SqliteTree.create
        monkeypatch.setattr(SqliteTree, "create", create_and_lose)
        with pytest.raises(StoreUnusableError, match="truncated"):
            await store.create("/lost")
        await store.close()

    async def test_a_checkpoint_of_the_write_ahead_log_is_no_damage(self, path: str) -> None:
        store, other = await open_store(path), await open_store(path)
        for number in range(600):
            await store.create(f"/{number}", b"x" * 8000)
        assert _size(path) > 2_000_000, "the log was copied into the file"
        assert len(await other.children("/")) == 600
        with contextlib.closing(sqlite3.connect(path)) as operator:
            assert operator.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
            assert _size(path + "-wal") == 0
        await other.create("/more")
        await store.renew()
        await other.close()
        await store.close()


class TestLeases:
    async def test_sessions_of_an_earlier_boot_are_over(self, path: str) -> None:
        """The lease clock restarts at boot: their leases seem to end far in the future."""
        clock = ManualClock()
        clock.advance(10_000_000)
        before = await open_store(path, clock)
        await before.create("/controller", ephemeral=True)
        after = await open_store(path, ManualClock())
        assert await after.exists("/controller") is None
        with pytest.raises(SessionExpiredError):
            await before.renew()
        await before.close()
        await after.close()

    async def test_an_ephemeral_survives_while_its_owner_may_still_live(self, path: str) -> None:
        clock = ManualClock()
        dead = await open_store(path, clock, session_timeout_ms=1_000)
        await dead.create("/controller", ephemeral=True)
        clock.advance(999)
        watcher = await open_store(path, clock)
        assert await watcher.exists("/controller") is not None
        clock.advance(1)
        events: list[WatchEvent] = []
        await watcher.exists("/controller", watch=events.append)
        await watcher.poll()
        assert events == [WatchEvent(EventType.NODE_DELETED, "/controller")]
        await watcher.close()
        await dead.close()

    async def test_changes_that_all_have_seen_are_forgotten(self, path: str) -> None:
        store, other = await open_store(path), await open_store(path)
        await store.create("/a")
        for number in range(20):
            await store.set("/a", str(number).encode())
        with contextlib.closing(sqlite3.connect(path)) as reader:

            def remembered() -> int:
                return int(reader.execute("SELECT count(*) FROM changes").fetchone()[0])

            await store.renew()
            assert remembered() == 21, "the other has not said that it knows"
            await other.renew()
            assert remembered() == 0
        await store.set("/a", b"later")
        events: list[WatchEvent] = []
        await other.get("/a", watch=events.append)
        await store.set("/a", b"latest")
        await other.poll()
        assert len(events) == 1, "numbering goes on after forgetting"
        await store.close()
        await other.close()


LEASES_MS = (150, 600, 2_400, 9_600)
"""One after the other: a busy machine may not let anybody renew within the short ones."""

_BROKER = """
import asyncio, sys
from minikafka.coordination.sqlite import SqliteStore
from minikafka.system_clock import SystemClock

async def main():
    store = await SqliteStore.open(sys.argv[1], clock=SystemClock(), session_timeout_ms=int(sys.argv[2]))
    await store.create("/brokers/ids/1", b"{}", ephemeral=True)
    print(store.session_id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class TestProcesses:
    @pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
    async def test_a_killed_or_frozen_broker_is_missed_after_its_lease(
        self, path: str, end: signal.Signals
    ) -> None:
        """In real time, with both stores' own tasks at work."""
        for lease_ms in LEASES_MS[1:]:
            # Others' leases are looked at with each renewal, every three seconds; its own must not end.
            store = await SqliteStore.open(path, clock=SystemClock(), session_timeout_ms=9_000)
            await store.ensure_path("/brokers/ids")
            events: asyncio.Queue[WatchEvent] = asyncio.Queue(10)
            await store.children("/brokers/ids", watch=events.put_nowait)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _BROKER, path, str(lease_ms), stdout=asyncio.subprocess.PIPE
            )
            try:
                assert process.stdout is not None
                async with asyncio.timeout(60):
                    assert int(await process.stdout.readline()) > store.session_id
                    registered = await events.get()
                    assert registered == WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/brokers/ids")
                    there = await store.children("/brokers/ids", watch=events.put_nowait)
                    if there == ["1"]:
                        process.send_signal(end)
                        died = await events.get()
                        assert died == WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/brokers/ids")
                        assert await store.children("/brokers/ids") == []
                        break
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                await store.close()
        assert there == ["1"]

    async def test_its_own_tasks_keep_a_session_alive(self, path: str) -> None:
        """For three leases, in real time: without renewals it would hear of its end."""
        kept = False
        for lease_ms in LEASES_MS:
            store = await SqliteStore.open(
                path, clock=SystemClock(), session_timeout_ms=lease_ms, durable=False
            )
            states: asyncio.Queue[object] = asyncio.Queue(10)
            store.add_session_listener(states.put_nowait)
            try:
                await asyncio.wait_for(states.get(), 3 * lease_ms / 1000)
            except TimeoutError:
                with contextlib.suppress(SessionExpiredError):
                    await store.renew()
                    kept = True
            await store.close()
            if kept:
                break
        assert kept


async def test_a_new_file_that_another_broker_is_writing_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself would not wait: it fails at once when the file is not in its final mode yet."""
    path = tmp_path / "new.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    opening = asyncio.ensure_future(SqliteStore.open(str(path), clock=SystemClock()))
    done, _ = await asyncio.wait([opening], timeout=0.2)
    assert not done, "it neither failed nor went ahead"
    other.execute("ROLLBACK")
    other.close()
    store = await opening
    await store.close()
