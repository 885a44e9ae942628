"""Who may read the HTTP port: under our names only, and with a token or a password where there is one."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from minikafka.metrics.broker_stats import AuthenticationMetrics
from minikafka.server.http import server
from minikafka.server.http.server import (
    AllowedHosts,
    Credentials,
    Failures,
    HttpRequest,
    HttpResponse,
    HttpServer,
)
from minikafka.server.runtime.event_loop import Supervisor
from tests.unit.server.http_client import ask, read_answer, say

TOKEN = "c2VjcmV0-of_prometheus"
PASSWORD = "p:ss, wörd"


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@asynccontextmanager
async def served(
    *, credentials: Credentials | None = None, hosts: tuple[str, ...] = ()
) -> AsyncIterator[HttpServer]:
    supervisor = Supervisor()
    server = HttpServer(
        supervisor=supervisor,
        hosts=AllowedHosts(hosts),
        credentials=credentials,
        authentications=AuthenticationMetrics(),
    )

    async def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse.text("all there is" if request.is_trusted else "fine")

    server.add("/metrics", page)
    server.add("/healthz", page, is_open=True)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()
        await supervisor.stop()


def address_of(server: HttpServer) -> tuple[str, int]:
    assert server.address is not None
    return server.address


@pytest.fixture
async def guarded() -> AsyncIterator[HttpServer]:
    credentials = Credentials(tokens=(TOKEN, "the-next-one"), users=(("ops", PASSWORD), ("dev", "x")))
    async with served(credentials=credentials) as server:
        yield server


# Names


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:9404",
        "localhost.",
        "127.0.0.1:9404",
        "127.9.8.7",
        "[::1]:9404",
        "[0:0:0:0:0:0:0:1]",
        "kafka.example.com",
        "Kafka.Example.Com:443",
        "10.0.0.5:9404",
        "[fd00::0:5]:9404",
    ],
)
def test_a_name_of_ours_is_known(host: str) -> None:
    hosts = AllowedHosts(("kafka.example.com", "fd00::5", ""))
    assert hosts.has(host, local_host="10.0.0.5")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:127.0.0.1",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "kafka.example.com.evil.example",
        "10.0.0.6",
        "0.0.0.0",
        "[::2]",
        "[::1].evil.example",
        "*",
        "",
        " ",
        ":9404",
    ],
)
def test_no_other_name_is(host: str) -> None:
    assert not AllowedHosts(("kafka.example.com", "")).has(host, local_host="10.0.0.5")


def test_with_a_star_every_name_is_ours() -> None:
    assert AllowedHosts(("*",)).has("evil.example", local_host="10.0.0.5")


async def test_a_page_of_another_site_reads_nothing_through_a_name_that_it_points_here() -> None:
    async with served() as server:
        answer = await ask(address_of(server), "/metrics", host="evil.example")
        assert answer.status == 421
        assert b"http.allowed.hosts" in answer.body
        assert (await ask(address_of(server), "/healthz", host="evil.example")).status == 421
        assert (await ask(address_of(server), "/metrics", host="127.0.0.1")).body == b"all there is\n"
        assert not any(name.startswith("access-control") for name in answer.headers)


async def test_a_name_that_is_allowed_is_answered() -> None:
    async with served(hosts=("metrics.example",)) as server:
        assert (await ask(address_of(server), "/metrics", host="metrics.example:80")).status == 200


async def test_http_1_0_knows_no_host() -> None:
    async with served() as server:
        assert (await say(address_of(server), b"GET /metrics HTTP/1.0\r\n\r\n")).status == 200


# Tokens and passwords


@pytest.mark.parametrize(
    "headers",
    [
        bearer(TOKEN),
        {"authorization": f"bearer   {TOKEN} "},
        bearer("the-next-one"),
        basic("ops", PASSWORD),
        basic("dev", "x"),
    ],
    ids=["token", "spelled otherwise", "the other token", "user", "the other user"],
)
async def test_who_shows_a_token_or_a_password_reads_all(
    guarded: HttpServer, headers: dict[str, str]
) -> None:
    answer = await ask(address_of(guarded), "/metrics", headers=headers)
    assert (answer.status, answer.body) == (200, b"all there is\n")
    assert guarded.authentications.successful == 1


@pytest.mark.parametrize(
    "headers",
    [
        bearer(TOKEN[:-1]),
        bearer(TOKEN + "x"),
        bearer(""),
        bearer("x" * 10_000),
        basic("ops", "wrong"),
        basic("ops", "x"),
        basic("nobody", PASSWORD),
        basic("", ""),
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Basic =not=base64="},
        {"authorization": f"Digest {TOKEN}"},
        {"authorization": TOKEN},
        {"authorization": "\xff"},
    ],
)
async def test_who_shows_something_else_is_refused_everywhere(
    guarded: HttpServer, headers: dict[str, str]
) -> None:
    for path in ("/metrics", "/healthz", "/nowhere"):
        answer = await ask(address_of(guarded), path, headers=headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"]
    assert (guarded.authentications.successful, guarded.authentications.failed) == (0, 3)


async def test_without_a_token_only_the_probes_answer_and_tell_nothing(guarded: HttpServer) -> None:
    assert (await ask(address_of(guarded), "/metrics")).status == 401
    assert (await ask(address_of(guarded), "/nowhere")).status == 401
    assert (await ask(address_of(guarded), "/metrics", method="POST")).status == 401
    assert (await ask(address_of(guarded), "/healthz")).body == b"fine\n"
    assert (await ask(address_of(guarded), "/healthz", headers=bearer(TOKEN))).body == b"all there is\n"
    assert guarded.authentications.failed == 0


def test_a_refusal_says_what_would_do() -> None:
    both = Credentials(tokens=("t",), users=(("a", "b"),)).challenges
    assert [value.split()[0] for _, value in both] == ["Basic", "Bearer"]
    assert [value for _, value in Credentials(tokens=("t",), users=()).challenges] == [
        'Bearer realm="minikafka"'
    ]


def test_no_secret_is_in_a_repr() -> None:
    credentials = Credentials(tokens=(TOKEN,), users=(("ops", PASSWORD),))
    assert TOKEN not in repr(credentials)
    assert PASSWORD not in repr(credentials)


# Guessing


async def test_who_guesses_is_held_back_and_who_is_known_is_not(
    guarded: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection(*address_of(guarded))
    request = f"GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode()
    writer.write(request)
    assert (await read_answer(reader)).status == 200

    statuses = [
        (await ask(address_of(guarded), "/metrics", headers=bearer(f"guess-{number}"))).status
        for number in range(server.FAILURES_AT_ONCE + 5)
    ]
    assert statuses.count(429) >= 1
    held_back = await ask(address_of(guarded), "/metrics", headers=bearer("another-guess"))
    if held_back.status == 429:  # else a second has passed
        assert int(held_back.headers["retry-after"]) >= 1

    writer.write(request)
    assert (await read_answer(reader)).status == 200
    writer.close()
    await writer.wait_closed()
    assert "guess" not in caplog.text.replace("shows wrong credentials", "")


def test_failures_are_forgiven_one_a_second() -> None:
    now_s = 100.0
    failures = Failures(lambda: now_s)
    for _ in range(server.FAILURES_AT_ONCE):
        assert failures.wait_s("10.0.0.1") == 0
        failures.add("10.0.0.1")
    assert failures.wait_s("10.0.0.1") == pytest.approx(1)
    assert failures.wait_s("10.0.0.2") == 0
    now_s += 1
    assert failures.wait_s("10.0.0.1") == 0
    failures.add("10.0.0.1")
    assert failures.wait_s("10.0.0.1") == pytest.approx(1)
    now_s += 3_600
    assert failures.wait_s("10.0.0.1") == 0


def test_the_addresses_of_one_ipv6_network_are_one() -> None:
    failures = Failures(lambda: 0.0)
    for number in range(server.FAILURES_AT_ONCE):
        failures.add(f"2001:db8::{number:x}")
    assert failures.wait_s("2001:db8::ffff") > 0
    assert failures.wait_s("2001:db8:0:1::1") == 0


def test_many_addresses_take_no_more_memory_and_open_no_door() -> None:
    failures = Failures(lambda: 0.0)
    for number in range(server.ADDRESSES_MAX + 50):
        failures.add(f"10.{number >> 8}.{number & 255}.1")
    assert repr(failures) == f"Failures({server.ADDRESSES_MAX + 1} addresses)"
    assert failures.wait_s("192.0.2.1") > 0  # those that are left share an allowance
    assert failures.wait_s("10.0.0.1") == 0
