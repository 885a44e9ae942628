"""The HTTP port: silent connections, and scrapes of a broker with a great many groups."""

from __future__ import annotations

import socket
import struct
import time
import urllib.request
from contextlib import ExitStack

from tests.hostile.attack import Attack
from tests.hostile.attacks.group_members import make_coordinator
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import RawClient, request, string
from tests.support.ports import free_port

OFFSET_COMMIT = 8
HEALTH_SECONDS_MAX = 30
"""A health check waits so long for an answer, not for a state; a dead one never answers."""
PAGE_BYTES_MAX = 6_000_000


def commit_frame(group: str, number: int) -> bytes:
    """OffsetCommit 2 of a group without members."""
    body = b"".join(
        (
            string(group),
            struct.pack(">i", -1),
            string(""),
            struct.pack(">qi", -1, 1),
            string("bystander"),
            struct.pack(">iiq", 1, 0, number),
            string(None),
        )
    )
    return request(OFFSET_COMMIT, 2, body, correlation_id=number)


def make_groups(broker: BrokerProcess, short: bool) -> None:
    make_coordinator(broker, short)
    count = 1_000 if short else 20_000
    with RawClient(broker.port) as client:
        client.create_topic_by_metadata("bystander")
        for first in range(0, count, 200):
            numbers = range(first, min(count, first + 200))
            client.send(b"".join(commit_frame(f"{'g' * 150}-{number}", number) for number in numbers))
            for _ in numbers:
                client.receive()


def page(broker: BrokerProcess, path: str) -> bytes:
    address = f"http://127.0.0.1:{broker.properties['http.port']}{path}"
    with urllib.request.urlopen(address, timeout=HEALTH_SECONDS_MAX) as response:
        body: bytes = response.read()
    return body


def scrapes(broker: BrokerProcess, short: bool) -> str:
    until = time.monotonic() + (0.5 if short else 10)
    count = size = 0
    while time.monotonic() < until or not count:
        size = len(page(broker, "/metrics"))
        page(broker, "/status.json")
        count += 1
    assert size < PAGE_BYTES_MAX, f"/metrics has {size} bytes"
    return f"{count} scrapes of {size / 1e6:.1f} MB"


def silent_connections(broker: BrokerProcess, short: bool) -> str:
    port = int(broker.properties["http.port"])
    worst = 0.0
    with ExitStack() as stack:
        for _ in range(70 if short else 300):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        until = time.monotonic() + (0.5 if short else 10)
        while time.monotonic() < until:
            began = time.monotonic()
            assert page(broker, "/healthz") == b"ok\n"
            worst = max(worst, time.monotonic() - began)
            stack.enter_context(socket.create_connection(("127.0.0.1", port))).send(b"GET /metr")
            time.sleep(0.05)
    return f"/healthz answers within {worst * 1000:.0f} ms"


ATTACKS = [
    Attack("scrapes with 20,000 groups", scrapes, {"http.port": free_port()}, prepare=make_groups),
    Attack("HTTP connections that say nothing", silent_connections, {"http.port": free_port()}),
]
