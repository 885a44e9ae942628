"""Peers that lie, break off and talk nonsense get their error or a closed connection; others do not notice.

After every case the same well-behaved client, connected all the time, still works; the log of the topic
has not changed by one byte; the broker's memory has not jumped.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.integration.conftest import StartBroker, serving
from tests.integration.support import confluent, wire
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record

TOPIC = "treasure"
MIB = 1024 * 1024
NOISE = random.Random(3).randbytes(500)
CORRUPT_MESSAGE, UNSUPPORTED_VERSION, UNSUPPORTED_FORMAT, INVALID_RECORD = 2, 35, 43, 87
OUT_OF_ORDER_SEQUENCE, MESSAGE_TOO_LARGE = 45, 10


class Harbour(NamedTuple):
    """A broker with something to lose, and a client that has done nothing wrong."""

    broker: BrokerProcess
    friend: wire.RawClient

    def log(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.broker.files(TOPIC, ".log"))


@pytest.fixture(scope="module")
def harbour_once(tmp_path_factory: pytest.TempPathFactory, make_broker: StartBroker) -> Iterator[Harbour]:
    with serving(make_broker(tmp_path_factory.mktemp("hostile") / "data")) as broker:
        confluent.make_topic(broker.bootstrap, TOPIC, config={"max.message.bytes": MIB})
        confluent.write_one_batch_each(broker.bootstrap, TOPIC, [Record(b"k", b"gold")] * 10)
        with wire.RawClient(broker.port) as friend:
            yield Harbour(broker, friend)


@pytest.fixture
def harbour(request: pytest.FixtureRequest, harbour_once: Harbour) -> Iterator[Harbour]:
    request.node.brokers = [harbour_once.broker]
    log_before, memory_before = harbour_once.log(), harbour_once.broker.resident_bytes()
    yield harbour_once
    fetched = harbour_once.friend.fetch(TOPIC, 0, 0)
    assert (fetched.error, fetched.high_watermark) == (0, 10), "the other client is harmed"
    assert bytes(fetched.records) == log_before
    assert harbour_once.log() == log_before, "the log has changed"
    if not harbour_once.broker.is_reference:
        assert harbour_once.broker.resident_bytes() - memory_before < 40 * MIB


STRICTER_THAN_KAFKA = {
    "offsets that are not one after the other",  # Kafka looks at those of compressed records only
    "an unknown codec",  # UNKNOWN_SERVER_ERROR
    "gzip that is none",  # UNKNOWN_SERVER_ERROR
    "a client id that is no UTF-8",  # Java replaces what it does not understand
}


def stricter_than_kafka(cases: Iterable[str]) -> list[Any]:
    """The cases as parameters, those marked in which Apache Kafka 4.1 does less well."""
    return [
        pytest.param(case, marks=[pytest.mark.minikafka_only] if case in STRICTER_THAN_KAFKA else [])
        for case in cases
    ]


def frame(body: bytes, *, size: int | None = None) -> bytes:
    return struct.pack(">i", len(body) if size is None else size) + body


CLOSED_AT_ONCE = {
    "a negative frame size": frame(b"", size=-1),
    "the smallest frame size there is": frame(b"", size=-(2**31)),
    "a frame larger than socket.request.max.bytes": frame(b"x" * 100, size=100 * MIB + 1),
    "a frame of two gigabytes": frame(b"x" * 100, size=2**31 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + NOISE[:200],
    "an unknown api key": wire.request(32_000, 0, b""),
    "a negative api key": wire.request(-5, 0, b""),
    "an unknown version of Produce": wire.request(wire.PRODUCE, 99, b""),
    "a negative version": wire.request(wire.METADATA, -3, b""),
    "half a header": frame(struct.pack(">hh", wire.FETCH, 4)),
    "a client id longer than its frame": frame(struct.pack(">hhih", wire.FETCH, 4, 1, 30_000) + b"me"),
    "a client id that is no UTF-8": frame(
        struct.pack(">hhih", wire.METADATA, 1, 1, 2) + b"\xff\xfe" + b"\0" * 4
    ),
    "no body": wire.request(wire.FETCH, 4, b""),
    "two billion topics": wire.request(wire.METADATA, 1, struct.pack(">i", 2**31 - 1)),
    "two billion partitions": wire.request(
        wire.FETCH,
        4,
        struct.pack(">iiiibi", -1, 0, 1, MIB, 0, 1) + wire.string(TOPIC) + struct.pack(">i", 2**31 - 1),
    ),
    "a topic name longer than its frame": wire.request(
        wire.METADATA, 1, struct.pack(">ih", 1, 30_000) + b"short"
    ),
    "records longer than their frame": wire.request(
        wire.PRODUCE,
        3,
        wire.string(None)
        + struct.pack(">hii", -1, 1000, 1)
        + wire.string(TOPIC)
        + struct.pack(">iii", 1, 0, MIB),
    ),
    "garbage of a plausible size": frame(NOISE[:300]),
}


@pytest.mark.parametrize("case", stricter_than_kafka(CLOSED_AT_ONCE))
def test_what_is_no_request_closes_the_connection(harbour: Harbour, case: str) -> None:
    with wire.RawClient(harbour.broker.port) as peer:
        peer.send(CLOSED_AT_ONCE[case])
        assert peer.is_closed_by_peer()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(harbour: Harbour) -> None:
    """KIP-511: so that a client from the future finds out what it may say; the connection stays."""
    with wire.RawClient(harbour.broker.port) as peer:
        body = peer.call(wire.API_VERSIONS, 120, b"\0", correlation_id=7)
        error, count = struct.unpack_from(">hi", body)
        assert error == UNSUPPORTED_VERSION
        keys = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])}
        assert keys[wire.API_VERSIONS][1] >= 3
        assert peer.api_versions()


@pytest.mark.minikafka_only  # Kafka takes the memory, unless queued.max.request.bytes says otherwise
def test_large_frames_that_never_come_take_neither_memory_nor_turns(start_broker: StartBroker) -> None:
    """Twenty peers announce 90 MiB each and send 1 KiB: only what arrives may count against the others."""
    broker = start_broker()
    confluent.write_one_batch_each(broker.bootstrap, TOPIC, [Record(b"k", b"gold")] * 10)
    memory_before = broker.resident_bytes()
    with wire.RawClient(broker.port, timeout_s=60) as friend:
        peers = [wire.RawClient(broker.port) for _ in range(20)]
        for peer in peers:
            peer.send(frame(bytes(1024), size=90 * MIB))
        assert friend.fetch(TOPIC, 0, 0).error == 0
        assert friend.produce(TOPIC, 0, wire.batch([bytes(500_000)])).error == 0
        assert broker.resident_bytes() - memory_before < 40 * MIB
        for peer in peers:
            peer.close()


def test_a_frame_that_comes_byte_by_byte_is_a_frame(harbour: Harbour) -> None:
    with wire.RawClient(harbour.broker.port) as peer:
        for byte in wire.request(wire.FETCH, 4, wire.fetch_body(TOPIC, 0, 0), correlation_id=5):
            peer.send(bytes([byte]))
        correlation_id, body = peer.receive()
        assert correlation_id == 5
        assert wire.parse_fetch(body).high_watermark == 10


def test_peers_that_break_off_in_the_middle(harbour: Harbour) -> None:
    whole = wire.request(wire.PRODUCE, 3, wire.produce_body(TOPIC, 0, wire.batch([b"half a ship"])))
    for cut in range(1, len(whole), 7):
        with wire.RawClient(harbour.broker.port) as peer:
            peer.send(whole[:cut])


def test_answers_come_in_the_order_of_the_requests(harbour: Harbour) -> None:
    """Pipelined: a waiting fetch first, quick requests behind it, all sent at once."""
    with wire.RawClient(harbour.broker.port) as peer:
        slow = wire.request(wire.FETCH, 4, wire.fetch_body(TOPIC, 0, 10, max_wait_ms=300), correlation_id=0)
        quick = [wire.request(wire.API_VERSIONS, 0, b"", correlation_id=i) for i in range(1, 50)]
        peer.send(slow + b"".join(quick))
        assert [peer.receive()[0] for _ in range(50)] == list(range(50))


def test_a_peer_that_does_not_read_its_answers(harbour: Harbour) -> None:
    """Backpressure: the broker stops reading from it instead of piling up answers without end."""
    fetch = wire.request(wire.FETCH, 4, wire.fetch_body(TOPIC, 0, 0))
    with wire.RawClient(harbour.broker.port, timeout_s=1.0) as peer, pytest.raises(TimeoutError):
        for _ in range(200_000):
            peer.send(fetch * 100)


def many(values: int) -> list[bytes]:
    return [b"x"] * values


def gzip_bomb() -> bytes:
    """A record of 600 MB in a batch of 600 KB."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    size = 600 * MIB
    head = b"\0" + wire.varint(0) * 2 + wire.varint(-1) + wire.varint(size)
    packed = squeeze.compress(wire.varint(len(head) + size + 1) + head)
    for _ in range(600):
        packed += squeeze.compress(bytes(MIB))
    return packed + squeeze.compress(wire.varint(0)) + squeeze.flush()


