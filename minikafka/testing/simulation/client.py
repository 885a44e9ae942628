"""``SimulatedClient``: a small Kafka client that scenarios can follow step by step; and
``SimulatedProducer``, an idempotent producer (KIP-98) on top of it.

The client does what stock clients do where it matters to a cluster: ask any broker for the leader, keep one
connection to each, and try again after errors that pass. What it does not do is hide anything: one call is
one batch, and ``deliver`` returns what the leader said. It uses whatever loop runs, so it also works against
real brokers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.records.batch import crc_is_valid, iterate_headers
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.protocol.wire.api_versions import ApiKey

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity

Address = tuple[str, int]

REQUEST_TIMEOUT_MS = 5_000
"""How long one request may take; a stock client's 30 s would be most of a scenario."""
DELIVERY_TIMEOUT_MS = 60_000
"""How long a batch is tried; a stock client's is 120 s."""
RETRY_PAUSE_MS = 100
"""Kafka's ``retry.backoff.ms``."""

PRODUCE_VERSION = 9
TRANSACTIONAL_PRODUCE_VERSION = FETCH_VERSION = 12
"""The last flexible ones that name topics instead of giving their ids."""
OFFSETS_VERSION, TRANSACTIONAL_OFFSETS_VERSION = 9, 5
"""Likewise, of OffsetCommit and OffsetFetch, and of TxnOffsetCommit."""
FETCH_BYTES_MAX = 1 << 20
OF_GROUPS, OF_TRANSACTIONS, OF_SHARES = 0, 1, 2
"""Coordinators, ``FindCoordinatorRequest.CoordinatorType``."""

PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Kafka's ``RetriableException``s, as far as they concern topics and records."""


class Fetched(NamedTuple):
    """One partition's part of a fetch."""

    high_watermark: int
    log_start_offset: int
    records: list[Record]
    """Without those of control batches, and for read_committed without what was aborted."""
    next_offset: int
    """Where to continue; the offset that was asked for when nothing was there."""


