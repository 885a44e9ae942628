"""Members of consumer groups whose histories are recorded, each a process of its own.

    python -m tests.chaos.consumers CLIENT BOOTSTRAP TOPICS GROUP HISTORY

CLIENT: ``confluent`` (classic protocol), ``confluent-consumer`` (KIP-848), ``confluent-static`` (a static
member), ``aiokafka`` or ``kafka-python``. TOPICS is a list with commas. What is read is committed. All read
read_committed. SIGTERM leaves the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minikafka.testing.history import Kind, Outcome, Partition, Record
from tests.chaos.recording import Recorder, now_ms, quiet_logger, tell_stacks_on_request
from tests.chaos.surprises import Surprises

POLL_S = 0.2
RECORDS_MAX = 200
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_MS = 1_000
AGAIN_S = 0.5
"""After an error that is none of the library's own."""
CLOSE_S = 30


class Reading:
    """What all members share: how their history is written."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.bootstrap, topics, self.group, history = arguments
        self.topics = topics.split(",")
        self.recorder = Recorder(Path(history), Path(history).stem)
        self.stop = threading.Event()
        self.surprises = Surprises()

    def assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        now = now_ms()
        self.recorder.write(
            Kind.ASSIGN,
            now,
            Outcome.OK,
            group=self.group,
            partitions=tuple(Partition(*each) for each in partitions),
        )

    def polled(self, invoked_ms: float, records: Sequence[Record]) -> None:
        if records:
            self.recorder.write(
                Kind.POLL,
                invoked_ms,
                Outcome.OK,
                group=self.group,
                records=tuple(records),
                read_committed=True,
            )

    def committed(
        self, invoked_ms: float, positions: Mapping[tuple[str, int], int], error: object = None
    ) -> None:
        self.recorder.write(
            Kind.COMMIT,
            invoked_ms,
            Outcome.OK if error is None else Outcome.INFO,
            group=self.group,
            records=tuple(Record(*partition, offset) for partition, offset in positions.items()),
            error="" if error is None else str(error),
        )


def positions_after(records: Sequence[Record]) -> dict[tuple[str, int], int]:
    """What is to be committed when these have been read."""
    return {(each.topic, each.partition): (each.offset or 0) + 1 for each in records}


def by_confluent(reading: Reading, settings: Mapping[str, Any]) -> None:
    """One member after another: a fatal error ends one. A static member is fenced where its coordinator was
    away for longer than its session: librdkafka has begun to join again by then, under no member id."""
    from confluent_kafka import Consumer, KafkaException

    while not reading.stop.is_set():
        consumer = Consumer(
            {
                "bootstrap.servers": reading.bootstrap,
                "group.id": reading.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 2_000,
                "reconnect.backoff.max.ms": 500,
                **settings,
            },
            # A logger is called by ``consume`` alone. What a member wrote that then hangs in a commit has to
            # be on record all the same, so that one which tells of its group writes to its standard error.
            **({} if "debug" in settings else {"logger": quiet_logger()}),
        )
        try:
            _read_by_confluent(reading, consumer)
            consumer.close()
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            if not isinstance(error, KafkaException):
                reading.surprises.note("a member", error)
            print(f"begins again after {error}", file=sys.stderr)
            with contextlib.suppress(KafkaException):
                consumer.close()
            reading.assigned(())
            time.sleep(AGAIN_S)


def _read_by_confluent(reading: Reading, consumer: Any) -> None:
    """Raises KafkaException when it can go on no more."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    held: set[tuple[str, int]] = set()

    def assigned(_: object, partitions: Sequence[TopicPartition]) -> None:
        held.update((each.topic, each.partition) for each in partitions)
        reading.assigned(sorted(held))

    def revoked(_: object, partitions: Sequence[TopicPartition]) -> None:
        held.difference_update((each.topic, each.partition) for each in partitions)
        reading.assigned(sorted(held))

    consumer.subscribe(reading.topics, on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not reading.stop.is_set():
        invoked_ms = now_ms()
        messages = consumer.consume(RECORDS_MAX, POLL_S)
        records = [
            Record(each.topic(), each.partition(), each.offset(), (each.value() or b"").decode())
            for each in messages
            if each.error() is None
        ]
        reading.polled(invoked_ms, records)
        for each in messages:
            if each.error() is not None and each.error().code() == KafkaError._FATAL:
                raise KafkaException(each.error())
        if not records:
            continue
        positions, invoked_ms = positions_after(records), now_ms()
        offsets = [TopicPartition(*partition, offset) for partition, offset in positions.items()]
        try:
            told = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:  # a rebalance, a coordinator that moves: read again by others
            reading.committed(invoked_ms, positions, error)
        else:
            failed = next((each.error for each in told or () if each.error is not None), None)
            reading.committed(invoked_ms, positions, failed)


# aiokafka began as kafka-python, so they are asked alike.


def settings_of(reading: Reading) -> dict[str, Any]:
    """Of both."""
    return {
        "bootstrap_servers": reading.bootstrap.split(","),
        "group_id": reading.group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "metadata_max_age_ms": 2_000,
    }


def listener_of(base: type, reading: Reading) -> Any:
    """Of the library's own class; it records what the member has."""

    class Listener(base):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[tuple[str, int]]) -> None:
            reading.assigned(())

        def on_partitions_assigned(self, assigned: Iterable[tuple[str, int]]) -> None:
            reading.assigned(sorted(assigned))

    return Listener()


