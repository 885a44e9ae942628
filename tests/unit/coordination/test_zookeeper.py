"""The ZooKeeper engine itself: addresses, chroots, sizes, closing."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from kazoo.client import KazooClient

from minikafka.coordination.store import (
    DATA_BYTES_MAX,
    MULTI_BYTES_MAX,
    ConnectionLossError,
    CreateOp,
    DeleteOp,
    EventType,
    InvalidNodeError,
    NodeExistsError,
    Op,
    SetOp,
    StoreError,
    StoreUnusableError,
    WatchEvent,
    in_multis,
    op_bytes,
)
from minikafka.coordination.zookeeper_session import REQUESTS_IN_FLIGHT_MAX
from minikafka.errors import StartError
from tests.support.gate import Gate
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer
from tests.unit.coordination.conftest import OpenZooKeeper

_numbers = itertools.count()


@pytest.fixture
def connect(zookeeper_server: ZooKeeperServer) -> str:
    """A part of the server's tree of its own."""
    return f"{zookeeper_server.address}/test_zookeeper/{next(_numbers)}"


async def test_a_node_without_data_has_none_at_all_which_kafka_tells_from_no_bytes(
    zookeeper_server: ZooKeeperServer, open_zookeeper: OpenZooKeeper
) -> None:
    """Kafka's controller takes ``/latest_producer_id_block`` of no bytes for broken JSON."""
    store = await open_zookeeper(f"{zookeeper_server.address}/empty")
    await store.create("/created")
    await store.multi(
        [CreateOp("/in-a-multi"), CreateOp("/taken", b"1"), CreateOp("/taken-in-a-multi", b"1")]
    )
    await store.set("/taken", b"")
    await store.multi([SetOp("/taken-in-a-multi", b"")])
    kazoo = KazooClient(f"{zookeeper_server.address}/empty")
    await asyncio.to_thread(kazoo.start)
    try:
        for path in ("/created", "/in-a-multi", "/taken", "/taken-in-a-multi"):
            data, _ = await asyncio.to_thread(kazoo.get, path)
            assert data is None, path
            assert (await store.get(path)).data == b""
    finally:
        await asyncio.to_thread(kazoo.stop)
        await asyncio.to_thread(kazoo.close)


