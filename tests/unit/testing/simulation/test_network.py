"""The network between simulated hosts, seen through asyncio's own streams and protocols."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from minikafka.testing.simulation.loop import Process
from minikafka.testing.simulation.simulation import Simulation
from minikafka.testing.simulation.transport import HIGH_WATER_BYTES, WINDOW_BYTES

PORT = 7000


class Recorder(asyncio.Protocol):
    """Notes what a connection brings, and when."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.chunks = 0
        self.moments: list[float] = []
        self.lost: Exception | str | None = "not lost"
        self.events: list[str] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.chunks += 1
        self.moments.append(asyncio.get_running_loop().time())

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.lost == "not lost", "told once"
        self.lost = exc

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Pair:
    """A connection from the scenario's host to ``server``, and both of its ends."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.process: Process = sim.boot("server")
        self.accepted: list[Recorder] = []

    async def listen(self) -> None:
        async def serve() -> None:
            await asyncio.get_running_loop().create_server(self._accept, "server", PORT)

        await self.process.run(serve())

    def _accept(self) -> Recorder:
        self.accepted.append(Recorder())
        return self.accepted[-1]

    async def connect(self) -> tuple[Recorder, Recorder]:
        """The client's and the server's end."""
        before = len(self.accepted)
        _, client = await asyncio.get_running_loop().create_connection(Recorder, "server", PORT)
        await asyncio.sleep(0.002)  # the third message of the handshake is under way
        assert len(self.accepted) == before + 1
        return client, self.accepted[-1]


def story(scenario: Callable[[Simulation, Pair], Coroutine[Any, Any, None]], *, seed: int = 1) -> None:
    async def run(sim: Simulation) -> None:
        pair = Pair(sim)
        await pair.listen()
        await scenario(sim, pair)

    Simulation(seed).run(run)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_and_once_in_pieces_of_their_own(seed: int) -> None:
    async def scenario(sim: Simulation, pair: Pair) -> None:
        client, server = await pair.connect()
        sent = bytearray()
        for number in range(300):
            piece = b"%d," % number * (1 + number % 7)
            client.transport.write(memoryview(piece))
            sent += piece
            await asyncio.sleep(0.0002)
        await asyncio.sleep(1)
        assert server.data == sent
        assert server.chunks > 300, "some in several fragments"

    story(scenario, seed=seed)


def test_a_protocol_may_take_what_comes_where_it_has_room() -> None:
    """As a connection does for a large frame: 1,000 bytes here, and the rest by the protocol before."""

    class Room(asyncio.BufferedProtocol):
        def __init__(self, server: Recorder) -> None:
            self.server = server
            self.room = bytearray(1_000)
            self.filled = 0

        def get_buffer(self, sizehint: int) -> memoryview:
            return memoryview(self.room)[self.filled :]

        def buffer_updated(self, nbytes: int) -> None:
            self.filled += nbytes
            if self.filled == len(self.room):
                self.server.transport.set_protocol(self.server)

    async def scenario(sim: Simulation, pair: Pair) -> None:
        client, server = await pair.connect()
        room = Room(server)
        server.transport.set_protocol(room)
        sent = b"".join(b"%d," % number for number in range(1_000))
        client.transport.write(sent[:300])
        await asyncio.sleep(1)
        client.transport.write(sent[300:])
        await asyncio.sleep(1)
        assert room.room == sent[:1_000]
        assert server.data == sent[1_000:]

    story(scenario)


def test_streams_work_and_names_are_those_of_the_hosts() -> None:
    async def scenario(sim: Simulation) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = await reader.readline()
            writer.write(b"you said " + line)
            writer.close()

        async def serve() -> None:
            server = await asyncio.start_server(answer, None, PORT)
            assert server.sockets[0].getsockname() == ("0.0.0.0", PORT)

        process = sim.boot("server")
        await process.run(serve())
        reader, writer = await asyncio.open_connection("server", PORT)
        assert writer.get_extra_info("peername") == (sim.network.host("server").address, PORT)
        assert writer.get_extra_info("sockname")[0] == sim.network.host("client").address
        writer.write(b"hello\n")
        assert await reader.read() == b"you said hello\n"
        writer.close()
        await writer.wait_closed()

    Simulation(1).run(scenario)


def test_no_listener_an_unknown_host_and_a_port_that_is_taken() -> None:
    async def scenario(sim: Simulation, pair: Pair) -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, "server", PORT + 1)
        assert loop.time() > 0, "it took the way there and back"
        with pytest.raises(socket.gaierror, match="nowhere"):
            await loop.create_connection(Recorder, "nowhere", PORT)
        with pytest.raises(OSError, match="in use"):
            await pair.listen()
        with pytest.raises(OSError, match="assign"):
            await loop.create_server(Recorder, "server", PORT + 1)
        taken = await loop.create_server(Recorder, "127.0.0.1", 0)
        taken.close()
        await taken.wait_closed()

    story(scenario)


def test_a_close_is_an_end_of_data_at_the_other_end() -> None:
    async def scenario(sim: Simulation, pair: Pair) -> None:
        client, server = await pair.connect()
        client.transport.write(b"last words")
        client.transport.close()
        client.transport.write(b"too late")
        await asyncio.sleep(1)
        assert (server.data, server.lost, client.lost) == (b"last words", None, None)

    story(scenario)


def test_writing_to_a_closed_end_resets_the_connection() -> None:
    class Stubborn(Recorder):
        def eof_received(self) -> bool:
            return True  # goes on, as asyncio's streams do

    async def scenario(sim: Simulation, pair: Pair) -> None:
        _, client = await asyncio.get_running_loop().create_connection(Stubborn, "server", PORT)
        await asyncio.sleep(1)
        pair.accepted[0].transport.abort()
        await asyncio.sleep(1)
        assert client.lost == "not lost"
        client.transport.write(b"hello?")
        await asyncio.sleep(1)
        assert isinstance(client.lost, ConnectionResetError)

    story(scenario)


def test_a_connection_that_is_cut_in_a_frame_brings_a_part_of_it() -> None:
    async def scenario(sim: Simulation, pair: Pair) -> None:
        client, server = await pair.connect()
        client.transport.write(b"whole")
        await asyncio.sleep(1)
        sim.network.cut_in_frame("server")
        client.transport.write(b"0123456789")
        await asyncio.sleep(1)
        assert server.data == b"whole01234"
        assert isinstance(client.lost, ConnectionResetError)
        assert isinstance(server.lost, ConnectionResetError)

    story(scenario)


class TestLinks:
    def test_a_cut_of_one_direction_leaves_the_other(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            sim.network.cut("client", "server")
            client.transport.write(b"lost for now")
            server.transport.write(b"you hear me")
            await asyncio.sleep(60)
            assert (server.data, client.data) == (b"", b"you hear me")
            sim.network.heal("client", "server")
            client.transport.write(b", and more")
            await asyncio.sleep(1)
            assert server.data == b"lost for now, and more"

        story(scenario)

    def test_no_connection_is_made_over_a_cut_until_it_heals(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            for source, target in (("client", "server"), ("server", "client")):
                sim.network.cut(source, target)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(10):
                        await pair.connect()
                sim.loop.call_later(5, sim.network.heal, source, target)
                async with asyncio.timeout(10):
                    await pair.connect()

        story(scenario)

    def test_or_is_told_no_at_once(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            sim.network.cut("client", "server", refuse=True)
            with pytest.raises(ConnectionRefusedError):
                await pair.connect()

        story(scenario)

    def test_an_unanswered_attempt_ends_by_itself(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            sim.network.cut("client", "server")
            with pytest.raises(TimeoutError, match="Connect call failed"):
                await pair.connect()
            assert sim.loop.time() > 100

        story(scenario)

    def test_a_delay_is_one_ways(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            sim.network.delay("client", "server", 500)
            start = sim.loop.time()
            client.transport.write(b"slow")
            server.transport.write(b"fast")
            await asyncio.sleep(1)
            assert client.moments[0] - start < 0.002
            assert server.moments[0] - start == pytest.approx(0.5)
            sim.network.delay("client", "server", 1)
            client.transport.write(b"!")
            await asyncio.sleep(1)
            assert server.data == b"slow!"

        story(scenario)

    def test_what_becomes_faster_does_not_overtake(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            sim.network.delay("client", "server", 500)
            client.transport.write(b"first ")
            sim.network.delay("client", "server", 1)
            client.transport.write(b"second")
            await asyncio.sleep(1)
            assert server.data == b"first second" and server.moments[0] >= 0.5

        story(scenario)

    def test_a_dropped_connection_is_lost_at_both_ends(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            sim.network.drop("server", "client")
            await asyncio.sleep(0.001)
            assert isinstance(client.lost, ConnectionResetError)
            assert isinstance(server.lost, ConnectionResetError)
            await pair.connect()

        story(scenario)

    def test_an_isolated_host_is_cut_off_from_all_and_comes_back(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            sim.network.isolate("server")
            client.transport.write(b"1")
            server.transport.write(b"2")
            await asyncio.sleep(5)
            assert not client.data and not server.data
            sim.network.heal_all()
            await asyncio.sleep(1)
            assert (client.data, server.data) == (b"2", b"1")

        story(scenario)

    def test_an_isolated_host_is_so_for_hosts_to_come_and_until_both_are_back(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            sim.network.isolate("server")
            late = sim.boot("late")
            sim.network.isolate("late")
            for name in ("server", "late"):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(5):
                        await late.run(pair.connect())
                sim.network.rejoin(name)
            await late.run(pair.connect())

        story(scenario)

    def test_data_that_is_never_acknowledged_breaks_the_connection(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            sim.network.cut("client", "server")
            client.transport.write(b"anybody?")
            server.transport.write(b"the answer to this cannot come")
            await asyncio.sleep(900)
            assert client.lost == server.lost == "not lost"
            await asyncio.sleep(100)
            assert isinstance(client.lost, TimeoutError) and isinstance(server.lost, TimeoutError)

        story(scenario)


class TestBackpressure:
    def test_a_peer_that_does_not_read_stops_the_writer_and_reading_starts_it_again(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            server.transport.pause_reading()
            sent = 0
            while not client.events:
                client.transport.write(bytes(10_000))
                sent += 10_000
                await asyncio.sleep(0.001)
            assert WINDOW_BYTES + HIGH_WATER_BYTES < sent < WINDOW_BYTES + HIGH_WATER_BYTES + 20_000
            assert client.transport.get_write_buffer_size() == sent - WINDOW_BYTES
            assert not server.data
            server.transport.resume_reading()
            await asyncio.sleep(1)
            assert client.events == ["pause", "resume"]
            assert len(server.data) == sent and client.transport.get_write_buffer_size() == 0

        story(scenario)

    def test_a_close_waits_for_what_is_written(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            server.transport.pause_reading()
            client.transport.writelines([bytes(WINDOW_BYTES), b"x" * WINDOW_BYTES])
            client.transport.close()
            await asyncio.sleep(1)
            assert client.lost == "not lost" and client.transport.is_closing()
            server.transport.resume_reading()
            await asyncio.sleep(1)
            assert client.lost is None and len(server.data) == 2 * WINDOW_BYTES

        story(scenario)

    def test_acknowledgements_that_cannot_come_fill_the_window_too(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            sim.network.cut("server", "client")
            for _ in range(100):
                client.transport.write(bytes(10_000))
                await asyncio.sleep(0.01)
            assert client.events == ["pause"] and len(server.data) == WINDOW_BYTES
            sim.network.heal("server", "client")
            await asyncio.sleep(1)
            assert len(server.data) == 1_000_000 and client.events[-1] == "resume"

        story(scenario)


class TestDeath:
    def test_a_killed_process_leaves_an_end_of_data(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            server.transport.write(b"I was about to")
            sim.kill(pair.process)
            await asyncio.sleep(1)
            assert (client.data, client.lost) == (b"I was about to", None)
            assert server.lost == "not lost", "the dead hear nothing"
            with pytest.raises(ConnectionRefusedError):
                await pair.connect()

        story(scenario)

    def test_or_a_reset_when_it_had_not_read_everything(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            server.transport.pause_reading()
            client.transport.write(b"unread")
            await asyncio.sleep(1)
            sim.kill(pair.process)
            await asyncio.sleep(1)
            assert isinstance(client.lost, ConnectionResetError)

        story(scenario)

    def test_a_machine_without_power_says_nothing_until_it_is_back(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, _ = await pair.connect()
            pair.process.kill()
            sim.network.power_lost(pair.process)
            client.transport.write(b"are you there?")
            await asyncio.sleep(100)
            assert client.lost == "not lost"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(10):
                    await pair.connect()
            pair.process = sim.boot("server")
            sim.network.power_restored(pair.process.host)
            await asyncio.sleep(1)
            assert isinstance(client.lost, ConnectionResetError), "it knows of no connection"
            await pair.listen()
            await pair.connect()

        story(scenario)

    def test_what_was_under_way_to_it_is_sent_again_and_answered_with_a_reset(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            client, server = await pair.connect()
            sim.network.delay("client", "server", 50)
            client.transport.write(b"arrives while it is dark")
            await asyncio.sleep(0.02)
            client.transport.write(b"arrives when it is back")
            pair.process.kill()
            sim.network.power_lost(pair.process)
            await asyncio.sleep(0.04)
            sim.boot("server")
            sim.network.power_restored(pair.process.host)
            await asyncio.sleep(1)
            assert isinstance(client.lost, ConnectionResetError) and not server.data

        story(scenario)

    def test_a_paused_process_is_connected_to_but_does_not_answer(self) -> None:
        async def scenario(sim: Simulation, pair: Pair) -> None:
            pair.process.pause()
            _, client = await asyncio.get_running_loop().create_connection(Recorder, "server", PORT)
            client.transport.write(b"one ")
            await asyncio.sleep(100)
            client.transport.write(b"two")
            assert not pair.accepted
            pair.process.resume()
            await asyncio.sleep(1)
            assert pair.accepted[0].data == b"one two"

        story(scenario)
