"""POST: only below a prefix that takes it, with a bounded body, and it says whether its sender has
authenticated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from minikafka.server.http.server import BODY_BYTES_MAX, Credentials, HttpRequest, HttpResponse, HttpServer
from minikafka.server.runtime.event_loop import Supervisor
from tests.unit.server.http_client import ask, say

USERS = Credentials(tokens=("a-token",), users=())
TOKEN = {"authorization": "Bearer a-token"}


@asynccontextmanager
async def serving(credentials: Credentials | None = None) -> AsyncIterator[HttpServer]:
    supervisor = Supervisor()
    server = HttpServer(supervisor=supervisor, credentials=credentials)

    async def echo(request: HttpRequest) -> HttpResponse:
        who = "known" if request.is_authenticated else "unknown"
        return HttpResponse.text(f"{who} {request.method} {request.path} {len(request.body or b'')}")

    async def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse.text("page")

    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    server.add("/api/page", page)
    server.add_below("/api/", echo, close=close)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()
        await server.close()
        await supervisor.stop()
    assert closed == [True]


def address(server: HttpServer) -> tuple[str, int]:
    assert server.address is not None
    return server.address


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_page_below_a_prefix_gets_its_path_and_the_body_of_a_post(method: str) -> None:
    async with serving() as server:
        answer = await ask(address(server), "/api/group/reset", method=method, body=b"{}")
    size = 2 if method == "POST" else 0
    assert (answer.status, answer.body) == (
        200,
        b"unknown %b /api/group/reset %d\n" % (method.encode(), size),
    )


async def test_other_pages_and_methods_are_refused() -> None:
    async with serving() as server:
        assert (await ask(address(server), "/api/page", method="POST", body=b"{}")).status == 405
        assert (await ask(address(server), "/elsewhere", method="POST", body=b"{}")).status == 405
        answer = await ask(address(server), "/api/x", method="PUT", body=b"{}")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.parametrize(
    ("size", "status"), [(BODY_BYTES_MAX, 200), (BODY_BYTES_MAX + 1, 413), (10 * BODY_BYTES_MAX, 413)]
)
@pytest.mark.parametrize(
    "frame", [lambda data: data, lambda data: b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)]
)
async def test_a_body_has_a_bound_however_it_is_framed(
    size: int, status: int, frame: Callable[[bytes], bytes]
) -> None:
    body = frame(b"x" * size)
    framing = f"content-length: {size}" if len(body) == size else "transfer-encoding: chunked"
    head = f"POST /api/x HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n\r\n".encode()
    async with serving() as server:
        answer = await say(address(server), head + body)
    assert answer.status == status
    assert (answer.headers.get("connection") == "close") is (status == 413)


async def test_who_has_shown_a_token_is_known_and_others_do_not_come_so_far() -> None:
    async with serving(USERS) as server:
        answer = await ask(address(server), "/api/x", method="POST", body=b"{}", headers=TOKEN)
        assert answer.body.startswith(b"known POST")
        for headers in ({}, {"authorization": "Bearer another"}):
            assert (await ask(address(server), "/api/x", method="POST", headers=headers)).status == 401
