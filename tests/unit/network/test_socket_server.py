"""The server on real loopback sockets, on both event loops."""

from __future__ import annotations

import asyncio
import logging
import random
import socket

import pytest

from minikafka.config.listeners import Listener
from minikafka.errors import StartError
from minikafka.network import socket_server as socket_server_module
from minikafka.network.connection import Connection, PendingResponse, Result
from minikafka.network.frame_reader import LARGE_FRAMES_MAX
from minikafka.network.limits import NO_LIMIT
from minikafka.network.socket_server import SocketServer, SocketServerConfig
from minikafka.security.acl import KafkaPrincipal
from minikafka.types import Buffer
from tests.unit.network.support import DEADLINE_SECONDS, Client, echo, framed, serving, until


async def test_a_megabyte_cut_anywhere_and_a_thousand_small_requests() -> None:
    async with serving() as server:
        client = await server.connect()
        large = random.Random(1).randbytes(1 << 20)
        client.writer.write(framed(large)[:7])
        await client.writer.drain()
        client.writer.write(framed(large)[7:500_000])
        await client.writer.drain()
        client.writer.write(framed(large)[500_000:])
        assert await client.receive() == large
        client.send(*[b"%d" % index for index in range(1000)])
        assert [await client.receive() for _ in range(1000)] == [b"%d" % index for index in range(1000)]


async def test_frames_of_all_sizes_ahead_of_their_answers() -> None:
    """Large ones, which are received where they stay, between small ones, on several connections."""
    sizes = random.Random(5)

    async def talk(client: Client, contents: list[bytes]) -> None:
        client.send(*contents)
        for content in contents:
            assert await client.receive() == content

    async with serving() as server:
        for _ in range(3):
            async with asyncio.TaskGroup() as talks:
                for _ in range(LARGE_FRAMES_MAX + 2):
                    contents = [
                        sizes.randbytes(sizes.choice((0, 40, 100_000, 200_000, 1_000_000, 1_200_000)))
                        for _ in range(8)
                    ]
                    talks.create_task(talk(await server.connect(), contents))


async def test_a_sender_of_single_bytes_is_served() -> None:
    async with serving() as server:
        client = await server.connect()
        client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = framed(b"one") + framed(b"") + framed(b"two")
        for position in range(len(stream)):
            client.writer.write(stream[position : position + 1])
            await client.writer.drain()
            await asyncio.sleep(0)
        assert [await client.receive() for _ in range(3)] == [b"one", b"", b"two"]


async def test_responses_keep_their_order_when_work_ends_in_another() -> None:
    parked: list[PendingResponse] = []
    all_parked = asyncio.Event()

    def park(connection: Connection, frame: Buffer) -> Result:
        parked.append(PendingResponse())
        if len(parked) == 20:
            all_parked.set()
        return parked[-1]

    async with serving(park) as server:
        client = await server.connect()
        client.send(*[b"x"] * 20)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await all_parked.wait()
        order = list(enumerate(parked))
        random.Random(2).shuffle(order)
        for index, pending in order:
            pending.complete((framed(b"%d" % index),))
        assert [await client.receive() for _ in range(20)] == [b"%d" % index for index in range(20)]


async def test_a_reader_that_stops_reading_costs_bounded_memory_and_gets_everything_later() -> None:
    response = framed(b"r" * 100_000)
    handled = 0

    def big(connection: Connection, frame: Buffer) -> Result:
        nonlocal handled
        handled += 1
        return (response,)

    async with serving(big, socket_send_buffer_bytes=65536) as server:
        client = await server.connect(receive_buffer_bytes=65536)
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        (connection,) = await connections(server.server, 1)
        client.send(*[b"x"] * 500)
        await until(lambda: connection._unsent_bytes > 0)
        handled_when_stopped = handled
        other = await server.connect()
        for _ in range(20):  # round trips give the loop every chance to go on
            await other.ask(b"x")
        assert handled == handled_when_stopped + 20
        assert handled_when_stopped < 50
        assert 0 < server.server.budget.used_bytes < 50 * len(response)
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(500):
            assert len(await client.receive()) == 100_000
        assert handled == 520


