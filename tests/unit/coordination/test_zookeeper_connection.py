"""What becomes of sessions, watches and calls when ZooKeeper, or the way to it, is gone for a while."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from minikafka.coordination.store import (
    ConnectionLossError,
    CreateOp,
    EventType,
    NodeExistsError,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    StoreError,
    WatchEvent,
)
from minikafka.coordination.zookeeper import ZooKeeperStore
from minikafka.coordination.zookeeper_session import CLOSE_TIMEOUT_MS
from tests.support import zookeeper
from tests.support.gate import Gate
from tests.support.zookeeper import ZooKeeperServer
from tests.unit.coordination.conftest import OpenZooKeeper

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
DATA, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
CONNECTED, DISCONNECTED, EXPIRED = SessionState.CONNECTED, SessionState.DISCONNECTED, SessionState.EXPIRED


class States:
    """The states of a store's session as it tells them, to be awaited."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self._queue: asyncio.Queue[SessionEvent] = asyncio.Queue()
        store.add_session_listener(self._queue.put_nowait)

    async def next(self) -> SessionState:
        async with asyncio.timeout(120):
            return (await self._queue.get()).state

    async def until(self, *wanted: SessionState) -> SessionState:
        while True:
            if (state := await self.next()) in wanted:
                return state


@pytest.fixture
async def gate(zookeeper_server: ZooKeeperServer) -> AsyncIterator[Gate]:
    async with Gate(zookeeper_server.port) as gate:
        yield gate


@pytest.fixture
async def store(gate: Gate, request: pytest.FixtureRequest, open_zookeeper: OpenZooKeeper) -> ZooKeeperStore:
    """A client behind the gate."""
    return await open_zookeeper(f"{gate.address}/{request.node.name}", session_timeout_ms=9000)


@pytest.fixture
async def other(
    zookeeper_server: ZooKeeperServer,
    request: pytest.FixtureRequest,
    store: ZooKeeperStore,
    open_zookeeper: OpenZooKeeper,
) -> ZooKeeperStore:
    """A client of the same tree that is not behind the gate."""
    return await open_zookeeper(f"{zookeeper_server.address}/{request.node.name}")


