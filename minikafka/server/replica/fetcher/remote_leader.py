"""The leader as its followers see it: one connection, and the two questions that a fetcher asks over it.

Kafka: ``RemoteLeaderEndPoint``, ``BrokerBlockingSender``; KIP-74 (byte limits), KIP-516 (topic ids), KIP-903
(the follower's broker epoch), KIP-1166 (the follower's high watermark).

Fetch goes out in the highest version that both speak, 15 at least: below that a follower could not name its
broker epoch. The high watermark that a follower knows is part of version 18; Kafka's brokers leave it out,
only its KRaft log sends it. ListOffsets names the follower too, so its "latest" is the leader's log end.

A question makes the connection where there is none. After a failure the fetcher closes it and waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from minikafka.config.broker import BrokerConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import AnyBody, Body
from minikafka.replication.fetch_session_handler import SessionRequest, TopicIdPartition
from minikafka.server.replica.replica_fetchers import LeaderEndpoint
from minikafka.types import BrokerId, LeaderEpoch, Offset, TopicPartition

FETCH_VERSION_MIN = 15
READ_UNCOMMITTED = 0


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