BAD_BATCHES: dict[str, tuple[Callable[[], bytes], set[int]]] = {
    "a wrong CRC": (lambda: wire.batch(many(3), crc=1), {CORRUPT_MESSAGE}),
    "a batch cut short": (lambda: wire.batch(many(3))[:-5], {CORRUPT_MESSAGE, INVALID_RECORD}),
    "half a batch header": (lambda: wire.batch(many(3))[:30], {CORRUPT_MESSAGE, INVALID_RECORD}),
    "magic 1": (lambda: wire.batch(many(3), magic=1), {CORRUPT_MESSAGE, UNSUPPORTED_FORMAT, INVALID_RECORD}),
    "magic 3": (lambda: wire.batch(many(3), magic=3), {CORRUPT_MESSAGE, UNSUPPORTED_FORMAT, INVALID_RECORD}),
    "more records than there are": (
        lambda: wire.batch(many(3), record_count=4, last_offset_delta=3),
        {CORRUPT_MESSAGE, INVALID_RECORD},
    ),
    "fewer records than there are": (
        lambda: wire.batch(many(3), record_count=2, last_offset_delta=1),
        {CORRUPT_MESSAGE, INVALID_RECORD},
    ),
    "a count that is not the offsets'": (lambda: wire.batch(many(3), record_count=2), {INVALID_RECORD}),
    "a negative count": (lambda: wire.batch(many(3), record_count=-1), {INVALID_RECORD}),
    "two billion records": (
        lambda: wire.batch(many(3), record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        {CORRUPT_MESSAGE, INVALID_RECORD},
    ),
    "offsets that are not one after the other": (
        lambda: wire.batch(many(2), records=wire.record(0, b"a") + wire.record(5, b"b")),
        {CORRUPT_MESSAGE, INVALID_RECORD},
    ),
    "bytes after the last record": (
        lambda: wire.batch(many(1), records=wire.record(0, b"a") + b"stowaway"),
        {CORRUPT_MESSAGE, INVALID_RECORD},
    ),
    "a client's control batch": (lambda: wire.batch(many(1), attributes=0x20), {INVALID_RECORD}),
    "an unknown codec": (
        lambda: wire.batch(many(1), attributes=6),
        {CORRUPT_MESSAGE, INVALID_RECORD, 76},
    ),
    "gzip that is none": (lambda: wire.batch(many(1), attributes=1), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "two batches at once": (lambda: wire.batch(many(1)) + wire.batch(many(1)), {INVALID_RECORD}),
    "no batch at all": (lambda: b"", {CORRUPT_MESSAGE, INVALID_RECORD}),
    "a batch over max.message.bytes": (lambda: wire.batch([bytes(MIB)]), {MESSAGE_TOO_LARGE}),
    "an idempotent batch without a sequence": (
        lambda: wire.batch(many(1), producer_id=5, producer_epoch=0),
        {INVALID_RECORD, CORRUPT_MESSAGE},
    ),
    "garbage": (lambda: NOISE, {CORRUPT_MESSAGE, UNSUPPORTED_FORMAT, INVALID_RECORD}),
}


@pytest.mark.parametrize("case", stricter_than_kafka(BAD_BATCHES))
def test_a_bad_batch_gets_its_error(harbour: Harbour, case: str) -> None:
    make, errors = BAD_BATCHES[case]
    with wire.RawClient(harbour.broker.port) as peer:
        answer = peer.produce(TOPIC, 0, make())
        assert answer.error in errors
        assert answer.base_offset == -1
        assert peer.api_versions(), "the connection is as good as before"


@pytest.mark.minikafka_only
def test_a_decompression_bomb_is_refused_within_bounded_memory(harbour: Harbour) -> None:
    batch = wire.batch(many(1), attributes=1, records=gzip_bomb())
    with wire.RawClient(harbour.broker.port, timeout_s=30) as peer:
        assert peer.produce(TOPIC, 0, batch).error in {CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE}


def test_many_connections_come_and_go(harbour: Harbour) -> None:
    for _ in range(200):
        wire.RawClient(harbour.broker.port).close()
    peers = [wire.RawClient(harbour.broker.port) for _ in range(300)]
    assert all(peer.api_versions() for peer in peers)
    for peer in peers:
        peer.close()