class TestLosingTheConnection:
    async def test_the_session_lives_on_and_calls_fail_at_once_meanwhile(
        self, gate: Gate, store: ZooKeeperStore
    ) -> None:
        states = States(store)
        session_id = store.session_id
        await store.create("/broker", ephemeral=True)
        await gate.shut()
        assert await states.next() is DISCONNECTED
        for call in (store.get("/broker"), store.create("/x"), store.multi([CreateOp("/y")])):
            with pytest.raises(ConnectionLossError, match="no connection to ZooKeeper"):
                await call
        assert await store.start_session() == session_id, "it may live: nothing to do"
        await gate.open()
        assert await states.next() is CONNECTED
        stat = await store.exists("/broker")
        assert stat is not None and stat.ephemeral_owner == session_id == store.session_id
        assert await store.children("/") == ["broker"]

    async def test_calls_in_flight_fail_with_it(self, gate: Gate, store: ZooKeeperStore) -> None:
        states = States(store)
        gate.freeze()
        calls = [asyncio.create_task(store.create(f"/n{number}")) for number in range(30)]
        await asyncio.sleep(0)
        await gate.shut()
        gate.thaw()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLossError}
        assert await states.next() is DISCONNECTED
        await gate.open()
        assert await states.next() is CONNECTED
        assert await store.children("/") == [], "what never left did not happen"

    async def test_a_call_at_the_moment_of_the_loss_is_not_done_later(
        self, zookeeper_server: ZooKeeperServer, open_zookeeper: OpenZooKeeper
    ) -> None:
        """kazoo would keep it for the next connection, long after its caller has heard that it failed."""
        store = await open_zookeeper(f"{zookeeper_server.address}/moment", session_timeout_ms=9000)
        session = store._session
        assert session is not None
        for _ in range(10):
            states = States(store)
            session.drop_connection("the test says so")
            # Then kazoo knows and the loop does not. The next connection takes 0.06 s: a busy machine may
            # sleep over this moment.
            if is_moment := happens_meanwhile(lambda: not session._client.connected, within_s=3):
                break
            await states.until(CONNECTED)
        assert is_moment
        with pytest.raises(ConnectionLossError):
            await store.create("/ghost")
        assert await states.until(CONNECTED)
        assert await store.children("/") == []

    async def test_watches_outlive_it(self, gate: Gate, store: ZooKeeperStore, other: ZooKeeperStore) -> None:
        states = States(store)
        events: list[WatchEvent] = []
        await store.create("/a")
        await store.get("/a", watch=events.append)
        await store.exists("/missing", watch=events.append)
        await store.children("/", watch=events.append)
        for _ in range(2):
            await gate.shut()
            await gate.open()
            assert await states.until(CONNECTED)
        assert events == [], "nothing has happened"
        await other.set("/a", b"1")
        await other.create("/missing")
        await store.exists("/")
        assert events == [WatchEvent(DATA, "/a"), WatchEvent(CREATED, "/missing"), WatchEvent(CHILDREN, "/")]

    async def test_what_was_missed_is_told_once_and_before_it_can_be_seen(
        self, gate: Gate, store: ZooKeeperStore, other: ZooKeeperStore
    ) -> None:
        events: list[object] = []
        for path in ("/changed", "/deleted", "/again", "/parent", "/parent/child", "/untouched"):
            await store.create(path)
            await store.get(path, watch=events.append)
        for path in ("/parent", "/deleted", "/untouched"):
            await store.children(path, watch=events.append)
        await store.exists("/created", watch=events.append)
        states = States(store)
        await gate.shut()
        assert await states.next() is DISCONNECTED
        await other.set("/changed", b"1")
        await other.delete("/deleted")
        await other.delete("/again")
        await other.create("/again")
        await other.delete("/parent/child")
        await other.create("/created")
        store.add_session_listener(events.append)
        await gate.open()
        assert await states.next() is CONNECTED
        assert events[-1] == SessionEvent(CONNECTED, store.session_id)
        assert sorted(events[:-1], key=repr) == [
            WatchEvent(CHILDREN, "/parent"),
            WatchEvent(CREATED, "/created"),
            WatchEvent(DATA, "/again"),
            WatchEvent(DATA, "/changed"),
            WatchEvent(DELETED, "/deleted"),
            WatchEvent(DELETED, "/parent/child"),
        ]
        events.clear()
        for path in ("/changed", "/again", "/created"):
            await other.set(path, b"2")
        await other.create("/deleted")
        await other.create("/parent/child")
        await store.exists("/")
        assert events == [], "they have fired"
        await other.create("/untouched/child")
        await other.set("/untouched", b"2")
        await store.exists("/")
        assert events == [WatchEvent(CHILDREN, "/untouched"), WatchEvent(DATA, "/untouched")]

    async def test_a_connection_that_is_lost_while_catching_up_loses_no_watch(
        self, gate: Gate, store: ZooKeeperStore, other: ZooKeeperStore
    ) -> None:
        events: list[WatchEvent] = []
        for number in range(50):
            await store.exists(f"/n{number}", watch=events.append)
        states = States(store)
        for _ in range(5):  # somewhere between none and all of the watches are set again
            await gate.shut()
            await gate.open()
            await asyncio.sleep(0.02)
        await gate.shut()
        await states.until(DISCONNECTED)
        await other.multi([CreateOp(f"/n{number}") for number in range(50)])
        await gate.open()
        await asyncio.sleep(0)
        while len(events) < 50:
            await states.until(CONNECTED)
        assert {event.path for event in events} == {f"/n{number}" for number in range(50)}
        assert len(events) == 50


