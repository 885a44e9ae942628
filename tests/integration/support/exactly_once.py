"""Read-process-write by stock clients: consume, write what was read, and commit how far one has come, in one
transaction. Every client raises its own errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

CALL_S = 30.0
"""For what a client does in one call; while a coordinator is away it tries again within it."""

FORGETFUL_S = 10.0
"""For a call that a client does not end by itself: kafka-python (3.0) forgets a request whose coordinator it
could not connect to, and waits for its answer; librdkafka see ``Confluent.send_offsets``."""

READ_S = 0.1
SESSION_TIMEOUT_MS = 45_000
RECONNECT_MS = 500
"""The longest pause of a client before it connects to a broker again; its default is 10 s or 30 s."""

QUIET = logging.getLogger("tests.exactly-once")
QUIET.setLevel(logging.CRITICAL)  # losing connections is the plan


class Rebalanced(Exception):
    """What was read may be another member's by now."""


class WaitsForever(Exception):
    """A client's call has not come back in ``FORGETFUL_S``."""


def in_time(call: Any, *arguments: Any) -> None:
    """For a client that may wait in vain without an end: leave it to it.

    Raises:
        WaitsForever: it still waits.
    """
    failures: list[Exception] = []

    def run() -> None:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 each client has its own
            failures.append(error)

    thread = threading.Thread(target=run, name="may wait for ever", daemon=True)
    thread.start()
    thread.join(FORGETFUL_S)
    if thread.is_alive():
        raise WaitsForever
    if failures:
        raise failures[0]


class ReadProcessWrite(ABC):
    """A consumer and a transactional producer of one kind of client."""

    name: ClassVar[str]
    batch: ClassVar[int]
    """Records in a transaction, at most."""

    def __init__(self, bootstrap: str, source: str, target: str, *, transactional_id: str) -> None:
        """The group is called as the source."""
        self.bootstrap = bootstrap
        self.source = source
        self.target = target
        self.transactional_id = transactional_id

    @abstractmethod
    def new_producer(self) -> None:
        """Fences the one before, if there is one, and waits for the end of its transaction."""

    @abstractmethod
    def read(self) -> list[bytes]:
        """What has come within a short time."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def write(self, values: Sequence[tuple[int, bytes]]) -> None:
        """Partition and value of each."""

    @abstractmethod
    def send_offsets(self) -> None:
        """Of all that was read."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def rewind(self) -> None:
        """To the committed offsets."""

    @abstractmethod
    def close(self) -> None: ...


class Confluent(ReadProcessWrite):
    """librdkafka."""

    name = "confluent-kafka"
    batch = 400

    def __init__(self, bootstrap: str, source: str, target: str, *, transactional_id: str) -> None:
        super().__init__(bootstrap, source, target, transactional_id=transactional_id)
        self._producer: Producer | None = None
        self._is_stuck = False
        self._is_rebalanced = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "reconnect.backoff.max.ms": RECONNECT_MS,
                "group.id": source,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "fetch.wait.max.ms": 50,
                "heartbeat.interval.ms": 500,
            },
            logger=QUIET,
        )
        self._consumer.subscribe([source], on_revoke=self._revoked, on_lost=self._revoked)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._is_rebalanced = True

    @property
    def producer(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def new_producer(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._is_stuck = False
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.transactional_id,
                "reconnect.backoff.max.ms": RECONNECT_MS,
                "linger.ms": 5,
            },
            logger=QUIET,
        )
        self._call(self._producer.init_transactions)

    @staticmethod
    def _call(call: Any, *arguments: Any) -> None:
        """A call that may be made again after an error says so."""
        for attempts_left in (3, 2, 1, 0):
            try:
                call(*arguments, CALL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or not attempts_left:
                    raise

    def read(self) -> list[bytes]:
        self._is_rebalanced = False
        values = []
        for message in self._consumer.consume(self.batch, READ_S):
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif not error.retriable():
                raise KafkaException(error)
        if self._is_rebalanced:
            raise Rebalanced
        return values

    def begin(self) -> None:
        self.producer.begin_transaction()

    def write(self, values: Sequence[tuple[int, bytes]]) -> None:
        for partition, value in values:
            self.producer.produce(self.target, value, partition=partition)

    def send_offsets(self) -> None:
        """librdkafka (2.16) remembers a group's coordinator for minutes. When that broker leaves the metadata
        its handle is taken down, and this call waits for it to come up, beyond its time-out and again when
        it is made again: only another producer gets on (its issues 5456 and 5511)."""
        positions = self._consumer.position(self._consumer.assignment())
        read = [each for each in positions if each.offset >= 0]
        send, group = self.producer.send_offsets_to_transaction, self._consumer.consumer_group_metadata()
        try:
            in_time(self._call, send, read, group)
        except WaitsForever:
            self._is_stuck = True
            raise

    def commit(self) -> None:
        self._call(self.producer.commit_transaction)

    def abort(self) -> None:
        if self._is_stuck:
            raise WaitsForever
        self._call(self.producer.abort_transaction)

    def rewind(self) -> None:
        for each in self._consumer.committed(self._consumer.assignment(), CALL_S):
            if each.error is not None:
                raise KafkaException(each.error)
            if each.offset < 0:
                each.offset = 0
            self._consumer.seek(each)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython(ReadProcessWrite):
    """kafka-python."""

    name = "kafka-python"
    batch = 50

    def __init__(self, bootstrap: str, source: str, target: str, *, transactional_id: str) -> None:
        from kafka import KafkaConsumer

        super().__init__(bootstrap, source, target, transactional_id=transactional_id)
        self._producer: Any = None
        self._consumer = KafkaConsumer(
            source,
            bootstrap_servers=bootstrap.split(","),
            group_id=source,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            max_poll_records=self.batch,
            reconnect_backoff_max_ms=RECONNECT_MS,
        )

    def new_producer(self) -> None:
        from kafka import KafkaProducer

        self._leave_producer()
        self._producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","),
            transactional_id=self.transactional_id,
            max_block_ms=int(FORGETFUL_S * 1000),
            reconnect_backoff_max_ms=RECONNECT_MS,
        )
        self._producer.init_transactions()

    def _leave_producer(self) -> None:
        """``close`` first waits for what is under way, however short its time, and leaves the producer open
        when that does not end."""
        from kafka.errors import KafkaTimeoutError

        producer, self._producer = self._producer, None
        if producer is not None:
            producer._sender.force_close()
            with contextlib.suppress(KafkaTimeoutError):
                producer.close(timeout=0)

    def read(self) -> list[bytes]:
        found = self._consumer.poll(timeout_ms=int(READ_S * 1000))
        return [record.value for records in found.values() for record in records]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, values: Sequence[tuple[int, bytes]]) -> None:
        for partition, value in values:
            self._producer.send(self.target, value, partition=partition)

    def send_offsets(self) -> None:
        from kafka.structs import OffsetAndMetadata

        positions = {
            each: OffsetAndMetadata(self._consumer.position(each), "", -1)
            for each in self._consumer.assignment()
        }
        metadata = self._consumer.group_metadata()
        in_time(self._producer.send_offsets_to_transaction, positions, metadata)

    def commit(self) -> None:
        in_time(self._producer.commit_transaction)

    def abort(self) -> None:
        in_time(self._producer.abort_transaction)

    def rewind(self) -> None:
        for each in self._consumer.assignment():
            self._consumer.seek(each, self._consumer.committed(each) or 0)

    def close(self) -> None:
        self._consumer.close()
        self._leave_producer()


