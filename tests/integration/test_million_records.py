"""One million records through a broker: order, keys, headers, timestamps and content compared one by one."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import numbered

COUNT = 1_000_000
PARTITIONS = 3
DEADLINE_S = 240.0


def test_a_million_records_come_out_as_they_went_in(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(broker.bootstrap, topic, partitions=PARTITIONS, config={"segment.bytes": 8 << 20})
    failures: list[object] = []
    producer = confluent.make_producer(
        broker.bootstrap,
        enable_idempotence=True,
        linger_ms=5,
        message_timeout_ms=int(DEADLINE_S * 1000),
        compression_type="lz4",
        queue_buffering_max_messages=200_000,
    )

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for index in range(COUNT):
        key, value, headers, timestamp_ms = numbered(index)
        while True:
            try:
                producer.produce(
                    topic,
                    key=key,
                    value=value,
                    headers=list(headers),
                    timestamp=timestamp_ms or 0,
                    partition=index % PARTITIONS,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if index % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert not failures, failures[:5]

    next_offsets = [0] * PARTITIONS
    consumer = confluent.make_consumer(broker.bootstrap)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    end = time.monotonic() + DEADLINE_S
    while sum(next_offsets) < COUNT:
        assert time.monotonic() < end, f"read {next_offsets}"
        for message in consumer.consume(10_000, timeout=0.5):
            assert message.error() is None, message.error()
            partition = message.partition()
            offset = next_offsets[partition]
            assert message.offset() == offset, (
                f"partition {partition}: {message.offset()} instead of {offset}"
            )
            key, value, headers, timestamp_ms = numbered(offset * PARTITIONS + partition)
            assert message.key() == key
            assert message.value() == value
            assert tuple(message.headers() or ()) == headers
            assert message.timestamp()[1] == timestamp_ms
            next_offsets[partition] = offset + 1
    consumer.close()
    for partition in range(PARTITIONS):
        share = len(range(partition, COUNT, PARTITIONS))
        assert next_offsets[partition] == share
        assert confluent.latest(broker.bootstrap, topic, partition=partition) == share