class TestOpening:
    async def test_a_chroot_is_created_and_is_a_tree_of_its_own(
        self, connect: str, open_zookeeper: OpenZooKeeper
    ) -> None:
        inner = await open_zookeeper(f"{connect}/kafka/a")
        await inner.create("/topic", b"1")
        outer = await open_zookeeper(connect)
        assert await outer.children("/") == ["kafka"]
        assert (await outer.get("/kafka/a/topic")).data == b"1"
        assert await inner.children("/") == ["topic"]
        assert (await inner.create("/", b"", sequential=True)).path == "/0000000001"

    async def test_without_a_chroot_it_is_the_whole_tree(
        self, zookeeper_server: ZooKeeperServer, open_zookeeper: OpenZooKeeper
    ) -> None:
        store = await open_zookeeper(zookeeper_server.address)
        assert "zookeeper" in await store.children("/")
        with pytest.raises(NodeExistsError):
            await store.create("/")
        with pytest.raises(NodeExistsError) as raised:
            await store.multi([CreateOp("/whole"), CreateOp("/")])
        assert raised.value.operation_index == 1
        events: list[object] = []
        await store.children("/", watch=events.append)
        await store.create("/whole", ephemeral=True)
        assert [str(event) for event in events] == [
            "WatchEvent(type=<EventType.NODE_CHILDREN_CHANGED: 'NODE_CHILDREN_CHANGED'>, path='/')"
        ]

    @pytest.mark.parametrize(
        "connect",
        ["", ",", "localhost:port", "localhost:99999", "a:2181/kafka/", "a:2181//kafka", "a..b:1", "/kafka"],
    )
    async def test_what_is_no_address_is_named(self, connect: str, open_zookeeper: OpenZooKeeper) -> None:
        with pytest.raises(StoreUnusableError, match="is not host:port") as raised:
            await open_zookeeper(connect)
        assert repr(connect) in str(raised.value)
        assert isinstance(raised.value, StartError)
        assert "\n" not in str(raised.value)

    async def test_a_server_that_is_down_is_waited_for_and_then_named(
        self, open_zookeeper: OpenZooKeeper
    ) -> None:
        with pytest.raises(ConnectionLossError, match=r"within 300 ms.*refused"):
            await open_zookeeper(f"127.0.0.1:{free_port()}/kafka", connection_timeout_ms=300)

    async def test_an_unknown_name_is_named(
        self, open_zookeeper: OpenZooKeeper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unknown(*arguments: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(ConnectionLossError, match=r"zoo1: .*not known"):
            await open_zookeeper("zoo1:2181", connection_timeout_ms=300)

    async def test_a_server_of_something_else_is_no_zookeeper(self, open_zookeeper: OpenZooKeeper) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionLossError, match="does not answer within 500 ms"):
            await open_zookeeper(f"127.0.0.1:{port}", connection_timeout_ms=500)
        server.close()

    async def test_a_server_that_comes_up_in_time_is_used(
        self, zookeeper_server: ZooKeeperServer, open_zookeeper: OpenZooKeeper
    ) -> None:
        gate = Gate(zookeeper_server.port)
        await gate.open()
        await gate.shut()
        opening = asyncio.create_task(open_zookeeper(gate.address, connection_timeout_ms=20_000))
        await asyncio.sleep(0.05)  # so that some attempts fail; the test holds without
        await gate.open()
        store = await opening
        assert await store.exists("/") is not None
        await gate.shut()

    async def test_nothing_is_left_of_an_opening_that_was_cancelled(
        self, open_zookeeper: OpenZooKeeper
    ) -> None:
        opening = asyncio.create_task(open_zookeeper(f"127.0.0.1:{free_port()}"))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await no_threads_are_left()


class TestClosing:
    async def test_ephemerals_go_at_once_and_threads_too(
        self, connect: str, open_zookeeper: OpenZooKeeper
    ) -> None:
        watcher = await open_zookeeper(connect)
        store = await open_zookeeper(connect)
        await store.create("/broker", ephemeral=True)
        await store.close()
        assert await watcher.exists("/broker") is None
        await watcher.close()
        await no_threads_are_left()

    async def test_what_still_waits_is_told(self, connect: str, open_zookeeper: OpenZooKeeper) -> None:
        store = await open_zookeeper(connect)
        reads = [asyncio.create_task(store.get("/")) for _ in range(3 * REQUESTS_IN_FLIGHT_MAX)]
        await asyncio.sleep(0)
        await store.close()
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLossError}
        with pytest.raises(StoreError, match="closed"):
            await store.start_session()


