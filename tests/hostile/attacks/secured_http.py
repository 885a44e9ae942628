"""The HTTP port where it asks for a token: wrong ones, strange names, bodies and handshakes that stop."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import ExitStack

from tests.hostile.attack import Attack
from tests.hostile.secured import AUTHORITY, BROKER, HTTP_PORT, HTTP_TOKEN
from tests.integration.support.process import BrokerProcess

PATIENCE_S = 20
GROWTH_BYTES_MAX = 60 * 1024 * 1024


def answer_to(request: bytes) -> bytes:
    """The status line; empty when the connection was closed without one."""
    with socket.create_connection(("127.0.0.1", HTTP_PORT), timeout=PATIENCE_S) as peer:
        peer.sendall(request)
        try:
            return peer.recv(65_536).split(b"\r\n")[0]
        except ConnectionError:
            return b""


def get(*headers: str, path: str = "/metrics") -> bytes:
    lines = [f"GET {path} HTTP/1.1", *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode()


def wrong_tokens_and_names(broker: BrokerProcess, short: bool) -> str:
    """None of them reads a page; the memory does not grow with them; and the probe is answered."""
    before, count = broker.resident_bytes(), 40 if short else 5_000
    for index in range(count):
        for headers in (
            (f"Host: 127.0.0.1:{HTTP_PORT}", f"Authorization: Bearer wrong-{index}"),
            (f"Host: site-{index}.example", f"Authorization: Bearer {HTTP_TOKEN}"),
            (f"Host: 127.0.0.1:{HTTP_PORT}", "Authorization: Basic " + "=" * 1_000),
            (f"Host: 127.0.0.1:{HTTP_PORT}",),
        ):
            assert b" 200 " not in answer_to(get(*headers)), headers
    assert b" 200 " in answer_to(get(f"Host: 127.0.0.1:{HTTP_PORT}", path="/healthz"))
    grown = broker.resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for those who were refused"
    return f"{4 * count} refused"


def bodies_and_handshakes_that_stop(broker: BrokerProcess, short: bool) -> str:
    before, count = broker.resident_bytes(), 60 if short else 300
    slow = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000000\r\n\r\nx"
    hello = bytes.fromhex("16030100c8010000c40303") + bytes(100)
    with ExitStack() as held:
        for index in range(count):
            peer = held.enter_context(socket.create_connection(("127.0.0.1", HTTP_PORT), timeout=PATIENCE_S))
            peer.sendall(hello if index % 2 else slow)
        time.sleep(0.2 if short else 5)
        assert b" 200 " in answer_to(get(f"Host: 127.0.0.1:{HTTP_PORT}", path="/healthz"))
        grown = broker.resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for {count} requests"
    return f"{count} held open"


def tls_handshakes_that_stop(broker: BrokerProcess, short: bool) -> str:
    """The port has TLS: hundreds stop within its handshake, and a probe is answered all the same."""
    before, count = broker.resident_bytes(), 60 if short else 300
    hello = bytes.fromhex("16030100c8010000c40303") + bytes(100)
    context = ssl.create_default_context(cadata=AUTHORITY.pem())
    with ExitStack() as held:
        for index in range(count):
            peer = held.enter_context(socket.create_connection(("127.0.0.1", HTTP_PORT), timeout=PATIENCE_S))
            peer.sendall(hello if index % 2 else hello[:1])
        with socket.create_connection(("127.0.0.1", HTTP_PORT), timeout=PATIENCE_S) as plain:
            probe = context.wrap_socket(plain, server_hostname="localhost")
            probe.sendall(get(f"Host: 127.0.0.1:{HTTP_PORT}", path="/healthz"))
            assert b" 200 " in probe.recv(65_536)
        grown = broker.resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for {count} handshakes"
    return f"{count} held open"


TLS = {
    "http.ssl.keystore.type": "PEM",
    "http.ssl.keystore.key": BROKER.key_pem(),
    "http.ssl.keystore.certificate.chain": BROKER.chain_pem(),
}
PROPERTIES = {"http.port": HTTP_PORT, "http.bearer.token": HTTP_TOKEN}
ATTACKS = [
    Attack("wrong tokens and names over HTTP", wrong_tokens_and_names, PROPERTIES),
    Attack("HTTP bodies and handshakes that stop", bodies_and_handshakes_that_stop, PROPERTIES),
    Attack("TLS handshakes over HTTP that stop", tls_handshakes_that_stop, PROPERTIES | TLS),
]
