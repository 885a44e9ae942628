"""Following a leader: a loop that copies its partitions, one fetch request after the other.

Kafka: the thread in ``AbstractFetcherThread`` and ``ReplicaFetcherThread``; KIP-227 (sessions). What an
answer does to a log is in ``FollowedPartitions``; ``ReplicaFetcher`` is the part that waits.

A round: connect; ask for what the session says; take the answer partition by partition, giving way to others
in between; ask for the leader's bounds where an offset was out of range.

When the leader cannot be reached, does not answer in time or refuses a full fetch request, the connection is
dropped and the loop backs off for ``replica.fetch.backoff.ms``, then tries again, for ever. A session that
the leader has lost needs no backoff: the next request is a full one.

Invariants: one request is under way at a time; every wait ends at a deadline, but the wait for something to
fetch; the connection ends with the loop.

Differs from Kafka: nothing is built for a leader that is not there, and the partitions are not delayed one by
one for it; a refused full request makes the loop back off where Kafka asks again at once; an outage is logged
when it begins and when it ends.

**The partitions of one fetcher**: what to ask their leader, what its answers do to the logs. Nothing waits.
Kafka: the part of ``AbstractFetcherThread`` and ``ReplicaFetcherThread`` that holds ``partitionMapLock``.

==========================  ===============================================================================
a partition's answer        what becomes of it
==========================  ===============================================================================
records, or none            appended; high watermark and log start follow the leader's
a diverging epoch           the log is cut; high watermark and log start wait for the next answer (R9)
OFFSET_OUT_OF_RANGE         the leader is asked for its bounds; the log is cut, restarted or kept
FENCED_LEADER_EPOCH         failed: there is a newer leadership, and LeaderAndIsr will name it
NOT_LEADER_OR_FOLLOWER,     delayed: the leader has not heard yet what we have, so not for long at first
UNKNOWN_LEADER_EPOCH
any other error             delayed by ``replica.fetch.backoff.ms``
records that are damaged    delayed: the next answer may bring them whole
records that do not fit     failed: the log end is not what was asked from
our own disk fails          failed, and the log directory is looked after
==========================  ===============================================================================

*Failed* means: not fetched until its leadership changes.

When logs are cut, as in Kafka since inter-broker protocol 2.7: every leader here speaks Fetch 12 and later,
so a follower fetches at once from its log end, and the answer says where the logs part (KIP-595). A log
without any leader epoch is cut to its high watermark first, and the leader is not asked. OffsetForLeaderEpoch
is thus not needed between brokers; Kafka's fetchers ask it only of leaders that are older than that.

Invariants:
- What an answer does to a log happens in one step of the loop, and only when the partition is still where the
  question left it: same topic id, leader epoch and fetch offset, and not delayed (R8).
- One partition's failure leaves the others alone.

Differs from Kafka: a partition that was out of range and keeps its log is delayed for the backoff: asking at
once could get the same answer for ever; see also ``FetchBackoff``.

**The leader as its followers see it**: one connection, and the two questions that a fetcher asks over it.
Kafka: ``RemoteLeaderEndPoint``, ``BrokerBlockingSender``; KIP-74 (byte limits), KIP-516 (topic ids), KIP-903
(the follower's broker epoch), KIP-1166 (the follower's high watermark).

Fetch goes out in the highest version that both speak, 15 at least: below that a follower could not name its
broker epoch. The high watermark that a follower knows is part of version 18; Kafka's brokers leave it out,
only its KRaft log sends it. ListOffsets names the follower too, so its "latest" is the leader's log end.

A question makes the connection where there is none. After a failure the fetcher closes it and waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import Any, Generic, Protocol
from uuid import UUID

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.metrics.request_metrics import OneMinuteRate
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import AnyBody, Body
from minikafka.replication.fetch_session import FetchSessionHandler, SessionRequest, TopicIdPartition
from minikafka.replication.fetch_state import (
    FetchStates,
    PartitionFetchState,
    ResetAction,
    reset_out_of_range,
    truncation_point,
)
from minikafka.server.replica.partition import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from minikafka.server.replica.replica_fetchers import LeaderEndpoint, PartitionT, Replicas
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.types import NO_OFFSET, BrokerId, LeaderEpoch, Offset, TopicPartition

logger = logging.getLogger(__name__)

FETCH_VERSION_MIN = 15
READ_UNCOMMITTED = 0

EXPECTED_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Of the leader, while leadership moves or a topic is new: it has not heard yet, or we have not."""

