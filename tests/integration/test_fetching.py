"""A fetch waits until there is enough to send, and no longer, as its sender and a stock consumer see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import TopicPartition

from tests.integration.support import confluent, wire
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record

AT_ONCE_S = 10.0
"""Half of the waits that an append is to end, and more than what a loaded machine adds."""


def timed(action: Callable[[], wire.Fetched]) -> tuple[float, wire.Fetched]:
    start = time.monotonic()
    result = action()
    return time.monotonic() - start, result


def test_a_fetch_with_nothing_to_read_waits_its_time(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(broker.bootstrap, topic)
    with wire.RawClient(broker.port) as client:
        waited_s, fetched = timed(lambda: client.fetch(topic, 0, 0, max_wait_ms=700))
    assert (fetched.error, fetched.high_watermark, len(fetched.records)) == (0, 0, 0)
    assert 0.69 <= waited_s < 0.7 + AT_ONCE_S


def test_an_append_ends_the_wait(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(broker.bootstrap, topic)
    with wire.RawClient(broker.port, timeout_s=30) as reader, wire.RawClient(broker.port) as writer:
        body = wire.fetch_body(topic, 0, 0, max_wait_ms=20_000)
        reader.send(wire.request(wire.FETCH, 4, body))
        start = time.monotonic()
        assert writer.produce(topic, 0, wire.batch([b"awaited"])).error == 0
        _, response = reader.receive()
        assert time.monotonic() - start < AT_ONCE_S
    assert b"awaited" in bytes(wire.parse_fetch(response).records)


def test_min_bytes_holds_the_answer_back_until_there_is_enough(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(broker.bootstrap, topic)
    with wire.RawClient(broker.port, timeout_s=30) as reader, wire.RawClient(broker.port) as writer:
        assert writer.produce(topic, 0, wire.batch([b"too little"])).error == 0
        waited_s, fetched = timed(lambda: reader.fetch(topic, 0, 0, max_wait_ms=600, min_bytes=10_000))
        assert waited_s >= 0.59, "there was too little, so the whole wait is due"
        assert b"too little" in bytes(fetched.records), "what there is comes at the end of the wait"

        body = wire.fetch_body(topic, 0, 0, max_wait_ms=20_000, min_bytes=10_000)
        reader.send(wire.request(wire.FETCH, 4, body))
        start = time.monotonic()
        assert writer.produce(topic, 0, wire.batch([bytes(5_000)])).error == 0
        assert writer.produce(topic, 0, wire.batch([bytes(5_000)])).error == 0
        _, response = reader.receive()
        assert time.monotonic() - start < AT_ONCE_S
        assert len(wire.parse_fetch(response).records) > 10_000


def test_a_stock_consumer_hears_of_a_record_at_once(broker: BrokerProcess, topic: str) -> None:
    """fetch.wait.max.ms of 20 s must not cost a new record 20 s, and an idle consumer must not spin."""
    confluent.make_topic(broker.bootstrap, topic)
    consumer = confluent.make_consumer(broker.bootstrap, fetch_wait_max_ms=20_000, socket_timeout_ms=30_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.5) is None  # the fetch is under way
    arrived: list[float] = []
    sent: list[float] = []

    def listen() -> None:
        for _ in range(5):
            message = consumer.poll(20)
            assert message is not None and message.error() is None
            arrived.append(time.monotonic())
            received.release()

    received = threading.Semaphore(0)
    listener = threading.Thread(target=listen)
    listener.start()
    for _ in range(5):
        confluent.write(broker.bootstrap, topic, [Record(None, b"news")], linger_ms=0)
        sent.append(time.monotonic())
        assert received.acquire(timeout=20)
    listener.join()
    consumer.close()
    assert max(end - start for start, end in zip(sent, arrived, strict=True)) < AT_ONCE_S


def test_many_waiting_fetches_are_all_answered_by_one_append(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(broker.bootstrap, topic)
    readers = [wire.RawClient(broker.port, timeout_s=30) for _ in range(50)]
    for reader in readers:
        reader.send(wire.request(wire.FETCH, 4, wire.fetch_body(topic, 0, 0, max_wait_ms=25_000)))
    with wire.RawClient(broker.port) as writer:
        assert writer.produce(topic, 0, wire.batch([b"for all"])).error == 0
    start = time.monotonic()
    for reader in readers:
        assert b"for all" in bytes(wire.parse_fetch(reader.receive()[1]).records)
        reader.close()
    assert time.monotonic() - start < AT_ONCE_S


def test_fetch_sizes_are_kept_to(broker: BrokerProcess, topic: str) -> None:
    """Whole batches up to the limit, and always at least the first one, however small the limit."""
    confluent.make_topic(broker.bootstrap, topic)
    confluent.write_one_batch_each(broker.bootstrap, topic, [Record(None, bytes(10_000))] * 20)
    with wire.RawClient(broker.port) as client:
        first = client.fetch(topic, 0, 0, partition_max_bytes=1)
        assert 10_000 < len(first.records) < 10_200
        some = client.fetch(topic, 0, 5, partition_max_bytes=35_000)
        assert 30_000 < len(some.records) <= 35_000
        assert int.from_bytes(some.records[:8], "big") == 5
        assert client.fetch(topic, 0, 21).error == 1, "OFFSET_OUT_OF_RANGE beyond the end"
        assert client.fetch(topic, 0, 20).error == 0, "the end itself is where to wait"
        assert client.fetch("no-such-topic", 0, 0).error == 3, "UNKNOWN_TOPIC_OR_PARTITION"
