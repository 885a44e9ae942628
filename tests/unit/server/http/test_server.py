"""The HTTP server answers GET and HEAD, refuses other methods, and is not put out by any client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from minikafka.errors import StartError
from minikafka.server.http import server as http_server
from minikafka.server.http.server import HttpRequest, HttpResponse, HttpServer
from minikafka.server.runtime.event_loop import Supervisor
from tests.unit.server.http_client import ask, read_answer, say


class Served:
    """A server with some pages, listening."""

    def __init__(self, connections_max: int) -> None:
        self.supervisor = Supervisor()
        self.server = HttpServer(supervisor=self.supervisor, connections_max=connections_max)
        self.held = asyncio.Event()
        self.is_asked = asyncio.Event()

        async def echo(request: HttpRequest) -> HttpResponse:
            return HttpResponse.text(f"{request.method} {request.path} {sorted(request.query.items())}")

        async def broken(request: HttpRequest) -> HttpResponse:
            raise RuntimeError("this is a test")

        async def slow(request: HttpRequest) -> HttpResponse:
            self.is_asked.set()
            await self.held.wait()
            return HttpResponse.text("at last")

        for path, page in (("/echo", echo), ("/broken", broken), ("/slow", slow)):
            self.server.add(path, page)

    @property
    def address(self) -> tuple[str, int]:
        assert self.server.address is not None
        return self.server.address


@pytest.fixture
def connections_max() -> int:
    """A test that wants another bound parametrizes it."""
    return http_server.CONNECTIONS_MAX


@pytest.fixture
async def served(connections_max: int) -> AsyncIterator[Served]:
    made = Served(connections_max)
    await made.server.start("127.0.0.1", 0)
    yield made
    await made.server.close()
    await made.supervisor.stop()


async def test_a_page_gets_its_path_and_its_query(served: Served) -> None:
    answer = await ask(served.address, "/echo?topic=a%20b&n=1&n=2")
    assert (answer.status, answer.body) == (200, b"GET /echo [('n', '2'), ('topic', 'a b')]\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_head_is_the_answer_without_its_body(served: Served) -> None:
    whole, head = await ask(served.address, "/echo"), await ask(served.address, "/echo", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) == len(whole.body) + len("HEAD") - len("GET")


async def test_an_unknown_page_is_404_and_names_those_that_there_are(served: Served) -> None:
    answer = await ask(served.address, "/nowhere")
    assert (answer.status, answer.body) == (404, b"no such page; there are: /echo /broken /slow\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
async def test_only_reading_is_allowed(served: Served, method: str) -> None:
    answer = await ask(served.address, "/echo", method=method, body=b"x")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_a_page_that_fails_is_a_500_and_the_next_request_is_served(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await ask(served.address, "/broken")).status == 500
    assert "the page /broken failed" in caplog.text
    assert (await ask(served.address, "/echo")).status == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),  # no host
        (b"GET http://[ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"GET /" + b"x" * 30_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 431),
        (b"GET /echo HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 5_000 + b"\r\n", 431),
    ],
    ids=["another protocol", "no host", "no address", "a long path", "many headers"],
)
async def test_what_is_no_request_or_too_much_is_refused(served: Served, data: bytes, status: int) -> None:
    answer = await say(served.address, data)
    assert (answer.status, answer.headers["connection"]) == (status, "close")


async def test_a_large_body_is_not_read_to_its_end(served: Served) -> None:
    reader, writer = await asyncio.open_connection(*served.address)
    writer.write(
        b"GET /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000000\r\n\r\n" + b"x" * 20_000
    )
    answer = await read_answer(reader)
    assert answer.headers["connection"] == "close"
    writer.close()
    await writer.wait_closed()


async def test_a_connection_serves_one_request_after_the_other(served: Served) -> None:
    reader, writer = await asyncio.open_connection(*served.address)
    for _ in range(2):
        writer.write(
            b"GET /echo HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2
        )  # the second comes before the answer
        assert (await read_answer(reader)).status == 200
        assert (await read_answer(reader)).status == 200
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("connections_max", [4])
async def test_connections_that_are_held_open_give_way_to_new_ones(served: Served) -> None:
    """Some never asked, some have asked before, some are in the middle of a request, some do not read."""
    whole = b"GET /echo HTTP/1.1\r\nhost: localhost\r\n\r\n"
    held = []
    for number in range(20):
        reader, writer = await asyncio.open_connection(*served.address)
        writer.write((b"", whole, b"GET /echo HT", whole * 100)[number % 4])
        if number % 4 == 1:
            await read_answer(reader)
        held.append((reader, writer))
        assert (await ask(served.address, "/echo")).status == 200
        assert len(served.server._tasks) <= 4
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionResetError):
            assert await held[0][0].read() == b""
    for _, writer in held:
        writer.close()
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            await writer.wait_closed()


@pytest.mark.parametrize("connections_max", [2])
async def test_who_is_being_answered_gives_way_last(served: Served) -> None:
    asking = asyncio.create_task(ask(served.address, "/slow"))
    await served.is_asked.wait()
    silent = [await asyncio.open_connection(*served.address) for _ in range(3)]
    assert (await ask(served.address, "/echo")).status == 200
    served.held.set()
    assert (await asking).status == 200
    for _, writer in silent:
        writer.close()
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            await writer.wait_closed()


async def test_who_asks_nothing_is_let_go(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.01)
    reader, writer = await asyncio.open_connection(*served.address)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()


async def test_a_large_page_leaves_in_pieces(served: Served) -> None:
    pieces = [bytes([number]) * 50_000 for number in range(100)]
    turns = 0

    async def large(request: HttpRequest) -> HttpResponse:
        return HttpResponse(pieces)

    def count() -> None:
        nonlocal turns
        turns += 1
        if not asking.done():
            asyncio.get_running_loop().call_soon(count)

    served.server.add("/large", large)
    asking = asyncio.create_task(ask(served.address, "/large"))
    count()
    assert (await asking).body == b"".join(pieces)
    assert turns >= 50, "the loop turned between any two writes"


async def test_who_does_not_finish_a_request_in_time_is_let_go(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.01)
    reader, writer = await asyncio.open_connection(*served.address)
    writer.write(b"GET /echo HT")
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_closing_ends_pages_under_way_and_frees_the_port(served: Served) -> None:
    host, port = served.address
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await served.is_asked.wait()
    async with asyncio.timeout(60):
        await served.server.close()
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert served.server.address is None
    again = HttpServer(supervisor=served.supervisor)
    await again.start(host, port)
    await again.close()


async def test_an_address_that_is_taken_is_a_start_error_that_names_it(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1:{port} .http.port.: Address"):
            await HttpServer(supervisor=served.supervisor).start("127.0.0.1", port)
