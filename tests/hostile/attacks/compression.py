"""Batches that cost more to decompress than to send."""

from __future__ import annotations

import struct
from functools import partial

from tests.hostile.attack import Attack
from tests.hostile.bystander import TOPIC
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import PRODUCE, RawClient, batch, string

LZ4, ZSTD = 3, 4
INVALID_RECORD = 87
BATCHES = 100
"""In one request of 7 KB; each cost 0.15 s."""


def garbage(codec: int, broker: BrokerProcess, short: bool) -> str:
    """Batches of three bytes of garbage, for the bystander's own partition."""
    bad = batch([b""], attributes=codec, records=b"bad", record_count=1)
    entries = (struct.pack(">ii", 0, len(bad)) + bad) * BATCHES
    body = b"".join(
        (string(None), struct.pack(">hii", 1, 1000, 1), string(TOPIC), struct.pack(">i", BATCHES), entries)
    )
    requests = 2 if short else 20
    with RawClient(broker.port) as client:
        for _ in range(requests):
            answer = bytes(client.call(PRODUCE, 3, body))
            assert answer.count(struct.pack(">ih", 0, INVALID_RECORD)) == BATCHES, answer[:100]
    return f"{requests} times {BATCHES} refusals"


ATTACKS = [
    Attack("garbage as lz4", partial(garbage, LZ4)),
    Attack("garbage as zstd", partial(garbage, ZSTD)),
]
