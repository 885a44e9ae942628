"""``Recorder``: writes down what clients of a test do, from outside of them.

It wraps clients and producers that have the calls of ``SimulatedClient`` and ``SimulatedProducer`` (or of a
transactional producer with ``send(partition, value)`` and ``end(commit=…)``), and passes everything on::

    recorder = Recorder(now_ms=lambda: simulation.loop.time() * 1000)
    producer = recorder.producer("producer-0", SimulatedProducer(client))
    await producer.send("orders", 0, [b"1"])
    ...
    await recorder.read_to_end("final", client, [("orders", 0)])
    report = check(recorder.history())

``reader`` is a consumer that polls while the faults last; without one a history shows only the end. For calls
of other kinds there is ``operation``.

What an error means: an answer that says that nothing was done is FAIL, any other INFO. A send that was tried
again with the same values is one operation, as long as it is uncertain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.testing.history import Kind, Operation, Outcome, Partition, Record

REFUSED: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        # Of a commit:
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Errors of a call that is not tried again: nothing was done, at this try or an earlier one. Those that pass
(NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS) say so of the last try only."""

POLL_PAUSE_MS: Final = 50
TRIES_MAX: Final = 20


class Producer(Protocol):
    """``SimulatedProducer``, as far as it is recorded."""

    async def send(self, topic: str, partition: int, values: Sequence[bytes]) -> int: ...


class TransactionalProducer(Protocol):
    """One that writes to one topic, in one transaction at a time."""

    async def send(self, partition: int, value: bytes) -> Any: ...

    async def end(self, *, commit: bool) -> Any: ...


class Recorder:
    """Of one test. ``now_ms`` is the clock of all its processes."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self.now_ms = now_ms
        self._operations: list[Operation] = []
        self._uncertain: dict[tuple[str, tuple[Record, ...]], Operation] = {}
        self.acknowledged = 0
        """Sends outside of transactions, and commits of transactions, that must be kept now."""

    def __repr__(self) -> str:
        return f"Recorder({len(self._operations)} operations, {self.acknowledged} acknowledged)"

    def history(self) -> list[Operation]:
        """What was done so far. Calls that are not over have no end yet."""
        return list(self._operations)

    def producer(self, process: str, producer: Producer, *, is_durable: bool = True) -> RecordedProducer:
        """``is_durable=False``: it does not wait for acks=all, so that no send is sure."""
        return RecordedProducer(self, process, producer, is_durable=is_durable)

    def transactional(
        self, process: str, producer: TransactionalProducer, *, topic: str
    ) -> RecordedTransactionalProducer:
        return RecordedTransactionalProducer(self, process, producer, topic)

    def reader(
        self,
        process: str,
        client: Any,
        topic: str,
        partition: int,
        *,
        position: int = 0,
        read_committed: bool = False,
        group: str = "",
        from_follower: bool = False,
    ) -> Reader:
        """A consumer of one partition, from ``position`` on.

        Args:
            group: where several processes share the partitions.
            from_follower: it fetches from a replica that does not lead, where there is one (KIP-392).
        """
        reader = Reader(self, process, client, Partition(topic, partition), position)
        reader.read_committed, reader.group, reader.from_follower = read_committed, group, from_follower
        return reader

    def seek(self, process: str, partitions: Iterable[Partition]) -> None:
        """From now on it reads on in these at another place than it was."""
        self.note(process, Kind.SEEK, self.now_ms(), partitions=tuple(partitions))

    def deleted_below(self, process: str, topic: str, partition: int, offset: int) -> None:
        """Records below ``offset`` may be gone from now on."""
        self.note(process, Kind.DELETE, self.now_ms(), records=(Record(topic, partition, offset),))

    def note(self, process: str, kind: Kind, invoked_ms: float, **fields: Any) -> None:
        """What has ended now, and well."""
        operation = Operation(
            process=process,
            kind=kind,
            invoked_ms=invoked_ms,
            completed_ms=self.now_ms(),
            outcome=Outcome.OK,
            **fields,
        )
        self._operations.append(operation)

    @asynccontextmanager
    async def operation(
        self,
        process: str,
        kind: Kind,
        *,
        records: tuple[Record, ...] = (),
        is_durable: bool = True,
        **fields: Any,
    ) -> AsyncIterator[Operation]:
        """One call, within the block, which fills in what came. OK, unless it raises or is not durable.

        A send of the same records that raised before, and may have happened, is gone on with.
        """
        key = (process, records)
        operation = self._uncertain.pop(key, None) if kind is Kind.SEND else None
        if operation is None:
            operation = Operation(
                process=process, kind=kind, invoked_ms=self.now_ms(), records=records, **fields
            )
            self._operations.append(operation)
        try:
            yield operation
        except BaseException as error:
            operation.error = error.code.name if isinstance(error, KafkaError) else type(error).__name__
            if isinstance(error, KafkaError) and error.code in REFUSED and operation.completed_ms is None:
                operation.outcome = Outcome.FAIL
            elif kind is Kind.SEND:
                self._uncertain[key] = operation
            operation.completed_ms = self.now_ms()
            raise
        operation.completed_ms, operation.error = self.now_ms(), ""
        if is_durable:
            operation.outcome = Outcome.OK
            is_plain_send = kind is Kind.SEND and not operation.transaction
            self.acknowledged += is_plain_send or kind is Kind.COMMIT_TRANSACTION

    async def read_to_end(
        self,
        process: str,
        client: Any,
        partitions: Iterable[tuple[str, int]],
        *,
        read_committed: bool = False,
    ) -> None:
        """Poll each partition from its start to its end, as it is then. The cluster must be whole.

        Raises:
            KafkaError, BrokerUnavailable: the last error, after some tries.
        """
        for topic, partition in partitions:
            reader = self.reader(process, client, topic, partition, read_committed=read_committed)
            await reader.poll_to_end()


class RecordedProducer:
    """See ``Recorder.producer``."""

    def __init__(self, recorder: Recorder, process: str, producer: Producer, *, is_durable: bool) -> None:
        self._recorder = recorder
        self._process = process
        self._producer = producer
        self._is_durable = is_durable

    async def send(self, topic: str, partition: int, values: Sequence[bytes]) -> int:
        """As the producer's."""
        records = tuple(Record(topic, partition, None, text(value)) for value in values)
        async with self._recorder.operation(
            self._process, Kind.SEND, records=records, is_durable=self._is_durable
        ) as sent:
            base_offset = await self._producer.send(topic, partition, values)
            if base_offset >= 0:
                sent.records = at_offsets(records, base_offset)
        return base_offset