class TestExpiring:
    async def test_who_was_cut_off_learns_that_its_session_is_over(
        self, zookeeper_server: ZooKeeperServer, gate: Gate, store: ZooKeeperStore, other: ZooKeeperStore
    ) -> None:
        states = States(store)
        events: list[WatchEvent] = []
        await store.create("/controller", ephemeral=True)
        await store.get("/controller", watch=events.append)
        await expire(store, zookeeper_server, gate, states)
        assert await other.exists("/controller") is None
        for call in (store.get("/"), store.create("/x"), store.children("/")):
            with pytest.raises(SessionExpiredError):
                await call
        first = store.session_id
        assert await store.start_session() != first
        assert await states.next() is CONNECTED
        await store.create("/controller", ephemeral=True)
        assert events == [], "watches end with the session"

    async def test_it_is_over_until_another_is_started(
        self, zookeeper_server: ZooKeeperServer, gate: Gate, store: ZooKeeperStore
    ) -> None:
        """kazoo would begin one by itself, within a tenth of a second."""
        states = States(store)
        await expire(store, zookeeper_server, gate, states)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(states.next(), 0.5)
        assert gate.connections == 0

    async def test_not_even_while_the_loop_is_busy_with_something_else(
        self, zookeeper_server: ZooKeeperServer, open_zookeeper: OpenZooKeeper
    ) -> None:
        """Then kazoo is not told that it has expired: it has to know by itself."""
        store = await open_zookeeper(zookeeper_server.address, session_timeout_ms=9000)
        states = States(store)
        session = store._session
        assert session is not None and session.credentials is not None
        zookeeper_server.end_session(*session.credentials)
        session.drop_connection("the test says so")
        assert happens_meanwhile(lambda: session._handler.over, within_s=60)  # kazoo has heard it
        time.sleep(0.5)  # noqa: ASYNC251 in which kazoo would make two attempts
        assert session.credentials is None
        assert await states.until(EXPIRED)

    async def test_nothing_that_was_meant_for_the_old_session_is_done_in_the_next(
        self, zookeeper_server: ZooKeeperServer, gate: Gate, store: ZooKeeperStore, other: ZooKeeperStore
    ) -> None:
        """Calls at any moment around the end of the session: none takes effect."""
        states = States(store)
        outcomes: list[type[BaseException]] = []

        async def write_for_ever() -> None:
            while True:
                try:
                    await store.create(f"/ghost-{len(outcomes)}")
                except StoreError as error:
                    outcomes.append(type(error))
                    await asyncio.sleep(0)

        await shut_off(store, zookeeper_server, gate)
        writer = asyncio.create_task(write_for_ever())
        await gate.open()
        await states.until(EXPIRED)
        await store.start_session()
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        assert set(outcomes) == {ConnectionLossError, SessionExpiredError}
        assert await other.children("/") == []

    async def test_two_who_begin_the_next_session_get_the_same(
        self, zookeeper_server: ZooKeeperServer, gate: Gate, store: ZooKeeperStore
    ) -> None:
        await expire(store, zookeeper_server, gate, States(store))
        first, second = await asyncio.gather(store.start_session(), store.start_session())
        assert first == second == store.session_id

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    async def test_an_answer_that_kazoo_does_not_understand_ends_the_session(
        self, store: ZooKeeperStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It gives up its thread then. That must not look like a connection that will come back."""
        states = States(store)
        assert store._session is not None

        def fail(*arguments: object) -> None:
            raise RuntimeError("Invalid error code")

        store._session._client._connection._read_response = fail
        with pytest.raises(SessionExpiredError):
            await store.get("/")
        assert await states.next() is EXPIRED
        assert "kazoo: Unhandled exception in connection loop" in caplog.text
        await store.start_session()
        assert await store.children("/") == []

    async def test_the_next_session_waits_for_a_server(
        self, zookeeper_server: ZooKeeperServer, gate: Gate, open_zookeeper: OpenZooKeeper
    ) -> None:
        store = await open_zookeeper(gate.address, session_timeout_ms=9000)
        store._connection_timeout_ms = 200
        await expire(store, zookeeper_server, gate, States(store))
        await gate.shut()
        with pytest.raises(ConnectionLossError, match="within 200 ms"):
            await store.start_session()
        with pytest.raises(SessionExpiredError):
            await store.get("/")
        await gate.open()
        await retried(store.start_session)  # a busy machine may need longer than 200 ms for the answer
        assert await store.exists("/") is not None


class TestASilentServer:
    async def test_it_counts_as_lost_after_a_while(self, gate: Gate, open_zookeeper: OpenZooKeeper) -> None:
        store = await open_zookeeper(gate.address, session_timeout_ms=1500)
        states = States(store)
        gate.freeze()
        call = asyncio.create_task(store.exists("/"))
        assert await states.next() is DISCONNECTED
        with pytest.raises(ConnectionLossError):
            await call
        gate.thaw()
        assert await states.until(CONNECTED, EXPIRED)

    async def test_also_when_there_is_always_something_to_send(
        self, gate: Gate, open_zookeeper: OpenZooKeeper
    ) -> None:
        """Every request makes kazoo put off its next ping: it would notice after the tenth."""
        made = []
        for _ in range(5):  # a busy machine can make it later, not earlier
            store = await open_zookeeper(gate.address, session_timeout_ms=3000)
            states = States(store)
            gate.freeze()
            calls: list[asyncio.Task[object]] = []

            async def call_again_and_again(store: ZooKeeperStore, calls: list[asyncio.Task[object]]) -> None:
                while True:
                    calls.append(asyncio.create_task(store.exists("/")))
                    await asyncio.sleep(0.4)

            caller = asyncio.create_task(call_again_and_again(store, calls))
            assert await states.next() is DISCONNECTED
            caller.cancel()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {ConnectionLossError}
            made.append(len(calls))
            if made[-1] <= 6:
                break
            gate.thaw()
            await store.close()
        assert min(made) <= 6, "two thirds of the session are 2 seconds"

    @pytest.mark.timing
    async def test_closing_does_not_wait_for_it(self, gate: Gate, open_zookeeper: OpenZooKeeper) -> None:
        async def lose(store: ZooKeeperStore) -> None:
            gate.freeze()

        assert await close_s(gate, open_zookeeper, lose) < CLOSE_TIMEOUT_MS / 1000 + 2

    @pytest.mark.timing
    async def test_closing_waits_for_nothing_when_the_connection_is_lost(
        self, gate: Gate, open_zookeeper: OpenZooKeeper
    ) -> None:
        async def lose(store: ZooKeeperStore) -> None:
            states = States(store)
            await gate.shut()
            await states.until(DISCONNECTED)

        assert await close_s(gate, open_zookeeper, lose) < 2


class TestTheServersOwnFate:
    async def test_a_server_that_was_frozen_comes_back_one_way_or_the_other(
        self, own_zookeeper: ZooKeeperServer, open_zookeeper: OpenZooKeeper
    ) -> None:
        store = await open_zookeeper(own_zookeeper.address, session_timeout_ms=1000)
        states = States(store)
        await store.create("/broker", ephemeral=True)
        own_zookeeper.pause()
        assert await states.next() is DISCONNECTED
        with pytest.raises(ConnectionLossError):
            await store.get("/broker")
        own_zookeeper.resume()
        if await states.until(CONNECTED, EXPIRED) is EXPIRED:
            await store.start_session()
            with contextlib.suppress(NodeExistsError):
                await store.create("/broker", ephemeral=True)
        assert await store.exists("/broker") is not None

    async def test_a_server_that_was_killed_knows_its_sessions_when_it_is_back(
        self, own_zookeeper: ZooKeeperServer, open_zookeeper: OpenZooKeeper
    ) -> None:
        # As long as the server allows: on a busy machine it is not back in ten seconds.
        store = await open_zookeeper(own_zookeeper.address, session_timeout_ms=40_000)
        states = States(store)
        events: list[WatchEvent] = []
        await store.create("/broker", b"1", ephemeral=True)
        await store.get("/broker", watch=events.append)
        own_zookeeper.kill()
        assert await states.next() is DISCONNECTED
        own_zookeeper.start()
        assert await states.next() is CONNECTED, own_zookeeper.log_text[-10_000:]
        assert (await store.get("/broker")).stat.ephemeral_owner == store.session_id
        await store.set("/broker", b"2")
        assert events == [WatchEvent(DATA, "/broker")]

    async def test_an_idle_session_is_kept_alive(
        self, zookeeper_server: ZooKeeperServer, open_zookeeper: OpenZooKeeper
    ) -> None:
        """For three of its timeouts, in real time; of the next longer, if a busy machine does not let it."""
        kept = False
        for session_timeout_ms in (1_000, 4_000, 16_000):
            store = await open_zookeeper(zookeeper_server.address, session_timeout_ms=session_timeout_ms)
            states: asyncio.Queue[SessionEvent] = asyncio.Queue()
            store.add_session_listener(states.put_nowait)
            try:
                await asyncio.wait_for(states.get(), 3 * session_timeout_ms / 1000)
            except TimeoutError:
                kept = True
                break
        assert kept


class TestAnEnsemble:
    async def test_a_session_moves_to_another_server_when_its_own_dies(
        self, tmp_path: Path, open_zookeeper: OpenZooKeeper
    ) -> None:
        zookeeper.skip_if_missing()
        with zookeeper.ensemble(tmp_path, 3) as servers:
            connect = ",".join(server.address for server in servers) + "/kafka"
            store = await open_zookeeper(connect, session_timeout_ms=20_000)
            other = await open_zookeeper(connect, session_timeout_ms=20_000)
            states = States(store)
            events: asyncio.Queue[WatchEvent] = asyncio.Queue()
            await store.create("/broker", ephemeral=True)
            await store.exists("/controller", watch=events.put_nowait)
            assert store._session is not None and store._session._handler._socket is not None
            port = store._session._handler._socket.getpeername()[1]
            next(server for server in servers if server.port == port).kill()
            assert await states.next() is DISCONNECTED
            assert await states.next() is CONNECTED
            stat = await store.exists("/broker")
            assert stat is not None and stat.ephemeral_owner == store.session_id
            await retried(lambda: other.create("/controller"))
            assert await asyncio.wait_for(events.get(), 20) == WatchEvent(CREATED, "/controller")


_BROKER = """
import asyncio, sys
from minikafka.coordination.store import StoreError
from minikafka.coordination.zookeeper import ZooKeeperStore

async def main():
    store = await ZooKeeperStore.open(sys.argv[1], session_timeout_ms=int(sys.argv[2]))
    await store.create("/controller", b"old", ephemeral=True)
    print("up", flush=True)
    written = 0
    while True:
        try:
            await store.set("/epoch", b"old")
        except StoreError as error:
            print(type(error).__name__, flush=True)
        await asyncio.sleep(0.001)

asyncio.run(main())
"""


class TestProcesses:
    async def test_one_that_slept_past_its_session_writes_nothing_more(
        self, zookeeper_server: ZooKeeperServer, open_zookeeper: OpenZooKeeper, request: pytest.FixtureRequest
    ) -> None:
        connect = f"{zookeeper_server.address}/{request.node.name}"
        store = await open_zookeeper(connect)
        await store.create("/epoch")
        for session_timeout_ms in (500, 4_000, 16_000):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _BROKER, connect, str(session_timeout_ms)),
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                assert process.stdout is not None
                async with asyncio.timeout(60):
                    assert await process.stdout.readline() == b"up\n"
                    gone: asyncio.Queue[WatchEvent] = asyncio.Queue()
                    there = await store.exists("/controller", watch=gone.put_nowait)
                    if there is None:
                        continue  # a busy machine did not let it keep a short session
                    process.send_signal(signal.SIGSTOP)
                    assert await gone.get() == WatchEvent(DELETED, "/controller")
                    await store.create("/controller", b"new", ephemeral=True)
                    await store.set("/epoch", b"new")
                    process.send_signal(signal.SIGCONT)
                    while await process.stdout.readline() != b"SessionExpiredError\n":
                        pass
                break
            finally:
                process.kill()
                await process.wait()
        assert there is not None
        assert (await store.get("/epoch")).data == b"new"


async def retried(write: Callable[[], Awaitable[object]]) -> None:
    """Done, though it may take some attempts, one of which has an unknown outcome."""
    async with asyncio.timeout(60):
        while True:
            try:
                await write()
            except ConnectionLossError:
                await asyncio.sleep(0.05)
            except NodeExistsError:
                return
            else:
                return


def happens_meanwhile(condition: Callable[[], object], *, within_s: float) -> bool:
    """On kazoo's thread, while the loop hears nothing of it."""
    deadline = time.monotonic() + within_s
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return bool(holds)


async def close_s(
    gate: Gate, open_zookeeper: OpenZooKeeper, lose: Callable[[ZooKeeperStore], Awaitable[None]]
) -> float:
    """How long it takes to close a store without its server."""
    store = await open_zookeeper(gate.address, session_timeout_ms=9000)
    await lose(store)
    start = time.monotonic()
    await store.close()
    return time.monotonic() - start


async def shut_off(store: ZooKeeperStore, server: ZooKeeperServer, gate: Gate) -> None:
    """Shut the gate, and end the session behind it."""
    assert store._session is not None and store._session.credentials is not None
    credentials = store._session.credentials
    await gate.shut()
    await asyncio.to_thread(server.end_session, *credentials)


async def expire(store: ZooKeeperStore, server: ZooKeeperServer, gate: Gate, states: States) -> None:
    await shut_off(store, server, gate)
    await gate.open()
    await states.until(EXPIRED)
