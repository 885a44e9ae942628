"""Batches that cost more to decompress than to send."""

from __future__ import annotations

import struct

from tests.hostile.attack import Attack
from tests.hostile.attacks.many_entries import CORRELATION_ID, PRODUCE, answer_to, one_topic
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import batch

LZ4, ZSTD = 3, 4


def garbage(codec: int, broker: BrokerProcess, short: bool) -> str:
    """Each batch is three bytes of garbage, all for the bystander's own partition."""
    bad = batch([b""], attributes=codec, records=b"bad", record_count=1)
    entry = struct.pack(">ii", 0, len(bad)) + bad
    batches, requests = 100, 2 if short else 20
    body = struct.pack(">hhi", -1, 1, 1000) + one_topic(lambda _: entry, batches).replace(
        b"\0\x08attacked", b"\0\x09bystander", 1
    )
    for _ in range(requests):
        answer = answer_to(broker, PRODUCE, 3, body)
        assert answer[:4] == struct.pack(">i", CORRELATION_ID), "no answer"
        assert answer.count(struct.pack(">h", 87)) >= batches, "INVALID_RECORD is wanted for each"
    return f"{requests} times {batches} refusals"


ATTACKS = [
    Attack("garbage as lz4", lambda broker, short: garbage(LZ4, broker, short)),
    Attack("garbage as zstd", lambda broker, short: garbage(ZSTD, broker, short)),
]
