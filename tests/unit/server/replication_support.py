"""A leader and a follower for the tests of fetchers: real logs, real sessions, real frames, no network."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import Files, OsFiles
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.log.unified_log import AppendInfo, UnifiedLog
from minikafka.metrics.sensors import WindowConfig
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import (
    RequestHeader,
    decode_response,
    encode_request,
    read_request_header,
)
from minikafka.protocol.wire.fast_paths import EpochEndOffset, FetchPartitionResponse
from minikafka.replication.fetch_session import FetchSessionCache
from minikafka.server.replica.replica_fetcher import ReplicaFetcher
from minikafka.server.replica.replica_fetcher_manager import (
    InitialFetchState,
    LeaderEndpoint,
    ReplicaFetcherManager,
)
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.types import BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition
from tests.support.codec import decode_request, encode_response, fetch_response
from tests.unit.server.disk import Disk
from tests.unit.server.virtual_time import LoopClock

TOPIC_ID = UUID(int=0xABC)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
LEADER_ID, FOLLOWER_ID = BrokerId(1), BrokerId(2)
BROKER_EPOCH = 77
EARLIEST, LATEST = -2, -1


def open_log(
    directory: Path, topic_partition: TopicPartition, clock: Clock, *, files: Files | None = None
) -> UnifiedLog:
    return UnifiedLog.load(
        str(directory / str(topic_partition)),
        topic_partition,
        config=TopicConfig(segment_bytes=100_000),
        files=files or OsFiles(),
        clock=clock,
        clean_shutdown=False,
        topic_id=TOPIC_ID,
    )


def write(log: UnifiedLog, *values: str, epoch: int = 0) -> None:
    """One batch a value, as the leader of ``epoch``."""
    for value in values:
        batch = build_batch([Record(0, 1_700_000_000_000, None, value.encode())])
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(epoch))


def content(log: UnifiedLog) -> bytes:
    """All bytes of all batches."""
    offset, found = log.log_start_offset, b""
    while offset < log.log_end_offset:
        records = log.read(
            offset,
            max_bytes=1 << 20,
            min_one_message=True,
            isolation=FetchIsolation.LOG_END,
            cached_only=False,
        ).records
        found += bytes(records)
        *_, (_, last) = iterate_headers(records)
        offset = Offset(last.next_offset)
    return found


def epochs(log: UnifiedLog) -> list[tuple[int, int]]:
    """(epoch, start offset), as the log knows them."""
    return [(entry.epoch, entry.start_offset) for entry in log._epochs.entries()]


class Wanted(NamedTuple):
    """What a fetch asks of one partition."""

    topic_partition: TopicPartition
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


class Answer(NamedTuple):
    """What one partition answers."""

    error: ErrorCode = ErrorCode.NONE
    records: Buffer = b""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset | None = None
    preferred_read_replica: int = -1


class Leader:
    """Leads partitions whose only other replica is the follower that fetches."""

    def __init__(self, clock: Clock, *, session_slots: int = 100) -> None:
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.sessions: FetchSessionCache[Wanted] = FetchSessionCache(
            max_slots=session_slots, rng=random.Random(1), clock=clock
        )
        self.errors: dict[TopicPartition, ErrorCode] = {}
        """Answered to fetches instead of records."""
        self.diverging: dict[TopicPartition, EpochEndOffset] = {}
        """Answered to fetches, whatever the logs say."""
        self.spoil: Callable[[TopicPartition, Buffer], Buffer] = lambda _, records: records
        """What the network does to records."""
        self.meanwhile: Callable[[int, Any], Awaitable[None]] | None = None
        """Called with a question before it is looked at: what happens while it is under way."""
        self.refusal = ErrorCode.NONE
        """Of whole fetches."""
        self.is_up = True
        self.is_silent = False
        self.fetch_version_max = SUPPORTED[ApiKey.FETCH].max
        self.asked: list[tuple[int, Any]] = []
        self.connections: list[Connection] = []
        self._news = asyncio.Event()

    def lead(self, log: UnifiedLog, *, epoch: int = 0) -> UnifiedLog:
        self.logs[log.topic_partition] = log
        self.epochs[log.topic_partition] = epoch
        log.assign_epoch_start(epoch, log.log_end_offset)
        return log

    def write(self, topic_partition: TopicPartition, *values: str) -> None:
        write(self.logs[topic_partition], *values, epoch=self.epochs[topic_partition])
        self.wake()

    def wake(self) -> None:
        """Let the fetch that waits look again."""
        self._news.set()

    @property
    def fetches(self) -> list[Any]:
        """The Fetch requests so far."""
        return [request for key, request in self.asked if key == ApiKey.FETCH]

    async def connect(self, host: str, port: int, *, client_id: str | None, deadline_ms: int) -> Connection:
        """In place of ``BrokerClient.connect``."""
        await asyncio.sleep(0)
        if not self.is_up:
            raise BrokerUnavailable(f"broker {host}:{port}: cannot connect: refused")
        self.connections.append(Connection(self, (host, port), client_id))
        return self.connections[-1]

    def go_down(self) -> None:
        self.is_up = False
        for connection in self.connections:
            connection.lose("the broker closed the connection")

    async def answer(self, header: RequestHeader, request: Any) -> bytes:
        """The frame that answers a request."""
        self.asked.append((header.api_key, request))
        if self.meanwhile is not None:
            await self.meanwhile(header.api_key, request)
        if header.api_key == ApiKey.FETCH:
            return await self._fetch(header, request)
        assert header.api_key == ApiKey.LIST_OFFSETS
        return encode_response(
            api_key=header.api_key,
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            body={
                "throttle_time": 0,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [self._list(topic.name, one) for one in topic.partitions],
                    }
                    for topic in request.topics
                ],
            },
        )

    def _list(self, topic: str, wanted: Any) -> Mapping[str, Any]:
        log = self.logs[TopicPartition(topic, wanted.partition_index)]
        error = self._check_epoch(log.topic_partition, wanted.current_leader_epoch)
        offset = {EARLIEST: log.log_start_offset, LATEST: log.log_end_offset}[wanted.timestamp]
        return {
            "partition_index": wanted.partition_index,
            "error_code": error,
            "offset": -1 if error else offset,
        }

    async def _fetch(self, header: RequestHeader, request: Any) -> bytes:
        if self.refusal:
            return b"".join(fetch_response(header, [], error_code=self.refusal))
        context = self.sessions.new_context(
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            uses_topic_ids=True,
            is_follower=request.replica_state.replica_id >= 0,
            partitions={
                (topic.topic_id, one.partition): Wanted(
                    TopicPartition("t", one.partition),
                    one.fetch_offset,
                    one.partition_max_bytes,
                    one.current_leader_epoch,
                    one.last_fetched_epoch,
                )
                for topic in request.topics
                for one in topic.partitions
            },
            forgotten=[
                (topic.topic_id, partition)
                for topic in request.forgotten_topics_data
                for partition in topic.partitions
            ],
        )
        answers: list[tuple[Any, Answer]] = []
        deadline = asyncio.get_running_loop().time() + request.max_wait / 1000
        while True:
            self._news.clear()
            bytes_left = request.max_bytes
            answers = []
            for key, wanted in context.partitions():
                answers.append((key, self._read(key[0], wanted, bytes_left)))
                bytes_left -= len(answers[-1][1].records)
            is_over = asyncio.get_running_loop().time() >= deadline
            if (
                is_over
                or not answers
                or any(each.records or each.error or each.diverging_epoch for _, each in answers)
            ):
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
        told = context.respond(answers)
        partitions = [
            FetchPartitionResponse(
                topic="t",
                topic_id=key[0],  # type: ignore[arg-type]
                partition=key[1],
                error_code=each.error,
                high_watermark=each.high_watermark,
                last_stable_offset=each.last_stable_offset,
                log_start_offset=each.log_start_offset,
                records=each.records,
                diverging_epoch=each.diverging_epoch,
            )
            for key, each in told.answers
        ]
        return b"".join(fetch_response(header, partitions, error_code=told.error, session_id=told.session_id))

    def _check_epoch(self, topic_partition: TopicPartition, epoch: int) -> ErrorCode:
        ours = self.epochs[topic_partition]
        if epoch == ours:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < ours else ErrorCode.UNKNOWN_LEADER_EPOCH

    def _read(self, topic_id: object, wanted: Wanted, bytes_left: int) -> Answer:
        topic_partition = wanted.topic_partition
        log = self.logs.get(topic_partition)
        error = self.errors.get(topic_partition, ErrorCode.NONE)
        if log is None or topic_id != log.topic_id:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        error = error or self._check_epoch(topic_partition, wanted.current_leader_epoch)
        if error or log is None:
            return Answer(error)
        if topic_partition in self.diverging:
            return Answer(diverging_epoch=self.diverging[topic_partition])
        if wanted.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
            if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
                return Answer(
                    high_watermark=log.high_watermark,
                    last_stable_offset=log.last_stable_offset,
                    log_start_offset=log.log_start_offset,
                    diverging_epoch=EpochEndOffset(epoch, end_offset),
                )
        if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            return Answer(ErrorCode.OFFSET_OUT_OF_RANGE)
        log.update_high_watermark(max(log.high_watermark, wanted.fetch_offset))
        records: Buffer = b""
        if bytes_left > 0:
            records = log.read(
                wanted.fetch_offset,
                max_bytes=min(bytes_left, wanted.max_bytes),
                min_one_message=True,
                isolation=FetchIsolation.LOG_END,
                cached_only=False,
            ).records
        return Answer(
            records=self.spoil(topic_partition, records) if records else b"",
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
        )


class Connection:
    """A connection to a ``Leader``: everything passes as the bytes that it would be."""

    def __init__(self, leader: Leader, address: tuple[str, int], client_id: str | None) -> None:
        self._leader = leader
        self.address = address
        self.client_id = client_id
        self.is_connected = True
        self.is_closed = False
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def version_of(self, api_key: int) -> int:
        return self._leader.fetch_version_max if api_key == ApiKey.FETCH else 10

    async def request(self, api_key: int, body: Any, *, deadline_ms: int) -> Any:
        version = self.version_of(api_key)
        frame = encode_request(
            api_key=api_key, api_version=version, correlation_id=3, client_id=self.client_id, body=body
        )[4:]
        header = read_request_header(frame)
        answer = asyncio.Event().wait() if self._leader.is_silent else self._answer(header, frame)
        work: asyncio.Task[Any] = asyncio.ensure_future(answer)
        try:
            await asyncio.wait(
                {work, self._lost}, timeout=deadline_ms / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            if not self._lost.done() and not work.done():
                self.lose(f"not answered within {deadline_ms} ms")
            if self._lost.done():
                raise BrokerUnavailable(self._lost.result())
            _, entity = decode_response(api_key=api_key, api_version=version, frame=work.result()[4:])
            return entity
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _answer(self, header: RequestHeader, frame: Buffer) -> bytes:
        return await self._leader.answer(header, decode_request(header, frame))

    def lose(self, reason: str) -> None:
        self.is_connected = False
        if not self._lost.done():
            self._lost.set_result(reason)

    async def close(self) -> None:
        self.is_closed = True
        self.lose("closed by this client")


class Follower:
    """A partition that is followed."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log

    def append_as_follower(self, records: Buffer, *, current_leader_epoch: LeaderEpoch) -> AppendInfo | None:
        return self.log.append_as_follower(records, current_leader_epoch=current_leader_epoch)

    def truncate_to(self, offset: Offset, *, cause: str) -> None:
        self.log.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: Offset, *, cause: str) -> None:
        self.log.truncate_fully_and_start_at(offset)

    def update_follower_high_watermark(self, leader_high_watermark: Offset) -> bool:
        return self.log.update_high_watermark(leader_high_watermark)

    def maybe_increment_log_start_offset(self, leader_log_start_offset: Offset) -> None:
        self.log.increment_log_start_offset(min(leader_log_start_offset, self.log.high_watermark))