class SimulatedClient:
    """Connections to a cluster. Belongs to the process that made it; ``close`` it, or let it die.

    Args:
        bootstrap: where to ask first.
        request_timeout_ms: how long one request may take, here and at the broker.
        rack: where this client is; brokers that select replicas send it to one there (KIP-392).
        security: how it gets in; None where the listener has neither TLS nor SASL.
    """

    def __init__(
        self,
        bootstrap: Iterable[Address],
        *,
        client_id: str = "client",
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        rack: str = "",
        security: ClientSecurity | None = None,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._rack = rack
        self._security = security
        self._preferred: dict[tuple[str, int], int] = {}
        self._request_timeout_ms = request_timeout_ms
        self._client_id = client_id
        self._connections: dict[Address, BrokerClient] = {}
        self._brokers: dict[int, Address] = {}
        self._controller_id = -1
        self._turn = 0
        self._leaders: dict[tuple[str, int], int] = {}

    def __repr__(self) -> str:
        return f"SimulatedClient({self._client_id}, brokers {self._brokers}, leaders {self._leaders})"

    async def close(self) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    # Any request

    async def request(
        self, address: Address, api_key: ApiKey, body: Mapping[str, Any], **options: Any
    ) -> Any:
        """One request to one broker, over a connection that is kept. Returns the response's entity.

        Raises:
            BrokerUnavailable, KafkaError: UNSUPPORTED_VERSION.
        """
        connection = await self._connection(address)
        return await connection.request(api_key, body, deadline_ms=self._request_timeout_ms, **options)

    async def metadata(self, topics: Sequence[str] | None = None) -> Any:
        """The Metadata response of the first broker that answers. Raises BrokerUnavailable: none does."""
        body = {
            "topics": None if topics is None else [{"name": topic, "topic_id": None} for topic in topics],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        failure: BrokerUnavailable | None = None
        addresses = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        # In turn: a leader that is deposed and does not know it would be asked again and again.
        self._turn = (self._turn + 1) % len(addresses)
        for address in addresses[self._turn :] + addresses[: self._turn]:
            try:
                answer = await self.request(address, ApiKey.METADATA, body)
            except BrokerUnavailable as error:
                failure = error
                continue
            self._learn(answer)
            return answer
        raise failure or BrokerUnavailable("there is no broker to ask")

    async def leader(self, topic: str, partition: int) -> int:
        """The leader's node id, as far as this client knows; asks when it does not.

        Raises:
            KafkaError: what Metadata says of the partition, or LEADER_NOT_AVAILABLE. BrokerUnavailable.
        """
        known = self._leaders.get((topic, partition), -1)
        if known in self._brokers:
            return known
        answer = await self.metadata([topic])
        for found in answer.topics:
            check(found.error_code)
        known = self._leaders.get((topic, partition), -1)
        if known not in self._brokers:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return known

    async def follower(self, topic: str, partition: int) -> Address:
        """A broker of the ISR that does not lead the partition; its leader when it is alone.

        Raises:
            KafkaError: LEADER_NOT_AVAILABLE. BrokerUnavailable.
        """
        answer = await self.metadata([topic])
        for found in answer.topics:
            for each in found.partitions:
                if each.partition_index == partition and each.leader_id in self._brokers:
                    others = [
                        node for node in each.isr_nodes if node in self._brokers.keys() - {each.leader_id}
                    ]
                    return self._brokers[others[0] if others else each.leader_id]
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")

    async def find_coordinator(self, key: str, kind: int = OF_GROUPS) -> Address:
        """The broker that coordinates a group or a transactional id, as one broker after the other says.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE. BrokerUnavailable.
        """
        metadata = await self.metadata([])
        broker = metadata.brokers[self._turn % len(metadata.brokers)]
        wanted = {"key_type": kind, "coordinator_keys": [key], "key": key}
        answer = await self.request((broker.host, broker.port), ApiKey.FIND_COORDINATOR, wanted)
        (found,) = answer.coordinators
        check(found.error_code)
        return found.host, found.port

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        assignment: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
        deadline_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> None:
        """CreateTopics at the controller, until it succeeds. ``assignment``: replicas of each partition.

        Raises:
            KafkaError: an error that does not pass. BrokerUnavailable: the time is over.
        """
        body = {
            "topics": [
                {
                    "name": topic,
                    "num_partitions": -1 if assignment else partitions,
                    "replication_factor": -1 if assignment else replication_factor,
                    "assignments": [
                        {"partition_index": index, "broker_ids": list(replicas)}
                        for index, replicas in enumerate(assignment)
                    ],
                    "configs": [{"name": name, "value": value} for name, value in (configs or {}).items()],
                }
            ],
            "timeout": self._request_timeout_ms,
        }

        async def create() -> None:
            await self.metadata([])
            address = self._brokers.get(self._controller_id)
            if address is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "there is no controller")
            answer = await self.request(address, ApiKey.CREATE_TOPICS, body)
            code = answer.topics[0].error_code
            if code != ErrorCode.TOPIC_ALREADY_EXISTS or not is_retry:
                check(code, answer.topics[0].error_message)

        is_retry = False
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        while True:
            try:
                return await create()
            except (KafkaError, BrokerUnavailable) as error:
                await pause_or_raise(error, deadline)
                is_retry = True

    # Positions of groups

    async def fetch_positions(
        self,
        coordinator: Address,
        group: str,
        topic: str,
        partitions: Sequence[int],
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[int, int]:
        """What the group has committed, when no transaction may still change it; -1: nothing.

        Raises:
            KafkaError: of the group or of a partition. BrokerUnavailable.
        """
        wanted = {
            "group_id": group, "member_id": member_id, "member_epoch": member_epoch,
            "topics": [{"name": topic, "partition_indexes": list(partitions)}],
        }  # fmt: skip
        body = {"groups": [wanted], "require_stable": True}
        answer = await self.request(coordinator, ApiKey.OFFSET_FETCH, body, version=OFFSETS_VERSION)
        (of_group,) = answer.groups
        check(of_group.error_code)
        found = of_group.topics[0].partitions
        for each in found:
            check(each.error_code)
        return {each.partition_index: each.committed_offset for each in found}

    # Records

    def forget_leader(self, topic: str, partition: int) -> None:
        """Ask for it before the next request, and read from it."""
        self._leaders.pop((topic, partition), None)
        self._preferred.pop((topic, partition), None)

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> int:
        """Send one batch to the leader, once. Returns the offset that it got, or -1 with acks=0.

        Raises:
            KafkaError: the leader's answer. BrokerUnavailable: the outcome is unknown.
        """
        leader = await self.leader(topic, partition)  # which may learn of other brokers
        address = self._brokers[leader]
        body = {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout": self._request_timeout_ms,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
        }
        if acks == 0:
            connection = await self._connection(address)
            await connection.send(
                ApiKey.PRODUCE, body, version=PRODUCE_VERSION, deadline_ms=self._request_timeout_ms
            )
            return -1
        version = PRODUCE_VERSION if transactional_id is None else TRANSACTIONAL_PRODUCE_VERSION
        answer = await self.request(address, ApiKey.PRODUCE, body, version=version)
        (of_topic,) = answer.responses
        (found,) = of_topic.partition_responses
        check(found.error_code, found.error_message)
        return int(found.base_offset)

    async def deliver(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        *,
        acks: int = -1,
        deadline_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> int:
        """``produce`` until it succeeds. Without a producer id the batch may be there more than once.

        Raises:
            KafkaError, BrokerUnavailable: the last error; the batch may be there all the same.
        """
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        while True:
            try:
                return await self.produce(topic, partition, batch, acks=acks)
            except (KafkaError, BrokerUnavailable) as error:
                self._leaders.pop((topic, partition), None)
                await pause_or_raise(error, deadline)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_wait_ms: int = 0,
        read_committed: bool = False,
        address: Address | None = None,
    ) -> Fetched:
        """One Fetch of one partition, from ``address``, from the replica to which the leader has sent this
        client, or from the leader.

        Raises:
            KafkaError: the broker's answer; CORRUPT_MESSAGE: a batch is not what was sent, as its CRC says.
            BrokerUnavailable.
            InvariantError: there are records that are not committed.
        """
        at = (topic, partition)
        preferred = self._brokers.get(self._preferred.get(at, -1))
        if address is None and preferred is not None:
            try:
                return await self._fetch(at, offset, max_wait_ms, read_committed, preferred)
            except (KafkaError, BrokerUnavailable):  # as Java's client: what is wrong the leader will say
                self._preferred.pop(at, None)
        if address is None:
            leader = await self.leader(topic, partition)  # which may learn of other brokers
            address = self._brokers[leader]
        return await self._fetch(at, offset, max_wait_ms, read_committed, address)

    async def _fetch(
        self, at: tuple[str, int], offset: int, max_wait_ms: int, read_committed: bool, address: Address
    ) -> Fetched:
        topic, partition = at
        wanted = {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": FETCH_BYTES_MAX,
        }
        body = {
            "replica_id": -1,
            "max_wait": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES_MAX,
            "isolation_level": int(read_committed),
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": self._rack,
        }
        answer = await self.request(address, ApiKey.FETCH, body, version=FETCH_VERSION)
        check(answer.error_code)
        (of_topic,) = answer.responses
        (found,) = of_topic.partitions
        check(found.error_code)
        if found.preferred_read_replica >= 0:
            self._preferred[at] = found.preferred_read_replica
        records, next_offset = visible(found, offset)
        bound = found.last_stable_offset if read_committed else found.high_watermark
        if records and records[-1].offset >= bound:
            raise InvariantError(
                f"R16: {topic}-{partition}: {address} gave {records[-1].offset}, above {bound}"
            )
        return Fetched(found.high_watermark, found.log_start_offset, records, next_offset)

    async def read_all(
        self,
        topic: str,
        partition: int = 0,
        *,
        read_committed: bool = False,
        deadline_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> list[tuple[int, bytes | None]]:
        """Offset and value of everything from the log's start to the high watermark as it is then.

        Raises:
            KafkaError, BrokerUnavailable: the last error, when the time is over.
        """
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        found: list[tuple[int, bytes | None]] = []
        offset = 0
        while True:
            try:
                if offset < 0:
                    offset = await self.log_start(topic, partition)
                fetched = await self.fetch(topic, partition, offset, read_committed=read_committed)
            except (KafkaError, BrokerUnavailable) as error:
                if isinstance(error, KafkaError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    offset = -1  # what was there is deleted
                    continue
                self._leaders.pop((topic, partition), None)
                await pause_or_raise(error, deadline)
                continue
            found += [(record.offset, record.value) for record in fetched.records]
            if fetched.next_offset == offset:
                return found
            offset = fetched.next_offset

    async def log_start(self, topic: str, partition: int) -> int:
        """ListOffsets for the earliest record. Raises KafkaError, BrokerUnavailable."""
        return await self._list_offset(topic, partition, -2)

    async def log_end(self, topic: str, partition: int, *, deadline_ms: int = 0) -> int:
        """ListOffsets for the latest offset, the high watermark; asked again for so long when the leader has
        changed or is away. Raises KafkaError, BrokerUnavailable."""
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        while True:
            try:
                return await self._list_offset(topic, partition, -1)
            except (KafkaError, BrokerUnavailable) as error:
                self._leaders.pop((topic, partition), None)
                await pause_or_raise(error, deadline)

    async def init_producer_id(self, *, deadline_ms: int = DELIVERY_TIMEOUT_MS) -> tuple[int, int]:
        """A new producer id and its epoch, for an idempotent producer. Raises as ``deliver``."""
        body = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        while True:
            try:
                answer = await self.metadata([])
                broker = answer.brokers[0]
                found = await self.request((broker.host, broker.port), ApiKey.INIT_PRODUCER_ID, body)
                check(found.error_code)
                return found.producer_id, found.producer_epoch
            except (KafkaError, BrokerUnavailable) as error:
                await pause_or_raise(error, deadline)

    # Inside

    async def _list_offset(self, topic: str, partition: int, timestamp: int) -> int:
        wanted = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
        body = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [wanted]}],
            "timeout": self._request_timeout_ms,
        }
        leader = await self.leader(topic, partition)  # which may learn of other brokers
        address = self._brokers[leader]
        answer = await self.request(address, ApiKey.LIST_OFFSETS, body)
        (of_topic,) = answer.topics
        (found,) = of_topic.partitions
        check(found.error_code)
        return int(found.offset)

    async def _connection(self, address: Address) -> BrokerClient:
        connection = self._connections.get(address)
        if connection is None or not connection.is_connected:
            connection = await BrokerClient.connect(
                *address,
                client_id=self._client_id,
                deadline_ms=self._request_timeout_ms,
                security=self._security,
            )
            self._connections[address] = connection
        return connection

    def _learn(self, answer: Any) -> None:
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._controller_id = answer.controller_id
        for topic in answer.topics:
            for partition in topic.partitions:
                at = (topic.name, partition.partition_index)
                if partition.leader_id in self._brokers and partition.error_code == ErrorCode.NONE:
                    self._leaders[at] = partition.leader_id
                else:
                    self._leaders.pop(at, None)


def make_batch(values: Sequence[bytes], *, timestamp_ms: int | None = None, **options: Any) -> bytes:
    """A batch of records without keys, of now; ``options`` as of ``protocol.records.records.build_batch``."""
    if timestamp_ms is None:
        timestamp_ms = time.time_ns() // 1_000_000  # virtual in a simulation: see ``guard``
    return build_batch(
        [Record(index, timestamp_ms, None, value, ()) for index, value in enumerate(values)], **options
    )


def visible(answer: Any, offset: int) -> tuple[list[Record], int]:
    """What a consumer takes from one partition's answer to a fetch from ``offset``: without control batches
    and aborted transactions (``CompletedFetch.nextFetchedRecord``). And the offset to read on at.

    Raises KafkaError CORRUPT_MESSAGE.
    """
    data = answer.records or b""
    coming = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())[::-1]
    aborted: set[int] = set()
    found: list[Record] = []
    next_offset = offset
    for position, header in iterate_headers(data):
        if not crc_is_valid(data, position, header):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at {header.base_offset}")
        while coming and coming[-1][0] <= header.last_offset:
            aborted.add(coming.pop()[1])
        next_offset = max(next_offset, header.next_offset)
        if header.is_control:
            aborted.discard(header.producer_id)  # an abort marker ends it; a commit's producer is not in it
        elif not (header.is_transactional and header.producer_id in aborted):
            batch = memoryview(data)[position : position + header.size]
            found += [each for each in iterate_records(batch) if each.offset >= offset]
    return found, next_offset


