"""Connections that take the memory for requests and responses, and keep it."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack

from minikafka.protocol.wire.api_versions import ApiKey
from tests.benchmarks.broker import cpu_seconds
from tests.hostile.attack import Attack
from tests.hostile.attacks import many_entries
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import FETCH, RawClient, batch, fetch_body, request

ANNOUNCED_BYTES = 100 * 1024 * 1024 - 1
"""``socket.request.max.bytes``."""
RESIDENT_GROWTH_BYTES_MAX = 400 * 1024 * 1024
"""``queued.max.request.bytes`` (256 MiB), one request beyond it, and what the allocator keeps."""

SMALL_MEMORY_BYTES = 4 * 1024 * 1024
"""A handful of answers, which take their time to make."""
PRODUCED = "produced"
PRODUCER_PATIENCE_S = 60
FIRST_RECORD_CPU_S_MAX = 2.0
"""What the broker does before it acknowledges the first record: 0.1 to 0.3 s, most of it for the connections
that came before. All that was asked for takes 8 s and more."""


def stall(broker: BrokerProcess, count: int, *, announced_bytes: int, sent_bytes: int, seconds: float) -> int:
    """``count`` connections send the beginning of a request, as much as the broker takes, and no more. For
    ``seconds``; how many bytes were taken."""
    piece = bytes(1 << 20)
    with ExitStack() as stack:
        left = {
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port))): sent_bytes
            for _ in range(count)
        }
        for each in left:
            each.sendall(struct.pack(">i", announced_bytes))
            each.settimeout(0.02)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for each in [each for each in left if left[each]] or [None]:
                if each is None:
                    time.sleep(0.05)
                    continue
                try:
                    left[each] -= each.send(piece[: left[each]])
                except TimeoutError:
                    continue
                except ConnectionError:  # it was closed, for it did not go on
                    left[each] = 0
        return count * sent_bytes - sum(left.values())


def stalled_bodies(broker: BrokerProcess, short: bool) -> str:
    before = broker.resident_bytes()
    taken = stall(broker, 6, announced_bytes=ANNOUNCED_BYTES, sent_bytes=45 << 20, seconds=1 if short else 15)
    grown = broker.resident_bytes() - before
    assert grown < RESIDENT_GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for what never came"
    return f"{taken >> 20} MB taken of 6 times 45, the broker grew by {grown >> 20} MB"


def many_small_stalls(broker: BrokerProcess, short: bool) -> str:
    """A NAT full of them: each sends half of a megabyte."""
    count = 100 if short else 500
    taken = stall(broker, count, announced_bytes=1 << 20, sent_bytes=1 << 19, seconds=1 if short else 15)
    return f"{count} connections, {taken >> 20} MB taken"


def without_reading(broker: BrokerProcess, requests: bytes, *, count: int, seconds: float) -> str:
    """``count`` connections ask and take nothing; meanwhile others produce."""
    before = broker.resident_bytes()
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in clients:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", broker.port))
            each.sendall(requests)
        until = time.monotonic() + seconds
        cpu_before_s = cpu_seconds(broker.pid)
        with RawClient(broker.port, timeout_s=PRODUCER_PATIENCE_S) as producer:
            producer.produce(PRODUCED, 0, batch([b"first"]))
            first_cpu_s = cpu_seconds(broker.pid) - cpu_before_s
            while time.monotonic() < until:
                producer.produce(PRODUCED, 0, batch([b"v"]))
                time.sleep(0.05)
        grown = broker.resident_bytes() - before
    assert grown < RESIDENT_GROWTH_BYTES_MAX, f"{grown >> 20} MB are held for who does not read"
    assert first_cpu_s < FIRST_RECORD_CPU_S_MAX, f"{first_cpu_s:.1f} s of work came before the first record"
    return (
        f"{count} readers, the broker grew by {grown >> 20} MB, first record after {first_cpu_s:.2f} s of CPU"
    )


def readers_that_do_not_read(broker: BrokerProcess, short: bool) -> str:
    """Each asks for 8 MiB of records again and again."""
    frame = request(FETCH, 4, fetch_body("unread", 0, 0, partition_max_bytes=50 << 20))
    said = without_reading(broker, frame * 4, count=200, seconds=1 if short else 8)
    with RawClient(broker.port, timeout_s=PRODUCER_PATIENCE_S) as client:
        client.create_topic_by_metadata(PRODUCED)  # unread records do not block metadata
    return said


def askers_that_do_not_read(broker: BrokerProcess, short: bool) -> str:
    """At the same moment, each for the configurations of a hundred topics, in 2 KB."""
    frame = many_entries.frame(
        ApiKey.DESCRIBE_CONFIGS, 1, many_entries.describe_configs(many_entries.SHORT_DESCRIBED)
    )
    return without_reading(broker, frame, count=200, seconds=4 if short else 8)


def make_produced(broker: BrokerProcess, short: bool) -> None:
    with RawClient(broker.port) as client:
        client.create_topic_by_metadata(PRODUCED)


def make_described_and_produced(broker: BrokerProcess, short: bool) -> None:
    make_produced(broker, short)
    many_entries.make_described(broker, True)


def fill_unread(broker: BrokerProcess, short: bool) -> None:
    make_produced(broker, short)
    records = batch([bytes(900_000)])
    with RawClient(broker.port) as client:
        client.create_topic_by_metadata("unread")
        for _ in range(12):
            client.produce("unread", 0, records)


ATTACKS = [
    Attack("6 requests of 100 MB that stall", stalled_bodies),
    Attack("hundreds of requests of 1 MB that stall", many_small_stalls),
    Attack("consumers that do not read", readers_that_do_not_read, prepare=fill_unread),
    Attack(
        "who asks for much and does not read",
        askers_that_do_not_read,
        properties={
            "queued.max.request.bytes": SMALL_MEMORY_BYTES,
            "socket.request.max.bytes": SMALL_MEMORY_BYTES,
        },
        prepare=make_described_and_produced,
    ),
]