async def test_a_giant_size_closes_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(socket_request_max_bytes=1000) as server:
        bad, good = await server.connect(), await server.connect()
        local = bad.local
        bad.writer.write((2**31 - 1).to_bytes(4, "big") + b"x" * 100)
        assert await bad.is_closed_by_peer()
        assert await good.ask(b"still here") == b"still here"
    assert local in caplog.text
    assert "2147483647 bytes" in caplog.text


async def test_a_bug_in_a_handler_closes_one_connection_and_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def buggy(connection: Connection, frame: Buffer) -> Result:
        return (framed(b"%d" % (1 // len(frame))),)

    async with serving(buggy) as server:
        victim, other = await server.connect(), await server.connect()
        victim.send(b"a", b"", b"a")
        assert await victim.receive() == b"1", "what came before it is answered"
        assert await victim.is_closed_by_peer()
        assert await other.ask(b"a") == b"1"
        assert await (await server.connect()).ask(b"a") == b"1"
    assert "ZeroDivisionError" in caplog.text


async def test_random_bytes_close_their_connections_and_nothing_else() -> None:
    rng = random.Random(3)
    async with serving(socket_request_max_bytes=10_000) as server:
        good = await server.connect()
        for _ in range(30):
            bad = await server.connect()
            bad.writer.write(b"\xff" + rng.randbytes(rng.randrange(3, 3000)))
            assert await bad.is_closed_by_peer()
            assert await good.ask(b"here") == b"here"


async def test_idle_connections_are_closed_and_busy_ones_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    parked: list[PendingResponse] = []

    def park(connection: Connection, frame: Buffer) -> Result:
        parked.append(PendingResponse())
        return parked[-1]

    async with serving(park, connections_max_idle_ms=100) as server:
        idle, waiting = await server.connect(), await server.connect()
        waiting.send(b"x")
        assert await idle.is_closed_by_peer()
        assert "connections.max.idle.ms" in caplog.text
        assert len(server.server.connections) == 1
        parked[0].complete((framed(b"worth the wait"),))
        assert await waiting.receive() == b"worth the wait"
        assert await waiting.is_closed_by_peer()


async def test_connections_over_a_limit_are_closed_unread(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(max_connections_per_ip=5, max_connections_per_ip_overrides={"localhost": 2}) as server:
        first, second = await server.connect(), await server.connect()
        assert await first.ask(b"a") == await second.ask(b"a") == b"a"
        third = await server.connect()
        third.send(b"a")
        assert await third.is_closed_by_peer()
        assert "refusing a connection from 127.0.0.1" in caplog.text
        assert "max.connections.per.ip" in caplog.text
        await first.close()
        await connections(server.server, 1)
        assert await (await server.connect()).ask(b"a") == b"a"


async def test_max_connections_counts_all() -> None:
    async with serving(max_connections=1) as server:
        first = await server.connect()
        assert await first.ask(b"a") == b"a"
        assert await (await server.connect()).is_closed_by_peer()
        assert await first.ask(b"b") == b"b"


async def test_hundreds_of_connections_at_once() -> None:
    async with serving(socket_listen_backlog_size=500) as server:
        clients = [await server.connect() for _ in range(300)]
        for index, client in enumerate(clients):
            client.send(b"%d" % index)
        answers = await asyncio.gather(*(client.receive() for client in clients))
        assert answers == [b"%d" % index for index in range(300)]
        assert len({connection.id for connection in server.server.connections}) == 300


async def test_a_connection_knows_who_it_is() -> None:
    seen: list[Connection] = []

    def look(connection: Connection, frame: Buffer) -> Result:
        seen.append(connection)
        return echo(connection, frame)

    async with serving(look) as server:
        client = await server.connect()
        await client.ask(b"a")
        (connection,) = seen
        assert connection.id == f"127.0.0.1:{server.port}-{client.local}-0"
        assert connection.listener_name == "TEST"
        assert connection.peer == client.local
        assert (connection.client_software_name, connection.client_software_version) == ("unknown", "unknown")
        transport = connection._transport
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


# Listeners


@pytest.mark.parametrize("host", ["::", ""])
async def test_the_wildcard_listens_for_both_families_on_one_port(host: str) -> None:
    seen: list[str] = []

    def look(connection: Connection, frame: Buffer) -> Result:
        seen.append(connection.peer_host)
        return echo(connection, frame)

    async with serving(look, host=host) as server:
        for address in ("127.0.0.1", "::1"):
            assert await (await server.connect(address)).ask(b"a") == b"a"
        assert seen == ["127.0.0.1", "::1"]


async def test_a_name_has_one_port_on_all_its_addresses() -> None:
    async with serving(host="localhost") as server:
        found = await asyncio.get_running_loop().getaddrinfo("localhost", None, type=socket.SOCK_STREAM)
        for address in {str(entry[4][0]) for entry in found}:
            assert await (await server.connect(address)).ask(b"a") == b"a"


async def test_a_taken_port_is_one_line_and_leaves_nothing_bound() -> None:
    async with serving() as server:
        free, taken = Listener("FREE", "127.0.0.1", 0), Listener("TAKEN", "127.0.0.1", server.port)
        loser = SocketServer([free, taken], echo)
        with pytest.raises(StartError) as caught:
            await loser.start()
        assert str(caught.value) == (
            f"cannot listen on 127.0.0.1:{server.port} (TAKEN): Address already in use"
        )
        retry = SocketServer([Listener("FREE", "127.0.0.1", loser.bound_port("FREE"))], echo)
        await retry.start()
        await retry.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_an_address_that_is_not_ours_is_one_line(host: str) -> None:
    with pytest.raises(StartError, match=f"cannot listen on .*{host}") as caught:
        await SocketServer([Listener("TEST", host, 0)], echo).start()
    assert "\n" not in str(caught.value)


async def test_an_override_for_an_unknown_host_is_one_line() -> None:
    with pytest.raises(StartError, match=r"max.connections.per.ip.overrides: the host 'nowhere.invalid'"):
        async with serving(max_connections_per_ip_overrides={"nowhere.invalid": 1}):
            pass


# Stopping


async def test_stop_accepting_leaves_open_connections_alone() -> None:
    async with serving() as server:
        client = await server.connect()
        assert await client.ask(b"a") == b"a"
        server.server.stop_accepting()
        assert await client.ask(b"b") == b"b"
        with pytest.raises(ConnectionError):
            await server.connect()


async def test_close_lets_answers_leave_and_tells_parked_requests() -> None:
    cancelled = asyncio.Event()
    big = framed(b"x" * 3_000_000)

    def half(connection: Connection, frame: Buffer) -> Result:
        return PendingResponse(on_closed=cancelled.set) if bytes(frame) == b"park" else (big,)

    async with serving(half) as server:
        client, parked = await server.connect(), await server.connect()
        parked.send(b"park")
        client.send(b"a")
        await connections(server.server, 2)
        received = asyncio.create_task(client.receive())
        await until(lambda: any(connection._unsent_bytes for connection in server.server.connections))
        await server.server.close(drain_timeout_ms=int(DEADLINE_SECONDS * 1000))
        assert len(await received) == 3_000_000
        assert cancelled.is_set()
        assert await parked.is_closed_by_peer()
        assert not server.server.connections


async def test_close_does_not_wait_for_a_peer_that_takes_nothing() -> None:
    big = framed(b"x" * 10_000_000)
    async with serving(lambda connection, frame: (big,)) as server:
        client = await server.connect(receive_buffer_bytes=4096)
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.send(b"a")
        (connection,) = await connections(server.server, 1)
        await until(lambda: connection._unsent_bytes > 0)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await server.server.close(drain_timeout_ms=50)
        assert not server.server.connections


async def test_a_client_that_leaves_early_harms_no_other() -> None:
    parked: list[PendingResponse] = []
    told = asyncio.Event()

    def park(connection: Connection, frame: Buffer) -> Result:
        parked.append(PendingResponse(on_closed=told.set))
        return parked[-1]

    async with serving(park) as server:
        client = await server.connect()
        client.send(b"a", b"b")
        await client.writer.drain()
        await until(lambda: len(parked) == 2)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await client.close()
            await told.wait()
        parked[0].complete((framed(b"nobody"),))


async def test_giants_that_stall_hold_no_other_up_and_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_server_module, "STALLED_SECONDS_MAX", 0.05)
    monkeypatch.setattr(socket_server_module, "SWEEP_SECONDS_MAX", 0.02)
    async with serving(queued_max_request_bytes=100_000) as server:
        giants = [await server.connect() for _ in range(6)]
        for giant in giants:
            giant.writer.write(framed(b"x" * 90_000)[:40_000])
        await until(lambda: server.server.budget.waiting == 5)
        small: Client = await server.connect()
        assert await small.ask(b"a" * 5_000) == b"a" * 5_000
        for giant in giants[:5]:  # the last one is alone, and no other waits for what it has
            assert await giant.is_closed_by_peer()


async def connections(server: SocketServer, count: int) -> list[Connection]:
    """Waits until the server has that many."""
    await until(lambda: len(server.connections) == count)
    return list(server.connections)


async def test_a_brokers_connection_takes_the_place_of_the_client_that_was_silent_longest() -> None:
    listeners = [Listener("CLIENTS", "127.0.0.1", 0), Listener("BROKERS", "127.0.0.1", 0)]
    config = SocketServerConfig(max_connections=2, protected_listener="BROKERS")
    server = SocketServer(listeners, echo, config)
    await server.start()

    async def connect(listener: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", server.bound_port(listener))

    try:
        clients = [await connect("CLIENTS") for _ in range(2)]
        await until(lambda: len(server.connections) == 2)
        first, second = server.connections
        first._idleness.is_active = second._idleness.is_active = False
        second._idleness._since -= 60
        brokers_reader, brokers_writer = await connect("BROKERS")
        brokers_writer.write(framed(b"hello"))
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await brokers_reader.readexactly(9) == framed(b"hello")
            assert await clients[1][0].read() == b"", "the one that was silent"
        assert next(iter(server.connections)) is first and len(server.connections) == 2
        assert (server.limits.count, server.limits.excess) == (2, 0)
    finally:
        for _, writer in (*clients, (brokers_reader, brokers_writer)):
            writer.close()
        await server.close()


async def test_sessions_of_a_user_are_closed_but_for_the_one_that_asks() -> None:
    async with serving() as server:
        clients = [await server.connect() for _ in range(3)]
        for client in clients:
            client.send(b"x")
            await client.receive()
        ann, ann_asks, bob = server.server.connections
        ann.principal = ann_asks.principal = KafkaPrincipal("User", "ann")
        bob.principal = KafkaPrincipal("User", "bob")
        assert server.server.close_sessions("ann", but=ann_asks) == 1
        await until(lambda: list(server.server.connections) == [ann_asks, bob])


async def test_a_connection_that_ends_while_it_is_delayed_leaves_nothing_behind() -> None:
    config = SocketServerConfig(max_connection_creation_rate=1, quota_window_seconds=1)
    server = SocketServer([Listener("PLAINTEXT", "127.0.0.1", 0)], echo, config, now_ns=lambda: 0)
    await server.start()
    try:
        made = [await asyncio.open_connection("127.0.0.1", server.bound_port("PLAINTEXT")) for _ in range(2)]
        await until(lambda: server.limits.delayed == 1)
        made[1][1].close()
        made[1][1].transport.abort()
        server.limits.max_connection_creation_rate = NO_LIMIT
        await server.close()
        assert (server.limits.delayed, server.limits.count, len(server._delays)) == (0, 0, 0)
    finally:
        for _, writer in made:
            writer.close()
