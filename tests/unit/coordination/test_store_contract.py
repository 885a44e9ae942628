"""What every engine must do: ZooKeeper's semantics, a story each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minikafka.coordination.store import (
    DATA_BYTES_MAX,
    BadVersionError,
    CheckOp,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    EventType,
    InvalidNodeError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    SetOp,
    WatchEvent,
)
from tests.unit.coordination.engines import TIMEOUT_MS, World

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
DATA, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED


class TestTree:
    async def test_a_created_node_is_read_back(self, store: CoordinationStore) -> None:
        created = await store.create("/a", b"1")
        assert created.path == "/a"
        data, stat = await store.get("/a")
        assert data == b"1"
        assert stat == created.stat == await store.exists("/a")
        assert (stat.version, stat.cversion, stat.ephemeral_owner) == (0, 0, 0)
        assert (stat.data_length, stat.num_children) == (1, 0)
        assert stat.czxid == stat.mzxid == stat.pzxid > 0
        assert stat.created_ms == stat.modified_ms > 0

    async def test_the_root_is_there_and_stays(self, store: CoordinationStore) -> None:
        assert await store.children("/") == []
        assert await store.exists("/") is not None
        with pytest.raises(InvalidNodeError, match="root"):
            await store.delete("/")
        with pytest.raises(NodeExistsError):
            await store.create("/")
        await store.set("/", b"data")
        assert (await store.get("/")).data == b"data"

    async def test_what_is_not_there_cannot_be_read_set_deleted_or_be_a_parent(
        self, store: CoordinationStore
    ) -> None:
        assert await store.exists("/a") is None
        for call in (store.get("/a"), store.children("/a"), store.set("/a", b""), store.delete("/a")):
            with pytest.raises(NoNodeError, match="/a"):
                await call
        with pytest.raises(NoNodeError, match="/a"):
            await store.create("/a/b")

    async def test_a_node_is_created_once(self, store: CoordinationStore) -> None:
        await store.create("/controller", b"1")
        with pytest.raises(NodeExistsError, match="/controller"):
            await store.create("/controller", b"2")
        assert (await store.get("/controller")).data == b"1"

    async def test_a_conditional_write_wins_once(self, store: CoordinationStore) -> None:
        await store.create("/epoch", b"0")
        stat = await store.set("/epoch", b"1", 0)
        assert stat.version == 1 and stat.mzxid > stat.czxid
        assert stat == (await store.get("/epoch")).stat
        with pytest.raises(BadVersionError, match=r"/epoch .*version"):
            await store.set("/epoch", b"2", 0)
        with pytest.raises(BadVersionError):
            await store.delete("/epoch", 0)
        assert (await store.get("/epoch")).data == b"1"
        assert (await store.set("/epoch", b"3")).version == 2
        await store.delete("/epoch", 2)
        assert await store.exists("/epoch") is None

    async def test_a_node_created_again_begins_at_version_0_with_a_later_id(
        self, store: CoordinationStore
    ) -> None:
        first = (await store.create("/a")).stat
        await store.set("/a", b"x")
        await store.delete("/a")
        again = (await store.create("/a")).stat
        assert again.version == 0 and again.czxid > first.czxid + 1

    async def test_children_are_sorted_and_counted(self, store: CoordinationStore) -> None:
        await store.create("/p")
        for name in ("b", "c", "a", "ä"):
            await store.create(f"/p/{name}")
        assert await store.children("/p") == ["a", "b", "c", "ä"]
        await store.create("/p/a/deeper")
        await store.delete("/p/b")
        stat = await store.exists("/p")
        assert stat is not None
        assert (stat.num_children, stat.cversion, stat.version) == (3, 5, 0)
        assert stat.pzxid > stat.mzxid == stat.czxid
        assert await store.children("/p") == ["a", "c", "ä"]
        assert await store.children("/p/c") == []

    async def test_a_parent_is_not_deleted(self, store: CoordinationStore) -> None:
        await store.ensure_path("/a/b")
        with pytest.raises(NotEmptyError, match="/a has"):
            await store.delete("/a")
        await store.delete("/a/b")
        await store.delete("/a")

    async def test_similar_names_are_different_nodes(self, store: CoordinationStore) -> None:
        """Topics "t", "t%" and "T", and the children of "/t" against those of "/t1"."""
        for path in ("/t", "/T", "/t%", "/t_", "/t1", "/t1/x"):
            await store.create(path, path.encode())
        assert await store.children("/t") == []
        assert (await store.get("/T")).data == b"/T"
        assert await store.children("/") == ["T", "t", "t%", "t1", "t_"]

    async def test_sequential_numbers_continue_though_children_come_and_go(
        self, store: CoordinationStore
    ) -> None:
        await store.create("/changes")
        paths = [(await store.create("/changes/change_", sequential=True)).path for _ in range(2)]
        assert paths == ["/changes/change_0000000000", "/changes/change_0000000001"]
        await store.delete(paths[1])
        await store.create("/changes/other")
        assert (await store.create("/changes/", sequential=True)).path == "/changes/0000000003"

    async def test_ensure_path_creates_what_is_missing_and_keeps_the_rest(
        self, store: CoordinationStore
    ) -> None:
        await store.create("/brokers", b"kept")
        await store.ensure_path("/brokers/topics/t")
        await store.ensure_path("/brokers/topics/t")
        await store.ensure_path("/")
        assert (await store.get("/brokers")).data == b"kept"
        assert (await store.get("/brokers/topics/t")).data == b""

    @pytest.mark.parametrize(
        "path", ["", "a", "/a/", "//", "/a//b", "/a/./b", "/../b", "/a\x00b", "/a\x1fb", "/\ud800"]
    )
    async def test_a_path_that_is_none_is_refused(self, store: CoordinationStore, path: str) -> None:
        for call in (
            store.get(path),
            store.create(path),
            store.exists(path),
            store.multi([SetOp(path, b"")]),
        ):
            with pytest.raises(InvalidNodeError, match="path"):
                await call

    async def test_data_has_a_limit(self, store: CoordinationStore) -> None:
        await store.create("/a", b"x" * DATA_BYTES_MAX)
        with pytest.raises(InvalidNodeError, match="1000001 bytes for /a"):
            await store.set("/a", b"x" * (DATA_BYTES_MAX + 1))
        assert len((await store.get("/a")).data) == DATA_BYTES_MAX

    async def test_of_many_concurrent_increments_none_is_lost(
        self, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        await store.create("/n", b"0")

        async def increment(client: CoordinationStore) -> None:
            for _ in range(10):
                while True:
                    data, stat = await client.get("/n")
                    try:
                        await client.set("/n", str(int(data) + 1).encode(), stat.version)
                        break
                    except BadVersionError:
                        continue

        await asyncio.gather(*(increment(client) for client in (store, other, store, other)))
        data, stat = await store.get("/n")
        assert data == b"40" and stat.version == 40


class TestMulti:
    async def test_all_happen_in_order_under_one_id(self, store: CoordinationStore) -> None:
        await store.create("/epoch", b"4")
        results = await store.multi(
            [
                CheckOp("/epoch", 0),
                CreateOp("/topic", b"a"),
                CreateOp("/topic/p-", b"b", sequential=True),
                SetOp("/topic", b"c", 0),
                CreateOp("/temporary"),
                DeleteOp("/temporary"),
            ]
        )
        assert results[:3] == [None, "/topic", "/topic/p-0000000000"]
        stat = results[3]
        assert isinstance(stat, NodeStat) and stat.version == 1 and stat.num_children == 1
        assert results[4:] == ["/temporary", None]
        child = await store.exists("/topic/p-0000000000")
        assert child is not None and child.czxid == stat.mzxid == stat.czxid
        assert await store.children("/") == ["epoch", "topic"]

    @pytest.mark.parametrize(
        ("failing", "error"),
        [
            (CheckOp("/epoch", 7), BadVersionError),
            (CheckOp("/nowhere", -1), NoNodeError),
            (CreateOp("/epoch"), NodeExistsError),
            (CreateOp("/nowhere/child"), NoNodeError),
            (SetOp("/epoch", b"", 3), BadVersionError),
            (DeleteOp("/"), InvalidNodeError),
            (DeleteOp("/parent"), NotEmptyError),
            (DeleteOp("/epoch", 9), BadVersionError),
            (CreateOp("not a path"), InvalidNodeError),
        ],
    )
    async def test_or_none_of_it_happens(
        self, store: CoordinationStore, failing: Any, error: type[Exception]
    ) -> None:
        await store.create("/epoch", b"4")
        await store.ensure_path("/parent/child")
        before = await store.exists("/epoch")
        with pytest.raises(error) as raised:
            await store.multi([CreateOp("/a"), SetOp("/epoch", b"5"), failing, CreateOp("/b")])
        assert getattr(raised.value, "operation_index") == 2  # noqa: B009
        assert await store.children("/") == ["epoch", "parent"]
        assert await store.exists("/epoch") == before

    async def test_an_empty_one_is_nothing(self, store: CoordinationStore) -> None:
        assert await store.multi([]) == []

    async def test_ephemerals_in_it_belong_to_the_session(self, store: CoordinationStore) -> None:
        await store.multi([CreateOp("/me", ephemeral=True)])
        stat = await store.exists("/me")
        assert stat is not None and stat.ephemeral_owner == store.session_id


class TestWatches:
    async def test_each_kind_fires_once_for_what_it_watches(self, store: CoordinationStore) -> None:
        events: list[tuple[str, WatchEvent]] = []

        def note(name: str) -> Any:
            return lambda event: events.append((name, event))

        await store.create("/p")
        await store.create("/p/n", b"")
        await store.get("/p/n", watch=note("get"))
        await store.exists("/p/n", watch=note("exists"))
        await store.exists("/p/missing", watch=note("missing"))
        await store.children("/p", watch=note("children"))
        await store.set("/p/n", b"1")
        assert events == [
            ("get", WatchEvent(DATA, "/p/n")),
            ("exists", WatchEvent(DATA, "/p/n")),
        ]
        events.clear()
        await store.set("/p/n", b"2")
        assert events == [], "each fired once"
        await store.create("/p/missing")
        assert events == [
            ("missing", WatchEvent(CREATED, "/p/missing")),
            ("children", WatchEvent(CHILDREN, "/p")),
        ]
        events.clear()
        await store.create("/p/another")
        assert events == []

    async def test_deletion_tells_all_who_watch_the_node_and_its_parents_children(
        self, store: CoordinationStore
    ) -> None:
        events: list[WatchEvent] = []
        await store.ensure_path("/p/n")
        await store.get("/p/n", watch=events.append)
        await store.children("/p/n", watch=lambda event: events.append(event))
        await store.children("/p", watch=events.append)
        await store.delete("/p/n")
        assert events == [WatchEvent(DELETED, "/p/n")] * 2 + [WatchEvent(CHILDREN, "/p")]

    async def test_the_same_watch_counts_once(self, store: CoordinationStore) -> None:
        events: list[WatchEvent] = []
        await store.create("/a")
        for _ in range(3):
            await store.get("/a", watch=events.append)
            await store.exists("/a", watch=events.append)
        await store.set("/a", b"")
        assert events == [WatchEvent(DATA, "/a")]

    async def test_no_watch_is_left_on_what_could_not_be_read(self, store: CoordinationStore) -> None:
        events: list[WatchEvent] = []
        for call in (store.get, store.children):
            with pytest.raises(NoNodeError):
                await call("/a", watch=events.append)
        await store.create("/a")
        await store.create("/a/b")
        assert events == []

    async def test_a_multi_that_fails_fires_no_watch(self, store: CoordinationStore) -> None:
        events: list[WatchEvent] = []
        await store.children("/", watch=events.append)
        with pytest.raises(NoNodeError):
            await store.multi([CreateOp("/a"), DeleteOp("/missing")])
        assert events == []
        await store.multi([CreateOp("/a"), CreateOp("/b")])
        assert events == [WatchEvent(CHILDREN, "/")]

    async def test_another_clients_changes_are_told_in_their_order(
        self, world: World, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        events: asyncio.Queue[WatchEvent] = asyncio.Queue(10)
        await store.create("/a")
        await store.exists("/controller", watch=events.put_nowait)
        await store.get("/a", watch=events.put_nowait)
        await other.create("/controller")
        await other.delete("/controller")
        await other.set("/a", b"1")
        await other.delete("/a")
        await world.settle()
        told = [events.get_nowait() for _ in range(events.qsize())]
        assert told == [WatchEvent(CREATED, "/controller"), WatchEvent(DATA, "/a")]

    async def test_a_client_is_told_before_it_sees(
        self, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        """No polling in between: the read itself must bring the news first."""
        for path in ("/a", "/b"):
            await store.create(path)
        events: list[WatchEvent] = []
        await store.get("/a", watch=events.append)
        await other.set("/a", b"new")
        await other.delete("/b")
        read = asyncio.create_task(store.get("/a"))
        read.add_done_callback(lambda task: events.append(WatchEvent(DATA, f"read {task.result().data!r}")))
        await read
        await asyncio.sleep(0)
        assert [event.path for event in events] == ["/a", "read b'new'"]
        await store.exists("/b", watch=events.append)
        await other.create("/b")
        with pytest.raises(NodeExistsError):
            await store.create("/b")
        assert events[-1] == WatchEvent(CREATED, "/b"), "also when the operation fails"

    async def test_what_a_watch_raises_does_not_affect_others(self, store: CoordinationStore) -> None:
        def bad(event: WatchEvent) -> None:
            raise ValueError("bad watch")

        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        events: list[WatchEvent] = []
        await store.exists("/a", watch=bad)
        await store.exists("/a", watch=events.append)
        await store.create("/a")
        assert events == [WatchEvent(CREATED, "/a")]
        assert [str(context["exception"]) for context in reported] == ["bad watch"]


def note_state(event: SessionEvent, states: list[SessionEvent]) -> None:
    """But for DISCONNECTED: some engines learn at once that they have expired, some are cut off first."""
    if event.state is not SessionState.DISCONNECTED:
        states.append(event)


class TestSessions:
    async def test_an_ephemeral_node_goes_with_its_session(
        self, world: World, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        created = await other.create("/broker", ephemeral=True)
        assert created.stat.ephemeral_owner == other.session_id != store.session_id
        events: list[WatchEvent] = []
        await store.get("/broker", watch=events.append)
        await store.children("/", watch=events.append)
        await other.close()
        await world.settle()
        assert events == [WatchEvent(DELETED, "/broker"), WatchEvent(CHILDREN, "/")]
        assert await store.exists("/broker") is None

    async def test_an_ephemeral_node_has_no_children(self, store: CoordinationStore) -> None:
        await store.create("/e", ephemeral=True)
        with pytest.raises(NoChildrenForEphemeralsError):
            await store.create("/e/child")

    async def test_a_session_that_is_kept_lives_on(self, world: World, store: CoordinationStore) -> None:
        await store.create("/e", ephemeral=True)
        await world.pass_time(10 * TIMEOUT_MS)
        assert await store.exists("/e") is not None

    async def test_a_client_that_sleeps_too_long_is_buried_and_learns_of_it(
        self, world: World, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        states: list[SessionEvent] = []
        other.add_session_listener(lambda event: note_state(event, states))
        await other.create("/controller", b"other", ephemeral=True)
        await other.create("/epoch", b"1")
        void: list[WatchEvent] = []
        await other.get("/epoch", watch=void.append)
        events: list[WatchEvent] = []
        await store.exists("/controller", watch=events.append)
        await world.pass_time(TIMEOUT_MS - 1, asleep=other)
        assert events == []
        await world.pass_time(2, asleep=other)
        assert events == [WatchEvent(DELETED, "/controller")]
        await store.create("/controller", b"store", ephemeral=True)
        for call in (other.set("/epoch", b"2"), other.get("/epoch"), other.create("/x", ephemeral=True)):
            with pytest.raises(SessionExpiredError):
                await call
        assert states == [SessionEvent(SessionState.EXPIRED, other.session_id)]
        assert await store.children("/") == ["controller", "epoch"]
        assert (await store.get("/epoch")).data == b"1"
        await other.start_session()
        await store.set("/epoch", b"2")
        await world.settle()
        assert (await other.get("/epoch")).data == b"2"
        assert void == [], "watches end with the session"

    async def test_it_learns_of_it_before_another_has_ended_it(
        self, world: World, store: CoordinationStore
    ) -> None:
        await store.create("/controller", ephemeral=True)
        await world.pass_time(TIMEOUT_MS, asleep=store)
        with pytest.raises(SessionExpiredError):
            await store.create("/written-by-a-ghost")
        await store.start_session()
        assert await store.children("/") == []

    async def test_a_new_session_is_a_new_one(self, world: World, store: CoordinationStore) -> None:
        states: list[SessionEvent] = []
        stop = store.add_session_listener(lambda event: note_state(event, states))
        first = store.session_id
        assert await store.start_session() == first, "it lives: nothing to do"
        for _ in range(2):
            await world.pass_time(TIMEOUT_MS, asleep=store)
            with pytest.raises(SessionExpiredError):
                await store.get("/")
        assert states == [SessionEvent(SessionState.EXPIRED, first)]
        second = await store.start_session()
        assert second != first and store.session_id == second
        await store.create("/e", ephemeral=True)
        events: list[WatchEvent] = []
        await store.get("/e", watch=events.append)
        await store.delete("/e")
        assert events == [WatchEvent(DELETED, "/e")]
        assert states[1:] == [SessionEvent(SessionState.CONNECTED, second)]
        stop()
        await world.pass_time(TIMEOUT_MS, asleep=store)
        with pytest.raises(SessionExpiredError):
            await store.get("/")
        assert len(states) == 2

    async def test_closing_twice_is_fine_and_nothing_works_after(self, store: CoordinationStore) -> None:
        await store.close()
        await store.close()
        with pytest.raises(Exception, match="closed"):
            await store.get("/")

    async def test_a_cancelled_caller_leaves_the_store_in_order(self, store: CoordinationStore) -> None:
        write = asyncio.create_task(store.create("/a"))
        await asyncio.sleep(0)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert await store.children("/") in ([], ["a"])