def with_group_errors(consumer: Any) -> Any:
    """aiokafka (0.14) does not look at the error of a whole OffsetFetch response (versions 2 and up), which
    has no partitions then: while the coordinator moves, it takes the group for one without offsets, and reads
    all from the beginning. With this the error is raised, and aiokafka asks again."""
    from aiokafka import errors
    from aiokafka.protocol.commit import OffsetFetchRequest

    coordinator = consumer._coordinator
    send = coordinator._send_req

    async def send_and_check(request: Any) -> Any:
        response = await send(request)
        if isinstance(request, OffsetFetchRequest) and response.API_VERSION >= 2 and response.error_code:
            error = errors.for_code(response.error_code)
            if error is errors.NotCoordinatorForGroupError:
                coordinator.coordinator_dead()
            raise error
        return response

    coordinator._send_req = send_and_check
    return consumer


class Aiokafka(ReadProcessWrite):
    """aiokafka, whose loop runs while it is called."""

    name = "aiokafka"
    batch = 50

    def __init__(self, bootstrap: str, source: str, target: str, *, transactional_id: str) -> None:
        super().__init__(bootstrap, source, target, transactional_id=transactional_id)
        self._runner = asyncio.Runner()
        self._producer: Any = None
        self._consumer: Any = None

    def _run(self, work: Any) -> Any:
        async def in_time() -> Any:
            async with asyncio.timeout(CALL_S):
                return await work

        return self._runner.run(in_time())

    def new_producer(self) -> None:
        self._run(self._connect())

    async def _connect(self) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                self.source,
                bootstrap_servers=self.bootstrap,
                group_id=self.source,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=SESSION_TIMEOUT_MS,
            )
            await consumer.start()
            self._consumer = with_group_errors(consumer)
        if self._producer is not None:
            await self._leave_producer()
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=self.transactional_id, linger_ms=5
        )
        await self._producer.start()

    async def _leave_producer(self) -> None:
        """``stop`` would wait for what is under way, which may never end."""
        producer, self._producer = self._producer, None
        task = producer._sender.sender_task
        if task is not None:
            task.cancel()
        await producer.client.close()
        producer._closed = True

    def read(self) -> list[bytes]:
        found = self._run(self._consumer.getmany(timeout_ms=int(READ_S * 1000), max_records=self.batch))
        return [record.value for records in found.values() for record in records]

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def write(self, values: Sequence[tuple[int, bytes]]) -> None:
        async def write() -> None:
            sent = [
                await self._producer.send(self.target, value, partition=partition)
                for partition, value in values
            ]
            await asyncio.gather(*sent)

        self._run(write())

    def send_offsets(self) -> None:
        async def send() -> None:
            positions = {each: await self._consumer.position(each) for each in self._consumer.assignment()}
            await self._producer.send_offsets_to_transaction(positions, self.source)

        self._run(send())

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def rewind(self) -> None:
        async def rewind() -> None:
            for each in self._consumer.assignment():
                self._consumer.seek(each, await self._consumer.committed(each) or 0)

        self._run(rewind())

    def close(self) -> None:
        async def close() -> None:
            await self._consumer.stop()
            await self._leave_producer()

        self._run(close())
        self._runner.close()