def records_of(polled: Mapping[Any, Sequence[Any]]) -> list[Record]:
    """What both return from a poll: messages by their partition."""
    return [
        Record(each.topic, each.partition, each.offset, each.value.decode())
        for of_partition in polled.values()
        for each in of_partition
    ]


async def by_aiokafka(reading: Reading) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
    from aiokafka.errors import KafkaError

    async def end(consumer: AIOKafkaConsumer) -> None:
        try:
            await asyncio.wait_for(consumer.stop(), CLOSE_S)
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            if not isinstance(error, KafkaError | TimeoutError):
                reading.surprises.note("stop", error)

    while True:
        consumer = AIOKafkaConsumer(**settings_of(reading))
        consumer.subscribe(reading.topics, listener=listener_of(ConsumerRebalanceListener, reading))
        try:
            await consumer.start()
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            if not isinstance(error, KafkaError):  # it reaches no broker yet
                reading.surprises.note("start", error)
            print(f"begins again after {error!r}", file=sys.stderr)
            await end(consumer)
            if reading.stop.is_set():
                return
        else:
            break
    try:
        while not reading.stop.is_set():
            invoked_ms = now_ms()
            try:
                polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=RECORDS_MAX)
            except KafkaError as error:
                print(f"poll: {error!r}", file=sys.stderr)
                continue
            except Exception as error:  # noqa: BLE001 told, and not outlived too often
                reading.surprises.note("poll", error)
                await asyncio.sleep(AGAIN_S)
                continue
            records = records_of(polled)
            reading.polled(invoked_ms, records)
            if not records:
                continue
            positions, invoked_ms = positions_after(records), now_ms()
            try:
                await consumer.commit(
                    {TopicPartition(*at): OffsetAndMetadata(offset, "") for at, offset in positions.items()}
                )
            except (KafkaError, ValueError) as error:  # ValueError: a partition that was taken away meanwhile
                reading.committed(invoked_ms, positions, repr(error))
            except Exception as error:  # noqa: BLE001 told, and not outlived too often
                reading.committed(invoked_ms, positions, repr(error))
                reading.surprises.note("commit", error)
            else:
                reading.committed(invoked_ms, positions)
    finally:
        await end(consumer)


def by_kafka_python(reading: Reading) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    while True:
        try:
            consumer = KafkaConsumer(**settings_of(reading))
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            if not isinstance(error, KafkaError):  # it reaches no broker yet
                reading.surprises.note("a consumer", error)
            print(f"begins again after {error!r}", file=sys.stderr)
            if reading.stop.is_set():
                return
        else:
            break
    consumer.subscribe(reading.topics, listener=listener_of(ConsumerRebalanceListener, reading))
    while not reading.stop.is_set():
        invoked_ms = now_ms()
        try:
            polled = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=RECORDS_MAX)
        except KafkaError as error:  # as when a broker has left between its choice and the request to it
            print(f"poll: {error!r}", file=sys.stderr)
            continue
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            reading.surprises.note("poll", error)
            time.sleep(AGAIN_S)
            continue
        records = records_of(polled)
        reading.polled(invoked_ms, records)
        if not records:
            continue
        positions, invoked_ms = positions_after(records), now_ms()
        try:
            consumer.commit(
                {TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in positions.items()}
            )
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            reading.committed(invoked_ms, positions, repr(error))
            if not isinstance(error, KafkaError):
                reading.surprises.note("commit", error)
        else:
            reading.committed(invoked_ms, positions)
    try:
        consumer.close(autocommit=False)
    except Exception as error:  # noqa: BLE001 told, and not outlived too often
        if not isinstance(error, KafkaError):
            reading.surprises.note("close", error)


def main() -> None:
    client, *arguments = sys.argv[1:]
    reading = Reading(arguments)
    tell_stacks_on_request()
    signal.signal(signal.SIGTERM, lambda *_: reading.stop.set())
    classic = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    match client:
        case "confluent":
            by_confluent(reading, classic | {"partition.assignment.strategy": "cooperative-sticky"})
        case "confluent-static":
            by_confluent(reading, classic | {"group.instance.id": reading.recorder.process})
        case "confluent-consumer":
            by_confluent(reading, {"group.protocol": "consumer", "debug": "cgrp"})
        case "aiokafka":
            logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
            asyncio.run(by_aiokafka(reading))
        case "kafka-python":
            logging.getLogger("kafka").setLevel(logging.CRITICAL)
            by_kafka_python(reading)
        case _:
            raise SystemExit(f"there is no client {client}")
    reading.recorder.close()


if __name__ == "__main__":
    main()
