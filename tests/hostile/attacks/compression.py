"""Batches that cost more to decompress than to send."""

from __future__ import annotations

import struct
import time
from functools import partial

from minikafka.protocol.records.batch import CompressionType
from minikafka.protocol.records.records import Record, build_batch
from tests.hostile.attack import Attack
from tests.hostile.bystander import TOPIC
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import PRODUCE, RawClient, batch, string

LZ4, ZSTD = 3, 4
FIRST_WITH_ZSTD = 7
"""Version of Produce."""
INVALID_RECORD = 87
BOMBED = "bombed"
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
            answer = bytes(client.call(PRODUCE, FIRST_WITH_ZSTD, body))
            assert answer.count(struct.pack(">ih", 0, INVALID_RECORD)) == BATCHES, answer[:100]
    return f"{requests} times {BATCHES} refusals"


def bomb(count: int, size: int) -> bytes:
    """``count`` records with ``size`` bytes of nothing among them, all valid."""
    now_ms = int(time.time() * 1000)
    values = [bytes(size), *[b""] * (count - 1)]
    return build_batch(
        [Record(number, now_ms, None, value) for number, value in enumerate(values)],
        compression=CompressionType.ZSTD,
    )


def explode(count: int, size: int, batches: int, broker: BrokerProcess, short: bool) -> str:
    """A few KB of batches that are more than a hundred MB each, or very many records."""
    one = bomb(min(count, 200_000) if short else count, size)
    batches = 5 if short else batches
    entries = (struct.pack(">ii", 0, len(one)) + one) * batches
    body = b"".join(
        (
            string(None),
            struct.pack(">hii", 1, 1000, 1),
            string(BOMBED),
            struct.pack(">i", batches),
            entries,
        )
    )
    with RawClient(broker.port, timeout_s=120) as client:
        answer = bytes(client.call(PRODUCE, FIRST_WITH_ZSTD, body))
    assert answer.count(struct.pack(">ih", 0, 0)) >= batches, answer[:100]
    return f"{batches} batches of {len(one):,} bytes were appended"


def make_bombed(broker: BrokerProcess, short: bool) -> None:
    confluent.make_topic(broker.bootstrap, BOMBED)


ATTACKS = [
    Attack("100 zstd batches of 120 MB", partial(explode, 1, 120 << 20, 100), prepare=make_bombed),
    Attack("10 zstd batches of a million records", partial(explode, 1_000_000, 0, 10), prepare=make_bombed),
    Attack("garbage as lz4", partial(garbage, LZ4)),
    Attack("garbage as zstd", partial(garbage, ZSTD)),
]