class FollowerReplicas:
    """The registry of the follower's broker."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Follower] = {}
        self.appended: list[tuple[TopicPartition, AppendInfo | None]] = []
        self.failures: list[tuple[TopicPartition, ErrorCode]] = []
        self.hosted_count = 0

    def hosted(self, topic_partition: TopicPartition) -> Follower:
        self.hosted_count += 1
        if topic_partition not in self.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions[topic_partition]

    def follower_appended(self, partition: Follower, info: AppendInfo | None) -> None:
        self.appended.append((partition.log.topic_partition, info))

    def note_failure(self, partition: Follower, error: KafkaError) -> None:
        self.failures.append((partition.log.topic_partition, error.code))


def config_with(**properties: object) -> BrokerConfig:
    """Properties with underscores for dots."""
    texts = {name.replace("_", "."): str(value) for name, value in properties.items()}
    return broker_config({"log.dirs": "/nowhere", **texts})


BACKOFF_MS = 1000
WAIT_MS = 500
SOON_MS = 100
"""Enough for whatever needs no wait."""

LEADER = LeaderEndpoint(LEADER_ID, "leader", 9092)


class Story:
    """A leader, a follower, and the fetchers between them, in virtual time."""

    def __init__(
        self,
        directory: Path,
        *,
        session_slots: int = 100,
        clock: Clock | None = None,
        **properties: object,
    ) -> None:
        self.clock = clock or LoopClock()
        self.config = config_with(**properties)
        self.directory = directory
        self.disk = Disk()
        self.leader = Leader(self.clock, session_slots=session_slots)
        self.replicas = FollowerReplicas()
        self.supervisor = Supervisor()
        self.quota = ReplicationQuotaManager(WindowConfig(11, 1000))
        self.fetchers: ReplicaFetcherManager[Follower] = ReplicaFetcherManager(
            node_id=FOLLOWER_ID,
            replicas=self.replicas,
            clock=self.clock,
            supervisor=self.supervisor,
            config=lambda: self.config,
            broker_epoch=lambda: BROKER_EPOCH,
            quota=self.quota,
            connect=self.leader.connect,
        )

    def leads(self, *values: str, at: TopicPartition = T0, epoch: int = 0) -> Any:
        """The leader's log of a partition, with these records."""
        log = self.leader.lead(open_log(self.directory / "leader", at, self.clock), epoch=epoch)
        self.leader.write(at, *values)
        return log

    def hosts(self, *values: str, at: TopicPartition = T0, epoch: int = 0) -> Any:
        """The follower's log of a partition, with these records of its own."""
        log = open_log(self.directory / "follower", at, self.clock, files=self.disk)
        write(log, *values, epoch=epoch)
        self.replicas.partitions[at] = Follower(log)
        return log

    def follows(self, *partitions: TopicPartition, epoch: int = 0, leader: LeaderEndpoint = LEADER) -> None:
        """LeaderAndIsr has come."""
        self.fetchers.add(
            {
                each: InitialFetchState(
                    TOPIC_ID, leader, LeaderEpoch(epoch), self.replicas.partitions[each].log.log_end_offset
                )
                for each in partitions or (T0,)
            }
        )

    def state(self, at: TopicPartition = T0) -> Any:
        fetcher = fetcher_of(self.fetchers, at)
        return None if fetcher is None else fetcher.partitions.state_of(at)


def fetcher_of(fetchers: ReplicaFetcherManager[Any], at: TopicPartition) -> ReplicaFetcher[Any] | None:
    """The one that fetches a partition."""
    return next((each for each in fetchers._fetchers.values() if each.partitions.state_of(at)), None)


@contextlib.asynccontextmanager
async def story(directory: Path, *, session_slots: int = 100, **properties: object) -> AsyncIterator[Story]:
    told = Story(directory, session_slots=session_slots, **properties)
    try:
        yield told
    finally:
        await told.fetchers.close()
        await told.supervisor.stop()


def assert_same(leader: Any, follower: Any) -> None:
    """I4 and I8: the same bytes, the same epochs."""
    assert content(follower) == content(leader)
    assert epochs(follower) == epochs(leader)
    leader.validate()
    follower.validate()