class TestSizes:
    async def test_a_topic_of_1000_partitions_is_one_multi(
        self, connect: str, open_zookeeper: OpenZooKeeper
    ) -> None:
        store = await open_zookeeper(connect)
        topic = "/brokers/topics/" + "t" * 100
        await store.ensure_path(f"{topic}/partitions")
        ops: list[Op] = []
        for partition in range(1000):
            ops.append(CreateOp(f"{topic}/partitions/{partition}"))
            ops.append(CreateOp(f"{topic}/partitions/{partition}/state", b"x" * 120))
        results = await store.multi(ops)
        assert results[-1] == f"{topic}/partitions/999/state"

    @pytest.mark.parametrize("data_bytes", [0, 100, 30_000, 333_000, DATA_BYTES_MAX - 500])
    async def test_what_every_engine_takes_this_one_takes(
        self, connect: str, open_zookeeper: OpenZooKeeper, data_bytes: int
    ) -> None:
        """Also when all of it goes: many small operations, few large ones."""
        store = await open_zookeeper(connect)
        one = CreateOp("/node/", b"x" * data_bytes, sequential=True)
        await store.create("/node")
        ops = [one] * (MULTI_BYTES_MAX // op_bytes(one))
        assert MULTI_BYTES_MAX - sum(map(op_bytes, ops)) < op_bytes(one)
        paths = await store.multi(ops)
        assert (await store.get(str(paths[-1]))).stat.data_length == data_bytes
        await store.multi([DeleteOp(str(path)) for path in paths])

    async def test_a_node_of_the_largest_size_can_be_made_set_and_read(
        self, connect: str, open_zookeeper: OpenZooKeeper
    ) -> None:
        store = await open_zookeeper(connect)
        await store.create("/a", b"a" * DATA_BYTES_MAX)
        await store.set("/a", b"b" * DATA_BYTES_MAX)
        await store.multi([SetOp("/a", b"c" * DATA_BYTES_MAX)])
        assert (await store.get("/a")).data == b"c" * DATA_BYTES_MAX

    async def test_a_multi_that_the_server_would_not_take_is_refused_here(
        self, connect: str, open_zookeeper: OpenZooKeeper
    ) -> None:
        store = await open_zookeeper(connect)
        too_much: list[Op] = [CreateOp(f"/n{number}", b"x" * 500) for number in range(2000)]
        with pytest.raises(InvalidNodeError, match=r"2000 operations .* jute\.maxbuffer") as raised:
            await store.multi(too_much)
        assert raised.value.operation_index is None
        for ops in in_multis(too_much):
            await store.multi(ops)
        assert len(await store.children("/")) == 2000


async def test_a_sequential_node_may_have_no_name_in_a_multi(
    connect: str, open_zookeeper: OpenZooKeeper
) -> None:
    store = await open_zookeeper(connect)
    await store.create("/queue")
    assert await store.multi([CreateOp("/queue/", sequential=True)]) == ["/queue/0000000000"]
    assert await store.multi([CreateOp("/", sequential=True)]) == ["/0000000001"]


async def test_a_thousand_calls_at_once_leave_the_loop_free(
    connect: str, open_zookeeper: OpenZooKeeper
) -> None:
    """kazoo is woken through a socket that takes some hundred bytes; the loop must never wait for it."""
    store = await open_zookeeper(connect)
    paths = [(await store.create("/n", sequential=True)).path for _ in range(3)]
    nodes = await asyncio.gather(*(store.get(path) for path in paths * 400))
    assert len(nodes) == 1200
    session = store._session
    assert session is not None
    reads = [asyncio.create_task(store.get("/")) for _ in range(1000)]
    await asyncio.sleep(0)
    assert f"in_flight={REQUESTS_IN_FLIGHT_MAX})" in repr(session)
    await asyncio.gather(*reads)


async def test_an_event_never_overtakes_the_answer_that_set_its_watch(
    connect: str, open_zookeeper: OpenZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine lets the loop's thread stand still right after it has sent a request; until it goes on,
    the answer comes, and the event of a change after it."""
    store, other = await open_zookeeper(connect), await open_zookeeper(connect)
    await store.create("/ids")
    assert store._session is not None and other._session is not None
    kazoo, other_kazoo = store._session._client, other._session._client
    send = kazoo.get_children_async

    def send_and_stand_still(path: str, watch: object, **options: object) -> Any:
        answer = send(path, watch, **options)
        answer.wait(60)
        other_kazoo.create_async(f"{path}/3").wait(60)
        deadline = time.monotonic() + 60
        while kazoo._child_watchers.get(path):  # until kazoo has the event
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return answer

    monkeypatch.setattr(kazoo, "get_children_async", send_and_stand_still)
    told: asyncio.Queue[WatchEvent] = asyncio.Queue()
    assert await store.children("/ids", watch=told.put_nowait) == []
    async with asyncio.timeout(60):
        assert await told.get() == WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/ids")


def test_the_package_works_without_kazoo() -> None:
    """Only brokers that use ZooKeeper load it."""
    program = "import sys, minikafka.server.broker, minikafka.cli.main; sys.exit('kazoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def no_threads_are_left() -> None:
    threads = [thread for thread in threading.enumerate() if re.search("zookeeper|zk_loop", thread.name)]
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
        assert not thread.is_alive(), thread
