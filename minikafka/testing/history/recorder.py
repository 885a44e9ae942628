"""``Recorder``: writes down what clients of a test do, from outside of them.

It wraps clients and producers that have the calls of ``SimulatedClient`` and ``SimulatedProducer`` (or of a
transactional producer with ``send(partition, value)`` and ``end(commit=…)``), and passes everything on::

    recorder = Recorder(now_ms=lambda: simulation.loop.time() * 1000)
    producer = recorder.producer("producer-0", SimulatedProducer(client))
    await producer.send("orders", 0, [b"1"])
    ...
    await recorder.read_to_end("final", client, [("orders", 0)])
    report = check(recorder.history())

``follow`` is a consumer that polls while the faults last; without one a history shows only the end.

What an error means: an answer that says that nothing was appended is FAIL, any other INFO. A send that was
tried again with the same values is one operation, as long as it is uncertain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import msgspec

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import iterate_records
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.history.operations import Kind, Operation, Outcome, Partition, Record

REFUSED: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Errors of a send that is not tried again: nothing was appended, at this try or an earlier one. Those that
pass (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS) say so of the last try only."""

POLL_PAUSE_MS: Final = 50
TRIES_MAX: Final = 20
FETCH_VERSION: Final = 12
"""The last that names topics."""
FETCH_BYTES_MAX: Final = 1 << 20
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class _Draft(msgspec.Struct, kw_only=True):
    """An operation that may still go on."""

    process: str
    kind: Kind
    invoked_ms: float
    completed_ms: float | None = None
    outcome: Outcome = Outcome.INFO
    records: tuple[Record, ...] = ()
    partitions: tuple[Partition, ...] = ()
    transaction: str = ""
    read_committed: bool = False
    group: str = ""
    error: str = ""


class Producer(Protocol):
    """``SimulatedProducer``, as far as it is recorded."""

    async def send(self, topic: str, partition: int, values: Sequence[bytes], **options: Any) -> int: ...


class TransactionalProducer(Protocol):
    """One that writes to one topic, in one transaction at a time."""

    async def send(self, partition: int, value: bytes) -> Any: ...

    async def end(self, *, commit: bool) -> Any: ...


class Recorder:
    """Of one test. ``now_ms`` is the clock of all its processes."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._drafts: list[_Draft] = []
        self._uncertain: dict[tuple[str, tuple[Record, ...]], _Draft] = {}

    def __repr__(self) -> str:
        return f"Recorder({len(self._drafts)} operations)"

    def history(self) -> list[Operation]:
        """What was done so far. Calls that are not over have no end yet."""
        return [Operation(**msgspec.structs.asdict(draft)) for draft in self._drafts]

    def producer(self, process: str, producer: Producer, *, is_durable: bool = True) -> RecordedProducer:
        """``is_durable=False``: it does not wait for acks=all, so that no send is sure."""
        return RecordedProducer(self, process, producer, is_durable=is_durable)

    def transactional(
        self, process: str, producer: TransactionalProducer, *, topic: str
    ) -> RecordedTransactionalProducer:
        return RecordedTransactionalProducer(self, process, producer, topic)

    def deleted_below(self, process: str, topic: str, partition: int, offset: int) -> None:
        """Records below ``offset`` may be gone from now on."""
        now_ms, record = self._now_ms(), Record(topic, partition, offset)
        self._drafts.append(
            _Draft(
                process=process,
                kind=Kind.DELETE,
                invoked_ms=now_ms,
                completed_ms=now_ms,
                outcome=Outcome.OK,
                records=(record,),
            )
        )

    @asynccontextmanager
    async def operation(
        self, process: str, kind: Kind, *, records: tuple[Record, ...] = (), **fields: Any
    ) -> AsyncIterator[_Draft]:
        """One call, within the block; it fills in what came. OK, unless it raises.

        A send of the same records that raised before, and may have happened, is gone on with.
        """
        key = (process, records)
        draft = self._uncertain.pop(key, None) if kind is Kind.SEND else None
        if draft is None:
            draft = _Draft(process=process, kind=kind, invoked_ms=self._now_ms(), records=records, **fields)
            self._drafts.append(draft)
        try:
            yield draft
        except BaseException as error:
            draft.error = error.code.name if isinstance(error, KafkaError) else type(error).__name__
            if isinstance(error, KafkaError) and error.code in REFUSED and draft.completed_ms is None:
                draft.outcome = Outcome.FAIL
            elif kind is Kind.SEND:
                self._uncertain[key] = draft
            draft.completed_ms = self._now_ms()
            raise
        draft.outcome, draft.completed_ms, draft.error = Outcome.OK, self._now_ms(), ""

    # Consumers

    async def follow(
        self,
        process: str,
        client: Any,
        topic: str,
        partition: int,
        *,
        read_committed: bool = True,
        from_follower: bool = False,
    ) -> None:
        """Poll a partition from its start on, through all errors that come; until cancelled.

        ``from_follower``: of a replica that does not lead, where there is one (KIP-392).
        """
        reader = _Reader(self, process, client, Partition(topic, partition), read_committed)
        reader.from_follower = from_follower
        while True:
            try:
                await reader.poll()
            except (KafkaError, BrokerUnavailable) as error:
                await reader.recover(error)
            await asyncio.sleep(POLL_PAUSE_MS / 1000)

    async def read_to_end(
        self,
        process: str,
        client: Any,
        partitions: Iterable[tuple[str, int]],
        *,
        read_committed: bool = True,
    ) -> None:
        """Poll each partition from its start to its end, as it is then. The cluster must be whole.

        Raises:
            KafkaError, BrokerUnavailable: the last error, after some tries.
        """
        for topic, partition in partitions:
            name = f"{process}-{topic}-{partition}"
            reader = _Reader(self, name, client, Partition(topic, partition), read_committed)
            await reader.poll_to_end()


class RecordedProducer:
    """See ``Recorder.producer``."""

    def __init__(self, recorder: Recorder, process: str, producer: Producer, *, is_durable: bool) -> None:
        self._recorder = recorder
        self._process = process
        self._producer = producer
        self._is_durable = is_durable

    async def send(self, topic: str, partition: int, values: Sequence[bytes], **options: Any) -> int:
        """As the producer's."""
        records = tuple(Record(topic, partition, None, text(value)) for value in values)
        async with self._recorder.operation(self._process, Kind.SEND, records=records) as sent:
            base_offset = await self._producer.send(topic, partition, values, **options)
            if base_offset >= 0:
                sent.records = tuple(
                    Record(topic, partition, base_offset + index, record.value)
                    for index, record in enumerate(records)
                )
        if not self._is_durable:
            sent.outcome = Outcome.INFO
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
    def _transaction(self) -> str:
        return f"{self._process}#{self._count}"

    async def send(self, partition: int, value: bytes) -> None:
        """As the producer's."""
        records = (Record(self._topic, partition, None, text(value)),)
        async with self._recorder.operation(
            self._process, Kind.SEND, records=records, transaction=self._transaction
        ):
            await self._producer.send(partition, value)

    async def end(self, *, commit: bool) -> None:
        """As the producer's. What follows is another transaction, whatever became of this one."""
        kind = Kind.COMMIT_TRANSACTION if commit else Kind.ABORT_TRANSACTION
        transaction = self._transaction
        try:
            async with self._recorder.operation(self._process, kind, transaction=transaction):
                await self._producer.end(commit=commit)
        finally:
            self._count += 1

    def give_up(self) -> None:
        """The transaction failed before its end; what follows is another one."""
        self._count += 1