class RecordedTransactionalProducer:
    """See ``Recorder.transactional``. Everything else is the producer's own."""

    def __init__(self, recorder: Recorder, process: str, producer: TransactionalProducer, topic: str) -> None:
        self._recorder = recorder
        self._process = process
        self._producer = producer
        self._topic = topic
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    @property
    def transaction(self) -> str:
        """The name of the one that is under way."""
        return f"{self._process}#{self._count}"

    async def send(self, partition: int, value: bytes) -> Any:
        """As the producer's."""
        records = (Record(self._topic, partition, None, text(value)),)
        async with self._recorder.operation(
            self._process, Kind.SEND, records=records, transaction=self.transaction
        ):
            return await self._producer.send(partition, value)

    async def end(self, *, commit: bool) -> None:
        """As the producer's. What follows is another transaction, whatever became of this one."""
        kind = Kind.COMMIT_TRANSACTION if commit else Kind.ABORT_TRANSACTION
        try:
            async with self._recorder.operation(self._process, kind, transaction=self.transaction):
                await self._producer.end(commit=commit)
        finally:
            self._count += 1

    def give_up(self) -> None:
        """The transaction failed before its end; what follows is another one."""
        self._count += 1


class Reader:
    """See ``Recorder.reader``. Polls that bring nothing are not written down."""

    def __init__(
        self, recorder: Recorder, process: str, client: Any, partition: Partition, position: int
    ) -> None:
        self._recorder = recorder
        self._process = process
        self._client = client
        self._partition = partition
        self.position = position
        """Of the next record that it fetches."""
        self.read_committed = False
        self.group = ""
        self.from_follower = False
        self._address: tuple[str, int] | None = None

    def __repr__(self) -> str:
        return f"Reader({self._process}, {self._partition} at {self.position})"

    async def poll(self) -> bool:
        """One fetch. Returns whether there was anything. Raises KafkaError, BrokerUnavailable."""
        topic, number = self._partition
        invoked_ms = self._recorder.now_ms()
        if self.from_follower and self._address is None:
            self._address = await self._client.follower(topic, number)
        fetched = await self._client.fetch(
            topic, number, self.position, read_committed=self.read_committed, address=self._address
        )
        if fetched.records:
            self._recorder.note(
                self._process,
                Kind.POLL,
                invoked_ms,
                records=tuple(
                    Record(topic, number, each.offset, text(each.value or b"")) for each in fetched.records
                ),
                read_committed=self.read_committed,
                group=self.group,
            )
        has_more = bool(fetched.next_offset > self.position)
        self.position = fetched.next_offset
        return has_more

    async def follow(self) -> None:
        """Poll through all errors that come; until cancelled."""
        while True:
            try:
                await self.poll()
            except (KafkaError, BrokerUnavailable) as error:
                await self.recover(error)
            await asyncio.sleep(POLL_PAUSE_MS / 1000)

    async def poll_to_end(self) -> None:
        """Raises KafkaError, BrokerUnavailable: ``TRIES_MAX`` errors."""
        tries = 0
        while True:
            try:
                if not await self.poll():
                    return
            except (KafkaError, BrokerUnavailable) as error:
                tries += 1
                if tries == TRIES_MAX:
                    raise
                await self.recover(error)
                await asyncio.sleep(POLL_PAUSE_MS / 1000)

    async def recover(self, error: Exception) -> None:
        """After an error: find the replica again, or a place to read on at.

        Only what was deleted may be out of range: below the start of the log, and a history must say so.
        """
        self._address = None
        self._client.forget_leader(*self._partition)
        if not isinstance(error, KafkaError) or error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return
        try:
            start = await self._client.log_start(*self._partition)
        except (KafkaError, BrokerUnavailable):
            return
        self.position = max(self.position, start)  # else a leader lacks its end, which comes back


def at_offsets(records: Iterable[Record], base_offset: int) -> tuple[Record, ...]:
    """The records of one batch, with the offsets that they got."""
    return tuple(
        Record(each.topic, each.partition, base_offset + index, each.value)
        for index, each in enumerate(records)
    )


def text(value: bytes) -> str:
    """A value as a history has it."""
    return value.decode("utf-8", "backslashreplace")
