"""Transactional producers by every stock client behind one interface, and who reads what they have committed.

Values are what is written; keys and headers are the business of other tests. A producer raises ``Fenced``
when the broker tells it that another producer has its transactional id.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

DEADLINE_S = 90.0

T = TypeVar("T")
Place = tuple[str, int]


class Fenced(Exception):
    """Another producer has the transactional id."""


class TransactionalProducer(Protocol):
    """What all can do. Making one fences the earlier owner of its id."""

    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Return when it is in the log."""

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...

    def close(self) -> None:
        """End, whatever state it is in, as a process would that ends; an open transaction stays open."""


class Confluent:
    """librdkafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._bootstrap = bootstrap
        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, 30_000),
                "linger.ms": 0,
            }
        )
        self._call(lambda: self._producer.init_transactions(DEADLINE_S))

    def _call(self, call: Callable[[], T]) -> T:
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                return call()
            except KafkaException as error:
                reason = error.args[0]
                if reason.name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
                    raise Fenced(reason.str()) from error
                if not reason.retriable() or time.monotonic() > end:
                    raise

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        failures: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error)

        self._call(lambda: self._producer.produce(topic, value, partition=partition, on_delivery=delivered))
        assert self._producer.flush(DEADLINE_S) == 0
        if failures and failures[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
            raise Fenced(failures[0].str())
        assert not failures, failures

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            metadata = consumer.consumer_group_metadata()
            positions = [TopicPartition(*place, offset) for place, offset in offsets.items()]
            self._call(lambda: self._producer.send_offsets_to_transaction(positions, metadata, DEADLINE_S))
        finally:
            consumer.close()

    def commit(self) -> None:
        self._call(lambda: self._producer.commit_transaction(DEADLINE_S))

    def abort(self) -> None:
        self._call(lambda: self._producer.abort_transaction(DEADLINE_S))

    def close(self) -> None:
        with contextlib.suppress(KafkaException):  # it is fenced, and has let go of everything
            self._producer.purge()
            self._producer.flush(1)
        del self._producer  # it ends with its last reference, and an expected error's traceback has ``self``


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(DEADLINE_S * 1000),
        )
        self._call(self._producer.init_transactions)

    def _call(self, call: Callable[[], T]) -> T:
        from kafka.errors import InvalidProducerEpochError, ProducerFencedError

        try:
            return call()
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            raise Fenced(str(error)) from error

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._call(lambda: self._producer.send(topic, value, partition=partition).get(DEADLINE_S))

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        from kafka.structs import OffsetAndMetadata
        from kafka.structs import TopicPartition as Partition

        positions = {
            Partition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()
        }
        self._call(lambda: self._producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=0)


class Aiokafka:
    """aiokafka, on a loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer: Any = self._await(self._start(bootstrap, transactional_id, timeout_ms))

    async def _start(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        await producer.start()
        return producer

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        from aiokafka.errors import InvalidProducerEpoch, ProducerFenced

        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise Fenced(str(error)) from error

    def begin(self) -> None:
        self._await(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._await(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        from aiokafka import TopicPartition as Partition

        positions = {Partition(*place): offset for place, offset in offsets.items()}
        self._await(self._producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._await(self._producer.commit_transaction())

    def abort(self) -> None:
        self._await(self._producer.abort_transaction())

    def close(self) -> None:
        self._await(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._producer.client.close()
        self._producer._closed = True  # else it complains when it is collected


PRODUCERS: Mapping[str, Callable[..., TransactionalProducer]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


class Reader:
    """librdkafka, from the beginning of a partition; ``values`` is what has come so far."""

    committed: ClassVar[str] = "read_committed"
    uncommitted: ClassVar[str] = "read_uncommitted"

    def __init__(self, bootstrap: str, topic: str, *, isolation: str = "read_committed") -> None:
        self.values: list[bytes] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def __repr__(self) -> str:
        return f"Reader({self.values})"

    def poll(self) -> list[bytes]:
        """All values, with what has come meanwhile."""
        message = self._consumer.poll(0.1)
        if message is not None:
            error = message.error()
            assert error is None or error.retriable(), error
            if error is None:
                self.values.append(message.value() or b"")
        return self.values

    def close(self) -> None:
        self._consumer.close()


def read_with_confluent(bootstrap: str, topic: str, count: int, isolation: str) -> list[bytes]:
    reader = Reader(bootstrap, topic, isolation=isolation)
    end = time.monotonic() + DEADLINE_S
    try:
        while len(reader.poll()) < count:
            assert time.monotonic() < end, reader
        return reader.values
    finally:
        reader.close()


def read_with_kafka_python(bootstrap: str, topic: str, count: int, isolation: str) -> list[bytes]:
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition as Partition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, group_id=None)
    values: list[bytes] = []
    end = time.monotonic() + DEADLINE_S
    try:
        consumer.assign([Partition(topic, 0)])
        consumer.seek_to_beginning()
        while len(values) < count:
            assert time.monotonic() < end, values
            for records in consumer.poll(timeout_ms=100).values():
                values += [record.value for record in records]
        return values
    finally:
        consumer.close()


def read_with_aiokafka(bootstrap: str, topic: str, count: int, isolation: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Partition

    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            consumer.assign([Partition(topic, 0)])
            return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    async def in_time() -> list[bytes]:
        async with asyncio.timeout(DEADLINE_S):
            return await read()

    return asyncio.run(in_time())


def read_with_kcat(bootstrap: str, topic: str, count: int, isolation: str) -> list[bytes]:
    command = (
        f"kcat -q -b {bootstrap} -C -t {topic} -p 0 -o beginning -c {count} -X isolation.level={isolation}"
    )
    found = subprocess.run(command.split(), capture_output=True, timeout=DEADLINE_S, check=True)
    return found.stdout.splitlines()


READERS = {
    "confluent-kafka": read_with_confluent,
    "kafka-python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
    "kcat": read_with_kcat,
}
"""Read ``count`` values of partition 0 from the beginning, or more that came with them."""
