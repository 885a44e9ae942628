"""Peers that have not said who they are: they get no answer, no memory and no time of others."""

from __future__ import annotations

import base64
import json
import random
import struct
import time
from contextlib import ExitStack

from minikafka.protocol.wire.api_versions import ApiKey
from tests.hostile.secured import PORTS, RECEIVE_BYTES_MAX, Peer, connect, is_refused, secured
from tests.integration.support.process import BrokerProcess

GROWTH_BYTES_MAX = 48 * 1024 * 1024
"""Of the whole broker, for messages of logins that do not end (CVE-2022-34917): what those of one address may
hold before they have logged in (16 MB, ``network.limits``), and what the allocator keeps."""
CONNECTIONS_BYTES_MAX = 112 * 1024 * 1024
"""For thousands of connections: 2,048 handshakes at once (``network.tls_acceptor``), 50 KB each."""
ILLEGAL_SASL_STATE = 34
SECURE = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


def every_request_before_login(broker: BrokerProcess, short: bool) -> str:
    """Each API key in each version; ApiVersions alone is answered, and only before SASL."""
    refused = 0
    for key in ApiKey:
        for version in (0, 3) if short else range(20):
            with connect("SASL_PLAINTEXT") as peer:
                if key == ApiKey.API_VERSIONS:
                    peer.sendall(struct.pack(">ihhih", 10, key, 0, 7, -1))
                    assert peer.recv(4), "ApiVersions is answered before a login"
                    continue
                body = struct.pack(">hhih", key, version, 7, -1) + bytes(40)
                peer.sendall(struct.pack(">i", len(body)) + body)
                if key == ApiKey.SASL_HANDSHAKE and version < 2:
                    assert is_refused(peer)  # an empty mechanism: answered, and closed
                    continue
                assert is_refused(peer), f"{key.name} {version} is not refused"
                refused += 1
    return f"{refused} requests refused"


def noise(broker: BrokerProcess, short: bool) -> str:
    """Random bytes, sizes that no client means, TLS where none is, and none where it is."""
    rng = random.Random(1)
    hello = bytes.fromhex("160301020001fc0303") + rng.randbytes(507)
    openings = [
        hello,
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", -1),
        struct.pack(">i", RECEIVE_BYTES_MAX + 1),
        struct.pack(">ihhih", 10, 18, 0, 1, -1),
        b"GET / HTTP/1.1\r\n\r\n",
        *(rng.randbytes(rng.randint(1, 300)) for _ in range(5 if short else 200)),
    ]
    with ExitStack() as held:
        for listener in PORTS:
            for opening in openings:
                peer = held.enter_context(connect(listener))
                peer.sendall(opening)
        return f"{len(openings)} openings on {len(PORTS)} listeners"


def unfinished(broker: BrokerProcess, short: bool) -> str:
    """Hundreds of connections that begin a login's message of the largest size, and stop."""
    before, count = broker.resident_bytes(), 200 if short else 1_000
    begun = struct.pack(">i", RECEIVE_BYTES_MAX) + bytes(RECEIVE_BYTES_MAX - 1)
    taken = 0
    with ExitStack() as held:
        for _ in range(count):
            peer = held.enter_context(connect("SASL_PLAINTEXT"))
            peer.setblocking(False)
            try:
                taken += peer.send(begun)
            except BlockingIOError:
                continue
        time.sleep(0.5)
        grown = broker.resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for those who have not logged in"
    return f"{taken >> 20} MB sent, the broker grew by {grown >> 20} MB"


def silent_and_halfway(broker: BrokerProcess, short: bool) -> str:
    """Thousands say nothing; hundreds stop within a TLS handshake; some let bytes drip."""
    before, count = broker.resident_bytes(), 200 if short else 3_000
    hello = bytes.fromhex("16030100c8010000c40303") + bytes(100)
    with ExitStack() as held:
        for index in range(count):
            peer = held.enter_context(connect(SECURE[index % len(SECURE)]))
            if index % 2:
                peer.sendall(hello)
        dripping = held.enter_context(connect("SASL_PLAINTEXT"))
        dripping.sendall(struct.pack(">i", RECEIVE_BYTES_MAX))
        until = time.monotonic() + (0.5 if short else 10)
        while time.monotonic() < until:
            dripping.sendall(b"\0")
            time.sleep(0.05)
        grown = broker.resident_bytes() - before
    assert grown < CONNECTIONS_BYTES_MAX, f"{grown >> 20} MB are held for {count} who say nothing"
    return f"{count} connections, the broker grew by {grown >> 20} MB"


def repeated_handshakes(broker: BrokerProcess, short: bool) -> str:
    """A second SaslHandshake, a second ApiVersions and a second first message each end the connection; the
    first of them is told why, as Kafka does."""
    for _ in range(5 if short else 1_000):
        for twice in (
            (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
            (ApiKey.API_VERSIONS, 0, {}),
        ):
            with Peer("SASL_PLAINTEXT") as peer:
                peer.ask(*twice)
                try:
                    if twice[0] is ApiKey.SASL_HANDSHAKE:
                        assert peer.ask(*twice).error_code == ILLEGAL_SASL_STATE
                    peer.ask(*twice)
                except (ConnectionError, OSError):
                    continue
                raise AssertionError(f"{twice[0].name} was answered twice")
        with Peer("SASL_PLAINTEXT") as peer:
            first = b"n,,n=mallory,r=abc"
            assert peer.say("SCRAM-SHA-256", first).error_code == 0
            again = peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": first})
            assert again.error_code == 58
    return "each of them ended its connection"


def bombs(broker: BrokerProcess, short: bool) -> str:
    """Tokens that are huge, deep or full of claims, and messages that are as large as may come."""

    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    deep = '{"sub":' + "[" * 20_000 + "]" * 20_000 + "}"
    many = json.dumps({f"claim-{index}": index for index in range(18_000)})
    head = part(json.dumps({"alg": "none"}))
    tokens = [
        f"{head}.{part(deep)}.",
        "a" * 500_000,
        f"{head}.{part('1' * 30_000)}.",
        f"{part(deep)}..",
        f"{head}.{part(many)}.",
        "." * 60_000,
    ]
    size = RECEIVE_BYTES_MAX - 100
    messages = [("OAUTHBEARER", f"n,,\1auth=Bearer {token}\1\1".encode()) for token in tokens]
    messages += [
        ("OAUTHBEARER", b"n,,\1" + b"a=b\1" * (size // 5) + b"\1"),
        ("SCRAM-SHA-256", b"n,,n=" + b"x" * size + b",r=a"),
        ("SCRAM-SHA-256", b"n,," + b"n=a," * (size // 5)),
        ("PLAIN", b"\0" * size),
        ("PLAIN", b"\0mallory\0" + b"p" * (size - 20)),
    ]
    for mechanism, message in messages * (1 if short else 100):
        with Peer("SASL_PLAINTEXT") as peer:
            answer = peer.say(mechanism, message)
            if answer.error_code == 0:  # RFC 7628 tells it, SCRAM knows no name yet: both fail afterwards
                last = b"\1" if mechanism == "OAUTHBEARER" else b"c=biws,r=a,p=AAAA"
                answer = peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": last})
            assert answer.error_code == 58, (mechanism, message[:40])
    return f"{len(messages)} refused"


ATTACKS = [
    secured("every request before a login", every_request_before_login),
    secured("noise on secure listeners", noise),
    secured("logins' messages that do not end", unfinished),
    secured("connections that do not log in", silent_and_halfway),
    secured("logins that begin twice", repeated_handshakes),
    secured("tokens and messages that are bombs", bombs),
]