EXPECTED_TIMES_MAX = 10
"""So often an expected error may come in a row: for about 4 s with the default backoff of 1 s."""

INITIAL_BACKOFF_MS = 10
"""The first backoff after one of these; it doubles each time."""

_DOUBLINGS_MAX = 20

_RETRIED_ERRORS = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
"""Of our own append (Kafka: CorruptRecordException, InvalidRecordException)."""


class LeaderConnection(Protocol):
    """What is used of a ``BrokerClient``."""

    @property
    def is_connected(self) -> bool: ...
    def version_of(self, api_key: int) -> int: ...
    async def request(self, api_key: int, body: AnyBody, *, deadline_ms: int) -> Any: ...
    async def close(self) -> None: ...


class Connect(Protocol):
    """``BrokerClient.connect``, or a test's own."""

    def __call__(
        self, host: str, port: int, *, client_id: str | None, deadline_ms: int
    ) -> Awaitable[LeaderConnection]: ...


class FetchedPartition(NamedTuple):
    """What a follower asks of one partition (Kafka's ``FetchRequest.PartitionData``)."""

    topic_partition: TopicPartition
    fetch_offset: Offset
    log_start_offset: Offset
    high_watermark: Offset
    current_leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch
    max_bytes: int


class ListedOffset(NamedTuple):
    """The leader's answer for one partition."""

    error: ErrorCode
    offset: Offset