def positions_body(positions: Mapping[int, int]) -> list[dict[str, Any]]:
    """The partitions of a commit, each with where its group reads on."""
    return [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        for partition, offset in positions.items()
    ]


def check(code: int, message: str | None = None) -> None:
    """Raises KafkaError for a code that is an error."""
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(code), message)


async def pause_or_raise(error: Exception, deadline: float) -> None:
    """Wait before the next try. Raises ``error`` if it does not pass, or ``deadline`` (loop time) is over."""
    passes = not isinstance(error, KafkaError) or error.code in PASSING
    if not passes or asyncio.get_running_loop().time() >= deadline:
        raise error
    await asyncio.sleep(RETRY_PAUSE_MS / 1000)


class SimulatedProducer:
    """Sends numbered batches, one at a time for each partition: each is there once, however often tried."""

    def __init__(self, client: SimulatedClient, *, acks: int = -1) -> None:
        self._client = client
        self._acks = acks
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    def __repr__(self) -> str:
        return f"SimulatedProducer(id {self._producer_id}, next {self._sequences})"

    async def send(
        self, topic: str, partition: int, values: Sequence[bytes], *, deadline_ms: int = DELIVERY_TIMEOUT_MS
    ) -> int:
        """Deliver one batch. Returns its first offset; -1 when it was there already, at an unknown offset.

        Raises:
            KafkaError, BrokerUnavailable: the last error; the batch may be there all the same, and its number
                is used again, so what follows must be the same batch or go to another partition.
        """
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        if self._producer_id < 0:
            self._producer_id, self._epoch = await self._client.init_producer_id(deadline_ms=deadline_ms)
        sequence = self._sequences.get((topic, partition), 0)
        batch = make_batch(
            values,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        left_ms = round((deadline - asyncio.get_running_loop().time()) * 1000)
        try:
            offset = await self._client.deliver(topic, partition, batch, acks=self._acks, deadline_ms=left_ms)
        except KafkaError as error:
            if error.code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                raise
            offset = -1
        self._sequences[topic, partition] = sequence + len(values)
        return offset
