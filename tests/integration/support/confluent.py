"""What most tests do, through librdkafka: make a topic, write records, read them, ask for offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.integration.support.records import Consumed, Record

DEADLINE_S = 90.0

PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.5
"""Between two questions of ``wait_until``."""

LEADER_HAS_CHANGED = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.FENCED_LEADER_EPOCH)
"""Between the Metadata and the ListOffsets of an AdminClient, which leaves it to its user to ask again."""

is_patient = False
"""Set for Apache Kafka, whose topics are there some time after their creation was acknowledged."""


def wait_until(
    condition: Callable[[], object],
    what: str,
    *,
    deadline_s: float = DEADLINE_S,
    pause_s: float = PAUSE_MIN_S,
) -> None:
    """Ask again and again until `condition` holds. Only for what nothing announces. A question that takes
    long is asked less often: it takes the time of those who are to bring about what is waited for.
    ``pause_s``: at least between two questions."""
    end = time.monotonic() + deadline_s
    while True:
        asked = time.monotonic()
        if condition():
            return
        answered = time.monotonic()
        assert answered < end, f"not within {deadline_s} s: {what}"
        time.sleep(max(pause_s, min(2 * (answered - asked), PAUSE_MAX_S)))


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def make_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, object] | None = None,
) -> None:
    settings = {name: str(value) for name, value in (config or {}).items()}
    client = admin(bootstrap)  # its futures need it alive
    client.create_topics([NewTopic(topic, partitions, replicas, config=settings)])[topic].result(DEADLINE_S)
    for partition in range(partitions if is_patient else 0):
        latest(bootstrap, topic, partition=partition)


def make_producer(bootstrap: str, **config: object) -> Producer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000} | settings)


def write(
    bootstrap: str, topic: str, records: Iterable[Record], *, partition: int = 0, **config: object
) -> list[int]:
    """Write and wait for every acknowledgement; returns the offsets, in the order of the records."""
    producer = make_producer(bootstrap, **config)
    offsets: dict[int, int] = {}

    def delivered(index: int) -> Callable[[Any, Message], None]:
        def note(error: Any, message: Message) -> None:
            assert error is None, error
            offsets[index] = message.offset() or 0

        return note

    count = 0
    for record in records:
        arguments: dict[str, Any] = {"partition": partition, "on_delivery": delivered(count)}
        arguments |= {"key": record.key, "value": record.value, "headers": list(record.headers)}
        arguments |= {"timestamp": record.timestamp_ms or 0}
        while True:
            try:
                producer.produce(topic, **arguments)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    try:
        assert producer.flush(DEADLINE_S) == 0
    finally:
        producer.close()  # an error's traceback has the producer, which would go on until it is collected
    return [offsets[i] for i in range(count)]


def write_one_batch_each(
    bootstrap: str, topic: str, records: Iterable[Record], **config: object
) -> list[int]:
    """Like `write`, with a request and a batch for each record."""
    return write(bootstrap, topic, records, batch_num_messages=1, linger_ms=0, **config)


def make_consumer(bootstrap: str, **config: object) -> Consumer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    base = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    return Consumer(base | settings)


def consumed(message: Message) -> Consumed:
    return Consumed(
        message.offset() or 0,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


def read(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    start: int = OFFSET_BEGINNING,
    **config: object,
) -> list[Consumed]:
    """Read `count` records from `start`. Raises AssertionError on any error and at the deadline."""
    consumer = make_consumer(bootstrap, **config)
    consumer.assign([TopicPartition(topic, partition, start)])
    found: list[Consumed] = []
    end = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < end, f"{topic}: {len(found)} of {count} records within {DEADLINE_S} s"
        for message in consumer.consume(10_000, timeout=0.2):
            assert message.error() is None, message.error()
            found.append(consumed(message))
    consumer.close()
    return found[:count]


def list_offset(bootstrap: str, topic: str, spec: OffsetSpec, *, partition: int = 0) -> int:
    """Each attempt is a new client: one that was refused repeats the leader epoch that it has cached."""
    at = TopicPartition(topic, partition)
    end = time.monotonic() + DEADLINE_S
    while True:
        client = admin(bootstrap)  # which has to outlive its future
        try:
            offset: int = client.list_offsets({at: spec})[at].result(DEADLINE_S).offset
            return offset
        except KafkaException as error:
            look_again = is_patient or error.args[0].code() in LEADER_HAS_CHANGED
            if not look_again or time.monotonic() > end:
                raise


def earliest(bootstrap: str, topic: str, *, partition: int = 0) -> int:
    return list_offset(bootstrap, topic, OffsetSpec.earliest(), partition=partition)


def latest(bootstrap: str, topic: str, *, partition: int = 0) -> int:
    return list_offset(bootstrap, topic, OffsetSpec.latest(), partition=partition)