class RemoteLeader:
    """One fetcher's connection to one leader."""

    def __init__(
        self,
        endpoint: LeaderEndpoint,
        *,
        client_id: str,
        node_id: BrokerId,
        config: Callable[[], BrokerConfig],
        broker_epoch: Callable[[], int],
        connect: Connect,
    ) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._node_id = node_id
        self._config = config
        self._broker_epoch = broker_epoch
        self._connect = connect
        self._connection: LeaderConnection | None = None

    def __repr__(self) -> str:
        return f"RemoteLeader({self.endpoint}, {self._connection})"

    async def connect(self) -> LeaderConnection:
        """The connection; a new one when there is none, or none any more (the leader closes idle ones).

        Raises:
            BrokerUnavailable: the leader cannot be reached.
            KafkaError: UNSUPPORTED_VERSION, no follower can fetch from it.
        """
        if self._connection is not None and self._connection.is_connected:
            return self._connection
        endpoint = self.endpoint
        connection = self._connection = await self._connect(
            endpoint.host,
            endpoint.port,
            client_id=self._client_id,
            deadline_ms=self._config().replica_socket_timeout_ms,
        )
        version = connection.version_of(ApiKey.FETCH)
        if version < FETCH_VERSION_MIN:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {endpoint} speaks Fetch {version}, a follower needs {FETCH_VERSION_MIN}",
            )
        return connection

    async def fetch(self, request: SessionRequest[FetchedPartition]) -> Any:
        """Ask for records; the answer comes when there are some, or after ``replica.fetch.wait.max.ms``.

        Returns the response's entity; the records in it are views of its frame.

        Raises:
            BrokerUnavailable: there is no connection, or no answer; the connection is closed then.
        """
        config = self._config()
        body = {
            "replica_state": {"replica_id": self._node_id, "replica_epoch": self._broker_epoch()},
            "max_wait": config.replica_fetch_wait_max_ms,
            "min_bytes": config.replica_fetch_min_bytes,
            "max_bytes": config.replica_fetch_response_max_bytes,
            "isolation_level": READ_UNCOMMITTED,
            "session_id": request.session_id,
            "session_epoch": request.session_epoch,
            "topics": _topics(request.to_send),
            "forgotten_topics_data": _forgotten(request.to_forget),
            "rack_id": "",
        }
        connection = await self.connect()
        deadline_ms = config.replica_fetch_wait_max_ms + config.replica_socket_timeout_ms
        return await connection.request(ApiKey.FETCH, body, deadline_ms=deadline_ms)

    async def list_offsets(
        self, partitions: Mapping[TopicPartition, LeaderEpoch], timestamp: int
    ) -> dict[TopicPartition, ListedOffset]:
        """Where each partition, at the given leader epoch, ends or begins on the leader.

        Args:
            timestamp: LATEST_TIMESTAMP or EARLIEST_TIMESTAMP.

        Raises:
            BrokerUnavailable: as ``fetch``.
        """
        timeout_ms = self._config().replica_socket_timeout_ms
        by_topic = groupby(sorted(partitions.items()), key=lambda item: item[0].topic)
        body = {
            "replica_id": self._node_id,
            "isolation_level": READ_UNCOMMITTED,
            "timeout": timeout_ms,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": each.partition,
                            "current_leader_epoch": epoch,
                            "timestamp": timestamp,
                        }
                        for each, epoch in items
                    ],
                }
                for topic, items in by_topic
            ],
        }
        connection = await self.connect()
        answer = await connection.request(ApiKey.LIST_OFFSETS, body, deadline_ms=timeout_ms)
        return {
            TopicPartition(topic.name, each.partition_index): ListedOffset(each.error_code, each.offset)
            for topic in answer.topics
            for each in topic.partitions
        }

    async def close(self) -> None:
        """Drop the connection. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _topics(partitions: Mapping[TopicIdPartition, FetchedPartition]) -> list[Body]:
    """Neighbours of one topic become one topic: the order of the partitions says who is read first."""
    return [
        {
            "topic_id": topic_id,
            "partitions": [
                {
                    "partition": partition,
                    "current_leader_epoch": asked.current_leader_epoch,
                    "fetch_offset": asked.fetch_offset,
                    "last_fetched_epoch": asked.last_fetched_epoch,
                    "log_start_offset": asked.log_start_offset,
                    "partition_max_bytes": asked.max_bytes,
                    "high_watermark": asked.high_watermark,
                }
                for (_, partition), asked in items
            ],
        }
        for topic_id, items in groupby(partitions.items(), key=lambda item: item[0][0])
    ]


def _forgotten(keys: Iterable[TopicIdPartition]) -> list[Body]:
    return [
        {"topic_id": topic_id, "partitions": [partition for _, partition in group]}
        for topic_id, group in groupby(keys, key=lambda key: key[0])
    ]


class FetchBackoff:
    """Errors that keep partitions from being fetched: logged when they begin, and the backoff of each.

    Kafka: ``handlePartitionsWithErrors`` and ``delayPartitions`` of ``AbstractFetcherThread``.

    A partition is delayed for ``replica.fetch.backoff.ms``. But while leadership moves, leader and follower
    are told of it at about the same time: the first backoff is short then, and doubles each further time.
    Kafka's follower waits for the whole backoff, and producers with acks=all wait with it.
    Such an error is expected and logged at DEBUG; one that does not end is a WARNING.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._known: dict[TopicPartition, tuple[ErrorCode, int]] = {}
        """What was logged and has not ended, and how often it has happened in a row."""

    def __repr__(self) -> str:
        return f"FetchBackoff({len(self._known)} partitions)"

    def note(self, topic_partition: TopicPartition, code: ErrorCode, level: int, reason: str) -> None:
        """Something has happened; logged if it is not what happened last, or if it was expected to end."""
        known, times = self._known.get(topic_partition, (None, 0))
        times = times + 1 if known is code else 1
        if times == 1:
            self._logger.log(level, "fetching %s: %s", topic_partition, reason)
        elif times == EXPECTED_TIMES_MAX and code in EXPECTED_ERRORS:
            self._logger.warning("fetching %s: %s, %d times in a row", topic_partition, reason, times)
        self._known[topic_partition] = (code, times)

    def pause_ms(self, topic_partition: TopicPartition, *, backoff_ms: int) -> int:
        """How long the partition is delayed for the error that was noted last."""
        code, times = self._known.get(topic_partition, (ErrorCode.NONE, 0))
        if code not in EXPECTED_ERRORS:
            return backoff_ms
        return min(backoff_ms, INITIAL_BACKOFF_MS << min(times - 1, _DOUBLINGS_MAX))

    def end(self, topic_partition: TopicPartition) -> None:
        """The partition is fetched again, or no more."""
        if self._known:
            self._known.pop(topic_partition, None)


