"""Stock clients behind one small interface, so that each can read what every other wrote.

`write_all` writes to partition 0 of each topic in the order given and returns when all is acknowledged;
`read_all` reads the first `count` records of partition 0 of each topic. Both raise when the client reports
any error, and end at a deadline.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from tests.integration.support import java
from tests.integration.support.records import CODECS, Consumed, Record

DEADLINE_S = 90.0

Writes = Mapping[str, tuple[str, Sequence[Record]]]
"""Topic → codec, records."""
Reads = Mapping[str, int]
"""Topic → number of records."""
Found = dict[str, list[Consumed]]


class Client(Protocol):
    name: ClassVar[str]
    codecs: ClassVar[tuple[str, ...]]

    def can_write(self, record: Record) -> bool:
        """Whether the client's interface can express the record at all."""
        ...

    def write_all(self, bootstrap: str, writes: Writes) -> None: ...

    def read_all(self, bootstrap: str, reads: Reads) -> Found: ...


class Reading:
    """What was read so far, and how long reading may take."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._end = time.monotonic() + DEADLINE_S
        self.found: Found = {topic: [] for topic in reads}

    def is_done(self) -> bool:
        """Raises TimeoutError, with what is missing, when the deadline is over."""
        missing = {
            topic: n - len(self.found[topic])
            for topic, n in self._reads.items()
            if n > len(self.found[topic])
        }
        if missing and time.monotonic() > self._end:
            raise TimeoutError(f"still missing after {DEADLINE_S} s: {missing}")
        return not missing


class Confluent:
    name: ClassVar[str] = "confluent-kafka"
    codecs: ClassVar[tuple[str, ...]] = CODECS

    def can_write(self, record: Record) -> bool:
        return True

    def write_all(self, bootstrap: str, writes: Writes) -> None:
        from confluent_kafka import Producer

        failures: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failures.append(error)

        for topic, (codec, records) in writes.items():
            producer = Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "compression.type": codec,
                    "linger.ms": 20,
                    "message.timeout.ms": int(DEADLINE_S * 1000),
                    "enable.idempotence": True,
                }
            )
            for record in records:
                producer.produce(
                    topic,
                    partition=0,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp=record.timestamp_ms or 0,
                    on_delivery=delivered,
                )
            assert producer.flush(DEADLINE_S) == 0
        assert not failures, failures

    def read_all(self, bootstrap: str, reads: Reads) -> Found:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
        reading = Reading(reads)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in reads])
        while not reading.is_done():
            for message in consumer.consume(1_000, timeout=0.2):
                assert message.error() is None, message.error()
                headers = tuple(message.headers() or ())
                topic, timestamp = message.topic(), message.timestamp()[1]
                record = Consumed(message.offset(), message.key(), message.value(), headers, timestamp)
                reading.found[topic].append(record)
        consumer.close()
        return reading.found


class Aiokafka:
    name: ClassVar[str] = "aiokafka"
    codecs: ClassVar[tuple[str, ...]] = CODECS

    def can_write(self, record: Record) -> bool:
        return record.value is not None or record.key is not None

    def write_all(self, bootstrap: str, writes: Writes) -> None:
        asyncio.run(asyncio.wait_for(self._write(bootstrap, writes), DEADLINE_S))

    async def _write(self, bootstrap: str, writes: Writes) -> None:
        from aiokafka import AIOKafkaProducer

        for topic, (codec, records) in writes.items():
            async with AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                enable_idempotence=True,
            ) as producer:
                sent = [
                    await producer.send(
                        topic,
                        partition=0,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                await asyncio.gather(*sent)

    def read_all(self, bootstrap: str, reads: Reads) -> Found:
        return asyncio.run(asyncio.wait_for(self._read(bootstrap, reads), DEADLINE_S))

    async def _read(self, bootstrap: str, reads: Reads) -> Found:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        reading = Reading(reads)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
            partitions = [TopicPartition(topic, 0) for topic in reads]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            while not reading.is_done():
                for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                    reading.found[partition.topic].extend(
                        Consumed(record.offset, record.key, record.value, record.headers, record.timestamp)
                        for record in records
                    )
        return reading.found


class KafkaPython:
    name: ClassVar[str] = "kafka-python"
    codecs: ClassVar[tuple[str, ...]] = CODECS

    def can_write(self, record: Record) -> bool:
        return record.value is not None or record.key is not None

    def write_all(self, bootstrap: str, writes: Writes) -> None:
        from kafka import KafkaProducer

        for topic, (codec, records) in writes.items():
            producer = KafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                enable_idempotence=True,
            )
            sent = [
                producer.send(
                    topic,
                    partition=0,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(timeout=DEADLINE_S)
            for future in sent:
                future.get(timeout=DEADLINE_S)
            producer.close()

    def read_all(self, bootstrap: str, reads: Reads) -> Found:
        from kafka import KafkaConsumer, TopicPartition

        reading = Reading(reads)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        partitions = [TopicPartition(topic, 0) for topic in reads]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while not reading.is_done():
            for partition, records in consumer.poll(timeout_ms=200).items():
                reading.found[partition.topic].extend(
                    Consumed(record.offset, record.key, record.value, tuple(record.headers), record.timestamp)
                    for record in records
                )
        consumer.close()
        return reading.found


class Kcat:
    """kcat writes neither timestamps nor headers per record, and prints headers as text: what it cannot say
    is left out of its records, and its reading of headers is held against the same text."""

    name: ClassVar[str] = "kcat"
    codecs: ClassVar[tuple[str, ...]] = CODECS
    KEY_END, RECORD_END = b"<=key|", b"<=record|"

    def can_write(self, record: Record) -> bool:
        if not record.key and record.value is None:
            return False  # -Z makes both of them null, and an empty line is no record
        return all(b"," not in (value or b"") and b"\0" not in (value or b"") for _, value in record.headers)

    def write_all(self, bootstrap: str, writes: Writes) -> None:
        for topic, (codec, records) in writes.items():
            for (headers, nulls), group in itertools.groupby(
                records, lambda record: (record.headers, record.value is None)
            ):
                arguments = [
                    "kcat",
                    "-P",
                    "-b",
                    bootstrap,
                    "-t",
                    topic,
                    "-p",
                    "0",
                    "-z",
                    codec,
                    "-X",
                    "acks=all",
                ]
                arguments += ["-K", self.KEY_END.decode(), "-D", self.RECORD_END.decode()]
                arguments += ["-Z"] if nulls else []
                for name, value in headers:
                    arguments += ["-H", name.encode() + b"=" + (value or b"")]  # type: ignore[list-item]
                stdin = self.RECORD_END.join(
                    (b"" if record.key is None else record.key + self.KEY_END) + (record.value or b"")
                    for record in group
                )
                self._run(arguments, stdin)

    def read_all(self, bootstrap: str, reads: Reads) -> Found:
        found: Found = {}
        for topic, count in reads.items():
            arguments = ["kcat", "-C", "-q", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning"]
            output = self._run([*arguments, "-c", str(count), "-f", "%o %T %K %S\n%k%s%h\n"], b"")
            found[topic] = self._parse(output)
        return found

    def _parse(self, output: bytes) -> list[Consumed]:
        records = []
        while output:
            line, _, output = output.partition(b"\n")
            offset, timestamp, key_size, value_size = map(int, line.split())
            key, output = self._cut(output, key_size)
            value, output = self._cut(output, value_size)
            headers, _, output = output.partition(b"\n")
            # The text of all headers stands for them: see `headers_as_text`.
            records.append(Consumed(offset, key, value, (("text", headers),) if headers else (), timestamp))
        return records

    @staticmethod
    def _cut(data: bytes, size: int) -> tuple[bytes | None, bytes]:
        return (None, data) if size < 0 else (data[:size], data[size:])

    @staticmethod
    def headers_as_text(record: Record) -> Record:
        """The record as kcat prints it: a header's value is C's string, which ends at the first zero byte."""
        text = b",".join(
            name.encode() + b"=" + (b"NULL" if value is None else value.split(b"\0")[0])
            for name, value in record.headers
        )
        return record._replace(headers=(("text", text),) if text else ())

    @staticmethod
    def _run(arguments: list[str], stdin: bytes) -> bytes:
        done = subprocess.run(arguments, input=stdin, capture_output=True, timeout=DEADLINE_S)
        assert done.returncode == 0 and b"ERROR" not in done.stderr, (arguments, done.stderr)
        return done.stdout


class Java:
    name: ClassVar[str] = "java"
    codecs: ClassVar[tuple[str, ...]] = CODECS

    def __init__(self, class_path: str) -> None:
        self._class_path = class_path

    def can_write(self, record: Record) -> bool:
        return True

    def write_all(self, bootstrap: str, writes: Writes) -> None:
        jobs = [(codec, topic, 0, records) for topic, (codec, records) in writes.items()]
        offsets = java.produce(self._class_path, bootstrap, jobs)
        assert len(offsets) == sum(len(records) for _, records in writes.values())

    def read_all(self, bootstrap: str, reads: Reads) -> Found:
        found = java.consume(
            self._class_path, bootstrap, {(topic, 0): count for topic, count in reads.items()}
        )
        return {topic: records for (topic, _), records in found.items()}
