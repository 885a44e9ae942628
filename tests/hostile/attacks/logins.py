"""Clients that log in and log in, with what is right and what is wrong, while another one is served."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from minikafka.protocol.wire.api_versions import ApiKey
from tests.hostile.secured import USER, Peer, make_scram_user, secured
from tests.integration.support.process import BrokerProcess

FAILED = 58
"""SASL_AUTHENTICATION_FAILED."""
THREADS = 16


def over_and_over(once: Callable[[], None], seconds: float) -> int:
    """By ``THREADS`` clients at a time; how often in all."""
    until = time.monotonic() + seconds
    counts: list[int] = []
    lock = threading.Lock()

    def one(_: int) -> None:
        count = 0
        while time.monotonic() < until:
            once()
            count += 1
        with lock:
            counts.append(count)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(one, range(THREADS)))
    return sum(counts)


def wrong_passwords(broker: BrokerProcess, short: bool) -> str:
    def once() -> None:
        for mechanism, user in (("SCRAM-SHA-256", USER), ("SCRAM-SHA-256", "nobody"), ("PLAIN", USER)):
            with Peer("SASL_PLAINTEXT") as peer:
                assert peer.log_in(mechanism, user=user, password="wrong") == FAILED

    return f"{3 * over_and_over(once, 0.5 if short else 20)} wrong logins"


def right_passwords(broker: BrokerProcess, short: bool) -> str:
    """A whole TLS handshake and a whole SCRAM exchange for each."""

    def once() -> None:
        with Peer("SASL_SSL") as peer:
            assert peer.log_in("SCRAM-SHA-256") == 0

    return f"{over_and_over(once, 0.5 if short else 20)} logins"


def at_once(broker: BrokerProcess, short: bool) -> str:
    """All are connected and have sent their SaslHandshake before any of them goes on."""
    peers = [Peer("SASL_PLAINTEXT") for _ in range(200 if short else 1_000)]
    try:
        for peer in peers:
            peer.send(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        for peer in peers:
            assert peer.receive(ApiKey.SASL_HANDSHAKE, 1).error_code == 0
        for peer in peers:
            peer.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0mallory\0mallorys-password"})
        for peer in peers:
            assert peer.receive(ApiKey.SASL_AUTHENTICATE, 2).error_code == 0
    finally:
        for peer in peers:
            peer.close()
    return f"{len(peers)} logged in"


def again_and_again(broker: BrokerProcess, short: bool) -> str:
    """Of what a client asks within a second of its last re-authentication none is begun."""
    refused = 0
    until = time.monotonic() + (0.5 if short else 20)
    with Peer("SASL_PLAINTEXT") as peer:
        assert peer.log_in("SCRAM-SHA-256") == 0
        assert peer.log_in("SCRAM-SHA-256") == 0
        while time.monotonic() < until:
            answer = peer.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
            if answer.error_code == 0:  # a second has passed
                break
            refused += 1
    assert refused, "each of them was begun"
    return f"{refused} re-authentications refused"


ATTACKS = [
    secured("wrong passwords", wrong_passwords, prepare=make_scram_user),
    secured("right passwords over TLS", right_passwords, prepare=make_scram_user),
    secured("1,000 logins at once", at_once),
    secured("re-authentications without a pause", again_and_again, prepare=make_scram_user),
]