class FollowerThrottle:
    """Which partitions of one fetcher the follower's replication quota holds back (KIP-73). Nothing waits.

    Kafka: ``RemoteLeaderEndPoint.shouldFollowerThrottle`` and ``buildFetch``. While the quota is exceeded, a
    listed partition that is not in sync is not asked for: the leader is told to forget it, and hears of it
    again when the quota is free.

    Invariants: without listed partitions a round costs one look at an empty dictionary; only what is held
    back, or no longer held back, is asked for again.
    """

    __slots__ = ("_clock", "_held", "_quota")

    def __init__(self, quota: ReplicationQuotaManager, clock: Clock) -> None:
        self._quota = quota
        self._clock = clock
        self._held: dict[TopicPartition, None] = {}

    def __repr__(self) -> str:
        return f"FollowerThrottle({len(self._held)} held back, {self._quota!r})"

    @property
    def holds_any(self) -> bool:
        return bool(self._held)

    def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is held back, as of the last ``update``."""
        return topic_partition in self._held

    def update(self, states: FetchStates) -> None:
        """Decide again what is held back; partitions for which that changes are touched in ``states``."""
        quota, was_held = self._quota, self._held
        if not (quota.is_active or was_held):
            return
        self._held = {}
        if quota.is_active and quota.is_quota_exceeded(self._clock.monotonic_ms()):
            self._held = {
                topic_partition: None
                for topic_partition, state in states.items()
                if not state.is_in_sync and quota.is_throttled(topic_partition)
            }
        for topic_partition in self._held:
            quota.note_held_back(topic_partition)
        for topic_partition in (*was_held, *self._held):
            if not (topic_partition in was_held and topic_partition in self._held):
                states.touch(topic_partition)

    def release(self, topic_partition: TopicPartition) -> None:
        """The partition is no longer this fetcher's."""
        self._held.pop(topic_partition, None)

    def fetched(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """So much has come for a partition: it counts when it is listed, in sync or not."""
        if self._quota.is_throttled(topic_partition):
            self._quota.record(size_bytes, self._clock.monotonic_ms())


class FollowedPartitions(Generic[PartitionT]):
    """What one fetcher fetches, with its session. Every method is one step."""

    def __init__(
        self,
        *,
        replicas: Replicas[PartitionT],
        clock: Clock,
        config: Callable[[], BrokerConfig],
        failed_partitions: set[TopicPartition],
        quota: ReplicationQuotaManager,
    ) -> None:
        self.session: FetchSessionHandler[FetchedPartition] = FetchSessionHandler()
        self._states = FetchStates()
        self._throttle = FollowerThrottle(quota, clock)
        self._ask_quota_again_ms = 0
        self._replicas = replicas
        self._clock = clock
        self._config = config
        self._failed_partitions = failed_partitions
        self._out_of_range: dict[TopicPartition, PartitionFetchState] = {}
        self._backoff = FetchBackoff(logger)
        self.fetched_bytes = 0
        """Of records that were appended."""

    def __repr__(self) -> str:
        return f"FollowedPartitions({self._states!r}, {self.session!r})"

    def __len__(self) -> int:
        return len(self._states)

    # ---- coming and going

    def state_of(self, topic_partition: TopicPartition) -> PartitionFetchState | None:
        return self._states.get(topic_partition)

    def lags(self) -> list[tuple[TopicPartition, int]]:
        """By how many records those that have had an answer lag behind."""
        return [(each, state.lag) for each, state in self._states.items() if state.lag is not None]

    @property
    def next_due_ms(self) -> int | None:
        """When the first delayed partition may be fetched again, or the quota may be free."""
        due_ms = self._states.next_due_ms
        if self._throttle.holds_any and (due_ms is None or due_ms > self._ask_quota_again_ms):
            return self._ask_quota_again_ms
        return due_ms

    def add(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: UUID,
        current_leader_epoch: LeaderEpoch,
        fetch_offset: Offset,
    ) -> None:
        """Follow a leadership. One that is followed already stays as it is."""
        current = self._states.get(topic_partition)
        if current is not None:
            if (current.topic_id, current.current_leader_epoch) == (topic_id, current_leader_epoch):
                return
            self.remove(topic_partition)

        def begin(partition: PartitionT) -> None:
            state = PartitionFetchState.initial(
                topic_id,
                fetch_offset=fetch_offset,
                current_leader_epoch=current_leader_epoch,
                latest_epoch=partition.log.leader_epoch,
            )
            self._states.put(topic_partition, state)

        self._apply(topic_partition, begin)

    def adopt(self, states: Mapping[TopicPartition, PartitionFetchState]) -> None:
        """Go on where another fetcher stopped."""
        for topic_partition, state in states.items():
            self._states.put(topic_partition, state)

    def remove(self, topic_partition: TopicPartition) -> None:
        """Let go of a partition at once: an answer that is under way for it is ignored."""
        state = self._states.remove(topic_partition)
        self._throttle.release(topic_partition)
        self._backoff.end(topic_partition)
        if state is not None:
            self.session.drop((state.topic_id, topic_partition.partition))

    def take_all(self) -> dict[TopicPartition, PartitionFetchState]:
        """Let go of all partitions; returns where each was."""
        states = dict(self._states.items())
        for topic_partition in states:
            self.remove(topic_partition)
        return states

    # ---- asking

    def next_request(self) -> SessionRequest[FetchedPartition] | None:
        """What to ask the leader now; None when there is nothing to ask, or when the quota holds it all back.
        Cuts the logs that must be cut first."""
        config = self._config()
        max_bytes = config.replica_fetch_max_bytes
        now_ms = self._clock.monotonic_ms()
        self._throttle.update(self._states)
        self._ask_quota_again_ms = now_ms + config.replica_fetch_backoff_ms
        for topic_partition, state in self._states.take_changed(now_ms):
            self._apply(topic_partition, partial(self._ask, topic_partition, state, max_bytes))
        return self.session.next_request()

    def _ask(
        self,
        topic_partition: TopicPartition,
        state: PartitionFetchState,
        max_bytes: int,
        partition: PartitionT,
    ) -> None:
        key = (state.topic_id, topic_partition.partition)
        log = partition.log
        if state.is_truncating:
            cause = "it was at its high watermark when it began to follow"
            state = self._truncate(partition, topic_partition, state, log.high_watermark, cause)
        if not state.is_ready_for_fetch or self._throttle.holds(topic_partition):
            self.session.drop(key)
            return
        asked = FetchedPartition(
            topic_partition,
            state.fetch_offset,
            log.log_start_offset,
            log.high_watermark,
            state.current_leader_epoch,
            state.last_fetched_epoch,
            max_bytes,
        )
        self.session.want(key, asked)

    # ---- taking answers

    def take(self, topic_id: UUID, data: Any) -> None:
        """Take the answer of one partition, an entity of the Fetch response."""
        asked = self.session.sent((topic_id, data.partition_index))
        if asked is None:
            return
        topic_partition = asked.topic_partition
        state = self._states.get(topic_partition)
        if (
            state is None
            or state.topic_id != topic_id
            or state.current_leader_epoch != asked.current_leader_epoch
            or state.fetch_offset != asked.fetch_offset
            or not state.is_ready_for_fetch
        ):
            return
        if data.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range[topic_partition] = state
        elif data.error_code is not ErrorCode.NONE:
            self._refused(topic_partition, data.error_code)
        else:
            step = self._follow_divergence if data.diverging_epoch.epoch >= 0 else self._follow
            try:
                step(topic_partition, state, data, self._replicas.hosted(topic_partition))
            except Exception as error:  # noqa: BLE001 - it is logged
                self._step_failed(topic_partition, error)

    def _follow(
        self, topic_partition: TopicPartition, state: PartitionFetchState, data: Any, partition: PartitionT
    ) -> None:
        """Take records, high watermark and log start."""
        log = partition.log
        if log.log_end_offset != state.fetch_offset:
            raise InvariantError(
                f"fetched from offset {state.fetch_offset}, but the log ends at {log.log_end_offset}"
            )
        info = None
        if data.records:
            info = partition.append_as_follower(data.records, current_leader_epoch=state.current_leader_epoch)
            self.fetched_bytes += len(data.records)
            self.session.move_to_end((state.topic_id, topic_partition.partition))
        self._throttle.fetched(topic_partition, len(data.records or b""))
        high_watermark_moved = partition.update_follower_high_watermark(data.high_watermark)
        partition.maybe_increment_log_start_offset(data.log_start_offset)
        followed = state.fetched(
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.leader_epoch,
            lag=max(0, data.high_watermark - log.log_end_offset),
        )
        self._resume(topic_partition, followed)
        if info is not None or high_watermark_moved:
            self._replicas.follower_appended(partition, info)

    def _follow_divergence(
        self, topic_partition: TopicPartition, state: PartitionFetchState, data: Any, partition: PartitionT
    ) -> None:
        """Cut what the leader does not have."""
        log = partition.log
        diverging = data.diverging_epoch
        cut = truncation_point(
            leader_epoch=diverging.epoch,
            leader_end_offset=diverging.end_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            end_offset_for_epoch=log.end_offset_for_epoch,
        )
        logger.info(
            "%s diverged from its leader, where epoch %d ends at %d%s",
            topic_partition,
            diverging.epoch,
            diverging.end_offset,
            "" if cut.is_complete else "; the next answer may say more",
        )
        cause = f"its leader's epoch {diverging.epoch} ends at {diverging.end_offset}"
        after = self._truncate(partition, topic_partition, state, cut.offset, cause)
        if after == state:  # the same question would get the same answer (KAFKA-10706)
            self._backoff.note(topic_partition, ErrorCode.NONE, logging.ERROR, "a cut that changes nothing")
            self._delay(topic_partition)

    def _truncate(
        self,
        partition: PartitionT,
        topic_partition: TopicPartition,
        state: PartitionFetchState,
        offset: Offset,
        cause: str,
    ) -> PartitionFetchState:
        """Cut at ``offset``, or at the start of the batch that it lies in."""
        log = partition.log
        if offset < log.log_end_offset:
            logger.log(
                logging.WARNING if offset < log.high_watermark else logging.INFO,
                "truncating %s from %d to %d; its high watermark is %d",
                topic_partition,
                log.log_end_offset,
                offset,
                log.high_watermark,
            )
        partition.truncate_to(offset, cause=cause)
        return self._resume_at_log_end(partition, topic_partition, state)

    def _resume_at_log_end(
        self, partition: PartitionT, topic_partition: TopicPartition, state: PartitionFetchState
    ) -> PartitionFetchState:
        log = partition.log
        cut = state.truncated(fetch_offset=log.log_end_offset, last_fetched_epoch=log.leader_epoch)
        self._resume(topic_partition, cut)
        return cut

    def _resume(self, topic_partition: TopicPartition, state: PartitionFetchState) -> None:
        self._states.put(topic_partition, state)
        self._backoff.end(topic_partition)

    # ---- out of range

    def take_out_of_range(self) -> dict[TopicPartition, PartitionFetchState]:
        """The partitions whose fetch offset the leader does not have, for ``reset``."""
        out_of_range, self._out_of_range = self._out_of_range, {}
        return out_of_range

    def reset(
        self,
        topic_partition: TopicPartition,
        state: PartitionFetchState,
        *,
        earliest: ListedOffset,
        latest: ListedOffset,
    ) -> None:
        """Bring a log into the leader's range, unless the partition was touched since ``state``."""
        if self._states.get(topic_partition) is not state:
            return
        error = latest.error or earliest.error
        if error:
            self._refused(topic_partition, error)
        else:
            step = partial(self._reset, topic_partition, state, earliest.offset, latest.offset)
            self._apply(topic_partition, step)

    def _reset(
        self,
        topic_partition: TopicPartition,
        state: PartitionFetchState,
        leader_start_offset: Offset,
        leader_end_offset: Offset,
        partition: PartitionT,
    ) -> None:
        log_end_offset = partition.log.log_end_offset
        reset = reset_out_of_range(
            leader_start_offset=leader_start_offset,
            leader_end_offset=leader_end_offset,
            log_end_offset=log_end_offset,
        )
        reason = (
            f"its end {log_end_offset} is out of the leader's range, {leader_start_offset} to "
            f"{leader_end_offset}: {reset.action.name} {reset.offset}"
        )
        self._backoff.note(topic_partition, ErrorCode.OFFSET_OUT_OF_RANGE, logging.WARNING, reason)
        match reset.action:
            case ResetAction.TRUNCATE:
                self._truncate(partition, topic_partition, state, reset.offset, reason)
            case ResetAction.START_OVER:
                partition.truncate_fully_and_start_at(reset.offset, cause=reason)
                self._resume_at_log_end(partition, topic_partition, state)
            case ResetAction.KEEP:
                self._delay(topic_partition)

    # ---- failing

    def _apply(self, topic_partition: TopicPartition, step: Callable[[PartitionT], None]) -> None:
        """Do one thing to one partition."""
        try:
            step(self._replicas.hosted(topic_partition))
        except Exception as error:  # noqa: BLE001 - it is logged
            self._step_failed(topic_partition, error)

    def _step_failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Whatever goes wrong with one partition concerns this partition only."""
        if isinstance(error, KafkaError):
            if error.code in _RETRIED_ERRORS:
                self._backoff.note(topic_partition, error.code, logging.ERROR, str(error))
                self._delay(topic_partition)
                return
            with contextlib.suppress(KafkaError):  # not hosted any more, which is then the error
                self._replicas.note_failure(self._replicas.hosted(topic_partition), error)
        self._fail(topic_partition, error)

    def _refused(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        """The leader answered with an error."""
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(topic_partition, KafkaError(code), level=logging.INFO)
            return
        level = logging.DEBUG if code in EXPECTED_ERRORS else logging.WARNING
        self._backoff.note(topic_partition, code, level, f"the leader answers {code.name}")
        self._delay(topic_partition)

    def _delay(self, topic_partition: TopicPartition) -> None:
        backoff_ms = self._config().replica_fetch_backoff_ms
        pause_ms = self._backoff.pause_ms(topic_partition, backoff_ms=backoff_ms)
        self._states.delay(topic_partition, self._clock.monotonic_ms() + pause_ms)

    def _fail(self, topic_partition: TopicPartition, error: Exception, level: int = logging.ERROR) -> None:
        self._failed_partitions.add(topic_partition)
        self.remove(topic_partition)
        logger.log(
            level,
            "fetching of %s has stopped until its leadership changes: %s",
            topic_partition,
            error,
            exc_info=None if isinstance(error, KafkaError) else error,
        )


_NOT_LISTED = ListedOffset(ErrorCode.UNKNOWN_SERVER_ERROR, NO_OFFSET)
"""For a partition that the leader's answer leaves out."""


class ReplicaFetcher(Generic[PartitionT]):
    """A loop, ``run``, over ``partitions``. Belongs to the fetcher manager."""

    def __init__(
        self,
        leader: RemoteLeader,
        *,
        replicas: Replicas[PartitionT],
        clock: Clock,
        config: Callable[[], BrokerConfig],
        failed_partitions: set[TopicPartition],
        quota: ReplicationQuotaManager,
    ) -> None:
        self.leader = leader
        self.partitions = FollowedPartitions(
            replicas=replicas,
            clock=clock,
            config=config,
            failed_partitions=failed_partitions,
            quota=quota,
        )
        self.requests = 0
        """Fetch requests, answered or not."""
        self.request_rate = OneMinuteRate(clock.monotonic_ms)
        self._clock = clock
        self._config = config
        self._added = asyncio.Event()
        self._is_out_of_reach = False

    def __repr__(self) -> str:
        return f"ReplicaFetcher(broker {self.leader.endpoint}, {self.partitions!r})"

    def wake(self) -> None:
        """Partitions were added."""
        self._added.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                try:
                    await self._round()
                except (BrokerUnavailable, KafkaError) as error:
                    await self._back_off(str(error))
        finally:
            self.partitions.session.reset()
            await self.leader.close()

    async def _round(self) -> None:
        if not self.partitions:
            await self._wait_for_work()
            return
        await self.leader.connect()
        request = self.partitions.next_request()
        if request is None:
            await self._wait_for_work()
            return
        self.requests += 1
        self.request_rate.mark()
        response = await self.leader.fetch(request)
        keys = [
            (topic.topic_id, data.partition_index)
            for topic in response.responses
            for data in topic.partitions
        ]
        if self.partitions.session.answered(
            error=response.error_code, session_id=response.session_id, keys=keys
        ):
            self._note_success()
            await self._take(response)
        elif request.is_full:
            error = response.error_code
            reason = f"it answers {ErrorCode(error).name}" if error else "its answer is to another question"
            await self._back_off(f"broker {self.leader.endpoint}: {reason}")

    async def _take(self, response: Any) -> None:
        partitions = self.partitions
        time_slice = TimeSlice()
        for topic in response.responses:
            for data in topic.partitions:
                partitions.take(topic.topic_id, data)
                await time_slice.give_way()
        if out_of_range := partitions.take_out_of_range():
            await self._reset(out_of_range)

    async def _reset(self, out_of_range: Mapping[TopicPartition, PartitionFetchState]) -> None:
        epochs = {each: state.current_leader_epoch for each, state in out_of_range.items()}
        latest = await self.leader.list_offsets(epochs, LATEST_TIMESTAMP)
        earliest = await self.leader.list_offsets(epochs, EARLIEST_TIMESTAMP)
        for each, state in out_of_range.items():
            self.partitions.reset(
                each,
                state,
                earliest=earliest.get(each, _NOT_LISTED),
                latest=latest.get(each, _NOT_LISTED),
            )

    async def _wait_for_work(self) -> None:
        """Until partitions are added, or one that is delayed or held back may be fetched again."""
        self._added.clear()
        due_ms = self.partitions.next_due_ms
        wait_s = None if due_ms is None else max(0, due_ms - self._clock.monotonic_ms()) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._added.wait()

    async def _back_off(self, reason: str) -> None:
        """The leader is of no use for a while."""
        backoff_ms = self._config().replica_fetch_backoff_ms
        level = logging.DEBUG if self._is_out_of_reach else logging.WARNING
        logger.log(level, "cannot fetch, trying again every %d ms: %s", backoff_ms, reason)
        self._is_out_of_reach = True
        self.partitions.session.reset()
        await self.leader.close()
        await asyncio.sleep(backoff_ms / 1000)

    def _note_success(self) -> None:
        if self._is_out_of_reach:
            self._is_out_of_reach = False
            logger.info("fetching from broker %s again", self.leader.endpoint)