class _Reader:
    """A consumer of one partition; it leaves out what read_committed consumers leave out."""

    def __init__(
        self, recorder: Recorder, process: str, client: Any, partition: Partition, read_committed: bool
    ) -> None:
        self._recorder = recorder
        self._process = process
        self._client = client
        self._partition = partition
        self._read_committed = read_committed
        self.from_follower = False
        self._offset = 0
        self._address: tuple[str, int] | None = None

    async def poll(self) -> bool:
        """One fetch. Returns whether there was anything. Raises KafkaError, BrokerUnavailable."""
        topic, number = self._partition
        async with self._recorder.operation(
            self._process, Kind.POLL, read_committed=self._read_committed
        ) as polled:
            records, next_offset = visible(await self._fetch(), self._offset)
            polled.records = tuple(
                Record(topic, number, offset, text(value)) for offset, value in records if value is not None
            )
        has_more = next_offset > self._offset
        self._offset = next_offset
        return has_more

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
        """After an error: find the replica again, or a place to read on at."""
        self._address = None
        topic, number = self._partition
        if not isinstance(error, KafkaError) or error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return
        self._client.forget_leader(topic, number)
        try:
            start = await self._client.log_start(topic, number)
        except (KafkaError, BrokerUnavailable):
            return
        if start > self._offset:  # else a leader lacks its end: that comes back, or is missed in the end
            self._recorder.deleted_below(self._process, topic, number, start)
            self._offset = start

    async def _fetch(self) -> Any:
        """The leader's answer for the partition, an entity of the Fetch response."""
        topic, number = self._partition
        wanted = {
            "partition": number,
            "current_leader_epoch": -1,
            "fetch_offset": self._offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": FETCH_BYTES_MAX,
        }
        body = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES_MAX,
            "isolation_level": READ_COMMITTED if self._read_committed else READ_UNCOMMITTED,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        if self._address is None:
            self._address = await self._find_replica()
        answer = await self._client.request(self._address, ApiKey.FETCH, body, version=FETCH_VERSION)
        (of_topic,) = answer.responses
        (found,) = of_topic.partitions
        for code in (answer.error_code, found.error_code):
            if code != ErrorCode.NONE:
                raise KafkaError(ErrorCode(code))
        return found

    async def _find_replica(self) -> tuple[str, int]:
        topic, number = self._partition
        answer = await self._client.metadata([topic])
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for found in answer.topics:
            for partition in found.partitions:
                if partition.partition_index == number and partition.leader_id in addresses:
                    others = [each for each in partition.isr_nodes if each != partition.leader_id]
                    at = others[0] if self.from_follower and others else partition.leader_id
                    return addresses.get(at, addresses[partition.leader_id])
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{number} has no leader")


def visible(answer: Any, offset: int) -> tuple[list[tuple[int, bytes | None]], int]:
    """What a consumer takes from one partition's answer to a fetch from ``offset``: without control batches
    and aborted transactions (``CompletedFetch.nextFetchedRecord``). And the offset to read on at."""
    data = answer.records or b""
    coming = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())[::-1]
    aborted: set[int] = set()
    found: list[tuple[int, bytes | None]] = []
    next_offset = offset
    for position, header in iterate_headers(data):
        while coming and coming[-1][0] <= header.last_offset:
            aborted.add(coming.pop()[1])
        next_offset = max(next_offset, header.next_offset)
        if header.is_control:
            aborted.discard(header.producer_id)  # an abort marker ends it; a commit's producer is not in it
        elif not (header.is_transactional and header.producer_id in aborted):
            batch = memoryview(data)[position : position + header.size]
            found += [(each.offset, each.value) for each in iterate_records(batch) if each.offset >= offset]
    return found, next_offset


def text(value: bytes) -> str:
    """A value as a history has it."""
    return value.decode("utf-8", "backslashreplace")
