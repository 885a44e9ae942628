"""Clients that have logged in: with frames that mean nothing, and with logins again from all sides."""

from __future__ import annotations

import random
import struct
import time
from contextlib import ExitStack
from functools import partial

from minikafka.protocol.wire.api_versions import ApiKey
from tests.hostile.secured import Peer, make_scram_user, secured
from tests.integration.support.process import BrokerProcess

GROWTH_BYTES_MAX = 160 * 1024 * 1024


def frames(listener: str, broker: BrokerProcess, short: bool) -> str:
    """Each API in some version with a body of random bytes, and with one that is cut off. A connection lives
    for one of them; whatever comes of it, the next client is served."""
    rng = random.Random(20)
    before, count = broker.resident_bytes(), 0
    for _ in range(1 if short else 20):
        for key in ApiKey:
            body = rng.choice((rng.randbytes(rng.randrange(200)), bytes(rng.randrange(40)), b"\x7f" * 40))
            with Peer(listener) as peer:
                if listener.startswith("SASL"):
                    assert peer.log_in("PLAIN") == 0
                peer.send_bytes(struct.pack(">hhih", key, rng.randrange(20), count, -1) + body)
                count += 1
    grown = broker.resident_bytes() - before
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for {count} frames"
    with Peer("SASL_PLAINTEXT") as peer:
        assert peer.log_in("PLAIN") == 0
    return f"{count} frames"


def login_storm(broker: BrokerProcess, short: bool) -> str:
    """All connections log in again as often as they may, which is once a second, all at the same time."""
    count, rounds = (20, 1) if short else (300, 8)
    with ExitStack() as held:
        peers = [held.enter_context(Peer("SASL_PLAINTEXT")) for _ in range(count)]
        for peer in peers:
            assert peer.log_in("SCRAM-SHA-256") == 0
        for _ in range(rounds):
            for peer in peers:
                assert peer.log_in("SCRAM-SHA-256") == 0
            if not short:
                time.sleep(1)
    return f"{count} connections logged in {rounds} times more"


ATTACKS = [
    secured("random frames of a user without a right", partial(frames, "SASL_PLAINTEXT")),
    secured("random frames of a user with all rights", partial(frames, "PLAINTEXT")),
    secured("re-authentications of many connections", login_storm, prepare=make_scram_user),
]
